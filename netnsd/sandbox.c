/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CAP_SYS_ADMIN is what setns(2) asks for. CAP_NET_ADMIN must be held by whoever opens a
 * netlink socket through which somebody else is to change things: the kernel asks it of the
 * opener and of the sender (netlink_ns_capable(), net/netlink/af_netlink.c). Most sysctls of an
 * interface may be written by root without it, some not (devinet_sysctl_forward(),
 * net/ipv4/devinet.c).
 */
#include "netnsd/sandbox.h"

#include <linux/capability.h>

#include "common/util.h"

static const int caps[] = {CAP_SYS_ADMIN, CAP_NET_ADMIN};

static const char *const syscalls[] = {
	/* the child */
	"clone",
	"kill",
	"wait4",
	"prctl",
	/* what it does */
	"setns",
	"socket", /* AF_NETLINK */
	"openat2",
};

const struct privileges netnsd_privileges = {
	.program = "netnsd",
	.caps = caps,
	.n_caps = ARRAY_SIZE(caps),
	.syscalls = syscalls,
	.n_syscalls = ARRAY_SIZE(syscalls),
	.max_fds = 64, /* one connection, and the descriptors of the calls it may queue */
};
