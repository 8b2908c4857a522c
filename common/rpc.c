/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: bytes and descriptors to messages, messages to handlers and callers.
 *
 * Reading. Bytes gather in one buffer and a scanner (mp.h) keeps its place in the message that
 * is under way. A message that is complete is read into what it says, its record included, and
 * its bytes are gone before anybody acts on it. Descriptors gather in a queue beside it: the kernel hands them over no later
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
#include <malloc.h>
#include <string.h>
#include <sys/socket.h>
/* ids are our own and count up: they spread by themselves */
#define HASH_FUNCTION(key, len, hash) memcpy(&(hash), key, len)
#include <uthash.h>

#include "common/log.h"
#include "common/mp.h"
#include "common/rpc_internal.h"
#include "common/util.h"

/* At a time: as much again as there is of a message already. */
#define READ_BYTES_MIN  ((size_t)16 << 10)
#define READ_BYTES_MAX  ((size_t)256 << 10) /* about what the kernel keeps for a socket */
#define METHOD_NAME_MAX 65                  /* of which as much is repeated to its sender */
#define LONG_MESSAGE    ((size_t)128 << 10)
#define MAX_QUEUED_FDS  16                    /* a burst of requests with two each */
#define MAX_QUEUED_OUT  (2 * RPC_MAX_MESSAGE) /* bytes that a peer has not read yet */
#define DEADLINE_KEY    "deadlineMs"
#define MAX_MSGID       UINT32_MAX /* MessagePack-RPC: a 32-bit number */

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
	struct err *refused; /* why it was not sent */
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
	int watched; /* UV_READABLE and so on */
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

/* Long messages are seldom, and what they took is in the middle of much else. */
static void give_back(size_t message_len)
{
	if (message_len >= LONG_MESSAGE)
		(void)malloc_trim(0);
}

static void out_free(struct out_message *m)
{
	const size_t len = m->bytes.len;

	close_fds(m->fds, m->n_fds);
	buf_fini(&m->bytes);
	free(m);
	give_back(len);
}

static void pending_freed(uv_handle_t *handle)
{
	struct rpc_pending *p =
		container_of((uv_timer_t *)(void *)handle, struct rpc_pending, timer);

	free(p->refused);
	free(p);
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

static struct out_message *out_new(void)
{
	return xcalloc(1, sizeof(struct out_message));
}

static int out_add_fds(struct out_message *m, const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd < 0)
			return -1;
		m->fds[m->n_fds++] = fd;
	}
	return 0;
}

/* Takes m. */
static void send_message(
	struct rpc_conn *conn, struct out_message *m, const int *fds, size_t n_fds)
{
	if (conn->broken) {
		out_free(m);
		return;
	}
	if (out_add_fds(m, fds, n_fds) < 0) {
		out_free(m);
		protocol_error(
			conn, "cannot duplicate a descriptor for it: %s", strerror(errno));
		return;
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
		pending_fail(p, p->refused);
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

/* A record, if the peer will take it: texts come from the kernel and from files, too. */
static int put_record(
	struct buf *out, const struct rec_desc *desc, const void *rec, struct err *err)
{
	const size_t begin = out->len;

	rec_pack(desc, rec, out);
	return mp_check(out->data + begin, out->len - begin, err);
}

/* Whether the message is within the peer's bounds. */
static int check_bounds(const struct buf *message, struct err *err)
{
	struct mp_scan scan = {0};

	return mp_scan(&scan, message->data, message->len, RPC_MAX_MESSAGE, err) < 0 ? -1 : 0;
}

/* What a request and a notification end with. deadline_ms 0: none is said. */
static int put_params(struct buf *out, const struct rec_desc *desc, const void *rec,
	uint64_t deadline_ms, struct err *err)
{
	mp_put_list(out, deadline_ms ? 2 : 1);
	if (put_record(out, desc, rec, err) < 0)
		return -1;
	if (deadline_ms) {
		mp_put_map(out, 1);
		mp_put_text(out, DEADLINE_KEY);
		mp_put_int(out, (int64_t)deadline_ms);
	}
	return check_bounds(out, err);
}

static struct rpc_pending *refuse_later(struct rpc_pending *p, const struct err *why)
{
	p->refused = xcalloc(1, sizeof(*why));
	*p->refused = *why;
	(void)uv_timer_start(&p->timer, on_pending_timer, 0, 0);
	return p;
}

struct rpc_pending *rpc_start(uv_loop_t *loop, struct rpc_conn *conn, enum api_method method,
	const void *request, const int *fds, uint64_t deadline_ms, rpc_done_cb *cb, void *ctx)
{
	const struct api_method_info *info = api_method_info(method);
	struct rpc_pending *p = xcalloc(1, sizeof(*p));
	struct out_message *m;
	struct err err;

	*p = (struct rpc_pending){.method = method, .cb = cb, .ctx = ctx};
	(void)uv_timer_init(loop, &p->timer);
	if (!conn || conn->broken || HASH_COUNT(conn->pending) >= RPC_MAX_CALLS) {
		(void)err_set(
			&err, ERR_UNAVAILABLE, "nobody is connected for %s", info->name);
		return refuse_later(p, &err);
	}
	p->id = new_id(conn);
	if (!deadline_ms)
		deadline_ms = info->deadline_ms;
	m = out_new();
	mp_put_list(&m->bytes, 4);
	mp_put_int(&m->bytes, MESSAGE_REQUEST);
	mp_put_int(&m->bytes, p->id);
	mp_put_text(&m->bytes, info->name);
	if (put_params(&m->bytes, info->request, request, now_ms() + deadline_ms, &err) < 0) {
		(void)err_wrap(&err, "%s cannot be sent", info->name);
		out_free(m);
		return refuse_later(p, &err);
	}
	p->conn = conn;
	HASH_ADD(hh, conn->pending, id, sizeof(p->id), p);
	(void)uv_timer_start(&p->timer, on_pending_timer, deadline_ms, 0);
	send_message(conn, m, fds, info->request_fds);
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
	struct out_message *m;
	struct err err;

	if (!conn)
		return;
	m = out_new();
	mp_put_list(&m->bytes, 3);
	mp_put_int(&m->bytes, MESSAGE_NOTIFICATION);
	mp_put_text(&m->bytes, info->name);
	if (put_params(&m->bytes, info->request, params, 0, &err) == 0) {
		send_message(conn, m, NULL, 0);
		return;
	}
	LOG(ERROR, FIELDS(F("peer", conn->name), F("method", info->name), F("err", err.message)),
		"a notification cannot be sent");
	out_free(m);
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

/* A response up to where its error and its result come. */
static struct out_message *response_new(uint32_t id)
{
	struct out_message *m = out_new();

	mp_put_list(&m->bytes, 4);
	mp_put_int(&m->bytes, MESSAGE_RESPONSE);
	mp_put_int(&m->bytes, id);
	return m;
}

static void send_error(struct rpc_conn *conn, uint32_t id, const struct err *err)
{
	struct out_message *m = response_new(id);
	char message[ERR_MESSAGE_MAX];

	(void)snprintf(message, sizeof(message), "%s", err->message);
	str_sanitize(message);
	mp_put_map(&m->bytes, 2);
	mp_put_text(&m->bytes, "code");
	mp_put_text(&m->bytes, err_kind_info(err->kind)->name);
	mp_put_text(&m->bytes, "message");
	mp_put_text(&m->bytes, message);
	mp_put_null(&m->bytes);
	send_message(conn, m, NULL, 0);
}

void rpc_reply(struct rpc_call *call, const void *result, const int *fds)
{
	const struct api_method_info *info = api_method_info(call->method);
	struct out_message *m;
	struct err err;

	if (call->conn) {
		m = response_new(call->id);
		mp_put_null(&m->bytes);
		if (put_record(&m->bytes, info->result, result, &err) == 0 &&
			check_bounds(&m->bytes, &err) == 0) {
			send_message(call->conn, m, fds, info->result_fds);
		} else {
			(void)err_wrap(&err, "the answer to %s cannot be sent", info->name);
			err.kind = ERR_INTERNAL;
			out_free(m);
			send_error(call->conn, call->id, &err);
		}
	}
	call_free(call);
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

/* One message, read. */
struct incoming {
	enum message_type type;
	uint32_t id;
	char name[METHOD_NAME_MAX];        /* of a request or notification */
	const struct rpc_service *service; /* NULL: there is no such method here */
	struct rpc_pending *pending;       /* of a response; NULL: nobody asked */
	uint64_t deadline_ms;
	size_t len;
	bool is_error; /* a response, and err is what its sender says */
	void *rec;     /* NULL: err says why */
	struct err err;
};

static int not_rpc(struct rpc_conn *conn)
{
	protocol_error(conn, "a message is not MessagePack-RPC");
	return -1;
}

static const struct rpc_service *find_service(
	const struct rpc_conn *conn, const struct mp_value *name)
{
	enum api_method method = api_method_parse(name->text.v, name->text.len);

	for (size_t i = 0; i < conn->def->n_services; i++)
		if (conn->def->services[i].method == method)
			return &conn->def->services[i];
	return NULL;
}

static void *read_record(const struct rec_desc *desc, struct mp_cursor *c, struct err *err)
{
	void *rec = record_new(desc);

	if (rec_unpack(desc, c, rec, err) == 0)
		return rec;
	free(rec);
	return NULL;
}

/* Until when the caller waits: what it says, and never longer than the method's own time. about
 * is at what the params say of the call. */
static uint64_t read_deadline(enum api_method method, struct mp_cursor about)
{
	uint64_t own = now_ms() + api_method_info(method)->deadline_ms;
	struct mp_value said;

	if (!mp_find(&about, DEADLINE_KEY))
		return own;
	said = mp_next(&about);
	if (said.type != MP_INT || said.number < 0)
		return own;
	return MIN(own, (uint64_t)said.number);
}

/* Name and params: a map, which may be left out, and perhaps one about the call. */
static int read_call(struct rpc_conn *conn, struct mp_cursor *c, struct incoming *in)
{
	static const uint8_t none[] = {0x80}; /* an empty map */
	struct mp_value name = mp_next(c), params = mp_next(c);
	struct mp_cursor about = mp_cursor(none), map = about;

	if (name.type != MP_TEXT || params.type != MP_LIST)
		return not_rpc(conn);
	(void)snprintf(in->name, sizeof(in->name), "%.*s",
		(int)MIN(name.text.len, sizeof(in->name)), name.text.v);
	in->service = find_service(conn, &name);
	if (!in->service)
		return 0;
	if (params.count > 2) {
		(void)err_set(&in->err, ERR_INVALID,
			"params must be an array of one map, and perhaps one about the call");
		return 0;
	}
	if (params.count > 0) {
		map = *c;
		mp_skip(c);
	}
	if (params.count > 1)
		about = *c;
	in->deadline_ms = read_deadline(in->service->method, about);
	in->rec = read_record(api_method_info(in->service->method)->request, &map, &in->err);
	return 0;
}

static char *text_of(const struct mp_value *v)
{
	return v->type == MP_TEXT ? xmemdup0(v->text.v, v->text.len) : NULL;
}

static char *text_at(struct mp_cursor map, const char *key)
{
	struct mp_value v;

	if (!mp_find(&map, key))
		return NULL;
	v = mp_next(&map);
	return text_of(&v);
}

/* Ours are {code, message}; MessagePack-RPC has them of any kind, and texts are common. */
static void read_error(struct mp_cursor error, struct err *err)
{
	cleanup_free char *code = text_at(error, "code"), *message = text_at(error, "message");
	struct mp_value v = mp_next(&error);

	if (!message)
		message = text_of(&v);
	(void)err_set(err, code ? err_kind_parse(code) : ERR_INTERNAL, "%s",
		message ? message : "it failed without saying why");
}

/* Error and result. */
static void read_response(struct rpc_conn *conn, struct mp_cursor *c, struct incoming *in)
{
	const struct api_method_info *info;
	const struct mp_cursor error = *c;

	HASH_FIND(hh, conn->pending, &in->id, sizeof(in->id), in->pending);
	if (!in->pending)
		return;
	info = api_method_info(in->pending->method);
	in->is_error = mp_next(c).type != MP_NULL;
	if (in->is_error) {
		read_error(error, &in->err);
		return;
	}
	in->rec = read_record(info->result, c, &in->err);
	if (in->rec)
		return;
	(void)err_wrap(&in->err, "answer of %s to %s", conn->name, info->name);
	in->err.kind = ERR_INTERNAL;
}

static int read_id(struct rpc_conn *conn, struct mp_cursor *c, uint32_t *ret)
{
	struct mp_value id = mp_next(c);

	if (id.type != MP_INT || id.number < 0 || id.number > (int64_t)MAX_MSGID)
		return not_rpc(conn);
	*ret = (uint32_t)id.number;
	return 0;
}

/* A whole message that passed the gates. */
static int read_message(struct rpc_conn *conn, struct mp_cursor c, struct incoming *in)
{
	struct mp_value list = mp_next(&c), type;

	if (list.type != MP_LIST || list.count == 0)
		return not_rpc(conn);
	type = mp_next(&c);
	if (type.type != MP_INT || type.number < 0 || type.number > MESSAGE_NOTIFICATION ||
		list.count != (type.number == MESSAGE_NOTIFICATION ? 3 : 4))
		return not_rpc(conn);
	in->type = (enum message_type)type.number;
	if (in->type == MESSAGE_NOTIFICATION)
		return read_call(conn, &c, in);
	if (read_id(conn, &c, &in->id) < 0)
		return -1;
	if (in->type == MESSAGE_REQUEST)
		return read_call(conn, &c, in);
	read_response(conn, &c, in);
	return 0;
}

/* --- what comes of it --------------------------------------------------------------------- */

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

/* Takes the record. */
static struct rpc_call *call_new(struct rpc_conn *conn, struct incoming *in)
{
	struct rpc_call *call = xcalloc(1, sizeof(*call));

	*call = (struct rpc_call){.conn = conn,
		.next = conn->calls,
		.id = in->id,
		.method = in->service->method,
		.deadline_ms = in->deadline_ms,
		.request = take_ptr(in->rec)};
	if (conn->calls)
		conn->calls->prev = call;
	conn->calls = call;
	conn->n_calls++;
	return call;
}

static void serve(struct rpc_conn *conn, struct incoming *in, int *fds)
{
	struct rpc_call *call = call_new(conn, in);

	in->service->handle(conn->ctx, call, call->request, fds);
}

static void on_request(struct rpc_conn *conn, struct incoming *in)
{
	const struct api_method_info *info;
	int fds[RPC_MAX_FDS];

	if (!in->service) {
		(void)err_set(&in->err, ERR_NOT_FOUND,
			"there is no method %.64s on this socket", in->name);
		send_error(conn, in->id, &in->err);
		return;
	}
	info = api_method_info(in->service->method);
	if (take_fds(conn, info->request_fds, fds) < 0)
		return;
	if (conn->n_calls >= RPC_MAX_CALLS) {
		(void)err_set(
			&in->err, ERR_BUSY, "%d calls are not answered yet", RPC_MAX_CALLS);
		send_error(conn, in->id, &in->err);
	} else if (!in->rec) {
		(void)err_wrap(&in->err, "%s", info->name);
		send_error(conn, in->id, &in->err);
	} else {
		serve(conn, in, fds);
	}
	close_fds(fds, RPC_MAX_FDS);
}

static void on_notification(struct rpc_conn *conn, struct incoming *in)
{
	int fds[RPC_MAX_FDS] = {-1, -1, -1, -1};
	struct rpc_call *call;

	if (!in->service) {
		LOG(DEBUG, FIELDS(F("peer", conn->name), F("method", in->name)),
			"ignoring an unknown notification");
		return;
	}
	if (!in->rec) {
		protocol_error(conn, "%s: %s", api_method_info(in->service->method)->name,
			in->err.message);
		return;
	}
	call = call_new(conn, in);
	in->service->handle(conn->ctx, call, call->request, fds);
	call_free(call);
}

static void on_response(struct rpc_conn *conn, struct incoming *in)
{
	const struct api_method_info *info;
	struct rpc_pending *p = in->pending;
	int fds[RPC_MAX_FDS];

	if (!p) {
		protocol_error(conn, "it answers a call that was never made");
		return;
	}
	info = api_method_info(p->method);
	if (take_fds(conn, in->is_error ? 0 : info->result_fds, fds) < 0)
		return;
	/* out of the table first: the callback may end the connection, and that fails all in
	 * it */
	HASH_DEL(conn->pending, p);
	p->conn = NULL;
	if (!in->rec) {
		pending_fail(p, &in->err);
	} else if (p->cb) {
		rpc_done_cb *cb = p->cb;

		p->cb = NULL;
		cb(p->ctx, NULL, in->rec, fds);
	}
	close_fds(fds, RPC_MAX_FDS);
	pending_free(p);
}

static const struct rec_desc *incoming_desc(const struct incoming *in)
{
	if (in->type == MESSAGE_RESPONSE)
		return api_method_info(in->pending->method)->result;
	return api_method_info(in->service->method)->request;
}

static void act(struct rpc_conn *conn, struct incoming *in)
{
	/* a response's pending call is gone afterwards */
	const struct rec_desc *desc = in->rec ? incoming_desc(in) : NULL;

	switch (in->type) {
	case MESSAGE_REQUEST: on_request(conn, in); break;
	case MESSAGE_RESPONSE: on_response(conn, in); break;
	case MESSAGE_NOTIFICATION: on_notification(conn, in); break;
	}
	record_free(desc, in->rec);
}

/* An idle connection holds no buffer. */
static void drop_empty(struct buf *b)
{
	if (b->len == 0)
		buf_fini(b);
}

/* Reads the message at the front of the buffer if it is there whole. 1: it is taken off. */
static int take_message(struct rpc_conn *conn, struct incoming *in)
{
	struct err err;
	int r = mp_scan(&conn->scan, conn->in.data, conn->in.len, RPC_MAX_MESSAGE, &err);
	const size_t len = conn->scan.at;

	if (r == 0)
		return 0;
	if (r < 0 || mp_check(conn->in.data, len, &err) < 0) {
		protocol_error(conn, "%s", err.message);
		return -1;
	}
	if (read_message(conn, mp_cursor(conn->in.data), in) < 0)
		return -1;
	buf_shift(&conn->in, len);
	drop_empty(&conn->in);
	conn->scan = (struct mp_scan){0};
	in->len = len;
	return 1;
}

static void parse_in(struct rpc_conn *conn)
{
	while (conn->in.len > 0 && !conn->broken) {
		struct incoming in = {0};

		if (take_message(conn, &in) <= 0)
			return;
		act(conn, &in);
		give_back(in.len);
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
	const size_t room = MIN(MAX(conn->in.len, READ_BYTES_MIN), READ_BYTES_MAX);
	ssize_t n;

	buf_reserve(&conn->in, room);
	iov = (struct iovec){conn->in.data + conn->in.len, room};
	n = recvmsg(conn->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		drop_empty(&conn->in);
		return;
	}
	if (n <= 0) {
		rpc_conn_close(conn, n == 0 ? "it closed the connection" : strerror(errno));
		return;
	}
	conn->in.len += (size_t)n;
	if (keep_fds(conn, &msg) < 0)
		return;
	parse_in(conn);
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

/* To start what runs is two system calls for a message that was sent at once, as most are. */
static void watch(struct rpc_conn *conn)
{
	const int events = UV_READABLE | UV_DISCONNECT | (conn->out_head ? UV_WRITABLE : 0);

	if (conn->broken || conn->watched == events)
		return;
	conn->watched = events;
	(void)uv_poll_start(&conn->poll, events, on_poll);
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
