/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pure functions from bytes to values and back; what a connection does with them is grpc.c.
 */
#include "draplugind/grpc_wire.h"

#include <string.h>

#define TIMEOUT_DIGITS 8 /* at most, by the protocol */

struct grpc_prefix grpc_prefix_decode(const char data[static GRPC_PREFIX_LEN])
{
	struct grpc_prefix prefix = {.flag = (uint8_t)data[0]};

	for (int i = 1; i < GRPC_PREFIX_LEN; i++)
		prefix.len = prefix.len << 8 | (uint8_t)data[i];
	return prefix;
}

void grpc_prefix_encode(uint32_t len, uint8_t data[static GRPC_PREFIX_LEN])
{
	data[0] = 0; /* we never compress */
	for (int i = 1; i < GRPC_PREFIX_LEN; i++)
		data[i] = (uint8_t)(len >> (8 * (GRPC_PREFIX_LEN - 1 - i)));
}

/* Nanoseconds of a timeout's unit, or 0. */
static uint64_t unit_ns(char unit)
{
	switch (unit) {
	case 'n': return 1;
	case 'u': return 1000;
	case 'm': return 1000000;
	case 'S': return 1000000000;
	case 'M': return 60 * UINT64_C(1000000000);
	case 'H': return 3600 * UINT64_C(1000000000);
	default: return 0;
	}
}

int grpc_timeout_parse(const char *text, size_t len, uint64_t *ret_ms)
{
	uint64_t count = 0, unit, ms;

	if (len < 2 || len > TIMEOUT_DIGITS + 1)
		return -1;
	for (size_t i = 0; i < len - 1; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		count = count * 10 + (uint64_t)(text[i] - '0');
	}
	unit = unit_ns(text[len - 1]);
	if (unit == 0)
		return -1;
	/* 8 digits of hours are more nanoseconds than 64 bits hold */
	ms = unit >= 1000000 ? count * (unit / 1000000) : (count * unit + 999999) / 1000000;
	*ret_ms = ms;
	return 0;
}

bool grpc_content_type(const char *text, size_t len)
{
	static const char grpc[] = "application/grpc";
	const size_t n = sizeof(grpc) - 1;

	if (len < n || memcmp(text, grpc, n) != 0)
		return false;
	return len == n || text[n] == '+' || text[n] == ';';
}

void grpc_message_escape(struct buf *to, const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c < 0x20 || *c > 0x7e || *c == '%')
			buf_printf(to, "%%%02X", (unsigned)*c);
		else
			buf_put(to, c, 1);
	}
}
