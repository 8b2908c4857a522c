/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every daemon does around its work.
 *
 * systemd's side is three small protocols, spoken here without its library: datagrams of
 * assignments to $NOTIFY_SOCKET (sd_notify(3)), descriptors from 3 on that LISTEN_FDS counts
 * and LISTEN_FDNAMES names (sd_listen_fds(3)), and a ping at half of WATCHDOG_USEC
 * (sd_watchdog_enabled(3)). Their variables are read once, in daemon_begin(), and unset, so
 * that no child can take them for its own. They are the process's, hence the one static object.
 *
 * Signals: the first SIGTERM or SIGINT calls the daemon's stop(), which closes what it has
 * open; from then on our own handles no longer keep the loop alive, so uv_run() returns as soon
 * as the daemon's are closed, and ours go last. Until then a second signal still finds its
 * handler, and the watchdog is still fed: finishing what is in flight may take longer than its
 * period.
 *
 * Without a watchdog there is no timer at all: an idle daemon does not wake up.
 */
#include "common/daemon.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/util.h"

#define LISTEN_FDS_START 3
#define LISTEN_FDS_MAX   64 /* units of ours name three; a bound on what we mark CLOEXEC */
#define STATUS_MAX       512
#define LARGE_BYTES      (128 << 10) /* of one allocation; and free ones at the end of the heap */

static struct {
	int notify_fd;
	struct sockaddr_un notify_to;
	socklen_t notify_to_len;
	uint64_t watchdog_ms; /* period of our pings, 0: none wanted */
	int n_listen_fds;
	char *listen_names; /* as LISTEN_FDNAMES has them */
} systemd = {.notify_fd = -1};

/* --- what systemd hands in ---------------------------------------------------------------- */

/* Takes a variable out of the environment. The caller's, NULL when it is not there. */
static char *take_env(const char *name)
{
	char *value = xstrdup_opt(getenv(name));

	(void)unsetenv(name);
	return value;
}

/* Whether the variable, a pid, names us; one that is not there names everybody if so said. */
static bool is_our_pid(const char *text, bool when_missing)
{
	int64_t pid;

	if (!text)
		return when_missing;
	return parse_i64(text, 1, INT32_MAX, &pid) == 0 && pid == getpid();
}

static void adopt_notify(void)
{
	cleanup_free char *path = take_env("NOTIFY_SOCKET");
	size_t len = path ? strlen(path) : 0;

	if (len < 2 || (path[0] != '/' && path[0] != '@') ||
		len >= sizeof(systemd.notify_to.sun_path))
		return;
	systemd.notify_to.sun_family = AF_UNIX;
	memcpy(systemd.notify_to.sun_path, path, len);
	if (path[0] == '@')
		systemd.notify_to.sun_path[0] = '\0';
	systemd.notify_to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	systemd.notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static void adopt_watchdog(void)
{
	cleanup_free char *usec_text = take_env("WATCHDOG_USEC");
	cleanup_free char *pid_text = take_env("WATCHDOG_PID");
	int64_t usec;

	if (!usec_text || !is_our_pid(pid_text, true) ||
		parse_i64(usec_text, 1, INT64_MAX, &usec) < 0)
		return;
	systemd.watchdog_ms = MAX((uint64_t)usec / 2 / 1000, 1u);
}

static void adopt_listen_fds(void)
{
	cleanup_free char *n_text = take_env("LISTEN_FDS");
	cleanup_free char *pid_text = take_env("LISTEN_PID");
	cleanup_free char *names = take_env("LISTEN_FDNAMES");
	int64_t n;

	if (!n_text || !is_our_pid(pid_text, false) ||
		parse_i64(n_text, 1, LISTEN_FDS_MAX, &n) < 0)
		return;
	for (int fd = LISTEN_FDS_START; fd < LISTEN_FDS_START + n; fd++)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	systemd.n_listen_fds = (int)n;
	free(systemd.listen_names);
	systemd.listen_names = take_ptr(names);
}

static int socket_option(int fd, int option)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

static bool is_listening_unix_stream(int fd)
{
	return socket_option(fd, SO_DOMAIN) == AF_UNIX &&
	       socket_option(fd, SO_TYPE) == SOCK_STREAM &&
	       socket_option(fd, SO_ACCEPTCONN) == 1;
}

/* The descriptor of this name; -1 if there is none. */
static int listen_fd_of_name(const char *name)
{
	const char *at = systemd.listen_names ? systemd.listen_names : "";
	size_t len = strlen(name);

	for (int i = 0; i < systemd.n_listen_fds; i++) {
		size_t n = strcspn(at, ":");

		if (n == len && memcmp(at, name, n) == 0)
			return LISTEN_FDS_START + i;
		at += n + (at[n] == ':');
	}
	return -1;
}

int daemon_inherited_fd(const char *name)
{
	int fd = listen_fd_of_name(name);

	if (fd < 0)
		return -1;
	if (!is_listening_unix_stream(fd)) {
		LOG(WARN, NO_FIELDS,
			"the descriptor handed in as \"%s\" is no listening Unix stream "
			"socket; it is "
			"not used",
			name);
		return -1;
	}
	return fd;
}

/* --- what systemd is told ----------------------------------------------------------------- */

static void notify(const char *assignments, int flags)
{
	if (systemd.notify_fd < 0)
		return;
	if (sendto(systemd.notify_fd, assignments, strlen(assignments), MSG_NOSIGNAL | flags,
		    (const struct sockaddr *)&systemd.notify_to, systemd.notify_to_len) < 0)
		LOG(DEBUG, NO_FIELDS, "systemd was not told %s: %s", assignments,
			strerror(errno));
}

/* Of one loaded object: parts that are never written to. */
static int drop_clean_pages(struct dl_phdr_info *object, size_t size UNUSED, void *ctx UNUSED)
{
	const uintptr_t page = (uintptr_t)getpagesize();

	for (size_t i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t from = object->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;

		if (part->p_type != PT_LOAD || (part->p_flags & PF_W))
			continue;
		from &= ~(page - 1);
		/* of the last page the rest may be another part's */
		to &= ~(page - 1);
		if (to > from)
			(void)madvise((void *)from, to - from, MADV_DONTNEED);
	}
	return 0;
}

void daemon_settle(void)
{
	(void)malloc_trim(0);
	(void)dl_iterate_phdr(drop_clean_pages, NULL);
}

void daemon_ready(struct daemon *d)
{
	if (d->ready)
		return;
	d->ready = true;
	daemon_settle(); /* what starting took */
	/* may block: of all that we tell it this alone must not be lost */
	notify("READY=1", 0);
	LOG(INFO, NO_FIELDS, "ready");
}

void daemon_status(const char *fmt, ...)
{
	char text[STATUS_MAX] = "STATUS=";
	size_t at = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text + at, sizeof(text) - at, fmt, ap) < 0)
		text[at] = '\0';
	va_end(ap);
	/* a newline would begin another assignment */
	str_sanitize(text);
	notify(text, MSG_DONTWAIT);
}

int daemon_cannot_start(const struct err *err)
{
	LOG(ERROR, NO_FIELDS, "cannot start: %s", err->message);
	daemon_status("cannot start: %s", err->message);
	return EXIT_FAILURE;
}

/* --- start -------------------------------------------------------------------------------- */

/* With one of 0, 1, 2 closed the next socket would get its number, and what is written to
 * stderr would go to a peer. */
static void open_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	close_fd(&fd);
}

/* What a long message takes is given back with it. Left alone the C library learns from the first
 * such message to keep as much for the next, which comes hours later. */
static void keep_little_memory(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	(void)mallopt(M_TRIM_THRESHOLD, LARGE_BYTES);
	(void)mallopt(M_ARENA_MAX, 1);
}

void daemon_begin(const struct cli *cli, int argc, char **argv, void *options,
	const struct daemon_options *base)
{
	enum log_level level = LOG_INFO;
	int first, known;

	keep_little_memory();
	open_standard_fds();
	cli_parse(cli, argc, argv, options, &first);
	known = log_level_parse(base->log_level, &level);
	assert(known == 0);
	(void)known;
	log_init(cli->program, level);
	/* a floor: those who write files set their modes themselves */
	(void)umask(0027);
	adopt_notify();
	adopt_watchdog();
	adopt_listen_fds();
	/* reads /dev/urandom, which the confined process cannot open */
	json_object_seed(0);
	(void)signal(SIGPIPE, SIG_IGN);
}

/* --- the loop ----------------------------------------------------------------------------- */

static uv_handle_t *as_handle(void *handle)
{
	return handle;
}

static void begin_stop(struct daemon *d)
{
	d->stopping = true;
	uv_unref(as_handle(&d->sigterm));
	uv_unref(as_handle(&d->sigint));
	if (systemd.watchdog_ms)
		uv_unref(as_handle(&d->watchdog));
	notify("STOPPING=1", MSG_DONTWAIT);
	d->stop(d->ctx);
}

static void on_signal(uv_signal_t *handle, int signum)
{
	struct daemon *d = handle->data;

	LOG(INFO, NO_FIELDS, "%s: %s", strsignal(signum),
		d->stopping ? "ends at once" : "stopping");
	if (d->stopping)
		_exit(EXIT_FAILURE);
	begin_stop(d);
}

static void on_watchdog(uv_timer_t *handle)
{
	(void)handle;
	notify("WATCHDOG=1", MSG_DONTWAIT);
}

static void watch_signal(struct daemon *d, uv_signal_t *handle, int signum)
{
	int r = uv_signal_init(d->loop, handle);

	handle->data = d;
	if (r == 0)
		r = uv_signal_start(handle, on_signal, signum);
	/* at the start only a table with too few descriptors or calls makes this fail */
	assert(r == 0);
	(void)r;
}

void daemon_init(struct daemon *d, uv_loop_t *loop, void (*stop)(void *ctx), void *ctx)
{
	*d = (struct daemon){.loop = loop, .stop = stop, .ctx = ctx};
	watch_signal(d, &d->sigterm, SIGTERM);
	watch_signal(d, &d->sigint, SIGINT);
	if (!systemd.watchdog_ms)
		return;
	(void)uv_timer_init(loop, &d->watchdog);
	(void)uv_timer_start(
		&d->watchdog, on_watchdog, systemd.watchdog_ms, systemd.watchdog_ms);
}

void daemon_fail(struct daemon *d)
{
	d->status = EXIT_FAILURE;
	if (!d->stopping)
		begin_stop(d);
}

int daemon_run(struct daemon *d)
{
	(void)uv_run(d->loop, UV_RUN_DEFAULT);
	uv_close(as_handle(&d->sigterm), NULL);
	uv_close(as_handle(&d->sigint), NULL);
	if (systemd.watchdog_ms)
		uv_close(as_handle(&d->watchdog), NULL);
	(void)uv_run(d->loop, UV_RUN_DEFAULT);
	LOG(INFO, NO_FIELDS, "stopped");
	return d->status;
}
