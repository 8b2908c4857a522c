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
