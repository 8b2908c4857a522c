/* SPDX-License-Identifier: Apache-2.0 */
/* What is written for a claim while calls of it are under way; the store is answered by hand. */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/util.h"
#include "statd/statd.h"
#include "tests/unit/unit.h"

/* The calls that were made, in order. */
struct fake_store {
	struct store store;
	const char *calls[16];
	size_t n;
	store_done_cb *cb;
	void *ctx;
};

static void note(struct store *store, const char *what, store_done_cb *cb, void *ctx)
{
	struct fake_store *fake = (struct fake_store *)store;

	ck_assert_uint_lt(fake->n, ARRAY_SIZE(fake->calls));
	fake->calls[fake->n++] = what;
	fake->cb = cb;
	fake->ctx = ctx;
}

static void fake_write(struct store *store, const struct claim_ref *claim UNUSED,
	const struct claim_seen *seen UNUSED, const char *driver_name UNUSED,
	const json_t *devices UNUSED, store_done_cb *cb, void *ctx)
{
	note(store, "write", cb, ctx);
}

static void fake_remove(struct store *store, const struct claim_ref *claim UNUSED,
	const char *driver_name UNUSED, store_done_cb *cb, void *ctx)
{
	note(store, "remove", cb, ctx);
}

static const struct store_ops fake_ops = {
	.kind = "fake", .write_status = fake_write, .remove_status = fake_remove};

static char namespace[] = "default", name[] = "c1", uid[] = "uid-1", driver[] = "driver.example.com";
static const struct claim_ref claim = {namespace, name, uid};
static char directory[] = "/tmp/netclaim-status-XXXXXX";
static struct fake_store fake;
static struct statd s;
static uv_loop_t loop;
static size_t n_done;
static enum err_kind done_with;

static void set_up(void)
{
	struct identity nobody = {0};
	struct err err = ERR_INIT;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	(void)uv_loop_init(&loop);
	fake = (struct fake_store){.store.ops = &fake_ops};
	s = (struct statd){.loop = &loop, .store = &fake.store};
	s.config.spec.driver_name = driver;
	tables_init(&s.tables);
	ck_assert_msg(records_open(&s.records, directory, &nobody, (gid_t)-1, &err) == 0, "%s",
		err.message);
	status_queue_init(&s.status, &s);
}

static void tear_down(void)
{
	cleanup_free char *claims = xasprintf("%s/claims", directory);
	cleanup_free char *pods = xasprintf("%s/pods", directory);

	status_queue_close(&s.status);
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	status_queue_fini(&s.status);
	records_close(&s.records);
	tables_fini(&s.tables);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	ck_assert_int_eq(rmdir(claims), 0); /* no record is left */
	ck_assert_int_eq(rmdir(pods), 0);
	ck_assert_int_eq(rmdir(directory), 0);
}

/* Until nothing waits for its time any more. */
static void let_time_pass(void)
{
	do
		(void)uv_run(&loop, UV_RUN_ONCE);
	while (uv_is_active((uv_handle_t *)&s.status.timer));
}

static void answer(enum err_kind kind)
{
	struct err err = ERR_INIT;
	store_done_cb *cb = fake.cb;

	if (kind != ERR_NONE)
		(void)err_set(&err, kind, "as the test has it");
	fake.cb = NULL;
	cb(fake.ctx, kind == ERR_NONE ? NULL : &err);
	let_time_pass();
}

static void write_status(void (*done)(void *ctx, const struct err *err))
{
	status_queue_write(&s.status, &claim, NULL, json_array(), done, NULL);
	let_time_pass();
}

static void on_done(void *ctx UNUSED, const struct err *err)
{
	n_done++;
	done_with = err ? err->kind : ERR_NONE;
}

static bool is_due(void)
{
	return status_queue_due(&s.status, claim.uid) != NULL;
}

/* The claim was unprepared while its status was being written, and is to be left alone. */
START_TEST(test_forgotten_while_under_way_is_not_tried_again)
{
	write_status(NULL);
	ck_assert_uint_eq(fake.n, 1);
	status_queue_forget(&s.status, claim.uid);
	answer(ERR_UNAVAILABLE);
	ck_assert(!is_due());
	ck_assert_uint_eq(fake.n, 1);
}
END_TEST

START_TEST(test_forgotten_with_something_newer)
{
	write_status(NULL);
	write_status(NULL);
	status_queue_forget(&s.status, claim.uid);
	answer(ERR_NONE);
	ck_assert(!is_due());
	ck_assert_uint_eq(fake.n, 1);
}
END_TEST

START_TEST(test_wanted_again_after_it_was_forgotten)
{
	write_status(NULL);
	status_queue_forget(&s.status, claim.uid);
	write_status(on_done);
	answer(ERR_UNAVAILABLE);
	ck_assert_uint_eq(fake.n, 2);
	ck_assert_uint_eq(n_done, 0);
	answer(ERR_CONFLICT);
	ck_assert_uint_eq(n_done, 1);
	ck_assert_int_eq(done_with, ERR_CONFLICT);
	ck_assert(!is_due());
}
END_TEST

START_TEST(test_newest_wish_counts)
{
	write_status(NULL);
	write_status(NULL);
	status_queue_remove(&s.status, &claim);
	answer(ERR_UNAVAILABLE);
	ck_assert_uint_eq(fake.n, 2);
	ck_assert_str_eq(fake.calls[1], "remove");
	answer(ERR_NONE);
	ck_assert(!is_due());
}
END_TEST

START_TEST(test_two_changes_at_once_are_one_write)
{
	status_queue_write(&s.status, &claim, NULL, json_array(), NULL, NULL);
	status_queue_remove(&s.status, &claim);
	ck_assert_uint_eq(fake.n, 0); /* the answer goes first */
	let_time_pass();
	ck_assert_uint_eq(fake.n, 1);
	ck_assert_str_eq(fake.calls[0], "remove");
	answer(ERR_NONE);
	ck_assert(!is_due());
}
END_TEST

/* Others wait while it is on its way. */
START_TEST(test_one_that_is_waited_for_does_not_wait)
{
	status_queue_write(&s.status, &claim, NULL, json_array(), on_done, NULL);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(fake.n, 1);
	answer(ERR_NONE);
	ck_assert_uint_eq(n_done, 1);
}
END_TEST

START_TEST(test_closed_while_under_way)
{
	write_status(NULL);
	status_queue_close(&s.status);
	answer(ERR_UNAVAILABLE);
	ck_assert(!is_due());
	status_queue_init(&s.status, &s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("status_queue");
	TCase *tcase = tcase_create("status_queue");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_forgotten_while_under_way_is_not_tried_again);
	tcase_add_test(tcase, test_forgotten_with_something_newer);
	tcase_add_test(tcase, test_wanted_again_after_it_was_forgotten);
	tcase_add_test(tcase, test_newest_wish_counts);
	tcase_add_test(tcase, test_two_changes_at_once_are_one_write);
	tcase_add_test(tcase, test_one_that_is_waited_for_does_not_wait);
	tcase_add_test(tcase, test_closed_while_under_way);
	suite_add_tcase(suite, tcase);
	return unit_run_forked(suite);
}
