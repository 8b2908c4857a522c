/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kind of a namespace descriptor is what NS_GET_NSTYPE answers (ioctl_ns(2)); any other
 * file refuses that request with ENOTTY. Two descriptors name the same namespace when device
 * and inode are equal (namespaces(7)). The namespace of a socket is had with SIOCGSKNS
 * (linux/sockios.h, since 4.9), so nobody's word is taken for it.
 */
#include "common/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/util.h"

int netns_open_own(struct err *err)
{
	int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "opening /proc/self/ns/net");
	return fd;
}

/* 1 if both are the same file, 0 if not. */
static int same_file(int a, int b, struct err *err)
{
	struct stat sa, sb;

	if (fstat(a, &sa) < 0 || fstat(b, &sb) < 0)
		return err_errno(err, errno, "fstat of a namespace");
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static int refuse_own(int fd, int own, struct err *err)
{
	int same = same_file(fd, own, err);

	if (same > 0)
		return err_set(err, ERR_INVALID, "the namespace is the host's own");
	return same;
}

int netns_check(int fd, int own, struct err *err)
{
	int type = ioctl(fd, NS_GET_NSTYPE);

	if (type < 0)
		return err_set(err, ERR_INVALID, "the descriptor is not a namespace");
	if (type != CLONE_NEWNET)
		return err_set(err, ERR_INVALID, "the namespace is of another kind: 0x%x",
			(unsigned)type);
	return refuse_own(fd, own, err);
}

static int socket_option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value;

	if (getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0)
		return -1;
	return value;
}

int netns_check_socket(int fd, int protocol, int netns_fd, int own, struct err *err)
{
	cleanup_close int inside = -1;
	int same = 1;

	if (socket_option(fd, SO_DOMAIN) != AF_NETLINK ||
		socket_option(fd, SO_TYPE) != SOCK_RAW ||
		socket_option(fd, SO_PROTOCOL) != protocol)
		return err_set(err, ERR_INVALID,
			"the descriptor is not a raw netlink socket of protocol %d", protocol);
	inside = ioctl(fd, SIOCGSKNS);
	if (inside < 0)
		return err_errno(err, errno, "asking for a socket's namespace");
	if (netns_fd >= 0)
		same = same_file(inside, netns_fd, err);
	if (same == 0)
		return err_set(err, ERR_INVALID, "the socket is in another namespace");
	return same < 0 ? -1 : refuse_own(inside, own, err);
}
