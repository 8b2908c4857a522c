/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: each is parsed in a child, whose status and output are compared as a whole. */
#include "common/cli.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/unit/unit.h"

struct options {
	const char *level, *dir, *note;
	int64_t retries;
	bool verbose, very_verbose;
};

static const struct options defaults = {
	.level = "info", .dir = "/run/netclaim", .note = NULL, .retries = 3};

static const struct cli_option table[] = {
	{.name = "log-level",
		.letter = 'l',
		.type = CLI_TEXT,
		.offset = offsetof(struct options, level),
		.arg = "LEVEL",
		.doc = "least important records to log",
		.choices = "error|warn|info"},
	{.name = "runtime-dir",
		.type = CLI_PATH,
		.offset = offsetof(struct options, dir),
		.arg = "DIR",
		.doc = "directory of the sockets, which must exist and belong to the group of "
		       "those "
		       "who may connect to any of them"},
	{.name = "note",
		.type = CLI_TEXT,
		.offset = offsetof(struct options, note),
		.arg = "TEXT",
		.doc = "anything"},
	{.name = "retries",
		.letter = 'r',
		.type = CLI_UINT,
		.offset = offsetof(struct options, retries),
		.arg = "N",
		.doc = "attempts before giving up",
		.min = 1,
		.max = 10},
	{.name = "verbose",
		.letter = 'v',
		.type = CLI_FLAG,
		.offset = offsetof(struct options, verbose),
		.doc = "say more"},
	{.name = "very-long-name-of-an-option",
		.type = CLI_FLAG,
		.offset = offsetof(struct options, very_verbose),
		.doc = "say even more"},
};

static const struct cli plain = {
	.program = "prog",
	.summary = "Does nothing, and does it well.",
	.options = table,
	.n_options = ARRAY_SIZE(table),
};
static const struct cli with_operands = {
	.program = "prog",
	.summary = "Does nothing to each thing.",
	.operands = "THING...",
	.options = table,
	.n_options = ARRAY_SIZE(table),
	.help_tail = "Things are found in the usual places.",
};

struct outcome {
	int status;
	char out[4096], err[4096];
};

static void read_back(int fd, char *text, size_t size)
{
	ssize_t n = pread(fd, text, size - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	(void)close(fd);
}

/* What cli_parse() made of the line, as text; what it printed if it did not return. */
static struct outcome parse(const struct cli *cli, char **argv)
{
	int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
	struct options o = defaults;
	struct outcome outcome;
	int argc = 0, first = -1, status;
	pid_t pid;

	while (argv[argc])
		argc++;
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)dup2(out, STDOUT_FILENO);
		(void)dup2(err, STDERR_FILENO);
		cli_parse(cli, argc, argv, &o, &first);
		printf("%s %s %s %lld %d %d:", o.level, o.dir, o.note ? o.note : "-",
			(long long)o.retries, o.verbose, o.very_verbose);
		for (int i = first; i < argc; i++)
			printf(" %s", argv[i]);
		exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	outcome.status = WEXITSTATUS(status);
	read_back(out, outcome.out, sizeof(outcome.out));
	read_back(err, outcome.err, sizeof(outcome.err));
	return outcome;
}

static char prog[] = "prog";

#define MAX_ARGS 8
static const struct row {
	const struct cli *cli;
	const char *args[MAX_ARGS];
	int status;
	const char *out; /* status 0: all of stdout */
	const char *err; /* else: the first line of stderr */
} rows[] = {
	{&plain, {NULL}, 0, "info /run/netclaim - 3 0 0:", NULL},
	{&plain, {"--log-level=warn", "-v"}, 0, "warn /run/netclaim - 3 1 0:", NULL},
	{&plain, {"--log-level", "warn"}, 0, "warn /run/netclaim - 3 0 0:", NULL},
	{&plain, {"-l", "error", "-r10"}, 0, "error /run/netclaim - 10 0 0:", NULL},
	{&plain, {"-vr", "1"}, 0, "info /run/netclaim - 1 1 0:", NULL},
	{&plain, {"--runtime-dir=/x", "--note="}, 0, "info /x  3 0 0:", NULL},
	{&plain, {"-r", "4", "-r", "5"}, 0, "info /run/netclaim - 5 0 0:", NULL},
	{&plain, {"--verb", "--"}, 0, "info /run/netclaim - 3 1 0:", NULL},
	{&with_operands, {"a", "-v", "b"}, 0, "info /run/netclaim - 3 1 0: a b", NULL},
	{&with_operands, {"--", "-v"}, 0, "info /run/netclaim - 3 0 0: -v", NULL},
	{&plain, {"--version"}, 0, "prog " NETCLAIM_VERSION "\n", NULL},
	{&plain, {"--runtime-dir=", "--version"}, 0, "prog " NETCLAIM_VERSION "\n", NULL},

	{&plain, {"--log-levle=warn"}, 2, NULL,
		"prog: unknown option --log-levle; did you mean --log-level?\n"},
	{&plain, {"--retry"}, 2, NULL,
		"prog: unknown option --retry; did you mean --retries?\n"},
	{&plain, {"--hepl"}, 2, NULL, "prog: unknown option --hepl; did you mean --help?\n"},
	{&plain, {"--frobnicate"}, 2, NULL, "prog: unknown option --frobnicate\n"},
	{&plain, {"--x"}, 2, NULL, "prog: unknown option --x\n"},
	{&plain, {"--an-option-that-is-longer-than-any-of-ours"}, 2, NULL,
		"prog: unknown option --an-option-that-is-longer-than-any-of-ours\n"},
	{&plain, {"--ver"}, 2, NULL,
		"prog: option --ver is ambiguous: --verbose --very-long-name-of-an-option "
		"--version\n"},
	{&with_operands, {"a", "--bogus", "b"}, 2, NULL, "prog: unknown option --bogus\n"},
	{&plain, {"-x"}, 2, NULL, "prog: unknown option -x\n"},
	{&plain, {"-vx"}, 2, NULL, "prog: unknown option -x\n"},
	{&plain, {"--note"}, 2, NULL, "prog: option --note needs a value\n"},
	{&plain, {"-l"}, 2, NULL, "prog: option --log-level needs a value\n"},
	{&plain, {"--verbose=1"}, 2, NULL, "prog: option --verbose takes no value\n"},
	{&plain, {"--retries=11"}, 2, NULL,
		"prog: option --retries: \"11\" is not a number from 1 to 10\n"},
	{&plain, {"--retries=0"}, 2, NULL,
		"prog: option --retries: \"0\" is not a number from 1 to 10\n"},
	{&plain, {"--retries=3s"}, 2, NULL,
		"prog: option --retries: \"3s\" is not a number from 1 to 10\n"},
	{&plain, {"--retries="}, 2, NULL,
		"prog: option --retries: \"\" is not a number from 1 to 10\n"},
	{&plain, {"--log-level=loud"}, 2, NULL,
		"prog: option --log-level: \"loud\" is not error, warn or info\n"},
	{&plain, {"--log-level=inf"}, 2, NULL,
		"prog: option --log-level: \"inf\" is not error, warn or info\n"},
	{&plain, {"--log-level="}, 2, NULL,
		"prog: option --log-level: \"\" is not error, warn or info\n"},
	{&plain, {"--runtime-dir="}, 2, NULL,
		"prog: option --runtime-dir: the path is empty\n"},
	{&plain, {"-v", "extra"}, 2, NULL, "prog: unexpected operand \"extra\"\n"},
};

START_TEST(row_is_parsed)
{
	const struct row *r = &rows[_i];
	char *argv[MAX_ARGS + 2] = {prog};
	cleanup_free char *expected = NULL;
	struct outcome o;

	for (int i = 0; i < MAX_ARGS && r->args[i]; i++)
		argv[i + 1] = xstrdup(r->args[i]);
	o = parse(r->cli, argv);
	ck_assert_msg(o.status == r->status, "status %d: %s", o.status, o.err);
	ck_assert_str_eq(o.out, r->out ? r->out : "");
	if (r->err)
		expected = xasprintf("%sTry 'prog --help'.\n", r->err);
	ck_assert_str_eq(o.err, expected ? expected : "");
	for (int i = 1; argv[i]; i++)
		free(argv[i]);
}
END_TEST

START_TEST(help_is_laid_out)
{
	char help[] = "--help", level[] = "--log-level=warn";
	char *argv[] = {prog, level, help, NULL};
	struct outcome o = parse(&with_operands, argv);

	ck_assert_int_eq(o.status, 0);
	ck_assert_str_eq(o.err, "");
	ck_assert_str_eq(o.out,
		"Usage: prog [OPTION]... THING...\n"
		"Does nothing to each thing.\n"
		"\n"
		"Options:\n"
		"  -l, --log-level=LEVEL  least important records to log: error, warn or info\n"
		"                         (default: info)\n"
		"      --runtime-dir=DIR  directory of the sockets, which must exist and "
		"belong\n"
		"                         to the group of those who may connect to any of "
		"them\n"
		"                         (default: /run/netclaim)\n"
		"      --note=TEXT        anything\n"
		"  -r, --retries=N        attempts before giving up, 1 to 10 (default: 3)\n"
		"  -v, --verbose          say more\n"
		"      --very-long-name-of-an-option\n"
		"                         say even more\n"
		"  -h, --help             show this help and exit\n"
		"      --version          show the version and exit\n"
		"\n"
		"Things are found in the usual places.\n");
}
END_TEST

/* Nobody is told that all went well when nothing could be printed. */
START_TEST(full_stdout_is_told)
{
	char version[] = "--version";
	char *argv[] = {prog, version, NULL};
	struct options o = defaults;
	int first, status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
		cli_parse(&plain, 2, argv, &o, &first);
		_exit(99);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli");
	TCase *tcase = tcase_create("cli");

	tcase_add_loop_test(tcase, row_is_parsed, 0, (int)ARRAY_SIZE(rows));
	tcase_add_test(tcase, help_is_laid_out);
	tcase_add_test(tcase, full_stdout_is_told);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
