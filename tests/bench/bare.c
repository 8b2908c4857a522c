/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same work without netclaim: what the kernel takes for it, by the shortest way to it that a
 * program of one purpose has. Each command answers how long it took; attach also, what of that the
 * move took alone.
 *
 *	create KIND NAME ALIAS          makes a link on the host and sets its alias
 *	attach NAME NETNS NEW_NAME      moves it in, and a child process enters the namespace, sets a
 *	                                sysctl of the link and brings it up
 *	detach NAME NETNS               a child process enters the namespace and deletes the link
 *	delete NAME                     deletes a link on the host
 *	replace DIR BYTES [synced]      a file is written and renamed; synced before, and its directory
 *	                                afterwards
 *	spawn N PROGRAM                 N processes are started at once and end by themselves
 *
 * And without a time:
 *
 *	netns PATH                      makes a network namespace and mounts it at PATH
 *	netns-end PATH
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/util.h"
#include "tests/bench/lines.h"

struct bare {
	int host; /* netlink */
};

/* --- netlink -------------------------------------------------------------------------------------- */

struct request {
	struct nlmsghdr head;
	struct ifinfomsg link;
	char attributes[512];
};

static int netlink_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		lines_fail_errno("opening a netlink socket");
	return fd;
}

static struct request request_new(uint16_t type, uint16_t flags)
{
	return (struct request){
		.head.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
		.head.nlmsg_type = type,
		.head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags),
	};
}

static void put(struct request *r, unsigned short type, const void *data, size_t len)
{
	struct rtattr head = {.rta_len = (unsigned short)RTA_LENGTH(len), .rta_type = type};
	char *at = (char *)r + NLMSG_ALIGN(r->head.nlmsg_len);

	memcpy(at, &head, sizeof(head));
	memcpy(at + RTA_LENGTH(0), data, len);
	r->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->head.nlmsg_len) + RTA_LENGTH(len));
}

static void put_text(struct request *r, unsigned short type, const char *text)
{
	put(r, type, text, strlen(text) + 1);
}

static void talk(int fd, const struct request *r, const char *what)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[1024];
	} answer;

	if (send(fd, r, r->head.nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof(answer), 0) < 0)
		lines_fail_errno(what);
	errno = -answer.error.error;
	if (answer.head.nlmsg_type != NLMSG_ERROR || errno != 0)
		lines_fail_errno(what);
}

static void link_create(int fd, const char *kind, const char *name)
{
	struct request r = request_new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
	char info[64];
	struct rtattr head = {.rta_len = (unsigned short)RTA_LENGTH(strlen(kind)),
		.rta_type = IFLA_INFO_KIND};

	memcpy(info, &head, sizeof(head));
	memcpy(info + RTA_LENGTH(0), kind, strlen(kind));
	put_text(&r, IFLA_IFNAME, name);
	put(&r, IFLA_LINKINFO, info, head.rta_len);
	talk(fd, &r, "making a link");
}

static void link_set_alias(int fd, const char *name, const char *alias)
{
	struct request r = request_new(RTM_SETLINK, 0);

	put_text(&r, IFLA_IFNAME, name);
	put(&r, IFLA_IFALIAS, alias, strlen(alias));
	talk(fd, &r, "setting an alias");
}

static void link_move(int fd, const char *name, int netns, const char *new_name)
{
	struct request r = request_new(RTM_SETLINK, 0);

	r.link.ifi_index = (int)if_nametoindex(name);
	put_text(&r, IFLA_IFNAME, new_name);
	put(&r, IFLA_NET_NS_FD, &netns, sizeof(netns));
	talk(fd, &r, "moving a link");
}

static void link_set_up(int fd, const char *name)
{
	struct request r = request_new(RTM_SETLINK, 0);

	r.link.ifi_flags = r.link.ifi_change = IFF_UP;
	put_text(&r, IFLA_IFNAME, name);
	talk(fd, &r, "bringing a link up");
}

static void link_delete(int fd, const char *name)
{
	struct request r = request_new(RTM_DELLINK, 0);

	put_text(&r, IFLA_IFNAME, name);
	talk(fd, &r, "deleting a link");
}

/* --- inside a namespace --------------------------------------------------------------------------- */

static void inside_attach(const char *name)
{
	cleanup_free char *path = xasprintf("/proc/sys/net/ipv4/conf/%s/arp_filter", name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "1", 1) != 1)
		lines_fail_errno(path);
	link_set_up(netlink_open(), name);
}

static void inside_detach(const char *name)
{
	link_delete(netlink_open(), name);
}

/* Does it in a child process that has entered the namespace. */
static void inside(int netns, void (*work)(const char *name), const char *name)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		lines_fail_errno("fork");
	if (pid == 0) {
		if (setns(netns, CLONE_NEWNET) < 0)
			lines_fail_errno("setns");
		work(name);
		_exit(EXIT_SUCCESS);
	}
	if (waitpid(pid, &status, 0) < 0 || status != 0)
		lines_fail("the child in the namespace failed");
}

static int netns_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		lines_fail_errno(path);
	return fd;
}

/* --- commands --------------------------------------------------------------------------------------- */

static void answer_since(uint64_t started)
{
	uint64_t time = now_ns() - started;

	lines_ok(&time, 1);
}

static void run_create(void *ctx, char **words, size_t n UNUSED)
{
	const struct bare *b = ctx;
	uint64_t started = now_ns();

	link_create(b->host, words[0], words[1]);
	link_set_alias(b->host, words[1], words[2]);
	answer_since(started);
}

static void run_attach(void *ctx, char **words, size_t n UNUSED)
{
	const struct bare *b = ctx;
	uint64_t started = now_ns(), times[2], begun;
	cleanup_close int netns = netns_open(words[1]);

	begun = now_ns();
	link_move(b->host, words[0], netns, words[2]);
	times[1] = now_ns() - begun;
	inside(netns, inside_attach, words[2]);
	times[0] = now_ns() - started;
	lines_ok(times, 2);
}

static void run_detach(void *ctx UNUSED, char **words, size_t n UNUSED)
{
	uint64_t started = now_ns();
	cleanup_close int netns = netns_open(words[1]);

	inside(netns, inside_detach, words[0]);
	answer_since(started);
}

static void run_delete(void *ctx, char **words, size_t n UNUSED)
{
	const struct bare *b = ctx;
	uint64_t started = now_ns();

	link_delete(b->host, words[0]);
	answer_since(started);
}

static void run_replace(void *ctx UNUSED, char **words, size_t n)
{
	uint64_t started = now_ns();
	size_t len = (size_t)atol(words[1]);
	const bool synced = n > 2 && strcmp(words[2], "synced") == 0;
	cleanup_free char *data = xcalloc(1, len + 1);
	cleanup_close int dir = open(words[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int fd = openat(dir, ".bench.tmp", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len || (synced && fsync(fd) < 0) ||
		renameat(dir, ".bench.tmp", dir, ".bench") < 0 || (synced && fsync(dir) < 0))
		lines_fail_errno(words[0]);
	answer_since(started);
}

static void run_spawn(void *ctx UNUSED, char **words, size_t n UNUSED)
{
	uint64_t started = now_ns();
	char *argv[] = {words[1], NULL};
	int count = atoi(words[0]), status;
	pid_t pid;

	for (int i = 0; i < count; i++) {
		errno = posix_spawn(&pid, words[1], NULL, NULL, argv, environ);
		if (errno != 0)
			lines_fail_errno(words[1]);
	}
	for (int i = 0; i < count; i++)
		if (wait(&status) < 0 || status != 0)
			lines_fail("%s: ended with status %d", words[1], status);
	answer_since(started);
}

static void run_netns(void *ctx UNUSED, char **words, size_t n UNUSED)
{
	cleanup_close int file = open(words[0], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	pid_t pid = fork();
	int status;

	if (file < 0 || pid < 0)
		lines_fail_errno(words[0]);
	if (pid == 0) {
		if (unshare(CLONE_NEWNET) < 0 ||
			mount("/proc/self/ns/net", words[0], NULL, MS_BIND, NULL) < 0)
			lines_fail_errno(words[0]);
		_exit(EXIT_SUCCESS);
	}
	if (waitpid(pid, &status, 0) < 0 || status != 0)
		lines_fail("no network namespace at %s", words[0]);
	lines_ok(NULL, 0);
}

static void run_netns_end(void *ctx UNUSED, char **words, size_t n UNUSED)
{
	if (umount2(words[0], MNT_DETACH) < 0 || unlink(words[0]) < 0)
		lines_fail_errno(words[0]);
	lines_ok(NULL, 0);
}

static const struct lines_command commands[] = {
	{"create", 3, run_create},
	{"attach", 3, run_attach},
	{"detach", 2, run_detach},
	{"delete", 1, run_delete},
	{"replace", 2, run_replace},
	{"spawn", 2, run_spawn},
	{"netns", 1, run_netns},
	{"netns-end", 1, run_netns_end},
};

int main(void)
{
	struct bare bare = {.host = netlink_open()};

	lines_serve(commands, ARRAY_SIZE(commands), &bare);
	return EXIT_SUCCESS;
}
