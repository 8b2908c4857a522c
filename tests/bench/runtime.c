/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bench's container runtime: one NRI plugin, told of pods.
 *
 *	listen PATH                 where plugins look for their runtime
 *	accept                      waits for a plugin, registers, configures and synchronizes it.
 *	                            Answers when Synchronize was answered.
 *	run POD SANDBOX NETNS       a pod's sandbox; NETNS is the path of its network namespace.
 *	stop POD SANDBOX NETNS      Answers how long the plugin took.
 *	remove POD SANDBOX NETNS
 *	unknown                     a call of a method that there is not: what a call costs without
 *	                            any work
 *
 * Frames are the multiplexer's (channel and length), messages ttrpc's (length, stream, type, flags),
 * events StateChange, as containerd up to 2.2 has it. All messages here fit in one frame.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/util.h"
#include "tests/bench/lines.h"
#include "tests/bench/wire.h"

#define PLUGIN_SERVICE "nri.pkg.api.v1alpha1.Plugin"
#define TIMEOUT_NS     UINT64_C(2000000000)
#define TIMEOUT_MS     2000
#define WAIT_S         60 /* for the plugin; beyond it something is broken */
#define MAX_MESSAGE    4096

/* ttrpc's status codes, which are gRPC's */
enum code { CODE_OK = 0, CODE_UNIMPLEMENTED = 12, CODE_UNAVAILABLE = 14 };

enum channel { CHANNEL_PLUGIN = 1, CHANNEL_RUNTIME = 2 };
enum type { TYPE_REQUEST = 1, TYPE_RESPONSE = 2 };
enum event { EVENT_RUN = 1, EVENT_STOP = 2, EVENT_REMOVE = 3 };

struct frame {
	uint32_t channel, length; /* of the multiplexer */
	uint32_t size, stream;    /* of ttrpc */
	uint8_t type, flags;
} __attribute__((packed));
#define TTRPC_HEADER 10

struct runtime {
	int listener, fd;
	uint32_t stream; /* of our last request */
};

struct message {
	struct frame head; /* in our byte order */
	uint8_t data[MAX_MESSAGE];
};

/* --- messages ----------------------------------------------------------------------------------- */

static void send_message(const struct runtime *r, enum channel channel, uint32_t stream,
	enum type type, const struct buf *payload)
{
	cleanup_buf struct buf out = BUF_INIT;
	const struct frame head = {
		.channel = htonl(channel),
		.length = htonl((uint32_t)payload->len + TTRPC_HEADER),
		.size = htonl((uint32_t)payload->len),
		.stream = htonl(stream),
		.type = (uint8_t)type,
	};

	buf_put(&out, &head, sizeof(head));
	buf_put(&out, payload->data, payload->len);
	if (send(r->fd, out.data, out.len, MSG_NOSIGNAL) != (ssize_t)out.len)
		lines_fail_errno("sending to the plugin");
}

static void receive(const struct runtime *r, void *to, size_t len)
{
	if (len > 0 && recv(r->fd, to, len, MSG_WAITALL) != (ssize_t)len)
		lines_fail_errno("receiving from the plugin");
}

static void receive_message(const struct runtime *r, struct message *ret)
{
	receive(r, &ret->head, sizeof(ret->head));
	ret->head.channel = ntohl(ret->head.channel);
	ret->head.size = ntohl(ret->head.size);
	ret->head.stream = ntohl(ret->head.stream);
	if (ret->head.size > sizeof(ret->data))
		lines_fail("a message of %" PRIu32 " bytes", ret->head.size);
	receive(r, ret->data, ret->head.size);
}

/* The status of an answer, 0 if there is none; what it says goes to text. */
static uint64_t status_of(const struct message *answer, char text[static 256])
{
	const uint8_t *data = answer->data;
	struct wire_field field, part;
	size_t len = answer->head.size;
	uint64_t code = 0;

	text[0] = '\0';
	while (wire_next(&data, &len, &field))
		while (field.number == 1 && wire_next(&field.data, &field.len, &part)) {
			if (part.number == 1)
				code = part.value;
			else if (part.number == 2)
				(void)snprintf(text, 256, "%.*s", (int)part.len,
					(const char *)part.data);
		}
	return code;
}

/* Calls the plugin and waits. The code; *ret_time is from the first byte to the last. */
static uint64_t call(struct runtime *r, const char *method, const struct buf *payload,
	uint64_t *ret_time, char text[static 256])
{
	cleanup_buf struct buf request = BUF_INIT;
	struct message answer;
	uint64_t started;

	r->stream += 2; /* a client's are odd */
	wire_put_text(&request, 1, PLUGIN_SERVICE);
	wire_put_text(&request, 2, method);
	wire_put_bytes(&request, 3, payload->data, payload->len);
	wire_put_number(&request, 4, TIMEOUT_NS);
	started = now_ns();
	send_message(r, CHANNEL_PLUGIN, r->stream, TYPE_REQUEST, &request);
	receive_message(r, &answer);
	*ret_time = now_ns() - started;
	if (answer.head.stream != r->stream || answer.head.type != TYPE_RESPONSE)
		lines_fail("%s: another answer came", method);
	return status_of(&answer, text);
}

/* The same where nothing but this code will do. */
static uint64_t call_for(
	struct runtime *r, const char *method, const struct buf *payload, enum code wanted)
{
	char text[256];
	uint64_t time, code = call(r, method, payload, &time, text);

	if (code != wanted)
		lines_fail("%s: code %" PRIu64 ": %s", method, code, text);
	return time;
}

/* --- the beginning ------------------------------------------------------------------------------ */

static void run_listen(void *ctx, char **words, size_t n UNUSED)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct runtime *r = ctx;

	if (strlen(words[0]) >= sizeof(address.sun_path))
		lines_fail("%s: too long", words[0]);
	memcpy(address.sun_path, words[0], strlen(words[0]));
	close_fd(&r->listener);
	(void)unlink(words[0]);
	r->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(r->listener, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(r->listener, 4) < 0)
		lines_fail_errno(words[0]);
	lines_ok(NULL, 0);
}

static void configure(struct runtime *r)
{
	cleanup_buf struct buf config = BUF_INIT;

	wire_put_text(&config, 2, "containerd");
	wire_put_text(&config, 3, "2.1.9");
	wire_put_number(&config, 4, TIMEOUT_MS);
	wire_put_number(&config, 5, TIMEOUT_MS);
	(void)call_for(r, "Configure", &config, CODE_OK);
}

static void run_accept(void *ctx, char **words UNUSED, size_t n UNUSED)
{
	const struct timeval wait = {.tv_sec = WAIT_S};
	const struct buf nothing = BUF_INIT;
	struct runtime *r = ctx;
	struct message hello;
	uint64_t time;

	close_fd(&r->fd);
	(void)setsockopt(r->listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	r->fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
	if (r->fd < 0)
		lines_fail_errno("waiting for the plugin");
	(void)setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	r->stream = (uint32_t)-1;
	receive_message(r, &hello);
	if (hello.head.channel != CHANNEL_RUNTIME || hello.head.type != TYPE_REQUEST)
		lines_fail("the plugin does not begin with RegisterPlugin");
	send_message(r, CHANNEL_RUNTIME, hello.head.stream, TYPE_RESPONSE, &nothing);
	configure(r);
	(void)call_for(r, "Synchronize", &nothing, CODE_OK);
	time = now_ns();
	lines_ok(&time, 1);
}

/* --- pods --------------------------------------------------------------------------------------- */

static void put_pod(struct buf *to, char **words)
{
	cleanup_buf struct buf pod = BUF_INIT, linux_part = BUF_INIT, namespace = BUF_INIT;

	wire_put_text(&namespace, 1, "network");
	wire_put_text(&namespace, 2, words[2]);
	wire_put_bytes(&linux_part, 5, namespace.data, namespace.len);
	wire_put_text(&pod, 1, words[1]);
	wire_put_text(&pod, 2, words[0]);
	wire_put_text(&pod, 3, words[0]);
	wire_put_text(&pod, 4, "default");
	wire_put_bytes(&pod, 8, linux_part.data, linux_part.len);
	wire_put_number(&pod, 9, 1);
	wire_put_bytes(to, 2, pod.data, pod.len);
}

static void tell(struct runtime *r, enum event event, char **words)
{
	cleanup_buf struct buf change = BUF_INIT;
	uint64_t time, code;
	char text[256];

	wire_put_number(&change, 1, event);
	put_pod(&change, words);
	code = call(r, "StateChange", &change, &time, text);
	if (code == CODE_OK)
		lines_ok(&time, 1);
	else if (code == CODE_UNAVAILABLE)
		lines_refuse(text);
	else
		lines_fail("code %" PRIu64 ": %s", code, text);
}

static void run_run(void *ctx, char **words, size_t n UNUSED)
{
	tell(ctx, EVENT_RUN, words);
}

static void run_stop(void *ctx, char **words, size_t n UNUSED)
{
	tell(ctx, EVENT_STOP, words);
}

static void run_remove(void *ctx, char **words, size_t n UNUSED)
{
	tell(ctx, EVENT_REMOVE, words);
}

static void run_unknown(void *ctx, char **words UNUSED, size_t n UNUSED)
{
	const struct buf nothing = BUF_INIT;
	uint64_t time = call_for(ctx, "Measure", &nothing, CODE_UNIMPLEMENTED);

	lines_ok(&time, 1);
}

static const struct lines_command commands[] = {
	{"listen", 1, run_listen},
	{"accept", 0, run_accept},
	{"run", 3, run_run},
	{"stop", 3, run_stop},
	{"remove", 3, run_remove},
	{"unknown", 0, run_unknown},
};

int main(void)
{
	struct runtime runtime = {.listener = -1, .fd = -1};

	lines_serve(commands, ARRAY_SIZE(commands), &runtime);
	return EXIT_SUCCESS;
}
