/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables on uthash.
 *
 * A row is in one hash by its key, and that hash's list is kept in the order of the keys, which
 * is what walking a table follows. For each index there is a second hash, of buckets by value;
 * a bucket lists its rows in the order of their keys as well. Putting a row into its place
 * means walking the list: a node has some hundreds of devices and allocations, and ten thousand
 * still take well under a second.
 *
 * What a transaction replaces or deletes is not freed at once but buried with it: the batch of
 * changes that watchers are told points at it. While they are told, db->telling is set, and
 * what they change themselves opens the next batch, told in a round of its own. So a pointer
 * that a watcher was given stays good until all have been told, whatever they do.
 */
#include "statd/table.h"

#include <assert.h>
#include <string.h>
#include <utlist.h>

#include "common/hash.h"

struct row;

/* A row's place in one bucket of one index; bucket is NULL while it is in none. */
struct link {
	struct row *row;
	struct bucket *bucket;
	struct link *prev, *next;
};

/* The rows of one value of one index. */
struct bucket {
	char *value;
	struct link *links;
	UT_hash_handle hh;
};

/* pub is what others see of it: the same key and record. */
struct row {
	struct table_row pub;
	struct table *table;
	char *key;
	void *rec;
	struct link links[TABLE_MAX_INDEXES];
	UT_hash_handle hh;
};

/* What one transaction did to one table. */
struct batch {
	struct table_change *changes;
	size_t n_changes;
	struct row *dead_rows; /* deleted; a list by hh.next */
	void **dead_recs;      /* replaced */
	size_t n_dead_recs;
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
	struct row *rows;
	struct bucket *buckets[TABLE_MAX_INDEXES];
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

/* --- batches ------------------------------------------------------------------------------ */

static void rec_free(const struct table *table, void *rec)
{
	rec_fini(table->def->rec, rec);
	free(rec);
}

static void row_free(struct row *row)
{
	rec_free(row->table, row->rec);
	free(row->key);
	free(row);
}

static void batch_fini(struct table *table, struct batch *b)
{
	struct row *row, *next;

	for (row = b->dead_rows; row; row = next) {
		next = row->hh.next;
		row_free(row);
	}
	for (size_t i = 0; i < b->n_dead_recs; i++)
		rec_free(table, b->dead_recs[i]);
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

static void record_change(struct table *table, enum table_op op, const struct row *row,
	const void *old_rec, const void *new_rec)
{
	struct batch *b = &table->open;

	b->changes = xrealloc(b->changes, b->n_changes + 1, sizeof(*b->changes));
	b->changes[b->n_changes++] = (struct table_change){
		.op = op, .key = row->key, .old_rec = old_rec, .new_rec = new_rec};
}

static void bury_rec(struct table *table, void *rec)
{
	struct batch *b = &table->open;

	b->dead_recs = xrealloc(b->dead_recs, b->n_dead_recs + 1, sizeof(*b->dead_recs));
	b->dead_recs[b->n_dead_recs++] = rec;
}

static void bury_row(struct table *table, struct row *row)
{
	row->hh.next = table->open.dead_rows;
	table->open.dead_rows = row;
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
		batch_fini(table, &table->told);
		sweep_watches(table);
	}
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

static void bucket_free(struct bucket **buckets, struct bucket *bucket)
{
	HASH_DEL(*buckets, bucket);
	free(bucket->value);
	free(bucket);
}

static void table_free(struct table *table)
{
	struct table_watch *watch, *next_watch;
	struct bucket *bucket, *next_bucket;
	struct row *row, *next_row;

	HASH_ITER (hh, table->rows, row, next_row) {
		HASH_DEL(table->rows, row);
		row_free(row);
	}
	for (size_t i = 0; i < table->def->n_indexes; i++) {
		HASH_ITER (hh, table->buckets[i], bucket, next_bucket) {
			bucket_free(&table->buckets[i], bucket);
		}
	}
	LL_FOREACH_SAFE(table->watches, watch, next_watch)
	{
		free(watch);
	}
	batch_fini(table, &table->open);
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
	return HASH_COUNT(table->rows);
}

/* --- rows --------------------------------------------------------------------------------- */

static int row_compare(const struct row *a, const struct row *b)
{
	return strcmp(a->key, b->key);
}

static int link_compare(const struct link *a, const struct link *b)
{
	return row_compare(a->row, b->row);
}

static struct row *row_find(const struct table *table, const char *key)
{
	struct row *row;

	HASH_FIND(hh, table->rows, key, strlen(key), row);
	return row;
}

static struct bucket *bucket_find(const struct table *table, size_t index, const char *value)
{
	struct bucket *bucket;

	HASH_FIND(hh, table->buckets[index], value, strlen(value), bucket);
	return bucket;
}

static struct bucket *bucket_get(struct table *table, size_t index, const char *value)
{
	struct bucket *bucket = bucket_find(table, index, value);

	if (bucket)
		return bucket;
	bucket = xcalloc(1, sizeof(*bucket));
	bucket->value = xstrdup(value);
	HASH_ADD_KEYPTR(hh, table->buckets[index], bucket->value, strlen(value), bucket);
	return bucket;
}

static void index_link(struct table *table, struct row *row)
{
	for (size_t i = 0; i < table->def->n_indexes; i++) {
		const char *value = table->def->indexes[i].value(row->rec);
		struct link *link = &row->links[i];

		if (!value)
			continue;
		link->row = row;
		link->bucket = bucket_get(table, i, value);
		DL_INSERT_INORDER(link->bucket->links, link, link_compare);
	}
}

static void index_unlink(struct table *table, struct row *row)
{
	for (size_t i = 0; i < table->def->n_indexes; i++) {
		struct link *link = &row->links[i];

		if (!link->bucket)
			continue;
		DL_DELETE(link->bucket->links, link);
		if (!link->bucket->links)
			bucket_free(&table->buckets[i], link->bucket);
		*link = (struct link){0};
	}
}

static void *rec_take(const struct table *table, void *rec)
{
	const size_t size = table->def->rec->size;
	void *taken = xcalloc(1, size);

	memcpy(taken, rec, size);
	memset(rec, 0, size);
	return taken;
}

static void row_set(struct row *row, void *rec)
{
	row->rec = rec;
	row->pub = (struct table_row){
		.key = row->key, .rec = rec, .revision = row->table->revision};
	index_link(row->table, row);
}

int table_insert(struct table *table, void *rec, struct err *err)
{
	cleanup_buf struct buf key = BUF_INIT;
	struct row *row;

	table->def->key(rec, &key);
	if (row_find(table, key.data)) {
		rec_fini(table->def->rec, rec);
		return err_set(err, ERR_CONFLICT, "%s is in table %s already", key.data,
			table->def->name);
	}
	db_begin(table->db);
	touch(table);
	row = xcalloc(1, sizeof(*row));
	row->table = table;
	row->key = buf_take(&key);
	HASH_ADD_KEYPTR_INORDER(hh, table->rows, row->key, strlen(row->key), row, row_compare);
	row_set(row, rec_take(table, rec));
	record_change(table, TABLE_INSERT, row, NULL, row->rec);
	db_commit(table->db);
	return 0;
}

int table_update(struct table *table, void *rec, struct err *err)
{
	cleanup_buf struct buf key = BUF_INIT;
	struct row *row;
	void *old_rec;

	table->def->key(rec, &key);
	row = row_find(table, key.data);
	if (!row) {
		rec_fini(table->def->rec, rec);
		return err_set(err, ERR_NOT_FOUND, "%s is not in table %s", key.data,
			table->def->name);
	}
	if (rec_equal(table->def->rec, row->rec, rec)) {
		rec_fini(table->def->rec, rec);
		return 1;
	}
	db_begin(table->db);
	touch(table);
	old_rec = row->rec;
	index_unlink(table, row);
	row_set(row, rec_take(table, rec));
	bury_rec(table, old_rec);
	record_change(table, TABLE_UPDATE, row, old_rec, row->rec);
	db_commit(table->db);
	return 0;
}

bool table_delete(struct table *table, const char *key)
{
	struct row *row = row_find(table, key);

	if (!row)
		return false;
	db_begin(table->db);
	touch(table);
	index_unlink(table, row);
	HASH_DEL(table->rows, row);
	bury_row(table, row);
	record_change(table, TABLE_DELETE, row, row->rec, NULL);
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

	return row ? row->rec : NULL;
}

static const struct row *row_of(const struct table_row *pub)
{
	return (const struct row *)(const void *)((const char *)pub -
						  offsetof(struct row, pub));
}

const struct table_row *table_first(const struct table *table)
{
	return table->rows ? &table->rows->pub : NULL;
}

const struct table_row *table_next(const struct table_row *row)
{
	const struct row *next = row_of(row)->hh.next;

	return next ? &next->pub : NULL;
}

const struct table_row *table_index_first(
	const struct table *table, size_t index, const char *value)
{
	const struct bucket *bucket;

	assert(index < table->def->n_indexes);
	bucket = bucket_find(table, index, value);
	return bucket ? &bucket->links->row->pub : NULL;
}

const struct table_row *table_index_next(const struct table_row *row, size_t index)
{
	const struct link *next = row_of(row)->links[index].next;

	return next ? &next->row->pub : NULL;
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

static void strlist_remove(struct strlist *l, const char *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->v[i], s) == 0)
			free(l->v[i]);
		else
			l->v[kept++] = l->v[i];
	}
	l->n = kept;
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
