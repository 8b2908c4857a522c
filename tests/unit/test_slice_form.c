/* SPDX-License-Identifier: Apache-2.0 */
/* When two slices say the same. */
#include <check.h>
#include <stdlib.h>

#include "statd/slice_form.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define SLICE(spec_)      "{'metadata': {'name': 'x'}, 'spec': {'driver': 'd'" spec_ "}}"
#define DEVICES(devices_) SLICE(", 'devices': [" devices_ "]")
#define CAPACITY(value_)  DEVICES("{'name': 'a', 'capacity': {'c': {'value': '" value_ "'}}}")
#define POLICY(value_)                                                                         \
	DEVICES("{'name': 'a', 'capacity': {'c': {'requestPolicy': {'validValues': ['" value_  \
		"']}}}}")

static const struct {
	const char *a, *b;
	bool same;
} rows[] = {
	{SLICE(""), SLICE(""), true},
	/* what does not count: metadata but owners, the pool, the order of members */
	{SLICE(""), "{'metadata': {'name': 'y', 'labels': {'l': ''}}, 'spec': {'driver': 'd'}}",
		true},
	{SLICE(", 'pool': {'generation': 1}"), SLICE(", 'pool': {'generation': 2}"), true},
	{SLICE(", 'a': 1, 'b': 2"), SLICE(", 'b': 2, 'a': 1"), true},
	/* what is empty is absent */
	{SLICE(""), SLICE(", 'devices': []"), true},
	{SLICE(""), SLICE(", 'devices': null, 'x': {}, 'y': [{}, null], 'z': {'z': [{}]}"),
		true},
	{DEVICES("{'name': 'a'}"), DEVICES("{'name': 'a', 'taints': [], 'attributes': {}}"),
		true},
	{SLICE(""), "{'metadata': {'ownerReferences': []}, 'spec': {'driver': 'd'}}", true},
	{DEVICES("{'name': 'a', 'attributes': {'x': {'string': ''}}}"),
		DEVICES("{'name': 'a'}"), false},
	{SLICE(", 'allNodes': false"), SLICE(""), false},
	/* what counts */
	{SLICE(""), SLICE(", 'nodeName': 'n'"), false},
	{SLICE(""),
		"{'metadata': {'ownerReferences': [{'uid': 'u'}]}, 'spec': {'driver': 'd'}}",
		false},
	{DEVICES("{'name': 'a'}, {'name': 'b'}"), DEVICES("{'name': 'b'}, {'name': 'a'}"),
		false},
	{DEVICES("{'name': 'a'}"), DEVICES("{'name': 'a'}, {'name': 'a'}"), false},
	{DEVICES("{'name': 'a'}"), DEVICES("{'name': 'a', 'allowMultipleAllocations': true}"),
		false},
	{DEVICES("{'name': 'a', 'x': 1}"), DEVICES("{'name': 'a', 'x': '1'}"), false},
	{DEVICES("{'name': 'a', 'x': 1}"), DEVICES("{'name': 'a', 'x': true}"), false},
	{DEVICES("{'name': 'a', 'x': 1}"), DEVICES("{'name': 'a', 'x': 1.5}"), false},
	{DEVICES("{'name': 'a', 'x': ['y', 'z']}"), DEVICES("{'name': 'a', 'x': ['yz']}"),
		false},
	{DEVICES("{'name': 'a', 'x': 'y'}"), DEVICES("{'name': 'a', 'xy': ''}"), false},
	{DEVICES("{'name': 'a', 'x': {'y': 1}, 'z': 1}"),
		DEVICES("{'name': 'a', 'x': {'y': 1, 'z': 1}}"), false},
	/* quantities are their values */
	{CAPACITY("1024Mi"), CAPACITY("1Gi"), true},
	{CAPACITY("1000M"), CAPACITY("1G"), true},
	{CAPACITY("0.5"), CAPACITY("500m"), true},
	{CAPACITY("1e3"), CAPACITY("1k"), true},
	{CAPACITY("1"), CAPACITY("2"), false},
	{CAPACITY("1"), CAPACITY("1n"), false},
	{CAPACITY("x"), CAPACITY("y"), false},
	{CAPACITY("x"), CAPACITY("x"), true},
	{POLICY("1000m"), POLICY("1"), true},
	{DEVICES("{'name': 'a', 'attributes': {'x': {'string': '1000m'}}}"),
		DEVICES("{'name': 'a', 'attributes': {'x': {'string': '1'}}}"), false},
};

static uint64_t digest(const char *text)
{
	json_t *object = tree_of(text);
	uint64_t digest = slice_digest_object(object);

	json_decref(object);
	return digest;
}

START_TEST(same)
{
	ck_assert_msg((digest(rows[_i].a) == digest(rows[_i].b)) == rows[_i].same, "%s, %s",
		rows[_i].a, rows[_i].b);
	ck_assert_uint_ne(digest(rows[_i].a), 0);
}
END_TEST

START_TEST(odd_objects)
{
	static const char *const texts[] = {"{}", "[]", "1", "{'spec': 1}", "{'spec': []}",
		"{'spec': {'devices': {}}}", "{'spec': {'devices': [1, null, []]}}"};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		ck_assert_uint_ne(digest(texts[i]), 0);
}
END_TEST

START_TEST(deep_objects)
{
	json_t *object = json_object(), *spec = json_object(), *at = spec;

	(void)json_object_set_new(object, "spec", spec);
	for (int i = 0; i < 1000; i++) {
		json_t *below = json_object();

		(void)json_object_set_new(at, "x", below);
		at = below;
	}
	ck_assert_uint_ne(slice_digest_object(object), 0);
	json_decref(object);
}
END_TEST

START_TEST(gated_parts)
{
	struct slice_gated gated = {0};
	json_t *device = tree_of("{'allowMultipleAllocations': true, 'capacity': {"
				 "'a': {'requestPolicy': {}}, 'b': {'value': '1'}}}");

	slice_gated_add(&gated, device);
	slice_gated_add(&gated, device);
	ck_assert_uint_eq(gated.allow_multiple, 2);
	ck_assert_uint_eq(gated.request_policies, 2);
	json_decref(device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slice_form");
	TCase *tcase = tcase_create("form");

	tcase_add_loop_test(tcase, same, 0, ARRAY_SIZE(rows));
	tcase_add_test(tcase, odd_objects);
	tcase_add_test(tcase, deep_objects);
	tcase_add_test(tcase, gated_parts);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
