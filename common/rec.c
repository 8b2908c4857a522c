/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in memory, driven by their tables: each operation is one walk over a table's fields
 * with a switch on the field's type. Members are reached by offset.
 */
#include <string.h>

#include "common/rec_internal.h"

void strmap_put(struct strmap *m, const char *key, const char *value)
{
	m->v = xrealloc(m->v, m->n + 1, sizeof(*m->v));
	m->v[m->n++] = (struct strmap_entry){xstrdup(key), xstrdup(value)};
}

const char *strmap_get(const struct strmap *m, const char *key)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->v[i].key, key) == 0)
			return m->v[i].value;
	return NULL;
}

void strmap_fini(struct strmap *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->v[i].key);
		free(m->v[i].value);
	}
	free(m->v);
	*m = (struct strmap){0};
}

/* --- freeing, copying, comparing ---------------------------------------------------------- */

static void fini_field(const struct rec_field *f, void *at)
{
	switch (f->type) {
	case REC_TYPE_STR:
	case REC_TYPE_PACKED: free(ptr_load(at)); break;
	case REC_TYPE_INT:
	case REC_TYPE_BOOL: break;
	case REC_TYPE_STRLIST: strlist_fini(at); break;
	case REC_TYPE_STRMAP: strmap_fini(at); break;
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT: json_decref(ptr_load(at)); break;
	case REC_TYPE_SUB: {
		void *sub = ptr_load(at);

		if (sub)
			rec_fini(f->sub, sub);
		free(sub);
		break;
	}
	case REC_TYPE_LIST: {
		struct raw_list l = list_load(at);

		for (size_t i = 0; i < l.n; i++)
			rec_fini(f->sub, element(l, f->sub, i));
		free(l.v);
		break;
	}
	}
}

void rec_fini(const struct rec_desc *desc, void *rec)
{
	for (size_t i = 0; i < desc->n_fields; i++)
		fini_field(&desc->fields[i], member(rec, &desc->fields[i]));
	memset(rec, 0, desc->size);
}

static void copy_field(const struct rec_field *f, void *to, const void *from)
{
	switch (f->type) {
	case REC_TYPE_STR: ptr_store(to, xstrdup_opt(ptr_load(from))); break;
	case REC_TYPE_INT: *(struct rec_int *)to = *(const struct rec_int *)from; break;
	case REC_TYPE_BOOL: *(struct rec_bool *)to = *(const struct rec_bool *)from; break;
	case REC_TYPE_STRLIST: {
		const struct strlist *l = from;

		for (size_t i = 0; i < l->n; i++)
			strlist_add(to, l->v[i]);
		break;
	}
	case REC_TYPE_STRMAP: {
		const struct strmap *m = from;

		for (size_t i = 0; i < m->n; i++)
			strmap_put(to, m->v[i].key, m->v[i].value);
		break;
	}
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT: ptr_store(to, json_deep_copy(ptr_load(from))); break;
	case REC_TYPE_PACKED: ptr_store(to, packed_copy(ptr_load(from))); break;
	case REC_TYPE_SUB: {
		const void *sub = ptr_load(from);
		void *copy = NULL;

		if (sub) {
			copy = xcalloc(1, f->sub->size);
			rec_copy(f->sub, copy, sub);
		}
		ptr_store(to, copy);
		break;
	}
	case REC_TYPE_LIST: {
		struct raw_list l = list_load(from);
		struct raw_list copy = {.v = l.n ? xcalloc(l.n, f->sub->size) : NULL, .n = l.n};

		for (size_t i = 0; i < l.n; i++)
			rec_copy(f->sub, element(copy, f->sub, i), element(l, f->sub, i));
		list_store(to, copy);
		break;
	}
	}
}

void rec_copy(const struct rec_desc *desc, void *to, const void *from)
{
	memset(to, 0, desc->size);
	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];

		copy_field(f, member(to, f), member_const(from, f));
	}
}

/* A text that is always shown is empty when it is unset. */
static bool text_equal(const struct rec_field *f, const char *a, const char *b)
{
	if (f->flags & REC_ALWAYS)
		return strcmp(a ? a : "", b ? b : "") == 0;
	return str_equal(a, b);
}

static bool strlist_equal(const struct strlist *a, const struct strlist *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->v[i], b->v[i]) != 0)
			return false;
	return true;
}

/* In whatever order. */
static bool strmap_equal(const struct strmap *a, const struct strmap *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (!str_equal(a->v[i].value, strmap_get(b, a->v[i].key)))
			return false;
	return true;
}

static bool list_equal(const struct rec_desc *sub, struct raw_list a, struct raw_list b)
{
	if (a.n != b.n)
		return false;
	for (size_t i = 0; i < a.n; i++)
		if (!rec_equal(sub, element(a, sub, i), element(b, sub, i)))
			return false;
	return true;
}

static bool tree_equal(const json_t *a, const json_t *b)
{
	return a && b ? json_equal(a, b) : a == b;
}

static bool sub_equal(const struct rec_desc *sub, const void *a, const void *b)
{
	return a && b ? rec_equal(sub, a, b) : a == b;
}

static bool field_equal(const struct rec_field *f, const void *a, const void *b)
{
	const struct rec_int *int_a = a, *int_b = b;
	const struct rec_bool *bool_a = a, *bool_b = b;

	switch (f->type) {
	case REC_TYPE_STR: return text_equal(f, ptr_load(a), ptr_load(b));
	case REC_TYPE_INT:
		return int_a->set == int_b->set && (!int_a->set || int_a->v == int_b->v);
	case REC_TYPE_BOOL:
		return bool_a->set == bool_b->set && (!bool_a->set || bool_a->v == bool_b->v);
	case REC_TYPE_STRLIST: return strlist_equal(a, b);
	case REC_TYPE_STRMAP: return strmap_equal(a, b);
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT: return tree_equal(ptr_load(a), ptr_load(b));
	case REC_TYPE_PACKED: return packed_equal(ptr_load(a), ptr_load(b));
	case REC_TYPE_SUB: return sub_equal(f->sub, ptr_load(a), ptr_load(b));
	case REC_TYPE_LIST: return list_equal(f->sub, list_load(a), list_load(b));
	}
	abort(); /* every type is above */
}

bool rec_equal(const struct rec_desc *desc, const void *a, const void *b)
{
	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];

		if (!field_equal(f, member_const(a, f), member_const(b, f)))
			return false;
	}
	return true;
}
