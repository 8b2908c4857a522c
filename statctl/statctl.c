/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection that is used and given up.
 *
 * Daemons keep trying until statd is there; a person at a terminal wants to know at once that it is
 * not, and why. So the connection is made here, in one attempt. What is said on it is the same RPC
 * as everywhere, and a call runs the loop until its answer came.
 */
#include "statctl/statctl.h"

#include <errno.h>
#include <grp.h>
#include <string.h>
#include <sys/stat.h>

#include "common/util.h"

static void on_table_event(
	void *ctx, struct rpc_call *call UNUSED, const void *request, int *fds UNUSED)
{
	const struct statctl *s = ctx;

	s->watcher->event(request, s->watcher->ctx);
}

static void on_close(void *ctx, struct rpc_conn *conn UNUSED, const char *reason)
{
	struct statctl *s = ctx;

	s->conn = NULL;
	(void)snprintf(s->lost, sizeof(s->lost), "%s", reason);
}

static const struct rpc_service services[] = {
	{API_TABLE_EVENT, on_table_event},
};

/* Who serves is up to those who may put a socket there; it only is read from. */
static const struct rpc_listen def = {
	.name = "statd",
	.services = services,
	.n_services = ARRAY_SIZE(services),
	.any_uid = true,
	.events = {.on_close = on_close},
};

/* --- connecting ------------------------------------------------------------------------------- */

/* The caller's. */
static char *advice_for(int sys, const char *path)
{
	const struct group *group;
	struct stat st;

	if (sys == ENOENT || sys == ECONNREFUSED)
		return xstrdup(
			" Is statd running? ('systemctl status statd', or see statd(8)); "
			"--runtime-dir says where its sockets are.");
	if (sys != EACCES)
		return xstrdup("");
	if (stat(path, &st) < 0)
		return xstrdup(" This user may not even look into the directory.");
	group = getgrgid(st.st_gid);
	if (group)
		return xasprintf(" Only root and members of group %s may ask.", group->gr_name);
	return xasprintf(" Only root and members of group %u may ask.", (unsigned)st.st_gid);
}

static int explain(const char *path, int sys, struct err *err)
{
	cleanup_free char *advice = advice_for(sys, path);

	return err_set(err, err_kind_of_errno(sys), "cannot reach statd at %s: %s.%s", path,
		strerror(sys), advice);
}

int statctl_connect(struct statctl *s, const char *runtime_dir, struct err *err)
{
	cleanup_free char *path = xasprintf("%s/query.sock", runtime_dir);
	struct err why = ERR_INIT;

	s->conn = rpc_connect(&s->loop, path, &def, s, &why);
	if (s->conn)
		return 0;
	if (why.sys)
		return explain(path, why.sys, err);
	*err = why;
	return err_wrap(err, "cannot reach statd");
}

void statctl_close(struct statctl *s)
{
	if (s->conn)
		rpc_disconnect(s->conn);
	s->conn = NULL;
	(void)uv_run(&s->loop, UV_RUN_DEFAULT);
}

/* --- talking ---------------------------------------------------------------------------------- */

struct answer {
	const struct rec_desc *desc;
	void *result;
	struct err *err;
	bool came, failed;
};

static void on_answer(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	struct answer *a = ctx;

	a->came = true;
	a->failed = err != NULL;
	if (err)
		*a->err = *err;
	else
		rec_copy(a->desc, a->result, result);
}

int statctl_call(struct statctl *s, enum api_method method, const void *request, void *result,
	struct err *err)
{
	struct answer a = {
		.desc = api_method_info(method)->result, .result = result, .err = err};

	(void)rpc_start(&s->loop, s->conn, method, request, NULL, 0, on_answer, &a);
	while (!a.came)
		(void)uv_run(&s->loop, UV_RUN_ONCE);
	return a.failed ? -1 : 0;
}

struct watch {
	const struct watcher *watcher;
	struct err *err;
	bool refused;
};

/* Here and not when the call is over: events may be behind it in what was read. */
static void on_watching(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	struct watch *w = ctx;

	w->refused = err != NULL;
	if (err)
		*w->err = *err;
	else
		w->watcher->rows(result, w->watcher->ctx);
}

int statctl_watch(struct statctl *s, const struct table_list *request,
	const struct watcher *watcher, struct err *err)
{
	struct watch w = {.watcher = watcher, .err = err};

	s->watcher = watcher;
	(void)rpc_start(&s->loop, s->conn, API_TABLE_WATCH, request, NULL, 0, on_watching, &w);
	while (s->conn && !w.refused)
		(void)uv_run(&s->loop, UV_RUN_ONCE);
	if (w.refused)
		return -1;
	return err_set(err, ERR_UNAVAILABLE, "statd went away: %s", s->lost);
}
