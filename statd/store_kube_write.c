/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a claim's status.
 *
 *	[READ ─▶] PATCH ─┬─▶ done
 *	   ▲             ├─ the claim has changed ──▶ READ ──▶ PATCH
 *	   │             └─ it has parameters that no JSON brings back ──▶ READ as bytes ──▶ PUT
 *
 * A JSON patch: our entries out, our entries in, on the condition that the claim is the one that
 * was read. It touches nothing that it does not name, which matters: status.allocation is
 * immutable and not ours to write, and holds opaque parameters, which the server compares as
 * bytes. Server-side apply would not do. It takes the object through a form that sorts their
 * members, so that any that stood in another order count as a change of the allocation. A merge
 * patch would replace the whole list, with the entries of other drivers in it.
 *
 * The condition is two tests at the front of the patch, of UID and version: the server applies a
 * patch in its order, so a place in the list that is wrong by now is never reached.
 *
 * If the parameters have white space, or a '<', any answer and any patch in JSON loses it, and
 * the server refuses the patch for what we did not touch (claim_splice.c); in the same way for the
 * data of other drivers. Then the claim is read
 * and written in its binary form. That is one call more, and never needed for what kubectl made.
 *
 * A patch may be made twice, for a second one meets another version of the object. A claim that
 * was read and has our entries already is not written again.
 */
#include "statd/store_kube_internal.h"

#include <string.h>

#include "statd/claim.h"
#include "statd/claim_splice.h"

/* Each is for a writer that was faster. */
#define MAX_READS 8

struct write {
	struct store_kube *store;
	struct claim_ref ref; /* own copies */
	char *driver_name;
	json_t *devices; /* that the driver is to have */
	bool removing;   /* all of the driver's: a claim that is gone is as good */
	uint64_t started_ms;
	bool binary;
	unsigned n_reads;
	store_done_cb *cb;
	void *ctx;
};

static void write_end(struct write *w, const struct err *err)
{
	w->cb(w->ctx, err);
	json_decref(w->devices);
	free(w->driver_name);
	free(w->ref.namespace);
	free(w->ref.name);
	free(w->ref.uid);
	free(w);
}

static struct op *write_op(struct write *w, const char *method, const char *subresource)
{
	struct op *op = op_new(w->store, method, w->ref.namespace, w->ref.name, subresource);

	op->ctx = w;
	op->started_ms = w->started_ms;
	return op;
}

/* --- what the server says ----------------------------------------------------------------- */

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
static int check_kept(const struct write *w, const json_t *answer, struct err *err)
{
	const json_t *kept = json_object_get(json_object_get(answer, "status"), "devices");

	if (!answer || !has_entry_of(w->devices, w->driver_name) ||
		has_entry_of(kept, w->driver_name))
		return 0;
	return err_set(err, ERR_UNAVAILABLE,
		"the API server has dropped status.devices, without which a restart would lose "
		"the devices: its feature gate DRAResourceClaimDeviceStatus must be on");
}

/* The server says what is forbidden, but not where the right is given. Some rights are asked for
 * by validation, which says 422. */
static void explain_forbidden(const struct write *w, struct err *err)
{
	const char *verb = w->binary ? "update" : "patch";

	if (!strstr(err->message, "orbidden") ||
		strstr(err->message, "ValidatingAdmissionPolicy"))
		return;
	if (strstr(err->message, "associated-node"))
		(void)err_wrap(err,
			"a ClusterRole of this account must allow associated-node:%s on "
			"resourceclaims/driver of resource.k8s.io, resourceNames [%s], and its "
			"token "
			"must be bound to a pod of this node",
			verb, w->driver_name);
	else
		(void)err_wrap(err,
			"a ClusterRole of this account must allow %s on resourceclaims/status "
			"of "
			"resource.k8s.io",
			verb);
}

static void write_failed(struct write *w, const struct err *err)
{
	struct err mine = *err;

	if (w->removing && (err->kind == ERR_NOT_FOUND || err->kind == ERR_CONFLICT)) {
		write_end(w, NULL);
		return;
	}
	if (err->kind == ERR_NOT_FOUND)
		(void)err_set(&mine, ERR_NOT_FOUND, "claim %s/%s does not exist any more",
			w->ref.namespace, w->ref.name);
	explain_forbidden(w, &mine);
	write_end(w, &mine);
}

/* Our claim has this name no longer. */
static void write_replaced(struct write *w)
{
	struct err err;

	(void)err_set(&err, ERR_CONFLICT, "claim %s/%s was replaced by another of its name",
		w->ref.namespace, w->ref.name);
	write_failed(w, &err);
}

/* A conflict that is not about the claim's UID passes. */
static void write_outdated(struct write *w, const struct err *err)
{
	struct err mine = *err;

	if (err->kind == ERR_CONFLICT)
		(void)err_set(&mine, ERR_BUSY,
			"claim %s/%s changes faster than its status can be written",
			w->ref.namespace, w->ref.name);
	write_failed(w, &mine);
}

/* What was put, or the patch, was made for another version of the object. Of a patch that it cannot
 * apply, a failed test included, the server says nothing but this. */
static bool is_outdated(const struct err *err)
{
	return err->kind == ERR_CONFLICT ||
	       (err->kind == ERR_INVALID &&
		       strstr(err->message, "rejected our request due to an error in our request"));
}

/* Whether it is about what we did not write: the allocation, or data of other drivers. */
static bool is_about_others(const struct write *w, const struct err *err)
{
	if (err->kind != ERR_INVALID)
		return false;
	return strstr(err->message, "status.allocation:") ||
	       strstr(err->message, "resourceclaims/binding") ||
	       (strstr(err->message, "resourceclaims/driver") &&
		       !strstr(err->message, w->driver_name));
}

static bool may_read_again(const struct write *w)
{
	return !w->store->stopping && w->n_reads < MAX_READS &&
	       now_ms() - w->started_ms < STORE_KUBE_TRYING_MS;
}

/* --- PATCH -------------------------------------------------------------------------------- */

/* What a patch must know of the claim that it is for. */
struct seen {
	const char *version;
	size_t n;     /* entries of status.devices */
	size_t *ours; /* which of them */
	size_t n_ours;
};

static void cleanup_seen_p(struct seen *seen)
{
	free(seen->ours);
}
#define cleanup_seen __attribute__((cleanup(cleanup_seen_p)))

static void seen_add(struct seen *seen, const struct write *w, const char *driver)
{
	if (str_equal(driver, w->driver_name))
		seen->ours[seen->n_ours++] = seen->n;
	seen->n++;
}

static struct seen seen_in_claim(const struct write *w, const struct claim_seen *claim)
{
	struct seen seen = {
		.version = claim->version,
		.ours = xcalloc(claim->drivers.n, sizeof(*seen.ours)),
	};

	for (size_t i = 0; i < claim->drivers.n; i++)
		seen_add(&seen, w, claim->drivers.v[i]);
	return seen;
}

static const json_t *devices_of(const json_t *claim)
{
	return json_object_get(json_object_get(claim, "status"), "devices");
}

static struct seen seen_in_object(const struct write *w, const json_t *claim)
{
	const json_t *meta = json_object_get(claim, "metadata"), *entry;
	struct seen seen = {
		.version = json_string_value(json_object_get(meta, "resourceVersion")),
		.ours = xcalloc(json_array_size(devices_of(claim)), sizeof(*seen.ours)),
	};
	size_t i;

	json_array_foreach (devices_of(claim), i, entry)
		seen_add(&seen, w, json_string_value(json_object_get(entry, "driver")));
	return seen;
}

static void patch_add(json_t *patch, const char *what, char *path, const json_t *value)
{
	json_t *op = json_pack("{ss ss}", "op", what, "path", path);

	if (value)
		(void)json_object_set(op, "value", (json_t *)(uintptr_t)value);
	(void)json_array_append_new(patch, op);
	free(path);
}

static void patch_test(json_t *patch, const char *path, const char *text)
{
	json_t *value = json_string(text ? text : "");

	patch_add(patch, "test", xstrdup(path), value);
	json_decref(value);
}

/* RFC 6902 */
static json_t *status_patch(const struct write *w, const struct seen *seen)
{
	json_t *patch = json_array();
	const json_t *entry;
	size_t i;

	patch_test(patch, "/metadata/uid", w->ref.uid);
	patch_test(patch, "/metadata/resourceVersion", seen->version);
	/* places change with each removal: from the end */
	for (i = seen->n_ours; i-- > 0;)
		patch_add(patch, "remove", xasprintf("/status/devices/%zu", seen->ours[i]),
			NULL);
	if (seen->n == 0)
		patch_add(patch, "add", xstrdup("/status/devices"), w->devices);
	else
		json_array_foreach (w->devices, i, entry)
			patch_add(patch, "add", xstrdup("/status/devices/-"), entry);
	return patch;
}

static void on_written(struct op *op, const struct err *err, const struct op_answer *answer);

static void start_patch(struct write *w, const struct seen *seen)
{
	struct op *op = write_op(w, "PATCH", "status");

	op->content_type = "application/json-patch+json";
	op->body = status_patch(w, seen);
	op->done = on_written;
	op_try(op);
}

/* --- READ --------------------------------------------------------------------------------- */

/* But for its conditions, which have a time. */
static bool same_entry(const json_t *a, const json_t *b)
{
	json_t *x = json_copy((json_t *)(uintptr_t)a), *y = json_copy((json_t *)(uintptr_t)b);
	bool same;

	(void)json_object_del(x, "conditions");
	(void)json_object_del(y, "conditions");
	same = json_equal(x, y);
	json_decref(x);
	json_decref(y);
	return same;
}

/* Whether our entries are what they are to be. */
static bool is_written(const struct write *w, const struct seen *seen, const json_t *claim)
{
	if (seen->n_ours != json_array_size(w->devices))
		return false;
	for (size_t i = 0; i < seen->n_ours; i++)
		if (!same_entry(json_array_get(w->devices, i),
			    json_array_get(devices_of(claim), seen->ours[i])))
			return false;
	return true;
}

static void on_read(struct op *op, const struct err *err, const struct op_answer *answer)
{
	struct write *w = op->ctx;
	cleanup_seen struct seen seen = {0};
	const json_t *meta;

	if (err) {
		write_failed(w, err);
		return;
	}
	meta = json_object_get(answer->object, "metadata");
	if (!str_equal(json_string_value(json_object_get(meta, "uid")), w->ref.uid)) {
		write_replaced(w);
		return;
	}
	seen = seen_in_object(w, answer->object);
	if (is_written(w, &seen, answer->object))
		write_end(w, NULL);
	else
		start_patch(w, &seen);
}

static void on_bytes_read(struct op *op, const struct err *err, const struct op_answer *answer)
{
	struct write *w = op->ctx;
	struct buf bytes = BUF_INIT;
	struct op *put;
	struct err mine;

	if (err) {
		write_failed(w, err);
		return;
	}
	if (claim_splice(answer->bytes, answer->len, w->ref.uid, w->driver_name, w->devices,
		    &bytes, &mine) < 0) {
		(void)err_wrap(&mine, "claim %s/%s", w->ref.namespace, w->ref.name);
		buf_fini(&bytes);
		write_failed(w, &mine);
		return;
	}
	put = write_op(w, "PUT", "status");
	put->content_type = CLAIM_BINARY;
	put->bytes = bytes;
	put->done = on_written;
	op_try(put);
}

static void start_read(struct write *w)
{
	struct op *op = write_op(w, "GET", NULL);

	w->n_reads++;
	op->accept = w->binary ? CLAIM_BINARY : NULL;
	op->done = w->binary ? on_bytes_read : on_read;
	op_try(op);
}

static void on_written(struct op *op, const struct err *err, const struct op_answer *answer)
{
	struct write *w = op->ctx;
	struct err mine = ERR_INIT;

	if (err && is_about_others(w, err) && !w->binary && may_read_again(w)) {
		w->binary = true;
		start_read(w);
	} else if (err && is_outdated(err) && may_read_again(w)) {
		start_read(w);
	} else if (err && is_outdated(err)) {
		write_outdated(w, err);
	} else if (err) {
		write_failed(w, err);
	} else if (check_kept(w, answer->object, &mine) < 0) {
		write_failed(w, &mine);
	} else {
		write_end(w, NULL);
	}
}

/* --- the operations ----------------------------------------------------------------------- */

static struct write *write_new(struct store *base, const struct claim_ref *claim,
	const char *driver_name, json_t *devices, store_done_cb *cb, void *ctx)
{
	struct write *w = xcalloc(1, sizeof(*w));

	*w = (struct write){
		.store = container_of(base, struct store_kube, base),
		.ref = {xstrdup(claim->namespace), xstrdup(claim->name), xstrdup(claim->uid)},
		.driver_name = xstrdup(driver_name),
		.devices = devices,
		.started_ms = now_ms(),
		.cb = cb,
		.ctx = ctx,
	};
	return w;
}

void store_kube_write_status(struct store *base, const struct claim_ref *claim,
	const struct claim_seen *seen, const char *driver_name, const json_t *devices,
	store_done_cb *cb, void *ctx)
{
	struct write *w = write_new(base, claim, driver_name,
		json_incref((json_t *)(uintptr_t)devices), cb, ctx);
	cleanup_seen struct seen entries = {0};

	if (!seen) {
		start_read(w);
		return;
	}
	entries = seen_in_claim(w, seen);
	start_patch(w, &entries);
}

void store_kube_remove_status(struct store *base, const struct claim_ref *claim,
	const char *driver_name, store_done_cb *cb, void *ctx)
{
	struct write *w = write_new(base, claim, driver_name, json_array(), cb, ctx);

	w->removing = true;
	start_read(w);
}
