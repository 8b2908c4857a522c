/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preparing a claim.
 *
 *	LOCK claim ─▶ READ ─▶ LOCK pods ─▶ PLAN ─▶ LET GO ─▶ RECORD ─▶ SETUP, RECORD ×n ─▶ answer ─▶ STATUS
 *	               │                    │        │          │         │
 *	               └────────────────────┴────────┴──────────┘         └─▶ UNDO ×m ─▶ answer with the
 *	                    answer with what is wrong                                    first error
 *
 * The order is what makes a crash at any point safe. Nothing is touched before the whole claim was
 * found to be right. What the claim holds and is not allocated any more is let go of; then the plan is
 * made again, since another claim may have taken a device meanwhile. Then the rows are inserted,
 * unfinished, and the record written: from here on nobody else gets the devices, and a restart knows
 * what may have been done. A device that would not tell afterwards how it was is observed before it is
 * set up, and that recorded. Each device that is set up is recorded, with what its manager needs to put
 * it back. With the last one all rows are finished, its pods are marked, and the claim is prepared.
 *
 * The claim's status is for users and for the next boot; it is written when the kubelet has its answer,
 * unless statd was told to wait for it (--wait-for-status).
 *
 * Any failure frees what this call set up, in reverse order, and what an earlier one has left
 * unfinished; nothing that was prepared before. A manager that did not answer in time may do the work
 * all the same, later: the kubelet is answered, and the undoing goes on behind it, for the manager
 * comes to it after the work. A device that cannot be freed stays held, and is tried again (release.c).
 */
#include <string.h>

#include "common/log.h"
#include "statd/claim.h"
#include "statd/flows.h"

struct prepare {
	struct statd *s;
	struct rpc_call *call; /* NULL: answered */
	struct claim_ref ref;  /* own copies */
	struct lock lock;
	struct locks pods;
	struct claim claim;
	struct plan plan;
	struct strlist fresh; /* keys of the rows of this call, in the order of the results */
	struct strlist begun; /* those of them that an earlier call has left unfinished */
	size_t at;            /* the one that is set up */
	bool sent;            /* its manager was there to be called */
	bool marked;          /* its pods are */
	bool has_let_go;      /* of what is not allocated to the claim any more */
	struct err err;
};

static void on_locked(void *ctx);
static void on_claim_read(void *ctx, const struct err *err, const json_t *claim);
static void on_pods_locked(void *ctx);
static void let_go_of_stale(struct prepare *p);
static void record_intent(struct prepare *p);
static void setup_next(struct prepare *p);
static void finish(struct prepare *p);
static void write_status(struct prepare *p, json_t *devices);
static void prepare_refuse(struct prepare *p, const struct err *err);
static void prepare_undo(struct prepare *p, const struct err *err);

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

static void prepare_free(struct prepare *p)
{
	struct statd *s = p->s;

	locks_release(&p->pods);
	lock_release(s->locks, &p->lock);
	strlist_fini(&p->fresh);
	strlist_fini(&p->begun);
	plan_fini(&p->plan);
	rec_fini(&rec_claim, &p->claim);
	free(p->ref.namespace);
	free(p->ref.name);
	free(p->ref.uid);
	free(p);
	statd_job_end(s);
}

/* --- READ, LOCK pods, PLAN ---------------------------------------------------------------- */

static void on_locked(void *ctx)
{
	struct prepare *p = ctx;

	p->s->store->ops->get_claim(
		p->s->store, p->ref.namespace, p->ref.name, on_claim_read, p);
}

static void on_claim_read(void *ctx, const struct err *err, const json_t *claim)
{
	struct prepare *p = ctx;
	struct err mine;

	if (err) {
		prepare_refuse(p, err);
		return;
	}
	if (claim_decode(claim, &p->claim, &mine) < 0) {
		prepare_refuse(p, &mine);
		return;
	}
	/* the rows that the claim has may be another pod's by now */
	if (p->claim.status)
		for (size_t i = 0; i < p->claim.status->reserved_for.n; i++)
			locks_add(&p->pods, "pod", p->claim.status->reserved_for.v[i].uid);
	add_pod_locks(p->s, p->ref.uid, &p->pods);
	if (p->pods.names.n == 0)
		locks_add(&p->pods, "pod", POD_UNKNOWN);
	locks_take(p->s->locks, &p->pods, on_pods_locked, p);
}

static void report_warnings(struct prepare *p)
{
	for (size_t i = 0; i < p->plan.warnings.n; i++) {
		LOG(WARN, FIELDS(F("claim", p->ref.uid), F("err", p->plan.warnings.v[i])),
			"a parameter of the claim is ignored");
		event_claim(p->s, &p->ref, EVENT_PARAMETER_IGNORED, p->plan.warnings.v[i]);
	}
}

/* One that is refused lets go of what it must not have any more as well. */
static void make_plan(struct prepare *p)
{
	const struct plan_rules rules = {
		.driver_name = p->s->config.spec.driver_name,
		.node_name = p->s->config.node_name,
		.warn_unknown = strcmp(p->s->options->unknown_parameters, "warn") == 0,
	};
	struct err err = ERR_INIT;

	plan_fini(&p->plan);
	(void)plan_make(&p->s->tables, &rules, &p->claim, p->ref.uid, &p->plan, &err);
	p->err = err;
}

static void on_pods_locked(void *ctx)
{
	struct prepare *p = ctx;

	make_plan(p);
	report_warnings(p);
	let_go_of_stale(p);
}

/* --- LET GO ------------------------------------------------------------------------------- */

static void on_stale_gone(void *ctx, const struct err *err)
{
	struct prepare *p = ctx;
	struct err wrapped;

	/* due from here on, whatever comes of the rest and wherever the process ends */
	if (p->has_let_go)
		status_follow_rows(p->s, &p->ref);
	if (!err) {
		/* what was free then may be another claim's by now */
		make_plan(p);
		let_go_of_stale(p);
		return;
	}
	wrapped = *err;
	(void)err_wrap(&wrapped, "it holds a device from before that is not free yet");
	prepare_refuse(p, &wrapped);
}

/* Rows that are reused, but were another pod's, in a sandbox of that one. */
static bool find_moved(const struct prepare *p, struct strlist *keys, char **ret_sandbox)
{
	for (size_t i = 0; i < p->plan.n_items; i++) {
		const struct alloc_row *reuse = p->plan.items[i].reuse, *row;
		cleanup_buf struct buf key = BUF_INIT;

		row = reuse ? table_get(p->s->tables.allocations, row_key(reuse, &key)) : NULL;
		if (!row || strcmp(row->pod_uid, p->plan.pod_uid) == 0 ||
			!row_is_in_a_sandbox(row) ||
			(*ret_sandbox && strcmp(*ret_sandbox, row->sandbox_id) != 0))
			continue;
		if (!*ret_sandbox)
			*ret_sandbox = xstrdup(row->sandbox_id);
		strlist_add(keys, key.data);
	}
	return keys->n > 0;
}

/* First what it must not have any more, then what has to leave a sandbox. */
static void let_go_of_stale(struct prepare *p)
{
	struct strlist keys = p->plan.stale;
	cleanup_free char *sandbox_id = NULL;
	struct err err;

	p->plan.stale = (struct strlist){0};
	if (keys.n > 0) {
		LOG(INFO, FIELDS(F("claim", p->ref.uid), F("pod", p->plan.pod_uid)),
			"the claim was allocated anew; letting go of %zu devices", keys.n);
		p->has_let_go = true;
		let_go(p->s, &keys, NULL, on_stale_gone, p);
	} else if (p->err.kind != ERR_NONE) {
		err = p->err;
		prepare_refuse(p, &err);
	} else if (find_moved(p, &keys, &sandbox_id)) {
		LOG(INFO, FIELDS(F("claim", p->ref.uid), F("pod", p->plan.pod_uid)),
			"the claim is reserved for another pod now; its devices leave that of before");
		detach_rows(p->s, sandbox_id, &keys, on_stale_gone, p);
	} else {
		record_intent(p);
	}
}

/* --- RECORD ------------------------------------------------------------------------------- */

/* One that an earlier call left unfinished is set up anew, under the key that it has then. */
static void insert_row(struct prepare *p, struct plan_item *item)
{
	cleanup_buf struct buf key = BUF_INIT, old = BUF_INIT;
	struct table *table = p->s->tables.allocations;
	struct alloc_row row;
	struct err err;

	if (item->unfinished)
		(void)table_delete(table, row_key(item->unfinished, &old));
	plan_row(&p->plan, item, &row);
	strlist_add(&p->fresh, row_key(&row, &key));
	if (item->unfinished)
		strlist_add(&p->begun, key.data);
	if (table_insert(table, &row, &err) < 0)
		LOG(ERROR, FIELDS(F("claim", p->ref.uid), F("err", err.message)),
			"an allocation's row is there already");
}

/* A reused row whose claim is another pod's now follows it. */
static void follow_pod(struct prepare *p, const struct plan_item *item, struct strlist *before)
{
	cleanup_buf struct buf key = BUF_INIT;
	struct alloc_row row;

	if (!row_take(p->s, row_key(item->reuse, &key), &row))
		return;
	if (strcmp(row.pod_uid, p->plan.pod_uid) != 0) {
		strlist_add(before, row.pod_uid);
		free(row.pod_uid);
		row.pod_uid = xstrdup(p->plan.pod_uid);
		row.has_left = (struct rec_bool){0};
	}
	for (size_t i = 0; i < row.pods.n; i++)
		strlist_add(before, row.pods.v[i]);
	strlist_fini(&row.pods);
	row_put(p->s, &row);
}

static int resolve_item(struct prepare *p, struct plan_item *item, struct err *err)
{
	const struct device_row *row = device_row_get(&p->s->tables, item->result->device);
	const char *holder = strmap_get(&p->s->broken_devices, item->result->device);
	const struct pool *pool;

	if (holder && strlist_has(&p->s->broken, holder) && strcmp(holder, p->ref.uid) != 0)
		return err_set(err, ERR_CONFLICT,
			"device %s is held by claim %s, whose record cannot be read",
			item->result->device, holder);
	if (!row)
		return err_set(err, ERR_NOT_FOUND,
			"device %s has left the inventory meanwhile", item->result->device);
	pool = pool_resolve(&p->s->config.spec.pools, item->manager, row->device, NULL);
	free(item->logical_pool);
	item->logical_pool = xstrdup(pool ? pool->name : "");
	item->prepared = xcalloc(1, sizeof(*item->prepared));
	/* how one that was begun is put back, nothing else knows until it is set up anew */
	rec_copy(&rec_device, item->prepared,
		item->unfinished ? item->unfinished->prepared : row->device);
	return 0;
}

static void record_intent(struct prepare *p)
{
	struct strlist pods_before = {0};
	struct err err;
	int rc = 0;

	for (size_t i = 0; i < p->plan.n_items; i++)
		if (!p->plan.items[i].reuse && resolve_item(p, &p->plan.items[i], &err) < 0) {
			prepare_refuse(p, &err);
			return;
		}
	db_begin(p->s->tables.db);
	for (size_t i = 0; i < p->plan.n_items; i++)
		if (p->plan.items[i].reuse)
			follow_pod(p, &p->plan.items[i], &pods_before);
		else
			insert_row(p, &p->plan.items[i]);
	db_commit(p->s->tables.db);
	if (p->fresh.n > 0)
		rc = record_write(p->s, p->ref.uid, &err);
	else if (pods_before.n > 0)
		rc = record_save(p->s, p->ref.uid, &err);
	for (size_t i = 0; i < pods_before.n; i++)
		record_check_pod(p->s, pods_before.v[i]);
	strlist_fini(&pods_before);
	if (rc < 0)
		prepare_undo(p, &err);
	else
		setup_next(p);
}

/* --- SETUP -------------------------------------------------------------------------------- */

static const struct alloc_row *row_at(const struct prepare *p)
{
	return table_get(p->s->tables.allocations, p->fresh.v[p->at]);
}

static void setup_failed(struct prepare *p, const struct err *err)
{
	const struct alloc_row *row = row_at(p);
	struct err wrapped = *err;

	(void)err_wrap(&wrapped, "failed to prepare device %s",
		row ? row->device_name : p->fresh.v[p->at]);
	prepare_undo(p, &wrapped);
}

static void mark_finished(struct prepare *p)
{
	db_begin(p->s->tables.db);
	for (size_t i = 0; i < p->fresh.n; i++) {
		struct alloc_row row;

		if (!row_take(p->s, p->fresh.v[i], &row))
			continue;
		row.unfinished = (struct rec_bool){0};
		row_put(p->s, &row);
	}
	db_commit(p->s->tables.db);
}

/* The device at hand as its manager has returned it; it need not be observed any more. */
static void keep_device(struct prepare *p, const struct device *device)
{
	struct alloc_row row;

	if (!row_take(p->s, p->fresh.v[p->at], &row))
		return;
	row_set_prepared(&row, device);
	row.prepared->observe = (struct rec_bool){0};
	row_put(p->s, &row);
}

static void on_set_up(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	struct prepare *p = ctx;
	const struct device_result *r = result;
	struct err mine;

	if (err) {
		setup_failed(p, err);
		return;
	}
	keep_device(p, r->device);
	if (++p->at == p->fresh.n)
		finish(p);
	else if (record_save(p->s, p->ref.uid, &mine) < 0)
		prepare_undo(p, &mine);
	else
		setup_next(p);
}

static void on_observed(
	void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	struct prepare *p = ctx;
	const struct device_result *r = result;
	struct err mine;

	if (err) {
		setup_failed(p, err);
		return;
	}
	keep_device(p, r->device);
	if (record_save(p->s, p->ref.uid, &mine) < 0)
		prepare_undo(p, &mine);
	else
		setup_next(p);
}

/* While the manager works. Where it fails, so does the last record. */
static void mark_pods_early(struct prepare *p)
{
	struct err ignored;

	if (!p->marked)
		p->marked = record_mark_pods(p->s, p->ref.uid, &ignored) == 0;
}

static void setup_next(struct prepare *p)
{
	const struct alloc_row *row;
	struct rpc_conn *manager;
	struct device_alloc a;

	if (p->at == p->fresh.n) {
		finish(p);
		return;
	}
	row = row_at(p);
	a = row_alloc(row);
	manager = statd_manager(p->s, manager_type_parse(row->manager));
	p->sent = manager && !row->prepared->observe.v;
	if (row->prepared->observe.v)
		(void)rpc_start(p->s->loop, manager, API_DEVICE_OBSERVE, &a, NULL, 0,
			on_observed, p);
	else
		(void)rpc_start(
			p->s->loop, manager, API_DEVICE_SETUP, &a, NULL, 0, on_set_up, p);
	mark_pods_early(p);
}

/* --- answer, STATUS ----------------------------------------------------------------------- */

static void answer(struct prepare *p)
{
	struct claim_prepare_result result;
	char count[16];

	plan_result(&p->plan, &p->s->tables, &result);
	rpc_reply(p->call, &result, NULL);
	rec_fini(api_method_info(API_CLAIM_PREPARE)->result, &result);
	(void)snprintf(count, sizeof(count), "%zu", p->fresh.n);
	LOG(INFO,
		FIELDS(F("claim", p->ref.uid), F("pod", p->plan.pod_uid), F("devices", count)),
		p->fresh.n ? "claim prepared" : "claim was prepared already");
}

/* It has the plan's devices and no others of ours. */
static bool status_is_complete(const struct prepare *p)
{
	const struct claim_status *status = p->claim.status;
	size_t n_ours = 0;

	for (size_t i = 0; i < p->plan.n_items; i++)
		if (!p->plan.items[i].in_status || !p->plan.items[i].reuse)
			return false;
	for (size_t i = 0; i < status->devices.n; i++)
		n_ours += strcmp(status->devices.v[i].driver, p->s->config.spec.driver_name) == 0;
	return n_ours == p->plan.n_items && !p->has_let_go;
}

/* What is too big for the claim's status could not be restored in the next boot. */
static int make_status(const struct prepare *p, json_t **ret, struct err *err)
{
	const struct alloc_row **rows;
	int rc;

	*ret = NULL;
	if (status_is_complete(p))
		return 0;
	rows = plan_rows(&p->plan, &p->s->tables);
	rc = claim_status_entries(
		rows, p->plan.n_items, p->s->config.spec.driver_name, wall_ms(), ret, err);
	free(rows);
	return rc;
}

static int save(struct prepare *p, struct err *err)
{
	return p->marked ? record_write(p->s, p->ref.uid, err)
			 : record_save(p->s, p->ref.uid, err);
}

/* The last record says that the claim is prepared, and that its status is still to be written. */
static void finish(struct prepare *p)
{
	json_t *devices;
	struct err err;

	mark_finished(p);
	if (make_status(p, &devices, &err) < 0) {
		prepare_undo(p, &err);
		return;
	}
	if (devices)
		write_status(p, devices);
	if ((p->fresh.n > 0 || devices) && save(p, &err) < 0) {
		status_queue_forget(&p->s->status, p->ref.uid);
		prepare_undo(p, &err);
		return;
	}
	if (devices && p->s->options->wait_for_status)
		return;
	answer(p);
	prepare_free(p);
}

static void on_status_written(void *ctx, const struct err *err)
{
	struct prepare *p = ctx;
	struct err wrapped;

	if (!err) {
		record_save_or_log(p->s, p->ref.uid);
		answer(p);
		prepare_free(p);
		return;
	}
	wrapped = *err;
	(void)err_wrap(
		&wrapped, "failed to update claim %s/%s status", p->ref.namespace, p->ref.name);
	prepare_undo(p, &wrapped);
}

static void write_status(struct prepare *p, json_t *devices)
{
	const bool wait = p->s->options->wait_for_status;
	const struct claim_status *status = p->claim.status;
	struct claim_seen seen = {
		.version = xstrdup_opt(p->claim.metadata->resource_version)};

	for (size_t i = 0; i < status->devices.n; i++)
		strlist_add(&seen.drivers, status->devices.v[i].driver);
	status_queue_write(&p->s->status, &p->ref, &seen, devices,
		wait ? on_status_written : NULL, wait ? p : NULL);
}

/* --- refusing, UNDO ----------------------------------------------------------------------- */

static void answer_error(struct prepare *p)
{
	if (!p->call)
		return;
	(void)err_wrap(&p->err, "preparing claim %s/%s", p->ref.namespace, p->ref.name);
	LOG(WARN,
		FIELDS(F("claim", p->ref.uid), F("pod", p->plan.pod_uid),
			F("err", p->err.message)),
		"claim not prepared");
	event_claim(p->s, &p->ref, EVENT_PREPARE_FAILED, p->err.message);
	rpc_reply_err(take_ptr(p->call), &p->err);
}

static void prepare_refuse(struct prepare *p, const struct err *err)
{
	p->err = *err;
	answer_error(p);
	prepare_free(p);
}

static void on_undone(void *ctx, const struct err *err)
{
	struct prepare *p = ctx;

	if (err) {
		LOG(WARN, FIELDS(F("claim", p->ref.uid), F("err", err->message)),
			"failed to free device during rollback; trying again");
		release_later(p->s, p->ref.uid, false);
	}
	if (p->has_let_go)
		status_follow_rows(p->s, &p->ref);
	answer_error(p);
	prepare_free(p);
}

/* What was never begun, or its manager has undone itself, has nothing to be freed; what an earlier
 * call has left unfinished has, wherever this one failed. */
static void delete_untouched(struct prepare *p, size_t from)
{
	struct strlist keys = {0};
	struct err err;

	for (size_t i = from; i < p->fresh.n; i++)
		if (!strlist_has(&p->begun, p->fresh.v[i]))
			strlist_add(&keys, p->fresh.v[i]);
	if (rows_delete(p->s, p->ref.uid, &keys, &err) < 0)
		LOG(ERROR, FIELDS(F("claim", p->ref.uid), F("err", err.message)),
			"the record of a claim is not up to date");
	record_check_pod(p->s, p->plan.pod_uid);
	strlist_fini(&keys);
}

static void prepare_undo(struct prepare *p, const struct err *err)
{
	/* one that ended in the middle of it does not answer either */
	const bool unsure = p->at < p->fresh.n && p->sent &&
			    (err->kind == ERR_DEADLINE || err->kind == ERR_UNAVAILABLE);
	const size_t touched = p->at + (unsure ? 1 : 0);
	struct strlist keys = {0};

	p->err = *err;
	if (err->kind == ERR_DEADLINE)
		answer_error(p);
	if (touched < p->fresh.n)
		delete_untouched(p, touched);
	for (size_t i = p->fresh.n; i-- > 0;) {
		struct alloc_row row;

		if (!row_take(p->s, p->fresh.v[i], &row))
			continue;
		row.unfinished = (struct rec_bool){true, true};
		row_put(p->s, &row);
		strlist_add(&keys, p->fresh.v[i]);
	}
	if (keys.n > 0)
		let_go(p->s, &keys, NULL, on_undone, p);
	else
		on_undone(p, NULL);
}
