/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between the parts of the records: rec.c (what is in memory), rec_tree.c (trees) and
 * rec_wire.c (MessagePack). */

#include <string.h>

#include "common/rec.h"

/* --- members ------------------------------------------------------------------------------ */

/* A list member is a {pointer, count} pair whatever its element type is; it is read and written
 * by memcpy, since the element type is not known here. */
struct raw_list {
	void *v;
	size_t n;
};

static inline void *member(void *rec, const struct rec_field *f)
{
	return (char *)rec + f->offset;
}

static inline const void *member_const(const void *rec, const struct rec_field *f)
{
	return (const char *)rec + f->offset;
}

static inline struct raw_list list_load(const void *at)
{
	struct raw_list l;

	memcpy(&l, at, sizeof(l));
	return l;
}

static inline void list_store(void *at, struct raw_list l)
{
	memcpy(at, &l, sizeof(l));
}

static inline void *ptr_load(const void *at)
{
	void *p;

	memcpy(&p, at, sizeof(p));
	return p;
}

static inline void ptr_store(void *at, const void *p)
{
	memcpy(at, &p, sizeof(p));
}

static inline void *element(struct raw_list l, const struct rec_desc *sub, size_t i)
{
	return (char *)l.v + i * sub->size;
}

/* --- decoding ----------------------------------------------------------------------------- */

/* Where a decode is: a chain on the stack, which becomes text only when something is wrong. */
struct frame {
	const struct frame *up;
	const char *name; /* of a field or a map's key; NULL: an element */
	size_t index;
	const json_t *node; /* NULL where there is no tree */
};

struct decoder {
	enum rec_mode mode;
	const char *root;
	const struct rec_source *source;
	struct err *err;
};

/* All return -1, with what is wrong in d->err, behind the place. */
int decode_fail(const struct decoder *d, const struct frame *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int decode_fail_at(const struct decoder *d, const struct frame *at); /* it is in err already */
int decode_fail_type(
	const struct decoder *d, const struct frame *at, const char *expected, const char *is);

/* The bounds and checks that a field's table says, whatever the value came from. */
int decode_check_text(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, const char *text, size_t len, size_t max);
int decode_check_int(const struct decoder *d, const struct frame *at, const struct rec_field *f,
	int64_t v, struct rec_int *ret);
int decode_check_count(
	const struct decoder *d, const struct frame *at, const struct rec_field *f, size_t n);
int decode_check_packed(
	const struct decoder *d, const struct frame *at, const struct packed *packed);
/* A text's own bound, or that of all. */
size_t decode_max_text(const struct rec_field *f);
