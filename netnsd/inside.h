/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is done inside a network namespace. netns_fd is borrowed, and known to be one other than ours.
 *
 * Sysctls are written by a child that enters it and ends; the function blocks until it is done, at most
 * INSIDE_DEADLINE_MS. The child's end, for which the kernel needs as long as for its work, is not waited
 * for: inside_reap() does, after the answer.
 */

#include "common/api.h"
#include "common/err.h"

/* Below the deadline of the methods (api.c), so that the caller is told what happened. */
#define INSIDE_DEADLINE_MS 1200

/* A netlink socket of this protocol, bound, CLOEXEC. The descriptor, or -1. own_netns is the namespace
 * that we are in; if the kernel does not let us back, the process ends. */
int inside_open_socket(int netns_fd, int own_netns, int protocol, struct err *err);

/* Writes the settings in their order, those that have another value already; stops at the first
 * failure, whose message names the setting. dir_fd is procfs' sys/net. */
int inside_write_sysctls(
	int netns_fd, int dir_fd, const struct netns_sysctl *sysctls, struct err *err);

/* Collects children that are done, and waits for one that is about to end. */
void inside_reap(void);
