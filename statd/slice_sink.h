/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the node's ResourceSlices go: one small interface, behind which is a file in a directory
 * or an API server.
 *
 * A sink reads the devices table, in which publish_annotate() put where each device is offered,
 * and makes the slices say the same: now, again when that failed, and again when somebody else
 * changed them. Nobody waits for it: a stop abandons what is under way, and the next start finds
 * out what is missing. Nothing here blocks but the directory's small file.
 */

#include <uv.h>

#include "common/err.h"
#include "statd/schema.h"

struct slice_sink;
struct kube;

enum slice_sink_state {
	SLICE_SINK_IDLE,       /* nothing was asked for yet */
	SLICE_SINK_PUBLISHING, /* not done yet, nothing went wrong */
	SLICE_SINK_PUBLISHED,  /* the slices are what the table says */
	SLICE_SINK_FAILING,    /* tried again by itself */
};

/* How publication stands. */
struct slice_sink_status {
	enum slice_sink_state state;
	size_t n_slices;    /* that there are */
	int64_t generation; /* of the pool; 0: none */
	int64_t since_ms;   /* wall clock, since when it is in this state; 0: IDLE */
	const char
		*reason; /* what is wrong, borrowed until the loop runs; NULL: nothing. Also set
			     * when published, if the server left something out */
};

struct slice_sink_ops {
	const char *kind;
	void (*update)(struct slice_sink *sink);
	void (*status)(const struct slice_sink *sink, struct slice_sink_status *ret);
	void (*free)(struct slice_sink *sink);
};

/* The server refuses this device, and would refuse every slice with it. Who is told hides it from
 * the table's offers, else it is tried again now and then. */
typedef void slice_refused_cb(void *ctx, const char *device, const char *why);

/* The first member of each kind of sink. */
struct slice_sink {
	const struct slice_sink_ops *ops;
	slice_refused_cb *refused; /* the owner's; NULL: nobody is told */
	void *refused_ctx;
};

/* The tables may say something else than at the last call. The first call begins publication:
 * there must be none before the tables are whole, for what is missing in them is withdrawn. */
static inline void slice_sink_update(struct slice_sink *sink)
{
	sink->ops->update(sink);
}

static inline void slice_sink_status(
	const struct slice_sink *sink, struct slice_sink_status *ret)
{
	sink->ops->status(sink, ret);
}

/* The same for people, the caller's: "64 slices, generation 3, published", "publishing", "failing
 * since 2026-01-02T03:04:05Z: …". sink NULL: "nothing is published yet". */
char *slice_sink_describe(const struct slice_sink *sink);

/* Handles on the loop close later by themselves. */
static inline void slice_sink_free(struct slice_sink *sink)
{
	if (sink)
		sink->ops->free(sink);
}

/* resourceslices.json in the directory, which is opened now: a List of all slices, replaced as a
 * whole when the devices table changed. tables must outlive the sink, the texts are copied. NULL and
 * err if there is no such directory. */
struct slice_sink *slice_sink_dir_new(uv_loop_t *loop, const char *path,
	const struct tables *tables, const char *driver_name, const char *node_name,
	struct err *err);

/* An API server. kube and tables must outlive the sink, the texts are copied. The slices are owned
 * by the Node of this UID and go with it. Nothing is asked of the server before the first
 * update. */
struct slice_sink *slice_sink_kube_new(uv_loop_t *loop, struct kube *kube,
	const struct tables *tables, const char *driver_name, const char *node_name,
	const char *node_uid);
