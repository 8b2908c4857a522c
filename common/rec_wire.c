/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records from and to MessagePack, without a tree in between: an inventory of thousands of
 * devices as a tree takes many times what it is as records.
 *
 * The bytes have passed mp.h's gates, so that only what they say can be wrong. A map's members
 * come in the order of whoever wrote them; they are looked through once, to find out where each
 * field's value is, and then the fields are read in the order of their table, as from a tree.
 * The writer mostly has the same table, so that a field's name is mostly the one after the last.
 */
#include <assert.h>

#include "common/mp.h"
#include "common/rec_internal.h"

#define MAX_FIELDS 32 /* of a record of ours: where their values are is kept on the stack */

/* --- decoding ----------------------------------------------------------------------------- */

static const char *type_name(const struct mp_value *v)
{
	static const char *const names[] = {
		[MP_NULL] = "null",
		[MP_BOOL] = "a boolean",
		[MP_INT] = "a number",
		[MP_REAL] = "a number",
		[MP_TEXT] = "a text",
		[MP_LIST] = "a list",
		[MP_MAP] = "a map",
	};

	return names[v->type];
}

/* Takes the next value, which must be of this type. */
static int expect(const struct decoder *d, const struct frame *at, struct mp_cursor *c,
	enum mp_type type, const char *what, struct mp_value *ret)
{
	*ret = mp_next(c);
	return ret->type == type ? 0 : decode_fail_type(d, at, what, type_name(ret));
}

static int decode_text(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct mp_cursor *c, size_t max, char **ret)
{
	cleanup_free char *text = NULL;
	struct mp_value v;

	if (expect(d, at, c, MP_TEXT, "a text", &v) < 0)
		return -1;
	text = xmemdup0(v.text.v, v.text.len);
	if (decode_check_text(d, at, f, text, v.text.len, max) < 0)
		return -1;
	*ret = take_ptr(text);
	return 0;
}

static int decode_int(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct mp_cursor *c, struct rec_int *ret)
{
	struct mp_value v;

	if (expect(d, at, c, MP_INT, "a whole number", &v) < 0)
		return -1;
	return decode_check_int(d, at, f, v.number, ret);
}

static int decode_bool(const struct decoder *d, const struct frame *at, struct mp_cursor *c,
	struct rec_bool *ret)
{
	struct mp_value v;

	if (expect(d, at, c, MP_BOOL, "true or false", &v) < 0)
		return -1;
	*ret = (struct rec_bool){.v = v.truth, .set = true};
	return 0;
}

static int decode_strlist(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct mp_cursor *c, struct strlist *ret)
{
	struct mp_value list;

	if (expect(d, at, c, MP_LIST, "a list of texts", &list) < 0 ||
		decode_check_count(d, at, f, list.count) < 0)
		return -1;
	for (uint32_t i = 0; i < list.count; i++) {
		struct frame here = {.up = at, .index = i};
		cleanup_free char *text = NULL;

		if (decode_text(d, &here, f, c, REC_MAX_TEXT, &text) < 0)
			return -1;
		strlist_add(ret, text);
	}
	return 0;
}

static int decode_strmap(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct mp_cursor *c, struct strmap *ret)
{
	static const struct rec_field plain = {.name = ""};
	struct mp_value map;

	if (expect(d, at, c, MP_MAP, "a map of texts", &map) < 0 ||
		decode_check_count(d, at, f, map.count) < 0)
		return -1;
	for (uint32_t i = 0; i < map.count; i++) {
		struct mp_value v = mp_next(c);
		cleanup_free char *key = xmemdup0(v.text.v, v.text.len), *text = NULL;
		struct frame here = {.up = at, .name = key};

		if (decode_check_text(d, &here, f, key, v.text.len, REC_MAX_TEXT) < 0 ||
			decode_text(d, &here, &plain, c, REC_MAX_TEXT, &text) < 0)
			return -1;
		strmap_put(ret, key, text);
	}
	return 0;
}

static int decode_packed(
	const struct decoder *d, const struct frame *at, struct mp_cursor *c, void *to)
{
	const struct mp_cursor begin = *c;
	struct packed *packed;
	struct mp_value v;

	if (expect(d, at, c, MP_MAP, "a map", &v) < 0)
		return -1;
	*c = begin;
	mp_skip(c);
	packed = packed_of_bytes(begin.at, (size_t)(c->at - begin.at));
	ptr_store(to, packed);
	return decode_check_packed(d, at, packed);
}

static int decode_tree(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct mp_cursor *c, void *to)
{
	const struct mp_cursor begin = *c;
	struct mp_value v = mp_next(c);

	if (f->type == REC_TYPE_OBJECT && v.type != MP_MAP)
		return decode_fail_type(d, at, "a map", type_name(&v));
	*c = begin;
	ptr_store(to, mp_tree(c));
	return 0;
}

static int decode_record(const struct decoder *d, const struct frame *at,
	const struct rec_desc *desc, struct mp_cursor *c, void *rec);

static int decode_list(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct mp_cursor *c, void *to)
{
	struct raw_list l = {0};
	struct mp_value list;

	if (expect(d, at, c, MP_LIST, "a list", &list) < 0 ||
		decode_check_count(d, at, f, list.count) < 0)
		return -1;
	if (list.count == 0)
		return 0;
	l.v = xcalloc(list.count, f->sub->size);
	for (uint32_t i = 0; i < list.count; i++) {
		struct frame here = {.up = at, .index = i};

		/* counted before it is decoded: a half-decoded element is freed with the
		 * rest */
		l.n = i + 1;
		list_store(to, l);
		if (decode_record(d, &here, f->sub, c, element(l, f->sub, i)) < 0)
			return -1;
	}
	return 0;
}

static int decode_field(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct mp_cursor *c, void *to)
{
	switch (f->type) {
	case REC_TYPE_STR: return decode_text(d, at, f, c, decode_max_text(f), to);
	case REC_TYPE_INT: return decode_int(d, at, f, c, to);
	case REC_TYPE_BOOL: return decode_bool(d, at, c, to);
	case REC_TYPE_STRLIST: return decode_strlist(d, at, f, c, to);
	case REC_TYPE_STRMAP: return decode_strmap(d, at, f, c, to);
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT: return decode_tree(d, at, f, c, to);
	case REC_TYPE_PACKED: return decode_packed(d, at, c, to);
	case REC_TYPE_SUB: {
		void *sub = xcalloc(1, f->sub->size);

		ptr_store(to, sub);
		return decode_record(d, at, f->sub, c, sub);
	}
	case REC_TYPE_LIST: return decode_list(d, at, f, c, to);
	}
	abort(); /* every type is above */
}

/* The field of this name, looked for from `from` on and around; n_fields: none. */
static size_t find_field(const struct rec_desc *desc, const struct mp_value *name, size_t from)
{
	for (size_t i = 0; i < desc->n_fields; i++) {
		size_t at = (from + i) % desc->n_fields;
		const char *own = desc->fields[at].name;

		if (strlen(own) == name->text.len &&
			memcmp(own, name->text.v, name->text.len) == 0)
			return at;
	}
	return desc->n_fields;
}

/* Goes past the map. Where there is no value, or null, the cursor is NULL. */
static void find_values(const struct rec_desc *desc, uint32_t pairs, struct mp_cursor *c,
	struct mp_cursor values[static MAX_FIELDS])
{
	size_t next = 0;

	for (uint32_t i = 0; i < pairs; i++) {
		struct mp_value name = mp_next(c);
		size_t at = find_field(desc, &name, next);
		struct mp_cursor value = *c;

		if (at < desc->n_fields && mp_next(&value).type != MP_NULL) {
			values[at] = *c;
			next = at + 1;
		}
		mp_skip(c);
	}
}

static int decode_record(const struct decoder *d, const struct frame *at,
	const struct rec_desc *desc, struct mp_cursor *c, void *rec)
{
	struct mp_cursor values[MAX_FIELDS] = {0};
	struct mp_value map;

	assert(desc->n_fields <= MAX_FIELDS);
	if (expect(d, at, c, MP_MAP, "a map", &map) < 0)
		return -1;
	find_values(desc, map.count, c, values);
	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];
		struct frame here = {.up = at, .name = f->name};

		if (!values[i].at) {
			if (f->flags & REC_REQUIRED)
				return decode_fail(d, &here, "is required");
			continue;
		}
		if (decode_field(d, &here, f, &values[i], member(rec, f)) < 0)
			return -1;
	}
	if (desc->check && desc->check(rec, d->err) < 0)
		return decode_fail_at(d, at);
	return 0;
}

int rec_unpack(const struct rec_desc *desc, struct mp_cursor *from, void *rec, struct err *err)
{
	const struct decoder d = {.mode = REC_LENIENT, .root = "", .err = err};
	const struct frame top = {0};

	if (decode_record(&d, &top, desc, from, rec) < 0) {
		rec_fini(desc, rec);
		return -1;
	}
	return 0;
}

/* --- encoding ----------------------------------------------------------------------------- */

static bool is_set(const struct rec_field *f, const void *at)
{
	switch (f->type) {
	case REC_TYPE_STR:
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT:
	case REC_TYPE_PACKED:
	case REC_TYPE_SUB: return ptr_load(at) != NULL;
	case REC_TYPE_INT: return ((const struct rec_int *)at)->set;
	case REC_TYPE_BOOL: return ((const struct rec_bool *)at)->set;
	case REC_TYPE_STRLIST: return ((const struct strlist *)at)->n > 0;
	case REC_TYPE_STRMAP: return ((const struct strmap *)at)->n > 0;
	case REC_TYPE_LIST: return list_load(at).n > 0;
	}
	abort(); /* every type is above */
}

static void put_unset(const struct rec_field *f, struct buf *to)
{
	switch (f->type) {
	case REC_TYPE_STR: mp_put_text(to, ""); break;
	case REC_TYPE_STRLIST:
	case REC_TYPE_LIST: mp_put_list(to, 0); break;
	case REC_TYPE_INT:
	case REC_TYPE_BOOL:
	case REC_TYPE_STRMAP:
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT:
	case REC_TYPE_PACKED:
	case REC_TYPE_SUB:
	default: mp_put_null(to); break;
	}
}

static void put_strlist(const struct strlist *l, struct buf *to)
{
	mp_put_list(to, l->n);
	for (size_t i = 0; i < l->n; i++)
		mp_put_text(to, l->v[i]);
}

static void put_strmap(const struct strmap *m, struct buf *to)
{
	mp_put_map(to, m->n);
	for (size_t i = 0; i < m->n; i++) {
		mp_put_text(to, m->v[i].key);
		mp_put_text(to, m->v[i].value);
	}
}

static void put_packed(const struct packed *packed, struct buf *to)
{
	buf_put(to, packed->bytes, packed->len);
}

static void put_list(struct raw_list l, const struct rec_desc *sub, struct buf *to)
{
	mp_put_list(to, l.n);
	for (size_t i = 0; i < l.n; i++)
		rec_pack(sub, element(l, sub, i), to);
}

static void put_field(const struct rec_field *f, const void *at, struct buf *to)
{
	switch (f->type) {
	case REC_TYPE_STR: mp_put_text(to, ptr_load(at)); break;
	case REC_TYPE_INT: mp_put_int(to, ((const struct rec_int *)at)->v); break;
	case REC_TYPE_BOOL: mp_put_bool(to, ((const struct rec_bool *)at)->v); break;
	case REC_TYPE_STRLIST: put_strlist(at, to); break;
	case REC_TYPE_STRMAP: put_strmap(at, to); break;
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT: mp_encode(ptr_load(at), to); break;
	case REC_TYPE_PACKED: put_packed(ptr_load(at), to); break;
	case REC_TYPE_SUB: rec_pack(f->sub, ptr_load(at), to); break;
	case REC_TYPE_LIST: put_list(list_load(at), f->sub, to); break;
	}
}

void rec_pack(const struct rec_desc *desc, const void *rec, struct buf *to)
{
	size_t n = 0;

	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];

		n += (f->flags & REC_ALWAYS) || is_set(f, member_const(rec, f));
	}
	mp_put_map(to, n);
	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];
		const void *at = member_const(rec, f);

		if (!is_set(f, at) && !(f->flags & REC_ALWAYS))
			continue;
		mp_put_text(to, f->name);
		if (is_set(f, at))
			put_field(f, at, to);
		else
			put_unset(f, to);
	}
}
