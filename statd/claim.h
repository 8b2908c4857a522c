/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * ResourceClaims (resource.k8s.io/v1) as far as a driver reads and writes them, and what
 * preparing one means, worked out before anything is touched. Pure: records in, records out.
 */

#include "common/api.h"
#include "statd/config.h"
#include "statd/schema.h"

/* --- the object --------------------------------------------------------------------------- */

struct claim_metadata {
	char *name, *namespace, *uid;
	char *resource_version; /* NULL: it is not from an API server */
	struct rec_int generation;
	json_t *annotations;
};

/* Decoded when a plan is made, those of our own driver alone. */
struct claim_result {
	char *request, *driver, *pool, *device, *share_id;
	struct strmap consumed_capacity;
	struct rec_bool admin_access;
	/* known; they mean nothing to a driver */
	json_t *tolerations, *binding_conditions, *binding_failure_conditions;
};
struct claim_opaque {
	char *driver;
	json_t *parameters;
};
struct claim_config {
	char *source;            /* FromClass or FromClaim */
	struct strlist requests; /* empty: all */
	struct claim_opaque *opaque;
};
struct claim_allocation_devices {
	json_t *results, *config; /* as they came: other drivers' are among them */
};
struct claim_allocation {
	struct claim_allocation_devices *devices;
};
struct claim_consumer {
	char *api_group, *resource, *name, *uid;
};
/* An entry of status.devices: AllocatedDeviceStatus. */
struct claim_device_status {
	char *driver, *pool, *device, *share_id;
	json_t *conditions, *data, *network_data;
};
struct claim_status {
	struct claim_allocation *allocation;
	struct REC_LIST(struct claim_consumer) reserved_for;
	struct REC_LIST(struct claim_device_status) devices;
};
struct claim {
	char *api_version; /* NULL: it was an item of a list */
	struct claim_metadata *metadata;
	json_t *spec; /* as it came; NULL: it has none */
	struct claim_status *status;
};
extern const struct rec_desc rec_claim;
extern const struct rec_desc rec_claim_device_status;

/* What goes into status.devices[].data (the seed's SerializedDevice). */
struct claim_data {
	char *manager;
	struct packed *dev;
	struct device_config *config;
	struct strmap consumed_capacity;
	char *logical_pool;
};
extern const struct rec_desc rec_claim_data;

/* Kubernetes: status.devices[].data may have this many bytes. */
#define CLAIM_DATA_MAX 10240

/* From the object's tree. What is only looked at when a plan is made may be anything. */
int claim_decode(const json_t *tree, struct claim *ret, struct err *err);

/* --- preparing ---------------------------------------------------------------------------- */

/* One result of ours, and what is to be done for it. */
struct plan_item {
	const struct claim_result *result; /* the plan's */
	struct device_config config;
	struct alloc_row *reuse; /* prepared before: a copy of its row; NULL: to be set up */
	/* An earlier preparation did not finish it: a copy of its row, which is replaced. */
	struct alloc_row *unfinished;
	bool in_status;          /* status.devices has it */
	enum manager_type manager;
	/* filled in while the plan is carried out */
	struct device *prepared; /* of an item that is to be set up: the inventory's */
	char *logical_pool;
};

struct plan {
	const struct claim *claim;
	const char *pod_uid;          /* the claim's */
	struct claim_result *results; /* ours, in the order of the allocation */
	struct plan_item *items;      /* one for each of them */
	size_t n_items;
	/* Keys of the allocations table: what the claim holds that its allocation does not name
	 * any more. It is to be freed before anything is set up; of a claim that is refused as
	 * well, lest two that changed devices wait for each other for ever. */
	struct strlist stale;
	struct strlist warnings; /* what was let pass, a sentence each */
};

/* What plans are made by. */
struct plan_rules {
	const char *driver_name;
	const char *node_name; /* which also is the pool's */
	/* An unknown parameter is a warning; its claim is prepared without it. */
	bool warn_unknown;
};

/* Checks the claim against what is known and works out what to do: that it is the one that was
 * asked for, allocated, and reserved for one pod; that each of our results is of this node and
 * asks for nothing that this driver does not know; the parameters, unless all is prepared
 * already; each device and share; and that no other claim holds one. Nothing is changed. err
 * says in which request, device and field something is wrong; then *ret has nothing but stale,
 * if the claim's results could be read. The plan borrows from claim. */
int plan_make(const struct tables *tables, const struct plan_rules *rules,
	const struct claim *claim, const char *uid, struct plan *ret, struct err *err);
void plan_fini(struct plan *plan);

/* The name that the device will have in the pod: podIfName, else the device's own; NULL:
 * none. */
const char *plan_if_name(const struct device_config *config, const struct device *device);

/* The rows to be inserted for items that are to be set up, into ret (zeroed), one at a time; they are
 * unfinished. */
void plan_row(const struct plan *plan, const struct plan_item *item, struct alloc_row *ret);
/* The rows of all items, in their order, once they are in the table: the caller's list, borrowed
 * rows. */
const struct alloc_row **plan_rows(const struct plan *plan, const struct tables *tables);
/* What the kubelet and the workload get, by the rows. */
void plan_result(const struct plan *plan, const struct tables *tables,
	struct claim_prepare_result *ret);

/* The entries of status.devices for these rows, an array, the caller's. */
int claim_status_entries(const struct alloc_row *const *rows, size_t n, const char *driver_name,
	int64_t now_ms, json_t **ret, struct err *err);

/* --- restoring ---------------------------------------------------------------------------- */

/* Rows for what the claim's status says was prepared, each given to add(), which owns it then. A
 * claim that is not reserved for exactly one pod has rows of no pod, with all that may be it.
 * Errors are told to fail() one by one, and do not keep the others back. Returns whether the
 * claim has results of ours, is reserved, and yet has nothing of ours in its status: it may
 * have been left half prepared. */
bool claim_restore(const struct claim *claim, const char *driver_name,
	const struct node_config *config, void (*add)(void *ctx, struct alloc_row *row),
	void (*fail)(void *ctx, const struct err *err), void *ctx);
