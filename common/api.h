/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The contract between the daemons: every record and every method, declared once.
 *
 * Both ends of every socket compile this table. From it come encoders, decoders, bounds,
 * deadlines and the list of methods in the documentation (`statctl --methods`).
 */

#include "common/rec.h"

/* --- kinds of devices --------------------------------------------------------------------- */

enum manager_type {
	MANAGER_DUMMY,
	MANAGER_SRIOV,
	MANAGER_RXQUEUE,
	MANAGER_TYPE_MAX,
	MANAGER_INVALID = -1,
};

/* The names of the seed: "dummy", "sr-iov", "rxQueue". */
const char *manager_type_name(enum manager_type type);
/* Case-insensitively; MANAGER_INVALID if unknown. */
enum manager_type manager_type_parse(const char *name);

/* --- records of devices ------------------------------------------------------------------- */

/* The opaque parameters of a claim (seed, "Device configuration options"). */
struct device_config {
	char *pod_if_name;
	struct rec_int vlan;
	struct strmap sysctl_ipv4, sysctl_ipv6;
};
extern const struct rec_desc rec_device_config;

/* A device as its manager tells it: in the inventory, or prepared for one allocation. */
struct device {
	char *name;           /* in the ResourceSlice: a DNS label */
	char *if_name;        /* name in the pod when the claim asks for none */
	char *kernel_if_name; /* NULL: no netdev (bound to vfio-pci) */
	struct packed *state; /* the manager's own; statd stores and shows it, never reads it */
	struct packed *attributes; /* name -> {"string": …}, {"int": …}, {"bool": …} or
				      {"version": …} */
	struct packed *capacity;   /* name -> {"value": …, "requestPolicy": …} */
	struct rec_bool allow_multiple;
	/* how it was before its setup cannot be read from it afterwards: device.observe comes first, and
	 * its answer is recorded */
	struct rec_bool observe;
	/* attribute's name -> [text, …]: further values that pool filters find it by, as the
	 * alternative names of an interface; not published */
	struct packed *alternatives;
};
extern const struct rec_desc rec_device;

/* One allocation as a manager sees it. */
struct device_alloc {
	/* of the inventory for observe and setup, or as observed for setup; prepared for all others */
	struct device *device;
	char *claim_uid;
	char *share_id; /* NULL: dedicated */
	struct strmap consumed_capacity;
	struct device_config *config;
};
extern const struct rec_desc rec_device_alloc;

/* --- rows of statd's tables --------------------------------------------------------------- */

#define TABLE_DEVICES     "networkdriver-dra-devices"
#define TABLE_ALLOCATIONS "networkdriver-dra-allocations"

/* TABLE_DEVICES */
struct device_row {
	char *name;
	char *manager;
	struct packed *dev;
	/* beyond the seed's columns */
	struct device *device;
	char *pool; /* logical pool it is published in; NULL: not published */
	char *note; /* why it is not published, or which other pools match */
};
extern const struct rec_desc rec_device_row;         /* all */
extern const struct rec_desc rec_device_row_statedb; /* the seed's columns */

/* TABLE_ALLOCATIONS */
/* The problem of a row whose device is about to be moved into the sandbox that it names. */
#define ALLOC_BEING_ATTACHED "it is being attached"
/* That of one whose device is about to be freed; it is unfinished meanwhile. */
#define ALLOC_BEING_FREED "it is being given back"
struct alloc_row {
	char *device_name;
	char *manager;
	struct packed *prepared_device;
	char *logical_pool;
	char *pod_uid;
	char *claim_uid;
	struct device_config *config;
	char *share_id;
	struct strmap consumed_capacity;
	/* beyond the seed's columns */
	char *claim_namespace, *claim_name;
	char *request;     /* full reference */
	char *dra_pool;    /* result.pool: the node */
	char *sandbox_id;  /* set while attached */
	char *pod_if_name; /* its name in that sandbox */
	char *problem;     /* last failure of attach, detach or free, or one of those above */
	struct device *prepared;
	/* Its setup has not been finished, or is to be undone: the device is held, and is not the
	 * claim's to use. */
	struct rec_bool unfinished;
	struct rec_bool has_left;  /* it has been in a sandbox of pod_uid that has ended since */
	struct rec_bool generated; /* a template made the claim, which ends with its pod */
	struct rec_int generation; /* of the claim as it was prepared */
	/* Pods that may have it, by UID, where it is not known which one: pod_uid is "" then. */
	struct strlist pods;
};
extern const struct rec_desc rec_alloc_row;
extern const struct rec_desc rec_alloc_row_statedb;

/* --- requests and results ----------------------------------------------------------------- */

struct empty {
	char unused;
};
extern const struct rec_desc rec_empty;

struct manager_hello {
	char *type; /* a manager's type, or "netns" */
	char *version;
};
struct manager_hello_result {
	json_t *config; /* the manager's section of deviceManagerConfigs; {} for netnsd */
};

extern const struct rec_desc rec_device_list; /* the inventory */
#define DEVICE_LIST_MAX_DEVICES 4096 /* 64 slices of 64 */
/* Notes are read by people, all at once, in `statctl status`. */
#define DEVICE_LIST_MAX_NOTES   64
#define DEVICE_LIST_NOTE_SIZE   (2 * ERR_MESSAGE_MAX) /* an error message, and as much around it */
struct device_list {
	struct REC_LIST(struct device) devices;
	struct strlist notes; /* what an operator should know, a sentence each: all of them */
};

struct alloc_list {
	struct REC_LIST(struct device_alloc) allocations;
};
struct restore_verdict {
	struct device *device; /* rebuilt, or NULL and then error */
	char *error;
};
struct restore_result {
	struct REC_LIST(struct restore_verdict) verdicts; /* one each, in order */
};

struct device_result {
	struct device *device; /* prepared */
};

/* A device whose link has appeared on the host: a namespace that held it has ended. */
struct device_appeared {
	char *name;
};

struct name_list {
	struct strlist names;
	struct strlist claim_uids; /* links that carry the mark of one of these do not count */
};

/* Audit: what in the kernel carries a mark of ours and belongs to no claim of the list. */
struct device_audit {
	struct strlist claim_uids;
};
struct device_audit_result {
	struct REC_LIST(struct device_alloc) leftovers; /* such that device.free undoes each */
};

/* Attach: the manager finds the link on the host (or, after a crash in the middle, in the
 * namespace already), moves it in, names it and brings it up. One that was kept down is brought
 * up by a second call. Detach takes the same. */
struct device_attach {
	struct device_alloc *allocation;
	char *if_name; /* final name in the pod */
	char *sandbox_id;
	struct rec_bool keep_down; /* it is not to be up before its sysctls are set */
	struct rec_bool may_be_there; /* it was attached to this sandbox before */
};
struct device_attach_result {
	char *if_name;
	struct rec_bool was_there; /* it had been attached before: nothing was changed */
};

/* Reclaim: the sandbox that held the device has ended, and nobody has a descriptor of its namespace. */
struct device_reclaim_result {
	/* nothing of the device is on the host, which is right if its link ended with its namespace;
	 * whether that has ended the manager cannot tell */
	struct rec_bool not_found;
};

struct netns_socket {
	char *protocol; /* "route" or "generic" */
};
struct sysctl_setting {
	char *family; /* "ipv4" or "ipv6" */
	char *leaf, *value;
};
struct netns_sysctl {
	char *if_name;
	struct REC_LIST(struct sysctl_setting) settings;
};

struct front_hello {
	char *role; /* "draplugind" or "nrihookd" */
	char *version;
};
struct front_hello_result {
	char *driver_name, *node_name;
	struct rec_int retry_interval_ms, registration_timeout_ms, max_attempts;
	struct rec_bool ready; /* both tables are initialised; if not, front.ready follows */
	/* The state directory, by device and inode (stat(2)): a front that reads records checks
	 * that it looks into the same one. Unset: there is none. */
	struct rec_int state_dev, state_ino;
};
struct front_state {
	char *state; /* one word: "registered", "connecting", ... */
	char *detail;
};

struct claim_ref {
	char *namespace, *name, *uid;
};
struct prepared_device {
	char *request; /* full reference: "req" or "req/sub" */
	char *pool, *device, *share_id;
	char *if_name;
	struct packed *attributes;
};
struct claim_prepare_result {
	char *pod_claim_name; /* set for claims made from a template */
	struct REC_LIST(
		struct prepared_device) devices; /* in the order of the allocation results */
};

struct pod_attach {
	char *pod_uid, *sandbox_id, *pod_name, *pod_namespace;
	struct strlist claims; /* claims of ours that its containers were given, as in pod_ref */
};
struct pod_attach_result {
	struct rec_int devices; /* that are in the sandbox now */
	struct strlist claims;  /* of the pod, all of whose devices it has, as in pod_ref */
};
struct pod_detach {
	char *pod_uid, *sandbox_id;
};
struct pod_check_result {
	struct rec_int wanted; /* devices that are to be in the sandbox */
	struct rec_int there;  /* those of them that are */
};
struct pod_ref {
	char *pod_uid, *sandbox_id;
	/* Claims of ours that the container at hand was given, by the directory of their metadata
	 * files: "<namespace>_<name>", or the UID where that is too long. */
	struct strlist claims;
};
struct pod_sync {
	struct REC_LIST(struct pod_ref)
		pods; /* every live sandbox with a network namespace of its own */
};
struct pod_sync_result {
	struct strlist sandbox_ids; /* of those that have allocations: attach these now */
};

struct table_list {
	char *table; /* one table's name; NULL: both */
};
struct table_list_result {
	struct rec_int revision;
	struct rec_bool initialized;
	struct REC_LIST(struct device_row) devices;
	struct REC_LIST(struct alloc_row) allocations;
};
struct table_event {
	char *table;
	struct rec_int revision;
	char *op; /* "insert", "update", "delete" */
	struct device_row *device;
	struct alloc_row *allocation;
};

struct status_peer {
	char *role;  /* "dmgr-dummy", "netnsd", "draplugind", ... */
	char *state; /* "missing", "connected", "published", "registered", ... */
	char *detail;
	struct rec_int since_ms; /* wall clock */
	struct rec_int pid, uid;
	struct rec_int pending; /* calls of ours that it has not answered */
};
struct status_calls {
	char *request; /* "patch resourceclaims/status" */
	struct rec_int count;
};
struct status_result {
	char *version, *node_name, *driver_name, *config, *store, *slices;
	struct rec_int started_ms; /* wall clock */
	struct rec_bool ready;
	struct strlist missing; /* what still keeps it from being ready, a sentence each */
	struct strlist notes;   /* what a user should know besides, a sentence each */
	struct rec_int devices, allocations, revision;
	struct rec_int status_due; /* claims whose status in the store is still to be written */
	struct REC_LIST(struct status_peer) peers;
	struct REC_LIST(struct status_calls) calls; /* to an API server, since the start */
};

struct pool_status {
	char *name;
	struct packed *filter;
	struct strlist devices, allocated; /* names; allocated is a part of devices */
};
struct pools_result {
	struct REC_LIST(struct pool_status) pools;
	struct strlist unmatched; /* devices that no pool takes */
};

/* --- methods ------------------------------------------------------------------------------ */

enum api_method {
	/* manager or netnsd -> statd, manager.sock */
	API_MANAGER_HELLO,
	API_MANAGER_DEVICES,
	API_MANAGER_APPEARED,
	/* statd -> manager */
	API_DEVICE_RESTORE,
	API_DEVICE_OBSERVE,
	API_DEVICE_SETUP,
	API_DEVICE_RECOVER,
	API_DEVICE_FREE,
	API_DEVICE_CHECK,
	API_DEVICE_ATTACH,
	API_DEVICE_DETACH,
	API_DEVICE_RECLAIM,
	API_DEVICE_AUDIT,
	/* statd -> netnsd */
	API_NETNS_SOCKET,
	API_NETNS_SYSCTL,
	/* draplugind, nrihookd -> statd, front.sock */
	API_FRONT_HELLO,
	API_FRONT_STATE,
	API_CLAIM_PREPARE,
	API_CLAIM_UNPREPARE,
	API_POD_ATTACH,
	API_POD_DETACH,
	API_POD_SYNC,
	API_POD_CHECK,
	/* statd -> draplugind, nrihookd */
	API_FRONT_READY,
	/* anyone in the group -> statd, query.sock */
	API_TABLE_LIST,
	API_TABLE_WATCH,
	API_STATUS,
	API_POOLS,
	/* statd -> a watcher */
	API_TABLE_EVENT,
	API_METHOD_MAX
};

struct api_method_info {
	const char *name, *from, *to;
	const struct rec_desc *request, *result; /* result NULL: a notification */
	unsigned deadline_ms;
	unsigned request_fds, result_fds;
	bool repeatable; /* the same call again does no harm */
	const char *doc;
};

const struct api_method_info *api_method_info(enum api_method method);
/* API_METHOD_MAX if there is none of this name. */
enum api_method api_method_parse(const char *name, size_t len);
