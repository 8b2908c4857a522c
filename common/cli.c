/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines from one table.
 *
 * getopt_long(3) splits the line; what it finds is first only noted, a text an option, and
 * applied to the options struct when the whole line has been read. So --help shows the defaults
 * wherever on the line it stands, and of an option that is given twice the last one counts.
 *
 * --help and --version are two more rows behind the program's own, so that help, suggestions
 * and getopt know one list only.
 */
#include "common/cli.h"

#include <assert.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

#define EXIT_USAGE 2

/* getopt's value of row i; short letters are below. */
#define ROW_BASE 256

#define MAX_ROWS 64 /* options of a program; ours have a dozen */

#define HELP_WIDTH      80
#define HELP_MAX_COLUMN 32 /* where descriptions start at most */

static const struct cli_option builtin[] = {
	{.name = "help", .letter = 'h', .type = CLI_FLAG, .doc = "show this help and exit"},
	{.name = "version", .type = CLI_FLAG, .doc = "show the version and exit"},
};
enum { BUILTIN_HELP, BUILTIN_VERSION, N_BUILTIN };

static size_t n_rows(const struct cli *cli)
{
	return cli->n_options + N_BUILTIN;
}

static const struct cli_option *row(const struct cli *cli, size_t i)
{
	return i < cli->n_options ? &cli->options[i] : &builtin[i - cli->n_options];
}

/* The row of what getopt returned or left in optopt; n_rows() if there is none. */
static size_t row_of(const struct cli *cli, int c)
{
	if (c >= ROW_BASE)
		return (size_t)(c - ROW_BASE);
	for (size_t i = 0; i < n_rows(cli); i++)
		if (row(cli, i)->letter && row(cli, i)->letter == c)
			return i;
	return n_rows(cli);
}

/* --- help --------------------------------------------------------------------------------- */

static void put_choices(struct buf *b, const char *choices)
{
	const char *sep = "";

	while (*choices) {
		size_t len = strcspn(choices, "|");

		buf_puts(b, sep);
		buf_put(b, choices, len);
		choices += len;
		if (*choices)
			choices++;
		sep = strchr(choices, '|') ? ", " : " or ";
	}
}

static void put_option(struct buf *b, const struct cli_option *o)
{
	if (o->letter)
		buf_printf(b, "-%c, ", o->letter);
	else
		buf_puts(b, "    ");
	buf_printf(b, "--%s", o->name);
	if (o->type != CLI_FLAG)
		buf_printf(b, "=%s", o->arg);
}

static void put_default(struct buf *b, const struct cli_option *o, const void *value)
{
	switch (o->type) {
	case CLI_FLAG: break;
	case CLI_UINT:
		buf_printf(b, " (default: %lld)", (long long)*(const int64_t *)value);
		break;
	case CLI_TEXT:
	case CLI_PATH: {
		const char *text = *(const char *const *)value;

		if (text && *text)
			buf_printf(b, " (default: %s)", text);
	}
	}
}

static void put_doc(struct buf *b, const struct cli_option *o, const void *defaults)
{
	buf_puts(b, o->doc);
	if (o->choices) {
		buf_puts(b, ": ");
		put_choices(b, o->choices);
	}
	if (o->type == CLI_UINT)
		buf_printf(b, ", %lld to %lld", (long long)o->min, (long long)o->max);
	put_default(b, o, (const char *)defaults + o->offset);
}

/* Words of text from column `at`, where the line stands already, further lines from
 * `indent`. */
static void print_wrapped(FILE *to, const char *text, size_t at, size_t indent)
{
	bool first = true;

	while (*text) {
		size_t len = strcspn(text, " ");

		if (!first && at + 1 + len > HELP_WIDTH) {
			fprintf(to, "\n%*s", (int)indent, "");
			at = indent;
		} else if (!first) {
			fputc(' ', to);
			at++;
		}
		fwrite(text, 1, len, to);
		at += len;
		text += len;
		text += strspn(text, " ");
		first = false;
	}
	fputc('\n', to);
}

/* Descriptions start two columns behind the longest option that is not too long. */
static size_t doc_column(const struct cli *cli)
{
	size_t column = 0;

	for (size_t i = 0; i < n_rows(cli); i++) {
		cleanup_buf struct buf left = BUF_INIT;

		put_option(&left, row(cli, i));
		if (left.len + 4 <= HELP_MAX_COLUMN)
			column = MAX(column, left.len + 4);
	}
	return column;
}

static void print_option(
	FILE *to, const struct cli_option *o, const void *defaults, size_t column)
{
	cleanup_buf struct buf left = BUF_INIT, doc = BUF_INIT;

	put_option(&left, o);
	put_doc(&doc, o, defaults);
	fprintf(to, "  %s", left.data);
	if (left.len + 4 > column)
		fprintf(to, "\n%*s", (int)column, "");
	else
		fprintf(to, "%*s", (int)(column - left.len - 2), "");
	print_wrapped(to, doc.data, column, column);
}

void cli_help(const struct cli *cli, const void *defaults, FILE *to)
{
	size_t column = doc_column(cli);

	fprintf(to, "Usage: %s [OPTION]...%s%s\n", cli->program, cli->operands ? " " : "",
		cli->operands ? cli->operands : "");
	print_wrapped(to, cli->summary, 0, 0);
	fputs("\nOptions:\n", to);
	for (size_t i = 0; i < n_rows(cli); i++)
		print_option(to, row(cli, i), defaults, column);
	if (cli->help_tail)
		fprintf(to, "\n%s\n", cli->help_tail);
}

/* --- what is wrong ------------------------------------------------------------------------ */

__attribute__((noreturn, cold, format(printf, 2, 3))) static void wrong(
	const struct cli *cli, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", cli->program);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry '%s --help'.\n", cli->program);
	exit(EXIT_USAGE);
}


/* Levenshtein's distance, one row of his table at a time. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t costs[CLI_NEAR_MAX + 1];

	for (size_t j = 0; j <= b_len; j++)
		costs[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t diagonal = costs[0];

		costs[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t replaced = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = costs[j];
			costs[j] = MIN(replaced, MIN(costs[j], costs[j - 1]) + 1);
		}
	}
	return costs[b_len];
}

bool cli_is_near(const char *typed, size_t len, const char *name, size_t *ret_distance)
{
	size_t name_len = strlen(name);

	assert(name_len <= CLI_NEAR_MAX);
	if (len > CLI_NEAR_MAX)
		return false;
	*ret_distance = distance(typed, len, name, name_len);
	return *ret_distance <= name_len / 2;
}

/* The option whose name is nearest, NULL when none is near. */
static const struct cli_option *nearest(const struct cli *cli, const char *typed, size_t len)
{
	const struct cli_option *best = NULL;
	size_t best_distance = SIZE_MAX, d;

	for (size_t i = 0; i < n_rows(cli); i++)
		if (cli_is_near(typed, len, row(cli, i)->name, &d) && d < best_distance) {
			best = row(cli, i);
			best_distance = d;
		}
	return best;
}

/* An abbreviation is unknown to getopt when it fits several options. */
__attribute__((noreturn)) static void wrong_long(const struct cli *cli, const char *name)
{
	cleanup_buf struct buf fits = BUF_INIT;
	const struct cli_option *near;
	size_t len = strcspn(name, "=");
	int shown = (int)MIN(len, 64);

	for (size_t i = 0; i < n_rows(cli); i++)
		if (len && strncmp(row(cli, i)->name, name, len) == 0)
			buf_printf(&fits, " --%s", row(cli, i)->name);
	if (fits.len)
		wrong(cli, "option --%.*s is ambiguous:%s", shown, name, fits.data);
	near = nearest(cli, name, len);
	if (near)
		wrong(cli, "unknown option --%.*s; did you mean --%s?", shown, name,
			near->name);
	wrong(cli, "unknown option --%.*s", shown, name);
}

/* getopt returned '?': an unknown option, or a value for an option that takes none. */
__attribute__((noreturn)) static void wrong_option(const struct cli *cli, char **argv)
{
	if (optopt >= ROW_BASE)
		wrong(cli, "option --%s takes no value", row(cli, row_of(cli, optopt))->name);
	if (optopt)
		wrong(cli, "unknown option -%c", optopt);
	wrong_long(cli, argv[optind - 1] + 2);
}

static bool is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	while (*choices) {
		size_t choice_len = strcspn(choices, "|");

		if (choice_len == len && strncmp(choices, text, len) == 0)
			return true;
		choices += choice_len + (choices[choice_len] == '|');
	}
	return false;
}

/* --- parsing ------------------------------------------------------------------------------ */

static void apply_text(const struct cli *cli, const struct cli_option *o, const char *given,
	const char **value)
{
	cleanup_buf struct buf choices = BUF_INIT;

	if (o->choices && !is_choice(o->choices, given)) {
		put_choices(&choices, o->choices);
		wrong(cli, "option --%s: \"%s\" is not %s", o->name, given, choices.data);
	}
	if (o->type == CLI_PATH && !*given)
		wrong(cli, "option --%s: the path is empty", o->name);
	*value = given;
}

static void apply(
	const struct cli *cli, const struct cli_option *o, const char *given, void *value)
{
	switch (o->type) {
	case CLI_FLAG: *(bool *)value = true; break;
	case CLI_TEXT:
	case CLI_PATH: apply_text(cli, o, given, value); break;
	case CLI_UINT:
		if (parse_i64(given, o->min, o->max, value) < 0)
			wrong(cli, "option --%s: \"%s\" is not a number from %lld to %lld",
				o->name, given, (long long)o->min, (long long)o->max);
		break;
	}
}

struct getopt_tables {
	struct option rows[MAX_ROWS + 1];
	char letters[1 + 2 * MAX_ROWS + 1];
};

static void fill_getopt_tables(const struct cli *cli, struct getopt_tables *t)
{
	char *letter = t->letters;

	/* the colon makes getopt tell a missing argument from an unknown option */
	*letter++ = ':';
	for (size_t i = 0; i < n_rows(cli); i++) {
		const struct cli_option *o = row(cli, i);

		t->rows[i] = (struct option){
			.name = o->name,
			.has_arg = o->type == CLI_FLAG ? no_argument : required_argument,
			.val = ROW_BASE + (int)i,
		};
		if (!o->letter)
			continue;
		*letter++ = o->letter;
		if (o->type != CLI_FLAG)
			*letter++ = ':';
	}
}

__attribute__((noreturn)) static void show(
	const struct cli *cli, size_t builtin_row, const void *defaults)
{
	if (builtin_row == BUILTIN_HELP)
		cli_help(cli, defaults, stdout);
	else
		printf("%s %s\n", cli->program, NETCLAIM_VERSION);
	exit(fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* What the line gives each row, left NULL where it gives nothing. */
static void collect(const struct cli *cli, int argc, char **argv, const void *defaults,
	const char *given[static MAX_ROWS])
{
	struct getopt_tables t = {0};
	int c;

	fill_getopt_tables(cli, &t);
	opterr = 0;
	optind = 0; /* glibc: start anew */
	while ((c = getopt_long(argc, argv, t.letters, t.rows, NULL)) != -1) {
		size_t i = row_of(cli, c);

		if (c == '?')
			wrong_option(cli, argv);
		if (c == ':')
			wrong(cli, "option --%s needs a value",
				row(cli, row_of(cli, optopt))->name);
		if (i >= cli->n_options)
			show(cli, i - cli->n_options, defaults);
		given[i] = optarg ? optarg : "";
	}
}

void cli_parse(const struct cli *cli, int argc, char **argv, void *options, int *ret_first)
{
	const char *given[MAX_ROWS] = {NULL};

	assert(n_rows(cli) <= MAX_ROWS);
	collect(cli, argc, argv, options, given);
	for (size_t i = 0; i < cli->n_options; i++)
		if (given[i])
			apply(cli, &cli->options[i], given[i],
				(char *)options + cli->options[i].offset);
	if (!cli->operands && optind < argc)
		wrong(cli, "unexpected operand \"%s\"", argv[optind]);
	*ret_first = optind;
}
