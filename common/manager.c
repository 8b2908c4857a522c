/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host of a device manager.
 *
 * One connection to statd and one phase:
 *
 *	OFFLINE --connected--> GREETED --hello answered, configured--> CONFIGURED
 *	        --restored, discovered--> SERVING
 *
 * and from everywhere back to OFFLINE when the connection ends. What fails on the way leads to
 * FAILED: calls of statd's are then answered with the reason, which so reaches the operator
 * where he looks first, and all of it is tried anew as hello.h has it.
 *
 * statd's calls are carried out as they come, one at a time, each to its end: waiting for the
 * kernel is what this process is for. So a call may have waited behind others for longer than
 * its caller does; such a call is refused, since nobody would undo what it did.
 *
 * statd is not trusted with more than it needs: records were checked against their tables on
 * the way in, descriptors are checked for what they are here, and what a device's state means
 * is the manager's own to check.
 */
#include "common/manager.h"

#include <linux/netlink.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include "common/device_list.h"
#include "common/hash.h"
#include "common/hello.h"
#include "common/link_move.h"
#include "common/log.h"
#include "common/netns.h"
#include "common/rpc.h"

#define RETRY_MS 5000 /* a device that is missing may come */
#define QUIET_MS 300  /* devices come and go by the dozen: looked at when they are done */

enum phase {
	OFFLINE,
	GREETED,
	FAILED,
	CONFIGURED,
	SERVING,
};

struct manager_options {
	struct daemon_options base;
	const char *runtime_dir;
	const char *statd_user;
	const char *sysfs_root;
};

struct manager {
	const struct manager_ops *ops;
	void *ctx;
	uv_loop_t loop;
	struct daemon daemon;
	int own_netns;
	uid_t statd_uid;
	struct rpc_listen def;
	struct rpc_client *client;
	struct hello_retry hello; /* its problem is that of FAILED */
	uv_timer_t rediscover;
	uv_poll_t watch;

	enum phase phase;
	struct buf names;   /* of the inventory's devices, each with its NUL */
	size_t n_names;
	uint64_t published; /* hash of the last inventory */
	struct strlist left_out;    /* what the last inventory lacks: each is logged once */
	struct prepared *prepared;  /* NULL: the manager does not look into it */
};

/* --- failing and trying again ------------------------------------------------------------- */

static void fail(struct manager *m, const struct err *err)
{
	m->phase = FAILED;
	hello_retry_failed(&m->hello, m->client, "cannot serve", err);
}

/* What a call gets that comes when it cannot be served. */
static void not_ready(const struct manager *m, struct err *err)
{
	(void)err_set(err, ERR_UNAVAILABLE, "not ready: %s",
		m->phase == FAILED ? m->hello.problem.message
				   : "hello and device.restore come first");
}

/* --- hello, restore, inventory ------------------------------------------------------------ */

static void on_published(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct manager *m = ctx;

	if (m->phase != SERVING)
		return;
	if (err) {
		fail(m, err);
		return;
	}
	hello_retry_succeeded(&m->hello);
	LOG(INFO, NO_FIELDS, "serving %zu devices", m->n_names);
	daemon_status("serving %zu devices", m->n_names);
}

/* The inventory is statd's to keep; the names are enough here. */
static void keep_names(struct manager *m, const struct device_list *inventory)
{
	buf_fini(&m->names);
	m->n_names = inventory->devices.n;
	for (size_t i = 0; i < inventory->devices.n; i++) {
		const char *name = inventory->devices.v[i].name;

		buf_put(&m->names, name, strlen(name) + 1);
	}
}

static bool has_name(const struct manager *m, const char *name)
{
	for (size_t at = 0; at < m->names.len; at += strlen(m->names.data + at) + 1)
		if (strcmp(m->names.data + at, name) == 0)
			return true;
	return false;
}

static bool is_prepared(const void *ctx, const char *device)
{
	const struct manager *m = ctx;

	return m->prepared && prepared_state(m->prepared, device);
}

static void log_left_out(struct manager *m, struct strlist *left_out)
{
	for (size_t i = 0; i < left_out->n; i++)
		if (!strlist_has(&m->left_out, left_out->v[i]))
			LOG(ERROR, NO_FIELDS, "%s", left_out->v[i]);
	strlist_fini(&m->left_out);
	m->left_out = *left_out;
}

/* Such that statd takes it. Returns a hash of all of it. */
static uint64_t fit(struct manager *m, struct device_list *inventory)
{
	struct strlist left_out = {0};
	uint64_t hash = device_list_fit(inventory, is_prepared, m, &left_out);

	for (size_t i = 0; i < left_out.n; i++)
		strlist_add(&inventory->notes, left_out.v[i]);
	log_left_out(m, &left_out);
	device_list_fit_notes(inventory);
	for (size_t i = 0; i < inventory->notes.n; i++) {
		const char *note = inventory->notes.v[i];
		const uint64_t both[] = {hash, hash_bytes_64(note, strlen(note))};

		hash = hash_bytes_64(both, sizeof(both));
	}
	return hash;
}

static void publish(struct manager *m, const struct device_list *inventory, uint64_t hash)
{
	keep_names(m, inventory);
	m->published = hash;
	(void)rpc_start(&m->loop, rpc_client_conn(m->client), API_MANAGER_DEVICES, inventory,
		NULL, 0, on_published, m);
}

/* Links that have come back to the host by themselves. What statd is away for is reported when
 * it has reconnected. */
static void report_appeared(struct manager *m)
{
	struct strlist names = {0};

	if (!m->ops->take_appeared || m->phase != SERVING)
		return;
	m->ops->take_appeared(m->ctx, &names);
	for (size_t i = 0; i < names.n; i++) {
		const struct device_appeared params = {.name = names.v[i]};

		LOG(INFO, FIELDS(F("device", names.v[i])), "its link has appeared on the host");
		rpc_notify(
			rpc_client_conn(m->client), API_MANAGER_APPEARED, &params);
	}
	strlist_fini(&names);
}

static void on_rediscover(uv_timer_t *timer);

/* What statd is to know, and a hash of it. */
static int discover(
	struct manager *m, struct device_list *ret, uint64_t *ret_hash, struct err *err)
{
	const int rc = m->ops->discover(m->ctx, ret, err);

	/* it may have taken longer than the deadline of the call that follows */
	uv_update_time(&m->loop);
	if (rc < 0)
		return err_wrap(err, "discovering devices");
	if (rc > 0)
		(void)uv_timer_start(&m->rediscover, on_rediscover, RETRY_MS, 0);
	*ret_hash = fit(m, ret);
	return 0;
}

/* Devices may have changed: statd is told if they have. */
static void on_rediscover(uv_timer_t *timer)
{
	struct manager *m = timer->data;
	struct device_list inventory = {0};
	struct err err = ERR_INIT;
	uint64_t hash;

	if (m->phase != SERVING)
		return;
	if (discover(m, &inventory, &hash, &err) < 0)
		LOG(ERROR, FIELDS(F("err", err.message)), "inventory stays as it is");
	else if (hash != m->published)
		publish(m, &inventory, hash);
	rec_fini(&rec_device_list, &inventory);
	report_appeared(m);
}

static void on_watch(uv_poll_t *poll, int status, int events UNUSED)
{
	struct manager *m = poll->data;

	if (status < 0) {
		LOG(ERROR, FIELDS(F("err", uv_strerror(status))),
			"changes of devices are not seen any more");
		(void)uv_poll_stop(poll);
		return;
	}
	if (m->ops->woken(m->ctx))
		(void)uv_timer_start(&m->rediscover, on_rediscover, QUIET_MS, 0);
	report_appeared(m);
}

static void keep_prepared(
	struct manager *m, const struct device_alloc *a, const struct device *device)
{
	if (m->prepared)
		prepared_put(m->prepared, a, device);
}

static void restore_one(
	struct manager *m, const struct device_alloc *a, struct restore_verdict *ret)
{
	struct err err = ERR_INIT;

	ret->device = xcalloc(1, sizeof(*ret->device));
	if (m->ops->restore(m->ctx, a, ret->device, &err) == 0 &&
		device_check(ret->device, &err) == 0) {
		keep_prepared(m, a, ret->device);
		return;
	}
	rec_fini(&rec_device, ret->device);
	free(take_ptr(ret->device));
	ret->error = xstrdup(err.message);
	str_sanitize(ret->error);
}

static void on_restore(void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct alloc_list *list = request;
	struct restore_result result = {.verdicts.n = list->allocations.n};
	struct device_list inventory = {0};
	struct manager *m = ctx;
	struct err err = ERR_INIT;
	uint64_t hash;

	if (m->phase < CONFIGURED) {
		not_ready(m, &err);
		rpc_reply_err(call, &err);
		return;
	}
	if (m->prepared)
		prepared_clear(m->prepared);
	result.verdicts.v = xcalloc(result.verdicts.n, sizeof(*result.verdicts.v));
	for (size_t i = 0; i < list->allocations.n; i++)
		restore_one(m, &list->allocations.v[i], &result.verdicts.v[i]);
	/* first: discovering may take long, and restoring needs none of it */
	rpc_reply(call, &result, NULL);
	rec_fini(api_method_info(API_DEVICE_RESTORE)->result, &result);
	if (discover(m, &inventory, &hash, &err) < 0) {
		fail(m, &err);
	} else {
		m->phase = SERVING;
		publish(m, &inventory, hash);
		report_appeared(m);
	}
	rec_fini(&rec_device_list, &inventory);
	(void)malloc_trim(0); /* seldom, and most of what was used was for this */
}

static void on_hello(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct manager_hello_result *hello = result;
	struct manager *m = ctx;
	struct err own = ERR_INIT;

	if (m->phase != GREETED)
		return;
	if (err) {
		fail(m, err);
		return;
	}
	if (m->ops->configure(m->ctx, hello->config, &own) < 0) {
		(void)err_wrap(&own, "configuration");
		fail(m, &own);
		return;
	}
	m->phase = CONFIGURED;
}

static void on_open(void *ctx, struct rpc_conn *conn)
{
	struct manager *m = ctx;
	char type[32], version[] = NETCLAIM_VERSION;
	const struct manager_hello hello = {.type = type, .version = version};

	(void)snprintf(type, sizeof(type), "%s", manager_type_name(m->ops->type));
	m->phase = GREETED;
	(void)rpc_start(&m->loop, conn, API_MANAGER_HELLO, &hello, NULL, 0, on_hello, m);
}

static void on_close(void *ctx, struct rpc_conn *conn UNUSED, const char *reason)
{
	struct manager *m = ctx;

	if (m->phase > FAILED)
		LOG(WARN, FIELDS(F("err", reason)), "statd is gone; waiting for it");
	m->phase = OFFLINE;
	hello_retry_ended(&m->hello);
	(void)uv_timer_stop(&m->rediscover);
	daemon_status("waiting for statd");
}

/* --- serving ------------------------------------------------------------------------------ */

static bool may_serve(struct manager *m, struct rpc_call *call)
{
	struct err err = ERR_INIT;

	if (m->phase != SERVING)
		not_ready(m, &err);
	else if (rpc_call_left_ms(call) == 0)
		(void)err_set(&err, ERR_DEADLINE, "waited behind other calls for too long");
	else
		return true;
	rpc_reply_err(call, &err);
	return false;
}

/* What a line of the log says of a call. The line is written after the answer, which lets go of the
 * request, so that nobody waits for it. */
struct log_line {
	char *device, *claim, *share, *sandbox;
};

static struct log_line log_line_of(const struct device_alloc *a, const char *sandbox)
{
	return (struct log_line){xstrdup(a->device->name), xstrdup(a->claim_uid),
		xstrdup_opt(a->share_id), xstrdup_opt(sandbox)};
}

static void log_line_fini(struct log_line *line)
{
	free(line->device);
	free(line->claim);
	free(line->share);
	free(line->sandbox);
}
#define cleanup_log_line __attribute__((cleanup(log_line_fini)))

static void log_done(const struct log_line *line, const char *what)
{
	LOG(INFO,
		FIELDS(F("device", line->device), F("claim", line->claim),
			F("share", line->share), F("sandbox", line->sandbox)),
		"%s", what);
}

/* An answer that statd does not take would end the connection, and what was done with it stay.
 * It is undone as a leftover is: a state that no message can hold is no help. */
static int check_prepared(struct manager *m, const struct device_alloc *a,
	const struct device *device, struct err *err)
{
	struct err later;

	if (device_check(device, err) == 0)
		return 0;
	if (m->ops->free(m->ctx, a, &later) < 0)
		LOG(ERROR, FIELDS(F("device", a->device->name), F("err", later.message)),
			"what was set up stays");
	return -1;
}

static bool is_offered(struct manager *m, struct rpc_call *call, const struct device_alloc *a)
{
	struct err err;

	if (has_name(m, a->device->name))
		return true;
	(void)err_set(&err, ERR_NOT_FOUND, "is not in the inventory of manager '%s'",
		manager_type_name(m->ops->type));
	rpc_reply_err(call, &err);
	return false;
}

static void on_observe(void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_alloc *a = request;
	struct device device = {0};
	const struct device_result result = {.device = &device};
	struct manager *m = ctx;
	struct err err = ERR_INIT;

	if (!may_serve(m, call) || !is_offered(m, call, a))
		return;
	if (!m->ops->observe) {
		(void)err_set(&err, ERR_INVALID, "devices of manager '%s' are not observed",
			manager_type_name(m->ops->type));
		rpc_reply_err(call, &err);
		return;
	}
	if (m->ops->observe(m->ctx, a, &device, &err) < 0 || device_check(&device, &err) < 0)
		rpc_reply_err(call, &err);
	else
		rpc_reply(call, &result, NULL);
	rec_fini(&rec_device, &device);
}

static void prepare(struct manager *m, struct rpc_call *call, const struct device_alloc *a,
	int (*op)(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err),
	const char *done)
{
	cleanup_log_line struct log_line line = log_line_of(a, NULL);
	struct device device = {0};
	const struct device_result result = {.device = &device};
	struct err err = ERR_INIT;

	if (op(m->ctx, a, &device, &err) < 0 || check_prepared(m, a, &device, &err) < 0) {
		rpc_reply_err(call, &err);
	} else {
		keep_prepared(m, a, &device);
		rpc_reply(call, &result, NULL);
		log_done(&line, done);
	}
	rec_fini(&rec_device, &device);
}

static void on_setup(void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_alloc *a = request;
	struct manager *m = ctx;

	if (may_serve(m, call) && is_offered(m, call, a))
		prepare(m, call, a, m->ops->setup, "device set up");
}

static void on_recover(void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	struct manager *m = ctx;

	if (may_serve(m, call))
		prepare(m, call, request, m->ops->recover, "device recovered");
}

/* Answers a call whose result says nothing but that it succeeded. */
static void reply_empty(struct rpc_call *call, int rc, const struct err *err)
{
	const struct empty nothing = {0};

	if (rc < 0)
		rpc_reply_err(call, err);
	else
		rpc_reply(call, &nothing, NULL);
}

static void on_free(void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_alloc *a = request;
	cleanup_log_line struct log_line line = log_line_of(a, NULL);
	struct manager *m = ctx;
	struct err err = ERR_INIT;
	int rc;

	if (!may_serve(m, call))
		return;
	rc = m->ops->free(m->ctx, a, &err);
	if (rc == 0 && m->prepared)
		prepared_drop(m->prepared, a);
	reply_empty(call, rc, &err);
	if (rc == 0)
		log_done(&line, "device freed");
}

static void on_reclaim(void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_alloc *a = request;
	cleanup_log_line struct log_line line = log_line_of(a, NULL);
	struct device_reclaim_result result = {0};
	struct manager *m = ctx;
	struct err err = ERR_INIT;
	int rc;

	if (!may_serve(m, call))
		return;
	rc = m->ops->reclaim(m->ctx, a, &err);
	if (rc < 0) {
		rpc_reply_err(call, &err);
		return;
	}
	result.not_found = (struct rec_bool){rc > 0, rc > 0};
	rpc_reply(call, &result, NULL);
	log_done(&line, rc > 0 ? "nothing of the device is on the host" : "device reclaimed");
}

static void on_check(void *ctx, struct rpc_call *call, const void *request, int *fds)
{
	const struct name_list *list = request;
	cleanup_nl struct nl pod = {0};
	struct manager *m = ctx;
	struct err err = ERR_INIT;
	int rc;

	if (!may_serve(m, call))
		return;
	rc = netns_check_socket(fds[0], NETLINK_ROUTE, -1, m->own_netns, &err);
	if (rc == 0)
		rc = nl_init(&pod, fds[0], &err);
	if (rc == 0)
		rc = link_check_names(&pod, list, &err);
	reply_empty(call, rc, &err);
}

/* The descriptors of attach and detach: a namespace, and a socket inside it. */
static int check_fds(const struct manager *m, const int *fds, struct err *err)
{
	if (netns_check(fds[0], m->own_netns, err) < 0)
		return -1;
	return netns_check_socket(fds[1], NETLINK_ROUTE, fds[0], m->own_netns, err);
}

static void on_attach(void *ctx, struct rpc_call *call, const void *request, int *fds)
{
	const struct device_attach *a = request;
	cleanup_log_line struct log_line line = log_line_of(a->allocation, a->sandbox_id);
	struct device_attach_result result = {0};
	struct manager *m = ctx;
	struct err err = ERR_INIT;

	if (!may_serve(m, call))
		return;
	if (check_fds(m, fds, &err) < 0 ||
		m->ops->attach(m->ctx, a, fds[0], fds[1], &result, &err) < 0) {
		rpc_reply_err(call, &err);
	} else {
		rpc_reply(call, &result, NULL);
		log_done(&line, "device attached");
	}
	rec_fini(api_method_info(API_DEVICE_ATTACH)->result, &result);
}

static void on_detach(void *ctx, struct rpc_call *call, const void *request, int *fds)
{
	const struct device_attach *a = request;
	cleanup_log_line struct log_line line = log_line_of(a->allocation, a->sandbox_id);
	struct manager *m = ctx;
	struct err err = ERR_INIT;
	int rc;

	if (!may_serve(m, call))
		return;
	rc = check_fds(m, fds, &err);
	if (rc == 0)
		rc = m->ops->detach(m->ctx, a, fds[0], fds[1], &err);
	reply_empty(call, rc, &err);
	if (rc >= 0)
		log_done(&line, rc == 0 ? "device detached"
					: "device is not in the sandbox any more: nothing to detach");
}

/* A leftover is freed by its state; a name that statd does not take is in no one's way. */
static void fit_leftovers(struct device_audit_result *result)
{
	size_t n = 0;

	for (size_t i = 0; i < result->leftovers.n; i++) {
		struct device_alloc *a = &result->leftovers.v[i];
		struct err err = ERR_INIT;

		if (device_check(a->device, &err) < 0) {
			free(take_ptr(a->device->if_name));
			free(take_ptr(a->device->kernel_if_name));
		}
		if (device_check(a->device, &err) == 0) {
			result->leftovers.v[n++] = *a;
			continue;
		}
		LOG(ERROR, FIELDS(F("device", a->device->name), F("err", err.message)),
			"a leftover cannot be reported");
		rec_fini(&rec_device_alloc, a);
	}
	result->leftovers.n = n;
}

static void on_audit(void *ctx, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_audit *audit = request;
	struct device_audit_result result = {0};
	struct manager *m = ctx;
	struct err err = ERR_INIT;

	if (!may_serve(m, call))
		return;
	if (m->ops->audit(m->ctx, &audit->claim_uids, &result, &err) < 0) {
		rpc_reply_err(call, &err);
	} else {
		fit_leftovers(&result);
		rpc_reply(call, &result, NULL);
	}
	rec_fini(api_method_info(API_DEVICE_AUDIT)->result, &result);
}

static const struct rpc_service services[] = {
	{API_DEVICE_RESTORE, on_restore},
	{API_DEVICE_OBSERVE, on_observe},
	{API_DEVICE_SETUP, on_setup},
	{API_DEVICE_RECOVER, on_recover},
	{API_DEVICE_FREE, on_free},
	{API_DEVICE_CHECK, on_check},
	{API_DEVICE_ATTACH, on_attach},
	{API_DEVICE_DETACH, on_detach},
	{API_DEVICE_RECLAIM, on_reclaim},
	{API_DEVICE_AUDIT, on_audit},
};

/* --- the process -------------------------------------------------------------------------- */

static const struct cli_option options_table[] = {
	DAEMON_OPTIONS(struct manager_options, base),
	{
		.name = "runtime-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct manager_options, runtime_dir),
		.arg = "DIR",
		.doc = "where statd's manager.sock is",
	},
	{
		.name = "statd-user",
		.type = CLI_TEXT,
		.offset = offsetof(struct manager_options, statd_user),
		.arg = "USER",
		.doc = "user that statd runs as, if neither root nor our own",
	},
	{
		.name = "sysfs-root",
		.type = CLI_PATH,
		.offset = offsetof(struct manager_options, sysfs_root),
		.arg = "DIR",
		.doc = "where the host's sysfs is",
	},
};
#define N_OPTIONS_NO_SYSFS (ARRAY_SIZE(options_table) - 1) /* the last is that one */

static void stop(void *ctx)
{
	struct manager *m = ctx;

	m->phase = OFFLINE;
	rpc_client_free(m->client);
	hello_retry_close(&m->hello);
	uv_close((uv_handle_t *)&m->rediscover, NULL);
	if (m->watch.data)
		uv_close((uv_handle_t *)&m->watch, NULL);
}

static int open_all(struct manager *m, const struct manager_options *o, struct err *err)
{
	struct identity statd;

	if (o->statd_user) {
		if (identity_parse(o->statd_user, &statd, err) < 0)
			return err_wrap(err, "--statd-user");
		m->statd_uid = statd.uid;
		m->def.n_uids = 1;
	}
	m->own_netns = netns_open_own(err);
	if (m->own_netns < 0)
		return -1;
	return m->ops->open(m->ctx, m->ops->reads_sysfs ? o->sysfs_root : NULL, err);
}

static void start_watch(struct manager *m)
{
	const int fd = m->ops->watch ? m->ops->watch(m->ctx) : -1;

	if (fd < 0 || uv_poll_init(&m->loop, &m->watch, fd) < 0)
		return;
	m->watch.data = m;
	(void)uv_poll_start(&m->watch, UV_READABLE, on_watch);
}

static int run(struct manager *m, const struct manager_options *o)
{
	cleanup_free char *path = xasprintf("%s/manager.sock", o->runtime_dir);
	int status;

	if (m->ops->use_prepared) {
		m->prepared = prepared_new();
		m->ops->use_prepared(m->ctx, m->prepared);
	}
	(void)uv_loop_init(&m->loop);
	daemon_init(&m->daemon, &m->loop, stop, m);
	hello_retry_init(&m->hello, &m->loop);
	(void)uv_timer_init(&m->loop, &m->rediscover);
	m->rediscover.data = m;
	start_watch(m);
	m->client = rpc_client_new(&m->loop, path, &m->def, m);
	daemon_status("waiting for statd");
	daemon_ready(&m->daemon);
	status = daemon_run(&m->daemon);
	(void)uv_loop_close(&m->loop);
	return status;
}

/* In a container the host's is where the seed mounts it; on a bare node there is but one. */
static const char *default_sysfs_root(void)
{
	return access("/host/sys", F_OK) == 0 ? "/host/sys" : "/sys";
}

int manager_main(const struct manager_ops *ops, void *ctx, const struct privileges *privileges,
	const char *summary, int argc, char **argv)
{
	struct manager_options options = {
		.base = DAEMON_DEFAULTS,
		.runtime_dir = "/run/netclaim",
		.sysfs_root = default_sysfs_root(),
	};
	struct manager m = {
		.ops = ops,
		.ctx = ctx,
		.def =
			{
				.name = "statd",
				.services = services,
				.n_services = ARRAY_SIZE(services),
				.uids = &m.statd_uid,
				.events = {.on_open = on_open, .on_close = on_close},
			},
	};
	const struct cli cli = {
		.program = privileges->program,
		.summary = summary,
		.options = options_table,
		.n_options = ops->reads_sysfs ? ARRAY_SIZE(options_table) : N_OPTIONS_NO_SYSFS,
	};
	struct err err = ERR_INIT;
	int status;

	daemon_begin(&cli, argc, argv, &options, &options.base);
	if (open_all(&m, &options, &err) < 0 || privileges_drop(privileges, NULL, &err) < 0 ||
		privileges_confine(privileges, &err) < 0)
		return daemon_cannot_start(&err);
	status = run(&m, &options);
	buf_fini(&m.names);
	strlist_fini(&m.left_out);
	prepared_free(m.prepared);
	close_fd(&m.own_netns);
	return status;
}
