/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call: headers and a message in, a message and trailers out.
 *
 * A call has two owners: the stream it came on, until that closes, and its handler, from when it is
 * handed over until it answers. The last one to let go frees it. A client may reset a stream while
 * a device is being prepared for it; the answer then has nowhere to go and is dropped.
 *
 * The answer is submitted when it is complete: headers, one message, trailers; or, for an error,
 * one block of headers that is trailers at the same time. There is no timer a call: the deadline
 * is handed to the handler, and a client that stops waiting says so with RST_STREAM.
 */
#include "draplugind/grpc_internal.h"

#include <pb_decode.h>
#include <pb_encode.h>
#include <string.h>
#include <utlist.h>

#include "common/log.h"

#define MAX_BUFFERED (4 * GRPC_MAX_MESSAGE) /* unfinished requests of one server together */

/* --- ownership ------------------------------------------------------------------------------- */

struct grpc_call *grpc_call_new(struct grpc_conn *conn, int32_t stream_id)
{
	struct grpc_call *call = xcalloc(1, sizeof(*call));

	call->conn = conn;
	call->stream_id = stream_id;
	call->began_ms = now_ms();
	call->deadline_ms = UINT64_MAX;
	DL_APPEND(conn->calls, call);
	return call;
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

void grpc_call_detach(struct grpc_call *call)
{
	call_drop_request(call);
	DL_DELETE(call->conn->calls, call);
	call->conn = NULL;
	if (!call->held)
		call_free(call);
}

/* --- answers --------------------------------------------------------------------------------- */

static void log_answer(const struct grpc_call *call, int status, const char *text)
{
	char code[16], took[32];

	if (!log_enabled(LOG_DEBUG))
		return;
	(void)snprintf(code, sizeof(code), "%d", status);
	(void)snprintf(
		took, sizeof(took), "%llu", (unsigned long long)(now_ms() - call->began_ms));
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

/* A failed submit leaves the stream without an answer: the session is over then, and flushing finds
 * out. */
static void submit(struct grpc_call *call, const nghttp2_nv *headers, size_t n,
	const nghttp2_data_provider *data)
{
	struct grpc_conn *conn = call->conn;
	int r;

	call->answered = true;
	call_drop_request(call);
	r = nghttp2_submit_response(conn->session, call->stream_id, headers, n, data);
	if (r < 0)
		grpc_complain(
			conn->server, "cannot answer %s: %s", call->path, nghttp2_strerror(r));
	grpc_conn_flush(conn);
}

/* Trailers without a message. http_status is 200 for whatever is a gRPC request at all. */
static void call_refuse(struct grpc_call *call, const char *http_status,
	enum grpc_status status, const char *text)
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
		if (nghttp2_submit_trailer(session, stream_id, trailers, ARRAY_SIZE(trailers)) <
			0)
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

	if (!pb_get_encoded_size(&len, call->method->response, response) ||
		len > GRPC_MAX_MESSAGE)
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

void grpc_call_header(
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

void grpc_call_admit(struct grpc_call *call)
{
	char text[GRPC_MAX_PATH + 32];

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

/* Refuses a message as soon as its prefix shows that it must be. */
static void check_prefix(struct grpc_call *call)
{
	struct grpc_prefix prefix = grpc_prefix_decode(call->request.data);
	char text[96];

	if (prefix.flag) {
		call_refuse(call, "200", GRPC_UNIMPLEMENTED,
			"compressed messages are not understood");
	} else if (prefix.len > GRPC_MAX_MESSAGE) {
		(void)snprintf(text, sizeof(text), "message of %u bytes, at most %u are taken",
			prefix.len, GRPC_MAX_MESSAGE);
		call_refuse(call, "200", GRPC_RESOURCE_EXHAUSTED, text);
	} else if (call->request.len > GRPC_PREFIX_LEN + (size_t)prefix.len) {
		call_refuse(call, "200", GRPC_INTERNAL,
			"more than the one message of a unary call");
	}
}

void grpc_call_data(struct grpc_call *call, const uint8_t *data, size_t len)
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
		check_prefix(call);
}

/* Decodes the message, gives it to the method's handler. */
static void call_handle(struct grpc_call *call)
{
	const struct grpc_method *method = call->method;
	void *ctx = call->conn->server->ctx;
	pb_istream_t in =
		pb_istream_from_buffer((const pb_byte_t *)call->request.data + GRPC_PREFIX_LEN,
			call->request.len - GRPC_PREFIX_LEN);
	cleanup_free void *request = xcalloc(1, method->request_size);

	if (!pb_decode(&in, method->request, request)) {
		char text[96];

		(void)snprintf(
			text, sizeof(text), "cannot decode the request: %s", PB_GET_ERROR(&in));
		call_refuse(call, "200", GRPC_INTERNAL, text);
		return;
	}
	call_drop_request(call);
	call->held = true;
	method->handle(ctx, call, request);
	pb_release(method->request, request);
}

void grpc_call_end(struct grpc_call *call)
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
