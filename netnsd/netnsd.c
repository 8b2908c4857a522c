/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon around inside.c.
 *
 * It serves one request at a time and its loop waits for a child meanwhile: entering
 * namespaces is the whole job of this process, a child takes about a millisecond, and one that
 * does not end is given up before its caller gives up. A request that has waited behind others
 * for longer than its caller does is refused.
 *
 * The reply to hello says nothing that is needed here, so requests are served without it; but
 * statd must have accepted it, or there would be none.
 */
#include "netnsd/netnsd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/vfs.h>

#include "common/log.h"
#include "common/netns.h"
#include "common/privileges.h"
#include "netnsd/inside.h"

/* --- serving ------------------------------------------------------------------------------ */

static int check_call(
	const struct netnsd *n, const struct rpc_call *call, int netns_fd, struct err *err)
{
	if (rpc_call_left_ms(call) == 0)
		return err_set(err, ERR_DEADLINE, "waited behind other calls for too long");
	return netns_check(netns_fd, n->own_netns, err);
}

static void on_socket(void *ctx, struct rpc_call *call, const void *request, int *fds)
{
	const struct netns_socket *r = request;
	const struct netnsd *n = ctx;
	const struct empty nothing = {0};
	cleanup_close int fd = -1;
	struct err err = ERR_INIT;

	if (check_call(n, call, fds[0], &err) == 0)
		fd = inside_open_socket(fds[0], n->own_netns,
			strcmp(r->protocol, "route") == 0 ? NETLINK_ROUTE : NETLINK_GENERIC,
			&err);
	if (fd < 0) {
		rpc_reply_err(call, &err);
	} else {
		LOG(DEBUG, FIELDS(F("protocol", r->protocol)), "socket opened");
		rpc_reply(call, &nothing, &fd);
	}
}

static void on_sysctl(void *ctx, struct rpc_call *call, const void *request, int *fds)
{
	const struct netns_sysctl *r = request;
	const struct netnsd *n = ctx;
	const struct empty nothing = {0};
	struct err err = ERR_INIT;

	if (check_call(n, call, fds[0], &err) < 0 ||
		inside_write_sysctls(fds[0], n->sysctl_dir_fd, r, &err) < 0) {
		rpc_reply_err(call, &err);
	} else {
		LOG(DEBUG, FIELDS(F("interface", r->if_name)), "%zu sysctls written",
			r->settings.n);
		rpc_reply(call, &nothing, NULL);
	}
	inside_reap();
}

static const struct rpc_service services[] = {
	{API_NETNS_SOCKET, on_socket},
	{API_NETNS_SYSCTL, on_sysctl},
};

/* --- hello -------------------------------------------------------------------------------- */

static void on_hello(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct netnsd *n = ctx;

	if (!n->connected)
		return;
	if (err) {
		hello_retry_failed(&n->hello, n->client, "statd refuses us", err);
		return;
	}
	hello_retry_succeeded(&n->hello);
	LOG(INFO, NO_FIELDS, "serving statd");
	daemon_status("serving statd");
}

static void on_open(void *ctx, struct rpc_conn *conn)
{
	char type[] = "netns", version[] = NETCLAIM_VERSION;
	const struct manager_hello hello = {.type = type, .version = version};
	struct netnsd *n = ctx;

	n->connected = true;
	(void)rpc_start(&n->loop, conn, API_MANAGER_HELLO, &hello, NULL, 0, on_hello, n);
}

static void on_close(void *ctx, struct rpc_conn *conn UNUSED, const char *reason)
{
	struct netnsd *n = ctx;

	n->connected = false;
	hello_retry_ended(&n->hello);
	LOG(DEBUG, FIELDS(F("err", reason)), "statd is gone");
	daemon_status("waiting for statd");
}

/* --- the process -------------------------------------------------------------------------- */

static int open_sysctl_dir(const char *path, struct err *err)
{
	cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return err_errno(err, errno, "%s", path);
	if (fs.f_type != PROC_SUPER_MAGIC)
		return err_set(err, ERR_INVALID, "%s: is not in procfs", path);
	return take_fd(&fd);
}

int netnsd_open(struct netnsd *n, const struct netnsd_options *options, struct err *err)
{
	struct identity statd;

	*n = (struct netnsd){
		.def =
			{
				.name = "statd",
				.services = services,
				.n_services = ARRAY_SIZE(services),
				.uids = &n->statd_uid,
				.events = {.on_open = on_open, .on_close = on_close},
			},
	};
	if (options->statd_user) {
		if (identity_parse(options->statd_user, &statd, err) < 0)
			return err_wrap(err, "--statd-user");
		n->statd_uid = statd.uid;
		n->def.n_uids = 1;
	}
	n->own_netns = netns_open_own(err);
	if (n->own_netns < 0)
		return -1;
	n->sysctl_dir_fd = open_sysctl_dir(options->proc_sys_net_dir, err);
	return n->sysctl_dir_fd < 0 ? -1 : 0;
}

static void stop(void *ctx)
{
	struct netnsd *n = ctx;

	n->connected = false;
	rpc_client_free(n->client);
	hello_retry_close(&n->hello);
}

int netnsd_run(struct netnsd *n, const struct netnsd_options *options)
{
	cleanup_free char *path = xasprintf("%s/manager.sock", options->runtime_dir);
	int status;

	(void)uv_loop_init(&n->loop);
	daemon_init(&n->daemon, &n->loop, stop, n);
	hello_retry_init(&n->hello, &n->loop);
	n->client = rpc_client_new(&n->loop, path, &n->def, n);
	daemon_status("waiting for statd");
	daemon_ready(&n->daemon);
	status = daemon_run(&n->daemon);
	(void)uv_loop_close(&n->loop);
	return status;
}
