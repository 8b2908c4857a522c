/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An inventory before it is sent: whatever a device, a driver, a pod or an administrator named,
 * statd takes the message. A device that statd would refuse is left out, and a note says so.
 */

#include "common/api.h"

/* Whether statd takes this device: it is packed and unpacked by the API's table. */
int device_check(const struct device *device, struct err *err);

/* Makes the list one that statd takes: leaves out devices that do not pass device_check(), and
 * those beyond the limits, of which is_prepared says which ones stay before all others; the rest
 * stays by name. What was left out is in *ret_notes. Returns a hash of the devices. */
uint64_t device_list_fit(struct device_list *list,
	bool (*is_prepared)(const void *ctx, const char *device), const void *ctx,
	struct strlist *ret_notes);

/* Makes the list's notes such that statd takes them: printable, and not too long or too many. */
void device_list_fit_notes(struct device_list *list);
