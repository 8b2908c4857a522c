/* SPDX-License-Identifier: Apache-2.0 */
/* The inventory, and beside each device what has become of it. */
#include <string.h>

#include "statctl/commands.h"

struct use {
	size_t rows[ALLOC_STATE_MAX], total, problems;
};

static struct use use_of(const char *device, const struct table_list_result *rows)
{
	struct use use = {0};

	for (size_t i = 0; i < rows->allocations.n; i++) {
		const struct alloc_row *a = &rows->allocations.v[i];

		if (strcmp(a->device_name, device) != 0)
			continue;
		use.rows[alloc_state(a)]++;
		use.total++;
		use.problems += alloc_problem(a) != NULL;
	}
	return use;
}

/* "free", "attached", and of a device in shares "2 attached, 1 prepared". */
static void format_use(const struct use *use, struct buf *out)
{
	if (use->total == 0)
		buf_puts(out, "free");
	for (int state = ALLOC_STATE_MAX; state-- > 0;) {
		/* of several shares the two that last are always counted */
		const bool lasts = state == ALLOC_ATTACHED || state == ALLOC_PREPARED;

		if (use->rows[state] == 0 && (use->total < 2 || !lasts))
			continue;
		if (out->len)
			buf_puts(out, ", ");
		if (use->total > 1)
			buf_printf(out, "%zu ", use->rows[state]);
		buf_puts(out, alloc_state_name((enum alloc_state)state));
	}
}

static enum tint use_tint(const struct use *use)
{
	if (use->problems)
		return TINT_BAD;
	return use->rows[ALLOC_ATTACHED] ? TINT_GOOD : TINT_NONE;
}

static void show_table(const struct table_list_result *rows)
{
	static const struct output_column columns[] = {
		{.heading = "DEVICE"},
		{.heading = "MANAGER"},
		{.heading = "POOL"},
		{.heading = "INTERFACE"},
		{.heading = "STATE"},
	};
	struct output_table *t = output_table_new(columns, ARRAY_SIZE(columns));

	for (size_t i = 0; i < rows->devices.n; i++) {
		const struct device_row *d = &rows->devices.v[i];
		struct use use = use_of(d->name, rows);
		cleanup_buf struct buf state = BUF_INIT;

		format_use(&use, &state);
		output_row(t);
		output_cell(t, TINT_NONE, d->name);
		output_cell(t, TINT_NONE, d->manager);
		output_cell(t, TINT_NONE, d->pool);
		output_cell(t, TINT_NONE, d->device ? d->device->kernel_if_name : NULL);
		output_cell(t, use_tint(&use), state.data);
	}
	output_table_end(t);
}

/* Below the table and not in it: texts of any length would squeeze everything else. */
static void show_notes(const struct table_list_result *rows)
{
	for (size_t i = 0; i < rows->devices.n; i++)
		if (rows->devices.v[i].note)
			output_line(TINT_BAD, "%s: %s", rows->devices.v[i].name,
				rows->devices.v[i].note);
}

/* Both tables are asked for: whether a device is free is in the other one. */
int run_devices(struct statctl *s, enum output_format format, const char *operand UNUSED,
	struct err *err)
{
	const struct rec_desc *desc = api_method_info(API_TABLE_LIST)->result;
	const struct table_list both = {0};
	struct table_list_result rows = {0};

	if (statctl_call(s, API_TABLE_LIST, &both, &rows, err) < 0)
		return -1;
	if (format == OUTPUT_JSON) {
		output_json(rec_encode(desc, &rows));
	} else {
		show_table(&rows);
		show_notes(&rows);
	}
	rec_fini(desc, &rows);
	return 0;
}
