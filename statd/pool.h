/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Logical pools: which devices a pool's filter takes (seed, "Pool filters" and "Filter conflict
 * rules"). Pure functions of records.
 */

#include "common/api.h"
#include "common/rec.h"

/* A device is in if every list that is not empty takes it; what each means to a kind of device
 * is pool.c's table. Names of interfaces may be alternative ones. */
struct pool_filter {
	struct strlist device_managers; /* types; the case does not matter */
	struct strlist if_names;        /* on the host */
	struct strlist pf_names;
	struct strlist parent_if_names;
	struct strlist pci_addrs;
	struct strlist vendor_ids;
	struct strlist device_ids;
	struct strlist drivers;
};
extern const struct rec_desc rec_pool_filter;

struct pool {
	char *name;
	struct pool_filter *filter; /* NULL: takes nothing; empty: takes everything */
};
extern const struct rec_desc rec_pool;

struct pool_list {
	struct REC_LIST(struct pool) pools;
};

/* Whether pool's filter takes the device. manager is the type that reported it. */
bool pool_match(
	const struct pool *pool, enum manager_type manager, const struct device *device);

/* The pool that takes the device: the first by byte order of the names. NULL if none does.
 * Borrowed from pools. If ret_matches is not NULL, the names of all that do are added to it,
 * sorted. */
const struct pool *pool_resolve(const struct pool_list *pools, enum manager_type manager,
	const struct device *device, struct strlist *ret_matches);

/* The pool of this name, or NULL. */
const struct pool *pool_find(const struct pool_list *pools, const char *name);

/* Why the pool does or does not take the device, the caller's to free:
 *	pool fast-net: takes it
 *	pool fast-net: ifNames does not contain dummy7
 *	pool fast-net: pciAddrs is set, which no dummy device matches
 *	pool fast-net: has no filter and takes nothing */
char *pool_explain(
	const struct pool *pool, enum manager_type manager, const struct device *device);
