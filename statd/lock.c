/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One queue a name, its head the holder. A queue exists while somebody is in it. Heads that are
 * to be called back wait in a list for the set's timer, so that a release does not run the next
 * one's work inside itself.
 */
#include "statd/lock.h"

#include <assert.h>
#include <string.h>

#include "common/hash.h"
#include "common/util.h"

struct lock_queue {
	char *name;
	struct lock *head, **tail;
	struct lock_queue *next_due; /* while due */
	bool due;                    /* its head is to be called back */
	UT_hash_handle hh;
};

struct lockset {
	uv_timer_t timer;
	struct lock_queue *queues;
	struct lock_queue *due, **due_tail;
};

static void on_timer(uv_timer_t *timer)
{
	struct lockset *set = timer->data;

	while (set->due) {
		struct lock_queue *q = set->due;
		const struct lock *holder = q->head;

		set->due = q->next_due;
		if (!set->due)
			set->due_tail = &set->due;
		q->due = false;
		holder->granted(holder->ctx);
	}
}

struct lockset *lockset_new(uv_loop_t *loop)
{
	struct lockset *set = xcalloc(1, sizeof(*set));

	set->due_tail = &set->due;
	(void)uv_timer_init(loop, &set->timer);
	set->timer.data = set;
	return set;
}

static void set_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void lockset_free(struct lockset *set)
{
	if (!set)
		return;
	assert(!set->queues);
	uv_close((uv_handle_t *)&set->timer, set_closed);
}

static void make_due(struct lockset *set, struct lock_queue *q)
{
	q->due = true;
	q->next_due = NULL;
	*set->due_tail = q;
	set->due_tail = &q->next_due;
	(void)uv_timer_start(&set->timer, on_timer, 0, 0);
}

static void unmake_due(struct lockset *set, struct lock_queue *q)
{
	struct lock_queue **at = &set->due;

	while (*at != q)
		at = &(*at)->next_due;
	*at = q->next_due;
	if (!*at)
		set->due_tail = at;
	q->due = false;
}

static void take(struct lockset *set, struct lock *lock, const char *key,
	void (*granted)(void *ctx), void *ctx)
{
	struct lock_queue *q;

	assert(!lock->queue);
	HASH_FIND_STR(set->queues, key, q);
	if (!q) {
		q = xcalloc(1, sizeof(*q));
		q->name = xstrdup(key);
		q->tail = &q->head;
		HASH_ADD_KEYPTR(hh, set->queues, q->name, strlen(q->name), q);
		make_due(set, q);
	}
	*lock = (struct lock){.queue = q, .granted = granted, .ctx = ctx};
	*q->tail = lock;
	q->tail = &lock->next;
}

void lock_take(struct lockset *set, struct lock *lock, const char *kind, const char *name,
	void (*granted)(void *ctx), void *ctx)
{
	cleanup_free char *key = xasprintf("%s/%s", kind, name);

	take(set, lock, key, granted, ctx);
}

bool lock_is_held(const struct lockset *set, const char *kind, const char *name)
{
	cleanup_free char *key = xasprintf("%s/%s", kind, name);
	const struct lock_queue *q;

	HASH_FIND_STR(set->queues, key, q);
	return q != NULL;
}

void lock_release(struct lockset *set, struct lock *lock)
{
	struct lock_queue *q = lock->queue;
	struct lock **at;
	bool was_head;

	if (!q)
		return;
	was_head = q->head == lock;
	for (at = &q->head; *at != lock; at = &(*at)->next)
		;
	*at = lock->next;
	if (!*at)
		q->tail = at;
	*lock = (struct lock){0};
	if (q->head) {
		if (was_head && !q->due)
			make_due(set, q);
		return;
	}
	if (q->due)
		unmake_due(set, q);
	HASH_DEL(set->queues, q);
	free(q->name);
	free(q);
}

/* --- several at once ---------------------------------------------------------------------- */

void locks_add(struct locks *l, const char *kind, const char *name)
{
	cleanup_free char *key = xasprintf("%s/%s", kind, name);

	assert(!l->v);
	if (!strlist_has(&l->names, key))
		strlist_add(&l->names, key);
}

bool locks_have(const struct locks *l, const char *kind, const char *name)
{
	cleanup_free char *key = xasprintf("%s/%s", kind, name);

	return strlist_has(&l->names, key);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void take_next(struct locks *l);

static void on_one_granted(void *ctx)
{
	struct locks *l = ctx;

	l->at++;
	if (l->at == l->names.n)
		l->granted(l->ctx);
	else
		take_next(l);
}

static void take_next(struct locks *l)
{
	take(l->set, &l->v[l->at], l->names.v[l->at], on_one_granted, l);
}

void locks_take(
	struct lockset *set, struct locks *l, void (*granted)(void *ctx), void *ctx)
{
	assert(l->names.n > 0 && !l->v);
	qsort(l->names.v, l->names.n, sizeof(*l->names.v), compare_names);
	l->set = set;
	l->v = xcalloc(l->names.n, sizeof(*l->v));
	l->granted = granted;
	l->ctx = ctx;
	take_next(l);
}

void locks_release(struct locks *l)
{
	for (size_t i = 0; l->v && i < l->names.n; i++)
		lock_release(l->set, &l->v[i]);
	free(l->v);
	strlist_fini(&l->names);
	*l = (struct locks){0};
}
