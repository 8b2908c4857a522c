/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What every daemon does around its work: signals, readiness, watchdog, inherited sockets.
 *
 * Each main is the same ordered checklist: parse, open, drop, confine, loop. The loop is made
 * by uv_loop_init() after the confinement: made before, newer libuv (1.45 on) would open an
 * io_uring that it cannot use afterwards.
 */

#include <uv.h>

#include "common/cli.h"
#include "common/err.h"

/* Options that every daemon has; the first member of each options struct, and its rows first in
 * each options table by DAEMON_OPTIONS(struct x_options, base). */
struct daemon_options {
	const char *log_level;
};
#define DAEMON_OPTIONS(s, member)                                                              \
	{                                                                                      \
		.name = "log-level", .letter = 'l', .type = CLI_TEXT,                          \
		.offset = offsetof(s, member.log_level), .arg = "LEVEL",                       \
		.doc = "least important records to log", .choices = "error|warn|info|debug"    \
	}
#define DAEMON_DEFAULTS                                                                        \
	{                                                                                      \
		.log_level = "info"                                                            \
	}

/* Parses the command line, starts logging, takes what systemd hands in out of the environment.
 * Descriptors 0 to 2 are open afterwards, the umask is 0027, SIGPIPE is ignored. */
void daemon_begin(const struct cli *cli, int argc, char **argv, void *options,
	const struct daemon_options *base);

/* A socket handed in by systemd under this name (LISTEN_FDS, LISTEN_FDNAMES:
 * sd_listen_fds(3)), made CLOEXEC, or -1. One that is not a listening Unix stream socket is
 * not used, with a warning. */
int daemon_inherited_fd(const char *name);

struct daemon {
	uv_loop_t *loop;
	/* SIGTERM or SIGINT came: finish what is in flight, close everything; the loop ends
	 * when no handle is left. A second signal ends the process at once. */
	void (*stop)(void *ctx);
	void *ctx;
	/* private */
	uv_signal_t sigterm, sigint;
	uv_timer_t watchdog;
	bool ready, stopping;
	int status;
};

/* *d must stay where it is until daemon_run() returns. */
void daemon_init(struct daemon *d, uv_loop_t *loop, void (*stop)(void *ctx), void *ctx);
/* Runs the loop until it is empty, feeding systemd's watchdog if there is one. What ends it
 * is a signal or daemon_fail(): systemd is told STOPPING=1, then stop() is called. Returns
 * the exit status. No handle of ours is left on the loop. */
int daemon_run(struct daemon *d);
/* As if SIGTERM had come, but with an exit status of 1: the daemon cannot go on. */
void daemon_fail(struct daemon *d);
/* sd_notify(3) READY=1, once. */
void daemon_ready(struct daemon *d);
/* Gives back memory that is not needed now: free memory of the heap, and pages of programs and
 * libraries, which come back from the page cache when they are used again. For the end of what is
 * done seldom: most of what a library maps at its start it never looks at again. */
void daemon_settle(void);
/* One line of STATUS= for systemctl status. */
void daemon_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Logs err as the reason why the program cannot start and returns 1, for main to return. */
int daemon_cannot_start(const struct err *err);
