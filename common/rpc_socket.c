/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How connections come about: a listening socket that checks who connects, and a client that
 * keeps one connection alive.
 *
 * Who may do what is decided three times: by the socket's mode and group, by the peer's
 * credentials on accept, and by the method table of the socket. A refusal is logged with the
 * credentials.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/rpc.h"
#include "common/rpc_internal.h"
#include "common/util.h"

#define BACKLOG        64
#define ACCEPT_PAUSE   100 /* ms without accepting when descriptors run out */
#define RETRY_FIRST_MS 5 /* at a start all daemons come within some milliseconds */
#define RETRY_LAST_MS  1000
/* A connection that lived as long as this was of use, and the pauses after it begin anew. One that
 * ends earlier, whatever for, is not tried at once again: what ended it is likely to end the
 * next one, too. */
#define USEFUL_MS 5000

int rpc_peer_of(int fd, struct rpc_peer *ret, struct err *err)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return err_errno(err, errno, "who is at the other end");
	*ret = (struct rpc_peer){.pid = cred.pid, .uid = cred.uid, .gid = cred.gid};
	return 0;
}

bool rpc_peer_allowed(const struct rpc_listen *def, const struct rpc_peer *peer)
{
	if (def->any_uid || peer->uid == 0 || peer->uid == getuid())
		return true;
	for (size_t i = 0; i < def->n_uids; i++)
		if (def->uids[i] == peer->uid)
			return true;
	return false;
}

static int address_of(const char *path, struct sockaddr_un *ret, struct err *err)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(ret->sun_path))
		return err_set(err, ERR_INVALID,
			"%s: a socket's path may have at most %zu bytes", path,
			sizeof(ret->sun_path) - 1);
	memcpy(ret->sun_path, path, strlen(path));
	return 0;
}

/* --- listening ---------------------------------------------------------------------------- */

static int remove_stale(const char *path, struct err *err)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "%s", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(err, ERR_CONFLICT, "%s: is there and is not a socket", path);
	if (unlink(path) < 0)
		return err_errno(err, errno, "%s: removing the old socket", path);
	return 0;
}

int rpc_bind(const char *path, gid_t group, struct err *err)
{
	cleanup_close int fd = -1;
	struct sockaddr_un address;
	mode_t mask;
	int r;

	if (address_of(path, &address, err) < 0 || remove_stale(path, err) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(err, errno, "%s: making a socket", path);
	mask = umask(0177); /* nobody else gets in before the group is right */
	r = bind(fd, (const struct sockaddr *)&address, sizeof(address));
	(void)umask(mask);
	if (r < 0)
		return err_errno(err, errno, "%s: binding", path);
	if (lchown(path, (uid_t)-1, group) < 0)
		return err_errno(
			err, errno, "%s: giving it to group %u", path, (unsigned)group);
	if (chmod(path, 0660) < 0)
		return err_errno(err, errno, "%s: setting its mode", path);
	if (listen(fd, BACKLOG) < 0)
		return err_errno(err, errno, "%s: listening", path);
	return take_fd(&fd);
}

struct server_conn {
	struct server_conn *prev, *next;
	struct rpc_conn *conn;
	struct rpc_server *server;
};

struct rpc_server {
	uv_loop_t *loop;
	uv_poll_t poll;
	uv_timer_t pause;
	int open_handles;
	int fd;
	const struct rpc_listen *def;
	void *ctx;
	struct server_conn *conns;
	size_t n_conns;
};

static void server_conn_free(struct server_conn *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		c->server->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->server->n_conns--;
	free(c);
}

static void on_conn_end(void *owner, struct rpc_conn *conn UNUSED)
{
	server_conn_free(owner);
}

static void refuse(const struct rpc_server *s, const struct rpc_peer *peer, const char *why)
{
	char pid[16], uid[16];

	(void)snprintf(pid, sizeof(pid), "%d", (int)peer->pid);
	(void)snprintf(uid, sizeof(uid), "%u", (unsigned)peer->uid);
	LOG(WARN,
		FIELDS(F("socket", s->def->name), F("pid", pid), F("uid", uid), F("err", why)),
		"refusing a connection");
}

static void admit(struct rpc_server *s, int *fd)
{
	struct server_conn *c;
	struct rpc_peer peer = {0};
	struct err err;
	char uid[16];

	if (rpc_peer_of(*fd, &peer, &err) < 0)
		return;
	if (!rpc_peer_allowed(s->def, &peer)) {
		refuse(s, &peer, "its user is not allowed on this socket");
		return;
	}
	if (s->n_conns >= s->def->max_conns) {
		refuse(s, &peer, "the socket has all the connections that it may have");
		return;
	}
	c = xcalloc(1, sizeof(*c));
	c->server = s;
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	s->conns = c;
	s->n_conns++;
	c->conn = rpc_conn_new(s->loop, fd, s->def, s->ctx, on_conn_end, c);
	(void)snprintf(uid, sizeof(uid), "%u", (unsigned)peer.uid);
	LOG(DEBUG,
		FIELDS(F("socket", s->def->name), F("peer", rpc_conn_name(c->conn)),
			F("uid", uid)),
		"connected");
	if (s->def->events.on_open)
		s->def->events.on_open(s->ctx, c->conn);
}

static void on_acceptable(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
	struct rpc_server *s = timer->data;

	(void)uv_poll_start(&s->poll, UV_READABLE, on_acceptable);
}

static void on_acceptable(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
	struct rpc_server *s = poll->data;

	for (;;) {
		cleanup_close int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			admit(s, &fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno == EAGAIN)
			return;
		/* out of descriptors or memory: the connection waits in the backlog, and
		 * polling on would only spin */
		LOG(ERROR, FIELDS(F("socket", s->def->name), F("err", strerror(errno))),
			"cannot accept a connection, pausing");
		(void)uv_poll_stop(&s->poll);
		(void)uv_timer_start(&s->pause, on_pause_over, ACCEPT_PAUSE, 0);
		return;
	}
}

struct rpc_server *rpc_server_new(
	uv_loop_t *loop, int *fd, const struct rpc_listen *def, void *ctx)
{
	struct rpc_server *s = xcalloc(1, sizeof(*s));

	*s = (struct rpc_server){
		.loop = loop, .fd = take_fd(fd), .def = def, .ctx = ctx, .open_handles = 2};
	/* an inherited one may be blocking */
	(void)fcntl(s->fd, F_SETFL, fcntl(s->fd, F_GETFL) | O_NONBLOCK);
	(void)uv_poll_init(loop, &s->poll, s->fd);
	(void)uv_timer_init(loop, &s->pause);
	s->poll.data = s->pause.data = s;
	(void)uv_poll_start(&s->poll, UV_READABLE, on_acceptable);
	return s;
}

static void server_handle_closed(uv_handle_t *handle)
{
	struct rpc_server *s = handle->data;

	if (--s->open_handles == 0)
		free(s);
}

void rpc_server_free(struct rpc_server *s)
{
	if (!s)
		return;
	while (s->conns) {
		struct rpc_conn *conn = s->conns->conn;

		server_conn_free(s->conns);
		rpc_conn_free(conn);
	}
	(void)uv_poll_stop(&s->poll);
	close_fd(&s->fd);
	uv_close((uv_handle_t *)&s->poll, server_handle_closed);
	uv_close((uv_handle_t *)&s->pause, server_handle_closed);
}

/* --- connecting --------------------------------------------------------------------------- */

struct rpc_client {
	uv_loop_t *loop;
	uv_timer_t retry;
	char *path;
	const struct rpc_listen *def;
	void *ctx;
	struct rpc_conn *conn;
	uint64_t retry_ms, connected_ms;
	bool told; /* that there is nobody: said once, not at every try */
};

static int client_connect(const char *path, const struct rpc_listen *def, struct err *err)
{
	cleanup_close int fd = -1;
	struct sockaddr_un address;
	struct rpc_peer peer = {0};

	if (address_of(path, &address, err) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(err, errno, "making a socket");
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return err_errno(err, errno, "%s", path);
	if (rpc_peer_of(fd, &peer, err) < 0)
		return -1;
	if (!rpc_peer_allowed(def, &peer))
		return err_set(err, ERR_CONFLICT, "%s: is served by uid %u, who is not trusted",
			path, (unsigned)peer.uid);
	return take_fd(&fd);
}

static void on_retry(uv_timer_t *timer);

static void retry_later(struct rpc_client *c)
{
	(void)uv_timer_start(&c->retry, on_retry, c->retry_ms, 0);
	c->retry_ms = MIN(c->retry_ms * 2, RETRY_LAST_MS);
}

static void on_client_end(void *owner, struct rpc_conn *conn UNUSED)
{
	struct rpc_client *c = owner;

	c->conn = NULL;
	if (uv_now(c->loop) - c->connected_ms >= USEFUL_MS)
		c->retry_ms = RETRY_FIRST_MS;
	retry_later(c);
}

static void on_retry(uv_timer_t *timer)
{
	struct rpc_client *c = timer->data;
	struct err err = ERR_INIT;
	int fd = client_connect(c->path, c->def, &err);

	if (fd < 0) {
		if (!c->told)
			LOG(WARN, FIELDS(F("err", err.message)),
				"cannot reach %s; trying until it is there", c->def->name);
		c->told = true;
		retry_later(c);
		return;
	}
	c->told = false;
	c->connected_ms = uv_now(c->loop);
	c->conn = rpc_conn_new(c->loop, &fd, c->def, c->ctx, on_client_end, c);
	rpc_conn_set_name(c->conn, c->def->name);
	if (c->def->events.on_open)
		c->def->events.on_open(c->ctx, c->conn);
}

struct rpc_client *rpc_client_new(
	uv_loop_t *loop, const char *path, const struct rpc_listen *def, void *ctx)
{
	struct rpc_client *c = xcalloc(1, sizeof(*c));

	*c = (struct rpc_client){.loop = loop,
		.path = xstrdup(path),
		.def = def,
		.ctx = ctx,
		.retry_ms = RETRY_FIRST_MS};
	(void)uv_timer_init(loop, &c->retry);
	c->retry.data = c;
	(void)uv_timer_start(&c->retry, on_retry, 0, 0);
	return c;
}

struct rpc_conn *rpc_client_conn(const struct rpc_client *c)
{
	return c->conn;
}

static void client_closed(uv_handle_t *handle)
{
	struct rpc_client *c = handle->data;

	free(c->path);
	free(c);
}

void rpc_client_free(struct rpc_client *c)
{
	if (!c)
		return;
	if (c->conn)
		rpc_conn_free(c->conn);
	c->conn = NULL;
	uv_close((uv_handle_t *)&c->retry, client_closed);
}

static void on_single_end(void *owner UNUSED, struct rpc_conn *conn UNUSED)
{
}

struct rpc_conn *rpc_connect(uv_loop_t *loop, const char *path, const struct rpc_listen *def,
	void *ctx, struct err *err)
{
	int fd = client_connect(path, def, err);
	struct rpc_conn *conn;

	if (fd < 0)
		return NULL;
	conn = rpc_conn_new(loop, &fd, def, ctx, on_single_end, NULL);
	rpc_conn_set_name(conn, def->name);
	return conn;
}

void rpc_disconnect(struct rpc_conn *conn)
{
	rpc_conn_free(conn);
}
