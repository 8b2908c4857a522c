/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/util.h"
#include "statd/quantity.h"
#include "tests/unit/unit.h"

static const struct {
	const char *text;
	uint64_t whole;
	uint32_t nanos;
} values[] = {
	{"0", 0, 0},
	{"1", 1, 0},
	{"+7", 7, 0},
	{"007", 7, 0},
	{"1.", 1, 0},
	{".5", 0, 500000000},
	{"0.50", 0, 500000000},
	{"500m", 0, 500000000},
	{"1500m", 1, 500000000},
	{"1n", 0, 1},
	{"1u", 0, 1000},
	{"1k", 1000, 0},
	{"1e3", 1000, 0},
	{"1E3", 1000, 0},
	{"1E+3", 1000, 0},
	{"1500e-3", 1, 500000000},
	{"1M", 1000000, 0},
	{"1000M", 1000000000, 0},
	{"1G", 1000000000, 0},
	{"1T", 1000000000000, 0},
	{"1P", 1000000000000000, 0},
	{"1E", 1000000000000000000, 0},
	{"1Ki", 1024, 0},
	{"1024Mi", 1073741824, 0},
	{"1Gi", 1073741824, 0},
	{"0.5Gi", 536870912, 0},
	{"1Ti", 1099511627776, 0},
	{"1Pi", 1125899906842624, 0},
	{"7Ei", 8070450532247928832, 0},
	{"9223372036854775807", INT64_MAX, 0},
	/* a fraction of a billionth is rounded up */
	{"0.1n", 0, 1},
	{"1.0000000001", 1, 1},
	{"1e-27", 0, 1},
	{"0e-27", 0, 0},
	{"0.000000001000000000000000000000", 0, 1},
};

START_TEST(value)
{
	struct quantity q;
	struct err err = ERR_INIT;

	ck_assert_msg(quantity_parse(values[_i].text, &q, &err) == 0, "%s", err.message);
	ck_assert_msg(q.whole == values[_i].whole && q.nanos == values[_i].nanos,
		"%s: %" PRIu64 ".%09" PRIu32, values[_i].text, q.whole, q.nanos);
}
END_TEST

static const struct {
	const char *text, *message;
} refused[] = {
	{"", "\"\" is no quantity"},
	{"x", "\"x\" is no quantity"},
	{".", "\".\" is no quantity"},
	{"1.2.3", "\"1.2.3\" is no quantity"},
	{" 1", "\" 1\" is no quantity"},
	{"1 ", "\"1 \" is no quantity"},
	{"1K", "\"1K\" is no quantity"},
	{"1ki", "\"1ki\" is no quantity"},
	{"1mi", "\"1mi\" is no quantity"},
	{"1e", "\"1e\" is no quantity"},
	{"1e+", "\"1e+\" is no quantity"},
	{"1e++3", "\"1e++3\" is no quantity"},
	{"1e+-3", "\"1e+-3\" is no quantity"},
	{"1e3k", "\"1e3k\" is no quantity"},
	{"1e19", "\"1e19\" is no quantity"},
	{"0x10", "\"0x10\" is no quantity"},
	{"-1", "\"-1\" is a negative quantity"},
	{"8Ei", "\"8Ei\" is too large for a quantity"},
	{"10E", "\"10E\" is too large for a quantity"},
	{"9223372036854775808", "\"9223372036854775808\" is too large for a quantity"},
	{"99999999999999999999999999999999",
		"\"99999999999999999999999999999999\" is too large for a quantity"},
	{"99999999999999999999999999999Ei",
		"\"99999999999999999999999999999Ei\" is too large for a quantity"},
	{"000000000000000000000000000000001",
		"\"00000000000000000000000000000000\" is too long for a quantity"},
	{"1\n", "\"1?\" is no quantity"},
};

START_TEST(refusal)
{
	struct quantity q;
	struct err err = ERR_INIT;

	ck_assert_int_eq(quantity_parse(refused[_i].text, &q, &err), -1);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ck_assert_str_eq(err.message, refused[_i].message);
}
END_TEST

START_TEST(compare)
{
	const struct quantity small = {1, 5}, middle = {1, 6}, large = {2, 0};

	ck_assert_int_lt(quantity_compare(small, middle), 0);
	ck_assert_int_lt(quantity_compare(middle, large), 0);
	ck_assert_int_gt(quantity_compare(large, small), 0);
	ck_assert_int_eq(quantity_compare(middle, middle), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quantity");
	TCase *tcase = tcase_create("quantity");

	tcase_add_loop_test(tcase, value, 0, ARRAY_SIZE(values));
	tcase_add_loop_test(tcase, refusal, 0, ARRAY_SIZE(refused));
	tcase_add_test(tcase, compare);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
