/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ResourceSlices as a server tells of them, a line each: its first letter says whether the slice
 * is listed (L), came or changed (C), went (W) or is the answer to a write of ours (A); "B" and
 * "S" begin and end a list. Whatever comes, what is known stays in order, and a plan can be made
 * of it.
 */
#include <assert.h>
#include <string.h>

#include "statd/slice_limits.h"
#include "statd/slice_plan.h"
#include "tests/fuzz/fuzz.h"

#define MAX_DEVICES 200

/* Whatever is done with it, a slice that is planned has the index of its place. */
static void make_plan(const struct slice_mirror *mirror)
{
	size_t n_records, n_hints, slices[MAX_DEVICES];
	struct slice_record **records = slice_mirror_list(mirror, &n_records);
	uint64_t names[MAX_DEVICES] = {0};
	struct slice_hint *hints;
	struct slice_plan plan;

	slice_plan_match(&plan, records, n_records, slice_count(MAX_DEVICES),
		(struct slice_bump){.from = 1, .to = 2});
	for (size_t i = 0; i < plan.n_slices; i++)
		assert(!plan.slices[i] ||
			slice_name_index(plan.slices[i]->name, plan.n_slices) == (long)i);
	hints = slice_plan_hints(&plan, &n_hints);
	for (size_t i = 0; i < MIN(n_hints, (size_t)MAX_DEVICES); i++)
		names[i] = hints[i].name;
	slice_layout(names, MAX_DEVICES, hints, n_hints, slices);
	for (size_t i = 0; i < MAX_DEVICES; i++)
		assert(slices[i] < plan.n_slices);
	slice_plan_decide(&plan);
	assert(plan.generation > 0 || plan.n_missing == 0);
	slice_plan_fini(&plan);
	free(hints);
	free(records);
}

static void take_object(struct slice_mirror *mirror, char how, const json_t *object)
{
	struct err err = ERR_INIT;
	enum slice_news news;

	if (how == 'L' || how == 'C')
		(void)slice_mirror_event(mirror, KUBE_ADDED, object, &err);
	else if (how == 'W')
		(void)slice_mirror_event(mirror, KUBE_DELETED, object, &err);
	else if (how == 'A')
		(void)slice_mirror_written(mirror, object, &news, &err);
}

static void take_line(struct slice_mirror *mirror, const char *line, size_t len)
{
	json_t *object;

	if (len == 0)
		return;
	if (line[0] == 'B')
		slice_mirror_begin(mirror);
	else if (line[0] == 'S')
		(void)slice_mirror_synced(mirror);
	object = json_loadb(line + 1, len - 1, JSON_REJECT_DUPLICATES, NULL);
	if (!object)
		return;
	take_object(mirror, line[0], object);
	json_decref(object);
}

/* A device of a manager's, on its way to the server. */
static void limit_device(const char *text, size_t len)
{
	json_t *device = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	char *note = NULL;
	int outcome;

	if (!json_is_object(device)) {
		json_decref(device);
		return;
	}
	outcome = slice_limits_apply(device, &note);
	assert((outcome != 0) == (note != NULL));
	assert(!note || strlen(note) <= SLICE_LIMITS_MAX_NOTE);
	free(note);
	note = NULL;
	/* what is left, nothing is wrong with */
	if (outcome >= 0)
		assert(slice_limits_apply(device, &note) == 0);
	json_decref(device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice_mirror mirror = {.driver_name = "d", .node_name = "n"};
	const char *at = (const char *)data, *const end = at + size;

	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((newline ? newline : end) - at);

		if (len > 0 && at[0] == 'D')
			limit_device(at + 1, len - 1);
		else
			take_line(&mirror, at, len);
		at += len + 1;
	}
	make_plan(&mirror);
	slice_mirror_fini(&mirror);
	return 0;
}
