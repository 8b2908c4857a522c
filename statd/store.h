/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where claims come from and their status goes to: one small interface, behind which is a
 * directory of files or an API server.
 *
 * Every call is answered once, by its callback, later: never from inside the call. What is
 * under way when the store is freed is answered with ERR_UNAVAILABLE.
 */

#include <jansson.h>
#include <uv.h>

#include "common/api.h"
#include "common/err.h"

struct store;
struct claim;

/* claim: what concerns the driver of a ResourceClaim (claim_mask.h), borrowed; NULL and err if it
 * could not be had. */
typedef void store_claim_cb(void *ctx, const struct err *err, const json_t *claim);
typedef void store_done_cb(void *ctx, const struct err *err);
/* What a listing finds, one after the other, so that the store never holds all of it. */
struct store_listing {
	/* An object that this node's pods may use, borrowed, each once. */
	void (*claim)(void *ctx, const json_t *claim);
	/* There is an object that may be a claim of this node's pods, or names one, and it cannot
	 * be read: which devices it holds is not known. The listing goes on. */
	void (*unreadable)(void *ctx, const char *text);
	/* Anything else that is wrong or missing; the listing goes on. */
	void (*problem)(void *ctx, const char *text);
	/* The end; err: the store could not be read, and what came before does not count. */
	store_done_cb *done;
};

/* What a change of its status must know of a claim that was read. */
struct claim_seen {
	char *version;          /* NULL: it was not read */
	struct strlist drivers; /* of the entries in status.devices, in their order */
};

struct store_ops {
	const char *kind;
	void (*get_claim)(struct store *store, const char *namespace, const char *name,
		store_claim_cb *cb, void *ctx);
	/* Makes `devices` (an array) all the entries that the driver has in the claim's status,
	 * and leaves those of other drivers as they are, byte for byte. seen is of the claim as
	 * it was read a moment ago, which saves a read; NULL: it is read first. All are borrowed
	 * for the call.
	 *
	 * ERR_NOT_FOUND: the claim does not exist any more. ERR_CONFLICT: another claim has its
	 * name. Both are final and mean nothing else: whatever may pass has another kind. */
	void (*write_status)(struct store *store, const struct claim_ref *claim,
		const struct claim_seen *seen, const char *driver_name, const json_t *devices,
		store_done_cb *cb, void *ctx);
	/* Removes the driver's entries from the claim's status and leaves those of others as they
	 * are, byte for byte. A claim that does not exist any more, that was replaced by another
	 * of its name, or that has no such entry is success. */
	void (*remove_status)(struct store *store, const struct claim_ref *claim,
		const char *driver_name, store_done_cb *cb, void *ctx);
	/* The claims of this node's pods; listing is borrowed and stays. */
	void (*list)(struct store *store, const struct store_listing *listing, void *ctx);
	void (*free)(struct store *store);
};

/* The first member of each kind of store. */
struct store {
	const struct store_ops *ops;
	char *description; /* for people: "directory /var/lib/netclaim/claims" */
	/* Whose part of the claims is read: borrowed, and set before the first call. */
	const char *driver_name;
};

static inline void store_free(struct store *store)
{
	if (store)
		store->ops->free(store);
}

/* A directory of objects, one a file, JSON or YAML (*.json, *.yaml, *.yml): ResourceClaims as
 * the scheduler leaves them, and Pods if there are any. Status is written beside the claim's
 * file: for x.yaml into x.status.json, an object that holds metadata and status.devices, by an
 * atomic replacement; the claim's own file is never changed. ResourceSlices go into
 * resourceslices.json. A claim is found fastest as <namespace>_<name>.<ext>, but any file name
 * will do. The directory is read at each call, so what is put into it or taken out counts at
 * once. All its claims are this node's. */
struct store *store_dir_new(uv_loop_t *loop, const char *path, struct err *err);
