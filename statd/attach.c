/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching a pod's devices to its sandbox.
 *
 *	LOCK ─▶ LEAVE old ─▶ SOCKET ─▶ CHECK names ─▶ RECORD ─▶ per device: ATTACH ─▶ SYSCTL ─▶ UP ─▶ RECORD ─▶ answer
 *	  │                                │                        │  ▲         │        │
 *	  └ another pod has it             │                 gone:  RECOVER      │        │
 *	                                   ▼                        ▼            ▼        ▼
 *	                              answer with the error ◀──────────────── UNDO ×m
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
 *
 * Before the first device moves, the sandbox's namespace is kept, all rows name the sandbox, and the
 * records say so: wherever the process ends from here on, it is known where a device may be.
 *
 * The kubelet prepares a claim that several pods share for the first of them only. The others are
 * known by what their containers were given. A device is in one pod at a time: while it is in the
 * first, or on its way there, the others are refused; when that one's sandbox has ended it goes to
 * the one that asks.
 */
#include <assert.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/check.h"
#include "common/claim_files.h"
#include "common/log.h"
#include "statd/claim.h"
#include "statd/flows.h"

#define MAX_CLAIMS 256 /* in an answer: api.c */

struct attach {
	struct statd *s;
	struct rpc_call *call;
	char *pod_uid, *sandbox_id;
	char *pod_namespace, *pod_name; /* NULL: not told */
	struct strlist claims;          /* that its containers were given: api.h, struct pod_ref */
	int fds[2];                     /* namespace, rtnetlink socket inside it */
	struct locks locks;
	unsigned rounds;      /* of taking the locks */
	struct strlist keys;  /* rows to be attached, in the order of their keys */
	struct strlist moved; /* those that this call has put in */
	size_t n_there;       /* devices that are in the sandbox, those included */
	size_t at;
	bool recorded;  /* the rows name the sandbox */
	bool sent;      /* the manager was there to be called for the one at hand */
	bool recovered; /* the one at hand was made again */
	bool kept_down; /* the one at hand is in, and down */
	struct err err;
};

static void on_locked(void *ctx);
static void attach_next(struct attach *a);
static void record_intent(struct attach *a);

static void tell_pod(const struct attach *a, enum event_reason reason, const char *note)
{
	event_pod(a->s, a->pod_namespace, a->pod_name, a->pod_uid, reason, note);
}

/* The record of each claim that has one of the rows, once. */
static int save_records(const struct attach *a, struct err *err)
{
	struct strlist saved = {0};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < a->keys.n; i++) {
		const struct alloc_row *row = table_get(a->s->tables.allocations, a->keys.v[i]);

		if (!row || strlist_has(&saved, row->claim_uid))
			continue;
		strlist_add(&saved, row->claim_uid);
		rc = record_save(a->s, row->claim_uid, err);
	}
	strlist_fini(&saved);
	return rc;
}

/* Rows whose turn did not come, or whose device the manager has not moved, are in no sandbox; that of
 * the device which failed says why. */
static void settle_rows(struct attach *a)
{
	struct err err;

	if (!a->recorded && a->err.kind != ERR_NONE && a->at < a->keys.n)
		row_set_problem(a->s, a->keys.v[a->at], &a->err);
	if (!a->recorded)
		return;
	for (size_t i = 0; i < a->keys.n; i++) {
		struct alloc_row row;

		if (!row_take(a->s, a->keys.v[i], &row))
			continue;
		if (str_equal(row.problem, ALLOC_BEING_ATTACHED)) {
			free(take_ptr(row.sandbox_id));
			free(take_ptr(row.pod_if_name));
			free(take_ptr(row.problem));
		}
		if (a->err.kind != ERR_NONE && i == a->at) {
			free(row.problem);
			row.problem = xstrdup(a->err.message);
			str_sanitize(row.problem);
		}
		row_put(a->s, &row);
	}
	if (save_records(a, &err) < 0)
		LOG(ERROR, FIELDS(F("pod", a->pod_uid), F("err", err.message)),
			"the record of a claim is not up to date");
}

/* Claims of which the pod has all: a container that is given one needs no call. */
static void list_claims(const struct attach *a, struct strlist *ret)
{
	const struct table_row *at =
		table_index_first(a->s->tables.allocations, ALLOC_BY_POD, a->pod_uid);

	for (; at && ret->n < MAX_CLAIMS; at = table_index_next(at, ALLOC_BY_POD)) {
		const struct alloc_row *row = alloc_row_of(at);
		cleanup_free char *claim = claim_files_dir(
			row->claim_namespace, row->claim_name, row->claim_uid);

		if (!strlist_has(ret, claim))
			strlist_add(ret, claim);
	}
}

static void attach_end(struct attach *a)
{
	struct statd *s = a->s;
	char count[16];

	settle_rows(a);
	if (a->err.kind != ERR_NONE) {
		LOG(ERROR,
			FIELDS(F("pod", a->pod_uid), F("sandbox", a->sandbox_id),
				F("err", a->err.message)),
			"devices not attached");
		tell_pod(a, EVENT_ATTACH_FAILED, a->err.message);
		if (a->call)
			rpc_reply_err(a->call, &a->err);
	} else {
		struct pod_attach_result result = {.devices = {(int64_t)a->n_there, true}};

		list_claims(a, &result.claims);
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
		strlist_fini(&result.claims);
	}
	sandbox_drop_unused(s, a->sandbox_id);
	locks_release(&a->locks);
	close_fd(&a->fds[0]);
	close_fd(&a->fds[1]);
	strlist_fini(&a->claims);
	strlist_fini(&a->keys);
	strlist_fini(&a->moved);
	free(a->pod_uid);
	free(a->sandbox_id);
	free(a->pod_namespace);
	free(a->pod_name);
	free(a);
	statd_job_end(s);
}

/* It stays for as long as the locks are held. */
static const struct alloc_row *row_at(const struct attach *a)
{
	const struct alloc_row *row = table_get(a->s->tables.allocations, a->keys.v[a->at]);

	assert(row);
	return row;
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

	(void)err_wrap(&wrapped, "device %s", row->device_name);
	attach_fail(a, &wrapped);
}

/* --- SYSCTL, UP --------------------------------------------------------------------------- */

static bool has_sysctls(const struct alloc_row *row)
{
	return row->config && row->config->sysctl_ipv4.n + row->config->sysctl_ipv6.n > 0;
}

/* Whether it was attached to this sandbox before: then its link is looked for there whatever the pod
 * has made of its name and mark. */
static bool may_be_there(const struct attach *a, const struct alloc_row *row)
{
	return str_equal(row->sandbox_id, a->sandbox_id) &&
	       !str_equal(row->problem, ALLOC_BEING_ATTACHED);
}

/* Calls the manager to attach the device at hand. */
static void call_attach(struct attach *a, bool keep_down, rpc_done_cb *cb)
{
	const struct alloc_row *row = row_at(a);
	const bool before = may_be_there(a, row);
	struct device_alloc alloc = row_alloc(row);
	const struct device_attach request = {
		.allocation = &alloc,
		.if_name = (char *)(uintptr_t)plan_if_name(row->config, row->prepared),
		.sandbox_id = a->sandbox_id,
		.keep_down = {.v = keep_down, .set = keep_down},
		.may_be_there = {.v = before, .set = before},
	};

	a->sent = manager_of(a, row) != NULL;
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
	if (!problem && !*row.pod_uid) { /* now it is known which pod has it */
		free(row.pod_uid);
		row.pod_uid = xstrdup(a->pod_uid);
	}
	if (!problem)
		row.has_left = (struct rec_bool){0};
	row_put(a->s, &row);
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
		row_set_prepared(&row, r->device);
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
		xstrdup_opt(plan_if_name(row->config, row->prepared));

	if (name && mark_in_sandbox(a, name, "its manager did not say whether it is attached"))
		strlist_add(&a->moved, a->keys.v[a->at]);
}

static void on_attached(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct device_attach_result *r = result;
	struct attach *a = ctx;

	if (err && err->kind == ERR_NOT_FOUND && !a->recovered && *row_at(a)->pod_uid) {
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
		/* one that ended in the middle of it does not answer either */
		if (err->kind == ERR_DEADLINE || (err->kind == ERR_UNAVAILABLE && a->sent))
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

/* --- RECORD ------------------------------------------------------------------------------- */

static void record_intent(struct attach *a)
{
	struct err err;

	a->recorded = true;
	for (size_t i = 0; i < a->keys.n; i++) {
		struct alloc_row row;

		/* one that may be there already keeps what is known of it */
		if (!row_take(a->s, a->keys.v[i], &row))
			continue;
		if (!row_is_in_a_sandbox(&row)) {
			free(row.sandbox_id);
			free(row.pod_if_name);
			free(row.problem);
			row.sandbox_id = xstrdup(a->sandbox_id);
			row.pod_if_name = xstrdup(plan_if_name(row.config, row.prepared));
			row.problem = xstrdup(ALLOC_BEING_ATTACHED);
		}
		row_put(a->s, &row);
	}
	if (save_records(a, &err) < 0)
		attach_fail(a, &err);
	else
		attach_next(a);
}

/* --- SOCKET, CHECK ------------------------------------------------------------------------ */

static void on_names_checked(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct attach *a = ctx;
	struct err wrapped;

	if (!err) {
		record_intent(a);
		return;
	}
	wrapped = *err;
	(void)err_wrap(&wrapped, "pod interface allocations is invalid");
	attach_fail(a, &wrapped);
}

static int add_name(const struct alloc_row *row, struct strlist *to, struct err *err)
{
	const char *name = plan_if_name(row->config, row->prepared);

	if (!name)
		return err_set(err, ERR_INTERNAL, "device %s has no name for the pod",
			row->device_name);
	if (strlist_has(to, name))
		return err_set(err, ERR_INVALID,
			"pod interface allocations is invalid: two devices of the pod want the "
			"name \"%s\"",
			name);
	strlist_add(to, name);
	return 0;
}

/* The names that the pod's devices will have. Two that want the same are refused here. That of a device
 * which was there before is not asked for: it may have it, and then without a mark that says so. */
static int collect_names(
	const struct attach *a, struct strlist *all, struct name_list *ret, struct err *err)
{
	for (size_t i = 0; i < a->keys.n; i++) {
		const struct alloc_row *row = table_get(a->s->tables.allocations, a->keys.v[i]);

		if (add_name(row, all, err) < 0)
			return -1;
		if (!may_be_there(a, row))
			strlist_add(&ret->names, all->v[all->n - 1]);
		if (!strlist_has(&ret->claim_uids, row->claim_uid))
			strlist_add(&ret->claim_uids, row->claim_uid);
	}
	return 0;
}

static void check_names(struct attach *a)
{
	struct name_list names = {0};
	struct strlist all = {0};
	struct err err;

	if (collect_names(a, &all, &names, &err) < 0)
		attach_fail(a, &err);
	else if (names.names.n == 0)
		record_intent(a);
	else
		(void)rpc_start(a->s->loop, manager_of(a, row_at(a)), API_DEVICE_CHECK, &names,
			&a->fds[1], 0, on_names_checked, a);
	strlist_fini(&all);
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

#define MAX_ROUNDS 16

static bool is_named(const struct strlist *claims, const struct alloc_row *row)
{
	for (size_t i = 0; i < claims->n; i++)
		if (row_is_of_claim(row, claims->v[i]))
			return true;
	return false;
}

/* Rows that are not this pod's by now, and concern it all the same. */
static bool concerns(const struct attach *a, const struct alloc_row *row)
{
	return strcmp(row->pod_uid, a->pod_uid) != 0 &&
	       (row_may_be_of(row, a->pod_uid) || is_named(&a->claims, row));
}

/* The pod's lock suffices unless a row may become its own. */
static void needed_locks(const struct attach *a, struct locks *ret)
{
	const struct table_row *at;

	locks_add(ret, "pod", a->pod_uid);
	at = a->claims.n ? table_first(a->s->tables.allocations)
			 : table_index_first(a->s->tables.allocations, ALLOC_BY_POD, POD_UNKNOWN);
	for (; at; at = a->claims.n ? table_next(at) : table_index_next(at, ALLOC_BY_POD)) {
		const struct alloc_row *row = alloc_row_of(at);

		if (!concerns(a, row))
			continue;
		locks_add(ret, "claim", row->claim_uid);
		add_pod_locks(a->s, row->claim_uid, ret);
	}
}

static void take_locks(struct attach *a)
{
	needed_locks(a, &a->locks);
	locks_take(a->s->locks, &a->locks, on_locked, a);
}

/* While they were waited for, other rows may have come to concern it. */
static bool has_all_locks(const struct attach *a)
{
	struct locks needed = {0};
	bool all = true;

	needed_locks(a, &needed);
	for (size_t i = 0; i < needed.names.n; i++)
		all = all && strlist_has(&a->locks.names, needed.names.v[i]);
	locks_release(&needed);
	return all;
}

/* A row of a claim that this pod's container was given is another pod's. */
static int check_can_have(const struct attach *a, const struct alloc_row *row, struct err *err)
{
	if (row->unfinished.v)
		return err_set(err, ERR_UNAVAILABLE, "claim %s/%s is being prepared",
			row->claim_namespace, row->claim_name);
	if (row_may_be_of(row, a->pod_uid) || (row->has_left.v && !row_is_in_a_sandbox(row)))
		return 0;
	return err_set(err, ERR_CONFLICT,
		"device %s of claim %s/%s %s pod %s, and can be in one pod at a time; give each pod "
		"a claim of its own (resourceClaimTemplateName)",
		row->device_name, row->claim_namespace, row->claim_name,
		row_is_in_a_sandbox(row) ? "is in" : "is prepared for",
		*row->pod_uid ? row->pod_uid : "(not known which)");
}

static int check_named(const struct attach *a, const char *claim, struct err *err)
{
	const struct table_row *at = table_first(a->s->tables.allocations);
	bool any = false;

	for (; at; at = table_next(at)) {
		const struct alloc_row *row = alloc_row_of(at);

		if (!row_is_of_claim(row, claim))
			continue;
		any = true;
		if (strcmp(row->pod_uid, a->pod_uid) != 0 && check_can_have(a, row, err) < 0)
			return -1;
	}
	if (any)
		return 0;
	return err_set(err, ERR_CONFLICT,
		"a container of the pod was given claim %s, of which nothing is prepared on this "
		"node; delete the pod, so that it is prepared anew",
		claim);
}

/* Rows that it may have by now become the pod's. */
static int adopt_rows(struct attach *a, struct err *err)
{
	struct strlist claims = {0}, pods = {0};
	const struct table_row *at;
	int rc = 0;

	for (at = table_first(a->s->tables.allocations); at; at = table_next(at)) {
		const struct alloc_row *r = alloc_row_of(at);
		struct alloc_row row;

		if (!*r->pod_uid || !concerns(a, r) || !row_take(a->s, at->key, &row))
			continue;
		LOG(INFO, FIELDS(F("claim", row.claim_uid), F("pod", a->pod_uid)),
			"the claim's device goes from pod %s, which has ended, to this one",
			row.pod_uid);
		if (!strlist_has(&claims, row.claim_uid))
			strlist_add(&claims, row.claim_uid);
		strlist_add(&pods, row.pod_uid);
		free(row.pod_uid);
		row.pod_uid = xstrdup(a->pod_uid);
		row_put(a->s, &row);
	}
	for (size_t i = 0; rc == 0 && i < claims.n; i++)
		rc = record_save(a->s, claims.v[i], err);
	for (size_t i = 0; i < pods.n; i++)
		record_check_pod(a->s, pods.v[i]);
	strlist_fini(&claims);
	strlist_fini(&pods);
	return rc;
}

static int check_claims(struct attach *a, struct err *err)
{
	for (size_t i = 0; i < a->claims.n; i++)
		if (check_named(a, a->claims.v[i], err) < 0)
			return -1;
	return a->claims.n ? adopt_rows(a, err) : 0;
}

static int collect_row(struct attach *a, const struct table_row *at, struct err *err)
{
	const struct alloc_row *row = alloc_row_of(at);

	if (!row_moves_link(row))
		return 0;
	if (row->unfinished.v)
		return err_set(err, ERR_UNAVAILABLE,
			"device %s of claim %s/%s is not prepared, but held by it",
			row->device_name, row->claim_namespace, row->claim_name);
	if (row_is_attached(a->s, row, a->sandbox_id))
		a->n_there++;
	else
		strlist_add(&a->keys, at->key);
	return 0;
}

/* Its own rows, and those of which it is not known whose they are. */
static int collect_rows(struct attach *a, struct err *err)
{
	const struct table *table = a->s->tables.allocations;
	const struct table_row *at = table_index_first(table, ALLOC_BY_POD, a->pod_uid);

	for (; at; at = table_index_next(at, ALLOC_BY_POD))
		if (collect_row(a, at, err) < 0)
			return -1;
	at = table_index_first(table, ALLOC_BY_POD, POD_UNKNOWN);
	for (; at; at = table_index_next(at, ALLOC_BY_POD))
		if (row_may_be_of(alloc_row_of(at), a->pod_uid) && collect_row(a, at, err) < 0)
			return -1;
	return 0;
}

static void on_locked(void *ctx)
{
	struct attach *a = ctx;
	struct err err;

	if (!has_all_locks(a)) {
		locks_release(&a->locks);
		if (++a->rounds < MAX_ROUNDS) {
			take_locks(a);
			return;
		}
		(void)err_set(&err, ERR_BUSY, "the pod's allocations change all the time");
		attach_fail(a, &err);
		return;
	}
	if (check_claims(a, &err) < 0 || collect_rows(a, &err) < 0 ||
		(a->keys.n > 0 &&
			sandbox_put(&a->s->sandboxes, a->sandbox_id, a->fds[0], &err) < 0))
		attach_fail(a, &err);
	else if (a->keys.n == 0)
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
	for (size_t i = 0; i < pod->claims.n; i++)
		strlist_add(&a->claims, pod->claims.v[i]);
	statd_job_begin(s);
	take_locks(a);
}
