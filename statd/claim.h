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

struct claim_result {
	char *request, *driver, *pool, *device, *share_id;
	struct strmap consumed_capacity;
};
struct claim_opaque {
	char *driver;
	json_t *parameters;
};
struct claim_config {
	struct strlist requests; /* empty: all */
	struct claim_opaque *opaque;
};
struct claim_allocation_devices {
	struct REC_LIST(struct claim_result) results;
	struct REC_LIST(struct claim_config) config;
};
struct claim_allocation {
	struct claim_allocation_devices *devices;
};
struct claim_consumer {
	char *resource, *name, *uid;
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
	struct claim_metadata *metadata;
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

/* From the object's tree. */
int claim_decode(const json_t *tree, struct claim *ret, struct err *err);

/* --- preparing ---------------------------------------------------------------------------- */

/* One result of ours, and what is to be done for it. */
struct plan_item {
	const struct claim_result *result; /* the claim's */
	struct device_config config;
	struct alloc_row *reuse; /* prepared before: a copy of its row; NULL: to be set up */
	bool in_status;          /* status.devices has it */
	enum manager_type manager;
	/* filled in while the plan is carried out */
	struct device *prepared; /* of an item that is set up */
	char *logical_pool;
};

struct plan {
	const struct claim *claim;
	const char *pod_uid;     /* the claim's */
	struct plan_item *items; /* in the order of the allocation results */
	size_t n_items;
};

/* Checks the claim against what is known and works out what to do: that it is the one that was
 * asked for, allocated, and reserved for one pod; its configuration, each device and share; and
 * that no other claim holds one. Nothing is changed. The plan borrows from claim. */
int plan_make(const struct tables *tables, const char *driver_name, const struct claim *claim,
	const char *uid, struct plan *ret, struct err *err);
void plan_fini(struct plan *plan);

/* The name that the device will have in the pod: podIfName, else the device's own; NULL:
 * none. */
const char *plan_if_name(const struct device_config *config, const struct device *device);

/* All entries of ours for status.devices, the caller's. */
int plan_status(const struct plan *plan, const char *driver_name, int64_t now_ms, json_t **ret,
	struct err *err);
/* The rows to be inserted for items that were set up, into ret (zeroed), one at a time. */
void plan_row(const struct plan *plan, const struct plan_item *item, struct alloc_row *ret);
/* What the kubelet and the workload are told. */
void plan_result(const struct plan *plan, struct claim_prepare_result *ret);

/* --- restoring ---------------------------------------------------------------------------- */

/* Rows for what the claim's status says was prepared, each given to add(), which owns it then.
 * Errors are told to fail() one by one, and do not keep the others back. Returns whether the
 * claim has results of ours, is reserved, and yet has nothing of ours in its status: it may
 * have been left half prepared. */
bool claim_restore(const struct claim *claim, const char *driver_name,
	const struct node_config *config, void (*add)(void *ctx, struct alloc_row *row),
	void (*fail)(void *ctx, const struct err *err), void *ctx);
