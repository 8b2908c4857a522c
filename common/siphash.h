/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash for tables whose keys other people
 * choose. Who does not know the key cannot make keys that collide.
 */

#include <stddef.h>
#include <stdint.h>

#define SIPHASH_KEY_SIZE 16

uint64_t siphash24(const uint8_t key[static SIPHASH_KEY_SIZE], const void *data, size_t len);
