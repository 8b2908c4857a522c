/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a start: the allocations table from the claims' status, and each manager's part of it.
 *
 * The claims are read before any manager may connect, so that nobody sees a device as free that
 * is not. A store that cannot be read is asked again: starting without knowing what was
 * prepared would hand it out twice. One claim that cannot be understood is told and does not
 * keep the others back.
 *
 * A row that comes from a claim's status has only the manager's state of its device. When the
 * manager connects it is handed all its rows and returns the devices, with names and
 * attributes; one that it cannot rebuild keeps its row, and the reason with it: a row is
 * forgotten when its device was freed, not before.
 */
#include <string.h>

#include "common/log.h"
#include "statd/claim.h"
#include "statd/flows.h"
#include "statd/podclaims.h"

#define RETRY_MS 1000

static void on_store_listed(void *ctx, const struct err *err, const json_t *claims,
	const json_t *pods, const struct strlist *problems);

static void on_retry(uv_timer_t *timer)
{
	struct statd *s = timer->data;

	restore_begin(s);
}

void restore_begin(struct statd *s)
{
	statd_job_begin(s);
	s->store->ops->list(s->store, on_store_listed, s);
}

static void add_row(void *ctx, struct alloc_row *row)
{
	struct statd *s = ctx;
	cleanup_free char *claim = xstrdup(row->claim_uid), *device = xstrdup(row->device_name);
	struct err err;

	row->prepared = xcalloc(1, sizeof(*row->prepared));
	row->prepared->name = xstrdup(row->device_name);
	row->prepared->state = json_deep_copy(row->prepared_device);
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

static void restore_claim(struct statd *s, const json_t *object)
{
	struct claim claim = {0};
	struct err err;

	if (claim_decode(object, &claim, &err) < 0) {
		tell_failure(NULL, &err);
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

static bool has_claim(const json_t *claims, const char *namespace, const char *name)
{
	const json_t *claim;
	size_t i;

	json_array_foreach (claims, i, claim) {
		const json_t *meta = json_object_get(claim, "metadata");

		if (str_equal(json_string_value(json_object_get(meta, "name")), name) &&
			str_equal(json_string_value(json_object_get(meta, "namespace")),
				namespace))
			return true;
	}
	return false;
}

/* Claims that a pod of this node names and that are not there. */
static void check_pod(const json_t *pod, const json_t *claims)
{
	const json_t *meta = json_object_get(pod, "metadata");
	const char *namespace = json_string_value(json_object_get(meta, "namespace"));
	struct strlist names = {0};
	struct err err;

	if (podclaims_names(pod, &names, &err) < 0)
		tell_failure(NULL, &err);
	for (size_t i = 0; namespace && i < names.n; i++) {
		if (has_claim(claims, namespace, names.v[i]))
			continue;
		(void)err_set(&err, ERR_NOT_FOUND, "claim %s/%s not found in store", namespace,
			names.v[i]);
		tell_failure(NULL, &err);
	}
	strlist_fini(&names);
}

static void on_store_listed(void *ctx, const struct err *err, const json_t *claims,
	const json_t *pods, const struct strlist *problems)
{
	struct statd *s = ctx;
	const json_t *each;
	char count[16];
	size_t i;

	if (err) {
		if (!s->stopping) {
			LOG(ERROR, FIELDS(F("err", err->message)),
				"cannot read the claims; trying again until they are there");
			(void)uv_timer_start(&s->restore_retry, on_retry, RETRY_MS, 0);
		}
		statd_job_end(s);
		return;
	}
	for (i = 0; i < problems->n; i++)
		LOG(WARN, FIELDS(F("err", problems->v[i])), "skipping a file of the store");
	db_begin(s->tables.db);
	json_array_foreach (claims, i, each)
		restore_claim(s, each);
	json_array_foreach (pods, i, each)
		check_pod(each, claims);
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

static void take_verdict(struct statd *s, const char *key, const struct restore_verdict *v)
{
	struct alloc_row row;

	if (!row_take(s, key, &row))
		return;
	free(row.problem);
	row.problem = NULL;
	if (v->device) {
		rec_fini(&rec_device, row.prepared);
		rec_copy(&rec_device, row.prepared, v->device);
	} else {
		row.problem = xasprintf("its manager cannot restore it: %s",
			v->error ? v->error : "it does not say why");
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
		/* one that was too slow goes on as if it had been heard */
		if (err->kind == ERR_DEADLINE)
			start_over(h->s, h->manager, "it did not answer device.restore");
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
