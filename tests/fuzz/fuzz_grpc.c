/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of the kubelet's: HTTP/2 frames, headers, messages, protobuf, and the DRA service
 * itself with a statd that is played here. The target sends the preface that every client must,
 * and the input is the frames behind it. Its first byte says in pieces of which size they come
 * (0: whole); the second whether statd answers only when the client is gone.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "draplugind/dra.h"
#include "draplugind/grpc_internal.h"
#include "proto/registration.pb.h"
#include "tests/fuzz/fuzz.h"

#define PREFACE   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS  "\0\0\0\4\0\0\0\0\0"
#define DIRECTORY "/nonexistent" /* statd never names a device, so no file is written */

/* --- a statd -------------------------------------------------------------------------------- */

#define MAX_CALLS 1024

static struct {
	struct asked {
		enum api_method method;
		bool refuse;
		rpc_done_cb *cb;
		void *ctx;
	} asked[MAX_CALLS];
	size_t n;
} statd;

/* In the place of draplugind/rpc.c's, which would wait for a statd. */
void dra_rpc_start(struct dra_rpc *rpc UNUSED, enum api_method method,
	const struct claim_ref *claim, uint64_t left_ms UNUSED, rpc_done_cb *cb, void *ctx)
{
	assert(claim->namespace && claim->name && claim->uid);
	assert(statd.n < MAX_CALLS);
	statd.asked[statd.n++] = (struct asked){
		.method = method, .refuse = strlen(claim->uid) % 2, .cb = cb, .ctx = ctx};
}

static void statd_answer(void)
{
	const struct claim_prepare_result no_devices = {0};
	int fds[RPC_MAX_FDS] = {-1, -1, -1, -1};
	struct err err;

	(void)err_set(&err, ERR_BUSY, "not \xff now");
	while (statd.n > 0) {
		struct asked a = statd.asked[--statd.n];

		/* an answer may begin the next work on the same claim */
		a.cb(a.ctx, a.refuse ? &err : NULL, a.refuse ? NULL : &no_devices, fds);
	}
}

/* --- services ------------------------------------------------------------------------------- */

static void get_info(void *ctx UNUSED, struct grpc_call *call, const void *request UNUSED)
{
	const registration_plugin_info_t info = REGISTRATION_PLUGIN_INFO_INIT_ZERO;

	grpc_reply(call, &info);
}

static void notify(void *ctx UNUSED, struct grpc_call *call, const void *request)
{
	const registration_registration_status_t *status = request;

	grpc_reply_error(call, GRPC_UNKNOWN, status->error ? status->error : "");
}

static const struct grpc_method registration_methods[] = {
	GRPC_METHOD("/pluginregistration.Registration/GetInfo", registration_info_request_t,
		registration_plugin_info_t, get_info),
	GRPC_METHOD("/pluginregistration.Registration/NotifyRegistrationStatus",
		registration_registration_status_t, registration_registration_status_response_t,
		notify),
};

/* --- server and client ---------------------------------------------------------------------- */

static struct {
	uv_loop_t loop;
	struct sockaddr_un address;
	socklen_t address_len;
	struct grpc_method methods[8];
	struct grpc_service service;
	struct dra_rpc rpc;
	struct dra dra;
	struct grpc_server *server;
} t;

static void offer(const struct grpc_method *methods, size_t n)
{
	assert(t.service.n_methods + n <= ARRAY_SIZE(t.methods));
	memcpy(t.methods + t.service.n_methods, methods, n * sizeof(*methods));
	t.service.n_methods += n;
}

/* One server for the process, at an address that the kernel chooses and nobody has to remove. */
static void start_server(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	t.address.sun_family = AF_UNIX;
	t.address_len = sizeof(t.address);
	assert(fd >= 0);
	assert(bind(fd, (const struct sockaddr *)&t.address, sizeof(sa_family_t)) == 0);
	assert(getsockname(fd, (struct sockaddr *)&t.address, &t.address_len) == 0);
	assert(listen(fd, 1) == 0);
	assert(uv_loop_init(&t.loop) == 0);
	offer(dra_service.methods, dra_service.n_methods);
	offer(registration_methods, ARRAY_SIZE(registration_methods));
	t.service.name = "fuzz";
	t.service.methods = t.methods;
	dra_init(&t.dra, &t.rpc, "networkdriver.cilium.io", DIRECTORY, DIRECTORY);
	t.server = grpc_server_new(&t.loop, &fd, &t.service, &t.dra);
}

static void turn(bool statd_is_quick)
{
	(void)uv_run(&t.loop, UV_RUN_NOWAIT);
	if (statd_is_quick)
		statd_answer();
}

static int open_client(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert(fd >= 0);
	assert(connect(fd, (const struct sockaddr *)&t.address, t.address_len) == 0);
	while (t.server->n_conns == 0)
		turn(true);
	return fd;
}

/* False when the server has closed. What it says is read so that it goes on. */
static bool say(int fd, const void *data, size_t size)
{
	char said[4096];

	if (send(fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		return false;
	while (recv(fd, said, sizeof(said), MSG_DONTWAIT) > 0)
		;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char hello[] = PREFACE SETTINGS;
	struct input in = {data, size};
	const size_t step = input_byte(&in);
	const bool quick = !(input_byte(&in) & 1);
	int fd;

	if (!t.server)
		start_server();
	fd = open_client();
	for (bool open = say(fd, hello, sizeof(hello) - 1); open && in.size > 0;) {
		struct input piece = input_piece(&in, step ? step : in.size);

		open = say(fd, piece.data, piece.size);
		turn(quick);
	}
	(void)shutdown(fd, SHUT_WR);
	while (t.server->n_conns > 0)
		turn(quick);
	statd_answer();
	assert(!t.dra.works && t.server->buffered == 0);
	(void)close(fd);
	return 0;
}
