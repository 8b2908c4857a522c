/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim, and the plan to prepare it.
 *
 * Everything that can be refused is refused while the plan is made, before any manager is asked
 * for anything: a wrong field in the last request must not set up and take down the devices of
 * the first. Requests are matched as the API defines it: only results and configurations of our
 * own driver count, a configuration without requests is for all, and one for "req" also is for
 * "req/sub". Of several configurations for a request the last counts, whole: class
 * configurations come first in the list, so that the claim's override them.
 *
 * A plan refers to devices, shares and rows, never to positions in tables, so that what happens
 * to other claims meanwhile does not matter to it; that two plans are not carried out for one
 * device at a time is the caller's care.
 */
#include "statd/claim.h"

#include <string.h>

#include "common/check.h"
#include "statd/publish.h"

/* --- the object --------------------------------------------------------------------------- */

#define MAX_RESULTS   32  /* resource.k8s.io/v1: AllocationResultsMaxSize */
#define MAX_CONFIGS   64  /* DeviceConfigMaxSize of a class and of a claim */
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
	REC_STR(struct claim_result, request, "request", REC_REQUIRED, MAX_NAME, NULL,
		"request, with its subrequest"),
	REC_STR(struct claim_result, driver, "driver", REC_REQUIRED, MAX_NAME, NULL,
		"whose device it is"),
	REC_STR(struct claim_result, pool, "pool", REC_REQUIRED, MAX_NAME, NULL, "DRA pool"),
	REC_STR(struct claim_result, device, "device", REC_REQUIRED, MAX_NAME, NULL,
		"name in the pool"),
	REC_STR(struct claim_result, share_id, "shareID", REC_OPTIONAL, MAX_NAME, check_uid,
		"of a shared device"),
	REC_STRMAP(struct claim_result, consumed_capacity, "consumedCapacity", REC_OPTIONAL,
		MAX_RESULTS, NULL, "of a shared device"),
};
static REC_DESC(rec_result, struct claim_result, "result", result_fields, NULL,
	"DeviceRequestAllocationResult");

static const struct rec_field opaque_fields[] = {
	REC_STR(struct claim_opaque, driver, "driver", REC_REQUIRED, MAX_NAME, NULL,
		"whom it is for"),
	REC_TREE(struct claim_opaque, parameters, "parameters", REC_OPTIONAL,
		"the driver's own"),
};
static REC_DESC(rec_opaque, struct claim_opaque, "opaque", opaque_fields, NULL,
	"OpaqueDeviceConfiguration");

static const struct rec_field config_fields[] = {
	REC_STRLIST(struct claim_config, requests, "requests", REC_OPTIONAL, MAX_RESULTS, NULL,
		"which requests; empty: all"),
	REC_SUB(struct claim_config, opaque, "opaque", REC_OPTIONAL, struct claim_opaque,
		&rec_opaque, "parameters for a driver"),
};
static REC_DESC(rec_config, struct claim_config, "config", config_fields, NULL,
	"DeviceAllocationConfiguration");

static const struct rec_field devices_fields[] = {
	REC_RECS(struct claim_allocation_devices, results, "results", REC_OPTIONAL, MAX_RESULTS,
		struct claim_result, &rec_result, "one a device"),
	REC_RECS(struct claim_allocation_devices, config, "config", REC_OPTIONAL, MAX_CONFIGS,
		struct claim_config, &rec_config, "of the classes, then of the claim"),
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
	REC_SUB(struct claim, metadata, "metadata", REC_REQUIRED, struct claim_metadata,
		&rec_metadata, "which claim"),
	REC_SUB(struct claim, status, "status", REC_OPTIONAL, struct claim_status,
		&rec_claim_status, "how it stands"),
};
REC_DESC(rec_claim, struct claim, "ResourceClaim", claim_fields, NULL, "resource.k8s.io/v1");

static const struct rec_field data_fields[] = {
	REC_STR(struct claim_data, manager, "Manager", REC_REQUIRED, MAX_NAME, NULL,
		"type of the device's manager"),
	REC_PACKED(struct claim_data, dev, "Dev", REC_REQUIRED, "the manager's state"),
	REC_SUB(struct claim_data, config, "Config", REC_ALWAYS, struct device_config,
		&rec_device_config, "what the claim asked for"),
	REC_STRMAP(struct claim_data, consumed_capacity, "ConsumedCapacity", REC_OPTIONAL,
		MAX_RESULTS, NULL, "of a shared device"),
	REC_STR(struct claim_data, logical_pool, "LogicalPool", REC_OPTIONAL, MAX_NAME, NULL,
		"configured pool at prepare time"),
};
REC_DESC(rec_claim_data, struct claim_data, "device data", data_fields, NULL,
	"status.devices[].data");

int claim_decode(const json_t *tree, struct claim *ret, struct err *err)
{
	return rec_decode(&rec_claim, tree, REC_LENIENT, "", NULL, ret, err);
}

/* --- looking around ----------------------------------------------------------------------- */

static bool same_share(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

/* "req" names "req" and "req/sub". */
static bool request_matches(const char *name, const char *request)
{
	size_t len = strlen(name);

	return strncmp(name, request, len) == 0 &&
	       (request[len] == '\0' || request[len] == '/');
}

static bool is_allocated(const struct claim *claim)
{
	return claim->status && claim->status->allocation && claim->status->allocation->devices;
}

static const struct claim_allocation_devices *allocation_of(const struct claim *claim)
{
	static const struct claim_allocation_devices none;

	return is_allocated(claim) ? claim->status->allocation->devices : &none;
}

static bool config_applies(
	const struct claim_config *c, const char *driver_name, const char *request)
{
	if (!c->opaque || !c->opaque->parameters || strcmp(c->opaque->driver, driver_name) != 0)
		return false;
	if (c->requests.n == 0)
		return true;
	for (size_t i = 0; i < c->requests.n; i++)
		if (request_matches(c->requests.v[i], request))
			return true;
	return false;
}

static const struct alloc_row *claim_row(
	const struct tables *tables, const char *claim_uid, const struct claim_result *result)
{
	const struct table_row *row =
		table_index_first(tables->allocations, ALLOC_BY_CLAIM, claim_uid);

	for (; row; row = table_index_next(row, ALLOC_BY_CLAIM)) {
		const struct alloc_row *a = alloc_row_of(row);

		if (strcmp(a->device_name, result->device) == 0 &&
			same_share(a->share_id, result->share_id))
			return a;
	}
	return NULL;
}

static bool in_status(
	const struct claim *claim, const char *driver_name, const struct claim_result *result)
{
	for (size_t i = 0; i < claim->status->devices.n; i++) {
		const struct claim_device_status *d = &claim->status->devices.v[i];

		if (strcmp(d->driver, driver_name) == 0 && strcmp(d->pool, result->pool) == 0 &&
			strcmp(d->device, result->device) == 0 &&
			same_share(d->share_id, result->share_id))
			return true;
	}
	return false;
}

const char *plan_if_name(const struct device_config *config, const struct device *device)
{
	if (config && config->pod_if_name)
		return config->pod_if_name;
	return device ? device->if_name : NULL;
}

/* --- making the plan ---------------------------------------------------------------------- */

/* Whether somebody else has it: a dedicated device, or this share. */
static int check_not_taken(const struct tables *tables, const struct plan *plan,
	const struct claim_result *result, struct err *err)
{
	const struct claim_consumer *pod = &plan->claim->status->reserved_for.v[0];
	const struct table_row *row =
		table_index_first(tables->allocations, ALLOC_BY_DEVICE, result->device);

	for (; row; row = table_index_next(row, ALLOC_BY_DEVICE)) {
		const struct alloc_row *a = alloc_row_of(row);
		bool a_shared = a->share_id && *a->share_id,
		     r_shared = result->share_id != NULL;

		if (strcmp(a->claim_uid, plan->claim->metadata->uid) == 0)
			continue;
		if (a_shared && r_shared && !same_share(a->share_id, result->share_id))
			continue;
		if (strcmp(a->pod_uid, pod->uid) == 0)
			return err_set(err, ERR_CONFLICT,
				"device %s is already allocated for pod %s by another claim "
				"(%s)",
				result->device, pod->name, a->claim_uid);
		return err_set(err, ERR_CONFLICT,
			"device %s is still held by claim %s of pod %s", result->device,
			a->claim_uid, a->pod_uid);
	}
	return 0;
}

static int check_device(
	const struct tables *tables, struct plan_item *item, const char *claim, struct err *err)
{
	const struct claim_result *r = item->result;
	const struct device_row *row = device_row_get(tables, r->device);
	bool shareable;

	if (!row)
		return err_set(err, ERR_NOT_FOUND,
			"device not found: %s is not in the inventory of this node (claim %s)",
			r->device, claim);
	item->manager = manager_type_parse(row->manager);
	shareable = row->device->allow_multiple.v;
	if (shareable && !r->share_id)
		return err_set(err, ERR_INVALID,
			"unexpected input: allocation for device %s has no share ID",
			r->device);
	if (!shareable && r->share_id)
		return err_set(err, ERR_INVALID,
			"unexpected input: device %s does not allow multiple allocations",
			r->device);
	return 0;
}

/* A device, or a share of one, is prepared once and has one row. */
static int check_named_once(const struct plan *plan, size_t at, struct err *err)
{
	const struct claim_result *r = plan->items[at].result;

	for (size_t i = 0; i < at; i++) {
		const struct claim_result *earlier = plan->items[i].result;

		if (strcmp(earlier->device, r->device) == 0 &&
			same_share(earlier->share_id, r->share_id))
			return err_set(err, ERR_INVALID,
				"unexpected input: device %s is allocated twice in the claim, "
				"for "
				"requests %s and %s",
				r->device, earlier->request, r->request);
	}
	return 0;
}

/* The last one counts. */
static int find_config(const struct plan *plan, const char *driver_name, const char *request,
	struct device_config *ret, struct err *err)
{
	const struct claim_allocation_devices *devices = allocation_of(plan->claim);

	for (size_t i = 0; i < devices->config.n; i++) {
		const struct claim_config *c = &devices->config.v[i];

		if (!config_applies(c, driver_name, request))
			continue;
		rec_fini(&rec_device_config, ret);
		if (rec_decode(&rec_device_config, c->opaque->parameters, REC_LENIENT_CASE, "",
			    NULL, ret, err) < 0)
			return err_wrap(err,
				"invalid device config in request %s for claim %s/%s", request,
				plan->claim->metadata->namespace, plan->claim->metadata->name);
	}
	return 0;
}

static int check_name_free(
	const struct tables *tables, const struct plan *plan, size_t at, struct err *err)
{
	const char *name = plan->items[at].config.pod_if_name;
	const struct table_row *row;

	if (!name)
		return 0;
	for (size_t i = 0; i < at; i++)
		if (str_equal(plan->items[i].config.pod_if_name, name))
			return err_set(err, ERR_INVALID,
				"podIfName \"%s\" is asked for twice in the claim: for devices "
				"%s "
				"and %s",
				name, plan->items[i].result->device,
				plan->items[at].result->device);
	row = table_index_first(tables->allocations, ALLOC_BY_POD, plan->pod_uid);
	for (; row; row = table_index_next(row, ALLOC_BY_POD)) {
		const struct alloc_row *a = alloc_row_of(row);

		if (strcmp(a->claim_uid, plan->claim->metadata->uid) != 0 &&
			str_equal(plan_if_name(a->config, a->prepared), name))
			return err_set(err, ERR_CONFLICT,
				"podIfName \"%s\" is already that of device %s in the same pod "
				"(claim %s)",
				name, a->device_name, a->claim_uid);
	}
	return 0;
}

static int plan_item_make(const struct tables *tables, const char *driver_name,
	struct plan *plan, const struct claim_result *result, struct err *err)
{
	const struct claim_metadata *meta = plan->claim->metadata;
	struct plan_item *item = &plan->items[plan->n_items++];
	const struct alloc_row *row;
	cleanup_free char *name = xasprintf("%s/%s", meta->namespace, meta->name);

	row = claim_row(tables, meta->uid, result);
	item->result = result;
	item->in_status = in_status(plan->claim, driver_name, result);
	if (check_named_once(plan, plan->n_items - 1, err) < 0 ||
		find_config(plan, driver_name, result->request, &item->config, err) < 0 ||
		check_name_free(tables, plan, plan->n_items - 1, err) < 0)
		return -1;
	if (row) {
		item->reuse = xcalloc(1, sizeof(*item->reuse));
		rec_copy(&rec_alloc_row, item->reuse, row);
		item->manager = manager_type_parse(row->manager);
		return 0;
	}
	if (check_not_taken(tables, plan, result, err) < 0)
		return -1;
	return check_device(tables, item, name, err);
}

static int check_claim(const struct claim *claim, const char *uid, struct err *err)
{
	const struct claim_metadata *m = claim->metadata;

	if (strcmp(m->uid, uid) != 0)
		return err_set(err, ERR_CONFLICT,
			"claim %s/%s got replaced: its UID is %s, asked for was %s",
			m->namespace, m->name, m->uid, uid);
	if (!is_allocated(claim))
		return err_set(err, ERR_INVALID, "claim %s/%s is not allocated", m->namespace,
			m->name);
	if (claim->status->reserved_for.n != 1)
		return err_set(err, ERR_INVALID,
			"unexpected input: claim %s/%s is reserved for %zu consumers, must be "
			"for "
			"exactly one pod",
			m->namespace, m->name, claim->status->reserved_for.n);
	return 0;
}

int plan_make(const struct tables *tables, const char *driver_name, const struct claim *claim,
	const char *uid, struct plan *ret, struct err *err)
{
	const struct claim_allocation_devices *devices;

	*ret = (struct plan){.claim = claim};
	if (check_claim(claim, uid, err) < 0)
		return -1;
	devices = allocation_of(claim);
	ret->pod_uid = claim->status->reserved_for.v[0].uid;
	ret->items = xcalloc(devices->results.n, sizeof(*ret->items));
	for (size_t i = 0; i < devices->results.n; i++) {
		const struct claim_result *result = &devices->results.v[i];

		if (strcmp(result->driver, driver_name) != 0)
			continue;
		if (plan_item_make(tables, driver_name, ret, result, err) < 0) {
			plan_fini(ret);
			return -1;
		}
	}
	return 0;
}

void plan_fini(struct plan *plan)
{
	for (size_t i = 0; i < plan->n_items; i++) {
		struct plan_item *item = &plan->items[i];

		rec_fini(&rec_device_config, &item->config);
		if (item->reuse)
			rec_fini(&rec_alloc_row, item->reuse);
		free(item->reuse);
		if (item->prepared)
			rec_fini(&rec_device, item->prepared);
		free(item->prepared);
		free(item->logical_pool);
	}
	free(plan->items);
	*plan = (struct plan){0};
}

/* --- what comes of it --------------------------------------------------------------------- */

static const struct device *item_device(const struct plan_item *item)
{
	return item->reuse ? item->reuse->prepared : item->prepared;
}

static const char *item_pool(const struct plan_item *item)
{
	return item->reuse ? item->reuse->logical_pool : item->logical_pool;
}

/* What was prepared is what was asked for then: a row's own configuration, not the claim's. */
static const struct device_config *item_config(const struct plan_item *item)
{
	return item->reuse ? item->reuse->config : &item->config;
}

static json_t *ready_condition(const struct claim *claim, int64_t now)
{
	char time[RFC3339_SIZE];

	return json_pack("[{ss ss ss ss sI ss}]", "type", "Ready", "status", "True", "reason",
		"Ready", "message", "Device is ready", "observedGeneration",
		(json_int_t)claim->metadata->generation.v, "lastTransitionTime",
		rfc3339_format(now, false, time));
}

static int item_data(const struct plan_item *item, json_t **ret, struct err *err)
{
	struct device_config none = {0};
	struct claim_data data = {
		.manager = (char *)(uintptr_t)manager_type_name(item->manager),
		.dev = item_device(item)->state,
		.config = (struct device_config *)(uintptr_t)item_config(item),
		.consumed_capacity = item->result->consumed_capacity,
		.logical_pool = (char *)(uintptr_t)item_pool(item),
	};
	json_t *tree;
	size_t bytes;

	if (!data.config)
		data.config = &none;
	tree = rec_encode(&rec_claim_data, &data);
	bytes = json_dumpb(tree, NULL, 0, JSON_COMPACT);
	if (bytes > CLAIM_DATA_MAX) {
		json_decref(tree);
		return err_set(err, ERR_INVALID,
			"device %s: its state takes %zu bytes of the claim's status, at most "
			"%d "
			"are allowed",
			item->result->device, bytes, CLAIM_DATA_MAX);
	}
	*ret = tree;
	return 0;
}

static int item_status(const struct plan *plan, const struct plan_item *item,
	const char *driver_name, int64_t now, json_t *list, struct err *err)
{
	const char *if_name = plan_if_name(item_config(item), item_device(item));
	struct claim_device_status d = {
		.driver = (char *)(uintptr_t)driver_name,
		.pool = item->result->pool,
		.device = item->result->device,
		.share_id = item->result->share_id,
	};

	if (item_data(item, &d.data, err) < 0)
		return -1;
	d.conditions = ready_condition(plan->claim, now);
	if (if_name)
		d.network_data = json_pack("{ss}", "interfaceName", if_name);
	(void)json_array_append_new(list, rec_encode(&rec_claim_device_status, &d));
	json_decref(d.data);
	json_decref(d.conditions);
	json_decref(d.network_data);
	return 0;
}

int plan_status(const struct plan *plan, const char *driver_name, int64_t now, json_t **ret,
	struct err *err)
{
	json_t *list = json_array();

	for (size_t i = 0; i < plan->n_items; i++)
		if (item_status(plan, &plan->items[i], driver_name, now, list, err) < 0) {
			json_decref(list);
			return -1;
		}
	*ret = list;
	return 0;
}

void plan_row(const struct plan *plan, const struct plan_item *item, struct alloc_row *ret)
{
	const struct claim_result *r = item->result;

	*ret = (struct alloc_row){
		.device_name = xstrdup(r->device),
		.manager = xstrdup(manager_type_name(item->manager)),
		.prepared_device = packed_copy(item->prepared->state),
		.logical_pool = xstrdup_opt(item->logical_pool),
		.pod_uid = xstrdup(plan->pod_uid),
		.claim_uid = xstrdup(plan->claim->metadata->uid),
		.config = xcalloc(1, sizeof(struct device_config)),
		.share_id = xstrdup_opt(r->share_id),
		.claim_namespace = xstrdup(plan->claim->metadata->namespace),
		.claim_name = xstrdup(plan->claim->metadata->name),
		.request = xstrdup(r->request),
		.dra_pool = xstrdup(r->pool),
		.prepared = xcalloc(1, sizeof(struct device)),
	};
	rec_copy(&rec_device_config, ret->config, &item->config);
	rec_copy(&rec_device, ret->prepared, item->prepared);
	for (size_t i = 0; i < r->consumed_capacity.n; i++)
		strmap_put(&ret->consumed_capacity, r->consumed_capacity.v[i].key,
			r->consumed_capacity.v[i].value);
}

void plan_result(const struct plan *plan, struct claim_prepare_result *ret)
{
	/* set by the claim controller on claims that it makes from a template */
	const char *pod_claim = json_string_value(json_object_get(
		plan->claim->metadata->annotations, "resource.kubernetes.io/pod-claim-name"));

	*ret = (struct claim_prepare_result){0};
	if (pod_claim && *pod_claim)
		ret->pod_claim_name = xstrdup(pod_claim);
	ret->devices.v = xcalloc(plan->n_items, sizeof(*ret->devices.v));
	for (size_t i = 0; i < plan->n_items; i++) {
		const struct plan_item *item = &plan->items[i];
		const struct device *device = item_device(item);

		ret->devices.v[ret->devices.n++] = (struct prepared_device){
			.request = xstrdup(item->result->request),
			.pool = xstrdup(item->result->pool),
			.device = xstrdup(item->result->device),
			.share_id = xstrdup_opt(item->result->share_id),
			.if_name = xstrdup_opt(plan_if_name(item_config(item), device)),
			.attributes = packed_take(publish_attributes(
				device, item_pool(item), manager_type_name(item->manager))),
		};
	}
}

/* --- restoring ---------------------------------------------------------------------------- */

static const char *request_of(const struct claim *claim, const struct claim_device_status *d)
{
	const struct claim_allocation_devices *devices = allocation_of(claim);

	for (size_t i = 0; i < devices->results.n; i++) {
		const struct claim_result *r = &devices->results.v[i];

		if (strcmp(r->driver, d->driver) == 0 && strcmp(r->device, d->device) == 0 &&
			same_share(r->share_id, d->share_id))
			return r->request;
	}
	return NULL;
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
	manager = manager_type_parse(data.manager);
	if (manager == MANAGER_INVALID || !config_enabled(config, manager)) {
		(void)err_set(err, ERR_INVALID,
			"unknown device manager type %s: it is not enabled in the "
			"configuration",
			data.manager);
		rec_fini(&rec_claim_data, &data);
		return -1;
	}
	if (claim->status->reserved_for.n != 1) {
		rec_fini(&rec_claim_data, &data);
		return err_set(err, ERR_INVALID,
			"unexpected ReservedFor length %zu for claim, should be 1",
			claim->status->reserved_for.n);
	}
	*ret = (struct alloc_row){
		.device_name = xstrdup(d->device),
		.manager = xstrdup(manager_type_name(manager)),
		.prepared_device = take_ptr(data.dev),
		.logical_pool = take_ptr(data.logical_pool),
		.pod_uid = xstrdup(claim->status->reserved_for.v[0].uid),
		.claim_uid = xstrdup(claim->metadata->uid),
		.config = take_ptr(data.config),
		.share_id = xstrdup_opt(d->share_id),
		.consumed_capacity = data.consumed_capacity,
		.claim_namespace = xstrdup(claim->metadata->namespace),
		.claim_name = xstrdup(claim->metadata->name),
		.request = xstrdup_opt(request_of(claim, d)),
		.dra_pool = xstrdup(d->pool),
	};
	data.consumed_capacity = (struct strmap){0};
	if (!ret->config)
		ret->config = xcalloc(1, sizeof(*ret->config));
	rec_fini(&rec_claim_data, &data);
	return 0;
}

static bool has_result(const struct claim *claim, const char *driver_name)
{
	const struct claim_allocation_devices *devices = allocation_of(claim);

	for (size_t i = 0; i < devices->results.n; i++)
		if (strcmp(devices->results.v[i].driver, driver_name) == 0)
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
