/* SPDX-License-Identifier: Apache-2.0 */
#include "common/util.h"
#include "netnsd/netnsd.h"
#include "netnsd/sandbox.h"

static const struct cli_option options_table[] = {
	DAEMON_OPTIONS(struct netnsd_options, base),
	{
		.name = "runtime-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct netnsd_options, runtime_dir),
		.arg = "DIR",
		.doc = "where statd's manager.sock is",
	},
	{
		.name = "statd-user",
		.type = CLI_TEXT,
		.offset = offsetof(struct netnsd_options, statd_user),
		.arg = "USER",
		.doc = "user that statd runs as, if neither root nor our own",
	},
	{
		.name = "proc-sys-net-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct netnsd_options, proc_sys_net_dir),
		.arg = "DIR",
		.doc = "a procfs' sys/net that is writable",
	},
};

static const struct cli cli = {
	.program = "netnsd",
	.summary = "The one process of netclaim that enters pods' network namespaces.",
	.options = options_table,
	.n_options = ARRAY_SIZE(options_table),
};

int main(int argc, char **argv)
{
	struct netnsd_options options = {
		.base = DAEMON_DEFAULTS,
		.runtime_dir = "/run/netclaim",
		.proc_sys_net_dir = "/proc/sys/net",
	};
	struct err err = ERR_INIT;
	struct netnsd netnsd;

	daemon_begin(&cli, argc, argv, &options, &options.base);
	if (netnsd_open(&netnsd, &options, &err) < 0 ||
		privileges_drop(&netnsd_privileges, NULL, &err) < 0 ||
		privileges_confine(&netnsd_privileges, &err) < 0)
		return daemon_cannot_start(&err);
	return netnsd_run(&netnsd, &options);
}
