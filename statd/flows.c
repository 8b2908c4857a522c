/* SPDX-License-Identifier: Apache-2.0 */
/* What the flows share: rows in and out of the allocations table, and failures added up. */
#include "statd/flows.h"

#include <string.h>

#include "common/log.h"
#include "statd/claim.h"

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
	if (row.problem)
		str_sanitize(row.problem); /* it goes into a record, which is JSON */
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

bool row_is_in_a_sandbox(const struct alloc_row *row)
{
	return row->sandbox_id && *row->sandbox_id;
}

void row_set_prepared(struct alloc_row *row, const struct device *device)
{
	rec_fini(&rec_device, row->prepared);
	rec_copy(&rec_device, row->prepared, device);
	free(row->prepared_device);
	row->prepared_device = packed_copy(device->state);
}

void row_leave_sandbox(struct alloc_row *row)
{
	free(take_ptr(row->sandbox_id));
	free(take_ptr(row->pod_if_name));
	free(take_ptr(row->problem));
	row->has_left = (struct rec_bool){true, true};
}

void sandbox_drop_unused(struct statd *s, const char *sandbox_id)
{
	if (!table_index_first(s->tables.allocations, ALLOC_BY_SANDBOX, sandbox_id))
		sandbox_drop(&s->sandboxes, sandbox_id);
}

bool row_is_attached(const struct statd *s, const struct alloc_row *row, const char *sandbox_id)
{
	return str_equal(row->sandbox_id, sandbox_id) && !row->problem &&
	       sandbox_is_known(&s->sandboxes, sandbox_id);
}

bool row_may_be_of(const struct alloc_row *row, const char *pod_uid)
{
	return !*row->pod_uid && strlist_has(&row->pods, pod_uid);
}

/* "<namespace>_<name>" or a UID, as the metadata files' directories are named. */
bool row_is_of_claim(const struct alloc_row *row, const char *claim)
{
	const char *name = strchr(claim, '_');

	if (!name)
		return strcmp(row->claim_uid, claim) == 0;
	return row->claim_namespace && row->claim_name && strcmp(row->claim_name, name + 1) == 0 &&
	       strncmp(row->claim_namespace, claim, (size_t)(name - claim)) == 0 &&
	       row->claim_namespace[name - claim] == '\0';
}

bool claim_is_of_pod(const struct statd *s, const char *claim, const char *pod_uid)
{
	const struct table_row *at =
		table_index_first(s->tables.allocations, ALLOC_BY_POD, pod_uid);

	for (; at; at = table_index_next(at, ALLOC_BY_POD))
		if (row_is_of_claim(alloc_row_of(at), claim))
			return true;
	return false;
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

void add_pod_locks(const struct statd *s, const char *claim_uid, struct locks *locks)
{
	const struct table_row *at =
		table_index_first(s->tables.allocations, ALLOC_BY_CLAIM, claim_uid);

	for (; at; at = table_index_next(at, ALLOC_BY_CLAIM)) {
		const struct alloc_row *row = alloc_row_of(at);

		if (*row->pod_uid)
			locks_add(locks, "pod", row->pod_uid);
		for (size_t i = 0; i < row->pods.n; i++)
			locks_add(locks, "pod", row->pods.v[i]);
	}
}

/* --- records ------------------------------------------------------------------------------ */

int record_mark_pods(struct statd *s, const char *claim_uid, struct err *err)
{
	const struct table_row *at =
		table_index_first(s->tables.allocations, ALLOC_BY_CLAIM, claim_uid);

	for (; at; at = table_index_next(at, ALLOC_BY_CLAIM)) {
		const struct alloc_row *row = alloc_row_of(at);

		if (*row->pod_uid && records_pod_add(&s->records, row->pod_uid, err) < 0)
			return -1;
		for (size_t j = 0; j < row->pods.n; j++)
			if (records_pod_add(&s->records, row->pods.v[j], err) < 0)
				return -1;
	}
	return 0;
}

/* The record borrows all but its list from the rows. */
static void collect_rows(
	const struct statd *s, const char *claim_uid, struct claim_record *ret)
{
	const struct table_row *at =
		table_index_first(s->tables.allocations, ALLOC_BY_CLAIM, claim_uid);

	for (; at; at = table_index_next(at, ALLOC_BY_CLAIM)) {
		ret->devices.v = xrealloc(
			ret->devices.v, ret->devices.n + 1, sizeof(*ret->devices.v));
		ret->devices.v[ret->devices.n++] = *alloc_row_of(at);
	}
}

static int write_or_remove(struct statd *s, struct claim_record *record, struct err *err)
{
	const struct claim_ref *due = status_queue_due(&s->status, record->uid);

	record->status_due = (struct rec_bool){due != NULL, due != NULL};
	if (record->devices.n > 0) {
		record->namespace = record->devices.v[0].claim_namespace;
		record->name = record->devices.v[0].claim_name;
	} else if (due) {
		record->namespace = due->namespace;
		record->name = due->name;
	} else {
		return records_remove(&s->records, record->uid, err);
	}
	return records_write(&s->records, record, err);
}

int record_write(struct statd *s, const char *claim_uid, struct err *err)
{
	struct claim_record record = {
		.version = {RECORD_VERSION, true}, .uid = (char *)(uintptr_t)claim_uid};
	int rc;

	collect_rows(s, claim_uid, &record);
	rc = write_or_remove(s, &record, err);
	free(record.devices.v);
	if (rc == 0)
		strlist_remove(&s->broken, claim_uid);
	return rc;
}

int record_save(struct statd *s, const char *claim_uid, struct err *err)
{
	/* the pods first: one that is marked too early is only asked about */
	if (record_mark_pods(s, claim_uid, err) < 0)
		return -1;
	return record_write(s, claim_uid, err);
}

void record_save_or_log(struct statd *s, const char *claim_uid)
{
	struct err err;

	if (record_save(s, claim_uid, &err) < 0)
		LOG(ERROR, FIELDS(F("claim", claim_uid), F("err", err.message)),
			"the record of a claim is not up to date");
}

/* Takes the row. */
static void put_back(struct statd *s, struct alloc_row *row, const struct err *why)
{
	struct err err;

	free(row->problem);
	row->problem = xstrdup(why->message);
	str_sanitize(row->problem); /* it goes into a record, which is JSON */
	row->unfinished = (struct rec_bool){true, true};
	if (table_insert(s->tables.allocations, row, &err) < 0)
		LOG(ERROR, FIELDS(F("err", err.message)), "an allocation's row is there already");
}

/* Takes the row. */
static void check_pods(struct statd *s, struct alloc_row *row)
{
	record_check_pod(s, row->pod_uid);
	for (size_t i = 0; i < row->pods.n; i++)
		record_check_pod(s, row->pods.v[i]);
	rec_fini(&rec_alloc_row, row);
}

/* All within one turn of the loop: nobody sees the rows gone while the record has them. */
int rows_delete(
	struct statd *s, const char *claim_uid, const struct strlist *keys, struct err *err)
{
	struct alloc_row *rows = xcalloc(keys->n + 1, sizeof(*rows));
	size_t n = 0;
	int rc;

	db_begin(s->tables.db);
	for (size_t i = 0; i < keys->n; i++) {
		n += row_take(s, keys->v[i], &rows[n]);
		(void)table_delete(s->tables.allocations, keys->v[i]);
	}
	rc = record_save(s, claim_uid, err);
	if (rc < 0 && n > 0) {
		(void)err_wrap(err, "the devices are free, and stay held");
		release_later(s, claim_uid, false);
	}
	for (size_t i = 0; i < n; i++)
		if (rc < 0)
			put_back(s, &rows[i], err);
		else
			check_pods(s, &rows[i]);
	db_commit(s->tables.db);
	free(rows);
	return rc;
}

void status_follow_rows(struct statd *s, const struct claim_ref *claim)
{
	const struct table_row *at =
		table_index_first(s->tables.allocations, ALLOC_BY_CLAIM, claim->uid);
	const struct alloc_row **rows = NULL;
	json_t *devices;
	struct err err;
	size_t n = 0;

	for (; at; at = table_index_next(at, ALLOC_BY_CLAIM)) {
		if (alloc_row_of(at)->unfinished.v)
			continue;
		rows = xrealloc(rows, n + 1, sizeof(*rows));
		rows[n++] = alloc_row_of(at);
	}
	if (n == 0)
		status_queue_remove(&s->status, claim);
	else if (claim_status_entries(
			 rows, n, s->config.spec.driver_name, wall_ms(), &devices, &err) == 0)
		status_queue_write(&s->status, claim, NULL, devices, NULL, NULL);
	record_save_or_log(s, claim->uid);
	free(rows);
}

/* Rows that name no pod are few: a claim that was restored from a status with several consumers. */
static bool pod_has_rows(const struct statd *s, const char *pod_uid)
{
	const struct table *table = s->tables.allocations;
	const struct table_row *at;

	if (table_index_first(table, ALLOC_BY_POD, pod_uid))
		return true;
	at = table_index_first(table, ALLOC_BY_POD, POD_UNKNOWN);
	for (; at; at = table_index_next(at, ALLOC_BY_POD))
		if (strlist_has(&alloc_row_of(at)->pods, pod_uid))
			return true;
	return false;
}

void record_check_pod(struct statd *s, const char *pod_uid)
{
	if (*pod_uid && s->broken.n == 0 && !pod_has_rows(s, pod_uid))
		records_pod_remove(&s->records, pod_uid);
}

static bool keep_pod(void *ctx, const char *pod_uid)
{
	const struct statd *s = ctx;

	return pod_has_rows(s, pod_uid);
}

/* While a record cannot be read, any of the marks may be of a pod of its. */
void record_prune_pods(struct statd *s)
{
	if (s->broken.n == 0)
		records_pods_prune(&s->records, keep_pod, s);
}
