/* SPDX-License-Identifier: Apache-2.0 */
/* Links over rtnetlink, on the real kernel, in a network namespace of the test's own. */
#include "common/nl.h"
#include "tests/unit/unit.h"

#include <check.h>
#include <errno.h>
#include <linux/netlink.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct nl nl;
static struct err err;

#define OK(call)   ck_assert_msg((call) == 0, "%s: %s", #call, err.message)
#define FAIL(call) ck_assert_msg((call) == -1, "%s succeeded", #call)

static void set_up(void)
{
	ck_assert_msg(unshare(CLONE_NEWNET) == 0, "unshare: %s", strerror(errno));
	OK(nl_init(&nl, -1, &err));
}

static void tear_down(void)
{
	nl_fini(&nl);
}

/* A veth: of the kinds that every kernel has it is the one whose address can be set. */
static struct link_info add(const char *name)
{
	struct link_info link;

	OK(nl_link_add(&nl, name, "veth", 0, &err));
	OK(nl_link_get(&nl, name, &link, &err));
	return link;
}

START_TEST(link_is_as_it_was_made)
{
	cleanup_link_info struct link_info link = add("eth7");
	int i = link.ifindex;

	ck_assert_str_eq(link.name, "eth7");
	ck_assert_str_eq(link.kind, "veth");
	ck_assert_str_eq(link.alias, "");
	ck_assert_str_eq(link.parent, "");
	ck_assert_int_eq(link.numbers[LINK_MTU], 1500);
	ck_assert(!link.up);
	ck_assert_int_eq((int)link.altnames.n, 0);
	OK(nl_link_set_number(&nl, i, LINK_MTU, 1400, &err));
	OK(nl_link_set_mac(&nl, i, "02:00:0a:bC:00:0f", &err));
	OK(nl_link_set_alias(&nl, i, "an alias", &err));
	OK(nl_link_set_name(&nl, i, "eth8", &err));
	OK(nl_link_set_up(&nl, i, true, &err));
	link_info_fini(&link);
	OK(nl_link_get(&nl, "eth8", &link, &err));
	ck_assert_int_eq(link.ifindex, i);
	ck_assert_int_eq(link.numbers[LINK_MTU], 1400);
	ck_assert_str_eq(link.mac, "02:00:0a:bc:00:0f");
	ck_assert_str_eq(link.alias, "an alias");
	ck_assert_uint_eq(link.numbers[LINK_GROUP], 0);
	ck_assert(link.up);
	OK(nl_link_set_up(&nl, i, false, &err));
	OK(nl_link_set_alias(&nl, i, "", &err));
	OK(nl_link_get(&nl, "eth8", &link, &err));
	ck_assert(!link.up);
	ck_assert_str_eq(link.alias, "");
	OK(nl_link_del(&nl, i, &err));
	FAIL(nl_link_get(&nl, "eth8", &link, &err));
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
	ck_assert_int_eq(err.sys, ENODEV);
}
END_TEST

START_TEST(group_is_set_at_creation_and_with_the_alias)
{
	cleanup_link_info struct link_info link = {0};

	OK(nl_link_add(&nl, "eth7", "veth", 0x6e636c6d, &err));
	OK(nl_link_get(&nl, "eth7", &link, &err));
	ck_assert_uint_eq(link.numbers[LINK_GROUP], 0x6e636c6d);
	ck_assert_str_eq(link.alias, "");
	OK(nl_link_set_alias_and_group(&nl, link.ifindex, "an alias", 0, &err));
	OK(nl_link_get(&nl, "eth7", &link, &err));
	ck_assert_uint_eq(link.numbers[LINK_GROUP], 0);
	ck_assert_str_eq(link.alias, "an alias");
}
END_TEST

START_TEST(alternative_name_finds_the_link_and_is_told_apart)
{
	cleanup_link_info struct link_info link = add("eth7"), found = {0};

	OK(nl_link_add_altname(&nl, link.ifindex, "alt7", &err));
	OK(nl_link_get(&nl, "alt7", &found, &err));
	ck_assert_str_eq(found.name, "eth7");
	ck_assert_int_eq((int)found.altnames.n, 1);
	ck_assert_str_eq(found.altnames.v[0], "alt7");
	FAIL(nl_link_add_altname(&nl, link.ifindex, "alt7", &err));
	ck_assert_int_eq(err.sys, EEXIST);
	OK(nl_link_del_altname(&nl, link.ifindex, "alt7", &err));
	link_info_fini(&found);
	FAIL(nl_link_get(&nl, "alt7", &found, &err));
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
}
END_TEST

static bool has_alias(const void *ctx, const struct link_info *link)
{
	return strcmp(link->alias, ctx) == 0;
}

/* More links than fit into one answer of the kernel's. */
/* An answer of 52 KB is read whole, and a name that is no name of an interface finds the link. */
START_TEST(link_with_many_long_alternative_names)
{
	enum { MANY = 400 };
	cleanup_link_info struct link_info link = add("eth7"), again = {0};
	char altname[LINK_ALTNAME_SIZE];

	for (int i = 0; i < MANY; i++) {
		(void)snprintf(altname, sizeof(altname), "%0*d", LINK_ALTNAME_SIZE - 1, i);
		OK(nl_link_add_altname(&nl, link.ifindex, altname, &err));
	}
	OK(nl_link_get(&nl, altname, &again, &err));
	ck_assert_int_eq(again.ifindex, link.ifindex);
	ck_assert_uint_eq(again.altnames.n, MANY);
	link_info_fini(&again);
	OK(nl_link_get_by_index(&nl, link.ifindex, &again, &err));
	ck_assert_str_eq(again.name, "eth7");
	ck_assert_uint_eq(again.altnames.n, MANY);
	link_info_fini(&again);
	again = (struct link_info){0};
	FAIL(nl_link_get_by_index(&nl, link.ifindex + 1000, &again, &err));
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
}
END_TEST

START_TEST(one_of_many_links_is_found)
{
	cleanup_link_info struct link_info found = {0};
	char name[IFNAMSIZ];

	for (int i = 0; i < 200; i++) {
		cleanup_link_info struct link_info link = {0};

		(void)snprintf(name, sizeof(name), "many%d", i);
		OK(nl_link_add(&nl, name, "bridge", 0, &err));
		OK(nl_link_get(&nl, name, &link, &err));
		OK(nl_link_set_alias(&nl, link.ifindex, name, &err));
	}
	OK(nl_link_find(&nl, has_alias, "many199", &found, &err));
	ck_assert_str_eq(found.name, "many199");
	link_info_fini(&found);
	FAIL(nl_link_find(&nl, has_alias, "many", &found, &err));
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
}
END_TEST

/* Adds and deletes a link until it is killed. */
static pid_t start_churning(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	while (pid == 0) {
		cleanup_link_info struct link_info link = {0};

		if (nl_link_add(&nl, "churn", "bridge", 0, &err) < 0 ||
			nl_link_get(&nl, "churn", &link, &err) < 0 ||
			nl_link_del(&nl, link.ifindex, &err) < 0)
			_exit(1);
	}
	return pid;
}

/* The kernel says of a dump that links came or went meanwhile, so that one may be missing. */
START_TEST(listing_that_was_disturbed_is_repeated)
{
	struct nl own = {0};
	pid_t churning;
	int status;

	for (int i = 0; i < 100; i++) {
		char name[IFNAMSIZ];

		(void)snprintf(name, sizeof(name), "many%d", i);
		OK(nl_link_add(&nl, name, "bridge", 0, &err));
	}
	churning = start_churning();
	OK(nl_init(&own, -1, &err));
	for (int i = 0; i < 100; i++) {
		cleanup_link_info struct link_info found = {0};

		FAIL(nl_link_find(&own, has_alias, "nobody's", &found, &err));
		ck_assert_msg(
			err.kind == ERR_NOT_FOUND || err.kind == ERR_BUSY, "%s", err.message);
	}
	nl_fini(&own);
	ck_assert_int_eq(kill(churning, SIGKILL), 0);
	ck_assert_int_eq(waitpid(churning, &status, 0), churning);
	ck_assert_msg(WIFSIGNALED(status), "churning failed");
}
END_TEST

START_TEST(refusals_carry_errno_and_the_kernels_words)
{
	cleanup_link_info struct link_info link = add("eth7");

	FAIL(nl_link_add(&nl, "x", "nosuchkind", 0, &err));
	ck_assert_int_eq(err.sys, EOPNOTSUPP);
	ck_assert_str_eq(err.message,
		"adding nosuchkind link 'x': Unknown device type: Operation not supported");
	FAIL(nl_link_add(&nl, "eth7", "veth", 0, &err));
	ck_assert_int_eq(err.sys, EEXIST);
	ck_assert_int_eq(err.kind, ERR_CONFLICT);
	FAIL(nl_link_set_number(&nl, link.ifindex, LINK_MTU, 1, &err));
	ck_assert_msg(strstr(err.message, "mtu less than device minimum"), "%s", err.message);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	FAIL(nl_link_del(&nl, 9999, &err));
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
	FAIL(nl_link_set_mac(&nl, link.ifindex, "02:00:00:00:00", &err));
	/* and the socket is still good */
	link_info_fini(&link);
	OK(nl_link_get(&nl, "eth7", &link, &err));
}
END_TEST

/* 33 bytes */
#define TOO_LONG                                                                               \
	"00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:" \
	"00:00:00:00:00"

START_TEST(text_that_is_no_address_is_refused)
{
	static const char *const bad[] = {"", "0", "0:1", "02:", "02:0", "02:00:00:00:00:0g",
		"2:0:0:0:0:1", "020000000001", " 2:00:00:00:00:01", "+2:00:00:00:00:01",
		TOO_LONG};
	cleanup_link_info struct link_info link = add("eth7");

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		FAIL(nl_link_set_mac(&nl, link.ifindex, bad[i], &err));
		ck_assert_int_eq(err.kind, ERR_INVALID);
	}
}
END_TEST

/* netnsd hands out sockets that it has not bound, or has: both serve. */
START_TEST(socket_of_somebody_else_acts_where_it_was_opened)
{
	for (int bound = 0; bound < 2; bound++) {
		struct sockaddr_nl any = {.nl_family = AF_NETLINK};
		cleanup_close int fd =
			socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
		cleanup_link_info struct link_info link = {0};
		cleanup_nl struct nl other = {0};

		ck_assert_int_ge(fd, 0);
		if (bound)
			ck_assert_int_eq(
				bind(fd, (const struct sockaddr *)&any, sizeof(any)), 0);
		ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
		OK(nl_init(&other, fd, &err));
		OK(nl_link_add(&other, bound ? "there1" : "there0", "bridge", 0, &err));
		OK(nl_link_get(&other, bound ? "there1" : "there0", &link, &err));
	}
	/* the first of them was opened where set_up() had opened its own */
	cleanup_link_info struct link_info link = {0};
	OK(nl_link_get(&nl, "there0", &link, &err));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("nl");
	TCase *c = tcase_create("a namespace");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, link_is_as_it_was_made);
	tcase_add_test(c, group_is_set_at_creation_and_with_the_alias);
	tcase_add_test(c, alternative_name_finds_the_link_and_is_told_apart);
	tcase_add_test(c, link_with_many_long_alternative_names);
	tcase_add_test(c, one_of_many_links_is_found);
	tcase_add_test(c, listing_that_was_disturbed_is_repeated);
	tcase_add_test(c, refusals_carry_errno_and_the_kernels_words);
	tcase_add_test(c, text_that_is_no_address_is_refused);
	tcase_add_test(c, socket_of_somebody_else_acts_where_it_was_opened);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	if (geteuid() != 0) {
		return unit_skip("test_nl", "making network namespaces needs root");
	}
	return unit_run(suite());
}
