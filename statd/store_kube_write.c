/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a claim's status.
 *
 *	PATCH ─┬─▶ done
 *	  ▲    ├─ the claim has changed ──▶ READ ──▶ PATCH
 *	  │    └─ it has opaque parameters that no JSON brings back ──▶ READ as bytes ──▶ PUT
 *
 * A JSON patch: our entries out, our entries in, on the condition that the claim is the one that
 * was read. It touches nothing that it does not name, which matters: status.allocation is
 * immutable and not ours to write, and holds opaque parameters, which the server compares as
 * bytes. Server-side apply would not do. It takes the object through a form that sorts their
 * members, so that any that stood in another order count as a change of the allocation. A merge
 * patch would replace the whole list, with the entries of other drivers in it.
 *
 * If the parameters have white space, or a '<', any answer and any patch in JSON loses it, and
 * the server refuses the patch for what we did not touch (claim_splice.c); in the same way for the
 * data of other drivers. Then the claim is read
 * and written in its binary form. That is one call more, and never needed for what kubectl made.
 *
 * A patch may be made twice, for a second one meets another version of the object.
 */
#include "statd/store_kube_internal.h"

#include <string.h>

#include "statd/claim.h"
#include "statd/claim_splice.h"

struct write {
	struct store_kube *store;
	struct claim_ref ref; /* own copies */
	char *driver_name;
	json_t *devices;
	uint64_t started_ms;
	bool binary;
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

	if (!has_entry_of(w->devices, w->driver_name) || has_entry_of(kept, w->driver_name))
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

	explain_forbidden(w, &mine);
	write_end(w, &mine);
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

static bool has_time(const struct write *w)
{
	return !w->store->stopping && now_ms() - w->started_ms < STORE_KUBE_TRYING_MS;
}

/* --- PATCH -------------------------------------------------------------------------------- */

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
static json_t *status_patch(const struct write *w, const struct claim *claim)
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
		if (str_equal(status->devices.v[i].driver, w->driver_name))
			(void)json_array_append_new(patch,
				patch_op("remove", xasprintf("/status/devices/%zu", i), NULL));
	if (n == 0)
		(void)json_array_append_new(
			patch, patch_op("add", xstrdup("/status/devices"), w->devices));
	else
		json_array_foreach (w->devices, i, entry)
			(void)json_array_append_new(
				patch, patch_op("add", xstrdup("/status/devices/-"), entry));
	return patch;
}

static void on_written(struct op *op, const struct err *err, const struct op_answer *answer);

static void start_patch(struct write *w, const struct claim *claim)
{
	struct op *op = write_op(w, "PATCH", "status");

	op->content_type = "application/json-patch+json";
	op->body = status_patch(w, claim);
	op->done = on_written;
	op_try(op);
}

/* --- READ --------------------------------------------------------------------------------- */

/* The claim has changed since it was read: somebody else wrote its status, or it is another. */
static void on_read(struct op *op, const struct err *err, const struct op_answer *answer)
{
	struct write *w = op->ctx;
	struct claim claim = {0};
	struct err mine;

	if (err) {
		write_failed(w, err);
		return;
	}
	if (claim_decode(answer->object, &claim, &mine) < 0) {
		write_failed(w, &mine);
		return;
	}
	if (strcmp(claim.metadata->uid, w->ref.uid) != 0) {
		(void)err_set(&mine, ERR_CONFLICT, "claim %s/%s got replaced meanwhile",
			w->ref.namespace, w->ref.name);
		write_failed(w, &mine);
	} else {
		start_patch(w, &claim);
	}
	rec_fini(&rec_claim, &claim);
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

static void read_again(struct write *w)
{
	struct op *op = write_op(w, "GET", NULL);

	op->accept = w->binary ? CLAIM_BINARY : NULL;
	op->done = w->binary ? on_bytes_read : on_read;
	op_try(op);
}

static void on_written(struct op *op, const struct err *err, const struct op_answer *answer)
{
	struct write *w = op->ctx;
	struct err mine = ERR_INIT;

	if (err && is_about_others(w, err) && !w->binary && has_time(w)) {
		w->binary = true;
		read_again(w);
	} else if (err && err->kind == ERR_CONFLICT && has_time(w)) {
		read_again(w);
	} else if (err) {
		write_failed(w, err);
	} else if (check_kept(w, answer->object, &mine) < 0) {
		write_failed(w, &mine);
	} else {
		write_end(w, NULL);
	}
}

void store_kube_write_status(struct store *base, const struct claim *claim,
	const char *driver_name, const json_t *devices, store_done_cb *cb, void *ctx)
{
	const struct claim_metadata *meta = claim->metadata;
	struct write *w = xcalloc(1, sizeof(*w));

	*w = (struct write){
		.store = container_of(base, struct store_kube, base),
		.ref = {xstrdup(meta->namespace), xstrdup(meta->name), xstrdup(meta->uid)},
		.driver_name = xstrdup(driver_name),
		.devices = json_incref((json_t *)(uintptr_t)devices),
		.started_ms = now_ms(),
		.cb = cb,
		.ctx = ctx,
	};
	start_patch(w, claim);
}
