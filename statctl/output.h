/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What goes to standard output: JSON for programs, tables and text for people.
 *
 * Tables are as wide as the terminal at most; in a pipe nothing is cut or wrapped. Colours are for
 * terminals alone, and not when NO_COLOR is set (no-color.org).
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum output_format { OUTPUT_TABLE, OUTPUT_JSON };

/* Once, before anything else. */
void output_init(void);
/* Everything up to here is written. If it cannot be (the disk is full, the reader gone) the process
 * ends, with status 1 and a word about it: there is nobody left to go on for. */
void output_flush(void);

/* --- JSON ------------------------------------------------------------------------------------- */

/* Each frees the tree. */
void output_json(json_t *tree);      /* indented */
void output_json_line(json_t *tree); /* on one line */

/* --- text ------------------------------------------------------------------------------------- */

enum tint { TINT_NONE, TINT_GOOD, TINT_BAD, TINT_HEAD };

/* A line of text, and one with a label in front of what has a colour. The newline is added; control
 * characters in what is printed are made harmless. */
void output_line(enum tint tint, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void output_field(const char *label, enum tint tint, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void output_blank(void);

#define AGO_SIZE sizeof("9223372036854775807 d ago")
/* How long ago: "12 s ago", "3 min ago", "5 h ago", "2 d ago". Both in milliseconds of the wall
 * clock; what is yet to come is "just now". Returns out. */
char *output_ago(int64_t then_ms, int64_t now_ms, char out[static AGO_SIZE]);

/* --- tables ----------------------------------------------------------------------------------- */

struct output_column {
	const char *heading;
	enum { FIT_WHOLE, FIT_WRAP } fit; /* when the terminal is too narrow: nothing is ever cut off */
	bool number;                               /* to the right */
};

struct output_table;

struct output_table *output_table_new(const struct output_column *columns, size_t n_columns);
void output_row(struct output_table *t);
/* The next cell of the row; NULL and "" read "-". */
void output_cell(struct output_table *t, enum tint tint, const char *text);
void output_cell_number(struct output_table *t, int64_t number);
/* Prints the table, or "(none)" for one without rows, and frees it. */
void output_table_end(struct output_table *t);
