/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A client of the Kubernetes API server, on the loop: libcurl's multi interface, one HTTP/2
 * connection for all calls.
 *
 * A call is answered once, by its callback, later: never from inside the function that started
 * it. Nothing blocks. A call that gets 401 reads the token again and is repeated once if that
 * is another one; nothing else is repeated here: whoever calls knows whether the same call may
 * be made twice. Watches repeat by themselves.
 *
 * What the server says is wrong is in the error: its own words, behind the call's:
 *
 *	PATCH /apis/…/resourceclaims/c1/status: 403 Forbidden: resourceclaims "c1" is forbidden: …
 */

#include <jansson.h>
#include <uv.h>

#include "common/err.h"
#include "common/json_mask.h"
#include "common/kube_access.h"
#include "common/kube_count.h"

struct kube;
struct kube_call;

/* What a failure of a call was, as the server or the connection has it. */
struct kube_error {
	struct err err;
	/* HTTP status, 0: there was no answer. 404 is ERR_NOT_FOUND; 409 and 412 ERR_CONFLICT;
	 * 400, 401, 403, 413, 422 ERR_INVALID; 429 and 503 ERR_BUSY; no answer in time, 504:
	 * ERR_DEADLINE; no connection ERR_UNAVAILABLE; else ERR_INTERNAL */
	int status;
	char reason[64];         /* Status.reason: "NotFound", "Conflict", ...; may be empty */
	unsigned retry_after_ms; /* what the server asks for, 0: nothing */
};

/* What libcurl and its TLS library read from files of the system, once: to be called while the
 * process is still privileged and has one thread. Repeated it does nothing. */
int kube_global_init(struct err *err);

/* What the confined process needs beyond the common system calls, for a table of privileges:
 * files (the token's; /etc/hosts and /etc/resolv.conf for a server that has a name; the
 * system's certificate authorities if no others are given), and sockets of other families than
 * AF_UNIX. No thread is ever made: names are resolved on the loop, by c-ares, anew with each
 * connection. */
#define KUBE_SYSCALLS "openat", "socket"

/* access is copied. The connection is made with the first call. Errors: ERR_INVALID. */
struct kube *kube_new(uv_loop_t *loop, const struct kube_access *access, struct err *err);
/* Calls and lists under way are answered with ERR_UNAVAILABLE now; nothing may be started from
 * there. Watches end without a word, and are still to be freed. The handles on the loop close
 * later by themselves. May be called from any callback. NULL is fine. */
void kube_free(struct kube *kube);
const char *kube_description(const struct kube *kube); /* the access's */

/* error NULL: object is the answer, borrowed (json null for an empty one). Otherwise object is
 * NULL. */
typedef void kube_cb(void *ctx, const struct kube_error *error, const json_t *object);

struct kube_request {
	const char *method;       /* "GET", ... */
	const char *path;         /* "/apis/…", segments escaped: kube_path() */
	const char *query;        /* without '?', values escaped; NULL: none */
	const char *content_type; /* NULL: application/json */
	const json_t *body;       /* NULL: none. Encoded before this returns */
	/* Instead of body, a text or binary object; copied. */
	const void *bytes;
	size_t n_bytes;
	const char *accept;  /* NULL: application/json */
	/* Of the answer only what this lets stay is decoded; NULL: all. */
	const struct json_mask *mask;
	size_t max_bytes;    /* of the answer; 0: KUBE_MAX_ANSWER */
	unsigned timeout_ms; /* of the whole call; 0: KUBE_TIMEOUT_MS */
};

#define KUBE_TIMEOUT_MS   10000
/* An object is at most 1.5 MiB in etcd and 3 MiB in a request. */
#define KUBE_MAX_ANSWER   (4u << 20)
/* Calls that wait or are under way at once; more are answered with ERR_BUSY. */
#define KUBE_MAX_CALLS    4096
/* Of them on the wire; the others wait in order, and their time runs. The server's default is
 * 250 streams. */
#define KUBE_MAX_PARALLEL 32

struct kube_call *kube_start(
	struct kube *kube, const struct kube_request *request, kube_cb *cb, void *ctx);
/* An answer of any form, as it came, borrowed. */
typedef void kube_bytes_cb(
	void *ctx, const struct kube_error *error, const void *bytes, size_t len);
struct kube_call *kube_start_bytes(
	struct kube *kube, const struct kube_request *request, kube_bytes_cb *cb, void *ctx);
/* cb is never called; the server may have done the work all the same. Not from within cb: then
 * the call is over. NULL is fine. */
void kube_cancel(struct kube_call *call);

/* "/apis/resource.k8s.io/v1/namespaces/NS/resourceclaims/NAME/status": namespace, name,
 * subresource may be NULL. group_version is "v1", "resource.k8s.io/v1", ... The caller's. */
char *kube_path(const char *group_version, const char *namespace, const char *resource,
	const char *name, const char *subresource);
/* Appends "key=value" with what separates it, the value escaped. */
struct buf;
void kube_query(struct buf *query, const char *key, const char *value);

/* --- shorthands --------------------------------------------------------------------------- */

struct kube_call *kube_get(struct kube *kube, const char *path, kube_cb *cb, void *ctx);
struct kube_call *kube_create(
	struct kube *kube, const char *path, const json_t *object, kube_cb *cb, void *ctx);
struct kube_call *kube_replace(
	struct kube *kube, const char *path, const json_t *object, kube_cb *cb, void *ctx);
/* With preconditions, each NULL for none. */
struct kube_call *kube_delete(struct kube *kube, const char *path, const char *uid,
	const char *resource_version, kube_cb *cb, void *ctx);
/* Server-side apply as this field manager, forced. */
struct kube_call *kube_apply(struct kube *kube, const char *path, const char *field_manager,
	const json_t *object, kube_cb *cb, void *ctx);

/* --- lists -------------------------------------------------------------------------------- */

/* Each object of a list, in pages of page_size, so that neither side holds all of it. done is
 * called once: error NULL, resource_version that of the list (borrowed). When a page's token is
 * too old (410) error says so and status is 410; the caller begins anew. kind and apiVersion
 * are put into each object, which list items lack. */
typedef void kube_each_cb(void *ctx, const json_t *object);
typedef void kube_listed_cb(
	void *ctx, const struct kube_error *error, const char *resource_version);
struct kube_list;
struct kube_list *kube_list_start(struct kube *kube, const char *path, const char *query,
	unsigned page_size, kube_each_cb *each, kube_listed_cb *done, void *ctx);
/* Of each object only what the mask lets stay is decoded. An object that cannot be decoded is reported
 * to undecoded and left out; without this one ends the list with an error. To be called right
 * after the start. */
typedef void kube_undecoded_cb(void *ctx, const struct err *err);
void kube_list_set_mask(
	struct kube_list *list, const struct json_mask *mask, kube_undecoded_cb *undecoded);
/* From anywhere but done. NULL is fine. */
void kube_list_cancel(struct kube_list *list);

/* --- watches ------------------------------------------------------------------------------ */

enum kube_event { KUBE_ADDED, KUBE_MODIFIED, KUBE_DELETED };

struct kube_watch_ops {
	/* A list begins: what is not told until `synced` does not exist any more. Called at the
	 * start, and again whenever the server no longer remembers where we were. */
	void (*begin)(void *ctx);
	/* Objects of the list come as KUBE_ADDED. */
	void (*event)(void *ctx, enum kube_event event, const json_t *object);
	void (*synced)(void *ctx);
	/* Something failed; it is tried again in retry_ms by itself. Told once for each
	 * failure, and for a connection that merely ends not at all. */
	void (*failed)(void *ctx, const struct kube_error *error, uint64_t retry_ms);
};

struct kube_watch;

/* A list, then a watch with bookmarks for 5 to 10 minutes at a time (with jitter), over and
 * over. A failure is tried again after 500 ms, doubling to 30 s, with jitter, or after what the
 * server asks for. A watch that is silent for longer than it was asked to last is taken for
 * dead. One event is at most KUBE_MAX_ANSWER. */
struct kube_watch *kube_watch_new(struct kube *kube, const char *path, const char *query,
	unsigned page_size, const struct kube_watch_ops *ops, void *ctx);
/* From anywhere, its own callbacks included. NULL is fine. */
void kube_watch_free(struct kube_watch *watch);

/* --- counting ----------------------------------------------------------------------------- */

/* What was sent since the start, repetitions included. */
const struct kube_counts *kube_counts(const struct kube *kube);

/* What the next failure in a row waits: 500 ms doubling to 30 s, plus or minus a fifth; attempt
 * from 0. Never less than the server asks for, up to two minutes. For callers that repeat by
 * themselves. */
uint64_t kube_backoff_ms(unsigned attempt, unsigned retry_after_ms);
