/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole connection of the RPC, whose peer may call every method there is, and answers one call
 * of ours. The first byte says how many descriptors come with the stream, the second which call
 * is ours, whether we still wait for it, and whether the peer's are answered at once or when it
 * is gone.
 */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "common/mp.h"
#include "common/rpc_internal.h"
#include "common/util.h"
#include "tests/fuzz/fuzz.h"

#define MAX_FDS  5 /* one more than a message may have */
#define MAX_HELD 64

/* of the second byte */
#define HOLD          0x01
#define CALL_WITH_FDS 0x02
#define CANCEL        0x04

static struct rpc_service services[API_METHOD_MAX];
static const struct rpc_listen listen_def = {
	.name = "fuzz", .services = services, .n_services = ARRAY_SIZE(services)};

struct session {
	bool hold;
	struct rpc_call *held[MAX_HELD];
	size_t n_held;
	bool ended;
	unsigned answers;
};

static int null_fd(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert(fd >= 0);
	return fd;
}

static void refuse(struct rpc_call *call)
{
	struct err err;

	(void)err_set(&err, ERR_BUSY, "not \xff now");
	rpc_reply_err(call, &err);
}

static void handle(
	void *ctx, struct rpc_call *call, const void *request UNUSED, int *fds UNUSED)
{
	struct session *s = ctx;

	if (s->hold && s->n_held < MAX_HELD)
		s->held[s->n_held++] = call;
	else
		refuse(call);
}

/* Its call ends with the handler. */
static void handle_notification(void *ctx UNUSED, struct rpc_call *call UNUSED,
	const void *params UNUSED, int *fds UNUSED)
{
}

static void set_up(void)
{
	for (int m = 0; m < API_METHOD_MAX; m++)
		services[m] = (struct rpc_service){.method = (enum api_method)m,
			.handle = api_method_info((enum api_method)m)->result
					  ? handle
					  : handle_notification};
}

static void on_end(void *owner, struct rpc_conn *conn UNUSED)
{
	struct session *s = owner;

	s->ended = true;
}

static void on_answer(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	struct session *s = ctx;

	assert(!err != !result);
	s->answers++;
}

/* One that carries descriptors both ways, or one that carries none. */
static struct rpc_pending *start_call(
	uv_loop_t *loop, struct rpc_conn *conn, bool with_fds, struct session *s)
{
	enum api_method method = with_fds ? API_NETNS_SOCKET : API_CLAIM_PREPARE;
	const int fds[RPC_MAX_FDS] = {null_fd(), null_fd(), null_fd(), null_fd()};
	const struct rec_desc *desc = api_method_info(method)->request;
	cleanup_free void *request = xcalloc(1, desc->size);

	return rpc_start(loop, conn, method, request, fds, 0, on_answer, s);
}

static void send_all(int to, struct input in, size_t n_fds)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
		struct cmsghdr head;
	} control = {0};
	struct iovec iov = {(void *)(uintptr_t)in.data, in.size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > 0) {
		control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(sizeof(int) * n_fds)};
		for (size_t i = 0; i < n_fds; i++)
			memcpy(CMSG_DATA(&control.head) + i * sizeof(int), &(int){null_fd()},
				sizeof(int));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
	}
	if (in.size > 0)
		assert(sendmsg(to, &msg, MSG_NOSIGNAL) == (ssize_t)in.size);
	(void)shutdown(to, SHUT_WR);
}

/* All that was said to the peer is MessagePack. */
static void check_said(int from)
{
	cleanup_buf struct buf said = BUF_INIT;
	struct mp_scan scan = {0};
	struct err err = ERR_INIT;
	char bytes[4096];
	ssize_t n;

	while ((n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		buf_put(&said, bytes, (size_t)n);
	while (said.len > 0) {
		json_t *tree;

		if (mp_scan(&scan, said.data, said.len, RPC_MAX_MESSAGE, &err) == 0)
			return;
		assert(mp_decode(said.data, scan.at, &tree, &err) == 0);
		json_decref(tree);
		buf_shift(&said, scan.at);
		scan = (struct mp_scan){0};
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	const size_t n_fds = input_byte(&in) % (MAX_FDS + 1);
	const uint8_t flags = input_byte(&in);
	struct session s = {.hold = flags & HOLD};
	struct rpc_pending *call;
	struct rpc_conn *conn;
	uv_loop_t loop;
	int pair[2];

	set_up();
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	assert(uv_loop_init(&loop) == 0);
	conn = rpc_conn_new(&loop, &pair[0], &listen_def, &s, on_end, &s);
	call = start_call(&loop, conn, flags & CALL_WITH_FDS, &s);
	if (flags & CANCEL)
		rpc_cancel(call);
	send_all(pair[1], in, n_fds);
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	assert(s.ended && s.answers == (flags & CANCEL ? 0 : 1));
	for (size_t i = 0; i < s.n_held; i++)
		refuse(s.held[i]);
	assert(uv_loop_close(&loop) == 0);
	check_said(pair[1]);
	(void)close(pair[1]);
	return 0;
}
