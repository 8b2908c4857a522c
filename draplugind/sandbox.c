/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What draplugind keeps: the file system as root's owner permissions show it, and nothing else.
 *
 * It stays root because the kubelet's directories and the CDI directory belong to root. Without
 * CAP_DAC_OVERRIDE root is an ordinary user to the file system: front.sock must let it in by owner
 * or group.
 */
#include "draplugind/sandbox.h"

#include "common/util.h"

static const char *const syscalls[] = {
	/* metadata files, CDI specifications and their directories; where the C library has two
	 * ways, an architecture may lack the older */
	"openat",
	"mkdir",
	"mkdirat",
	"renameat",
	"renameat2",
	"unlinkat",
	"getdents64",
	"fchmod",
	/* sockets for the kubelet to find */
	"unlink",
	"chmod",
	"fchmodat",
	"lchown",
	"fchownat",
	"umask",
};

const struct privileges draplugind_privileges = {
	.program = "draplugind",
	.own_user = false,
	.caps = NULL,
	.n_caps = 0,
	.syscalls = syscalls,
	.n_syscalls = ARRAY_SIZE(syscalls),
	/* 2 listeners of 8 connections, statd, the loop's own, files one at a time */
	.max_fds = 64,
};
