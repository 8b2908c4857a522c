/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of a cluster: ResourceClaims of the API server (resource.k8s.io/v1). Status is
 * written by store_kube_write.c.
 *
 * A read may be made twice: what fails because the server is busy, restarting or gone is tried
 * again for some seconds, well inside the 45 s that the kubelet gives to a whole prepare; it asks
 * again itself then.
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
#include "statd/claim_mask.h"
#include "statd/podclaims.h"
#include "statd/store_kube_internal.h"

#define GROUP_VERSION "resource.k8s.io/v1"

/* One try. Two rounds of these, a read and a write, are what a prepare takes at the most. */
#define TRY_MS         5000
/* A pod is some kilobytes, tens of them with long annotations. */
#define PODS_A_PAGE    25
/* The connection takes as many at once. */
#define CLAIMS_AT_ONCE KUBE_MAX_PARALLEL
/* Claims of one node's pods: 1000 pods are beyond what any kubelet is run with, 32 claims each
 * beyond any pod. */
#define MAX_CLAIMS     32768

/* --- one request, tried again ------------------------------------------------------------- */

static void op_closed(uv_handle_t *handle)
{
	struct op *op = handle->data;

	json_decref(op->body);
	buf_fini(&op->bytes);
	free(op->path);
	free(op);
}

/* Answers, and is gone. */
static void op_end(struct op *op, const struct err *err, const struct op_answer *answer)
{
	if (op->prev)
		op->prev->next = op->next;
	else
		op->store->ops = op->next;
	if (op->next)
		op->next->prev = op->prev;
	op->done(op, err, answer);
	uv_close((uv_handle_t *)&op->timer, op_closed);
}

/* A 404 says that the object does not exist only in the words of an API server that has the
 * resource: what stands in front of it, or one that is starting, has others. */
static bool is_missing(const struct kube_error *error)
{
	return error->status == 404 && strcmp(error->reason, "NotFound") == 0 &&
	       !strstr(error->err.message, "could not find the requested resource");
}

static bool may_pass(const struct kube_error *error)
{
	return error->status == 0 || error->status == 429 || error->status >= 500 ||
	       (error->status == 404 && !is_missing(error));
}

static struct err error_of(const struct kube_error *error)
{
	struct err err = error->err;

	if (err.kind == ERR_NOT_FOUND && !is_missing(error))
		err.kind = ERR_UNAVAILABLE;
	return err;
}

static void on_next_try(uv_timer_t *timer)
{
	op_try(timer->data);
}

static void op_failed(struct op *op, const struct kube_error *error)
{
	uint64_t delay_ms = kube_backoff_ms(op->attempt++, error->retry_after_ms);
	const struct err err = error_of(error);

	if (!may_pass(error) || now_ms() + delay_ms - op->started_ms > STORE_KUBE_TRYING_MS) {
		op_end(op, &err, NULL);
		return;
	}
	LOG(DEBUG, FIELDS(F("err", error->err.message)), "trying once more");
	(void)uv_timer_start(&op->timer, on_next_try, delay_ms, 0);
}

/* Of a claim only what concerns our driver is decoded; of the binary form nothing. What was
 * written is written, however its answer reads. */
static void on_bytes(void *ctx, const struct kube_error *error, const void *bytes, size_t len)
{
	struct op_answer answer = {.bytes = bytes, .len = len};
	struct op *op = ctx;
	json_t *claim = NULL;
	struct err err;

	op->call = NULL;
	if (error) {
		op_failed(op, error);
		return;
	}
	if (!op->accept && claim_parse(op->path, bytes, len, op->store->base.driver_name, &claim,
				   &err) < 0 &&
		strcmp(op->method, "GET") == 0) {
		op->undecoded = true;
		op_end(op, &err, NULL);
		return;
	}
	answer.object = claim;
	op_end(op, NULL, &answer);
	json_decref(claim);
}

void op_try(struct op *op)
{
	const struct kube_request request = {
		.method = op->method,
		.path = op->path,
		.content_type = op->content_type,
		.body = op->body,
		.bytes = op->bytes.data,
		.n_bytes = op->bytes.len,
		.accept = op->accept,
		.timeout_ms = TRY_MS,
	};

	op->call = kube_start_bytes(op->store->kube, &request, on_bytes, op);
}

struct op *op_new(struct store_kube *s, const char *method, const char *namespace,
	const char *name, const char *subresource)
{
	struct op *op = xcalloc(1, sizeof(*op));

	op->store = s;
	op->method = method;
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

/* --- reading ------------------------------------------------------------------------------ */

static void claim_read(struct op *op, const struct err *err, const struct op_answer *answer)
{
	op->claim_cb(op->ctx, err, err ? NULL : answer->object);
}

static void kube_get_claim(struct store *base, const char *namespace, const char *name,
	store_claim_cb *cb, void *ctx)
{
	struct op *op = op_new(
		container_of(base, struct store_kube, base), "GET", namespace, name, NULL);

	op->claim_cb = cb;
	op->ctx = ctx;
	op->done = claim_read;
	op_try(op);
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
		l->to->unreadable(l->ctx, err.message);
	}
	for (size_t i = 0; i < names.n; i++)
		want(l, namespace, names.v[i]);
	strlist_fini(&names);
}

static void listing_next(struct listing *l);

static void claim_listed(struct op *op, const struct err *err, const struct op_answer *answer)
{
	struct listing *l = op->ctx;

	l->under_way--;
	if (!err) {
		l->to->claim(l->ctx, answer->object);
	} else if (op->undecoded) {
		l->to->unreadable(l->ctx, err->message);
	} else if (err->kind == ERR_NOT_FOUND) {
		cleanup_free char *missing = xasprintf("claim %s not found", op->wanted->key);

		l->to->problem(l->ctx, missing);
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
		struct op *op = op_new(l->store, "GET", w->namespace, w->name, NULL);

		l->first = w->next;
		op->ctx = l;
		op->wanted = w;
		op->done = claim_listed;
		l->under_way++;
		op_try(op);
	}
	if (l->under_way == 0)
		listing_end(l, l->err.kind == ERR_NONE ? NULL : &l->err);
}

static void on_pod_undecoded(void *ctx, const struct err *err)
{
	struct listing *l = ctx;

	l->to->unreadable(l->ctx, err->message);
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
	kube_list_set_mask(l->pods, &claim_mask, on_pod_undecoded);
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
	.write_status = store_kube_write_status,
	.remove_status = store_kube_remove_status,
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
