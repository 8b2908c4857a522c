/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The definitions of the two tables: names, keys and indexes are the seed's. The order of each
 * index list is that of the enum in the header.
 */
#include "statd/schema.h"

static void device_key(const void *rec, struct buf *out)
{
	const struct device_row *row = rec;

	buf_puts(out, row->name);
}

static const char *device_manager(const void *rec)
{
	const struct device_row *row = rec;

	return row->manager;
}

static const struct table_index_def device_indexes[] = {
	[DEVICE_BY_MANAGER] = {"manager", device_manager},
};

static const struct table_def devices_def = {
	.name = TABLE_DEVICES,
	.rec = &rec_device_row,
	.key = device_key,
	.indexes = device_indexes,
	.n_indexes = ARRAY_SIZE(device_indexes),
};

static void alloc_key(const void *rec, struct buf *out)
{
	const struct alloc_row *row = rec;

	schema_alloc_key(row->logical_pool, row->device_name, row->share_id, out);
}

static const char *alloc_claim(const void *rec)
{
	const struct alloc_row *row = rec;

	return row->claim_uid;
}

static const char *alloc_device(const void *rec)
{
	const struct alloc_row *row = rec;

	return row->device_name;
}

static const char *alloc_pod(const void *rec)
{
	const struct alloc_row *row = rec;

	return row->pod_uid;
}

static const char *alloc_sandbox(const void *rec)
{
	const struct alloc_row *row = rec;

	return row->sandbox_id && *row->sandbox_id ? row->sandbox_id : NULL;
}

static const struct table_index_def alloc_indexes[] = {
	[ALLOC_BY_CLAIM] = {"claim-uid", alloc_claim},
	[ALLOC_BY_DEVICE] = {"device-name", alloc_device},
	[ALLOC_BY_POD] = {"pod-uid", alloc_pod},
	[ALLOC_BY_SANDBOX] = {"sandbox-id", alloc_sandbox},
};

static const struct table_def allocations_def = {
	.name = TABLE_ALLOCATIONS,
	.rec = &rec_alloc_row,
	.key = alloc_key,
	.indexes = alloc_indexes,
	.n_indexes = ARRAY_SIZE(alloc_indexes),
};

const char *schema_initializer(enum manager_type manager)
{
	static const char *const names[MANAGER_TYPE_MAX] = {
		[MANAGER_DUMMY] = "device-manager-dummy",
		[MANAGER_SRIOV] = "device-manager-sr-iov",
		[MANAGER_RXQUEUE] = "device-manager-rxQueue",
	};

	return names[manager];
}

void tables_init(struct tables *tables)
{
	tables->db = db_new();
	tables->devices = table_new(tables->db, &devices_def);
	tables->allocations = table_new(tables->db, &allocations_def);
}

void tables_fini(struct tables *tables)
{
	db_free(tables->db);
	*tables = (struct tables){0};
}

void schema_alloc_key(
	const char *logical_pool, const char *device, const char *share_id, struct buf *out)
{
	buf_printf(out, "%s/%s/%s", logical_pool ? logical_pool : "", device ? device : "",
		share_id ? share_id : "");
}

const struct device_row *device_row_get(const struct tables *tables, const char *name)
{
	return table_get(tables->devices, name);
}

const struct device_row *device_row_of(const struct table_row *row)
{
	return row ? row->rec : NULL;
}

const struct alloc_row *alloc_row_of(const struct table_row *row)
{
	return row ? row->rec : NULL;
}
