/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables are sorted arrays of pointers to rows: one in the order of the keys, which is what
 * walking a table follows, and one for each index, in the order of its values and then of the
 * keys. So a row costs a few words beyond its record, and nothing that grows by steps. What is
 * looked for is found by halving; to put one into its place the pointers behind it move, which
 * for ten thousand rows is a few microseconds.
 *
 * A row's record is frozen (rec.h), its key with it. The rows themselves are small and of one
 * size, and live in blocks of their own: an update replaces the record, and were the rows in
 * between, a transaction over all of them would leave holes that nothing fits.
 *
 * What a transaction replaces or deletes is not freed at once but buried with it: the batch of
 * changes that watchers are told points at it. While they are told, db->telling is set, and
 * what they change themselves opens the next batch, told in a round of its own. So a pointer
 * that a watcher was given stays good until all have been told, whatever they do.
 */
#include "statd/table.h"

#include <assert.h>
#include <malloc.h>
#include <string.h>
#include <utlist.h>

#define ROWS_A_BLOCK 64
#define MANY_RECS    256 /* that are freed at once: what they took is worth giving back */

/* pub is what others see of it. */
struct row {
	struct table_row pub;
	struct table *table;
};

struct row_block {
	struct row_block *next;
	struct row rows[ROWS_A_BLOCK];
};

/* Rows in an order. */
struct order {
	struct row **v;
	size_t n, max;
	size_t hint; /* where the last one was found: a walk goes on from there */
};

/* What one transaction did to one table. */
struct batch {
	struct table_change *changes;
	size_t n_changes, max_changes;
	struct row **dead_rows; /* deleted */
	size_t n_dead_rows, max_dead_rows;
	void **dead_recs; /* replaced, or deleted */
	size_t n_dead_recs, max_dead_recs;
	bool initialized;
};

struct table_watch {
	struct table *table;
	table_watch_cb *cb; /* NULL: unwatched while watchers were being told */
	void *ctx;
	uint64_t after; /* the last revision that it is not told of */
	struct table_watch *next;
};

struct table {
	struct db *db;
	const struct table_def *def;
	uint64_t revision;
	struct order keys;
	struct order indexes[TABLE_MAX_INDEXES];
	struct row_block *blocks;
	struct row *free_rows; /* a list by pub.rec */
	struct strlist expected, pending;
	struct table_watch *watches;
	struct batch open, told;
	struct table *next;
};

struct db {
	uint64_t revision;
	unsigned depth;
	bool changed; /* the open transaction has its revision already */
	bool telling;
	struct table *tables;
};

/* Makes room for one more of `size` bytes in a growing array. */
static void *grown(void *v, size_t n, size_t *max, size_t size)
{
	if (n < *max)
		return v;
	*max = *max ? *max + *max / 2 : 16;
	return xrealloc(v, *max, size);
}

/* --- rows in blocks ----------------------------------------------------------------------- */

static void add_block(struct table *table)
{
	struct row_block *block = xcalloc(1, sizeof(*block));

	LL_PREPEND(table->blocks, block);
	for (size_t i = ROWS_A_BLOCK; i-- > 0;) {
		block->rows[i].pub.rec = table->free_rows;
		table->free_rows = &block->rows[i];
	}
}

static struct row *row_new(struct table *table)
{
	struct row *row;

	if (!table->free_rows)
		add_block(table);
	row = table->free_rows;
	table->free_rows = (struct row *)(uintptr_t)row->pub.rec;
	*row = (struct row){.table = table};
	return row;
}

static void row_free(struct row *row)
{
	struct table *table = row->table;

	*row = (struct row){.pub.rec = table->free_rows};
	table->free_rows = row;
}

/* --- batches ------------------------------------------------------------------------------ */

static void batch_fini(struct batch *b)
{
	for (size_t i = 0; i < b->n_dead_rows; i++)
		row_free(b->dead_rows[i]);
	for (size_t i = 0; i < b->n_dead_recs; i++)
		free(b->dead_recs[i]);
	free(b->dead_rows);
	free(b->dead_recs);
	free(b->changes);
	*b = (struct batch){0};
}

static void touch(struct table *table)
{
	struct db *db = table->db;

	if (!db->changed)
		db->revision++;
	db->changed = true;
	table->revision = db->revision;
}

static void record_change(struct table *table, enum table_op op, const char *key,
	const void *old_rec, const void *new_rec)
{
	struct batch *b = &table->open;

	b->changes = grown(b->changes, b->n_changes, &b->max_changes, sizeof(*b->changes));
	b->changes[b->n_changes++] = (struct table_change){
		.op = op, .key = key, .old_rec = old_rec, .new_rec = new_rec};
}

static void bury_rec(struct table *table, const void *rec)
{
	struct batch *b = &table->open;

	b->dead_recs =
		grown(b->dead_recs, b->n_dead_recs, &b->max_dead_recs, sizeof(*b->dead_recs));
	b->dead_recs[b->n_dead_recs++] = (void *)(uintptr_t)rec;
}

static void bury_row(struct table *table, struct row *row)
{
	struct batch *b = &table->open;

	b->dead_rows =
		grown(b->dead_rows, b->n_dead_rows, &b->max_dead_rows, sizeof(*b->dead_rows));
	b->dead_rows[b->n_dead_rows++] = row;
	bury_rec(table, row->pub.rec);
}

/* --- transactions ------------------------------------------------------------------------- */

static void tell_table(struct table *table, uint64_t revision)
{
	const struct table_commit commit = {
		.table = table,
		.revision = revision,
		.changes = table->told.changes,
		.n_changes = table->told.n_changes,
		.initialized = table->told.initialized,
	};
	struct table_watch *watch;

	if (commit.n_changes == 0 && !commit.initialized)
		return;
	LL_FOREACH(table->watches, watch)
	{
		if (watch->cb && watch->after < revision)
			watch->cb(watch->ctx, &commit);
	}
}

static void sweep_watches(struct table *table)
{
	struct table_watch *watch, *next;

	LL_FOREACH_SAFE(table->watches, watch, next)
	{
		if (watch->cb)
			continue;
		LL_DELETE(table->watches, watch);
		free(watch);
	}
}

/* Closes the open transaction and tells it. */
static void tell_round(struct db *db)
{
	const uint64_t revision = db->revision;
	struct table *table;
	size_t buried = 0;

	db->changed = false;
	LL_FOREACH(db->tables, table)
	{
		table->told = table->open;
		table->open = (struct batch){0};
	}
	LL_FOREACH(db->tables, table)
	{
		tell_table(table, revision);
	}
	LL_FOREACH(db->tables, table)
	{
		buried += table->told.n_dead_recs;
		batch_fini(&table->told);
		sweep_watches(table);
	}
	if (buried >= MANY_RECS)
		(void)malloc_trim(0);
}

void db_begin(struct db *db)
{
	db->depth++;
}

void db_commit(struct db *db)
{
	assert(db->depth > 0);
	if (--db->depth > 0 || db->telling)
		return;
	db->telling = true;
	while (db->changed)
		tell_round(db);
	db->telling = false;
}

/* --- databases and tables ----------------------------------------------------------------- */

struct db *db_new(void)
{
	return xcalloc(1, sizeof(struct db));
}

static void table_free(struct table *table)
{
	struct table_watch *watch, *next_watch;
	struct row_block *block, *next_block;

	for (size_t i = 0; i < table->keys.n; i++)
		free((void *)(uintptr_t)table->keys.v[i]->pub.rec);
	free(table->keys.v);
	for (size_t i = 0; i < table->def->n_indexes; i++)
		free(table->indexes[i].v);
	LL_FOREACH_SAFE(table->watches, watch, next_watch)
	{
		free(watch);
	}
	batch_fini(&table->open);
	LL_FOREACH_SAFE(table->blocks, block, next_block)
	{
		free(block);
	}
	strlist_fini(&table->expected);
	strlist_fini(&table->pending);
	free(table);
}

void db_free(struct db *db)
{
	struct table *table, *next;

	if (!db)
		return;
	assert(!db->telling);
	LL_FOREACH_SAFE(db->tables, table, next)
	{
		table_free(table);
	}
	free(db);
}

uint64_t db_revision(const struct db *db)
{
	return db->revision;
}

struct table *table_new(struct db *db, const struct table_def *def)
{
	struct table *table = xcalloc(1, sizeof(*table));

	assert(def->n_indexes <= TABLE_MAX_INDEXES);
	table->db = db;
	table->def = def;
	LL_APPEND(db->tables, table);
	return table;
}

const struct table_def *table_def(const struct table *table)
{
	return table->def;
}

struct db *table_db(const struct table *table)
{
	return table->db;
}

uint64_t table_revision(const struct table *table)
{
	return table->revision;
}

size_t table_count(const struct table *table)
{
	return table->keys.n;
}

/* --- orders ------------------------------------------------------------------------------- */

#define BY_KEY TABLE_MAX_INDEXES /* in the place of an index: the order of the keys */

/* The text that this index finds the record by, NULL if it is not in it; "" for the order of the
 * keys, where it has no bearing. */
static const char *value_of(const struct table *table, size_t index, const void *rec)
{
	return index == BY_KEY ? "" : table->def->indexes[index].value(rec);
}

static struct order *order_of(struct table *table, size_t index)
{
	return index == BY_KEY ? &table->keys : &table->indexes[index];
}

static int compare(const struct row *row, size_t index, const char *value, const char *key)
{
	int order = strcmp(value_of(row->table, index, row->pub.rec), value);

	return order ? order : strcmp(row->pub.key, key);
}

/* The place of the first row that is not before this value and key. */
static size_t order_find(
	const struct order *o, size_t index, const char *value, const char *key)
{
	size_t low = 0, high = o->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare(o->v[middle], index, value, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The place of a row that is there. */
static size_t order_place(struct order *o, size_t index, const struct row *row)
{
	if (o->hint >= o->n || o->v[o->hint] != row)
		o->hint = order_find(
			o, index, value_of(row->table, index, row->pub.rec), row->pub.key);
	assert(o->hint < o->n && o->v[o->hint] == row);
	return o->hint;
}

static void order_insert(struct table *table, size_t index, struct row *row)
{
	const char *value = value_of(table, index, row->pub.rec);
	struct order *o = order_of(table, index);
	size_t at;

	if (!value)
		return;
	o->v = grown(o->v, o->n, &o->max, sizeof(*o->v));
	at = order_find(o, index, value, row->pub.key);
	memmove(&o->v[at + 1], &o->v[at], (o->n - at) * sizeof(*o->v));
	o->v[at] = row;
	o->n++;
}

static void order_remove(struct table *table, size_t index, const struct row *row)
{
	struct order *o = order_of(table, index);
	size_t at;

	if (!value_of(table, index, row->pub.rec))
		return;
	at = order_place(o, index, row);
	o->n--;
	memmove(&o->v[at], &o->v[at + 1], (o->n - at) * sizeof(*o->v));
}

/* The row behind this one, which is there. */
static const struct row *order_next(size_t index, const struct row *row)
{
	struct order *o = order_of(row->table, index);
	size_t next = order_place(o, index, row) + 1;

	if (next == o->n)
		return NULL;
	o->hint = next;
	return o->v[next];
}

/* --- rows --------------------------------------------------------------------------------- */

static struct row *row_find(const struct table *table, const char *key)
{
	size_t at = order_find(&table->keys, BY_KEY, "", key);

	if (at == table->keys.n || strcmp(table->keys.v[at]->pub.key, key) != 0)
		return NULL;
	return table->keys.v[at];
}

/* What the row's key and record are from now on. */
static void row_set(struct row *row, const void *rec, const char *key)
{
	row->pub.rec = rec_freeze(row->table->def->rec, rec, key, &row->pub.key);
	row->pub.revision = row->table->revision;
}

static void insert(struct table *table, const void *rec, const char *key)
{
	struct row *row;

	db_begin(table->db);
	touch(table);
	row = row_new(table);
	row_set(row, rec, key);
	order_insert(table, BY_KEY, row);
	for (size_t i = 0; i < table->def->n_indexes; i++)
		order_insert(table, i, row);
	record_change(table, TABLE_INSERT, row->pub.key, NULL, row->pub.rec);
	db_commit(table->db);
}

int table_insert(struct table *table, void *rec, struct err *err)
{
	cleanup_buf struct buf key = BUF_INIT;
	int r = 0;

	table->def->key(rec, &key);
	if (row_find(table, key.data))
		r = err_set(err, ERR_CONFLICT, "%s is in table %s already", key.data,
			table->def->name);
	else
		insert(table, rec, key.data);
	rec_fini(table->def->rec, rec);
	return r;
}

/* In which of the orders the new record has another place than the row has now. */
static unsigned moved_orders(const struct row *row, const void *rec)
{
	const struct table *table = row->table;
	unsigned moved = 0;

	for (size_t i = 0; i < table->def->n_indexes; i++)
		if (!str_equal(value_of(table, i, row->pub.rec), value_of(table, i, rec)))
			moved |= 1u << i;
	return moved;
}

static void update(struct row *row, const void *rec, const char *key)
{
	struct table *table = row->table;
	const unsigned moved = moved_orders(row, rec);
	const void *old_rec = row->pub.rec;

	db_begin(table->db);
	touch(table);
	for (size_t i = 0; i < table->def->n_indexes; i++)
		if (moved & 1u << i)
			order_remove(table, i, row);
	row_set(row, rec, key);
	for (size_t i = 0; i < table->def->n_indexes; i++)
		if (moved & 1u << i)
			order_insert(table, i, row);
	bury_rec(table, old_rec);
	record_change(table, TABLE_UPDATE, row->pub.key, old_rec, row->pub.rec);
	db_commit(table->db);
}

int table_update(struct table *table, void *rec, struct err *err)
{
	cleanup_buf struct buf key = BUF_INIT;
	struct row *row;
	int r = 0;

	table->def->key(rec, &key);
	row = row_find(table, key.data);
	if (!row)
		r = err_set(err, ERR_NOT_FOUND, "%s is not in table %s", key.data,
			table->def->name);
	else if (rec_equal(table->def->rec, row->pub.rec, rec))
		r = 1;
	else
		update(row, rec, key.data);
	rec_fini(table->def->rec, rec);
	return r;
}

bool table_delete(struct table *table, const char *key)
{
	struct row *row = row_find(table, key);

	if (!row)
		return false;
	db_begin(table->db);
	touch(table);
	order_remove(table, BY_KEY, row);
	for (size_t i = 0; i < table->def->n_indexes; i++)
		order_remove(table, i, row);
	bury_row(table, row);
	record_change(table, TABLE_DELETE, row->pub.key, row->pub.rec, NULL);
	db_commit(table->db);
	return true;
}

const struct table_row *table_row(const struct table *table, const char *key)
{
	const struct row *row = row_find(table, key);

	return row ? &row->pub : NULL;
}

const void *table_get(const struct table *table, const char *key)
{
	const struct row *row = row_find(table, key);

	return row ? row->pub.rec : NULL;
}

static const struct row *row_of(const struct table_row *pub)
{
	return (const struct row *)(const void *)((const char *)pub -
						  offsetof(struct row, pub));
}

const struct table_row *table_first(const struct table *table)
{
	return table->keys.n ? &table->keys.v[0]->pub : NULL;
}

const struct table_row *table_next(const struct table_row *row)
{
	const struct row *next = order_next(BY_KEY, row_of(row));

	return next ? &next->pub : NULL;
}

const struct table_row *table_index_first(
	const struct table *table, size_t index, const char *value)
{
	const struct order *o = &table->indexes[index];
	size_t at;

	assert(index < table->def->n_indexes);
	at = order_find(o, index, value, "");
	if (at == o->n || strcmp(value_of(table, index, o->v[at]->pub.rec), value) != 0)
		return NULL;
	return &o->v[at]->pub;
}

const struct table_row *table_index_next(const struct table_row *row, size_t index)
{
	const struct row *next = order_next(index, row_of(row));

	if (!next || strcmp(value_of(next->table, index, next->pub.rec),
			     value_of(next->table, index, row->rec)) != 0)
		return NULL;
	return &next->pub;
}

size_t table_index_parse(const struct table *table, const char *name)
{
	for (size_t i = 0; i < table->def->n_indexes; i++)
		if (strcmp(table->def->indexes[i].name, name) == 0)
			return i;
	return TABLE_MAX_INDEXES;
}

/* --- completeness ------------------------------------------------------------------------- */

void table_expect(struct table *table, const char *initializer)
{
	if (strlist_has(&table->expected, initializer))
		return;
	strlist_add(&table->expected, initializer);
	strlist_add(&table->pending, initializer);
}

void table_initialized(struct table *table, const char *initializer)
{
	if (!strlist_has(&table->pending, initializer))
		return;
	strlist_remove(&table->pending, initializer);
	if (table->pending.n > 0)
		return;
	db_begin(table->db);
	touch(table);
	table->open.initialized = true;
	db_commit(table->db);
}

bool table_is_initialized(const struct table *table)
{
	return table->pending.n == 0;
}

const struct strlist *table_pending(const struct table *table)
{
	return &table->pending;
}

/* --- watching ----------------------------------------------------------------------------- */

const char *table_op_name(enum table_op op)
{
	static const char *const names[] = {
		[TABLE_INSERT] = "insert",
		[TABLE_UPDATE] = "update",
		[TABLE_DELETE] = "delete",
	};

	return names[op];
}

struct table_watch *table_watch(struct table *table, table_watch_cb *cb, void *ctx)
{
	struct table_watch *watch = xcalloc(1, sizeof(*watch));

	*watch = (struct table_watch){
		.table = table,
		.cb = cb,
		.ctx = ctx,
		/* of an open transaction all is told: it will be one commit */
		.after = table->db->changed ? table->db->revision - 1 : table->db->revision,
	};
	LL_APPEND(table->watches, watch);
	return watch;
}

void table_unwatch(struct table_watch *watch)
{
	if (!watch)
		return;
	watch->cb = NULL;
	if (!watch->table->db->telling)
		sweep_watches(watch->table);
}
