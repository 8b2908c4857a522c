/* SPDX-License-Identifier: Apache-2.0 */
/* Objects at rest: what goes in comes out, in few bytes, and can be looked at where it is. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/packed.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

static struct packed *pack(const char *text)
{
	return packed_take(tree_of(text));
}

static const char *const objects[] = {
	"{}",
	"{'a': 'b'}",
	"{'': ''}",
	"{'null': null, 'yes': true, 'no': false}",
	"{'whole': [0, 127, 128, -1, -32, -33, 65535, 4294967296, -9223372036854775808]}",
	"{'real': [0.5, -1e300]}",
	"{'z': {'y': {'x': [{'w': []}, {}]}}, 'a': 1}",
	"{'a name that is longer than the shortest head of a text can say': 'ä€𝄞'}",
	"{'text': "
	"'01234567890123456789012345678901234567890123456789012345678901234567890123456789"
	"01234567890123456789012345678901234567890123456789012345678901234567890123456789012345"
	"678"
	"90123456789012345678901234567890123456789012345678901234567890123456789012345678901234"
	"567"
	"89'}",
};

START_TEST(comes_out_as_it_went_in)
{
	cleanup_free struct packed *packed = pack(objects[_i]), *copy = packed_copy(packed);
	json_t *went_in = tree_of(objects[_i]), *came_out = packed_open(copy);
	cleanup_free char *in_text = json_dumps(went_in, 0),
			  *out_text = json_dumps(came_out, 0);

	ck_assert_str_eq(out_text, in_text); /* the order of members included */
	ck_assert_uint_eq(packed_size(packed), json_object_size(went_in));
	ck_assert(packed_equal(packed, copy));
	json_decref(went_in);
	json_decref(came_out);
}
END_TEST

START_TEST(nothing_is_taken_everywhere)
{
	cleanup_free struct packed *empty = pack("{}");

	ck_assert_ptr_null(packed_new(NULL));
	ck_assert_ptr_null(packed_take(NULL));
	ck_assert_ptr_null(packed_copy(NULL));
	ck_assert_ptr_null(packed_open(NULL));
	ck_assert_ptr_null(packed_text(NULL, "a", "b"));
	ck_assert_uint_eq(packed_size(NULL), 0);
	ck_assert_uint_eq(packed_depth(NULL), 0);
	ck_assert(packed_equal(NULL, NULL));
	ck_assert(!packed_equal(NULL, empty));
	ck_assert(!packed_equal(empty, NULL));
}
END_TEST

static const struct {
	const char *a, *b;
	bool equal;
} pairs[] = {
	{"{'a': 1, 'b': 2}", "{'a': 1, 'b': 2}", true},
	{"{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", true},
	{"{'a': {'x': 1, 'y': [1, 2]}}", "{'a': {'y': [1, 2], 'x': 1}}", true},
	{"{'a': [1, 2]}", "{'a': [2, 1]}", false},
	{"{'a': 1}", "{'a': 2}", false},
	{"{'a': 1}", "{'b': 1}", false},
	{"{'a': 1}", "{'a': '1'}", false},
	{"{'a': null}", "{}", false},
	{"{}", "{}", true},
};

START_TEST(equal_whatever_the_order)
{
	cleanup_free struct packed *a = pack(pairs[_i].a), *b = pack(pairs[_i].b);

	ck_assert(packed_equal(a, b) == pairs[_i].equal);
	ck_assert(packed_equal(b, a) == pairs[_i].equal);
}
END_TEST

START_TEST(a_text_is_found_where_it_is)
{
	static const struct {
		const char *outer, *inner, *text;
	} rows[] = {
		{"name", "string", "dummy0"},
		{"last", "string", "x"},
		{"number", "int", NULL},
		{"number", "string", NULL},
		{"flat", "string", NULL},
		{"list", "string", NULL},
		{"missing", "string", NULL},
		{"na", "string", NULL},
		{"name", "strin", NULL},
		{"deep", "string", NULL},
		{"empty", "string", ""},
	};
	cleanup_free struct packed *packed = pack(
		"{'flat': 'string', 'list': ['string', 'x'], 'deep': {'a': {'string': 'no'}}, "
		"'number': {'int': 5}, 'name': {'bool': true, 'string': 'dummy0'}, "
		"'empty': {'string': ''}, 'last': {'string': 'x'}}");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *text = packed_text(packed, rows[i].outer, rows[i].inner);

		ck_assert_msg(str_equal(text, rows[i].text), "%s.%s: %s", rows[i].outer,
			rows[i].inner, text ? text : "NULL");
	}
}
END_TEST

START_TEST(depth_is_that_of_the_deepest)
{
	static const struct {
		const char *text;
		unsigned depth;
	} rows[] = {
		{"{}", 1},
		{"{'a': 1}", 1},
		{"{'a': {}}", 2},
		{"{'a': [], 'b': [[1], {'c': {}}], 'd': {}}", 4},
		{"{'a': {'b': 1}, 'c': {'d': 1}, 'e': {'f': 1}}", 2},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free struct packed *packed = pack(rows[i].text);

		ck_assert_msg(packed_depth(packed) == rows[i].depth, "%s: %u", rows[i].text,
			packed_depth(packed));
	}
}
END_TEST

/* The heads and the texts: 1 map, 2 names and 2 values of 3 texts. */
START_TEST(it_takes_few_bytes)
{
	cleanup_free struct packed *packed = pack("{'kernelIfName': {'string': 'dummy0'}}");

	ck_assert_uint_eq(packed->len, 1 + 1 + 12 + 1 + 1 + 6 + 1 + 6);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("packed");
	TCase *tc = tcase_create("packed");

	tcase_add_loop_test(tc, comes_out_as_it_went_in, 0, ARRAY_SIZE(objects));
	tcase_add_test(tc, nothing_is_taken_everywhere);
	tcase_add_loop_test(tc, equal_whatever_the_order, 0, ARRAY_SIZE(pairs));
	tcase_add_test(tc, a_text_is_found_where_it_is);
	tcase_add_test(tc, depth_is_that_of_the_deepest);
	tcase_add_test(tc, it_takes_few_bytes);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
