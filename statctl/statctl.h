/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A conversation with statd over query.sock: one connection, one call after the other.
 */

#include <uv.h>

#include "common/rpc.h"

struct statctl {
	uv_loop_t loop;        /* the caller inits it, and closes it after statctl_close() */
	struct rpc_conn *conn; /* NULL: none (any more) */
	char lost[ERR_MESSAGE_MAX]; /* why */
	const struct watcher *watcher;
};

/* In one attempt. ERR_NOT_FOUND, ERR_UNAVAILABLE and the like, with advice for people. */
int statctl_connect(struct statctl *s, const char *runtime_dir, struct err *err);
/* Waits for the answer. result is a zeroed record of the method's type, afterwards the caller's to
 * fini; untouched on failure. */
int statctl_call(struct statctl *s, enum api_method method, const void *request, void *result,
	struct err *err);
/* Also of one that was never connected. */
void statctl_close(struct statctl *s);

/* Who looks on. rows comes first, once; what each is given is borrowed. */
struct watcher {
	void (*rows)(const struct table_list_result *rows, void *ctx);
	void (*event)(const struct table_event *event, void *ctx);
	void *ctx;
};
/* Returns when there is nothing to watch (any more), which is an error. */
int statctl_watch(struct statctl *s, const struct table_list *request,
	const struct watcher *watcher, struct err *err);
