/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How a unit's test ends in main(). The environment chooses among its tests, says how much is shown
 * and, with CK_FORK=no, has all of them in one process, for a debugger: see the manual of Check.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define UNIT_SKIPPED 77 /* as tests/run and automake have it */

static inline int unit_finish(SRunner *runner)
{
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Takes the suite and runs it; what main() returns. */
static inline int unit_run(Suite *suite)
{
	return unit_finish(srunner_create(suite));
}

/* The same, each test in a process of its own whatever the environment says. */
static inline int unit_run_forked(Suite *suite)
{
	SRunner *runner = srunner_create(suite);

	srunner_set_fork_status(runner, CK_FORK);
	return unit_finish(runner);
}

/* What main() returns when nothing of it can be had here. */
static inline int unit_skip(const char *name, const char *why)
{
	printf("SKIP %s: %s\n", name, why);
	return UNIT_SKIPPED;
}
