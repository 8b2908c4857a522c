/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * uthash with a keyed hash: keys come from claims and peers, and nobody outside knows this
 * process's key. To be included instead of <uthash.h>.
 */

#include <stddef.h>
#include <stdint.h>

#include "common/util.h"

unsigned hash_bytes(const void *data, size_t len);
/* All of it, for telling whether two texts are the same without keeping them. */
uint64_t hash_bytes_64(const void *data, size_t len);

#define HASH_FUNCTION(key_, len_, hash_) ((hash_) = hash_bytes(key_, len_))
#define uthash_malloc(size_)             xcalloc(1, size_)
#define uthash_free(p_, size_)           free(p_)
#include <uthash.h>
