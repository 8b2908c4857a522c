/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing a pod's devices into its sandbox.
 *
 *	LOCK pod ─▶ LEAVE old ─▶ SOCKET ─▶ CHECK names ─▶ per device: ATTACH ─▶ SYSCTL ─▶ UP ─▶ answer
 *	                                       │              │  ▲         │        │
 *	                                       │       gone:  RECOVER      │        │
 *	                                       ▼              ▼            ▼        ▼
 *	                                  answer with the error ◀────── UNDO ×m
 *
 * All or nothing: when one device fails, those that this call put in come back, and the answer
 * is the error. A manager that did not answer in time may do the work all the same, later: its
 * device counts as put in, so that it is taken back when the manager has come to it; the caller
 * is not kept waiting for that. One that was there before, as all are after a restart of ours, stays: the pod
 * may be using it. Names are checked in the pod before anything moves, alternative names included;
 * links that carry the mark of the pod's own claims do not count, since after a crash half way
 * they may be there already. A second call for the same sandbox finds all rows attached and
 * does nothing; a row with a problem, whose device could not even be taken back, is attached
 * anew. A device without sysctls is up when it is attached; with them it is kept down until they
 * are set, so that nothing happens on it under others. Rows that are attached to another sandbox of the pod, one that was replaced and
 * whose end comes late or never, leave that one first.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/check.h"
#include "common/log.h"
#include "statd/claim.h"
#include "statd/flows.h"

struct attach {
	struct statd *s;
	struct rpc_call *call;
	char *pod_uid, *sandbox_id;
	char *pod_namespace, *pod_name; /* NULL: not told */
	int fds[2];                     /* namespace, rtnetlink socket inside it */
	struct lock lock;
	struct strlist keys;  /* rows to be attached, in the order of their keys */
	struct strlist moved; /* those that this call has put in */
	size_t n_there;       /* devices that are in the sandbox, those included */
	size_t at;
	bool recovered; /* the one at hand was made again */
	bool kept_down; /* the one at hand is in, and down */
	struct err err;
};

static void tell_pod(const struct attach *a, enum event_reason reason, const char *note)
{
	event_pod(a->s, a->pod_namespace, a->pod_name, a->pod_uid, reason, note);
}

static void attach_end(struct attach *a)
{
	struct statd *s = a->s;
	char count[16];

	if (a->err.kind != ERR_NONE) {
		if (a->at < a->keys.n)
			row_set_problem(s, a->keys.v[a->at], &a->err);
		LOG(ERROR,
			FIELDS(F("pod", a->pod_uid), F("sandbox", a->sandbox_id),
				F("err", a->err.message)),
			"devices not attached");
		tell_pod(a, EVENT_ATTACH_FAILED, a->err.message);
		if (a->call)
			rpc_reply_err(a->call, &a->err);
	} else {
		struct pod_attach_result result = {.devices = {(int64_t)a->n_there, true}};

		(void)snprintf(count, sizeof(count), "%zu", a->keys.n);
		if (a->keys.n)
			LOG(INFO,
				FIELDS(F("pod", a->pod_uid), F("sandbox", a->sandbox_id),
					F("devices", count)),
				"devices attached");
		if (a->moved.n && strlist_has(&s->late, a->sandbox_id))
			tell_pod(a, EVENT_ATTACHED_LATE,
				"containers of this pod were running before their device was "
				"there");
		strlist_remove(&s->late, a->sandbox_id);
		rpc_reply(a->call, &result, NULL);
	}
	lock_release(s->locks, &a->lock);
	close_fd(&a->fds[0]);
	close_fd(&a->fds[1]);
	strlist_fini(&a->keys);
	strlist_fini(&a->moved);
	free(a->pod_uid);
	free(a->sandbox_id);
	free(a->pod_namespace);
	free(a->pod_name);
	free(a);
	statd_job_end(s);
}

static const struct alloc_row *row_at(const struct attach *a)
{
	return table_get(a->s->tables.allocations, a->keys.v[a->at]);
}

static struct rpc_conn *manager_of(const struct attach *a, const struct alloc_row *row)
{
	return statd_manager(a->s, manager_type_parse(row->manager));
}

/* --- UNDO --------------------------------------------------------------------------------- */

static void on_undone(void *ctx, const struct err *err)
{
	struct attach *a = ctx;

	if (err)
		LOG(WARN, FIELDS(F("pod", a->pod_uid), F("err", err->message)),
			"a device that was attached before the failure stays in the sandbox");
	attach_end(a);
}

static void attach_fail(struct attach *a, const struct err *err)
{
	struct strlist keys = a->moved;

	a->err = *err;
	a->moved = (struct strlist){0};
	if (err->kind == ERR_DEADLINE && a->call) {
		rpc_reply_err(a->call, err);
		a->call = NULL;
	}
	if (keys.n == 0)
		attach_end(a);
	else
		detach_rows(a->s, a->sandbox_id, &keys, on_undone, a);
}

static void device_failed(struct attach *a, const struct err *err)
{
	const struct alloc_row *row = row_at(a);
	struct err wrapped = *err;

	(void)err_wrap(&wrapped, "device %s", row ? row->device_name : a->keys.v[a->at]);
	attach_fail(a, &wrapped);
}

/* --- SYSCTL, UP --------------------------------------------------------------------------- */

static void attach_next(struct attach *a);

static bool has_sysctls(const struct alloc_row *row)
{
	return row->config && row->config->sysctl_ipv4.n + row->config->sysctl_ipv6.n > 0;
}

/* Calls the manager to attach the device at hand. */
static void call_attach(struct attach *a, bool keep_down, rpc_done_cb *cb)
{
	const struct alloc_row *row = row_at(a);
	struct device_alloc alloc = row_alloc(row);
	const struct device_attach request = {
		.allocation = &alloc,
		.if_name = (char *)(uintptr_t)plan_if_name(row->config, row->prepared),
		.sandbox_id = a->sandbox_id,
		.keep_down = {.v = keep_down, .set = keep_down},
	};

	(void)rpc_start(
		a->s->loop, manager_of(a, row), API_DEVICE_ATTACH, &request, a->fds, 0, cb, a);
}

static void device_done(struct attach *a)
{
	a->at++;
	attach_next(a);
}

static void on_up(void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct attach *a = ctx;

	if (err)
		device_failed(a, err);
	else
		device_done(a);
}

static void on_sysctls_set(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct attach *a = ctx;

	if (err) {
		struct err wrapped = *err;

		(void)err_wrap(&wrapped, "failed to apply sysctl settings");
		device_failed(a, &wrapped);
	} else if (a->kept_down) {
		call_attach(a, false, on_up);
	} else {
		device_done(a);
	}
}

static void add_settings(
	struct netns_sysctl *request, const char *family, const struct strmap *map)
{
	for (size_t i = 0; i < map->n; i++)
		request->settings.v[request->settings.n++] = (struct sysctl_setting){
			(char *)(uintptr_t)family, map->v[i].key, map->v[i].value};
}

static void set_sysctls(struct attach *a, const struct alloc_row *row)
{
	const struct device_config *c = row->config;
	struct netns_sysctl request = {.if_name = row->pod_if_name};

	request.settings.v =
		xcalloc(c->sysctl_ipv4.n + c->sysctl_ipv6.n, sizeof(*request.settings.v));
	add_settings(&request, "ipv4", &c->sysctl_ipv4);
	add_settings(&request, "ipv6", &c->sysctl_ipv6);
	(void)rpc_start(a->s->loop, peer_conn(&a->s->peers, PEER_NETNSD), API_NETNS_SYSCTL,
		&request, a->fds, 0, on_sysctls_set, a);
	free(request.settings.v);
}

/* --- ATTACH, RECOVER ---------------------------------------------------------------------- */

/* Keeps the namespace for as long as it holds a device. */
static void keep_netns(const struct attach *a)
{
	int fd = fcntl(a->fds[0], F_DUPFD_CLOEXEC, 3);

	if (fd >= 0)
		sandbox_put(&a->s->sandboxes, a->sandbox_id, &fd);
}

/* The device at hand is in the sandbox under this name, or may be: then problem says so. */
static bool mark_in_sandbox(struct attach *a, const char *if_name, const char *problem)
{
	struct alloc_row row;

	if (!row_take(a->s, a->keys.v[a->at], &row))
		return false;
	free(row.sandbox_id);
	free(row.pod_if_name);
	free(row.problem);
	row.sandbox_id = xstrdup(a->sandbox_id);
	row.pod_if_name = xstrdup(if_name);
	row.problem = xstrdup_opt(problem);
	row_put(a->s, &row);
	keep_netns(a);
	return true;
}

static void mark_attached(struct attach *a, const struct device_attach_result *result)
{
	if (!mark_in_sandbox(a, result->if_name, NULL))
		return;
	if (!result->was_there.v)
		strlist_add(&a->moved, a->keys.v[a->at]);
	a->n_there++;
}

static void on_recovered(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct device_result *r = result;
	struct attach *a = ctx;
	struct alloc_row row;

	if (err) {
		struct err wrapped = *err;

		(void)err_wrap(&wrapped, "failed to re-create it on demand");
		device_failed(a, &wrapped);
		return;
	}
	if (row_take(a->s, a->keys.v[a->at], &row)) {
		rec_fini(&rec_device, row.prepared);
		rec_copy(&rec_device, row.prepared, r->device);
		free(row.prepared_device);
		row.prepared_device = packed_copy(r->device->state);
		row_put(a->s, &row);
	}
	a->recovered = true;
	attach_next(a);
}

static void recover(struct attach *a)
{
	const struct alloc_row *row = row_at(a);
	struct device_alloc alloc = row_alloc(row);

	LOG(INFO, FIELDS(F("claim", row->claim_uid), F("device", row->device_name)),
		"allocated device link not found; re-creating on demand");
	(void)rpc_start(a->s->loop, manager_of(a, row), API_DEVICE_RECOVER, &alloc, NULL, 0,
		on_recovered, a);
}

/* The manager may still put the device at hand into the sandbox. */
static void mark_unsure(struct attach *a)
{
	const struct alloc_row *row = row_at(a);
	cleanup_free char *name =
		row ? xstrdup_opt(plan_if_name(row->config, row->prepared)) : NULL;

	if (name && mark_in_sandbox(a, name, "its manager did not say whether it is attached"))
		strlist_add(&a->moved, a->keys.v[a->at]);
}

static void on_attached(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct device_attach_result *r = result;
	struct attach *a = ctx;

	if (err && err->kind == ERR_NOT_FOUND && !a->recovered && row_at(a)) {
		recover(a);
		return;
	}
	if (err && err->kind == ERR_NOT_FOUND) {
		struct err wrapped = *err;

		(void)err_wrap(&wrapped, "still not found after re-creating it on demand");
		device_failed(a, &wrapped);
		return;
	}
	if (err) {
		if (err->kind == ERR_DEADLINE)
			mark_unsure(a);
		device_failed(a, err);
		return;
	}
	a->recovered = false;
	mark_attached(a, r);
	if (has_sysctls(row_at(a))) {
		a->kept_down = !r->was_there.v;
		set_sysctls(a, row_at(a));
	} else {
		device_done(a);
	}
}

static void attach_next(struct attach *a)
{
	if (a->at == a->keys.n)
		attach_end(a);
	else
		call_attach(a, has_sysctls(row_at(a)), on_attached);
}

/* --- SOCKET, CHECK ------------------------------------------------------------------------ */

static void on_names_checked(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct attach *a = ctx;
	struct err wrapped;

	if (!err) {
		attach_next(a);
		return;
	}
	wrapped = *err;
	(void)err_wrap(&wrapped, "pod interface allocations is invalid");
	attach_fail(a, &wrapped);
}

/* The names that the pod's devices will have. Two that want the same are refused here. */
static int collect_names(const struct attach *a, struct name_list *ret, struct err *err)
{
	for (size_t i = 0; i < a->keys.n; i++) {
		const struct alloc_row *row = table_get(a->s->tables.allocations, a->keys.v[i]);
		const char *name = plan_if_name(row->config, row->prepared);

		if (!name)
			return err_set(err, ERR_INTERNAL, "device %s has no name for the pod",
				row->device_name);
		if (strlist_has(&ret->names, name))
			return err_set(err, ERR_INVALID,
				"pod interface allocations is invalid: two devices of the pod "
				"want "
				"the name \"%s\"",
				name);
		strlist_add(&ret->names, name);
		if (!strlist_has(&ret->claim_uids, row->claim_uid))
			strlist_add(&ret->claim_uids, row->claim_uid);
	}
	return 0;
}

static void check_names(struct attach *a)
{
	struct name_list names = {0};
	struct err err;

	if (collect_names(a, &names, &err) < 0)
		attach_fail(a, &err);
	else
		(void)rpc_start(a->s->loop, manager_of(a, row_at(a)), API_DEVICE_CHECK, &names,
			&a->fds[1], 0, on_names_checked, a);
	strlist_fini(&names.names);
	strlist_fini(&names.claim_uids);
}

static void on_socket(void *ctx, const struct err *err, const void *result UNUSED, int *fds)
{
	struct attach *a = ctx;

	if (err) {
		struct err wrapped = *err;

		(void)err_wrap(&wrapped, "opening a socket in the pod's namespace");
		attach_fail(a, &wrapped);
		return;
	}
	a->fds[1] = take_fd(&fds[0]);
	check_names(a);
}

static void open_socket(struct attach *a)
{
	struct netns_socket request = {.protocol = (char *)(uintptr_t) "route"};

	(void)rpc_start(a->s->loop, peer_conn(&a->s->peers, PEER_NETNSD), API_NETNS_SOCKET,
		&request, a->fds, 0, on_socket, a);
}

/* --- LEAVE -------------------------------------------------------------------------------- */

static void leave_next(struct attach *a);

static void on_left(void *ctx, const struct err *err)
{
	struct attach *a = ctx;

	if (err)
		attach_fail(a, err);
	else
		leave_next(a);
}

static void leave_next(struct attach *a)
{
	const struct table *table = a->s->tables.allocations;
	const struct table_row *row = table_index_first(table, ALLOC_BY_POD, a->pod_uid);
	cleanup_free char *old = NULL;
	struct strlist keys = {0};

	for (; row; row = table_index_next(row, ALLOC_BY_POD)) {
		const struct alloc_row *r = alloc_row_of(row);

		if (!r->sandbox_id || strcmp(r->sandbox_id, a->sandbox_id) == 0)
			continue;
		if (old && strcmp(old, r->sandbox_id) != 0)
			continue;
		if (!old)
			old = xstrdup(r->sandbox_id);
		strlist_add(&keys, row->key);
	}
	if (!old) {
		open_socket(a);
		return;
	}
	LOG(INFO, FIELDS(F("pod", a->pod_uid), F("sandbox", old)),
		"a new sandbox replaces this one; taking its devices back first");
	detach_rows(a->s, old, &keys, on_left, a);
}

/* --- LOCK --------------------------------------------------------------------------------- */

static void on_locked(void *ctx)
{
	struct attach *a = ctx;
	const struct table_row *row =
		table_index_first(a->s->tables.allocations, ALLOC_BY_POD, a->pod_uid);

	for (; row; row = table_index_next(row, ALLOC_BY_POD)) {
		const struct alloc_row *r = alloc_row_of(row);

		if (!row_moves_link(r))
			continue;
		if (row_is_attached(r, a->sandbox_id))
			a->n_there++;
		else
			strlist_add(&a->keys, row->key);
	}
	if (a->keys.n == 0)
		attach_end(a);
	else
		leave_next(a);
}

static int check_netns(int fd, struct err *err)
{
	int type = ioctl(fd, NS_GET_NSTYPE);

	if (type < 0)
		return err_set(err, ERR_INVALID,
			"the descriptor that came with the call is not a namespace");
	if (type != CLONE_NEWNET)
		return err_set(err, ERR_INVALID,
			"the descriptor that came with the call is not a network namespace");
	return 0;
}

void attach_start(
	struct statd *s, struct rpc_call *call, const struct pod_attach *pod, int *netns_fd)
{
	struct attach *a;
	struct err err;

	if (check_netns(*netns_fd, &err) < 0) {
		rpc_reply_err(call, &err);
		return;
	}
	a = xcalloc(1, sizeof(*a));
	*a = (struct attach){.s = s, .call = call, .fds = {take_fd(netns_fd), -1}};
	a->pod_uid = xstrdup(pod->pod_uid);
	a->sandbox_id = xstrdup(pod->sandbox_id);
	a->pod_namespace = xstrdup_opt(pod->pod_namespace);
	a->pod_name = xstrdup_opt(pod->pod_name);
	statd_job_begin(s);
	lock_take(s->locks, &a->lock, "pod", a->pod_uid, on_locked, a);
}
