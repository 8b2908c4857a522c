/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Making virtual functions, by a child that has no capability and is there only until all is
 * made: the one write that this room does, in a process of its own, because a driver can hang
 * in it.
 */

#include <net/if.h>
#include <stddef.h>

#include "common/err.h"
#include "common/util.h"

struct provision_iface {
	const char *if_name; /* as configured */
	unsigned count;
	char link[IFNAMSIZ]; /* own name of the link that has this one; "": the same */
};

struct provisioner;

/* Forks the child. Before privileges_drop() of ours. NULL on failure. */
struct provisioner *provisioner_start(int sys_fd, struct err *err);
/* The child ends. NULL is fine. */
void provisioner_end(struct provisioner *p);

/* Works off what is configured and waits wait_ms at most for a driver. What is not as it should
 * be goes to *notes, a sentence each. 0: all is done, and the child has ended. 1: something is
 * left, and the next call goes on with it. */
int provision(struct provisioner *p, int sys_fd, const struct provision_iface *ifaces, size_t n,
	unsigned wait_ms, struct strlist *notes);
