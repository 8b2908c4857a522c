/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the node offers: from both tables and the configured pools to the devices of the node's
 * ResourceSlices (seed, "State management" and "Filter conflict rules"). Cutting them into slices
 * and writing these is a sink's work (slice_sink.h).
 */

#include "common/api.h"
#include "common/log.h"
#include "statd/config.h"
#include "statd/schema.h"

/* What of the devices cannot be published, whatever their pool: remembered, since finding it out
 * means opening a device. Zeroed to begin with. */
struct flaw;
struct flaws {
	struct flaw *flaws;
	uint64_t checked; /* devices that changed since this revision are looked at again */
};
void flaws_fini(struct flaws *flaws);
/* The API server refuses this device as it is now. It is hidden for as long as it stays so. */
void flaws_refuse(struct flaws *flaws, const struct device_row *row, const char *why);

/* Where a device is offered. */
struct placement {
	const char *pool; /* logical pool, borrowed from config or row; NULL: not offered */
	/* Why it is not offered, what of it is not, or which other pools match; NULL: all is
	 * well. */
	char *note;
	enum log_level level; /* of the note */
};

/* A device with allocations stays in the pool that they name, whatever the filters say now, and
 * is not offered if they name none, several, or one that is not configured any more. Any other
 * is in the first pool that takes it (pool_resolve()). *ret is overwritten; placement_fini()
 * frees. */
void publish_place(const struct tables *tables, const struct pool_list *pools,
	const struct flaws *flaws, const struct device_row *row, struct placement *ret);
void placement_fini(struct placement *placement);

/* Brings the columns pool and note of the devices table up to date, in one transaction, and
 * logs each note that is new: as an error where the seed wants one. Rows that are right are
 * left alone, so that a watcher of the table that calls this comes to rest. */
void publish_annotate(
	struct tables *tables, const struct pool_list *pools, struct flaws *flaws);
/* Of one device, whose allocations came or went; there may be none of this name. */
void publish_annotate_device(struct tables *tables, const struct pool_list *pools,
	const struct flaws *flaws, const char *name);

/* The devices that are offered, by what publish_annotate() made of them, in the order of their
 * names. */
const struct table_row *publish_first(const struct tables *tables);
const struct table_row *publish_next(const struct table_row *row);
/* One of them as it is in spec.devices: a new object, without what the API would refuse. NULL if
 * it cannot be published at all. */
json_t *publish_device(const struct device_row *row);

/* The attributes of one device as published: its own, the pool's name and its manager's. A new
 * object. */
json_t *publish_attributes(const struct device *device, const char *pool, const char *manager);
