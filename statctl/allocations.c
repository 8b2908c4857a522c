/* SPDX-License-Identifier: Apache-2.0 */
/* What was prepared, a row for each device or share. */
#include "statctl/commands.h"

static bool is_being_attached(const struct alloc_row *a)
{
	return str_equal(a->problem, ALLOC_BEING_ATTACHED);
}

static bool is_being_freed(const struct alloc_row *a)
{
	return str_equal(a->problem, ALLOC_BEING_FREED);
}

enum alloc_state alloc_state(const struct alloc_row *a)
{
	if (a->sandbox_id)
		return is_being_attached(a) ? ALLOC_ATTACHING : ALLOC_ATTACHED;
	if (!a->unfinished.v)
		return ALLOC_PREPARED;
	return is_being_freed(a) ? ALLOC_RELEASING : ALLOC_PREPARING;
}

const char *alloc_state_name(enum alloc_state state)
{
	static const char *const names[ALLOC_STATE_MAX] = {
		[ALLOC_PREPARING] = "preparing",
		[ALLOC_RELEASING] = "releasing",
		[ALLOC_PREPARED] = "prepared",
		[ALLOC_ATTACHING] = "attaching",
		[ALLOC_ATTACHED] = "attached",
	};

	return names[state];
}

const char *alloc_problem(const struct alloc_row *a)
{
	return is_being_attached(a) || is_being_freed(a) ? NULL : a->problem;
}

enum tint alloc_tint(const struct alloc_row *a)
{
	if (alloc_problem(a))
		return TINT_BAD;
	return alloc_state(a) == ALLOC_ATTACHED ? TINT_GOOD : TINT_NONE;
}

char *alloc_device(const struct alloc_row *a)
{
	if (a->share_id && *a->share_id)
		return xasprintf("%s/%s", a->device_name, a->share_id);
	return xstrdup(a->device_name);
}

char *alloc_claim(const struct alloc_row *a)
{
	if (a->claim_namespace && a->claim_name)
		return xasprintf("%s/%s", a->claim_namespace, a->claim_name);
	return xstrdup_opt(a->claim_uid);
}

static void show_table(const struct table_list_result *rows)
{
	static const struct output_column columns[] = {
		{.heading = "DEVICE"},
		{.heading = "POOL"},
		{.heading = "CLAIM", .fit = FIT_WRAP},
		{.heading = "POD-UID", .fit = FIT_WRAP},
		{.heading = "STATE"},
		{.heading = "IN-POD"},
	};
	struct output_table *t = output_table_new(columns, ARRAY_SIZE(columns));

	for (size_t i = 0; i < rows->allocations.n; i++) {
		const struct alloc_row *a = &rows->allocations.v[i];
		cleanup_free char *device = alloc_device(a), *claim = alloc_claim(a);

		output_row(t);
		output_cell(t, TINT_NONE, device);
		output_cell(t, TINT_NONE, a->logical_pool);
		output_cell(t, TINT_NONE, claim);
		output_cell(t, TINT_NONE, a->pod_uid);
		output_cell(t, alloc_tint(a), alloc_state_name(alloc_state(a)));
		output_cell(t, TINT_NONE, a->pod_if_name);
	}
	output_table_end(t);
}

static void show_problems(const struct table_list_result *rows)
{
	for (size_t i = 0; i < rows->allocations.n; i++) {
		const char *problem = alloc_problem(&rows->allocations.v[i]);
		cleanup_free char *device = alloc_device(&rows->allocations.v[i]);

		if (problem)
			output_line(TINT_BAD, "%s: %s", device, problem);
	}
}

int run_allocations(struct statctl *s, enum output_format format, const char *operand UNUSED,
	struct err *err)
{
	const struct rec_desc *desc = api_method_info(API_TABLE_LIST)->result;
	char table[] = TABLE_ALLOCATIONS;
	const struct table_list request = {.table = table};
	struct table_list_result rows = {0};

	if (statctl_call(s, API_TABLE_LIST, &request, &rows, err) < 0)
		return -1;
	if (format == OUTPUT_JSON) {
		output_json(rec_encode(desc, &rows));
	} else {
		show_table(&rows);
		show_problems(&rows);
	}
	rec_fini(desc, &rows);
	return 0;
}
