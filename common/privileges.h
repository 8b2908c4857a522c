/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a process may do, as one table, taken on at start and verified.
 *
 * Each room has exactly one `const struct privileges`, near the top of its sandbox.c; its
 * README prints the same table and a test compares running processes with it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

struct privileges {
	const char *program;
	bool own_user;   /* true: becomes the user of its --user option; false: stays root */
	const int *caps; /* CAP_* that it keeps: permitted and effective, nothing inheritable */
	size_t n_caps;
	/* System calls beyond those that every daemon here needs (event loop, sockets, memory,
	 * clocks, signals, reading and writing open files). */
	const char *const *syscalls;
	size_t n_syscalls;
	/* It may open files and directories, for reading only, and see what is in them. */
	bool reads_files;
	size_t max_fds; /* RLIMIT_NOFILE */
};

struct identity {
	uid_t uid;
	gid_t gid;
};

/* "name", "name:group", "uid" or "uid:gid". */
int identity_parse(const char *text, struct identity *ret, struct err *err);
/* A group by name or number. */
int group_parse(const char *text, gid_t *ret, struct err *err);

/* Step "drop": resource limits, not dumpable, no new privileges, identity, capabilities;
 * then reads all of it back and fails if anything is not as the table says, and logs what
 * was kept. A process that was not started as root stays who it is: it drops what is beyond
 * the table, and fails when a capability of the table is not there. who is ignored unless
 * own_user. Errors: ERR_UNAVAILABLE for a missing capability, ERR_INVALID for an own user
 * that is root. */
int privileges_drop(const struct privileges *p, const struct identity *who, struct err *err);
/* Step "confine": the system call filter. The last thing before uv_loop_init(). Beyond the
 * table and what every daemon needs a call fails with EPERM; execve, ptrace and their like
 * kill the process. The common list has socket() for AF_UNIX only, mmap() and mprotect()
 * without PROT_EXEC, ioctl() for FIONBIO, FIOCLEX, FIONREAD and NS_GET_NSTYPE, prlimit() for
 * reading, tgkill() to oneself; a table that names one of these has it whole. It has nothing
 * that opens or changes a file, and nothing that starts a process. A name that no system
 * call has is ERR_INTERNAL. In sanitized builds there is no filter, and a warning says so. */
int privileges_confine(const struct privileges *p, struct err *err);
