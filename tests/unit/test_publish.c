/* SPDX-License-Identifier: Apache-2.0 */
/* From a manager's report to the devices table, and from both tables to the node's slices. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "statd/inventory.h"
#include "statd/publish.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

static struct tables tables;
static struct pool_list pools;
static struct flaws flaws;
static unsigned commits;

static void count_commits(void *ctx, const struct table_commit *commit)
{
	(void)ctx;
	(void)commit;
	commits++;
}

static void setup(void)
{
	commits = 0;
	tables_init(&tables);
	table_expect(tables.allocations, INITIALIZER_RESTORE);
	for (int m = 0; m < MANAGER_TYPE_MAX; m++)
		table_expect(tables.devices, schema_initializer((enum manager_type)m));
	(void)table_watch(tables.devices, count_commits, NULL);
}

static void forget_pools(void)
{
	for (size_t i = 0; i < pools.pools.n; i++)
		rec_fini(&rec_pool, &pools.pools.v[i]);
	free(pools.pools.v);
	pools = (struct pool_list){0};
}

static void teardown(void)
{
	forget_pools();
	flaws_fini(&flaws);
	tables_fini(&tables);
}

static void use_pools(const char *const *text, size_t n)
{
	forget_pools();
	pools.pools.v = xcalloc(n, sizeof(*pools.pools.v));
	for (; pools.pools.n < n; pools.pools.n++)
		rec_of(&rec_pool, text[pools.pools.n], &pools.pools.v[pools.pools.n]);
}
#define USE_POOLS(...)                                                                         \
	use_pools((const char *const[]){__VA_ARGS__},                                          \
		sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* text: a list of devices */
static void report(enum manager_type manager, const char *text)
{
	json_t *tree = tree_of(text);
	struct device_list list = {0};
	struct err err = ERR_INIT;
	const json_t *node;
	size_t i;

	list.devices.v = xcalloc(json_array_size(tree), sizeof(*list.devices.v));
	json_array_foreach (tree, i, node) {
		ck_assert_msg(rec_decode(&rec_device, node, REC_STRICT, "", NULL,
				      &list.devices.v[list.devices.n++], &err) == 0,
			"%s", err.message);
	}
	inventory_report(&tables, manager, &list);
	for (i = 0; i < list.devices.n; i++)
		rec_fini(&rec_device, &list.devices.v[i]);
	free(list.devices.v);
	json_decref(tree);
}

static void allocate(const char *text)
{
	struct err err = ERR_INIT;
	struct alloc_row row;

	rec_of(&rec_alloc_row, text, &row);
	ck_assert_msg(table_insert(tables.allocations, &row, &err) == 0, "%s", err.message);
}

/* "dummy0/dummy dummy1/dummy" */
static void assert_inventory(const char *should)
{
	cleanup_buf struct buf is = BUF_INIT;

	buf_puts(&is, "");
	for (const struct table_row *row = table_first(tables.devices); row;
		row = table_next(row))
		buf_printf(&is, "%s%s/%s", is.len ? " " : "", row->key,
			device_row_of(row)->manager);
	ck_assert_str_eq(is.data, should);
}

static void assert_device(const char *name, const char *should)
{
	const struct device_row *row = device_row_get(&tables, name);

	ck_assert_ptr_nonnull(row);
	assert_rec(&rec_device, row->device, should);
	ck_assert(packed_equal(row->dev, row->device->state));
}

#define DUMMY(name_, mtu_)                                                                     \
	"{'name': '" name_ "', 'kernelIfName': '" name_ "', 'state': {'MTU': " mtu_            \
	"}, 'attributes': {'kernelIfName': {'string': '" name_ "'}}}"
#define VF_ROW(addr_, kernel_, more_)                                                          \
	"{'name': '" addr_ "', " more_ "'state': {'Addr': '" addr_                             \
	"', 'KernelIfaceName': '" kernel_                                                      \
	"'}, 'attributes': {'kernelIfName': {'string': '" kernel_ "'}}}"
#define VF(addr_, kernel_) VF_ROW(addr_, kernel_, "'kernelIfName': '" kernel_ "', ")
#define RX(name_, more_)                                                                       \
	"{'name': '" name_ "', 'kernelIfName': '" name_ "', 'state': {},"                      \
	" 'attributes': {'kernelIfName': {'string': '" name_ "'}},"                            \
	" 'capacity': {'rxQueues': {'value': '4'}}" more_ "}"
#define SHAREABLE ", 'allowMultipleAllocations': true"

/* --- inventory ---------------------------------------------------------------------------- */

START_TEST(inventory_is_replaced)
{
	report(MANAGER_DUMMY, "[" DUMMY("dummy1", "1") ", " DUMMY("dummy0", "1") "]");
	report(MANAGER_SRIOV, "[" VF("vf0", "ens1f0v0") "]");
	assert_inventory("dummy0/dummy dummy1/dummy vf0/sr-iov");
	report(MANAGER_DUMMY, "[" DUMMY("dummy2", "1") ", " DUMMY("dummy1", "9000") "]");
	assert_inventory("dummy1/dummy dummy2/dummy vf0/sr-iov");
	assert_device("dummy1", DUMMY("dummy1", "9000"));
	report(MANAGER_DUMMY, "[]");
	assert_inventory("vf0/sr-iov");
	ck_assert_uint_eq(commits, 4);
}
END_TEST

START_TEST(same_report_wakes_nobody)
{
	report(MANAGER_DUMMY, "[" DUMMY("dummy0", "1") "]");
	USE_POOLS("{'name': 'p', 'filter': {}}");
	publish_annotate(&tables, &pools, &flaws);
	ck_assert_uint_eq(commits, 2);
	report(MANAGER_DUMMY, "[" DUMMY("dummy0", "1") "]");
	publish_annotate(&tables, &pools, &flaws);
	ck_assert_uint_eq(commits, 2);
	ck_assert_str_eq(device_row_get(&tables, "dummy0")->pool, "p");
}
END_TEST

START_TEST(initialized_by_the_first_report)
{
	ck_assert(!table_is_initialized(tables.devices));
	report(MANAGER_DUMMY, "[]");
	report(MANAGER_RXQUEUE, "[]");
	report(MANAGER_DUMMY, "[]");
	ck_assert_uint_eq(table_pending(tables.devices)->n, 1);
	ck_assert_str_eq(table_pending(tables.devices)->v[0], "device-manager-sr-iov");
	report(MANAGER_SRIOV, "[" VF("vf0", "ens1f0v0") "]");
	ck_assert(table_is_initialized(tables.devices));
	ck_assert(!table_is_initialized(tables.allocations));
	ck_assert_uint_eq(commits, 1);
}
END_TEST

START_TEST(names_that_do_not_do)
{
	struct device unnamed = {.state = NULL}, empty = {.name = (char[]){""}};
	struct device devices[] = {unnamed, empty};
	struct device_list list = {.devices = {.v = devices, .n = 2}};

	inventory_report(&tables, MANAGER_DUMMY, &list);
	assert_inventory("");
	/* the first of two that are called the same */
	report(MANAGER_DUMMY,
		"[" DUMMY("b", "1") ", " DUMMY("a", "2") ", " DUMMY("b", "3") "]");
	assert_inventory("a/dummy b/dummy");
	assert_device("b", DUMMY("b", "1"));
	/* another manager's is left as it is */
	report(MANAGER_RXQUEUE, "[" RX("b", SHAREABLE) ", " RX("c", SHAREABLE) "]");
	assert_inventory("a/dummy b/dummy c/rxQueue");
	assert_device("b", DUMMY("b", "1"));
	report(MANAGER_RXQUEUE, "[]");
	assert_inventory("a/dummy b/dummy");
}
END_TEST

/* What a device is, its manager says: nothing of before, or of what is prepared, is mixed in. */
START_TEST(report_is_taken_as_it_is)
{
	static const char away[] = "{'name': 'vf0', 'state': {'Addr': 'vf0', "
				   "'KernelIfaceName': ''}, 'attributes': {}}";

	report(MANAGER_SRIOV, "[" VF("vf0", "ens1f0v0") "]");
	allocate("{'DeviceName': 'vf0', 'Manager': 'sr-iov', 'LogicalPool': 'p',"
		 " 'Prepared': " VF("vf0", "ens1f0v0") "}");
	report(MANAGER_SRIOV, "[{'name': 'vf0', 'state': {'Addr': 'vf0', "
			      "'KernelIfaceName': ''}, 'attributes': {}}]");
	assert_device("vf0", away);
}
END_TEST

START_TEST(allocations_are_untouched)
{
	report(MANAGER_DUMMY, "[" DUMMY("dummy0", "1") "]");
	allocate("{'DeviceName': 'dummy0', 'Manager': 'dummy', 'LogicalPool': 'p'}");
	report(MANAGER_DUMMY, "[]");
	ck_assert_uint_eq(table_count(tables.allocations), 1);
	ck_assert_uint_eq(table_row(tables.allocations, "p/dummy0/")->revision,
		table_revision(tables.allocations));
}
END_TEST

/* --- publication -------------------------------------------------------------------------- */

/* "dummy0:p dummy1:p": names, pools */
static void assert_published(const char *should)
{
	cleanup_buf struct buf is = BUF_INIT;
	const struct table_row *row;

	buf_puts(&is, "");
	publish_annotate(&tables, &pools, &flaws);
	for (row = publish_first(&tables); row; row = publish_next(row)) {
		json_t *device = publish_device(device_row_of(row));
		const json_t *pool = json_object_get(
			json_object_get(json_object_get(device, "attributes"), "pool"),
			"string");

		buf_printf(
			&is, "%s%s:%s", is.len ? " " : "", row->key, json_string_value(pool));
		json_decref(device);
	}
	ck_assert_str_eq(is.data, should);
}

static void assert_device_object(const char *name, const char *should)
{
	json_t *is, *object = tree_of(should);

	publish_annotate(&tables, &pools, &flaws);
	is = publish_device(device_row_get(&tables, name));
	if (!json_equal(is, object))
		ck_abort_msg("is %s, should be %s", json_dumps(is, JSON_SORT_KEYS), should);
	json_decref(is);
	json_decref(object);
}

static void assert_note(const char *device, const char *pool, const char *note)
{
	const struct device_row *row;
	struct placement p;

	publish_annotate(&tables, &pools, &flaws);
	row = device_row_get(&tables, device);
	ck_assert_pstr_eq(row->pool, pool);
	ck_assert_pstr_eq(row->note, note);
	publish_place(&tables, &pools, &flaws, row, &p);
	ck_assert_pstr_eq(p.pool, pool);
	ck_assert_pstr_eq(p.note, note);
	placement_fini(&p);
}

START_TEST(what_is_said_of_a_device)
{
	USE_POOLS("{'name': 'p', 'filter': {}}");
	report(MANAGER_RXQUEUE, "[" RX("rx1", "") ", " RX("rx0", SHAREABLE) "]");
	report(MANAGER_DUMMY, "[{'name': 'dummy0', 'state': {}}]");
	assert_device_object("dummy0",
		"{'name': 'dummy0', 'attributes': {'pool': {'string': 'p'},"
		" 'deviceManager': {'string': 'dummy'}}}");
	assert_device_object("rx0",
		"{'name': 'rx0', 'attributes': {'kernelIfName': {'string': 'rx0'},"
		" 'pool': {'string': 'p'}, 'deviceManager': {'string': 'rxQueue'}},"
		" 'capacity': {'rxQueues': {'value': '4'}}, 'allowMultipleAllocations': true}");
	assert_device_object("rx1",
		"{'name': 'rx1', 'attributes': {'kernelIfName': {'string': 'rx1'},"
		" 'pool': {'string': 'p'}, 'deviceManager': {'string': 'rxQueue'}},"
		" 'capacity': {'rxQueues': {'value': '4'}}}");
	/* the device's own attributes are as they were */
	assert_device("rx0", RX("rx0", SHAREABLE));
}
END_TEST

START_TEST(attributes_are_live)
{
	USE_POOLS("{'name': 'p', 'filter': {}}");
	report(MANAGER_DUMMY,
		"[{'name': 'd', 'state': {}, 'attributes': {'speed': {'int': 1}}}]");
	assert_published("d:p");
	report(MANAGER_DUMMY,
		"[{'name': 'd', 'state': {}, 'attributes': {'speed': {'int': 2}}}]");
	assert_device_object("d",
		"{'name': 'd', 'attributes': {'speed': {'int': 2}, 'pool': {'string': 'p'},"
		" 'deviceManager': {'string': 'dummy'}}}");
}
END_TEST

START_TEST(pool_of_a_device)
{
	USE_POOLS("{'name': 'b', 'filter': {'ifNames': ['dummy0', 'dummy1']}}", "{'name': '0'}",
		"{'name': 'a', 'filter': {'deviceManagers': ['dummy'], 'ifNames': "
		"['dummy1']}}");
	report(MANAGER_DUMMY, "[" DUMMY("dummy0", "1") ", " DUMMY("dummy1", "1") ", " DUMMY(
				      "dummy2", "1") "]");
	assert_published("dummy0:b dummy1:a");
	assert_note("dummy0", "b", NULL);
	assert_note("dummy1", "a", "device matches multiple pools: a, b");
	assert_note("dummy2", NULL, "device matches no pool");
}
END_TEST

START_TEST(allocation_pins)
{
	report(MANAGER_DUMMY, "[" DUMMY("dummy0", "1") "]");
	USE_POOLS("{'name': 'a', 'filter': {}}", "{'name': 'b', 'filter': {'ifNames': ['x']}}");
	assert_published("dummy0:a");
	allocate("{'DeviceName': 'dummy0', 'Manager': 'dummy', 'LogicalPool': 'b'}");
	assert_published("dummy0:b");
	assert_note("dummy0", "b", NULL);
	/* b is configured no more: there is no falling back to a */
	USE_POOLS("{'name': 'a', 'filter': {}}");
	assert_published("");
	assert_note("dummy0", NULL,
		"device has an allocation from a pool that is not configured: b");
	/* a pool without a filter is not configured either */
	USE_POOLS("{'name': 'a', 'filter': {}}", "{'name': 'b'}");
	assert_published("");
	/* with the last allocation the pinning ends */
	ck_assert(table_delete(tables.allocations, "b/dummy0/"));
	assert_published("dummy0:a");
	assert_note("dummy0", "a", NULL);
}
END_TEST

START_TEST(allocation_from_no_pool_hides)
{
	report(MANAGER_RXQUEUE, "[" RX("rx0", SHAREABLE) "]");
	USE_POOLS("{'name': 'a', 'filter': {}}");
	allocate("{'DeviceName': 'rx0', 'Manager': 'rxQueue', 'LogicalPool': 'a', 'ShareID': "
		 "'s1'}");
	assert_published("rx0:a");
	allocate("{'DeviceName': 'rx0', 'Manager': 'rxQueue', 'ShareID': 's2'}");
	assert_published("");
	assert_note("rx0", NULL, "device has an allocation from no pool");
	ck_assert(table_delete(tables.allocations, "/rx0/s2"));
	assert_published("rx0:a");
	allocate("{'DeviceName': 'rx0', 'Manager': 'rxQueue', 'LogicalPool': '', 'ShareID': "
		 "'s2'}");
	assert_published("");
}
END_TEST

START_TEST(allocations_from_several_pools_hide)
{
	report(MANAGER_RXQUEUE, "[" RX("rx0", SHAREABLE) ", " RX("rx1", SHAREABLE) "]");
	USE_POOLS("{'name': 'a', 'filter': {}}", "{'name': 'b', 'filter': {}}");
	allocate("{'DeviceName': 'rx0', 'Manager': 'rxQueue', 'LogicalPool': 'b', 'ShareID': "
		 "'s1'}");
	allocate("{'DeviceName': 'rx0', 'Manager': 'rxQueue', 'LogicalPool': 'b', 'ShareID': "
		 "'s2'}");
	assert_published("rx0:b rx1:a");
	allocate("{'DeviceName': 'rx0', 'Manager': 'rxQueue', 'LogicalPool': 'a', 'ShareID': "
		 "'s3'}");
	assert_published("rx1:a");
	assert_note("rx0", NULL, "device has allocations from multiple pools: a, b");
	ck_assert(table_delete(tables.allocations, "a/rx0/s3"));
	assert_published("rx0:b rx1:a");
}
END_TEST

/* 30 attributes, and the two that are added, are as many as a slice takes */
START_TEST(too_much_to_tell)
{
	cleanup_buf struct buf text = BUF_INIT;
	cleanup_free char *fits = NULL;

	USE_POOLS("{'name': 'p', 'filter': {}}");
	buf_puts(&text, "[{'name': 'd', 'state': {}, 'attributes': {'a0': {'int': 0}");
	for (int i = 1; i < 30; i++)
		buf_printf(&text, ", 'a%d': {'int': 0}", i);
	fits = xasprintf("%s}}]", text.data);
	report(MANAGER_DUMMY, fits);
	assert_note("d", "p", NULL);
	buf_puts(&text, "}, 'capacity': {'c': {'value': '1'}}}]");
	report(MANAGER_DUMMY, text.data);
	assert_note("d", NULL,
		"device has 33 attributes and capacities, at most 32 can be published");
	assert_published("");
}
END_TEST

/* One bad value costs that value, one bad name that device. */
START_TEST(what_the_api_would_refuse)
{
	struct device bad = {.name = (char[]){"Bad"}};
	struct device_list list = {.devices = {.v = &bad, .n = 1}};

	USE_POOLS("{'name': 'a', 'filter': {}}", "{'name': 'b', 'filter': {}}");
	inventory_report(&tables, MANAGER_RXQUEUE, &list);
	report(MANAGER_DUMMY, "[{'name': 'ok', 'state': {}},"
			      " {'name': 'half', 'state': {},"
			      "  'attributes': {'0x': {'int': 1}, 'x': {'int': 1}}}]");
	assert_published("half:a ok:a");
	assert_note("Bad", NULL,
		"device cannot be published: name is no DNS label: \"Bad\" (lower-case "
		"letters, "
		"digits and '-', which neither starts nor ends it)");
	assert_note("half", "a",
		"attribute '0x' is left out: the name is not made of letters, digits and '_', "
		"beginning with no digit; device matches multiple pools: a, b");
	assert_device_object("half",
		"{'name': 'half', 'attributes': {'x': {'int': 1}, 'pool': {'string': 'a'},"
		" 'deviceManager': {'string': 'dummy'}}}");
	report(MANAGER_DUMMY,
		"[{'name': 'half', 'state': {}, 'attributes': {'x': {'int': 1}}}]");
	assert_published("half:a");
	assert_note("half", "a", "device matches multiple pools: a, b");
}
END_TEST

#define SPEED(name_, speed_)                                                                   \
	"{'name': '" name_ "', 'state': {}, 'attributes': {'speed': {'int': " speed_ "}}}"

START_TEST(what_the_server_refused)
{
	USE_POOLS("{'name': 'a', 'filter': {}}");
	report(MANAGER_DUMMY, "[" SPEED("d", "1") ", " SPEED("e", "1") "]");
	assert_published("d:a e:a");
	flaws_refuse(&flaws, device_row_get(&tables, "d"), "it is ugly");
	assert_published("e:a");
	assert_note("d", NULL, "device cannot be published: it is ugly");
	/* other devices come and go, the table changes: it stays as it was */
	report(MANAGER_DUMMY, "[" SPEED("d", "1") "]");
	assert_published("");
	/* something else than what was refused */
	report(MANAGER_DUMMY, "[" SPEED("d", "2") "]");
	assert_published("d:a");
	assert_note("d", "a", NULL);
	/* gone, and back as it was refused once: it is tried */
	flaws_refuse(&flaws, device_row_get(&tables, "d"), "still");
	assert_published("");
	report(MANAGER_DUMMY, "[]");
	assert_published("");
	report(MANAGER_DUMMY, "[" SPEED("d", "2") "]");
	assert_published("d:a");
}
END_TEST

START_TEST(note_names_some_pools)
{
	USE_POOLS("{'name': 'a', 'filter': {}}", "{'name': 'b', 'filter': {}}",
		"{'name': 'c', 'filter': {}}", "{'name': 'd', 'filter': {}}",
		"{'name': 'e', 'filter': {}}", "{'name': 'f', 'filter': {}}",
		"{'name': 'g', 'filter': {}}", "{'name': 'h', 'filter': {}}",
		"{'name': 'i', 'filter': {}}", "{'name': 'j', 'filter': {}}");
	report(MANAGER_DUMMY, "[{'name': 'x', 'state': {}}]");
	assert_note(
		"x", "a", "device matches multiple pools: a, b, c, d, e, f, g, h and 2 more");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("publish");
	TCase *inventory = tcase_create("inventory"), *publish = tcase_create("publish");

	tcase_add_checked_fixture(inventory, setup, teardown);
	tcase_add_test(inventory, inventory_is_replaced);
	tcase_add_test(inventory, same_report_wakes_nobody);
	tcase_add_test(inventory, initialized_by_the_first_report);
	tcase_add_test(inventory, names_that_do_not_do);
	tcase_add_test(inventory, report_is_taken_as_it_is);
	tcase_add_test(inventory, allocations_are_untouched);
	suite_add_tcase(suite, inventory);
	tcase_add_checked_fixture(publish, setup, teardown);
	tcase_add_test(publish, what_is_said_of_a_device);
	tcase_add_test(publish, attributes_are_live);
	tcase_add_test(publish, pool_of_a_device);
	tcase_add_test(publish, allocation_pins);
	tcase_add_test(publish, allocation_from_no_pool_hides);
	tcase_add_test(publish, allocations_from_several_pools_hide);
	tcase_add_test(publish, what_the_api_would_refuse);
	tcase_add_test(publish, what_the_server_refused);
	tcase_add_test(publish, too_much_to_tell);
	tcase_add_test(publish, note_names_some_pools);
	suite_add_tcase(suite, publish);
	return unit_run(suite);
}
