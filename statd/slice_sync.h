/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One comparison of what the devices table offers with the slices that there are, and the objects
 * to write: from tables and mirror to a plan. Nothing here is kept between two publications, and
 * only one slice at a time is a tree.
 */

#include "statd/publish.h"
#include "statd/slice_form.h"
#include "statd/slice_plan.h"

struct slice_sync {
	const struct tables *tables;
	uint64_t
		revision; /* of the devices table; rows are good for as long as it has this one */
	struct slice_plan plan;
	/* The offered devices, slice by slice: those of slice i are rows[first[i]] up to and
	 * without rows[first[i + 1]], in the order of their names. */
	const struct table_row **rows;
	size_t *first;
};

/* Both are borrowed until the end, and a record that goes ends it too. Overwrites *ret. */
void slice_sync_begin(struct slice_sync *ret, const struct tables *tables,
	const struct slice_mirror *mirror, struct slice_bump bump);
/* The table changed, the rows may be gone: nothing but the end is left to do. */
bool slice_sync_is_outdated(const struct slice_sync *sync);
void slice_sync_end(struct slice_sync *sync);

/* Sets plan.changed[index] by the devices. head is what all slices have: metadata's
 * ownerReferences, and spec without pool and devices. Whether it took more than a look. */
bool slice_sync_compare(struct slice_sync *sync, const json_t *head, size_t index);

/* What is written, and what an answer is compared with. */
struct slice_sent {
	uint64_t digest, revision;
	struct slice_gated gated;
};

/* The slice as it should be, with what somebody else attached to the one that there is. The
 * caller's. name: NULL if there is one. */
json_t *slice_sync_build(const struct slice_sync *sync, const json_t *head, size_t index,
	const char *name, struct slice_sent *ret_sent);
/* The device at this place of a slice that was built; NULL if it has none there. Borrowed. */
const char *slice_sync_device(const struct slice_sync *sync, size_t index, size_t place);
