/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The node's configuration: a CiliumNetworkDriverNodeConfig (cilium.io/v2alpha1), from a file
 * or from the API server, decoded, completed with the defaults, and checked. Everything that
 * can be known to be wrong without looking at the kernel is refused here, by file, line and
 * field:
 *
 *	netclaim.yaml:14: spec.pools[1].name: duplicated pool name: fast-net (first at line 9)
 */

#include "common/api.h"
#include "common/doc.h"
#include "common/rec.h"
#include "statd/pool.h"

#define CONFIG_API_VERSION    "cilium.io/v2alpha1"
#define CONFIG_KIND           "CiliumNetworkDriverNodeConfig"
#define CONFIG_DEFAULT_DRIVER "networkdriver.cilium.io"

struct dummy_config {
	struct rec_bool enabled;
	struct rec_int count;
};
extern const struct rec_desc rec_dummy_config;

struct sriov_iface {
	char *if_name;
	struct rec_int vf_count;
};
struct sriov_config {
	struct rec_bool enabled;
	/* sysBusPCIDevPath: in spite of its name the root of sysfs; NULL: as the manager was
	 * started */
	char *sysfs_root;
	struct REC_LIST(struct sriov_iface) ifaces;
};
extern const struct rec_desc rec_sriov_config;

struct rxqueue_iface {
	char *if_name;
	struct rec_int count;
};
struct rxqueue_config {
	struct rec_bool enabled;
	struct REC_LIST(struct rxqueue_iface) ifaces;
};
extern const struct rec_desc rec_rxqueue_config;

struct manager_configs {
	struct dummy_config *dummy;
	struct sriov_config *sriov;
	struct rxqueue_config *rx_queue;
};
extern const struct rec_desc rec_manager_configs;

/* spec */
struct node_config_spec {
	char *driver_name;
	struct rec_int retry_interval_s; /* between attempts to register with the kubelet */
	struct rec_int registration_timeout_s; /* of each */
	struct rec_int max_attempts;
	struct manager_configs *managers;
	struct pool_list pools;
};
extern const struct rec_desc rec_node_config_spec;

/* The whole object. Once loaded every field of spec that has a default is set. */
struct node_config {
	char *node_name; /* metadata.name */
	struct node_config_spec spec;
	/* Each enabled manager's section with its defaults filled in, as the manager gets it in
	 * manager.hello; NULL for one that is absent or not enabled. */
	json_t *sections[MANAGER_TYPE_MAX];
};

/* ERR_INVALID for whatever is wrong in it. doc is where root stood in a text, for lines in
 * errors, or NULL. node_name: what metadata.name must be; NULL: anything valid. *ret is zeroed
 * before, and after a failure. */
int config_decode(const json_t *root, const struct doc *doc, const char *node_name,
	struct node_config *ret, struct err *err);
/* From a file, YAML or JSON; ERR_NOT_FOUND when there is none. */
int config_load(
	const char *path, const char *node_name, struct node_config *ret, struct err *err);
void config_fini(struct node_config *config);

bool config_enabled(const struct node_config *config, enum manager_type manager);
