/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Devices that are SR-IOV virtual functions in legacy mode.
 *
 * The operations of common/manager.h, whose contract they keep; ctx is a struct sriov.
 */

#include "common/manager.h"
#include "common/nl.h"
#include "dmgr-sriov/provision.h"

struct sriov {
	struct nl host;
	int host_netns_fd, sys_fd, uevent_fd;
	const char *sysfs_root; /* borrowed from the command line */
	struct provisioner *provisioner;
	struct provision_iface *ifaces; /* as configured */
	size_t n_ifaces;
	bool has_waited;     /* for drivers: the first inventory does, for long */
	struct strlist told; /* problems of the last inventory: each is logged once */
};

#define SRIOV_INIT                                                                             \
	{                                                                                      \
		.host_netns_fd = -1, .sys_fd = -1, .uevent_fd = -1                             \
	}

extern const struct manager_ops sriov_ops;

int sriov_open(void *ctx, const char *sysfs_root, struct err *err);
void sriov_close(struct sriov *s);

int sriov_configure(void *ctx, const json_t *config, struct err *err);
int sriov_discover(void *ctx, struct device_list *ret, struct err *err);
int sriov_restore(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
/* Marks the link, records it, puts the port into the claim's VLAN. ERR_CONFLICT: another claim
 * has it. ERR_BUSY: its link is in another network namespace. */
int sriov_setup(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
/* The same for a device that was prepared and has lost mark or VLAN since; what was recorded
 * stays. */
int sriov_recover(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
/* Undoes setup if this claim still has the device. ERR_BUSY as above. */
int sriov_free(void *ctx, const struct device_alloc *a, struct err *err);
int sriov_attach(void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd,
	struct device_attach_result *ret, struct err *err);
int sriov_detach(
	void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd, struct err *err);
int sriov_audit(void *ctx, const struct strlist *claim_uids, struct device_audit_result *ret,
	struct err *err);
