/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Locks by name: who holds "claim/<uid>" works on that claim, everyone else waits in the order
 * of asking. For one loop: nothing blocks, a waiter is called back.
 *
 * Names are taken in one order everywhere, claims before pods, so that no two can wait for each
 * other.
 */

#include <stdbool.h>
#include <uv.h>

#include "common/util.h"

struct lockset;

struct lockset *lockset_new(uv_loop_t *loop);
/* Nobody may hold or wait any more. */
void lockset_free(struct lockset *set);

/* A holder's or waiter's ticket, embedded by its owner; zero it before use. */
struct lock {
	struct lock_queue *queue;
	struct lock *next;
	void (*granted)(void *ctx);
	void *ctx;
};

/* granted() is called, later and never from inside, once the lock is ours. */
void lock_take(struct lockset *set, struct lock *lock, const char *kind, const char *name,
	void (*granted)(void *ctx), void *ctx);
/* Whether anybody has it, or is about to. */
bool lock_is_held(const struct lockset *set, const char *kind, const char *name);
/* Gives it back; of one that is not held or waited for, nothing. */
void lock_release(struct lockset *set, struct lock *lock);

/* --- several at once ---------------------------------------------------------------------- */

/* The locks that a flow needs together, taken one after the other in the byte order of their
 * names, which puts claims before pods. Zero it before use. */
struct locks {
	struct lockset *set;
	struct strlist names; /* "kind/name" */
	struct lock *v;       /* one a name, in order, once they are being taken */
	size_t at;
	void (*granted)(void *ctx);
	void *ctx;
};

/* Before they are taken; a name that is there already is ignored. */
void locks_add(struct locks *l, const char *kind, const char *name);
bool locks_have(const struct locks *l, const char *kind, const char *name);
/* granted() is called once all are ours; there must be one at least. */
void locks_take(
	struct lockset *set, struct locks *l, void (*granted)(void *ctx), void *ctx);
/* Gives all back, also while they are being taken, and leaves it empty. */
void locks_release(struct locks *l);
