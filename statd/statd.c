/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root: what statd is made of, in the order in which it comes and goes.
 *
 *	open:   configuration's file, directory of claims, way to the API server ─▶ sockets bound
 *	start:  queries served ─▶ configured ─▶ allocations restored ─▶ all sockets served
 *		─▶ managers publish ─▶ ready ─▶ fronts register
 *	stop:   no new work ─▶ flows end ─▶ everything closed
 */
#include "statd/statd.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "statd/flows.h"
#include "statd/query.h"
#include "statd/store_kube.h"

#define RUNTIME_DIR_MODE 0755

static const char *const socket_names[SOCKET_MAX] = {
	"manager.sock", "front.sock", "query.sock"};

struct rpc_conn *statd_manager(const struct statd *s, enum manager_type manager)
{
	if (manager == MANAGER_INVALID)
		return NULL;
	return peer_conn(&s->peers, (enum peer_role)manager);
}

static void on_table_changed(void *ctx, const struct table_commit *commit)
{
	struct statd *s = ctx;

	query_tell(s, commit);
	publisher_changed(s, commit);
}

/* --- ready -------------------------------------------------------------------------------- */

void statd_check_ready(struct statd *s)
{
	struct empty none = {0};

	if (s->ready || !table_is_initialized(s->tables.devices) ||
		!table_is_initialized(s->tables.allocations) || !audit_complete(s))
		return;
	s->ready = true;
	LOG(INFO, NO_FIELDS, "device and allocation tables initialized");
	daemon_status("ready");
	rpc_notify(peer_conn(&s->peers, PEER_DRAPLUGIND), API_FRONT_READY, &none);
	rpc_notify(peer_conn(&s->peers, PEER_NRIHOOKD), API_FRONT_READY, &none);
	publisher_wake(s);
}

static void serve(struct statd *s, enum statd_socket which)
{
	s->servers[which] =
		rpc_server_new(s->loop, &s->socket_fds[which], &statd_listen[which], s);
}

void statd_restored(struct statd *s)
{
	if (s->stopping)
		return;
	free(s->waiting);
	s->waiting = NULL;
	serve(s, SOCKET_MANAGER);
	serve(s, SOCKET_FRONT);
	daemon_status("waiting for the managers");
	statd_check_ready(s);
}

void statd_wait_for(struct statd *s, const char *fmt, ...)
{
	cleanup_buf struct buf text = BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	free(s->waiting);
	s->waiting = buf_take(&text);
	daemon_status("waiting for %s", s->waiting);
}

/* --- opening ------------------------------------------------------------------------------ */

static int open_socket(
	struct statd *s, enum statd_socket which, const char *group, struct err *err)
{
	cleanup_free char *path =
		xasprintf("%s/%s", s->options->runtime_dir, socket_names[which]);
	gid_t gid = (gid_t)-1;

	s->socket_fds[which] = daemon_inherited_fd(socket_names[which]);
	if (s->socket_fds[which] >= 0)
		return 0;
	if (group && group_parse(group, &gid, err) < 0)
		return -1;
	s->socket_fds[which] = rpc_bind(path, gid, err);
	return s->socket_fds[which] < 0 ? -1 : 0;
}

static int open_sockets(struct statd *s, struct err *err)
{
	if (mkdir(s->options->runtime_dir, RUNTIME_DIR_MODE) == 0)
		(void)chmod(s->options->runtime_dir, RUNTIME_DIR_MODE); /* whatever the umask */
	else if (errno != EEXIST)
		return err_errno(err, errno, "runtime directory %s", s->options->runtime_dir);
	if (open_socket(s, SOCKET_MANAGER, s->options->manager_group, err) < 0 ||
		open_socket(s, SOCKET_FRONT, s->options->front_group, err) < 0)
		return -1;
	return open_socket(s, SOCKET_QUERY, s->options->query_group, err);
}

static void expect_peers(struct statd *s)
{
	for (int m = 0; m < MANAGER_TYPE_MAX; m++) {
		if (!config_enabled(&s->config, (enum manager_type)m))
			continue;
		table_expect(s->tables.devices, schema_initializer((enum manager_type)m));
		peer_expect(&s->peers, (enum peer_role)m);
	}
	for (int r = PEER_NETNSD; r < PEER_ROLE_MAX; r++)
		peer_expect(&s->peers, (enum peer_role)r);
}

/* For those who may connect to front.sock: nrihookd looks for its pods there. */
static int open_records(struct statd *s, const struct identity *who, struct err *err)
{
	const struct statd_options *o = s->options;
	cleanup_free char *path = o->state_dir ? xstrdup(o->state_dir)
					       : xasprintf("%s/state", o->runtime_dir);
	gid_t reader = 0;

	if (o->front_group && group_parse(o->front_group, &reader, err) < 0)
		return -1;
	return records_open(&s->records, path, who, reader, err);
}

int statd_open(struct statd *s, uv_loop_t *loop, const struct statd_options *options,
	const struct identity *who, struct err *err)
{
	*s = (struct statd){.loop = loop, .options = options, .started_ms = wall_ms()};
	for (int i = 0; i < SOCKET_MAX; i++)
		s->socket_fds[i] = -1;
	if (options->config &&
		config_load(options->config, options->node_name, &s->config, err) < 0)
		return err_wrap(err, "configuration");
	if (cluster_open(s, err) < 0)
		return -1;
	if (options->claims_dir && !(s->store = store_dir_new(loop, options->claims_dir, err)))
		return -1;
	tables_init(&s->tables);
	table_expect(s->tables.allocations, INITIALIZER_RESTORE);
	peers_init(&s->peers);
	if (open_sockets(s, err) < 0)
		return -1;
	return open_records(s, who, err);
}

/* --- configured --------------------------------------------------------------------------- */

static int open_sink(struct statd *s, struct err *err)
{
	const char *driver = s->config.spec.driver_name, *node = s->config.node_name;

	if (s->options->claims_dir)
		s->sink = slice_sink_dir_new(
			s->loop, s->options->claims_dir, &s->tables, driver, node, err);
	else
		s->sink = slice_sink_kube_new(s->loop, s->cluster.kube, &s->tables, driver,
			node, s->cluster.node_uid);
	return s->sink ? 0 : -1;
}

void statd_configured(struct statd *s)
{
	struct err err;

	expect_peers(s);
	if (!s->store)
		s->store = store_kube_new(s->loop, s->cluster.kube, s->config.node_name);
	s->store->driver_name = s->config.spec.driver_name;
	if (open_sink(s, &err) < 0) {
		LOG(ERROR, FIELDS(F("err", err.message)), "cannot publish ResourceSlices");
		daemon_fail(&s->daemon);
		return;
	}
	s->configured = true;
	statd_wait_for(s, "what was prepared before, which is being read from the store");
	restore_begin(s);
}

/* --- starting and stopping ---------------------------------------------------------------- */

void statd_start(struct statd *s)
{
	s->locks = lockset_new(s->loop);
	(void)uv_timer_init(s->loop, &s->restore_retry);
	s->restore_retry.data = s;
	status_queue_init(&s->status, s);
	publisher_init(s);
	s->watches[0] = table_watch(s->tables.devices, on_table_changed, s);
	s->watches[1] = table_watch(s->tables.allocations, on_table_changed, s);
	serve(s, SOCKET_QUERY);
	daemon_ready(&s->daemon);
	cluster_begin(s);
}

static void close_all(struct statd *s)
{
	table_unwatch(s->watches[0]);
	table_unwatch(s->watches[1]);
	for (int i = 0; i < SOCKET_MAX; i++) {
		rpc_server_free(s->servers[i]);
		s->servers[i] = NULL;
		close_fd(&s->socket_fds[i]);
	}
	lockset_free(s->locks);
	s->locks = NULL;
	uv_close((uv_handle_t *)&s->restore_retry, NULL);
	release_close(s);
	status_queue_close(&s->status);
	publisher_close(s);
	store_free(s->store);
	s->store = NULL;
	slice_sink_free(s->sink);
	s->sink = NULL;
	cluster_close(s);
}

void statd_job_begin(struct statd *s)
{
	s->n_jobs++;
}

void statd_job_end(struct statd *s)
{
	s->n_jobs--;
	if (s->stopping && s->n_jobs == 0)
		close_all(s);
}

void statd_stop(void *ctx)
{
	struct statd *s = ctx;

	s->stopping = true;
	(void)uv_timer_stop(&s->restore_retry);
	(void)uv_timer_stop(&s->cluster.retry);
	if (s->n_jobs == 0)
		close_all(s);
}

void statd_fini(struct statd *s)
{
	query_forget_all(s);
	sandbox_drop_all(&s->sandboxes);
	status_queue_fini(&s->status);
	records_close(&s->records);
	strmap_fini(&s->unprepared);
	strlist_fini(&s->broken);
	strmap_fini(&s->broken_devices);
	strlist_fini(&s->from_status);
	strlist_fini(&s->late);
	strlist_fini(&s->live);
	free(s->waiting);
	cluster_fini(&s->cluster);
	peers_fini(&s->peers);
	tables_fini(&s->tables);
	config_fini(&s->config);
}
