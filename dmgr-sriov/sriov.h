/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Devices that are SR-IOV virtual functions in legacy mode.
 *
 * The operations of common/manager.h, whose contract they keep; ctx is a struct sriov.
 */

#include "common/manager.h"
#include "common/nl.h"
#include "dmgr-sriov/pci.h"
#include "dmgr-sriov/provision.h"

/* A virtual function at the last look. */
struct seen_vf {
	char addr[PCI_ADDR_SIZE];
	char if_name[IFNAMSIZ]; /* its link on the host, "": it is not there */
	bool had_link;          /* at this look or an earlier one */
};

/* A physical function when its link was on the host last. */
struct seen_pf {
	char addr[PCI_ADDR_SIZE], name[IFNAMSIZ];
	int ifindex; /* 0: it is not on the host now */
	int64_t link_speed, mtu;
	struct strlist altnames;
};

struct sriov {
	struct nl host;
	int host_netns_fd, sys_fd, uevent_fd;
	int links_fd; /* the kernel's reports of links: links.h */
	int wake_fd;  /* readable when one of both is */
	const char *sysfs_root; /* borrowed from the command line */
	struct provisioner *provisioner;
	struct provision_iface *ifaces; /* as configured */
	size_t n_ifaces;
	bool has_waited;     /* for drivers: the first inventory does, for long */
	struct strlist noted; /* in the last inventory: each is logged once */

	const struct prepared *prepared; /* the host's */
	struct pci_scan scan;            /* of the restore or inventory at hand */
	bool has_scan;
	struct seen_vf *vfs; /* sorted by address */
	size_t n_vfs;
	struct seen_pf *pfs;
	size_t n_pfs;
	struct strlist appeared; /* devices, not reported yet */
};

#define SRIOV_INIT                                                                             \
	{                                                                                      \
		.host_netns_fd = -1, .sys_fd = -1, .uevent_fd = -1, .links_fd = -1,            \
		.wake_fd = -1                                                                  \
	}

extern const struct manager_ops sriov_ops;

int sriov_open(void *ctx, const char *sysfs_root, struct err *err);
void sriov_close(struct sriov *s);

int sriov_configure(void *ctx, const json_t *config, struct err *err);
int sriov_discover(void *ctx, struct device_list *ret, struct err *err);
int sriov_restore(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
bool sriov_woken(void *ctx);
void sriov_take_appeared(void *ctx, struct strlist *ret);
/* Takes note of where a device's link is after an operation of ours that may have moved it. */
void sriov_settle(struct sriov *s, const char *device);
void sriov_forget_seen(struct sriov *s);
/* How the port of a function without a link is: there is no mark to note it behind. */
int sriov_observe(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err);
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
/* Restores a link that has come back to the host by itself, and its port's VLAN. ERR_BUSY: it has
 * not come back. */
int sriov_reclaim(void *ctx, const struct device_alloc *a, struct err *err);
int sriov_audit(void *ctx, const struct strlist *claim_uids, struct device_audit_result *ret,
	struct err *err);
