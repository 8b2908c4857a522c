/* SPDX-License-Identifier: Apache-2.0 */
/* What statd keeps. It parses YAML, JSON and MessagePack from outside, so it holds no
 * capability. */
#include "common/util.h"
#include "statd/statd.h"

/* reading and writing the directory of claims */
static const char *const syscalls[] = {
	"openat",
	"faccessat",
	"faccessat2",
	"getdents64",
	"fchmod",
	"fsync",
	"renameat",
	"unlinkat",
};

const struct privileges statd_privileges = {
	.program = "statd",
	.own_user = true,
	.syscalls = syscalls,
	.n_syscalls = ARRAY_SIZE(syscalls),
	/* connections, and two descriptors for each sandbox that is being started */
	.max_fds = 8192,
};
