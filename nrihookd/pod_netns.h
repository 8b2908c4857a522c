/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A pod's network namespace, opened from the path that the runtime tells.
 */

#include "common/err.h"

struct pod_netns {
	const char *dir; /* where the runtime's directory of them is; NULL: where it says */
	int own;         /* the namespace that no pod's may be: this process's */
};

/* dir is borrowed and must stay, or NULL. */
int pod_netns_init(struct pod_netns *n, const char *dir, struct err *err);
void pod_netns_fini(struct pod_netns *n);
/* A descriptor, or -1: ERR_NOT_FOUND when the sandbox is gone, ERR_INVALID when what is at the
 * path is something else. With a directory, the last element of path is looked up in it. */
int pod_netns_open(const struct pod_netns *n, const char *path, struct err *err);
