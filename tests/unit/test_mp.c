/* SPDX-License-Identifier: Apache-2.0 */
/* The gates in front of what is read: what they let through, what it refuses, and that it keeps its
 * place whatever the pieces are. */
#include <check.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "common/mp.h"
#include "tests/unit/unit.h"

#define LIMIT (16u << 20)

static int scan(const void *data, size_t len, size_t max, struct err *err)
{
	struct mp_scan s = {0};
	int r = mp_scan(&s, data, len, max, err);

	if (r > 0)
		ck_assert_uint_eq(s.at, len);
	return r;
}

static const struct {
	const char *what;
	uint8_t bytes[16];
	size_t len;
	const char *json; /* NULL: refused, with these words */
	const char *words;
} rows[] = {
	{"nil", {0xc0}, 1, "null", NULL},
	{"false and true", {0x92, 0xc2, 0xc3}, 3, "[false,true]", NULL},
	{"fixint", {0x93, 0x00, 0x7f, 0xff}, 4, "[0,127,-1]", NULL},
	{"uint 8 and 16", {0x92, 0xcc, 0xff, 0xcd, 0x01, 0x00}, 6, "[255,256]", NULL},
	{"uint 64, greatest", {0xcf, 0x7f, 255, 255, 255, 255, 255, 255, 255}, 9,
		"9223372036854775807", NULL},
	{"uint 64, too great", {0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0}, 9, NULL, "64 bits"},
	{"int 32", {0xd2, 0xff, 0xff, 0xff, 0xfe}, 5, "-2", NULL},
	{"float 64", {0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0}, 9, "1.5", NULL},
	{"float that is no number", {0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0}, 9, NULL, "finite"},
	{"empty text", {0xa0}, 1, "\"\"", NULL},
	{"texts of all lengths' heads", {0x93, 0xa1, 'a', 0xd9, 1, 'b', 0xda, 0, 1, 'c'}, 10,
		"[\"a\",\"b\",\"c\"]", NULL},
	{"text of a 32-bit length", {0xdb, 0, 0, 0, 1, 'd'}, 6, "\"d\"", NULL},
	{"text that is not UTF-8", {0xa1, 0xff}, 2, NULL, "a text is not UTF-8"},
	{"text inside that is not UTF-8",
		{0x81, 0xa1, 'a', 0x92, 0xa1, 'b', 0x81, 0xa1, 'c', 0xa1, 0xff}, 11, NULL,
		"a[1].c: a text is not UTF-8"},
	{"key inside that is not UTF-8", {0x91, 0x81, 0xa1, 'a', 0x81, 0xa1, 0xff, 1}, 8, NULL,
		"[0].a: a map's key is not UTF-8"},
	{"array 16 and 32", {0xdc, 0, 1, 0xdd, 0, 0, 0, 1, 0xc0}, 9, "[[null]]", NULL},
	{"map 16", {0xde, 0, 1, 0xa1, 'a', 1}, 6, "{\"a\":1}", NULL},
	{"empty containers", {0x92, 0x90, 0x80}, 3, "[[],{}]", NULL},
	{"map whose key is a number", {0x81, 1, 1}, 3, NULL, "key is not a text"},
	{"map with a key twice", {0x82, 0xa1, 'a', 1, 0xa1, 'a', 2}, 7, NULL, "twice"},
	{"map whose key has a NUL", {0x81, 0xa1, 0, 1}, 4, NULL, "NUL"},
	{"never used", {0xc1}, 1, NULL, "0xc1"},
	{"binary", {0xc4, 1, 'x'}, 3, NULL, "0xc4"},
	{"extension", {0xd4, 1, 'x'}, 3, NULL, "0xd4"},
	{"array greater than a message", {0xdd, 0x10, 0, 0, 0}, 5, NULL, "cannot fit"},
	{"map greater than a message", {0xdf, 0x0f, 0xff, 0xff, 0xff}, 5, NULL, "cannot fit"},
	{"text greater than a message", {0xdb, 0x02, 0, 0, 0}, 5, NULL, "16777216 bytes"},
};

/* --- as msgpack-c has it --- */

static json_t *tree_of(const msgpack_object *o);

static json_t *array_of(const msgpack_object_array *a)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < a->size; i++)
		(void)json_array_append_new(array, tree_of(&a->ptr[i]));
	return array;
}

static json_t *object_of(const msgpack_object_map *m)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < m->size; i++) {
		cleanup_free char *key =
			xmemdup0(m->ptr[i].key.via.str.ptr, m->ptr[i].key.via.str.size);

		(void)json_object_set_new(object, key, tree_of(&m->ptr[i].val));
	}
	return object;
}

static json_t *tree_of(const msgpack_object *o)
{
	switch ((int)o->type) {
	case MSGPACK_OBJECT_NIL: return json_null();
	case MSGPACK_OBJECT_BOOLEAN: return json_boolean(o->via.boolean);
	case MSGPACK_OBJECT_POSITIVE_INTEGER: return json_integer((json_int_t)o->via.u64);
	case MSGPACK_OBJECT_NEGATIVE_INTEGER: return json_integer(o->via.i64);
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64: return json_real(o->via.f64);
	case MSGPACK_OBJECT_STR:
		return o->via.str.size ? json_stringn(o->via.str.ptr, o->via.str.size)
				       : json_string("");
	case MSGPACK_OBJECT_ARRAY: return array_of(&o->via.array);
	case MSGPACK_OBJECT_MAP: return object_of(&o->via.map);
	default: ck_abort_msg("of type %d", (int)o->type); return NULL;
	}
}

static void assert_same_as_msgpack_c(const void *data, size_t len, const json_t *is)
{
	msgpack_unpacked unpacked;
	size_t used = 0;
	json_t *should;

	msgpack_unpacked_init(&unpacked);
	ck_assert_int_eq(
		msgpack_unpack_next(&unpacked, data, len, &used), MSGPACK_UNPACK_SUCCESS);
	ck_assert_uint_eq(used, len);
	should = tree_of(&unpacked.data);
	ck_assert(json_equal(is, should));
	json_decref(should);
	msgpack_unpacked_destroy(&unpacked);
}

START_TEST(test_row)
{
	struct err err = ERR_INIT;
	json_t *tree = NULL, *want;
	int r = scan(rows[_i].bytes, rows[_i].len, LIMIT, &err);

	if (r > 0)
		r = mp_decode(rows[_i].bytes, rows[_i].len, &tree, &err) == 0 ? 1 : -1;
	if (!rows[_i].json) {
		ck_assert_msg(r < 0, "%s was let through", rows[_i].what);
		ck_assert_msg(strstr(err.message, rows[_i].words), "%s: %s", rows[_i].what,
			err.message);
		return;
	}
	ck_assert_msg(r == 1, "%s: %d %s", rows[_i].what, r, err.message);
	want = json_loads(rows[_i].json, JSON_DECODE_ANY, NULL);
	ck_assert_msg(json_equal(tree, want), "%s", rows[_i].what);
	assert_same_as_msgpack_c(rows[_i].bytes, rows[_i].len, tree);
	json_decref(want);
	json_decref(tree);
}
END_TEST

/* A message in pieces: each prefix asks for more, and the end is found where it is. */
START_TEST(test_pieces)
{
	const char *text =
		"{\"a\":[1,{\"b\":\"a longer text than a fixed head can say, by far\"},[]],"
		"\"c\":{\"d\":null,\"e\":-70000}}";
	cleanup_buf struct buf packed = BUF_INIT;
	json_t *tree = json_loads(text, 0, NULL), *back;
	struct mp_scan s = {0};
	struct err err;

	mp_encode(tree, &packed);
	for (size_t len = 0; len < packed.len; len++)
		ck_assert_int_eq(mp_scan(&s, packed.data, len, LIMIT, &err), 0);
	ck_assert_int_eq(mp_scan(&s, packed.data, packed.len, LIMIT, &err), 1);
	ck_assert_uint_eq(s.at, packed.len);
	ck_assert_int_eq(mp_decode(packed.data, packed.len, &back, &err), 0);
	ck_assert(json_equal(tree, back));
	json_decref(back);
	json_decref(tree);
}
END_TEST

START_TEST(test_depth)
{
	uint8_t deep[MP_MAX_DEPTH + 2];
	struct err err;

	memset(deep, 0x91, sizeof(deep));
	deep[MP_MAX_DEPTH] = 0xc0;
	ck_assert_int_eq(scan(deep, MP_MAX_DEPTH + 1, LIMIT, &err), 1);
	deep[MP_MAX_DEPTH] = 0x91;
	deep[MP_MAX_DEPTH + 1] = 0xc0;
	ck_assert_int_eq(scan(deep, MP_MAX_DEPTH + 2, LIMIT, &err), -1);
	ck_assert(strstr(err.message, "nested"));
}
END_TEST

START_TEST(test_elements)
{
	size_t n = MP_MAX_ELEMENTS;
	uint8_t *data = xcalloc(n + 5, 1);
	struct err err;

	memcpy(data, (const uint8_t[]){0xdd, 0, 0x0f, 0xff, 0xff}, 5);
	ck_assert_int_eq(scan(data, n - 1 + 5, LIMIT, &err), 1);
	memcpy(data, (const uint8_t[]){0xdd, 0, 0x10, 0, 0}, 5);
	ck_assert_int_eq(scan(data, n + 5, LIMIT, &err), -1);
	ck_assert(strstr(err.message, "elements"));
	free(data);
}
END_TEST

/* --- reading --- */

START_TEST(test_cursor)
{
	json_t *tree = json_loads(
		"{\"a\":[1,{\"x\":\"y\"},[]],\"bc\":{\"d\":\"e\"},\"f\":2.5}", 0, NULL);
	cleanup_buf struct buf bytes = BUF_INIT;
	struct mp_cursor c, mark;
	struct mp_value v;
	json_t *part;

	mp_encode(tree, &bytes);
	c = mp_cursor(bytes.data);
	mp_skip(&c);
	ck_assert_ptr_eq(c.at, bytes.data + bytes.len);
	c = mp_cursor(bytes.data);
	ck_assert(mp_find(&c, "bc"));
	mark = c;
	ck_assert(mp_find(&c, "d"));
	v = mp_next(&c);
	ck_assert_int_eq(v.type, MP_TEXT);
	ck_assert_uint_eq(v.text.len, 1);
	ck_assert_mem_eq(v.text.v, "e", 1);
	part = mp_tree(&mark);
	ck_assert(json_equal(part, json_object_get(tree, "bc")));
	ck_assert_ptr_eq(mark.at, c.at);
	json_decref(part);
	for (const char *const *key = (const char *const[]){"b", "bcd", "x", "", NULL}; *key;
		key++) {
		c = mp_cursor(bytes.data);
		ck_assert_msg(!mp_find(&c, *key), "%s", *key);
	}
	c = mp_cursor(bytes.data);
	ck_assert(mp_find(&c, "a") && !mp_find(&c, "x")); /* a list has no keys */
	json_decref(tree);
}
END_TEST

/* More keys than are looked at on the stack. */
START_TEST(test_many_keys)
{
	cleanup_buf struct buf bytes = BUF_INIT;
	struct err err = ERR_INIT;
	char key[16];

	mp_put_map(&bytes, 1000);
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(key, sizeof(key), "key-%d", i);
		mp_put_text(&bytes, key);
		mp_put_null(&bytes);
	}
	ck_assert_int_eq(scan(bytes.data, bytes.len, LIMIT, &err), 1);
	ck_assert_int_eq(mp_check(bytes.data, bytes.len, &err), 0);
	memcpy(bytes.data + bytes.len - 8, "key-500", 7);
	ck_assert_int_eq(scan(bytes.data, bytes.len, LIMIT, &err), 1);
	ck_assert_int_eq(mp_check(bytes.data, bytes.len, &err), -1);
	ck_assert_str_eq(err.message, "a map has the key \"key-500\" twice");
}
END_TEST

/* Whatever passes the gates is read as msgpack-c reads it. */
START_TEST(test_random)
{
	int passed = 0;

	srand(1);
	for (int i = 0; i < 200000; i++) {
		uint8_t data[24];
		struct mp_scan s = {0};
		struct err err;
		json_t *tree = NULL;
		int r;

		for (size_t j = 0; j < sizeof(data); j++)
			data[j] = (uint8_t)rand();
		data[0] = (uint8_t)(0x80 | (data[0] & 0x1f)); /* containers, mostly */
		r = mp_scan(&s, data, sizeof(data), LIMIT, &err);
		if (r != 1)
			continue;
		ck_assert_uint_le(s.at, sizeof(data));
		if (mp_decode(data, s.at, &tree, &err) < 0)
			continue;
		assert_same_as_msgpack_c(data, s.at, tree);
		json_decref(tree);
		passed++;
	}
	ck_assert_int_gt(passed, 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mp");
	TCase *tc = tcase_create("mp");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_row, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	tcase_add_test(tc, test_pieces);
	tcase_add_test(tc, test_depth);
	tcase_add_test(tc, test_elements);
	tcase_add_test(tc, test_cursor);
	tcase_add_test(tc, test_many_keys);
	tcase_add_test(tc, test_random);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
