/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publication is woken by either table, a moment later: a burst of claims changes the
 * allocations hundreds of times and the slices not at all, and looking at a thousand devices
 * between two steps of a claim would make every claim wait. Of the allocations only their coming
 * and going counts, and only for their devices; the sink is called when the devices table is
 * another one than it had.
 *
 * When the tables have been quiet for a while, what the work took is given back. With an API
 * server that is much: the libraries for it are megabytes, of which little is looked at again.
 */
#include "statd/publisher.h"

#include "common/daemon.h"
#include "statd/statd.h"

#define MOMENT_MS 50 /* longer than a claim takes, shorter than a scheduler's round */
#define QUIET_MS  2000

#define MAX_TOUCHED 256 /* for more, all are looked at */

static void annotate_all(struct statd *s)
{
	publish_annotate(&s->tables, &s->config.spec.pools, &s->publisher.flaws);
}

static void annotate_touched(struct statd *s)
{
	struct publisher *p = &s->publisher;
	struct strlist names = p->touched;

	p->touched = (struct strlist){0};
	if (names.n > MAX_TOUCHED) {
		annotate_all(s);
	} else {
		db_begin(s->tables.db);
		for (size_t i = 0; i < names.n; i++)
			publish_annotate_device(
				&s->tables, &s->config.spec.pools, &p->flaws, names.v[i]);
		db_commit(s->tables.db);
	}
	strlist_fini(&names);
}

/* The API server refuses a device: the others are published without it. */
static void on_refused(void *ctx, const char *device, const char *why)
{
	struct statd *s = ctx;
	const struct device_row *row = device_row_get(&s->tables, device);

	if (!row || s->stopping)
		return;
	flaws_refuse(&s->publisher.flaws, row, why);
	annotate_all(s);
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
	annotate_touched(s);
	if (!s->ready || !s->sink || s->publisher.told == table_revision(s->tables.devices))
		return;
	s->publisher.told = table_revision(s->tables.devices);
	s->sink->refused = on_refused;
	s->sink->refused_ctx = s;
	slice_sink_update(s->sink);
}

void publisher_init(struct statd *s)
{
	s->publisher.told = UINT64_MAX;
	(void)uv_timer_init(s->loop, &s->publisher.timer);
	s->publisher.timer.data = s;
	(void)uv_timer_init(s->loop, &s->publisher.quiet);
}

void publisher_wake(struct statd *s)
{
	if (!s->stopping && !uv_is_active((const uv_handle_t *)&s->publisher.timer))
		(void)uv_timer_start(&s->publisher.timer, on_timer, MOMENT_MS, 0);
}

/* A row's key says of which device it is and from which pool, so that an update changes neither
 * (schema_alloc_key()). */
static bool touch_devices(struct strlist *touched, const struct table_commit *commit)
{
	bool any = false;

	for (size_t i = 0; i < commit->n_changes; i++) {
		const struct table_change *c = &commit->changes[i];
		const struct alloc_row *row = c->new_rec ? c->new_rec : c->old_rec;

		if (c->op == TABLE_UPDATE)
			continue;
		any = true;
		if (touched->n <= MAX_TOUCHED)
			strlist_add(touched, row->device_name);
	}
	return any;
}

void publisher_changed(struct statd *s, const struct table_commit *commit)
{
	if (s->stopping)
		return;
	if (commit->table == s->tables.allocations) {
		if (touch_devices(&s->publisher.touched, commit))
			publisher_wake(s);
		return;
	}
	/* what a device's row says of its pool is right as soon as the device is there */
	annotate_all(s);
	publisher_wake(s);
}

void publisher_close(struct statd *s)
{
	uv_close((uv_handle_t *)&s->publisher.timer, NULL);
	uv_close((uv_handle_t *)&s->publisher.quiet, NULL);
	flaws_fini(&s->publisher.flaws);
	strlist_fini(&s->publisher.touched);
}
