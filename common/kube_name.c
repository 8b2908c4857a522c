/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names by c-ares.
 *
 * The C library resolves names by blocking, libcurl by doing that in a thread. This process may
 * make no thread, and its loop must not block. Resolving once at the start would do neither,
 * but then the name server would have to be up before us, and a server that moves would be lost
 * until a restart: a name is given to a server so that it can move. c-ares speaks the protocol
 * itself, on sockets that the loop watches.
 *
 * Each question has a channel of its own, so that it is asked by what resolv.conf says then.
 *
 * c-ares says that it lets go of a socket before it closes it; see curl_uv.c for where it is
 * not so. Its answers are told from within its functions, which must not be destroyed there: so
 * an answer is kept, and told when they have returned.
 */
#include "common/kube_name.h"

#include <arpa/inet.h>
#include <ares.h>
#include <assert.h>
#include <netdb.h>
#include <stdbool.h>
#include <utlist.h>

#include "common/util.h"

/* The first question to each server waits for so long, the second twice that. */
#define ANSWER_MS     2000
#define TRIES         2
/* How often c-ares looks for what has had no answer, while there is such. */
#define LOOK_MS       250
/* More addresses than these are not tried within any call's time. */
#define MAX_ADDRESSES 8

struct name_socket {
	struct kube_name *owner;
	int fd;
	uv_poll_t poll;
	struct name_socket *prev, *next;
};

struct kube_name {
	uv_loop_t *loop;
	char *host;
	ares_channel channel;
	bool has_channel;
	uv_timer_t timer;
	struct name_socket *sockets;
	bool answered, told;
	struct buf addresses;
	struct err err;
	kube_name_cb *cb;
	void *ctx;
};

static uv_handle_t *as_handle(void *handle)
{
	return handle;
}

/* --- the answer --------------------------------------------------------------------------- */

static void put_address(struct buf *to, const struct sockaddr *address)
{
	char text[INET6_ADDRSTRLEN];
	const void *bytes = NULL;

	if (address->sa_family == AF_INET)
		bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
	else if (address->sa_family == AF_INET6)
		bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	if (bytes && inet_ntop(address->sa_family, bytes, text, sizeof(text)))
		buf_printf(to, "%s%s", to->len ? "," : "", text);
}

static void on_answer(void *ctx, int status, int timeouts UNUSED, struct ares_addrinfo *answer)
{
	struct kube_name *name = ctx;
	size_t n = 0;

	/* ours is the end of the channel, not the host's */
	if (status == ARES_EDESTRUCTION)
		return;
	name->answered = true;
	if (status == ARES_SUCCESS)
		for (const struct ares_addrinfo_node *node = answer->nodes;
			node && n < MAX_ADDRESSES; node = node->ai_next, n++)
			put_address(&name->addresses, node->ai_addr);
	if (answer)
		ares_freeaddrinfo(answer);
	if (name->addresses.len == 0)
		(void)err_set(&name->err, ERR_UNAVAILABLE, "the address of %s: %s", name->host,
			status == ARES_SUCCESS ? "it has none" : ares_strerror(status));
}

/* Nothing of ours may be touched afterwards. */
static void tell(struct kube_name *name)
{
	if (!name->answered || name->told)
		return;
	name->told = true;
	(void)uv_timer_stop(&name->timer);
	name->cb(name->ctx, name->addresses.len ? name->addresses.data : NULL, &name->err);
}

/* --- the loop ----------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events)
{
	const struct name_socket *s = poll->data;
	struct kube_name *name = s->owner;
	bool readable = status < 0 || (events & UV_READABLE);
	bool writable = status < 0 || (events & UV_WRITABLE);

	ares_process_fd(name->channel, readable ? s->fd : ARES_SOCKET_BAD,
		writable ? s->fd : ARES_SOCKET_BAD);
	tell(name);
}

static void on_timer(uv_timer_t *timer)
{
	struct kube_name *name = timer->data;

	ares_process_fd(name->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	tell(name);
}

static void socket_freed(uv_handle_t *handle)
{
	free(handle->data);
}

static void socket_drop(struct name_socket *s)
{
	DL_DELETE(s->owner->sockets, s);
	(void)uv_poll_stop(&s->poll);
	uv_close(as_handle(&s->poll), socket_freed);
}

static struct name_socket *socket_add(struct kube_name *name, int fd)
{
	struct name_socket *s = xcalloc(1, sizeof(*s));

	*s = (struct name_socket){.owner = name, .fd = fd};
	s->poll.data = s;
	if (uv_poll_init(name->loop, &s->poll, fd) < 0) {
		free(s);
		return NULL;
	}
	DL_APPEND(name->sockets, s);
	return s;
}

static void on_socket(void *ctx, ares_socket_t fd, int readable, int writable)
{
	struct kube_name *name = ctx;
	struct name_socket *s;

	for (s = name->sockets; s; s = s->next)
		if (s->fd == fd)
			break;
	if (!readable && !writable) {
		if (s)
			socket_drop(s);
		return;
	}
	if (!s)
		s = socket_add(name, fd);
	/* not watched it has no answer in time, which is told */
	if (s)
		(void)uv_poll_start(&s->poll,
			(readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_poll);
}

/* --- the whole ---------------------------------------------------------------------------- */

static void ask(struct kube_name *name)
{
	struct ares_options options = {
		.timeout = ANSWER_MS,
		.tries = TRIES,
		.sock_state_cb = on_socket,
		.sock_state_cb_data = name,
	};
	const struct ares_addrinfo_hints hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT};
	int status = ares_init_options(&name->channel, &options,
		ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);

	if (status != ARES_SUCCESS) {
		on_answer(name, status, 0, NULL);
		return;
	}
	name->has_channel = true;
	ares_getaddrinfo(name->channel, name->host, NULL, &hints, on_answer, name);
}

/* Files are read when the loop turns, so that an answer out of them comes later, too. */
static void on_begin(uv_timer_t *timer)
{
	struct kube_name *name = timer->data;

	ask(name);
	(void)uv_timer_start(&name->timer, on_timer, LOOK_MS, LOOK_MS);
	tell(name);
}

struct kube_name *kube_name_new(uv_loop_t *loop, const char *host, kube_name_cb *cb, void *ctx)
{
	struct kube_name *name = xcalloc(1, sizeof(*name));

	*name = (struct kube_name){
		.loop = loop, .host = xstrdup(host), .cb = cb, .ctx = ctx, .err = ERR_INIT};
	name->timer.data = name;
	(void)uv_timer_init(loop, &name->timer);
	(void)uv_timer_start(&name->timer, on_begin, 0, 0);
	return name;
}

static void name_freed(uv_handle_t *handle)
{
	struct kube_name *name = handle->data;

	free(name->host);
	buf_fini(&name->addresses);
	free(name);
}

void kube_name_free(struct kube_name *name)
{
	if (!name)
		return;
	name->told = true;
	if (name->has_channel)
		ares_destroy(name->channel);
	while (name->sockets)
		socket_drop(name->sockets);
	uv_close(as_handle(&name->timer), name_freed);
}
