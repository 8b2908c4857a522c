/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What every client of statd does while it cannot work with it: statd refuses the hello, does not
 * answer it, or what follows fails. One policy for all: the process stays alive, logs each reason
 * once, shows it in its status, and says hello again on a new connection, after a pause that
 * grows with each failure. The connection is kept during the pause, so that calls of statd can
 * still be answered with the reason.
 */

#include <uv.h>

#include "common/err.h"
#include "common/rpc.h"

#define HELLO_PAUSE_FIRST_MS 1000
#define HELLO_PAUSE_LAST_MS  8000

struct hello_retry {
	struct err problem; /* why the last one failed; ERR_NONE: it did not */
	/* private */
	struct rpc_client *client;
	uv_timer_t timer;
	uint64_t pause_ms;
};

void hello_retry_init(struct hello_retry *h, uv_loop_t *loop);
/* A failure, for the log and the status: what fails, as "statd refuses us", and why. The client's
 * connection is closed after the pause, if it has not ended by then. */
void hello_retry_failed(struct hello_retry *h, struct rpc_client *client, const char *what,
	const struct err *err);
/* The connection has ended: there is nothing to close. */
void hello_retry_ended(struct hello_retry *h);
/* All is well: the next failure is a new one. */
void hello_retry_succeeded(struct hello_retry *h);
/* Before the loop ends, and before the client is freed. */
void hello_retry_close(struct hello_retry *h);
