/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publication is woken by either table, a moment later: a burst of claims changes the
 * allocations hundreds of times and the slices not at all, and building a thousand devices
 * between two steps of a claim would make every claim wait. One write is under way at a time,
 * what changes meanwhile makes for one more after it, and a failure is tried again.
 */
#include "statd/publisher.h"

#include <malloc.h>

#include "common/log.h"
#include "statd/flows.h"

#define MOMENT_MS 50 /* longer than a claim takes, shorter than a scheduler's round */
#define RETRY_MS  1000

static void schedule(struct statd *s, uint64_t delay_ms);

static void on_published(void *ctx, const struct err *err)
{
	struct statd *s = ctx;

	s->publisher.writing = false;
	/* building and writing a thousand devices takes megabytes for a moment, and seldom */
	(void)malloc_trim(0);
	if (err) {
		LOG(ERROR, FIELDS(F("err", err->message)), "failed to publish resources");
		s->publisher.revision = 0;
	}
	if (err || s->publisher.due)
		schedule(s, err ? RETRY_MS : 0);
	statd_job_end(s);
}

/* Where a device is offered is in its row, put there by publish_annotate(): while the devices
 * table stays as it is, so do the slices, whatever happened to allocations. */
static void publish(struct statd *s)
{
	struct publisher *p = &s->publisher;
	struct node_pool pool;

	if (p->revision > 0 && p->revision == table_revision(s->tables.devices))
		return;
	p->revision = table_revision(s->tables.devices);
	p->writing = true;
	statd_job_begin(s);
	publish_build(&s->tables, &s->config.spec.pools, &pool);
	s->store->ops->publish(s->store, s->config.spec.driver_name, s->config.node_name, &pool,
		on_published, s);
	rec_fini(&rec_node_pool, &pool);
}

static void on_timer(uv_timer_t *timer)
{
	struct statd *s = timer->data;

	s->publisher.due = false;
	/* may change the devices table, and so wake us once more */
	publish_annotate(&s->tables, &s->config.spec.pools);
	if (s->ready)
		publish(s);
}

static void schedule(struct statd *s, uint64_t delay_ms)
{
	if (s->stopping)
		return;
	s->publisher.due = true;
	if (!s->publisher.writing && !uv_is_active((const uv_handle_t *)&s->publisher.timer))
		(void)uv_timer_start(&s->publisher.timer, on_timer, delay_ms, 0);
}

void publisher_init(struct statd *s)
{
	(void)uv_timer_init(s->loop, &s->publisher.timer);
	s->publisher.timer.data = s;
}

void publisher_wake(struct statd *s)
{
	schedule(s, MOMENT_MS);
}

void publisher_close(struct statd *s)
{
	uv_close((uv_handle_t *)&s->publisher.timer, NULL);
}
