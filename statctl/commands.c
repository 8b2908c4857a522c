/* SPDX-License-Identifier: Apache-2.0 */
/* The commands as one table: what is not in it is not a command, and --help tells all of it. */
#include "statctl/commands.h"

#include <string.h>

#include "common/cli.h"

static const struct command commands[] = {
	{"status", NULL, false,
		"whether the driver is ready, what is missing, who is connected", run_status},
	{"devices", NULL, false, "what the device managers offer, and what has become of it",
		run_devices},
	{"allocations", NULL, false, "what was prepared, for which claim and pod",
		run_allocations},
	{"pools", NULL, false, "the configured pools and how much of each is taken", run_pools},
	{"watch", "[TABLE]", false, "the rows as they are, then each change as it happens",
		run_watch},
	{"statedb", "[TABLE]", true, "the tables as JSON, as 'cilium-dbg statedb' dumps them",
		run_statedb},
};

/* NULL when none is near. */
static const struct command *nearest(const char *typed)
{
	const struct command *best = NULL;
	size_t best_distance = SIZE_MAX, d;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (cli_is_near(typed, strlen(typed), commands[i].name, &d) && d < best_distance) {
			best = &commands[i];
			best_distance = d;
		}
	return best;
}

const struct command *command_find(const char *name, struct err *err)
{
	const struct command *near;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	near = nearest(name);
	if (near)
		(void)err_set(err, ERR_INVALID, "unknown command \"%.64s\"; did you mean %s?",
			name, near->name);
	else
		(void)err_set(err, ERR_INVALID, "unknown command \"%.64s\"", name);
	return NULL;
}

void commands_help(struct buf *out)
{
	buf_puts(out, "Commands:");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		const struct command *c = &commands[i];
		cleanup_free char *usage = xasprintf(
			"%s%s%s", c->name, c->operand ? " " : "", c->operand ? c->operand : "");

		buf_printf(out, "\n  %-16s %s", usage, c->help);
	}
}

const char *table_name_of(const char *operand)
{
	if (str_equal(operand, "devices"))
		return TABLE_DEVICES;
	if (str_equal(operand, "allocations"))
		return TABLE_ALLOCATIONS;
	return operand;
}
