/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What statd serves, a table for each socket: validate, call, reply. Which table a peer gets is
 * decided by the socket that it could open.
 */
#include "common/rpc.h"

#include <string.h>

#include "common/log.h"
#include "statd/flows.h"
#include "statd/inventory.h"
#include "statd/query.h"
#include "statd/statd.h"

/* Connections that a socket may have: the processes of the house, and a few that are being
 * restarted; for queries, people and monitoring. */
#define MAX_MANAGER_CONNS 16
#define MAX_FRONT_CONNS   8
#define MAX_QUERY_CONNS   64

static void refuse(struct rpc_call *call, enum err_kind kind, const char *why)
{
	struct err err;

	(void)err_set(&err, kind, "%s", why);
	rpc_reply_err(call, &err);
}

static void on_close(void *ctx, struct rpc_conn *conn, const char *reason)
{
	struct statd *s = ctx;

	if (peer_disconnected(&s->peers, conn, reason) == PEER_NONE)
		query_forget(s, conn);
}

/* --- manager.sock ------------------------------------------------------------------------- */

static void serve_manager_hello(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct manager_hello *hello = request;
	struct manager_hello_result result = {0};
	struct statd *s = ctx;
	enum peer_role role = peer_role_of_manager(hello->type);
	json_t *none = json_object();

	if (role == PEER_NONE) {
		refuse(call, ERR_INVALID, "there is no manager of this type");
	} else if (role != PEER_NETNSD &&
		   !config_enabled(&s->config, (enum manager_type)role)) {
		refuse(call, ERR_CONFLICT,
			"this manager is not enabled in spec.deviceManagerConfigs of the "
			"configuration");
	} else {
		peer_connected(&s->peers, role, rpc_call_conn(call));
		result.config = role == PEER_NETNSD
					? none
					: s->config.sections[(enum manager_type)role];
		rpc_reply(call, &result, NULL);
		if (role != PEER_NETNSD)
			restore_manager(s, (enum manager_type)role);
	}
	json_decref(none);
}

static void serve_manager_devices(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_list *list = request;
	struct statd *s = ctx;
	enum peer_role role = peer_role_of_conn(&s->peers, rpc_call_conn(call));
	struct empty none = {0};
	char count[16];

	if (role == PEER_NONE || role >= PEER_NETNSD) {
		refuse(call, ERR_CONFLICT, "say manager.hello first");
		return;
	}
	inventory_report(&s->tables, (enum manager_type)role, list);
	(void)snprintf(count, sizeof(count), "%zu devices", list->devices.n);
	peer_set_state(&s->peers, role, "published", count);
	peer_set_notes(&s->peers, role, &list->notes);
	LOG(INFO, FIELDS(F("manager", peer_role_name(role)), F("devices", count)),
		"inventory published");
	rpc_reply(call, &none, NULL);
	statd_check_ready(s);
}

static void serve_manager_appeared(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_appeared *device = request;
	struct statd *s = ctx;
	enum peer_role role = peer_role_of_conn(&s->peers, rpc_call_conn(call));

	if (role != PEER_NONE && role < PEER_NETNSD && !s->stopping)
		device_appeared(s, (enum manager_type)role, device->name);
}

static const struct rpc_service manager_services[] = {
	{API_MANAGER_HELLO, serve_manager_hello},
	{API_MANAGER_DEVICES, serve_manager_devices},
	{API_MANAGER_APPEARED, serve_manager_appeared},
};

/* --- front.sock --------------------------------------------------------------------------- */

static void serve_front_hello(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct front_hello *hello = request;
	struct statd *s = ctx;
	const struct node_config_spec *spec = &s->config.spec;
	enum peer_role role = peer_role_of_front(hello->role);
	struct front_hello_result result = {
		.driver_name = spec->driver_name,
		.node_name = s->config.node_name,
		.retry_interval_ms = {spec->retry_interval_s.v * 1000, true},
		.registration_timeout_ms = {spec->registration_timeout_s.v * 1000, true},
		.max_attempts = {spec->max_attempts.v, true},
		.ready = {s->ready, true},
		.state_dev = {s->records.dev, true},
		.state_ino = {s->records.ino, true},
	};

	if (role == PEER_NONE) {
		refuse(call, ERR_INVALID, "there is no front of this role");
		return;
	}
	peer_connected(&s->peers, role, rpc_call_conn(call));
	rpc_reply(call, &result, NULL);
}

static void serve_front_state(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct front_state *state = request;
	struct statd *s = ctx;
	enum peer_role role = peer_role_of_conn(&s->peers, rpc_call_conn(call));

	if (role >= PEER_DRAPLUGIND)
		peer_set_state(&s->peers, role, state->state, state->detail);
}

/* Work comes only while both tables are whole: what is not known yet could be handed out twice,
 * or be missed. */
static bool working(const struct statd *s, struct rpc_call *call)
{
	if (s->stopping) {
		rpc_call_drop(call); /* the front asks the next statd */
		return false;
	}
	if (!s->ready) {
		refuse(call, ERR_UNAVAILABLE,
			"statd is not ready yet; 'statctl status' says what is missing");
		return false;
	}
	return true;
}

static void serve_claim_prepare(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	if (working(ctx, call))
		prepare_start(ctx, call, request);
}

static void serve_claim_unprepare(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	if (working(ctx, call))
		unprepare_start(ctx, call, request);
}

static void serve_pod_attach(void *ctx, struct rpc_call *call, const void *request, int *fds)
{
	if (working(ctx, call))
		attach_start(ctx, call, request, &fds[0]);
}

static void serve_pod_detach(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	if (working(ctx, call))
		detach_start(ctx, call, request);
}

static void serve_pod_sync(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	struct pod_sync_result result = {0};

	if (!working(ctx, call))
		return;
	sync_pods(ctx, request, &result);
	rpc_reply(call, &result, NULL);
	strlist_fini(&result.sandbox_ids);
}

static void serve_pod_check(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	struct pod_check_result result;

	if (!working(ctx, call))
		return;
	pod_check(ctx, request, &result);
	rpc_reply(call, &result, NULL);
}

static const struct rpc_service front_services[] = {
	{API_FRONT_HELLO, serve_front_hello},
	{API_FRONT_STATE, serve_front_state},
	{API_CLAIM_PREPARE, serve_claim_prepare},
	{API_CLAIM_UNPREPARE, serve_claim_unprepare},
	{API_POD_ATTACH, serve_pod_attach},
	{API_POD_DETACH, serve_pod_detach},
	{API_POD_SYNC, serve_pod_sync},
	{API_POD_CHECK, serve_pod_check},
};

/* --- query.sock --------------------------------------------------------------------------- */

static void serve_table_list(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	query_list(ctx, call, request);
}

static void serve_table_watch(
	void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	query_watch(ctx, call, request);
}

static void serve_status(
	void *ctx, struct rpc_call *call, const void *request UNUSED, int *fds UNUSED)
{
	query_status(ctx, call);
}

static void serve_pools(
	void *ctx, struct rpc_call *call, const void *request UNUSED, int *fds UNUSED)
{
	query_pools(ctx, call);
}

static const struct rpc_service query_services[] = {
	{API_TABLE_LIST, serve_table_list},
	{API_TABLE_WATCH, serve_table_watch},
	{API_STATUS, serve_status},
	{API_POOLS, serve_pools},
};

const struct rpc_listen statd_listen[SOCKET_MAX] = {
	[SOCKET_MANAGER] = {.name = "manager.sock",
		.services = manager_services,
		.n_services = ARRAY_SIZE(manager_services),
		.max_conns = MAX_MANAGER_CONNS,
		.events = {.on_close = on_close}},
	[SOCKET_FRONT] = {.name = "front.sock",
		.services = front_services,
		.n_services = ARRAY_SIZE(front_services),
		.max_conns = MAX_FRONT_CONNS,
		.events = {.on_close = on_close}},
	[SOCKET_QUERY] = {.name = "query.sock",
		.services = query_services,
		.n_services = ARRAY_SIZE(query_services),
		.any_uid = true,
		.max_conns = MAX_QUERY_CONNS,
		.events = {.on_close = on_close}},
};
