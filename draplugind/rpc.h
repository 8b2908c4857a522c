/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The conversation with statd on its front socket: who we are, how registration stands, and the
 * calls about claims, which outlive a restart of statd.
 */

#include <uv.h>

#include "common/api.h"
#include "common/hello.h"
#include "common/rpc.h"

struct dra_rpc_call;

struct dra_rpc_events {
	/* statd has told its settings: the first time, and again after each restart of it. */
	void (*on_hello)(void *ctx, const struct front_hello_result *settings);
	/* Both tables of statd are there; also again after each restart. */
	void (*on_ready)(void *ctx);
};

struct dra_rpc {
	uv_loop_t *loop;
	struct rpc_listen def;
	struct rpc_client *client;
	const struct dra_rpc_events *events;
	void *ctx;
	struct dra_rpc_call *calls;
	uv_timer_t end;
	struct hello_retry hello;
	unsigned epoch; /* counts connections made and lost */
	bool connected, greeted, ready, stopping;
	char *state, *detail;
};

/* Connects to front.sock in runtime_dir and stays connected. statd_uid is who else than root and our
 * own user may be statd; NULL: nobody. events and statd_uid are borrowed. */
void dra_rpc_init(struct dra_rpc *rpc, uv_loop_t *loop, const char *runtime_dir,
	const uid_t *statd_uid, const struct dra_rpc_events *events, void *ctx);
/* Calls that wait for statd fail at once, those that it has are waited for; then the connection is
 * closed. */
void dra_rpc_stop(struct dra_rpc *rpc);
/* After the loop is empty. */
void dra_rpc_fini(struct dra_rpc *rpc);

/* Tells statd in one word how registration stands, and tells it again after each restart of it. */
void dra_rpc_tell_state(struct dra_rpc *rpc, const char *state, const char *detail);

/* Makes a call about a claim, of the methods claim.*. While statd is away or not ready, the call
 * waits for it, but not for long; if it goes away during the call, the call is made again. left_ms
 * bounds all of that. cb is called once, never from inside here; claim is copied. */
void dra_rpc_start(struct dra_rpc *rpc, enum api_method method, const struct claim_ref *claim,
	uint64_t left_ms, rpc_done_cb *cb, void *ctx);
