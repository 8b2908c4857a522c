/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every daemon does: a socket of the test's stands for systemd's, and signals are raised
 * for real. Check forks each test, so that environment, signals and descriptors are the test's
 * own.
 */
#include "common/daemon.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/util.h"
#include "tests/unit/unit.h"

/* --- the other end ------------------------------------------------------------------------------ */

/* systemd's socket, of an abstract name that the kernel chooses; $NOTIFY_SOCKET says which. */
static int open_notify(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(at);
	cleanup_free char *name = NULL;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at.sun_family)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	name = xasprintf("@%.*s", (int)(len - offsetof(struct sockaddr_un, sun_path) - 1),
		at.sun_path + 1);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

static void assert_told(int fd, const char *expected)
{
	char text[1024];
	ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	ck_assert_msg(n > 0, "nothing was told instead of %s", expected);
	text[n] = '\0';
	ck_assert_str_eq(text, expected);
}

static void assert_told_nothing(int fd)
{
	char text[1];

	ck_assert_int_eq(recv(fd, text, sizeof(text), MSG_DONTWAIT), -1);
	ck_assert_int_eq(errno, EAGAIN);
}

/* --- the daemon ---------------------------------------------------------------------------------- */

static struct daemon_options options = DAEMON_DEFAULTS;

static void begin(void)
{
	static const struct cli_option table[] = {
		{.name = "log-level",
			.type = CLI_TEXT,
			.offset = 0,
			.arg = "LEVEL",
			.doc = "level",
			.choices = "error|info"},
	};
	static const struct cli cli = {.program = "test", .options = table, .n_options = 1};
	static char prog[] = "test", level[] = "--log-level=error";
	char *argv[] = {prog, level, NULL};

	daemon_begin(&cli, 2, argv, &options, &options);
}

/* A daemon whose work is one handle. */
struct work {
	uv_loop_t loop;
	struct daemon daemon;
	uv_timer_t timer;
	unsigned stops;
	bool stubborn; /* does not stop */
};

static void stop(void *ctx)
{
	struct work *w = ctx;

	w->stops++;
	if (!w->stubborn)
		uv_close((uv_handle_t *)&w->timer, NULL);
}

static void work_init(struct work *w, uv_timer_cb cb)
{
	ck_assert_int_eq(uv_loop_init(&w->loop), 0);
	daemon_init(&w->daemon, &w->loop, stop, w);
	ck_assert_int_eq(uv_timer_init(&w->loop, &w->timer), 0);
	w->timer.data = w;
	ck_assert_int_eq(uv_timer_start(&w->timer, cb, 0, 1), 0);
}

/* --- readiness ----------------------------------------------------------------------------------- */

START_TEST(readiness_is_told_once)
{
	cleanup_close int fd = open_notify();
	struct daemon d = {0};

	begin();
	ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
	daemon_ready(&d);
	daemon_ready(&d);
	daemon_status("%d devices\nREADY=0", 3);
	assert_told(fd, "READY=1");
	assert_told(fd, "STATUS=3 devices?READY=0");
	assert_told_nothing(fd);
}
END_TEST

START_TEST(socket_may_be_a_file)
{
	char dir[] = "/tmp/test_daemon.XXXXXX";
	cleanup_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/notify", dir);
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", at.sun_path, 1), 0);
	begin();
	daemon_status("x");
	ck_assert_int_eq(unlink(at.sun_path), 0);
	ck_assert_int_eq(rmdir(dir), 0);
	assert_told(fd, "STATUS=x");
}
END_TEST

START_TEST(without_systemd_nothing_is_told)
{
	struct daemon d = {0};

	ck_assert_int_eq(setenv("NOTIFY_SOCKET", "not a path", 1), 0);
	begin();
	daemon_ready(&d);
	daemon_status("x");
}
END_TEST

START_TEST(failed_start_is_told)
{
	cleanup_close int fd = open_notify();
	struct err err = ERR_INIT;

	begin();
	(void)err_set(&err, ERR_INVALID, "no reason");
	ck_assert_int_eq(daemon_cannot_start(&err), 1);
	assert_told(fd, "STATUS=cannot start: no reason");
}
END_TEST

START_TEST(process_is_prepared)
{
	struct sigaction action;

	(void)close(STDIN_FILENO);
	begin();
	ck_assert_int_ge(fcntl(STDIN_FILENO, F_GETFD), 0);
	ck_assert_int_eq(umask(0), 0027);
	ck_assert_int_eq(sigaction(SIGPIPE, NULL, &action), 0);
	ck_assert(action.sa_handler == SIG_IGN);
	ck_assert(!log_enabled(LOG_WARN));
}
END_TEST

/* --- signals ------------------------------------------------------------------------------------- */

static void raise_once(uv_timer_t *timer)
{
	const struct work *w = timer->data;

	if (w->stops == 0)
		(void)raise(SIGTERM);
}

static void interrupt_once(uv_timer_t *timer)
{
	const struct work *w = timer->data;

	if (w->stops == 0)
		(void)raise(SIGINT);
}

static void raise_again(uv_timer_t *timer)
{
	(void)timer;
	(void)raise(SIGTERM);
}

static void give_up(uv_timer_t *timer)
{
	struct work *w = timer->data;

	daemon_fail(&w->daemon);
	daemon_fail(&w->daemon);
}

static const struct stop_row {
	uv_timer_cb cb;
	int status;
} stop_rows[] = {
	{raise_once, 0},
	{interrupt_once, 0},
	{give_up, 1},
};

START_TEST(daemon_stops)
{
	cleanup_close int fd = open_notify();
	struct work w = {0};

	begin();
	work_init(&w, stop_rows[_i].cb);
	ck_assert_int_eq(daemon_run(&w.daemon), stop_rows[_i].status);
	ck_assert_uint_eq(w.stops, 1);
	assert_told(fd, "STOPPING=1");
	assert_told_nothing(fd);
	/* no handle is left */
	ck_assert_int_eq(uv_loop_close(&w.loop), 0);
}
END_TEST

START_TEST(second_signal_ends_at_once)
{
	struct work w = {.stubborn = true};

	begin();
	work_init(&w, raise_again);
	(void)daemon_run(&w.daemon);
	ck_abort_msg("the loop ended");
}
END_TEST

/* --- watchdog ------------------------------------------------------------------------------------ */

#define PINGS 3

struct watched {
	uv_loop_t loop;
	struct daemon daemon;
	uv_poll_t poll;
	int fd;
	unsigned left;
};

static void on_told(uv_poll_t *poll, int status, int events)
{
	struct watched *w = poll->data;

	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(events, UV_READABLE);
	assert_told(w->fd, "WATCHDOG=1");
	if (--w->left == 0)
		daemon_fail(&w->daemon);
}

static void stop_poll(void *ctx)
{
	struct watched *w = ctx;

	uv_close((uv_handle_t *)&w->poll, NULL);
}

START_TEST(watchdog_is_fed)
{
	cleanup_free char *pid = xasprintf("%d", getpid());
	struct watched w = {.fd = open_notify(), .left = PINGS};

	ck_assert_int_eq(setenv("WATCHDOG_USEC", "40000", 1), 0);
	ck_assert_int_eq(setenv("WATCHDOG_PID", pid, 1), 0);
	begin();
	ck_assert_ptr_null(getenv("WATCHDOG_USEC"));
	ck_assert_ptr_null(getenv("WATCHDOG_PID"));
	ck_assert_int_eq(uv_loop_init(&w.loop), 0);
	daemon_init(&w.daemon, &w.loop, stop_poll, &w);
	ck_assert_uint_eq(uv_timer_get_repeat(&w.daemon.watchdog), 20);
	ck_assert_int_eq(uv_poll_init(&w.loop, &w.poll, w.fd), 0);
	w.poll.data = &w;
	ck_assert_int_eq(uv_poll_start(&w.poll, UV_READABLE, on_told), 0);
	(void)daemon_run(&w.daemon);
	ck_assert_uint_eq(w.left, 0);
	assert_told(w.fd, "STOPPING=1");
	ck_assert_int_eq(uv_loop_close(&w.loop), 0);
	close_fd(&w.fd);
}
END_TEST

static void stop_nothing(void *ctx)
{
	(void)ctx;
}

static const struct silent_row {
	const char *usec, *pid;
} silent_rows[] = {{NULL, NULL}, {"40000", "1"}, {"0", NULL}, {"soon", NULL}};

/* Nothing wakes an idle daemon. */
START_TEST(without_watchdog_no_timer)
{
	cleanup_close int fd = open_notify();
	const struct silent_row *r = &silent_rows[_i];
	uv_loop_t loop;
	struct daemon d;

	if (r->usec)
		ck_assert_int_eq(setenv("WATCHDOG_USEC", r->usec, 1), 0);
	if (r->pid)
		ck_assert_int_eq(setenv("WATCHDOG_PID", r->pid, 1), 0);
	begin();
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	daemon_init(&d, &loop, stop_nothing, NULL);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_int_eq(uv_backend_timeout(&loop), -1);
	assert_told_nothing(fd);
	daemon_fail(&d);
	(void)daemon_run(&d);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

/* --- sockets handed in ---------------------------------------------------------------------------- */

static int listening(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at.sun_family)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	return fd;
}

/* To numbers that are free to be overwritten in this child. */
static void hand_in(int first, int second, int third)
{
	int fds[] = {fcntl(first, F_DUPFD, 32), fcntl(second, F_DUPFD, 32),
		fcntl(third, F_DUPFD, 32)};

	for (int i = 0; i < 3; i++)
		(void)dup2(fds[i], 3 + i);
}

/* The line of what is not as it should be, 0 if all is. */
#define EXPECT(what)                                                                           \
	do {                                                                                   \
		if (!(what))                                                                   \
			return __LINE__;                                                       \
	} while (0)

static int adopt_ours(void)
{
	EXPECT(daemon_inherited_fd("front.socket") == 3);
	EXPECT(daemon_inherited_fd("query.socket") == 4);
	EXPECT(fcntl(3, F_GETFD) == FD_CLOEXEC);
	EXPECT(fcntl(4, F_GETFD) == FD_CLOEXEC);
	EXPECT(fcntl(5, F_GETFD) == FD_CLOEXEC);
	/* named, but not what it should be */
	EXPECT(daemon_inherited_fd("pair") == -1);
	EXPECT(daemon_inherited_fd("manager.socket") == -1);
	EXPECT(daemon_inherited_fd("front") == -1);
	EXPECT(daemon_inherited_fd("") == -1);
	EXPECT(!getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && !getenv("LISTEN_FDNAMES"));
	return 0;
}

static int adopt_none(void)
{
	EXPECT(daemon_inherited_fd("front.socket") == -1);
	EXPECT(daemon_inherited_fd("query.socket") == -1);
	EXPECT(fcntl(3, F_GETFD) == 0);
	EXPECT(!getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && !getenv("LISTEN_FDNAMES"));
	return 0;
}

/* Descriptors 3 and up are Check's own: a child can do without. The result goes through memory
 * that both see, since an exit status is but a byte. */
static void in_child(pid_t named_pid, int (*expectations)(void))
{
	int a = listening(), b = listening(), pair[2], ends[2], line;
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		cleanup_free char *text = xasprintf("%d", named_pid ? named_pid : getpid());
		int result = fcntl(ends[1], F_DUPFD_CLOEXEC, 40);

		hand_in(a, b, pair[0]);
		(void)setenv("LISTEN_FDS", "3", 1);
		(void)setenv("LISTEN_PID", text, 1);
		(void)setenv("LISTEN_FDNAMES", "front.socket:query.socket:pair", 1);
		begin();
		line = expectations();
		(void)!write(result, &line, sizeof(line));
		_exit(0);
	}
	(void)close(ends[1]);
	ck_assert_int_eq(read(ends[0], &line, sizeof(line)), (ssize_t)sizeof(line));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_msg(line == 0, "the expectation in line %d does not hold", line);
}

START_TEST(sockets_are_adopted)
{
	in_child(0, adopt_ours);
}
END_TEST

START_TEST(sockets_of_others_are_left)
{
	in_child(1, adopt_none);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon");
	TCase *tcase = tcase_create("daemon");

	tcase_add_test(tcase, readiness_is_told_once);
	tcase_add_test(tcase, socket_may_be_a_file);
	tcase_add_test(tcase, without_systemd_nothing_is_told);
	tcase_add_test(tcase, failed_start_is_told);
	tcase_add_test(tcase, process_is_prepared);
	tcase_add_loop_test(tcase, daemon_stops, 0, (int)ARRAY_SIZE(stop_rows));
	tcase_add_exit_test(tcase, second_signal_ends_at_once, 1);
	tcase_add_test(tcase, watchdog_is_fed);
	tcase_add_loop_test(tcase, without_watchdog_no_timer, 0, (int)ARRAY_SIZE(silent_rows));
	tcase_add_test(tcase, sockets_are_adopted);
	tcase_add_test(tcase, sockets_of_others_are_left);
	suite_add_tcase(suite, tcase);
	return unit_run_forked(suite);
}
