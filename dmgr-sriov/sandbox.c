/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CAP_NET_ADMIN moves links and sets the VLAN of a virtual function's port. sysfs is read for
 * as long as the process lives, and written by nobody but the child, which needs no capability
 * for it: the file is root's.
 */
#include "dmgr-sriov/sandbox.h"

#include <linux/capability.h>

#include "common/util.h"

static const int caps[] = {CAP_NET_ADMIN};

const struct privileges sriov_privileges = {
	.program = "dmgr-sriov",
	.caps = caps,
	.n_caps = ARRAY_SIZE(caps),
	.reads_files = true,
	.max_fds = 64, /* one connection, and the descriptors of the calls it may queue */
};

static const char *const provision_syscalls[] = {
	"openat", /* sriov_numvfs, for writing */
};

const struct privileges sriov_provision_privileges = {
	.program = "dmgr-sriov's child",
	.syscalls = provision_syscalls,
	.n_syscalls = ARRAY_SIZE(provision_syscalls),
	.max_fds = 16,
};
