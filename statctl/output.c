/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One writer for all commands. Laying out a table to the width of a terminal is libsmartcols' work,
 * the library of findmnt(8) and lsns(8); JSON is Jansson's.
 *
 * What is printed came from other processes, and some of it from users: nothing of it reaches a
 * terminal with control characters in it. JSON escapes them, libsmartcols spells them out, and in
 * lines of text they become question marks.
 */
#include "statctl/output.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"

#define LABEL_WIDTH 12

static bool colourful;

void output_init(void)
{
	const char *no_color = getenv("NO_COLOR");

	/* how wide a character is depends on it */
	(void)setlocale(LC_CTYPE, "");
	colourful = isatty(STDOUT_FILENO) && !(no_color && *no_color);
}

void output_flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return;
	fprintf(stderr, "statctl: standard output: %s\n", strerror(errno));
	exit(EXIT_FAILURE);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_json(json_t *tree, size_t flags)
{
	(void)json_dumpf(tree, stdout, flags);
	(void)putchar('\n');
	json_decref(tree);
}

void output_json(json_t *tree)
{
	put_json(tree, JSON_INDENT(2));
}

void output_json_line(json_t *tree)
{
	put_json(tree, JSON_COMPACT);
}

/* --- text ------------------------------------------------------------------------------------- */

static const struct {
	const char *name; /* libsmartcols' */
	const char *on;   /* ECMA-48: select graphic rendition */
} tints[] = {
	[TINT_NONE] = {NULL, ""},
	[TINT_GOOD] = {"green", "\033[32m"},
	[TINT_BAD] = {"red", "\033[31m"},
	[TINT_HEAD] = {"bold", "\033[1m"},
};

__attribute__((format(printf, 2, 0))) static void put_text(
	enum tint tint, const char *fmt, va_list ap)
{
	bool tinted = colourful && tint != TINT_NONE;
	cleanup_free char *text = NULL;

	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	str_sanitize(text);
	printf("%s%s%s\n", tinted ? tints[tint].on : "", text, tinted ? "\033[0m" : "");
}

void output_line(enum tint tint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put_text(tint, fmt, ap);
	va_end(ap);
}

void output_field(const char *label, enum tint tint, const char *fmt, ...)
{
	va_list ap;

	printf("  %-*s ", LABEL_WIDTH, label);
	va_start(ap, fmt);
	put_text(tint, fmt, ap);
	va_end(ap);
}

void output_blank(void)
{
	(void)putchar('\n');
}

char *output_ago(int64_t then, int64_t now, char out[static AGO_SIZE])
{
	static const struct {
		int64_t seconds;
		const char *name;
	} units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
	int64_t seconds = (now - then) / 1000;

	(void)snprintf(out, AGO_SIZE, "just now");
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (seconds >= units[i].seconds) {
			(void)snprintf(out, AGO_SIZE, "%" PRId64 " %s ago",
				seconds / units[i].seconds, units[i].name);
			break;
		}
	return out;
}

/* --- tables ----------------------------------------------------------------------------------- */

struct output_table {
	struct libscols_table *tb;
	struct libscols_line *row;
	size_t n_cells; /* that the row has already */
};

/* The library fails for want of memory only. */
static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

struct output_table *output_table_new(const struct output_column *columns, size_t n_columns)
{
	static const int fit_flags[] = {
		[FIT_WHOLE] = 0, [FIT_WRAP] = SCOLS_FL_WRAP};
	struct output_table *t = xcalloc(1, sizeof(*t));

	t->tb = must(scols_new_table());
	(void)scols_table_enable_colors(t->tb, colourful);
	(void)scols_table_set_column_separator(t->tb, "  ");
	for (size_t i = 0; i < n_columns; i++) {
		struct libscols_column *column = must(scols_table_new_column(t->tb,
			columns[i].heading, 0,
			fit_flags[columns[i].fit] | (columns[i].number ? SCOLS_FL_RIGHT : 0)));

		(void)scols_cell_set_color(
			scols_column_get_header(column), tints[TINT_HEAD].name);
	}
	return t;
}

void output_row(struct output_table *t)
{
	t->row = must(scols_table_new_line(t->tb, NULL));
	t->n_cells = 0;
}

void output_cell(struct output_table *t, enum tint tint, const char *text)
{
	struct libscols_cell *cell = must(scols_line_get_cell(t->row, t->n_cells++));

	(void)scols_cell_set_data(cell, text && *text ? text : "-");
	if (tints[tint].name)
		(void)scols_cell_set_color(cell, tints[tint].name);
}

void output_cell_number(struct output_table *t, int64_t number)
{
	cleanup_free char *text = xasprintf("%" PRId64, number);

	output_cell(t, TINT_NONE, text);
}

void output_table_end(struct output_table *t)
{
	if (scols_table_is_empty(t->tb))
		(void)puts("(none)");
	else
		(void)scols_print_table(t->tb);
	scols_unref_table(t->tb);
	free(t);
}
