/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * statd in a cluster: the API server that it talks to, the node that it is for, and the node's
 * configuration if that is an object there.
 */

#include <uv.h>

#include "common/kube.h"

struct statd;

struct cluster {
	struct kube_access access;
	struct kube *kube; /* NULL: no API server is used */
	uv_timer_t retry;
	unsigned attempts; /* failed in a row */
	char *version;     /* of the server: "v1.34.4" */
	char *node_uid;
	/* the CiliumNetworkDriverNodeConfig */
	struct kube_watch *watch;
	json_t *candidate; /* the object as it is now, until one was used */
	bool listed;
	char *used; /* its spec, as a text; NULL: none yet */
	char *note; /* what a user should know about the object; NULL: nothing */
};

/* The privileged phase: reads where the API server is. Does nothing when options need none.
 * ERR_INVALID when they do and there is none. */
int cluster_open(struct statd *s, struct err *err);
/* Finds out what statd needs before it can start, waiting as long as it takes and saying for
 * what, then calls statd_configured(). */
void cluster_begin(struct statd *s);
/* No call is begun any more; those under way are answered. */
void cluster_close(struct statd *s);
void cluster_fini(struct cluster *c);
