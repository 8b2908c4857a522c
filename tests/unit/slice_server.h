/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An API server for ResourceSlices that is played, with a clock that jumps: no loop runs, and hours
 * pass in milliseconds. Functions of libuv and of common/kube.h are defined here, in the place of
 * their own.
 *
 * The server answers late and tells its watch later still, fails in every way, puts quantities into
 * its own form and drops what it does not know. All of that is chance, which is the same each time.
 * run() lets time pass.
 */

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "common/kube.h"
#include "common/util.h"

#define DRIVER "networkdriver.cilium.io"
#define NODE   "node-1"
#define PATH   "/apis/resource.k8s.io/v1/resourceslices"

/* --- the clock ---------------------------------------------------------------------------- */

#define MAX_TIMERS 4

static uint64_t clock_ms;
static struct {
	uv_timer_t *timer;
	uv_timer_cb cb;
	uint64_t due;
	bool active;
} timers[MAX_TIMERS];

static size_t timer_slot(const uv_timer_t *timer)
{
	for (size_t i = 0; i < MAX_TIMERS; i++)
		if (timers[i].timer == timer)
			return i;
	ck_abort_msg("a timer that was not initialised");
	return 0;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
	(void)loop;
	for (size_t i = 0; i < MAX_TIMERS; i++) {
		if (timers[i].timer)
			continue;
		timers[i].timer = timer;
		timers[i].active = false;
		return 0;
	}
	ck_abort_msg("too many timers");
	return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
	size_t i = timer_slot(timer);

	ck_assert_uint_eq(repeat, 0);
	timers[i].cb = cb;
	timers[i].due = clock_ms + timeout;
	timers[i].active = true;
	return 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
	timers[timer_slot(timer)].active = false;
	return 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb cb)
{
	size_t i = timer_slot((const uv_timer_t *)(const void *)handle);

	memset(&timers[i], 0, sizeof(timers[i]));
	cb(handle);
}

uint64_t uv_now(const uv_loop_t *loop)
{
	(void)loop;
	return clock_ms;
}

/* --- chance ------------------------------------------------------------------------------- */

static uint64_t chance_state;

static unsigned chance(unsigned n)
{
	chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(chance_state >> 33) % n;
}

/* --- the server --------------------------------------------------------------------------- */

#define MAX_SLICES 2048
#define MAX_EVENTS 65536

static struct server {
	json_t *slices[MAX_SLICES];
	size_t n_slices;
	int64_t version;
	char node_uid[16];
	unsigned uids;
	/* what happened, and is told to the watch in this order */
	struct {
		enum kube_event event;
		json_t *object;
		uint64_t due;
	} events[MAX_EVENTS];
	size_t n_events;
	bool drops; /* DRAConsumableCapacity is off */
	unsigned fault_percent;
	unsigned latency_ms, lag_ms;
	bool foreign; /* somebody else wrote */
} server;

static struct {
	unsigned lists, gets, creates, replaces, deletes;
} calls;
static unsigned call_times; /* all calls */
static uint64_t call_ms[MAX_EVENTS];

/* faults that are to come, the first first */
static struct {
	int status; /* 0: no answer, -1: none either but it was done, 200: none */
	unsigned retry_after_ms;
} planned[64];
static size_t n_planned, next_planned;

static const char *text(const json_t *object, const char *outer, const char *inner)
{
	return json_string_value(json_object_get(json_object_get(object, outer), inner));
}

static const char *name_of(const json_t *slice)
{
	return text(slice, "metadata", "name");
}

static json_t *pool_of(const json_t *slice)
{
	return json_object_get(json_object_get(slice, "spec"), "pool");
}

static json_t *devices_of(const json_t *slice)
{
	return json_object_get(json_object_get(slice, "spec"), "devices");
}

static size_t find_slice(const char *name)
{
	size_t i = 0;

	while (i < server.n_slices && strcmp(name_of(server.slices[i]), name) != 0)
		i++;
	return i;
}

static void tell(enum kube_event event, const json_t *object)
{
	size_t n = server.n_events++;
	uint64_t due = clock_ms + (server.lag_ms ? chance(server.lag_ms) : 0);

	ck_assert_uint_lt(n, MAX_EVENTS);
	if (n > 0 && due < server.events[n - 1].due)
		due = server.events[n - 1].due;
	server.events[n].event = event;
	server.events[n].object = json_deep_copy(object);
	server.events[n].due = due;
}

static void set_version(json_t *slice)
{
	cleanup_free char *version = xasprintf("%lld", (long long)++server.version);

	(void)json_object_set_new(
		json_object_get(slice, "metadata"), "resourceVersion", json_string(version));
}

/* As the server keeps it: quantities in its form, without what it does not know. */
static void store_form(json_t *slice)
{
	json_t *device, *capacity;
	const char *name;
	size_t i;

	json_array_foreach (devices_of(slice), i, device) {
		json_object_foreach (json_object_get(device, "capacity"), name, capacity) {
			if (strcmp(json_string_value(json_object_get(capacity, "value")),
				    "1024Mi") == 0)
				(void)json_object_set_new(
					capacity, "value", json_string("1Gi"));
			if (server.drops)
				(void)json_object_del(capacity, "requestPolicy");
		}
		if (server.drops)
			(void)json_object_del(device, "allowMultipleAllocations");
	}
}

/* The place of a device that is not valid; -1: all are. */
static int invalid_device(const json_t *slice)
{
	const json_t *device;
	size_t i;

	json_array_foreach (devices_of(slice), i, device)
		if (json_object_get(json_object_get(device, "attributes"), "refused"))
			return (int)i;
	return -1;
}

static const json_t *server_create(const json_t *body)
{
	json_t *slice = json_deep_copy(body), *metadata = json_object_get(slice, "metadata");
	cleanup_free char *uid = xasprintf("uid-%u", ++server.uids);

	ck_assert_uint_lt(server.n_slices, MAX_SLICES);
	(void)json_object_set_new(metadata, "uid", json_string(uid));
	store_form(slice);
	set_version(slice);
	server.slices[server.n_slices++] = slice;
	tell(KUBE_ADDED, slice);
	return slice;
}

static void server_delete(size_t at)
{
	set_version(server.slices[at]);
	tell(KUBE_DELETED, server.slices[at]);
	json_decref(server.slices[at]);
	server.slices[at] = server.slices[--server.n_slices];
}

static const json_t *server_replace(size_t at, const json_t *body)
{
	json_t *old = server.slices[at], *slice = json_deep_copy(body);

	store_form(slice);
	(void)json_object_set(json_object_get(slice, "metadata"), "resourceVersion",
		json_object_get(json_object_get(old, "metadata"), "resourceVersion"));
	if (json_equal(slice, old)) {
		json_decref(slice);
		return old; /* writes nothing, keeps the version */
	}
	server.slices[at] = slice;
	set_version(slice);
	tell(KUBE_MODIFIED, slice);
	json_decref(old);
	return slice;
}

static void server_reset(void)
{
	for (size_t i = 0; i < server.n_slices; i++)
		json_decref(server.slices[i]);
	for (size_t i = 0; i < server.n_events; i++)
		json_decref(server.events[i].object);
	memset(&server, 0, sizeof(server));
	strcpy(server.node_uid, "uid-of-node");
	server.version = 1000;
	memset(&calls, 0, sizeof(calls));
	call_times = 0;
	n_planned = next_planned = 0;
}

/* --- calls -------------------------------------------------------------------------------- */

struct kube_call {
	const char *method;
	char *path;
	json_t *body;
	char *uid, *version;
	kube_cb *cb;
	void *ctx;
	uint64_t applied_at, due;
	int status;
	bool applied, silent;
	unsigned retry_after_ms;
	json_t *answer;
};

static struct kube_call *in_flight;
static void (*after_apply)(void); /* once, when the server did what it was asked for */

static void call_free(struct kube_call *call)
{
	json_decref(call->body);
	json_decref(call->answer);
	free(call->path);
	free(call->uid);
	free(call->version);
	free(call);
}

static struct kube_call *call_new(
	const char *method, const char *path, const json_t *body, kube_cb *cb, void *ctx)
{
	struct kube_call *call = xcalloc(1, sizeof(*call));

	ck_assert_msg(!in_flight, "two calls at once");
	*call = (struct kube_call){
		.method = method, .path = xstrdup(path), .cb = cb, .ctx = ctx, .status = 200};
	call->body = body ? json_deep_copy(body) : NULL;
	call->applied_at = clock_ms + (server.latency_ms ? chance(server.latency_ms) : 0);
	call->due = call->applied_at + (server.latency_ms ? chance(server.latency_ms) : 0);
	if (next_planned < n_planned) {
		call->status = planned[next_planned].status;
		call->retry_after_ms = planned[next_planned++].retry_after_ms;
	} else if (chance(100) < server.fault_percent) {
		static const int statuses[] = {0, -1, 409, 429, 500, 503};

		call->status = statuses[chance(ARRAY_SIZE(statuses))];
	}
	call_ms[call_times++] = clock_ms;
	in_flight = call;
	return call;
}

struct kube_call *kube_get(struct kube *kube, const char *path, kube_cb *cb, void *ctx)
{
	(void)kube;
	calls.gets++;
	return call_new("GET", path, NULL, cb, ctx);
}

struct kube_call *kube_create(
	struct kube *kube, const char *path, const json_t *object, kube_cb *cb, void *ctx)
{
	(void)kube;
	calls.creates++;
	return call_new("POST", path, object, cb, ctx);
}

struct kube_call *kube_replace(
	struct kube *kube, const char *path, const json_t *object, kube_cb *cb, void *ctx)
{
	(void)kube;
	calls.replaces++;
	return call_new("PUT", path, object, cb, ctx);
}

struct kube_call *kube_delete(struct kube *kube, const char *path, const char *uid,
	const char *resource_version, kube_cb *cb, void *ctx)
{
	struct kube_call *call = call_new("DELETE", path, NULL, cb, ctx);

	(void)kube;
	calls.deletes++;
	call->uid = xstrdup(uid);
	call->version = xstrdup(resource_version);
	return call;
}

void kube_cancel(struct kube_call *call)
{
	ck_assert_ptr_eq(call, in_flight);
	in_flight = NULL;
	call_free(call);
}

/* Nobody but us makes two slices of one index. */
static void check_unique(const json_t *body)
{
	for (size_t i = 0; i < server.n_slices && !server.foreign; i++)
		ck_assert_msg(strncmp(name_of(server.slices[i]), name_of(body), 6) != 0,
			"%s beside %s", name_of(body), name_of(server.slices[i]));
}

static void apply_create(struct kube_call *call)
{
	if (find_slice(name_of(call->body)) < server.n_slices) {
		call->status = 409;
		return;
	}
	check_unique(call->body);
	call->answer = json_deep_copy(server_create(call->body));
}

static void apply_replace(struct kube_call *call, size_t at)
{
	if (strcmp(text(server.slices[at], "metadata", "resourceVersion"),
		    text(call->body, "metadata", "resourceVersion")) != 0)
		call->status = 409;
	else
		call->answer = json_deep_copy(server_replace(at, call->body));
}

static void apply_delete(struct kube_call *call, size_t at)
{
	if (strcmp(text(server.slices[at], "metadata", "resourceVersion"), call->version) !=
			0 ||
		strcmp(text(server.slices[at], "metadata", "uid"), call->uid) != 0)
		call->status = 409;
	else
		server_delete(at);
}

/* The server does what it is asked for. */
static void apply(struct kube_call *call)
{
	size_t at;

	call->applied = true;
	if (call->status != 200 && call->status != -1)
		return;
	call->silent = call->status == -1;
	if (strcmp(call->method, "GET") == 0) {
		ck_assert_str_eq(call->path, "/api/v1/nodes/" NODE);
		call->answer = json_pack("{s:{s:s}}", "metadata", "uid", server.node_uid);
		if (!*server.node_uid)
			call->status = 404;
		return;
	}
	if (call->body && invalid_device(call->body) >= 0) {
		call->status = 422;
		return;
	}
	if (strcmp(call->method, "POST") == 0) {
		ck_assert_str_eq(call->path, PATH);
		apply_create(call);
		return;
	}
	ck_assert(str_has_prefix(call->path, PATH "/"));
	at = find_slice(call->path + strlen(PATH "/"));
	if (at == server.n_slices)
		call->status = 404;
	else if (strcmp(call->method, "PUT") == 0)
		apply_replace(call, at);
	else
		apply_delete(call, at);
}

static enum err_kind kind_of(int status)
{
	switch (status) {
	case 404: return ERR_NOT_FOUND;
	case 409: return ERR_CONFLICT;
	case 403:
	case 422: return ERR_INVALID;
	case 429:
	case 503: return ERR_BUSY;
	case 0: return ERR_DEADLINE;
	default: return ERR_INTERNAL;
	}
}

static void answer(struct kube_call *call)
{
	struct kube_error error = {.status = call->silent ? 0 : MAX(call->status, 0)};

	in_flight = NULL;
	if (call->status == 200) {
		call->cb(call->ctx, NULL, call->answer ? call->answer : json_null());
		call_free(call);
		return;
	}
	error.retry_after_ms = call->retry_after_ms;
	if (call->status == 422)
		(void)err_set(&error.err, ERR_INVALID,
			"%s %s: 422 Unprocessable Entity: ResourceSlice is invalid: "
			"spec.devices[%d].attributes[refused]: Forbidden",
			call->method, PATH, invalid_device(call->body));
	else
		(void)err_set(&error.err, kind_of(error.status), "%s %s: %d", call->method,
			PATH, error.status);
	call->cb(call->ctx, &error, NULL);
	call_free(call);
}

/* --- the watch ---------------------------------------------------------------------------- */

struct kube_watch {
	const struct kube_watch_ops *ops;
	void *ctx;
	json_t *snapshot; /* the list; NULL: not taken */
	uint64_t due;
	bool begun, synced;
	size_t next; /* event to tell; while listing the one after the snapshot */
};
static struct kube_watch *watch;
static unsigned watch_fails;

static void watch_list(struct kube_watch *w)
{
	json_decref(w->snapshot);
	w->snapshot = NULL;
	w->begun = w->synced = false;
	w->due = clock_ms + (server.latency_ms ? chance(server.latency_ms) : 0);
	calls.lists++;
	call_ms[call_times++] = clock_ms;
}

struct kube_watch *kube_watch_new(struct kube *kube, const char *path, const char *query,
	unsigned page_size, const struct kube_watch_ops *ops, void *ctx)
{
	(void)kube;
	ck_assert_str_eq(path, PATH);
	ck_assert_ptr_nonnull(strstr(query, "fieldSelector="));
	ck_assert_uint_gt(page_size, 0);
	ck_assert(!watch);
	watch = xcalloc(1, sizeof(*watch));
	watch->ops = ops;
	watch->ctx = ctx;
	watch_list(watch);
	return watch;
}

void kube_watch_free(struct kube_watch *w)
{
	if (!w)
		return;
	ck_assert_ptr_eq(w, watch);
	json_decref(w->snapshot);
	free(w);
	watch = NULL;
}

/* The list is taken, then begins, then is told: at different times. */
static void watch_step(struct kube_watch *w)
{
	json_t *list, *object;
	size_t i;

	if (watch_fails > 0) {
		struct kube_error error = {.err = {.kind = ERR_INVALID, .message = "GET: 403"}};

		watch_fails--;
		w->due = clock_ms + 1000;
		w->ops->failed(w->ctx, &error, 1000);
		return;
	}
	w->due = clock_ms + (server.latency_ms ? chance(server.latency_ms) : 0);
	if (!w->snapshot) {
		w->snapshot = json_array();
		for (i = 0; i < server.n_slices; i++)
			(void)json_array_append_new(
				w->snapshot, json_deep_copy(server.slices[i]));
		w->next = server.n_events;
		return;
	}
	if (!w->begun) {
		w->begun = true;
		w->ops->begin(w->ctx);
		return; /* it may be gone */
	}
	list = json_incref(w->snapshot);
	json_array_foreach (list, i, object)
		if (watch == w)
			w->ops->event(w->ctx, KUBE_ADDED, object);
	json_decref(list);
	if (watch != w)
		return;
	w->synced = true;
	w->ops->synced(w->ctx);
}

static void watch_tell(struct kube_watch *w)
{
	size_t n = w->next++;

	w->ops->event(w->ctx, server.events[n].event, server.events[n].object);
}

/* --- time passes -------------------------------------------------------------------------- */

static uint64_t earliest(uint64_t a, uint64_t b)
{
	return MIN(a, b);
}

static uint64_t next_due(void)
{
	uint64_t due = UINT64_MAX;

	for (size_t i = 0; i < MAX_TIMERS; i++)
		if (timers[i].active)
			due = earliest(due, timers[i].due);
	if (in_flight)
		due = earliest(
			due, in_flight->applied ? in_flight->due : in_flight->applied_at);
	if (watch && !watch->synced)
		due = earliest(due, watch->due);
	if (watch && watch->synced && watch->next < server.n_events)
		due = earliest(due, server.events[watch->next].due);
	return due;
}

static void do_due(void)
{
	if (watch && watch->synced && watch->next < server.n_events &&
		server.events[watch->next].due <= clock_ms) {
		watch_tell(watch);
		return;
	}
	if (in_flight && !in_flight->applied && in_flight->applied_at <= clock_ms) {
		void (*then)(void) = after_apply;

		apply(in_flight);
		after_apply = NULL;
		if (then)
			then();
		return;
	}
	if (in_flight && in_flight->applied && in_flight->due <= clock_ms) {
		answer(in_flight);
		return;
	}
	if (watch && !watch->synced && watch->due <= clock_ms) {
		watch_step(watch);
		return;
	}
	for (size_t i = 0; i < MAX_TIMERS; i++) {
		if (!timers[i].active || timers[i].due > clock_ms)
			continue;
		timers[i].active = false;
		timers[i].cb(timers[i].timer);
		return;
	}
}

/* Until nothing is left to do, or the time is over. Whether nothing is left. */
static bool run(uint64_t ms)
{
	const uint64_t end = clock_ms + ms;

	for (;;) {
		uint64_t due = next_due();

		if (due == UINT64_MAX)
			return true;
		if (due > end)
			break;
		clock_ms = MAX(clock_ms, due);
		do_due();
	}
	clock_ms = end;
	return false;
}
