/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim: the object as it is read, its status as it is written and restored, and what comes of
 * a plan that was carried out.
 *
 * What the object holds of others, and what only a plan looks at, is kept as it came: a claim
 * whose devices are to be restored must not be lost by a field that a plan would refuse.
 */
#include "statd/claim.h"

#include <assert.h>
#include <string.h>

#include "common/check.h"
#include "statd/claim_internal.h"
#include "statd/publish.h"

/* --- the object --------------------------------------------------------------------------- */

#define MAX_CONSUMERS 256 /* ResourceClaimReservedForMaxSize */
#define MAX_NAME      253

static const struct rec_field metadata_fields[] = {
	REC_STR(struct claim_metadata, name, "name", REC_REQUIRED, MAX_NAME,
		check_dns_subdomain, "of the claim"),
	REC_STR(struct claim_metadata, namespace, "namespace", REC_REQUIRED, MAX_NAME,
		check_dns_label, "of the claim"),
	REC_STR(struct claim_metadata, uid, "uid", REC_REQUIRED, MAX_NAME, check_uid,
		"of the claim"),
	REC_STR(struct claim_metadata, resource_version, "resourceVersion", REC_OPTIONAL,
		MAX_NAME, NULL, "of the object as it was read"),
	REC_INT(struct claim_metadata, generation, "generation", REC_OPTIONAL, 0, INT64_MAX,
		"of the claim's spec"),
	REC_OBJECT(struct claim_metadata, annotations, "annotations", REC_OPTIONAL,
		"of the claim"),
};
static REC_DESC(
	rec_metadata, struct claim_metadata, "metadata", metadata_fields, NULL, "ObjectMeta");

static const struct rec_field result_fields[] = {
	REC_STR(struct claim_result, request, "request", REC_REQUIRED, MAX_NAME,
		check_request_ref, "request, with its subrequest"),
	REC_STR(struct claim_result, driver, "driver", REC_REQUIRED, MAX_NAME, NULL,
		"whose device it is"),
	REC_STR(struct claim_result, pool, "pool", REC_REQUIRED, MAX_NAME, NULL, "DRA pool"),
	REC_STR(struct claim_result, device, "device", REC_REQUIRED, MAX_NAME, check_dns_label,
		"name in the pool"),
	REC_STR(struct claim_result, share_id, "shareID", REC_OPTIONAL, MAX_NAME, check_uid,
		"of a shared device"),
	REC_STRMAP(struct claim_result, consumed_capacity, "consumedCapacity", REC_OPTIONAL,
		CLAIM_MAX_RESULTS, NULL, "of a shared device"),
	REC_BOOL(struct claim_result, admin_access, "adminAccess", REC_OPTIONAL,
		"to a device that another claim may have"),
	REC_TREE(struct claim_result, tolerations, "tolerations", REC_OPTIONAL,
		"the scheduler's"),
	REC_TREE(struct claim_result, binding_conditions, "bindingConditions", REC_OPTIONAL,
		"the scheduler's"),
	REC_TREE(struct claim_result, binding_failure_conditions, "bindingFailureConditions",
		REC_OPTIONAL, "the scheduler's"),
};
/* the name makes the message about an unknown field read "... is not a field of ..." */
REC_DESC(rec_claim_result, struct claim_result, "a result as this driver understands it",
	result_fields, NULL, "DeviceRequestAllocationResult");

static const struct rec_field opaque_fields[] = {
	REC_STR(struct claim_opaque, driver, "driver", REC_REQUIRED, MAX_NAME, NULL,
		"whom it is for"),
	REC_TREE(struct claim_opaque, parameters, "parameters", REC_OPTIONAL,
		"the driver's own"),
};
static REC_DESC(rec_opaque, struct claim_opaque, "opaque", opaque_fields, NULL,
	"OpaqueDeviceConfiguration");

static const struct rec_field config_fields[] = {
	REC_STR(struct claim_config, source, "source", REC_OPTIONAL, MAX_NAME, NULL,
		"FromClass or FromClaim"),
	REC_STRLIST(struct claim_config, requests, "requests", REC_OPTIONAL, CLAIM_MAX_RESULTS, NULL,
		"which requests; empty: all"),
	REC_SUB(struct claim_config, opaque, "opaque", REC_OPTIONAL, struct claim_opaque,
		&rec_opaque, "parameters for a driver"),
};
REC_DESC(rec_claim_config, struct claim_config, "config", config_fields, NULL,
	"DeviceAllocationConfiguration");

static const struct rec_field devices_fields[] = {
	REC_TREE(struct claim_allocation_devices, results, "results", REC_OPTIONAL,
		"one a device"),
	REC_TREE(struct claim_allocation_devices, config, "config", REC_OPTIONAL,
		"of the classes, then of the claim"),
};
static REC_DESC(rec_allocation_devices, struct claim_allocation_devices, "devices",
	devices_fields, NULL, "DeviceAllocationResult");

static const struct rec_field allocation_fields[] = {
	REC_SUB(struct claim_allocation, devices, "devices", REC_OPTIONAL,
		struct claim_allocation_devices, &rec_allocation_devices, "what was allocated"),
};
static REC_DESC(rec_allocation, struct claim_allocation, "allocation", allocation_fields, NULL,
	"AllocationResult");

static const struct rec_field consumer_fields[] = {
	REC_STR(struct claim_consumer, api_group, "apiGroup", REC_OPTIONAL, MAX_NAME, NULL,
		"empty for pods"),
	REC_STR(struct claim_consumer, resource, "resource", REC_OPTIONAL, MAX_NAME, NULL,
		"pods"),
	REC_STR(struct claim_consumer, name, "name", REC_REQUIRED, MAX_NAME, NULL,
		"of the pod"),
	REC_STR(struct claim_consumer, uid, "uid", REC_REQUIRED, MAX_NAME, check_uid,
		"of the pod"),
};
static REC_DESC(rec_consumer, struct claim_consumer, "consumer", consumer_fields, NULL,
	"ResourceClaimConsumerReference");

static const struct rec_field device_status_fields[] = {
	REC_STR(struct claim_device_status, driver, "driver", REC_REQUIRED, MAX_NAME, NULL,
		"whose entry it is"),
	REC_STR(struct claim_device_status, pool, "pool", REC_REQUIRED, MAX_NAME, NULL,
		"DRA pool"),
	REC_STR(struct claim_device_status, device, "device", REC_REQUIRED, MAX_NAME, NULL,
		"name in the pool"),
	REC_STR(struct claim_device_status, share_id, "shareID", REC_OPTIONAL, MAX_NAME, NULL,
		"of a shared device"),
	REC_TREE(struct claim_device_status, conditions, "conditions", REC_OPTIONAL,
		"Ready and others"),
	REC_TREE(struct claim_device_status, data, "data", REC_OPTIONAL, "the driver's own"),
	REC_TREE(struct claim_device_status, network_data, "networkData", REC_OPTIONAL,
		"interface in the pod"),
};
REC_DESC(rec_claim_device_status, struct claim_device_status, "device status",
	device_status_fields, NULL, "AllocatedDeviceStatus");

static const struct rec_field status_fields[] = {
	REC_SUB(struct claim_status, allocation, "allocation", REC_OPTIONAL,
		struct claim_allocation, &rec_allocation, "the scheduler's decision"),
	REC_RECS(struct claim_status, reserved_for, "reservedFor", REC_OPTIONAL, MAX_CONSUMERS,
		struct claim_consumer, &rec_consumer, "who uses it"),
	REC_RECS(struct claim_status, devices, "devices", REC_OPTIONAL, 0,
		struct claim_device_status, &rec_claim_device_status, "what drivers prepared"),
};
static REC_DESC(rec_claim_status, struct claim_status, "status", status_fields, NULL,
	"ResourceClaimStatus");

static const struct rec_field claim_fields[] = {
	REC_STR(struct claim, api_version, "apiVersion", REC_OPTIONAL, MAX_NAME, NULL,
		CLAIM_API_VERSION),
	REC_SUB(struct claim, metadata, "metadata", REC_REQUIRED, struct claim_metadata,
		&rec_metadata, "which claim"),
	REC_TREE(struct claim, spec, "spec", REC_OPTIONAL, "what the user asked for"),
	REC_SUB(struct claim, status, "status", REC_OPTIONAL, struct claim_status,
		&rec_claim_status, "how it stands"),
};
REC_DESC(rec_claim, struct claim, "ResourceClaim", claim_fields, NULL, CLAIM_API_VERSION);

static const struct rec_field data_fields[] = {
	REC_STR(struct claim_data, manager, "Manager", REC_REQUIRED, MAX_NAME, NULL,
		"type of the device's manager"),
	REC_PACKED(struct claim_data, dev, "Dev", REC_REQUIRED, "the manager's state"),
	REC_SUB(struct claim_data, config, "Config", REC_ALWAYS, struct device_config,
		&rec_device_config, "what the claim asked for"),
	REC_STRMAP(struct claim_data, consumed_capacity, "ConsumedCapacity", REC_OPTIONAL,
		CLAIM_MAX_RESULTS, NULL, "of a shared device"),
	REC_STR(struct claim_data, logical_pool, "LogicalPool", REC_OPTIONAL, MAX_NAME, NULL,
		"configured pool at prepare time"),
};
REC_DESC(rec_claim_data, struct claim_data, "device data", data_fields, NULL,
	"status.devices[].data");

int claim_decode(const json_t *tree, struct claim *ret, struct err *err)
{
	return rec_decode(&rec_claim, tree, REC_LENIENT, "", NULL, ret, err);
}

/* --- accessors ---------------------------------------------------------------------------- */

const char *plan_if_name(const struct device_config *config, const struct device *device)
{
	if (config && config->pod_if_name)
		return config->pod_if_name;
	return device ? device->if_name : NULL;
}

/* --- what comes of it --------------------------------------------------------------------- */

/* NULL: no template made it. */
static const char *pod_claim_name(const struct claim *claim)
{
	const char *name = text_at(claim->metadata->annotations, CLAIM_POD_CLAIM_NAME);

	return *name ? name : NULL;
}

static const struct alloc_row *row_of(
	const struct tables *tables, const char *claim_uid, const struct claim_result *result)
{
	const struct table_row *at =
		table_index_first(tables->allocations, ALLOC_BY_CLAIM, claim_uid);

	for (; at; at = table_index_next(at, ALLOC_BY_CLAIM))
		if (strcmp(alloc_row_of(at)->device_name, result->device) == 0 &&
			same_share(alloc_row_of(at)->share_id, result->share_id))
			return alloc_row_of(at);
	return NULL;
}

static json_t *ready_condition(const struct alloc_row *row, int64_t now)
{
	char time[RFC3339_SIZE];

	return json_pack("[{ss ss ss ss sI ss}]", "type", "Ready", "status", "True", "reason",
		"Ready", "message", "Device is ready", "observedGeneration",
		(json_int_t)row->generation.v, "lastTransitionTime",
		rfc3339_format(now, false, time));
}

int claim_data_encode(const struct alloc_row *row, json_t **ret, struct err *err)
{
	struct device_config none = {0};
	struct claim_data data = {
		.manager = row->manager,
		.dev = row->prepared->state,
		.config = row->config ? row->config : &none,
		.consumed_capacity = row->consumed_capacity,
		.logical_pool = row->logical_pool,
	};
	json_t *tree = rec_encode(&rec_claim_data, &data);
	size_t bytes = json_dumpb(tree, NULL, 0, JSON_COMPACT);

	if (bytes > CLAIM_DATA_MAX) {
		json_decref(tree);
		return err_set(err, ERR_INVALID,
			"device %s: its state and parameters take %zu bytes of the claim's "
			"status, at most %d are allowed",
			row->device_name, bytes, CLAIM_DATA_MAX);
	}
	*ret = tree;
	return 0;
}

static int add_entry(const struct alloc_row *row, const char *driver_name, int64_t now,
	json_t *list, struct err *err)
{
	const char *if_name = plan_if_name(row->config, row->prepared);
	struct claim_device_status d = {
		.driver = (char *)(uintptr_t)driver_name,
		.pool = row->dra_pool,
		.device = row->device_name,
		.share_id = row->share_id && *row->share_id ? row->share_id : NULL,
	};

	if (claim_data_encode(row, &d.data, err) < 0)
		return -1;
	d.conditions = ready_condition(row, now);
	if (if_name)
		d.network_data = json_pack("{ss}", "interfaceName", if_name);
	(void)json_array_append_new(list, rec_encode(&rec_claim_device_status, &d));
	json_decref(d.data);
	json_decref(d.conditions);
	json_decref(d.network_data);
	return 0;
}

int claim_status_entries(const struct alloc_row *const *rows, size_t n, const char *driver_name,
	int64_t now, json_t **ret, struct err *err)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		if (add_entry(rows[i], driver_name, now, list, err) < 0) {
			json_decref(list);
			return -1;
		}
	*ret = list;
	return 0;
}

void plan_row(const struct plan *plan, const struct plan_item *item, struct alloc_row *ret)
{
	const struct claim_metadata *meta = plan->claim->metadata;
	const struct claim_result *r = item->result;

	*ret = (struct alloc_row){
		.device_name = xstrdup(r->device),
		.manager = xstrdup(manager_type_name(item->manager)),
		.prepared_device = packed_copy(item->prepared->state),
		.logical_pool = xstrdup_opt(item->logical_pool),
		.pod_uid = xstrdup(plan->pod_uid),
		.claim_uid = xstrdup(meta->uid),
		.config = xcalloc(1, sizeof(struct device_config)),
		.share_id = xstrdup_opt(r->share_id),
		.claim_namespace = xstrdup(meta->namespace),
		.claim_name = xstrdup(meta->name),
		.request = xstrdup(r->request),
		.dra_pool = xstrdup(r->pool),
		.prepared = xcalloc(1, sizeof(struct device)),
		.unfinished = {true, true},
		.generation = {meta->generation.v, meta->generation.v != 0},
	};
	ret->generated = (struct rec_bool){pod_claim_name(plan->claim) != NULL, true};
	rec_copy(&rec_device_config, ret->config, &item->config);
	rec_copy(&rec_device, ret->prepared, item->prepared);
	for (size_t i = 0; i < r->consumed_capacity.n; i++)
		strmap_put(&ret->consumed_capacity, r->consumed_capacity.v[i].key,
			r->consumed_capacity.v[i].value);
}

const struct alloc_row **plan_rows(const struct plan *plan, const struct tables *tables)
{
	const struct alloc_row **rows = xcalloc(plan->n_items, sizeof(*rows));

	for (size_t i = 0; i < plan->n_items; i++) {
		rows[i] = row_of(
			tables, plan->claim->metadata->uid, plan->items[i].result);
		assert(rows[i]); /* its claim's lock is held since it was inserted */
	}
	return rows;
}

void plan_result(const struct plan *plan, const struct tables *tables,
	struct claim_prepare_result *ret)
{
	const struct alloc_row **rows = plan_rows(plan, tables);

	*ret = (struct claim_prepare_result){
		.pod_claim_name = xstrdup_opt(pod_claim_name(plan->claim))};
	ret->devices.v = xcalloc(plan->n_items, sizeof(*ret->devices.v));
	for (size_t i = 0; i < plan->n_items; i++) {
		const struct claim_result *result = plan->items[i].result;
		const struct alloc_row *row = rows[i];

		ret->devices.v[ret->devices.n++] = (struct prepared_device){
			.request = xstrdup(result->request),
			.pool = xstrdup(result->pool),
			.device = xstrdup(result->device),
			.share_id = xstrdup_opt(result->share_id),
			.if_name = xstrdup_opt(plan_if_name(row->config, row->prepared)),
			.attributes = packed_take(publish_attributes(
				row->prepared, row->logical_pool, row->manager)),
		};
	}
	free(rows);
}

/* --- restoring ---------------------------------------------------------------------------- */

static bool is_result_of(const json_t *result, const struct claim_device_status *d)
{
	return strcmp(text_at(result, "driver"), d->driver) == 0 &&
	       strcmp(text_at(result, "device"), d->device) == 0 &&
	       same_share(text_at(result, "shareID"), d->share_id);
}

static const char *request_of(const struct claim *claim, const struct claim_device_status *d)
{
	const json_t *result;
	size_t i;

	json_array_foreach (results_of(claim), i, result)
		if (is_result_of(result, d))
			return json_string_value(json_object_get(result, "request"));
	return NULL;
}

/* What a row may have: a record that has more cannot be read back, and a manager would refuse all of
 * its allocations for one. */
static int check_restored(const struct claim_device_status *d, const struct claim_data *data,
	const char *request, struct err *err)
{
	if (check_dns_label(d->device, err) < 0)
		return err_wrap(err, "device");
	if (d->share_id && *d->share_id && check_uid(d->share_id, err) < 0)
		return err_wrap(err, "shareID");
	if (data->logical_pool && *data->logical_pool &&
		check_pool_name(data->logical_pool, err) < 0)
		return err_wrap(err, "data.LogicalPool");
	if (request && check_request_ref(request, err) < 0)
		return err_wrap(err, "request");
	return 0;
}

static int restore_device(const struct claim *claim, const struct claim_device_status *d,
	const struct node_config *config, struct alloc_row *ret, struct err *err)
{
	struct claim_data data = {0};
	enum manager_type manager;

	if (!d->data)
		return err_set(
			err, ERR_INVALID, "failed to deserialize device: it has no data");
	if (rec_decode(&rec_claim_data, d->data, REC_LENIENT, "data", NULL, &data, err) < 0)
		return err_wrap(err, "failed to deserialize device");
	if (check_restored(d, &data, request_of(claim, d), err) < 0) {
		rec_fini(&rec_claim_data, &data);
		return -1;
	}
	manager = manager_type_parse(data.manager);
	if (manager == MANAGER_INVALID || !config_enabled(config, manager)) {
		(void)err_set(err, ERR_INVALID,
			"unknown device manager type %s: it is not enabled in the "
			"configuration",
			data.manager);
		rec_fini(&rec_claim_data, &data);
		return -1;
	}
	*ret = (struct alloc_row){
		.device_name = xstrdup(d->device),
		.manager = xstrdup(manager_type_name(manager)),
		.prepared_device = take_ptr(data.dev),
		.logical_pool = take_ptr(data.logical_pool),
		.pod_uid = xstrdup(claim->status->reserved_for.n == 1
					   ? claim->status->reserved_for.v[0].uid
					   : ""),
		.claim_uid = xstrdup(claim->metadata->uid),
		.config = take_ptr(data.config),
		.share_id = d->share_id && *d->share_id ? xstrdup(d->share_id) : NULL,
		.consumed_capacity = data.consumed_capacity,
		.claim_namespace = xstrdup(claim->metadata->namespace),
		.claim_name = xstrdup(claim->metadata->name),
		.request = xstrdup_opt(request_of(claim, d)),
		.dra_pool = xstrdup(d->pool),
		.generated = {pod_claim_name(claim) != NULL, true},
		.generation = {claim->metadata->generation.v,
			claim->metadata->generation.v != 0},
	};
	for (size_t i = 0; !*ret->pod_uid && i < claim->status->reserved_for.n; i++)
		strlist_add(&ret->pods, claim->status->reserved_for.v[i].uid);
	data.consumed_capacity = (struct strmap){0};
	if (!ret->config)
		ret->config = xcalloc(1, sizeof(*ret->config));
	rec_fini(&rec_claim_data, &data);
	return 0;
}

static bool has_result(const struct claim *claim, const char *driver_name)
{
	const json_t *result;
	size_t i;

	json_array_foreach (results_of(claim), i, result)
		if (strcmp(text_at(result, "driver"), driver_name) == 0)
			return true;
	return false;
}

bool claim_restore(const struct claim *claim, const char *driver_name,
	const struct node_config *config, void (*add)(void *ctx, struct alloc_row *row),
	void (*fail)(void *ctx, const struct err *err), void *ctx)
{
	bool any = false;

	if (!claim->status)
		return false;
	for (size_t i = 0; i < claim->status->devices.n; i++) {
		const struct claim_device_status *d = &claim->status->devices.v[i];
		struct alloc_row row = {0};
		struct err err;

		if (strcmp(d->driver, driver_name) != 0)
			continue;
		any = true;
		if (restore_device(claim, d, config, &row, &err) < 0) {
			(void)err_wrap(&err, "claim %s/%s: device %s from pool %s",
				claim->metadata->namespace, claim->metadata->name, d->device,
				d->pool);
			fail(ctx, &err);
			continue;
		}
		add(ctx, &row);
	}
	return !any && claim->status->reserved_for.n > 0 && has_result(claim, driver_name);
}
