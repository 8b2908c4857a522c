/* SPDX-License-Identifier: Apache-2.0 */
/* Links read together, on the real kernel, in a network namespace of the test's own. */
#include "common/link_table.h"
#include "tests/unit/unit.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

#define MANY 40

int __wrap_nl_link_get(
	struct nl *nl, const char *name, struct link_info *ret, struct err *err);
int __real_nl_link_get(
	struct nl *nl, const char *name, struct link_info *ret, struct err *err);
int __wrap_nl_link_find_all(struct nl *nl,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err);
int __real_nl_link_find_all(struct nl *nl,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err);

static struct nl nl;
static struct err err;
static unsigned n_requests, n_listings;
static bool listing_fails;
static char texts[MANY][IFNAMSIZ];
static const char *names[MANY];

int __wrap_nl_link_get(
	struct nl *socket, const char *name, struct link_info *ret, struct err *error)
{
	n_requests++;
	return __real_nl_link_get(socket, name, ret, error);
}

int __wrap_nl_link_find_all(struct nl *socket,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *error)
{
	n_listings++;
	if (listing_fails)
		return err_set(error, ERR_BUSY, "links change all the time");
	return __real_nl_link_find_all(socket, match, ctx, ret, error);
}

static void add(const char *name)
{
	ck_assert_msg(
		nl_link_add(&nl, name, "bridge", 0, &err) == 0, "%s: %s", name, err.message);
}

/* In an order that is not the alphabet's. */
static void set_up(void)
{
	ck_assert_msg(unshare(CLONE_NEWNET) == 0, "unshare: %s", strerror(errno));
	ck_assert_int_eq(nl_init(&nl, -1, &err), 0);
	for (size_t i = 0; i < MANY; i++) {
		(void)snprintf(texts[i], sizeof(texts[i]), "br%zu", i * 7 % MANY);
		names[i] = texts[i];
		add(names[i]);
	}
	add("other");
	n_requests = n_listings = 0;
}

static void tear_down(void)
{
	nl_fini(&nl);
}

static void check_all(size_t n)
{
	cleanup_link_table struct link_table table;

	link_table_read(&nl, names, n, &table);
	ck_assert_uint_eq(table.links.n, n);
	for (size_t i = 0; i < n; i++) {
		const struct link_info *link = link_table_find(&table, names[i]);

		ck_assert_ptr_nonnull(link);
		ck_assert_str_eq(link->name, names[i]);
		ck_assert_int_gt(link->ifindex, 0);
		ck_assert_uint_eq(link->max_mtu, 65535);
	}
	ck_assert_ptr_null(link_table_find(&table, "other"));
	ck_assert_ptr_null(link_table_find(&table, ""));
}

START_TEST(many_links_are_listed_once)
{
	check_all(MANY);
	ck_assert_uint_eq(n_listings, 1);
	ck_assert_uint_eq(n_requests, 0);
}
END_TEST

START_TEST(few_links_are_asked_for)
{
	check_all(3);
	ck_assert_uint_eq(n_listings, 0);
	ck_assert_uint_eq(n_requests, 3);
}
END_TEST

START_TEST(a_listing_that_fails_is_replaced_by_requests)
{
	listing_fails = true;
	check_all(MANY);
	ck_assert_uint_eq(n_requests, MANY);
}
END_TEST

START_TEST(names_may_repeat_and_name_nothing)
{
	static const char *const few[] = {"br1", "missing", "", "br1", "br0"};
	cleanup_link_table struct link_table table;

	link_table_read(&nl, few, ARRAY_SIZE(few), &table);
	ck_assert_uint_eq(table.links.n, 2);
	ck_assert_ptr_null(link_table_find(&table, "missing"));
	ck_assert_ptr_nonnull(link_table_find(&table, "br0"));
	link_table_fini(&table);
	ck_assert_uint_eq(n_requests, 3);
	names[5] = "missing";
	names[6] = names[7];
	link_table_read(&nl, names, MANY, &table);
	ck_assert_uint_eq(table.links.n, MANY - 2);
	ck_assert_ptr_null(link_table_find(&table, "missing"));
}
END_TEST

START_TEST(nothing_is_asked_for_no_names)
{
	cleanup_link_table struct link_table table;

	link_table_read(&nl, NULL, 0, &table);
	ck_assert_ptr_null(link_table_find(&table, "br0"));
	ck_assert_uint_eq(n_requests + n_listings, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("link_table");
	TCase *tc = tcase_create("kernel");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, many_links_are_listed_once);
	tcase_add_test(tc, few_links_are_asked_for);
	tcase_add_test(tc, a_listing_that_fails_is_replaced_by_requests);
	tcase_add_test(tc, names_may_repeat_and_name_nothing);
	tcase_add_test(tc, nothing_is_asked_for_no_names);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
