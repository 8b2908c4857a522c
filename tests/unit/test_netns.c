/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer may send for a namespace or a socket, on the real kernel. */
#include "common/netns.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#include "common/util.h"
#include "tests/unit/unit.h"

static struct {
	int own, pod, other; /* namespaces */
	struct err err;
} t;

static void set_up(void)
{
	int *const fds[] = {&t.pod, &t.other, &t.own};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		ck_assert_msg(unshare(CLONE_NEWNET) == 0, "unshare: %s", strerror(errno));
		*fds[i] = netns_open_own(&t.err);
		ck_assert_int_ge(*fds[i], 0);
	}
}

static void tear_down(void)
{
	close_fd(&t.own);
	close_fd(&t.pod);
	close_fd(&t.other);
}

static int socket_in(int netns, int domain, int type, int protocol)
{
	int fd;

	ck_assert_int_eq(setns(netns, CLONE_NEWNET), 0);
	fd = socket(domain, type | SOCK_CLOEXEC, protocol);
	ck_assert_int_eq(setns(t.own, CLONE_NEWNET), 0);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void refused(int rc, const char *why)
{
	ck_assert_int_eq(rc, -1);
	ck_assert_int_eq(t.err.kind, ERR_INVALID);
	ck_assert_msg(strstr(t.err.message, why), "%s", t.err.message);
}

START_TEST(only_another_network_namespace_is_one)
{
	cleanup_close int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cleanup_close int mount = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(netns_check(t.pod, t.own, &t.err), 0);
	refused(netns_check(t.own, t.own, &t.err), "host's own");
	refused(netns_check(file, t.own, &t.err), "not a namespace");
	refused(netns_check(mount, t.own, &t.err), "another kind");
	refused(netns_check(-1, t.own, &t.err), "not a namespace");
}
END_TEST

static int check_socket(int fd, int netns)
{
	return netns_check_socket(fd, NETLINK_ROUTE, netns, t.own, &t.err);
}

START_TEST(only_a_netlink_socket_of_that_namespace_is_one)
{
	cleanup_close int good = socket_in(t.pod, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	cleanup_close int generic = socket_in(t.pod, AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	cleanup_close int datagram = socket_in(t.pod, AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);
	cleanup_close int local = socket_in(t.pod, AF_UNIX, SOCK_STREAM, 0);
	cleanup_close int own = socket_in(t.own, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	ck_assert_int_eq(check_socket(good, t.pod), 0);
	ck_assert_int_eq(check_socket(good, -1), 0);
	refused(check_socket(good, t.other), "another namespace");
	refused(check_socket(own, -1), "host's own");
	refused(check_socket(own, t.own), "host's own");
	refused(check_socket(generic, t.pod), "not a raw netlink socket");
	refused(check_socket(datagram, t.pod), "not a raw netlink socket");
	refused(check_socket(local, t.pod), "not a raw netlink socket");
	refused(check_socket(t.pod, t.pod), "not a raw netlink socket");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("netns");
	TCase *c = tcase_create("descriptors");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, only_another_network_namespace_is_one);
	tcase_add_test(c, only_a_netlink_socket_of_that_namespace_is_one);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	if (geteuid() != 0) {
		return unit_skip("test_netns", "making network namespaces needs root");
	}
	return unit_run(suite());
}
