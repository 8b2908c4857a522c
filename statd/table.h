/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * In-memory tables of records, with transactions, indexes, revisions and watchers.
 *
 * A database holds a few tables and one revision number. A table holds records of one type,
 * each under a text key that is computed from the record; it can be walked in the byte order of
 * the keys and looked up by key or by an index. Who wants to know of changes watches a table
 * and is told once a transaction.
 *
 * A table also knows whether it is complete: at start, whoever will fill it is named with
 * table_expect(), and until each has said table_initialized() what is missing may yet come.
 *
 * Nothing here fails for a peer's sake and nothing blocks. A NULL database or table is a bug.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/rec.h"
#include "common/util.h"

struct db;
struct table;

struct table_index_def {
	const char *name;
	/* The text that rec is found by, borrowed from it; NULL: by none. */
	const char *(*value)(const void *rec);
};

#define TABLE_MAX_INDEXES 4

struct table_def {
	const char *name;
	const struct rec_desc *rec;
	/* Puts the key of rec into out, which is empty. An update cannot change it. */
	void (*key)(const void *rec, struct buf *out);
	const struct table_index_def *indexes; /* at most TABLE_MAX_INDEXES */
	size_t n_indexes;
};

/* A row stays where it is for as long as its key is in the table. What key and rec point at stays
 * until the row is updated or deleted, and then until the end of that transaction's
 * notifications. */
struct table_row {
	const char *key;
	const void *rec;
	uint64_t revision; /* of its last change */
};

/* --- databases ---------------------------------------------------------------------------- */

struct db *db_new(void);
/* With its tables and their watches. NULL is fine. */
void db_free(struct db *db);

/* Grows by one with each transaction that changed anything. */
uint64_t db_revision(const struct db *db);

/* What happens between the two is told to watchers as one commit and has one revision. Pairs
 * nest: the outermost counts. A change outside any pair is a transaction by itself. There is no
 * way back: what must not be done half is checked before it is begun. */
void db_begin(struct db *db);
void db_commit(struct db *db);

/* --- tables ------------------------------------------------------------------------------- */

/* def must stay. The table is the database's and goes with it. */
struct table *table_new(struct db *db, const struct table_def *def);
const struct table_def *table_def(const struct table *table);
struct db *table_db(const struct table *table);
uint64_t table_revision(const struct table *table); /* of its last change, 0: none yet */
size_t table_count(const struct table *table);

/* Both take what rec owns and leave rec zeroed, whatever they return. insert: ERR_CONFLICT when
 * the key is taken. update: ERR_NOT_FOUND when it is not; 1 when the record equals the one that
 * is there: nothing is changed then and nobody is told. */
int table_insert(struct table *table, void *rec, struct err *err);
int table_update(struct table *table, void *rec, struct err *err);
/* Whether it was there. */
bool table_delete(struct table *table, const char *key);

/* Borrowed; NULL if there is none. */
const struct table_row *table_row(const struct table *table, const char *key);
const void *table_get(const struct table *table, const char *key); /* its record */

/* All rows, in the byte order of their keys. The row at hand may be updated, or deleted once
 * the one after it has been asked for. */
const struct table_row *table_first(const struct table *table);
const struct table_row *table_next(const struct table_row *row);
/* Rows whose value in this index is `value`, likewise; an update must leave that value
 * alone. */
const struct table_row *table_index_first(
	const struct table *table, size_t index, const char *value);
const struct table_row *table_index_next(const struct table_row *row, size_t index);
/* TABLE_MAX_INDEXES if there is none of this name. */
size_t table_index_parse(const struct table *table, const char *name);

/* --- completeness ------------------------------------------------------------------------- */

/* Both ignore a name that was given before. A table that nobody is expected for is
 * initialised. */
void table_expect(struct table *table, const char *initializer);
void table_initialized(struct table *table, const char *initializer);
bool table_is_initialized(const struct table *table);
/* The names of those that are still missing, in the order they were expected. Borrowed. */
const struct strlist *table_pending(const struct table *table);

/* --- watching ----------------------------------------------------------------------------- */

enum table_op {
	TABLE_INSERT,
	TABLE_UPDATE,
	TABLE_DELETE,
};
const char *table_op_name(enum table_op op); /* "insert", "update", "delete" */

struct table_change {
	enum table_op op;
	const char *key;
	const void *old_rec; /* NULL for an insert */
	const void *new_rec; /* NULL for a delete */
};

/* What one transaction did to one table, in the order it was done. */
struct table_commit {
	const struct table *table;
	uint64_t revision;
	const struct table_change *changes;
	size_t n_changes; /* 0 when all that happened is that it became initialised */
	bool initialized; /* with this transaction the table became initialised */
};

/* commit is borrowed for the call. A watcher may change tables, watch and unwatch: what it
 * changes is a later transaction, told after this one. */
typedef void table_watch_cb(void *ctx, const struct table_commit *commit);

struct table_watch;
struct table_watch *table_watch(struct table *table, table_watch_cb *cb, void *ctx);
/* cb is never called again. NULL is fine. */
void table_unwatch(struct table_watch *watch);
