/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freeing in the background what a preparation left unfinished.
 *
 * A preparation that fails undoes what it did, and one that was interrupted by the end of the
 * process has left rows in its record that say so. What could not be freed at once, because its
 * manager is away, hangs or refuses, stays the claim's: nobody else gets the device. Here it is
 * tried again with growing pauses, and at once when a manager connects, until the rows are gone:
 * freed here, freed by an unprepare, or finished by a later preparation of the same claim.
 *
 *	wait ─▶ LOCK claim, pods ─▶ LET GO of what is unfinished ─▶ end, or wait again
 */
#include <string.h>
#include <utlist.h>

#include "common/kube.h"
#include "common/log.h"
#include "statd/flows.h"

struct release {
	struct statd *s;
	char *claim_uid;
	bool interrupted;
	unsigned attempts;
	uv_timer_t timer;
	bool working;
	struct lock lock; /* the claim's */
	struct locks pods;
	struct release *prev, *next;
};

static void release_start(struct release *r);

static void on_closed(uv_handle_t *handle)
{
	struct release *r = handle->data;

	free(r->claim_uid);
	free(r);
}

static void release_end(struct release *r)
{
	DL_DELETE(r->s->releases, r);
	uv_close((uv_handle_t *)&r->timer, on_closed);
}

static void on_timer(uv_timer_t *timer)
{
	release_start(timer->data);
}

static void stop_working(struct release *r)
{
	struct statd *s = r->s;

	locks_release(&r->pods);
	lock_release(s->locks, &r->lock);
	r->working = false;
	statd_job_end(s);
}

static void on_let_go(void *ctx, const struct err *err)
{
	struct release *r = ctx;

	if (!err) {
		LOG(INFO, FIELDS(F("claim", r->claim_uid)),
			"freed what a preparation had left unfinished");
		release_end(r);
	} else {
		LOG(WARN, FIELDS(F("claim", r->claim_uid), F("err", err->message)),
			"what a preparation left unfinished cannot be freed yet; its devices stay held");
		if (!r->s->stopping)
			(void)uv_timer_start(
				&r->timer, on_timer, kube_backoff_ms(r->attempts++, 0), 0);
	}
	stop_working(r);
}

static void collect_unfinished(const struct release *r, struct strlist *keys)
{
	const struct table_row *at =
		table_index_first(r->s->tables.allocations, ALLOC_BY_CLAIM, r->claim_uid);

	for (; at; at = table_index_next(at, ALLOC_BY_CLAIM))
		if (alloc_row_of(at)->unfinished.v)
			strlist_add(keys, at->key);
}

/* Its user sees once what became of a preparation that did not come to its end. */
static void report_interrupted(struct release *r, const char *key)
{
	const struct alloc_row *row = table_get(r->s->tables.allocations, key);
	const struct claim_ref ref = {row->claim_namespace, row->claim_name, row->claim_uid};
	cleanup_free char *note = xasprintf(
		"its preparation was interrupted; device %s is freed", row->device_name);

	if (!r->interrupted)
		return;
	r->interrupted = false;
	LOG(WARN, FIELDS(F("claim", row->claim_uid), F("device", row->device_name)),
		"claim %s/%s was being prepared when the driver ended; freeing its device",
		ref.namespace, ref.name);
	event_claim(r->s, &ref, EVENT_LEFTOVER_FREED, note);
}

static void on_pods_locked(void *ctx)
{
	struct release *r = ctx;
	struct strlist keys = {0};

	collect_unfinished(r, &keys);
	report_interrupted(r, keys.v[0]);
	let_go(r->s, &keys, NULL, on_let_go, r);
}

static void on_claim_locked(void *ctx)
{
	struct release *r = ctx;
	struct strlist keys = {0};
	size_t n;

	collect_unfinished(r, &keys);
	n = keys.n;
	strlist_fini(&keys);
	if (n == 0) {
		release_end(r);
		stop_working(r);
		return;
	}
	add_pod_locks(r->s, r->claim_uid, &r->pods);
	locks_take(r->s->locks, &r->pods, on_pods_locked, r);
}

static void release_start(struct release *r)
{
	if (r->working || r->s->stopping)
		return;
	(void)uv_timer_stop(&r->timer);
	r->working = true;
	statd_job_begin(r->s);
	lock_take(r->s->locks, &r->lock, "claim", r->claim_uid, on_claim_locked, r);
}

void release_later(struct statd *s, const char *claim_uid, bool interrupted)
{
	struct release *r;

	DL_FOREACH(s->releases, r)
	{
		if (strcmp(r->claim_uid, claim_uid) == 0)
			return;
	}
	r = xcalloc(1, sizeof(*r));
	*r = (struct release){.s = s, .interrupted = interrupted};
	r->claim_uid = xstrdup(claim_uid);
	(void)uv_timer_init(s->loop, &r->timer);
	r->timer.data = r;
	DL_APPEND(s->releases, r);
	(void)uv_timer_start(&r->timer, on_timer, kube_backoff_ms(r->attempts++, 0), 0);
}

void release_now(struct statd *s)
{
	struct release *r;

	DL_FOREACH(s->releases, r)
	{
		r->attempts = 0;
		release_start(r);
	}
}

void release_close(struct statd *s)
{
	struct release *r, *tmp;

	DL_FOREACH_SAFE(s->releases, r, tmp)
	{
		release_end(r);
	}
}
