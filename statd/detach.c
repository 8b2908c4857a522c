/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking devices back out of a sandbox.
 *
 *	detach_rows():  SOCKET ─▶ DETACH ×n ─▶ RECORD ─▶ done
 *	                     └── namespace unknown: RECLAIM ×n
 *	a pod's detach: LOCK pod ─▶ detach_rows() ─▶ answer
 *
 * The namespace is the descriptor that was kept at attach: by the time that a sandbox's end is
 * reported, its path may be gone. After a restart there is no descriptor until the sandbox is
 * attached once more; one that ended meanwhile has none. Then the device must have come back to the
 * host by itself, and its manager puts it as it was; as long as it has not, it is still somewhere,
 * and that is a failure and not a success. One that ends with its namespace does not come back, and
 * then it matters whether the sandbox has ended: that says the runtime, by reporting its end or by
 * not listing it, and until it has, nobody knows.
 *
 * What matters is which sandbox is meant: a late or second end of an old one touches only rows
 * that still name it, never a device that a newer sandbox or claim holds.
 */
#include <string.h>

#include "common/log.h"
#include "statd/claim.h"
#include "statd/flows.h"

struct detach_rows_job {
	struct statd *s;
	char *sandbox_id;
	struct strlist keys;
	struct strlist claims; /* whose records are to be written */
	size_t left;           /* keys[left-1] is next */
	bool has_ended;        /* the sandbox: the runtime has said so */
	/* namespace, borrowed, -1: it is not known; rtnetlink socket inside it */
	int fds[2];
	struct err err;
	void (*done)(void *ctx, const struct err *err);
	void *ctx;
};

static void job_end(struct detach_rows_job *j)
{
	void (*done)(void *ctx, const struct err *err) = j->done;
	struct err err = j->err;
	void *ctx = j->ctx;

	sandbox_drop_unused(j->s, j->sandbox_id);
	for (size_t i = 0; i < j->claims.n; i++)
		record_save_or_log(j->s, j->claims.v[i]);
	close_fd(&j->fds[1]);
	strlist_fini(&j->keys);
	strlist_fini(&j->claims);
	free(j->sandbox_id);
	free(j);
	done(ctx, err.kind != ERR_NONE ? &err : NULL);
}

static void mark_detached(struct detach_rows_job *j, const char *key)
{
	struct alloc_row row;

	if (!row_take(j->s, key, &row))
		return;
	if (!strlist_has(&j->claims, row.claim_uid))
		strlist_add(&j->claims, row.claim_uid);
	row_leave_sandbox(&row);
	row_put(j->s, &row);
}

static void failed(struct detach_rows_job *j, const char *key, const struct err *err)
{
	const struct alloc_row *row = table_get(j->s->tables.allocations, key);
	struct err wrapped = *err;

	(void)err_wrap(&wrapped, "taking back device %s", row ? row->device_name : key);
	row_set_problem(j->s, key, &wrapped);
	err_join(&j->err, &wrapped);
}

static void job_next(struct detach_rows_job *j);

static void row_done(struct detach_rows_job *j, const struct err *err)
{
	const char *key = j->keys.v[--j->left];

	if (err)
		failed(j, key, err);
	else
		mark_detached(j, key);
	job_next(j);
}

static void on_detached(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	row_done(ctx, err);
}

static void on_reclaimed(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct device_reclaim_result *r = result;
	struct detach_rows_job *j = ctx;
	struct err unknown;

	if (err || !r->not_found.v || j->has_ended) {
		row_done(j, err);
		return;
	}
	(void)err_set(&unknown, ERR_BUSY,
		"sandbox %s may be running still, and until nrihookd hands its namespace over or "
		"says that it has ended its devices are not known to be free",
		j->sandbox_id);
	row_done(j, &unknown);
}

static void call_detach(struct detach_rows_job *j, const struct alloc_row *row)
{
	struct device_alloc alloc = row_alloc(row);
	const char *name =
		row->pod_if_name ? row->pod_if_name : plan_if_name(row->config, row->prepared);
	const struct device_attach a = {.allocation = &alloc,
		.if_name = (char *)(uintptr_t)(name ? name : row->device_name),
		.sandbox_id = j->sandbox_id};
	struct rpc_conn *manager = statd_manager(j->s, manager_type_parse(row->manager));

	if (j->fds[0] < 0)
		(void)rpc_start(j->s->loop, manager, API_DEVICE_RECLAIM, &alloc, NULL, 0,
			on_reclaimed, j);
	else
		(void)rpc_start(j->s->loop, manager, API_DEVICE_DETACH, &a, j->fds, 0,
			on_detached, j);
}

static void job_next(struct detach_rows_job *j)
{
	for (; j->left > 0; j->left--) {
		const struct alloc_row *row =
			table_get(j->s->tables.allocations, j->keys.v[j->left - 1]);

		if (!row || !str_equal(row->sandbox_id, j->sandbox_id))
			continue;
		call_detach(j, row);
		return;
	}
	job_end(j);
}

static void on_socket(void *ctx, const struct err *err, const void *result UNUSED, int *fds)
{
	struct detach_rows_job *j = ctx;

	if (err) {
		for (size_t i = 0; i < j->keys.n; i++)
			failed(j, j->keys.v[i], err);
		job_end(j);
		return;
	}
	j->fds[1] = take_fd(&fds[0]);
	job_next(j);
}

static void start(struct statd *s, const char *sandbox_id, struct strlist *keys, bool has_ended,
	void (*done)(void *ctx, const struct err *err), void *ctx)
{
	struct netns_socket request = {.protocol = (char *)(uintptr_t) "route"};
	struct detach_rows_job *j = xcalloc(1, sizeof(*j));

	*j = (struct detach_rows_job){.s = s,
		.keys = *keys,
		.left = keys->n,
		.has_ended = has_ended,
		.done = done,
		.ctx = ctx};
	*keys = (struct strlist){0};
	j->sandbox_id = xstrdup(sandbox_id);
	j->fds[0] = sandbox_netns(&s->sandboxes, sandbox_id);
	j->fds[1] = -1;
	if (j->fds[0] < 0)
		job_next(j);
	else
		(void)rpc_start(s->loop, peer_conn(&s->peers, PEER_NETNSD), API_NETNS_SOCKET,
			&request, j->fds, 0, on_socket, j);
}

void detach_rows(struct statd *s, const char *sandbox_id, struct strlist *keys,
	void (*done)(void *ctx, const struct err *err), void *ctx)
{
	const bool has_ended = s->has_synced && !strlist_has(&s->live, sandbox_id);

	start(s, sandbox_id, keys, has_ended, done, ctx);
}

/* --- a pod's detach ----------------------------------------------------------------------- */

struct detach {
	struct statd *s;
	struct rpc_call *call; /* NULL: nobody waits */
	char *pod_uid, *sandbox_id;
	struct lock lock;
};

static void detach_end(struct detach *d, const struct err *err)
{
	struct statd *s = d->s;
	struct empty none = {0};

	if (err)
		LOG(ERROR,
			FIELDS(F("pod", d->pod_uid), F("sandbox", d->sandbox_id),
				F("err", err->message)),
			"devices not taken back from a sandbox that ends");
	if (d->call && err)
		rpc_reply_err(d->call, err);
	else if (d->call)
		rpc_reply(d->call, &none, NULL);
	lock_release(s->locks, &d->lock);
	free(d->pod_uid);
	free(d->sandbox_id);
	free(d);
	statd_job_end(s);
}

static void on_rows_detached(void *ctx, const struct err *err)
{
	struct detach *d = ctx;

	if (!err)
		LOG(INFO, FIELDS(F("pod", d->pod_uid), F("sandbox", d->sandbox_id)),
			"took the devices back from a sandbox that ends");
	detach_end(d, err);
}

static void on_locked(void *ctx)
{
	struct detach *d = ctx;
	const struct table_row *row = table_index_first(
		d->s->tables.allocations, ALLOC_BY_SANDBOX, d->sandbox_id);
	struct strlist keys = {0};

	/* one that may be the pod's is under its lock as well */
	for (; row; row = table_index_next(row, ALLOC_BY_SANDBOX))
		if (strcmp(alloc_row_of(row)->pod_uid, d->pod_uid) == 0 ||
			row_may_be_of(alloc_row_of(row), d->pod_uid))
			strlist_add(&keys, row->key);
	if (keys.n == 0)
		detach_end(d, NULL);
	else
		start(d->s, d->sandbox_id, &keys, true, on_rows_detached, d);
}

void detach_start(struct statd *s, struct rpc_call *call, const struct pod_detach *pod)
{
	struct detach *d = xcalloc(1, sizeof(*d));

	*d = (struct detach){.s = s, .call = call};
	d->pod_uid = xstrdup(pod->pod_uid);
	d->sandbox_id = xstrdup(pod->sandbox_id);
	strlist_remove(&s->live, d->sandbox_id);
	statd_job_begin(s);
	lock_take(s->locks, &d->lock, "pod", d->pod_uid, on_locked, d);
}

/* --- what the runtime has ----------------------------------------------------------------- */

static bool lists(const struct pod_sync *pods, const char *sandbox_id)
{
	for (size_t i = 0; i < pods->pods.n; i++)
		if (strcmp(pods->pods.v[i].sandbox_id, sandbox_id) == 0)
			return true;
	return false;
}

static void count_row(const struct statd *s, const struct alloc_row *row,
	const struct pod_ref *pod, bool moving, struct pod_check_result *ret)
{
	if (!row_moves_link(row))
		return;
	ret->wanted.v++;
	if (!moving && strcmp(row->pod_uid, pod->pod_uid) == 0 && !row->unfinished.v &&
		row_is_attached(s, row, pod->sandbox_id))
		ret->there.v++;
}

/* Rows of other pods, that this one may have or that its container was given, count as missing. */
static void count_others(
	const struct statd *s, const struct pod_ref *pod, struct pod_check_result *ret)
{
	const struct table *table = s->tables.allocations;
	const struct table_row *at = table_index_first(table, ALLOC_BY_POD, POD_UNKNOWN);

	for (; at; at = table_index_next(at, ALLOC_BY_POD))
		if (row_may_be_of(alloc_row_of(at), pod->pod_uid))
			count_row(s, alloc_row_of(at), pod, true, ret);
	for (size_t i = 0; i < pod->claims.n; i++)
		if (!claim_is_of_pod(s, pod->claims.v[i], pod->pod_uid))
			ret->wanted.v++;
}

void pod_check(const struct statd *s, const struct pod_ref *pod, struct pod_check_result *ret)
{
	const struct table_row *row =
		table_index_first(s->tables.allocations, ALLOC_BY_POD, pod->pod_uid);
	/* a row may say that its device is there while the last step of an attach can still
	 * fail */
	bool moving = lock_is_held(s->locks, "pod", pod->pod_uid);

	*ret = (struct pod_check_result){.wanted = {0, true}, .there = {0, true}};
	for (; row; row = table_index_next(row, ALLOC_BY_POD))
		count_row(s, alloc_row_of(row), pod, moving, ret);
	count_others(s, pod, ret);
}

/* Whether the sandbox lacks a device that is in no other live sandbox: of two of one pod the one that
 * has it keeps it, for the newer one was attached when it started. */
static bool wants(const struct statd *s, const struct pod_sync *pods, const struct pod_ref *pod)
{
	const struct table_row *at =
		table_index_first(s->tables.allocations, ALLOC_BY_POD, pod->pod_uid);
	struct pod_check_result devices;

	for (; at; at = table_index_next(at, ALLOC_BY_POD)) {
		const struct alloc_row *row = alloc_row_of(at);

		if (row_is_in_a_sandbox(row) && strcmp(row->sandbox_id, pod->sandbox_id) != 0 &&
			lists(pods, row->sandbox_id))
			return false;
	}
	pod_check(s, pod, &devices);
	return devices.there.v < devices.wanted.v;
}

void sync_pods(struct statd *s, const struct pod_sync *pods, struct pod_sync_result *ret)
{
	const struct table_row *row = table_first(s->tables.allocations);
	struct strlist told = {0};

	s->has_synced = true;
	strlist_fini(&s->live);
	for (; row; row = table_next(row)) {
		const struct alloc_row *a = alloc_row_of(row);
		cleanup_free char *sandbox = NULL;

		if (a->sandbox_id && lists(pods, a->sandbox_id))
			strlist_add(&s->live, a->sandbox_id);
		if (!a->sandbox_id || lists(pods, a->sandbox_id))
			continue;
		sandbox = xasprintf("%s/%s", a->pod_uid, a->sandbox_id);
		if (strlist_has(&told, sandbox))
			continue;
		strlist_add(&told, sandbox);
		LOG(WARN, FIELDS(F("pod", a->pod_uid), F("sandbox", a->sandbox_id)),
			"the runtime does not have this sandbox any more");
		detach_start(s, NULL, &(struct pod_detach){a->pod_uid, a->sandbox_id});
	}
	strlist_fini(&told);
	strlist_fini(&s->late);
	for (size_t i = 0; i < pods->pods.n; i++) {
		if (!wants(s, pods, &pods->pods.v[i]))
			continue;
		strlist_add(&ret->sandbox_ids, pods->pods.v[i].sandbox_id);
		strlist_add(&s->late, pods->pods.v[i].sandbox_id);
	}
}
