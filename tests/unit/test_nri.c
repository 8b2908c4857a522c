/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's protocol, without a socket: recorded conversations of real runtimes, cut at
 * every size, and what no recording has.
 */
#include <check.h>
#include <pb_decode.h>
#include <stdlib.h>
#include <string.h>

#include "nrihookd/nri.h"
#include "proto/nri.pb.h"
#include "proto/ttrpc.pb.h"
#include "tests/unit/unit.h"

#define PLUGIN "nri.pkg.api.v1alpha1.Plugin"

/* --- a plugin that writes down what it is told -------------------------------------------- */

struct plugin {
	struct nri nri;
	struct buf told;
	const struct err *answer; /* to each pod's event */
	bool mute;                /* leave events unanswered */
};

static void configured(void *ctx, const char *runtime, const char *version)
{
	struct plugin *p = ctx;

	buf_printf(&p->told, "configured %s %s\n", runtime, version);
}

static void sync_begin(void *ctx)
{
	struct plugin *p = ctx;

	buf_puts(&p->told, "sync{");
}

static void sync_pod(void *ctx, const struct nri_pod *pod)
{
	struct plugin *p = ctx;

	buf_printf(&p->told, " %s", pod->name);
}

static void sync_end(void *ctx)
{
	struct plugin *p = ctx;

	buf_puts(&p->told, " }\n");
}

static char *claim_of(void *ctx UNUSED, const char *source)
{
	static const char prefix[] = "/claims/";

	return str_has_prefix(source, prefix) ? xstrdup(source + strlen(prefix)) : NULL;
}

static void pod_event(void *ctx, enum nri_event event, const struct nri_pod *pod,
	uint32_t stream, uint64_t budget_ms)
{
	static const char *const names[] = {
		[NRI_RUN] = "run",
		[NRI_STOP] = "stop",
		[NRI_REMOVE] = "remove",
		[NRI_CREATE] = "create",
	};
	struct plugin *p = ctx;

	buf_printf(&p->told, "%s %.8s %s/%s %s %s pid %u budget %u", names[event], pod->id,
		pod->namespace, pod->name, pod->uid, pod->netns_path ? pod->netns_path : "-",
		pod->pid, (unsigned)budget_ms);
	for (size_t i = 0; i < pod->claims.n; i++)
		buf_printf(&p->told, " %s", pod->claims.v[i]);
	buf_puts(&p->told, "\n");
	if (!p->mute)
		nri_reply(&p->nri, stream, p->answer);
}

static const struct nri_ops ops = {
	.configured = configured,
	.sync_begin = sync_begin,
	.sync_pod = sync_pod,
	.sync_end = sync_end,
	.claim_of = claim_of,
	.pod_event = pod_event,
};

static void plugin_start(struct plugin *p)
{
	nri_start(&p->nri, &ops, p, "labplug", "10");
}

static void plugin_fini(struct plugin *p)
{
	nri_fini(&p->nri);
	buf_fini(&p->told);
}

static void feed(struct plugin *p, const void *data, size_t len)
{
	struct err err = ERR_INIT;

	ck_assert_msg(nri_feed(&p->nri, data, len, &err) == 0, "%s", err.message);
}

static const char *told(const struct plugin *p)
{
	return p->told.data ? p->told.data : "";
}

/* --- recorded conversations --------------------------------------------------------------- */

struct recording {
	const char *path;
	const char *told;
	struct buf registration; /* the first frame to the runtime */
	struct buf to_runtime;   /* the others */
	struct buf to_plugin;
};

static unsigned nibble(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = strchr(digits, c);

	ck_assert_ptr_nonnull(at);
	return (unsigned)(at - digits);
}

static void put_hex(struct buf *out, const char *hex)
{
	for (; hex[0] && hex[1] && hex[0] != '\n'; hex += 2)
		buf_put(out, &(uint8_t){(uint8_t)(nibble(hex[0]) << 4 | nibble(hex[1]))}, 1);
}

/* The recorded plugin asked for events of sandboxes, we do for those of containers too. */
static void subscribe(struct recording *r)
{
	static const char theirs[] = "\x12\x02\x10\x07"; /* ConfigureResponse.events */
	char *events = memmem(r->to_runtime.data, r->to_runtime.len, theirs, strlen(theirs));

	ck_assert_ptr_nonnull(events);
	events[3] = 0x0f;
}

static void recording_read(struct recording *r)
{
	cleanup_file FILE *f = fopen(r->path, "re");
	cleanup_free char *line = NULL;
	size_t size = 0;

	ck_assert_msg(f != NULL, "%s: run this from the top of the tree", r->path);
	while (getline(&line, &size, f) > 0) {
		const char *hex = strrchr(line, ' ');

		if (line[0] == '<')
			put_hex(&r->to_plugin, hex + 1);
		else if (line[0] == '>')
			put_hex(r->registration.len ? &r->to_runtime : &r->registration,
				hex + 1);
	}
	subscribe(r);
}

static void recording_fini(struct recording *r)
{
	buf_fini(&r->registration);
	buf_fini(&r->to_runtime);
	buf_fini(&r->to_plugin);
}

/* Feeds it cut into pieces of this size. What we answer is what the plugin of the recording
 * answered, to the byte. */
static void replay(const struct recording *r, size_t step)
{
	struct plugin p = {.told = BUF_INIT};

	plugin_start(&p);
	p.nri.out.len = 0;
	for (size_t at = 0; at < r->to_plugin.len; at += step)
		feed(&p, r->to_plugin.data + at, MIN(step, r->to_plugin.len - at));
	ck_assert(nri_is_registered(&p.nri));
	ck_assert_str_eq(told(&p), r->told);
	ck_assert_uint_eq(p.nri.out.len, r->to_runtime.len);
	ck_assert_mem_eq(p.nri.out.data, r->to_runtime.data, r->to_runtime.len);
	plugin_fini(&p);
}

#define POD(id) " " id " default/pod1 aaaaaaaa-0000-0000-0000-000000000001 "

static struct recording recordings[] = {
	/* Configure before the answer to RegisterPlugin; events by StateChange; nothing but a
	 * name is told of a sandbox that stops */
	{
		.path = "tests/golden/containerd-1.7.24_nri-0.6.1.frames",
		.told = "configured containerd 1.7.24~ds1\n"
			"sync{ }\n"
			"run" POD("8297728e") "/var/run/netns/"
					      "cni-4745a280-c5c0-ea4e-446d-b027d39beda0"
					      " pid 88 budget 1999\n"
					      "stop" POD(
						      "8297728e") "- pid 0 budget 1999\n"
								  "remove" POD(
									  "8297728e") "- pid 0 "
										      "budget "
										      "1999\n",
	},
	{
		.path = "tests/golden/containerd-2.1.9_nri-0.8.frames",
		.told = "configured containerd 2.1.9+unknown\n"
			"sync{ }\n"
			"run" POD("0d1bc9a6") "/var/run/netns/"
					      "cni-9bd5f94a-c5c9-5029-87a3-004def744e34"
					      " pid 108 budget 1998\n"
					      "stop" POD(
						      "0d1bc9a6") "/var/run/netns/"
								  "cni-9bd5f94a-c5c9-5029-87a3-"
								  "004def744e34"
								  " pid 0 budget 1999\n"
								  "remove" POD(
									  "0d1bc9a6") "- pid 0 "
										      "budget "
										      "1999\n",
	},
	/* a call for each event */
	{
		.path = "tests/golden/containerd-2.3.4_nri-0.12.0.frames",
		.told = "configured containerd 2.3.4+unknown\n"
			"sync{ }\n"
			"run" POD("9c2425a0") "/var/run/netns/"
					      "cni-fce36a79-7edd-0472-f74b-0b525f62f569"
					      " pid 107 budget 1998\n"
					      "stop" POD(
						      "9c2425a0") "/var/run/netns/"
								  "cni-fce36a79-7edd-0472-f74b-"
								  "0b525f62f569"
								  " pid 0 budget 1999\n"
								  "remove" POD(
									  "9c2425a0") "- pid 0 "
										      "budget "
										      "1999\n",
	},
};

START_TEST(test_recording)
{
	struct recording *r = &recordings[_i];

	recording_read(r);
	ck_assert_uint_gt(r->to_plugin.len, 2000);
	for (size_t step = 1; step <= 4200; step++)
		replay(r, step);
	replay(r, r->to_plugin.len);
	recording_fini(r);
}
END_TEST

/* --- a runtime made by hand --------------------------------------------------------------- */

/* Calls a method of the plugin; timeout_ns 0 tells none. */
static int call(struct plugin *p, uint32_t stream, const char *service, const char *method,
	const struct buf *payload, int64_t timeout_ns, struct err *err)
{
	struct ttrpc_request request = {.timeout_ns = timeout_ns};
	cleanup_buf struct buf message = BUF_INIT, wire = BUF_INIT;

	if (payload)
		request.payload = *payload;
	memcpy(request.service, service, strlen(service) + 1);
	memcpy(request.method, method, strlen(method) + 1);
	ttrpc_put_request(&message, stream, &request);
	mux_put(&wire, MUX_PLUGIN, message.data, message.len);
	return nri_feed(&p->nri, wire.data, wire.len, err);
}

struct answer {
	uint32_t stream;
	int code;
	char text[ERR_MESSAGE_MAX];
	struct buf payload;
};

static bool put_payload(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
	struct buf *payload = *arg;

	while (stream->bytes_left) {
		pb_byte_t byte;

		if (!pb_read(stream, &byte, 1))
			return false;
		buf_put(payload, &byte, 1);
	}
	return true;
}

/* The only answer that is there; it is taken out. */
static struct answer take_answer(struct plugin *p)
{
	const uint8_t *at = (const uint8_t *)p->nri.out.data;
	size_t len = p->nri.out.len;
	struct ttrpc_reader reader = {.in = BUF_INIT};
	ttrpc_pb_response_t envelope = TTRPC_PB_RESPONSE_INIT_ZERO;
	struct answer answer = {.payload = BUF_INIT};
	struct mux mux = {0};
	struct mux_piece piece;
	struct ttrpc_message m;
	struct err err = ERR_INIT;
	pb_istream_t stream;

	while (mux_take(&mux, &at, &len, &piece, &err) > 0) {
		ck_assert_uint_eq(piece.channel, MUX_PLUGIN);
		ttrpc_feed(&reader, piece.data, piece.len);
	}
	ck_assert_int_eq(ttrpc_take(&reader, &m, &err), 1);
	ck_assert_uint_eq(reader.in.len, reader.taken);
	ck_assert_uint_eq(m.type, TTRPC_RESPONSE);
	answer.stream = m.stream;
	envelope.payload.funcs.decode = put_payload;
	envelope.payload.arg = &answer.payload;
	stream = pb_istream_from_buffer(m.data, m.len);
	ck_assert(pb_decode(&stream, TTRPC_PB_RESPONSE_FIELDS, &envelope));
	answer.code = envelope.status.code;
	if (envelope.status.message)
		(void)snprintf(answer.text, sizeof(answer.text), "%s", envelope.status.message);
	pb_release(TTRPC_PB_RESPONSE_FIELDS, &envelope);
	ttrpc_reader_fini(&reader);
	p->nri.out.len = 0;
	return answer;
}

static void expect_answer(struct plugin *p, uint32_t stream, int code, const char *text)
{
	struct answer a = take_answer(p);

	ck_assert_uint_eq(a.stream, stream);
	ck_assert_int_eq(a.code, code);
	ck_assert_msg(str_has_prefix(a.text, text), "%s", a.text);
	ck_assert_uint_eq(a.payload.len, 0);
	buf_fini(&a.payload);
}

/* A connection whose RegisterPlugin has been taken out. */
static void plugin_connected(struct plugin *p)
{
	plugin_start(p);
	p->nri.out.len = 0;
}

static void answer_registration(struct plugin *p, const char *data, size_t len, int result)
{
	const uint8_t header[TTRPC_HEADER_SIZE] = {0, 0, 0, (uint8_t)len, 0, 0, 0, 1, 2, 0};
	cleanup_buf struct buf message = BUF_INIT, wire = BUF_INIT;
	struct err err = ERR_INIT;

	buf_put(&message, header, sizeof(header));
	buf_put(&message, data, len);
	mux_put(&wire, MUX_RUNTIME, message.data, message.len);
	ck_assert_int_eq(nri_feed(&p->nri, wire.data, wire.len, &err), result);
	if (result < 0)
		ck_assert_str_eq(err.message, "RegisterPlugin: refused with code 2: bad index");
}

/* --- payloads ----------------------------------------------------------------------------- */

static void put_configure(struct buf *out, int64_t request_timeout_ms)
{
	char name[] = "fake", version[] = "1.0";
	nri_pb_configure_request_t request = {
		.runtime_name = name,
		.runtime_version = version,
		.request_timeout = request_timeout_ms,
	};

	ttrpc_put_pb(out, NRI_PB_CONFIGURE_REQUEST_FIELDS, &request);
}

static void put_pod(
	struct buf *out, char *name, nri_pb_linux_namespace_t *namespaces, pb_size_t n)
{
	char id[] = "0123456789abcdef", uid[] = "uid-1", namespace[] = "ns";
	nri_pb_pod_sandbox_t pod = {
		.id = id,
		.uid = uid,
		.name = name,
		.namespace = namespace,
		.has_linux = n > 0,
		.linux = {.namespaces_count = n, .namespaces = namespaces},
		.pid = 42,
	};

	ttrpc_put_pb(out, NRI_PB_POD_SANDBOX_FIELDS, &pod);
}

/* A length-delimited field of up to 2 MiB. */
static void put_field(struct buf *out, uint8_t number, const struct buf *value)
{
	uint8_t head[4] = {
		(uint8_t)(number << 3 | 2),
		(uint8_t)(value->len | 0x80),
		(uint8_t)(value->len >> 7 | 0x80),
		(uint8_t)(value->len >> 14),
	};

	ck_assert_uint_lt(value->len, 1u << 21);
	buf_put(out, head, sizeof(head));
	buf_put(out, value->data, value->len);
}

static void put_pod_field(struct buf *out, uint8_t number, char *name)
{
	cleanup_buf struct buf pod = BUF_INIT;

	put_pod(&pod, name, NULL, 0);
	put_field(out, number, &pod);
}

/* --- registration ------------------------------------------------------------------------- */

START_TEST(test_registered_after_both)
{
	struct plugin p = {.told = BUF_INIT};
	cleanup_buf struct buf configure = BUF_INIT;
	struct err err = ERR_INIT;

	put_configure(&configure, 0);
	for (int configure_first = 0; configure_first <= 1; configure_first++) {
		plugin_connected(&p);
		for (int i = 0; i <= 1; i++) {
			ck_assert(!nri_is_registered(&p.nri));
			if (i == configure_first)
				answer_registration(&p, "", 0, 0);
			else
				ck_assert_int_eq(
					call(&p, 1, PLUGIN, "Configure", &configure, 0, &err),
					0);
		}
		ck_assert(nri_is_registered(&p.nri));
	}
	plugin_fini(&p);
}
END_TEST

START_TEST(test_registration_refused)
{
	static const char status[] = "\x0a\x0d\x08\x02\x12\x09"
				     "bad index";
	struct plugin p = {.told = BUF_INIT};

	plugin_connected(&p);
	answer_registration(&p, status, sizeof(status) - 1, -1);
	ck_assert(!nri_is_registered(&p.nri));
	plugin_fini(&p);
}
END_TEST

START_TEST(test_registration_bytes)
{
	struct plugin p = {.told = BUF_INIT};
	cleanup_buf struct buf recorded = BUF_INIT;
	struct recording r = recordings[0];

	/* the recorded plugin allowed 5 s, we allow 30 s: the field is the last one */
	recording_read(&r);
	plugin_start(&p);
	buf_put(&recorded, r.registration.data, r.registration.len);
	ck_assert_uint_eq(p.nri.out.len, recorded.len);
	ck_assert_mem_eq(p.nri.out.data, recorded.data, recorded.len - 5);
	recording_fini(&r);
	plugin_fini(&p);
}
END_TEST

/* --- calls -------------------------------------------------------------------------------- */

START_TEST(test_unknown_calls)
{
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;

	plugin_connected(&p);
	ck_assert_int_eq(call(&p, 1, PLUGIN, "StartContainer", NULL, 0, &err), 0);
	expect_answer(&p, 1, 12, "method StartContainer");
	ck_assert_int_eq(call(&p, 3, "other.Service", "Configure", NULL, 0, &err), 0);
	expect_answer(&p, 3, 12, "service other.Service");
	ck_assert_int_eq(call(&p, 5, PLUGIN, "Shutdown", NULL, 0, &err), 0);
	expect_answer(&p, 5, 0, "");
	ck_assert_str_eq(told(&p), "");
	plugin_fini(&p);
}
END_TEST

START_TEST(test_stream_ids)
{
	static const struct {
		uint32_t stream;
		bool taken;
	} rows[] = {
		{1, true},
		{1, false},
		{2, false},
		{7, true}, /* a gap is normal */
		{5, false},
		{7, false},
		{9, true},
		{0, false},
		{0xffffffff, true},
	};
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;

	plugin_connected(&p);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		ck_assert_int_eq(
			call(&p, rows[i].stream, PLUGIN, "Shutdown", NULL, 0, &err), 0);
		expect_answer(&p, rows[i].stream, rows[i].taken ? 0 : 3,
			rows[i].taken ? "" : "stream ids are odd and grow");
	}
	plugin_fini(&p);
}
END_TEST

START_TEST(test_other_types_and_answers_are_ignored)
{
	static const uint8_t types[] = {0, 2, 3, 9, 255};
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;

	plugin_connected(&p);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		const uint8_t message[] = {0, 0, 0, 1, 0, 0, 0, 1, types[i], 0, 0xff};
		const uint8_t request[] = {0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0xff};
		const uint8_t late[] = {0, 0, 0, 1, 0, 0, 0, 3, 2, 0, 0xff};
		cleanup_buf struct buf wire = BUF_INIT;

		mux_put(&wire, MUX_PLUGIN, message, sizeof(message));
		mux_put(&wire, MUX_RUNTIME, request, sizeof(request));
		mux_put(&wire, MUX_RUNTIME, late, sizeof(late));
		feed(&p, wire.data, wire.len);
		ck_assert_uint_eq(p.nri.out.len, 0);
	}
	ck_assert_int_eq(call(&p, 1, PLUGIN, "Shutdown", NULL, 0, &err), 0);
	expect_answer(&p, 1, 0, "");
	plugin_fini(&p);
}
END_TEST

START_TEST(test_unreadable_requests)
{
	cleanup_buf struct buf garbage = BUF_INIT;
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;

	buf_puts(&garbage, "\x12\xff\xff\xff\x7f");
	plugin_connected(&p);
	/* a pod's event fails alone ... */
	ck_assert_int_eq(call(&p, 1, PLUGIN, "RunPodSandbox", &garbage, 0, &err), 0);
	expect_answer(&p, 1, 3, "the payload cannot be read: ");
	ck_assert_int_eq(call(&p, 3, PLUGIN, "StateChange", &garbage, 0, &err), 0);
	expect_answer(&p, 3, 3, "the payload cannot be read: ");
	/* ... but without these the connection is of no use, and an old runtime would keep it
	 */
	ck_assert_int_eq(call(&p, 5, PLUGIN, "Configure", &garbage, 0, &err), -1);
	expect_answer(&p, 5, 3, "the payload cannot be read: ");
	ck_assert_int_eq(call(&p, 7, PLUGIN, "Synchronize", &garbage, 0, &err), -1);
	expect_answer(&p, 7, 3, "the payload cannot be read: ");
	ck_assert(str_has_prefix(err.message, "Synchronize: "));
	ck_assert_str_eq(told(&p), "sync{");
	plugin_fini(&p);
}
END_TEST

/* --- the list of sandboxes ---------------------------------------------------------------- */

START_TEST(test_list_in_parts)
{
	static const char more[] = "\x18\x01";
	cleanup_buf struct buf first = BUF_INIT, last = BUF_INIT;
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;
	struct answer a;

	put_pod_field(&first, 1, (char[]){"one"});
	put_pod_field(&first, 1, (char[]){"two"});
	put_pod_field(&first, 2, (char[]){"container"});
	buf_puts(&first, more);
	put_pod_field(&last, 1, (char[]){"three"});

	plugin_connected(&p);
	ck_assert_int_eq(call(&p, 1, PLUGIN, "Synchronize", &first, 0, &err), 0);
	a = take_answer(&p);
	ck_assert_int_eq(a.code, 0);
	ck_assert_str_eq(a.payload.data, "\x10\x01"); /* more=true */
	buf_fini(&a.payload);
	ck_assert_str_eq(told(&p), "sync{ one two");
	ck_assert_int_eq(call(&p, 3, PLUGIN, "Synchronize", &last, 0, &err), 0);
	expect_answer(&p, 3, 0, "");
	ck_assert_str_eq(told(&p), "sync{ one two three }\n");

	/* a connection that ends between two parts leaves nothing to the next one */
	ck_assert_int_eq(call(&p, 5, PLUGIN, "Synchronize", &first, 0, &err), 0);
	p.told.len = 0;
	plugin_connected(&p);
	ck_assert_int_eq(call(&p, 1, PLUGIN, "Synchronize", &last, 0, &err), 0);
	ck_assert_str_eq(told(&p), "sync{ three }\n");
	plugin_fini(&p);
}
END_TEST

/* More than senders should put into one message, as old containerd does. */
START_TEST(test_list_of_6_MB)
{
	cleanup_buf struct buf list = BUF_INIT, annotation = BUF_INIT;
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;

	buf_reserve(&annotation, 1 << 20);
	memset(annotation.data, 'a', 1 << 20);
	annotation.len = 1 << 20;
	for (int i = 0; i < 6; i++) {
		cleanup_buf struct buf pod = BUF_INIT;

		put_pod(&pod, (char[]){"big"}, NULL, 0);
		put_field(&pod, 6, &annotation);
		put_field(&list, 1, &pod);
	}
	ck_assert_uint_gt(list.len, 6 << 20);
	plugin_connected(&p);
	ck_assert_int_eq(call(&p, 1, PLUGIN, "Synchronize", &list, 0, &err), 0);
	expect_answer(&p, 1, 0, "");
	ck_assert_str_eq(told(&p), "sync{ big big big big big big }\n");
	plugin_fini(&p);
}
END_TEST

/* --- events of pods ----------------------------------------------------------------------- */

static void put_event(
	struct buf *out, uint8_t event, nri_pb_linux_namespace_t *namespaces, pb_size_t n)
{
	cleanup_buf struct buf pod = BUF_INIT;

	buf_put(out, (uint8_t[]){0x08, event}, 2);
	put_pod(&pod, (char[]){"p"}, namespaces, n);
	put_field(out, 2, &pod);
}

START_TEST(test_network_namespace)
{
	char network[] = "network", pid[] = "pid", path[] = "/run/netns/x", empty[] = "";
	static const char prefix[] = "run 01234567 ns/p uid-1 ";
	nri_pb_linux_namespace_t sets[][2] = {
		{{pid, path}, {network, path}},
		{{pid, path}, {network, empty}},
		{{pid, path}, {network, NULL}},
		{{pid, path}, {NULL, path}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		cleanup_buf struct buf event = BUF_INIT;
		struct plugin p = {.told = BUF_INIT};
		struct err err = ERR_INIT;

		put_event(&event, 1, sets[i], 2);
		plugin_connected(&p);
		ck_assert_int_eq(call(&p, 1, PLUGIN, "StateChange", &event, 0, &err), 0);
		ck_assert(str_has_prefix(told(&p), prefix));
		ck_assert_str_eq(told(&p) + sizeof(prefix) - 1,
			i == 0 ? "/run/netns/x pid 42 budget 2000\n"
			       : "- pid 42 budget 2000\n");
		plugin_fini(&p);
	}
}
END_TEST

static void put_text(struct buf *out, uint8_t number, const char *text)
{
	const struct buf field = {.data = (char *)(uintptr_t)text, .len = strlen(text)};

	put_field(out, number, &field);
}

/* A Mount in Container.mounts. source NULL: it has none. */
static void put_mount(struct buf *container, const char *source)
{
	cleanup_buf struct buf mount = BUF_INIT;

	put_text(&mount, 1, "/destination");
	put_text(&mount, 2, "bind");
	if (source)
		put_text(&mount, 3, source);
	put_text(&mount, 4, "ro");
	put_field(container, 9, &mount);
}

static void create(struct plugin *p, const struct buf *container, bool container_first)
{
	cleanup_buf struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (container_first)
		put_field(&request, 2, container);
	put_pod_field(&request, 1, (char[]){"p"});
	if (!container_first)
		put_field(&request, 2, container);
	plugin_connected(p);
	ck_assert_int_eq(call(p, 1, PLUGIN, "CreateContainer", &request, 0, &err), 0);
}

/* Of its container the sources of mounts are read. */
START_TEST(test_container)
{
	static const char *const sources[] = {
		"/proc", "/claims/b", NULL, "/claims/a", "", "/claims/b", "claims"};
	cleanup_buf struct buf container = BUF_INIT;
	struct plugin p = {.told = BUF_INIT};

	put_text(&container, 1, "id");
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		put_mount(&container, sources[i]);
	put_text(&container, 15, "a field that is not read");
	create(&p, &container, _i == 1);
	ck_assert_str_eq(told(&p), "create 01234567 ns/p uid-1 - pid 42 budget 2000 b a\n");
	expect_answer(&p, 1, 0, "");
	plugin_fini(&p);
}
END_TEST

/* 256 claims are taken; a container with more, or that cannot be read, is refused. */
START_TEST(test_container_refused)
{
	cleanup_buf struct buf container = BUF_INIT;
	struct plugin p = {.told = BUF_INIT};
	char source[32];

	for (int i = 0; i <= 256; i++) {
		if (i == 256) {
			create(&p, &container, false);
			expect_answer(&p, 1, 0, "");
			buf_fini(&p.told);
		}
		(void)snprintf(source, sizeof(source), "/claims/%d", i);
		put_mount(&container, source);
	}
	create(&p, &container, true);
	expect_answer(&p, 1, 3,
		"the payload cannot be read: a container with too many claims");
	container.len = 0;
	put_mount(&container, "/claims/a");
	put_text(&container, 9, "no mount");
	create(&p, &container, true);
	ck_assert_int_eq(take_answer(&p).code, 3);
	ck_assert_str_eq(told(&p), "");
	plugin_fini(&p);
}
END_TEST

START_TEST(test_events_not_asked_for)
{
	static const uint8_t events[] = {0, 4, 12, 13, 14, 127};
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;

	plugin_connected(&p);
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		cleanup_buf struct buf event = BUF_INIT;
		uint32_t stream = (uint32_t)(2 * i + 1);

		put_event(&event, events[i], NULL, 0);
		ck_assert_int_eq(call(&p, stream, PLUGIN, "StateChange", &event, 0, &err), 0);
		expect_answer(&p, stream, 0, "");
	}
	ck_assert_str_eq(told(&p), "");
	plugin_fini(&p);
}
END_TEST

/* The call's own budget, then the one of Configure, then the protocol's default. */
START_TEST(test_budget)
{
	cleanup_buf struct buf configure = BUF_INIT, event = BUF_INIT;
	struct plugin p = {.told = BUF_INIT};
	struct err err = ERR_INIT;

	put_configure(&configure, 7000);
	put_pod_field(&event, 1, (char[]){"p"});
	plugin_connected(&p);
	ck_assert_int_eq(call(&p, 1, PLUGIN, "StopPodSandbox", &event, 0, &err), 0);
	ck_assert_ptr_nonnull(strstr(told(&p), "budget 2000\n"));
	ck_assert_int_eq(call(&p, 3, PLUGIN, "Configure", &configure, 0, &err), 0);
	p.told.len = 0;
	ck_assert_int_eq(call(&p, 5, PLUGIN, "StopPodSandbox", &event, 0, &err), 0);
	ck_assert_ptr_nonnull(strstr(told(&p), "budget 7000\n"));
	p.told.len = 0;
	ck_assert_int_eq(call(&p, 7, PLUGIN, "StopPodSandbox", &event, 1234000000, &err), 0);
	ck_assert_ptr_nonnull(strstr(told(&p), "budget 1234\n"));
	plugin_fini(&p);
}
END_TEST

/* 12 would switch the runtime to other calls; 1 and 4 are its own words for a lost one. */
START_TEST(test_errors)
{
	static const int codes[ERR_KIND_MAX] = {
		[ERR_NOT_FOUND] = 9,
		[ERR_INVALID] = 9,
		[ERR_CONFLICT] = 9,
		[ERR_BUSY] = 14,
		[ERR_UNAVAILABLE] = 14,
		[ERR_DEADLINE] = 14,
		[ERR_INTERNAL] = 13,
	};
	cleanup_buf struct buf event = BUF_INIT;

	put_pod_field(&event, 1, (char[]){"p"});
	for (int kind = ERR_NONE + 1; kind < ERR_KIND_MAX; kind++) {
		struct err error = ERR_INIT, err = ERR_INIT;
		struct plugin p = {.told = BUF_INIT, .answer = &error};

		(void)err_set(&error, (enum err_kind)kind, "no\tway \xff");
		plugin_connected(&p);
		ck_assert_int_eq(call(&p, 1, PLUGIN, "RunPodSandbox", &event, 0, &err), 0);
		expect_answer(&p, 1, codes[kind], "no?way ?");
		plugin_fini(&p);
	}
}
END_TEST

START_TEST(test_unanswered_events_are_bounded)
{
	struct plugin p = {.told = BUF_INIT, .mute = true};
	cleanup_buf struct buf event = BUF_INIT;
	struct err err = ERR_INIT;
	uint32_t stream = 1;

	put_pod_field(&event, 1, (char[]){"p"});
	plugin_connected(&p);
	for (int i = 0; i < NRI_MAX_PENDING; i++, stream += 2)
		ck_assert_int_eq(call(&p, stream, PLUGIN, "RunPodSandbox", &event, 0, &err), 0);
	ck_assert_uint_eq(p.nri.out.len, 0);
	ck_assert_int_eq(call(&p, stream, PLUGIN, "RunPodSandbox", &event, 0, &err), 0);
	expect_answer(&p, stream, 8, "too many events");
	nri_reply(&p.nri, 1, NULL);
	expect_answer(&p, 1, 0, "");
	ck_assert_int_eq(call(&p, stream + 2, PLUGIN, "RunPodSandbox", &event, 0, &err), 0);
	ck_assert_uint_eq(p.nri.out.len, 0);
	plugin_fini(&p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nri");
	TCase *replayed = tcase_create("recordings"),
	      *registration = tcase_create("registration");
	TCase *calls = tcase_create("calls"), *events = tcase_create("events");

	tcase_set_timeout(replayed, 120);
	tcase_add_loop_test(replayed, test_recording, 0, (int)ARRAY_SIZE(recordings));
	suite_add_tcase(suite, replayed);
	tcase_add_test(registration, test_registered_after_both);
	tcase_add_test(registration, test_registration_refused);
	tcase_add_test(registration, test_registration_bytes);
	suite_add_tcase(suite, registration);
	tcase_add_test(calls, test_unknown_calls);
	tcase_add_test(calls, test_stream_ids);
	tcase_add_test(calls, test_other_types_and_answers_are_ignored);
	tcase_add_test(calls, test_unreadable_requests);
	tcase_add_test(calls, test_list_in_parts);
	tcase_add_test(calls, test_list_of_6_MB);
	suite_add_tcase(suite, calls);
	tcase_add_test(events, test_network_namespace);
	tcase_add_loop_test(events, test_container, 0, 2);
	tcase_add_test(events, test_container_refused);
	tcase_add_test(events, test_events_not_asked_for);
	tcase_add_test(events, test_budget);
	tcase_add_test(events, test_errors);
	tcase_add_test(events, test_unanswered_events_are_bounded);
	suite_add_tcase(suite, events);
	return unit_run(suite);
}
