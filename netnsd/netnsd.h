/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon: a connection to statd on which netns.socket and netns.sysctl are served.
 */

#include "common/daemon.h"
#include "common/hello.h"
#include "common/rpc.h"

struct netnsd_options {
	struct daemon_options base;
	const char *runtime_dir;
	const char *statd_user; /* NULL: root or our own */
	const char *proc_sys_net_dir;
};

struct netnsd {
	uv_loop_t loop;
	struct daemon daemon;
	int own_netns;
	int sysctl_dir_fd;
	uid_t statd_uid;
	struct rpc_listen def;
	struct rpc_client *client;
	struct hello_retry hello;
	bool connected;
};

/* Opens what needs rights and paths. What it opened stays open until the process ends. */
int netnsd_open(struct netnsd *n, const struct netnsd_options *options, struct err *err);
/* Serves until told to stop; the exit status. */
int netnsd_run(struct netnsd *n, const struct netnsd_options *options);
