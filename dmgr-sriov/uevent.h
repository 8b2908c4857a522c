/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernel tells of devices that come, go and get another driver: kobject_uevent(), its
 * broadcast to NETLINK_KOBJECT_UEVENT. */

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "dmgr-sriov/pci.h"

struct uevent {
	const char *action, *subsystem, *devpath; /* borrowed; "" if not told */
};

/* A socket that does not block. */
int uevent_open(struct err *err);
/* One message as it came: "add@/devices/...", a NUL, then KEY=value, each with its NUL. False:
 * it is not one of the kernel's. text ends with a NUL of the caller's, which len does not count. */
bool uevent_parse(const char *text, size_t len, struct uevent *ret);
/* The PCI function that has the link which the event is about, of
 * ".../0000:01:00.0/net/ens1f0" and ".../0000:01:00.0/virtio3/net/ens1f0". False: it is about
 * something else. */
bool uevent_function(const struct uevent *e, char addr[static PCI_ADDR_SIZE]);
/* Whether a PCI function has appeared or vanished, or has another driver. */
bool uevent_is_of_pci(const struct uevent *e);
/* Calls each for all events that have arrived. False: the kernel had to drop some. */
bool uevent_drain(int fd, void (*each)(void *ctx, const struct uevent *e), void *ctx);
