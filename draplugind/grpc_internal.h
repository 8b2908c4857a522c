/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between grpc.c (servers and connections) and grpc_call.c (what is said on one stream). */

#include <nghttp2/nghttp2.h>
#include <uv.h>

#include "draplugind/grpc.h"

#define GRPC_READ_SIZE (16u << 10)
#define GRPC_MAX_PATH  128 /* bytes of a path that are kept, for messages */

struct grpc_server {
	uv_loop_t *loop;
	uv_pipe_t listener;
	uv_timer_t drain;   /* runs once the server is to go */
	unsigned n_handles; /* of the two above, those not closed yet */
	const struct grpc_service *service;
	void *ctx;
	struct grpc_conn *conns;
	size_t n_conns;
	size_t buffered; /* bytes of requests that are not complete */
	bool leaving;
	uint64_t complained_ms;
	unsigned complaints; /* not logged since */
};

struct grpc_conn {
	struct grpc_conn *prev, *next;
	struct grpc_server *server;
	uv_pipe_t pipe;
	nghttp2_session *session;
	struct grpc_call *calls;
	bool receiving; /* inside nghttp2_session_mem_recv() */
	char in[GRPC_READ_SIZE];
};

struct grpc_call {
	struct grpc_call *prev, *next;
	struct grpc_conn *conn; /* NULL once the stream is closed */
	int32_t stream_id;
	const struct grpc_method *method; /* NULL: there is none of this path */
	char path[GRPC_MAX_PATH];
	bool post, grpc, bad_timeout; /* what the headers said */
	bool answered;                /* what still comes from the client is dropped */
	bool held;                    /* the handler's */
	uint64_t began_ms, deadline_ms;
	struct buf request;
	struct buf reply;
	size_t sent; /* bytes of reply */
};

/* --- grpc.c ---------------------------------------------------------------------------------- */

/* Sends what has been queued, now or when the bytes that are being read are through. */
void grpc_conn_flush(struct grpc_conn *conn);
/* Logs what is wrong with a client, but not too often. */
void grpc_complain(struct grpc_server *server, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* --- grpc_call.c, in the order in which a stream comes by them ----------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_conn *conn, int32_t stream_id);
/* name is NUL-terminated; both are as HTTP wants them. */
void grpc_call_header(
	struct grpc_call *call, const char *name, const char *value, size_t value_len);
/* All headers are there. */
void grpc_call_admit(struct grpc_call *call);
void grpc_call_data(struct grpc_call *call, const uint8_t *data, size_t len);
/* The client has said all. */
void grpc_call_end(struct grpc_call *call);
/* The stream is closed: it lets go of the call. */
void grpc_call_detach(struct grpc_call *call);
