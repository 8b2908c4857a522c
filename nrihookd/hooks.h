/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the runtime's hooks come to: devices attached to sandboxes that start, and detached from
 * those that stop.
 */

#include <uv.h>

#include "nrihookd/pod_netns.h"
#include "nrihookd/pods.h"
#include "nrihookd/rpc.h"
#include "nrihookd/runtime.h"

struct hooks {
	uv_loop_t *loop;
	struct hook_rpc *rpc;
	struct runtime *runtime;
	const struct pod_netns *netns;
	/* private */
	struct pods pods;
	uv_timer_t clock;  /* the next answer that is due, or the next try */
	size_t late_calls; /* of POD_OP_LATE, with statd */
	bool listed;       /* a runtime has told all its sandboxes */
	void (*on_idle)(void *ctx);
	void *ctx;
};

/* For runtime_init(), with the struct hooks as ctx. */
extern const struct runtime_events hooks_runtime_events;

/* All pointers are borrowed and must stay. */
void hooks_init(struct hooks *h, uv_loop_t *loop, struct hook_rpc *rpc, struct runtime *runtime,
	const struct pod_netns *netns);
/* Tells statd which sandboxes live, and attaches those that it misses. */
void hooks_sync(struct hooks *h);
/* Finishes what the runtime waits for, then calls on_idle, not from inside here. */
void hooks_stop(struct hooks *h, void (*on_idle)(void *ctx), void *ctx);
/* When idle. The loop has to run until its handles are closed. */
void hooks_close(struct hooks *h);
