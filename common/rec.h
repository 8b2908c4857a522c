/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Records: one table of fields for each struct that crosses a process or a file.
 *
 * A record's table says of each field its name outside, its C type, its bounds, whether it is
 * required, and what it means. From that one table come decoding and encoding (from and to
 * MessagePack, and Jansson's json_t, whether the syntax outside was JSON or YAML), validation,
 * copying, freeing and the documentation. No field's name is written anywhere else.
 *
 * Unset and zero are different things: strings are NULL when unset, numbers and booleans carry
 * a flag, sub-records are pointers. Lists and maps are empty when unset.
 *
 * A struct must be zeroed (`= {0}`) before its first decode. A failed decode leaves it zeroed.
 */

#include <jansson.h>
#include <stdint.h>

#include "common/err.h"
#include "common/packed.h"
#include "common/util.h"

struct rec_int {
	int64_t v;
	bool set;
};

struct rec_bool {
	bool v, set;
};

/* text -> text, in the order given; a key occurs once */
struct strmap_entry {
	char *key, *value;
};
struct strmap {
	struct strmap_entry *v;
	size_t n;
};
void strmap_put(struct strmap *m, const char *key, const char *value);
const char *strmap_get(const struct strmap *m, const char *key); /* borrowed, or NULL */
void strmap_fini(struct strmap *m);

/* A list of records: `struct REC_LIST(struct pool) pools;` has pools.v[i] and pools.n. */
#define REC_LIST(type)                                                                         \
	{                                                                                      \
		type *v;                                                                       \
		size_t n;                                                                      \
	}

enum rec_type {
	REC_TYPE_STR,
	REC_TYPE_INT,
	REC_TYPE_BOOL,
	REC_TYPE_STRLIST,
	REC_TYPE_STRMAP,
	REC_TYPE_TREE,   /* json_t * of any kind, kept as it came */
	REC_TYPE_OBJECT, /* json_t * that must be an object */
	REC_TYPE_PACKED, /* struct packed *, an object outside */
	REC_TYPE_SUB,    /* pointer to a record */
	REC_TYPE_LIST,   /* REC_LIST of records */
};

enum rec_flag {
	REC_OPTIONAL = 0,
	REC_REQUIRED = 1 << 0, /* must be there; a string or list must not be empty either */
	REC_ALWAYS = 1 << 1,   /* encoded even when unset: null, or the empty list or map */
};

struct rec_desc;

struct rec_field {
	const char *name;
	enum rec_type type;
	unsigned flags;
	size_t offset;
	int64_t min,
		max; /* numbers: value; texts: bytes; lists and maps: elements; max of 0 for a
			     text, list or map means REC_MAX_* */
	const struct rec_desc *sub;
	/* One text (also each of a list, and each key of a map) beyond its length; NULL:
	 * any. */
	int (*check)(const char *text, struct err *err);
	const char *doc;
};

#define REC_MAX_TEXT         4096 /* bytes of a text whose field names no bound of its own */
#define REC_MAX_ITEMS        65536 /* elements likewise; what a 16 MiB message can hold is less */
/* Bytes of an object that is kept packed. 32 attributes with the longest names and values are
 * 8 KiB, and a claim's status has room for a state of 10 KiB. */
#define REC_MAX_PACKED       65536
/* Its levels. It is sent inside other records, and all of a message may have 16. */
#define REC_MAX_PACKED_DEPTH 8

struct rec_desc {
	const char *name;
	size_t size;
	const struct rec_field *fields;
	size_t n_fields;
	/* Relations between fields, after they all are there; NULL: none. */
	int (*check)(const void *rec, struct err *err);
	const char *doc;
};

/* Fields are declared by these, which check the member's C type.
 *	REC_STR(struct pool, name, "name", REC_REQUIRED, 0, 253, check_pool_name, "unique name") */
#define REC_MEMBER_(s, m, T) (offsetof(s, m) + 0 * sizeof((T *)0 == &((s *)0)->m))
#define REC_STR(s, m, name_, flags_, max_, check_, doc_)                                       \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_STR, .flags = flags_,                          \
		.offset = REC_MEMBER_(s, m, char *), .max = max_, .check = check_, .doc = doc_ \
	}
#define REC_INT(s, m, name_, flags_, min_, max_, doc_)                                         \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_INT, .flags = flags_,                          \
		.offset = REC_MEMBER_(s, m, struct rec_int), .min = min_, .max = max_,         \
		.doc = doc_                                                                    \
	}
#define REC_BOOL(s, m, name_, flags_, doc_)                                                    \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_BOOL, .flags = flags_,                         \
		.offset = REC_MEMBER_(s, m, struct rec_bool), .doc = doc_                      \
	}
#define REC_STRLIST(s, m, name_, flags_, max_, check_, doc_)                                   \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_STRLIST, .flags = flags_,                      \
		.offset = REC_MEMBER_(s, m, struct strlist), .max = max_, .check = check_,     \
		.doc = doc_                                                                    \
	}
#define REC_STRMAP(s, m, name_, flags_, max_, check_, doc_)                                    \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_STRMAP, .flags = flags_,                       \
		.offset = REC_MEMBER_(s, m, struct strmap), .max = max_, .check = check_,      \
		.doc = doc_                                                                    \
	}
#define REC_TREE(s, m, name_, flags_, doc_)                                                    \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_TREE, .flags = flags_,                         \
		.offset = REC_MEMBER_(s, m, json_t *), .doc = doc_                             \
	}
#define REC_OBJECT(s, m, name_, flags_, doc_)                                                  \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_OBJECT, .flags = flags_,                       \
		.offset = REC_MEMBER_(s, m, json_t *), .doc = doc_                             \
	}
#define REC_PACKED(s, m, name_, flags_, doc_)                                                  \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_PACKED, .flags = flags_,                       \
		.offset = REC_MEMBER_(s, m, struct packed *), .doc = doc_                      \
	}
#define REC_SUB(s, m, name_, flags_, T, sub_, doc_)                                            \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_SUB, .flags = flags_,                          \
		.offset = REC_MEMBER_(s, m, T *), .sub = sub_, .doc = doc_                     \
	}
#define REC_RECS(s, m, name_, flags_, max_, T, sub_, doc_)                                     \
	{                                                                                      \
		.name = name_, .type = REC_TYPE_LIST, .flags = flags_,                         \
		.offset = offsetof(s, m) + 0 * sizeof((T *)0 == ((s *)0)->m.v), .max = max_,   \
		.sub = sub_, .doc = doc_                                                       \
	}
#define REC_DESC(var, s, name_, fields_, check_, doc_)                                         \
	const struct rec_desc var = {                                                          \
		.name = name_,                                                                 \
		.size = sizeof(s),                                                             \
		.fields = fields_,                                                             \
		.n_fields = sizeof(fields_) / sizeof((fields_)[0]),                            \
		.check = check_,                                                               \
		.doc = doc_,                                                                   \
	}

enum rec_mode {
	REC_LENIENT,      /* unknown fields are ignored: the RPC, claims */
	REC_LENIENT_CASE, /* and names match whatever their case, as Go's JSON decoder does */
	REC_STRICT,       /* an unknown field is an error: configuration */
	/* Both: names match whatever their case, and an unknown field, or one that is named
	 * twice in different cases, is an error: what a user asks for in a claim. */
	REC_STRICT_CASE,
};

/* The text that a tree came from, for errors to say where in it something is wrong. A pointer
 * to a function, so that who only decodes messages does not carry a parser of texts. */
struct rec_source {
	const char *name;
	/* The line (from 1) where this node starts, or 0 if that is not known. */
	unsigned (*line)(const struct rec_source *source, const json_t *node);
};

/* Fills *rec. On failure err names the field as a path from `root` ("spec.pools[1].name"), in
 * front of it name and line when source is not NULL. root may be "". */
int rec_decode(const struct rec_desc *desc, const json_t *tree, enum rec_mode mode,
	const char *root, const struct rec_source *source, void *rec, struct err *err);
/* A new tree, the caller's. */
json_t *rec_encode(const struct rec_desc *desc, const void *rec);

struct mp_cursor;
/* The same from and to MessagePack. from is at bytes that mp_check() passed, and behind them
 * afterwards; unknown fields are ignored. */
int rec_unpack(const struct rec_desc *desc, struct mp_cursor *from, void *rec, struct err *err);
/* Appends to it. */
void rec_pack(const struct rec_desc *desc, const void *rec, struct buf *to);
/* Deep copy; *to is overwritten, not freed. */
void rec_copy(const struct rec_desc *desc, void *to, const void *from);
/* Frees what the fields own and zeroes the struct, so that it may be called again. */
void rec_fini(const struct rec_desc *desc, void *rec);
/* A copy in one block of memory, for what is kept for long: free() frees it, and it must not be
 * changed. The record has no trees in it. text, if not NULL, is put beside it; *ret_text is
 * where. */
void *rec_freeze(
	const struct rec_desc *desc, const void *rec, const char *text, const char **ret_text);
/* An always shown text that is unset equals an empty one. */
bool rec_equal(const struct rec_desc *desc, const void *a, const void *b);
