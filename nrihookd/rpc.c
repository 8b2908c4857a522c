/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation with statd.
 *
 * On each new connection we say hello and are told the driver's name, which is the plugin's.
 * statd is ready when both its tables are initialised: it says so in its answer, or by
 * front.ready later. Until then nobody can know which pods have devices, so no call about a pod
 * is made, and the runtime is not even connected to: a plugin that is there but cannot answer
 * is worse than none.
 */
#include "nrihookd/rpc.h"

#include "common/log.h"
#include "common/privileges.h"
#include "common/util.h"

/* statd's takes well under a second, unless its tables are large or a manager is slow. */
#define RESTART_MS 5000

struct rpc_conn *hook_rpc_conn(const struct hook_rpc *rpc)
{
	return rpc->ready ? rpc_client_conn(rpc->client) : NULL;
}

const char *hook_rpc_missing(const struct hook_rpc *rpc)
{
	if (rpc->connected && rpc->hello.problem.kind != ERR_NONE)
		return "statd refuses nrihookd";
	return rpc->greeted ? "statd is not ready yet" : "statd is not running";
}

bool hook_rpc_is_lost(const struct hook_rpc *rpc)
{
	return !rpc->ready && now_ms() - rpc->lost_ms > RESTART_MS;
}

static void send_state(const struct hook_rpc *rpc)
{
	const struct front_state state = {.state = rpc->state, .detail = rpc->detail};

	if (rpc->greeted && rpc->state)
		rpc_notify(rpc_client_conn(rpc->client), API_FRONT_STATE, &state);
}

void hook_rpc_tell(struct hook_rpc *rpc, const char *state, const char *detail)
{
	free(rpc->state);
	free(rpc->detail);
	rpc->state = xstrdup(state);
	rpc->detail = xstrdup(detail);
	send_state(rpc);
}

static void become_ready(struct hook_rpc *rpc)
{
	LOG(INFO, NO_FIELDS, "statd is ready");
	rpc->ready = true;
	rpc->events->on_ready(rpc->ctx);
}

static void on_front_ready(
	void *ctx, struct rpc_call *call UNUSED, const void *request UNUSED, int *fds UNUSED)
{
	struct hook_rpc *rpc = ctx;

	if (rpc->greeted && !rpc->ready)
		become_ready(rpc);
}

static void on_hello(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct front_hello_result *settings = result;
	struct hook_rpc *rpc = ctx;

	if (!rpc->client || !rpc->connected)
		return; /* closing, or the connection ended */
	if (err) {
		hello_retry_failed(&rpc->hello, rpc->client, "statd refuses us", err);
		return;
	}
	hello_retry_succeeded(&rpc->hello);
	free(rpc->driver_name);
	rpc->driver_name = xstrdup(settings->driver_name);
	rpc->greeted = true;
	rpc->events->on_hello(rpc->ctx, settings);
	if (settings->ready.v)
		become_ready(rpc);
}

static void on_open(void *ctx, struct rpc_conn *conn)
{
	static char role[] = "nrihookd", version[] = NETCLAIM_VERSION;
	const struct front_hello hello = {.role = role, .version = version};
	struct hook_rpc *rpc = ctx;

	rpc->connected = true;
	(void)rpc_start(rpc->loop, conn, API_FRONT_HELLO, &hello, NULL, 0, on_hello, rpc);
}

static void on_close(void *ctx, struct rpc_conn *conn UNUSED, const char *reason)
{
	struct hook_rpc *rpc = ctx;

	if (rpc->greeted)
		LOG(WARN, FIELDS(F("err", reason)), "lost statd; trying until it is back");
	if (rpc->ready)
		rpc->lost_ms = now_ms();
	hello_retry_ended(&rpc->hello);
	rpc->connected = rpc->greeted = rpc->ready = false;
}

static const struct rpc_service services[] = {{API_FRONT_READY, on_front_ready}};

int hook_rpc_init(struct hook_rpc *rpc, uv_loop_t *loop, const char *runtime_dir,
	const char *statd_user, const struct hook_rpc_events *events, void *ctx,
	struct err *err)
{
	struct identity statd = {0};

	if (statd_user && identity_parse(statd_user, &statd, err) < 0)
		return err_wrap(err, "--statd-user");
	*rpc = (struct hook_rpc){
		.loop = loop,
		.events = events,
		.ctx = ctx,
		.statd_uid = statd.uid,
		.def =
			{
				.name = "statd",
				.services = services,
				.n_services = ARRAY_SIZE(services),
				.uids = &rpc->statd_uid,
				.n_uids = statd_user ? 1 : 0,
				.events = {.on_open = on_open, .on_close = on_close},
			},
	};
	rpc->path = xasprintf("%s/front.sock", runtime_dir);
	return 0;
}

void hook_rpc_start(struct hook_rpc *rpc)
{
	hello_retry_init(&rpc->hello, rpc->loop);
	rpc->client = rpc_client_new(rpc->loop, rpc->path, &rpc->def, rpc);
}

void hook_rpc_close(struct hook_rpc *rpc)
{
	hello_retry_close(&rpc->hello);
	rpc_client_free(take_ptr(rpc->client));
	free(take_ptr(rpc->path));
	free(take_ptr(rpc->driver_name));
	free(take_ptr(rpc->state));
	free(take_ptr(rpc->detail));
}
