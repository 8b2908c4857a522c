/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is in one of two places: with statd, or waiting for statd with a timer of its own. It is
 * sent as soon as statd says that it is ready, in the order in which calls were made. When the
 * connection is lost the calls that were with statd wait again: claim.prepare and claim.unprepare
 * are repeatable, so it does not matter how far statd had come.
 *
 * A lost connection and an answer of statd's that something else is unavailable have the same kind
 * of error. They are told apart by the epoch: a call whose connection is not the present one was
 * lost.
 */
#include "draplugind/rpc.h"

#include <string.h>
#include <utlist.h>

#include "common/log.h"

/* A restart of statd takes well under a second; with more than this something is wrong with it, and
 * whoever looks at the pod should be told. */
#define WAIT_MS 5000

struct dra_rpc_call {
	struct dra_rpc_call *prev, *next;
	struct dra_rpc *rpc;
	enum api_method method;
	struct claim_ref claim;
	uint64_t deadline_ms;
	rpc_done_cb *cb;
	void *ctx;
	uv_timer_t waiting;
	bool sent;
	unsigned epoch; /* that it was sent in */
};

static const struct rec_desc *claim_desc(const struct dra_rpc_call *call)
{
	return api_method_info(call->method)->request;
}

/* --- calls ----------------------------------------------------------------------------------- */

static void on_call_closed(uv_handle_t *handle)
{
	struct dra_rpc_call *call = handle->data;

	rec_fini(claim_desc(call), &call->claim);
	free(call);
}

/* The end has a timer of its own: the last call is answered from inside the connection. */
static void on_end(uv_timer_t *timer)
{
	struct dra_rpc *rpc = timer->data;

	rpc->ready = false;
	hello_retry_close(&rpc->hello);
	rpc_client_free(take_ptr(rpc->client));
	uv_close((uv_handle_t *)timer, NULL);
}

static void end_if_done(struct dra_rpc *rpc)
{
	if (rpc->stopping && !rpc->calls && rpc->client)
		(void)uv_timer_start(&rpc->end, on_end, 0, 0);
}

static void call_done(
	struct dra_rpc_call *call, const struct err *err, const void *result, int *fds)
{
	struct dra_rpc *rpc = call->rpc;

	DL_DELETE(rpc->calls, call);
	call->cb(call->ctx, err, result, fds);
	uv_close((uv_handle_t *)&call->waiting, on_call_closed);
	end_if_done(rpc);
}

static uint64_t left_ms(const struct dra_rpc_call *call)
{
	uint64_t now = now_ms();

	return call->deadline_ms > now ? call->deadline_ms - now : 0;
}

static void on_waited(uv_timer_t *timer)
{
	struct dra_rpc_call *call = timer->data;
	const struct dra_rpc *rpc = call->rpc;
	struct err err;

	if (rpc->stopping)
		(void)err_set(&err, ERR_UNAVAILABLE, "the driver is stopping");
	else if (rpc->connected && rpc->hello.problem.kind != ERR_NONE)
		(void)err_set(&err, ERR_UNAVAILABLE, "statd refuses draplugind: %s",
			rpc->hello.problem.message);
	else if (!rpc->greeted)
		(void)err_set(&err, ERR_UNAVAILABLE, "statd is not running");
	else
		(void)err_set(&err, ERR_UNAVAILABLE, "statd is still starting");
	call_done(call, &err, NULL, NULL);
}

static void call_wait(struct dra_rpc_call *call)
{
	uint64_t wait_ms = call->rpc->stopping ? 0 : MIN((uint64_t)WAIT_MS, left_ms(call));

	call->sent = false;
	(void)uv_timer_start(&call->waiting, on_waited, wait_ms, 0);
}

static void on_answer(void *ctx, const struct err *err, const void *result, int *fds)
{
	struct dra_rpc_call *call = ctx;

	if (err && err->kind == ERR_UNAVAILABLE && call->epoch != call->rpc->epoch)
		call_wait(call);
	else
		call_done(call, err, result, fds);
}

static void call_send(struct dra_rpc_call *call)
{
	uint64_t deadline_ms = MIN(left_ms(call), api_method_info(call->method)->deadline_ms);

	(void)uv_timer_stop(&call->waiting);
	call->sent = true;
	call->epoch = call->rpc->epoch;
	(void)rpc_start(call->rpc->loop, rpc_client_conn(call->rpc->client), call->method,
		&call->claim, NULL, MAX(deadline_ms, 1u), on_answer, call);
}

void dra_rpc_start(struct dra_rpc *rpc, enum api_method method, const struct claim_ref *claim,
	uint64_t wanted_ms, rpc_done_cb *cb, void *ctx)
{
	struct dra_rpc_call *call = xcalloc(1, sizeof(*call));
	uint64_t now = now_ms();

	call->rpc = rpc;
	call->method = method;
	rec_copy(claim_desc(call), &call->claim, claim);
	call->deadline_ms = wanted_ms > UINT64_MAX - now ? UINT64_MAX : now + wanted_ms;
	call->cb = cb;
	call->ctx = ctx;
	(void)uv_timer_init(rpc->loop, &call->waiting);
	call->waiting.data = call;
	DL_APPEND(rpc->calls, call);
	if (rpc->ready)
		call_send(call);
	else
		call_wait(call);
}

/* --- the connection -------------------------------------------------------------------------- */

static void become_ready(struct dra_rpc *rpc)
{
	if (rpc->ready)
		return;
	LOG(INFO, NO_FIELDS, "statd is ready");
	rpc->ready = true;
	for (struct dra_rpc_call *call = rpc->calls; call; call = call->next)
		if (!call->sent)
			call_send(call);
	rpc->events->on_ready(rpc->ctx);
}

static void handle_ready(void *ctx, struct rpc_call *call, const void *request, int *fds)
{
	(void)call;
	(void)request;
	(void)fds;
	become_ready(ctx);
}

static void send_state(const struct dra_rpc *rpc)
{
	const struct front_state state = {.state = rpc->state, .detail = rpc->detail};

	if (rpc->greeted && rpc->state)
		rpc_notify(rpc_client_conn(rpc->client), API_FRONT_STATE, &state);
}

void dra_rpc_tell_state(struct dra_rpc *rpc, const char *state, const char *detail)
{
	free(rpc->state);
	free(rpc->detail);
	rpc->state = xstrdup(state);
	rpc->detail = xstrdup_opt(detail);
	send_state(rpc);
}

static void on_hello(void *ctx, const struct err *err, const void *result, int *fds)
{
	struct dra_rpc *rpc = ctx;
	const struct front_hello_result *settings = result;

	(void)fds;
	if (rpc->stopping || !rpc->connected)
		return;
	if (err) {
		hello_retry_failed(&rpc->hello, rpc->client, "statd refuses us", err);
		return;
	}
	hello_retry_succeeded(&rpc->hello);
	rpc->greeted = true;
	rpc->events->on_hello(rpc->ctx, settings);
	send_state(rpc);
	if (settings->ready.v)
		become_ready(rpc);
}

static void on_open(void *ctx, struct rpc_conn *conn)
{
	static char role[] = "draplugind", version[] = NETCLAIM_VERSION;
	const struct front_hello hello = {.role = role, .version = version};
	struct dra_rpc *rpc = ctx;

	rpc->epoch++;
	rpc->connected = true;
	(void)rpc_start(rpc->loop, conn, API_FRONT_HELLO, &hello, NULL, 0, on_hello, rpc);
}

static void on_close(void *ctx, struct rpc_conn *conn, const char *reason)
{
	struct dra_rpc *rpc = ctx;

	(void)conn;
	if (rpc->greeted)
		LOG(WARN, FIELDS(F("err", reason)), "lost statd, connecting again");
	rpc->epoch++;
	hello_retry_ended(&rpc->hello);
	rpc->connected = rpc->greeted = rpc->ready = false;
}

void dra_rpc_init(struct dra_rpc *rpc, uv_loop_t *loop, const char *runtime_dir,
	const uid_t *statd_uid, const struct dra_rpc_events *events, void *ctx)
{
	static const struct rpc_service services[] = {{API_FRONT_READY, handle_ready}};
	cleanup_free char *path = xasprintf("%s/front.sock", runtime_dir);

	*rpc = (struct dra_rpc){.loop = loop, .events = events, .ctx = ctx};
	rpc->def = (struct rpc_listen){
		.name = "statd",
		.services = services,
		.n_services = ARRAY_SIZE(services),
		.uids = statd_uid,
		.n_uids = statd_uid ? 1 : 0,
		.events = {.on_open = on_open, .on_close = on_close},
	};
	rpc->client = rpc_client_new(loop, path, &rpc->def, rpc);
	hello_retry_init(&rpc->hello, loop);
	(void)uv_timer_init(loop, &rpc->end);
	rpc->end.data = rpc;
}

void dra_rpc_stop(struct dra_rpc *rpc)
{
	rpc->stopping = true;
	for (struct dra_rpc_call *call = rpc->calls; call; call = call->next)
		if (!call->sent)
			call_wait(call);
	end_if_done(rpc);
}

void dra_rpc_fini(struct dra_rpc *rpc)
{
	free(rpc->state);
	free(rpc->detail);
}
