/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/util.h"

/* Splits the line where it stands. The words, for free(). */
static char **split(char *line, size_t *ret_n)
{
	char **words = NULL, *state = NULL;

	*ret_n = 0;
	for (char *word = strtok_r(line, " \n", &state);;
		word = strtok_r(NULL, " \n", &state)) {
		words = xrealloc(words, *ret_n + 1, sizeof(*words));
		words[*ret_n] = word;
		if (!word)
			return words;
		(*ret_n)++;
	}
}

static void run(const struct lines_command *commands, size_t n, void *ctx, char *line)
{
	size_t n_words;
	char **words = split(line, &n_words);

	if (n_words == 0)
		lines_fail("a line without a command");
	for (size_t i = 0; i < n; i++)
		if (strcmp(commands[i].name, words[0]) == 0) {
			if (n_words - 1 < commands[i].min_words)
				lines_fail("%s: too few words", words[0]);
			commands[i].run(ctx, words + 1, n_words - 1);
			free(words);
			return;
		}
	lines_fail("%s: no such command", words[0]);
}

void lines_serve(const struct lines_command *commands, size_t n, void *ctx)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, stdin) >= 0)
		run(commands, n, ctx, line);
	free(line);
}

void lines_ok(const uint64_t *numbers, size_t n)
{
	(void)fputs("ok", stdout);
	for (size_t i = 0; i < n; i++)
		(void)printf(" %" PRIu64, numbers[i]);
	(void)putchar('\n');
	(void)fflush(stdout);
}

void lines_refuse(const char *text)
{
	(void)printf("refused %s\n", text);
	(void)fflush(stdout);
}

void lines_fail(const char *fmt, ...)
{
	va_list ap;

	(void)fputs("error ", stdout);
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	(void)putchar('\n');
	(void)fflush(stdout);
	exit(EXIT_FAILURE);
}

void lines_fail_errno(const char *what)
{
	lines_fail("%s: %s", what, strerror(errno));
}
