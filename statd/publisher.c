/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publication is woken by either table, a moment later: a burst of claims changes the
 * allocations hundreds of times and the slices not at all, and looking at a thousand devices
 * between two steps of a claim would make every claim wait.
 *
 * When the tables have been quiet for a while, what the work took is given back. With an API
 * server that is much: the libraries for it are megabytes, of which little is looked at again.
 */
#include "statd/publisher.h"

#include "common/daemon.h"
#include "statd/statd.h"

#define MOMENT_MS 50 /* longer than a claim takes, shorter than a scheduler's round */
#define QUIET_MS  2000

/* The API server refuses a device: the others are published without it. */
static void on_refused(void *ctx, const char *device, const char *why)
{
	struct statd *s = ctx;
	const struct device_row *row = device_row_get(&s->tables, device);

	if (!row || s->stopping)
		return;
	flaws_refuse(&s->publisher.flaws, row, why);
	publisher_annotate(s);
}

static void on_quiet(uv_timer_t *timer UNUSED)
{
	daemon_settle();
}

static void on_timer(uv_timer_t *timer)
{
	struct statd *s = timer->data;

	if (s->cluster.kube && !s->stopping)
		(void)uv_timer_start(&s->publisher.quiet, on_quiet, QUIET_MS, 0);

	/* may change the devices table, and so wake us once more */
	publisher_annotate(s);
	if (!s->ready || !s->sink)
		return;
	s->sink->refused = on_refused;
	s->sink->refused_ctx = s;
	slice_sink_update(s->sink);
}

void publisher_init(struct statd *s)
{
	(void)uv_timer_init(s->loop, &s->publisher.timer);
	s->publisher.timer.data = s;
	(void)uv_timer_init(s->loop, &s->publisher.quiet);
}

void publisher_wake(struct statd *s)
{
	if (!s->stopping && !uv_is_active((const uv_handle_t *)&s->publisher.timer))
		(void)uv_timer_start(&s->publisher.timer, on_timer, MOMENT_MS, 0);
}

void publisher_annotate(struct statd *s)
{
	publish_annotate(&s->tables, &s->config.spec.pools, &s->publisher.flaws);
}

void publisher_close(struct statd *s)
{
	uv_close((uv_handle_t *)&s->publisher.timer, NULL);
	uv_close((uv_handle_t *)&s->publisher.quiet, NULL);
	flaws_fini(&s->publisher.flaws);
}
