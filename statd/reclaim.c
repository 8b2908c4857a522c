/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's link has appeared on the host: the kernel returns a link there when the namespace that
 * held it ends, as it was in the pod. The runtime may report the sandbox's end late or never.
 *
 *	LOCK pod ─▶ still in a sandbox, by its row: RECLAIM ─▶ RECORD
 *	no row:    the manager looks for leftovers (audit.c)
 *
 * A link that we have just taken out ourselves appears as well: its row names no sandbox by the time
 * that the lock is ours.
 */
#include <string.h>

#include "common/log.h"
#include "statd/flows.h"

struct appeared {
	struct statd *s;
	char *key, *pod_uid;
	struct lock lock;
};

static void on_locked(void *ctx);

static void appeared_end(struct appeared *a)
{
	struct statd *s = a->s;

	lock_release(s->locks, &a->lock);
	free(a->key);
	free(a->pod_uid);
	free(a);
	statd_job_end(s);
}

void device_appeared(struct statd *s, enum manager_type manager, const char *device)
{
	const struct table_row *at =
		table_index_first(s->tables.allocations, ALLOC_BY_DEVICE, device);
	struct appeared *a;

	if (!at && s->audited[manager]) {
		audit_manager(s, manager);
		return;
	}
	if (!at || !row_is_in_a_sandbox(alloc_row_of(at)) ||
		!str_equal(alloc_row_of(at)->manager, manager_type_name(manager)))
		return;
	a = xcalloc(1, sizeof(*a));
	a->s = s;
	a->key = xstrdup(at->key);
	a->pod_uid = xstrdup(alloc_row_of(at)->pod_uid);
	statd_job_begin(s);
	lock_take(s->locks, &a->lock, "pod", a->pod_uid, on_locked, a);
}

/* A row whose pod is not known may change under another pod's lock. */
static bool is_to_be_reclaimed(const struct appeared *a)
{
	const struct alloc_row *row = table_get(a->s->tables.allocations, a->key);

	return row && row_is_in_a_sandbox(row) && str_equal(row->pod_uid, a->pod_uid);
}

static void on_reclaimed(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct device_reclaim_result *r = result;
	struct appeared *a = ctx;
	struct alloc_row row;

	/* busy: it is in the sandbox, and what appeared was another */
	if (!err && !r->not_found.v && is_to_be_reclaimed(a) && row_take(a->s, a->key, &row)) {
		cleanup_free char *uid = xstrdup(row.claim_uid),
				  *sandbox_id = xstrdup(row.sandbox_id);

		LOG(WARN, FIELDS(F("claim", uid), F("device", row.device_name)),
			"the device came back by itself; its sandbox has ended");
		row_leave_sandbox(&row);
		row_put(a->s, &row);
		sandbox_drop_unused(a->s, sandbox_id);
		record_save_or_log(a->s, uid);
	}
	appeared_end(a);
}

static void on_locked(void *ctx)
{
	struct appeared *a = ctx;
	const struct alloc_row *row = table_get(a->s->tables.allocations, a->key);
	struct device_alloc alloc;

	if (!is_to_be_reclaimed(a)) {
		appeared_end(a);
		return;
	}
	alloc = row_alloc(row);
	(void)rpc_start(a->s->loop, statd_manager(a->s, manager_type_parse(row->manager)),
		API_DEVICE_RECLAIM, &alloc, NULL, 0, on_reclaimed, a);
}
