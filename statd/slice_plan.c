/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool's slices carry a generation. Who reads them takes those of the highest one, and waits
 * until there are as many as each says that there are. So a change of a single slice is written
 * as it is, while one that concerns several gets a new generation, which is then written to all:
 * no reader ever mixes two states of the pool.
 *
 *	deleted   slices of another pool, of an older generation, with an index that is not
 *	          needed or that another has too, or with a name that has none
 *	replaced  slices whose devices, number of slices or generation changed
 *	created   what is missing
 *
 * in this order. The generation stays if none is created and at most one is replaced; else it
 * grows by one and all are replaced.
 *
 * When bringing a new generation to all slices is interrupted by an error, the next attempt goes
 * on with it: those that still have the old one are replaced, not deleted and made again. Only
 * this process knows that: after a restart they count as obsolete, as they do to any other
 * publisher.
 *
 * Slices are found again by the index that their names begin with. The scheduler goes through
 * them by name and takes the first device that fits, so that the order of the indexes is the
 * order of preference.
 */
#include "statd/slice_plan.h"

#include <string.h>
#include <sys/random.h>

#include "statd/slice_form.h"
#include "statd/slice_limits.h"

/* --- layout ------------------------------------------------------------------------------- */

size_t slice_count(size_t n_devices)
{
	return n_devices ? (n_devices + SLICE_MAX_DEVICES - 1) / SLICE_MAX_DEVICES : 1;
}

static int compare_hints(const void *a, const void *b)
{
	const struct slice_hint *ha = a, *hb = b;

	if (ha->name != hb->name)
		return ha->name < hb->name ? -1 : 1;
	return (ha->slice > hb->slice) - (ha->slice < hb->slice);
}

/* n_slices if there is no hint. */
static size_t find_hint(
	const struct slice_hint *hints, size_t n_hints, uint64_t name, size_t n_slices)
{
	size_t low = 0, high = n_hints;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (hints[middle].name < name)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n_hints && hints[low].name == name ? hints[low].slice : n_slices;
}

void slice_layout(const uint64_t *names, size_t n_devices, struct slice_hint *hints,
	size_t n_hints, size_t *ret_slice)
{
	const size_t n_slices = slice_count(n_devices);
	size_t *filled = xcalloc(n_slices, sizeof(*filled)), free_slice = 0;

	qsort(hints, n_hints, sizeof(*hints), compare_hints);
	for (size_t i = 0; i < n_devices; i++) {
		size_t slice = find_hint(hints, n_hints, names[i], n_slices);

		if (slice < n_slices && filled[slice] < SLICE_MAX_DEVICES)
			filled[slice]++;
		else
			slice = n_slices;
		ret_slice[i] = slice;
	}
	for (size_t i = 0; i < n_devices; i++) {
		if (ret_slice[i] < n_slices)
			continue;
		while (filled[free_slice] == SLICE_MAX_DEVICES)
			free_slice++; /* n_slices were counted so that there is one */
		ret_slice[i] = free_slice;
		filled[free_slice]++;
	}
	free(filled);
}

/* --- names -------------------------------------------------------------------------------- */

#define MIN_WIDTH      5
/* As the API server does it: a name is cut so that the random part ends it at 63. */
#define MAX_BASE       58
#define RANDOM_LETTERS 5
#define ALPHABET       "bcdfghjklmnpqrstvwxz2456789" /* spells no words */

unsigned slice_index_width(size_t n_slices)
{
	unsigned width = MIN_WIDTH;

	while (width < 16 && n_slices > 0 && (n_slices - 1) >> (4 * width))
		width++;
	return width;
}

long slice_name_index(const char *name, size_t n_slices)
{
	unsigned width = slice_index_width(n_slices);

	if (strspn(name, "0123456789abcdef") != width || name[width] != '-')
		return -1;
	return strtol(name, NULL, 16);
}

char *slice_name_new(
	size_t index, size_t n_slices, const char *driver_name, const char *node_name)
{
	cleanup_free char *base = xasprintf("%0*zx-%s-%s-", (int)slice_index_width(n_slices),
		index, driver_name, node_name);
	char random[RANDOM_LETTERS + 1] = "";
	uint8_t bytes[RANDOM_LETTERS];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		abort(); /* 5 bytes are always given whole: random(4) */
	for (size_t i = 0; i < RANDOM_LETTERS; i++)
		random[i] = ALPHABET[bytes[i] % (sizeof(ALPHABET) - 1)];
	return xasprintf("%.*s%s", MAX_BASE, base, random);
}

/* --- operations --------------------------------------------------------------------------- */

/* Nobody gets there by counting: somebody else wrote it, and it leaves no higher one. */
static bool is_last_generation(int64_t generation)
{
	return generation == INT64_MAX;
}

static int64_t highest_generation(struct slice_record *const *records, size_t n)
{
	int64_t highest = 0;

	for (size_t i = 0; i < n; i++)
		if (records[i]->in_pool && !is_last_generation(records[i]->generation))
			highest = MAX(highest, records[i]->generation);
	return highest;
}

static bool is_current(
	const struct slice_record *record, int64_t highest, struct slice_bump bump)
{
	if (!record->in_pool)
		return false;
	return record->generation == highest ||
	       (bump.to == highest && record->generation == bump.from);
}

/* The slice that the record is of; n_slices if it is obsolete. */
static size_t place_of(const struct slice_plan *plan, const struct slice_record *record,
	struct slice_bump bump)
{
	long index = slice_name_index(record->name, plan->n_slices);

	if (!is_current(record, plan->highest, bump) || index < 0 ||
		(size_t)index >= plan->n_slices || plan->slices[index])
		return plan->n_slices;
	return (size_t)index;
}

void slice_plan_match(struct slice_plan *ret, struct slice_record *const *records, size_t n,
	size_t n_slices, struct slice_bump bump)
{
	*ret = (struct slice_plan){
		.n_slices = n_slices,
		.slices = xcalloc(n_slices, sizeof(*ret->slices)),
		.changed = xcalloc(n_slices, sizeof(*ret->changed)),
		.obsolete = xcalloc(n + 1, sizeof(*ret->obsolete)),
		.highest = highest_generation(records, n),
	};
	/* somebody else went further: begin from there */
	if (bump.to < ret->highest)
		bump = (struct slice_bump){0};
	if (bump.to > ret->highest)
		ret->highest = bump.to;
	for (size_t i = 0; i < n; i++) {
		size_t slice = place_of(ret, records[i], bump);

		if (slice == n_slices)
			ret->obsolete[ret->n_obsolete++] = records[i];
		else
			ret->slices[slice] = records[i];
	}
	ret->generation = bump.to;
}

static size_t add_hints(
	struct slice_hint *hints, const struct slice_record *record, size_t slice)
{
	for (size_t i = 0; hints && i < record->n_members; i++)
		hints[i] = (struct slice_hint){record->members[i], slice};
	return record->n_members;
}

/* Counts them if hints is NULL. */
static size_t collect_hints(const struct slice_plan *plan, struct slice_hint *hints)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n_slices; i++)
		if (plan->slices[i])
			n += add_hints(hints ? hints + n : NULL, plan->slices[i], i);
	for (size_t i = 0; i < plan->n_obsolete; i++) {
		long index = slice_name_index(plan->obsolete[i]->name, plan->n_slices);

		if (index >= 0 && (size_t)index < plan->n_slices && !plan->slices[index])
			n += add_hints(
				hints ? hints + n : NULL, plan->obsolete[i], (size_t)index);
	}
	return n;
}

struct slice_hint *slice_plan_hints(const struct slice_plan *plan, size_t *ret_n)
{
	struct slice_hint *hints = xcalloc(collect_hints(plan, NULL) + 1, sizeof(*hints));

	*ret_n = collect_hints(plan, hints);
	return hints;
}

static bool has_pool(const struct slice_record *record, int64_t generation, size_t count)
{
	return record->generation == generation && record->count == (int64_t)count;
}

static void count_changes(struct slice_plan *plan, int64_t generation)
{
	plan->n_changed = plan->n_missing = 0;
	for (size_t i = 0; i < plan->n_slices; i++) {
		const struct slice_record *record = plan->slices[i];

		if (!record)
			plan->n_missing++;
		else if (plan->changed[i] || !has_pool(record, generation, plan->n_slices))
			plan->n_changed++;
	}
}

void slice_plan_decide(struct slice_plan *plan)
{
	bool resumed = plan->generation > 0;

	count_changes(plan, plan->highest);
	if (!resumed) {
		bool alone = plan->n_missing == 0 && plan->n_changed <= 1;

		plan->generation = alone ? plan->highest : plan->highest + 1;
		count_changes(plan, plan->generation);
	}
	for (size_t i = 0; i < plan->n_slices; i++)
		plan->changed[i] |=
			plan->slices[i] &&
			!has_pool(plan->slices[i], plan->generation, plan->n_slices);
}

void slice_plan_fini(struct slice_plan *plan)
{
	free(plan->slices);
	free(plan->changed);
	free(plan->obsolete);
	*plan = (struct slice_plan){0};
}
