/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Devices that are Linux dummy links, made on the host when a claim is prepared.
 *
 * The operations of common/manager.h, whose contract they keep; ctx is a struct dummy.
 */

#include "common/manager.h"
#include "common/nl.h"

/* Names are dummy0 to dummy4095: an inventory has no more devices, and 64 slices of a
 * ResourceSlice pool hold as many. They cost nothing before a claim is prepared, but a node that
 * asks for more has a slip of the pen in its configuration. */
#define DUMMY_MAX_COUNT 4096

struct dummy {
	struct nl host;
	int host_netns_fd;
	unsigned count;
};

extern const struct manager_ops dummy_ops;

int dummy_open(void *ctx, const char *sysfs_root, struct err *err);
void dummy_close(struct dummy *d);

int dummy_configure(void *ctx, const json_t *config, struct err *err);
int dummy_discover(void *ctx, struct device_list *ret, struct err *err);
int dummy_restore(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
/* Adopts a dummy link of that name which no claim has. ERR_CONFLICT: the link belongs to another
 * claim or is of another kind, or the name is another link's alternative name. */
int dummy_setup(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
/* Deletes the link on the host if it is this claim's. */
int dummy_free(void *ctx, const struct device_alloc *a, struct err *err);
int dummy_attach(void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd,
	struct device_attach_result *ret, struct err *err);
/* Deletes the link in the pod: it was made for this claim, so nothing is taken back. 1: it is
 * not in the pod any more. */
int dummy_detach(
	void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd, struct err *err);
/* Does nothing. 1: the claim's link is not on the host; it ended with its namespace, if that has ended. */
int dummy_reclaim(void *ctx, const struct device_alloc *a, struct err *err);
/* Dummy links on the host that carry the mark of a claim which is not among these. */
int dummy_audit(void *ctx, const struct strlist *claim_uids, struct device_audit_result *ret,
	struct err *err);
