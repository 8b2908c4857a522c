/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernel tells of devices that come, go and get another driver: kobject_uevent(), its
 * broadcast to NETLINK_KOBJECT_UEVENT. */

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

struct uevent {
	const char *action, *subsystem, *devpath; /* borrowed; "" if not told */
};

/* A socket that does not block. */
int uevent_open(struct err *err);
/* One message as it came: "add@/devices/...", a NUL, then KEY=value, each with its NUL. False:
 * it is not one of the kernel's. text ends with a NUL of the caller's, which len does not count. */
bool uevent_parse(const char *text, size_t len, struct uevent *ret);
/* Whether the set of virtual functions or a name in it may be another now. sys_fd: the root of
 * sysfs, where it is seen whether a link is a physical function's. */
bool uevent_matters(const struct uevent *e, int sys_fd);
/* Reads all there is; whether one of them matters. */
bool uevent_drain(int fd, int sys_fd);
