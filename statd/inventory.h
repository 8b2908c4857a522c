/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The devices table's only writer of devices: a manager's report becomes rows.
 */

#include "common/api.h"
#include "statd/schema.h"

/* Makes the devices table say what `list`, the manager's complete inventory, says, in one
 * transaction; allocations are never touched. What discovery cannot see any more is kept from
 * the row that was there and, for a device that one claim has whole, from what was prepared
 * (device_merge()). A device without a name, with a name that came before in the list or with
 * one that another manager's device has is left out with an error in the log; the rest is
 * taken. Completes schema_initializer(manager). */
void inventory_report(
	struct tables *tables, enum manager_type manager, const struct device_list *list);

/* Keeps in `fresh`, a device just discovered, what `old`, the same device before, knew and
 * discovery cannot see: the kernel name of a VF whose interface is in some pod's namespace.
 * Other kinds of devices have nothing of the sort. */
void device_merge(enum manager_type manager, struct device *fresh, const struct device *old);
