/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel drops in a socket filter what is about other links, before this process would be
 * woken: a node's links change with every pod.
 */
#include "dmgr-sriov/links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <netlink/msg.h>
#include <sys/socket.h>

#include "common/log.h"
#include "common/nl.h"

#define MESSAGE_SIZE 16384 /* one without virtual functions is some 2 KiB */
#define MAX_FILTERED 200   /* jumps of a filter go over at most 255 instructions */

int links_open(struct err *err)
{
	const struct sockaddr_nl links = {
		.nl_family = AF_NETLINK, .nl_groups = 1 << (RTNLGRP_LINK - 1)};
	cleanup_close int fd =
		socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return err_errno(err, errno, "opening a socket for reports of links");
	links_watch(fd, NULL, 0);
	if (bind(fd, (const struct sockaddr *)&links, sizeof(links)) < 0)
		return err_errno(err, errno, "binding a socket for reports of links");
	return take_fd(&fd);
}

/* Fields of a message are in the byte order of the host, and a filter reads that of the
 * network. Returns the instructions. */
static unsigned short make_filter(struct sock_filter *to, const int *ifindexes, size_t n)
{
	unsigned short at = 0;

	to[at++] = (struct sock_filter)BPF_STMT(
		BPF_LD | BPF_H | BPF_ABS, offsetof(struct nlmsghdr, nlmsg_type));
	to[at++] = (struct sock_filter)BPF_JUMP(
		BPF_JMP | BPF_JEQ | BPF_K, htons(RTM_NEWLINK), 0, (uint8_t)(n + 1));
	to[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		NLMSG_HDRLEN + offsetof(struct ifinfomsg, ifi_index));
	for (size_t i = 0; i < n; i++)
		to[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
			htonl((uint32_t)ifindexes[i]), (uint8_t)(n - i), 0);
	to[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	to[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
	return at;
}

void links_watch(int fd, const int *ifindexes, size_t n)
{
	struct sock_filter filter[MAX_FILTERED + 5];
	struct sock_fprog program = {.filter = filter};

	if (n > MAX_FILTERED) {
		LOG(WARN, NO_FIELDS,
			"changes of physical functions beyond the first %d are not seen at once",
			MAX_FILTERED);
		n = MAX_FILTERED;
	}
	program.len = make_filter(filter, ifindexes, n);
	if (fd >= 0 &&
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0)
		LOG(WARN, FIELDS(F("err", strerror(errno))),
			"changes of physical functions are not seen at once");
}

static void read_altnames(struct strlist *to, struct nlattr *list)
{
	char altname[LINK_ALTNAME_SIZE];
	struct nlattr *attr;
	int left;

	if (!list)
		return;
	nla_for_each_nested(attr, list, left) if (nla_type(attr) == IFLA_ALT_IFNAME)
	{
		(void)nla_strlcpy(altname, attr, sizeof(altname));
		strlist_add(to, altname);
	}
}

static void read_report(struct nlmsghdr *header,
	void (*each)(void *ctx, const struct link_report *report), void *ctx)
{
	struct nlattr *attrs[IFLA_MAX + 1];
	const struct ifinfomsg *body = nlmsg_data(header);
	struct link_report report = {.mtu = -1};

	if (header->nlmsg_type != RTM_NEWLINK ||
		nlmsg_parse(header, sizeof(*body), attrs, IFLA_MAX, NULL) < 0)
		return;
	report.ifindex = body->ifi_index;
	if (attrs[IFLA_MTU] && nla_len(attrs[IFLA_MTU]) >= (int)sizeof(uint32_t))
		report.mtu = nla_get_u32(attrs[IFLA_MTU]);
	read_altnames(&report.altnames, attrs[IFLA_PROP_LIST]);
	each(ctx, &report);
	strlist_fini(&report.altnames);
}

bool links_drain(int fd, void (*each)(void *ctx, const struct link_report *report), void *ctx)
{
	union {
		char bytes[MESSAGE_SIZE];
		struct nlmsghdr header;
	} message;
	struct sockaddr_nl from = {0};
	bool is_complete = true;

	while (fd >= 0) {
		struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
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
		else if (from.nl_pid == 0 && nlmsg_ok(&message.header, (int)n))
			read_report(&message.header, each, ctx);
	}
	return is_complete;
}
