/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a start: the allocations table from the node's own record, and each manager's part of it.
 *
 *	RECORDS ─┬─ all of this boot's are there ─────────────────────────▶ serve
 *	         └─ none yet, or some cannot be read: claims' STATUS ─▶ RECORDS ─▶ serve
 *
 * What was prepared in this boot has a record, whatever became of the claim's object since. In the
 * first start of a boot, or after an update from a driver that kept none, what the claims' status says
 * was prepared is taken over and recorded; from then on a status without a record means that the claim
 * was unprepared. A record that cannot be read is reported, what its claim has in the kernel stays
 * held, and its status is asked instead.
 *
 * The claims are read before any manager may connect, so that nobody sees a device as free that
 * is not. They come one at a time: a thousand of them as trees would take more memory than all
 * the rest of the process. A store that cannot be read is asked again from the start: starting without
 * knowing what was prepared would hand it out twice. One claim that cannot be understood is reported and
 * does not keep the others back.
 *
 * A row that comes from a claim's status has only the manager's state of its device. When the
 * manager connects it is handed all its rows and returns the devices, with names and
 * attributes; one that it cannot rebuild keeps its row, and the reason with it: a row is
 * forgotten when its device was freed, not before.
 */
#include <string.h>

#include "common/kube.h"
#include "common/log.h"
#include "statd/claim.h"
#include "statd/flows.h"

static void list_claims(struct statd *s);
static void restore_end(struct statd *s);

/* --- the node's own record ---------------------------------------------------------------- */

/* What an attach was doing that did not come to its end, is not known; attaching it again makes it
 * whole, and so does taking it back. */
static void mark_interrupted(struct alloc_row *row)
{
	if (!row_is_in_a_sandbox(row) || !row->problem)
		return;
	free(row->problem);
	row->problem = xstrdup("the driver ended while it was attached or taken back");
}

/* One that was prepared counts more than one that was only begun, or was being given back. */
static void make_way_for(struct statd *s, const struct alloc_row *row)
{
	cleanup_buf struct buf key = BUF_INIT;
	const struct alloc_row *there = table_get(s->tables.allocations, row_key(row, &key));

	if (there && there->unfinished.v && !row->unfinished.v)
		(void)table_delete(s->tables.allocations, key.data);
}

static void insert_recorded(struct statd *s, struct claim_record *record)
{
	struct err err;

	for (size_t i = 0; i < record->devices.n; i++) {
		struct alloc_row row = record->devices.v[i];

		record->devices.v[i] = (struct alloc_row){0};
		mark_interrupted(&row);
		make_way_for(s, &row);
		if (table_insert(s->tables.allocations, &row, &err) < 0)
			LOG(ERROR, FIELDS(F("claim", record->uid), F("err", err.message)),
				"two records say that their claim has this device; the first one read counts");
	}
}

static bool has_unfinished(const struct claim_record *record)
{
	for (size_t i = 0; i < record->devices.n; i++)
		if (record->devices.v[i].unfinished.v)
			return true;
	return false;
}

/* The claim as it is in the store is not at hand: the entries are made of the rows. Of a preparation
 * that did not end there are none. */
static void resume_status(struct statd *s, const struct claim_record *record)
{
	const struct claim_ref ref = {record->namespace, record->name, record->uid};
	const struct alloc_row **rows = xcalloc(record->devices.n, sizeof(*rows));
	json_t *devices;
	struct err err;
	size_t n = 0;

	for (size_t i = 0; i < record->devices.n; i++)
		if (!record->devices.v[i].unfinished.v)
			rows[n++] = &record->devices.v[i];
	if (n == 0)
		status_queue_remove(&s->status, &ref);
	else if (claim_status_entries(rows, n, s->config.spec.driver_name, wall_ms(), &devices,
			 &err) == 0)
		status_queue_write(&s->status, &ref, NULL, devices, NULL, NULL);
	else
		LOG(ERROR, FIELDS(F("claim", record->uid), F("err", err.message)),
			"claim status cannot be written");
	free(rows);
}

/* It was being unprepared, and not prepared. */
static bool was_being_freed(const struct claim_record *record)
{
	for (size_t i = 0; i < record->devices.n; i++)
		if (str_equal(record->devices.v[i].problem, ALLOC_BEING_FREED))
			return true;
	return false;
}

static void on_record(void *ctx, struct claim_record *record)
{
	struct statd *s = ctx;
	const bool unfinished = has_unfinished(record), freeing = was_being_freed(record);

	if (record->status_due.v || freeing)
		resume_status(s, record);
	insert_recorded(s, record);
	if (unfinished)
		release_later(s, record->uid, !freeing);
	rec_fini(&rec_claim_record, record);
}

static void on_broken(
	void *ctx, const char *uid, const struct strlist *devices, const struct err *err)
{
	struct statd *s = ctx;

	for (size_t i = 0; i < devices->n; i++)
		strmap_put(&s->broken_devices, devices->v[i], uid);

	LOG(ERROR, FIELDS(F("claim", uid), F("err", err->message)),
		"a record cannot be read; what its claim has stays held, and its status is asked instead");
	strlist_add(&s->broken, uid);
}

static const struct records_visitor visitor = {.record = on_record, .broken = on_broken};

void restore_begin(struct statd *s)
{
	struct err err;
	int rc;

	db_begin(s->tables.db);
	rc = records_read(&s->records, &visitor, s, &err);
	db_commit(s->tables.db);
	if (rc < 0) {
		LOG(ERROR, FIELDS(F("err", err.message)), "the node's own record cannot be read");
		daemon_fail(&s->daemon);
		return;
	}
	if (s->records.complete && s->broken.n == 0) {
		statd_job_begin(s);
		restore_end(s);
	} else {
		list_claims(s);
	}
}

/* --- the claims' status ------------------------------------------------------------------- */

static void on_retry(uv_timer_t *timer)
{
	list_claims(timer->data);
}

static void add_row(void *ctx, struct alloc_row *row)
{
	struct statd *s = ctx;
	cleanup_free char *claim = xstrdup(row->claim_uid), *device = xstrdup(row->device_name);
	struct err err;

	row->prepared = xcalloc(1, sizeof(*row->prepared));
	row->prepared->name = xstrdup(row->device_name);
	row->prepared->state = packed_copy(row->prepared_device);
	strlist_add(&s->from_status, claim);
	if (table_insert(s->tables.allocations, row, &err) < 0)
		LOG(ERROR,
			FIELDS(F("claim", claim), F("device", device), F("err", err.message)),
			"two claims say that they have this device; the first one read counts");
	else
		LOG(DEBUG, FIELDS(F("claim", claim), F("device", device)),
			"allocation device restored");
}

static void tell_failure(void *ctx UNUSED, const struct err *err)
{
	LOG(ERROR, FIELDS(F("err", err->message)), "failed to restore allocated device");
}

/* What the node's own record says counts for more than any status. */
static bool is_to_be_restored(const struct statd *s, const char *uid)
{
	if (strlist_has(&s->broken, uid))
		return true;
	return !s->records.complete && !records_has(&s->records, uid);
}

static void on_unreadable(void *ctx, const char *text)
{
	struct statd *s = ctx;

	LOG(ERROR, FIELDS(F("err", text)),
		"a claim cannot be read; what belongs to no claim that is known stays held");
	s->has_unreadable = true;
}

static void restore_claim(struct statd *s, const json_t *object)
{
	struct claim claim = {0};
	struct err err;

	if (claim_decode(object, &claim, &err) < 0) {
		on_unreadable(s, err.message);
		return;
	}
	if (!is_to_be_restored(s, claim.metadata->uid)) {
		rec_fini(&rec_claim, &claim);
		return;
	}
	if (claim_restore(
		    &claim, s->config.spec.driver_name, &s->config, add_row, tell_failure, s)) {
		cleanup_free char *name =
			xasprintf("%s/%s", claim.metadata->namespace, claim.metadata->name);

		strmap_put(&s->unprepared, claim.metadata->uid, name);
	}
	rec_fini(&rec_claim, &claim);
}

static void on_claim(void *ctx, const json_t *object)
{
	struct statd *s = ctx;

	db_begin(s->tables.db);
	restore_claim(s, object);
	db_commit(s->tables.db);
}

static void on_problem(void *ctx UNUSED, const char *text)
{
	LOG(WARN, FIELDS(F("err", text)), "something in the store cannot be restored");
}

static void try_again(struct statd *s, const struct err *err)
{
	uint64_t delay_ms = kube_backoff_ms(s->restore_attempts++, 0);

	if (s->stopping)
		return;
	LOG(ERROR, FIELDS(F("err", err->message)),
		"cannot read the claims; trying again until they are there");
	statd_wait_for(s, "the claims, which cannot be read: %s", err->message);
	(void)uv_timer_start(&s->restore_retry, on_retry, delay_ms, 0);
}

/* Before anything is served, so that a later start finds all of it. */
static void record_restored(struct statd *s)
{
	struct err err;

	for (size_t i = 0; i < s->from_status.n; i++)
		record_save_or_log(s, s->from_status.v[i]);
	strlist_fini(&s->from_status);
	if (records_set_complete(&s->records, &err) < 0)
		LOG(ERROR, FIELDS(F("err", err.message)),
			"the next start will ask for the claims' status again");
}

static void on_listed(void *ctx, const struct err *err)
{
	struct statd *s = ctx;

	if (err) {
		try_again(s, err);
		statd_job_end(s);
		return;
	}
	record_restored(s);
	restore_end(s);
}

static const struct store_listing listing = {
	.claim = on_claim,
	.unreadable = on_unreadable,
	.problem = on_problem,
	.done = on_listed,
};

/* What a listing that failed half way has left. */
static void forget_rows(struct statd *s)
{
	db_begin(s->tables.db);
	for (size_t i = 0; i < s->from_status.n; i++) {
		const struct table_row *row;

		while ((row = table_index_first(s->tables.allocations, ALLOC_BY_CLAIM,
				s->from_status.v[i]))) {
			cleanup_free char *key = xstrdup(row->key);

			(void)table_delete(s->tables.allocations, key);
		}
	}
	db_commit(s->tables.db);
	strlist_fini(&s->from_status);
	strmap_fini(&s->unprepared);
	s->has_unreadable = false;
}

static void list_claims(struct statd *s)
{
	forget_rows(s);
	statd_job_begin(s);
	s->store->ops->list(s->store, &listing, s);
}

static void restore_end(struct statd *s)
{
	char count[16];

	record_prune_pods(s);
	db_begin(s->tables.db);
	table_initialized(s->tables.allocations, INITIALIZER_RESTORE);
	db_commit(s->tables.db);
	(void)snprintf(count, sizeof(count), "%zu", table_count(s->tables.allocations));
	LOG(INFO, FIELDS(F("allocations", count)), "restored what was prepared");
	statd_restored(s);
	statd_job_end(s);
}

/* --- a manager's part --------------------------------------------------------------------- */

struct handover {
	struct statd *s;
	enum manager_type manager;
	struct strlist keys; /* of the rows handed over, in order */
};

/* What a row's problem begins with if it is of restoring, and of nothing else. */
#define CANNOT_RESTORE "its manager cannot restore it"

/* Any other problem stays: a manager that is back does not finish what an attach or a detach has
 * left half done, and by its problem the row is known not to be whole (row_is_attached()). */
static void set_restore_problem(struct alloc_row *row, const char *problem)
{
	if (row->problem && !str_has_prefix(row->problem, CANNOT_RESTORE))
		return;
	free(row->problem);
	row->problem = xstrdup_opt(problem);
}

static void take_verdict(struct statd *s, const char *key, const struct restore_verdict *v)
{
	struct alloc_row row;

	if (!row_take(s, key, &row))
		return;
	if (v->device) {
		rec_fini(&rec_device, row.prepared);
		rec_copy(&rec_device, row.prepared, v->device);
		set_restore_problem(&row, NULL);
	} else {
		struct err problem;

		(void)err_set(&problem, ERR_INTERNAL, CANNOT_RESTORE ": %s",
			v->error ? v->error : "it does not say why");
		str_sanitize(problem.message); /* it goes into a record, which is JSON */
		set_restore_problem(&row, problem.message);
		LOG(ERROR,
			FIELDS(F("claim", row.claim_uid), F("device", row.device_name),
				F("err", v->error)),
			"failed to restore allocated device");
	}
	row_put(s, &row);
}

/* It says hello again then, and is handed the same again. */
static void start_over(struct statd *s, enum manager_type manager, const char *why)
{
	struct rpc_conn *conn = statd_manager(s, manager);

	if (conn)
		rpc_conn_close(conn, why);
}

static void on_handed_over(
	void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct restore_result *r = result;
	struct handover *h = ctx;

	if (err) {
		LOG(ERROR,
			FIELDS(F("manager", manager_type_name(h->manager)),
				F("err", err->message)),
			"the manager did not take over what was prepared");
		/* it has not taken over what is its own, and must not serve without */
		start_over(h->s, h->manager, "device.restore failed");
	} else if (r->verdicts.n != h->keys.n) {
		LOG(ERROR, FIELDS(F("manager", manager_type_name(h->manager))),
			"the manager's answer does not fit what it was handed");
		start_over(h->s, h->manager, "its answer to device.restore does not fit");
	} else {
		db_begin(h->s->tables.db);
		for (size_t i = 0; i < h->keys.n; i++)
			take_verdict(h->s, h->keys.v[i], &r->verdicts.v[i]);
		db_commit(h->s->tables.db);
		audit_manager(h->s, h->manager);
		release_now(h->s);
	}
	strlist_fini(&h->keys);
	free(h);
}

void restore_manager(struct statd *s, enum manager_type manager)
{
	const struct table_row *row = table_first(s->tables.allocations);
	struct handover *h = xcalloc(1, sizeof(*h));
	struct alloc_list list = {0};

	h->s = s;
	h->manager = manager;
	list.allocations.v =
		xcalloc(table_count(s->tables.allocations), sizeof(*list.allocations.v));
	for (; row; row = table_next(row)) {
		const struct alloc_row *a = alloc_row_of(row);

		if (manager_type_parse(a->manager) != manager)
			continue;
		list.allocations.v[list.allocations.n++] = row_alloc(a);
		strlist_add(&h->keys, row->key);
	}
	(void)rpc_start(s->loop, statd_manager(s, manager), API_DEVICE_RESTORE, &list, NULL, 0,
		on_handed_over, h);
	free(list.allocations.v);
}
