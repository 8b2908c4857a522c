/* SPDX-License-Identifier: Apache-2.0 */
/* Which releases of which runtimes are known for what. */
#include <check.h>
#include <stdlib.h>

#include "nrihookd/release.h"
#include "tests/unit/unit.h"

static const struct {
	const char *runtime, *version;
	bool leaks;
} rows[] = {
	/* as Debian calls its own */
	{"containerd", "1.6.20~ds1", false},
	{"containerd", "1.7.24~ds1", false},
	{"containerd", "2.1.9+unknown", true},
	{"containerd", "2.3.4+unknown", false},
	/* both ends of each line */
	{"containerd", "1.7.0", false},
	{"containerd", "1.7.34", false},
	{"containerd", "2.0.0", true},
	{"containerd", "2.0.11", true},
	{"containerd", "2.0.12", false},
	{"containerd", "2.1.0", true},
	{"containerd", "2.1.9", true},
	{"containerd", "2.1.10", false},
	{"containerd", "2.2.0", true},
	{"containerd", "2.2.5", true},
	{"containerd", "2.2.6", false},
	{"containerd", "2.3.0", true},
	{"containerd", "2.3.2", true},
	{"containerd", "2.3.3", false},
	{"containerd", "2.4.0", false},
	{"containerd", "3.0.1", false},
	{"containerd", "12.1.0", false},
	/* what else is seen */
	{"containerd", "v2.1.5-k3s1", true},
	{"containerd", "v1.7.27", false},
	{"containerd", "2.2.0-rc.1", true},
	{"containerd", "2.4.0-beta.0", false},
	{"containerd", "2.1.9-1ubuntu2", true},
	{"containerd", "2.2", true},
	{"containerd", "2.4", false},
	{"Containerd", "2.1.9", true},
	/* it may be any */
	{"containerd", "", true},
	{"containerd", "unknown", true},
	{"containerd", "2", true},
	{"containerd", "-2.1.9", true},
	{"containerd", "+unknown", true},
	{"containerd", "0.0.0+unknown", true},
	/* others clean up */
	{"cri-o", "1.35.0", false},
	{"cri-o", "2.1.9", false},
	{"", "2.1.9", false},
};

START_TEST(releases_that_leak)
{
	ck_assert_msg(
		release_leaks_refused(rows[_i].runtime, rows[_i].version) == rows[_i].leaks,
		"%s %s", rows[_i].runtime, rows[_i].version);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("release");
	TCase *table = tcase_create("table");

	tcase_add_loop_test(
		table, releases_that_leak, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	suite_add_tcase(suite, table);
	return unit_run(suite);
}
