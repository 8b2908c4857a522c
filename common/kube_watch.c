/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches: a list, and then what changed since, for ever.
 *
 *	          list is there            the stream ended
 *	LISTING -----------------> STREAMING ---------------+
 *	  ^  ^                       |  ^                   |
 *	  |  |  the server forgot    |  +-------------------+ from the last version heard of
 *	  |  +-----------------------+
 *	  |            a failure in either
 *	  +---- PAUSED <----- (back to where it was: the version is kept unless it is too old)
 *
 * The server ends each stream after the time that it is asked to last, which differs from one
 * to the next, so that the watches of many nodes do not begin all at once again. Bookmarks
 * bring new versions while nothing happens, so that the last one heard of is seldom too old.
 *
 * Attempts that follow each other without anything gained wait longer and longer. Something is
 * gained when an event or a bookmark comes, or the stream lasts.
 */
#include "common/kube_internal.h"

#include <string.h>
#include <utlist.h>

#define STREAM_MIN_S     300
#define STREAM_MAX_S     600
/* What a server may take to end a stream when its time is over. */
#define STREAM_SLACK_MS  30000
/* Until the stream begins: a server may first wait for its own cache. */
#define STREAM_ANSWER_MS 15000
/* After so many failures in a row it may be what we ask for that is wrong. */
#define SUSPECT_ATTEMPTS 3
/* A stream that lasted for this long was worth it. */
#define STREAM_WORTH_MS  5000

struct kube_watch {
	struct kube *kube; /* NULL: it is gone */
	char *path, *query;
	unsigned page_size;
	const struct kube_watch_ops *ops;
	void *ctx;
	struct kube_list *list;
	struct kube_transfer stream;
	bool streaming;
	unsigned lasts_s; /* what this stream was asked to last */
	uint64_t begun_ms;
	struct kube_lines lines;
	char *version;    /* NULL: a list is needed */
	unsigned attempt; /* failures in a row */
	bool jumped;      /* it went on at once, and nothing was gained since */
	bool from_list;   /* version is, and nothing was gained since */
	bool freed;
	uv_timer_t timer;
	struct kube_watch *prev, *next;
};

static void proceed(struct kube_watch *w);

/* --- waiting ------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer)
{
	proceed(timer->data);
}

static uint64_t pause_watch(struct kube_watch *w, unsigned retry_after_ms)
{
	uint64_t wait_ms = kube_backoff_ms(w->attempt++, retry_after_ms);

	uv_update_time(w->kube->loop);
	(void)uv_timer_start(&w->timer, on_timer, wait_ms, 0);
	return wait_ms;
}

static void gained(struct kube_watch *w)
{
	w->attempt = 0;
	w->jumped = w->from_list = false;
}

static void fail(struct kube_watch *w, const struct kube_error *error)
{
	uint64_t wait_ms;

	if (!w->kube)
		return;
	wait_ms = pause_watch(w, error->retry_after_ms);
	if (w->ops->failed)
		w->ops->failed(w->ctx, error, wait_ms);
}

/* --- the list ----------------------------------------------------------------------------- */

static void on_begin(void *ctx)
{
	struct kube_watch *w = ctx;

	if (w->ops->begin)
		w->ops->begin(w->ctx);
}

static void on_each(void *ctx, const json_t *object)
{
	struct kube_watch *w = ctx;

	w->ops->event(w->ctx, KUBE_ADDED, object);
}

static void on_listed(void *ctx, const struct kube_error *error, const char *resource_version)
{
	struct kube_watch *w = ctx;

	w->list = NULL;
	if (error) {
		fail(w, error);
		return;
	}
	w->version = xstrdup(resource_version);
	w->from_list = true;
	if (w->ops->synced)
		w->ops->synced(w->ctx);
	if (!w->freed && w->kube)
		proceed(w);
}

/* --- the stream --------------------------------------------------------------------------- */

static void stream_stop(struct kube_watch *w)
{
	if (!w->streaming)
		return;
	w->streaming = false;
	if (now_ms() - w->begun_ms >= STREAM_WORTH_MS && w->stream.status == 200)
		gained(w);
	kube_transfer_fini(&w->stream);
	kube_lines_reset(&w->lines);
}

static void forget_version(struct kube_watch *w)
{
	free(w->version);
	w->version = NULL;
}

/* The server does not remember what came after our version. If nothing was gained since the
 * list that it is from, beginning at once again would end in the same. */
static void start_over(struct kube_watch *w, const struct kube_error *error)
{
	forget_version(w);
	if (w->from_list)
		fail(w, error);
	else
		proceed(w);
}

/* A server whose data was restored from an older copy has not reached our version yet, and has
 * several ways to say so. */
static bool is_version_suspect(const struct kube_watch *w, const struct kube_error *error)
{
	bool is_about_us = error->status == 400 || error->status == 500 || error->status == 504;

	return is_about_us && w->attempt >= SUSPECT_ATTEMPTS;
}

static void stream_failed(struct kube_watch *w, const struct kube_error *error)
{
	struct kube_error copy = *error;

	stream_stop(w);
	if (copy.status == 410) {
		start_over(w, &copy);
		return;
	}
	if (is_version_suspect(w, &copy))
		forget_version(w);
	fail(w, &copy);
}

static void fail_with(struct kube_watch *w, enum err_kind kind, const char *what)
{
	struct kube_error error;

	kube_error_set(&error, kind, "%s", what);
	kube_error_wrap(&w->stream, &error);
	stream_failed(w, &error);
}

/* An object "Status" comes in the place of an event. */
static void on_error_event(struct kube_watch *w, const json_t *object)
{
	cleanup_free char *text = json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY);
	struct kube_error error;

	kube_error_from_status(500, 0, text, text ? strlen(text) : 0, &error);
	kube_error_wrap(&w->stream, &error);
	stream_failed(w, &error);
}

static int parse_event(const char *type, enum kube_event *ret)
{
	static const char *const names[] = {
		[KUBE_ADDED] = "ADDED",
		[KUBE_MODIFIED] = "MODIFIED",
		[KUBE_DELETED] = "DELETED",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(type, names[i]) == 0) {
			*ret = (enum kube_event)i;
			return 0;
		}
	return -1;
}

/* Whether the object has one, which every object and every bookmark does. */
static bool remember_version(struct kube_watch *w, const json_t *object)
{
	const char *version = json_string_value(
		json_object_get(json_object_get(object, "metadata"), "resourceVersion"));

	if (!version || !*version)
		return false;
	free(w->version);
	w->version = xstrdup(version);
	gained(w);
	return true;
}

static void on_event(struct kube_watch *w, const json_t *line)
{
	const char *type = json_string_value(json_object_get(line, "type"));
	const json_t *object = json_object_get(line, "object");
	enum kube_event event;

	if (!type || !object) {
		fail_with(w, ERR_INTERNAL, "a line of the watch is no event");
	} else if (strcmp(type, "ERROR") == 0) {
		on_error_event(w, object);
	} else if (!remember_version(w, object)) {
		fail_with(w, ERR_INTERNAL, "an event's object has no resourceVersion");
	} else if (parse_event(type, &event) == 0) {
		w->ops->event(w->ctx, event, object);
	}
	/* a bookmark, or a kind of event from the future: its version is all that it has */
}

static void on_line(struct kube_watch *w, const char *line, size_t len)
{
	json_t *tree = json_loadb(line, len, 0, NULL);

	if (tree)
		on_event(w, tree);
	else
		fail_with(w, ERR_INTERNAL, "a line of the watch is no JSON");
	json_decref(tree);
	kube_give_back(len);
}

static void on_lines(struct kube_transfer *t)
{
	struct kube_watch *w = container_of(t, struct kube_watch, stream);
	size_t len;
	char *line;

	/* it began: from here on it has all of its time */
	kube_transfer_set_deadline(
		t, w->begun_ms + UINT64_C(1000) * w->lasts_s + STREAM_SLACK_MS);
	/* what is called may stop the stream, or free the watch */
	while (w->streaming && (line = kube_lines_next(&w->lines, &len)))
		on_line(w, line, len);
}

/* A stream that came to its end, and be it that the connection did, is taken up where it was.
 */
static void stream_ended(struct kube_watch *w)
{
	stream_stop(w);
	if (w->jumped) {
		(void)pause_watch(w, 0);
		return;
	}
	w->jumped = true;
	proceed(w);
}

static void on_stream_done(struct kube_transfer *t, const struct kube_error *error)
{
	struct kube_watch *w = container_of(t, struct kube_watch, stream);

	if (error)
		stream_failed(w, error);
	else
		stream_ended(w);
}

static const struct kube_transfer_ops stream_ops = {.lines = on_lines, .done = on_stream_done};

static void stream_start(struct kube_watch *w)
{
	cleanup_buf struct buf query = BUF_INIT;
	struct kube_request request = {
		.method = "GET", .path = w->path, .timeout_ms = STREAM_ANSWER_MS};
	char seconds[16];

	w->begun_ms = now_ms();
	w->lasts_s =
		STREAM_MIN_S + (unsigned)kube_random_below(STREAM_MAX_S - STREAM_MIN_S + 1);
	(void)snprintf(seconds, sizeof(seconds), "%u", w->lasts_s);
	if (w->query)
		buf_puts(&query, w->query);
	kube_query(&query, "watch", "true");
	kube_query(&query, "resourceVersion", w->version);
	kube_query(&query, "allowWatchBookmarks", "true");
	kube_query(&query, "timeoutSeconds", seconds);
	request.query = query.data;
	kube_transfer_init(&w->stream, w->kube, &stream_ops, &request, &w->lines);
	w->streaming = true;
	kube_transfer_start(&w->stream);
}

/* --- the whole ---------------------------------------------------------------------------- */

static void proceed(struct kube_watch *w)
{
	if (w->version) {
		stream_start(w);
		return;
	}
	w->list = kube_list_start(
		w->kube, w->path, w->query, w->page_size, on_each, on_listed, w);
	kube_list_on_begin(w->list, on_begin);
}

struct kube_watch *kube_watch_new(struct kube *kube, const char *path, const char *query,
	unsigned page_size, const struct kube_watch_ops *ops, void *ctx)
{
	struct kube_watch *w = xcalloc(1, sizeof(*w));

	*w = (struct kube_watch){
		.kube = kube,
		.path = xstrdup(path),
		.query = xstrdup_opt(query),
		.page_size = page_size,
		.ops = ops,
		.ctx = ctx,
		.lines = {.max_line = KUBE_MAX_ANSWER},
	};
	w->timer.data = w;
	(void)uv_timer_init(kube->loop, &w->timer);
	DL_APPEND(kube->watches, w);
	proceed(w);
	return w;
}

void kube_watch_abandon(struct kube_watch *w)
{
	DL_DELETE(w->kube->watches, w);
	(void)uv_timer_stop(&w->timer);
	kube_list_cancel(w->list);
	w->list = NULL;
	stream_stop(w);
	w->kube = NULL;
}

static void watch_freed(uv_handle_t *handle)
{
	struct kube_watch *w = handle->data;

	free(w->path);
	free(w->query);
	free(w->version);
	free(w);
}

void kube_watch_free(struct kube_watch *w)
{
	if (!w)
		return;
	if (w->kube)
		kube_watch_abandon(w);
	w->freed = true;
	uv_close((uv_handle_t *)&w->timer, watch_freed);
}
