/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The node's own record of which pods have a prepared claim: statd's state directory, of which
 * only names are read. `pods/<pod UID>` exists from before the kubelet has the answer to its
 * prepare, so from before the pod's sandbox starts, until the pod's last claim is unprepared.
 */

#include <sys/types.h>

#include "common/api.h"
#include "common/err.h"

enum record_answer {
	RECORD_UNKNOWN, /* only statd knows */
	RECORD_HAS,     /* the pod has a prepared claim */
	RECORD_HAS_NOT,
};

struct record {
	/* record_problem() has changed. */
	void (*changed)(void *ctx);
	void *ctx;
	/* private */
	const char *path;
	int dir; /* the directory that statd means; -1: not opened */
	dev_t dev;
	ino_t ino;
	bool named;   /* statd has said which directory it is: dev and ino */
	bool trusted; /* and was ready with it */
	char problem[ERR_MESSAGE_MAX];
};

/* path, of the state directory, is borrowed and must stay. Touches nothing. */
void record_init(
	struct record *r, const char *path, void (*changed)(void *ctx), void *ctx);
void record_fini(struct record *r);

/* statd reports its state directory. If it is the one of before, that stays trusted. */
void record_hello(struct record *r, const struct front_hello_result *settings);
/* statd is ready: all that it knows is in the record. */
void record_ready(struct record *r);

/* Whether the pod of this UID, which check_uid() allows, has a prepared claim. */
enum record_answer record_find(struct record *r, const char *pod_uid);
/* Why the record cannot be used, and what to do; "" while it can. */
const char *record_problem(const struct record *r);
