/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that opens certificates again, asked by one that has given up root: what is in the
 * files now, what cannot be opened, and both ends' ends.
 */
#include "common/kube_reader.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/util.h"
#include "tests/unit/unit.h"

#define WAIT_MS 20000
#define NOBODY	65534

static char dir[32];
static char *path_a, *path_b;

static void put(const char *path, const char *text)
{
	cleanup_free char *next = xasprintf("%s.new", path);
	int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
	ck_assert_int_eq(rename(next, path), 0);
}

static void setup(void)
{
	log_set_level(LOG_ERROR);
	(void)snprintf(dir, sizeof(dir), "/tmp/netclaim-reader-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	path_a = xasprintf("%s/a", dir);
	path_b = xasprintf("%s/b", dir);
}

static void teardown(void)
{
	(void)unlink(path_a);
	(void)unlink(path_b);
	(void)rmdir(dir);
	free(path_a);
	free(path_b);
}

/* 0, or -1 as kube_reader_take() has it; waits for the answer. */
static int take(struct kube_reader *reader, char *text, size_t size, struct err *err)
{
	struct pollfd p = {.fd = kube_reader_fd(reader), .events = POLLIN};
	int fd, r;

	ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
	r = kube_reader_take(reader, &fd, err);
	ck_assert_int_le(r, 0);
	if (r == 0) {
		ssize_t n = read(fd, text, size - 1);

		ck_assert_int_ge(n, 0);
		text[n] = '\0';
		ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
		(void)close(fd);
	}
	return r;
}

static void assert_text(struct kube_reader *reader, unsigned path, const char *expected)
{
	struct err err = ERR_INIT;
	char text[32] = "";

	ck_assert_int_eq(kube_reader_ask(reader, path, &err), 0);
	ck_assert_msg(take(reader, text, sizeof(text), &err) == 0, "%s", err.message);
	ck_assert_str_eq(text, expected);
}

static struct kube_reader *start(void)
{
	const char *const paths[] = {path_a, NULL, path_b};
	struct err err = ERR_INIT;
	struct kube_reader *reader = kube_reader_start(paths, ARRAY_SIZE(paths), &err);

	ck_assert_msg(reader != NULL, "%s", err.message);
	return reader;
}

START_TEST(what_is_in_the_file_now)
{
	struct kube_reader *reader;
	struct err err = ERR_INIT;
	int fd = -1;

	put(path_a, "one");
	put(path_b, "b");
	reader = start();
	if (geteuid() == 0) {
		ck_assert_int_eq(setresuid(NOBODY, NOBODY, 0), 0);
		ck_assert_int_eq(open(path_a, O_RDONLY), -1);
	}
	ck_assert_int_eq(kube_reader_take(reader, &fd, &err), 1);
	assert_text(reader, 0, "one");
	if (geteuid() == NOBODY)
		ck_assert_int_eq(seteuid(0), 0);
	put(path_a, "two");
	assert_text(reader, 0, "two");
	assert_text(reader, 2, "b");
	kube_reader_free(reader);
}
END_TEST

/* Several are asked for before the first answer is taken. */
START_TEST(answers_come_in_order)
{
	struct kube_reader *reader;
	struct err err = ERR_INIT;
	char text[32];

	put(path_b, "b");
	reader = start();
	for (unsigned path = 0; path <= 2; path += 2)
		ck_assert_int_eq(kube_reader_ask(reader, path, &err), 0);
	ck_assert_int_eq(take(reader, text, sizeof(text), &err), -1);
	ck_assert_int_eq(err.sys, ENOENT);
	ck_assert_int_eq(take(reader, text, sizeof(text), &err), 0);
	ck_assert_str_eq(text, "b");
	kube_reader_free(reader);
}
END_TEST

/* A FIFO has no writer, a directory no bytes: neither keeps it busy. */
START_TEST(what_is_no_file)
{
	struct kube_reader *reader;

	ck_assert_int_eq(mkfifo(path_a, 0600), 0);
	put(path_b, "b");
	reader = start();
	assert_text(reader, 0, "");
	assert_text(reader, 2, "b");
	kube_reader_free(reader);
}
END_TEST

/* A number that names no path is none that we send: it ends. */
START_TEST(a_number_that_names_nothing)
{
	static const unsigned numbers[] = {1, 3, 4000000000u};
	struct kube_reader *reader = start();
	struct err err = ERR_INIT;
	char text[4];

	ck_assert_int_eq(kube_reader_ask(reader, numbers[_i], &err), 0);
	ck_assert_int_eq(take(reader, text, sizeof(text), &err), -1);
	ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
	ck_assert_int_eq(kube_reader_fd(reader), -1);
	ck_assert_int_eq(kube_reader_ask(reader, 0, &err), -1);
	ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
	kube_reader_free(reader);
}
END_TEST

/* With its parent's end of the socket it ends, and so does what it keeps open: nothing of its
 * parent's. */
START_TEST(it_ends_and_keeps_nothing)
{
	struct kube_reader *reader;
	struct pollfd p = {.events = POLLIN};
	int pipe_fds[2];
	char byte;

	ck_assert_int_eq(pipe(pipe_fds), 0);
	put(path_a, "a");
	reader = start();
	assert_text(reader, 0, "a");
	(void)close(pipe_fds[1]);
	p.fd = pipe_fds[0];
	ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
	ck_assert_int_eq(read(pipe_fds[0], &byte, 1), 0);
	kube_reader_free(reader);
	/* its end is not waited for by anybody: ECHILD comes when there is no child any more */
	ck_assert_int_eq(waitpid(-1, NULL, 0), -1);
	ck_assert_int_eq(errno, ECHILD);
	(void)close(pipe_fds[0]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kube_reader");
	TCase *tc = tcase_create("reader");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_is_in_the_file_now);
	tcase_add_test(tc, answers_come_in_order);
	tcase_add_test(tc, what_is_no_file);
	tcase_add_loop_test(tc, a_number_that_names_nothing, 0, 3);
	tcase_add_test(tc, it_ends_and_keeps_nothing);
	return unit_run_forked(suite);
}
