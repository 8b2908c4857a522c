/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three objects, each owned by the one before: a server has connections, a connection has calls
 * (grpc_call.c). Bytes that arrive go into nghttp2's session, which calls back with headers and
 * data; whatever it wants sent is collected by pump() into one write.
 *
 * A callback of nghttp2 never closes a connection or frees its session. It only queues frames; the
 * caller of nghttp2_session_mem_recv() looks afterwards whether the session is over.
 *
 * Who may connect is the business of the socket's mode and directory. Nevertheless everything a
 * client can make us keep is bounded: connections, streams, the message of a stream, and all
 * unfinished messages together. A client that breaks HTTP/2 is told so and disconnected; that is
 * logged, because otherwise only the other side would know.
 */
#include "draplugind/grpc.h"

#include <string.h>
#include <utlist.h>

#include "common/log.h"
#include "draplugind/grpc_internal.h"

#define MAX_CONNS   8   /* a kubelet holds one; the next may come before the last is gone */
#define MAX_STREAMS 128 /* a connection; what comes beyond is queued by the client */
#define WINDOW      (1 << 20) /* of a stream and of a connection: one round trip a request */
#define MAX_HEADERS (16u << 10)
#define WRITE_PAUSE (256u << 10) /* bytes in flight at which to wait for the client to read */
#define DRAIN_MS    30000 /* Kubernetes leaves a pod that long between SIGTERM and SIGKILL */
#define COMPLAIN_MS 10000 /* least time between two warnings about clients of a server */

static void pump(struct grpc_conn *conn);

/* --- clients that misbehave ------------------------------------------------------------------ */

/* A client that is broken is broken all the time: one warning stands for many. */
void grpc_complain(struct grpc_server *server, const char *fmt, ...)
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

/* --- what nghttp2 reports -------------------------------------------------------------------- */

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
	return nghttp2_session_get_stream_user_data(session, stream_id);
}

static bool is_request(const nghttp2_frame *frame)
{
	return frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct grpc_conn *conn = user;
	struct grpc_call *call;

	if (!is_request(frame))
		return 0;
	call = grpc_call_new(conn, frame->hd.stream_id);
	(void)nghttp2_session_set_stream_user_data(session, call->stream_id, call);
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
	size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
	struct grpc_call *call = call_of(session, frame->hd.stream_id);

	(void)name_len;
	(void)flags;
	(void)user;
	if (call && is_request(frame))
		grpc_call_header(call, (const char *)name, (const char *)value, value_len);
	return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
	const uint8_t *data, size_t len, void *user)
{
	struct grpc_call *call = call_of(session, stream_id);

	(void)flags;
	(void)user;
	if (call)
		grpc_call_data(call, data, len);
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
		grpc_call_admit(call);
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		grpc_call_end(call);
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
		(void)nghttp2_submit_rst_stream(
			session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
	return 0;
}

static int on_stream_close(
	nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user)
{
	struct grpc_call *call = call_of(session, stream_id);

	(void)error_code;
	(void)user;
	if (call)
		grpc_call_detach(call);
	return 0;
}

static int on_invalid_frame(
	nghttp2_session *session, const nghttp2_frame *frame, int lib_error, void *user)
{
	const struct grpc_conn *conn = user;

	(void)session;
	grpc_complain(conn->server, "invalid HTTP/2 frame of type %u on stream %d: %s",
		(unsigned)frame->hd.type, (int)frame->hd.stream_id,
		nghttp2_strerror(lib_error));
	return 0;
}

static int on_error(
	nghttp2_session *session, int lib_error, const char *text, size_t len, void *user)
{
	const struct grpc_conn *conn = user;

	(void)session;
	(void)lib_error;
	grpc_complain(conn->server, "%.*s", (int)MIN(len, 400u), text);
	return 0;
}

static nghttp2_session *session_new(struct grpc_conn *conn)
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
		nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW) <
			0)
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
	struct grpc_conn *conn = handle->data;
	struct grpc_server *server = conn->server;

	while (conn->calls)
		grpc_call_detach(conn->calls);
	nghttp2_session_del(conn->session);
	DL_DELETE(server->conns, conn);
	server->n_conns--;
	free(conn);
	server_release(server);
}

static void conn_close(struct grpc_conn *conn)
{
	if (!uv_is_closing((uv_handle_t *)&conn->pipe))
		uv_close((uv_handle_t *)&conn->pipe, on_conn_closed);
}

struct output {
	uv_write_t req;
	struct grpc_conn *conn;
	char *data;
};

static void on_written(uv_write_t *req, int status)
{
	struct output *output = req->data;
	struct grpc_conn *conn = output->conn;

	free(output->data);
	free(output);
	if (status < 0)
		conn_close(conn);
	else
		pump(conn);
}

static void conn_write(struct grpc_conn *conn, struct buf *bytes)
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
static void pump(struct grpc_conn *conn)
{
	cleanup_buf struct buf out = BUF_INIT;
	const uint8_t *data;
	ssize_t n = 0;

	if (uv_is_closing((uv_handle_t *)&conn->pipe) ||
		uv_stream_get_write_queue_size((uv_stream_t *)&conn->pipe) > WRITE_PAUSE)
		return;
	while (out.len < WRITE_PAUSE &&
		(n = nghttp2_session_mem_send(conn->session, &data)) > 0)
		buf_put(&out, data, (size_t)n);
	if (n < 0) {
		grpc_complain(conn->server, "%s", nghttp2_strerror((int)n));
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

void grpc_conn_flush(struct grpc_conn *conn)
{
	if (!conn->receiving)
		pump(conn);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
	struct grpc_conn *conn = handle->data;

	(void)suggested;
	*ret = uv_buf_init(conn->in, sizeof(conn->in));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct grpc_conn *conn = stream->data;
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
		grpc_complain(conn->server, "%s", nghttp2_strerror((int)r));
		conn_close(conn);
		return;
	}
	pump(conn);
}

static void on_connection(uv_stream_t *listener, int status)
{
	struct grpc_server *server = listener->data;
	struct grpc_conn *conn;

	if (status < 0) {
		grpc_complain(server, "cannot accept: %s", uv_strerror(status));
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
		grpc_complain(
			server, "more than %d connections, the newest is closed", MAX_CONNS);
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
static void conn_leave(struct grpc_conn *conn)
{
	if (uv_is_closing((uv_handle_t *)&conn->pipe))
		return;
	for (const struct grpc_call *call = conn->calls; call; call = call->next)
		if (!call->held && !call->answered)
			(void)nghttp2_submit_rst_stream(conn->session, NGHTTP2_FLAG_NONE,
				call->stream_id, NGHTTP2_REFUSED_STREAM);
	(void)nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
		nghttp2_session_get_last_proc_stream_id(conn->session), NGHTTP2_NO_ERROR, NULL,
		0);
	grpc_conn_flush(conn);
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

	for (struct grpc_conn *conn = server->conns; conn; conn = conn->next)
		conn_close(conn);
}

void grpc_server_free(struct grpc_server *server)
{
	server->leaving = true;
	uv_close((uv_handle_t *)&server->listener, on_handle_closed);
	(void)uv_timer_start(&server->drain, on_drained, DRAIN_MS, 0);
	for (struct grpc_conn *conn = server->conns; conn; conn = conn->next)
		conn_leave(conn);
	server_release(server);
}
