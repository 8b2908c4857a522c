/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables as 'cilium-dbg statedb' dumps them, so that what was written to read that reads this:
 * the same two tables, keys and columns, a row on each line.
 */
#include <string.h>

#include "statctl/commands.h"

static void put_row(const struct rec_desc *desc, const void *row, bool last)
{
	json_t *tree = rec_encode(desc, row);

	printf("    ");
	(void)json_dumpf(tree, stdout, JSON_COMPACT);
	printf("%s\n", last ? "" : ",");
	json_decref(tree);
}

static void put_devices(const struct table_list_result *rows, bool last)
{
	printf("  \"%s\": [\n", TABLE_DEVICES);
	for (size_t i = 0; i < rows->devices.n; i++)
		put_row(&rec_device_row_statedb, &rows->devices.v[i], i + 1 == rows->devices.n);
	printf("  ]%s\n", last ? "" : ",");
}

static void put_allocations(const struct table_list_result *rows)
{
	printf("  \"%s\": [\n", TABLE_ALLOCATIONS);
	for (size_t i = 0; i < rows->allocations.n; i++)
		put_row(&rec_alloc_row_statedb, &rows->allocations.v[i],
			i + 1 == rows->allocations.n);
	printf("  ]\n");
}

int run_statedb(struct statctl *s, enum output_format format UNUSED, const char *operand,
	struct err *err)
{
	const struct rec_desc *desc = api_method_info(API_TABLE_LIST)->result;
	const struct table_list request = {.table = (char *)(uintptr_t)table_name_of(operand)};
	struct table_list_result rows = {0};
	bool all = request.table == NULL;

	if (statctl_call(s, API_TABLE_LIST, &request, &rows, err) < 0)
		return -1;
	printf("{\n");
	if (all || strcmp(request.table, TABLE_DEVICES) == 0)
		put_devices(&rows, !all);
	if (all || strcmp(request.table, TABLE_ALLOCATIONS) == 0)
		put_allocations(&rows);
	printf("}\n");
	rec_fini(desc, &rows);
	return 0;
}
