/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Command lines from one table: parsing, --help and --version.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

enum cli_type {
	CLI_TEXT, /* const char * */
	CLI_PATH, /* const char *, completed as a file; must not be empty */
	CLI_FLAG, /* bool */
	CLI_UINT, /* int64_t within min..max */
};

struct cli_option {
	const char *name; /* long name, without dashes */
	char letter;      /* short form, or 0 */
	enum cli_type type;
	size_t offset;       /* in the options struct */
	const char *arg;     /* placeholder in --help, NULL for flags */
	const char *doc;     /* one line; the default is appended */
	int64_t min, max;    /* CLI_UINT */
	const char *choices; /* CLI_TEXT: "a|b|c", refused if none of these; NULL: any */
};

struct cli {
	const char *program;
	const char *summary;  /* one line */
	const char *operands; /* synopsis of what may follow the options, NULL: nothing may */
	const struct cli_option *options;
	size_t n_options;
	const char *help_tail; /* more text for --help, or NULL */
};

/* Every program also has --help (-h) and --version. options holds the defaults before the
 * call. Options and operands may mix; "--" ends the options. On return operands are the last
 * of argv, and *ret_first is the index of the first. Texts and paths point into argv. Of an
 * option given twice the last counts. --help and --version print and exit(0); a wrong option
 * prints what is wrong and how to get help and exits with status 2. */
void cli_parse(const struct cli *cli, int argc, char **argv, void *options, int *ret_first);
/* What --help prints. */
void cli_help(const struct cli *cli, const void *defaults, FILE *to);

/* Whether `typed` (len bytes) may have been meant for name: at least half of it is right. Of
 * several names the one with the smallest distance is the nearest. name is at most CLI_NEAR_MAX
 * bytes long. */
#define CLI_NEAR_MAX 32 /* longer than any option's, field's or command's name */
bool cli_is_near(const char *typed, size_t len, const char *name, size_t *ret_distance);
