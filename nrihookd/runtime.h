/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The container runtime: a connection to its NRI socket that is there whenever the runtime is.
 *
 * A runtime never calls back, keeps no event for who is away, and closes the connection for
 * many reasons. So this connects, registers, and begins again whenever the connection ends, for
 * as long as the process lives.
 */

#include <uv.h>

#include "nrihookd/nri.h"

/* An event to be answered on the connection that it came by; once that is lost, not at all. */
struct runtime_ticket {
	uint64_t connection;
	uint32_t stream;
};

struct runtime_events {
	/* runtime_state() or runtime_detail() says something new. */
	void (*changed)(void *ctx);
	/* Who it is, once for each connection, before all that follows. */
	void (*configured)(void *ctx, const char *name, const char *version);
	/* The runtime's sandboxes, told once for each connection; only when list_end comes are
	 * they all. */
	void (*list_begin)(void *ctx);
	void (*list_pod)(void *ctx, const struct nri_pod *pod);
	void (*list_end)(void *ctx);
	/* As in struct nri_ops. */
	char *(*claim_of)(void *ctx, const char *source);
	/* To be answered by runtime_reply() within budget_ms, from inside here or later. */
	void (*pod_event)(void *ctx, enum nri_event event, const struct nri_pod *pod,
		struct runtime_ticket ticket, uint64_t budget_ms);
};

enum runtime_state {
	RUNTIME_WAITING,    /* not started */
	RUNTIME_CONNECTING, /* no connection, or it is not in use yet */
	RUNTIME_REGISTERED, /* it has told its sandboxes, and events come */
};

struct runtime_conn;

struct runtime {
	uv_loop_t *loop;
	const char *socket_path, *index;
	const struct runtime_events *events;
	void *ctx;
	/* private */
	enum runtime_state state;
	char *plugin_name;
	struct nri nri;
	struct runtime_conn *conn; /* NULL between two tries */
	uint64_t connection;       /* counts them */
	uv_timer_t timer;          /* the next try, or the end of a registration that hangs */
	uint64_t retry_ms;
	char name[64], version[64];    /* what the runtime says it is; "" while unknown */
	char problem[ERR_MESSAGE_MAX]; /* why the last connection ended; "" */
	bool stopping;
};

/* Where runtimes listen unless told otherwise. */
#define RUNTIME_SOCKET "/var/run/nri/nri.sock"

/* socket_path and index, which is two digits, are borrowed and must stay. */
int runtime_init(struct runtime *r, uv_loop_t *loop, const char *socket_path, const char *index,
	const struct runtime_events *events, void *ctx, struct err *err);
/* Connects and stays connected, as a plugin of this name. To be repeated freely. */
void runtime_start(struct runtime *r, const char *plugin_name);
/* Takes no more events; those that came can still be answered. */
void runtime_stop(struct runtime *r);
/* Ends it; the loop has to run until its handles are closed. */
void runtime_close(struct runtime *r);

/* err NULL is success. */
void runtime_reply(struct runtime *r, struct runtime_ticket ticket, const struct err *err);

const char *runtime_state(const struct runtime *r);
const char *runtime_detail(const struct runtime *r);
/* Whether a sandbox without a process is a dead one here, as it is with containerd. CRI-O has
 * sandboxes without any. */
bool runtime_tells_pids(const struct runtime *r);
