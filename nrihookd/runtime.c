/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the container runtime.
 *
 * A connection that ends is routine: the runtime restarts, loses patience with a slow answer,
 * or was not there yet. Each end leads to the next try, first after 50 ms and then at growing
 * distances up to a second, because a pod that starts while nobody listens starts without its
 * devices, until the next list of sandboxes brings it up.
 *
 * connect(2) succeeds as soon as the runtime listens, and it serves its plugins one after
 * another; so a registration may take a while, and half a minute without one is taken for a
 * hang. After that there is no such limit: the list of sandboxes is sent when no pod is being
 * worked on, which a long stop can put off for minutes.
 *
 * The same trouble is logged once, not at every try.
 */
#include "nrihookd/runtime.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/util.h"

#define RETRY_FIRST_MS 50
#define RETRY_LAST_MS  1000
#define REGISTER_MS    30000
#define READ_BYTES     65536
#define MAX_UNSENT     (1u << 20) /* bytes of answers that the runtime does not read */

/* Outlives its place in struct runtime until libuv has closed the handle. */
struct runtime_conn {
	uv_pipe_t pipe;
	uv_connect_t connect;
	struct runtime *runtime; /* NULL: given up */
	char in[READ_BYTES];
};

struct write {
	uv_write_t req;
	struct runtime_conn *conn;
	char *data;
};

static uv_stream_t *stream_of(struct runtime_conn *conn)
{
	return (uv_stream_t *)(void *)&conn->pipe;
}

/* --- what others see ---------------------------------------------------------------------- */

const char *runtime_state(const struct runtime *r)
{
	static const char *const names[] = {
		[RUNTIME_WAITING] = "waiting",
		[RUNTIME_CONNECTING] = "connecting",
		[RUNTIME_REGISTERED] = "registered",
	};

	return names[r->state];
}

const char *runtime_detail(const struct runtime *r)
{
	switch (r->state) {
	case RUNTIME_WAITING: return "for statd";
	case RUNTIME_CONNECTING: return r->problem;
	case RUNTIME_REGISTERED: break;
	}
	return r->version;
}

bool runtime_tells_pids(const struct runtime *r)
{
	return strcasecmp(r->name, "containerd") == 0;
}

static void set_state(struct runtime *r, enum runtime_state state)
{
	r->state = state;
	r->events->changed(r->ctx);
}

/* --- ending and beginning again ----------------------------------------------------------- */

static void connect_to(struct runtime *r);

static void on_conn_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void abandon(struct runtime *r)
{
	struct runtime_conn *conn = take_ptr(r->conn);

	if (!conn)
		return;
	conn->runtime = NULL;
	uv_close((uv_handle_t *)&conn->pipe, on_conn_closed);
}

static void on_retry(uv_timer_t *timer)
{
	connect_to(timer->data);
}

/* Several plugins that lost the same runtime need not come back at the same instant. */
static uint64_t with_jitter(uint64_t ms)
{
	return ms + ms * (now_ns() % 256) / 1024;
}

static void lost(struct runtime *r, const char *reason)
{
	bool news = !str_equal(r->problem, reason);

	if (r->stopping)
		return;
	if (r->state == RUNTIME_REGISTERED)
		LOG(WARN, FIELDS(F("err", reason)), "lost the container runtime");
	else if (news)
		LOG(WARN, FIELDS(F("err", reason)),
			"cannot register with the container runtime; trying until it works");
	(void)snprintf(r->problem, sizeof(r->problem), "%s", reason);
	abandon(r);
	(void)uv_timer_start(&r->timer, on_retry, with_jitter(r->retry_ms), 0);
	r->retry_ms = MIN(r->retry_ms * 2, RETRY_LAST_MS);
	if (news || r->state == RUNTIME_REGISTERED)
		set_state(r, RUNTIME_CONNECTING);
}

static void on_register_timeout(uv_timer_t *timer)
{
	lost(timer->data, "it does not answer the registration");
}

/* --- bytes -------------------------------------------------------------------------------- */

static void on_written(uv_write_t *req, int status)
{
	struct write *write = req->data;
	struct runtime *r = write->conn->runtime;

	free(write->data);
	free(write);
	if (status < 0 && r)
		lost(r, uv_strerror(status));
}

/* Sends what has collected. Never ends the connection, so it may be called while bytes are
 * read. */
static void flush(struct runtime *r)
{
	size_t len = r->nri.out.len;
	struct write *write;
	uv_buf_t bytes;

	if (!r->conn || len == 0)
		return;
	write = xcalloc(1, sizeof(*write));
	write->conn = r->conn;
	write->data = buf_take(&r->nri.out);
	write->req.data = write;
	bytes = uv_buf_init(write->data, (unsigned)len);
	if (uv_write(&write->req, stream_of(r->conn), &bytes, 1, on_written) == 0)
		return;
	/* a socket that cannot be written to ends the reading side as well */
	free(write->data);
	free(write);
}

static void on_alloc(uv_handle_t *handle, size_t suggested UNUSED, uv_buf_t *ret)
{
	struct runtime_conn *conn = handle->data;

	*ret = uv_buf_init(conn->in, sizeof(conn->in));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *bytes)
{
	struct runtime_conn *conn = stream->data;
	struct runtime *r = conn->runtime;
	struct err err = ERR_INIT;
	int fed;

	if (!r || n == 0)
		return;
	if (n < 0) {
		lost(r, n == UV_EOF ? "it closed the connection" : uv_strerror((int)n));
		return;
	}
	fed = nri_feed(&r->nri, bytes->base, (size_t)n, &err);
	flush(r);
	if (fed == 0 && stream->write_queue_size > MAX_UNSENT)
		fed = err_set(&err, ERR_INTERNAL, "it does not read our answers");
	if (fed < 0)
		lost(r, err.message);
	else if (nri_is_registered(&r->nri))
		(void)uv_timer_stop(&r->timer);
}

static void on_connected(uv_connect_t *req, int status)
{
	struct runtime_conn *conn = req->handle->data;
	struct runtime *r = conn->runtime;
	struct err err = ERR_INIT;

	if (!r)
		return;
	if (status < 0) {
		(void)err_errno(&err, -status, "%s", r->socket_path);
		lost(r, err.message);
		return;
	}
	/* Configure may come before the answer to our registration */
	(void)uv_read_start(stream_of(conn), on_alloc, on_read);
	flush(r);
}

/* --- what the protocol tells -------------------------------------------------------------- */

static void on_configured(void *ctx, const char *runtime, const char *version)
{
	struct runtime *r = ctx;

	(void)snprintf(r->name, sizeof(r->name), "%s", runtime);
	(void)snprintf(r->version, sizeof(r->version), "%s %s", runtime, version);
	str_sanitize(r->version);
	r->events->configured(r->ctx, runtime, version);
}

static void on_sync_begin(void *ctx)
{
	struct runtime *r = ctx;

	r->events->list_begin(r->ctx);
}

static void on_sync_pod(void *ctx, const struct nri_pod *pod)
{
	struct runtime *r = ctx;

	r->events->list_pod(r->ctx, pod);
}

static void on_sync_end(void *ctx)
{
	struct runtime *r = ctx;

	r->retry_ms = RETRY_FIRST_MS;
	r->problem[0] = '\0';
	flush(r);
	LOG(INFO, FIELDS(F("runtime", r->version)), "registered with the container runtime");
	set_state(r, RUNTIME_REGISTERED);
	r->events->list_end(r->ctx);
}

static char *on_claim_of(void *ctx, const char *source)
{
	const struct runtime *r = ctx;

	return r->events->claim_of(r->ctx, source);
}

static void on_pod_event(void *ctx, enum nri_event event, const struct nri_pod *pod,
	uint32_t stream, uint64_t budget_ms)
{
	struct runtime *r = ctx;
	struct runtime_ticket ticket = {.connection = r->connection, .stream = stream};

	r->events->pod_event(r->ctx, event, pod, ticket, budget_ms);
}

static const struct nri_ops nri_ops = {
	.configured = on_configured,
	.sync_begin = on_sync_begin,
	.sync_pod = on_sync_pod,
	.sync_end = on_sync_end,
	.claim_of = on_claim_of,
	.pod_event = on_pod_event,
};

static void connect_to(struct runtime *r)
{
	struct runtime_conn *conn = xcalloc(1, sizeof(*conn));

	conn->runtime = r;
	(void)uv_pipe_init(r->loop, &conn->pipe, 0);
	conn->pipe.data = conn;
	r->conn = conn;
	r->connection++;
	nri_start(&r->nri, &nri_ops, r, r->plugin_name, r->index);
	(void)uv_timer_start(&r->timer, on_register_timeout, REGISTER_MS, 0);
	uv_pipe_connect(&conn->connect, &conn->pipe, r->socket_path, on_connected);
}

/* --- for the owner ------------------------------------------------------------------------ */

static bool is_index(const char *text)
{
	return strlen(text) == 2 && strspn(text, "0123456789") == 2;
}

int runtime_init(struct runtime *r, uv_loop_t *loop, const char *socket_path, const char *index,
	const struct runtime_events *events, void *ctx, struct err *err)
{
	const size_t path_size = sizeof((struct sockaddr_un){0}.sun_path);

	if (!is_index(index))
		return err_set(err, ERR_INVALID, "index '%s': two digits are needed", index);
	if (strlen(socket_path) >= path_size)
		return err_set(err, ERR_INVALID, "'%s': a socket's path has at most %zu bytes",
			socket_path, path_size - 1);
	*r = (struct runtime){
		.loop = loop,
		.socket_path = socket_path,
		.index = index,
		.events = events,
		.ctx = ctx,
		.retry_ms = RETRY_FIRST_MS,
	};
	(void)uv_timer_init(loop, &r->timer);
	r->timer.data = r;
	return 0;
}

void runtime_start(struct runtime *r, const char *plugin_name)
{
	if (r->stopping || str_equal(r->plugin_name, plugin_name))
		return;
	free(r->plugin_name);
	r->plugin_name = xstrdup(plugin_name);
	abandon(r);
	set_state(r, RUNTIME_CONNECTING);
	connect_to(r);
}

void runtime_stop(struct runtime *r)
{
	r->stopping = true;
	(void)uv_timer_stop(&r->timer);
	if (r->conn)
		(void)uv_read_stop(stream_of(r->conn));
}

void runtime_close(struct runtime *r)
{
	abandon(r);
	uv_close((uv_handle_t *)&r->timer, NULL);
	nri_fini(&r->nri);
	free(take_ptr(r->plugin_name));
}

void runtime_reply(struct runtime *r, struct runtime_ticket ticket, const struct err *err)
{
	if (!r->conn || ticket.connection != r->connection)
		return;
	nri_reply(&r->nri, ticket.stream, err);
	flush(r);
}
