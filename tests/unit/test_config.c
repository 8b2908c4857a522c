/* SPDX-License-Identifier: Apache-2.0 */
/* The node's configuration: what is accepted, what it becomes, and what is refused how. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "statd/config.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define HEAD                                                                                   \
	"apiVersion: cilium.io/v2alpha1\n"                                                     \
	"kind: CiliumNetworkDriverNodeConfig\n"                                                \
	"metadata:\n"                                                                          \
	"  name: worker-node-1\n"                                                              \
	"spec:\n" /* line 5 */
#define MANAGERS HEAD "  deviceManagerConfigs:\n"
#define POOLS    HEAD "  pools:\n"

static int decode(
	const char *text, const char *node, struct node_config *config, struct err *err)
{
	struct doc *doc;
	int outcome;

	*err = (struct err)ERR_INIT;
	if (doc_parse("netclaim.yaml", text, strlen(text), &doc, err) < 0)
		ck_abort_msg("%s", err->message);
	outcome = config_decode(doc_root(doc), doc, node, config, err);
	doc_free(doc);
	return outcome;
}

static void accept(const char *text, struct node_config *config)
{
	struct err err;

	ck_assert_msg(decode(text, NULL, config, &err) == 0, "%s", err.message);
}

static void assert_section(
	const struct node_config *config, enum manager_type manager, const char *should)
{
	json_t *tree;

	ck_assert_int_eq(config_enabled(config, manager), should != NULL);
	if (!should)
		return;
	tree = tree_of(should);
	ck_assert_msg(json_equal(config->sections[manager], tree), "%s",
		json_dumps(config->sections[manager], 0));
	json_decref(tree);
}

/* --- what is accepted --------------------------------------------------------------------- */

START_TEST(defaults)
{
	struct node_config config;

	accept(HEAD "  {}\n", &config);
	ck_assert_str_eq(config.node_name, "worker-node-1");
	ck_assert_str_eq(config.spec.driver_name, "networkdriver.cilium.io");
	ck_assert_int_eq(config.spec.retry_interval_s.v, 1);
	ck_assert_int_eq(config.spec.registration_timeout_s.v, 5);
	ck_assert_int_eq(config.spec.max_attempts.v, 10);
	ck_assert_uint_eq(config.spec.pools.pools.n, 0);
	for (int m = 0; m < MANAGER_TYPE_MAX; m++)
		ck_assert(!config_enabled(&config, (enum manager_type)m));
	config_fini(&config);
	config_fini(&config);
}
END_TEST

START_TEST(all_of_it)
{
	struct node_config config;

	accept(HEAD "  driverName: \"net.example.com\"\n"
		    "  draRegistrationRetryInterval: 2\n"
		    "  draRegistrationTimeout: 7\n"
		    "  draRegistrationMaxAttempts: 3\n"
		    "  deviceManagerConfigs:\n"
		    "    dummy: {enabled: true, count: 3}\n"
		    "    sriov:\n"
		    "      enabled: true\n"
		    "      sysBusPCIDevPath: /tmp/sys\n"
		    "      ifaces:\n"
		    "      - ifName: ens1f0\n"
		    "        vfCount: 4\n"
		    "      - ifName: ens1f1\n"
		    "    rxQueue:\n"
		    "      enabled: true\n"
		    "      ifaces:\n"
		    "      - ifName: ens2f0\n"
		    "        count: 4\n"
		    "      - ifName: ens2f1\n"
		    "  pools:\n"
		    "  - name: fast-net\n"
		    "    filter:\n"
		    "      deviceManagers: [dummy]\n"
		    "      deviceIDs: ['0x1018']\n"
		    "      drivers: [mlx5_core]\n"
		    "      ifNames: [a, b]\n"
		    "      parentIfNames: [c]\n"
		    "      pciAddrs: ['0000:03:00.1']\n"
		    "      pfNames: [d]\n"
		    "      vendorIDs: ['0x15b3']\n"
		    "  - name: all\n"
		    "    filter: {}\n"
		    "  - name: none\n",
		&config);
	ck_assert_str_eq(config.spec.driver_name, "net.example.com");
	ck_assert_int_eq(config.spec.retry_interval_s.v, 2);
	ck_assert_int_eq(config.spec.registration_timeout_s.v, 7);
	ck_assert_int_eq(config.spec.max_attempts.v, 3);
	assert_section(&config, MANAGER_DUMMY, "{'enabled': true, 'count': 3}");
	assert_section(&config, MANAGER_SRIOV,
		"{'enabled': true, 'sysBusPCIDevPath': '/tmp/sys', 'ifaces': ["
		"{'ifName': 'ens1f0', 'vfCount': 4}, {'ifName': 'ens1f1', 'vfCount': 0}]}");
	assert_section(&config, MANAGER_RXQUEUE,
		"{'enabled': true, 'ifaces': ["
		"{'ifName': 'ens2f0', 'count': 4}, {'ifName': 'ens2f1', 'count': 1}]}");
	ck_assert_uint_eq(config.spec.pools.pools.n, 3);
	assert_rec(&rec_pool, &config.spec.pools.pools.v[0],
		"{'name': 'fast-net', 'filter': {'deviceManagers': ['dummy'],"
		" 'deviceIDs': ['0x1018'], 'drivers': ['mlx5_core'], 'ifNames': ['a', 'b'],"
		" 'parentIfNames': ['c'], 'pciAddrs': ['0000:03:00.1'], 'pfNames': ['d'],"
		" 'vendorIDs': ['0x15b3']}}");
	assert_rec(&rec_pool, &config.spec.pools.pools.v[1], "{'name': 'all', 'filter': {}}");
	assert_rec(&rec_pool, &config.spec.pools.pools.v[2], "{'name': 'none'}");
	config_fini(&config);
}
END_TEST

/* What is null is as if it were not there; so is an empty path, which stands for the
 * default. */
START_TEST(null_is_unset)
{
	struct node_config config;

	accept(HEAD "  driverName: null\n"
		    "  draRegistrationTimeout: null\n"
		    "  deviceManagerConfigs:\n"
		    "    dummy: {enabled: true}\n"
		    "    sriov: {enabled: true, sysBusPCIDevPath: \"\"}\n"
		    "    rxQueue:\n"
		    "  pools:\n",
		&config);
	ck_assert_str_eq(config.spec.driver_name, "networkdriver.cilium.io");
	ck_assert_int_eq(config.spec.registration_timeout_s.v, 5);
	assert_section(&config, MANAGER_DUMMY, "{'enabled': true, 'count': 0}");
	assert_section(&config, MANAGER_SRIOV, "{'enabled': true}");
	assert_section(&config, MANAGER_RXQUEUE, NULL);
	config_fini(&config);
}
END_TEST

START_TEST(sections_of_managers_that_are_not_enabled)
{
	struct node_config config;

	accept(MANAGERS "    dummy: {enabled: false, count: 2}\n"
			"    sriov: {ifaces: [{ifName: ens1f0}]}\n"
			"    rxQueue: {}\n",
		&config);
	assert_section(&config, MANAGER_DUMMY, NULL);
	assert_section(&config, MANAGER_SRIOV, NULL);
	assert_section(&config, MANAGER_RXQUEUE, NULL);
	config_fini(&config);

	accept(MANAGERS "    dummy: {enabled: true, count: 2}\n", &config);
	assert_section(&config, MANAGER_DUMMY, "{'enabled': true, 'count': 2}");
	assert_section(&config, MANAGER_SRIOV, NULL);
	assert_section(&config, MANAGER_RXQUEUE, NULL);
	config_fini(&config);
}
END_TEST

/* metadata is Kubernetes' own: the rest of the object is ours and strict */
START_TEST(object_of_the_api_server)
{
	json_t *tree = tree_of(
		"{'apiVersion': 'cilium.io/v2alpha1', 'kind': 'CiliumNetworkDriverNodeConfig',"
		" 'metadata': {'name': 'n1', 'uid': 'u', 'generation': 3, 'managedFields': "
		"[{}]},"
		" 'spec': {'pools': [{'name': 'a', 'filter': {}}, {'name': 'a'}]}}");
	struct node_config config;
	struct err err = ERR_INIT;

	ck_assert_int_eq(config_decode(tree, NULL, "n1", &config, &err), -1);
	ck_assert_str_eq(err.message,
		"spec.pools[1].name: duplicated pool name: a (first at spec.pools[0].name)");
	ck_assert_int_eq(
		json_array_remove(json_object_get(json_object_get(tree, "spec"), "pools"), 1),
		0);
	ck_assert_int_eq(config_decode(tree, NULL, "n1", &config, &err), 0);
	config_fini(&config);
	json_decref(tree);
}
END_TEST

/* Overlaps that name one device are refused (below); these are not. */
static const char *const fine[] = {
	POOLS "  - {name: a, filter: {ifNames: [eth0]}}\n"
	      "  - {name: b, filter: {ifNames: [eth1]}}\n",
	/* twice in one pool */
	POOLS "  - {name: a, filter: {ifNames: [eth0, eth0], pciAddrs: ['0000:03:00.1',"
	      " '0000:03:00.1']}}\n"
	      "  - {name: b, filter: {}}\n",
	/* by what several devices have in common */
	POOLS
	"  - {name: a, filter: {pfNames: [ens1f0], drivers: [iavf], vendorIDs: ['0x8086']}}\n"
	"  - {name: b, filter: {pfNames: [ens1f0], drivers: [iavf], vendorIDs: ['0x8086']}}\n",
	/* without a filter among several */
	POOLS "  - {name: a}\n"
	      "  - {name: b, filter: {ifNames: [eth1]}}\n"
	      "  - {name: c, filter: null}\n",
	/* one and the same text in different fields */
	POOLS "  - {name: a, filter: {ifNames: [eth0]}}\n"
	      "  - {name: eth0, filter: {pfNames: [eth0]}}\n",
	MANAGERS "    rxQueue: {enabled: true, ifaces: [{ifName: eth0}, {ifName: eth1}]}\n"
		 "    sriov: {enabled: true, ifaces: [{ifName: eth0}]}\n",
};

START_TEST(accepted)
{
	struct node_config config;

	accept(fine[_i], &config);
	config_fini(&config);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------- */

static const struct {
	const char *text, *message; /* the beginning of it */
} refused[] = {
	/* pools */
	{POOLS "  - name: fast-net\n" /* line 7 */
	       "    filter: {deviceManagers: [dummy]}\n"
	       "  - name: slow-net\n"
	       "  - name: fast-net\n",
		"netclaim.yaml:10: spec.pools[2].name: duplicated pool name: fast-net (first "
		"at "
		"line 7)"},
	{POOLS "  - name: a\n"
	       "    filter:\n"
	       "      ifNames: [eth0, eth1]\n" /* line 9 */
	       "  - name: b\n"
	       "    filter:\n"
	       "      ifNames:\n"
	       "      - eth2\n"
	       "      - eth1\n", /* line 14 */
		"netclaim.yaml:14: spec.pools[1].filter.ifNames[1]: ifname contained in "
		"multiple "
		"pools: eth1 on pools a and b (first at line 9)"},
	{POOLS "  - {name: one, filter: {ifNames: [eth0]}}\n"
	       "  - {name: two, filter: {ifNames: [eth1]}}\n"
	       "  - {name: three, filter: {ifNames: [eth0]}}\n",
		"netclaim.yaml:9: spec.pools[2].filter.ifNames[0]: ifname contained in "
		"multiple "
		"pools: eth0 on pools one and three (first at line 7)"},
	/* the first that is wrong is told, whatever the order of the texts */
	{POOLS "  - {name: one, filter: {ifNames: [z, a]}}\n"
	       "  - {name: two, filter: {ifNames: [z]}}\n"
	       "  - {name: three, filter: {ifNames: [a]}}\n",
		"netclaim.yaml:8: spec.pools[1].filter.ifNames[0]: ifname contained in "
		"multiple "
		"pools: z on pools one and two (first at line 7)"},
	{POOLS "  - {name: one, filter: {ifNames: [z, a]}}\n"
	       "  - {name: two, filter: {ifNames: [a]}}\n"
	       "  - {name: three, filter: {ifNames: [z]}}\n",
		"netclaim.yaml:8: spec.pools[1].filter.ifNames[0]: ifname contained in "
		"multiple "
		"pools: a on pools one and two (first at line 7)"},
	{POOLS "  - {name: a, filter: {pciAddrs: ['0000:03:00.1']}}\n"
	       "  - {name: b, filter: {pciAddrs: ['0000:03:00.2', '0000:03:00.1']}}\n",
		"netclaim.yaml:8: spec.pools[1].filter.pciAddrs[1]: pci addr contained in "
		"multiple "
		"pools: 0000:03:00.1 on pools a and b (first at line 7)"},
	{POOLS "  - {name: a/b, filter: {}}\n", "netclaim.yaml:7: spec.pools[0].name: "},
	{POOLS "  - {filter: {}}\n", "netclaim.yaml:7: spec.pools[0].name: is required"},
	{POOLS "  - {name: '', filter: {}}\n", "netclaim.yaml:7: spec.pools[0].name: "},
	{POOLS "  - name: a\n"
	       "    filter:\n"
	       "      ifname: [eth0]\n",
		"netclaim.yaml:9: spec.pools[0].filter.ifname: is not a field of a filter"},
	{POOLS "  - {name: a, filter: {deviceManagers: [sriov]}}\n",
		"netclaim.yaml:7: spec.pools[0].filter.deviceManagers[0]: "},
	{POOLS "  - {name: a, filter: {ifNames: eth0}}\n",
		"netclaim.yaml:7: spec.pools[0].filter.ifNames: must be a list of texts"},
	/* managers */
	{MANAGERS "    dummy:\n"
		  "      enabled: true\n"
		  "      count: -1\n",
		"netclaim.yaml:9: spec.deviceManagerConfigs.dummy.count: -1 is out of range"},
	{MANAGERS "    dummy: {count: 4097}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.dummy.count: 4097 is out of range"},
	{MANAGERS "    macvlan: {enabled: true}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.macvlan: is not a field of "
		"this driver's device managers; these are: dummy, sriov, rxQueue"},
	{MANAGERS "    eswitchSriov: {enabled: true}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.eswitchSriov: is not a field of "
		"this driver's device managers; these are: dummy, sriov, rxQueue"},
	{MANAGERS "    dummy: {enabled: true, number: 3}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.dummy.number: is not a field of "
		"dummy"},
	{MANAGERS "    sriov: {enabled: true, sysBusPCIDevPath: sys}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.sriov.sysBusPCIDevPath: \"sys\" is "
		"not "
		"an absolute path"},
	{MANAGERS "    sriov:\n"
		  "      ifaces:\n"
		  "      - ifName: ens1f0\n" /* line 9 */
		  "        vfCount: 2\n"
		  "      - ifName: ens1f0\n",
		"netclaim.yaml:11: spec.deviceManagerConfigs.sriov.ifaces[1].ifName: duplicate "
		"SR-IOV interface: ens1f0 (first at line 9)"},
	{MANAGERS "    sriov: {ifaces: [{ifName: ens1f0, vfCount: -1}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.sriov.ifaces[0].vfCount: -1"},
	{MANAGERS "    sriov: {ifaces: [{ifName: ens1f0, vfCount: 65536}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.sriov.ifaces[0].vfCount: 65536"},
	{MANAGERS "    sriov: {ifaces: [{vfCount: 1}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.sriov.ifaces[0].ifName: is "
		"required"},
	{MANAGERS "    sriov: {ifaces: [{ifName: a/b}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.sriov.ifaces[0].ifName: "},
	{MANAGERS "    rxQueue: {enabled: true, ifaces: [{ifName: sixteencharacter}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue.ifaces[0].ifName: "},
	{MANAGERS "    rxQueue: {enabled: true}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue: no RX queue interfaces"},
	{MANAGERS "    rxQueue: {enabled: true, ifaces: []}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue: no RX queue interfaces"},
	{MANAGERS "    rxQueue: {enabled: true, ifaces: [{ifName: ''}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue.ifaces[0].ifName: "},
	{MANAGERS "    rxQueue: {enabled: true, ifaces: [{ifName: lo}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue.ifaces[0].ifName: "},
	{MANAGERS "    rxQueue: {enabled: true, ifaces: [{ifName: eth0, count: -1}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue.ifaces[0].count: -1"},
	{MANAGERS "    rxQueue: {enabled: true, ifaces: [{ifName: eth0, count: 0}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue.ifaces[0].count: 0"},
	{MANAGERS "    rxQueue: {enabled: true, ifaces: [{ifName: eth0}, {ifName: eth0}]}\n",
		"netclaim.yaml:7: spec.deviceManagerConfigs.rxQueue.ifaces[1].ifName: "
		"duplicate RX "
		"queue interface: eth0 (first at line 7)"},
	/* registration */
	{HEAD "  draRegistrationRetryInterval: 0\n",
		"netclaim.yaml:6: spec.draRegistrationRetryInterval: 0 is out of range 1.."},
	{HEAD "  draRegistrationRetryInterval: -1\n",
		"netclaim.yaml:6: spec.draRegistrationRetryInterval: -1 is out of range 1.."},
	{HEAD "  draRegistrationTimeout: 0\n",
		"netclaim.yaml:6: spec.draRegistrationTimeout: 0 is out of range 1.."},
	{HEAD "  draRegistrationMaxAttempts: 0\n",
		"netclaim.yaml:6: spec.draRegistrationMaxAttempts: 0 is out of range 1.."},
	{HEAD "  draRegistrationTimeout: 5s\n",
		"netclaim.yaml:6: spec.draRegistrationTimeout: must be a whole number"},
	{HEAD "  driverName: ''\n", "netclaim.yaml:6: spec.driverName: "},
	{HEAD "  driverName: Not A Name\n", "netclaim.yaml:6: spec.driverName: "},
	{HEAD "  publishInterval: 3\n",
		"netclaim.yaml:6: spec.publishInterval: is not a field of spec"},
	/* the object */
	{"apiVersion: cilium.io/v2\n"
	 "kind: CiliumNetworkDriverNodeConfig\nmetadata: {name: node}\nspec: {}\n",
		"netclaim.yaml:1: apiVersion: must be cilium.io/v2alpha1"},
	{"apiVersion: cilium.io/v2alpha1\n"
	 "kind: CiliumNetworkDriverClusterConfig\nmetadata: {name: node}\nspec: {}\n",
		"netclaim.yaml:2: kind: must be CiliumNetworkDriverNodeConfig"},
	{"apiVersion: cilium.io/v2alpha1\n"
	 "kind: CiliumNetworkDriverNodeConfig\nmetadata: {}\nspec: {}\n",
		"netclaim.yaml:3: metadata.name: is required"},
	{"apiVersion: cilium.io/v2alpha1\n"
	 "kind: CiliumNetworkDriverNodeConfig\nmetadata: {name: ../n}\nspec: {}\n",
		"netclaim.yaml:3: metadata.name: "},
	{"apiVersion: cilium.io/v2alpha1\n"
	 "kind: CiliumNetworkDriverNodeConfig\nmetadata: {name: node}\n",
		"netclaim.yaml:1: spec: is required"},
	{"apiVersion: cilium.io/v2alpha1\nkind: CiliumNetworkDriverNodeConfig\n"
	 "metadata: {name: node}\nspec: {}\nnodeSelector: {}\n",
		"netclaim.yaml:5: nodeSelector: is not a field of "
		"CiliumNetworkDriverNodeConfig"},
	{"- a list\n", "netclaim.yaml:1: must be a map"},
	/* JSON has no lines */
	{"{\"apiVersion\": \"cilium.io/v2alpha1\", \"kind\": \"CiliumNetworkDriverNodeConfig\","
	 " \"metadata\": {\"name\": \"n\"},"
	 " \"spec\": {\"pools\": [{\"name\": \"a\"}, {\"name\": \"a\"}]}}",
		"netclaim.yaml: spec.pools[1].name: duplicated pool name: a (first at "
		"spec.pools[0].name)"},
};

START_TEST(is_refused)
{
	struct node_config config;
	struct err err;

	ck_assert_int_eq(decode(refused[_i].text, NULL, &config, &err), -1);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ck_assert_msg(str_has_prefix(err.message, refused[_i].message), "%s", err.message);
	ck_assert_ptr_null(config.node_name);
}
END_TEST

START_TEST(of_another_node)
{
	struct node_config config;
	struct err err;

	ck_assert_int_eq(decode(HEAD "  {}\n", "worker-node-1", &config, &err), 0);
	config_fini(&config);
	ck_assert_int_eq(decode(HEAD "  {}\n", "worker-node-2", &config, &err), -1);
	ck_assert_str_eq(err.message, "netclaim.yaml:4: metadata.name: this is the "
				      "configuration of node worker-node-1, "
				      "and here is node worker-node-2");
}
END_TEST

/* --- files -------------------------------------------------------------------------------- */

START_TEST(file)
{
	static const char text[] = MANAGERS "    dummy: {enabled: true, count: 3}\n";
	char path[] = "/tmp/netclaim-config-XXXXXX";
	struct node_config config;
	struct err err = ERR_INIT;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
	ck_assert_msg(
		config_load(path, "worker-node-1", &config, &err) == 0, "%s", err.message);
	ck_assert(config_enabled(&config, MANAGER_DUMMY));
	config_fini(&config);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(config_load(path, NULL, &config, &err), -1);
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
	config_fini(&config);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = tcase_create("config");

	tcase_add_test(tcase, defaults);
	tcase_add_test(tcase, all_of_it);
	tcase_add_test(tcase, null_is_unset);
	tcase_add_test(tcase, sections_of_managers_that_are_not_enabled);
	tcase_add_test(tcase, object_of_the_api_server);
	tcase_add_loop_test(tcase, accepted, 0, ARRAY_SIZE(fine));
	tcase_add_loop_test(tcase, is_refused, 0, ARRAY_SIZE(refused));
	tcase_add_test(tcase, of_another_node);
	tcase_add_test(tcase, file);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
