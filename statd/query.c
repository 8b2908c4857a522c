/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers for query.sock.
 *
 * A result is put together from borrowed rows, encoded and let go: nothing is copied but the
 * lists of names. A watcher is answered with the rows as they are and told every change from
 * there on, so that it misses none in between; one that does not read is dropped by the RPC's
 * bound on what waits.
 */
#include "statd/query.h"

#include <string.h>

#include "statd/publish.h"

struct query_watch {
	struct query_watch *next;
	struct rpc_conn *conn;
	const struct table *table; /* NULL: both */
};

/* --- rows --------------------------------------------------------------------------------- */

static int find_table(
	const struct statd *s, const char *name, const struct table **ret, struct err *err)
{
	*ret = NULL;
	if (!name)
		return 0;
	if (strcmp(name, TABLE_DEVICES) == 0)
		*ret = s->tables.devices;
	else if (strcmp(name, TABLE_ALLOCATIONS) == 0)
		*ret = s->tables.allocations;
	else
		return err_set(err, ERR_NOT_FOUND,
			"there is no table \"%s\"; these are: %s, %s", name, TABLE_DEVICES,
			TABLE_ALLOCATIONS);
	return 0;
}

static bool tables_initialized(const struct statd *s)
{
	return table_is_initialized(s->tables.devices) &&
	       table_is_initialized(s->tables.allocations);
}

static void reply_rows(struct statd *s, struct rpc_call *call, const struct table *only)
{
	const struct tables *t = &s->tables;
	struct table_list_result r = {
		.revision = {(int64_t)db_revision(t->db), true},
		.initialized = {tables_initialized(s), true},
	};

	r.devices.v = xcalloc(table_count(t->devices), sizeof(*r.devices.v));
	r.allocations.v = xcalloc(table_count(t->allocations), sizeof(*r.allocations.v));
	if (!only || only == t->devices)
		for (const struct table_row *row = table_first(t->devices); row;
			row = table_next(row))
			r.devices.v[r.devices.n++] = *device_row_of(row);
	if (!only || only == t->allocations)
		for (const struct table_row *row = table_first(t->allocations); row;
			row = table_next(row))
			r.allocations.v[r.allocations.n++] = *alloc_row_of(row);
	rpc_reply(call, &r, NULL);
	free(r.devices.v);
	free(r.allocations.v);
}

void query_list(struct statd *s, struct rpc_call *call, const struct table_list *request)
{
	const struct table *table;
	struct err err;

	if (find_table(s, request->table, &table, &err) < 0)
		rpc_reply_err(call, &err);
	else
		reply_rows(s, call, table);
}

/* --- watching ----------------------------------------------------------------------------- */

void query_watch(struct statd *s, struct rpc_call *call, const struct table_list *request)
{
	const struct table *table;
	struct query_watch *w;
	struct err err;

	if (find_table(s, request->table, &table, &err) < 0) {
		rpc_reply_err(call, &err);
		return;
	}
	query_forget(s, rpc_call_conn(call));
	w = xcalloc(1, sizeof(*w));
	*w = (struct query_watch){s->query_watches, rpc_call_conn(call), table};
	s->query_watches = w;
	reply_rows(s, call, table);
}

void query_forget(struct statd *s, const struct rpc_conn *conn)
{
	for (struct query_watch **at = &s->query_watches; *at;) {
		struct query_watch *w = *at;

		if (w->conn != conn) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		free(w);
	}
}

void query_forget_all(struct statd *s)
{
	while (s->query_watches)
		query_forget(s, s->query_watches->conn);
}

static void tell_change(const struct statd *s, struct rpc_conn *conn,
	const struct table_commit *commit, const struct table_change *change)
{
	void *rec = (void *)(uintptr_t)(change->new_rec ? change->new_rec : change->old_rec);
	bool devices = commit->table == s->tables.devices;
	struct table_event event = {
		.table = (char *)(uintptr_t)table_def(commit->table)->name,
		.revision = {(int64_t)commit->revision, true},
		.op = (char *)(uintptr_t)table_op_name(change->op),
		.device = devices ? rec : NULL,
		.allocation = devices ? NULL : rec,
	};

	rpc_notify(conn, API_TABLE_EVENT, &event);
}

void query_tell(struct statd *s, const struct table_commit *commit)
{
	for (const struct query_watch *w = s->query_watches; w; w = w->next)
		for (size_t i = 0; i < commit->n_changes; i++)
			if (!w->table || w->table == commit->table)
				tell_change(s, w->conn, commit, &commit->changes[i]);
}

/* --- status ------------------------------------------------------------------------------- */

static void add_missing(const struct statd *s, struct strlist *missing)
{
	const struct strlist *pending = table_pending(s->tables.devices);

	if (s->waiting) {
		cleanup_free char *text = xasprintf("waiting for %s", s->waiting);

		strlist_add(missing, text);
	}
	if (!s->configured)
		return;
	for (int m = 0; m < MANAGER_TYPE_MAX; m++) {
		const struct peer *p = &s->peers.peer[m];
		cleanup_free char *text = NULL;

		if (!strlist_has(pending, schema_initializer((enum manager_type)m)))
			continue;
		text = xasprintf("%s has not published its devices: %s%s%s",
			peer_role_name((enum peer_role)m), p->state, p->detail ? ", " : "",
			p->detail ? p->detail : "");
		strlist_add(missing, text);
	}
	for (int m = 0; m < MANAGER_TYPE_MAX; m++) {
		cleanup_free char *text = NULL;

		if (!config_enabled(&s->config, (enum manager_type)m) || s->audited[m] ||
			!s->peers.peer[m].conn)
			continue;
		text = xasprintf("%s is looking for leftovers of earlier runs",
			peer_role_name((enum peer_role)m));
		strlist_add(missing, text);
	}
	for (int r = PEER_NETNSD; r < PEER_ROLE_MAX; r++) {
		cleanup_free char *text = NULL;

		if (s->peers.peer[r].conn)
			continue;
		text = xasprintf("%s is not connected", peer_role_name((enum peer_role)r));
		strlist_add(missing, text);
	}
}

static void add_peers(const struct statd *s, struct status_result *r)
{
	r->peers.v = xcalloc(PEER_ROLE_MAX, sizeof(*r->peers.v));
	for (int role = 0; role < PEER_ROLE_MAX; role++) {
		const struct peer *p = &s->peers.peer[role];
		const struct rpc_peer *cred = p->conn ? rpc_conn_peer(p->conn) : NULL;
		struct status_peer *out;

		if (!p->expected && !p->conn)
			continue;
		out = &r->peers.v[r->peers.n++];
		*out = (struct status_peer){
			.role = (char *)(uintptr_t)peer_role_name((enum peer_role)role),
			.state = (char *)(uintptr_t)p->state,
			.detail = p->detail,
			.since_ms = {p->since_ms, true},
		};
		if (!cred)
			continue;
		out->pid = (struct rec_int){cred->pid, true};
		out->uid = (struct rec_int){cred->uid, true};
		out->pending = (struct rec_int){(int64_t)rpc_conn_pending(p->conn), true};
	}
}

/* What managers have to say. */
static void add_notes(const struct statd *s, struct status_result *r)
{
	for (int role = 0; role < PEER_ROLE_MAX; role++) {
		const struct strlist *notes = &s->peers.peer[role].notes;

		for (size_t i = 0; i < notes->n; i++) {
			cleanup_free char *text = xasprintf(
				"%s: %s", peer_role_name((enum peer_role)role), notes->v[i]);

			strlist_add(&r->notes, text);
		}
	}
}

/* What the records and the claims' status lack. */
static void add_own_notes(const struct statd *s, struct strlist *notes)
{
	const size_t due = status_queue_count(&s->status);

	if (due > 0 && s->status.trouble) {
		cleanup_free char *text = xasprintf("the status of %zu claims is still to be "
						    "written: %s",
			due, s->status.trouble);

		strlist_add(notes, text);
	}
	if (s->records.on_disk) {
		cleanup_free char *text = xasprintf("the state directory %s is not on a tmpfs: "
						    "each step of a claim waits for a disk",
			s->records.path);

		strlist_add(notes, text);
	}
	for (size_t i = 0; i < s->broken.n; i++) {
		cleanup_free char *text = xasprintf(
			"the record of claim %s in %s cannot be read; what it has stays held "
			"until it is unprepared",
			s->broken.v[i], s->records.path);

		strlist_add(notes, text);
	}
	if (s->has_unreadable)
		strlist_add(notes,
			"a claim could not be read at the start; devices with the mark of a "
			"claim that is not known stay held until a start that reads all");
}

static void add_calls(const struct statd *s, struct status_result *r)
{
	const struct kube_counts *counts = s->cluster.kube ? kube_counts(s->cluster.kube) : NULL;

	if (!counts)
		return;
	r->calls.v = xcalloc(counts->n, sizeof(*r->calls.v));
	for (size_t i = 0; i < counts->n; i++)
		r->calls.v[r->calls.n++] = (struct status_calls){
			.request = (char *)(uintptr_t)counts->v[i].request,
			.count = {(int64_t)counts->v[i].n, true},
		};
}

static char *describe_config(const struct statd *s)
{
	if (s->options->config)
		return xasprintf("file %s", s->options->config);
	return xasprintf(
		CONFIG_KIND " %s of %s", s->options->node_name, s->cluster.access.description);
}

void query_status(struct statd *s, struct rpc_call *call)
{
	cleanup_free char *config = describe_config(s), *slices = slice_sink_describe(s->sink);
	struct status_result r = {
		.version = (char *)(uintptr_t)NETCLAIM_VERSION,
		.node_name = (char *)(uintptr_t)(s->config.node_name ? s->config.node_name
								     : s->options->node_name),
		.driver_name = s->config.spec.driver_name,
		.config = config,
		.store = s->store ? s->store->description : s->cluster.access.description,
		.slices = slices,
		.started_ms = {s->started_ms, true},
		.ready = {s->ready, true},
		.devices = {(int64_t)table_count(s->tables.devices), true},
		.allocations = {(int64_t)table_count(s->tables.allocations), true},
		.revision = {(int64_t)db_revision(s->tables.db), true},
		.status_due = {(int64_t)status_queue_count(&s->status), true},
	};

	if (s->cluster.note)
		strlist_add(&r.notes, s->cluster.note);
	add_own_notes(s, &r.notes);
	add_notes(s, &r);
	add_missing(s, &r.missing);
	add_peers(s, &r);
	add_calls(s, &r);
	rpc_reply(call, &r, NULL);
	strlist_fini(&r.missing);
	strlist_fini(&r.notes);
	free(r.peers.v);
	free(r.calls.v);
}

/* --- pools -------------------------------------------------------------------------------- */

static void add_device(
	const struct statd *s, const struct device_row *device, struct pools_result *r)
{
	for (size_t i = 0; device->pool && i < r->pools.n; i++) {
		struct pool_status *p = &r->pools.v[i];

		if (strcmp(p->name, device->pool) != 0)
			continue;
		strlist_add(&p->devices, device->name);
		if (table_index_first(s->tables.allocations, ALLOC_BY_DEVICE, device->name))
			strlist_add(&p->allocated, device->name);
		return;
	}
	strlist_add(&r->unmatched, device->name);
}

void query_pools(struct statd *s, struct rpc_call *call)
{
	const struct pool_list *pools = &s->config.spec.pools;
	struct pools_result r = {0};

	r.pools.v = xcalloc(pools->pools.n, sizeof(*r.pools.v));
	for (size_t i = 0; i < pools->pools.n; i++) {
		const struct pool *p = &pools->pools.v[i];

		r.pools.v[r.pools.n++] = (struct pool_status){
			.name = xstrdup(p->name),
			.filter = p->filter
					  ? packed_take(rec_encode(&rec_pool_filter, p->filter))
					  : NULL,
		};
	}
	for (const struct table_row *row = table_first(s->tables.devices); row;
		row = table_next(row))
		add_device(s, device_row_of(row), &r);
	rpc_reply(call, &r, NULL);
	rec_fini(api_method_info(API_POOLS)->result, &r);
}
