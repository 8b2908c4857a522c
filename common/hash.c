/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hash.h"

#include <sys/random.h>

#include "common/siphash.h"

/* Drawn at the first use and kept for as long as the process lives: a hash must not change. */
static uint8_t key[SIPHASH_KEY_SIZE];
static bool key_drawn;

uint64_t hash_bytes_64(const void *data, size_t len)
{
	if (!key_drawn) {
		if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
			abort(); /* 16 bytes are always given whole: random(4) */
		key_drawn = true;
	}
	return siphash24(key, data, len);
}

unsigned hash_bytes(const void *data, size_t len)
{
	return (unsigned)hash_bytes_64(data, len);
}
