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
#include "dmgr-sriov/reports.h"

#define MESSAGE_SIZE 16384 /* one without virtual functions is some 2 KiB */
#define MAX_FILTERED 200   /* jumps of a filter go over at most 255 instructions */

#define WHAT "reports of links"

int links_open(struct err *err)
{
	cleanup_close int fd = reports_open(NETLINK_ROUTE, WHAT, err);

	if (fd < 0)
		return -1;
	links_watch(fd, NULL, 0);
	if (reports_join(fd, 1 << (RTNLGRP_LINK - 1), WHAT, err) < 0)
		return -1;
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

bool links_read(const void *message, size_t len, struct link_report *ret)
{
	struct nlattr *attrs[IFLA_MAX + 1];
	struct nlmsghdr *header = (struct nlmsghdr *)(uintptr_t)message;
	const struct ifinfomsg *body;

	*ret = (struct link_report){.mtu = -1};
	if (!nlmsg_ok(header, (int)len) || header->nlmsg_type != RTM_NEWLINK ||
		nlmsg_parse(header, sizeof(*body), attrs, IFLA_MAX, NULL) < 0)
		return false;
	body = nlmsg_data(header);
	ret->ifindex = body->ifi_index;
	if (attrs[IFLA_MTU] && nla_len(attrs[IFLA_MTU]) >= (int)sizeof(uint32_t))
		ret->mtu = nla_get_u32(attrs[IFLA_MTU]);
	read_altnames(&ret->altnames, attrs[IFLA_PROP_LIST]);
	return true;
}

struct draining {
	union {
		char bytes[MESSAGE_SIZE];
		struct nlmsghdr header; /* for its alignment */
	} message;
	void (*each)(void *ctx, const struct link_report *report);
	void *ctx;
};

static void read_message(void *ctx, size_t len)
{
	struct draining *d = ctx;
	struct link_report report;

	if (!links_read(&d->message, len, &report))
		return;
	d->each(d->ctx, &report);
	strlist_fini(&report.altnames);
}

bool links_drain(int fd, void (*each)(void *ctx, const struct link_report *report), void *ctx)
{
	struct draining d = {.each = each, .ctx = ctx};

	return reports_drain(fd, &d.message, sizeof(d.message), read_message, &d);
}
