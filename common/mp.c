/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scan is one loop over headers with an explicit stack of how many elements each open
 * container still has. A container's count must not exceed the bytes that the message may still
 * have, since every element takes at least one; so a claim is refused before it costs anything.
 * A number is looked at when it is there whole: what does not fit 64 bits with a sign, or is no
 * number at all, is refused at once.
 *
 * Binary and extension types are refused: everything that the daemons say is text, numbers,
 * lists and maps, and a tree could not hold them.
 *
 * Reading goes by the same headers. It trusts that the gates were passed and asserts no more
 * than that a header is one; recursion is as deep as the scan lets a message be, or a tree that
 * was encoded here.
 */
#include "common/mp.h"

#include <assert.h>
#include <math.h>
#include <msgpack.h>
#include <string.h>

enum token_kind { TOKEN_SCALAR, TOKEN_TEXT, TOKEN_ARRAY, TOKEN_MAP };

/* One header: how long it is, what it opens and how much that is. */
struct token {
	enum token_kind kind;
	size_t head;
	uint32_t count; /* bytes of a text, elements of an array, pairs of a map */
};

static uint64_t big_endian(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static double narrow_real(const uint8_t *p)
{
	uint32_t bits = (uint32_t)big_endian(p, 4);
	float f;

	memcpy(&f, &bits, sizeof(f));
	return (double)f;
}

static double wide_real(const uint8_t *p)
{
	uint64_t bits = big_endian(p, 8);
	double d;

	memcpy(&d, &bits, sizeof(d));
	return d;
}

static double real_of(const uint8_t *p)
{
	return *p == 0xca ? narrow_real(p + 1) : wide_real(p + 1);
}

/* A header whose count stands in the n bytes behind the type byte. */
static int counted(
	const uint8_t *p, size_t len, size_t n, enum token_kind kind, struct token *ret)
{
	if (len < 1 + n)
		return 0;
	*ret = (struct token){
		.kind = kind, .head = 1 + n, .count = (uint32_t)big_endian(p + 1, n)};
	return 1;
}

static int scalar(size_t size, struct token *ret)
{
	*ret = (struct token){.kind = TOKEN_SCALAR, .head = size};
	return 1;
}

/* A number that may be one that we cannot hold. */
static int number(const uint8_t *p, size_t len, size_t size, struct token *ret)
{
	if (len < size)
		return 0;
	if (*p == 0xcf ? big_endian(p + 1, 8) > INT64_MAX : !isfinite(real_of(p)))
		return -1;
	return scalar(size, ret);
}

/* 1: *ret; 0: the header is not complete; -1: it is none that is taken here. */
static int read_token(const uint8_t *p, size_t len, struct token *ret)
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
	case 0xca: return number(p, len, 5, ret); /* float 32, 64 */
	case 0xcb: return number(p, len, 9, ret);
	case 0xcc: /* uint and int 8, 16, 32, 64 */
	case 0xd0: return scalar(2, ret);
	case 0xcd:
	case 0xd1: return scalar(3, ret);
	case 0xce:
	case 0xd2: return scalar(5, ret);
	case 0xd3: return scalar(9, ret);
	case 0xcf: return number(p, len, 9, ret);
	case 0xd9: return counted(p, len, 1, TOKEN_TEXT, ret);
	case 0xda: return counted(p, len, 2, TOKEN_TEXT, ret);
	case 0xdb: return counted(p, len, 4, TOKEN_TEXT, ret);
	case 0xdc: return counted(p, len, 2, TOKEN_ARRAY, ret);
	case 0xdd: return counted(p, len, 4, TOKEN_ARRAY, ret);
	case 0xde: return counted(p, len, 2, TOKEN_MAP, ret);
	case 0xdf: return counted(p, len, 4, TOKEN_MAP, ret);
	default: return -1;
	}
}

static int refuse_token(const uint8_t *p, struct err *err)
{
	switch (*p) {
	case 0xcf:
		return err_set(err, ERR_INVALID, "a number does not fit 64 bits with a sign");
	case 0xca:
	case 0xcb: return err_set(err, ERR_INVALID, "a number is not finite");
	default:
		return err_set(err, ERR_INVALID, "MessagePack type 0x%02x is not accepted", *p);
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
		r = read_token((const uint8_t *)data + s->at, len - s->at, &t);
		if (r == 0)
			return 0;
		if (r < 0)
			return refuse_token((const uint8_t *)data + s->at, err);
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

/* --- reading ------------------------------------------------------------------------------ */

/* No number is longer. */
#define TOKEN_MAX 9

static struct token token_at(const uint8_t *p)
{
	struct token t = {0};
	int r = read_token(p, TOKEN_MAX, &t);

	assert(r == 1); /* the gates were passed */
	(void)r;
	return t;
}

static int64_t number_of(const uint8_t *p)
{
	switch (*p) {
	case 0xcc: return p[1];
	case 0xcd: return (int64_t)big_endian(p + 1, 2);
	case 0xce: return (int64_t)big_endian(p + 1, 4);
	case 0xcf:
	case 0xd3: return (int64_t)big_endian(p + 1, 8);
	case 0xd0: return (int8_t)p[1];
	case 0xd1: return (int16_t)big_endian(p + 1, 2);
	case 0xd2: return (int32_t)big_endian(p + 1, 4);
	default: return (int8_t)*p; /* the whole number is in the type byte */
	}
}

static struct mp_value scalar_of(const uint8_t *p)
{
	switch (*p) {
	case 0xc0: return (struct mp_value){.type = MP_NULL};
	case 0xc2:
	case 0xc3: return (struct mp_value){.type = MP_BOOL, .truth = *p == 0xc3};
	case 0xca:
	case 0xcb: return (struct mp_value){.type = MP_REAL, .real = real_of(p)};
	default: return (struct mp_value){.type = MP_INT, .number = number_of(p)};
	}
}

struct mp_value mp_next(struct mp_cursor *c)
{
	const uint8_t *p = c->at;
	struct token t = token_at(p);

	c->at += t.head;
	switch (t.kind) {
	case TOKEN_TEXT:
		c->at += t.count;
		return (struct mp_value){.type = MP_TEXT,
			.text = {.v = (const char *)p + t.head, .len = t.count}};
	case TOKEN_ARRAY: return (struct mp_value){.type = MP_LIST, .count = t.count};
	case TOKEN_MAP: return (struct mp_value){.type = MP_MAP, .count = t.count};
	case TOKEN_SCALAR:
	default: return scalar_of(p);
	}
}

void mp_skip(struct mp_cursor *c)
{
	for (uint64_t left = 1; left > 0; left--) {
		struct token t = token_at(c->at);

		c->at += t.head;
		if (t.kind == TOKEN_TEXT)
			c->at += t.count;
		else if (t.kind == TOKEN_ARRAY)
			left += t.count;
		else if (t.kind == TOKEN_MAP)
			left += (uint64_t)t.count * 2;
	}
}

bool mp_find(struct mp_cursor *c, const char *key)
{
	struct mp_value map = mp_next(c);
	size_t len = strlen(key);

	for (uint32_t i = 0; map.type == MP_MAP && i < map.count; i++) {
		struct mp_value k = mp_next(c);

		if (k.text.len == len && memcmp(k.text.v, key, len) == 0)
			return true;
		mp_skip(c);
	}
	return false;
}

/* --- the second gate ---------------------------------------------------------------------- */

struct key {
	const char *v;
	size_t len;
};

static int compare_keys(const void *a, const void *b)
{
	const struct key *ka = a, *kb = b;
	int order = memcmp(ka->v, kb->v, MIN(ka->len, kb->len));

	return order ? order : (ka->len > kb->len) - (ka->len < kb->len);
}

static int check_text(struct key text, struct err *err)
{
	if (!utf8_valid(text.v, text.len))
		return err_set(err, ERR_INVALID, ": a text is not UTF-8");
	return 0;
}

static int check_key(struct key key, struct err *err)
{
	if (memchr(key.v, '\0', key.len))
		return err_set(err, ERR_INVALID, ": a map's key contains a NUL byte");
	if (!utf8_valid(key.v, key.len))
		return err_set(err, ERR_INVALID, ": a map's key is not UTF-8");
	return 0;
}

/* Sorts them. */
static int check_unique(struct key *keys, size_t n, struct err *err)
{
	qsort(keys, n, sizeof(*keys), compare_keys);
	for (size_t i = 1; i < n; i++)
		if (compare_keys(&keys[i - 1], &keys[i]) == 0)
			return err_set(err, ERR_INVALID, ": a map has the key \"%.*s\" twice",
				(int)MIN(keys[i].len, 64u), keys[i].v);
	return 0;
}

static int check_value(struct mp_cursor *c, struct err *err);

/* Where it is, from the outside in: "devices[3].name: ", put in front a step at a time. */
__attribute__((format(printf, 2, 3), cold)) static int at_step(
	struct err *err, const char *fmt, ...)
{
	char step[80], rest[ERR_MESSAGE_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(step, sizeof(step), fmt, ap);
	va_end(ap);
	str_sanitize(step);
	memcpy(rest, err->message, sizeof(rest));
	return err_set(err, err->kind, "%s%s", step, rest);
}

static int check_list(struct mp_cursor *c, uint32_t n, struct err *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (check_value(c, err) < 0)
			return at_step(err, "[%u]", i);
	return 0;
}

static int check_map(struct mp_cursor *c, uint32_t n, struct err *err)
{
	struct key few[16], *keys = n <= ARRAY_SIZE(few) ? few : xcalloc(n, sizeof(*keys));
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < n; i++) {
		struct mp_value key = mp_next(c);

		keys[i] = (struct key){key.text.v, key.text.len};
		r = check_key(keys[i], err);
		if (r == 0 && check_value(c, err) < 0)
			r = at_step(err, ".%.*s", (int)MIN(key.text.len, 64u), key.text.v);
	}
	if (r == 0)
		r = check_unique(keys, n, err);
	if (keys != few)
		free(keys);
	return r;
}

static int check_value(struct mp_cursor *c, struct err *err)
{
	struct mp_value v = mp_next(c);

	if (v.type == MP_TEXT)
		return check_text((struct key){v.text.v, v.text.len}, err);
	if (v.type == MP_LIST)
		return check_list(c, v.count, err);
	if (v.type == MP_MAP)
		return check_map(c, v.count, err);
	return 0;
}

int mp_check(const void *data, size_t len, struct err *err)
{
	struct mp_cursor c = mp_cursor(data);

	if (check_value(&c, err) < 0) {
		const char *message = err->message;
		char path[ERR_MESSAGE_MAX];

		message += strspn(message, ".: ");
		(void)snprintf(path, sizeof(path), "%s", message);
		return err_set(err, err->kind, "%s", path);
	}
	assert(c.at == (const uint8_t *)data + len);
	return 0;
}

/* --- trees -------------------------------------------------------------------------------- */

static json_t *array_of(struct mp_cursor *c, uint32_t n)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < n; i++)
		(void)json_array_append_new(array, mp_tree(c));
	return array;
}

static void put_member(json_t *object, struct mp_cursor *c)
{
	struct mp_value key = mp_next(c);
	char few[64], *text = few;

	if (key.text.len >= sizeof(few))
		text = xmemdup0(key.text.v, key.text.len);
	else
		*(char *)mempcpy(few, key.text.v, key.text.len) = '\0';
	(void)json_object_set_new_nocheck(object, text, mp_tree(c));
	if (text != few)
		free(text);
}

static json_t *object_of(struct mp_cursor *c, uint32_t n)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < n; i++)
		put_member(object, c);
	return object;
}

json_t *mp_tree(struct mp_cursor *c)
{
	struct mp_value v = mp_next(c);

	switch (v.type) {
	case MP_BOOL: return json_boolean(v.truth);
	case MP_INT: return json_integer(v.number);
	case MP_REAL: return json_real(v.real);
	case MP_TEXT: return json_stringn_nocheck(v.text.v, v.text.len);
	case MP_LIST: return array_of(c, v.count);
	case MP_MAP: return object_of(c, v.count);
	case MP_NULL:
	default: return json_null();
	}
}

int mp_decode(const void *data, size_t len, json_t **ret, struct err *err)
{
	struct mp_cursor c = mp_cursor(data);

	if (mp_check(data, len, err) < 0)
		return -1;
	*ret = mp_tree(&c);
	return 0;
}

/* --- writing ------------------------------------------------------------------------------ */

static int buf_writer(void *data, const char *bytes, size_t len)
{
	buf_put(data, bytes, len);
	return 0;
}

static msgpack_packer packer(struct buf *out)
{
	return (msgpack_packer){.data = out, .callback = buf_writer};
}

void mp_put_null(struct buf *out)
{
	msgpack_packer pk = packer(out);

	(void)msgpack_pack_nil(&pk);
}

void mp_put_bool(struct buf *out, bool v)
{
	msgpack_packer pk = packer(out);

	(void)(v ? msgpack_pack_true(&pk) : msgpack_pack_false(&pk));
}

void mp_put_int(struct buf *out, int64_t v)
{
	msgpack_packer pk = packer(out);

	(void)msgpack_pack_int64(&pk, v);
}

static void put_real(struct buf *out, double v)
{
	msgpack_packer pk = packer(out);

	(void)msgpack_pack_double(&pk, v);
}

static void put_text(struct buf *out, const char *text, size_t len)
{
	msgpack_packer pk = packer(out);

	(void)msgpack_pack_str(&pk, len);
	(void)msgpack_pack_str_body(&pk, text, len);
}

void mp_put_text(struct buf *out, const char *text)
{
	put_text(out, text, strlen(text));
}

void mp_put_list(struct buf *out, size_t elements)
{
	msgpack_packer pk = packer(out);

	(void)msgpack_pack_array(&pk, elements);
}

void mp_put_map(struct buf *out, size_t pairs)
{
	msgpack_packer pk = packer(out);

	(void)msgpack_pack_map(&pk, pairs);
}

static void put_array(const json_t *array, struct buf *out)
{
	const json_t *value;
	size_t i;

	mp_put_list(out, json_array_size(array));
	json_array_foreach (array, i, value)
		mp_encode(value, out);
}

static void put_object(const json_t *object, struct buf *out)
{
	json_t *value;
	const char *key;

	mp_put_map(out, json_object_size(object));
	json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
		mp_put_text(out, key);
		mp_encode(value, out);
	}
}

void mp_encode(const json_t *tree, struct buf *out)
{
	switch (json_typeof(tree)) {
	case JSON_OBJECT: put_object(tree, out); break;
	case JSON_ARRAY: put_array(tree, out); break;
	case JSON_STRING:
		put_text(out, json_string_value(tree), json_string_length(tree));
		break;
	case JSON_INTEGER: mp_put_int(out, json_integer_value(tree)); break;
	case JSON_REAL: put_real(out, json_real_value(tree)); break;
	case JSON_TRUE: mp_put_bool(out, true); break;
	case JSON_FALSE: mp_put_bool(out, false); break;
	case JSON_NULL:
	default: mp_put_null(out); break;
	}
}
