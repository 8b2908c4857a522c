/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The flows: each is a state machine of its own, started by a call and answered by it. Each
 * holds the locks it needs ("claim" by UID, then "pod" by UID) from its first step to its last.
 *
 * Locks, and what a table row is worth: rows of a claim are inserted, deleted and given to another
 * pod under the claim's lock and those of all pods concerned; where a pod's devices are changes under
 * the pod's lock. A row is there before its device is touched and until it is free, so it is what
 * keeps two claims from having one device.
 *
 * The claim's record (record.h) says what its rows say, and is written before and after each change
 * in the kernel: before, a write that fails fails the flow.
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
 * err is about all that did, and their rows keep sandbox and problem. A sandbox whose namespace is
 * not known any more has to have ended: then the devices must be on the host, where the kernel
 * returned them. The pods' locks are held by the caller. keys is taken over. */
void detach_rows(struct statd *s, const char *sandbox_id, struct strlist *keys,
	void (*done)(void *ctx, const struct err *err), void *ctx);

/* let_go.c, a part of other flows: takes the devices in these rows, all of one claim, out of the
 * sandboxes that they are in, frees them in this order and deletes the rows. Goes on past one that
 * fails; then err is about all that did, and their rows keep the problem. freed, unless NULL, is called
 * when all are free, before the record says so: what it does to the claim's status is in it. The locks
 * of the claim and of the pods in the rows are held by the caller. keys is taken over. */
void let_go(struct statd *s, struct strlist *keys, void (*freed)(void *ctx),
	void (*done)(void *ctx, const struct err *err), void *ctx);

/* release.c: frees, in the background and until it succeeds, what is unfinished of this claim.
 * interrupted: its preparation did not end, which its user is to know. */
void release_later(struct statd *s, const char *claim_uid, bool interrupted);
/* A manager is there: those that wait try now. */
void release_now(struct statd *s);
void release_close(struct statd *s);

/* reclaim.c: a manager says that this device's link has appeared on the host. */
void device_appeared(struct statd *s, enum manager_type manager, const char *device);

/* restore.c: fills the allocations table from the node's own record, and from the store what that
 * does not have; ends with statd serving managers. */
void restore_begin(struct statd *s);
/* A manager has said hello: hands it what was prepared before, and takes what it makes of
 * it. */
void restore_manager(struct statd *s, enum manager_type manager);

/* audit.c: frees what the manager finds in the kernel that belongs to no claim. Until that is
 * done for every manager once, statd is not ready. */
void audit_manager(struct statd *s, enum manager_type manager);
bool audit_complete(const struct statd *s);
/* Frees what any manager finds in the kernel that belongs to this claim, which has no rows. A
 * manager that cannot be asked fails it. The claim's lock is held by the caller. */
void audit_claim(struct statd *s, const char *claim_uid,
	void (*done)(void *ctx, const struct err *err), void *ctx);

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
/* Whether its device is in this sandbox, whole, and can be taken back. One that has a problem is not:
 * its sysctls may not be set, or it was to leave and could not; attaching it again makes it whole. One
 * whose namespace is not known, as after a restart, is attached again to learn of it. */
bool row_is_attached(const struct statd *s, const struct alloc_row *row, const char *sandbox_id);
bool row_is_in_a_sandbox(const struct alloc_row *row);
/* The row's device as its manager returned it; a copy. */
void row_set_prepared(struct alloc_row *row, const struct device *device);
/* The row names no sandbox any more. */
void row_leave_sandbox(struct alloc_row *row);
/* Closes the sandbox's namespace if no row names it any more. */
void sandbox_drop_unused(struct statd *s, const char *sandbox_id);
/* Whether the pod may have it: it is not known which one does, and the pod is among them. */
bool row_may_be_of(const struct alloc_row *row, const char *pod_uid);
/* Whether the row is of the claim that a container was given under this name (struct pod_ref). */
bool row_is_of_claim(const struct alloc_row *row, const char *claim);
/* Whether the pod has a row of it. */
bool claim_is_of_pod(const struct statd *s, const char *claim, const char *pod_uid);
/* Rows that are some pod's, but it is not known which: an index value. */
#define POD_UNKNOWN ""
/* Adds up failures: the first one's kind, all messages. */
void err_join(struct err *all, const struct err *err);

/* Adds the pod, and all that may have the claim's devices, to the locks to be taken. */
void add_pod_locks(const struct statd *s, const char *claim_uid, struct locks *locks);

/* Writes the claim's record, and marks its pods, by its rows and by whether its status is due; one
 * that holds nothing any more has none. */
int record_save(struct statd *s, const char *claim_uid, struct err *err);
/* The same in two parts. Pods are marked before anybody hears that something is prepared for them. */
int record_write(struct statd *s, const char *claim_uid, struct err *err);
int record_mark_pods(struct statd *s, const char *claim_uid, struct err *err);
/* Deletes the claim's rows under these keys together with their place in the record: no row is gone that
 * the record has, or a restart would find its device in two. Where that cannot be written they stay,
 * unfinished, so that nobody gets the device and nothing takes it for set up, and are tried again
 * (release.c). No keys: the record is written. */
int rows_delete(
	struct statd *s, const char *claim_uid, const struct strlist *keys, struct err *err);
/* Where the kernel has been changed already: what the record says is then behind, and the same flow
 * brings it up to date when it is repeated. */
void record_save_or_log(struct statd *s, const char *claim_uid);
/* The claim's status is to say what its rows say, and its record that this is due. */
void status_follow_rows(struct statd *s, const struct claim_ref *claim);
/* The pod has a row less. */
void record_check_pod(struct statd *s, const char *pod_uid);
/* All pods' marks, by the rows. */
void record_prune_pods(struct statd *s);
