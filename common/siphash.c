/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SipHash-2-4: four words of state, keyed; two rounds for each eight bytes of input, read as a
 * little-endian word, and four at the end. The last word holds what is left of the input and,
 * in its top byte, the length.
 */
#include "common/siphash.h"

struct sip {
	uint64_t v0, v1, v2, v3;
};

static uint64_t load_le(const uint8_t *p, size_t n)
{
	uint64_t word = 0;

	for (size_t i = 0; i < n; i++)
		word |= (uint64_t)p[i] << (8 * i);
	return word;
}

static uint64_t rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void sip_rounds(struct sip *s, unsigned n)
{
	while (n--) {
		s->v0 += s->v1;
		s->v2 += s->v3;
		s->v1 = rotate(s->v1, 13) ^ s->v0;
		s->v3 = rotate(s->v3, 16) ^ s->v2;
		s->v0 = rotate(s->v0, 32);
		s->v2 += s->v1;
		s->v0 += s->v3;
		s->v1 = rotate(s->v1, 17) ^ s->v2;
		s->v3 = rotate(s->v3, 21) ^ s->v0;
		s->v2 = rotate(s->v2, 32);
	}
}

static void sip_word(struct sip *s, uint64_t word)
{
	s->v3 ^= word;
	sip_rounds(s, 2);
	s->v0 ^= word;
}

/* The constants spell "somepseudorandomlygeneratedbytes". */
uint64_t siphash24(const uint8_t key[static SIPHASH_KEY_SIZE], const void *data, size_t len)
{
	const uint64_t k0 = load_le(key, 8), k1 = load_le(key + 8, 8);
	const uint8_t *p = data;
	struct sip s = {
		.v0 = k0 ^ 0x736f6d6570736575,
		.v1 = k1 ^ 0x646f72616e646f6d,
		.v2 = k0 ^ 0x6c7967656e657261,
		.v3 = k1 ^ 0x7465646279746573,
	};

	for (size_t left = len; left >= 8; left -= 8, p += 8)
		sip_word(&s, load_le(p, 8));
	sip_word(&s, load_le(p, len % 8) | (uint64_t)len << 56);
	s.v2 ^= 0xff;
	sip_rounds(&s, 4);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
