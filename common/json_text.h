/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Looking into a JSON text (RFC 8259) without reading it: where values begin and end, and which
 * members an object has. A number is not converted, a text is not decoded, so that a value which
 * no program can hold is a value like any other. Nothing is copied, and no depth of the text is a
 * depth of the stack.
 */

#include <stdbool.h>
#include <stddef.h>

struct json_text {
	const char *at;
	size_t len;
};

/* Cuts a value with the white space in front of it off the front of *text; *ret is the value
 * without the white space. -1 when there is none that is well-formed. What only a decoder sees
 * counts as well-formed: invalid UTF-8, lone surrogates, numbers of any size. */
int json_text_value(struct json_text *text, struct json_text *ret);
/* Whether nothing but white space is left. */
bool json_text_is_blank(struct json_text text);

/* Members of an object and elements of an array, one after the other. container is a value as
 * json_text_value() returns it; NULL for key: it is an array. 1: there it is; 0: there is none any
 * more. at: what is left of the container. */
struct json_text_walk {
	struct json_text left;
	bool is_object;
};
struct json_text_walk json_text_walk(struct json_text container);
int json_text_next(
	struct json_text_walk *walk, struct json_text *ret_key, struct json_text *ret_value);

static inline bool json_text_is(struct json_text value, char first)
{
	return value.len > 0 && *value.at == first;
}
/* Whether the value is a text that reads so, escapes decoded. */
bool json_text_equal(struct json_text value, const char *text);
