/* SPDX-License-Identifier: Apache-2.0 */
/* statctl: asks statd how it stands. Reads only, whoever runs it. */
#include <sys/prctl.h>

#include "common/cli.h"
#include "common/log.h"
#include "common/util.h"
#include "statctl/commands.h"
#include "statctl/methods.h"

struct statctl_options {
	const char *runtime_dir;
	const char *output; /* NULL: not said */
	bool methods;
};

static const struct cli_option options_table[] = {
	{
		.name = "output",
		.letter = 'o',
		.type = CLI_TEXT,
		.offset = offsetof(struct statctl_options, output),
		.arg = "FORMAT",
		.doc = "how to print, as a table unless told otherwise",
		.choices = "table|json",
	},
	{
		.name = "runtime-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct statctl_options, runtime_dir),
		.arg = "DIR",
		.doc = "where statd's sockets are",
	},
	{
		.name = "methods",
		.type = CLI_FLAG,
		.offset = offsetof(struct statctl_options, methods),
		.doc = "show the methods by which the daemons call each other, and exit",
	},
};

__attribute__((format(printf, 1, 2))) static int usage_error(const char *fmt, ...)
{
	va_list ap;

	fputs("statctl: ", stderr);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\nTry 'statctl --help'.\n", stderr);
	return EXIT_USAGE;
}

static int failure(const struct err *err)
{
	fprintf(stderr, "statctl: %s\n", err->message);
	return EXIT_FAILURE;
}

/* Connects, runs the command, hangs up. */
static int run(const struct command *command, const struct statctl_options *o,
	enum output_format format, const char *operand)
{
	struct statctl s = {0};
	struct err err = ERR_INIT;
	int status;

	(void)uv_loop_init(&s.loop);
	status = statctl_connect(&s, o->runtime_dir, &err);
	if (status == 0)
		status = command->run(&s, format, operand, &err);
	statctl_close(&s);
	(void)uv_loop_close(&s.loop);
	return status < 0 ? failure(&err) : status;
}

static int find_and_run(
	const struct statctl_options *o, enum output_format format, char *const *operands)
{
	const struct command *command;
	struct err err;

	if (!operands[0])
		return usage_error("no command");
	command = command_find(operands[0], &err);
	if (!command)
		return usage_error("%s", err.message);
	if (operands[1] && !command->operand)
		return usage_error("%s takes no operand", command->name);
	if (operands[1] && operands[2])
		return usage_error("%s takes one operand only", command->name);
	if (command->json_only && o->output && format != OUTPUT_JSON)
		return usage_error("%s prints JSON only", command->name);
	return run(command, o, format, operands[1]);
}

int main(int argc, char **argv)
{
	struct statctl_options options = {.runtime_dir = "/run/netclaim"};
	cleanup_buf struct buf help = BUF_INIT;
	enum output_format format;
	int first, status;

	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	log_init("statctl", LOG_ERROR);
	output_init();
	commands_help(&help);
	cli_parse(
		&(struct cli){
			.program = "statctl",
			.summary = "show what a netclaim node has, and how its driver fares",
			.operands = "COMMAND [TABLE]",
			.options = options_table,
			.n_options = ARRAY_SIZE(options_table),
			.help_tail = help.data,
		},
		argc, argv, &options, &first);
	format = str_equal(options.output, "json") ? OUTPUT_JSON : OUTPUT_TABLE;
	if (options.methods && first < argc)
		return usage_error("--methods takes no command");
	status = options.methods ? methods_show(format)
				 : find_and_run(&options, format, argv + first);
	output_flush();
	return status;
}
