/* SPDX-License-Identifier: Apache-2.0 */
/* What the flows share: rows in and out of the allocations table, and failures added up. */
#include "statd/flows.h"

#include "common/log.h"

struct device_alloc row_alloc(const struct alloc_row *row)
{
	return (struct device_alloc){
		.device = row->prepared,
		.claim_uid = row->claim_uid,
		.share_id = row->share_id,
		.consumed_capacity = row->consumed_capacity,
		.config = row->config,
	};
}

const char *row_key(const struct alloc_row *row, struct buf *out)
{
	schema_alloc_key(row->logical_pool, row->device_name, row->share_id, out);
	return out->data;
}

bool row_take(const struct statd *s, const char *key, struct alloc_row *ret)
{
	const struct alloc_row *row = table_get(s->tables.allocations, key);

	if (!row)
		return false;
	rec_copy(&rec_alloc_row, ret, row);
	return true;
}

void row_put(struct statd *s, struct alloc_row *row)
{
	struct err err;

	if (table_update(s->tables.allocations, row, &err) < 0)
		LOG(ERROR, FIELDS(F("err", err.message)), "an allocation's row is gone");
}

void row_set_problem(struct statd *s, const char *key, const struct err *err)
{
	struct alloc_row row;

	if (!row_take(s, key, &row))
		return;
	free(row.problem);
	row.problem = err ? xstrdup(err->message) : NULL;
	row_put(s, &row);
}

/* A function bound to vfio-pci. One that its manager has not rebuilt yet has no attributes
 * either, and may have a link. */
static bool has_no_link(enum manager_type manager, const struct device *prepared)
{
	return manager == MANAGER_SRIOV && prepared->attributes && !prepared->kernel_if_name;
}

bool row_moves_link(const struct alloc_row *row)
{
	enum manager_type manager = manager_type_parse(row->manager);

	/* a receive queue is leased to the pod's own interface; nothing moves */
	if (manager != MANAGER_DUMMY && manager != MANAGER_SRIOV)
		return false;
	return !has_no_link(manager, row->prepared);
}

bool row_is_attached(const struct alloc_row *row, const char *sandbox_id)
{
	return str_equal(row->sandbox_id, sandbox_id) && !row->problem;
}

void err_join(struct err *all, const struct err *err)
{
	struct err first = *all;

	if (first.kind == ERR_NONE) {
		*all = *err;
		return;
	}
	(void)err_set(all, first.kind, "%s; %s", first.message, err->message);
}
