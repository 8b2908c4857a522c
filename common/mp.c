/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard is one loop over headers with an explicit stack of how many elements each open
 * container still has. A container's count must not exceed the bytes that the message may still
 * have, since every element takes at least one; so a claim is refused before it costs anything.
 *
 * Binary and extension types are refused: everything that the daemons say is text, numbers,
 * lists and maps, and a tree could not hold them.
 */
#include "common/mp.h"

#include <msgpack.h>
#include <string.h>

enum token_kind { TOKEN_SCALAR, TOKEN_TEXT, TOKEN_ARRAY, TOKEN_MAP };

/* One header: how long it is, what it opens and how much that is. */
struct token {
	enum token_kind kind;
	size_t head;
	uint32_t count; /* bytes of a text, elements of an array, pairs of a map */
};

static uint32_t big_endian(const uint8_t *p, size_t n)
{
	uint32_t v = 0;

	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

/* A header whose count stands in the n bytes behind the type byte. */
static int counted(
	const uint8_t *p, size_t len, size_t n, enum token_kind kind, struct token *ret)
{
	if (len < 1 + n)
		return 0;
	*ret = (struct token){.kind = kind, .head = 1 + n, .count = big_endian(p + 1, n)};
	return 1;
}

static int scalar(size_t size, struct token *ret)
{
	*ret = (struct token){.kind = TOKEN_SCALAR, .head = size};
	return 1;
}

/* 1: *ret; 0: the header is not complete; -1: no such type here. */
static int read_token(const uint8_t *p, size_t len, struct token *ret, struct err *err)
{
	uint8_t type = p[0];

	if (type <= 0x7f || type >= 0xe0) /* fixint */
		return scalar(1, ret);
	if (type <= 0x8f) {
		*ret = (struct token){.kind = TOKEN_MAP, .head = 1, .count = type & 0x0f};
		return 1;
	}
	if (type <= 0x9f) {
		*ret = (struct token){.kind = TOKEN_ARRAY, .head = 1, .count = type & 0x0f};
		return 1;
	}
	if (type <= 0xbf) {
		*ret = (struct token){.kind = TOKEN_TEXT, .head = 1, .count = type & 0x1f};
		return 1;
	}
	switch (type) {
	case 0xc0: /* nil, false, true */
	case 0xc2:
	case 0xc3: return scalar(1, ret);
	case 0xca: return scalar(5, ret); /* float 32, 64 */
	case 0xcb: return scalar(9, ret);
	case 0xcc: /* uint and int 8, 16, 32, 64 */
	case 0xd0: return scalar(2, ret);
	case 0xcd:
	case 0xd1: return scalar(3, ret);
	case 0xce:
	case 0xd2: return scalar(5, ret);
	case 0xcf:
	case 0xd3: return scalar(9, ret);
	case 0xd9: return counted(p, len, 1, TOKEN_TEXT, ret);
	case 0xda: return counted(p, len, 2, TOKEN_TEXT, ret);
	case 0xdb: return counted(p, len, 4, TOKEN_TEXT, ret);
	case 0xdc: return counted(p, len, 2, TOKEN_ARRAY, ret);
	case 0xdd: return counted(p, len, 4, TOKEN_ARRAY, ret);
	case 0xde: return counted(p, len, 2, TOKEN_MAP, ret);
	case 0xdf: return counted(p, len, 4, TOKEN_MAP, ret);
	default:
		return err_set(
			err, ERR_INVALID, "MessagePack type 0x%02x is not accepted", type);
	}
}

/* Counts one element of the container that is open, if any. */
static int take_element(struct mp_scan *s, enum token_kind kind, struct err *err)
{
	struct mp_level *l;

	if (++s->elements > MP_MAX_ELEMENTS)
		return err_set(err, ERR_INVALID, "a message may have at most %u elements",
			MP_MAX_ELEMENTS);
	if (s->depth == 0)
		return 0;
	l = &s->level[s->depth - 1];
	if (l->map) {
		if (l->key && kind != TOKEN_TEXT)
			return err_set(err, ERR_INVALID, "a map's key is not a text");
		l->key = !l->key;
	}
	l->left--;
	return 0;
}

static int open_container(
	struct mp_scan *s, const struct token *t, size_t max_bytes, struct err *err)
{
	uint64_t elements = t->kind == TOKEN_MAP ? (uint64_t)t->count * 2 : t->count;

	if (elements > max_bytes - s->at)
		return err_set(
			err, ERR_INVALID, "a list or map of %u elements cannot fit", t->count);
	if (elements == 0)
		return 0;
	if (s->depth == MP_MAX_DEPTH)
		return err_set(err, ERR_INVALID, "nested deeper than %u levels",
			(unsigned)MP_MAX_DEPTH);
	s->level[s->depth++] = (struct mp_level){
		.left = (uint32_t)elements, .map = t->kind == TOKEN_MAP, .key = true};
	return 0;
}

int mp_scan(struct mp_scan *s, const void *data, size_t len, size_t max_bytes, struct err *err)
{
	while (!s->started || s->depth > 0) {
		struct token t = {0};
		int r;

		if (s->depth > 0 && s->level[s->depth - 1].left == 0) {
			s->depth--;
			continue;
		}
		if (s->at >= len)
			return 0;
		r = read_token((const uint8_t *)data + s->at, len - s->at, &t, err);
		if (r <= 0)
			return r;
		if (take_element(s, t.kind, err) < 0)
			return -1;
		s->started = true;
		s->at += t.head + (t.kind == TOKEN_TEXT ? t.count : 0);
		if (s->at > max_bytes)
			return err_set(err, ERR_INVALID, "a message may have at most %zu bytes",
				max_bytes);
		if ((t.kind == TOKEN_ARRAY || t.kind == TOKEN_MAP) &&
			open_container(s, &t, max_bytes, err) < 0)
			return -1;
	}
	return s->at <= len;
}

/* --- trees -------------------------------------------------------------------------------- */

static json_t *tree_of(const msgpack_object *o, struct err *err);

static json_t *bad(struct err *err, const char *what)
{
	(void)err_set(err, ERR_INVALID, "%s", what);
	return NULL;
}

static json_t *array_of(const msgpack_object_array *a, struct err *err)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < a->size; i++) {
		json_t *node = tree_of(&a->ptr[i], err);

		if (!node) {
			json_decref(array);
			return NULL;
		}
		(void)json_array_append_new(array, node);
	}
	return array;
}

static int put_pair(json_t *object, const msgpack_object_kv *kv, struct err *err)
{
	cleanup_free char *key = xmemdup0(kv->key.via.str.ptr, kv->key.via.str.size);
	json_t *node;

	if (strlen(key) != kv->key.via.str.size)
		return err_set(err, ERR_INVALID, "a map's key contains a NUL byte");
	if (json_object_get(object, key))
		return err_set(err, ERR_INVALID, "a map has the key \"%.64s\" twice", key);
	node = tree_of(&kv->val, err);
	if (!node)
		return -1;
	if (json_object_set_new(object, key, node) < 0)
		return err_set(err, ERR_INVALID, "a map's key is not UTF-8");
	return 0;
}

static json_t *object_of(const msgpack_object_map *m, struct err *err)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < m->size; i++)
		if (put_pair(object, &m->ptr[i], err) < 0) {
			json_decref(object);
			return NULL;
		}
	return object;
}

static json_t *tree_of(const msgpack_object *o, struct err *err)
{
	json_t *text;

	switch (o->type) {
	case MSGPACK_OBJECT_NIL: return json_null();
	case MSGPACK_OBJECT_BOOLEAN: return json_boolean(o->via.boolean);
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		if (o->via.u64 > INT64_MAX)
			return bad(err, "a number does not fit 64 bits with a sign");
		return json_integer((json_int_t)o->via.u64);
	case MSGPACK_OBJECT_NEGATIVE_INTEGER: return json_integer(o->via.i64);
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		text = json_real(o->via.f64);
		return text ? text : bad(err, "a number is not finite");
	case MSGPACK_OBJECT_STR:
		/* msgpack-c has no pointer for an empty text */
		text = o->via.str.size ? json_stringn(o->via.str.ptr, o->via.str.size)
				       : json_string("");
		return text ? text : bad(err, "a text is not UTF-8");
	case MSGPACK_OBJECT_ARRAY: return array_of(&o->via.array, err);
	case MSGPACK_OBJECT_MAP: return object_of(&o->via.map, err);
	case MSGPACK_OBJECT_BIN:
	case MSGPACK_OBJECT_EXT:
	default: return bad(err, "binary and extension types are not accepted");
	}
}

int mp_decode(const void *data, size_t len, json_t **ret, struct err *err)
{
	msgpack_unpacked unpacked;
	size_t used = 0;
	json_t *tree = NULL;

	msgpack_unpacked_init(&unpacked);
	if (msgpack_unpack_next(&unpacked, data, len, &used) != MSGPACK_UNPACK_SUCCESS ||
		used != len)
		(void)err_set(err, ERR_INVALID, "a message cannot be unpacked");
	else
		tree = tree_of(&unpacked.data, err);
	msgpack_unpacked_destroy(&unpacked);
	if (!tree)
		return -1;
	*ret = tree;
	return 0;
}

static int buf_writer(void *data, const char *bytes, size_t len)
{
	buf_put(data, bytes, len);
	return 0;
}

static void pack_text(msgpack_packer *pk, const char *text, size_t len)
{
	(void)msgpack_pack_str(pk, len);
	(void)msgpack_pack_str_body(pk, text, len);
}

static void pack(msgpack_packer *pk, const json_t *node)
{
	const char *key;
	json_t *value;
	size_t i;

	switch (json_typeof(node)) {
	case JSON_OBJECT:
		(void)msgpack_pack_map(pk, json_object_size(node));
		json_object_foreach ((json_t *)(uintptr_t)node, key, value) {
			pack_text(pk, key, strlen(key));
			pack(pk, value);
		}
		break;
	case JSON_ARRAY:
		(void)msgpack_pack_array(pk, json_array_size(node));
		json_array_foreach (node, i, value)
			pack(pk, value);
		break;
	case JSON_STRING:
		pack_text(pk, json_string_value(node), json_string_length(node));
		break;
	case JSON_INTEGER: (void)msgpack_pack_int64(pk, json_integer_value(node)); break;
	case JSON_REAL: (void)msgpack_pack_double(pk, json_real_value(node)); break;
	case JSON_TRUE: (void)msgpack_pack_true(pk); break;
	case JSON_FALSE: (void)msgpack_pack_false(pk); break;
	case JSON_NULL:
	default: (void)msgpack_pack_nil(pk); break;
	}
}

void mp_encode(const json_t *tree, struct buf *out)
{
	msgpack_packer pk;

	msgpack_packer_init(&pk, out, buf_writer);
	pack(&pk, tree);
}
