/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The container runtime's door: what the process is made of.
 */

#include "common/daemon.h"
#include "nrihookd/hooks.h"
#include "nrihookd/pod_netns.h"
#include "nrihookd/rpc.h"
#include "nrihookd/runtime.h"

struct nrihookd_options {
	struct daemon_options base;
	const char *runtime_dir;
	const char *state_dir;  /* NULL: "state" in runtime_dir */
	const char *statd_user; /* NULL: root or our own user */
	const char *kubelet_dir;
	const char *nri_socket;
	const char *nri_index;
	const char *netns_dir; /* NULL: the runtime's paths are ours */
	const char *on_attach_failure;
};

struct nrihookd {
	uv_loop_t loop;
	struct daemon daemon;
	struct pod_netns netns;
	char *state_dir;
	struct record record;
	struct hook_rpc rpc;
	struct runtime runtime;
	struct hooks hooks;
};

/* What has to be done before privileges are dropped. options is borrowed and must stay. */
int nrihookd_init(struct nrihookd *d, const struct nrihookd_options *options, struct err *err);
void nrihookd_start(struct nrihookd *d);
/* After the loop is empty. */
void nrihookd_fini(struct nrihookd *d);
