/* SPDX-License-Identifier: Apache-2.0 */
/* The plan to prepare a claim, by table: what is refused and in which words, what is let pass, and
 * what is to be done for the devices of a claim that holds some already. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "statd/claim.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define DRIVER "networkdriver.cilium.io"
#define NODE   "worker-1"

#define RESULT(request, device, more)                                                          \
	"{'request': '" request "', 'driver': '" DRIVER "', 'pool': '" NODE                    \
	"', 'device': '" device "'" more "}"
#define OTHERS(request)                                                                        \
	"{'request': '" request "', 'driver': 'gpu.example.com', 'pool': 7, 'adminAccess': true," \
	" 'device': 'GPU 0', 'shareID': {}, 'future': 1}"
#define CONFIG(requests, parameters)                                                           \
	"{'source': 'FromClaim', 'requests': [" requests "], 'opaque': {'driver': '" DRIVER    \
	"', 'parameters': {" parameters "}}}"
#define POD(name) "{'resource': 'pods', 'name': '" name "', 'uid': '" name "'}"
#define NET       RESULT("net", "dummy0", "")

/* Of a claim what a test is about; NULL: as it mostly is. */
struct parts {
	const char *api_version, *annotations, *spec, *results, *configs, *reserved;
	enum err_kind kind; /* of its refusal; ERR_NONE: ERR_INVALID */
};

/* --- what statd knows before -------------------------------------------------------------- */

static struct tables tables;

static void put(struct table *table, const char *text)
{
	const struct rec_desc *desc = table_def(table)->rec;
	cleanup_free void *rec = xcalloc(1, desc->size);
	struct err err = ERR_INIT;

	rec_of(desc, text, rec);
	ck_assert_msg(table_insert(table, rec, &err) == 0, "%s", err.message);
}

#define DEVICE_ROW(name, manager, more)                                                        \
	"{'Name': '" name "', 'Manager': '" manager "', 'Device': {'name': '" name             \
	"', 'ifName': '" name "', 'state': {}" more "}}"
#define ALLOC_ROW(device, claim, pod, more)                                                    \
	"{'DeviceName': '" device "', 'Manager': 'dummy', 'PreparedDevice': {}, 'LogicalPool': " \
	"'net', 'PodUID': '" pod "', 'ClaimUID': '" claim "', 'Prepared': {'name': '" device   \
	"', 'ifName': '" device "', 'state': {}}" more "}"

static void setup(void)
{
	static const char *const devices[] = {
		DEVICE_ROW("dummy0", "dummy", ""),
		DEVICE_ROW("dummy1", "dummy", ""),
		DEVICE_ROW("dummy2", "dummy", ""),
		DEVICE_ROW("vf0", "sr-iov", ""),
		DEVICE_ROW("rxq0", "rxQueue", ", 'allowMultipleAllocations': true"),
		DEVICE_ROW("held0", "dummy", ""),
		DEVICE_ROW("named0", "dummy", ""),
		("{'Name': 'twin0', 'Manager': 'sr-iov', 'Device': {'name': 'twin0', 'ifName': "
		 "'dummy0', 'state': {}}}"),
	};

	tables_init(&tables);
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		put(tables.devices, devices[i]);
	put(tables.allocations, ALLOC_ROW("held0", "other-claim", "other-pod", ""));
	put(tables.allocations, ALLOC_ROW("named0", "sister-claim", "pod-1",
					", 'Config': {'podIfName': 'dummy2'}"));
}

static void teardown(void)
{
	tables_fini(&tables);
}

static void read_claim(const struct parts *p, struct claim *ret)
{
	cleanup_free char *text = xasprintf(
		"{'apiVersion': '%s', 'kind': 'ResourceClaim', 'metadata': {'name': 'c1', "
		"'namespace': 'default', 'uid': 'uid-1', 'annotations': {%s}}, 'spec': %s, "
		"'status': {'allocation': {'devices': {'results': %s%s%s, 'config': [%s]}}, "
		"'reservedFor': [%s]}}",
		p->api_version ? p->api_version : "resource.k8s.io/v1",
		p->annotations ? p->annotations : "", p->spec ? p->spec : "{}",
		p->results && *p->results == '\'' ? "" : "[", p->results ? p->results : NET,
		p->results && *p->results == '\'' ? "" : "]", p->configs ? p->configs : "",
		p->reserved ? p->reserved : POD("pod-1"));
	json_t *tree = tree_of(text);
	struct err err = ERR_INIT;

	*ret = (struct claim){0};
	ck_assert_msg(claim_decode(tree, ret, &err) == 0, "%s", err.message);
	json_decref(tree);
}

static int plan_of(
	const struct claim *claim, bool warn_unknown, struct plan *ret, struct err *err)
{
	const struct plan_rules rules = {
		.driver_name = DRIVER, .node_name = NODE, .warn_unknown = warn_unknown};

	return plan_make(&tables, &rules, claim, "uid-1", ret, err);
}

/* --- what is refused ---------------------------------------------------------------------- */

#define SPEC(requests) "{'devices': {'requests': [" requests "]}}"
#define SPEC_NET                                                                               \
	SPEC("{'name': 'net', 'firstAvailable': [{'name': 'fast'}, {'name': 'slow'}]}, {'name': " \
	     "'rx', 'exactly': {}}")
#define CONFIG_AT "status.allocation.devices.config[0]: "
#define AT_NET	  "request net, device dummy0: "

static const struct refusal {
	struct parts of;
	const char *message; /* what the error contains */
} refusals[] = {
	/* the claim */
	{{.api_version = "resource.k8s.io/v1beta1"},
		"apiVersion: is resource.k8s.io/v1beta1; claims are read as resource.k8s.io/v1 only"},
	{{.annotations = "'resource.kubernetes.io/pod-claim-name': 'a/../b'"},
		"metadata.annotations: resource.kubernetes.io/pod-claim-name: name is no DNS label"},
	{{.reserved = " "}, "status.reservedFor: the claim is reserved for 0 consumers"},
	{{.reserved = POD("pod-1") ", " POD("pod-2")},
		"reserved for 2 consumers, must be for exactly one pod: each pod needs a claim of "
		"its own, which it gets from a ResourceClaimTemplate (resourceClaimTemplateName"},
	{{.reserved = "{'resource': 'jobs', 'name': 'j', 'uid': 'j'}"},
		"status.reservedFor[0].resource: is jobs; devices are prepared for pods only"},
	{{.reserved = "{'apiGroup': 'scheduling.k8s.io', 'resource': 'pods', 'name': 'j', "
		      "'uid': 'j'}"},
		"status.reservedFor[0].apiGroup: is scheduling.k8s.io"},
	/* results */
	{{.results = "'text'"}, "status.allocation.devices.results: must be a list"},
	{{.results = RESULT("mon", "dummy0", ", 'adminAccess': true")},
		"request mon, device dummy0: adminAccess: request mon asks for adminAccess, which "
		"this driver does not offer"},
	{{.results = NET ", " RESULT("mon", "held0", ", 'adminAccess': true")},
		"request mon, device held0: adminAccess: "},
	{{.results = RESULT("net", "dummy0", ", 'skipNodeOperations': ['*']")},
		AT_NET "status.allocation.devices.results[0].skipNodeOperations: is not a field of "
		       "a result as this driver understands it; these are: request, driver, pool, "},
	{{.results = OTHERS("gpu") ", " RESULT("net", "dummy0", ", 'compatibilityGroups': {}")},
		AT_NET "status.allocation.devices.results[1].compatibilityGroups: is not a field"},
	{{.results = "{'request': 'net', 'driver': '" DRIVER
		     "', 'pool': 'worker-9', 'device': 'dummy0'}"},
		AT_NET "pool: the device is of pool worker-9, which is not this node's; that is "
		       "worker-1"},
	{{.results = RESULT("a.b", "dummy0", "")},
		"status.allocation.devices.results[0].request: request is no DNS label: \"a.b\""},
	{{.results = RESULT("net", "Dummy0", "")},
		"status.allocation.devices.results[0].device: name is no DNS label: \"Dummy0\""},
	{{.results = NET ", " RESULT("b", "dummy0", "")},
		"request b, device dummy0: unexpected input: device dummy0 is allocated twice"},
	{{.results = RESULT("net", "dummy9", ""), .kind = ERR_NOT_FOUND},
		"request net, device dummy9: device not found: dummy9"},
	{{.results = RESULT("net", "held0", ""), .kind = ERR_CONFLICT},
		"request net, device held0: device held0 is still held by claim other-claim"},
	{{.results = RESULT("net", "rxq0", "")}, "device rxq0 has no share ID"},
	{{.results = RESULT("net", "dummy0", ", 'shareID': 's1'")},
		"device dummy0 does not allow multiple allocations"},
	/* requests of configurations */
	{{.spec = SPEC_NET, .results = RESULT("net/fast", "dummy0", ""), .configs = CONFIG("'nope'", "")},
		CONFIG_AT "requests[0]: \"nope\" is no request of the claim; these are: net, "
			  "net/fast, net/slow, rx"},
	{{.spec = SPEC_NET, .configs = CONFIG("'rx', 'net/none'", "")},
		CONFIG_AT "requests[1]: \"net/none\" is no request"},
	{{.spec = SPEC_NET, .configs = CONFIG("'ne'", "")}, "\"ne\" is no request"},
	{{.spec = SPEC_NET, .configs = CONFIG("'rx/fast'", "")}, "\"rx/fast\" is no request"},
	{{.spec = SPEC("{'name': 'net'}"), .configs = CONFIG("'net/fast'", "")},
		"\"net/fast\" is no request of the claim; these are: net"},
	{{.configs = CONFIG("'nope'", "")},
		"\"nope\" is no request of the claim; these are: net"},
	{{.configs = CONFIG("'net/fast'", "")}, "\"net/fast\" is no request"},
	{{.results = OTHERS("gpu") ", " RESULT("net/fast", "dummy0", ""),
		 .configs = CONFIG("'gpu', 'net', 'net/slow', 'nope'", "")},
		"requests[3]: \"nope\" is no request of the claim; these are: gpu, net, net/fast"},
	/* parameters */
	{{.configs = CONFIG("", "'podIfNam': 'net1'")},
		AT_NET CONFIG_AT "parameters.podIfNam: is not a field of device configuration; these "
				 "are: podIfName, vlan, interfaceSysctlIPv4, interfaceSysctlIPv6; did you "
				 "mean podIfName?"},
	{{.results = RESULT("net", "vf0", ""), .configs = CONFIG("'net'", "'vlann': 42")},
		"request net, device vf0: " CONFIG_AT "parameters.vlann: is not a field of device "
		"configuration; these are: podIfName, vlan, interfaceSysctlIPv4, "
		"interfaceSysctlIPv6; did you mean vlan?"},
	{{.configs = CONFIG("", "'podIfName': 'a', 'podifname': 'b'")},
		"parameters.podIfName: is there twice: podifname is the same name"},
	{{.configs = "{'source': 'FromClass', 'opaque': {'driver': '" DRIVER
		     "', 'parameters': {'mtu': 9000}}}, " CONFIG("", "")},
		AT_NET "status.allocation.devices.config[0] (of the DeviceClass): parameters.mtu: "
		       "is not a field"},
	{{.spec = SPEC_NET, .results = RESULT("net/fast", "dummy0", ""),
		 .configs = CONFIG("'net/slow'", "'mtu': 9000")},
		CONFIG_AT "parameters.mtu: is not a field"},
	{{.configs = CONFIG("", "'podIfName': 'lo'")},
		AT_NET CONFIG_AT "parameters.podIfName: interface name \"lo\" is reserved"},
	{{.configs = CONFIG("", "'vlan': 4095")},
		AT_NET CONFIG_AT "parameters.vlan: 4095 is out of range 0..4094"},
	{{.configs = CONFIG("", "'vlan': 42")},
		AT_NET "parameters.vlan: devices of manager dummy have no VLAN"},
	{{.results = RESULT("net", "rxq0", ", 'shareID': 's1'"), .configs = CONFIG("", "'vlan': 0")},
		"request net, device rxq0: parameters.vlan: devices of manager rxQueue have no VLAN"},
	{{.configs = CONFIG("", "'interfaceSysctlIPv4': {'net.ipv4.conf.net1.arp_filter': '1'}")},
		AT_NET "parameters.interfaceSysctlIPv4: \"net.ipv4.conf.net1.arp_filter\" is more than "
		       "a sysctl of the interface: only the part behind the interface: arp_filter"},
	{{.configs = CONFIG("", "'podIfName': 'net1', 'interfaceSysctlIPv6': {'net1.a': '1'}")},
		AT_NET "parameters.interfaceSysctlIPv6: \"net1.a\" is more than"},
	{{.configs = CONFIG("", "'interfaceSysctlIPv4': {'net/ipv4/conf/net1/arp_filter': '1'}")},
		"only the part behind the interface"},
	/* names in the pod */
	{{.results = NET ", " RESULT("b", "dummy1", ""), .configs = CONFIG("", "'podIfName': 'n'")},
		"request b, device dummy1: parameters.podIfName: two devices of the claim have the "
		"name \"n\" in the pod, dummy0 and dummy1"},
	{{.results = NET ", " RESULT("b", "dummy1", ""),
		 .configs = CONFIG("'b'", "'podIfName': 'dummy0'")},
		"request b, device dummy1: parameters.podIfName: two devices of the claim"},
	{{.results = NET ", " RESULT("b", "dummy1", ""),
		 .configs = CONFIG("'net'", "'podIfName': 'dummy1'")},
		"request b, device dummy1: parameters.podIfName: two devices of the claim"},
	{{.results = NET ", " RESULT("b", "twin0", "")}, "have the name \"dummy0\" in the pod"},
	{{.configs = CONFIG("", "'podIfName': 'dummy2'"), .kind = ERR_CONFLICT},
		AT_NET "parameters.podIfName: \"dummy2\" is already the name of device named0 in the "
		       "same pod (claim sister-claim)"},
	{{.results = RESULT("net", "dummy2", ""), .kind = ERR_CONFLICT},
		"\"dummy2\" is already the name of device named0"},
};

START_TEST(test_refused)
{
	const struct refusal *r = &refusals[_i];
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	read_claim(&r->of, &claim);
	ck_assert_msg(plan_of(&claim, false, &plan, &err) < 0, "%s", r->message);
	ck_assert_msg(strstr(err.message, r->message), "is: %s\nshould have: %s", err.message,
		r->message);
	ck_assert_int_eq(err.kind, r->of.kind == ERR_NONE ? ERR_INVALID : r->of.kind);
	ck_assert_ptr_null(plan.items);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* --- what is not -------------------------------------------------------------------------- */

static const struct acceptance {
	struct parts of;
	const char *config; /* of the first item */
} acceptances[] = {
	{{0}, "{}"},
	{{.results = OTHERS("gpu") ", " NET}, "{}"},
	{{.results = "7, null, {}, " NET}, "{}"},
	{{.results = RESULT("net", "dummy0",
		  ", 'adminAccess': false, 'tolerations': [{}], 'bindingConditions': ['a'], "
		  "'bindingFailureConditions': ['b'], 'consumedCapacity': null")},
		"{}"},
	{{.reserved = "{'apiGroup': '', 'resource': 'pods', 'name': 'p', 'uid': 'p'}"}, "{}"},
	{{.reserved = "{'name': 'p', 'uid': 'p'}"}, "{}"},
	{{.annotations = "'resource.kubernetes.io/pod-claim-name': 'fast'"}, "{}"},
	{{.configs = CONFIG("'net'", "'PODIFNAME': 'net1'")}, "{'podIfName': 'net1'}"},
	{{.configs = CONFIG("", "'podIfName': 'class'") ", " CONFIG("'net'", "")}, "{}"},
	{{.configs = "{'requests': ['nope'], 'opaque': {'driver': 'gpu.example.com', 'parameters': 1}},"
		     " {'future': {}}, 7, {'opaque': 7}"},
		"{}"},
	{{.spec = SPEC_NET, .results = RESULT("net/slow", "dummy0", ""),
		 .configs = CONFIG("'net/fast'", "'podIfName': 'f'") ", "
			    CONFIG("'net/slow'", "'podIfName': 's'") ", "
			    CONFIG("'rx'", "'podIfName': 'x'")},
		"{'podIfName': 's'}"},
	{{.results = RESULT("net/slow", "dummy0", ""),
		 .configs = CONFIG("'net'", "'podIfName': 'n'") ", "
			    CONFIG("'net/fast'", "'podIfName': 'f'")},
		"{'podIfName': 'n'}"},
	{{.results = RESULT("net", "vf0", ""), .configs = CONFIG("", "'vlan': 0")}, "{'vlan': 0}"},
	{{.configs = CONFIG("", "'interfaceSysctlIPv4': {'A': '1', 'a': '2', 'x.net': '3'}")},
		"{'interfaceSysctlIPv4': {'A': '1', 'a': '2', 'x.net': '3'}}"},
	/* names that two shares will have are known when they are set up */
	{{.results = RESULT("a", "rxq0", ", 'shareID': 's1'") ", "
		     RESULT("b", "rxq0", ", 'shareID': 's2'")},
		"{}"},
	/* they change names */
	{{.results = NET ", " RESULT("b", "dummy1", ""),
		 .configs = CONFIG("'net'", "'podIfName': 'dummy1'") ", "
			    CONFIG("'b'", "'podIfName': 'dummy0'")},
		"{'podIfName': 'dummy1'}"},
};

static void insert_planned(
	const struct plan *plan, const struct plan_item *item, struct strlist *keys)
{
	cleanup_buf struct buf key = BUF_INIT;
	struct alloc_row row;
	struct err err;

	plan_row(plan, item, &row);
	schema_alloc_key(row.logical_pool, row.device_name, row.share_id, &key);
	strlist_add(keys, key.data);
	ck_assert_int_eq(table_insert(tables.allocations, &row, &err), 0);
}

/* What the plan comes to is such that draplugind takes it. */
static void check_result(const struct plan *plan)
{
	const struct rec_desc *desc = api_method_info(API_CLAIM_PREPARE)->result;
	struct claim_prepare_result result, back = {0};
	struct strlist keys = {0};
	struct err err = ERR_INIT;
	json_t *tree;

	for (size_t i = 0; i < plan->n_items; i++) {
		struct plan_item *item = &plan->items[i];

		item->prepared = xcalloc(1, sizeof(*item->prepared));
		rec_copy(&rec_device, item->prepared,
			device_row_get(&tables, item->result->device)->device);
		insert_planned(plan, item, &keys);
	}
	plan_result(plan, &tables, &result);
	for (size_t i = 0; i < keys.n; i++)
		ck_assert(table_delete(tables.allocations, keys.v[i]));
	strlist_fini(&keys);
	tree = rec_encode(desc, &result);
	ck_assert_msg(rec_decode(desc, tree, REC_STRICT, "", NULL, &back, &err) == 0, "%s",
		err.message);
	json_decref(tree);
	rec_fini(desc, &result);
	rec_fini(desc, &back);
}

START_TEST(test_accepted)
{
	const struct acceptance *a = &acceptances[_i];
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	read_claim(&a->of, &claim);
	ck_assert_msg(plan_of(&claim, false, &plan, &err) == 0, "%s", err.message);
	ck_assert_uint_ge(plan.n_items, 1);
	assert_rec(&rec_device_config, &plan.items[0].config, a->config);
	ck_assert_uint_eq(plan.warnings.n, 0);
	ck_assert_uint_eq(plan.stale.n, 0);
	check_result(&plan);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

START_TEST(test_unknown_parameter_as_a_warning)
{
	const struct parts parts = {.configs = CONFIG("", "'podIfName': 'net1', 'vlann': 4") ", "
					      CONFIG("", "'PODIFNAME': 'net2', 'mtu': 4")};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	read_claim(&parts, &claim);
	ck_assert_msg(plan_of(&claim, true, &plan, &err) == 0, "%s", err.message);
	assert_rec(&rec_device_config, &plan.items[0].config, "{'podIfName': 'net2'}");
	ck_assert_uint_eq(plan.warnings.n, 2);
	ck_assert_msg(strstr(plan.warnings.v[0], AT_NET CONFIG_AT "parameters.vlann: is not a field"),
		"%s", plan.warnings.v[0]);
	ck_assert_msg(strstr(plan.warnings.v[1], "config[1]: parameters.mtu: "), "%s",
		plan.warnings.v[1]);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

START_TEST(test_wrong_value_is_no_warning)
{
	const struct parts parts = {.configs = CONFIG("", "'vlan': 4095, 'vlann': 4")};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	read_claim(&parts, &claim);
	ck_assert_int_lt(plan_of(&claim, true, &plan, &err), 0);
	ck_assert_msg(strstr(err.message, "parameters.vlan: 4095"), "%s", err.message);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* --- what is there already ---------------------------------------------------------------- */

/* A claim that is allocated anew: what it held and is not named any more is to be freed, and what
 * it holds still is not judged again. */
START_TEST(test_stale_and_reused)
{
	const struct parts parts = {.results = RESULT("a", "dummy0", "") ", "
					      RESULT("b", "rxq0", ", 'shareID': 's2'")};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	put(tables.allocations, ALLOC_ROW("dummy0", "uid-1", "pod-0", ""));
	put(tables.allocations, ALLOC_ROW("dummy1", "uid-1", "pod-1", ""));
	put(tables.allocations, ALLOC_ROW("rxq0", "uid-1", "pod-1", ", 'ShareID': 's1'"));
	read_claim(&parts, &claim);
	ck_assert_msg(plan_of(&claim, false, &plan, &err) == 0, "%s", err.message);
	ck_assert_uint_eq(plan.stale.n, 2);
	ck_assert(strlist_has(&plan.stale, "net/dummy1/"));
	ck_assert(strlist_has(&plan.stale, "net/rxq0/s1"));
	ck_assert_str_eq(plan.items[0].reuse->pod_uid, "pod-0");
	ck_assert_ptr_null(plan.items[1].reuse);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* Two claims that changed their devices: each lets go of the other's, which it is refused for. */
START_TEST(test_stale_of_a_refused_claim)
{
	const struct parts parts = {.results = RESULT("a", "held0", "")};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	put(tables.allocations, ALLOC_ROW("dummy1", "uid-1", "pod-1", ""));
	read_claim(&parts, &claim);
	ck_assert_int_lt(plan_of(&claim, false, &plan, &err), 0);
	ck_assert_int_eq(err.kind, ERR_CONFLICT);
	ck_assert_uint_eq(plan.stale.n, 1);
	ck_assert_str_eq(plan.stale.v[0], "net/dummy1/");
	ck_assert_uint_eq(plan.n_items, 0);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* What a claim holds is not let go of because its results cannot be read. */
START_TEST(test_nothing_is_stale_of_what_is_not_understood)
{
	static const struct parts parts[] = {
		{.results = NET ", " RESULT("b", "dummy1", ", 'future': 1")},
		{.reserved = POD("pod-1") ", " POD("pod-2")},
		{.api_version = "resource.k8s.io/v2"},
	};
	struct err err = ERR_INIT;

	put(tables.allocations, ALLOC_ROW("dummy2", "uid-1", "pod-1", ""));
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct claim claim;
		struct plan plan;

		read_claim(&parts[i], &claim);
		ck_assert_int_lt(plan_of(&claim, false, &plan, &err), 0);
		ck_assert_uint_eq(plan.stale.n, 0);
		plan_fini(&plan);
		rec_fini(&rec_claim, &claim);
	}
}
END_TEST

START_TEST(test_parameters_too_big_for_the_status)
{
	cleanup_free char *value = xcalloc(1, 4096);
	cleanup_free char *configs = NULL;
	struct parts parts = {0};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	memset(value, 'x', 4000);
	configs = xasprintf(CONFIG("", "'interfaceSysctlIPv4': {'a': '%s', 'b': '%s', 'c': '%s'}"),
		value, value, value);
	parts.configs = configs;
	read_claim(&parts, &claim);
	ck_assert_int_lt(plan_of(&claim, false, &plan, &err), 0);
	ck_assert_msg(strstr(err.message, AT_NET "device dummy0: its state and parameters take 12"),
		"%s", err.message);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* The name of what is to be freed is free. */
START_TEST(test_name_of_a_stale_device)
{
	const struct parts parts = {.configs = CONFIG("", "'podIfName': 'dummy1'")};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	put(tables.allocations, ALLOC_ROW("dummy1", "uid-1", "pod-1", ""));
	read_claim(&parts, &claim);
	ck_assert_msg(plan_of(&claim, false, &plan, &err) == 0, "%s", err.message);
	ck_assert_uint_eq(plan.stale.n, 1);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

START_TEST(test_parameters_of_then)
{
	const struct parts parts = {.configs = CONFIG("'nope'", "'mtu': 9000"),
		.results = RESULT("a", "dummy0", "")};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	put(tables.allocations,
		ALLOC_ROW("dummy0", "uid-1", "pod-1", ", 'Config': {'podIfName': 'dummy2'}"));
	read_claim(&parts, &claim);
	ck_assert_msg(plan_of(&claim, false, &plan, &err) == 0, "%s", err.message);
	ck_assert_str_eq(plan.items[0].reuse->config->pod_if_name, "dummy2");
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* A device that is set up beside one that was: its name against the one that this has. */
START_TEST(test_name_of_a_reused_device)
{
	const struct parts parts = {.results = RESULT("a", "dummy1", "") ", " RESULT("b", "dummy0", ""),
		.configs = CONFIG("'a'", "'podIfName': 'old'")};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	put(tables.allocations,
		ALLOC_ROW("dummy0", "uid-1", "pod-1", ", 'Config': {'podIfName': 'old'}"));
	read_claim(&parts, &claim);
	ck_assert_int_lt(plan_of(&claim, false, &plan, &err), 0);
	ck_assert_msg(strstr(err.message, "request a, device dummy1: parameters.podIfName: two devices"),
		"%s", err.message);
	plan_fini(&plan);
	rec_fini(&rec_claim, &claim);
}
END_TEST

START_TEST(test_replaced_or_not_allocated)
{
	const struct plan_rules rules = {.driver_name = DRIVER, .node_name = NODE};
	const struct parts parts = {0};
	struct err err = ERR_INIT;
	struct claim claim;
	struct plan plan;

	read_claim(&parts, &claim);
	ck_assert_int_lt(plan_make(&tables, &rules, &claim, "uid-2", &plan, &err), 0);
	ck_assert_int_eq(err.kind, ERR_CONFLICT);
	json_decref(claim.status->allocation->devices->results);
	json_decref(claim.status->allocation->devices->config);
	free(claim.status->allocation->devices);
	claim.status->allocation->devices = NULL;
	ck_assert_int_lt(plan_of(&claim, false, &plan, &err), 0);
	ck_assert_msg(strstr(err.message, "is not allocated"), "%s", err.message);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* --- restoring ---------------------------------------------------------------------------- */

static void add(void *ctx, struct alloc_row *row)
{
	(*(size_t *)ctx)++;
	rec_fini(&rec_alloc_row, row);
}

static void not_restored(void *ctx, const struct err *err)
{
	(void)ctx;
	ck_abort_msg("%s", err->message);
}

/* A plan would refuse all of it; what is prepared is not lost by that. */
START_TEST(test_restore_is_lenient)
{
	static const char config_text[] =
		"{'apiVersion': '" CONFIG_API_VERSION "', 'kind': '" CONFIG_KIND
		"', 'metadata': {'name': '" NODE
		"'}, 'spec': {'deviceManagerConfigs': {'dummy': {'enabled': true}}}}";
	static const char claim_text[] =
		"{'apiVersion': 'resource.k8s.io/v1beta1', 'metadata': {'name': 'c1', "
		"'namespace': 'default', 'uid': 'uid-1', 'annotations': "
		"{'resource.kubernetes.io/pod-claim-name': '..'}}, 'spec': 7, 'status': "
		"{'allocation': {'devices': {'results': [7, " OTHERS("gpu") ", "
		RESULT("net", "dummy0", ", 'adminAccess': true, 'future': 1")
		"], 'config': 7}}, 'reservedFor': [{'resource': 'jobs', 'name': 'j', 'uid': 'j'}],"
		" 'devices': [{'driver': '" DRIVER "', 'pool': 'worker-9', 'device': 'dummy0', "
		"'data': {'Manager': 'dummy', 'Dev': {}, 'Future': 1, 'Config': {'mtu': 9000, "
		"'podIfName': 'net1', 'interfaceSysctlIPv4': {'net.ipv4.conf.net1.a': '1'}}}}]}}";
	json_t *config_tree = tree_of(config_text), *tree = tree_of(claim_text);
	struct node_config config;
	struct err err = ERR_INIT;
	struct claim claim = {0};
	size_t rows = 0;

	ck_assert_int_eq(config_decode(config_tree, NULL, NULL, &config, &err), 0);
	ck_assert_msg(claim_decode(tree, &claim, &err) == 0, "%s", err.message);
	ck_assert(!claim_restore(&claim, DRIVER, &config, add, not_restored, &rows));
	ck_assert_uint_eq(rows, 1);
	rec_fini(&rec_claim, &claim);
	config_fini(&config);
	json_decref(tree);
	json_decref(config_tree);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("claim");
	TCase *tc = tcase_create("claim");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(refusals));
	tcase_add_loop_test(tc, test_accepted, 0, ARRAY_SIZE(acceptances));
	tcase_add_test(tc, test_unknown_parameter_as_a_warning);
	tcase_add_test(tc, test_wrong_value_is_no_warning);
	tcase_add_test(tc, test_stale_and_reused);
	tcase_add_test(tc, test_stale_of_a_refused_claim);
	tcase_add_test(tc, test_nothing_is_stale_of_what_is_not_understood);
	tcase_add_test(tc, test_parameters_too_big_for_the_status);
	tcase_add_test(tc, test_name_of_a_stale_device);
	tcase_add_test(tc, test_parameters_of_then);
	tcase_add_test(tc, test_name_of_a_reused_device);
	tcase_add_test(tc, test_replaced_or_not_allocated);
	tcase_add_test(tc, test_restore_is_lenient);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
