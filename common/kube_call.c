/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: one request, one answer, which is JSON unless something else was asked for. */
#include "common/kube_internal.h"

#include <string.h>

struct kube_call {
	struct kube_transfer t;
	kube_cb *cb;
	kube_bytes_cb *bytes_cb; /* instead */
	void *ctx;
};

static struct kube_call *call_of(struct kube_transfer *t)
{
	return container_of(t, struct kube_call, t);
}

static void call_free(struct kube_call *call)
{
	kube_transfer_fini(&call->t);
	free(call);
}

static void call_done(struct kube_transfer *t, const struct kube_error *error)
{
	struct kube_call *call = call_of(t);
	size_t size = t->answer.len;
	struct kube_error no_json;
	json_t *object = NULL;

	if (call->bytes_cb) {
		call->bytes_cb(call->ctx, error, t->answer.data, error ? 0 : t->answer.len);
		call_free(call);
		return;
	}
	if (!error) {
		object = kube_transfer_json(t, &no_json);
		if (!object)
			error = &no_json;
	}
	call->cb(call->ctx, error, object);
	json_decref(object);
	call_free(call);
	kube_give_back(size);
}

static const struct kube_transfer_ops call_ops = {.done = call_done};

static struct kube_call *call_new(
	struct kube *kube, const struct kube_request *request, void *ctx)
{
	struct kube_call *call = xcalloc(1, sizeof(*call));

	kube_transfer_init(&call->t, kube, &call_ops, request, NULL);
	call->ctx = ctx;
	return call;
}

struct kube_call *kube_start(
	struct kube *kube, const struct kube_request *request, kube_cb *cb, void *ctx)
{
	struct kube_call *call = call_new(kube, request, ctx);

	call->cb = cb;
	kube_transfer_start(&call->t);
	return call;
}

struct kube_call *kube_start_bytes(
	struct kube *kube, const struct kube_request *request, kube_bytes_cb *cb, void *ctx)
{
	struct kube_call *call = call_new(kube, request, ctx);

	call->bytes_cb = cb;
	kube_transfer_start(&call->t);
	return call;
}

void kube_cancel(struct kube_call *call)
{
	if (call)
		call_free(call);
}

/* --- shorthands --------------------------------------------------------------------------- */

struct kube_call *kube_get(struct kube *kube, const char *path, kube_cb *cb, void *ctx)
{
	return kube_start(kube, &(struct kube_request){.method = "GET", .path = path}, cb, ctx);
}

struct kube_call *kube_create(
	struct kube *kube, const char *path, const json_t *object, kube_cb *cb, void *ctx)
{
	return kube_start(kube,
		&(struct kube_request){.method = "POST", .path = path, .body = object}, cb,
		ctx);
}

struct kube_call *kube_replace(
	struct kube *kube, const char *path, const json_t *object, kube_cb *cb, void *ctx)
{
	return kube_start(kube,
		&(struct kube_request){.method = "PUT", .path = path, .body = object}, cb, ctx);
}

/* DeleteOptions */
static json_t *delete_options(const char *uid, const char *resource_version)
{
	json_t *preconditions = json_object();

	if (uid)
		(void)json_object_set_new(preconditions, "uid", json_string(uid));
	if (resource_version)
		(void)json_object_set_new(
			preconditions, "resourceVersion", json_string(resource_version));
	return json_pack("{s:s, s:s, s:o}", "apiVersion", "v1", "kind", "DeleteOptions",
		"preconditions", preconditions);
}

struct kube_call *kube_delete(struct kube *kube, const char *path, const char *uid,
	const char *resource_version, kube_cb *cb, void *ctx)
{
	json_t *options = delete_options(uid, resource_version);
	struct kube_call *call = kube_start(kube,
		&(struct kube_request){.method = "DELETE", .path = path, .body = options}, cb,
		ctx);

	json_decref(options);
	return call;
}

struct kube_call *kube_apply(struct kube *kube, const char *path, const char *field_manager,
	const json_t *object, kube_cb *cb, void *ctx)
{
	cleanup_buf struct buf query = BUF_INIT;

	kube_query(&query, "fieldManager", field_manager);
	kube_query(&query, "force", "true");
	return kube_start(kube,
		&(struct kube_request){.method = "PATCH",
			.path = path,
			.query = query.data,
			/* JSON is YAML */
			.content_type = "application/apply-patch+yaml",
			.body = object},
		cb, ctx);
}
