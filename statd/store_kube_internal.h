/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the two halves of the cluster's store share: requests about one claim that are tried again
 * for a while.
 */

#include "common/kube.h"
#include "common/util.h"
#include "statd/store.h"

/* Until when another try of a request is begun. */
#define STORE_KUBE_TRYING_MS 12000

struct store_kube {
	struct store base;
	uv_loop_t *loop;
	struct kube *kube;
	char *node_name;
	struct op *ops; /* under way */
	struct listing *listing;
	bool stopping;
};

struct op_answer {
	/* As claim_parse() has it; NULL: another form was asked for, or it was written and its
	 * answer cannot be decoded. */
	const json_t *object;
	const void *bytes;
	size_t len;
};

struct op {
	struct store_kube *store;
	struct op *prev, *next;
	struct kube_call *call;
	uv_timer_t timer; /* until the next try */
	unsigned attempt;
	uint64_t started_ms;
	bool undecoded; /* the server has answered, but not with a claim that can be decoded */
	const char *method;
	char *path;
	const char *content_type; /* NULL: JSON */
	json_t *body;             /* or */
	struct buf bytes;
	const char *accept; /* NULL: JSON */
	/* err NULL: there is an answer */
	void (*done)(struct op *op, const struct err *err, const struct op_answer *answer);
	/* whose it is */
	void *ctx;
	store_claim_cb *claim_cb;
	store_done_cb *done_cb;
	struct wanted *wanted;
};

/* subresource may be NULL. It is freed after done(). */
struct op *op_new(struct store_kube *s, const char *method, const char *namespace,
	const char *name, const char *subresource);
void op_try(struct op *op);

/* Of store_ops. */
void store_kube_write_status(struct store *base, const struct claim_ref *claim,
	const struct claim_seen *seen, const char *driver_name, const json_t *devices,
	store_done_cb *cb, void *ctx);
void store_kube_remove_status(struct store *base, const struct claim_ref *claim,
	const char *driver_name, store_done_cb *cb, void *ctx);
