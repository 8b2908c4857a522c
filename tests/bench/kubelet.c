/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bench's kubelet: registers a driver, and prepares and unprepares claims, on libnghttp2.
 *
 *	register DIR DRIVER      waits for the driver's registration socket below DIR and registers it.
 *	                         Answers when GetInfo was answered, and when the verdict was.
 *	prepare NS NAME UID ...  a call for each claim, all at once, as for as many pods. Answers how
 *	                         long each took.
 *	unprepare NS NAME UID ...
 *	unknown                  a call of a method that there is not: what a call costs without any
 *	                         work, on this side and on the other. Answers how long it took.
 *
 * One connection is kept to the driver, as the kubelet does. An entry of a claim that holds an error
 * ends the bench: only what succeeded is measured.
 */
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/util.h"
#include "tests/bench/lines.h"
#include "tests/bench/wire.h"

#define REGISTRATION  "/pluginregistration.Registration/"
#define DRA           "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define WAIT_MS       60000 /* for the driver; beyond it something is broken */
#define GRPC_PREFIX   5     /* compressed?, length in 4 bytes */
#define GRPC_OK       0
#define UNIMPLEMENTED 12
#define FIRST_WINDOW  (1 << 24) /* the bench is no test of flow control */

struct channel {
	int fd;
	nghttp2_session *session;
	size_t open; /* calls */
};

struct call {
	struct channel *channel;
	const char *path;
	struct buf request, answer; /* with their prefixes */
	size_t sent;
	int64_t status; /* of gRPC; -1: none came */
	char message[256];
	uint64_t started, ended;
};

struct kubelet {
	struct channel dra;
};

/* --- HTTP/2 --------------------------------------------------------------------------------- */

static ssize_t on_read(nghttp2_session *session UNUSED, int32_t stream UNUSED, uint8_t *to,
	size_t room, uint32_t *flags, nghttp2_data_source *source, void *ctx UNUSED)
{
	struct call *call = source->ptr;
	size_t n = MIN(room, call->request.len - call->sent);

	memcpy(to, call->request.data + call->sent, n);
	call->sent += n;
	if (call->sent == call->request.len)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
	size_t name_len, const uint8_t *value, size_t len, uint8_t flags UNUSED,
	void *ctx UNUSED)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	cleanup_free char *text = xmemdup0(value, len);

	if (name_len == strlen("grpc-status") && memcmp(name, "grpc-status", name_len) == 0)
		(void)parse_i64(text, 0, 16, &call->status);
	if (name_len == strlen("grpc-message") && memcmp(name, "grpc-message", name_len) == 0)
		(void)snprintf(call->message, sizeof(call->message), "%s", text);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags UNUSED, int32_t stream,
	const uint8_t *data, size_t len, void *ctx UNUSED)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, stream);

	buf_put(&call->answer, data, len);
	return 0;
}

static int on_closed(nghttp2_session *session, int32_t stream, uint32_t code UNUSED, void *ctx)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, stream);
	struct channel *channel = ctx;

	call->ended = now_ns();
	channel->open--;
	return 0;
}

static void send_all(struct channel *channel)
{
	const uint8_t *data;
	ssize_t len;

	while ((len = nghttp2_session_mem_send(channel->session, &data)) > 0)
		for (ssize_t n, at = 0; at < len; at += n) {
			n = send(channel->fd, data + at, (size_t)(len - at), MSG_NOSIGNAL);
			if (n < 0)
				lines_fail_errno("sending to the driver");
		}
	if (len < 0)
		lines_fail("HTTP/2: %s", nghttp2_strerror((int)len));
}

static void receive_some(struct channel *channel)
{
	static uint8_t data[65536];
	ssize_t n = recv(channel->fd, data, sizeof(data), 0);

	if (n < 0)
		lines_fail_errno("receiving from the driver");
	if (n == 0)
		lines_fail("the driver closed the connection");
	n = nghttp2_session_mem_recv(channel->session, data, (size_t)n);
	if (n < 0)
		lines_fail("HTTP/2: %s", nghttp2_strerror((int)n));
}

static void channel_open(struct channel *channel, int fd)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, FIRST_WINDOW}};
	nghttp2_session_callbacks *callbacks;

	*channel = (struct channel){.fd = fd};
	if (nghttp2_session_callbacks_new(&callbacks) != 0)
		lines_fail("HTTP/2: no memory");
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_closed);
	if (nghttp2_session_client_new(&channel->session, callbacks, channel) != 0)
		lines_fail("HTTP/2: no memory");
	nghttp2_session_callbacks_del(callbacks);
	(void)nghttp2_submit_settings(
		channel->session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings));
	send_all(channel);
}

static void channel_close(struct channel *channel)
{
	nghttp2_session_del(channel->session);
	close_fd(&channel->fd);
}

/* --- gRPC ------------------------------------------------------------------------------------- */

#define HEADER(n, v)                                                                           \
	{                                                                                      \
		.name = (uint8_t *)(uintptr_t)(n), .namelen = strlen(n),                       \
		.value = (uint8_t *)(uintptr_t)(v), .valuelen = strlen(v)                      \
	}

static void call_init(
	struct call *call, struct channel *channel, const char *path, const struct buf *message)
{
	const uint8_t prefix[GRPC_PREFIX] = {0, (uint8_t)(message->len >> 24),
		(uint8_t)(message->len >> 16), (uint8_t)(message->len >> 8),
		(uint8_t)message->len};

	*call = (struct call){.channel = channel, .path = path, .status = -1};
	buf_put(&call->request, prefix, sizeof(prefix));
	buf_put(&call->request, message->data, message->len);
}

static void call_fini(struct call *call)
{
	buf_fini(&call->request);
	buf_fini(&call->answer);
}

static void call_submit(struct call *call)
{
	const nghttp2_nv headers[] = {HEADER(":method", "POST"), HEADER(":scheme", "http"),
		HEADER(":path", call->path), HEADER(":authority", "localhost"),
		HEADER("content-type", "application/grpc"), HEADER("te", "trailers"),
		HEADER("grpc-timeout", "45S"), HEADER("user-agent", "bench")};
	const nghttp2_data_provider body = {.source.ptr = call, .read_callback = on_read};

	if (nghttp2_submit_request(call->channel->session, NULL, headers, ARRAY_SIZE(headers),
		    &body, call) < 0)
		lines_fail("HTTP/2: the request cannot be made");
	call->channel->open++;
}

/* All at once; returns when all are answered. They are of one channel. */
static void calls_run(struct call *calls, size_t n)
{
	struct channel *channel = calls[0].channel;
	uint64_t started = now_ns();

	for (size_t i = 0; i < n; i++) {
		calls[i].started = started;
		call_submit(&calls[i]);
	}
	send_all(channel);
	while (channel->open > 0) {
		receive_some(channel);
		send_all(channel);
	}
}

static void check_status(const struct call *call, int64_t wanted)
{
	if (call->status != wanted)
		lines_fail("%s: gRPC status %lld: %s", call->path, (long long)call->status,
			call->message);
}

/* The message of a call that succeeded. */
static const uint8_t *answer_of(const struct call *call, size_t *ret_len)
{
	check_status(call, GRPC_OK);
	if (call->answer.len < GRPC_PREFIX)
		lines_fail("%s: no answer", call->path);
	*ret_len = call->answer.len - GRPC_PREFIX;
	return (const uint8_t *)call->answer.data + GRPC_PREFIX;
}

static uint64_t took(const struct call *call)
{
	return call->ended - call->started;
}

/* --- registration ----------------------------------------------------------------------------- */

static int try_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		lines_fail_errno("making a socket");
	if (strlen(path) >= sizeof(address.sun_path))
		lines_fail("%s: too long", path);
	memcpy(address.sun_path, path, strlen(path));
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return take_fd(&fd);
	/* it may be bound and not listen yet */
	if (errno != ENOENT && errno != ECONNREFUSED)
		lines_fail_errno(path);
	return -1;
}

/* Connects as soon as something listens there. */
static int wait_connect(const char *dir, const char *path)
{
	cleanup_close int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct pollfd event = {.fd = watch, .events = POLLIN};
	uint64_t until = now_ms() + WAIT_MS;
	char names[4096];

	if (watch < 0 || inotify_add_watch(watch, dir, IN_CREATE | IN_MOVED_TO | IN_ATTRIB) < 0)
		lines_fail_errno(dir);
	while (now_ms() < until) {
		int fd = try_connect(path);

		if (fd >= 0)
			return fd;
		/* one that is bound and does not listen makes no event when it does */
		(void)poll(&event, 1, access(path, F_OK) == 0 ? 1 : WAIT_MS);
		while (read(watch, names, sizeof(names)) > 0)
			;
	}
	lines_fail("%s: nobody listens", path);
}

static char *endpoint_of(const struct call *call)
{
	size_t len;
	const uint8_t *data = answer_of(call, &len);
	struct wire_field field;

	while (wire_next(&data, &len, &field))
		if (field.number == 3 && field.data)
			return xmemdup0(field.data, field.len);
	lines_fail("GetInfo tells no endpoint");
}

static void run_register(void *ctx, char **words, size_t n UNUSED)
{
	cleanup_free char *dir = xasprintf("%s/plugins_registry", words[0]);
	cleanup_free char *path = xasprintf("%s/%s-reg.sock", dir, words[1]);
	cleanup_buf struct buf nothing = BUF_INIT, verdict = BUF_INIT;
	cleanup_free char *endpoint = NULL;
	struct kubelet *kubelet = ctx;
	struct channel channel;
	struct call info, notify;
	size_t len;

	channel_open(&channel, wait_connect(dir, path));
	call_init(&info, &channel, REGISTRATION "GetInfo", &nothing);
	calls_run(&info, 1);
	endpoint = endpoint_of(&info);
	wire_put_number(&verdict, 1, true);
	call_init(&notify, &channel, REGISTRATION "NotifyRegistrationStatus", &verdict);
	calls_run(&notify, 1);
	(void)answer_of(&notify, &len);
	lines_ok((const uint64_t[]){info.ended, notify.ended}, 2);
	channel_close(&channel);
	call_fini(&info);
	call_fini(&notify);
	channel_open(&kubelet->dra, wait_connect(words[0], endpoint));
}

/* --- claims ------------------------------------------------------------------------------------- */

/* An entry is {key, {…, error}}; where error is depends on the method. */
static void check_entries(const struct call *call, unsigned error_field)
{
	size_t len;
	const uint8_t *data = answer_of(call, &len);
	struct wire_field entry, part, inner;

	while (wire_next(&data, &len, &entry))
		while (wire_next(&entry.data, &entry.len, &part)) {
			if (part.number != 2)
				continue;
			while (wire_next(&part.data, &part.len, &inner))
				if (inner.number == error_field)
					lines_fail("%s: %.*s", call->path, (int)inner.len,
						(const char *)inner.data);
		}
}

static void put_request(struct buf *to, char **words)
{
	cleanup_buf struct buf claim = BUF_INIT;

	wire_put_text(&claim, 1, words[0]);
	wire_put_text(&claim, 2, words[2]);
	wire_put_text(&claim, 3, words[1]);
	wire_put_bytes(to, 1, claim.data, claim.len);
}

static void run_claims(struct kubelet *kubelet, const char *path, unsigned error_field,
	char **words, size_t n_words)
{
	size_t n = n_words / 3;
	struct call *calls = xcalloc(n, sizeof(*calls));
	uint64_t *times = xcalloc(n, sizeof(*times));

	for (size_t i = 0; i < n; i++) {
		cleanup_buf struct buf request = BUF_INIT;

		put_request(&request, words + 3 * i);
		call_init(&calls[i], &kubelet->dra, path, &request);
	}
	calls_run(calls, n);
	for (size_t i = 0; i < n; i++) {
		check_entries(&calls[i], error_field);
		times[i] = took(&calls[i]);
		call_fini(&calls[i]);
	}
	lines_ok(times, n);
	free(times);
	free(calls);
}

static void run_prepare(void *ctx, char **words, size_t n)
{
	run_claims(ctx, DRA "NodePrepareResources", 2, words, n);
}

static void run_unprepare(void *ctx, char **words, size_t n)
{
	run_claims(ctx, DRA "NodeUnprepareResources", 1, words, n);
}

static void run_unknown(void *ctx, char **words UNUSED, size_t n UNUSED)
{
	cleanup_buf struct buf nothing = BUF_INIT;
	struct kubelet *kubelet = ctx;
	struct call call;
	uint64_t time;

	call_init(&call, &kubelet->dra, DRA "NodeMeasureResources", &nothing);
	calls_run(&call, 1);
	check_status(&call, UNIMPLEMENTED);
	time = took(&call);
	lines_ok(&time, 1);
	call_fini(&call);
}

static const struct lines_command commands[] = {
	{"register", 2, run_register},
	{"prepare", 3, run_prepare},
	{"unprepare", 3, run_unprepare},
	{"unknown", 0, run_unknown},
};

int main(void)
{
	struct kubelet kubelet = {.dra.fd = -1};

	lines_serve(commands, ARRAY_SIZE(commands), &kubelet);
	channel_close(&kubelet.dra);
	return EXIT_SUCCESS;
}
