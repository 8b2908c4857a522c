/* SPDX-License-Identifier: Apache-2.0 */
/* Records: each type of field both ways, from trees and from MessagePack, bounds, what errors say,
 * frozen copies, and ownership (with the address sanitizer). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/api.h"
#include "common/mp.h"
#include "common/rec.h"
#include "tests/unit/unit.h"

struct inner {
	char *name;
	struct rec_int count;
};
static const struct rec_field inner_fields[] = {
	REC_STR(struct inner, name, "name", REC_REQUIRED, 5, NULL, "short"),
	REC_INT(struct inner, count, "count", REC_OPTIONAL, -1, 10, "bounded"),
};
static REC_DESC(rec_inner, struct inner, "inner", inner_fields, NULL, "nested");

struct outer {
	char *text;
	struct rec_int number;
	struct rec_bool flag;
	struct strlist list;
	struct strmap map;
	json_t *tree, *object;
	struct packed *packed;
	struct inner *sub;
	struct REC_LIST(struct inner) subs;
};

static int check_lower(const char *text, struct err *err)
{
	for (; *text; text++)
		if (*text < 'a' || *text > 'z')
			return err_set(err, ERR_INVALID, "\"%s\" is not lower case", text);
	return 0;
}

static int check_outer(const void *rec, struct err *err)
{
	const struct outer *o = rec;

	if (o->number.set && o->number.v == 13)
		return err_set(err, ERR_INVALID, "13 is bad luck");
	return 0;
}

static const struct rec_field outer_fields[] = {
	REC_STR(struct outer, text, "text", REC_OPTIONAL, 0, check_lower, "text"),
	REC_INT(struct outer, number, "number", REC_OPTIONAL, 0, 100, "number"),
	REC_BOOL(struct outer, flag, "flag", REC_OPTIONAL, "flag"),
	REC_STRLIST(struct outer, list, "list", REC_OPTIONAL, 2, check_lower, "list"),
	REC_STRMAP(struct outer, map, "map", REC_OPTIONAL, 2, check_lower, "map"),
	REC_TREE(struct outer, tree, "tree", REC_OPTIONAL, "tree"),
	REC_OBJECT(struct outer, object, "object", REC_OPTIONAL, "object"),
	REC_PACKED(struct outer, packed, "packed", REC_OPTIONAL, "packed"),
	REC_SUB(struct outer, sub, "sub", REC_OPTIONAL, struct inner, &rec_inner, "sub"),
	REC_RECS(struct outer, subs, "subs", REC_OPTIONAL, 2, struct inner, &rec_inner, "subs"),
};
static REC_DESC(rec_outer, struct outer, "outer", outer_fields, check_outer, "all types");

static int decode(const char *json, enum rec_mode mode, struct outer *ret, struct err *err)
{
	json_t *tree = json_loads(json, JSON_DECODE_ANY, NULL);
	int r;

	ck_assert_ptr_nonnull(tree);
	*ret = (struct outer){0};
	r = rec_decode(&rec_outer, tree, mode, "root", NULL, ret, err);
	json_decref(tree);
	return r;
}

/* The tree as the bytes of a message. 1: the record is there; 0: the gates did not let it
 * through. */
static int unpack(const json_t *tree, struct outer *ret, struct err *err)
{
	cleanup_buf struct buf bytes = BUF_INIT;
	struct mp_scan scan = {0};
	struct mp_cursor cursor;

	mp_encode(tree, &bytes);
	if (mp_scan(&scan, bytes.data, bytes.len, 1 << 20, err) != 1 ||
		mp_check(bytes.data, bytes.len, err) < 0)
		return 0;
	*ret = (struct outer){0};
	cursor = mp_cursor(bytes.data);
	if (rec_unpack(&rec_outer, &cursor, ret, err) < 0)
		return -1;
	ck_assert_ptr_eq(cursor.at, bytes.data + bytes.len);
	return 1;
}

static const char *const round_trips[] = {
	"{}",
	"{\"text\":\"abc\"}",
	"{\"text\":\"\"}",
	"{\"number\":0}",
	"{\"number\":100}",
	"{\"flag\":false}",
	"{\"flag\":true}",
	"{\"list\":[\"a\",\"b\"]}",
	"{\"map\":{\"a\":\"1\",\"b\":\"\"}}",
	"{\"tree\":[1,{\"x\":null}]}",
	"{\"object\":{\"x\":[]}}",
	"{\"packed\":{}}",
	"{\"packed\":{\"z\":[1,{\"y\":null}],\"a\":1.5}}",
	"{\"sub\":{\"name\":\"abcde\",\"count\":-1}}",
	"{\"subs\":[{\"name\":\"a\"},{\"name\":\"b\",\"count\":10}]}",
};

START_TEST(test_round_trip)
{
	struct outer o, copy;
	json_t *want = json_loads(round_trips[_i], 0, NULL), *got;
	struct err err;

	ck_assert_int_eq(decode(round_trips[_i], REC_STRICT, &o, &err), 0);
	rec_copy(&rec_outer, &copy, &o);
	ck_assert(rec_equal(&rec_outer, &o, &copy));
	rec_fini(&rec_outer, &o);
	got = rec_encode(&rec_outer, &copy);
	ck_assert_msg(json_equal(want, got), "%s", round_trips[_i]);
	json_decref(got);
	json_decref(want);
	rec_fini(&rec_outer, &copy);
	rec_fini(&rec_outer, &copy); /* harmless */
}
END_TEST

START_TEST(test_wire_round_trip)
{
	json_t *want = json_loads(round_trips[_i], 0, NULL), *got;
	cleanup_buf struct buf bytes = BUF_INIT, plain = BUF_INIT;
	struct outer o, back;
	struct err err;

	ck_assert_int_eq(unpack(want, &o, &err), 1);
	rec_pack(&rec_outer, &o, &bytes);
	mp_encode(want, &plain);
	ck_assert_uint_eq(bytes.len, plain.len);
	ck_assert_mem_eq(bytes.data, plain.data, bytes.len);
	ck_assert_int_eq(decode(round_trips[_i], REC_STRICT, &back, &err), 0);
	ck_assert(rec_equal(&rec_outer, &o, &back));
	got = rec_encode(&rec_outer, &o);
	ck_assert_msg(json_equal(want, got), "%s", round_trips[_i]);
	json_decref(got);
	json_decref(want);
	rec_fini(&rec_outer, &o);
	rec_fini(&rec_outer, &back);
}
END_TEST

static const struct {
	const char *json, *message;
	enum rec_mode mode;
} refusals[] = {
	{"[]", "root: must be a map, not a list", REC_LENIENT},
	{"{\"text\":5}", "root.text: must be a text, not a number", REC_LENIENT},
	{"{\"text\":\"A\"}", "root.text: \"A\" is not lower case", REC_LENIENT},
	{"{\"text\":\"a\\u0000b\"}", "", REC_LENIENT},
	{"{\"number\":\"5\"}", "root.number: must be a whole number, not a text", REC_LENIENT},
	{"{\"number\":1.5}", "root.number: must be a whole number, not a number", REC_LENIENT},
	{"{\"number\":101}", "root.number: 101 is out of range 0..100", REC_LENIENT},
	{"{\"number\":-1}", "root.number: -1 is out of range 0..100", REC_LENIENT},
	{"{\"number\":13}", "root: 13 is bad luck", REC_LENIENT},
	{"{\"flag\":0}", "root.flag: must be true or false, not a number", REC_LENIENT},
	{"{\"list\":\"a\"}", "root.list: must be a list of texts, not a text", REC_LENIENT},
	{"{\"list\":[\"a\",1]}", "root.list[1]: must be a text, not a number", REC_LENIENT},
	{"{\"list\":[\"a\",\"B\"]}", "root.list[1]: \"B\" is not lower case", REC_LENIENT},
	{"{\"list\":[\"a\",\"b\",\"c\"]}", "root.list: has 3 elements, at most 2 are allowed",
		REC_LENIENT},
	{"{\"map\":{\"a\":1}}", "root.map.a: must be a text, not a number", REC_LENIENT},
	{"{\"map\":{\"A\":\"1\"}}", "root.map.A: \"A\" is not lower case", REC_LENIENT},
	{"{\"object\":[]}", "root.object: must be a map, not a list", REC_LENIENT},
	{"{\"packed\":[]}", "root.packed: must be a map, not a list", REC_LENIENT},
	{"{\"packed\":{\"a\":[[[[[[[[]]]]]]]]}}", "root.packed: is nested deeper than 8 levels",
		REC_LENIENT},
	{"{\"sub\":{}}", "root.sub.name: is required", REC_LENIENT},
	{"{\"sub\":[1]}", "root.sub: must be a map, not a list", REC_LENIENT},
	{"{\"subs\":{}}", "root.subs: must be a list, not a map", REC_LENIENT},
	{"{\"subs\":[{\"name\":\"a\"},null]}", "root.subs[1]: must be a map, not null",
		REC_LENIENT},
	{"{\"sub\":{\"name\":\"\"}}", "root.sub.name: must not be empty", REC_LENIENT},
	{"{\"sub\":{\"name\":null}}", "root.sub.name: is required", REC_LENIENT},
	{"{\"sub\":{\"name\":\"abcdef\"}}",
		"root.sub.name: is 6 bytes long, at most 5 are allowed", REC_LENIENT},
	{"{\"subs\":[{\"name\":\"a\"},{\"name\":\"b\",\"count\":11}]}",
		"root.subs[1].count: 11 is out of range -1..10", REC_LENIENT},
	{"{\"sub\":{\"name\":\"a\",\"more\":1}}",
		"root.sub.more: is not a field of inner; these are: name, count", REC_STRICT},
	{"{\"sub\":{\"naem\":\"a\"}}",
		"root.sub.naem: is not a field of inner; these are: name, count; did you mean "
		"name?",
		REC_STRICT},
	{"{\"sub\":{\"Name\":\"a\"}}",
		"root.sub.Name: is not a field of inner; these are: name, count; did you mean "
		"name?",
		REC_STRICT},
	{"{\"SUB\":{\"NAME\":\"a\",\"more\":null}}",
		"root.sub.more: is not a field of inner; these are: name, count",
		REC_STRICT_CASE},
	{"{\"Number\":5,\"number\":5}",
		"root.Number: is there twice: number is the same name", REC_STRICT_CASE},
	{"{\"subs\":[{\"name\":\"a\",\"nAME\":null}]}",
		"root.subs[0].name: is there twice: nAME is the same name", REC_STRICT_CASE},
};

/* What a strict decoding takes in any case, and which keys of a map it does not look at. */
START_TEST(test_strict_in_any_case)
{
	json_t *tree = json_loads("{\"TEXT\":\"a\",\"Sub\":{\"NAME\":\"b\"},"
				  "\"object\":{\"k\":1,\"K\":2},\"map\":{\"any\":\"1\"}}",
		0, NULL);
	struct outer o = {0};
	struct err err;

	ck_assert_msg(
		rec_decode(&rec_outer, tree, REC_STRICT_CASE, "", NULL, &o, &err) == 0, "%s",
		err.message);
	ck_assert_str_eq(o.text, "a");
	ck_assert_str_eq(o.sub->name, "b");
	rec_fini(&rec_outer, &o);
	json_decref(tree);
}
END_TEST

START_TEST(test_refusal)
{
	struct outer o, zero = {0};
	json_t *tree = json_loads(refusals[_i].json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	struct err err = ERR_INIT;

	o = zero;
	ck_assert_int_eq(
		rec_decode(&rec_outer, tree, refusals[_i].mode, "root", NULL, &o, &err), -1);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	if (*refusals[_i].message)
		ck_assert_str_eq(err.message, refusals[_i].message);
	else
		ck_assert(strstr(err.message, "NUL"));
	ck_assert_mem_eq(&o, &zero, sizeof(o));
	json_decref(tree);
}
END_TEST

/* The same words, but for the root. */
START_TEST(test_wire_refusal)
{
	json_t *tree = json_loads(refusals[_i].json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	const char *want = refusals[_i].message + strlen("root");
	struct outer o, zero = {0};
	struct err err = ERR_INIT;

	if (refusals[_i].mode == REC_LENIENT) {
		ck_assert_int_eq(unpack(tree, &o, &err), -1);
		ck_assert_int_eq(err.kind, ERR_INVALID);
		if (*refusals[_i].message)
			ck_assert_str_eq(err.message, want + strspn(want, ".: "));
		else
			ck_assert(strstr(err.message, "NUL"));
		ck_assert_mem_eq(&o, &zero, sizeof(o));
	}
	json_decref(tree);
}
END_TEST

/* In another order, with fields of the future and with null for what is unset. */
START_TEST(test_wire_is_lenient)
{
	json_t *tree =
		json_loads("{\"future\":[{\"number\":7}],\"sub\":{\"count\":3,\"more\":{},"
			   "\"name\":\"b\"},\"number\":null,\"text\":\"a\",\"TEXT\":\"c\"}",
			0, NULL);
	struct outer o;
	struct err err;

	ck_assert_int_eq(unpack(tree, &o, &err), 1);
	ck_assert_str_eq(o.text, "a");
	ck_assert(!o.number.set);
	ck_assert_str_eq(o.sub->name, "b");
	ck_assert_int_eq(o.sub->count.v, 3);
	rec_fini(&rec_outer, &o);
	json_decref(tree);
}
END_TEST

START_TEST(test_packed_bound)
{
	cleanup_free char *long_text = xcalloc(1, REC_MAX_PACKED + 1);
	struct err err = ERR_INIT;
	struct outer o = {0};
	json_t *tree;

	memset(long_text, 'x', REC_MAX_PACKED);
	tree = json_pack("{s{ss}}", "packed", "a", long_text);
	ck_assert_int_eq(rec_decode(&rec_outer, tree, REC_STRICT, "", NULL, &o, &err), -1);
	ck_assert_str_eq(err.message, "packed: takes 65544 bytes, at most 65536 are allowed");
	ck_assert_int_eq(unpack(tree, &o, &err), -1);
	ck_assert_str_eq(err.message, "packed: takes 65544 bytes, at most 65536 are allowed");
	json_decref(tree);
}
END_TEST

/* --- equality --- */

static const struct {
	const char *a, *b;
	bool equal;
} pairs[] = {
	{"{}", "{}", true},
	{"{\"text\":\"a\"}", "{\"text\":\"b\"}", false},
	{"{\"text\":\"\"}", "{}", false},
	{"{\"number\":0}", "{}", false},
	{"{\"number\":1}", "{\"number\":2}", false},
	{"{\"flag\":false}", "{}", false},
	{"{\"flag\":false}", "{\"flag\":true}", false},
	{"{\"list\":[\"a\",\"b\"]}", "{\"list\":[\"b\",\"a\"]}", false},
	{"{\"list\":[\"a\"]}", "{\"list\":[\"a\",\"b\"]}", false},
	{"{\"list\":[]}", "{}", true},
	{"{\"map\":{\"a\":\"1\",\"b\":\"2\"}}", "{\"map\":{\"b\":\"2\",\"a\":\"1\"}}", true},
	{"{\"map\":{\"a\":\"1\"}}", "{\"map\":{\"a\":\"2\"}}", false},
	{"{\"map\":{\"a\":\"1\"}}", "{\"map\":{\"b\":\"1\"}}", false},
	{"{\"tree\":[1]}", "{\"tree\":[1]}", true},
	{"{\"tree\":[1]}", "{\"tree\":[2]}", false},
	{"{\"tree\":[1]}", "{}", false},
	{"{\"packed\":{\"a\":1,\"b\":2}}", "{\"packed\":{\"b\":2,\"a\":1}}", true},
	{"{\"packed\":{\"a\":1}}", "{\"packed\":{\"a\":2}}", false},
	{"{\"packed\":{}}", "{}", false},
	{"{\"sub\":{\"name\":\"a\"}}", "{\"sub\":{\"name\":\"a\"}}", true},
	{"{\"sub\":{\"name\":\"a\"}}", "{\"sub\":{\"name\":\"b\"}}", false},
	{"{\"sub\":{\"name\":\"a\"}}", "{}", false},
	{"{\"subs\":[{\"name\":\"a\"}]}", "{\"subs\":[{\"name\":\"a\"}]}", true},
	{"{\"subs\":[{\"name\":\"a\"}]}", "{\"subs\":[{\"name\":\"a\",\"count\":0}]}", false},
};

START_TEST(test_equal)
{
	struct outer a, b;
	struct err err;

	ck_assert_int_eq(decode(pairs[_i].a, REC_STRICT, &a, &err), 0);
	ck_assert_int_eq(decode(pairs[_i].b, REC_STRICT, &b, &err), 0);
	ck_assert_msg(rec_equal(&rec_outer, &a, &b) == pairs[_i].equal, "%s and %s",
		pairs[_i].a, pairs[_i].b);
	ck_assert(rec_equal(&rec_outer, &b, &a) == pairs[_i].equal);
	rec_fini(&rec_outer, &a);
	rec_fini(&rec_outer, &b);
}
END_TEST

/* What is shown whether it is set or not looks the same. */
START_TEST(test_equal_always)
{
	char device[] = "dummy0", manager[] = "dummy", empty[] = "";
	struct alloc_row a = {.device_name = device, .manager = manager}, b = a;

	b.share_id = empty;
	ck_assert(rec_equal(&rec_alloc_row, &a, &b));
	b.problem = empty;
	ck_assert(!rec_equal(&rec_alloc_row, &a, &b));
}
END_TEST

/* --- frozen copies --- */

START_TEST(test_freeze)
{
	json_t *tree = json_loads(round_trips[_i], 0, NULL);
	struct outer o, copy, *frozen;
	struct err err;

	/* what is kept has no trees */
	(void)json_object_del(tree, "tree");
	(void)json_object_del(tree, "object");
	o = (struct outer){0};
	ck_assert_int_eq(rec_decode(&rec_outer, tree, REC_STRICT, "", NULL, &o, &err), 0);
	frozen = rec_freeze(&rec_outer, &o, NULL, NULL);
	ck_assert(rec_equal(&rec_outer, &o, frozen));
	rec_fini(&rec_outer, &o);
	rec_copy(&rec_outer, &copy, frozen); /* nothing in it is the original's */
	ck_assert(rec_equal(&rec_outer, &copy, frozen));
	free(frozen);
	rec_fini(&rec_outer, &copy);
	json_decref(tree);
}
END_TEST

START_TEST(test_freeze_shares_what_is_the_same)
{
	struct outer o, *frozen;
	const char *key;
	struct err err;

	ck_assert_int_eq(decode("{\"text\":\"same\",\"list\":[\"same\",\"other\"],"
				"\"map\":{\"same\":\"same\"},\"packed\":{\"a\":1},"
				"\"subs\":[{\"name\":\"same\"},{\"name\":\"other\"}]}",
				 REC_STRICT, &o, &err),
		0);
	frozen = rec_freeze(&rec_outer, &o, "same", &key);
	ck_assert(rec_equal(&rec_outer, &o, frozen));
	ck_assert_ptr_eq(key, frozen->text);
	ck_assert_ptr_eq(frozen->list.v[0], frozen->text);
	ck_assert_ptr_eq(frozen->map.v[0].key, frozen->text);
	ck_assert_ptr_eq(frozen->map.v[0].value, frozen->text);
	ck_assert_ptr_eq(frozen->subs.v[0].name, frozen->text);
	ck_assert_ptr_eq(frozen->subs.v[1].name, frozen->list.v[1]);
	free(frozen);
	frozen = rec_freeze(&rec_outer, &o, "different", &key);
	ck_assert_str_eq(key, "different");
	free(frozen);
	rec_fini(&rec_outer, &o);
}
END_TEST

START_TEST(test_modes)
{
	struct outer o;
	struct err err;

	ck_assert_int_eq(decode("{\"TEXT\":\"a\",\"x\":1}", REC_LENIENT, &o, &err), 0);
	ck_assert_ptr_null(o.text);
	rec_fini(&rec_outer, &o);
	ck_assert_int_eq(decode("{\"TEXT\":\"a\",\"x\":1}", REC_LENIENT_CASE, &o, &err), 0);
	ck_assert_str_eq(o.text, "a");
	rec_fini(&rec_outer, &o);
	ck_assert_int_eq(
		decode("{\"TEXT\":\"a\",\"text\":\"b\"}", REC_LENIENT_CASE, &o, &err), 0);
	ck_assert_str_eq(o.text, "b");
	rec_fini(&rec_outer, &o);
	ck_assert_int_eq(decode("{\"number\":null,\"sub\":null}", REC_STRICT, &o, &err), 0);
	ck_assert(!o.number.set && !o.sub);
	rec_fini(&rec_outer, &o);
}
END_TEST

static unsigned line_three(const struct rec_source *source, const json_t *node)
{
	ck_assert_str_eq(source->name, "file");
	return json_is_object(node) ? 3
				    : 0; /* only maps are known: fields fall back on theirs */
}

START_TEST(test_source)
{
	const struct rec_source source = {"file", line_three};
	json_t *tree = json_loads("{\"sub\":{\"name\":7}}", 0, NULL);
	struct outer o = {0};
	struct err err;

	ck_assert_int_eq(rec_decode(&rec_outer, tree, REC_STRICT, "", &source, &o, &err), -1);
	ck_assert_str_eq(err.message, "file:3: sub.name: must be a text, not a number");
	json_decref(tree);
}
END_TEST

/* The seed's rows show "" and null where nothing is. */
START_TEST(test_always)
{
	struct alloc_row row = {.device_name = (char *)(uintptr_t) "dummy0",
		.manager = (char *)(uintptr_t) "dummy"};
	json_t *got = rec_encode(&rec_alloc_row_statedb, &row);
	json_t *want =
		json_loads("{\"DeviceName\":\"dummy0\",\"Manager\":\"dummy\","
			   "\"PreparedDevice\":null,\"LogicalPool\":\"\",\"PodUID\":\"\","
			   "\"ClaimUID\":\"\",\"Config\":null,\"ShareID\":\"\","
			   "\"ConsumedCapacity\":null}",
			0, NULL);

	ck_assert(json_equal(got, want));
	json_decref(got);
	json_decref(want);
}
END_TEST

/* Every record and method of the contract can be walked: an empty one encodes, and a method has what
 * it needs. */
START_TEST(test_contract)
{
	for (int m = 0; m < API_METHOD_MAX; m++) {
		const struct api_method_info *info = api_method_info((enum api_method)m);

		ck_assert_ptr_nonnull(info->name);
		ck_assert_ptr_nonnull(info->request);
		ck_assert_msg(!info->result == !info->deadline_ms, "%s", info->name);
		ck_assert_int_eq(api_method_parse(info->name, strlen(info->name)), m);
		ck_assert_uint_gt(strlen(info->doc), 10);
	}
	ck_assert_int_eq(api_method_parse("status", 5), API_METHOD_MAX);
	ck_assert_int_eq(api_method_parse("", 0), API_METHOD_MAX);
}
END_TEST

START_TEST(test_manager_types)
{
	for (int t = 0; t < MANAGER_TYPE_MAX; t++)
		ck_assert_int_eq(
			manager_type_parse(manager_type_name((enum manager_type)t)), t);
	ck_assert_int_eq(manager_type_parse("SR-IOV"), MANAGER_SRIOV);
	ck_assert_int_eq(manager_type_parse("rxqueue"), MANAGER_RXQUEUE);
	ck_assert_int_eq(manager_type_parse("foo"), MANAGER_INVALID);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *suite = suite_create("rec");
	TCase *tc = tcase_create("rec");

	tcase_add_loop_test(tc, test_round_trip, 0, COUNT(round_trips));
	tcase_add_loop_test(tc, test_wire_round_trip, 0, COUNT(round_trips));
	tcase_add_loop_test(tc, test_refusal, 0, COUNT(refusals));
	tcase_add_loop_test(tc, test_wire_refusal, 0, COUNT(refusals));
	tcase_add_test(tc, test_wire_is_lenient);
	tcase_add_test(tc, test_packed_bound);
	tcase_add_loop_test(tc, test_equal, 0, COUNT(pairs));
	tcase_add_test(tc, test_equal_always);
	tcase_add_loop_test(tc, test_freeze, 0, COUNT(round_trips));
	tcase_add_test(tc, test_freeze_shares_what_is_the_same);
	tcase_add_test(tc, test_strict_in_any_case);
	tcase_add_test(tc, test_modes);
	tcase_add_test(tc, test_source);
	tcase_add_test(tc, test_always);
	tcase_add_test(tc, test_contract);
	tcase_add_test(tc, test_manager_types);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
