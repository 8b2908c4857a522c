/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Letting go of devices: what unprepare does, what a preparation does with devices that are not
 * allocated to its claim any more, and what undoing it does.
 *
 *	DETACH, a sandbox at a time ─▶ RECORD ─▶ FREE ×n ─▶ RECORD ─▶ done
 *
 * A device that is still in a sandbox is taken out first, for the runtime may never report that the
 * sandbox ended; one that could not be taken out is not freed under the pod's feet. While the rest is
 * freed their rows are unfinished: where the process dies in the middle, what was put back to how it
 * was before the claim is not taken for prepared, and the next start frees it. The rows of
 * devices that are free go together with their place in the record: until that is written nobody else
 * gets them, or a restart would find them in two claims' records. Where it cannot be written, or the
 * process dies before it is, the rows stay, and freeing a device that is free already changes nothing.
 */
#include <string.h>

#include "common/log.h"
#include "statd/flows.h"

struct letting_go {
	struct statd *s;
	char *claim_uid;
	struct strlist keys;
	struct strlist marked; /* as being freed; they were prepared before */
	struct strlist freed;
	struct strlist sandboxes; /* that were tried */
	size_t at;
	struct err err; /* of all that failed */
	void (*all_freed)(void *ctx);
	void (*done)(void *ctx, const struct err *err);
	void *ctx;
};

static void detach_next(struct letting_go *l);
static void free_first(struct letting_go *l);
static void free_next(struct letting_go *l);
static void let_go_end(struct letting_go *l);

/* --- DETACH ------------------------------------------------------------------------------- */

static void on_detached(void *ctx, const struct err *err)
{
	struct letting_go *l = ctx;

	if (err)
		err_join(&l->err, err);
	detach_next(l);
}

/* The sandbox of the first row that is in one which was not tried yet; NULL: there is none. */
static const char *next_sandbox(const struct letting_go *l)
{
	for (size_t i = 0; i < l->keys.n; i++) {
		const struct alloc_row *row =
			table_get(l->s->tables.allocations, l->keys.v[i]);

		if (row && row_is_in_a_sandbox(row) &&
			!strlist_has(&l->sandboxes, row->sandbox_id))
			return row->sandbox_id;
	}
	return NULL;
}

/* All rows of one sandbox at a time, so that its namespace is entered once. */
static void detach_next(struct letting_go *l)
{
	cleanup_free char *sandbox_id = xstrdup_opt(next_sandbox(l));
	struct strlist keys = {0};

	if (!sandbox_id) {
		free_first(l);
		return;
	}
	strlist_add(&l->sandboxes, sandbox_id);
	for (size_t i = 0; i < l->keys.n; i++) {
		const struct alloc_row *row =
			table_get(l->s->tables.allocations, l->keys.v[i]);

		if (row && str_equal(row->sandbox_id, sandbox_id))
			strlist_add(&keys, l->keys.v[i]);
	}
	detach_rows(l->s, sandbox_id, &keys, on_detached, l);
}

/* --- RECORD ------------------------------------------------------------------------------- */

static void mark(struct letting_go *l, const char *key)
{
	struct alloc_row row;

	if (!row_take(l->s, key, &row))
		return;
	if (!row_is_in_a_sandbox(&row) && !row.unfinished.v) {
		row.unfinished = (struct rec_bool){true, true};
		free(row.problem);
		row.problem = xstrdup(ALLOC_BEING_FREED);
		strlist_add(&l->marked, key);
	}
	row_put(l->s, &row);
}

/* One that could not be freed is the claim's as before. */
static void unmark(struct letting_go *l)
{
	for (size_t i = 0; i < l->marked.n; i++) {
		struct alloc_row row;

		if (strlist_has(&l->freed, l->marked.v[i]) ||
			!row_take(l->s, l->marked.v[i], &row))
			continue;
		row.unfinished = (struct rec_bool){0};
		if (str_equal(row.problem, ALLOC_BEING_FREED))
			free(take_ptr(row.problem));
		row_put(l->s, &row);
	}
}

static void free_first(struct letting_go *l)
{
	struct err err;

	for (size_t i = 0; i < l->keys.n; i++)
		mark(l, l->keys.v[i]);
	if (l->marked.n > 0 && record_write(l->s, l->claim_uid, &err) < 0) {
		err_join(&l->err, &err);
		l->at = l->keys.n;
	}
	free_next(l);
}

/* --- FREE --------------------------------------------------------------------------------- */

static void on_freed(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct letting_go *l = ctx;
	const char *key = l->keys.v[l->at++];
	const struct alloc_row *row = table_get(l->s->tables.allocations, key);

	if (err) {
		struct err wrapped = *err;

		(void)err_wrap(&wrapped, "device %s", row ? row->device_name : key);
		row_set_problem(l->s, key, &wrapped);
		err_join(&l->err, &wrapped);
	} else {
		strlist_add(&l->freed, key);
	}
	free_next(l);
}

static void free_next(struct letting_go *l)
{
	for (; l->at < l->keys.n; l->at++) {
		const struct alloc_row *row =
			table_get(l->s->tables.allocations, l->keys.v[l->at]);
		struct device_alloc a;

		if (!row || row_is_in_a_sandbox(row))
			continue;
		a = row_alloc(row);
		(void)rpc_start(l->s->loop,
			statd_manager(l->s, manager_type_parse(row->manager)), API_DEVICE_FREE,
			&a, NULL, 0, on_freed, l);
		return;
	}
	let_go_end(l);
}

/* --- RECORD ------------------------------------------------------------------------------- */

static void let_go_end(struct letting_go *l)
{
	void (*done)(void *ctx, const struct err *err) = l->done;
	struct err err = l->err, held;
	void *ctx = l->ctx;

	unmark(l);
	if (err.kind == ERR_NONE && l->all_freed)
		l->all_freed(ctx);
	if (rows_delete(l->s, l->claim_uid, &l->freed, &held) < 0)
		err_join(&err, &held);
	strlist_fini(&l->keys);
	strlist_fini(&l->marked);
	strlist_fini(&l->freed);
	strlist_fini(&l->sandboxes);
	free(l->claim_uid);
	free(l);
	done(ctx, err.kind != ERR_NONE ? &err : NULL);
}

void let_go(struct statd *s, struct strlist *keys, void (*freed)(void *ctx),
	void (*done)(void *ctx, const struct err *err), void *ctx)
{
	const struct alloc_row *first = table_get(s->tables.allocations, keys->v[0]);
	struct letting_go *l = xcalloc(1, sizeof(*l));

	*l = (struct letting_go){.s = s, .keys = *keys, .all_freed = freed, .done = done, .ctx = ctx};
	*keys = (struct strlist){0};
	l->claim_uid = xstrdup(first ? first->claim_uid : "");
	detach_next(l);
}
