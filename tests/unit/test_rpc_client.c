/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a client of the RPC waits between its connections, on a clock of the test's own: the
 * timers that it starts end after a millisecond, and the time that it asked for is what is
 * checked.
 */
#include <check.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/rpc.h"
#include "tests/unit/unit.h"

#define MAX_PAUSES 64

static struct {
	uv_loop_t loop;
	struct rpc_client *client;
	struct rpc_listen def;
	char path[64];
	int listening; /* -1: nobody listens */
	uint64_t now, lives_ms; /* what a connection lives */
	uint64_t pauses[MAX_PAUSES];
	size_t n_pauses, n_opened;
	struct err err;
} t;

/* --- a clock ------------------------------------------------------------------------------ */

int __real_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
uint64_t __wrap_uv_now(const uv_loop_t *loop);

int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
	t.now += timeout;
	/* what a connection starts in order to end is no pause */
	if (timeout > 0 && t.n_pauses < MAX_PAUSES)
		t.pauses[t.n_pauses++] = timeout;
	return __real_uv_timer_start(timer, cb, timeout ? 1 : 0, repeat);
}

uint64_t __wrap_uv_now(const uv_loop_t *loop UNUSED)
{
	return t.now;
}

/* --- a server that drops its clients ------------------------------------------------------ */

static void on_open(void *ctx UNUSED, struct rpc_conn *conn UNUSED)
{
	int fd = accept(t.listening, NULL, NULL);

	ck_assert_int_ge(fd, 0);
	t.n_opened++;
	t.now += t.lives_ms;
	(void)close(fd);
}

static void listen_now(void)
{
	t.listening = rpc_bind(t.path, getgid(), &t.err);
	ck_assert_msg(t.listening >= 0, "%s", t.err.message);
}

static void set_up(void)
{
	memset(&t, 0, sizeof(t));
	t.def = (struct rpc_listen){.name = "statd", .events = {.on_open = on_open}};
	(void)snprintf(t.path, sizeof(t.path), "/tmp/netclaim-rpc-%d.sock", (int)getpid());
	t.listening = -1;
	ck_assert_int_eq(uv_loop_init(&t.loop), 0);
	t.client = rpc_client_new(&t.loop, t.path, &t.def, NULL);
}

static void tear_down(void)
{
	rpc_client_free(t.client);
	(void)uv_run(&t.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&t.loop), 0);
	if (t.listening >= 0)
		(void)close(t.listening);
	(void)unlink(t.path);
}

/* Until it has waited so often. */
static void run(size_t n_pauses)
{
	t.n_pauses = 0;
	while (t.n_pauses < n_pauses)
		(void)uv_run(&t.loop, UV_RUN_ONCE);
}

static void assert_pauses(const uint64_t *expected, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(t.pauses[i] == expected[i], "pause %zu is %llu ms, not %llu", i,
			(unsigned long long)t.pauses[i], (unsigned long long)expected[i]);
}

static const uint64_t growing[] = {5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000};
static const uint64_t longest[] = {1000, 1000, 1000};

/* ------------------------------------------------------------------------------------------ */

START_TEST(nobody_is_called_less_and_less_often)
{
	run(ARRAY_SIZE(growing));
	assert_pauses(growing, ARRAY_SIZE(growing));
	ck_assert_uint_eq(t.n_opened, 0);
}
END_TEST

START_TEST(who_drops_each_connection_is_called_less_and_less_often)
{
	static const uint64_t lives_ms[] = {0, 100, 4999};

	listen_now();
	t.lives_ms = lives_ms[_i];
	run(ARRAY_SIZE(growing));
	assert_pauses(growing, ARRAY_SIZE(growing));
	ck_assert_uint_ge(t.n_opened, ARRAY_SIZE(growing));
	run(ARRAY_SIZE(longest));
	assert_pauses(longest, ARRAY_SIZE(longest));
}
END_TEST

START_TEST(after_a_connection_that_was_of_use_the_pauses_begin_anew)
{
	listen_now();
	run(ARRAY_SIZE(growing));
	t.lives_ms = 5000;
	run(3);
	assert_pauses((const uint64_t[]){5, 5, 5}, 3);
	t.lives_ms = 0;
	run(3);
	assert_pauses(growing + 1, 3);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rpc_client");
	TCase *c = tcase_create("pauses");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, nobody_is_called_less_and_less_often);
	tcase_add_loop_test(c, who_drops_each_connection_is_called_less_and_less_often, 0, 3);
	tcase_add_test(c, after_a_connection_that_was_of_use_the_pauses_begin_anew);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
