/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim's whole way through statd without its managers: planned, set up, written into its
 * status and committed. Then the same claim is planned again and has nothing left to do, and
 * what the status says brings the same rows back.
 */
#include <assert.h>

#include "common/doc.h"
#include "statd/claim.h"
#include "tests/fuzz/fuzz.h"

#define DRIVER "networkdriver.cilium.io"

#define DEVICE_ROW(name, manager, more)                                                        \
	"{\"Name\": \"" name "\", \"Manager\": \"" manager                                     \
	"\", \"Device\": {\"name\": \"" name "\", \"ifName\": \"" name                         \
	"\", \"state\": {\"Name\": \"" name "\"}" more "}}"

/* Two devices that are free, one that many may share, one that another claim holds. */
static const char *const device_rows[] = {
	DEVICE_ROW("dummy0", "dummy", ""),
	DEVICE_ROW("dummy1", "dummy", ""),
	DEVICE_ROW("rxq0", "rxQueue", ", \"allowMultipleAllocations\": true"),
	DEVICE_ROW("held0", "dummy", ""),
};

static const char held_row[] =
	"{\"DeviceName\": \"held0\", \"Manager\": \"dummy\", \"PreparedDevice\": {},"
	" \"ClaimUID\": \"held-claim\", \"PodUID\": \"held-pod\", \"LogicalPool\": \"net\","
	" \"Config\": {\"podIfName\": \"held\"}}";

static const char config_text[] =
	"{\"apiVersion\": \"" CONFIG_API_VERSION "\", \"kind\": \"" CONFIG_KIND
	"\", \"metadata\": {\"name\": \"worker-1\"}, \"spec\": {"
	"\"deviceManagerConfigs\": {\"dummy\": {\"enabled\": true},"
	" \"rxQueue\": {\"enabled\": true, \"ifaces\": ["
	"{\"ifName\": \"eth0\"}]}}}}";

/* --- what statd knows before ----------------------------------------------------------------- */

static void put_row(struct table *table, const char *text)
{
	const struct rec_desc *desc = table_def(table)->rec;
	cleanup_free void *rec = xcalloc(1, desc->size);
	json_t *tree = json_loads(text, 0, NULL);
	struct err err = ERR_INIT;

	assert(tree && rec_decode(desc, tree, REC_STRICT, "", NULL, rec, &err) == 0);
	assert(table_insert(table, rec, &err) == 0);
	json_decref(tree);
}

static void fill(struct tables *tables)
{
	tables_init(tables);
	for (size_t i = 0; i < ARRAY_SIZE(device_rows); i++)
		put_row(tables->devices, device_rows[i]);
	put_row(tables->allocations, held_row);
}

static const struct node_config *config(void)
{
	static struct node_config config;
	struct err err = ERR_INIT;
	json_t *tree;

	if (config.node_name)
		return &config;
	tree = json_loads(config_text, 0, NULL);
	assert(tree && config_decode(tree, NULL, NULL, &config, &err) == 0);
	json_decref(tree);
	return &config;
}

/* --- restoring -------------------------------------------------------------------------------- */

struct restored {
	const struct tables *tables; /* each row is to be in there; NULL: anything may come */
	size_t rows;
};

static void add(void *ctx, struct alloc_row *row)
{
	struct restored *r = ctx;

	r->rows++;
	if (r->tables) {
		cleanup_buf struct buf key = BUF_INIT;
		const struct alloc_row *had;

		schema_alloc_key(row->logical_pool, row->device_name, row->share_id, &key);
		had = table_get(r->tables->allocations, key.data);
		assert(had && str_equal(had->claim_uid, row->claim_uid));
		assert(str_equal(had->request, row->request));
		assert(rec_equal(&rec_device_config, had->config, row->config));
	}
	rec_fini(&rec_alloc_row, row);
}

static void fail(void *ctx, const struct err *err)
{
	const struct restored *r = ctx;

	assert(!r->tables && err->kind == ERR_INVALID);
}

/* The claim with this status brings back the rows that are there. */
static void restore_own(json_t *tree, json_t *devices, const struct tables *tables, size_t n)
{
	struct restored restored = {.tables = tables};
	struct err err = ERR_INIT;
	struct claim claim = {0};

	(void)json_object_set(json_object_get(tree, "status"), "devices", devices);
	assert(claim_decode(tree, &claim, &err) == 0);
	(void)claim_restore(&claim, DRIVER, config(), add, fail, &restored);
	assert(restored.rows == n);
	rec_fini(&rec_claim, &claim);
}

/* What the strict rule lets pass, the lenient one does as well. */
static const struct plan_rules rules = {
	.driver_name = DRIVER, .node_name = "worker-1", .warn_unknown = true};

/* --- preparing -------------------------------------------------------------------------------- */

/* As if the managers had done it. */
static void set_up(const struct tables *tables, struct plan *plan)
{
	for (size_t i = 0; i < plan->n_items; i++) {
		struct plan_item *item = &plan->items[i];

		assert(!item->reuse);
		item->prepared = xcalloc(1, sizeof(*item->prepared));
		rec_copy(&rec_device, item->prepared,
			device_row_get(tables, item->result->device)->device);
		item->logical_pool = xstrdup("net");
	}
}

static void commit(struct tables *tables, const struct plan *plan)
{
	for (size_t i = 0; i < plan->n_items; i++) {
		struct alloc_row row;
		struct err err = ERR_INIT;

		plan_row(plan, &plan->items[i], &row);
		row.unfinished = (struct rec_bool){0}; /* its manager has done it */
		assert(table_insert(tables->allocations, &row, &err) == 0);
	}
}

/* What a plan comes to is such that the other side takes it. */
static void check_result(const struct plan *plan, const struct tables *tables)
{
	const struct rec_desc *desc = api_method_info(API_CLAIM_PREPARE)->result;
	struct claim_prepare_result result, back = {0};
	struct err err = ERR_INIT;
	json_t *tree;

	plan_result(plan, tables, &result);
	assert(result.devices.n == plan->n_items);
	tree = rec_encode(desc, &result);
	assert(rec_decode(desc, tree, REC_STRICT, "", NULL, &back, &err) == 0);
	json_decref(tree);
	rec_fini(desc, &result);
	rec_fini(desc, &back);
}

static void check_nothing_to_do(const struct tables *tables, const struct claim *claim)
{
	struct err err = ERR_INIT;
	struct plan plan;

	assert(plan_make(tables, &rules, claim, claim->metadata->uid, &plan, &err) == 0);
	assert(plan.stale.n == 0);
	for (size_t i = 0; i < plan.n_items; i++)
		assert(plan.items[i].reuse);
	check_result(&plan, tables);
	plan_fini(&plan);
}

static void prepare(struct tables *tables, const struct claim *claim, json_t *tree)
{
	struct err err = ERR_INIT;
	const struct alloc_row **rows;
	struct plan plan;
	json_t *devices;

	if (plan_make(tables, &rules, claim, claim->metadata->uid, &plan, &err) < 0) {
		assert(err.kind != ERR_NONE && err.kind != ERR_INTERNAL);
		assert(plan.n_items == 0 && plan.stale.n == 0);
		return;
	}
	set_up(tables, &plan);
	commit(tables, &plan);
	check_result(&plan, tables);
	check_nothing_to_do(tables, claim);
	rows = plan_rows(&plan, tables);
	if (claim_status_entries(rows, plan.n_items, DRIVER, 0, &devices, &err) == 0) {
		restore_own(tree, devices, tables, plan.n_items);
		json_decref(devices);
	}
	free(rows);
	plan_fini(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct restored anything = {0};
	struct err err = ERR_INIT;
	struct claim claim = {0};
	struct tables tables;
	struct doc *doc;

	if (doc_parse("fuzz", (const char *)data, size, &doc, &err) < 0)
		return 0;
	if (claim_decode(doc_root(doc), &claim, &err) == 0) {
		(void)claim_restore(&claim, DRIVER, config(), add, fail, &anything);
		fill(&tables);
		prepare(&tables, &claim, doc_root(doc));
		tables_fini(&tables);
		rec_fini(&rec_claim, &claim);
	}
	doc_free(doc);
	return 0;
}
