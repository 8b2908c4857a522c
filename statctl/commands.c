/* SPDX-License-Identifier: Apache-2.0 */
/* The commands as one table: what is not in it is not a command, and --help tells all of it. */
#include "statctl/commands.h"

#include <limits.h>
#include <string.h>

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

/* How many letters differ, in whatever order they stand: enough to tell a few short words apart. */
static size_t letters_apart(const char *a, const char *b)
{
	int counts[UCHAR_MAX + 1] = {0};
	size_t more = 0, less = 0;

	for (; *a; a++)
		counts[(unsigned char)*a]++;
	for (; *b; b++)
		counts[(unsigned char)*b]--;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		more += counts[i] > 0 ? (size_t)counts[i] : 0;
		less += counts[i] < 0 ? (size_t)-counts[i] : 0;
	}
	return MAX(more, less);
}

/* NULL when none is near: of each half the letters are others. */
static const struct command *nearest(const char *name)
{
	const struct command *best = NULL;
	size_t best_apart = SIZE_MAX;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		size_t apart = letters_apart(name, commands[i].name);

		if (apart < strlen(commands[i].name) / 2 + 1 && apart < best_apart) {
			best = &commands[i];
			best_apart = apart;
		}
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
