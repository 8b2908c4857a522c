/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the node offers: from both tables and the configured pools to the devices of the node's
 * ResourceSlices (seed, "State management" and "Filter conflict rules"). Writing them to a
 * store is another module's work.
 */

#include "common/api.h"
#include "statd/config.h"
#include "statd/schema.h"

/* maxDevicesPerResourceSlice of the seed; the API takes 128 of our kind, 64 of others. */
#define SLICE_MAX_DEVICES 64
/* Attributes and capacities of one device that the API takes. */
#define SLICE_MAX_ENTRIES 32

/* A device as resource.k8s.io/v1 has it in spec.devices. */
struct slice_device {
	char *name;
	json_t *attributes;
	json_t *capacity;               /* NULL: none */
	struct rec_bool allow_multiple; /* set only when true */
};
extern const struct rec_desc rec_slice_device;

struct slice {
	struct REC_LIST(struct slice_device) devices; /* at most SLICE_MAX_DEVICES */
};
extern const struct rec_desc rec_slice; /* encodes as {"devices": […]} */

/* The node's one DRA pool, named after the node: never without a slice, for an empty pool is
 * not the same as no pool. */
struct node_pool {
	struct REC_LIST(struct slice) slices;
};
extern const struct rec_desc rec_node_pool;

/* Where a device is offered. */
struct placement {
	const char *pool; /* logical pool, borrowed from config or row; NULL: not offered */
	char *note; /* why it is not offered, or which other pools match; NULL: all is well */
	bool conflict; /* the note is about filters or allocations that contradict each other */
};

/* A device with allocations stays in the pool that they name, whatever the filters say now, and
 * is not offered if they name none, several, or one that is not configured any more. Any other
 * is in the first pool that takes it (pool_resolve()). *ret is overwritten; placement_fini()
 * frees. */
void publish_place(const struct tables *tables, const struct pool_list *pools,
	const struct device_row *row, struct placement *ret);
void placement_fini(struct placement *placement);

/* Brings the columns pool and note of the devices table up to date, in one transaction, and
 * logs each note that is new: as an error where the seed wants one. Rows that are right are
 * left alone, so that a watcher of the table that calls this comes to rest. */
void publish_annotate(struct tables *tables, const struct pool_list *pools);

/* The slices, sorted by device name, from the tables as they are now. *ret is overwritten;
 * rec_fini(&rec_node_pool, ret) frees it. */
void publish_build(
	const struct tables *tables, const struct pool_list *pools, struct node_pool *ret);
/* The attributes of one device as published: its own, the pool's name and its manager's. A new
 * object. */
json_t *publish_attributes(const struct device *device, const char *pool, const char *manager);
