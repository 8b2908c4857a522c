/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the runtime's hooks come to: devices attached to sandboxes that start, detached from those
 * that stop, and no container without the devices of its pod.
 */

#include <uv.h>

#include "nrihookd/pod_netns.h"
#include "nrihookd/pods.h"
#include "nrihookd/record.h"
#include "nrihookd/rpc.h"
#include "nrihookd/runtime.h"

struct hooks {
	uv_loop_t *loop;
	struct hook_rpc *rpc;
	struct runtime *runtime;
	const struct pod_netns *netns;
	struct record *record;
	const char *kubelet_dir;
	bool log_only; /* an attach that fails stops nothing */
	/* for hooks.c and list.c */
	struct pods pods;
	uv_timer_t clock;         /* the next answer that is due, or the next try */
	size_t late_calls;        /* of POD_OP_LATE, with statd */
	bool defer;               /* this runtime must not be told that a sandbox failed */
	bool listed;              /* a runtime has told all its sandboxes */
	struct rpc_pending *sync; /* pod.sync, under way; or NULL */
	uint64_t synced;          /* operations that were begun before it: pods.h */
	uint64_t resync_ms;       /* when to ask again for want of an answer; 0: never */
	void (*on_idle)(void *ctx);
	void *ctx;
};

/* For runtime_init(), with the struct hooks as ctx. */
extern const struct runtime_events hooks_runtime_events;

/* All pointers are borrowed and must stay. */
void hooks_init(struct hooks *h, uv_loop_t *loop, struct hook_rpc *rpc, struct runtime *runtime,
	const struct pod_netns *netns, struct record *record, const char *kubelet_dir,
	bool log_only);
/* What statd and `systemctl status` are to be told of us may have changed. */
void hooks_tell_state(struct hooks *h);
/* Attaches the devices of a sandbox that runs already, as soon as it is its turn. */
void hooks_attach_late(struct hooks *h, struct pod *pod);
/* There was no word of statd's: asks it again, in a moment, which sandboxes lack devices. */
void hooks_resync(struct hooks *h);
/* Finishes what the runtime waits for, then calls on_idle, not from inside here. */
void hooks_stop(struct hooks *h, void (*on_idle)(void *ctx), void *ctx);
/* When idle. The loop has to run until its handles are closed. */
void hooks_close(struct hooks *h);
