/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MessagePack, with a guard in front.
 *
 * What a peer sends passes two gates. mp_scan() knows limits and keeps its place between reads,
 * so that a header which claims gigabytes costs nothing; mp_check() looks at a message that is
 * complete. What passed both can be read without anything going wrong: the functions that read
 * take such bytes only, and return no errors.
 *
 * Source: the MessagePack specification (github.com/msgpack/msgpack, spec.md).
 */

#include <jansson.h>

#include "common/err.h"
#include "common/util.h"

#define MP_MAX_DEPTH    16
/* Elements in one message, to bound what walking over it takes. The largest honest one, 16384
 * allocations, is within it. */
#define MP_MAX_ELEMENTS (1u << 20)

/* --- the gates ---------------------------------------------------------------------------- */

/* Where a scan stands. Zero it before each message. */
struct mp_scan {
	size_t at;       /* offset of the next header; may lie beyond what has arrived */
	size_t elements; /* seen so far */
	unsigned depth;
	struct mp_level {
		uint32_t left; /* elements still to come at this level */
		bool map, key; /* in a map; and the next one is a key */
	} level[MP_MAX_DEPTH];
	bool started;
};

/* Goes on with a message of which len bytes are there. 1: complete, and scan->at is its length.
 * 0: more is needed. -1: it is malformed or over a limit. */
int mp_scan(
	struct mp_scan *scan, const void *data, size_t len, size_t max_bytes, struct err *err);

/* Whether one whole message that mp_scan() passed has meaning throughout: text that is not
 * UTF-8, a map's key twice or with a NUL in it have none. err says where: "devices[3].name: ...". A
 * sender asks the same of what it has encoded. */
int mp_check(const void *data, size_t len, struct err *err);

/* --- reading ------------------------------------------------------------------------------ */

enum mp_type { MP_NULL, MP_BOOL, MP_INT, MP_REAL, MP_TEXT, MP_LIST, MP_MAP };

struct mp_value {
	enum mp_type type;
	union {
		bool truth;
		int64_t number;
		double real;
		struct {
			const char *v; /* borrowed; there is no NUL behind it */
			size_t len;
		} text;
		uint32_t count; /* elements of a list, pairs of a map: they follow */
	};
};

/* Where reading stands. A copy of it is a bookmark. */
struct mp_cursor {
	const uint8_t *at;
};

static inline struct mp_cursor mp_cursor(const void *data)
{
	return (struct mp_cursor){data};
}

/* The next value; a container's elements come next, keys and values of a map in turns. */
struct mp_value mp_next(struct mp_cursor *c);
/* Goes past one whole value. */
void mp_skip(struct mp_cursor *c);
/* Enters the next value if it is a map, and goes to the value of this key. false: there is none,
 * and the cursor is nowhere. */
bool mp_find(struct mp_cursor *c, const char *key);
/* The next whole value as a tree, the caller's. */
json_t *mp_tree(struct mp_cursor *c);

/* Checks one whole message that mp_scan() passed, and reads it. */
int mp_decode(const void *data, size_t len, json_t **ret, struct err *err);

/* --- writing ------------------------------------------------------------------------------ */

/* Each appends to out. A container's elements come next, as many as were said. */
void mp_put_null(struct buf *out);
void mp_put_bool(struct buf *out, bool v);
void mp_put_int(struct buf *out, int64_t v);
void mp_put_text(struct buf *out, const char *text);
void mp_put_list(struct buf *out, size_t elements);
void mp_put_map(struct buf *out, size_t pairs);
void mp_encode(const json_t *tree, struct buf *out);
