/* SPDX-License-Identifier: Apache-2.0 */
/* The namespaces of sandboxes that hold a device. Any file will do for one. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/util.h"
#include "statd/sandbox_table.h"
#include "tests/unit/unit.h"

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(test_kept_until_dropped)
{
	struct sandbox *all = NULL;
	struct err err = ERR_INIT;
	cleanup_close int fd = open_file("/dev/null");
	int kept;

	ck_assert(!sandbox_is_known(&all, "a"));
	ck_assert_int_eq(sandbox_netns(&all, "a"), -1);
	ck_assert_int_eq(sandbox_put(&all, "a", fd, &err), 0);
	ck_assert_int_eq(sandbox_put(&all, "a", fd, &err), 0);
	ck_assert(sandbox_is_known(&all, "a"));
	kept = sandbox_netns(&all, "a");
	ck_assert_int_ge(kept, 0);
	ck_assert_int_ne(kept, fd);
	ck_assert_int_eq(sandbox_netns(&all, "a"), kept);
	sandbox_drop(&all, "a");
	ck_assert(!sandbox_is_known(&all, "a"));
}
END_TEST

START_TEST(test_another_namespace_of_one_id)
{
	struct sandbox *all = NULL;
	struct err err = ERR_INIT;
	cleanup_close int fd = open_file("/dev/null"), other = open_file("/dev/zero");

	ck_assert_int_eq(sandbox_put(&all, "a", fd, &err), 0);
	ck_assert_int_eq(sandbox_put(&all, "a", other, &err), -1);
	ck_assert_int_eq(err.kind, ERR_CONFLICT);
	ck_assert_str_eq(err.message, "sandbox a is known with another network namespace");
	sandbox_drop_all(&all);
}
END_TEST

/* What cannot be kept is not taken for kept: its device could never come back. */
START_TEST(test_no_descriptor_is_left)
{
	struct sandbox *all = NULL;
	struct err err = ERR_INIT;
	cleanup_close int fd = open_file("/dev/null");
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)fd + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(sandbox_put(&all, "a", fd, &err), -1);
	ck_assert_int_eq(err.sys, EMFILE);
	ck_assert(!sandbox_is_known(&all, "a"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sandbox_table");
	TCase *tcase = tcase_create("sandbox_table");

	tcase_add_test(tcase, test_kept_until_dropped);
	tcase_add_test(tcase, test_another_namespace_of_one_id);
	tcase_add_test(tcase, test_no_descriptor_is_left);
	suite_add_tcase(suite, tcase);
	return unit_run_forked(suite);
}
