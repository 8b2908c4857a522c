/* SPDX-License-Identifier: Apache-2.0 */
/* Names, layout and generations of slices: pure functions. What they do together, test_slice_sink
 * says. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "statd/slice_limits.h"
#include "statd/slice_plan.h"
#include "tests/unit/unit.h"

/* --- names -------------------------------------------------------------------------------- */

static const struct {
	size_t n_slices;
	unsigned width;
} widths[] = {{0, 5}, {1, 5}, {65, 5}, {0x100000, 5}, {0x100001, 6}, {0x1000000, 6},
	{0x1000001, 7}, {SIZE_MAX, 16}};

START_TEST(index_width)
{
	ck_assert_uint_eq(slice_index_width(widths[_i].n_slices), widths[_i].width);
}
END_TEST

static const struct {
	const char *name;
	size_t n_slices;
	long index;
} indexes[] = {
	{"00000-driver-node-abcde", 1, 0},
	{"0001f-driver-node-abcde", 64, 31},
	{"fffff-x", 2, 0xfffff},
	{"00000-", 1, 0},
	{"00000", 1, -1},
	{"", 1, -1},
	{"-", 1, -1},
	{"0000-x", 1, -1},
	{"000000-x", 1, -1},
	{"0000g-x", 1, -1},
	{"0000A-x", 1, -1},
	{" 0000-x", 1, -1},
	{"+0000-x", 1, -1},
	{"00000.x", 1, -1},
	{"node-driver-abcde", 1, -1},
	{"100000-x", 0x100001, 0x100000},
	{"00000-x", 0x100001, -1},
};

START_TEST(index_of_name)
{
	ck_assert_int_eq(
		slice_name_index(indexes[_i].name, indexes[_i].n_slices), indexes[_i].index);
}
END_TEST

START_TEST(new_names)
{
	cleanup_free char *a = slice_name_new(31, 64, "driver.example.com", "node-1"),
			  *b = slice_name_new(31, 64, "driver.example.com", "node-1"),
			  *c = slice_name_new(0, 1, "driver.example.com",
				  "a.very.long.name.of.a.node.that.is.somewhere.far.away");

	ck_assert(str_has_prefix(a, "0001f-driver.example.com-node-1-"));
	ck_assert_uint_eq(strlen(a), strlen("0001f-driver.example.com-node-1-") + 5);
	ck_assert_str_ne(a, b);
	ck_assert_int_eq(slice_name_index(a, 64), 31);
	ck_assert_uint_eq(strlen(c), 63);
	ck_assert(
		str_has_prefix(c, "00000-driver.example.com-a.very.long.name.of.a.node.that."));
}
END_TEST

/* --- layout ------------------------------------------------------------------------------- */

static const struct {
	size_t devices, slices;
} counts[] = {{0, 1}, {1, 1}, {64, 1}, {65, 2}, {128, 2}, {130, 3}, {4096, 64}};

START_TEST(how_many_slices)
{
	ck_assert_uint_eq(slice_count(counts[_i].devices), counts[_i].slices);
}
END_TEST

#define MAX_DEVICES 400

/* Devices are the numbers of their names; where each was. */
struct node {
	uint64_t names[MAX_DEVICES];
	size_t n;
	struct slice_hint hints[2 * MAX_DEVICES];
	size_t n_hints;
	size_t slices[MAX_DEVICES];
};

static void lay_out(struct node *node)
{
	size_t filled[MAX_DEVICES] = {0};

	slice_layout(node->names, node->n, node->hints, node->n_hints, node->slices);
	for (size_t i = 0; i < node->n; i++) {
		ck_assert_uint_lt(node->slices[i], slice_count(node->n));
		ck_assert_uint_le(++filled[node->slices[i]], SLICE_MAX_DEVICES);
	}
}

static void remember(struct node *node)
{
	for (size_t i = 0; i < node->n; i++)
		node->hints[i] = (struct slice_hint){node->names[i], node->slices[i]};
	node->n_hints = node->n;
}

static void offer(struct node *node, uint64_t first, size_t n)
{
	node->n = n;
	for (size_t i = 0; i < n; i++)
		node->names[i] = first + i;
}

START_TEST(first_layout_is_sorted)
{
	struct node node = {.n = 0};

	offer(&node, 1000, 130);
	lay_out(&node);
	for (size_t i = 0; i < node.n; i++)
		ck_assert_uint_eq(node.slices[i], i / SLICE_MAX_DEVICES);
	/* and a second one is the same */
	remember(&node);
	lay_out(&node);
	for (size_t i = 0; i < node.n; i++)
		ck_assert_uint_eq(node.slices[i], i / SLICE_MAX_DEVICES);
}
END_TEST

START_TEST(new_devices_fill_gaps)
{
	struct node node = {.n = 0};

	offer(&node, 1000, 130);
	lay_out(&node);
	remember(&node);
	/* 1003 goes, 900 and 901 come: one where 1003 was, one behind all */
	node.n = 0;
	node.names[node.n++] = 900;
	node.names[node.n++] = 901;
	for (uint64_t name = 1000; name < 1130; name++)
		if (name != 1003)
			node.names[node.n++] = name;
	lay_out(&node);
	ck_assert_uint_eq(node.slices[0], 0);
	ck_assert_uint_eq(node.slices[1], 2);
	for (size_t i = 2; i < node.n; i++)
		ck_assert_uint_eq(node.slices[i], (node.names[i] - 1000) / SLICE_MAX_DEVICES);
}
END_TEST

START_TEST(slices_that_are_not_needed_are_emptied)
{
	struct node node = {.n = 0};

	offer(&node, 1000, 130);
	lay_out(&node);
	remember(&node);
	/* 1000 and 1064 go: 128 are left, and the last two move into their places */
	node.n = 0;
	for (uint64_t name = 1001; name < 1130; name++)
		if (name != 1064)
			node.names[node.n++] = name;
	ck_assert_uint_eq(node.n, 128);
	lay_out(&node);
	for (size_t i = 0; i < node.n; i++) {
		size_t was = (node.names[i] - 1000) / SLICE_MAX_DEVICES;

		ck_assert_uint_eq(node.slices[i], was < 2 ? was : node.names[i] - 1128);
	}
}
END_TEST

START_TEST(hints_that_do_not_fit)
{
	struct node node = {.n = 0};

	/* all in one slice, says somebody; and twice, and where there is none */
	offer(&node, 1000, 130);
	for (size_t i = 0; i < node.n; i++) {
		node.hints[node.n_hints++] = (struct slice_hint){node.names[i], 1};
		node.hints[node.n_hints++] = (struct slice_hint){node.names[i], 99};
	}
	lay_out(&node);
	for (size_t i = 0; i < SLICE_MAX_DEVICES; i++)
		ck_assert_uint_eq(node.slices[i], 1);
	ck_assert_uint_eq(node.slices[SLICE_MAX_DEVICES], 0);
	ck_assert_uint_eq(node.slices[129], 2);
}
END_TEST

static unsigned moved(const struct node *node)
{
	unsigned n = 0;

	for (size_t i = 0; i < node->n; i++)
		for (size_t j = 0; j < node->n_hints; j++)
			n += node->hints[j].name == node->names[i] &&
			     node->hints[j].slice < slice_count(node->n) &&
			     node->hints[j].slice != node->slices[i];
	return n;
}

/* Whatever comes and goes: none moves whose slice is still there, and a second layout is the
 * same. */
START_TEST(layout_is_stable)
{
	struct node node = {.n = 0};

	srand((unsigned)_i + 1);
	for (int round = 0; round < 20; round++) {
		size_t before[MAX_DEVICES];
		const int keep = rand() % 100;

		node.n = 0;
		for (uint64_t name = 1; name <= MAX_DEVICES; name++)
			if (rand() % 100 <= keep)
				node.names[node.n++] = name;
		lay_out(&node);
		ck_assert_uint_eq(moved(&node), 0);
		remember(&node);
		memcpy(before, node.slices, sizeof(before));
		lay_out(&node);
		ck_assert_mem_eq(before, node.slices, node.n * sizeof(*before));
	}
}
END_TEST

/* --- generations -------------------------------------------------------------------------- */

/* What there is: name, generation, count, devices are as they should be. */
struct there {
	const char *name;
	int64_t generation, count;
	bool right;
};

static const struct {
	const char *what;
	size_t n_slices;
	struct there there[4];
	struct slice_bump bump;
	int64_t generation;
	size_t n_obsolete, n_changed, n_missing;
} plans[] = {
	{"nothing there", 2, {{0}}, {0}, 1, 0, 0, 2},
	{"all is well", 2, {{"00000-a", 5, 2, true}, {"00001-b", 5, 2, true}}, {0}, 5, 0, 0, 0},
	{"one is wrong", 2, {{"00000-a", 5, 2, true}, {"00001-b", 5, 2, false}}, {0}, 5, 0, 1,
		0},
	{"two are wrong", 2, {{"00000-a", 5, 2, false}, {"00001-b", 5, 2, false}}, {0}, 6, 0, 2,
		0},
	{"the count is wrong", 2, {{"00000-a", 5, 3, true}, {"00001-b", 5, 3, true}}, {0}, 6, 0,
		2, 0},
	{"one is missing", 2, {{"00000-a", 5, 2, true}}, {0}, 6, 0, 1, 1},
	{"one is too many", 1, {{"00000-a", 5, 2, true}, {"00001-b", 5, 2, true}}, {0}, 5, 1, 1,
		0},
	{"one is too old", 2, {{"00000-a", 4, 2, true}, {"00001-b", 5, 2, true}}, {0}, 6, 1, 1,
		1},
	{"the last generation of all", 1, {{"00000-a", INT64_MAX, 1, true}}, {0}, 1, 1, 0, 1},
	{"the last but one", 1, {{"00000-a", INT64_MAX - 1, 1, true}}, {0}, INT64_MAX - 1, 0, 0,
		0},
	{"negative ones", 1, {{"00000-a", -3, 1, true}}, {0}, 1, 1, 0, 1},
	/* interrupted on the way from 5 to 6 */
	{"none was written", 2, {{"00000-a", 5, 2, true}, {"00001-b", 5, 2, false}}, {5, 6}, 6,
		0, 2, 0},
	{"one was written", 2, {{"00000-a", 6, 2, true}, {"00001-b", 5, 2, false}}, {5, 6}, 6,
		0, 1, 0},
	{"and one is too old", 2, {{"00000-a", 6, 2, true}, {"00001-b", 4, 2, false}}, {5, 6},
		6, 1, 0, 1},
	{"somebody went further", 2, {{"00000-a", 7, 2, true}, {"00001-b", 5, 2, false}},
		{5, 6}, 8, 1, 1, 1},
	{"creations were interrupted", 2, {{"00000-a", 1, 2, true}}, {0, 1}, 1, 0, 0, 1},
};

START_TEST(operations)
{
	struct slice_record records[4] = {0}, *list[4];
	struct slice_plan plan;
	size_t n = 0;

	for (; n < 4 && plans[_i].there[n].name; n++) {
		const struct there *t = &plans[_i].there[n];

		records[n].name = (char *)(uintptr_t)t->name;
		records[n].in_pool = true;
		records[n].generation = t->generation;
		records[n].count = t->count;
		list[n] = &records[n];
	}
	slice_plan_match(&plan, list, n, plans[_i].n_slices, plans[_i].bump);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < plan.n_slices; j++)
			if (plan.slices[j] == &records[i])
				plan.changed[j] = !plans[_i].there[i].right;
	slice_plan_decide(&plan);
	ck_assert_msg(plan.generation == plans[_i].generation, "%s: generation %lld",
		plans[_i].what, (long long)plan.generation);
	ck_assert_msg(plan.n_obsolete == plans[_i].n_obsolete &&
			      plan.n_changed == plans[_i].n_changed &&
			      plan.n_missing == plans[_i].n_missing,
		"%s: %zu obsolete, %zu changed, %zu missing", plans[_i].what, plan.n_obsolete,
		plan.n_changed, plan.n_missing);
	slice_plan_fini(&plan);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slice_plan");
	TCase *tcase = tcase_create("plan");

	tcase_add_loop_test(tcase, index_width, 0, ARRAY_SIZE(widths));
	tcase_add_loop_test(tcase, index_of_name, 0, ARRAY_SIZE(indexes));
	tcase_add_test(tcase, new_names);
	tcase_add_loop_test(tcase, how_many_slices, 0, ARRAY_SIZE(counts));
	tcase_add_test(tcase, first_layout_is_sorted);
	tcase_add_test(tcase, new_devices_fill_gaps);
	tcase_add_test(tcase, slices_that_are_not_needed_are_emptied);
	tcase_add_test(tcase, hints_that_do_not_fit);
	tcase_add_loop_test(tcase, layout_is_stable, 0, 20);
	tcase_add_loop_test(tcase, operations, 0, ARRAY_SIZE(plans));
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
