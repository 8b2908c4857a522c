/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink that is an API server.
 *
 *	watch ──▶ mirror ──┐
 *	                   ├──▶ sync: compare, then delete, replace, create ──▶ calls ──▶ mirror
 *	devices table ─────┘        one at a time
 *
 * A sync begins when the table changed, when somebody else changed a slice, or when the last one
 * failed. It holds no objects: it goes through the slices one after the other, one in each turn of
 * the loop, and builds each when it is to be written. If the table changes meanwhile it begins
 * anew, from what was written until then.
 *
 * When a sync may begin is one moment, `not_before`; the only timer waits for it and is stopped
 * when there is nothing to do. What moves that moment:
 *
 *	a failure             backs off, or what the server asks for
 *	a conflict            likewise: the watch will tell what we did not know
 *	a refusal (422, …)    more slowly, since repeating it seldom helps; but the device that it
 *	                      names is hidden at once, so that the others are published
 *	a foreign change      a second after the last of a burst, and with each repair in a row twice
 *	                      as long: whoever keeps editing has the last word most of the time,
 *	                      and we cost the server next to nothing
 *
 * Upstream's helper waits 30 s after each event of its watch, its own included, because its view
 * lags behind its writes. Here an answer counts at once and own events are recognised, so a second
 * is enough for the many deletions of a kubelet that wipes the node's slices to be one repair, and
 * a node whose kubelet restarts is without devices that much shorter.
 *
 * No more than CALLS_PER_SECOND calls are made in the long run, whatever happens.
 *
 * The name of a slice is made here and not by the server's generateName. When a creation is not
 * answered, nobody knows whether it was done; repeated under the same name it cannot be done
 * twice.
 *
 * When slices were deleted by somebody else, the Node is asked for once before they are created
 * again: if it was made anew, its UID is another, and what is owned by the old one is collected.
 */
#include "statd/slice_sink.h"

#include <inttypes.h>
#include <string.h>

#include "common/kube.h"
#include "common/daemon.h"
#include "common/log.h"
#include "statd/slice_sync.h"

#define GROUP_VERSION "resource.k8s.io/v1"
#define RESOURCE      "resourceslices"

/* A slice of 64 devices is some 45 kB of JSON, and many times that as a tree. */
#define PAGE_SIZE 4

/* A full second's worth may be made at once. */
#define CALLS_PER_SECOND 20

/* A list's first page is asked for at most this long before it begins. */
#define RECENT_MS (2 * KUBE_TIMEOUT_MS)

#define REPAIR_MS          1000
#define REPAIR_MAX_BURST   5 /* times that a repair is put off by more of the same */
#define REPAIR_FORGET_MS   300000
#define REFUSED_BACKOFF    3    /* attempt to begin with, 4 s: kube_backoff_ms() */
#define REFUSED_CHANGED_MS 1000 /* when what was refused has changed since */
#define CONFLICTS_TOLD     3    /* conflicts in a row that are worth telling */

enum op { OP_NONE, OP_NODE, OP_DELETE, OP_REPLACE, OP_CREATE };

struct sink_kube {
	struct slice_sink base;
	uv_loop_t *loop;
	struct kube *kube;
	const struct tables *tables;
	char *driver_name, *node_name, *path;
	json_t *head; /* what all slices have; with the Node's UID */
	uv_timer_t timer;
	bool begun; /* timer and watch are there */

	struct kube_watch *watch;
	struct slice_mirror mirror;
	bool fresh;      /* it has not begun its first list */
	bool list_again; /* a list is needed that is younger than our writes */

	/* the sync */
	bool dirty; /* there is to be one */
	bool syncing, decided, wrote;
	struct slice_sync sync;
	size_t next; /* slice to compare, or step to take */
	struct slice_bump bump;

	/* the call */
	struct kube_call *call;
	enum op op;
	char *name;
	size_t index;
	struct slice_sent sent;
	uint64_t answered_at; /* the last write; 0: none */

	char *unsure; /* slice of a write that had no answer, so that it may have been done */
	char *made_name; /* of a creation without an answer, to be tried again */
	size_t made_index;

	/* when */
	uint64_t not_before;
	unsigned failures, conflicts;
	bool refused;                                 /* the last failure was a refusal */
	uint64_t repair_at, repair_since, foreign_at; /* 0: none */
	unsigned repairs;
	uint64_t calls_until; /* the calls so far are paid for, at their rate */

	bool owner_doubtful;
	struct slice_sink_status status;
	uint64_t done_revision;
	char *reason, *logged; /* failure; the last one that was logged */
	const char *dropped;   /* what the server leaves out; NULL: nothing */
};

static void wake(struct sink_kube *s);

static uint64_t now(const struct sink_kube *s)
{
	return uv_now(s->loop);
}

static bool mirror_is_current(const struct sink_kube *s)
{
	return s->mirror.synced && !s->mirror.listing;
}

/* --- how it stands ------------------------------------------------------------------------ */

static void set_state(struct sink_kube *s, enum slice_sink_state state)
{
	if (s->status.state != state)
		s->status.since_ms = wall_ms();
	s->status.state = state;
	s->status.reason = NULL;
	if (state == SLICE_SINK_FAILING)
		s->status.reason = s->reason;
	else if (state == SLICE_SINK_PUBLISHED)
		s->status.reason = s->dropped;
}

/* Each failure is logged once, until another, or until all is well again. */
static void set_failing(struct sink_kube *s, const char *message)
{
	free(s->reason);
	s->reason = xstrdup(message);
	set_state(s, SLICE_SINK_FAILING);
	if (str_equal(s->logged, message))
		return;
	LOG(ERROR, FIELDS(F("err", message)), "failed to publish resources");
	free(s->logged);
	s->logged = xstrdup(message);
}

static void set_publishing(struct sink_kube *s)
{
	if (s->status.state != SLICE_SINK_FAILING)
		set_state(s, SLICE_SINK_PUBLISHING);
}

static void set_published(struct sink_kube *s)
{
	free(take_ptr(s->logged));
	set_state(s, SLICE_SINK_PUBLISHED);
}

/* --- the sync's end ----------------------------------------------------------------------- */

static void end_sync(struct sink_kube *s)
{
	if (s->syncing)
		slice_sync_end(&s->sync);
	s->syncing = false;
}

/* What was not done is done from not_before on. */
static void abort_sync(struct sink_kube *s, uint64_t not_before)
{
	end_sync(s);
	s->dirty = true;
	s->not_before = MAX(s->not_before, not_before);
}

static void list_again(struct sink_kube *s);

/* Whether the server keeps any slice other than it was sent. */
static bool anything_dropped(const struct sink_kube *s)
{
	for (const struct slice_record *r = s->mirror.records; r; r = r->hh.next)
		if (r->accepted && !r->deleted)
			return true;
	return false;
}

static void log_published(const struct slice_plan *plan)
{
	char slices[24], generation[24];

	(void)snprintf(slices, sizeof(slices), "%zu", plan->n_slices);
	(void)snprintf(generation, sizeof(generation), "%" PRId64, plan->generation);
	LOG(INFO, FIELDS(F("slices", slices), F("generation", generation)),
		"resources published");
}

static void finish_sync(struct sink_kube *s)
{
	if (s->wrote)
		log_published(&s->sync.plan);
	if (!anything_dropped(s))
		s->dropped = NULL;
	s->status.n_slices = s->sync.plan.n_slices;
	s->status.generation = s->sync.plan.generation;
	s->done_revision = s->sync.revision;
	s->bump = (struct slice_bump){0};
	s->failures = s->conflicts = 0;
	end_sync(s);
	/* trees of some slices were megabytes for a moment */
	daemon_settle();
	s->wrote = false;
	set_published(s);
	if (s->mirror.overflow)
		list_again(s);
	if (s->repair_at > 0) {
		abort_sync(s, s->repair_at);
		set_publishing(s);
	}
}

/* --- failures ----------------------------------------------------------------------------- */

static void fail(struct sink_kube *s, const struct kube_error *error, unsigned attempt)
{
	set_failing(s, error->err.message);
	s->failures++;
	abort_sync(s, now(s) + kube_backoff_ms(attempt, error->retry_after_ms));
}

/* Somebody was faster. The watch tells what happened, by the next attempt if it can. */
static void conflict(struct sink_kube *s, const struct kube_error *error)
{
	if (++s->conflicts >= CONFLICTS_TOLD)
		set_failing(s, error->err.message);
	LOG(DEBUG, FIELDS(F("err", error->err.message)), "ResourceSlice changed meanwhile");
	abort_sync(s, now(s) + kube_backoff_ms(s->conflicts - 1, error->retry_after_ms));
}

#define DEVICES_FIELD "spec.devices["

/* Whether the error names a device, and that is hidden now: then all is well without it. */
static bool hide_refused(struct sink_kube *s, const struct kube_error *error)
{
	const char *field = strstr(error->err.message, DEVICES_FIELD), *device;
	cleanup_free char *name = NULL;
	char *end;
	unsigned long place;

	if (!field || !s->base.refused || !s->syncing || slice_sync_is_outdated(&s->sync))
		return false;
	place = strtoul(field + strlen(DEVICES_FIELD), &end, 10);
	device = *end == ']' ? slice_sync_device(&s->sync, s->index, place) : NULL;
	if (!device)
		return false;
	name = xstrdup(device);
	s->base.refused(s->base.refused_ctx, name, field);
	return slice_sync_is_outdated(&s->sync);
}

static void refuse(struct sink_kube *s, const struct kube_error *error)
{
	if (hide_refused(s, error)) {
		abort_sync(s, 0);
		return;
	}
	s->refused = true;
	fail(s, error, MAX(s->failures, (unsigned)REFUSED_BACKOFF));
}

static bool is_refusal(const struct kube_error *error)
{
	return error->status == 400 || error->status == 413 || error->status == 422;
}

/* A write failed. */
static void write_failed(struct sink_kube *s, const struct kube_error *error)
{
	/* by an earlier attempt of ours, since nobody else makes such names */
	bool exists = s->op == OP_CREATE && error->status == 409;
	bool denied = error->status >= 400 && error->status < 500;

	s->refused = false;
	/* a conflict may be with what was done without an answer */
	if (error->status != 409)
		free(take_ptr(s->unsure));
	if (!denied || exists) {
		free(s->unsure);
		s->unsure = xstrdup(s->name);
	}
	if (s->op == OP_CREATE && denied)
		free(take_ptr(s->made_name));
	/* the watch should have told: it may be long in coming back */
	s->list_again |= exists;
	if (error->err.kind == ERR_CONFLICT ||
		(s->op == OP_REPLACE && error->err.kind == ERR_NOT_FOUND))
		conflict(s, error);
	else if (is_refusal(error))
		refuse(s, error);
	else
		fail(s, error, s->failures);
}

/* --- what somebody else does -------------------------------------------------------------- */

static uint64_t repair_delay(const struct sink_kube *s)
{
	return s->repairs == 0 ? REPAIR_MS : kube_backoff_ms(s->repairs + 1, 0);
}

static void on_foreign(struct sink_kube *s, enum slice_news news)
{
	uint64_t delay;

	if (s->foreign_at > 0 && now(s) - s->foreign_at > REPAIR_FORGET_MS)
		s->repairs = 0;
	s->foreign_at = now(s);
	if (s->repair_at == 0)
		s->repair_since = now(s);
	delay = repair_delay(s);
	s->repair_at = MIN(now(s) + delay, s->repair_since + REPAIR_MAX_BURST * delay);
	s->owner_doubtful |= news == SLICE_NEWS_WENT;
	/* an edit can wait until the others are done; else the plan is about what is no more */
	if (!s->syncing || news != SLICE_NEWS_EDITED)
		abort_sync(s, s->repair_at);
	set_publishing(s);
	wake(s);
}

/* What the watch tells is what became of our own write, whose answer never came. */
static bool is_unsure(const struct sink_kube *s, const json_t *object)
{
	const char *name =
		json_string_value(json_object_get(json_object_get(object, "metadata"), "name"));

	return s->unsure && str_equal(s->unsure, name);
}

/* A list that the watch made by itself may be older than our last writes, and what they created
 * would seem to have gone. Then another is made, before which nothing is written. */
static void on_watch_begin(void *ctx)
{
	struct sink_kube *s = ctx;
	bool recent = s->answered_at > 0 && now(s) - s->answered_at < RECENT_MS;

	if (s->fresh) {
		s->fresh = false;
	} else if (s->call && s->op != OP_NODE) {
		s->list_again = true;
	} else if (recent) {
		list_again(s);
		return;
	}
	slice_mirror_begin(&s->mirror);
}

static void on_watch_event(void *ctx, enum kube_event event, const json_t *object)
{
	struct sink_kube *s = ctx;
	struct err err;
	enum slice_news news = slice_mirror_event(&s->mirror, event, object, &err);

	if (err.kind != ERR_NONE)
		LOG(WARN, FIELDS(F("err", err.message)), "ResourceSlice is ignored");
	if (news == SLICE_NEWS_NONE || !s->mirror.synced)
		return;
	if (is_unsure(s, object)) {
		free(take_ptr(s->unsure));
		abort_sync(s, 0);
		wake(s);
		return;
	}
	on_foreign(s, news);
}

static void on_watch_synced(void *ctx)
{
	struct sink_kube *s = ctx;
	enum slice_news news;

	/* it does not count: another is made as soon as the call is answered */
	if (s->list_again)
		return;
	news = slice_mirror_synced(&s->mirror);
	if (news != SLICE_NEWS_NONE)
		on_foreign(s, news);
	if (s->status.state == SLICE_SINK_FAILING && !s->dirty && !s->syncing)
		set_published(s);
	wake(s);
}

static void on_watch_failed(void *ctx, const struct kube_error *error, uint64_t retry_ms)
{
	struct sink_kube *s = ctx;

	(void)retry_ms;
	if (!mirror_is_current(s))
		set_failing(s, error->err.message);
	else
		LOG(WARN, FIELDS(F("err", error->err.message)),
			"watching ResourceSlices failed");
}

static const struct kube_watch_ops watch_ops = {
	.begin = on_watch_begin,
	.event = on_watch_event,
	.synced = on_watch_synced,
	.failed = on_watch_failed,
};

static void watch_new(struct sink_kube *s)
{
	cleanup_free char *selector =
		xasprintf("spec.driver=%s,spec.nodeName=%s", s->driver_name, s->node_name);
	struct buf query = BUF_INIT;

	kube_query(&query, "fieldSelector", selector);
	s->fresh = true;
	s->watch = kube_watch_new(s->kube, s->path, query.data, PAGE_SIZE, &watch_ops, s);
	buf_fini(&query);
}

/* To be called with no write under way; nothing is written until the list is complete. */
static void list_again(struct sink_kube *s)
{
	s->list_again = false;
	kube_watch_free(s->watch);
	slice_mirror_begin(&s->mirror);
	watch_new(s);
}

/* --- answers ------------------------------------------------------------------------------ */

static void call_end(struct sink_kube *s)
{
	if (s->op != OP_NODE)
		s->answered_at = now(s);
	s->call = NULL;
	s->op = OP_NONE;
	slice_mirror_call_end(&s->mirror);
	free(take_ptr(s->name));
	if (s->list_again)
		list_again(s);
	wake(s);
}

static void write_succeeded(struct sink_kube *s)
{
	s->failures = s->conflicts = 0;
	if (str_equal(s->unsure, s->name))
		free(take_ptr(s->unsure));
}

static void on_deleted(void *ctx, const struct kube_error *error, const json_t *object)
{
	struct sink_kube *s = ctx;

	(void)object;
	if (error && error->err.kind != ERR_NOT_FOUND) {
		write_failed(s, error);
	} else {
		slice_mirror_deleted(&s->mirror, s->name);
		write_succeeded(s);
	}
	call_end(s);
}

static const char *what_was_dropped(const struct slice_gated *sent, const json_t *object)
{
	struct slice_gated kept = {0};
	const json_t *device;
	size_t i;

	json_array_foreach (
		json_object_get(json_object_get(object, "spec"), "devices"), i, device)
		slice_gated_add(&kept, device);
	if (kept.allow_multiple < sent->allow_multiple ||
		kept.request_policies < sent->request_policies)
		return "the API server dropped allowMultipleAllocations or requestPolicy of "
		       "devices "
		       "that can be shared, probably because its feature gate "
		       "DRAConsumableCapacity is off: each of them can be allocated only once, "
		       "and not as a share";
	return "the API server keeps ResourceSlices other than they were sent, for a reason "
	       "not "
	       "known here";
}

/* What the server made of a slice is as good as what was sent, or we would send it again for
 * ever. */
static void adopt(struct sink_kube *s, struct slice_record *record, const json_t *object)
{
	const char *dropped;

	record->verified = s->sent.revision;
	record->accepted = 0;
	if (record->digest == s->sent.digest)
		return;
	record->accepted = s->sent.digest;
	dropped = what_was_dropped(&s->sent.gated, object);
	if (dropped != s->dropped)
		LOG(ERROR, NO_FIELDS, "%s", dropped);
	s->dropped = dropped;
}

static void take_answer(struct sink_kube *s, const json_t *object)
{
	struct kube_error error = {.err = ERR_INIT};
	enum slice_news news;
	struct slice_record *record =
		slice_mirror_written(&s->mirror, object, &news, &error.err);

	if (record && news == SLICE_NEWS_NONE)
		adopt(s, record, object);
	else if (news != SLICE_NEWS_NONE)
		on_foreign(s, news);
	else
		fail(s, &error, s->failures);
}

static void on_written(void *ctx, const struct kube_error *error, const json_t *object)
{
	struct sink_kube *s = ctx;

	if (error) {
		write_failed(s, error);
	} else {
		write_succeeded(s);
		if (s->op == OP_CREATE)
			free(take_ptr(s->made_name));
		take_answer(s, object);
	}
	call_end(s);
}

static void set_owner(struct sink_kube *s, const char *uid)
{
	json_decref(s->head);
	s->head = json_pack("{s:s, s:s, s:{s:[{s:s, s:s, s:s, s:s, s:b}]}, s:{s:s, s:s}}",
		"apiVersion", GROUP_VERSION, "kind", "ResourceSlice", "metadata",
		"ownerReferences", "apiVersion", "v1", "kind", "Node", "name", s->node_name,
		"uid", uid, "controller", 1, "spec", "driver", s->driver_name, "nodeName",
		s->node_name);
}

static void on_node(void *ctx, const struct kube_error *error, const json_t *object)
{
	struct sink_kube *s = ctx;
	const char *uid =
		json_string_value(json_object_get(json_object_get(object, "metadata"), "uid"));

	/* who may not ask keeps what is known */
	if (error && error->status != 403) {
		fail(s, error, s->failures);
		call_end(s);
		return;
	}
	s->owner_doubtful = false;
	if (uid) {
		set_owner(s, uid);
		for (struct slice_record *r = s->mirror.records; r; r = r->hh.next)
			r->verified = 0;
	}
	call_end(s);
}

/* --- calls -------------------------------------------------------------------------------- */

/* Whether a call may be made now; if not, not_before says when. */
static bool may_call(struct sink_kube *s)
{
	const uint64_t cost_ms = 1000 / CALLS_PER_SECOND;

	s->calls_until = MAX(s->calls_until, now(s));
	if (s->calls_until - now(s) > 1000 - cost_ms) {
		s->not_before = MAX(s->not_before, s->calls_until - (1000 - cost_ms));
		return false;
	}
	s->calls_until += cost_ms;
	return true;
}

/* Takes name. */
static void call_begin(struct sink_kube *s, enum op op, char *name)
{
	s->op = op;
	s->name = name;
	s->wrote |= op != OP_NODE;
	if (op != OP_NODE)
		slice_mirror_call_begin(&s->mirror, s->name, op == OP_DELETE);
}

static char *path_of(const char *name)
{
	return kube_path(GROUP_VERSION, NULL, RESOURCE, name, NULL);
}

static void get_node(struct sink_kube *s)
{
	cleanup_free char *path = kube_path("v1", NULL, "nodes", s->node_name, NULL);

	call_begin(s, OP_NODE, NULL);
	s->call = kube_get(s->kube, path, on_node, s);
}

static void delete_slice(struct sink_kube *s, const struct slice_record *record)
{
	cleanup_free char *path = path_of(record->name);

	call_begin(s, OP_DELETE, xstrdup(record->name));
	s->call = kube_delete(
		s->kube, path, record->uid, record->resource_version, on_deleted, s);
}

static void replace_slice(struct sink_kube *s, size_t index)
{
	const struct slice_record *record = s->sync.plan.slices[index];
	json_t *object = slice_sync_build(&s->sync, s->head, index, NULL, &s->sent);
	cleanup_free char *path = path_of(record->name);

	call_begin(s, OP_REPLACE, xstrdup(record->name));
	s->index = index;
	s->call = kube_replace(s->kube, path, object, on_written, s);
	json_decref(object);
}

/* The name of a creation that may have been done already is used again. */
static void create_slice(struct sink_kube *s, size_t index)
{
	json_t *object;

	if (s->made_name && s->made_index != index)
		free(take_ptr(s->made_name));
	if (!s->made_name)
		s->made_name = slice_name_new(
			index, s->sync.plan.n_slices, s->driver_name, s->node_name);
	s->made_index = index;
	object = slice_sync_build(&s->sync, s->head, index, s->made_name, &s->sent);
	call_begin(s, OP_CREATE, xstrdup(s->made_name));
	s->index = index;
	s->call = kube_create(s->kube, s->path, object, on_written, s);
	json_decref(object);
}

/* --- the sync ----------------------------------------------------------------------------- */

static void begin_sync(struct sink_kube *s)
{
	if (s->repair_at > 0) {
		LOG(INFO, NO_FIELDS, "ResourceSlices were changed by somebody else");
		s->repairs++;
	}
	s->repair_at = 0;
	if (s->made_name && slice_mirror_get(&s->mirror, s->made_name))
		free(take_ptr(s->made_name));
	s->dirty = false;
	s->syncing = true;
	s->decided = false;
	s->next = 0;
	set_publishing(s);
	slice_sync_begin(&s->sync, s->tables, &s->mirror, s->bump);
}

/* Up to the first slice that took some time. */
static void compare(struct sink_kube *s)
{
	struct slice_plan *plan = &s->sync.plan;

	while (s->next < plan->n_slices)
		if (slice_sync_compare(&s->sync, s->head, s->next++))
			return;
	slice_plan_decide(plan);
	s->decided = true;
	s->next = 0;
}

/* The steps: first each obsolete slice, then each that may be to replace, then each that may be
 * to create. */
static size_t count_steps(const struct slice_plan *plan)
{
	return plan->n_obsolete + 2 * plan->n_slices;
}

enum step { STEP_NONE, STEP_DELETE, STEP_REPLACE, STEP_CREATE };

/* What step n does, to the slice at *ret_index. */
static enum step step_at(const struct slice_plan *plan, size_t n, size_t *ret_index)
{
	*ret_index = n;
	if (n < plan->n_obsolete)
		return STEP_DELETE;
	n -= plan->n_obsolete;
	*ret_index = n % plan->n_slices;
	if (n < plan->n_slices)
		return plan->slices[n] && plan->changed[n] ? STEP_REPLACE : STEP_NONE;
	return plan->slices[*ret_index] ? STEP_NONE : STEP_CREATE;
}

static void take_step(struct sink_kube *s, enum step step, size_t index)
{
	const struct slice_plan *plan = &s->sync.plan;

	if (plan->generation > plan->highest)
		s->bump = (struct slice_bump){.from = plan->highest, .to = plan->generation};
	s->next++;
	if (step == STEP_DELETE)
		delete_slice(s, plan->obsolete[index]);
	else if (step == STEP_REPLACE)
		replace_slice(s, index);
	else
		create_slice(s, index);
}

static void write_next(struct sink_kube *s)
{
	const struct slice_plan *plan = &s->sync.plan;

	for (; s->next < count_steps(plan); s->next++) {
		size_t index;
		enum step step = step_at(plan, s->next, &index);

		if (step == STEP_NONE)
			continue;
		if (may_call(s))
			take_step(s, step, index);
		return;
	}
	finish_sync(s);
}

static void work(struct sink_kube *s)
{
	if (s->syncing && slice_sync_is_outdated(&s->sync))
		abort_sync(s, 0);
	if (s->owner_doubtful) {
		if (may_call(s))
			get_node(s);
		return;
	}
	if (!s->syncing)
		begin_sync(s);
	else if (!s->decided)
		compare(s);
	else
		write_next(s);
}

static void on_timer(uv_timer_t *timer)
{
	struct sink_kube *s = timer->data;

	work(s);
	wake(s);
}

/* Has the timer wait for the next piece of work, if there is one that waits for nothing else. */
static void wake(struct sink_kube *s)
{
	bool work_left = s->dirty || s->syncing;

	(void)uv_timer_stop(&s->timer);
	if (!work_left || s->call || !mirror_is_current(s))
		return;
	(void)uv_timer_start(
		&s->timer, on_timer, s->not_before > now(s) ? s->not_before - now(s) : 0, 0);
}

/* --- the sink ----------------------------------------------------------------------------- */

static void kube_update(struct slice_sink *base)
{
	struct sink_kube *s = container_of(base, struct sink_kube, base);

	if (!s->begun) {
		(void)uv_timer_init(s->loop, &s->timer);
		s->timer.data = s;
		s->begun = true;
		watch_new(s);
	} else if (s->done_revision == table_revision(s->tables->devices)) {
		return;
	}
	s->dirty = true;
	if (s->refused)
		s->not_before = MIN(s->not_before, now(s) + REFUSED_CHANGED_MS);
	set_publishing(s);
	wake(s);
}

static void kube_status(const struct slice_sink *base, struct slice_sink_status *ret)
{
	*ret = ((const struct sink_kube *)(const void *)base)->status;
}

static void sink_free(struct sink_kube *s)
{
	slice_mirror_fini(&s->mirror);
	json_decref(s->head);
	free(s->driver_name);
	free(s->node_name);
	free(s->path);
	free(s->name);
	free(s->unsure);
	free(s->made_name);
	free(s->reason);
	free(s->logged);
	free(s);
}

static void on_closed(uv_handle_t *handle)
{
	sink_free(handle->data);
}

static void kube_sink_free(struct slice_sink *base)
{
	struct sink_kube *s = container_of(base, struct sink_kube, base);

	end_sync(s);
	if (s->call)
		kube_cancel(s->call);
	kube_watch_free(s->watch);
	if (s->begun)
		uv_close((uv_handle_t *)&s->timer, on_closed);
	else
		sink_free(s);
}

static const struct slice_sink_ops kube_ops = {
	.kind = "API server",
	.update = kube_update,
	.status = kube_status,
	.free = kube_sink_free,
};

struct slice_sink *slice_sink_kube_new(uv_loop_t *loop, struct kube *kube,
	const struct tables *tables, const char *driver_name, const char *node_name,
	const char *node_uid)
{
	struct sink_kube *s = xcalloc(1, sizeof(*s));

	*s = (struct sink_kube){
		.base = {.ops = &kube_ops}, .loop = loop, .kube = kube, .tables = tables};
	s->driver_name = xstrdup(driver_name);
	s->node_name = xstrdup(node_name);
	s->path = path_of(NULL);
	s->mirror.driver_name = s->driver_name;
	s->mirror.node_name = s->node_name;
	set_owner(s, node_uid);
	return &s->base;
}
