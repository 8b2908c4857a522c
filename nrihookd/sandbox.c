/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nrihookd keeps.
 *
 * It reads what the container runtime says, so it holds no capability: with one, a fault in a
 * decoder would be worth something. It stays root because runtimes keep their NRI socket in a
 * directory of root's with mode 0700. A network namespace may be opened by anybody who can
 * reach its path; to do something with it is the business of others.
 */
#include "nrihookd/sandbox.h"

#include "common/util.h"

static const char *const syscalls[] = {
	/* a pod's network namespace, and whether it is one; statd's state directory */
	"openat",
	"fstatfs",
	"fstatfs64",
};

const struct privileges nrihookd_privileges = {
	.program = "nrihookd",
	.own_user = false,
	.caps = NULL,
	.n_caps = 0,
	.syscalls = syscalls,
	.n_syscalls = ARRAY_SIZE(syscalls),
	/* one for each operation that may be queued on its way to statd at a time */
	.max_fds = 2048,
};
