/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows as they are, then each change, a line each. A row that is there already is told like a
 * change whose op is "present", so that a program that reads along needs to know one shape only.
 */
#include "statctl/commands.h"

static void tell_device(const struct table_event *e)
{
	const struct device_row *d = e->device;
	cleanup_buf struct buf text = BUF_INIT;

	if (d->pool)
		buf_printf(&text, " pool=%s", d->pool);
	if (d->note)
		buf_printf(&text, " note=\"%s\"", d->note);
	output_line(d->note ? TINT_BAD : TINT_NONE, "%-7s device     %s manager=%s%s", e->op,
		d->name, d->manager, text.len ? text.data : "");
}

static void tell_allocation(const struct table_event *e)
{
	const struct alloc_row *a = e->allocation;
	cleanup_free char *device = alloc_device(a), *claim = alloc_claim(a);
	cleanup_buf struct buf text = BUF_INIT;

	if (a->sandbox_id)
		buf_printf(&text, " interface=%s sandbox=%s", a->pod_if_name, a->sandbox_id);
	if (alloc_problem(a))
		buf_printf(&text, " problem=\"%s\"", alloc_problem(a));
	output_line(alloc_tint(a), "%-7s allocation %s state=%s claim=%s pod=%s%s", e->op,
		device, alloc_state_name(alloc_state(a)), claim, a->pod_uid, text.len ? text.data : "");
}

static void tell(const struct table_event *e, void *ctx)
{
	const enum output_format *format = ctx;

	if (*format == OUTPUT_JSON)
		output_json_line(rec_encode(api_method_info(API_TABLE_EVENT)->request, e));
	else if (e->device)
		tell_device(e);
	else if (e->allocation)
		tell_allocation(e);
	output_flush();
}

static void tell_rows(const struct table_list_result *rows, void *ctx)
{
	char op[] = "present", devices[] = TABLE_DEVICES, allocations[] = TABLE_ALLOCATIONS;

	for (size_t i = 0; i < rows->devices.n; i++)
		tell(&(struct table_event){.table = devices,
			     .revision = rows->revision,
			     .op = op,
			     .device = &rows->devices.v[i]},
			ctx);
	for (size_t i = 0; i < rows->allocations.n; i++)
		tell(&(struct table_event){.table = allocations,
			     .revision = rows->revision,
			     .op = op,
			     .allocation = &rows->allocations.v[i]},
			ctx);
}

int run_watch(
	struct statctl *s, enum output_format format, const char *operand, struct err *err)
{
	const struct table_list request = {.table = (char *)(uintptr_t)table_name_of(operand)};
	const struct watcher watcher = {.rows = tell_rows, .event = tell, .ctx = &format};

	return statctl_watch(s, &request, &watcher, err);
}
