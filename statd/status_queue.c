/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry a claim, the newest wish alone: an entry that is replaced while its call is under way is
 * tried once more when that has ended. Entries wait in the order in which they are due; a timer runs
 * while the first of them has to wait, and none while there is nothing to do.
 *
 * What became of a write is known from the store's answer: a claim that is gone or was replaced has
 * no status of ours any more, and everything else may pass.
 */
#include "statd/status_queue.h"

#include <string.h>
#include <utlist.h>

#include "common/hash.h"
#include "common/kube.h"
#include "common/log.h"
#include "statd/flows.h"
#include "statd/statd.h"

struct status_entry {
	struct status_queue *queue;
	struct claim_ref claim;
	json_t *devices; /* NULL: none are to be there */
	struct claim_seen seen;
	uint64_t due_ms;
	unsigned attempts;
	bool under_way;
	bool stale;     /* something newer is to be written after this call */
	bool forgotten; /* nothing is to be written after it, whatever comes of it */
	void (*done)(void *ctx, const struct err *err);
	void *ctx;
	struct status_entry *prev, *next; /* in the queue, while it is not under way */
	UT_hash_handle hh;
};

static void queue_run(struct status_queue *q);

static struct status_entry *find(const struct status_queue *q, const char *uid)
{
	struct status_entry *e;

	HASH_FIND_STR(q->by_uid, uid, e);
	return e;
}

/* --- entries ------------------------------------------------------------------------------ */

/* A second try meets another version of the claim. */
static void forget_seen(struct status_entry *e)
{
	free(take_ptr(e->seen.version));
	strlist_fini(&e->seen.drivers);
}

static void drop_wish(struct status_entry *e)
{
	json_decref(take_ptr(e->devices));
	forget_seen(e);
}

static void entry_free(struct status_entry *e)
{
	drop_wish(e);
	free(e->claim.namespace);
	free(e->claim.name);
	free(e->claim.uid);
	free(e);
}

static void unlink_entry(struct status_queue *q, struct status_entry *e)
{
	if (!e->under_way)
		DL_DELETE(q->first, e);
	HASH_DEL(q->by_uid, e);
}

/* By when they are due: nearly always at the end. */
static void enqueue(struct status_queue *q, struct status_entry *e)
{
	struct status_entry *at = q->first;

	e->under_way = false;
	if (!at || q->first->prev->due_ms <= e->due_ms) {
		DL_APPEND(q->first, e);
		return;
	}
	while (at->due_ms <= e->due_ms)
		at = at->next;
	DL_PREPEND_ELEM(q->first, at, e);
}

/* The entry of this claim, whose former wish is forgotten. wait: somebody waits for it. */
static struct status_entry *entry_for(
	struct status_queue *q, const struct claim_ref *claim, bool wait)
{
	struct status_entry *e = find(q, claim->uid);

	if (e) {
		drop_wish(e);
		e->stale = e->under_way;
		e->forgotten = false;
		e->attempts = 0;
		if (!e->under_way)
			DL_DELETE(q->first, e);
	} else {
		e = xcalloc(1, sizeof(*e));
		e->queue = q;
		e->claim = (struct claim_ref){xstrdup(claim->namespace), xstrdup(claim->name),
			xstrdup(claim->uid)};
		HASH_ADD_KEYPTR(hh, q->by_uid, e->claim.uid, strlen(e->claim.uid), e);
	}
	e->due_ms = now_ms() + (wait ? 0 : STATUS_DELAY_MS);
	if (!e->under_way)
		enqueue(q, e);
	return e;
}

/* --- ends --------------------------------------------------------------------------------- */

/* The claim's status is as it should be, or there is no such claim any more. */
static void settle(struct status_entry *e, const struct err *err)
{
	struct status_queue *q = e->queue;
	void (*done)(void *ctx, const struct err *err) = e->done;
	cleanup_free char *uid = xstrdup(e->claim.uid);
	struct err failure = err ? *err : (struct err)ERR_INIT;
	void *ctx = e->ctx;

	HASH_DEL(q->by_uid, e);
	entry_free(e);
	if (!q->by_uid)
		free(take_ptr(q->trouble));
	if (done)
		done(ctx, err ? &failure : NULL);
	else
		record_save_or_log(q->s, uid);
}

static void try_later(struct status_entry *e, const struct err *err)
{
	struct status_queue *q = e->queue;

	if (!str_equal(q->trouble, err->message)) {
		LOG(WARN, FIELDS(F("claim", e->claim.uid), F("err", err->message)),
			"claim status is not written; trying again");
		free(q->trouble);
		q->trouble = xstrdup(err->message);
	}
	e->due_ms = now_ms() + kube_backoff_ms(e->attempts++, 0);
	enqueue(q, e);
}

static void on_called(void *ctx, const struct err *err)
{
	struct status_entry *e = ctx;
	struct status_queue *q = e->queue;

	q->n_calls--;
	if (q->closing) {
		if (e->done)
			e->done(e->ctx, err);
		HASH_DEL(q->by_uid, e);
		entry_free(e);
		return;
	}
	if (e->stale) {
		e->stale = false;
		enqueue(q, e);
	} else if (e->forgotten) {
		settle(e, NULL);
	} else if (!err || e->done) {
		settle(e, err);
	} else if (err->kind == ERR_NOT_FOUND || err->kind == ERR_CONFLICT) {
		LOG(INFO, FIELDS(F("claim", e->claim.uid), F("err", err->message)),
			"claim has no status to be written any more");
		settle(e, NULL);
	} else {
		try_later(e, err);
	}
	queue_run(q);
}

/* --- calls -------------------------------------------------------------------------------- */

static void call(struct status_entry *e)
{
	struct status_queue *q = e->queue;
	struct statd *s = q->s;
	const char *driver = s->config.spec.driver_name;

	DL_DELETE(q->first, e);
	e->under_way = true;
	q->n_calls++;
	if (e->devices)
		s->store->ops->write_status(s->store, &e->claim,
			e->seen.version ? &e->seen : NULL, driver, e->devices, on_called, e);
	else
		s->store->ops->remove_status(s->store, &e->claim, driver, on_called, e);
	forget_seen(e);
}

static void on_timer(uv_timer_t *timer)
{
	queue_run(timer->data);
}

/* From the loop even if something is due now: the caller's answer goes first. */
static void start_timer(struct status_queue *q)
{
	const uint64_t now = now_ms();

	if (q->closing || !q->first || q->n_calls >= STATUS_AT_ONCE)
		(void)uv_timer_stop(&q->timer);
	else
		(void)uv_timer_start(&q->timer, on_timer,
			q->first->due_ms > now ? q->first->due_ms - now : 0, 0);
}

static void queue_run(struct status_queue *q)
{
	const uint64_t now = now_ms();

	while (!q->closing && q->s->store && q->first && q->n_calls < STATUS_AT_ONCE &&
		q->first->due_ms <= now)
		call(q->first);
	start_timer(q);
}

/* --- public API --------------------------------------------------------------------------- */

void status_queue_init(struct status_queue *q, struct statd *s)
{
	*q = (struct status_queue){.s = s};
	(void)uv_timer_init(s->loop, &q->timer);
	q->timer.data = q;
}

void status_queue_close(struct status_queue *q)
{
	q->closing = true;
	uv_close((uv_handle_t *)&q->timer, NULL);
}

void status_queue_fini(struct status_queue *q)
{
	struct status_entry *e, *tmp;

	HASH_ITER (hh, q->by_uid, e, tmp) {
		unlink_entry(q, e);
		entry_free(e);
	}
	free(q->trouble);
}

void status_queue_write(struct status_queue *q, const struct claim_ref *claim,
	struct claim_seen *seen, json_t *devices,
	void (*done)(void *ctx, const struct err *err), void *ctx)
{
	struct status_entry *e = entry_for(q, claim, done != NULL);

	e->devices = devices;
	if (seen) {
		e->seen = *seen;
		*seen = (struct claim_seen){0};
	}
	e->done = done;
	e->ctx = ctx;
	start_timer(q);
}

void status_queue_remove(struct status_queue *q, const struct claim_ref *claim)
{
	if (!find(q, claim->uid) && HASH_COUNT(q->by_uid) >= STATUS_MAX_DUE) {
		LOG(ERROR, FIELDS(F("claim", claim->uid)),
			"the status of %d claims waits to be written; that of this one is not removed",
			STATUS_MAX_DUE);
		return;
	}
	(void)entry_for(q, claim, false);
	start_timer(q);
}

void status_queue_forget(struct status_queue *q, const char *claim_uid)
{
	struct status_entry *e = find(q, claim_uid);

	if (!e)
		return;
	if (e->under_way) {
		drop_wish(e);
		e->stale = false;
		e->forgotten = true;
		e->done = NULL;
		return;
	}
	unlink_entry(q, e);
	entry_free(e);
}

const struct claim_ref *status_queue_due(const struct status_queue *q, const char *claim_uid)
{
	const struct status_entry *e = find(q, claim_uid);

	return e ? &e->claim : NULL;
}

size_t status_queue_count(const struct status_queue *q)
{
	return HASH_COUNT(q->by_uid);
}
