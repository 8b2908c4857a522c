/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl on libuv: one poll handle for each of curl's sockets, one timer for all that it waits
 * for.
 *
 * Two things are easily done wrong here. curl closes a socket before it says that it need not
 * be watched any more, and by then its number may be another file's: so it is we who close
 * curl's sockets, after their poll handle has let go. And an error of poll() is curl's to hear
 * of: it finds out what is wrong by reading.
 *
 * curl must not be called from its own callbacks. Those here only remember what it wants; what
 * its user does goes on in progress(), when curl has returned.
 */
#include "common/curl_uv.h"

#include <assert.h>
#include <unistd.h>
#include <utlist.h>

#include "common/util.h"

struct curl_socket {
	struct curl_uv *owner;
	int fd;
	uv_poll_t poll;
	struct curl_socket *prev, *next;
};

struct curl_uv {
	uv_loop_t *loop;
	CURLM *multi;
	uv_timer_t timer;
	struct curl_socket *sockets;
	void (*progress)(void *ctx);
	void *ctx;
};

static uv_handle_t *as_handle(void *handle)
{
	return handle;
}

/* What fails in these calls is a slip of ours, or memory. */
static void must(CURLMcode code)
{
	assert(code == CURLM_OK);
	(void)code;
}

/* --- sockets ------------------------------------------------------------------------------ */

static void on_poll(uv_poll_t *poll, int status, int events)
{
	const struct curl_socket *s = poll->data;
	struct curl_uv *c = s->owner;
	int flags = 0, running;

	if (status < 0)
		flags |= CURL_CSELECT_ERR;
	if (events & UV_READABLE)
		flags |= CURL_CSELECT_IN;
	if (events & UV_WRITABLE)
		flags |= CURL_CSELECT_OUT;
	must(curl_multi_socket_action(c->multi, s->fd, flags, &running));
	c->progress(c->ctx);
}

static void socket_freed(uv_handle_t *handle)
{
	free(handle->data);
}

static void socket_drop(struct curl_socket *s)
{
	DL_DELETE(s->owner->sockets, s);
	(void)uv_poll_stop(&s->poll);
	uv_close(as_handle(&s->poll), socket_freed);
}

static struct curl_socket *socket_find(const struct curl_uv *c, int fd)
{
	struct curl_socket *s;

	for (s = c->sockets; s; s = s->next)
		if (s->fd == fd)
			return s;
	return NULL;
}

static struct curl_socket *socket_add(struct curl_uv *c, int fd)
{
	struct curl_socket *s = xcalloc(1, sizeof(*s));

	*s = (struct curl_socket){.owner = c, .fd = fd};
	s->poll.data = s;
	/* sets O_NONBLOCK, which curl has done: nothing can fail but a wrong descriptor */
	if (uv_poll_init(c->loop, &s->poll, fd) < 0) {
		free(s);
		return NULL;
	}
	DL_APPEND(c->sockets, s);
	return s;
}

static int on_curl_socket(
	CURL *easy UNUSED, int fd, int what, void *ctx, void *of_socket UNUSED)
{
	struct curl_uv *c = ctx;
	struct curl_socket *s = socket_find(c, fd);

	if (what == CURL_POLL_REMOVE) {
		if (s)
			socket_drop(s);
		return 0;
	}
	if (!s)
		s = socket_add(c, fd);
	if (!s)
		return -1;
	return uv_poll_start(&s->poll,
		(what & CURL_POLL_IN ? UV_READABLE : 0) |
			(what & CURL_POLL_OUT ? UV_WRITABLE : 0),
		on_poll);
}

static int on_curl_close(void *ctx, curl_socket_t fd)
{
	struct curl_socket *s = socket_find(ctx, fd);

	if (s)
		socket_drop(s);
	return close(fd);
}

/* --- time --------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
	struct curl_uv *c = timer->data;
	int running;

	must(curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running));
	c->progress(c->ctx);
}

static int on_curl_timer(CURLM *multi UNUSED, long timeout_ms, void *ctx)
{
	struct curl_uv *c = ctx;

	if (timeout_ms < 0)
		return uv_timer_stop(&c->timer);
	/* the loop's idea of now is that of its last round */
	uv_update_time(c->loop);
	return uv_timer_start(&c->timer, on_timer, (uint64_t)timeout_ms, 0);
}

/* --- the whole ---------------------------------------------------------------------------- */

CURLM *curl_uv_multi(const struct curl_uv *c)
{
	return c->multi;
}

void curl_uv_adopt(struct curl_uv *c, CURL *easy)
{
	(void)curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_curl_close);
	(void)curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, c);
}

struct curl_uv *curl_uv_new(uv_loop_t *loop, void (*progress)(void *ctx), void *ctx)
{
	struct curl_uv *c = xcalloc(1, sizeof(*c));

	*c = (struct curl_uv){.loop = loop, .progress = progress, .ctx = ctx};
	c->multi = curl_multi_init();
	if (!c->multi)
		abort(); /* out of memory */
	c->timer.data = c;
	(void)uv_timer_init(loop, &c->timer);
	must(curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket));
	must(curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c));
	must(curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer));
	must(curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c));
	return c;
}

static void curl_uv_freed(uv_handle_t *handle)
{
	free(handle->data);
}

void curl_uv_free(struct curl_uv *c)
{
	/* closes the connections, through our callbacks */
	must(curl_multi_cleanup(c->multi));
	while (c->sockets)
		socket_drop(c->sockets);
	uv_close(as_handle(&c->timer), curl_uv_freed);
}
