/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpreparing a claim.
 *
 *	LOCK claim ─┬─▶ LOCK pods ─▶ LET GO ─┬─▶ answer ─▶ STATUS
 *	            └─▶ no rows: AUDIT ──────┘
 *
 * From the table alone: the claim's object may be gone or be another's by now. A claim that is
 * not in the table should have nothing in the kernel, and before that is answered the managers look:
 * something of it may be there, from a record that was lost. Each row is deleted when its device is
 * free; one whose device could not be freed stays, with the reason, for the kubelet's next try.
 *
 * The claim's status goes in the background. One of a claim that a template made ends with the claim,
 * which ends with its pod.
 */
#include <string.h>

#include "common/log.h"
#include "statd/flows.h"

struct unprepare {
	struct statd *s;
	struct rpc_call *call;
	struct claim_ref ref; /* own copies */
	struct lock lock;
	struct locks pods;
	size_t n_rows;
	bool status_goes; /* with the claim itself */
};

static void on_claim_locked(void *ctx);
static void on_pods_locked(void *ctx);

void unprepare_start(struct statd *s, struct rpc_call *call, const struct claim_ref *ref)
{
	struct unprepare *u = xcalloc(1, sizeof(*u));

	u->s = s;
	u->call = call;
	u->ref = (struct claim_ref){
		xstrdup(ref->namespace), xstrdup(ref->name), xstrdup(ref->uid)};
	statd_job_begin(s);
	lock_take(s->locks, &u->lock, "claim", u->ref.uid, on_claim_locked, u);
}

static void unprepare_end(struct unprepare *u)
{
	struct statd *s = u->s;

	locks_release(&u->pods);
	lock_release(s->locks, &u->lock);
	free(u->ref.namespace);
	free(u->ref.name);
	free(u->ref.uid);
	free(u);
	statd_job_end(s);
}

/* Its status, too, by what is in the queue now: a record without rows says that it is still due. */
static void remove_status(struct unprepare *u)
{
	struct statd *s = u->s;

	if (u->n_rows == 0 && !records_has(&s->records, u->ref.uid) && !s->options->claims_dir)
		return;
	if (u->status_goes && !s->options->claims_dir)
		status_queue_forget(&s->status, u->ref.uid);
	else
		status_queue_remove(&s->status, &u->ref);
}

static size_t count_rows(const struct unprepare *u)
{
	const struct table_row *row =
		table_index_first(u->s->tables.allocations, ALLOC_BY_CLAIM, u->ref.uid);
	size_t n = 0;

	for (; row; row = table_index_next(row, ALLOC_BY_CLAIM))
		n++;
	return n;
}

static void on_freed(void *ctx)
{
	remove_status(ctx);
}

static void on_let_go(void *ctx, const struct err *failure)
{
	struct unprepare *u = ctx;
	struct empty none = {0};
	struct err err = failure ? *failure : (struct err)ERR_INIT;

	/* what is free may be another claim's next */
	if (failure && count_rows(u) < u->n_rows)
		status_follow_rows(u->s, &u->ref);
	if (failure) {
		(void)err_wrap(&err, "unpreparing claim %s/%s", u->ref.namespace, u->ref.name);
		rpc_reply_err(u->call, &err);
		LOG(ERROR, FIELDS(F("claim", u->ref.uid), F("err", err.message)),
			"failed to free resources for claim");
	} else {
		rpc_reply(u->call, &none, NULL);
		LOG(INFO, FIELDS(F("claim", u->ref.uid)),
			u->n_rows ? "freed resources for claim"
				  : "no allocation found for claim");
	}
	unprepare_end(u);
}

/* The managers have found nothing of it, or freed that. */
static void on_audited(void *ctx, const struct err *failure)
{
	struct unprepare *u = ctx;
	struct err err;

	if (!failure) {
		remove_status(u);
		if (record_save(u->s, u->ref.uid, &err) < 0)
			failure = &err;
	}
	on_let_go(u, failure);
}

static void on_claim_locked(void *ctx)
{
	struct unprepare *u = ctx;
	const struct table_row *row =
		table_index_first(u->s->tables.allocations, ALLOC_BY_CLAIM, u->ref.uid);

	if (!row) {
		audit_claim(u->s, u->ref.uid, on_audited, u);
		return;
	}
	u->status_goes = alloc_row_of(row)->generated.v;
	locks_add(&u->pods, "pod", alloc_row_of(row)->pod_uid);
	add_pod_locks(u->s, u->ref.uid, &u->pods);
	locks_take(u->s->locks, &u->pods, on_pods_locked, u);
}

static void on_pods_locked(void *ctx)
{
	struct unprepare *u = ctx;
	const struct table_row *row =
		table_index_first(u->s->tables.allocations, ALLOC_BY_CLAIM, u->ref.uid);
	struct strlist keys = {0};

	for (; row; row = table_index_next(row, ALLOC_BY_CLAIM))
		strlist_add(&keys, row->key);
	u->n_rows = keys.n;
	let_go(u->s, &keys, on_freed, on_let_go, u);
}
