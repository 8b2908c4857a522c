/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The devices table's only writer of devices: a manager's report becomes rows.
 */

#include "common/api.h"
#include "statd/schema.h"

/* Makes the devices table say what `list`, the manager's complete inventory, says, in one
 * transaction; allocations are never touched. A device without a name, with a name that came
 * before in the list or with one that another manager's device has is left out with an error in
 * the log; the rest is taken. Completes schema_initializer(manager). */
void inventory_report(
	struct tables *tables, enum manager_type manager, const struct device_list *list);
