/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report is the manager's whole inventory, and so it is worked off as a set: its devices
 * sorted by name, each put in, and then every row of this manager whose name is not among them
 * taken out. A report that says what the table says already changes nothing and wakes nobody.
 */
#include "statd/inventory.h"

#include <assert.h>
#include <string.h>

#include "common/log.h"

struct report {
	const char *manager;
	const struct device **devices; /* sorted by name, each name once */
	size_t n;
};

static bool is_text(const char *s)
{
	return s && *s;
}

/* Devices of one name stay in the order of the report. */
static int compare_devices(const void *a, const void *b)
{
	const struct device *const *da = a, *const *db = b;
	int order = strcmp((*da)->name, (*db)->name);

	return order ? order : (*da > *db) - (*da < *db);
}

static int compare_name(const void *name, const void *device)
{
	const struct device *const *d = device;

	return strcmp(name, (*d)->name);
}

static bool report_has(const struct report *r, const char *name)
{
	return r->n && bsearch(name, r->devices, r->n, sizeof(*r->devices), compare_name);
}

static void report_init(
	struct report *r, enum manager_type type, const struct device_list *list)
{
	size_t n = 0;

	*r = (struct report){
		.manager = manager_type_name(type),
		.devices = xcalloc(list->devices.n, sizeof(*r->devices)),
	};
	for (size_t i = 0; i < list->devices.n; i++) {
		const struct device *device = &list->devices.v[i];

		if (is_text(device->name))
			r->devices[n++] = device;
		else
			LOG(ERROR, FIELDS(F("manager", r->manager)),
				"device manager reported device without a name");
	}
	qsort(r->devices, n, sizeof(*r->devices), compare_devices);
	for (size_t i = 0; i < n; i++) {
		const char *name = r->devices[i]->name;

		if (r->n && strcmp(r->devices[r->n - 1]->name, name) == 0)
			LOG(ERROR, FIELDS(F("manager", r->manager), F("device", name)),
				"device manager reported two devices of this name");
		else
			r->devices[r->n++] = r->devices[i];
	}
}

static void put_device(
	struct tables *tables, const struct report *r, const struct device *device)
{
	const struct device_row *old = device_row_get(tables, device->name);
	struct device_row row = {0};
	struct err err = ERR_INIT;
	int outcome;

	if (old && !str_equal(old->manager, r->manager)) {
		LOG(ERROR, FIELDS(F("manager", r->manager), F("device", device->name)),
			"device is left out: manager %s has one of the same name",
			old->manager);
		return;
	}
	row.name = xstrdup(device->name);
	row.manager = xstrdup(r->manager);
	row.device = xcalloc(1, sizeof(*row.device));
	rec_copy(&rec_device, row.device, device);
	if (old) {
		row.pool = xstrdup_opt(old->pool);
		row.note = xstrdup_opt(old->note);
	}
	row.dev = packed_copy(row.device->state);
	outcome = old ? table_update(tables->devices, &row, &err)
		      : table_insert(tables->devices, &row, &err);
	assert(outcome >= 0); /* whether it is there was seen above */
}

static void remove_missing(struct tables *tables, const struct report *r)
{
	const struct table_row *at =
		table_index_first(tables->devices, DEVICE_BY_MANAGER, r->manager);

	while (at) {
		const char *name = at->key;

		at = table_index_next(at, DEVICE_BY_MANAGER);
		if (!report_has(r, name))
			(void)table_delete(tables->devices, name);
	}
}

void inventory_report(
	struct tables *tables, enum manager_type manager, const struct device_list *list)
{
	struct report r;

	report_init(&r, manager, list);
	db_begin(tables->db);
	remove_missing(tables, &r);
	for (size_t i = 0; i < r.n; i++)
		put_device(tables, &r, r.devices[i]);
	table_initialized(tables->devices, schema_initializer(manager));
	db_commit(tables->db);
	free(r.devices);
}
