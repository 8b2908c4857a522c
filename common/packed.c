/* SPDX-License-Identifier: Apache-2.0 */
#include "common/packed.h"

#include <assert.h>
#include <string.h>

#include "common/mp.h"

struct packed *packed_of_bytes(const void *bytes, size_t len)
{
	struct packed *p;

	assert(len <= UINT32_MAX);
	p = xcalloc(1, sizeof(*p) + len);
	p->len = (uint32_t)len;
	memcpy(p->bytes, bytes, len);
	return p;
}

struct packed *packed_new(const json_t *object)
{
	cleanup_buf struct buf bytes = BUF_INIT;

	if (!object)
		return NULL;
	assert(json_is_object(object));
	mp_encode(object, &bytes);
	return packed_of_bytes(bytes.data, bytes.len);
}

struct packed *packed_take(json_t *object)
{
	struct packed *p = packed_new(object);

	json_decref(object);
	return p;
}

struct packed *packed_copy(const struct packed *p)
{
	return p ? packed_of_bytes(p->bytes, p->len) : NULL;
}

json_t *packed_open(const struct packed *p)
{
	struct mp_cursor c;

	if (!p)
		return NULL;
	c = mp_cursor(p->bytes);
	return mp_tree(&c);
}

/* Members in another order take as many bytes. */
bool packed_equal(const struct packed *a, const struct packed *b)
{
	json_t *ta, *tb;
	bool equal;

	if (!a || !b)
		return a == b;
	if (a->len != b->len)
		return false;
	if (memcmp(a->bytes, b->bytes, a->len) == 0)
		return true;
	ta = packed_open(a);
	tb = packed_open(b);
	equal = json_equal(ta, tb);
	json_decref(ta);
	json_decref(tb);
	return equal;
}

char *packed_text(const struct packed *p, const char *outer, const char *inner)
{
	struct mp_cursor c;
	struct mp_value v;

	if (!p)
		return NULL;
	c = mp_cursor(p->bytes);
	if (!mp_find(&c, outer) || !mp_find(&c, inner))
		return NULL;
	v = mp_next(&c);
	return v.type == MP_TEXT ? xmemdup0(v.text.v, v.text.len) : NULL;
}

size_t packed_size(const struct packed *p)
{
	struct mp_cursor c;

	if (!p)
		return 0;
	c = mp_cursor(p->bytes);
	return mp_next(&c).count;
}

static unsigned depth_of(struct mp_cursor *c)
{
	struct mp_value v = mp_next(c);
	uint64_t elements = v.type == MP_MAP ? (uint64_t)v.count * 2 : v.count;
	unsigned deepest = 0;

	if (v.type != MP_MAP && v.type != MP_LIST)
		return 0;
	for (uint64_t i = 0; i < elements; i++) {
		unsigned depth = depth_of(c);

		deepest = MAX(deepest, depth);
	}
	return deepest + 1;
}

unsigned packed_depth(const struct packed *p)
{
	struct mp_cursor c;

	if (!p)
		return 0;
	c = mp_cursor(p->bytes);
	return depth_of(&c);
}
