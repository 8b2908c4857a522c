/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question is asked of each device: in which logical pool is it offered, and if in none,
 * why. publish_place() answers it from the tables and the configured pools alone; the slices
 * and the columns that people see are both made from its answers, so that they cannot differ.
 *
 * An allocation pins its device: a workload that was given it from one pool must not see it
 * move to another. Where allocations contradict each other, or name what is no longer there,
 * the device is not offered at all until they are gone.
 */
#include "statd/publish.h"

#include <assert.h>
#include <string.h>

#include "common/log.h"

static const struct rec_field slice_device_fields[] = {
	REC_STR(struct slice_device, name, "name", REC_REQUIRED, 0, NULL, "unique in the pool"),
	REC_OBJECT(struct slice_device, attributes, "attributes", REC_OPTIONAL,
		"name -> {string|int|bool|version: value}"),
	REC_OBJECT(struct slice_device, capacity, "capacity", REC_OPTIONAL,
		"name -> {value, requestPolicy}"),
	REC_BOOL(struct slice_device, allow_multiple, "allowMultipleAllocations", REC_OPTIONAL,
		"several claims may share it"),
};
REC_DESC(rec_slice_device, struct slice_device, "a device", slice_device_fields, NULL,
	"a device of a ResourceSlice");

static const struct rec_field slice_fields[] = {
	REC_RECS(struct slice, devices, "devices", REC_OPTIONAL, SLICE_MAX_DEVICES,
		struct slice_device, &rec_slice_device, "sorted by name"),
};
REC_DESC(rec_slice, struct slice, "a slice", slice_fields, NULL, "a part of the node's pool");

static const struct rec_field node_pool_fields[] = {
	REC_RECS(struct node_pool, slices, "slices", REC_REQUIRED, 0, struct slice, &rec_slice,
		"at least one"),
};
REC_DESC(rec_node_pool, struct node_pool, "a pool", node_pool_fields, NULL,
	"all that the node offers");

/* --- placement ---------------------------------------------------------------------------- */

/* Names in a note; with 64 bytes each it stays well under the column's 1024. */
#define NOTE_MAX_POOLS 8

static char *note_pools(const char *text, const struct strlist *names)
{
	struct buf note = BUF_INIT;

	buf_puts(&note, text);
	for (size_t i = 0; i < MIN(names->n, (size_t)NOTE_MAX_POOLS); i++)
		buf_printf(&note, "%s %s", i ? "," : ":", names->v[i]);
	if (names->n > NOTE_MAX_POOLS)
		buf_printf(&note, " and %zu more", names->n - NOTE_MAX_POOLS);
	return buf_take(&note);
}

/* at is the first allocation of the device, which has at least one. */
static void place_allocated(
	const struct pool_list *pools, const struct table_row *at, struct placement *ret)
{
	struct strlist names = {0};
	const struct pool *pool;

	for (; at; at = table_index_next(at, ALLOC_BY_DEVICE)) {
		const char *name = alloc_row_of(at)->logical_pool;

		if (!name)
			name = "";
		if (!strlist_has(&names, name))
			strlist_add(&names, name);
	}
	pool = names.n == 1 ? pool_find(pools, names.v[0]) : NULL;
	if (strlist_has(&names, "")) {
		ret->note = xstrdup("device has an allocation from no pool");
	} else if (names.n > 1) {
		ret->note = note_pools("device has allocations from multiple pools", &names);
		ret->conflict = true;
	} else if (!pool || !pool->filter) {
		ret->note = note_pools(
			"device has an allocation from a pool that is not configured", &names);
	} else {
		ret->pool = pool->name;
	}
	strlist_fini(&names);
}

static void place_free(
	const struct pool_list *pools, const struct device_row *row, struct placement *ret)
{
	struct strlist names = {0};
	const struct pool *pool =
		pool_resolve(pools, manager_type_parse(row->manager), row->device, &names);

	if (!pool) {
		ret->note = xstrdup("device matches no pool");
		return;
	}
	ret->pool = pool->name;
	if (names.n > 1) {
		ret->note = note_pools("device matches multiple pools", &names);
		ret->conflict = true;
	}
	strlist_fini(&names);
}

/* The API refuses a whole slice for one device that says too much. */
static void refuse_oversized(const struct device *device, struct placement *ret)
{
	const size_t own = 2; /* pool and deviceManager */
	size_t n =
		json_object_size(device->attributes) + json_object_size(device->capacity) + own;

	if (!ret->pool || n <= SLICE_MAX_ENTRIES)
		return;
	placement_fini(ret);
	ret->note = xasprintf(
		"device has %zu attributes and capacities, at most %d can be published", n,
		SLICE_MAX_ENTRIES);
}

void publish_place(const struct tables *tables, const struct pool_list *pools,
	const struct device_row *row, struct placement *ret)
{
	const struct table_row *allocation =
		table_index_first(tables->allocations, ALLOC_BY_DEVICE, row->name);

	*ret = (struct placement){0};
	if (allocation)
		place_allocated(pools, allocation, ret);
	else
		place_free(pools, row, ret);
	refuse_oversized(row->device, ret);
}

void placement_fini(struct placement *placement)
{
	free(placement->note);
	*placement = (struct placement){0};
}

static void log_placement(const struct device_row *row, const struct placement *p)
{
	log_record(p->conflict ? LOG_ERROR : LOG_INFO,
		FIELDS(F("device", row->name), F("manager", row->manager), F("pool", p->pool)),
		"%s", p->note);
}

static void annotate(
	struct table *devices, const struct device_row *row, const struct placement *p)
{
	struct device_row noted;
	struct err err = ERR_INIT;
	int outcome;

	if (str_equal(row->pool, p->pool) && str_equal(row->note, p->note))
		return;
	if (p->note && !str_equal(row->note, p->note))
		log_placement(row, p);
	rec_copy(&rec_device_row, &noted, row);
	free(noted.pool);
	free(noted.note);
	noted.pool = xstrdup_opt(p->pool);
	noted.note = xstrdup_opt(p->note);
	outcome = table_update(devices, &noted, &err);
	assert(outcome >= 0); /* the row is in the caller's hands */
}

void publish_annotate(struct tables *tables, const struct pool_list *pools)
{
	const struct table_row *at;

	db_begin(tables->db);
	for (at = table_first(tables->devices); at; at = table_next(at)) {
		struct placement p;

		publish_place(tables, pools, device_row_of(at), &p);
		annotate(tables->devices, device_row_of(at), &p);
		placement_fini(&p);
	}
	db_commit(tables->db);
}

/* --- slices ------------------------------------------------------------------------------- */

static struct slice *add_slice(struct node_pool *pool)
{
	struct slice *slice;

	pool->slices.v = xrealloc(pool->slices.v, pool->slices.n + 1, sizeof(*pool->slices.v));
	slice = &pool->slices.v[pool->slices.n++];
	slice->devices.v = xcalloc(SLICE_MAX_DEVICES, sizeof(*slice->devices.v));
	slice->devices.n = 0;
	return slice;
}

static struct slice_device *add_device(struct node_pool *pool)
{
	struct slice *last = &pool->slices.v[pool->slices.n - 1];

	if (last->devices.n == SLICE_MAX_DEVICES)
		last = add_slice(pool);
	return &last->devices.v[last->devices.n++];
}

json_t *publish_attributes(const struct device *device, const char *pool, const char *manager)
{
	json_t *attributes =
		device->attributes ? json_copy(device->attributes) : json_object();

	(void)json_object_set_new(attributes, "pool", json_pack("{s:s}", "string", pool));
	(void)json_object_set_new(
		attributes, "deviceManager", json_pack("{s:s}", "string", manager));
	return attributes;
}

static void fill_device(
	struct slice_device *to, const struct device_row *row, const struct placement *p)
{
	const struct device *device = row->device;

	to->name = xstrdup(row->name);
	to->attributes = publish_attributes(device, p->pool, row->manager);
	if (json_object_size(device->capacity) > 0)
		to->capacity = json_incref(device->capacity);
	if (device->allow_multiple.v)
		to->allow_multiple = (struct rec_bool){.v = true, .set = true};
}

void publish_build(
	const struct tables *tables, const struct pool_list *pools, struct node_pool *ret)
{
	const struct table_row *at;

	*ret = (struct node_pool){0};
	(void)add_slice(ret);
	for (at = table_first(tables->devices); at; at = table_next(at)) {
		struct placement p;

		publish_place(tables, pools, device_row_of(at), &p);
		if (p.pool)
			fill_device(add_device(ret), device_row_of(at), &p);
		placement_fini(&p);
	}
}
