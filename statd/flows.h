/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The flows: each is a state machine of its own, started by a call and answered by it. Each
 * holds the locks it needs ("claim" by UID, then "pod" by UID) from its first step to its last.
 *
 * Locks, and what a table row is worth: whoever holds a claim's lock alone inserts and deletes
 * rows of that claim; whoever holds a pod's lock alone changes where the pod's devices are.
 */

#include "common/rpc.h"
#include "statd/statd.h"

/* NodePrepareResources of one claim. */
void prepare_start(struct statd *s, struct rpc_call *call, const struct claim_ref *ref);
/* NodeUnprepareResources of one claim. */
void unprepare_start(struct statd *s, struct rpc_call *call, const struct claim_ref *ref);

/* A sandbox starts. Takes *netns_fd. */
void attach_start(
	struct statd *s, struct rpc_call *call, const struct pod_attach *pod, int *netns_fd);
/* A sandbox ends: call may be NULL, and then failures are only logged. */
void detach_start(struct statd *s, struct rpc_call *call, const struct pod_detach *pod);
/* What the runtime has: detaches from sandboxes that are gone, and fills in those that it
 * should attach. */
void sync_pods(struct statd *s, const struct pod_sync *pods, struct pod_sync_result *ret);
/* How many devices the pod is to have in this sandbox, and has. While one is being moved there
 * or back, none count as being there. */
void pod_check(const struct statd *s, const struct pod_ref *pod, struct pod_check_result *ret);

/* A part of other flows: takes the devices in these rows (keys of the allocations table, all
 * attached to one sandbox) back out of it, the last first. Goes on past one that fails; then
 * err is about all that did, and their rows keep sandbox and problem. The pod's lock is held by
 * the caller. keys is taken over. */
void detach_rows(struct statd *s, const char *sandbox_id, struct strlist *keys,
	void (*done)(void *ctx, const struct err *err), void *ctx);

/* restore.c: fills the allocations table from the store; ends with statd serving managers. */
void restore_begin(struct statd *s);
/* A manager has said hello: hands it what was prepared before, and takes what it makes of
 * it. */
void restore_manager(struct statd *s, enum manager_type manager);

/* audit.c: frees what the manager finds in the kernel that belongs to no claim. Until that is
 * done for every manager once, statd is not ready. */
void audit_manager(struct statd *s, enum manager_type manager);
bool audit_complete(const struct statd *s);

/* --- for flows ---------------------------------------------------------------------------- */

/* A row as its manager sees it; everything is borrowed from row. */
struct device_alloc row_alloc(const struct alloc_row *row);
/* A copy of the row under this key, to be changed and given to row_put(); false: it is gone. */
bool row_take(const struct statd *s, const char *key, struct alloc_row *ret);
void row_put(struct statd *s, struct alloc_row *row);
void row_set_problem(struct statd *s, const char *key, const struct err *err); /* NULL: none */
const char *row_key(const struct alloc_row *row, struct buf *out);
/* Whether the device in this row is a link that is moved into the pod. */
bool row_moves_link(const struct alloc_row *row);
/* Whether its device is in this sandbox, whole. One that has a problem is not: its sysctls may not
 * be set, or it was to leave and could not; attaching it again makes it whole. */
bool row_is_attached(const struct alloc_row *row, const char *sandbox_id);
/* Adds up failures: the first one's kind, all messages. */
void err_join(struct err *all, const struct err *err);
