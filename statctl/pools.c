/* SPDX-License-Identifier: Apache-2.0 */
/* The configured pools: what each asks for, how much it has, how much of that is taken. */
#include "statctl/commands.h"

/* The filter as it was configured, on one line: "deviceManagers=dummy ifNames=dummy0,dummy1". */
static void format_filter(const struct packed *packed, struct buf *out)
{
	json_t *filter = packed_open(packed), *values, *value;
	const char *field;
	size_t i;

	if (!filter) {
		buf_puts(out, "none: takes nothing");
		return;
	}
	if (json_object_size(filter) == 0)
		buf_puts(out, "empty: takes every device");
	json_object_foreach (filter, field, values) {
		buf_printf(out, "%s%s=", out->len ? " " : "", field);
		json_array_foreach (values, i, value)
			buf_printf(out, "%s%s", i ? "," : "", json_string_value(value));
	}
	json_decref(filter);
}

static void show_unmatched(const struct strlist *names)
{
	cleanup_buf struct buf text = BUF_INIT;

	if (names->n == 0)
		return;
	for (size_t i = 0; i < names->n; i++)
		buf_printf(&text, "%s%s", i ? ", " : "", names->v[i]);
	output_blank();
	output_line(TINT_BAD, "In no pool, so not published: %s", text.data);
}

static void show(const struct pools_result *r)
{
	static const struct output_column columns[] = {
		{.heading = "POOL"},
		{.heading = "DEVICES", .number = true},
		{.heading = "TAKEN", .number = true},
		{.heading = "FREE", .number = true},
		{.heading = "FILTER", .fit = FIT_WRAP},
	};
	struct output_table *t = output_table_new(columns, ARRAY_SIZE(columns));

	for (size_t i = 0; i < r->pools.n; i++) {
		const struct pool_status *p = &r->pools.v[i];
		cleanup_buf struct buf filter = BUF_INIT;

		format_filter(p->filter, &filter);
		output_row(t);
		output_cell(t, TINT_NONE, p->name);
		output_cell_number(t, (int64_t)p->devices.n);
		output_cell_number(t, (int64_t)p->allocated.n);
		output_cell_number(t, (int64_t)p->devices.n - (int64_t)p->allocated.n);
		output_cell(t, TINT_NONE, filter.data);
	}
	output_table_end(t);
	show_unmatched(&r->unmatched);
}

int run_pools(struct statctl *s, enum output_format format, const char *operand UNUSED,
	struct err *err)
{
	const struct rec_desc *desc = api_method_info(API_POOLS)->result;
	const struct empty none = {0};
	struct pools_result r = {0};

	if (statctl_call(s, API_POOLS, &none, &r, err) < 0)
		return -1;
	if (format == OUTPUT_JSON)
		output_json(rec_encode(desc, &r));
	else
		show(&r);
	rec_fini(desc, &r);
	return 0;
}
