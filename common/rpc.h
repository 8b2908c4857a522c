/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MessagePack-RPC over stream Unix sockets, with file descriptors.
 *
 * The wire is the MessagePack-RPC specification: request [0, id, method, params], response [1,
 * id, error, result], notification [2, method, params]; params is an array of one map, result
 * is a map, error is nil or {code, message} with code one of err.h's names. Both ends may call. A
 * second map in params is about the call itself: {deadlineMs} says until when, on
 * CLOCK_MONOTONIC, its answer is waited for, so that who comes to a request late can tell that
 * nobody wants it any more.
 *
 * What a method's params, result, deadline and descriptors are is declared once, in api.h's
 * table; here it is only carried out. Requests are checked against the declaration before a
 * handler sees them, replies before a caller does. A peer that breaks the protocol is
 * disconnected with a logged reason, and the process lives on.
 *
 * Everything runs on one libuv loop. Callbacks are never called from inside the function that
 * started the work.
 */

#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/api.h"
#include "common/err.h"

#define RPC_MAX_MESSAGE (16u << 20) /* bytes; the largest inventory is well below */
#define RPC_MAX_DEPTH   16
#define RPC_MAX_FDS     4
/* Requests that one connection may have unanswered; more is busy. 500 pods start at once. */
#define RPC_MAX_CALLS   2048

struct rpc_conn;
struct rpc_call; /* a request of the peer's that waits for our answer */

/* Serves one method. request is decoded and valid, borrowed until the call is answered; fds
 * too: the handler may take one by setting it to -1. The call must be answered exactly once,
 * now or later, with rpc_reply() or rpc_reply_err(). A notification's call ends with the
 * handler. */
typedef void rpc_handler(void *ctx, struct rpc_call *call, const void *request, int *fds);

struct rpc_service {
	enum api_method method;
	rpc_handler *handle;
};

/* result is decoded and valid and borrowed for the callback, or NULL and err says why. fds are
 * the callback's to take by setting to -1; what is left is closed. */
typedef void rpc_done_cb(void *ctx, const struct err *err, const void *result, int *fds);

/* --- answering ---------------------------------------------------------------------------- */

struct rpc_conn *rpc_call_conn(const struct rpc_call *call); /* NULL once the peer is gone */
/* Milliseconds that the caller will still wait, by its method's deadline. */
uint64_t rpc_call_left_ms(const struct rpc_call *call);
/* result is of the method's type; fds as many as it declares, duplicated by the kernel: the
 * caller keeps its own. Each frees the call. To a peer that is gone they do nothing. */
void rpc_reply(struct rpc_call *call, const void *result, const int *fds);
void rpc_reply_err(struct rpc_call *call, const struct err *err);

/* Forgets the call without an answer: the caller learns when the connection ends, as if we had
 * ended before. */
void rpc_call_drop(struct rpc_call *call);

/* --- calling ------------------------------------------------------------------------------ */

/* A request that the peer would drop the connection for (text that is not UTF-8, more than fits a
 * message) is not sent: cb gets ERR_INVALID, and the message names the field. The same holds for
 * a notification, which is logged, and for a reply, in the place of which the caller gets
 * ERR_INTERNAL.
 * deadline_ms 0 means the method's own. When the peer vanishes, cb gets ERR_UNAVAILABLE at
 * once; when the deadline passes, ERR_DEADLINE, and a late answer is dropped. Returns a token
 * to cancel with; cb is never called after that, and the token is void once cb was called. fds
 * are borrowed for the call. conn may be NULL: cb gets ERR_UNAVAILABLE. */
struct rpc_pending *rpc_start(uv_loop_t *loop, struct rpc_conn *conn, enum api_method method,
	const void *request, const int *fds, uint64_t deadline_ms, rpc_done_cb *cb, void *ctx);
void rpc_cancel(struct rpc_pending *pending);
/* A notification: no answer, no descriptors. */
void rpc_notify(struct rpc_conn *conn, enum api_method method, const void *params);

/* --- connections -------------------------------------------------------------------------- */

struct rpc_peer {
	pid_t pid; /* for logs only: a pid may be reused */
	uid_t uid;
	gid_t gid;
};
const struct rpc_peer *rpc_conn_peer(const struct rpc_conn *conn);
/* A word for logs: the manager's type or the program's name, once it is known. */
void rpc_conn_set_name(struct rpc_conn *conn, const char *name);
const char *rpc_conn_name(const struct rpc_conn *conn);
void rpc_conn_set_data(struct rpc_conn *conn, void *data);
void *rpc_conn_data(const struct rpc_conn *conn);
/* Calls of ours that the peer has not answered yet, those that nobody waits for included. */
size_t rpc_conn_pending(const struct rpc_conn *conn);
/* Ends it, later: on_close is called, then calls of ours fail with ERR_UNAVAILABLE and calls of
 * the peer's lose their conn. */
void rpc_conn_close(struct rpc_conn *conn, const char *reason);

struct rpc_events {
	void (*on_open)(void *ctx, struct rpc_conn *conn);
	void (*on_close)(void *ctx, struct rpc_conn *conn, const char *reason);
};

/* --- listening ---------------------------------------------------------------------------- */

struct rpc_server;

/* What a listening socket offers. uids: who may connect besides our own uid; gids: whose
 * primary group suffices. */
struct rpc_listen {
	const char *name;
	const struct rpc_service *services;
	size_t n_services;
	const uid_t *uids;
	size_t n_uids;
	bool any_uid; /* the socket's mode alone decides: query.sock and its group */
	size_t max_conns;
	struct rpc_events events;
};

/* Binds a socket at path (a stale one is removed), mode 0660, owner our own uid and gid group,
 * and listens. For the privileged phase of a start. Returns the descriptor or -1. */
int rpc_bind(const char *path, gid_t group, struct err *err);
/* Takes fd, listening. def is borrowed and must stay. */
struct rpc_server *rpc_server_new(
	uv_loop_t *loop, int *fd, const struct rpc_listen *def, void *ctx);
void rpc_server_free(struct rpc_server *server); /* closes its connections */

/* --- connecting --------------------------------------------------------------------------- */

struct rpc_client;

/* Keeps one connection to path alive: connects, and when it is lost or refused tries again after
 * 20 ms, doubling to at most 1 s. A connection that lived 5 s sets the pause back to 20 ms; one
 * that was dropped earlier does not, so that a peer which drops each is not called without end.
 * services are what the peer may call here. def->uids is who
 * must be at the other end besides our own uid and root. */
struct rpc_client *rpc_client_new(
	uv_loop_t *loop, const char *path, const struct rpc_listen *def, void *ctx);
/* The connection, or NULL while there is none. */
struct rpc_conn *rpc_client_conn(const struct rpc_client *client);
void rpc_client_free(struct rpc_client *client);

/* One attempt, for a program that gives up. The connection is the caller's: it ends by itself
 * when it breaks, after on_close, or with rpc_disconnect(). NULL and err, whose sys says
 * why. */
struct rpc_conn *rpc_connect(uv_loop_t *loop, const char *path, const struct rpc_listen *def,
	void *ctx, struct err *err);
/* Ends it without on_close. */
void rpc_disconnect(struct rpc_conn *conn);
