/* SPDX-License-Identifier: Apache-2.0 */
/* What statd keeps. It parses YAML, JSON and MessagePack from outside, so it holds no
 * capability; and it is on the network only where it has an API server. */
#include "common/util.h"
#include "statd/statd.h"

/* connections, and two descriptors for each sandbox that is being started */
#define MAX_FDS 8192

/* reading and writing the directory of claims, reading a token */
#define FILES                                                                                  \
	"openat", "faccessat", "faccessat2", "getdents64", "fchmod", "fsync", "renameat",      \
		"unlinkat"

static const char *const syscalls[] = {FILES};

static const char *const cluster_syscalls[] = {FILES, KUBE_SYSCALLS};

const struct privileges statd_privileges = {
	.program = "statd",
	.own_user = true,
	.syscalls = syscalls,
	.n_syscalls = ARRAY_SIZE(syscalls),
	.max_fds = MAX_FDS,
};

const struct privileges statd_cluster_privileges = {
	.program = "statd",
	.own_user = true,
	.syscalls = cluster_syscalls,
	.n_syscalls = ARRAY_SIZE(cluster_syscalls),
	.max_fds = MAX_FDS,
};
