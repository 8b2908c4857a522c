/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preparing a claim.
 *
 *	LOCK ─▶ READ ─▶ PLAN ─▶ SETUP ×n ─▶ STATUS ─▶ COMMIT ─▶ answer
 *	                 │         │           │
 *	                 │         └────▶ UNDO ×m ─▶ answer with the first error
 *	                 └▶ answer with what is wrong
 *
 * The order is what makes a crash at any point safe. Nothing is touched before the whole claim
 * was found to be right. A device that is set up is not ours to forget before the claim's
 * status says so; the row comes after the status, so that a row never says what a restart could
 * not restore. If the process dies between SETUP and STATUS, the kubelet asks again, and a
 * manager's setup of what is there already is a no-op.
 *
 * Any failure frees what this call set up, in reverse order, and nothing that an earlier one
 * did.
 */
#include <string.h>

#include "common/log.h"
#include "statd/claim.h"
#include "statd/flows.h"
#include "statd/hold.h"

struct prepare {
	struct statd *s;
	struct rpc_call *call;
	struct claim_ref ref; /* own copies */
	struct lock lock;
	struct claim claim;
	struct plan plan;
	size_t at; /* item that is set up, or freed */
	struct err err;
};

static void prepare_free(struct prepare *p)
{
	struct statd *s = p->s;

	hold_release_claim(&s->holds, p->ref.uid);
	lock_release(s->locks, &p->lock);
	plan_fini(&p->plan);
	rec_fini(&rec_claim, &p->claim);
	free(p->ref.namespace);
	free(p->ref.name);
	free(p->ref.uid);
	free(p);
	statd_job_end(s);
}

static void prepare_refuse(struct prepare *p)
{
	(void)err_wrap(&p->err, "preparing claim %s/%s", p->ref.namespace, p->ref.name);
	LOG(WARN,
		FIELDS(F("claim", p->ref.uid), F("pod", p->plan.pod_uid),
			F("err", p->err.message)),
		"claim not prepared");
	event_claim(p->s, &p->ref, EVENT_PREPARE_FAILED, p->err.message);
	rpc_reply_err(p->call, &p->err);
	prepare_free(p);
}

/* --- UNDO --------------------------------------------------------------------------------- */

static void undo_next(struct prepare *p);

static struct device_alloc item_alloc(
	const struct prepare *p, struct plan_item *item, struct device *device)
{
	return (struct device_alloc){
		.device = device,
		.claim_uid = p->ref.uid,
		.share_id = item->result->share_id,
		.consumed_capacity = item->result->consumed_capacity,
		.config = &item->config,
	};
}

static void on_undone(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct prepare *p = ctx;

	if (err)
		LOG(WARN,
			FIELDS(F("claim", p->ref.uid),
				F("device", p->plan.items[p->at].result->device),
				F("err", err->message)),
			"failed to free device during rollback");
	undo_next(p);
}

static void undo_next(struct prepare *p)
{
	while (p->at > 0) {
		struct plan_item *item = &p->plan.items[--p->at];
		struct device_alloc a;

		if (!item->prepared)
			continue;
		a = item_alloc(p, item, item->prepared);
		(void)rpc_start(p->s->loop, statd_manager(p->s, item->manager), API_DEVICE_FREE,
			&a, NULL, 0, on_undone, p);
		return;
	}
	prepare_refuse(p);
}

static void prepare_fail(struct prepare *p, const struct err *err)
{
	p->err = *err;
	undo_next(p);
}

/* --- COMMIT ------------------------------------------------------------------------------- */

/* A reused row whose claim was reserved for another pod since follows it. */
static void follow_pod(struct statd *s, const struct plan *plan, const struct plan_item *item)
{
	cleanup_buf struct buf key = BUF_INIT;
	struct alloc_row row;

	if (strcmp(item->reuse->pod_uid, plan->pod_uid) == 0 ||
		!row_take(s, row_key(item->reuse, &key), &row))
		return;
	free(row.pod_uid);
	row.pod_uid = xstrdup(plan->pod_uid);
	row_put(s, &row);
}

static void commit(struct prepare *p)
{
	struct claim_prepare_result result;
	struct statd *s = p->s;
	size_t fresh = 0;
	char count[16];

	db_begin(s->tables.db);
	for (size_t i = 0; i < p->plan.n_items; i++) {
		struct plan_item *item = &p->plan.items[i];
		struct alloc_row row;
		struct err err;

		if (item->reuse) {
			follow_pod(s, &p->plan, item);
			continue;
		}
		plan_row(&p->plan, item, &row);
		if (table_insert(s->tables.allocations, &row, &err) < 0)
			LOG(ERROR, FIELDS(F("claim", p->ref.uid), F("err", err.message)),
				"an allocation's row is there already");
		fresh++;
	}
	db_commit(s->tables.db);
	(void)snprintf(count, sizeof(count), "%zu", fresh);
	LOG(INFO,
		FIELDS(F("claim", p->ref.uid), F("pod", p->plan.pod_uid), F("devices", count)),
		fresh ? "claim prepared" : "claim was prepared already");
	plan_result(&p->plan, &result);
	rpc_reply(p->call, &result, NULL);
	rec_fini(api_method_info(API_CLAIM_PREPARE)->result, &result);
	prepare_free(p);
}

/* --- STATUS ------------------------------------------------------------------------------- */

static void on_status_written(void *ctx, const struct err *err)
{
	struct prepare *p = ctx;
	struct err wrapped;

	if (!err) {
		commit(p);
		return;
	}
	wrapped = *err;
	(void)err_wrap(
		&wrapped, "failed to update claim %s/%s status", p->ref.namespace, p->ref.name);
	prepare_fail(p, &wrapped);
}

static bool status_is_complete(const struct plan *plan)
{
	for (size_t i = 0; i < plan->n_items; i++)
		if (!plan->items[i].in_status || !plan->items[i].reuse)
			return false;
	return true;
}

static void write_status(struct prepare *p)
{
	const char *driver = p->s->config.spec.driver_name;
	json_t *devices;
	struct err err;

	if (status_is_complete(&p->plan)) {
		commit(p);
		return;
	}
	if (plan_status(&p->plan, driver, wall_ms(), &devices, &err) < 0) {
		prepare_fail(p, &err);
		return;
	}
	p->s->store->ops->write_status(
		p->s->store, &p->claim, driver, devices, on_status_written, p);
	json_decref(devices);
}

/* --- SETUP -------------------------------------------------------------------------------- */

static void setup_next(struct prepare *p);

static void setup_failed(struct prepare *p, const struct err *err)
{
	struct err wrapped = *err;

	(void)err_wrap(
		&wrapped, "failed to prepare device %s", p->plan.items[p->at].result->device);
	prepare_fail(p, &wrapped);
}

static void on_set_up(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	struct prepare *p = ctx;
	struct plan_item *item = &p->plan.items[p->at];
	const struct device_result *r = result;

	if (err) {
		setup_failed(p, err);
		return;
	}
	item->prepared = xcalloc(1, sizeof(*item->prepared));
	rec_copy(&rec_device, item->prepared, r->device);
	p->at++;
	setup_next(p);
}

static void setup_item(struct prepare *p, struct plan_item *item)
{
	const struct device_row *row = device_row_get(&p->s->tables, item->result->device);
	const struct pool *pool;
	struct device_alloc a;
	struct err err;

	if (!row) {
		(void)err_set(&err, ERR_NOT_FOUND, "it has left the inventory meanwhile");
		setup_failed(p, &err);
		return;
	}
	pool = pool_resolve(&p->s->config.spec.pools, item->manager, row->device, NULL);
	item->logical_pool = xstrdup(pool ? pool->name : "");
	a = item_alloc(p, item, row->device);
	(void)rpc_start(p->s->loop, statd_manager(p->s, item->manager), API_DEVICE_SETUP, &a,
		NULL, 0, on_set_up, p);
}

static void setup_next(struct prepare *p)
{
	while (p->at < p->plan.n_items && p->plan.items[p->at].reuse)
		p->at++;
	if (p->at < p->plan.n_items)
		setup_item(p, &p->plan.items[p->at]);
	else
		write_status(p);
}

/* --- READ, PLAN --------------------------------------------------------------------------- */

static int take_holds(struct prepare *p, struct err *err)
{
	for (size_t i = 0; i < p->plan.n_items; i++) {
		const struct claim_result *r = p->plan.items[i].result;

		if (hold_take(&p->s->holds, r->device, r->share_id, p->ref.uid, err) < 0)
			return -1;
	}
	return 0;
}

static void on_claim_read(void *ctx, const struct err *err, const json_t *claim)
{
	struct prepare *p = ctx;
	const char *driver = p->s->config.spec.driver_name;

	if (err) {
		p->err = *err;
		prepare_refuse(p);
		return;
	}
	if (claim_decode(claim, &p->claim, &p->err) < 0 ||
		plan_make(&p->s->tables, driver, &p->claim, p->ref.uid, &p->plan, &p->err) <
			0 ||
		take_holds(p, &p->err) < 0) {
		prepare_refuse(p);
		return;
	}
	setup_next(p);
}

static void on_locked(void *ctx)
{
	struct prepare *p = ctx;

	p->s->store->ops->get_claim(
		p->s->store, p->ref.namespace, p->ref.name, on_claim_read, p);
}

void prepare_start(struct statd *s, struct rpc_call *call, const struct claim_ref *ref)
{
	struct prepare *p = xcalloc(1, sizeof(*p));

	p->s = s;
	p->call = call;
	p->ref = (struct claim_ref){
		xstrdup(ref->namespace), xstrdup(ref->name), xstrdup(ref->uid)};
	statd_job_begin(s);
	lock_take(s->locks, &p->lock, "claim", p->ref.uid, on_locked, p);
}
