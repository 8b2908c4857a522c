/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen records: the same structs in one block, with pointers into the block, so that whoever
 * reads records does not know the difference.
 *
 * What the allocator adds to each of a dozen short texts is more than they are; and a text that
 * comes twice is in the block once: a device's name is its row's key, its interface's name and
 * often its name in the pod.
 *
 * A record is walked twice in the same way. The first walk finds out what there is: how much
 * room structs take, and which texts and objects (the pieces) there are. Then the block is made,
 * structs first for their alignment, and the second walk puts structs into it.
 */
#include <assert.h>
#include <stdalign.h>
#include <string.h>

#include "common/rec_internal.h"

/* A text with its NUL, or an object. */
struct piece {
	const void *data;
	size_t len, align;
	size_t at; /* in the block */
};

struct freezer {
	char *block; /* NULL in the first walk */
	size_t used; /* by structs */
	struct piece *pieces;
	size_t n_pieces, max_pieces;
};

static size_t aligned(size_t n, size_t align)
{
	return (n + align - 1) / align * align;
}

static struct piece *find_piece(const struct freezer *fz, const void *data, size_t len)
{
	for (size_t i = 0; i < fz->n_pieces; i++)
		if (fz->pieces[i].len == len && memcmp(fz->pieces[i].data, data, len) == 0)
			return &fz->pieces[i];
	return NULL;
}

/* Where it is in the block; in the first walk it is noted, and NULL returned. */
static const void *put_piece(struct freezer *fz, const void *data, size_t len, size_t align)
{
	const struct piece *piece = find_piece(fz, data, len);

	if (piece)
		return fz->block ? fz->block + piece->at : NULL;
	assert(!fz->block);
	if (fz->n_pieces == fz->max_pieces) {
		fz->max_pieces = fz->max_pieces ? fz->max_pieces * 2 : 16;
		fz->pieces = xrealloc(fz->pieces, fz->max_pieces, sizeof(*fz->pieces));
	}
	fz->pieces[fz->n_pieces++] = (struct piece){.data = data, .len = len, .align = align};
	return NULL;
}

static const void *put_text(struct freezer *fz, const char *text)
{
	return text ? put_piece(fz, text, strlen(text) + 1, 1) : NULL;
}

static const void *put_packed(struct freezer *fz, const struct packed *p)
{
	return p ? put_piece(fz, p, sizeof(*p) + p->len, alignof(struct packed)) : NULL;
}

/* NULL in the first walk. */
static void *put_room(struct freezer *fz, size_t size)
{
	char *room = fz->block ? fz->block + fz->used : NULL;

	fz->used += aligned(size, alignof(max_align_t));
	return room;
}

static struct strlist put_strlist(struct freezer *fz, const struct strlist *from)
{
	struct strlist to = {.n = from->n};

	if (from->n == 0)
		return to;
	to.v = put_room(fz, from->n * sizeof(*to.v));
	for (size_t i = 0; i < from->n; i++) {
		const void *text = put_text(fz, from->v[i]);

		if (to.v)
			to.v[i] = (char *)(uintptr_t)text;
	}
	return to;
}

static struct strmap put_strmap(struct freezer *fz, const struct strmap *from)
{
	struct strmap to = {.n = from->n};

	if (from->n == 0)
		return to;
	to.v = put_room(fz, from->n * sizeof(*to.v));
	for (size_t i = 0; i < from->n; i++) {
		const void *key = put_text(fz, from->v[i].key);
		const void *value = put_text(fz, from->v[i].value);

		if (to.v)
			to.v[i] = (struct strmap_entry){
				(char *)(uintptr_t)key, (char *)(uintptr_t)value};
	}
	return to;
}

static void put_fields(
	struct freezer *fz, const struct rec_desc *desc, const void *from, void *to);

static void *put_record(struct freezer *fz, const struct rec_desc *desc, const void *from)
{
	void *to;

	if (!from)
		return NULL;
	to = put_room(fz, desc->size);
	put_fields(fz, desc, from, to);
	return to;
}

static struct raw_list put_list(
	struct freezer *fz, const struct rec_desc *sub, struct raw_list from)
{
	struct raw_list to = {.n = from.n};

	if (from.n == 0)
		return to;
	to.v = put_room(fz, from.n * sub->size);
	for (size_t i = 0; i < from.n; i++)
		put_fields(fz, sub, element(from, sub, i), to.v ? element(to, sub, i) : NULL);
	return to;
}

/* to is NULL in the first walk, else the struct as it was, whose pointers are to be ours. */
static void put_field(struct freezer *fz, const struct rec_field *f, const void *from, void *to)
{
	const void *placed = NULL;

	switch (f->type) {
	case REC_TYPE_INT:
	case REC_TYPE_BOOL: return;
	case REC_TYPE_STRLIST: {
		struct strlist l = put_strlist(fz, from);

		if (to)
			*(struct strlist *)to = l;
		return;
	}
	case REC_TYPE_STRMAP: {
		struct strmap m = put_strmap(fz, from);

		if (to)
			*(struct strmap *)to = m;
		return;
	}
	case REC_TYPE_LIST: {
		struct raw_list l = put_list(fz, f->sub, list_load(from));

		if (to)
			list_store(to, l);
		return;
	}
	case REC_TYPE_STR: placed = put_text(fz, ptr_load(from)); break;
	case REC_TYPE_PACKED: placed = put_packed(fz, ptr_load(from)); break;
	case REC_TYPE_SUB: placed = put_record(fz, f->sub, ptr_load(from)); break;
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT: assert(!ptr_load(from)); break; /* what is kept is packed */
	}
	if (to)
		ptr_store(to, placed);
}

static void put_fields(
	struct freezer *fz, const struct rec_desc *desc, const void *from, void *to)
{
	if (to)
		memcpy(to, from, desc->size);
	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];

		put_field(fz, f, member_const(from, f), to ? member(to, f) : NULL);
	}
}

/* Gives each piece its place behind the structs, objects first. Returns the end. */
static size_t place_pieces(struct freezer *fz)
{
	static const size_t aligns[] = {alignof(struct packed), 1};
	size_t end = fz->used;

	for (size_t a = 0; a < ARRAY_SIZE(aligns); a++)
		for (size_t i = 0; i < fz->n_pieces; i++) {
			struct piece *piece = &fz->pieces[i];

			if (piece->align != aligns[a])
				continue;
			piece->at = aligned(end, piece->align);
			end = piece->at + piece->len;
		}
	return end;
}

void *rec_freeze(
	const struct rec_desc *desc, const void *rec, const char *text, const char **ret_text)
{
	struct freezer fz = {0};
	char *block;
	void *frozen;

	(void)put_record(&fz, desc, rec);
	(void)put_text(&fz, text);
	block = xcalloc(1, place_pieces(&fz));
	for (size_t i = 0; i < fz.n_pieces; i++)
		memcpy(block + fz.pieces[i].at, fz.pieces[i].data, fz.pieces[i].len);
	fz.block = block;
	fz.used = 0;
	frozen = put_record(&fz, desc, rec);
	if (ret_text)
		*ret_text = put_text(&fz, text);
	free(fz.pieces);
	return frozen;
}
