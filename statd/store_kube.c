/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of a cluster: ResourceClaims of the API server (resource.k8s.io/v1).
 *
 * Status is written by a JSON patch: our entries out, our entries in, on the condition that the
 * claim is the one that was read; if it has changed it is read once more. Nothing else will do.
 * Server-side apply sends the whole object through a form that sorts the members of the opaque
 * parameters in status.allocation; if they were in another order, that counts as a change of
 * the allocation, which is immutable and not ours to write. A PUT must bring back, to the byte, what
 * we read with a parser of our own. A merge patch replaces the list, with the entries of others in
 * it. The patch touches nothing that it does not name.
 *
 * A read may be made twice, and so may the patch, for a second one meets another version. What
 * fails because the server is busy, restarting or gone is tried again for some seconds, well inside
 * the 45 s that the kubelet gives to a whole prepare; it asks again itself then.
 *
 * For a restart the claims are found through the node's pods, each is read by its name. A list
 * of all claims would be one call, but of the whole cluster's, and takes a right to read them
 * all. Pods come in pages and are forgotten for the names of their claims; of the claims some
 * are under way at a time, each restored and let go as it comes.
 */
#include "statd/store_kube.h"

#include <string.h>

#include "common/hash.h"
#include "common/log.h"
#include "common/util.h"
#include "statd/claim.h"
#include "statd/podclaims.h"

#define GROUP_VERSION "resource.k8s.io/v1"

/* One try, and until when another one is begun: two of these are what a prepare takes at the
 * most. */
#define TRY_MS         5000
#define TRYING_MS      12000
/* A pod is some kilobytes, tens of them with long annotations, and 13 times that as a tree. */
#define PODS_A_PAGE    25
/* The connection takes as many at once. */
#define CLAIMS_AT_ONCE KUBE_MAX_PARALLEL
/* Claims of one node's pods: 1000 pods are beyond what any kubelet is run with, 32 claims each
 * beyond any pod. */
#define MAX_CLAIMS     32768

struct store_kube {
	struct store base;
	uv_loop_t *loop;
	struct kube *kube;
	char *node_name;
	struct op *ops; /* under way */
	struct listing *listing;
	bool stopping;
};

/* --- one request, tried again ------------------------------------------------------------- */

struct op {
	struct store_kube *store;
	struct op *prev, *next;
	struct kube_call *call;
	uv_timer_t timer; /* until the next try */
	unsigned attempt;
	uint64_t started_ms;
	char *path;
	json_t *body; /* NULL: a GET */
	/* err NULL: object is the answer */
	void (*done)(struct op *op, const struct err *err, const json_t *object);
	/* whose it is */
	store_claim_cb *claim_cb;
	store_done_cb *done_cb;
	void *ctx;
	/* of a write */
	char *driver_name;
	json_t *devices;
	struct claim_ref ref;
	struct wanted *wanted;
};

static void op_try(struct op *op);

static void op_closed(uv_handle_t *handle)
{
	struct op *op = handle->data;

	json_decref(op->body);
	json_decref(op->devices);
	free(op->driver_name);
	free(op->ref.namespace);
	free(op->ref.name);
	free(op->ref.uid);
	free(op->path);
	free(op);
}

/* Answers, and is gone. */
static void op_end(struct op *op, const struct err *err, const json_t *object)
{
	if (op->prev)
		op->prev->next = op->next;
	else
		op->store->ops = op->next;
	if (op->next)
		op->next->prev = op->prev;
	op->done(op, err, object);
	uv_close((uv_handle_t *)&op->timer, op_closed);
}

static bool may_pass(const struct kube_error *error)
{
	return error->status == 0 || error->status == 429 || error->status >= 500;
}

static void on_next_try(uv_timer_t *timer)
{
	op_try(timer->data);
}

static void on_answer(void *ctx, const struct kube_error *error, const json_t *object)
{
	struct op *op = ctx;
	uint64_t delay_ms;

	op->call = NULL;
	if (!error) {
		op_end(op, NULL, object);
		return;
	}
	delay_ms = kube_backoff_ms(op->attempt++, error->retry_after_ms);
	if (!may_pass(error) || now_ms() + delay_ms - op->started_ms > TRYING_MS) {
		op_end(op, &error->err, NULL);
		return;
	}
	LOG(DEBUG, FIELDS(F("err", error->err.message)), "trying once more");
	(void)uv_timer_start(&op->timer, on_next_try, delay_ms, 0);
}

static void op_try(struct op *op)
{
	const struct kube_request request = {
		.method = op->body ? "PATCH" : "GET",
		.path = op->path,
		.content_type = op->body ? "application/json-patch+json" : NULL,
		.body = op->body,
		.timeout_ms = TRY_MS,
	};

	op->call = kube_start(op->store->kube, &request, on_answer, op);
}

static struct op *op_new(struct store_kube *s, const char *namespace, const char *name,
	const char *subresource, void *ctx)
{
	struct op *op = xcalloc(1, sizeof(*op));

	op->store = s;
	op->ctx = ctx;
	op->path = kube_path(GROUP_VERSION, namespace, "resourceclaims", name, subresource);
	op->started_ms = now_ms();
	op->next = s->ops;
	if (op->next)
		op->next->prev = op;
	s->ops = op;
	(void)uv_timer_init(s->loop, &op->timer);
	op->timer.data = op;
	return op;
}

/* --- reading and writing ------------------------------------------------------------------ */

static void claim_read(struct op *op, const struct err *err, const json_t *object)
{
	op->claim_cb(op->ctx, err, object);
}

static void kube_get_claim(struct store *base, const char *namespace, const char *name,
	store_claim_cb *cb, void *ctx)
{
	struct op *op =
		op_new(container_of(base, struct store_kube, base), namespace, name, NULL, ctx);

	op->claim_cb = cb;
	op->done = claim_read;
	op_try(op);
}

static bool has_entry_of(const json_t *devices, const char *driver_name)
{
	const json_t *entry;
	size_t i;

	json_array_foreach (devices, i, entry)
		if (str_equal(json_string_value(json_object_get(entry, "driver")), driver_name))
			return true;
	return false;
}

/* A field whose feature is switched off is dropped by the server without a word. */
static int check_kept(const struct op *op, const json_t *answer, struct err *err)
{
	const json_t *kept = json_object_get(json_object_get(answer, "status"), "devices");

	if (!has_entry_of(op->devices, op->driver_name) || has_entry_of(kept, op->driver_name))
		return 0;
	return err_set(err, ERR_UNAVAILABLE,
		"the API server has dropped status.devices, without which a restart would lose "
		"the devices: its feature gate DRAResourceClaimDeviceStatus must be on");
}

/* The server says what is forbidden, but not where the right is given. */
static void explain_forbidden(const struct op *op, struct err *err)
{
	/* some rights are asked for by validation, which says 422 */
	if (!strstr(err->message, "orbidden") || strstr(err->message, "resourceclaims/binding"))
		return;
	if (strstr(err->message, "associated-node") || strstr(err->message, "/driver"))
		(void)err_wrap(err,
			"a ClusterRole of this account must allow associated-node:patch on "
			"resourceclaims/driver of resource.k8s.io, resourceNames [%s], and its "
			"token "
			"must be bound to a pod of this node",
			op->driver_name);
	else
		(void)err_wrap(err, "a ClusterRole of this account must allow patch on "
				    "resourceclaims/status of resource.k8s.io");
}

static void write_failed(const struct op *op, const struct err *err)
{
	struct err mine = *err;

	explain_forbidden(op, &mine);
	op->done_cb(op->ctx, &mine);
}

static json_t *patch_op(const char *what, char *path, const json_t *value)
{
	json_t *op = json_pack("{ss ss}", "op", what, "path", path);

	if (value)
		(void)json_object_set(op, "value", (json_t *)(uintptr_t)value);
	free(path);
	return op;
}

/* RFC 6902. The version makes the server refuse the patch when the object is another by now;
 * places in the list are right only as long as it is not. */
static json_t *status_patch(
	const struct claim *claim, const char *driver_name, const json_t *devices)
{
	json_t *patch = json_array(), *version = json_string(claim->metadata->resource_version);
	const struct claim_status *status = claim->status;
	size_t n = status ? status->devices.n : 0;
	const json_t *entry;
	size_t i;

	(void)json_array_append_new(
		patch, patch_op("replace", xstrdup("/metadata/resourceVersion"), version));
	json_decref(version);
	for (i = n; i-- > 0;)
		if (str_equal(status->devices.v[i].driver, driver_name))
			(void)json_array_append_new(patch,
				patch_op("remove", xasprintf("/status/devices/%zu", i), NULL));
	if (n == 0)
		(void)json_array_append_new(
			patch, patch_op("add", xstrdup("/status/devices"), devices));
	else
		json_array_foreach (devices, i, entry)
			(void)json_array_append_new(
				patch, patch_op("add", xstrdup("/status/devices/-"), entry));
	return patch;
}

static void status_written(struct op *op, const struct err *err, const json_t *object);

static struct op *write_op(struct store_kube *s, const struct claim *claim,
	const char *driver_name, const json_t *devices, store_done_cb *cb, void *ctx)
{
	const struct claim_metadata *meta = claim->metadata;
	struct op *op = op_new(s, meta->namespace, meta->name, "status", ctx);

	op->body = status_patch(claim, driver_name, devices);
	op->driver_name = xstrdup(driver_name);
	op->devices = json_incref((json_t *)(uintptr_t)devices);
	op->ref = (struct claim_ref){
		xstrdup(meta->namespace), xstrdup(meta->name), xstrdup(meta->uid)};
	op->done_cb = cb;
	op->done = status_written;
	return op;
}

static void reread(struct op *old, const struct claim *claim)
{
	struct op *op = write_op(
		old->store, claim, old->driver_name, old->devices, old->done_cb, old->ctx);

	op->started_ms = old->started_ms;
	op_try(op);
}

/* The claim has changed since it was read: somebody else wrote its status, or it is another. */
static void claim_reread(struct op *op, const struct err *err, const json_t *object)
{
	struct claim claim = {0};
	struct err mine;

	if (err) {
		write_failed(op, err);
		return;
	}
	if (claim_decode(object, &claim, &mine) < 0) {
		write_failed(op, &mine);
		return;
	}
	if (strcmp(claim.metadata->uid, op->ref.uid) != 0) {
		(void)err_set(&mine, ERR_CONFLICT, "claim %s/%s got replaced meanwhile",
			op->ref.namespace, op->ref.name);
		write_failed(op, &mine);
	} else {
		reread(op, &claim);
	}
	rec_fini(&rec_claim, &claim);
}

static void read_again(const struct op *old)
{
	struct op *op = op_new(old->store, old->ref.namespace, old->ref.name, NULL, old->ctx);

	op->driver_name = xstrdup(old->driver_name);
	op->devices = json_incref(old->devices);
	op->ref = (struct claim_ref){
		xstrdup(old->ref.namespace), xstrdup(old->ref.name), xstrdup(old->ref.uid)};
	op->done_cb = old->done_cb;
	op->done = claim_reread;
	op->started_ms = old->started_ms;
	op_try(op);
}

static void status_written(struct op *op, const struct err *err, const json_t *object)
{
	struct err mine = ERR_INIT;

	if (err && err->kind == ERR_CONFLICT && now_ms() - op->started_ms < TRYING_MS &&
		!op->store->stopping)
		read_again(op);
	else if (err)
		write_failed(op, err);
	else if (check_kept(op, object, &mine) < 0)
		write_failed(op, &mine);
	else
		op->done_cb(op->ctx, NULL);
}

static void kube_write_status(struct store *base, const struct claim *claim,
	const char *driver_name, const json_t *devices, store_done_cb *cb, void *ctx)
{
	struct store_kube *s = container_of(base, struct store_kube, base);

	op_try(write_op(s, claim, driver_name, devices, cb, ctx));
}

/* --- release: the claim controller's work ------------------------------------------------- */

static void on_released(uv_timer_t *timer)
{
	op_end(timer->data, NULL, NULL);
}

static void released(struct op *op, const struct err *err, const json_t *object UNUSED)
{
	op->done_cb(op->ctx, err);
}

static void kube_release(
	struct store *base, const struct claim_ref *claim, store_done_cb *cb, void *ctx)
{
	struct op *op = op_new(container_of(base, struct store_kube, base), claim->namespace,
		claim->name, NULL, ctx);

	op->done_cb = cb;
	op->done = released;
	(void)uv_timer_start(&op->timer, on_released, 0, 0);
}

/* --- listing ------------------------------------------------------------------------------ */

struct wanted {
	UT_hash_handle hh;
	struct wanted *next; /* not asked for yet */
	char *namespace, *name;
	char key[]; /* namespace/name */
};

struct listing {
	struct store_kube *store;
	const struct store_listing *to;
	void *ctx;
	struct kube_list *pods;
	struct wanted *all;          /* by key */
	struct wanted *first, *last; /* not asked for yet, as the pods came */
	size_t under_way;
	struct err err; /* the first that ended it */
};

static void listing_free(struct listing *l)
{
	struct wanted *w, *tmp;

	HASH_ITER (hh, l->all, w, tmp) {
		HASH_DEL(l->all, w);
		free(w->namespace);
		free(w->name);
		free(w);
	}
	free(l);
}

static void listing_end(struct listing *l, const struct err *err)
{
	const struct store_listing *to = l->to;
	void *ctx = l->ctx;
	struct err copy = err ? *err : (struct err)ERR_INIT;

	l->store->listing = NULL;
	listing_free(l);
	to->done(ctx, err ? &copy : NULL);
}

static void tell_problem(const struct listing *l, const struct err *err)
{
	l->to->problem(l->ctx, err->message);
}

static void want(struct listing *l, const char *namespace, const char *name)
{
	size_t len = strlen(namespace) + 1 + strlen(name);
	struct wanted *w = xcalloc(1, sizeof(*w) + len + 1);
	const struct wanted *known;

	(void)snprintf(w->key, len + 1, "%s/%s", namespace, name);
	HASH_FIND(hh, l->all, w->key, len, known);
	if (!known && HASH_COUNT(l->all) >= MAX_CLAIMS)
		(void)err_set(&l->err, ERR_INVALID,
			"the pods of this node name more than %d claims", MAX_CLAIMS);
	if (known || l->err.kind != ERR_NONE) {
		free(w);
		return;
	}
	w->namespace = xstrdup(namespace);
	w->name = xstrdup(name);
	HASH_ADD(hh, l->all, key, len, w);
	if (l->last)
		l->last->next = w;
	else
		l->first = w;
	l->last = w;
}

static void on_pod(void *ctx, const json_t *pod)
{
	const json_t *meta = json_object_get(pod, "metadata");
	const char *namespace = json_string_value(json_object_get(meta, "namespace"));
	const char *name = json_string_value(json_object_get(meta, "name"));
	struct strlist names = {0};
	struct listing *l = ctx;
	struct err err;

	if (!namespace || !name)
		return;
	if (podclaims_names(pod, &names, &err) < 0) {
		(void)err_wrap(&err, "pod %s/%s", namespace, name);
		tell_problem(l, &err);
	}
	for (size_t i = 0; i < names.n; i++)
		want(l, namespace, names.v[i]);
	strlist_fini(&names);
}

static void listing_next(struct listing *l);

static void claim_listed(struct op *op, const struct err *err, const json_t *object)
{
	struct listing *l = op->ctx;

	l->under_way--;
	if (!err) {
		l->to->claim(l->ctx, object);
	} else if (err->kind == ERR_NOT_FOUND) {
		struct err missing;

		(void)err_set(&missing, ERR_NOT_FOUND, "claim %s not found", op->wanted->key);
		tell_problem(l, &missing);
	} else if (l->err.kind == ERR_NONE) {
		l->err = *err;
	}
	listing_next(l);
}

/* One answer may be the last of an ending listing: then nothing else is begun. */
static void listing_next(struct listing *l)
{
	while (l->err.kind == ERR_NONE && l->first && l->under_way < CLAIMS_AT_ONCE) {
		struct wanted *w = l->first;
		struct op *op = op_new(l->store, w->namespace, w->name, NULL, l);

		l->first = w->next;
		op->wanted = w;
		op->done = claim_listed;
		l->under_way++;
		op_try(op);
	}
	if (l->under_way == 0)
		listing_end(l, l->err.kind == ERR_NONE ? NULL : &l->err);
}

static void on_pods_listed(
	void *ctx, const struct kube_error *error, const char *resource_version UNUSED)
{
	struct listing *l = ctx;

	l->pods = NULL;
	if (error && l->err.kind == ERR_NONE)
		l->err = error->err;
	listing_next(l);
}

static void kube_list_claims(struct store *base, const struct store_listing *listing, void *ctx)
{
	struct store_kube *s = container_of(base, struct store_kube, base);
	cleanup_free char *path = kube_path("v1", NULL, "pods", NULL, NULL);
	cleanup_free char *selector = xasprintf("spec.nodeName=%s", s->node_name);
	cleanup_buf struct buf query = BUF_INIT;
	struct listing *l = xcalloc(1, sizeof(*l));

	l->store = s;
	l->to = listing;
	l->ctx = ctx;
	s->listing = l;
	kube_query(&query, "fieldSelector", selector);
	l->pods = kube_list_start(
		s->kube, path, query.data, PODS_A_PAGE, on_pod, on_pods_listed, l);
}

/* --- the whole ---------------------------------------------------------------------------- */

static void kube_store_free(struct store *base)
{
	struct store_kube *s = container_of(base, struct store_kube, base);
	struct err err;

	s->stopping = true;
	(void)err_set(&err, ERR_UNAVAILABLE, "statd is stopping");
	if (s->listing)
		s->listing->err = err;
	if (s->listing && s->listing->pods) {
		kube_list_cancel(s->listing->pods);
		s->listing->pods = NULL;
		listing_end(s->listing, &err);
	}
	while (s->ops) {
		if (s->ops->call)
			kube_cancel(s->ops->call);
		op_end(s->ops, &err, NULL);
	}
	free(s->node_name);
	free(s->base.description);
	free(s);
}

static const struct store_ops kube_ops = {
	.kind = "cluster",
	.get_claim = kube_get_claim,
	.write_status = kube_write_status,
	.release = kube_release,
	.list = kube_list_claims,
	.free = kube_store_free,
};

struct store *store_kube_new(uv_loop_t *loop, struct kube *kube, const char *node_name)
{
	struct store_kube *s = xcalloc(1, sizeof(*s));

	s->base.ops = &kube_ops;
	s->base.description = xasprintf("API server %s", kube_description(kube));
	s->loop = loop;
	s->kube = kube;
	s->node_name = xstrdup(node_name);
	return &s->base;
}
