/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which part of an object concerns us, as a table, and the object without the rest.
 *
 * What is another program's is neither decoded nor judged: a number of 20 digits, a NUL, a key that
 * is there twice or a nesting of any depth in it is no reason not to read what is ours. What is
 * ours stays as it stands, so that a decoder finds what is wrong with it.
 */

#include <jansson.h>

#include "common/err.h"
#include "common/util.h"

struct json_mask;

struct json_mask_member {
	const char *name;
	const struct json_mask *mask; /* of the value; NULL: it stays whole */
};

/* Of an object, or of each object that an array has; any other value stays whole. */
struct json_mask {
	/* These stay, the others go. */
	const struct json_mask_member *members;
	size_t n_members;
	/* Where there is one: the path of a text that names the object's owner, one or two
	 * names. An object of the owner that is asked for stays whole. Of another owner's only
	 * `stub` stays: texts of up to JSON_MASK_STUB_MAX printable characters without escapes,
	 * "-" in the place of those that are missing or anything else. One whose path ends at the first of two names is nobody's
	 * and treated so, too. Without a text at the path's end the object stays whole. */
	const char *owner[2];
	const char *const *stub; /* names */
	size_t n_stub;
};

#define JSON_MASK_STUB_MAX 253

/* Appends the masked text to *ret. Lines are kept, columns where no stub comes before.
 * ERR_INVALID
 * when text is not one JSON value. */
int json_mask_text(const struct json_mask *mask, const char *owner, const char *text,
	size_t len, struct buf *ret, struct err *err);
/* The same of a tree, in place. */
void json_mask_tree(const struct json_mask *mask, const char *owner, json_t *tree);
