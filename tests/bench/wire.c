/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/wire.h"

#include <string.h>

#include "tests/bench/lines.h"

enum wire_type { WIRE_VARINT = 0, WIRE_LENGTH = 2 };

static void put_varint(struct buf *to, uint64_t number)
{
	do {
		uint8_t byte = number & 0x7f;

		number >>= 7;
		if (number)
			byte |= 0x80;
		buf_put(to, &byte, 1);
	} while (number);
}

void wire_put_number(struct buf *to, unsigned field, uint64_t number)
{
	put_varint(to, field << 3 | WIRE_VARINT);
	put_varint(to, number);
}

void wire_put_bytes(struct buf *to, unsigned field, const void *data, size_t len)
{
	put_varint(to, field << 3 | WIRE_LENGTH);
	put_varint(to, len);
	buf_put(to, data, len);
}

void wire_put_text(struct buf *to, unsigned field, const char *text)
{
	wire_put_bytes(to, field, text, strlen(text));
}

static uint64_t take_varint(const uint8_t **data, size_t *len)
{
	uint64_t number = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte;

		if (*len == 0)
			lines_fail("protobuf: a number is cut off");
		byte = **data;
		(*data)++;
		(*len)--;
		number |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return number;
	}
	lines_fail("protobuf: a number is too long");
}

bool wire_next(const uint8_t **data, size_t *len, struct wire_field *ret)
{
	uint64_t key;

	if (*len == 0)
		return false;
	key = take_varint(data, len);
	*ret = (struct wire_field){
		.number = (unsigned)(key >> 3), .value = take_varint(data, len)};
	if ((key & 7) == WIRE_VARINT)
		return true;
	if ((key & 7) != WIRE_LENGTH || ret->value > *len)
		lines_fail("protobuf: field %u cannot be read", ret->number);
	ret->data = *data;
	ret->len = ret->value;
	*data += ret->len;
	*len -= ret->len;
	return true;
}
