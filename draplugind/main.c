/* SPDX-License-Identifier: Apache-2.0 */
/* The kubelet's door: parse, open, drop, confine, loop. */
#include "draplugind/draplugind.h"
#include "draplugind/sandbox.h"

static const struct cli_option cli_options[] = {
	DAEMON_OPTIONS(struct draplugind_options, base),
	{
		.name = "runtime-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct draplugind_options, runtime_dir),
		.arg = "DIR",
		.doc = "where statd's front.sock is",
	},
	{
		.name = "statd-user",
		.type = CLI_TEXT,
		.offset = offsetof(struct draplugind_options, statd_user),
		.arg = "USER",
		.doc = "user that statd runs as, if neither root nor our own",
	},
	{
		.name = "kubelet-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct draplugind_options, kubelet_dir),
		.arg = "DIR",
		.doc = "the kubelet's root directory, called as the kubelet calls it",
	},
	{
		.name = "cdi-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct draplugind_options, cdi_dir),
		.arg = "DIR",
		.doc = "where the container runtime reads CDI specifications",
	},
};

static const struct cli cli = {
	.program = "draplugind",
	.summary = "registers the driver with the kubelet and prepares claims for it",
	.options = cli_options,
	.n_options = ARRAY_SIZE(cli_options),
};

int main(int argc, char **argv)
{
	struct draplugind_options options = {
		.base = DAEMON_DEFAULTS,
		.runtime_dir = "/run/netclaim",
		.kubelet_dir = "/var/lib/kubelet",
		.cdi_dir = "/var/run/cdi",
	};
	struct draplugind d;
	struct err err;
	int status;

	daemon_begin(&cli, argc, argv, &options, &options.base);
	if (draplugind_check(&d, &options, &err) < 0 ||
		privileges_drop(&draplugind_privileges, NULL, &err) < 0 ||
		privileges_confine(&draplugind_privileges, &err) < 0)
		return daemon_cannot_start(&err);
	draplugind_init(&d, &options);
	daemon_ready(&d.daemon);
	status = daemon_run(&d.daemon);
	draplugind_fini(&d);
	return status;
}
