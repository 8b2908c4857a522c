/* SPDX-License-Identifier: Apache-2.0 */
#include "dmgr-sriov/reports.h"

#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>

int reports_open(int protocol, const char *what, struct err *err)
{
	const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);

	return fd < 0 ? err_errno(err, errno, "opening a socket for %s", what) : fd;
}

int reports_join(int fd, uint32_t groups, const char *what, struct err *err)
{
	const struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = groups};

	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return err_errno(err, errno, "binding a socket for %s", what);
	return 0;
}

bool reports_drain(
	int fd, void *buffer, size_t size, void (*each)(void *ctx, size_t len), void *ctx)
{
	struct sockaddr_nl from = {0};
	bool is_complete = true;

	while (fd >= 0) {
		struct iovec iov = {.iov_base = buffer, .iov_len = size};
		struct msghdr msg = {.msg_name = &from,
			.msg_namelen = sizeof(from),
			.msg_iov = &iov,
			.msg_iovlen = 1};
		const ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS) {
			is_complete = false;
			continue;
		}
		if (n <= 0)
			break;
		if (msg.msg_flags & MSG_TRUNC)
			is_complete = false;
		else if (from.nl_pid == 0)
			each(ctx, (size_t)n);
	}
	return is_complete;
}
