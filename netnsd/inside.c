/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entering a namespace.
 *
 * A socket is opened by this process itself, which has one thread: it goes in, opens it and comes
 * back, three system calls that wait for nothing. One that cannot come back ends: nothing else may
 * happen in a pod's namespace. A child would do as well, but its end makes the kernel wait for a grace
 * period (delayed_put_task_struct(), kernel/exit.c), and the link that is moved next waits for that one
 * and its own.
 *
 * Sysctls may wait for locks of the kernel, for as long as another process holds them; so it is a child that
 * goes in, writes them and ends. The child is a copy of this small process, without exec: it has the
 * system call filter, the capabilities and nothing more, and may use the C library as it likes.
 *
 * Child and parent share a pair of sockets. The child's answer is one message, a struct err,
 * whose kind is ERR_NONE when it succeeded. A child that dies without an answer closes its end; one
 * that hangs in the kernel is killed when time is up and reaped when it can be, since even SIGKILL
 * waits for a lock that the kernel holds.
 *
 * /proc/sys/net shows what the opening process' namespace has, below a directory that may have
 * been opened anywhere (proc_sys_lookup(), fs/proc/proc_sysctl.c): hence the directory is
 * opened once, at start, and no path that a peer had a hand in can leave it (openat2(2)).
 */
#include "netnsd/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/util.h"

/* --- the parent's and the child's end ----------------------------------------------------- */

/* What cannot be sent is seen as a child that died. */
static void send_answer(int to, const struct err *answer)
{
	(void)send(to, answer, sizeof(*answer), MSG_NOSIGNAL);
}

/* Whether an answer is there in time. */
static bool wait_for_answer(int from)
{
	const uint64_t end = now_ms() + INSIDE_DEADLINE_MS;
	struct pollfd p = {.fd = from, .events = POLLIN};

	for (uint64_t now = now_ms(); now < end; now = now_ms())
		if (poll(&p, 1, (int)(end - now)) > 0)
			return true;
	return false;
}

/* 0, or the child's failure, or that it has none to tell. */
static int receive_answer(int from, struct err *err)
{
	if (recv(from, err, sizeof(*err), MSG_DONTWAIT) != sizeof(*err))
		return err_set(err, ERR_INTERNAL, "the child in the namespace died");
	return err->kind == ERR_NONE ? 0 : -1;
}

/* The child that has answered, and ends at once; 0: none. One that was killed ends maybe later,
 * and is collected with a later one. */
static pid_t ending;

void inside_reap(void)
{
	while (ending > 0 && waitpid(ending, NULL, 0) < 0 && errno == EINTR)
		;
	ending = 0;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

/* --- sockets ------------------------------------------------------------------------------ */

/* Bound, so that its port is assigned in that namespace and not by the first send. */
static int open_socket(int protocol, struct err *err)
{
	const struct sockaddr_nl any = {.nl_family = AF_NETLINK};
	cleanup_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&any, sizeof(any)) < 0)
		return err_errno(err, errno, "opening a netlink socket in the namespace");
	return take_fd(&fd);
}

int inside_open_socket(int netns_fd, int own_netns, int protocol, struct err *err)
{
	int fd;

	if (setns(netns_fd, CLONE_NEWNET) < 0)
		return err_errno(err, errno, "entering the namespace");
	fd = open_socket(protocol, err);
	if (setns(own_netns, CLONE_NEWNET) < 0) {
		LOG(ERROR, FIELDS(F("err", strerror(errno))),
			"cannot leave a pod's namespace; ending");
		_exit(EXIT_FAILURE);
	}
	return fd;
}

/* --- the child ---------------------------------------------------------------------------- */

struct sysctl_job {
	int dir_fd;
	const struct netns_sysctl *sysctls;
};

static int write_sysctls(const struct sysctl_job *job, struct err *err);

__attribute__((noreturn)) static void child(
	int netns_fd, int to, pid_t parent, const struct sysctl_job *job)
{
	struct err err = ERR_INIT;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	if (setns(netns_fd, CLONE_NEWNET) < 0)
		(void)err_errno(&err, errno, "entering the namespace");
	else if (write_sysctls(job, &err) == 0)
		err_clear(&err);
	send_answer(to, &err);
	_exit(0);
}

/* As fork(2), but no signal runs the loop's handlers in the child: they would write into the
 * loop's pipe, which is the parent's too, and a service manager that stops us signals both. */
static pid_t fork_quietly(void)
{
	sigset_t all, before;
	pid_t pid;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGTERM, SIG_DFL);
		(void)signal(SIGINT, SIG_DFL);
	}
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return pid;
}

static int run_inside(int netns_fd, const struct sysctl_job *job, struct err *err)
{
	const pid_t self = getpid();
	cleanup_close int ours = -1, theirs = -1;
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, errno, "socketpair");
	ours = pair[0];
	theirs = pair[1];
	pid = fork_quietly();
	if (pid < 0)
		return err_errno(err, errno, "fork");
	if (pid == 0)
		child(netns_fd, theirs, self, job);
	/* so that its death is seen */
	close_fd(&theirs);
	if (!wait_for_answer(ours)) {
		(void)kill(pid, SIGKILL);
		return err_set(err, ERR_DEADLINE, "not done in the namespace within %d ms",
			INSIDE_DEADLINE_MS);
	}
	ending = pid;
	return receive_answer(ours, err);
}

/* --- sysctls ------------------------------------------------------------------------------ */

static int open_setting(const struct sysctl_job *job, const struct sysctl_setting *s, int flags,
	struct err *err)
{
	struct open_how how = {
		.flags = (unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	char path[PATH_MAX];
	int prefix, n;
	long fd;

	prefix = snprintf(path, sizeof(path), "%s/conf/%s/", s->family, job->sysctls->if_name);
	n = snprintf(path + prefix, sizeof(path) - (size_t)prefix, "%s", s->leaf);
	if (n < 0 || n >= (int)sizeof(path) - prefix)
		return err_set(err, ERR_INVALID, "its name is too long");
	/* dots part the leaf; the interface is one element, whatever dots it has */
	for (char *c = path + prefix; *c; c++)
		if (*c == '.')
			*c = '/';
	fd = syscall(SYS_openat2, job->dir_fd, path, &how, sizeof(how));
	if (fd < 0)
		return err_errno(err, errno, "opening it");
	return (int)fd;
}

#define SPACE " \t\r\n"

static bool equal_trimmed(const char *a, const char *b)
{
	size_t a_len, b_len;

	a += strspn(a, SPACE);
	b += strspn(b, SPACE);
	a_len = strlen(a);
	b_len = strlen(b);
	while (a_len && strchr(SPACE, a[a_len - 1]))
		a_len--;
	while (b_len && strchr(SPACE, b[b_len - 1]))
		b_len--;
	return a_len == b_len && memcmp(a, b, a_len) == 0;
}

/* 1 if it has the value already. */
static int compare(
	const struct sysctl_job *job, const struct sysctl_setting *s, struct err *err)
{
	cleanup_close int fd = open_setting(job, s, O_RDONLY, err);
	char value[REC_MAX_TEXT + 1]; /* a longer one is another than a request could hold */
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, value, sizeof(value) - 1);
	if (n < 0)
		return err_errno(err, errno, "reading it");
	value[n] = '\0';
	return equal_trimmed(value, s->value);
}

static int write_setting(
	const struct sysctl_job *job, const struct sysctl_setting *s, struct err *err)
{
	cleanup_close int fd = -1;
	int rc = compare(job, s, err);

	if (rc != 0)
		return rc < 0 ? -1 : 0;
	fd = open_setting(job, s, O_WRONLY, err);
	if (fd < 0)
		return -1;
	if (write(fd, s->value, strlen(s->value)) < 0)
		return err_errno(err, errno, "writing it");
	return 0;
}

static int write_sysctls(const struct sysctl_job *job, struct err *err)
{
	for (size_t i = 0; i < job->sysctls->settings.n; i++) {
		const struct sysctl_setting *s = &job->sysctls->settings.v[i];

		if (write_setting(job, s, err) < 0)
			return err_wrap(err, "net.%s.conf.%s.%s = \"%s\"", s->family,
				job->sysctls->if_name, s->leaf, s->value);
	}
	return 0;
}

int inside_write_sysctls(
	int netns_fd, int dir_fd, const struct netns_sysctl *sysctls, struct err *err)
{
	const struct sysctl_job job = {.dir_fd = dir_fd, .sysctls = sysctls};

	return run_inside(netns_fd, &job, err);
}
