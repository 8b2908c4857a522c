/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan to prepare a claim.
 *
 * Everything that can be refused is refused while the plan is made, before any manager is asked
 * for anything: a wrong field in the last request must not set up and take down the devices of
 * the first. Requests are matched as the API defines it: only results and configurations of our
 * own driver count, a configuration without requests is for all, and one for "req" also is for
 * "req/sub". Of several configurations for a request the last counts, whole: class
 * configurations come first in the list, so that the claim's override them. All of them are
 * checked, also one that nothing comes of.
 *
 * What is not understood is refused, since it may change the meaning of what is: a field of a
 * result that a later API adds, a parameter that is misspelt. What was prepared already is not
 * judged again: its parameters are those of then, which its row has.
 *
 * A plan refers to devices, shares and rows, never to positions in tables, so that what happens
 * to other claims meanwhile does not matter to it; that two plans are not carried out for one
 * device at a time is the caller's care.
 */
#include <string.h>

#include "common/check.h"
#include "statd/claim_internal.h"

/* A configuration of the allocation that is for our driver. */
struct own_config {
	struct claim_config config;
	struct device_config parameters;
	size_t index; /* in the allocation's list */
};

struct making {
	const struct tables *tables;
	const struct plan_rules *rules;
	const struct claim *claim;
	struct plan *plan;
	struct own_config *configs;
	size_t n_configs;
};

/* In front of what is wrong with one of the results. */
static int at_item(const struct plan_item *item, struct err *err)
{
	return err_wrap(err, "request %s, device %s", item->result->request,
		item->result->device);
}

/* --- the claim ---------------------------------------------------------------------------- */

static int check_identity(const struct claim *claim, const char *uid, struct err *err)
{
	const struct claim_metadata *m = claim->metadata;

	if (strcmp(m->uid, uid) != 0)
		return err_set(err, ERR_CONFLICT,
			"claim %s/%s got replaced: its UID is %s, asked for was %s",
			m->namespace, m->name, m->uid, uid);
	if (claim->api_version && strcmp(claim->api_version, CLAIM_API_VERSION) != 0)
		return err_set(err, ERR_INVALID,
			"apiVersion: is %.64s; claims are read as " CLAIM_API_VERSION
			" only: write the claim in that form",
			claim->api_version);
	if (!allocation_of(claim))
		return err_set(err, ERR_INVALID, "claim %s/%s is not allocated", m->namespace,
			m->name);
	return 0;
}

static int check_consumer(const struct claim_consumer *c, struct err *err)
{
	if (c->api_group && *c->api_group)
		return err_set(err, ERR_INVALID,
			"status.reservedFor[0].apiGroup: is %.64s; devices are prepared for "
			"pods only, whose apiGroup is empty",
			c->api_group);
	if (c->resource && strcmp(c->resource, "pods") != 0)
		return err_set(err, ERR_INVALID,
			"status.reservedFor[0].resource: is %.64s; devices are prepared for "
			"pods only",
			c->resource);
	return 0;
}

static int check_consumers(const struct claim *claim, struct err *err)
{
	size_t n = claim->status->reserved_for.n;

	if (n == 0)
		return err_set(err, ERR_INVALID,
			"unexpected input: status.reservedFor: the claim is reserved for 0 "
			"consumers, must be for exactly one pod");
	if (n > 1)
		return err_set(err, ERR_INVALID,
			"unexpected input: status.reservedFor: the claim is reserved for %zu "
			"consumers, must be for exactly one pod: each pod needs a claim of its "
			"own, which it gets from a ResourceClaimTemplate "
			"(resourceClaimTemplateName in the pod instead of resourceClaimName)",
			n);
	return check_consumer(&claim->status->reserved_for.v[0], err);
}

/* It becomes a part of a path in the container. */
static int check_pod_claim_name(const struct claim *claim, struct err *err)
{
	const char *name = text_at(claim->metadata->annotations, CLAIM_POD_CLAIM_NAME);

	if (*name && check_dns_label(name, err) < 0)
		return err_wrap(err, "metadata.annotations: " CLAIM_POD_CLAIM_NAME);
	return 0;
}

static int check_claim(const struct claim *claim, const char *uid, struct err *err)
{
	if (check_identity(claim, uid, err) < 0 || check_consumers(claim, err) < 0)
		return -1;
	return check_pod_claim_name(claim, err);
}

/* --- results ------------------------------------------------------------------------------ */

static int check_list(const json_t *list, size_t max, const char *what, struct err *err)
{
	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list))
		return err_set(err, ERR_INVALID, "%s: must be a list", what);
	if (json_array_size(list) > max)
		return err_set(err, ERR_INVALID,
			"%s: has %zu elements, at most %zu are allowed", what,
			json_array_size(list), max);
	return 0;
}

static int check_result(const struct making *m, const struct claim_result *r, struct err *err)
{
	if (r->admin_access.v)
		return err_set(err, ERR_INVALID,
			"adminAccess: request %s asks for adminAccess, which this driver does "
			"not offer: take it out of the request",
			r->request);
	if (strcmp(r->pool, m->rules->node_name) != 0)
		return err_set(err, ERR_INVALID,
			"pool: the device is of pool %s, which is not this node's; that is %s",
			r->pool, m->rules->node_name);
	return 0;
}

static int decode_result(
	const struct making *m, const json_t *node, size_t index, struct err *err)
{
	cleanup_free char *root = xasprintf("status.allocation.devices.results[%zu]", index);
	struct claim_result *r = &m->plan->results[m->plan->n_items];

	if (rec_decode(&rec_claim_result, node, REC_STRICT, root, NULL, r, err) < 0)
		return err_wrap(err, "request %.64s, device %.64s", text_at(node, "request"),
			text_at(node, "device"));
	m->plan->items[m->plan->n_items].result = r;
	m->plan->n_items++;
	if (check_result(m, r, err) < 0)
		return at_item(&m->plan->items[m->plan->n_items - 1], err);
	return 0;
}

static int decode_results(const struct making *m, struct err *err)
{
	const json_t *node, *results = results_of(m->claim);
	size_t i, n = json_array_size(results);

	if (check_list(results, CLAIM_MAX_RESULTS, "status.allocation.devices.results", err) <
		0)
		return -1;
	m->plan->results = xcalloc(n, sizeof(*m->plan->results));
	m->plan->items = xcalloc(n, sizeof(*m->plan->items));
	json_array_foreach (results, i, node)
		if (strcmp(text_at(node, "driver"), m->rules->driver_name) == 0 &&
			decode_result(m, node, i, err) < 0)
			return -1;
	return 0;
}

/* --- what is prepared already ------------------------------------------------------------- */

static bool is_row_of(const struct alloc_row *row, const struct claim_result *result)
{
	return strcmp(row->device_name, result->device) == 0 &&
	       same_share(row->share_id, result->share_id);
}

static struct plan_item *item_of_row(const struct plan *plan, const struct alloc_row *row)
{
	for (size_t i = 0; i < plan->n_items; i++)
		if (is_row_of(row, plan->items[i].result))
			return &plan->items[i];
	return NULL;
}

static void take_row(struct plan *plan, const struct alloc_row *row)
{
	struct plan_item *item = item_of_row(plan, row);
	cleanup_buf struct buf key = BUF_INIT;
	struct alloc_row *copy;

	if (!item) {
		schema_alloc_key(row->logical_pool, row->device_name, row->share_id, &key);
		strlist_add(&plan->stale, key.data);
		return;
	}
	if (item->reuse || item->unfinished)
		return;
	copy = xcalloc(1, sizeof(*copy));
	rec_copy(&rec_alloc_row, copy, row);
	if (row->unfinished.v) {
		item->unfinished = copy;
	} else {
		item->reuse = copy;
		item->manager = manager_type_parse(row->manager);
	}
}

static void take_rows(const struct making *m)
{
	const struct table_row *row = table_index_first(
		m->tables->allocations, ALLOC_BY_CLAIM, m->claim->metadata->uid);

	for (; row; row = table_index_next(row, ALLOC_BY_CLAIM))
		take_row(m->plan, alloc_row_of(row));
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

static bool is_all_prepared(const struct plan *plan)
{
	for (size_t i = 0; i < plan->n_items; i++)
		if (!plan->items[i].reuse)
			return false;
	return true;
}

/* --- requests that a configuration names -------------------------------------------------- */

/* "req" names "req" and "req/sub". */
static bool request_matches(const char *name, const char *request)
{
	size_t len = strlen(name);

	return strncmp(name, request, len) == 0 &&
	       (request[len] == '\0' || request[len] == '/');
}

/* NULL: the claim does not say which requests it has. */
static const json_t *spec_requests(const struct claim *claim)
{
	const json_t *requests =
		json_object_get(json_object_get(claim->spec, "devices"), "requests");

	return json_array_size(requests) > 0 ? requests : NULL;
}

/* Appends "req", and "req/sub" for each of its alternatives. */
static void list_request(const json_t *request, struct strlist *ret)
{
	const char *name = text_at(request, "name");
	const json_t *sub;
	size_t i;

	strlist_add(ret, name);
	json_array_foreach (json_object_get(request, "firstAvailable"), i, sub) {
		cleanup_free char *full = xasprintf("%s/%s", name, text_at(sub, "name"));

		strlist_add(ret, full);
	}
}

static void list_requests(const struct claim *claim, struct strlist *ret)
{
	const json_t *node, *requests = spec_requests(claim);
	size_t i;

	json_array_foreach (requests, i, node)
		list_request(node, ret);
	if (requests)
		return;
	json_array_foreach (results_of(claim), i, node) {
		const char *request = text_at(node, "request");
		cleanup_free char *main_request =
			xmemdup0(request, strcspn(request, "/"));

		if (!strlist_has(ret, main_request))
			strlist_add(ret, main_request);
		if (!strlist_has(ret, request))
			strlist_add(ret, request);
	}
}

/* The results alone do not name the alternatives that the scheduler left: any may have been one
 * where it took another. */
static bool may_be_alternative(
	const struct claim *claim, const struct strlist *known, const char *name)
{
	size_t len = strcspn(name, "/");

	if (name[len] == '\0' || spec_requests(claim))
		return false;
	for (size_t i = 0; i < known->n; i++)
		if (strncmp(known->v[i], name, len + 1) == 0)
			return true;
	return false;
}

static int check_requests(
	const struct claim *claim, const struct strlist *requests, struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT;
	struct strlist known = {0};
	size_t bad = 0;

	list_requests(claim, &known);
	while (bad < requests->n && (strlist_has(&known, requests->v[bad]) ||
					    may_be_alternative(claim, &known, requests->v[bad])))
		bad++;
	for (size_t i = 0; i < known.n; i++)
		buf_printf(&text, "%s%s", i ? ", " : "", known.v[i]);
	strlist_fini(&known);
	if (bad == requests->n)
		return 0;
	return err_set(err, ERR_INVALID,
		"requests[%zu]: \"%.128s\" is no request of the claim; these are: %s", bad,
		requests->v[bad], text.data ? text.data : "none");
}

/* --- parameters --------------------------------------------------------------------------- */

static bool config_applies(const struct claim_config *c, const char *request)
{
	if (!c->opaque->parameters)
		return false;
	if (c->requests.n == 0)
		return true;
	for (size_t i = 0; i < c->requests.n; i++)
		if (request_matches(c->requests.v[i], request))
			return true;
	return false;
}

/* In front of what is wrong with a configuration: where it stands, and the first device that it
 * is for. */
static int at_config(const struct making *m, const struct own_config *own, struct err *err)
{
	const struct plan *plan = m->plan;

	(void)err_wrap(err, "status.allocation.devices.config[%zu]%s", own->index,
		str_equal(own->config.source, "FromClass") ? " (of the DeviceClass)" : "");
	for (size_t i = 0; i < plan->n_items; i++)
		if (config_applies(&own->config, plan->items[i].result->request))
			return at_item(&plan->items[i], err);
	return -1;
}

static int decode_parameters(const struct making *m, struct own_config *own, struct err *err)
{
	const json_t *parameters = own->config.opaque->parameters;
	struct err unknown;

	if (!parameters ||
		rec_decode(&rec_device_config, parameters, REC_STRICT_CASE, "parameters", NULL,
			&own->parameters, &unknown) == 0)
		return 0;
	if (rec_decode(&rec_device_config, parameters, REC_LENIENT_CASE, "parameters", NULL,
		    &own->parameters, err) < 0)
		return at_config(m, own, err);
	(void)at_config(m, own, &unknown);
	if (m->rules->warn_unknown) {
		strlist_add(&m->plan->warnings, unknown.message);
		return 0;
	}
	*err = unknown;
	return -1;
}

static int decode_config(
	struct making *m, const json_t *node, size_t index, struct err *err)
{
	cleanup_free char *root = xasprintf("status.allocation.devices.config[%zu]", index);
	struct own_config *own = &m->configs[m->n_configs];

	own->index = index;
	if (rec_decode(&rec_claim_config, node, REC_LENIENT, root, NULL, &own->config, err) < 0)
		return -1;
	m->n_configs++;
	if (check_requests(m->claim, &own->config.requests, err) < 0)
		return err_wrap(err, "%s", root);
	return decode_parameters(m, own, err);
}

static int decode_configs(struct making *m, struct err *err)
{
	const json_t *node, *list = configs_of(m->claim);
	size_t i;

	if (check_list(list, CLAIM_MAX_CONFIGS, "status.allocation.devices.config", err) < 0)
		return -1;
	m->configs = xcalloc(json_array_size(list), sizeof(*m->configs));
	json_array_foreach (list, i, node) {
		const json_t *opaque = json_object_get(node, "opaque");

		if (strcmp(text_at(opaque, "driver"), m->rules->driver_name) == 0 &&
			decode_config(m, node, i, err) < 0)
			return -1;
	}
	return 0;
}

/* The last one counts. */
static void choose_config(const struct making *m, struct plan_item *item)
{
	for (size_t i = m->n_configs; i-- > 0;)
		if (config_applies(&m->configs[i].config, item->result->request)) {
			rec_copy(&rec_device_config, &item->config, &m->configs[i].parameters);
			return;
		}
}

static int check_sysctls(
	const struct strmap *sysctls, const char *family, const char *if_name, struct err *err)
{
	for (size_t i = 0; i < sysctls->n; i++)
		if (check_sysctl_short(sysctls->v[i].key, if_name, err) < 0)
			return err_wrap(err, "parameters.%s", family);
	return 0;
}

/* What the device cannot be asked for, which its manager would refuse when it is set up, or the
 * kernel when the pod starts. */
static int check_parameters(
	const struct plan_item *item, const struct device *device, struct err *err)
{
	const struct device_config *c = &item->config;
	const char *name = plan_if_name(c, device);

	if (c->vlan.set && item->manager != MANAGER_SRIOV)
		return err_set(err, ERR_INVALID,
			"parameters.vlan: devices of manager %s have no VLAN; only SR-IOV "
			"virtual functions do: take it out of the parameters",
			manager_type_name(item->manager));
	if (check_sysctls(&c->sysctl_ipv4, "interfaceSysctlIPv4", name, err) < 0)
		return -1;
	return check_sysctls(&c->sysctl_ipv6, "interfaceSysctlIPv6", name, err);
}

/* What it takes in the claim's status is known well enough before it is set up. */
static int check_size(
	const struct plan_item *item, const struct device *device, struct err *err)
{
	const struct alloc_row row = {
		.device_name = item->result->device,
		.manager = (char *)(uintptr_t)manager_type_name(item->manager),
		.prepared = (struct device *)(uintptr_t)device,
		.config = (struct device_config *)(uintptr_t)&item->config,
		.consumed_capacity = item->result->consumed_capacity,
	};
	json_t *data;

	if (claim_data_encode(&row, &data, err) < 0)
		return -1;
	json_decref(data);
	return 0;
}

/* --- devices ------------------------------------------------------------------------------ */

/* Whether another claim has it: a dedicated device, or this share. */
static int check_not_taken(
	const struct making *m, const struct claim_result *result, struct err *err)
{
	const struct claim_consumer *pod = &m->claim->status->reserved_for.v[0];
	const struct table_row *row =
		table_index_first(m->tables->allocations, ALLOC_BY_DEVICE, result->device);

	for (; row; row = table_index_next(row, ALLOC_BY_DEVICE)) {
		const struct alloc_row *a = alloc_row_of(row);
		bool a_shared = a->share_id && *a->share_id,
		     r_shared = result->share_id != NULL;

		if (strcmp(a->claim_uid, m->claim->metadata->uid) == 0)
			continue;
		if (a_shared && r_shared && !same_share(a->share_id, result->share_id))
			continue;
		if (a->unfinished.v)
			return err_set(err, ERR_BUSY,
				"device %s is being prepared for claim %s right now, or given back "
				"by it",
				result->device, a->claim_uid);
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

static int check_share(
	const struct claim_result *r, const struct device *device, struct err *err)
{
	bool shareable = device->allow_multiple.v;

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
				"for requests %s and %s",
				r->device, earlier->request, r->request);
	}
	return 0;
}

/* --- names in the pod --------------------------------------------------------------------- */

/* The name that the device is going to have in the pod; NULL: it has none, or one that is known
 * only when it is set up, as that of a share. */
static const char *item_if_name(const struct tables *tables, const struct plan_item *item)
{
	const struct device_row *row;

	if (item->reuse)
		return plan_if_name(item->reuse->config, item->reuse->prepared);
	if (item->config.pod_if_name)
		return item->config.pod_if_name;
	row = device_row_get(tables, item->result->device);
	return row && !row->device->allow_multiple.v ? row->device->if_name : NULL;
}

/* An item that is set up, against the others of the claim; those behind it that are set up as
 * well compare themselves. */
static int check_name_in_claim(
	const struct making *m, size_t at, const char *name, struct err *err)
{
	const struct plan *plan = m->plan;

	for (size_t i = 0; i < plan->n_items; i++) {
		const struct plan_item *other = &plan->items[i];

		if (i == at || (i > at && !other->reuse) ||
			!str_equal(item_if_name(m->tables, other), name))
			continue;
		return err_set(err, ERR_INVALID,
			"parameters.podIfName: two devices of the claim have the name \"%s\" in "
			"the pod, %s and %s: name one of them otherwise",
			name, other->result->device, plan->items[at].result->device);
	}
	return 0;
}

static int check_name_in_pod(const struct making *m, const char *name, struct err *err)
{
	const struct table_row *row =
		table_index_first(m->tables->allocations, ALLOC_BY_POD, m->plan->pod_uid);

	for (; row; row = table_index_next(row, ALLOC_BY_POD)) {
		const struct alloc_row *a = alloc_row_of(row);

		if (strcmp(a->claim_uid, m->claim->metadata->uid) != 0 &&
			str_equal(plan_if_name(a->config, a->prepared), name))
			return err_set(err, ERR_CONFLICT,
				"parameters.podIfName: \"%s\" is already the name of device %s "
				"in the same pod (claim %s): name one of them otherwise",
				name, a->device_name, a->claim_uid);
	}
	return 0;
}

static int check_name(const struct making *m, size_t at, struct err *err)
{
	const char *name = item_if_name(m->tables, &m->plan->items[at]);

	if (!name)
		return 0;
	if (check_name_in_claim(m, at, name, err) < 0)
		return -1;
	return check_name_in_pod(m, name, err);
}

/* --- the plan ---------------------------------------------------------------------------- */

/* A device that is to be set up. */
static int check_fresh(const struct making *m, size_t at, struct err *err)
{
	struct plan_item *item = &m->plan->items[at];
	const struct device_row *row = device_row_get(m->tables, item->result->device);

	if (check_not_taken(m, item->result, err) < 0)
		return -1;
	if (!row)
		return err_set(err, ERR_NOT_FOUND,
			"device not found: %s is not in the inventory of this node",
			item->result->device);
	item->manager = manager_type_parse(row->manager);
	if (check_share(item->result, row->device, err) < 0)
		return -1;
	choose_config(m, item);
	if (check_parameters(item, row->device, err) < 0 ||
		check_size(item, row->device, err) < 0)
		return -1;
	return check_name(m, at, err);
}

static int check_item(const struct making *m, size_t at, struct err *err)
{
	struct plan_item *item = &m->plan->items[at];

	item->in_status = in_status(m->claim, m->rules->driver_name, item->result);
	if (check_named_once(m->plan, at, err) < 0)
		return at_item(item, err);
	if (!item->reuse && check_fresh(m, at, err) < 0)
		return at_item(item, err);
	return 0;
}

static int make(struct making *m, struct err *err)
{
	struct plan *plan = m->plan;

	plan->pod_uid = m->claim->status->reserved_for.v[0].uid;
	if (decode_results(m, err) < 0)
		return -1;
	take_rows(m);
	if (!is_all_prepared(plan) && decode_configs(m, err) < 0)
		return -1;
	for (size_t i = 0; i < plan->n_items; i++)
		if (check_item(m, i, err) < 0)
			return -1;
	return 0;
}

/* Of a plan that is not made. */
static void keep_stale(struct plan *plan)
{
	struct strlist stale = plan->stale;

	plan->stale = (struct strlist){0};
	plan_fini(plan);
	plan->stale = stale;
}

int plan_make(const struct tables *tables, const struct plan_rules *rules,
	const struct claim *claim, const char *uid, struct plan *ret, struct err *err)
{
	struct making m = {.tables = tables, .rules = rules, .claim = claim, .plan = ret};
	int outcome;

	*ret = (struct plan){.claim = claim};
	if (check_claim(claim, uid, err) < 0)
		return -1;
	outcome = make(&m, err);
	for (size_t i = 0; i < m.n_configs; i++) {
		rec_fini(&rec_claim_config, &m.configs[i].config);
		rec_fini(&rec_device_config, &m.configs[i].parameters);
	}
	free(m.configs);
	if (outcome < 0)
		keep_stale(ret);
	return outcome;
}

void plan_fini(struct plan *plan)
{
	for (size_t i = 0; i < plan->n_items; i++) {
		struct plan_item *item = &plan->items[i];

		rec_fini(&rec_claim_result, &plan->results[i]);
		rec_fini(&rec_device_config, &item->config);
		if (item->reuse)
			rec_fini(&rec_alloc_row, item->reuse);
		free(item->reuse);
		if (item->unfinished)
			rec_fini(&rec_alloc_row, item->unfinished);
		free(item->unfinished);
		if (item->prepared)
			rec_fini(&rec_device, item->prepared);
		free(item->prepared);
		free(item->logical_pool);
	}
	free(plan->results);
	free(plan->items);
	strlist_fini(&plan->stale);
	strlist_fini(&plan->warnings);
	*plan = (struct plan){0};
}
