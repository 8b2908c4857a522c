/* SPDX-License-Identifier: Apache-2.0 */
/* The container runtime's door: parse, drop, confine, open, loop. */
#include "nrihookd/nrihookd.h"
#include "nrihookd/sandbox.h"

static const struct cli_option cli_options[] = {
	DAEMON_OPTIONS(struct nrihookd_options, base),
	{
		.name = "runtime-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct nrihookd_options, runtime_dir),
		.arg = "DIR",
		.doc = "where statd's front.sock is",
	},
	{
		.name = "state-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct nrihookd_options, state_dir),
		.arg = "DIR",
		.doc = "statd's state directory, if not \"state\" in the runtime directory",
	},
	{
		.name = "statd-user",
		.type = CLI_TEXT,
		.offset = offsetof(struct nrihookd_options, statd_user),
		.arg = "USER",
		.doc = "user that statd runs as, if neither root nor our own",
	},
	{
		.name = "kubelet-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct nrihookd_options, kubelet_dir),
		.arg = "DIR",
		.doc = "the kubelet's root directory, called as draplugind calls it",
	},
	{
		.name = "nri-socket",
		.type = CLI_PATH,
		.offset = offsetof(struct nrihookd_options, nri_socket),
		.arg = "PATH",
		.doc = "where the container runtime listens for NRI plugins",
	},
	{
		.name = "nri-index",
		.type = CLI_TEXT,
		.offset = offsetof(struct nrihookd_options, nri_index),
		.arg = "NN",
		.doc = "two digits: plugins are called in their order",
	},
	{
		.name = "netns-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct nrihookd_options, netns_dir),
		.arg = "DIR",
		.doc = "the runtime's directory of network namespaces, if not where it says",
	},
	{
		.name = "on-attach-failure",
		.type = CLI_TEXT,
		.offset = offsetof(struct nrihookd_options, on_attach_failure),
		.arg = "ACTION",
		.doc = "what becomes of a pod whose devices cannot be attached",
		.choices = "refuse|log",
	},
};

static const struct cli cli = {
	.program = "nrihookd",
	.summary = "hands devices to pod sandboxes as the container runtime starts them",
	.options = cli_options,
	.n_options = ARRAY_SIZE(cli_options),
};

int main(int argc, char **argv)
{
	struct nrihookd_options options = {
		.base = DAEMON_DEFAULTS,
		.runtime_dir = "/run/netclaim",
		.kubelet_dir = "/var/lib/kubelet",
		.nri_socket = RUNTIME_SOCKET,
		.nri_index = "00",
		.on_attach_failure = "refuse",
	};
	struct nrihookd d;
	struct err err;
	int status;

	daemon_begin(&cli, argc, argv, &options, &options.base);
	/* the loop is made by the confined process: libuv would else take an io_uring that the
	 * filter refuses it to enter */
	if (privileges_drop(&nrihookd_privileges, NULL, &err) < 0 ||
		privileges_confine(&nrihookd_privileges, &err) < 0 ||
		nrihookd_init(&d, &options, &err) < 0)
		return daemon_cannot_start(&err);
	nrihookd_start(&d);
	daemon_ready(&d.daemon);
	status = daemon_run(&d.daemon);
	nrihookd_fini(&d);
	return status;
}
