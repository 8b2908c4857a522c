/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking devices back out of a sandbox.
 *
 *	detach_rows():  SOCKET ─▶ DETACH ×n ─▶ done
 *	a pod's detach: LOCK pod ─▶ detach_rows() ─▶ answer
 *
 * The namespace is the descriptor that was kept at attach: by the time that a sandbox's end is
 * told, its path may be gone. Without the descriptor there is nothing to enter: the sandbox was
 * not known to this process, its namespace ends with the runtime's last reference, and what the
 * kernel does with the links then is the manager's next recover or free to find.
 *
 * What matters is which sandbox is meant: a late or second end of an old one touches only rows
 * that still name it, never a device that a newer sandbox or claim holds.
 */
#include <string.h>

#include "common/log.h"
#include "statd/flows.h"

struct detach_rows_job {
	struct statd *s;
	char *pod_uid, *sandbox_id;
	struct strlist keys;
	size_t left; /* keys[left-1] is next */
	int fds[2];  /* namespace, rtnetlink socket inside it */
	struct err err;
	void (*done)(void *ctx, const struct err *err);
	void *ctx;
};

/* A sandbox is one pod's. */
static bool sandbox_in_use(const struct statd *s, const char *pod_uid, const char *sandbox_id)
{
	const struct table_row *row =
		table_index_first(s->tables.allocations, ALLOC_BY_POD, pod_uid);

	for (; row; row = table_index_next(row, ALLOC_BY_POD))
		if (str_equal(alloc_row_of(row)->sandbox_id, sandbox_id))
			return true;
	return false;
}

static void job_end(struct detach_rows_job *j)
{
	void (*done)(void *ctx, const struct err *err) = j->done;
	struct err err = j->err;
	void *ctx = j->ctx;

	if (!sandbox_in_use(j->s, j->pod_uid, j->sandbox_id))
		sandbox_drop(&j->s->sandboxes, j->sandbox_id);
	close_fd(&j->fds[0]);
	close_fd(&j->fds[1]);
	strlist_fini(&j->keys);
	free(j->pod_uid);
	free(j->sandbox_id);
	free(j);
	done(ctx, err.kind != ERR_NONE ? &err : NULL);
}

static void mark_detached(struct statd *s, const char *key)
{
	struct alloc_row row;

	if (!row_take(s, key, &row))
		return;
	free(row.sandbox_id);
	free(row.pod_if_name);
	free(row.problem);
	row.sandbox_id = row.pod_if_name = row.problem = NULL;
	row_put(s, &row);
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

static void on_detached(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct detach_rows_job *j = ctx;
	const char *key = j->keys.v[--j->left];

	if (err)
		failed(j, key, err);
	else
		mark_detached(j->s, key);
	job_next(j);
}

static void job_next(struct detach_rows_job *j)
{
	for (; j->left > 0; j->left--) {
		const struct alloc_row *row =
			table_get(j->s->tables.allocations, j->keys.v[j->left - 1]);
		struct device_attach a = {.sandbox_id = j->sandbox_id};
		struct device_alloc alloc;

		if (!row || !str_equal(row->sandbox_id, j->sandbox_id) || !row->pod_if_name)
			continue;
		alloc = row_alloc(row);
		a.allocation = &alloc;
		a.if_name = row->pod_if_name;
		(void)rpc_start(j->s->loop,
			statd_manager(j->s, manager_type_parse(row->manager)),
			API_DEVICE_DETACH, &a, j->fds, 0, on_detached, j);
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

void detach_rows(struct statd *s, const char *sandbox_id, struct strlist *keys,
	void (*done)(void *ctx, const struct err *err), void *ctx)
{
	struct netns_socket request = {.protocol = (char *)(uintptr_t) "route"};
	const struct alloc_row *first = table_get(s->tables.allocations, keys->v[0]);
	struct detach_rows_job *j = xcalloc(1, sizeof(*j));

	*j = (struct detach_rows_job){
		.s = s, .keys = *keys, .left = keys->n, .done = done, .ctx = ctx};
	*keys = (struct strlist){0};
	j->pod_uid = xstrdup(first ? first->pod_uid : "");
	j->sandbox_id = xstrdup(sandbox_id);
	j->fds[0] = sandbox_netns(&s->sandboxes, sandbox_id);
	j->fds[1] = -1;
	if (j->fds[0] < 0) {
		LOG(WARN, FIELDS(F("sandbox", sandbox_id)),
			"the namespace of a sandbox that ends is not known; nothing is taken "
			"back");
		for (size_t i = 0; i < j->keys.n; i++)
			mark_detached(s, j->keys.v[i]);
		job_end(j);
		return;
	}
	(void)rpc_start(s->loop, peer_conn(&s->peers, PEER_NETNSD), API_NETNS_SOCKET, &request,
		j->fds, 0, on_socket, j);
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
	const struct table_row *row =
		table_index_first(d->s->tables.allocations, ALLOC_BY_POD, d->pod_uid);
	struct strlist keys = {0};

	for (; row; row = table_index_next(row, ALLOC_BY_POD))
		if (str_equal(alloc_row_of(row)->sandbox_id, d->sandbox_id))
			strlist_add(&keys, row->key);
	if (keys.n == 0)
		detach_end(d, NULL);
	else
		detach_rows(d->s, d->sandbox_id, &keys, on_rows_detached, d);
}

void detach_start(struct statd *s, struct rpc_call *call, const struct pod_detach *pod)
{
	struct detach *d = xcalloc(1, sizeof(*d));

	*d = (struct detach){.s = s, .call = call};
	d->pod_uid = xstrdup(pod->pod_uid);
	d->sandbox_id = xstrdup(pod->sandbox_id);
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

void pod_check(const struct statd *s, const struct pod_ref *pod, struct pod_check_result *ret)
{
	const struct table_row *row =
		table_index_first(s->tables.allocations, ALLOC_BY_POD, pod->pod_uid);
	/* a row may say that its device is there while the last step of an attach can still
	 * fail */
	bool moving = lock_is_held(s->locks, "pod", pod->pod_uid);

	*ret = (struct pod_check_result){.wanted = {0, true}, .there = {0, true}};
	for (; row; row = table_index_next(row, ALLOC_BY_POD)) {
		const struct alloc_row *a = alloc_row_of(row);

		if (!row_moves_link(a))
			continue;
		ret->wanted.v++;
		if (!moving && row_is_attached(a, pod->sandbox_id))
			ret->there.v++;
	}
}

static bool wants(const struct statd *s, const struct pod_ref *pod)
{
	struct pod_check_result devices;

	pod_check(s, pod, &devices);
	return devices.there.v < devices.wanted.v;
}

void sync_pods(struct statd *s, const struct pod_sync *pods, struct pod_sync_result *ret)
{
	const struct table_row *row = table_first(s->tables.allocations);
	struct strlist told = {0};

	for (; row; row = table_next(row)) {
		const struct alloc_row *a = alloc_row_of(row);

		if (!a->sandbox_id || lists(pods, a->sandbox_id) ||
			strlist_has(&told, a->sandbox_id))
			continue;
		strlist_add(&told, a->sandbox_id);
		LOG(WARN, FIELDS(F("pod", a->pod_uid), F("sandbox", a->sandbox_id)),
			"the runtime does not have this sandbox any more");
		detach_start(s, NULL, &(struct pod_detach){a->pod_uid, a->sandbox_id});
	}
	strlist_fini(&told);
	strlist_fini(&s->late);
	for (size_t i = 0; i < pods->pods.n; i++) {
		if (!wants(s, &pods->pods.v[i]))
			continue;
		strlist_add(&ret->sandbox_ids, pods->pods.v[i].sandbox_id);
		strlist_add(&s->late, pods->pods.v[i].sandbox_id);
	}
}
