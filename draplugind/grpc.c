/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three objects, each owned by the one before: a server has connections, a connection has calls.
 * Bytes that arrive go into nghttp2's session, which calls back with headers and data; whatever it
 * wants sent is collected by pump() into one write. So there are two rules:
 *
 * - A callback of nghttp2 never closes a connection or frees its session. It only queues frames;
 *   the caller of nghttp2_session_mem_recv() looks afterwards whether the session is over.
 * - A call has two owners: the stream it came on, until that closes, and its handler, from when it
 *   is handed over until it answers. The last one to let go frees it. A client may reset a stream
 *   while a device is being prepared for it; the answer then has nowhere to go and is dropped.
 *
 * The answer to a call is submitted when it is complete: headers, one message, trailers; or, for
 * an error, one block of headers that is trailers at the same time. There is no timer a call: the
 * deadline is handed to the handler, and a client that stops waiting says so with RST_STREAM.
 *
 * Who may connect is the business of the socket's mode and directory. Nevertheless everything a
 * client can make us keep is bounded: connections, streams, the message of a stream, and all
 * unfinished messages together. A client that breaks HTTP/2 is told so and disconnected; that is
 * logged, because otherwise only the other side would know.
 */
#include "draplugind/grpc.h"

#include <nghttp2/nghttp2.h>
#include <pb_decode.h>
#include <pb_encode.h>
#include <string.h>
#include <utlist.h>

#include "common/log.h"

#define MAX_CONNS    8  /* a kubelet holds two; a second one may come before the first is gone */
#define MAX_STREAMS  128 /* a connection; what comes beyond is queued by the client */
#define MAX_BUFFERED (4 * GRPC_MAX_MESSAGE) /* unfinished requests of one server together */
#define MAX_PATH     128
#define WINDOW       (1 << 20) /* of a stream and of a connection: one round trip a request */
#define MAX_HEADERS  (16u << 10)
#define READ_SIZE    (16u << 10)
#define WRITE_PAUSE  (256u << 10) /* bytes in flight at which to wait for the client to read */
#define DRAIN_MS     30000 /* Kubernetes leaves a pod that long between SIGTERM and SIGKILL */
#define COMPLAIN_MS  10000 /* least time between two warnings about clients of a server */

struct grpc_server {
	uv_loop_t *loop;
	uv_pipe_t listener;
	uv_timer_t drain; /* runs once the server is to go */
	unsigned n_handles; /* of the two above, those not closed yet */
	const struct grpc_service *service;
	void *ctx;
	struct conn *conns;
	size_t n_conns;
	size_t buffered;
	bool leaving;
	uint64_t complained_ms;
	unsigned complaints; /* not logged since */
};

struct conn {
	struct conn *prev, *next;
	struct grpc_server *server;
	uv_pipe_t pipe;
	nghttp2_session *session;
	struct grpc_call *calls;
	bool receiving; /* inside nghttp2_session_mem_recv() */
	char in[READ_SIZE];
};

struct grpc_call {
	struct grpc_call *prev, *next;
	struct conn *conn; /* NULL once the stream is closed */
	int32_t stream_id;
	const struct grpc_method *method; /* NULL: there is none of this path */
	char path[MAX_PATH];
	bool post, grpc, bad_timeout; /* what the headers said */
	bool answered; /* what still comes from the client is dropped */
	bool held;     /* the handler's */
	uint64_t began_ms, deadline_ms;
	struct buf request;
	struct buf reply;
	size_t sent; /* bytes of reply */
};

static void pump(struct conn *conn);

/* --- clients that misbehave ------------------------------------------------------------------ */

/* A client that is broken is broken all the time: one warning stands for many. */
__attribute__((format(printf, 2, 3))) static void complain(
	struct grpc_server *server, const char *fmt, ...)
{
	char text[ERR_MESSAGE_MAX], more[32];
	uint64_t now = now_ms();
	va_list ap;

	if (server->complained_ms && now - server->complained_ms < COMPLAIN_MS) {
		server->complaints++;
		return;
	}
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)snprintf(more, sizeof(more), "%u", server->complaints);
	LOG(WARN,
		FIELDS(F("peer", server->service->name),
			F("suppressed", server->complaints ? more : NULL)),
		"gRPC client: %s", text);
	server->complained_ms = now;
	server->complaints = 0;
}

/* --- calls ----------------------------------------------------------------------------------- */

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
	return nghttp2_session_get_stream_user_data(session, stream_id);
}

static void call_free(struct grpc_call *call)
{
	buf_fini(&call->request);
	buf_fini(&call->reply);
	free(call);
}

static void call_drop_request(struct grpc_call *call)
{
	call->conn->server->buffered -= call->request.len;
	buf_fini(&call->request);
}

/* The stream lets go. */
static void call_detach(struct grpc_call *call)
{
	call_drop_request(call);
	DL_DELETE(call->conn->calls, call);
	call->conn = NULL;
	if (!call->held)
		call_free(call);
}

static void log_answer(const struct grpc_call *call, int status, const char *text)
{
	char code[16], took[32];

	if (!log_enabled(LOG_DEBUG))
		return;
	(void)snprintf(code, sizeof(code), "%d", status);
	(void)snprintf(took, sizeof(took), "%llu",
		(unsigned long long)(now_ms() - call->began_ms));
	LOG(DEBUG,
		FIELDS(F("method", call->path), F("status", code), F("took_ms", took),
			F("err", text)),
		"gRPC call answered");
}

static nghttp2_nv header(const char *name, const char *value)
{
	/* nghttp2 copies both; its type is without const for callers that ask it not to */
	return (nghttp2_nv){
		.name = (uint8_t *)(uintptr_t)name,
		.value = (uint8_t *)(uintptr_t)value,
		.namelen = strlen(name),
		.valuelen = strlen(value),
		.flags = NGHTTP2_NV_FLAG_NONE,
	};
}

/* A failed submit leaves the stream without an answer: the session is over then, and pump() finds
 * out. */
static void submit(struct grpc_call *call, const nghttp2_nv *headers, size_t n,
	const nghttp2_data_provider *data)
{
	struct conn *conn = call->conn;
	int r;

	call->answered = true;
	call_drop_request(call);
	r = nghttp2_submit_response(conn->session, call->stream_id, headers, n, data);
	if (r < 0)
		complain(conn->server, "cannot answer %s: %s", call->path, nghttp2_strerror(r));
	if (!conn->receiving)
		pump(conn);
}

/* Trailers without a message. http_status is 200 for whatever is a gRPC request at all. */
static void call_refuse(struct grpc_call *call, const char *http_status, enum grpc_status status,
	const char *text)
{
	cleanup_buf struct buf escaped = BUF_INIT;
	char code[16];

	(void)snprintf(code, sizeof(code), "%d", (int)status);
	buf_puts(&escaped, "");
	grpc_message_escape(&escaped, text);
	const nghttp2_nv headers[] = {
		header(":status", http_status),
		header("content-type", "application/grpc"),
		header("grpc-status", code),
		header("grpc-message", escaped.data),
		header("grpc-accept-encoding", "identity"),
	};
	log_answer(call, (int)status, text);
	submit(call, headers, ARRAY_SIZE(headers), NULL);
}

/* Hands out the reply. The trailers may be submitted only when its last byte is taken: before, they
 * would overtake it. */
static ssize_t on_reply_wanted(nghttp2_session *session, int32_t stream_id, uint8_t *to,
	size_t len, uint32_t *flags, nghttp2_data_source *source, void *user)
{
	struct grpc_call *call = source->ptr;
	size_t n = MIN(len, call->reply.len - call->sent);

	(void)user;
	memcpy(to, call->reply.data + call->sent, n);
	call->sent += n;
	if (call->sent == call->reply.len) {
		const nghttp2_nv trailers[] = {header("grpc-status", "0")};

		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(session, stream_id, trailers, ARRAY_SIZE(trailers)) < 0)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	return (ssize_t)n;
}

/* Encodes the frame around the response; false when it is more than a client would take. */
static bool encode_reply(struct grpc_call *call, const void *response)
{
	uint8_t prefix[GRPC_PREFIX_LEN];
	pb_ostream_t out;
	size_t len;

	if (!pb_get_encoded_size(&len, call->method->response, response) || len > GRPC_MAX_MESSAGE)
		return false;
	grpc_prefix_encode((uint32_t)len, prefix);
	buf_put(&call->reply, prefix, sizeof(prefix));
	buf_reserve(&call->reply, len);
	out = pb_ostream_from_buffer((pb_byte_t *)call->reply.data + call->reply.len, len);
	if (!pb_encode(&out, call->method->response, response))
		return false;
	call->reply.len += len;
	return true;
}

void grpc_reply(struct grpc_call *call, const void *response)
{
	const nghttp2_nv headers[] = {
		header(":status", "200"),
		header("content-type", "application/grpc"),
	};
	const nghttp2_data_provider data = {
		.source.ptr = call,
		.read_callback = on_reply_wanted,
	};

	if (call->conn && !encode_reply(call, response)) {
		grpc_reply_error(call, GRPC_INTERNAL, "cannot encode the reply");
		return;
	}
	call->held = false;
	log_answer(call, GRPC_OK, call->conn ? NULL : "nobody waits for it any more");
	if (call->conn)
		submit(call, headers, ARRAY_SIZE(headers), &data);
	else
		call_free(call);
}

void grpc_reply_error(struct grpc_call *call, enum grpc_status status, const char *text)
{
	call->held = false;
	if (call->conn)
		call_refuse(call, "200", status, text);
	else
		call_free(call);
}

uint64_t grpc_call_left_ms(const struct grpc_call *call)
{
	uint64_t now = now_ms();

	if (call->deadline_ms == UINT64_MAX)
		return UINT64_MAX;
	return call->deadline_ms > now ? call->deadline_ms - now : 0;
}

/* --- requests -------------------------------------------------------------------------------- */

static const struct grpc_method *find_method(
	const struct grpc_service *service, const char *path, size_t len)
{
	for (size_t i = 0; i < service->n_methods; i++) {
		const struct grpc_method *m = &service->methods[i];

		if (strlen(m->path) == len && memcmp(m->path, path, len) == 0)
			return m;
	}
	return NULL;
}

static void take_timeout(struct grpc_call *call, const char *value, size_t len)
{
	uint64_t ms;

	if (grpc_timeout_parse(value, len, &ms) < 0)
		call->bad_timeout = true;
	else
		call->deadline_ms = call->began_ms + ms;
}

static void take_header(
	struct grpc_call *call, const char *name, const char *value, size_t value_len)
{
	if (strcmp(name, ":method") == 0) {
		call->post = value_len == 4 && memcmp(value, "POST", 4) == 0;
	} else if (strcmp(name, ":path") == 0) {
		call->method = find_method(call->conn->server->service, value, value_len);
		(void)snprintf(call->path, sizeof(call->path), "%.*s",
			(int)MIN(value_len, sizeof(call->path)), value);
		str_sanitize(call->path);
	} else if (strcmp(name, "content-type") == 0) {
		call->grpc = grpc_content_type(value, value_len);
	} else if (strcmp(name, "grpc-timeout") == 0) {
		take_timeout(call, value, value_len);
	}
}

/* All headers are there. */
static void call_admit(struct grpc_call *call)
{
	char text[MAX_PATH + 32];

	if (!call->post) {
		call_refuse(call, "405", GRPC_INTERNAL, "method must be POST");
	} else if (!call->grpc) {
		call_refuse(call, "415", GRPC_INVALID_ARGUMENT,
			"content-type must be application/grpc");
	} else if (call->bad_timeout) {
		call_refuse(call, "400", GRPC_INTERNAL, "malformed grpc-timeout");
	} else if (!call->method) {
		(void)snprintf(text, sizeof(text), "there is no method %s", call->path);
		call_refuse(call, "200", GRPC_UNIMPLEMENTED, text);
	}
}

/* Refuses a frame as soon as its prefix shows that it must be; true when it was. */
static bool refuse_prefix(struct grpc_call *call)
{
	struct grpc_prefix prefix = grpc_prefix_decode(call->request.data);
	char text[96];

	if (prefix.flag) {
		call_refuse(call, "200", GRPC_UNIMPLEMENTED, "compressed messages are not understood");
		return true;
	}
	if (prefix.len > GRPC_MAX_MESSAGE) {
		(void)snprintf(text, sizeof(text), "message of %u bytes, at most %u are taken",
			prefix.len, GRPC_MAX_MESSAGE);
		call_refuse(call, "200", GRPC_RESOURCE_EXHAUSTED, text);
		return true;
	}
	if (call->request.len > GRPC_PREFIX_LEN + (size_t)prefix.len) {
		call_refuse(call, "200", GRPC_INTERNAL, "more than the one message of a unary call");
		return true;
	}
	return false;
}

static void call_data(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct grpc_server *server = call->conn->server;

	if (call->answered)
		return;
	if (server->buffered + len > MAX_BUFFERED) {
		call_refuse(call, "200", GRPC_RESOURCE_EXHAUSTED,
			"too many unfinished requests at the same time");
		return;
	}
	buf_put(&call->request, data, len);
	server->buffered += len;
	if (call->request.len >= GRPC_PREFIX_LEN)
		(void)refuse_prefix(call);
}

/* Decodes the message, gives it to the method's handler. */
static void call_handle(struct grpc_call *call)
{
	const struct grpc_method *method = call->method;
	void *ctx = call->conn->server->ctx;
	pb_istream_t in = pb_istream_from_buffer(
		(const pb_byte_t *)call->request.data + GRPC_PREFIX_LEN,
		call->request.len - GRPC_PREFIX_LEN);
	cleanup_free void *request = xcalloc(1, method->request_size);

	if (!pb_decode(&in, method->request, request)) {
		char text[96];

		(void)snprintf(text, sizeof(text), "cannot decode the request: %s",
			PB_GET_ERROR(&in));
		call_refuse(call, "200", GRPC_INTERNAL, text);
		return;
	}
	call_drop_request(call);
	call->held = true;
	method->handle(ctx, call, request);
	pb_release(method->request, request);
}

/* The client has said all. */
static void call_end(struct grpc_call *call)
{
	if (call->answered)
		return;
	if (call->request.len < GRPC_PREFIX_LEN ||
		call->request.len <
			GRPC_PREFIX_LEN + (size_t)grpc_prefix_decode(call->request.data).len) {
		call_refuse(call, "200", GRPC_INTERNAL, "request ends within its message");
		return;
	}
	call_handle(call);
}

/* --- what nghttp2 reports -------------------------------------------------------------------- */

static bool is_request(const nghttp2_frame *frame)
{
	return frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct conn *conn = user;
	struct grpc_call *call;

	if (!is_request(frame))
		return 0;
	call = xcalloc(1, sizeof(*call));
	call->conn = conn;
	call->stream_id = frame->hd.stream_id;
	call->began_ms = now_ms();
	call->deadline_ms = UINT64_MAX;
	DL_APPEND(conn->calls, call);
	(void)nghttp2_session_set_stream_user_data(session, call->stream_id, call);
	return 0;
}

/* Names and values come NUL-terminated, and checked as HTTP wants them. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
	size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
	struct grpc_call *call = call_of(session, frame->hd.stream_id);

	(void)name_len;
	(void)flags;
	(void)user;
	if (call && is_request(frame))
		take_header(call, (const char *)name, (const char *)value, value_len);
	return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
	const uint8_t *data, size_t len, void *user)
{
	struct grpc_call *call = call_of(session, stream_id);

	(void)flags;
	(void)user;
	if (call)
		call_data(call, data, len);
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct grpc_call *call;

	(void)user;
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	call = call_of(session, frame->hd.stream_id);
	if (!call)
		return 0;
	if (is_request(frame))
		call_admit(call);
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		call_end(call);
	return 0;
}

/* An answer that came before the end of its request also ends the request: RFC 9113, 8.1. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	int32_t id = frame->hd.stream_id;

	(void)user;
	if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	if (nghttp2_session_get_stream_remote_close(session, id) == 0)
		(void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
	return 0;
}

static int on_stream_close(
	nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user)
{
	struct grpc_call *call = call_of(session, stream_id);

	(void)error_code;
	(void)user;
	if (call)
		call_detach(call);
	return 0;
}

static int on_invalid_frame(
	nghttp2_session *session, const nghttp2_frame *frame, int lib_error, void *user)
{
	const struct conn *conn = user;

	(void)session;
	complain(conn->server, "invalid HTTP/2 frame of type %u on stream %d: %s",
		(unsigned)frame->hd.type, (int)frame->hd.stream_id, nghttp2_strerror(lib_error));
	return 0;
}

static int on_error(
	nghttp2_session *session, int lib_error, const char *text, size_t len, void *user)
{
	const struct conn *conn = user;

	(void)session;
	(void)lib_error;
	complain(conn->server, "%.*s", (int)MIN(len, 400u), text);
	return 0;
}

static nghttp2_session *session_new(struct conn *conn)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, MAX_HEADERS},
	};
	nghttp2_session_callbacks *on;
	nghttp2_session *session;

	if (nghttp2_session_callbacks_new(&on) < 0)
		abort();
	nghttp2_session_callbacks_set_on_begin_headers_callback(on, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(on, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(on, on_data_chunk);
	nghttp2_session_callbacks_set_on_frame_recv_callback(on, on_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(on, on_frame_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(on, on_stream_close);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(on, on_invalid_frame);
	nghttp2_session_callbacks_set_error_callback2(on, on_error);
	/* the only failures of these are those of malloc(3) */
	if (nghttp2_session_server_new(&session, on, conn) < 0 ||
		nghttp2_submit_settings(
			session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings)) < 0 ||
		nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW) < 0)
		abort();
	nghttp2_session_callbacks_del(on);
	return session;
}

/* --- connections ----------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle);

/* What a server that is to go waits for: its connections, then its two handles. */
static void server_release(struct grpc_server *server)
{
	if (!server->leaving || server->n_conns)
		return;
	if (!uv_is_closing((uv_handle_t *)&server->drain))
		uv_close((uv_handle_t *)&server->drain, on_handle_closed);
	if (server->n_handles == 0)
		free(server);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct grpc_server *server = handle->data;

	server->n_handles--;
	server_release(server);
}

static void on_conn_closed(uv_handle_t *handle)
{
	struct conn *conn = handle->data;
	struct grpc_server *server = conn->server;

	while (conn->calls)
		call_detach(conn->calls);
	nghttp2_session_del(conn->session);
	DL_DELETE(server->conns, conn);
	server->n_conns--;
	free(conn);
	server_release(server);
}

static void conn_close(struct conn *conn)
{
	if (!uv_is_closing((uv_handle_t *)&conn->pipe))
		uv_close((uv_handle_t *)&conn->pipe, on_conn_closed);
}

struct output {
	uv_write_t req;
	struct conn *conn;
	char *data;
};

static void on_written(uv_write_t *req, int status)
{
	struct output *output = req->data;
	struct conn *conn = output->conn;

	free(output->data);
	free(output);
	if (status < 0)
		conn_close(conn);
	else
		pump(conn);
}

static void conn_write(struct conn *conn, struct buf *bytes)
{
	uv_buf_t chunk = uv_buf_init(NULL, (unsigned)bytes->len);
	struct output *output = xcalloc(1, sizeof(*output));

	output->req.data = output;
	output->conn = conn;
	output->data = chunk.base = buf_take(bytes);
	if (uv_write(&output->req, (uv_stream_t *)&conn->pipe, &chunk, 1, on_written) < 0) {
		free(output->data);
		free(output);
		conn_close(conn);
	}
}

/* Sends what the session has to say, at most so much that the client need not read it all before
 * we go on; closes when both sides have said everything. */
static void pump(struct conn *conn)
{
	cleanup_buf struct buf out = BUF_INIT;
	const uint8_t *data;
	ssize_t n = 0;

	if (uv_is_closing((uv_handle_t *)&conn->pipe) ||
		uv_stream_get_write_queue_size((uv_stream_t *)&conn->pipe) > WRITE_PAUSE)
		return;
	while (out.len < WRITE_PAUSE && (n = nghttp2_session_mem_send(conn->session, &data)) > 0)
		buf_put(&out, data, (size_t)n);
	if (n < 0) {
		complain(conn->server, "%s", nghttp2_strerror((int)n));
		conn_close(conn);
		return;
	}
	if (out.len) {
		conn_write(conn, &out);
		return;
	}
	if (!nghttp2_session_want_read(conn->session) &&
		!nghttp2_session_want_write(conn->session) &&
		uv_stream_get_write_queue_size((uv_stream_t *)&conn->pipe) == 0)
		conn_close(conn);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
	struct conn *conn = handle->data;

	(void)suggested;
	*ret = uv_buf_init(conn->in, sizeof(conn->in));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct conn *conn = stream->data;
	ssize_t r;

	(void)buf;
	if (n == 0)
		return;
	if (n < 0) {
		conn_close(conn);
		return;
	}
	conn->receiving = true;
	r = nghttp2_session_mem_recv(conn->session, (const uint8_t *)conn->in, (size_t)n);
	conn->receiving = false;
	if (r < 0) {
		complain(conn->server, "%s", nghttp2_strerror((int)r));
		conn_close(conn);
		return;
	}
	pump(conn);
}

static void on_connection(uv_stream_t *listener, int status)
{
	struct grpc_server *server = listener->data;
	struct conn *conn;

	if (status < 0) {
		complain(server, "cannot accept: %s", uv_strerror(status));
		return;
	}
	conn = xcalloc(1, sizeof(*conn));
	conn->server = server;
	(void)uv_pipe_init(server->loop, &conn->pipe, 0);
	conn->pipe.data = conn;
	DL_APPEND(server->conns, conn);
	server->n_conns++;
	if (uv_accept(listener, (uv_stream_t *)&conn->pipe) < 0) {
		conn_close(conn);
		return;
	}
	if (server->n_conns > MAX_CONNS) {
		complain(server, "more than %d connections, the newest is closed", MAX_CONNS);
		conn_close(conn);
		return;
	}
	conn->session = session_new(conn);
	if (uv_read_start((uv_stream_t *)&conn->pipe, on_alloc, on_read) < 0)
		conn_close(conn);
	else
		pump(conn); /* our SETTINGS: grpc-go waits for them before it says anything */
}

/* Requests that are still coming in are refused in the way that lets a client repeat them
 * elsewhere; those that a handler has are finished. */
static void conn_leave(struct conn *conn)
{
	struct grpc_call *call;

	if (uv_is_closing((uv_handle_t *)&conn->pipe))
		return;
	DL_FOREACH(conn->calls, call) {
		if (!call->held && !call->answered)
			(void)nghttp2_submit_rst_stream(conn->session, NGHTTP2_FLAG_NONE,
				call->stream_id, NGHTTP2_REFUSED_STREAM);
	}
	(void)nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
		nghttp2_session_get_last_proc_stream_id(conn->session), NGHTTP2_NO_ERROR, NULL, 0);
	if (!conn->receiving)
		pump(conn);
}

/* --- servers --------------------------------------------------------------------------------- */

struct grpc_server *grpc_server_new(
	uv_loop_t *loop, int *fd, const struct grpc_service *service, void *ctx)
{
	struct grpc_server *server = xcalloc(1, sizeof(*server));

	server->loop = loop;
	server->service = service;
	server->ctx = ctx;
	(void)uv_pipe_init(loop, &server->listener, 0);
	(void)uv_timer_init(loop, &server->drain);
	server->listener.data = server;
	server->drain.data = server;
	server->n_handles = 2;
	if (uv_pipe_open(&server->listener, take_fd(fd)) < 0 ||
		uv_listen((uv_stream_t *)&server->listener, MAX_CONNS, on_connection) < 0)
		abort();
	return server;
}

static void on_drained(uv_timer_t *timer)
{
	struct grpc_server *server = timer->data;
	struct conn *conn;

	DL_FOREACH(server->conns, conn)
		conn_close(conn);
}

void grpc_server_free(struct grpc_server *server)
{
	struct conn *conn;

	server->leaving = true;
	uv_close((uv_handle_t *)&server->listener, on_handle_closed);
	(void)uv_timer_start(&server->drain, on_drained, DRAIN_MS, 0);
	DL_FOREACH(server->conns, conn)
		conn_leave(conn);
	server_release(server);
}
