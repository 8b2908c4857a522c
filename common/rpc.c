/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: bytes and descriptors to messages, messages to handlers and callers.
 *
 * Reading. Bytes gather in one buffer and a scanner (mp.h) keeps its place in the message that
 * is under way. Descriptors gather in a queue beside it: the kernel hands them over no later
 * than the first byte that was sent with them, and may hand over earlier bytes with them, so
 * they cannot be tied to a read. Each message's method says how many it takes from the queue;
 * when the last complete message has taken its own and no byte is left over, the queue must be
 * empty.
 *
 * Writing. A message goes out at once if nothing waits before it, else it queues until the
 * socket takes it. A peer that lets more than a bound pile up is dropped.
 *
 * Ending. A connection that breaks is only marked, and ends on a timer of its own: so no
 * callback of a user's runs inside a call that the user made. Then calls of ours fail, calls of
 * the peer's lose their connection, and the owner is told.
 *
 * A call of ours that timed out or was cancelled stays in the table, without a callback, until
 * its answer comes: the answer may carry descriptors, and how many is known only from the
 * method.
 */
#include "common/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
/* ids are our own and count up: they spread by themselves */
#define HASH_FUNCTION(key, len, hash) memcpy(&(hash), key, len)
#include <uthash.h>

#include "common/log.h"
#include "common/mp.h"
#include "common/rpc_internal.h"
#include "common/util.h"

#define READ_BYTES     65536
#define MAX_QUEUED_FDS 16                    /* a burst of requests with two each */
#define MAX_QUEUED_OUT (2 * RPC_MAX_MESSAGE) /* bytes that a peer has not read yet */
#define DEADLINE_KEY   "deadlineMs"
#define MAX_MSGID      UINT32_MAX /* MessagePack-RPC: a 32-bit number */

enum message_type { MESSAGE_REQUEST = 0, MESSAGE_RESPONSE = 1, MESSAGE_NOTIFICATION = 2 };

struct out_message {
	struct out_message *next;
	struct buf bytes;
	size_t sent;
	int fds[RPC_MAX_FDS];
	size_t n_fds;
};

struct rpc_pending {
	uv_timer_t timer; /* the deadline; or 0, when it failed before it began */
	struct rpc_conn *conn;
	uint32_t id;
	enum api_method method;
	rpc_done_cb *cb; /* NULL: nobody waits any more */
	void *ctx;
	bool refused;
	UT_hash_handle hh;
};

struct rpc_call {
	struct rpc_call *prev, *next;
	struct rpc_conn *conn;
	uint32_t id;
	enum api_method method;
	uint64_t deadline_ms; /* CLOCK_MONOTONIC: until when the caller waits */
	void *request;
};

struct rpc_conn {
	uv_loop_t *loop;
	uv_poll_t poll;
	uv_timer_t end_timer;
	int open_handles;
	int fd;
	const struct rpc_listen *def;
	void *ctx;
	void (*on_end)(void *owner, struct rpc_conn *conn);
	void *owner;
	struct rpc_peer peer;
	char name[64];
	void *data;

	struct buf in;
	struct mp_scan scan;
	int in_fds[MAX_QUEUED_FDS];
	size_t n_in_fds;

	struct out_message *out_head, **out_tail;
	size_t out_bytes;

	struct rpc_pending *pending;
	struct rpc_call *calls;
	size_t n_calls;
	uint32_t last_id;
	bool broken;
	char reason[ERR_MESSAGE_MAX];
};

/* --- small things ------------------------------------------------------------------------- */

const struct rpc_peer *rpc_conn_peer(const struct rpc_conn *conn)
{
	return &conn->peer;
}

void rpc_conn_set_name(struct rpc_conn *conn, const char *name)
{
	(void)snprintf(conn->name, sizeof(conn->name), "%s", name);
}

const char *rpc_conn_name(const struct rpc_conn *conn)
{
	return conn->name;
}

void rpc_conn_set_data(struct rpc_conn *conn, void *data)
{
	conn->data = data;
}

void *rpc_conn_data(const struct rpc_conn *conn)
{
	return conn->data;
}

size_t rpc_conn_pending(const struct rpc_conn *conn)
{
	return HASH_COUNT(conn->pending);
}

struct rpc_conn *rpc_call_conn(const struct rpc_call *call)
{
	return call->conn;
}

uint64_t rpc_call_left_ms(const struct rpc_call *call)
{
	uint64_t now = now_ms();

	return call->deadline_ms > now ? call->deadline_ms - now : 0;
}

static void close_fds(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close_fd(&fds[i]);
}

static void *record_new(const struct rec_desc *desc)
{
	return xcalloc(1, desc->size);
}

static void record_free(const struct rec_desc *desc, void *rec)
{
	if (rec)
		rec_fini(desc, rec);
	free(rec);
}

/* --- ending ------------------------------------------------------------------------------- */

static void on_end_timer(uv_timer_t *timer);

void rpc_conn_close(struct rpc_conn *conn, const char *reason)
{
	if (conn->broken)
		return;
	conn->broken = true;
	(void)snprintf(conn->reason, sizeof(conn->reason), "%s", reason);
	(void)uv_poll_stop(&conn->poll);
	(void)uv_timer_start(&conn->end_timer, on_end_timer, 0, 0);
}

__attribute__((format(printf, 2, 3))) static void protocol_error(
	struct rpc_conn *conn, const char *fmt, ...)
{
	char reason[ERR_MESSAGE_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	LOG(WARN, FIELDS(F("peer", conn->name), F("err", reason)), "dropping a connection");
	rpc_conn_close(conn, reason);
}

static void out_free(struct out_message *m)
{
	close_fds(m->fds, m->n_fds);
	buf_fini(&m->bytes);
	free(m);
}

static void pending_freed(uv_handle_t *handle)
{
	free(container_of((uv_timer_t *)(void *)handle, struct rpc_pending, timer));
}

static void pending_free(struct rpc_pending *p)
{
	if (p->conn)
		HASH_DEL(p->conn->pending, p);
	p->conn = NULL;
	uv_close((uv_handle_t *)&p->timer, pending_freed);
}

/* Calls back with a failure, at most once; the entry stays for its late answer. */
static void pending_fail(struct rpc_pending *p, const struct err *err)
{
	int fds[RPC_MAX_FDS] = {-1, -1, -1, -1};
	rpc_done_cb *cb = p->cb;

	p->cb = NULL;
	(void)uv_timer_stop(&p->timer);
	if (cb)
		cb(p->ctx, err, NULL, fds);
}

static void fail_pending(struct rpc_conn *conn, const char *reason)
{
	struct rpc_pending *p, *tmp;

	HASH_ITER (hh, conn->pending, p, tmp) {
		struct err err;

		(void)err_set(&err, ERR_UNAVAILABLE, "%s went away during %s: %s", conn->name,
			api_method_info(p->method)->name, reason);
		pending_fail(p, &err);
		pending_free(p);
	}
}

static void handle_closed(uv_handle_t *handle)
{
	struct rpc_conn *conn = handle->data;

	if (--conn->open_handles > 0)
		return;
	free(conn);
}

static void conn_end(struct rpc_conn *conn)
{
	conn->broken = true;
	while (conn->calls) {
		struct rpc_call *call = conn->calls;

		conn->calls = call->next;
		call->conn = NULL;
		call->prev = call->next = NULL;
	}
	fail_pending(conn, conn->reason);
	while (conn->out_head) {
		struct out_message *m = conn->out_head;

		conn->out_head = m->next;
		out_free(m);
	}
	close_fds(conn->in_fds, conn->n_in_fds);
	buf_fini(&conn->in);
	(void)uv_poll_stop(&conn->poll);
	close_fd(&conn->fd);
	uv_close((uv_handle_t *)&conn->poll, handle_closed);
	uv_close((uv_handle_t *)&conn->end_timer, handle_closed);
}

static void on_end_timer(uv_timer_t *timer)
{
	struct rpc_conn *conn = timer->data;

	if (conn->def->events.on_close)
		conn->def->events.on_close(conn->ctx, conn, conn->reason);
	conn->on_end(conn->owner, conn);
	conn_end(conn);
}

void rpc_conn_free(struct rpc_conn *conn)
{
	if (!conn->reason[0])
		(void)snprintf(conn->reason, sizeof(conn->reason), "shutting down");
	conn_end(conn);
}

/* --- writing ------------------------------------------------------------------------------ */

static void watch(struct rpc_conn *conn);

/* 1: all of it went; 0: the socket is full; -1: the connection is broken. */
static int send_some(struct rpc_conn *conn, struct out_message *m)
{
	while (m->sent < m->bytes.len) {
		union {
			char bytes[CMSG_SPACE(sizeof(int) * RPC_MAX_FDS)];
			struct cmsghdr head;
		} control = {0};
		struct iovec iov = {m->bytes.data + m->sent, m->bytes.len - m->sent};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n;

		/* descriptors ride on the first byte of their message */
		if (m->n_fds && m->sent == 0) {
			control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS,
				.cmsg_len = CMSG_LEN(sizeof(int) * m->n_fds)};
			memcpy(CMSG_DATA(&control.head), m->fds, sizeof(int) * m->n_fds);
			msg.msg_control = control.bytes;
			msg.msg_controllen = CMSG_SPACE(sizeof(int) * m->n_fds);
		}
		n = sendmsg(conn->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0) {
			rpc_conn_close(conn, strerror(errno));
			return -1;
		}
		m->sent += (size_t)n;
	}
	return 1;
}

static void flush_out(struct rpc_conn *conn)
{
	while (conn->out_head && !conn->broken) {
		struct out_message *m = conn->out_head;

		if (send_some(conn, m) <= 0)
			break;
		conn->out_bytes -= m->bytes.len;
		conn->out_head = m->next;
		if (!conn->out_head)
			conn->out_tail = &conn->out_head;
		out_free(m);
	}
	watch(conn);
}

/* Takes message. */
static void send_tree(struct rpc_conn *conn, json_t *message, const int *fds, size_t n_fds)
{
	struct out_message *m;

	if (conn->broken) {
		json_decref(message);
		return;
	}
	m = xcalloc(1, sizeof(*m));
	mp_encode(message, &m->bytes);
	json_decref(message);
	for (size_t i = 0; i < n_fds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd < 0) {
			out_free(m);
			protocol_error(conn, "cannot duplicate a descriptor for it: %s",
				strerror(errno));
			return;
		}
		m->fds[m->n_fds++] = fd;
	}
	conn->out_bytes += m->bytes.len;
	if (conn->out_bytes > MAX_QUEUED_OUT) {
		out_free(m);
		protocol_error(conn, "it does not read what it is sent");
		return;
	}
	*conn->out_tail = m;
	conn->out_tail = &m->next;
	flush_out(conn);
}

/* --- our calls ---------------------------------------------------------------------------- */

static void on_pending_timer(uv_timer_t *timer)
{
	struct rpc_pending *p = container_of(timer, struct rpc_pending, timer);
	const char *method = api_method_info(p->method)->name;
	struct err err;

	if (p->refused) {
		(void)err_set(&err, ERR_UNAVAILABLE, "nobody is connected for %s", method);
		pending_fail(p, &err);
		pending_free(p);
		return;
	}
	(void)err_set(
		&err, ERR_DEADLINE, "%s did not answer %s in time", p->conn->name, method);
	pending_fail(p, &err);
}

/* An id that no call of ours has, answered or not. */
static uint32_t new_id(struct rpc_conn *conn)
{
	struct rpc_pending *p;

	do {
		conn->last_id++;
		HASH_FIND(hh, conn->pending, &conn->last_id, sizeof(conn->last_id), p);
	} while (p);
	return conn->last_id;
}

static json_t *params_of(const struct rec_desc *desc, const void *rec)
{
	return json_pack("[o]", rec_encode(desc, rec));
}

static json_t *call_params(const struct rec_desc *desc, const void *rec, uint64_t wait_ms)
{
	uint64_t deadline_ms = now_ms() + wait_ms;

	return json_pack(
		"[o{sI}]", rec_encode(desc, rec), DEADLINE_KEY, (json_int_t)deadline_ms);
}

struct rpc_pending *rpc_start(uv_loop_t *loop, struct rpc_conn *conn, enum api_method method,
	const void *request, const int *fds, uint64_t deadline_ms, rpc_done_cb *cb, void *ctx)
{
	const struct api_method_info *info = api_method_info(method);
	struct rpc_pending *p = xcalloc(1, sizeof(*p));

	*p = (struct rpc_pending){.method = method, .cb = cb, .ctx = ctx};
	(void)uv_timer_init(loop, &p->timer);
	if (!conn || conn->broken || HASH_COUNT(conn->pending) >= RPC_MAX_CALLS) {
		p->refused = true;
		(void)uv_timer_start(&p->timer, on_pending_timer, 0, 0);
		return p;
	}
	p->conn = conn;
	p->id = new_id(conn);
	HASH_ADD(hh, conn->pending, id, sizeof(p->id), p);
	if (!deadline_ms)
		deadline_ms = info->deadline_ms;
	(void)uv_timer_start(&p->timer, on_pending_timer, deadline_ms, 0);
	send_tree(conn,
		json_pack("[iIso]", MESSAGE_REQUEST, (json_int_t)p->id, info->name,
			call_params(info->request, request, deadline_ms)),
		fds, info->request_fds);
	return p;
}

void rpc_cancel(struct rpc_pending *p)
{
	p->cb = NULL;
	(void)uv_timer_stop(&p->timer);
	if (!p->conn)
		pending_free(p);
}

void rpc_notify(struct rpc_conn *conn, enum api_method method, const void *params)
{
	const struct api_method_info *info = api_method_info(method);

	if (!conn)
		return;
	send_tree(conn,
		json_pack("[iso]", MESSAGE_NOTIFICATION, info->name,
			params_of(info->request, params)),
		NULL, 0);
}

/* --- answering ---------------------------------------------------------------------------- */

static void call_free(struct rpc_call *call)
{
	struct rpc_conn *conn = call->conn;

	if (conn) {
		if (call->prev)
			call->prev->next = call->next;
		else
			conn->calls = call->next;
		if (call->next)
			call->next->prev = call->prev;
		conn->n_calls--;
	}
	record_free(api_method_info(call->method)->request, call->request);
	free(call);
}

void rpc_reply(struct rpc_call *call, const void *result, const int *fds)
{
	const struct api_method_info *info = api_method_info(call->method);

	if (call->conn)
		send_tree(call->conn,
			json_pack("[iIno]", MESSAGE_RESPONSE, (json_int_t)call->id,
				rec_encode(info->result, result)),
			fds, info->result_fds);
	call_free(call);
}

static void send_error(struct rpc_conn *conn, uint32_t id, const struct err *err)
{
	char message[ERR_MESSAGE_MAX];

	(void)snprintf(message, sizeof(message), "%s", err->message);
	str_sanitize(message);
	send_tree(conn,
		json_pack("[iI{ssss}n]", MESSAGE_RESPONSE, (json_int_t)id, "code",
			err_kind_info(err->kind)->name, "message", message),
		NULL, 0);
}

void rpc_reply_err(struct rpc_call *call, const struct err *err)
{
	if (call->conn)
		send_error(call->conn, call->id, err);
	call_free(call);
}

void rpc_call_drop(struct rpc_call *call)
{
	call_free(call);
}

/* --- what the peer says ------------------------------------------------------------------- */

/* Takes n descriptors off the queue; the rest of fds is -1. */
static int take_fds(struct rpc_conn *conn, size_t n, int fds[static RPC_MAX_FDS])
{
	for (size_t i = 0; i < RPC_MAX_FDS; i++)
		fds[i] = -1;
	if (n > conn->n_in_fds) {
		protocol_error(
			conn, "a message lacks %zu of its descriptors", n - conn->n_in_fds);
		return -1;
	}
	memcpy(fds, conn->in_fds, n * sizeof(int));
	conn->n_in_fds -= n;
	memmove(conn->in_fds, conn->in_fds + n, conn->n_in_fds * sizeof(int));
	return 0;
}

static const struct rpc_service *find_service(const struct rpc_conn *conn, const json_t *name)
{
	enum api_method method =
		api_method_parse(json_string_value(name), json_string_length(name));

	for (size_t i = 0; i < conn->def->n_services; i++)
		if (conn->def->services[i].method == method)
			return &conn->def->services[i];
	return NULL;
}

static int decode_params(
	const struct rec_desc *desc, const json_t *params, void **ret, struct err *err)
{
	const json_t *map = json_array_get(params, 0);
	json_t *none = json_object();
	void *rec = record_new(desc);
	int r;

	if (json_array_size(params) > 2)
		r = err_set(err, ERR_INVALID,
			"params must be an array of one map, and perhaps one about the call");
	else
		r = rec_decode(desc, map ? map : none, REC_LENIENT, "", NULL, rec, err);
	json_decref(none);
	if (r < 0) {
		free(rec);
		return -1;
	}
	*ret = rec;
	return 0;
}

/* Until when the caller waits: what it says, and never longer than the method's own time. */
static uint64_t deadline_of(enum api_method method, const json_t *params)
{
	const json_t *said = json_object_get(json_array_get(params, 1), DEADLINE_KEY);
	uint64_t own = now_ms() + api_method_info(method)->deadline_ms;

	if (!json_is_integer(said) || json_integer_value(said) < 0)
		return own;
	return MIN(own, (uint64_t)json_integer_value(said));
}

static struct rpc_call *call_new(struct rpc_conn *conn, uint32_t id, enum api_method method,
	const json_t *params, void *request)
{
	struct rpc_call *call = xcalloc(1, sizeof(*call));

	*call = (struct rpc_call){.conn = conn,
		.next = conn->calls,
		.id = id,
		.method = method,
		.deadline_ms = deadline_of(method, params),
		.request = request};
	if (conn->calls)
		conn->calls->prev = call;
	conn->calls = call;
	conn->n_calls++;
	return call;
}

static void on_request(
	struct rpc_conn *conn, uint32_t id, const json_t *name, const json_t *params)
{
	const struct rpc_service *service = find_service(conn, name);
	const struct api_method_info *info;
	int fds[RPC_MAX_FDS];
	struct err err;
	void *request;

	if (!service) {
		(void)err_set(&err, ERR_NOT_FOUND, "there is no method %.64s on this socket",
			json_string_value(name));
		send_error(conn, id, &err);
		return;
	}
	info = api_method_info(service->method);
	if (take_fds(conn, info->request_fds, fds) < 0)
		return;
	if (conn->n_calls >= RPC_MAX_CALLS) {
		(void)err_set(&err, ERR_BUSY, "%d calls are not answered yet", RPC_MAX_CALLS);
		send_error(conn, id, &err);
	} else if (decode_params(info->request, params, &request, &err) < 0) {
		(void)err_wrap(&err, "%s", info->name);
		send_error(conn, id, &err);
	} else {
		service->handle(conn->ctx, call_new(conn, id, service->method, params, request),
			request, fds);
	}
	close_fds(fds, RPC_MAX_FDS);
}

static void on_notification(struct rpc_conn *conn, const json_t *name, const json_t *params)
{
	const struct rpc_service *service = find_service(conn, name);
	int fds[RPC_MAX_FDS] = {-1, -1, -1, -1};
	struct rpc_call *call;
	struct err err;
	void *request;

	if (!service) {
		LOG(DEBUG, FIELDS(F("peer", conn->name), F("method", json_string_value(name))),
			"ignoring an unknown notification");
		return;
	}
	if (decode_params(api_method_info(service->method)->request, params, &request, &err) <
		0) {
		protocol_error(
			conn, "%s: %s", api_method_info(service->method)->name, err.message);
		return;
	}
	call = call_new(conn, 0, service->method, params, request);
	service->handle(conn->ctx, call, request, fds);
	call_free(call);
}

static void error_of(const json_t *error, struct err *err)
{
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *message = json_string_value(json_object_get(error, "message"));

	if (json_is_string(error))
		message = json_string_value(error);
	(void)err_set(err, code ? err_kind_parse(code) : ERR_INTERNAL, "%s",
		message ? message : "it failed without saying why");
}

static void on_response(
	struct rpc_conn *conn, uint32_t id, const json_t *error, const json_t *result)
{
	const struct api_method_info *info;
	struct rpc_pending *p;
	int fds[RPC_MAX_FDS];
	struct err err;
	void *rec;

	HASH_FIND(hh, conn->pending, &id, sizeof(id), p);
	if (!p) {
		protocol_error(conn, "it answers a call that was never made");
		return;
	}
	info = api_method_info(p->method);
	if (take_fds(conn, json_is_null(error) ? info->result_fds : 0, fds) < 0)
		return;
	/* out of the table first: the callback may end the connection, and that fails all in
	 * it */
	HASH_DEL(conn->pending, p);
	p->conn = NULL;
	rec = record_new(info->result);
	if (!json_is_null(error)) {
		error_of(error, &err);
		pending_fail(p, &err);
	} else if (rec_decode(info->result, result, REC_LENIENT, "", NULL, rec, &err) < 0) {
		(void)err_wrap(&err, "answer of %s to %s", conn->name, info->name);
		err.kind = ERR_INTERNAL;
		pending_fail(p, &err);
	} else if (p->cb) {
		rpc_done_cb *cb = p->cb;

		p->cb = NULL;
		cb(p->ctx, NULL, rec, fds);
	}
	record_free(info->result, rec);
	close_fds(fds, RPC_MAX_FDS);
	pending_free(p);
}

static bool is_id(const json_t *id)
{
	return json_is_integer(id) && json_integer_value(id) >= 0 &&
	       json_integer_value(id) <= (json_int_t)MAX_MSGID;
}

static void on_message(struct rpc_conn *conn, const json_t *m)
{
	const json_t *type = json_array_get(m, 0), *second = json_array_get(m, 1);
	const json_t *third = json_array_get(m, 2), *fourth = json_array_get(m, 3);
	size_t n = json_array_size(m);

	if (!json_is_integer(type))
		protocol_error(conn, "a message is not MessagePack-RPC");
	else if (json_integer_value(type) == MESSAGE_REQUEST && n == 4 && is_id(second) &&
		 json_is_string(third) && json_is_array(fourth))
		on_request(conn, (uint32_t)json_integer_value(second), third, fourth);
	else if (json_integer_value(type) == MESSAGE_RESPONSE && n == 4 && is_id(second))
		on_response(conn, (uint32_t)json_integer_value(second), third, fourth);
	else if (json_integer_value(type) == MESSAGE_NOTIFICATION && n == 3 &&
		 json_is_string(second) && json_is_array(third))
		on_notification(conn, second, third);
	else
		protocol_error(conn, "a message is not MessagePack-RPC");
}

/* Takes whole messages off the buffer. */
static void parse_in(struct rpc_conn *conn)
{
	struct err err;

	while (conn->in.len > 0 && !conn->broken) {
		json_t *message;
		int r = mp_scan(
			&conn->scan, conn->in.data, conn->in.len, RPC_MAX_MESSAGE, &err);
		size_t len = conn->scan.at;

		if (r == 0)
			return;
		if (r < 0 || mp_decode(conn->in.data, len, &message, &err) < 0) {
			protocol_error(conn, "%s", err.message);
			return;
		}
		buf_shift(&conn->in, len);
		conn->scan = (struct mp_scan){0};
		on_message(conn, message);
		json_decref(message);
	}
	if (conn->n_in_fds > 0 && !conn->broken)
		protocol_error(conn, "descriptors came that no message takes");
}

static int keep_fds(struct rpc_conn *conn, struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (conn->n_in_fds < MAX_QUEUED_FDS)
				conn->in_fds[conn->n_in_fds++] = fd;
			else
				(void)close(fd);
		}
	}
	if ((msg->msg_flags & MSG_CTRUNC) || conn->n_in_fds == MAX_QUEUED_FDS) {
		protocol_error(conn, "it sends too many descriptors");
		return -1;
	}
	return 0;
}

static void read_some(struct rpc_conn *conn)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * MAX_QUEUED_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec iov;
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	buf_reserve(&conn->in, READ_BYTES);
	iov = (struct iovec){conn->in.data + conn->in.len, READ_BYTES};
	n = recvmsg(conn->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		rpc_conn_close(conn, n == 0 ? "it closed the connection" : strerror(errno));
		return;
	}
	conn->in.len += (size_t)n;
	if (keep_fds(conn, &msg) < 0)
		return;
	parse_in(conn);
	if (conn->in.len == 0)
		buf_fini(&conn->in); /* an idle connection holds no buffer */
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct rpc_conn *conn = poll->data;

	if (conn->broken)
		return;
	if (status < 0) {
		rpc_conn_close(conn, uv_strerror(status));
		return;
	}
	if (events & UV_WRITABLE)
		flush_out(conn);
	if ((events & (UV_READABLE | UV_DISCONNECT)) && !conn->broken)
		read_some(conn);
}

static void watch(struct rpc_conn *conn)
{
	if (!conn->broken)
		(void)uv_poll_start(&conn->poll,
			UV_READABLE | UV_DISCONNECT | (conn->out_head ? UV_WRITABLE : 0),
			on_poll);
}

struct rpc_conn *rpc_conn_new(uv_loop_t *loop, int *fd, const struct rpc_listen *def, void *ctx,
	void (*on_end)(void *owner, struct rpc_conn *conn), void *owner)
{
	struct rpc_conn *conn = xcalloc(1, sizeof(*conn));
	struct err ignored;

	conn->loop = loop;
	conn->fd = take_fd(fd);
	conn->def = def;
	conn->ctx = ctx;
	conn->on_end = on_end;
	conn->owner = owner;
	conn->out_tail = &conn->out_head;
	(void)rpc_peer_of(conn->fd, &conn->peer, &ignored);
	(void)snprintf(conn->name, sizeof(conn->name), "pid %d", (int)conn->peer.pid);
	(void)uv_poll_init(loop, &conn->poll, conn->fd);
	(void)uv_timer_init(loop, &conn->end_timer);
	conn->poll.data = conn->end_timer.data = conn;
	conn->open_handles = 2;
	watch(conn);
	return conn;
}
