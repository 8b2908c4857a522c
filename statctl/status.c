/* SPDX-License-Identifier: Apache-2.0 */
/* The page that says whether all is well, and if not, where to look. */
#include <inttypes.h>

#include "statctl/commands.h"

static void show_state(const struct status_result *r)
{
	if (!r->ready.v)
		output_field("state", TINT_BAD, "not ready");
	else if (r->missing.n > 0)
		output_field("state", TINT_BAD, "ready, but not complete");
	else
		output_field("state", TINT_GOOD, "ready");
}

static void show_head(const struct status_result *r, int64_t now)
{
	char ago[AGO_SIZE], time[RFC3339_SIZE];

	output_line(TINT_HEAD, "netclaim %s on node %s", r->version, r->node_name);
	show_state(r);
	output_field("started", TINT_NONE, "%s (%s)", output_ago(r->started_ms.v, now, ago),
		rfc3339_format(r->started_ms.v, false, time));
	output_field("driver", TINT_NONE, "%s", r->driver_name ? r->driver_name : "-");
	output_field("config", TINT_NONE, "%s", r->config);
	output_field("claims", TINT_NONE, "%s", r->store);
	if (r->slices)
		output_field("slices", TINT_NONE, "%s", r->slices);
	output_field("devices", TINT_NONE, "%" PRId64, r->devices.v);
	output_field("allocations", TINT_NONE, "%" PRId64, r->allocations.v);
	if (r->status_due.v > 0)
		output_field("status", TINT_NONE, "to be written: %" PRId64 " claim%s",
			r->status_due.v, r->status_due.v > 1 ? "s" : "");
}

static void show_calls(const struct status_result *r)
{
	cleanup_buf struct buf text = BUF_INIT;

	for (size_t i = 0; i < r->calls.n; i++)
		buf_printf(&text, "%s%s %" PRId64, i ? ", " : "", r->calls.v[i].request,
			r->calls.v[i].count.v);
	if (text.len > 0)
		output_field("API calls", TINT_NONE, "%s", text.data);
}

static void show_sentences(const char *heading, enum tint tint, const struct strlist *sentences)
{
	if (sentences->n == 0)
		return;
	output_blank();
	output_line(TINT_HEAD, "%s", heading);
	for (size_t i = 0; i < sentences->n; i++)
		output_line(tint, "  %s", sentences->v[i]);
}

static enum tint state_tint(const char *state)
{
	static const char *const bad[] = {"missing", "failed"};
	static const char *const good[] = {"connected", "published", "registered"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (str_equal(state, bad[i]))
			return TINT_BAD;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (str_equal(state, good[i]))
			return TINT_GOOD;
	return TINT_NONE; /* on its way */
}

static void cell_number(struct output_table *t, const struct rec_int *number)
{
	if (number->set)
		output_cell_number(t, number->v);
	else
		output_cell(t, TINT_NONE, NULL);
}

static void show_peers(const struct status_result *r, int64_t now)
{
	static const struct output_column columns[] = {
		{.heading = "PROCESS"},
		{.heading = "STATE"},
		{.heading = "SINCE"},
		{.heading = "PID", .number = true},
		{.heading = "UID", .number = true},
		{.heading = "PENDING", .number = true},
		{.heading = "DETAIL", .fit = FIT_WRAP},
	};
	struct output_table *t = output_table_new(columns, ARRAY_SIZE(columns));

	for (size_t i = 0; i < r->peers.n; i++) {
		const struct status_peer *p = &r->peers.v[i];
		char ago[AGO_SIZE];

		output_row(t);
		output_cell(t, TINT_NONE, p->role);
		output_cell(t, state_tint(p->state), p->state);
		output_cell(t, TINT_NONE, output_ago(p->since_ms.v, now, ago));
		cell_number(t, &p->pid);
		cell_number(t, &p->uid);
		cell_number(t, &p->pending);
		output_cell(t, TINT_NONE, p->detail);
	}
	output_table_end(t);
}

int run_status(struct statctl *s, enum output_format format, const char *operand UNUSED,
	struct err *err)
{
	const struct rec_desc *desc = api_method_info(API_STATUS)->result;
	struct status_result r = {0};
	struct empty none = {0};
	int64_t now = wall_ms();
	bool ready;

	if (statctl_call(s, API_STATUS, &none, &r, err) < 0)
		return -1;
	if (format == OUTPUT_JSON) {
		output_json(rec_encode(desc, &r));
	} else {
		show_head(&r, now);
		show_calls(&r);
		show_sentences("Missing", TINT_BAD, &r.missing);
		show_sentences("Notes", TINT_NONE, &r.notes);
		output_blank();
		show_peers(&r, now);
	}
	ready = r.ready.v;
	rec_fini(desc, &r);
	return ready ? EXIT_SUCCESS : EXIT_NOT_READY;
}
