/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The kubelet's door: what the process is made of.
 */

#include "common/daemon.h"
#include "common/privileges.h"
#include "draplugind/dra.h"
#include "draplugind/registration.h"
#include "draplugind/rpc.h"

struct draplugind_options {
	struct daemon_options base;
	const char *runtime_dir;
	const char *statd_user;  /* NULL: root or our own user */
	const char *kubelet_dir; /* as the kubelet calls it: it and the runtime use our paths */
	const char *cdi_dir;
};

struct draplugind {
	const struct draplugind_options *options;
	struct identity statd; /* of --statd-user */
	uv_loop_t loop;
	struct daemon daemon;
	struct dra_rpc rpc;
	bool configured; /* statd has told the driver's name: the two below are there */
	struct dra dra;
	struct registration registration;
};

/* Whether the options can be worked with; a user's name is looked up here, while the process can
 * still read where users are. options is borrowed, here and below. */
int draplugind_check(
	struct draplugind *d, const struct draplugind_options *options, struct err *err);
void draplugind_init(struct draplugind *d, const struct draplugind_options *options);
/* After the loop is empty. */
void draplugind_fini(struct draplugind *d);
