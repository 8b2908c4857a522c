/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpreparing a claim.
 *
 *	LOCK claim ─▶ LOCK pod ─▶ DETACH ─▶ FREE ×n ─▶ RELEASE ─▶ answer
 *
 * From the table alone: the claim's object may be gone or be another's by now. A claim that is
 * not in the table is done. A device that is still in a sandbox is taken out first, for the
 * runtime may never have told that the sandbox ended. Each row is deleted when its device is
 * free; one whose device could not be freed stays, with the reason, for the kubelet's next try.
 * What the claim's status says of it is the store's to keep or let go.
 */
#include <string.h>

#include "common/log.h"
#include "statd/flows.h"

struct unprepare {
	struct statd *s;
	struct rpc_call *call;
	char *namespace, *name, *uid;
	struct lock claim_lock, pod_lock;
	struct strlist keys; /* of the claim's rows */
	size_t at;
	struct err err; /* of all that failed */
};

static void unprepare_answer(struct unprepare *u)
{
	struct statd *s = u->s;
	struct empty none = {0};

	if (u->err.kind != ERR_NONE) {
		(void)err_wrap(&u->err, "unpreparing claim %s/%s", u->namespace, u->name);
		LOG(ERROR, FIELDS(F("claim", u->uid), F("err", u->err.message)),
			"failed to free resources for claim");
		rpc_reply_err(u->call, &u->err);
	} else {
		LOG(INFO, FIELDS(F("claim", u->uid)),
			u->keys.n ? "freed resources for claim"
				  : "no allocation found for claim");
		rpc_reply(u->call, &none, NULL);
	}
	lock_release(s->locks, &u->pod_lock);
	lock_release(s->locks, &u->claim_lock);
	strlist_fini(&u->keys);
	free(u->namespace);
	free(u->name);
	free(u->uid);
	free(u);
	statd_job_end(s);
}

static void on_released(void *ctx, const struct err *err)
{
	struct unprepare *u = ctx;

	if (err)
		err_join(&u->err, err);
	unprepare_answer(u);
}

static void unprepare_end(struct unprepare *u)
{
	struct claim_ref ref = {u->namespace, u->name, u->uid};

	if (u->err.kind != ERR_NONE)
		unprepare_answer(u);
	else
		u->s->store->ops->release(u->s->store, &ref, on_released, u);
}

static void free_next(struct unprepare *u);

static void on_freed(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct unprepare *u = ctx;
	const char *key = u->keys.v[u->at++];

	if (err) {
		struct err wrapped = *err;
		const struct alloc_row *row = table_get(u->s->tables.allocations, key);

		(void)err_wrap(&wrapped, "device %s", row ? row->device_name : key);
		row_set_problem(u->s, key, &wrapped);
		err_join(&u->err, &wrapped);
	} else {
		(void)table_delete(u->s->tables.allocations, key);
	}
	free_next(u);
}

static void free_next(struct unprepare *u)
{
	for (; u->at < u->keys.n; u->at++) {
		const struct alloc_row *row =
			table_get(u->s->tables.allocations, u->keys.v[u->at]);
		struct device_alloc a;

		/* one that could not be detached is not freed under the pod's feet */
		if (!row || (row->sandbox_id && *row->sandbox_id))
			continue;
		a = row_alloc(row);
		(void)rpc_start(u->s->loop,
			statd_manager(u->s, manager_type_parse(row->manager)), API_DEVICE_FREE,
			&a, NULL, 0, on_freed, u);
		return;
	}
	unprepare_end(u);
}

static void detach_next(struct unprepare *u);

static void on_detached(void *ctx, const struct err *err)
{
	struct unprepare *u = ctx;

	if (err)
		err_join(&u->err, err);
	detach_next(u);
}

/* All rows of one sandbox at a time, so that its namespace is entered once. */
static void detach_next(struct unprepare *u)
{
	const struct table *table = u->s->tables.allocations;
	cleanup_free char *sandbox_id = NULL;
	struct strlist keys = {0};

	while (u->at < u->keys.n && !sandbox_id) {
		const struct alloc_row *row = table_get(table, u->keys.v[u->at++]);

		sandbox_id = row ? xstrdup_opt(row->sandbox_id) : NULL;
	}
	if (!sandbox_id) {
		u->at = 0;
		free_next(u);
		return;
	}
	strlist_add(&keys, u->keys.v[u->at - 1]);
	for (; u->at < u->keys.n; u->at++) {
		const struct alloc_row *row = table_get(table, u->keys.v[u->at]);

		if (row && !str_equal(row->sandbox_id, sandbox_id))
			break;
		if (row)
			strlist_add(&keys, u->keys.v[u->at]);
	}
	detach_rows(u->s, sandbox_id, &keys, on_detached, u);
}

static void on_pod_locked(void *ctx)
{
	detach_next(ctx);
}

static void on_claim_locked(void *ctx)
{
	struct unprepare *u = ctx;
	const struct table_row *row =
		table_index_first(u->s->tables.allocations, ALLOC_BY_CLAIM, u->uid);
	cleanup_free char *pod_uid = row ? xstrdup_opt(alloc_row_of(row)->pod_uid) : NULL;

	for (; row; row = table_index_next(row, ALLOC_BY_CLAIM))
		strlist_add(&u->keys, row->key);
	if (u->keys.n == 0) {
		unprepare_end(u);
		return;
	}
	lock_take(u->s->locks, &u->pod_lock, "pod", pod_uid ? pod_uid : "", on_pod_locked, u);
}

void unprepare_start(struct statd *s, struct rpc_call *call, const struct claim_ref *ref)
{
	struct unprepare *u = xcalloc(1, sizeof(*u));

	u->s = s;
	u->call = call;
	u->namespace = xstrdup(ref->namespace);
	u->name = xstrdup(ref->name);
	u->uid = xstrdup(ref->uid);
	statd_job_begin(s);
	lock_take(s->locks, &u->claim_lock, "claim", u->uid, on_claim_locked, u);
}
