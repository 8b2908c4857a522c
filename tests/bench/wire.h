/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * As much protobuf as the measuring peers need: fields that are texts, bytes or numbers. It shares
 * nothing with the code that is measured.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/util.h"

void wire_put_number(struct buf *to, unsigned field, uint64_t number);
void wire_put_bytes(struct buf *to, unsigned field, const void *data, size_t len);
void wire_put_text(struct buf *to, unsigned field, const char *text);

struct wire_field {
	unsigned number;
	uint64_t value;      /* of a number */
	const uint8_t *data; /* of texts and bytes; NULL for a number */
	size_t len;
};

/* Reads the next field off *data. false at the end. Fails on what it cannot read. */
bool wire_next(const uint8_t **data, size_t *len, struct wire_field *ret);
