/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The conversation with statd on its front socket: who we are, and whether it is ready.
 */

#include <uv.h>

#include "common/hello.h"
#include "common/rpc.h"

struct hook_rpc_events {
	/* statd has answered hello, also again after a restart of it: driver_name is set. */
	void (*on_hello)(void *ctx, const struct front_hello_result *settings);
	/* It is ready; comes after that. */
	void (*on_ready)(void *ctx);
};

struct hook_rpc {
	uv_loop_t *loop;
	const struct hook_rpc_events *events;
	void *ctx;
	char *driver_name;
	/* private */
	char *path;
	uid_t statd_uid;
	struct rpc_listen def;
	struct rpc_client *client;
	struct hello_retry hello;
	bool connected, greeted, ready;
	uint64_t lost_ms; /* when it ceased to be ready */
	char *state, *detail;
};

/* Connects to front.sock in runtime_dir and stays connected. statd_user is who else than root
 * and we may be at its other end; NULL: nobody. events is borrowed. */
int hook_rpc_init(struct hook_rpc *rpc, uv_loop_t *loop, const char *runtime_dir,
	const char *statd_user, const struct hook_rpc_events *events, void *ctx,
	struct err *err);
void hook_rpc_start(struct hook_rpc *rpc);
/* Not from inside a callback of a call. */
void hook_rpc_close(struct hook_rpc *rpc);

/* Where a pod's calls go; NULL while statd is away or not ready. */
struct rpc_conn *hook_rpc_conn(const struct hook_rpc *rpc);
/* Why there is none. */
const char *hook_rpc_missing(const struct hook_rpc *rpc);
/* Whether there has been none for longer than a restart takes. */
bool hook_rpc_is_lost(const struct hook_rpc *rpc);

/* Tells statd how registration with the runtime stands, and tells it again when it has
 * restarted. */
void hook_rpc_tell(struct hook_rpc *rpc, const char *state, const char *detail);
