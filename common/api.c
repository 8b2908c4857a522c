/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract's tables. Nothing here computes: this page is to be read beside api.h.
 *
 * Bounds are those of Kubernetes where it has one (names, UIDs, 64 bytes of an attribute's
 * value,
 * 32 results of a claim), the kernel's for interfaces, and otherwise what keeps a message well
 * under the RPC's 16 MiB.
 */
#include "common/api.h"

#include <string.h>
#include <strings.h>

#include "common/check.h"

#define MAX_DEVICES     DEVICE_LIST_MAX_DEVICES /* of one manager */
#define MAX_ALLOCATIONS 16384
#define MAX_RESULTS     32  /* allocation results of a claim (resource.k8s.io/v1) */
#define MAX_POD_DEVICES 256 /* of one pod, over all its claims */
#define MAX_PODS        8192
#define MAX_CONSUMERS   256 /* of a claim: ResourceClaimReservedForMaxSize */
#define MAX_POD_CLAIMS  256 /* that one container names */
#define MAX_SYSCTLS     128
#define MAX_ERROR       ERR_MESSAGE_MAX
#define MAX_ANY_INT     INT64_MAX
#define MAX_UID         63
#define MAX_LABEL       63
#define MAX_SUBDOMAIN   253
#define MAX_IF_NAME     15 /* IFNAMSIZ - 1 */
#define MAX_SANDBOX     128
#define MAX_DRA_POOL    253
#define MAX_REQUEST     127 /* label/label */
#define MAX_POOL        64
#define MAX_WORD        32
#define MAX_TEXT        1024

#define FIELDS_OF(name) static const struct rec_field name[] =

/* --- devices ------------------------------------------------------------------------------ */

static const char *const manager_names[MANAGER_TYPE_MAX] = {
	[MANAGER_DUMMY] = "dummy",
	[MANAGER_SRIOV] = "sr-iov",
	[MANAGER_RXQUEUE] = "rxQueue",
};

const char *manager_type_name(enum manager_type type)
{
	return manager_names[type];
}

enum manager_type manager_type_parse(const char *name)
{
	for (int t = 0; t < MANAGER_TYPE_MAX; t++)
		if (strcasecmp(manager_names[t], name) == 0)
			return (enum manager_type)t;
	return MANAGER_INVALID;
}

FIELDS_OF(device_config_fields){
	REC_STR(struct device_config, pod_if_name, "podIfName", REC_OPTIONAL, 0, check_if_name,
		"name of the interface in the pod"),
	/* 4095 is reserved by IEEE 802.1Q, and some drivers accept it: refused here */
	REC_INT(struct device_config, vlan, "vlan", REC_OPTIONAL, 0, 4094,
		"802.1Q VLAN of an SR-IOV virtual function; 0: untagged"),
	REC_STRMAP(struct device_config, sysctl_ipv4, "interfaceSysctlIPv4", REC_OPTIONAL,
		MAX_SYSCTLS, check_sysctl_leaf,
		"leaf -> value below net.ipv4.conf.<interface>"),
	REC_STRMAP(struct device_config, sysctl_ipv6, "interfaceSysctlIPv6", REC_OPTIONAL,
		MAX_SYSCTLS, check_sysctl_leaf,
		"leaf -> value below net.ipv6.conf.<interface>"),
};

static int check_sysctl_values(const struct strmap *m, const char *family, struct err *err)
{
	for (size_t i = 0; i < m->n; i++)
		if (!*m->v[i].value)
			return err_set(err, ERR_INVALID, "%s.%s: value must not be empty",
				family, m->v[i].key);
	return 0;
}

static int check_device_config(const void *rec, struct err *err)
{
	const struct device_config *c = rec;

	if (check_sysctl_values(&c->sysctl_ipv4, "interfaceSysctlIPv4", err) < 0)
		return -1;
	return check_sysctl_values(&c->sysctl_ipv6, "interfaceSysctlIPv6", err);
}

REC_DESC(rec_device_config, struct device_config, "device configuration", device_config_fields,
	check_device_config, "opaque parameters of a claim");

FIELDS_OF(device_fields){
	REC_STR(struct device, name, "name", REC_REQUIRED, MAX_LABEL, check_dns_label,
		"name in the ResourceSlice"),
	REC_STR(struct device, if_name, "ifName", REC_OPTIONAL, MAX_IF_NAME,
		check_kernel_if_name,
		"interface name in the pod unless the claim asks for one"),
	REC_STR(struct device, kernel_if_name, "kernelIfName", REC_OPTIONAL, MAX_IF_NAME,
		check_kernel_if_name, "interface name on the host; unset: it has no netdev"),
	REC_PACKED(struct device, state, "state", REC_REQUIRED,
		"the manager's own; goes into the claim's status and back"),
	REC_PACKED(struct device, attributes, "attributes", REC_OPTIONAL,
		"name -> {string|int|bool|version: value}"),
	REC_PACKED(struct device, capacity, "capacity", REC_OPTIONAL,
		"name -> {value, requestPolicy}"),
	REC_BOOL(struct device, allow_multiple, "allowMultipleAllocations", REC_OPTIONAL,
		"several claims may share it"),
	REC_BOOL(struct device, observe, "observe", REC_OPTIONAL,
		"device.observe comes before device.setup"),
	REC_PACKED(struct device, alternatives, "alternatives", REC_OPTIONAL,
		"attribute -> [further values that pool filters find it by]"),
};
REC_DESC(rec_device, struct device, "device", device_fields, NULL, "a device of a manager");

FIELDS_OF(device_alloc_fields){
	REC_SUB(struct device_alloc, device, "device", REC_REQUIRED, struct device, &rec_device,
		"advertised (observe, setup), observed (setup) or prepared (all others)"),
	REC_STR(struct device_alloc, claim_uid, "claimUID", REC_REQUIRED, MAX_UID, check_uid,
		"claim that it is allocated to"),
	REC_STR(struct device_alloc, share_id, "shareID", REC_OPTIONAL, MAX_UID, check_uid,
		"share; unset: dedicated"),
	REC_STRMAP(struct device_alloc, consumed_capacity, "consumedCapacity", REC_OPTIONAL,
		MAX_RESULTS, NULL, "capacity name -> quantity"),
	REC_SUB(struct device_alloc, config, "config", REC_OPTIONAL, struct device_config,
		&rec_device_config, "what the claim asks for"),
};
REC_DESC(rec_device_alloc, struct device_alloc, "allocation", device_alloc_fields, NULL,
	"one allocation as a manager sees it");

/* --- rows --------------------------------------------------------------------------------- */

#define DEVICE_ROW_SEED                                                                        \
	REC_STR(struct device_row, name, "Name", REC_REQUIRED, MAX_LABEL, NULL,                \
		"primary key; name in the ResourceSlice"),                                     \
		REC_STR(struct device_row, manager, "Manager", REC_REQUIRED, MAX_WORD, NULL,   \
			"type of its manager"),                                                \
		REC_PACKED(struct device_row, dev, "Dev", REC_ALWAYS, "the manager's state")

FIELDS_OF(device_row_statedb_fields){DEVICE_ROW_SEED};
FIELDS_OF(device_row_fields){
	DEVICE_ROW_SEED,
	REC_SUB(struct device_row, device, "Device", REC_OPTIONAL, struct device, &rec_device,
		"as the manager told it"),
	REC_STR(struct device_row, pool, "Pool", REC_OPTIONAL, MAX_POOL, NULL,
		"logical pool it is published in"),
	REC_STR(struct device_row, note, "Note", REC_OPTIONAL, MAX_TEXT, NULL,
		"why it is not published"),
};
REC_DESC(rec_device_row_statedb, struct device_row, "device row", device_row_statedb_fields,
	NULL, "networkdriver-dra-devices, the seed's columns");
REC_DESC(rec_device_row, struct device_row, "device row", device_row_fields, NULL,
	"networkdriver-dra-devices");

#define ALLOC_ROW_SEED                                                                         \
	REC_STR(struct alloc_row, device_name, "DeviceName", REC_REQUIRED, MAX_LABEL, NULL,    \
		"device; part of the key"),                                                    \
		REC_STR(struct alloc_row, manager, "Manager", REC_REQUIRED, MAX_WORD, NULL,    \
			"type of its manager"),                                                \
		REC_PACKED(struct alloc_row, prepared_device, "PreparedDevice", REC_ALWAYS,    \
			"the manager's state of the prepared device"),                         \
		REC_STR(struct alloc_row, logical_pool, "LogicalPool", REC_ALWAYS, MAX_POOL,   \
			NULL, "configured pool at prepare time; part of the key"),             \
		REC_STR(struct alloc_row, pod_uid, "PodUID", REC_ALWAYS, MAX_UID, NULL,        \
			"pod that the claim is reserved for"),                                 \
		REC_STR(struct alloc_row, claim_uid, "ClaimUID", REC_ALWAYS, MAX_UID, NULL,    \
			"ResourceClaim"),                                                      \
		REC_SUB(struct alloc_row, config, "Config", REC_ALWAYS, struct device_config,  \
			&rec_device_config, "what the claim asks for"),                        \
		REC_STR(struct alloc_row, share_id, "ShareID", REC_ALWAYS, MAX_UID, NULL,      \
			"share, empty if dedicated; part of the key"),                         \
		REC_STRMAP(struct alloc_row, consumed_capacity, "ConsumedCapacity",            \
			REC_ALWAYS, MAX_RESULTS, NULL, "capacity of the share")

FIELDS_OF(alloc_row_statedb_fields){ALLOC_ROW_SEED};
FIELDS_OF(alloc_row_fields){
	ALLOC_ROW_SEED,
	REC_STR(struct alloc_row, claim_namespace, "ClaimNamespace", REC_OPTIONAL,
		MAX_SUBDOMAIN, NULL, "of the ResourceClaim"),
	REC_STR(struct alloc_row, claim_name, "ClaimName", REC_OPTIONAL, MAX_SUBDOMAIN, NULL,
		"of the ResourceClaim"),
	REC_STR(struct alloc_row, request, "Request", REC_OPTIONAL, MAX_REQUEST, NULL,
		"request of the claim, with its subrequest"),
	REC_STR(struct alloc_row, dra_pool, "DRAPool", REC_OPTIONAL, MAX_DRA_POOL, NULL,
		"pool of the ResourceSlice: the node"),
	REC_STR(struct alloc_row, sandbox_id, "SandboxID", REC_OPTIONAL, MAX_SANDBOX, NULL,
		"sandbox that it is attached to"),
	REC_STR(struct alloc_row, pod_if_name, "PodIfName", REC_OPTIONAL, MAX_IF_NAME, NULL,
		"its name in that sandbox"),
	REC_STR(struct alloc_row, problem, "Problem", REC_OPTIONAL, MAX_ERROR, NULL,
		"last failure of attach, detach or free"),
	REC_SUB(struct alloc_row, prepared, "Prepared", REC_OPTIONAL, struct device,
		&rec_device, "as the manager returned it"),
	REC_BOOL(struct alloc_row, unfinished, "Unfinished", REC_OPTIONAL,
		"its setup is under way, or is to be undone"),
	REC_BOOL(struct alloc_row, has_left, "HasLeft", REC_OPTIONAL,
		"it was in a sandbox of the pod that has ended"),
	REC_BOOL(struct alloc_row, generated, "Generated", REC_OPTIONAL,
		"a template made the claim"),
	REC_INT(struct alloc_row, generation, "ClaimGeneration", REC_OPTIONAL, 0, MAX_ANY_INT,
		"of the claim as it was prepared"),
	REC_STRLIST(struct alloc_row, pods, "Pods", REC_OPTIONAL, MAX_CONSUMERS, NULL,
		"pods that may have it, where it is not known which one"),
};
REC_DESC(rec_alloc_row_statedb, struct alloc_row, "allocation row", alloc_row_statedb_fields,
	NULL, "networkdriver-dra-allocations, the seed's columns");
REC_DESC(rec_alloc_row, struct alloc_row, "allocation row", alloc_row_fields, NULL,
	"networkdriver-dra-allocations");

/* --- requests and results ----------------------------------------------------------------- */

const struct rec_desc rec_empty = {
	.name = "nothing",
	.size = sizeof(struct empty),
	.doc = "no fields",
};

FIELDS_OF(manager_hello_fields){
	REC_STR(struct manager_hello, type, "type", REC_REQUIRED, MAX_WORD, NULL,
		"a manager's type, or netns"),
	REC_STR(struct manager_hello, version, "version", REC_REQUIRED, MAX_WORD, NULL,
		"of the program"),
};
static REC_DESC(rec_manager_hello, struct manager_hello, "hello", manager_hello_fields, NULL,
	"who connects");

FIELDS_OF(manager_hello_result_fields){
	REC_OBJECT(struct manager_hello_result, config, "config", REC_REQUIRED,
		"its section of deviceManagerConfigs"),
};
static REC_DESC(rec_manager_hello_result, struct manager_hello_result, "hello result",
	manager_hello_result_fields, NULL, "what a manager works from");

static int check_note(const char *text, struct err *err)
{
	if (!*text || strlen(text) >= DEVICE_LIST_NOTE_SIZE)
		return err_set(err, ERR_INVALID, "must have 1 to %d bytes",
			DEVICE_LIST_NOTE_SIZE - 1);
	return 0;
}

FIELDS_OF(device_list_fields){
	REC_RECS(struct device_list, devices, "devices", REC_OPTIONAL, MAX_DEVICES,
		struct device, &rec_device, "the complete inventory"),
	REC_STRLIST(struct device_list, notes, "notes", REC_OPTIONAL, DEVICE_LIST_MAX_NOTES,
		check_note, "what an operator should know, a sentence each"),
};
const struct rec_desc rec_device_list = {
	.name = "inventory",
	.size = sizeof(struct device_list),
	.fields = device_list_fields,
	.n_fields = ARRAY_SIZE(device_list_fields),
	.doc = "devices of a manager",
};

FIELDS_OF(alloc_list_fields){
	REC_RECS(struct alloc_list, allocations, "allocations", REC_OPTIONAL, MAX_ALLOCATIONS,
		struct device_alloc, &rec_device_alloc, "what was prepared before"),
};
static REC_DESC(rec_alloc_list, struct alloc_list, "allocations", alloc_list_fields, NULL,
	"allocations of a manager");

FIELDS_OF(restore_verdict_fields){
	REC_SUB(struct restore_verdict, device, "device", REC_OPTIONAL, struct device,
		&rec_device, "rebuilt"),
	REC_STR(struct restore_verdict, error, "error", REC_OPTIONAL, MAX_ERROR, NULL,
		"why it could not be"),
};
static REC_DESC(rec_restore_verdict, struct restore_verdict, "verdict", restore_verdict_fields,
	NULL, "one restored allocation");

FIELDS_OF(restore_result_fields){
	REC_RECS(struct restore_result, verdicts, "verdicts", REC_OPTIONAL, MAX_ALLOCATIONS,
		struct restore_verdict, &rec_restore_verdict, "one each, in order"),
};
static REC_DESC(rec_restore_result, struct restore_result, "verdicts", restore_result_fields,
	NULL, "answer to a restore");

FIELDS_OF(device_result_fields){
	REC_SUB(struct device_result, device, "device", REC_REQUIRED, struct device,
		&rec_device, "prepared"),
};
static REC_DESC(rec_device_result, struct device_result, "prepared device",
	device_result_fields, NULL, "answer to setup and recover");

FIELDS_OF(name_list_fields){
	REC_STRLIST(struct name_list, names, "names", REC_REQUIRED, MAX_POD_DEVICES,
		check_kernel_if_name, "interface names about to be used"),
	REC_STRLIST(struct name_list, claim_uids, "claimUIDs", REC_OPTIONAL, MAX_POD_DEVICES,
		check_uid, "claims whose marked links do not count"),
};
static REC_DESC(rec_name_list, struct name_list, "names", name_list_fields, NULL,
	"names to be checked in a namespace");

FIELDS_OF(device_appeared_fields){
	REC_STR(struct device_appeared, name, "name", REC_REQUIRED, MAX_LABEL, check_dns_label,
		"of the device"),
};
static REC_DESC(rec_device_appeared, struct device_appeared, "device", device_appeared_fields,
	NULL, "a device whose link has appeared");

FIELDS_OF(device_attach_fields){
	REC_SUB(struct device_attach, allocation, "allocation", REC_REQUIRED,
		struct device_alloc, &rec_device_alloc, "what is attached"),
	/* what the claim asks for was checked as such; without a wish it is the device's own */
	REC_STR(struct device_attach, if_name, "ifName", REC_REQUIRED, 0, check_kernel_if_name,
		"its name in the pod"),
	REC_STR(struct device_attach, sandbox_id, "sandboxID", REC_REQUIRED, 0,
		check_sandbox_id, "the pod's sandbox"),
	REC_BOOL(struct device_attach, keep_down, "keepDown", REC_OPTIONAL,
		"it is not brought up yet"),
	REC_BOOL(struct device_attach, may_be_there, "mayBeThere", REC_OPTIONAL,
		"it was attached to this sandbox before"),
};
static REC_DESC(rec_device_attach, struct device_attach, "attachment", device_attach_fields,
	NULL, "a device and a sandbox");

FIELDS_OF(device_attach_result_fields){
	REC_STR(struct device_attach_result, if_name, "ifName", REC_REQUIRED, MAX_IF_NAME,
		check_kernel_if_name, "its name in the pod"),
	REC_BOOL(struct device_attach_result, was_there, "wasThere", REC_OPTIONAL,
		"nothing had to be changed"),
};
static REC_DESC(rec_device_attach_result, struct device_attach_result, "attached device",
	device_attach_result_fields, NULL, "answer to attach");

FIELDS_OF(device_reclaim_result_fields){
	REC_BOOL(struct device_reclaim_result, not_found, "notFound", REC_OPTIONAL,
		"nothing of it is on the host: its link has ended with its namespace, if that has"),
};
static REC_DESC(rec_device_reclaim_result, struct device_reclaim_result, "reclaimed device",
	device_reclaim_result_fields, NULL, "answer to reclaim");

FIELDS_OF(device_audit_fields){
	REC_STRLIST(struct device_audit, claim_uids, "claimUIDs", REC_OPTIONAL, MAX_ALLOCATIONS,
		check_uid, "claims that have allocations, or are being prepared"),
};
static REC_DESC(rec_device_audit, struct device_audit, "audit", device_audit_fields, NULL,
	"which claims are known");

FIELDS_OF(device_audit_result_fields){
	REC_RECS(struct device_audit_result, leftovers, "leftovers", REC_OPTIONAL, MAX_DEVICES,
		struct device_alloc, &rec_device_alloc,
		"what was found: device.free undoes it"),
};
static REC_DESC(rec_device_audit_result, struct device_audit_result, "leftovers",
	device_audit_result_fields, NULL, "answer to an audit");

static int check_protocol(const char *text, struct err *err)
{
	if (strcmp(text, "route") == 0 || strcmp(text, "generic") == 0)
		return 0;
	return err_set(
		err, ERR_INVALID, "\"%s\" is not a protocol; these are: route, generic", text);
}

static int check_family(const char *text, struct err *err)
{
	if (strcmp(text, "ipv4") == 0 || strcmp(text, "ipv6") == 0)
		return 0;
	return err_set(err, ERR_INVALID, "\"%s\" is not a family; these are: ipv4, ipv6", text);
}

FIELDS_OF(netns_socket_fields){
	REC_STR(struct netns_socket, protocol, "protocol", REC_REQUIRED, MAX_WORD,
		check_protocol, "route or generic netlink"),
};
static REC_DESC(rec_netns_socket, struct netns_socket, "socket", netns_socket_fields, NULL,
	"which netlink socket to open");

FIELDS_OF(sysctl_setting_fields){
	REC_STR(struct sysctl_setting, family, "family", REC_REQUIRED, MAX_WORD, check_family,
		"ipv4 or ipv6"),
	REC_STR(struct sysctl_setting, leaf, "leaf", REC_REQUIRED, MAX_TEXT, check_sysctl_leaf,
		"below conf.<interface>"),
	REC_STR(struct sysctl_setting, value, "value", REC_REQUIRED, 0, NULL, "to be written"),
};
static REC_DESC(rec_sysctl_setting, struct sysctl_setting, "setting", sysctl_setting_fields,
	NULL, "one sysctl of an interface");

FIELDS_OF(netns_sysctl_fields){
	REC_STR(struct netns_sysctl, if_name, "ifName", REC_REQUIRED, 0, check_kernel_if_name,
		"interface in the namespace"),
	REC_RECS(struct netns_sysctl, settings, "settings", REC_REQUIRED, 2 * MAX_SYSCTLS,
		struct sysctl_setting, &rec_sysctl_setting, "applied in this order"),
};
static REC_DESC(rec_netns_sysctl, struct netns_sysctl, "settings", netns_sysctl_fields, NULL,
	"sysctls of one interface");

FIELDS_OF(front_hello_fields){
	REC_STR(struct front_hello, role, "role", REC_REQUIRED, MAX_WORD, NULL,
		"draplugind or nrihookd"),
	REC_STR(struct front_hello, version, "version", REC_REQUIRED, MAX_WORD, NULL,
		"of the program"),
};
static REC_DESC(
	rec_front_hello, struct front_hello, "hello", front_hello_fields, NULL, "who connects");

FIELDS_OF(front_hello_result_fields){
	REC_STR(struct front_hello_result, driver_name, "driverName", REC_REQUIRED, MAX_LABEL,
		check_driver_name, "DRA driver and NRI plugin"),
	REC_STR(struct front_hello_result, node_name, "nodeName", REC_REQUIRED, MAX_SUBDOMAIN,
		check_dns_subdomain, "this node"),
	REC_INT(struct front_hello_result, retry_interval_ms, "retryIntervalMs", REC_REQUIRED,
		1, MAX_ANY_INT, "between registration attempts"),
	REC_INT(struct front_hello_result, registration_timeout_ms, "registrationTimeoutMs",
		REC_REQUIRED, 1, MAX_ANY_INT, "for one attempt"),
	REC_INT(struct front_hello_result, max_attempts, "maxAttempts", REC_REQUIRED, 1,
		MAX_ANY_INT, "before giving up"),
	REC_BOOL(struct front_hello_result, ready, "ready", REC_REQUIRED,
		"both tables are initialised"),
	REC_INT(struct front_hello_result, state_dev, "stateDev", REC_OPTIONAL, INT64_MIN,
		INT64_MAX, "st_dev of the state directory"),
	REC_INT(struct front_hello_result, state_ino, "stateIno", REC_OPTIONAL, INT64_MIN,
		INT64_MAX, "st_ino of the state directory"),
};
static REC_DESC(rec_front_hello_result, struct front_hello_result, "hello result",
	front_hello_result_fields, NULL, "what a front works from");

FIELDS_OF(front_state_fields){
	REC_STR(struct front_state, state, "state", REC_REQUIRED, MAX_WORD, NULL, "one word"),
	REC_STR(struct front_state, detail, "detail", REC_OPTIONAL, MAX_TEXT, NULL,
		"who is at the other end, or what is wrong"),
};
static REC_DESC(rec_front_state, struct front_state, "state", front_state_fields, NULL,
	"how the front fares");

FIELDS_OF(claim_ref_fields){
	REC_STR(struct claim_ref, namespace, "namespace", REC_REQUIRED, MAX_LABEL,
		check_dns_label, "of the ResourceClaim"),
	REC_STR(struct claim_ref, name, "name", REC_REQUIRED, MAX_SUBDOMAIN,
		check_dns_subdomain, "of the ResourceClaim"),
	REC_STR(struct claim_ref, uid, "uid", REC_REQUIRED, MAX_UID, check_uid,
		"of the ResourceClaim: decides when they differ"),
};
static REC_DESC(
	rec_claim_ref, struct claim_ref, "claim", claim_ref_fields, NULL, "a ResourceClaim");

FIELDS_OF(prepared_device_fields){
	REC_STR(struct prepared_device, request, "request", REC_REQUIRED, MAX_REQUEST,
		check_request_ref, "with its subrequest"),
	REC_STR(struct prepared_device, pool, "pool", REC_REQUIRED, MAX_DRA_POOL, NULL,
		"DRA pool: the node"),
	REC_STR(struct prepared_device, device, "device", REC_REQUIRED, MAX_LABEL,
		check_dns_label, "name in the ResourceSlice"),
	REC_STR(struct prepared_device, share_id, "shareID", REC_OPTIONAL, MAX_UID, check_uid,
		"share; unset: dedicated"),
	REC_STR(struct prepared_device, if_name, "ifName", REC_OPTIONAL, MAX_IF_NAME, NULL,
		"final name in the pod; unset: no netdev"),
	REC_PACKED(struct prepared_device, attributes, "attributes", REC_OPTIONAL,
		"for the workload: the device's, its pool and manager"),
};
static REC_DESC(rec_prepared_device, struct prepared_device, "prepared device",
	prepared_device_fields, NULL, "one result of a claim");

FIELDS_OF(claim_prepare_result_fields){
	REC_STR(struct claim_prepare_result, pod_claim_name, "podClaimName", REC_OPTIONAL,
		MAX_SUBDOMAIN, check_dns_label, "set when a template made the claim"),
	REC_RECS(struct claim_prepare_result, devices, "devices", REC_OPTIONAL, MAX_RESULTS,
		struct prepared_device, &rec_prepared_device, "in the order of the allocation"),
};
static REC_DESC(rec_claim_prepare_result, struct claim_prepare_result, "prepared claim",
	claim_prepare_result_fields, NULL, "what the kubelet and the workload are told");

FIELDS_OF(pod_attach_fields){
	REC_STR(struct pod_attach, pod_uid, "podUID", REC_REQUIRED, MAX_UID, check_uid,
		"finds the allocations"),
	REC_STR(struct pod_attach, sandbox_id, "sandboxID", REC_REQUIRED, 0, check_sandbox_id,
		"keeps the attachment"),
	REC_STR(struct pod_attach, pod_name, "podName", REC_OPTIONAL, MAX_SUBDOMAIN, NULL,
		"for messages"),
	REC_STR(struct pod_attach, pod_namespace, "podNamespace", REC_OPTIONAL, MAX_SUBDOMAIN,
		NULL, "for messages"),
	REC_STRLIST(struct pod_attach, claims, "claims", REC_OPTIONAL, MAX_POD_CLAIMS,
		check_claim_dir, "that its containers were given"),
};
static REC_DESC(rec_pod_attach, struct pod_attach, "pod", pod_attach_fields, NULL,
	"a sandbox that starts");

FIELDS_OF(pod_attach_result_fields){
	REC_INT(struct pod_attach_result, devices, "devices", REC_REQUIRED, 0, MAX_ALLOCATIONS,
		"that are in the sandbox now"),
	REC_STRLIST(struct pod_attach_result, claims, "claims", REC_OPTIONAL, MAX_POD_CLAIMS,
		check_claim_dir, "that it has all devices of"),
};
static REC_DESC(rec_pod_attach_result, struct pod_attach_result, "attached pod",
	pod_attach_result_fields, NULL, "answer to an attach");

FIELDS_OF(pod_detach_fields){
	REC_STR(struct pod_detach, pod_uid, "podUID", REC_REQUIRED, MAX_UID, check_uid,
		"the pod"),
	REC_STR(struct pod_detach, sandbox_id, "sandboxID", REC_REQUIRED, 0, check_sandbox_id,
		"the sandbox that ends; another one's devices are left alone"),
};
static REC_DESC(rec_pod_detach, struct pod_detach, "pod", pod_detach_fields, NULL,
	"a sandbox that ends");

FIELDS_OF(pod_check_result_fields){
	REC_INT(struct pod_check_result, wanted, "wanted", REC_REQUIRED, 0, MAX_ALLOCATIONS,
		"devices that are to be in the sandbox"),
	REC_INT(struct pod_check_result, there, "there", REC_REQUIRED, 0, MAX_ALLOCATIONS,
		"those of them that are"),
};
static REC_DESC(rec_pod_check_result, struct pod_check_result, "pod's devices",
	pod_check_result_fields, NULL, "answer to a check");

FIELDS_OF(pod_ref_fields){
	REC_STR(struct pod_ref, pod_uid, "podUID", REC_REQUIRED, MAX_UID, check_uid, "the pod"),
	REC_STR(struct pod_ref, sandbox_id, "sandboxID", REC_REQUIRED, 0, check_sandbox_id,
		"its sandbox"),
	REC_STRLIST(struct pod_ref, claims, "claims", REC_OPTIONAL, MAX_POD_CLAIMS,
		check_claim_dir, "that the container at hand was given"),
};
static REC_DESC(rec_pod_ref, struct pod_ref, "pod", pod_ref_fields, NULL, "a live sandbox");

FIELDS_OF(pod_sync_fields){
	REC_RECS(struct pod_sync, pods, "pods", REC_OPTIONAL, MAX_PODS, struct pod_ref,
		&rec_pod_ref, "every live sandbox with a network namespace of its own"),
};
static REC_DESC(
	rec_pod_sync, struct pod_sync, "pods", pod_sync_fields, NULL, "what the runtime has");

FIELDS_OF(pod_sync_result_fields){
	REC_STRLIST(struct pod_sync_result, sandbox_ids, "sandboxIDs", REC_OPTIONAL, MAX_PODS,
		check_sandbox_id, "to be attached now"),
};
static REC_DESC(rec_pod_sync_result, struct pod_sync_result, "pods wanted",
	pod_sync_result_fields, NULL, "those that have allocations");

FIELDS_OF(table_list_fields){
	REC_STR(struct table_list, table, "table", REC_OPTIONAL, MAX_LABEL, NULL,
		"one table; unset: both"),
};
static REC_DESC(
	rec_table_list, struct table_list, "tables", table_list_fields, NULL, "which tables");

FIELDS_OF(table_list_result_fields){
	REC_INT(struct table_list_result, revision, "revision", REC_REQUIRED, 0, MAX_ANY_INT,
		"of the tables"),
	REC_BOOL(struct table_list_result, initialized, "initialized", REC_REQUIRED,
		"both tables are"),
	REC_RECS(struct table_list_result, devices, "devices", REC_ALWAYS, 0, struct device_row,
		&rec_device_row, "rows in the order of their keys"),
	REC_RECS(struct table_list_result, allocations, "allocations", REC_ALWAYS, 0,
		struct alloc_row, &rec_alloc_row, "rows in the order of their keys"),
};
static REC_DESC(rec_table_list_result, struct table_list_result, "rows",
	table_list_result_fields, NULL, "rows of the tables");

FIELDS_OF(table_event_fields){
	REC_STR(struct table_event, table, "table", REC_REQUIRED, MAX_LABEL, NULL,
		"which table"),
	REC_INT(struct table_event, revision, "revision", REC_REQUIRED, 0, MAX_ANY_INT,
		"after the change"),
	REC_STR(struct table_event, op, "op", REC_REQUIRED, MAX_WORD, NULL,
		"insert, update or delete"),
	REC_SUB(struct table_event, device, "device", REC_OPTIONAL, struct device_row,
		&rec_device_row, "the row; of a delete the one that was"),
	REC_SUB(struct table_event, allocation, "allocation", REC_OPTIONAL, struct alloc_row,
		&rec_alloc_row, "the row; of a delete the one that was"),
};
static REC_DESC(rec_table_event, struct table_event, "event", table_event_fields, NULL,
	"one change of a table");

FIELDS_OF(status_peer_fields){
	REC_STR(struct status_peer, role, "role", REC_REQUIRED, MAX_LABEL, NULL,
		"which process"),
	REC_STR(struct status_peer, state, "state", REC_REQUIRED, MAX_WORD, NULL, "one word"),
	REC_STR(struct status_peer, detail, "detail", REC_OPTIONAL, MAX_TEXT, NULL,
		"what is known"),
	REC_INT(struct status_peer, since_ms, "sinceMs", REC_OPTIONAL, 0, MAX_ANY_INT,
		"wall clock, milliseconds since 1970"),
	REC_INT(struct status_peer, pid, "pid", REC_OPTIONAL, 0, MAX_ANY_INT, "process"),
	REC_INT(struct status_peer, uid, "uid", REC_OPTIONAL, 0, MAX_ANY_INT, "its user"),
	REC_INT(struct status_peer, pending, "pending", REC_OPTIONAL, 0, MAX_ANY_INT,
		"calls of ours that it has not answered"),
};
static REC_DESC(rec_status_peer, struct status_peer, "peer", status_peer_fields, NULL,
	"a process around statd");

FIELDS_OF(status_calls_fields){
	REC_STR(struct status_calls, request, "request", REC_REQUIRED, MAX_LABEL, NULL,
		"verb and resource"),
	REC_INT(struct status_calls, count, "count", REC_REQUIRED, 0, MAX_ANY_INT,
		"how often it was sent"),
};
static REC_DESC(rec_status_calls, struct status_calls, "calls", status_calls_fields, NULL,
	"requests of one kind to the API server");

FIELDS_OF(status_result_fields){
	REC_STR(struct status_result, version, "version", REC_REQUIRED, MAX_WORD, NULL,
		"of statd"),
	REC_STR(struct status_result, node_name, "nodeName", REC_REQUIRED, MAX_SUBDOMAIN, NULL,
		"this node"),
	REC_STR(struct status_result, driver_name, "driverName", REC_OPTIONAL, MAX_SUBDOMAIN,
		NULL, "DRA driver; unset: not configured yet"),
	REC_STR(struct status_result, config, "config", REC_REQUIRED, 0, NULL,
		"where the configuration is from"),
	REC_STR(struct status_result, store, "store", REC_REQUIRED, 0, NULL,
		"where the claims are from"),
	REC_STR(struct status_result, slices, "slices", REC_OPTIONAL, 0, NULL,
		"how the publication of ResourceSlices stands"),
	REC_INT(struct status_result, started_ms, "startedMs", REC_REQUIRED, 0, MAX_ANY_INT,
		"wall clock, milliseconds since 1970"),
	REC_BOOL(struct status_result, ready, "ready", REC_REQUIRED,
		"both tables are initialised"),
	REC_STRLIST(struct status_result, missing, "missing", REC_ALWAYS, 0, NULL,
		"what keeps it from being ready"),
	REC_STRLIST(struct status_result, notes, "notes", REC_ALWAYS, 0, NULL,
		"what a user should know besides"),
	REC_INT(struct status_result, devices, "devices", REC_REQUIRED, 0, MAX_ANY_INT, "rows"),
	REC_INT(struct status_result, allocations, "allocations", REC_REQUIRED, 0, MAX_ANY_INT,
		"rows"),
	REC_INT(struct status_result, revision, "revision", REC_REQUIRED, 0, MAX_ANY_INT,
		"of the tables"),
	REC_INT(struct status_result, status_due, "statusDue", REC_OPTIONAL, 0, MAX_ANY_INT,
		"claims whose status is still to be written"),
	REC_RECS(struct status_result, peers, "peers", REC_ALWAYS, 0, struct status_peer,
		&rec_status_peer, "expected or connected"),
	REC_RECS(struct status_result, calls, "calls", REC_OPTIONAL, 0, struct status_calls,
		&rec_status_calls, "to the API server since the start"),
};
static REC_DESC(rec_status_result, struct status_result, "status", status_result_fields, NULL,
	"how the node's driver fares");

FIELDS_OF(pool_status_fields){
	REC_STR(struct pool_status, name, "name", REC_REQUIRED, MAX_POOL, NULL, "of the pool"),
	REC_PACKED(struct pool_status, filter, "filter", REC_OPTIONAL,
		"as configured; unset: takes nothing"),
	REC_STRLIST(struct pool_status, devices, "devices", REC_ALWAYS, 0, NULL,
		"published in this pool"),
	REC_STRLIST(struct pool_status, allocated, "allocated", REC_ALWAYS, 0, NULL,
		"those of them with an allocation"),
};
static REC_DESC(rec_pool_status, struct pool_status, "pool", pool_status_fields, NULL,
	"one configured pool");

FIELDS_OF(pools_result_fields){
	REC_RECS(struct pools_result, pools, "pools", REC_ALWAYS, 0, struct pool_status,
		&rec_pool_status, "by name"),
	REC_STRLIST(struct pools_result, unmatched, "unmatched", REC_ALWAYS, 0, NULL,
		"devices that no pool takes"),
};
static REC_DESC(rec_pools_result, struct pools_result, "pools", pools_result_fields, NULL,
	"the configured pools");

/* --- methods ------------------------------------------------------------------------------ */

/* Deadlines: a manager's call may wait for a busy kernel (making links, moving them), so
 * seconds; what the runtime waits for must fit its 2 s (the NRI default), so those are shorter;
 * the kubelet gives 45 s to a whole prepare. */
static const struct api_method_info methods[API_METHOD_MAX] = {
	[API_MANAGER_HELLO] = {"manager.hello", "manager", "statd", &rec_manager_hello,
		&rec_manager_hello_result, 10000, 0, 0, true,
		"who connects; answered with its configuration"},
	[API_MANAGER_DEVICES] = {"manager.devices", "manager", "statd", &rec_device_list,
		&rec_empty, 10000, 0, 0, true, "the complete inventory, every time it changes"},
	[API_MANAGER_APPEARED] = {"manager.appeared", "manager", "statd", &rec_device_appeared,
		NULL, 0, 0, 0, true, "a device's link has appeared on the host"},
	[API_DEVICE_RESTORE] = {"device.restore", "statd", "manager", &rec_alloc_list,
		&rec_restore_result, 30000, 0, 0, true,
		"rebuild what was prepared before a restart; makes nothing in the kernel"},
	[API_DEVICE_OBSERVE] = {"device.observe", "statd", "manager", &rec_device_alloc,
		&rec_device_result, 1500, 0, 0, true,
		"how a device is before its setup, as a part of its state; touches nothing"},
	[API_DEVICE_SETUP] = {"device.setup", "statd", "manager", &rec_device_alloc,
		&rec_device_result, 10000, 0, 0, true, "prepare a device for an allocation"},
	[API_DEVICE_RECOVER] = {"device.recover", "statd", "manager", &rec_device_alloc,
		&rec_device_result, 1500, 0, 0, true,
		"make a prepared device again that is gone"},
	[API_DEVICE_FREE] = {"device.free", "statd", "manager", &rec_device_alloc, &rec_empty,
		10000, 0, 0, true, "undo a setup"},
	[API_DEVICE_CHECK] = {"device.check", "statd", "manager", &rec_name_list, &rec_empty,
		1500, 1, 0, true,
		"conflict if a name is taken in the namespace of the rtnetlink socket handed "
		"over"},
	[API_DEVICE_ATTACH] = {"device.attach", "statd", "manager", &rec_device_attach,
		&rec_device_attach_result, 1500, 2, 0, true,
		"move into the namespace handed over, with an rtnetlink socket inside it"},
	[API_DEVICE_DETACH] = {"device.detach", "statd", "manager", &rec_device_attach,
		&rec_empty, 1500, 2, 0, true, "take back as it was found"},
	[API_DEVICE_RECLAIM] = {"device.reclaim", "statd", "manager", &rec_device_alloc,
		&rec_device_reclaim_result, 1500, 0, 0, true,
		"put a link as it was that has come back to the host by itself; busy if it has "
		"not"},
	[API_DEVICE_AUDIT] = {"device.audit", "statd", "manager", &rec_device_audit,
		&rec_device_audit_result, 30000, 0, 0, true,
		"what in the kernel is ours and belongs to no claim of the list"},
	[API_NETNS_SOCKET] = {"netns.socket", "statd", "netnsd", &rec_netns_socket, &rec_empty,
		1500, 1, 1, true, "a netlink socket opened inside the namespace handed over"},
	[API_NETNS_SYSCTL] = {"netns.sysctl", "statd", "netnsd", &rec_netns_sysctl, &rec_empty,
		1500, 1, 0, true, "write sysctls of an interface in the namespace handed over"},
	[API_FRONT_HELLO] = {"front.hello", "front", "statd", &rec_front_hello,
		&rec_front_hello_result, 10000, 0, 0, true,
		"who connects; answered with its settings"},
	[API_FRONT_STATE] = {"front.state", "front", "statd", &rec_front_state, NULL, 0, 0, 0,
		true, "how its registration stands"},
	[API_CLAIM_PREPARE] = {"claim.prepare", "draplugind", "statd", &rec_claim_ref,
		&rec_claim_prepare_result, 40000, 0, 0, true,
		"NodePrepareResources of one claim"},
	[API_CLAIM_UNPREPARE] = {"claim.unprepare", "draplugind", "statd", &rec_claim_ref,
		&rec_empty, 40000, 0, 0, true, "NodeUnprepareResources of one claim"},
	[API_POD_ATTACH] = {"pod.attach", "nrihookd", "statd", &rec_pod_attach,
		&rec_pod_attach_result, 1800, 1, 0, true,
		"hand over the pod's devices into the namespace handed over"},
	[API_POD_DETACH] = {"pod.detach", "nrihookd", "statd", &rec_pod_detach, &rec_empty,
		1800, 0, 0, true, "take back what this sandbox holds"},
	[API_POD_SYNC] = {"pod.sync", "nrihookd", "statd", &rec_pod_sync, &rec_pod_sync_result,
		10000, 0, 0, true, "what the runtime has; answered with what it lacks"},
	[API_POD_CHECK] = {"pod.check", "nrihookd", "statd", &rec_pod_ref,
		&rec_pod_check_result, 1000, 0, 0, true,
		"how many devices the pod is to have in this sandbox, and has"},
	[API_FRONT_READY] = {"front.ready", "statd", "front", &rec_empty, NULL, 0, 0, 0, true,
		"both tables are initialised: register now"},
	[API_TABLE_LIST] = {"table.list", "anyone", "statd", &rec_table_list,
		&rec_table_list_result, 10000, 0, 0, true, "rows of the tables"},
	[API_TABLE_WATCH] = {"table.watch", "anyone", "statd", &rec_table_list,
		&rec_table_list_result, 10000, 0, 0, true,
		"as table.list, and table.event from now on"},
	[API_STATUS] = {"status", "anyone", "statd", &rec_empty, &rec_status_result, 10000, 0,
		0, true, "who is connected, what is missing, since when"},
	[API_POOLS] = {"pools", "anyone", "statd", &rec_empty, &rec_pools_result, 10000, 0, 0,
		true, "configured pools and their devices"},
	[API_TABLE_EVENT] = {"table.event", "statd", "watcher", &rec_table_event, NULL, 0, 0, 0,
		true, "one change of a table"},
};

const struct api_method_info *api_method_info(enum api_method method)
{
	return &methods[method];
}

enum api_method api_method_parse(const char *name, size_t len)
{
	for (int m = 0; m < API_METHOD_MAX; m++)
		if (strlen(methods[m].name) == len && memcmp(methods[m].name, name, len) == 0)
			return (enum api_method)m;
	return API_METHOD_MAX;
}
