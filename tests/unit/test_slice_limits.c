/* SPDX-License-Identifier: Apache-2.0 */
/* What the API takes of a device, and what is made of one that has more. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "statd/slice_limits.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define TEN(x) x x x x x x x x x x
#define N31    TEN("a") TEN("b") TEN("c") "d"
#define N63    TEN("a") TEN("b") TEN("c") TEN("d") TEN("e") TEN("f") "123"

/* what is left of the device; the note: a part of it */
struct row {
	const char *device, *left, *note;
};

#define DEVICE(members_)     "{'name': 'd'" members_ "}"
#define ATTRIBUTES(members_) DEVICE(", 'attributes': {" members_ "}")
#define LEFT_OUT(members_, note_)                                                              \
	{                                                                                      \
		ATTRIBUTES(members_ ", 'ok': {'int': 1}"), ATTRIBUTES("'ok': {'int': 1}"),     \
			note_                                                                  \
	}
#define TAKEN(members_)                                                                        \
	{                                                                                      \
		ATTRIBUTES(members_), ATTRIBUTES(members_), NULL                               \
	}

static const struct row attributes[] = {
	{DEVICE(""), DEVICE(""), NULL},
	{ATTRIBUTES(""), DEVICE(""), NULL},
	/* values */
	TAKEN("'a': {'string': ''}"),
	TAKEN("'a': {'string': '" N63 "4'}"),
	LEFT_OUT("'a': {'string': '" N63 "45'}",
		"attribute 'a' is left out: the value has 65 bytes, at most 64 are allowed"),
	TAKEN("'a': {'int': -9223372036854775808}"),
	LEFT_OUT("'a': {'int': 1.5}", "the value is no whole number"),
	LEFT_OUT("'a': {'int': '1'}", "the value is no whole number"),
	TAKEN("'a': {'bool': true}, 'b': {'bool': false}"),
	LEFT_OUT("'a': {'bool': 1}", "the value is neither true nor false"),
	LEFT_OUT("'a': {'string': null}", "the value is no text"),
	LEFT_OUT("'a': {}", "it is not exactly one value"),
	LEFT_OUT("'a': 'x'", "it is not exactly one value"),
	LEFT_OUT("'a': null", "it is not exactly one value"),
	LEFT_OUT("'a': {'int': 1, 'string': 'x'}", "it is not exactly one value"),
	LEFT_OUT("'a': {'strings': ['x']}", "a value is a string, an int, a bool or a version"),
	LEFT_OUT("'a': {'String': 'x'}", "a value is a string, an int, a bool or a version"),
	/* versions */
	TAKEN("'a': {'version': '1.2.3'}"),
	TAKEN("'a': {'version': '0.0.0-alpha.1.x-y+001.5b'}"),
	TAKEN("'a': {'version': '10.20.30+build'}"),
	TAKEN("'a': {'version': '1.2.3-0a'}"),
	LEFT_OUT("'a': {'version': 'v1.2.3'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3.4'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '01.2.3'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.03'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3-'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3-+x'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3-a..b'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3-01'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3+'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3+a+b'}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1.2.3 '}", "no semantic version"),
	LEFT_OUT("'a': {'version': ''}", "no semantic version"),
	LEFT_OUT("'a': {'version': '1..3'}", "no semantic version"),
	/* names */
	TAKEN("'_A9': {'int': 1}"),
	TAKEN("'" N31 "e': {'int': 1}"),
	LEFT_OUT("'" N31 "ef': {'int': 1}", "the name has 33 bytes without its domain"),
	LEFT_OUT("'': {'int': 1}", "attribute '' is left out: the name has 0 bytes"),
	LEFT_OUT("'9a': {'int': 1}", "beginning with no digit"),
	LEFT_OUT("'a-b': {'int': 1}", "letters, digits and '_'"),
	LEFT_OUT("'a b': {'int': 1}", "letters, digits and '_'"),
	TAKEN("'resource.kubernetes.io/pciBusID': {'string': '0000:03:00.1'}"),
	TAKEN("'Example.COM/a': {'int': 1}"),
	TAKEN("'" N63 "/" N31 "e': {'int': 1}"),
	LEFT_OUT("'" N63 "4/a': {'int': 1}", "the name's domain has 64 bytes, at most 63"),
	LEFT_OUT("'/a': {'int': 1}", "name is empty"),
	LEFT_OUT("'x.y/': {'int': 1}", "the name has 0 bytes"),
	LEFT_OUT("'x.y/a/b': {'int': 1}", "letters, digits and '_'"),
	LEFT_OUT("'x_y/a': {'int': 1}", "no DNS subdomain"),
	/* several */
	LEFT_OUT("'-': {'int': 1}, '--': {'int': 1}",
		"attribute '-' is left out: the name is not made of letters, digits and '_', "
		"beginning with no digit; attribute '--' is left out: "),
	LEFT_OUT("'1': {'int': 1}, '2': {'int': 1}, '3': {'int': 1}, '4': {'int': 1}, '5': "
		 "{'int': 1}",
		"; and 2 more"),
};

#define CAPACITY(members_)                                                                     \
	"{'name': 'd', 'capacity': {'c': {" members_ "}}, 'allowMultipleAllocations': true}"
#define NO_CAPACITY "{'name': 'd', 'allowMultipleAllocations': true}"
#define TAKEN_C(members_)                                                                      \
	{                                                                                      \
		CAPACITY(members_), CAPACITY(members_), NULL                                   \
	}
#define LEFT_OUT_C(members_, note_)                                                            \
	{                                                                                      \
		CAPACITY(members_), NO_CAPACITY, "capacity 'c' is left out: " note_            \
	}
#define POLICY(value_, members_) "'value': '" value_ "', 'requestPolicy': {" members_ "}"

static const struct row capacities[] = {
	TAKEN_C("'value': '4'"),
	TAKEN_C("'value': '1.5Gi'"),
	LEFT_OUT_C("", "it has no value"),
	LEFT_OUT_C("'value': 4", "value is no quantity"),
	LEFT_OUT_C("'value': 'x'", "value: \"x\" is no quantity"),
	LEFT_OUT_C("'value': '-1'", "value: \"-1\" is a negative quantity"),
	LEFT_OUT_C("'value': '4', 'requestPolicy': 'x'", "requestPolicy is no object"),
	TAKEN_C("'value': '4', 'requestPolicy': {}"),
	TAKEN_C(POLICY("4", "'default': '1'")),
	LEFT_OUT_C(
		POLICY("4", "'default': 'x'"), "requestPolicy: default: \"x\" is no quantity"),
	LEFT_OUT_C(
		POLICY("4", "'default': '5'"), "requestPolicy: the default is more than the"),
	/* values */
	TAKEN_C(POLICY("4", "'default': '1', 'validValues': ['1']")),
	TAKEN_C(POLICY("4", "'default': '2', 'validValues': ['500m', '1', '2', '4']")),
	TAKEN_C(POLICY("1k", "'default': '1000', 'validValues': ['1e3']")),
	TAKEN_C(POLICY("10", "'default': '1', 'validValues': ['1','2','3','4','5','6','7','8',"
			     "'9','10']")),
	LEFT_OUT_C(
		POLICY("11", "'default': '1', 'validValues': ['1','2','3','4','5','6','7','8',"
			     "'9','10','11']"),
		"requestPolicy: there are 11 valid values, at most 10"),
	LEFT_OUT_C(
		POLICY("4", "'validValues': ['1']"), "requestPolicy: the default is not one"),
	LEFT_OUT_C(POLICY("4", "'default': '3', 'validValues': ['1', '2']"),
		"requestPolicy: the default is not one of the valid values"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validValues': ['1', '1000m']"),
		"requestPolicy: the valid values do not ascend"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validValues': ['2', '1']"),
		"requestPolicy: the valid values do not ascend"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validValues': ['1', '5']"),
		"requestPolicy: a valid value is more than the capacity"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validValues': [1]"),
		"requestPolicy: a valid value is no quantity"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validValues': '1'"),
		"requestPolicy: validValues is a list, validRange is an object"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validRange': []"),
		"requestPolicy: validValues is a list, validRange is an object"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validValues': ['1'], 'validRange': {'min': "
			       "'1'}"),
		"requestPolicy: it has both valid values and a range"),
	/* ranges */
	TAKEN_C(POLICY("4", "'default': '1', 'validRange': {'min': '1'}")),
	TAKEN_C(POLICY("8", "'default': '4', 'validRange': {'min': '2', 'max': '6', 'step': "
			    "'2'}")),
	TAKEN_C(POLICY("1", "'default': '1', 'validRange': {'min': '1', 'max': '1'}")),
	LEFT_OUT_C(POLICY("4", "'validRange': {'min': '1'}"), "requestPolicy: a range needs a"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validRange': {'max': '1'}"),
		"requestPolicy: the range of valid values has no min"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validRange': {'min': '1', 'max': 'x'}"),
		"requestPolicy: max: \"x\" is no quantity"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validRange': {'min': '500m'}"),
		"requestPolicy: a range is made of whole numbers"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validRange': {'min': '2'}"),
		"requestPolicy: the range's min is more than the capacity or the default"),
	LEFT_OUT_C(POLICY("4", "'default': '3', 'validRange': {'min': '1', 'max': '2'}"),
		"requestPolicy: the range's max is more than the capacity or less than"),
	LEFT_OUT_C(POLICY("4", "'default': '3', 'validRange': {'min': '1', 'max': '5'}"),
		"requestPolicy: the range's max is more than the capacity or less than"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validRange': {'min': '1', 'step': '0'}"),
		"requestPolicy: the range's step is 0"),
	LEFT_OUT_C(POLICY("4", "'default': '1', 'validRange': {'min': '1', 'step': '4'}"),
		"requestPolicy: the range's step is 0, or more than what is between"),
	LEFT_OUT_C(POLICY("8", "'default': '4', 'validRange': {'min': '1', 'step': '2'}"),
		"requestPolicy: the range's max or the default is not reached in steps"),
	LEFT_OUT_C(POLICY("8", "'default': '3', 'validRange': {'min': '1', 'max': '6', 'step': "
			       "'2'}"),
		"requestPolicy: the range's max or the default is not reached in steps"),
	/* a policy goes with sharing */
	{"{'name': 'd', 'capacity': {'c': {'value': '4', 'requestPolicy': {'default': '9'}}}}",
		"{'name': 'd', 'capacity': {'c': {'value': '4'}}}", NULL},
};

static void assert_row(const struct row *row)
{
	json_t *device = tree_of(row->device), *left = tree_of(row->left);
	cleanup_free char *note = NULL;
	int outcome = slice_limits_apply(device, &note);

	if (!json_equal(device, left))
		ck_abort_msg("%s: is %s, should be %s", row->device,
			json_dumps(device, JSON_SORT_KEYS), row->left);
	ck_assert_msg(outcome == (row->note != NULL), "%s: %d, %s", row->device, outcome, note);
	if (row->note)
		ck_assert_msg(strstr(note, row->note), "%s: %s", row->device, note);
	json_decref(device);
	json_decref(left);
}

START_TEST(attribute)
{
	assert_row(&attributes[_i]);
}
END_TEST

START_TEST(capacity)
{
	assert_row(&capacities[_i]);
}
END_TEST

static const struct {
	const char *name, *note; /* NULL: taken */
} names[] = {
	{"a", NULL},
	{"0000-03-00-1", NULL},
	{N63, NULL},
	{N63 "4", "device cannot be published: name too long: "},
	{"", "device cannot be published: name is empty"},
	{"eth0.100", "device cannot be published: name is no DNS label: \"eth0.100\""},
	{"Eth0", "device cannot be published: name is no DNS label"},
	{"a_b", "device cannot be published: name is no DNS label"},
	{"-a", "device cannot be published: name is no DNS label"},
};

START_TEST(device_name)
{
	json_t *device = json_pack("{s:s}", "name", names[_i].name);
	cleanup_free char *note = NULL;

	ck_assert_int_eq(slice_limits_apply(device, &note), names[_i].note ? -1 : 0);
	if (names[_i].note)
		ck_assert_msg(str_has_prefix(note, names[_i].note), "%s", note);
	json_decref(device);
}
END_TEST

START_TEST(no_name)
{
	json_t *device = json_object();
	cleanup_free char *note = NULL;

	ck_assert_int_eq(slice_limits_apply(device, &note), -1);
	json_decref(device);
}
END_TEST

/* 32 in all, those that are left out not counted */
START_TEST(how_many)
{
	json_t *device = tree_of("{'name': 'd', 'attributes': {'--': {'int': 1}},"
				 " 'capacity': {'c': {'value': '1'}, 'd': {'value': '1'}}}"),
	       *entries = json_object_get(device, "attributes");
	cleanup_free char *first = NULL, *second = NULL;

	for (int i = 0; i < 30; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "a%d", i);
		(void)json_object_set_new(entries, name, json_pack("{s:i}", "int", i));
	}
	ck_assert_int_eq(slice_limits_apply(device, &first), 1);
	ck_assert_uint_eq(json_object_size(entries), 30);
	(void)json_object_set_new(entries, "one", json_pack("{s:i}", "int", 1));
	ck_assert_int_eq(slice_limits_apply(device, &second), -1);
	ck_assert_str_eq(
		second, "device has 33 attributes and capacities, at most 32 can be published");
	json_decref(device);
}
END_TEST

START_TEST(note_is_bounded)
{
	json_t *device = tree_of("{'name': 'd'}"), *entries = json_object();
	cleanup_free char *note = NULL;

	for (int i = 0; i < 9; i++) {
		cleanup_free char *name = xasprintf("%d-%04000d", i, 0);

		(void)json_object_set_new(entries, name, json_pack("{s:i}", "int", 1));
	}
	(void)json_object_set_new(device, "attributes", entries);
	ck_assert_int_eq(slice_limits_apply(device, &note), 1);
	ck_assert_uint_le(strlen(note), SLICE_LIMITS_MAX_NOTE);
	ck_assert_ptr_nonnull(strstr(note, "; and 6 more"));
	json_decref(device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slice_limits");
	TCase *tcase = tcase_create("limits");

	tcase_add_loop_test(tcase, attribute, 0, ARRAY_SIZE(attributes));
	tcase_add_loop_test(tcase, capacity, 0, ARRAY_SIZE(capacities));
	tcase_add_loop_test(tcase, device_name, 0, ARRAY_SIZE(names));
	tcase_add_test(tcase, no_name);
	tcase_add_test(tcase, how_many);
	tcase_add_test(tcase, note_is_bounded);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
