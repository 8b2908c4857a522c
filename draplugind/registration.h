/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How the kubelet gets to know us: two sockets, and trying until it has said yes.
 *
 * Serves pluginregistration.Registration on <kubelet>/plugins_registry/<driver>-reg.sock, and
 * somebody else's service on the socket that GetInfo names, <kubelet>/plugins/<driver>/dra.sock.
 */

#include <uv.h>

#include "common/api.h"
#include "draplugind/grpc.h"

struct registration_events {
	/* The state in one word: waiting, registering, registered, failed. detail may be NULL. */
	void (*on_state)(void *ctx, const char *state, const char *detail);
	/* It cannot be done, or every attempt has been made; the sockets are gone. */
	void (*on_failed)(void *ctx, const struct err *err);
};

enum registration_phase {
	REGISTRATION_IDLE,    /* nothing has been tried yet */
	REGISTRATION_TRYING,  /* sockets are up, the kubelet has not said yes */
	REGISTRATION_PAUSING, /* sockets are down until the next attempt */
	REGISTRATION_DONE,    /* sockets are up, the kubelet has said yes */
	REGISTRATION_OVER,    /* stopped or failed */
};

struct registration {
	uv_loop_t *loop;
	const char *kubelet_dir;
	char *driver;
	struct registration_endpoint {
		char *path;
		const struct grpc_service *service;
		void *ctx;
		struct grpc_server *server; /* NULL: down */
		dev_t dev;                  /* of the socket file that is ours */
		ino_t ino;
	} dra, registry;
	uint64_t retry_interval_ms, timeout_ms;
	int64_t max_attempts, attempt;
	enum registration_phase phase;
	uv_timer_t timer;
	char *refusal; /* what the kubelet said last, if it was no */
	const struct registration_events *events;
	void *ctx;
};

/* service is what the kubelet finds on dra.sock, with the ctx of its handlers; it and events are
 * borrowed. settings are statd's. */
void registration_init(struct registration *r, uv_loop_t *loop, const char *kubelet_dir,
	const struct front_hello_result *settings, const struct grpc_service *service,
	void *service_ctx, const struct registration_events *events, void *ctx);
/* Begins, unless it has begun: a kubelet that knows us need not hear that statd was restarted. */
void registration_start(struct registration *r);
/* Takes the sockets away; calls in flight are finished. */
void registration_stop(struct registration *r);
void registration_fini(struct registration *r);
