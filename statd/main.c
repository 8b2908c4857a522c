/* SPDX-License-Identifier: Apache-2.0 */
/* statd: owns the device and allocation tables and publishes what the node offers. */
#include "common/daemon.h"
#include "common/log.h"
#include "common/privileges.h"
#include "common/util.h"
#include "statd/statd.h"

#define OPTION(name_, member_, arg_, type_, doc_)                                              \
	{                                                                                      \
		.name = name_, .type = type_,                                                  \
		.offset = offsetof(struct statd_options, member_), .arg = arg_, .doc = doc_    \
	}

static const struct cli_option options_table[] = {
	DAEMON_OPTIONS(struct statd_options, base),
	OPTION("config", config, "FILE", CLI_PATH,
		"the node's CiliumNetworkDriverNodeConfig, YAML or JSON, instead of the API "
		"server's"),
	OPTION("node-name", node_name, "NAME", CLI_TEXT,
		"the Node's name; a configuration of another is refused"),
	OPTION("claims-dir", claims_dir, "DIR", CLI_PATH,
		"directory of ResourceClaim files, instead of the API server's; status is "
		"written beside them"),
	OPTION("kubeconfig", kubeconfig, "FILE", CLI_PATH,
		"how to reach the API server; without it as a container of the cluster does"),
	OPTION("kube-context", kube_context, "NAME", CLI_TEXT,
		"which context of the kubeconfig, instead of its current one"),
	OPTION("service-account-dir", service_account_dir, "DIR", CLI_PATH,
		"where the container's token and CA are"),
	{.name = "unknown-parameters",
		.type = CLI_TEXT,
		.offset = offsetof(struct statd_options, unknown_parameters),
		.arg = "ACTION",
		.doc = "what to do with a parameter of a claim that is not known",
		.choices = "refuse|warn"},
	OPTION("runtime-dir", runtime_dir, "DIR", CLI_PATH, "where the sockets are"),
	OPTION("state-dir", state_dir, "DIR", CLI_PATH,
		"where it is recorded what is prepared, on a tmpfs; state in the runtime "
		"directory if not given"),
	{.name = "wait-for-status", .type = CLI_FLAG,
		.offset = offsetof(struct statd_options, wait_for_status),
		.doc = "answer the kubelet when the claim's status is written, not before"},
	OPTION("user", user, "USER[:GROUP]", CLI_TEXT, "become this user, by name or number"),
	OPTION("manager-group", manager_group, "GROUP", CLI_TEXT, "group of manager.sock"),
	OPTION("front-group", front_group, "GROUP", CLI_TEXT, "group of front.sock"),
	OPTION("query-group", query_group, "GROUP", CLI_TEXT,
		"group of query.sock: who may use statctl"),
};

static const struct cli cli = {
	.program = "statd",
	.summary = "own the device and allocation tables of a netclaim node",
	.options = options_table,
	.n_options = ARRAY_SIZE(options_table),
};

int main(int argc, char **argv)
{
	struct statd_options options = {
		.base = DAEMON_DEFAULTS,
		.runtime_dir = "/run/netclaim",
		.user = "netclaim",
		.service_account_dir = KUBE_SERVICE_ACCOUNT_DIR,
		.unknown_parameters = "refuse",
	};
	const struct privileges *privileges;
	struct identity who = {0};
	struct err err = ERR_INIT;
	struct statd statd;
	uv_loop_t loop;
	int status;

	daemon_begin(&cli, argc, argv, &options, &options.base);
	if (geteuid() == 0 && identity_parse(options.user, &who, &err) < 0)
		return daemon_cannot_start(&err);
	if (statd_open(&statd, &loop, &options, &who, &err) < 0)
		return daemon_cannot_start(&err);
	privileges =
		statd.cluster.access.server ? &statd_cluster_privileges : &statd_privileges;
	if (privileges_drop(privileges, &who, &err) < 0)
		return daemon_cannot_start(&err);
	if (privileges_confine(privileges, &err) < 0)
		return daemon_cannot_start(&err);
	(void)uv_loop_init(&loop);
	daemon_init(&statd.daemon, &loop, statd_stop, &statd);
	statd_start(&statd);
	status = daemon_run(&statd.daemon);
	statd_fini(&statd);
	(void)uv_loop_close(&loop);
	return status;
}
