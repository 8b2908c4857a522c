/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a device and bringing it into its canonical form takes some ten microseconds, so a pool
 * of thousands is not compared for each change of one. A slice that was found right at some
 * revision of the table still is if it has the same devices and none of their rows changed since.
 */
#include "statd/slice_sync.h"

#include <string.h>

#include "statd/slice_limits.h"

/* --- begin and end ------------------------------------------------------------------------ */

struct offer {
	const struct table_row **rows;
	uint64_t *names;
	size_t n;
};

static void collect(const struct tables *tables, struct offer *ret)
{
	const size_t max = table_count(tables->devices) + 1;

	*ret = (struct offer){
		.rows = xcalloc(max, sizeof(*ret->rows)),
		.names = xcalloc(max, sizeof(*ret->names)),
	};
	for (const struct table_row *row = publish_first(tables); row;
		row = publish_next(row)) {
		ret->names[ret->n] = slice_name_hash(row->key);
		ret->rows[ret->n++] = row;
	}
}

/* Puts the rows of one slice together; their order in it stays. */
static void group(struct slice_sync *sync, const struct offer *offer, const size_t *slice_of)
{
	const size_t n_slices = sync->plan.n_slices;
	size_t *at = xcalloc(n_slices + 1, sizeof(*at));

	sync->rows = xcalloc(offer->n + 1, sizeof(*sync->rows));
	sync->first = xcalloc(n_slices + 1, sizeof(*sync->first));
	for (size_t i = 0; i < offer->n; i++)
		sync->first[slice_of[i] + 1]++;
	for (size_t i = 0; i < n_slices; i++)
		sync->first[i + 1] += sync->first[i];
	memcpy(at, sync->first, (n_slices + 1) * sizeof(*at));
	for (size_t i = 0; i < offer->n; i++)
		sync->rows[at[slice_of[i]]++] = offer->rows[i];
	free(at);
}

void slice_sync_begin(struct slice_sync *ret, const struct tables *tables,
	const struct slice_mirror *mirror, struct slice_bump bump)
{
	size_t n_records, n_hints, *slice_of;
	struct slice_record **records = slice_mirror_list(mirror, &n_records);
	struct slice_hint *hints;
	struct offer offer;

	*ret = (struct slice_sync){
		.tables = tables, .revision = table_revision(tables->devices)};
	collect(tables, &offer);
	slice_plan_match(&ret->plan, records, n_records, slice_count(offer.n), bump);
	hints = slice_plan_hints(&ret->plan, &n_hints);
	slice_of = xcalloc(offer.n + 1, sizeof(*slice_of));
	slice_layout(offer.names, offer.n, hints, n_hints, slice_of);
	group(ret, &offer, slice_of);
	free(slice_of);
	free(hints);
	free(offer.names);
	free(offer.rows);
	free(records);
}

bool slice_sync_is_outdated(const struct slice_sync *sync)
{
	return sync->revision != table_revision(sync->tables->devices);
}

void slice_sync_end(struct slice_sync *sync)
{
	slice_plan_fini(&sync->plan);
	free(sync->rows);
	free(sync->first);
	*sync = (struct slice_sync){0};
}

/* --- one slice ---------------------------------------------------------------------------- */

/* It was compared before, and nothing that it says has changed since. */
static bool is_verified(
	const struct slice_sync *sync, const struct slice_record *record, size_t index)
{
	const struct table_row *const *rows = sync->rows + sync->first[index];
	const size_t n = sync->first[index + 1] - sync->first[index];

	if (record->verified == 0 || record->n_members != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (rows[i]->revision > record->verified ||
			slice_name_hash(rows[i]->key) != record->members[i])
			return false;
	return true;
}

static uint64_t digest_of(const struct slice_sync *sync, const json_t *head, size_t index)
{
	struct slice_digest d;

	slice_digest_begin(&d, head);
	for (size_t i = sync->first[index]; i < sync->first[index + 1]; i++) {
		json_t *device = publish_device(device_row_of(sync->rows[i]));

		if (device)
			slice_digest_device(&d, device);
		json_decref(device);
	}
	return slice_digest_end(&d);
}

bool slice_sync_compare(struct slice_sync *sync, const json_t *head, size_t index)
{
	struct slice_record *record = sync->plan.slices[index];
	uint64_t digest;

	if (!record || is_verified(sync, record, index))
		return false;
	digest = digest_of(sync, head, index);
	sync->plan.changed[index] = digest != record->digest && digest != record->accepted;
	if (!sync->plan.changed[index])
		record->verified = sync->revision;
	return true;
}

static json_t *build_devices(const struct slice_sync *sync, size_t index)
{
	json_t *devices = json_array();

	for (size_t i = sync->first[index]; i < sync->first[index + 1]; i++) {
		json_t *device = publish_device(device_row_of(sync->rows[i]));

		if (device)
			(void)json_array_append_new(devices, device);
	}
	return devices;
}

static json_t *build_metadata(
	const json_t *head, const struct slice_record *record, const char *name)
{
	json_t *metadata = json_copy(json_object_get(head, "metadata"));

	if (record && record->attached) {
		json_t *attached = json_loads(record->attached, 0, NULL);

		(void)json_object_update(metadata, attached);
		json_decref(attached);
	}
	(void)json_object_set_new(metadata, "name", json_string(record ? record->name : name));
	if (record) {
		(void)json_object_set_new(metadata, "uid", json_string(record->uid));
		(void)json_object_set_new(
			metadata, "resourceVersion", json_string(record->resource_version));
	}
	return metadata;
}

json_t *slice_sync_build(const struct slice_sync *sync, const json_t *head, size_t index,
	const char *name, struct slice_sent *ret_sent)
{
	json_t *object = json_copy((json_t *)(uintptr_t)head), *devices, *device,
	       *spec = json_copy(json_object_get(head, "spec"));
	size_t i;

	(void)json_object_set_new(spec, "pool",
		json_pack("{s:O, s:I, s:I}", "name", json_object_get(spec, "nodeName"),
			"generation", (json_int_t)sync->plan.generation, "resourceSliceCount",
			(json_int_t)sync->plan.n_slices));
	devices = build_devices(sync, index);
	*ret_sent = (struct slice_sent){.revision = sync->revision};
	json_array_foreach (devices, i, device)
		slice_gated_add(&ret_sent->gated, device);
	if (json_array_size(devices) > 0)
		(void)json_object_set(spec, "devices", devices);
	json_decref(devices);
	(void)json_object_set_new(object, "spec", spec);
	(void)json_object_set_new(
		object, "metadata", build_metadata(head, sync->plan.slices[index], name));
	ret_sent->digest = slice_digest_object(object);
	return object;
}

const char *slice_sync_device(const struct slice_sync *sync, size_t index, size_t place)
{
	if (place >= sync->first[index + 1] - sync->first[index])
		return NULL;
	return sync->rows[sync->first[index] + place]->key;
}
