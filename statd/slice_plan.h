/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which device is in which slice, and which slices are to be deleted, replaced and created: pure
 * functions, from what there is to what is to be done.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "statd/slice_mirror.h"

/* --- layout ------------------------------------------------------------------------------- */

/* Slices for n devices; never none, for an empty pool is not the same as no pool. */
size_t slice_count(size_t n_devices);

/* Where a device was last: its name, and its slice. */
struct slice_hint {
	uint64_t name; /* slice_name_hash() */
	size_t slice;
};

/* Fills ret_slice[i] for each of the devices, which are in the order of their names: a device
 * stays where a hint says that it was, if there still is that slice; the others fill free places,
 * first to last. So there are always as few slices as possible, and with no hints they are cut
 * from the sorted list. hints are sorted, in place; the first of several for one device counts. */
void slice_layout(const uint64_t *names, size_t n_devices, struct slice_hint *hints,
	size_t n_hints, size_t *ret_slice);

/* --- names -------------------------------------------------------------------------------- */

/* Hexadecimal digits of an index when there are so many slices: at least 5. */
unsigned slice_index_width(size_t n_slices);
/* The index that a slice's name begins with, in as many digits as that; -1: none. */
long slice_name_index(const char *name, size_t n_slices);
/* "00000-DRIVER-NODE-xxxxx": what the API server would make of generateName. Each call makes
 * another one. The caller's. */
char *slice_name_new(
	size_t index, size_t n_slices, const char *driver_name, const char *node_name);

/* --- operations --------------------------------------------------------------------------- */

/* A generation that was being brought to all slices when that was interrupted. */
struct slice_bump {
	int64_t from, to; /* to 0: none */
};

struct slice_plan {
	size_t n_slices;
	/* For each slice that there should be the record of the one that there is; NULL: none. */
	struct slice_record **slices;
	bool *changed; /* says something else than it should, and is replaced */
	struct slice_record **obsolete;
	size_t n_obsolete;
	int64_t highest;             /* generation that there is, 0: none */
	int64_t generation;          /* that all have in the end */
	size_t n_changed, n_missing; /* after slice_plan_decide() */
};

/* Finds the slices that there are among the records, which are in the order of their names.
 * Overwrites *ret; slice_plan_fini() frees it. */
void slice_plan_match(struct slice_plan *ret, struct slice_record *const *records, size_t n,
	size_t n_slices, struct slice_bump bump);
/* Hints of where devices are, from the records; also from those that are obsolete, for a slice
 * that is made anew gets the same devices. A new array, *ret_n its length. */
struct slice_hint *slice_plan_hints(const struct slice_plan *plan, size_t *ret_n);
/* Once changed[] says which slices have the wrong devices: what is to be written, and with which
 * generation. */
void slice_plan_decide(struct slice_plan *plan);
void slice_plan_fini(struct slice_plan *plan);
