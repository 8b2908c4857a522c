/* SPDX-License-Identifier: Apache-2.0 */
/* Pool filters: what each field means to each kind of device, and which pool wins. */
#include <check.h>
#include <stdlib.h>

#include "statd/pool.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define DUMMY                                                                                  \
	"{'name': 'dummy0', 'ifName': 'dummy0', 'kernelIfName': 'dummy0', 'state': {},"        \
	" 'attributes': {'ifName': {'string': 'dummy0'}, 'kernelIfName': {'string': "          \
	"'dummy0'}}}"
#define VF_ATTRIBUTES(driver_, kernel_)                                                        \
	"{'name': '0000-03-00-1', 'state': {}, 'attributes': {"                                \
	"'resource.kubernetes.io/pciBusID': {'string': '0000:03:00.1'},"                       \
	"'pfName': {'string': 'ens1f0'}, 'vendor': {'string': '0x15b3'},"                      \
	"'deviceID': {'string': '0x1018'}, 'driver': {'string': '" driver_ "'},"               \
	"'kernelIfName': {'string': '" kernel_ "'}}}"
#define VF   VF_ATTRIBUTES("mlx5_core", "ens1f0v0")
#define VFIO VF_ATTRIBUTES("vfio-pci", "")
/* known by further names, its own and its physical function's */
#define VF_RENAMED                                                                             \
	"{'name': '0000-03-00-1', 'state': {}, 'attributes': {'pfName': {'string': 'ens1f0'},"  \
	" 'kernelIfName': {'string': 'ens1f0v0'}}, 'alternatives': {'pfName': ['eth0',"         \
	" 'enp3s0f0np0'], 'kernelIfName': ['v0']}}"
#define RX                                                                                     \
	"{'name': 'eth0', 'ifName': 'eth0', 'kernelIfName': 'eth0', 'state': {},"              \
	" 'attributes': {'ifName': {'string': 'eth0'}, 'kernelIfName': {'string': 'eth0'}},"   \
	" 'allowMultipleAllocations': true}"
/* what it becomes for a claim that names its interface net1 */
#define RX_PREPARED                                                                            \
	"{'name': 'eth0', 'ifName': 'net1', 'kernelIfName': 'net1', 'state': {},"              \
	" 'attributes': {'ifName': {'string': 'eth0'}, 'kernelIfName': {'string': 'eth0'},"    \
	" 'rxQueueID': {'int': 1}}}"

static const struct row {
	enum manager_type manager;
	const char *device, *filter;
	bool match;
} rows[] = {
	{MANAGER_DUMMY, DUMMY, "{}", true},
	{MANAGER_DUMMY, DUMMY, "{'deviceManagers': ['dummy']}", true},
	{MANAGER_DUMMY, DUMMY, "{'deviceManagers': ['sr-iov']}", false},
	{MANAGER_DUMMY, DUMMY, "{'deviceManagers': ['sr-iov', 'dummy']}", true},
	{MANAGER_DUMMY, DUMMY, "{'deviceManagers': ['Dummy']}", true},
	{MANAGER_DUMMY, DUMMY, "{'deviceManagers': []}", true},
	{MANAGER_DUMMY, DUMMY, "{'ifNames': ['dummy0', 'dummy1']}", true},
	{MANAGER_DUMMY, DUMMY, "{'ifNames': ['eth0']}", false},
	{MANAGER_DUMMY, DUMMY, "{'ifNames': ['Dummy0']}", false},
	{MANAGER_DUMMY, DUMMY, "{'parentIfNames': ['eth0']}", false},
	{MANAGER_DUMMY, DUMMY, "{'pciAddrs': ['0000:03:00.1']}", false},
	{MANAGER_DUMMY, DUMMY, "{'vendorIDs': ['0x15b3']}", false},
	{MANAGER_DUMMY, DUMMY, "{'deviceIDs': ['0x1018']}", false},
	{MANAGER_DUMMY, DUMMY, "{'drivers': ['mlx5_core']}", false},
	{MANAGER_DUMMY, DUMMY, "{'pfNames': ['x']}", true},

	{MANAGER_SRIOV, VF, "{}", true},
	{MANAGER_SRIOV, VF, "{'deviceManagers': ['sr-iov']}", true},
	{MANAGER_SRIOV, VF, "{'deviceManagers': ['dummy']}", false},
	{MANAGER_SRIOV, VF, "{'ifNames': ['ens1f0v0']}", true},
	{MANAGER_SRIOV, VF, "{'ifNames': ['ens1f0v1']}", false},
	{MANAGER_SRIOV, VF, "{'ifNames': ['0000-03-00-1']}", false},
	{MANAGER_SRIOV, VF, "{'pciAddrs': ['0000:03:00.1']}", true},
	{MANAGER_SRIOV, VF, "{'pciAddrs': ['0000:03:00.2']}", false},
	{MANAGER_SRIOV, VF, "{'vendorIDs': ['0x15b3']}", true},
	{MANAGER_SRIOV, VF, "{'vendorIDs': ['0x8086']}", false},
	{MANAGER_SRIOV, VF, "{'vendorIDs': ['0x15B3']}", false},
	{MANAGER_SRIOV, VF, "{'deviceIDs': ['0x1018']}", true},
	{MANAGER_SRIOV, VF, "{'deviceIDs': ['0x1019']}", false},
	{MANAGER_SRIOV, VF, "{'drivers': ['mlx5_core']}", true},
	{MANAGER_SRIOV, VF, "{'drivers': ['vfio-pci']}", false},
	{MANAGER_SRIOV, VF, "{'pfNames': ['ens1f0']}", true},
	{MANAGER_SRIOV, VF, "{'pfNames': ['ens1f1']}", false},
	{MANAGER_SRIOV, VF, "{'parentIfNames': ['anything']}", true},
	{MANAGER_SRIOV, VF_RENAMED, "{'pfNames': ['eth0']}", true},
	{MANAGER_SRIOV, VF_RENAMED, "{'pfNames': ['x', 'enp3s0f0np0']}", true},
	{MANAGER_SRIOV, VF_RENAMED, "{'pfNames': ['ens1f0']}", true},
	{MANAGER_SRIOV, VF_RENAMED, "{'pfNames': ['v0']}", false},
	{MANAGER_SRIOV, VF_RENAMED, "{'pfNames': ['eth']}", false},
	{MANAGER_SRIOV, VF_RENAMED, "{'ifNames': ['v0']}", true},
	{MANAGER_SRIOV, VF_RENAMED, "{'ifNames': ['eth0']}", false},
	{MANAGER_SRIOV, VF_RENAMED, "{'drivers': ['eth0']}", false},
	{MANAGER_SRIOV,
		"{'name': 'x', 'state': {}, 'attributes': {}, 'alternatives': {'pfName': 'eth0'}}",
		"{'pfNames': ['eth0']}", false},
	{MANAGER_SRIOV,
		"{'name': 'x', 'state': {}, 'alternatives': {'pfName': [1, ['eth1'], 'eth0']}}",
		"{'pfNames': ['eth0']}", true},
	{MANAGER_SRIOV,
		"{'name': 'x', 'state': {}, 'alternatives': {'pfName': [1, ['eth1'], 'eth0']}}",
		"{'pfNames': ['eth1']}", false},
	{MANAGER_SRIOV, VF, "{'pfNames': ['ens1f1', 'ens1f0', 'ens2f0']}", true},
	{MANAGER_SRIOV, VF,
		"{'deviceManagers': ['sr-iov'], 'ifNames': ['ens1f0v0'],"
		" 'pciAddrs': ['0000:03:00.1'], 'vendorIDs': ['0x15b3'], 'deviceIDs': "
		"['0x1018'],"
		" 'drivers': ['mlx5_core'], 'pfNames': ['ens1f0']}",
		true},
	{MANAGER_SRIOV, VF,
		"{'deviceManagers': ['sr-iov'], 'ifNames': ['ens1f0v0'],"
		" 'pciAddrs': ['0000:03:00.1'], 'vendorIDs': ['0x15b3'], 'deviceIDs': "
		"['0x1019'],"
		" 'drivers': ['mlx5_core'], 'pfNames': ['ens1f0']}",
		false},
	{MANAGER_SRIOV, VFIO, "{'ifNames': ['ens1f0v0']}", false},
	{MANAGER_SRIOV, VFIO, "{'pciAddrs': ['0000:03:00.1']}", true},
	{MANAGER_SRIOV, VFIO, "{'drivers': ['vfio-pci']}", true},

	{MANAGER_RXQUEUE, RX, "{}", true},
	{MANAGER_RXQUEUE, RX, "{'deviceManagers': ['rxQueue']}", true},
	{MANAGER_RXQUEUE, RX, "{'deviceManagers': ['RXQUEUE']}", true},
	{MANAGER_RXQUEUE, RX, "{'deviceManagers': ['dummy']}", false},
	{MANAGER_RXQUEUE, RX, "{'ifNames': ['eth0']}", true},
	{MANAGER_RXQUEUE, RX, "{'ifNames': ['eth1']}", false},
	{MANAGER_RXQUEUE, RX_PREPARED, "{'ifNames': ['eth0']}", true},
	{MANAGER_RXQUEUE, RX_PREPARED, "{'ifNames': ['net1']}", false},
	{MANAGER_RXQUEUE, RX, "{'pfNames': ['eth0']}", false},
	{MANAGER_RXQUEUE, RX, "{'parentIfNames': ['eth0']}", false},
	{MANAGER_RXQUEUE, RX, "{'pciAddrs': ['0000:03:00.1']}", false},
	{MANAGER_RXQUEUE, RX, "{'vendorIDs': ['0x15b3']}", false},
	{MANAGER_RXQUEUE, RX, "{'deviceIDs': ['0x1018']}", false},
	{MANAGER_RXQUEUE, RX, "{'drivers': ['mlx5_core']}", false},
};

START_TEST(match)
{
	const struct row *row = &rows[_i];
	struct pool pool = {.name = (char[]){"p"}};
	struct pool_filter filter;
	struct device device;

	rec_of(&rec_pool_filter, row->filter, &filter);
	rec_of(&rec_device, row->device, &device);
	ck_assert_msg(!pool_match(&pool, row->manager, &device), "without a filter");
	pool.filter = &filter;
	ck_assert_msg(pool_match(&pool, row->manager, &device) == row->match, "%s: %s",
		device.name, row->filter);
	rec_fini(&rec_pool_filter, &filter);
	rec_fini(&rec_device, &device);
}
END_TEST

START_TEST(explain)
{
	static const struct {
		const char *pool, *text;
	} told[] = {
		{"{'name': 'p'}", "pool p: has no filter and takes nothing"},
		{"{'name': 'p', 'filter': {}}", "pool p: takes it"},
		{"{'name': 'p', 'filter': {'ifNames': ['eth0']}}",
			"pool p: ifNames is set, and the device has no kernelIfName"},
		{"{'name': 'p', 'filter': {'drivers': ['mlx5_core', 'iavf']}}",
			"pool p: drivers does not contain vfio-pci"},
		{"{'name': 'p', 'filter': {'deviceManagers': ['dummy'], 'drivers': ['iavf']}}",
			"pool p: deviceManagers does not contain sr-iov"},
	};
	static const char by_pci[] = "{'name': 'p', 'filter': {'pciAddrs': ['0000:03:00.1']}}";
	struct device vfio, dummy;
	struct pool pool;
	char *text;

	rec_of(&rec_device, VFIO, &vfio);
	rec_of(&rec_device, DUMMY, &dummy);
	for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
		rec_of(&rec_pool, told[i].pool, &pool);
		text = pool_explain(&pool, MANAGER_SRIOV, &vfio);
		ck_assert_str_eq(text, told[i].text);
		free(text);
		rec_fini(&rec_pool, &pool);
	}
	rec_of(&rec_pool, by_pci, &pool);
	text = pool_explain(&pool, MANAGER_DUMMY, &dummy);
	ck_assert_str_eq(text, "pool p: pciAddrs is set, which no dummy device matches");
	free(text);
	rec_fini(&rec_pool, &pool);
	rec_fini(&rec_device, &vfio);
	rec_fini(&rec_device, &dummy);
}
END_TEST

/* filters of pools in the order of the configuration; what of them is resolved */
static const struct {
	const char *pools[3], *first, *matches;
} resolutions[] = {
	{{"{'name': 'b', 'filter': {'ifNames': ['eth7']}}", "{'name': 'a'}"}, NULL, ""},
	{{"{'name': 'b', 'filter': {'ifNames': ['dummy0']}}", "{'name': 'a'}"}, "b", "b"},
	{{"{'name': 'c', 'filter': {}}",
		 "{'name': 'a', 'filter': {'deviceManagers': ['dummy']}}",
		 "{'name': 'b', 'filter': {}}"},
		"a", "a b c"},
	{{"{'name': 'b', 'filter': {}}", "{'name': 'B', 'filter': {}}"}, "B", "B b"},
};

START_TEST(resolve)
{
	struct pool pools[ARRAY_SIZE(resolutions[0].pools)];
	struct pool_list list = {.pools = {.v = pools}};
	struct strlist matches = {0};
	const struct pool *first;
	cleanup_buf struct buf names = BUF_INIT;
	struct device device;

	rec_of(&rec_device, DUMMY, &device);
	for (size_t i = 0; i < ARRAY_SIZE(pools) && resolutions[_i].pools[i]; i++)
		rec_of(&rec_pool, resolutions[_i].pools[i], &pools[list.pools.n++]);
	first = pool_resolve(&list, MANAGER_DUMMY, &device, &matches);
	ck_assert_ptr_eq(first, pool_resolve(&list, MANAGER_DUMMY, &device, NULL));
	if (resolutions[_i].first) {
		ck_assert_str_eq(first->name, resolutions[_i].first);
		ck_assert_ptr_eq(first, pool_find(&list, first->name));
	} else {
		ck_assert_ptr_null(first);
	}
	buf_puts(&names, "");
	for (size_t i = 0; i < matches.n; i++)
		buf_printf(&names, "%s%s", i ? " " : "", matches.v[i]);
	ck_assert_str_eq(names.data, resolutions[_i].matches);
	ck_assert_ptr_null(pool_find(&list, "nowhere"));
	strlist_fini(&matches);
	for (size_t i = 0; i < list.pools.n; i++)
		rec_fini(&rec_pool, &pools[i]);
	rec_fini(&rec_device, &device);
}
END_TEST

static const struct {
	const char *filter, *message; /* NULL: it is fine */
} checks[] = {
	{"{'pciAddrs': ['0000:03:00.1', '10000:e1:00.0', 'ffffffff:ff:1f.7']}", NULL},
	{"{'pciAddrs': ['0000:3B:00.1']}",
		"pciAddrs[0]: \"0000:3B:00.1\" is not a PCI address"},
	{"{'pciAddrs': ['0000:03:00.1', '03:00.1']}", "pciAddrs[1]: \"03:00.1\""},
	{"{'pciAddrs': ['0000:03:00.8']}", "\"0000:03:00.8\""},
	{"{'pciAddrs': ['0000:03:00.10']}", "\"0000:03:00.10\""},
	{"{'pciAddrs': ['0000:03:00']}", "\"0000:03:00\""},
	{"{'pciAddrs': ['']}", "\"\""},
	{"{'pciAddrs': ['123456789:03:00.1']}", "\"123456789:03:00.1\""},
	{"{'ifNames': ['ens1f0v0', 'lo']}", NULL},
	{"{'ifNames': ['an interface']}", "ifNames[0]: "},
	{"{'pfNames': ['only-an-alternative-name-is-so-long']}", NULL},
	{"{'pfNames': ['a/b']}", "pfNames[0]: "},
	{"{'parentIfNames': ['sixteencharacter']}", "parentIfNames[0]: "},
	{"{'parentIfNames': ['a/b']}", "parentIfNames[0]: "},
	{"{'deviceManagers': ['DUMMY', 'Sr-Iov', 'rxqueue']}", NULL},
	{"{'deviceManagers': ['sriov']}", "sr-iov"},
	{"{'vendorIDs': ['']}", "vendorIDs[0]: must not be empty"},
	{"{'deviceIDs': ['']}", "deviceIDs[0]: must not be empty"},
	{"{'drivers': ['']}", "drivers[0]: must not be empty"},
	{"{'ifName': ['eth0']}", "ifName: is not a field of a filter"},
};

START_TEST(filter_fields_are_checked)
{
	json_t *tree = tree_of(checks[_i].filter);
	struct err err = ERR_INIT;
	struct pool_filter filter = {0};
	int outcome = rec_decode(&rec_pool_filter, tree, REC_STRICT, "", NULL, &filter, &err);

	if (checks[_i].message) {
		ck_assert_int_eq(outcome, -1);
		ck_assert_int_eq(err.kind, ERR_INVALID);
		ck_assert_msg(strstr(err.message, checks[_i].message), "%s", err.message);
	} else {
		ck_assert_msg(outcome == 0, "%s", err.message);
	}
	rec_fini(&rec_pool_filter, &filter);
	json_decref(tree);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool");
	TCase *tcase = tcase_create("pool");

	tcase_add_loop_test(tcase, match, 0, ARRAY_SIZE(rows));
	tcase_add_test(tcase, explain);
	tcase_add_loop_test(tcase, resolve, 0, ARRAY_SIZE(resolutions));
	tcase_add_loop_test(tcase, filter_fields_are_checked, 0, ARRAY_SIZE(checks));
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
