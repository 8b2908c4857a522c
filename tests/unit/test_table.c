/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: rows, order, indexes, transactions and what watchers are told of them; statd's own
 * two; and the hash behind them.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/siphash.h"
#include "statd/schema.h"
#include "statd/table.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

/* --- a table of words --------------------------------------------------------------------- */

struct word {
	char *text, *language, *kind;
	struct rec_int count;
};

static const struct rec_field word_fields[] = {
	REC_STR(struct word, text, "text", REC_REQUIRED, 0, NULL, "key"),
	REC_STR(struct word, language, "language", REC_OPTIONAL, 0, NULL, "indexed"),
	REC_STR(struct word, kind, "kind", REC_OPTIONAL, 0, NULL, "indexed"),
	REC_INT(struct word, count, "count", REC_OPTIONAL, 0, 1000, "how many"),
};
static REC_DESC(rec_word, struct word, "word", word_fields, NULL, "a word");

static void word_key(const void *rec, struct buf *out)
{
	buf_puts(out, ((const struct word *)rec)->text);
}

static const char *word_language(const void *rec)
{
	return ((const struct word *)rec)->language;
}

static const char *word_kind(const void *rec)
{
	return ((const struct word *)rec)->kind;
}

enum { BY_LANGUAGE, BY_KIND };

static const struct table_index_def word_indexes[] = {
	[BY_LANGUAGE] = {"language", word_language},
	[BY_KIND] = {"kind", word_kind},
};
static const struct table_def words_def = {
	.name = "words",
	.rec = &rec_word,
	.key = word_key,
	.indexes = word_indexes,
	.n_indexes = ARRAY_SIZE(word_indexes),
};
static const struct table_def others_def = {
	.name = "others",
	.rec = &rec_word,
	.key = word_key,
};

static struct db *db;
static struct table *words, *others;

static void setup(void)
{
	db = db_new();
	words = table_new(db, &words_def);
	others = table_new(db, &others_def);
}

static void teardown(void)
{
	db_free(db);
}

static int insert_into(struct table *table, const char *text)
{
	struct err err = ERR_INIT;
	struct word word;
	int outcome;

	rec_of(&rec_word, text, &word);
	outcome = table_insert(table, &word, &err);
	ck_assert_ptr_null(word.text); /* taken, or freed */
	if (outcome < 0)
		ck_assert_int_eq(err.kind, ERR_CONFLICT);
	return outcome;
}

static int insert(const char *text)
{
	return insert_into(words, text);
}

static int update(const char *text)
{
	struct err err = ERR_INIT;
	struct word word;
	int outcome;

	rec_of(&rec_word, text, &word);
	outcome = table_update(words, &word, &err);
	ck_assert_ptr_null(word.text);
	if (outcome < 0)
		ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
	return outcome;
}

static void assert_keys(const char *should)
{
	cleanup_buf struct buf is = BUF_INIT;

	buf_puts(&is, "");
	for (const struct table_row *row = table_first(words); row; row = table_next(row))
		buf_printf(&is, "%s%s", is.len ? " " : "", row->key);
	ck_assert_str_eq(is.data, should);
}

static void assert_index(size_t index, const char *value, const char *should)
{
	const struct table_row *row = table_index_first(words, index, value);
	cleanup_buf struct buf is = BUF_INIT;

	buf_puts(&is, "");
	for (; row; row = table_index_next(row, index))
		buf_printf(&is, "%s%s", is.len ? " " : "", row->key);
	ck_assert_str_eq(is.data, should);
}

/* --- rows --------------------------------------------------------------------------------- */

START_TEST(rows_are_in_byte_order)
{
	ck_assert_ptr_null(table_first(words));
	ck_assert_uint_eq(table_revision(words), 0);
	insert("{'text': 'b'}");
	insert("{'text': 'a/b'}");
	insert("{'text': 'B'}");
	insert("{'text': 'é'}");
	insert("{'text': 'a'}");
	insert("{'text': 'a.b'}");
	assert_keys("B a a.b a/b b é");
	ck_assert_uint_eq(table_count(words), 6);
	ck_assert_uint_eq(table_revision(words), 6);
	ck_assert_uint_eq(table_row(words, "B")->revision, 3);
}
END_TEST

START_TEST(key_is_taken_once)
{
	ck_assert_int_eq(insert("{'text': 'a', 'count': 1}"), 0);
	ck_assert_int_eq(insert("{'text': 'a', 'count': 2}"), -1);
	assert_rec(&rec_word, table_get(words, "a"), "{'text': 'a', 'count': 1}");
	ck_assert_uint_eq(db_revision(db), 1);
}
END_TEST

START_TEST(update_replaces)
{
	const struct table_row *row;

	ck_assert_int_eq(update("{'text': 'a'}"), -1);
	insert("{'text': 'a', 'count': 1}");
	insert("{'text': 'b'}");
	row = table_row(words, "a");
	ck_assert_int_eq(update("{'text': 'a', 'count': 2}"), 0);
	ck_assert_ptr_eq(row, table_row(words, "a"));
	assert_rec(&rec_word, row->rec, "{'text': 'a', 'count': 2}");
	ck_assert_uint_eq(row->revision, 3);
}
END_TEST

START_TEST(update_with_the_same_changes_nothing)
{
	const void *rec;

	insert("{'text': 'a', 'count': 1}");
	rec = table_get(words, "a");
	ck_assert_int_eq(update("{'text': 'a', 'count': 1}"), 1);
	ck_assert_ptr_eq(table_get(words, "a"), rec);
	ck_assert_uint_eq(db_revision(db), 1);
	/* unset is not zero */
	ck_assert_int_eq(update("{'text': 'a', 'count': 0}"), 0);
	ck_assert_int_eq(update("{'text': 'a'}"), 0);
}
END_TEST

START_TEST(delete_removes)
{
	insert("{'text': 'a'}");
	insert("{'text': 'b'}");
	ck_assert(table_delete(words, "a"));
	ck_assert(!table_delete(words, "a"));
	ck_assert_ptr_null(table_row(words, "a"));
	ck_assert_ptr_null(table_get(words, "a"));
	assert_keys("b");
	ck_assert_uint_eq(db_revision(db), 3);
}
END_TEST

START_TEST(row_at_hand_may_be_deleted)
{
	const struct table_row *row;

	insert("{'text': 'a'}");
	insert("{'text': 'b', 'language': 'de'}");
	insert("{'text': 'c'}");
	row = table_first(words);
	while (row) {
		const char *key = row->key;

		row = table_next(row);
		if (strcmp(key, "b") != 0)
			ck_assert(table_delete(words, key));
	}
	assert_keys("b");
	for (row = table_first(words); row; row = table_next(row))
		ck_assert_int_eq(update("{'text': 'b', 'language': 'en'}"), row->revision > 6);
	assert_index(BY_LANGUAGE, "en", "b");
}
END_TEST

START_TEST(indexes_follow)
{
	insert("{'text': 'Haus', 'language': 'de', 'kind': 'noun'}");
	insert("{'text': 'Auto', 'language': 'de', 'kind': 'noun'}");
	insert("{'text': 'go', 'language': 'en'}");
	insert("{'text': 'Zeh', 'language': 'de'}");
	assert_index(BY_LANGUAGE, "de", "Auto Haus Zeh");
	assert_index(BY_LANGUAGE, "en", "go");
	assert_index(BY_LANGUAGE, "fr", "");
	assert_index(BY_KIND, "noun", "Auto Haus");
	update("{'text': 'Auto', 'language': 'eo', 'kind': 'noun'}");
	assert_index(BY_LANGUAGE, "de", "Haus Zeh");
	assert_index(BY_LANGUAGE, "eo", "Auto");
	update("{'text': 'go', 'language': 'en', 'kind': 'verb'}");
	assert_index(BY_KIND, "verb", "go");
	update("{'text': 'Haus', 'kind': 'noun'}");
	assert_index(BY_LANGUAGE, "de", "Zeh");
	table_delete(words, "Zeh");
	assert_index(BY_LANGUAGE, "de", "");
	assert_index(BY_KIND, "noun", "Auto Haus");
	ck_assert_uint_eq(table_index_parse(words, "kind"), BY_KIND);
	ck_assert_uint_eq(table_index_parse(words, "size"), TABLE_MAX_INDEXES);
}
END_TEST

/* Any sequence of changes leaves what a plain array would hold. */
#define N_MODEL 26
#define NO_KIND 3

struct model {
	bool there[N_MODEL];
	unsigned kind[N_MODEL];
};

static void model_put(struct model *m, unsigned i, unsigned kind, unsigned count)
{
	cleanup_buf struct buf text = BUF_INIT;

	buf_printf(&text, "{'text': '%c', 'count': %u", 'a' + (int)i, count);
	if (kind != NO_KIND)
		buf_printf(&text, ", 'kind': '%u'", kind);
	buf_puts(&text, "}");
	if (m->there[i])
		ck_assert_int_ge(update(text.data), 0);
	else
		ck_assert_int_eq(insert(text.data), 0);
	m->there[i] = true;
	m->kind[i] = kind;
}

static void model_check(const struct model *m)
{
	cleanup_buf struct buf keys = BUF_INIT;

	buf_puts(&keys, "");
	for (int i = 0; i < N_MODEL; i++)
		if (m->there[i])
			buf_printf(&keys, "%s%c", keys.len ? " " : "", 'a' + i);
	assert_keys(keys.data);
	for (unsigned kind = 0; kind < NO_KIND; kind++) {
		const char name[] = {(char)('0' + kind), '\0'};
		cleanup_buf struct buf of_kind = BUF_INIT;

		buf_puts(&of_kind, "");
		for (int i = 0; i < N_MODEL; i++)
			if (m->there[i] && m->kind[i] == kind)
				buf_printf(&of_kind, "%s%c", of_kind.len ? " " : "", 'a' + i);
		assert_index(BY_KIND, name, of_kind.data);
	}
}

START_TEST(agrees_with_an_array)
{
	struct model model = {0};
	unsigned state = 1;

	for (int step = 0; step < 4000; step++) {
		unsigned i;

		state = state * 1103515245u + 12345u;
		i = (state >> 16) % N_MODEL;
		if (state >> 31) {
			model_put(&model, i, (state >> 24) % 4, (state >> 8) % 1000);
		} else {
			const char key[] = {(char)('a' + i), '\0'};

			ck_assert_int_eq(table_delete(words, key), model.there[i]);
			model.there[i] = false;
		}
		model_check(&model);
	}
}
END_TEST

/* Walks of one table and its indexes do not get in each other's way, whatever is changed
 * meanwhile. */
START_TEST(walks_within_walks)
{
	struct model model = {0};
	unsigned pairs = 0;

	for (unsigned i = 0; i < N_MODEL; i++)
		model_put(&model, i, i % 2, 1);
	for (const struct table_row *a = table_first(words); a; a = table_next(a)) {
		const struct table_row *b = table_index_first(words, BY_KIND, "1");

		for (; b; b = table_index_next(b, BY_KIND)) {
			model_put(&model, (unsigned)(*b->key - 'a'), 1, 2 + pairs);
			pairs++;
		}
		model_put(&model, (unsigned)(*a->key - 'a'), 0, 1000);
	}
	/* those of kind 1 that are still to come, at each step */
	ck_assert_uint_eq(pairs, 2 * (13 * 14 / 2));
	model_check(&model);
}
END_TEST

START_TEST(rows_stay_where_they_are)
{
	const struct table_row *rows[N_MODEL];
	struct model model = {0};

	for (unsigned i = 0; i < N_MODEL; i++) {
		const char key[] = {(char)('a' + i), '\0'};

		model_put(&model, i, 0, 1);
		rows[i] = table_row(words, key);
	}
	for (int i = 0; i < 1000; i++) {
		cleanup_free char *text = xasprintf("{'text': 'more-%d'}", i);

		ck_assert_int_eq(insert(text), 0);
	}
	for (unsigned i = 0; i < N_MODEL; i++) {
		const char key[] = {(char)('a' + i), '\0'};

		model_put(&model, i, 1, 2);
		ck_assert_ptr_eq(table_row(words, key), rows[i]);
		ck_assert_str_eq(rows[i]->key, key);
		ck_assert_int_eq(((const struct word *)rows[i]->rec)->count.v, 2);
	}
}
END_TEST

/* A place that was given up is another row's. */
START_TEST(deleted_rows_make_room)
{
	for (int i = 0; i < 10000; i++) {
		cleanup_free char *key = xasprintf("word-%d", i);
		cleanup_free char *text = xasprintf("{'text': '%s', 'kind': 'k'}", key);

		ck_assert_int_eq(insert(text), 0);
		assert_index(BY_KIND, "k", key);
		ck_assert(table_delete(words, key));
		assert_index(BY_KIND, "k", "");
	}
	ck_assert_uint_eq(table_count(words), 0);
}
END_TEST

/* --- watching ----------------------------------------------------------------------------- */

struct diary {
	struct buf told;
	struct table_watch *watch;
	unsigned calls;
};

static void diary_init(struct diary *d)
{
	*d = (struct diary){0};
	buf_puts(&d->told, "");
}

static void write_rec(struct buf *out, const void *rec)
{
	const struct word *word = rec;

	if (word)
		buf_printf(out, "%d", (int)word->count.v);
	else
		buf_puts(out, "-");
}

/* "words@3 insert a -:1; " */
static void write_diary(void *ctx, const struct table_commit *commit)
{
	struct diary *d = ctx;

	d->calls++;
	buf_printf(&d->told, "%s@%u%s", table_def(commit->table)->name,
		(unsigned)commit->revision, commit->initialized ? " initialized" : "");
	for (size_t i = 0; i < commit->n_changes; i++) {
		const struct table_change *c = &commit->changes[i];

		buf_printf(&d->told, " %s %s ", table_op_name(c->op), c->key);
		write_rec(&d->told, c->old_rec);
		buf_puts(&d->told, ":");
		write_rec(&d->told, c->new_rec);
	}
	buf_puts(&d->told, "; ");
}

static void assert_diary(struct diary *d, const char *should)
{
	ck_assert_str_eq(d->told.data, should);
	buf_fini(&d->told);
	buf_puts(&d->told, "");
}

START_TEST(each_change_is_a_transaction)
{
	struct diary d;

	diary_init(&d);
	d.watch = table_watch(words, write_diary, &d);
	insert("{'text': 'a', 'count': 1}");
	update("{'text': 'a', 'count': 2}");
	update("{'text': 'a', 'count': 2}");
	insert_into(others, "{'text': 'x'}");
	table_delete(words, "a");
	table_delete(words, "a");
	assert_diary(&d, "words@1 insert a -:1; words@2 update a 1:2; words@4 delete a 2:-; ");
	table_unwatch(d.watch);
	insert("{'text': 'b'}");
	assert_diary(&d, "");
	table_unwatch(NULL);
	buf_fini(&d.told);
}
END_TEST

START_TEST(transaction_is_told_once)
{
	struct diary d;

	diary_init(&d);
	(void)table_watch(words, write_diary, &d);
	(void)table_watch(others, write_diary, &d);
	db_begin(db);
	insert("{'text': 'b', 'count': 1}");
	db_begin(db);
	update("{'text': 'b', 'count': 2}");
	insert_into(others, "{'text': 'x', 'count': 9}");
	db_commit(db);
	table_delete(words, "b");
	insert("{'text': 'b', 'count': 3}");
	assert_diary(&d, "");
	ck_assert_uint_eq(table_row(words, "b")->revision, 1);
	db_commit(db);
	assert_diary(&d, "words@1 insert b -:1 update b 1:2 delete b 2:- insert b -:3; "
			 "others@1 insert x -:9; ");
	ck_assert_uint_eq(d.calls, 2);
	db_begin(db);
	db_commit(db);
	assert_diary(&d, "");
	ck_assert_uint_eq(db_revision(db), 1);
	buf_fini(&d.told);
}
END_TEST

/* Answers the insertion of a by changing it, then by deleting it. */
static void meddle(void *ctx, const struct table_commit *commit)
{
	(void)ctx;
	if (commit->changes[0].op == TABLE_INSERT)
		update("{'text': 'a', 'count': 2}");
	else if (commit->changes[0].op == TABLE_UPDATE)
		table_delete(words, "a");
}

START_TEST(what_a_watcher_changes_is_told_after)
{
	struct diary d;

	diary_init(&d);
	(void)table_watch(words, meddle, NULL);
	(void)table_watch(words, write_diary, &d);
	insert("{'text': 'a', 'count': 1}");
	assert_diary(&d, "words@1 insert a -:1; words@2 update a 1:2; words@3 delete a 2:-; ");
	assert_keys("");
	buf_fini(&d.told);
}
END_TEST

static void unwatch_first(void *ctx, const struct table_commit *commit)
{
	struct diary *d = ctx;

	(void)commit;
	table_unwatch(d->watch);
	d->watch = NULL;
}

static void watch_later(void *ctx, const struct table_commit *commit)
{
	struct diary *d = ctx;

	(void)commit;
	if (!d->watch)
		d->watch = table_watch(words, write_diary, d);
}

START_TEST(watchers_come_and_go_while_told)
{
	struct diary gone, late;

	diary_init(&gone);
	diary_init(&late);
	(void)table_watch(words, unwatch_first, &gone);
	gone.watch = table_watch(words, write_diary, &gone);
	(void)table_watch(words, watch_later, &late);
	insert("{'text': 'a', 'count': 1}");
	assert_diary(&gone, "");
	assert_diary(&late, "");
	insert("{'text': 'b', 'count': 1}");
	assert_diary(&gone, "");
	assert_diary(&late, "words@2 insert b -:1; ");
	buf_fini(&gone.told);
	buf_fini(&late.told);
}
END_TEST

START_TEST(watcher_is_told_all_of_an_open_transaction)
{
	struct diary d;

	diary_init(&d);
	insert("{'text': 'a', 'count': 1}");
	db_begin(db);
	insert("{'text': 'b', 'count': 2}");
	(void)table_watch(words, write_diary, &d);
	insert("{'text': 'c', 'count': 3}");
	db_commit(db);
	assert_diary(&d, "words@2 insert b -:2 insert c -:3; ");
	buf_fini(&d.told);
}
END_TEST

/* --- completeness ------------------------------------------------------------------------- */

START_TEST(table_nobody_fills_is_initialized)
{
	ck_assert(table_is_initialized(words));
	ck_assert_uint_eq(table_pending(words)->n, 0);
}
END_TEST

START_TEST(initialized_with_the_last)
{
	struct diary d;

	diary_init(&d);
	(void)table_watch(words, write_diary, &d);
	table_expect(words, "dictionary");
	table_expect(words, "neighbour");
	table_expect(words, "dictionary");
	ck_assert(!table_is_initialized(words));
	ck_assert(table_is_initialized(others));
	table_initialized(words, "stranger");
	table_initialized(words, "dictionary");
	ck_assert_uint_eq(table_pending(words)->n, 1);
	ck_assert_str_eq(table_pending(words)->v[0], "neighbour");
	assert_diary(&d, "");
	db_begin(db);
	insert("{'text': 'a', 'count': 1}");
	table_initialized(words, "neighbour");
	db_commit(db);
	ck_assert(table_is_initialized(words));
	assert_diary(&d, "words@1 initialized insert a -:1; ");
	table_initialized(words, "neighbour");
	table_expect(words, "neighbour");
	ck_assert(table_is_initialized(words));
	assert_diary(&d, "");
	buf_fini(&d.told);
}
END_TEST

START_TEST(initialized_without_a_row)
{
	struct diary d;

	diary_init(&d);
	(void)table_watch(words, write_diary, &d);
	table_expect(words, "dictionary");
	table_initialized(words, "dictionary");
	assert_diary(&d, "words@1 initialized; ");
	buf_fini(&d.told);
}
END_TEST

/* --- statd's tables ----------------------------------------------------------------------- */

START_TEST(seed_names)
{
	struct tables tables;

	tables_init(&tables);
	ck_assert_str_eq(table_def(tables.devices)->name, "networkdriver-dra-devices");
	ck_assert_str_eq(table_def(tables.allocations)->name, "networkdriver-dra-allocations");
	ck_assert_uint_eq(table_index_parse(tables.allocations, "claim-uid"), ALLOC_BY_CLAIM);
	ck_assert_uint_eq(
		table_index_parse(tables.allocations, "device-name"), ALLOC_BY_DEVICE);
	ck_assert_uint_eq(table_index_parse(tables.allocations, "pod-uid"), ALLOC_BY_POD);
	ck_assert_str_eq(schema_initializer(MANAGER_DUMMY), "device-manager-dummy");
	ck_assert_str_eq(schema_initializer(MANAGER_SRIOV), "device-manager-sr-iov");
	ck_assert_str_eq(schema_initializer(MANAGER_RXQUEUE), "device-manager-rxQueue");
	tables_fini(&tables);
}
END_TEST

static void allocate(struct tables *tables, const char *text, int should)
{
	struct err err = ERR_INIT;
	struct alloc_row row;

	rec_of(&rec_alloc_row, text, &row);
	ck_assert_int_eq(table_insert(tables->allocations, &row, &err), should);
}

START_TEST(shares_of_a_device_coexist)
{
	static const char one[] =
		"{'DeviceName': 'ens1f0', 'Manager': 'rxQueue', 'LogicalPool': "
		"'rx', 'ClaimUID': 'c1', 'PodUID': 'p1', 'ShareID': 's1'}";
	static const char two[] =
		"{'DeviceName': 'ens1f0', 'Manager': 'rxQueue', 'LogicalPool': "
		"'rx', 'ClaimUID': 'c2', 'PodUID': 'p1', 'ShareID': 's2'}";
	static const char dedicated[] =
		"{'DeviceName': 'dummy0', 'Manager': 'dummy', "
		"'LogicalPool': 'fast', 'ClaimUID': 'c1', 'PodUID': 'p2'}";
	static const char again[] = "{'DeviceName': 'dummy0', 'Manager': 'dummy', "
				    "'LogicalPool': 'fast', 'ClaimUID': 'c9', 'PodUID': 'p9'}";
	const struct table_row *row;
	struct tables tables;

	tables_init(&tables);
	allocate(&tables, two, 0);
	allocate(&tables, one, 0);
	allocate(&tables, dedicated, 0);
	allocate(&tables, again, -1);
	row = table_index_first(tables.allocations, ALLOC_BY_CLAIM, "c1");
	ck_assert_str_eq(row->key, "fast/dummy0/");
	row = table_index_next(row, ALLOC_BY_CLAIM);
	ck_assert_str_eq(row->key, "rx/ens1f0/s1");
	ck_assert_ptr_null(table_index_next(row, ALLOC_BY_CLAIM));
	row = table_index_first(tables.allocations, ALLOC_BY_DEVICE, "ens1f0");
	ck_assert_str_eq(alloc_row_of(row)->share_id, "s1");
	ck_assert_str_eq(alloc_row_of(table_index_next(row, ALLOC_BY_DEVICE))->share_id, "s2");
	row = table_index_first(tables.allocations, ALLOC_BY_POD, "p2");
	ck_assert_str_eq(alloc_row_of(row)->claim_uid, "c1");
	ck_assert_ptr_null(table_index_next(row, ALLOC_BY_POD));
	ck_assert_ptr_null(alloc_row_of(NULL));
	tables_fini(&tables);
}
END_TEST

/* --- SipHash ------------------------------------------------------------------------------ */

/* The first 16 of the reference implementation's vectors: key 00 01 ... 0f, input 00 01 ... of
 * the length that is the row's number. The last is the paper's example (appendix A). */
static const uint64_t vectors[] = {
	0x726fdb47dd0e0e31,
	0x74f839c593dc67fd,
	0x0d6c8009d9a94f5a,
	0x85676696d7fb7e2d,
	0xcf2794e0277187b7,
	0x18765564cd99a68d,
	0xcbc9466e58fee3ce,
	0xab0200f58b01d137,
	0x93f5f5799a932462,
	0x9e0082df0ba9e4b0,
	0x7a5dbbc594ddb9f3,
	0xf4b32f46226bada7,
	0x751e8fbc860ee5fb,
	0x14ea5627c0843d90,
	0xf723ca908e7af2ee,
	0xa129ca6149be45e5,
};

START_TEST(siphash_reference_vectors)
{
	uint8_t key[SIPHASH_KEY_SIZE], input[ARRAY_SIZE(vectors)];

	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(input); i++)
		input[i] = (uint8_t)i;
	for (size_t len = 0; len < ARRAY_SIZE(vectors); len++)
		ck_assert_uint_eq(siphash24(key, input, len), vectors[len]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("table");
	TCase *rows = tcase_create("rows"), *watching = tcase_create("watching");
	TCase *complete = tcase_create("completeness"), *schema = tcase_create("schema");

	tcase_add_checked_fixture(rows, setup, teardown);
	tcase_add_test(rows, rows_are_in_byte_order);
	tcase_add_test(rows, key_is_taken_once);
	tcase_add_test(rows, update_replaces);
	tcase_add_test(rows, update_with_the_same_changes_nothing);
	tcase_add_test(rows, delete_removes);
	tcase_add_test(rows, row_at_hand_may_be_deleted);
	tcase_add_test(rows, indexes_follow);
	tcase_add_test(rows, agrees_with_an_array);
	tcase_add_test(rows, walks_within_walks);
	tcase_add_test(rows, rows_stay_where_they_are);
	tcase_add_test(rows, deleted_rows_make_room);
	suite_add_tcase(suite, rows);
	tcase_add_checked_fixture(watching, setup, teardown);
	tcase_add_test(watching, each_change_is_a_transaction);
	tcase_add_test(watching, transaction_is_told_once);
	tcase_add_test(watching, what_a_watcher_changes_is_told_after);
	tcase_add_test(watching, watchers_come_and_go_while_told);
	tcase_add_test(watching, watcher_is_told_all_of_an_open_transaction);
	suite_add_tcase(suite, watching);
	tcase_add_checked_fixture(complete, setup, teardown);
	tcase_add_test(complete, table_nobody_fills_is_initialized);
	tcase_add_test(complete, initialized_with_the_last);
	tcase_add_test(complete, initialized_without_a_row);
	suite_add_tcase(suite, complete);
	tcase_add_test(schema, seed_names);
	tcase_add_test(schema, shares_of_a_device_coexist);
	tcase_add_test(schema, siphash_reference_vectors);
	suite_add_tcase(suite, schema);

	return unit_run(suite);
}
