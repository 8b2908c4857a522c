/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's protocol.
 *
 * Facts that shape it, learnt from containerd 1.7 to 2.3 (NRI 0.3 to 0.12):
 *   - Configure may overtake the answer to RegisterPlugin, so neither waits for the other.
 *   - The events are told explicitly: 0 would mean all of them, and a bit that the runtime does
 *     not know makes it close the connection without a word.
 *   - Up to NRI 0.11 a pod's events come by StateChange; from 0.12 by a call each, and only if
 *     that is answered with "unimplemented" by StateChange again. So both are served, and no
 *     failure of a pod is ever told with that code. CreateContainer is a call in all of them.
 *   - A runtime up to NRI 0.6 whose Synchronize fails keeps the connection open and never calls
 *     again. So when we refuse one we close.
 *   - Stream ids are odd and grow, with gaps where a request died before it was sent.
 */
#include "nrihookd/nri.h"

#include <assert.h>
#include <pb_decode.h>
#include <string.h>

#include "nrihookd/claims.h"
#include "proto/nri.pb.h"

#define SERVICE_RUNTIME "nri.pkg.api.v1alpha1.Runtime"
#define SERVICE_PLUGIN  "nri.pkg.api.v1alpha1.Plugin"

#define REGISTER_STREAM     1
/* Runtimes serve their plugins one after another and give each 5 s. */
#define REGISTER_TIMEOUT_NS (30 * INT64_C(1000000000))
#define DEFAULT_TIMEOUT_MS  2000 /* of a request, when none is told */

#define EVENT_BIT(event) (1 << ((event)-1))
#define EVENTS                                                                                 \
	(EVENT_BIT(NRI_RUN) | EVENT_BIT(NRI_STOP) | EVENT_BIT(NRI_REMOVE) |                    \
		EVENT_BIT(NRI_CREATE))

/* --- answers ------------------------------------------------------------------------------ */

static void send_message(struct nri *n, enum mux_channel channel, const struct buf *message)
{
	mux_put(&n->out, channel, message->data, message->len);
}

static void answer(struct nri *n, uint32_t stream, const pb_msgdesc_t *desc, const void *result)
{
	cleanup_buf struct buf payload = BUF_INIT, message = BUF_INIT;

	if (desc)
		ttrpc_put_pb(&payload, desc, result);
	ttrpc_put_response(&message, stream, &payload);
	send_message(n, MUX_PLUGIN, &message);
}

static void answer_empty(struct nri *n, uint32_t stream)
{
	answer(n, stream, NULL, NULL);
}

static void answer_status(
	struct nri *n, uint32_t stream, enum ttrpc_code code, const char *text)
{
	cleanup_buf struct buf message = BUF_INIT;

	ttrpc_put_status(&message, stream, code, text);
	send_message(n, MUX_PLUGIN, &message);
}

/* Only codes that a runtime takes for the hook's own failure: its client library uses 1 and 4
 * for calls that got no answer, and 12 means that there is no such hook. */
static enum ttrpc_code code_of(enum err_kind kind)
{
	switch (kind) {
	case ERR_BUSY:
	case ERR_UNAVAILABLE:
	case ERR_DEADLINE: return TTRPC_UNAVAILABLE;
	case ERR_NOT_FOUND:
	case ERR_INVALID:
	case ERR_CONFLICT: return TTRPC_FAILED_PRECONDITION;
	case ERR_NONE:
	case ERR_INTERNAL:
	case ERR_KIND_MAX: break;
	}
	return TTRPC_INTERNAL;
}

void nri_reply(struct nri *n, uint32_t stream, const struct err *err)
{
	char text[ERR_MESSAGE_MAX];

	assert(n->pending > 0);
	n->pending--;
	if (!err) {
		answer_empty(n, stream);
		return;
	}
	memcpy(text, err->message, sizeof(text));
	str_sanitize(text);
	answer_status(n, stream, code_of(err->kind), text);
}

/* --- pods --------------------------------------------------------------------------------- */

static const char *text_or_empty(const char *text)
{
	return text ? text : "";
}

static const char *netns_path_of(const nri_pb_pod_sandbox_t *pod)
{
	for (pb_size_t i = 0; i < pod->linux.namespaces_count; i++) {
		const nri_pb_linux_namespace_t *ns = &pod->linux.namespaces[i];

		if (str_equal(ns->type, "network") && ns->path && *ns->path)
			return ns->path;
	}
	return NULL;
}

static struct nri_pod pod_of(const nri_pb_pod_sandbox_t *pod)
{
	return (struct nri_pod){
		.id = text_or_empty(pod->id),
		.uid = text_or_empty(pod->uid),
		.name = text_or_empty(pod->name),
		.namespace = text_or_empty(pod->namespace),
		.netns_path = netns_path_of(pod),
		.pid = pod->pid,
	};
}

/* --- the runtime's calls ------------------------------------------------------------------ */

/* A call whose envelope has been read. */
struct call {
	uint32_t stream;
	enum nri_event event; /* of a pod's call */
	const struct buf *payload;
	uint64_t timeout_ms;
};

static int decode(
	const struct call *call, const pb_msgdesc_t *desc, void *request, struct err *err)
{
	pb_istream_t stream = pb_istream_from_buffer(
		(const pb_byte_t *)call->payload->data, call->payload->len);

	if (!pb_decode(&stream, desc, request))
		return err_set(err, ERR_INVALID, "the payload cannot be read: %s",
			PB_GET_ERROR(&stream));
	return 0;
}

static int serve_configure(struct nri *n, const struct call *call, struct err *err)
{
	nri_pb_configure_request_t request = NRI_PB_CONFIGURE_REQUEST_INIT_ZERO;
	nri_pb_configure_response_t result = {.events = EVENTS};

	if (decode(call, NRI_PB_CONFIGURE_REQUEST_FIELDS, &request, err) < 0)
		return -1;
	if (request.request_timeout > 0)
		n->request_timeout_ms = (uint64_t)request.request_timeout;
	n->configured = true;
	answer(n, call->stream, NRI_PB_CONFIGURE_RESPONSE_FIELDS, &result);
	n->ops->configured(n->ctx, text_or_empty(request.runtime_name),
		text_or_empty(request.runtime_version));
	pb_release(NRI_PB_CONFIGURE_REQUEST_FIELDS, &request);
	return 0;
}

static bool sync_one(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
	nri_pb_pod_sandbox_t pod = NRI_PB_POD_SANDBOX_INIT_ZERO;
	struct nri *n = *arg;
	struct nri_pod told;

	if (!pb_decode(stream, NRI_PB_POD_SANDBOX_FIELDS, &pod))
		return false;
	told = pod_of(&pod);
	n->ops->sync_pod(n->ctx, &told);
	pb_release(NRI_PB_POD_SANDBOX_FIELDS, &pod);
	return true;
}

static int serve_synchronize(struct nri *n, const struct call *call, struct err *err)
{
	nri_pb_synchronize_request_t request = NRI_PB_SYNCHRONIZE_REQUEST_INIT_ZERO;
	nri_pb_synchronize_response_t result = NRI_PB_SYNCHRONIZE_RESPONSE_INIT_ZERO;

	if (!n->syncing)
		n->ops->sync_begin(n->ctx);
	n->syncing = true;
	request.pods.funcs.decode = sync_one;
	request.pods.arg = n;
	if (decode(call, NRI_PB_SYNCHRONIZE_REQUEST_FIELDS, &request, err) < 0)
		return -1;
	result.more = request.more;
	answer(n, call->stream, NRI_PB_SYNCHRONIZE_RESPONSE_FIELDS, &result);
	if (request.more)
		return 0;
	n->syncing = false;
	n->ops->sync_end(n->ctx);
	return 0;
}

static int serve_shutdown(struct nri *n, const struct call *call, struct err *err UNUSED)
{
	answer_empty(n, call->stream);
	return 0;
}

static void tell(struct nri *n, enum nri_event event, const struct nri_pod *told,
	const struct call *call)
{
	if (n->pending >= NRI_MAX_PENDING) {
		answer_status(n, call->stream, TTRPC_RESOURCE_EXHAUSTED,
			"too many events are unanswered");
		return;
	}
	n->pending++;
	n->ops->pod_event(n->ctx, event, told, call->stream, call->timeout_ms);
}

static void tell_pod(struct nri *n, enum nri_event event, const nri_pb_pod_sandbox_t *pod,
	const struct call *call)
{
	const struct nri_pod told = pod_of(pod);

	tell(n, event, &told, call);
}

static int serve_state_change(struct nri *n, const struct call *call, struct err *err)
{
	nri_pb_state_change_event_t request = NRI_PB_STATE_CHANGE_EVENT_INIT_ZERO;

	if (decode(call, NRI_PB_STATE_CHANGE_EVENT_FIELDS, &request, err) < 0)
		return -1;
	switch (request.event) {
	case NRI_PB_EVENT_RUN_POD_SANDBOX: tell_pod(n, NRI_RUN, &request.pod, call); break;
	case NRI_PB_EVENT_STOP_POD_SANDBOX: tell_pod(n, NRI_STOP, &request.pod, call); break;
	case NRI_PB_EVENT_REMOVE_POD_SANDBOX:
		tell_pod(n, NRI_REMOVE, &request.pod, call);
		break;
	case NRI_PB_EVENT_UNKNOWN:
	default: answer_empty(n, call->stream); break; /* one that was not asked for */
	}
	pb_release(NRI_PB_STATE_CHANGE_EVENT_FIELDS, &request);
	return 0;
}

static int serve_pod(struct nri *n, const struct call *call, struct err *err)
{
	nri_pb_pod_sandbox_request_t request = NRI_PB_POD_SANDBOX_REQUEST_INIT_ZERO;

	if (decode(call, NRI_PB_POD_SANDBOX_REQUEST_FIELDS, &request, err) < 0)
		return -1;
	tell_pod(n, call->event, &request.pod, call);
	pb_release(NRI_PB_POD_SANDBOX_REQUEST_FIELDS, &request);
	return 0;
}

/* A container that is being decoded. */
struct container {
	const struct nri *nri;
	struct strlist claims;
};

static bool add_claim(struct container *c, pb_istream_t *stream, const char *source)
{
	cleanup_free char *claim = c->nri->ops->claim_of(c->nri->ctx, source);

	if (!claim || strlist_has(&c->claims, claim))
		return true;
	if (c->claims.n >= CLAIMS_MAX)
		PB_RETURN_ERROR(stream, "a container with too many claims");
	strlist_add(&c->claims, claim);
	return true;
}

static bool container_mount(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
	nri_pb_mount_t mount = NRI_PB_MOUNT_INIT_ZERO;
	bool ok;

	if (!pb_decode(stream, NRI_PB_MOUNT_FIELDS, &mount))
		return false;
	ok = add_claim(*arg, stream, text_or_empty(mount.source));
	pb_release(NRI_PB_MOUNT_FIELDS, &mount);
	return ok;
}

static int serve_container(struct nri *n, const struct call *call, struct err *err)
{
	nri_pb_create_container_request_t request = NRI_PB_CREATE_CONTAINER_REQUEST_INIT_ZERO;
	struct container container = {.nri = n};
	struct nri_pod told;
	int r;

	request.container.mounts.funcs.decode = container_mount;
	request.container.mounts.arg = &container;
	r = decode(call, NRI_PB_CREATE_CONTAINER_REQUEST_FIELDS, &request, err);
	if (r == 0) {
		told = pod_of(&request.pod);
		told.claims = container.claims;
		tell(n, call->event, &told, call);
		pb_release(NRI_PB_CREATE_CONTAINER_REQUEST_FIELDS, &request);
	}
	strlist_fini(&container.claims);
	return r;
}

static const struct method {
	const char *name;
	int (*serve)(struct nri *n, const struct call *call, struct err *err);
	enum nri_event event;
	bool vital; /* refusing it leaves a connection that is of no use */
} methods[] = {
	{"Configure", serve_configure, 0, true},
	{"Synchronize", serve_synchronize, 0, true},
	{"Shutdown", serve_shutdown, 0, false},
	{"StateChange", serve_state_change, 0, false},
	{"RunPodSandbox", serve_pod, NRI_RUN, false},
	{"StopPodSandbox", serve_pod, NRI_STOP, false},
	{"RemovePodSandbox", serve_pod, NRI_REMOVE, false},
	{"CreateContainer", serve_container, NRI_CREATE, false},
};

static const struct method *find_method(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (strcmp(methods[i].name, name) == 0)
			return &methods[i];
	return NULL;
}

static void answer_unknown(struct nri *n, uint32_t stream, const char *what, const char *name)
{
	cleanup_free char *text = xasprintf("%s %s", what, name);

	str_sanitize(text);
	answer_status(n, stream, TTRPC_UNIMPLEMENTED, text);
}

static int dispatch(
	struct nri *n, uint32_t stream, const struct ttrpc_request *request, struct err *err)
{
	const struct method *method = find_method(request->method);
	struct call call = {
		.stream = stream,
		.payload = &request->payload,
		.timeout_ms = request->timeout_ns > 0 ? (uint64_t)request->timeout_ns / 1000000
						      : n->request_timeout_ms,
	};

	if (strcmp(request->service, SERVICE_PLUGIN) != 0) {
		answer_unknown(n, stream, "service", request->service);
		return 0;
	}
	if (!method) {
		answer_unknown(n, stream, "method", request->method);
		return 0;
	}
	call.event = method->event;
	if (method->serve(n, &call, err) == 0)
		return 0;
	answer_status(n, stream, TTRPC_INVALID_ARGUMENT, err->message);
	return method->vital ? err_wrap(err, "%s", method->name) : 0;
}

static int on_call(struct nri *n, const struct ttrpc_message *message, struct err *err)
{
	struct ttrpc_request request;
	int r;

	if (message->type != TTRPC_REQUEST)
		return 0;
	if (message->stream % 2 == 0 || message->stream <= n->last_stream) {
		answer_status(n, message->stream, TTRPC_INVALID_ARGUMENT,
			"stream ids are odd and grow");
		return 0;
	}
	n->last_stream = message->stream;
	if (ttrpc_request_decode(message, &request, err) < 0) {
		answer_status(n, message->stream, TTRPC_INVALID_ARGUMENT, err->message);
		return 0;
	}
	r = dispatch(n, message->stream, &request, err);
	ttrpc_request_fini(&request);
	return r;
}

/* --- our call ----------------------------------------------------------------------------- */

static int on_reply(struct nri *n, const struct ttrpc_message *message, struct err *err)
{
	if (message->type != TTRPC_RESPONSE || message->stream != REGISTER_STREAM)
		return 0;
	if (ttrpc_response_check(message, err) < 0)
		return err_wrap(err, "RegisterPlugin");
	n->registered = true;
	return 0;
}

static void put_register(struct nri *n, const char *name, const char *index)
{
	cleanup_free char *plugin_name = xstrdup(name), *plugin_idx = xstrdup(index);
	nri_pb_register_plugin_request_t identity = {
		.plugin_name = plugin_name,
		.plugin_idx = plugin_idx,
	};
	struct ttrpc_request request = {
		.service = SERVICE_RUNTIME,
		.method = "RegisterPlugin",
		.timeout_ns = REGISTER_TIMEOUT_NS,
	};
	cleanup_buf struct buf message = BUF_INIT;

	ttrpc_put_pb(&request.payload, NRI_PB_REGISTER_PLUGIN_REQUEST_FIELDS, &identity);
	ttrpc_put_request(&message, REGISTER_STREAM, &request);
	send_message(n, MUX_RUNTIME, &message);
	ttrpc_request_fini(&request);
}

/* --- the connection ----------------------------------------------------------------------- */

void nri_start(struct nri *n, const struct nri_ops *ops, void *ctx, const char *name,
	const char *index)
{
	nri_fini(n);
	n->ops = ops;
	n->ctx = ctx;
	n->request_timeout_ms = DEFAULT_TIMEOUT_MS;
	put_register(n, name, index);
}

void nri_fini(struct nri *n)
{
	buf_fini(&n->out);
	ttrpc_reader_fini(&n->calls);
	ttrpc_reader_fini(&n->replies);
	*n = (struct nri){0};
}

bool nri_is_registered(const struct nri *n)
{
	return n->registered && n->configured;
}

static int feed_channel(struct nri *n, struct ttrpc_reader *reader,
	int (*on_message)(struct nri *, const struct ttrpc_message *, struct err *),
	const struct mux_piece *piece, struct err *err)
{
	struct ttrpc_message message;
	int r;

	ttrpc_feed(reader, piece->data, piece->len);
	while ((r = ttrpc_take(reader, &message, err)) > 0)
		if (on_message(n, &message, err) < 0)
			return -1;
	return r;
}

/* Bytes of a channel that is not ours are dropped, as the protocol has it. */
static int feed_piece(struct nri *n, const struct mux_piece *piece, struct err *err)
{
	switch (piece->channel) {
	case MUX_PLUGIN: return feed_channel(n, &n->calls, on_call, piece, err);
	case MUX_RUNTIME: return feed_channel(n, &n->replies, on_reply, piece, err);
	default: return 0;
	}
}

int nri_feed(struct nri *n, const void *data, size_t len, struct err *err)
{
	const uint8_t *at = data;
	struct mux_piece piece;
	int r;

	while ((r = mux_take(&n->mux, &at, &len, &piece, err)) > 0)
		if (feed_piece(n, &piece, err) < 0)
			return -1;
	return r;
}
