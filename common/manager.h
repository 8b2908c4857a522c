/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The host of a device manager: everything of such a daemon but its domain.
 *
 * It connects to statd, says hello, gets the manager's section of the configuration, rebuilds
 * what was prepared before a restart, publishes the inventory and then serves the device.*
 * methods, one at a time. A manager's folder fills in the operations below; each may block for
 * as long as the kernel takes, since that is the process's whole job.
 */

#include <uv.h>

#include "common/api.h"
#include "common/daemon.h"
#include "common/prepared.h"
#include "common/privileges.h"

struct manager;

struct manager_ops {
	enum manager_type type;
	/* Whether the program has the option --sysfs-root. */
	bool reads_sysfs;
	/* Once, while the process may still do what its table does not list: opens what the
	 * manager keeps open. sysfs_root is NULL unless reads_sysfs; it stays valid. */
	int (*open)(void *ctx, const char *sysfs_root, struct err *err);
	/* config is the manager's section, an object. Comes again whenever statd has been
	 * away. */
	int (*configure)(void *ctx, const json_t *config, struct err *err);
	/* The complete inventory, into *ret (zeroed). 1: it is not yet what it should be, and
	 * is to be asked for again soon. */
	int (*discover)(void *ctx, struct device_list *ret, struct err *err);
	/* Both NULL, or: a descriptor that is readable when the inventory may have changed, -1
	 * if there is none; and what reads it, and says whether to discover anew. */
	int (*watch)(const void *ctx);
	bool (*woken)(void *ctx);
	/* Both may be NULL. What is prepared, for as long as the process lives: the host of the
	 * manager keeps it, and discover() finds there what it cannot see. */
	void (*use_prepared)(void *ctx, const struct prepared *prepared);
	/* Adds to *ret the names of devices whose link has come back to the host, and not by
	 * the manager's own doing, since the last call. Comes after each woken() and
	 * discover(). */
	void (*take_appeared)(void *ctx, struct strlist *ret);
	/* Rebuilds a prepared device from its stored state; makes nothing in the kernel. */
	int (*restore)(
		void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
	/* NULL: no device asks for it. What setup() will change as it is now, in ret's state,
	 * which setup() is given; one that is given it keeps it. Touches nothing. */
	int (*observe)(
		void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
	int (*setup)(
		void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
	int (*recover)(
		void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
	int (*free)(void *ctx, const struct device_alloc *a, struct err *err);
	/* ERR_NOT_FOUND when the link is neither on the host nor, marked as this allocation's,
	 * in the namespace. On any failure a link that was moved is back on the host as it
	 * was. */
	int (*attach)(void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd,
		struct device_attach_result *ret, struct err *err);
	/* 1: the link is not in the namespace any more, and ends where it is. ERR_BUSY: it is in
	 * neither namespace, and is to come back. */
	int (*detach)(void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd,
		struct err *err);
	/* The sandbox that held a prepared device has ended, and nobody has a descriptor of its
	 * namespace: a link that the kernel has returned to the host is put back as it was and
	 * marked anew, whatever the pod left on it. statd's table decides whose it is, not its
	 * alias. 0 also if the device has ceased to exist. 1: it is not on the host, and ends
	 * with its namespace. ERR_BUSY: the link is in a namespace still. Repeatable. */
	int (*reclaim)(void *ctx, const struct device_alloc *a, struct err *err);
	/* What in the kernel is this manager's and belongs to none of these claims, into *ret
	 * (zeroed), such that free() undoes each. */
	int (*audit)(void *ctx, const struct strlist *claim_uids,
		struct device_audit_result *ret, struct err *err);
};

/* A manager's whole main: the options common to managers, then the checklist. */
int manager_main(const struct manager_ops *ops, void *ctx, const struct privileges *privileges,
	const char *summary, int argc, char **argv);
