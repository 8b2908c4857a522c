/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the very table that both ends of every socket are compiled with. */
#include "statctl/methods.h"

#include "common/api.h"
#include "common/util.h"

static void show_row(struct output_table *t, const struct api_method_info *m)
{
	output_row(t);
	output_cell(t, TINT_NONE, m->name);
	output_cell(t, TINT_NONE, m->from);
	output_cell(t, TINT_NONE, m->to);
	if (m->result)
		output_cell_number(t, m->deadline_ms);
	else
		output_cell(t, TINT_NONE, NULL); /* a notification */
	output_cell_number(t, m->request_fds);
	output_cell_number(t, m->result_fds);
	output_cell(t, TINT_NONE, m->doc);
}

static void show(void)
{
	static const struct output_column columns[] = {
		{.heading = "METHOD"},
		{.heading = "FROM"},
		{.heading = "TO"},
		{.heading = "DEADLINE-MS", .number = true},
		{.heading = "FDS-IN", .number = true},
		{.heading = "FDS-OUT", .number = true},
		{.heading = "WHAT", .fit = FIT_WRAP},
	};
	struct output_table *t = output_table_new(columns, ARRAY_SIZE(columns));

	for (int i = 0; i < API_METHOD_MAX; i++)
		show_row(t, api_method_info((enum api_method)i));
	output_table_end(t);
}

/* Of a record its fields and what they mean; null where there is none. */
static json_t *encode_record(const struct rec_desc *desc)
{
	json_t *fields = desc ? json_object() : json_null();

	for (size_t i = 0; desc && i < desc->n_fields; i++)
		(void)json_object_set_new(
			fields, desc->fields[i].name, json_string(desc->fields[i].doc));
	return fields;
}

static json_t *encode_methods(void)
{
	json_t *methods = json_object();

	for (int i = 0; i < API_METHOD_MAX; i++) {
		const struct api_method_info *m = api_method_info((enum api_method)i);

		(void)json_object_set_new(methods, m->name,
			json_pack("{ss ss sI sI sI ss so so}", "from", m->from, "to", m->to,
				"deadlineMs", (json_int_t)m->deadline_ms, "requestFds",
				(json_int_t)m->request_fds, "resultFds",
				(json_int_t)m->result_fds, "what", m->doc, "params",
				encode_record(m->request), "result", encode_record(m->result)));
	}
	return methods;
}

int methods_show(enum output_format format)
{
	if (format == OUTPUT_JSON)
		output_json(encode_methods());
	else
		show();
	return EXIT_SUCCESS;
}
