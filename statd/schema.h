/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * statd's two tables (seed, "State management"): what the managers see, and what was prepared.
 */

#include "common/api.h"
#include "statd/table.h"

/* Who completes the tables: the allocations this one, the devices one of schema_initializer()
 * for each manager that is enabled. */
#define INITIALIZER_RESTORE "restore"
/* "device-manager-<type>": a constant. */
const char *schema_initializer(enum manager_type manager);

struct tables {
	struct db *db;
	struct table *devices;     /* struct device_row, keyed by name */
	struct table *allocations; /* struct alloc_row, keyed by schema_alloc_key() */
};

/* Indexes of the devices table. */
enum device_index {
	DEVICE_BY_MANAGER, /* "manager" */
};
/* Indexes of the allocations table. */
enum alloc_index {
	ALLOC_BY_CLAIM,  /* "claim-uid" */
	ALLOC_BY_DEVICE, /* "device-name" */
	ALLOC_BY_POD,    /* "pod-uid" */
	ALLOC_BY_SANDBOX, /* "sandbox-id"; beyond the seed's */
};

void tables_init(struct tables *tables);
void tables_fini(struct tables *tables);

/* LogicalPool/DeviceName/ShareID, into out; NULL reads as "". A pool's name has no slash, a
 * device's and a share's neither, so that no two allocations have one key. */
void schema_alloc_key(
	const char *logical_pool, const char *device, const char *share_id, struct buf *out);

/* Rows' records, typed. NULL if there is none. Borrowed. */
const struct device_row *device_row_get(const struct tables *tables, const char *name);
const struct device_row *device_row_of(const struct table_row *row);
const struct alloc_row *alloc_row_of(const struct table_row *row);
