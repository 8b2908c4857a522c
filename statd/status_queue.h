/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Claims' status in the store, written in the background.
 *
 * What is prepared stands in the node's own record, so neither a prepare nor an unprepare waits for
 * the API server: the entries of the claim's status are written as soon as there is room for another
 * call, and tried again until they are there, the claim is gone, or something newer is to be written
 * for it. That a status is due stands in the claim's record, so that a restart goes on with it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "common/api.h"
#include "common/err.h"

struct claim_seen;
struct statd;

/* Calls at a time: the rest of the connection is for claims that are waited for. */
#define STATUS_AT_ONCE 4
/* A status that nobody waits for waits itself: what follows an answer (files, the kubelet's own work)
 * would share the processors with the API server's. Two changes in that time are one write. */
#define STATUS_DELAY_MS 20
/* Claims whose status is due; when there are more the newest removal is not made. One takes some
 * hundred bytes, and a node that has no API server for days prepares fewer. */
#define STATUS_MAX_DUE 16384

struct status_entry;
struct status_queue {
	struct statd *s;
	struct status_entry *by_uid;
	struct status_entry *first, *last; /* not under way, by when they are due */
	uv_timer_t timer;
	size_t n_calls;
	bool closing;
	char *trouble; /* the last failure, for people; NULL: all is well */
};

void status_queue_init(struct status_queue *q, struct statd *s);
/* Nothing is begun any more; what is under way ends with the store. */
void status_queue_close(struct status_queue *q);
void status_queue_fini(struct status_queue *q);

/* The driver's entries in this claim's status are to be `devices` (an array, taken over). seen:
 * of the claim as it was read a moment ago, or NULL; what it owns is taken over. done, if not NULL, is
 * called when the first try has come to an end, with what it came to; a try that failed is then not
 * repeated. */
void status_queue_write(struct status_queue *q, const struct claim_ref *claim,
	struct claim_seen *seen, json_t *devices,
	void (*done)(void *ctx, const struct err *err), void *ctx);
/* They are to go. */
void status_queue_remove(struct status_queue *q, const struct claim_ref *claim);
/* Nothing is to be written for this claim any more. */
void status_queue_forget(struct status_queue *q, const char *claim_uid);

/* The claim, borrowed, if a status is due for it. */
const struct claim_ref *status_queue_due(const struct status_queue *q, const char *claim_uid);
size_t status_queue_count(const struct status_queue *q);
