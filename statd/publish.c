/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question is asked of each device: in which logical pool is it offered, and if in none,
 * why. publish_place() answers it from the tables, the configured pools and what is known to be
 * wrong with devices; the slices are made from the columns that people see, so that they cannot
 * differ.
 *
 * An allocation pins its device: a workload that was given it from one pool must not see it
 * move to another. Where allocations contradict each other, or name what is no longer there,
 * the device is not offered at all until they are gone.
 *
 * What the API would refuse of a device is looked for when the device changed, not each time
 * that it is placed. It says nothing of the pool, so it is looked for without one.
 */
#include "statd/publish.h"

#include <assert.h>
#include <string.h>

#include "common/hash.h"
#include "statd/slice_form.h"
#include "statd/slice_limits.h"

/* --- flaws -------------------------------------------------------------------------------- */

#define NOTE_MAX 1000 /* bytes: less than the column takes */

struct flaw {
	UT_hash_handle hh; /* by device */
	char *device, *note;
	bool hides;
	uint64_t
		refused; /* slice_device_hash() of what the server refused; 0: our own verdict */
};

static void flaw_drop(struct flaws *flaws, struct flaw *flaw)
{
	if (!flaw)
		return;
	HASH_DEL(flaws->flaws, flaw);
	free(flaw->device);
	free(flaw->note);
	free(flaw);
}

void flaws_fini(struct flaws *flaws)
{
	struct flaw *flaw, *next;

	HASH_ITER (hh, flaws->flaws, flaw, next) {
		flaw_drop(flaws, flaw);
	}
}

static struct flaw *flaw_of(const struct flaws *flaws, const char *device)
{
	struct flaw *flaw;

	HASH_FIND_STR(flaws->flaws, device, flaw);
	return flaw;
}

/* Takes note. */
static struct flaw *flaw_set(struct flaws *flaws, const char *device, char *note, bool hides)
{
	struct flaw *flaw;

	flaw_drop(flaws, flaw_of(flaws, device));
	flaw = xcalloc(1, sizeof(*flaw));
	flaw->device = xstrdup(device);
	flaw->note = note;
	flaw->hides = hides;
	HASH_ADD_KEYPTR(hh, flaws->flaws, flaw->device, strlen(flaw->device), flaw);
	return flaw;
}

static json_t *open_device(const struct device_row *row, const char *pool)
{
	const struct device *device = row->device;
	json_t *object = json_pack("{s:s, s:o}", "name", row->name, "attributes",
		publish_attributes(device, pool, row->manager));

	if (packed_size(device->capacity) > 0)
		(void)json_object_set_new(object, "capacity", packed_open(device->capacity));
	if (device->allow_multiple.v)
		(void)json_object_set_new(object, "allowMultipleAllocations", json_true());
	return object;
}

void flaws_refuse(struct flaws *flaws, const struct device_row *row, const char *why)
{
	json_t *device = open_device(row, "");
	struct flaw *flaw = flaw_set(flaws, row->name,
		xasprintf("device cannot be published: %.*s", NOTE_MAX / 2, why), true);

	flaw->refused = slice_device_hash(device);
	json_decref(device);
}

static void flaws_check(struct flaws *flaws, const struct device_row *row)
{
	struct flaw *flaw = flaw_of(flaws, row->name);
	json_t *device = open_device(row, "");
	char *note = NULL;
	int outcome;

	if (flaw && flaw->refused && flaw->refused == slice_device_hash(device)) {
		json_decref(device);
		return;
	}
	flaw_drop(flaws, flaw);
	outcome = slice_limits_apply(device, &note);
	if (outcome != 0)
		(void)flaw_set(flaws, row->name, note, outcome < 0);
	json_decref(device);
}

static void flaws_sweep(struct flaws *flaws, const struct tables *tables)
{
	struct flaw *flaw, *next;

	HASH_ITER (hh, flaws->flaws, flaw, next) {
		if (!device_row_get(tables, flaw->device))
			flaw_drop(flaws, flaw);
	}
}

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
		ret->level = LOG_ERROR;
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
		ret->level = LOG_ERROR;
	}
	strlist_fini(&names);
}

static void mind_flaw(const struct flaw *flaw, struct placement *ret)
{
	char *placed = ret->note;

	if (!flaw || !ret->pool)
		return;
	if (flaw->hides)
		ret->pool = NULL;
	ret->note = placed && !flaw->hides ? xasprintf("%s; %s", flaw->note, placed)
					   : xstrdup(flaw->note);
	if (strlen(ret->note) > NOTE_MAX) {
		ret->note[NOTE_MAX] = '\0';
		str_sanitize(ret->note); /* what is cut may have been in a character */
	}
	ret->level = MIN(ret->level, LOG_WARN);
	free(placed);
}

void publish_place(const struct tables *tables, const struct pool_list *pools,
	const struct flaws *flaws, const struct device_row *row, struct placement *ret)
{
	const struct table_row *allocation =
		table_index_first(tables->allocations, ALLOC_BY_DEVICE, row->name);

	*ret = (struct placement){.level = LOG_INFO};
	if (allocation)
		place_allocated(pools, allocation, ret);
	else
		place_free(pools, row, ret);
	mind_flaw(flaw_of(flaws, row->name), ret);
}

void placement_fini(struct placement *placement)
{
	free(placement->note);
	*placement = (struct placement){0};
}

static void log_placement(const struct device_row *row, const struct placement *p)
{
	log_record(p->level,
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

static void annotate_row(struct tables *tables, const struct pool_list *pools,
	const struct flaws *flaws, const struct device_row *row)
{
	struct placement p;

	publish_place(tables, pools, flaws, row, &p);
	annotate(tables->devices, row, &p);
	placement_fini(&p);
}

void publish_annotate_device(struct tables *tables, const struct pool_list *pools,
	const struct flaws *flaws, const char *name)
{
	const struct device_row *row = device_row_get(tables, name);

	if (row)
		annotate_row(tables, pools, flaws, row);
}

void publish_annotate(struct tables *tables, const struct pool_list *pools, struct flaws *flaws)
{
	const uint64_t begun = db_revision(tables->db);
	const struct table_row *at;

	db_begin(tables->db);
	for (at = table_first(tables->devices); at; at = table_next(at)) {
		if (at->revision > flaws->checked)
			flaws_check(flaws, device_row_of(at));
		annotate_row(tables, pools, flaws, device_row_of(at));
	}
	flaws_sweep(flaws, tables);
	flaws->checked = begun;
	db_commit(tables->db);
}

/* --- devices ------------------------------------------------------------------------------ */

json_t *publish_attributes(const struct device *device, const char *pool, const char *manager)
{
	json_t *attributes =
		device->attributes ? packed_open(device->attributes) : json_object();

	(void)json_object_set_new(attributes, "pool", json_pack("{s:s}", "string", pool));
	(void)json_object_set_new(
		attributes, "deviceManager", json_pack("{s:s}", "string", manager));
	return attributes;
}

static const struct table_row *offered(const struct table_row *row)
{
	while (row && !device_row_of(row)->pool)
		row = table_next(row);
	return row;
}

const struct table_row *publish_first(const struct tables *tables)
{
	return offered(table_first(tables->devices));
}

const struct table_row *publish_next(const struct table_row *row)
{
	return offered(table_next(row));
}

json_t *publish_device(const struct device_row *row)
{
	cleanup_free char *note = NULL;
	json_t *device = open_device(row, row->pool);

	if (slice_limits_apply(device, &note) >= 0)
		return device;
	json_decref(device);
	return NULL;
}
