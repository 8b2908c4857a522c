/* SPDX-License-Identifier: Apache-2.0 */
/* Which mounts show which claims. */
#include <check.h>
#include <stdlib.h>

#include "common/claim_files.h"
#include "nrihookd/claims.h"
#include "tests/unit/unit.h"

#define DIR "/var/lib/kubelet/plugins/d.example/" CLAIM_FILES_STORE
#define UID "1f0c9dc2-5d5c-4b0c-9e1c-0123456789ab"

static const struct {
	const char *source;
	const char *claim; /* NULL: it is another mount */
} rows[] = {
	{DIR "/default_c1/req/metadata.json", "default_c1"},
	{DIR "/default_my.claim-1/req/metadata.json", "default_my.claim-1"},
	{DIR "/" UID "/req/metadata.json", UID},
	{"//var/lib//kubelet/plugins/d.example/dra-device-metadata/default_c1/req/metadata.json",
		"default_c1"},

	{"", NULL},
	{"/", NULL},
	{"tmpfs", NULL},
	{DIR, NULL},
	{DIR "/", NULL},
	{DIR "/default_c1", NULL},
	{DIR "/default_c1/req", NULL},
	{DIR "/default_c1/req/", NULL},
	{DIR "/default_c1/metadata.json", NULL},
	{DIR "/default_c1/req/metadata.jso", NULL},
	{DIR "/default_c1/req/metadata.json2", NULL},
	{DIR "/default_c1/req/metadata.json/", NULL},
	{DIR "/default_c1/req/sub/metadata.json", NULL},
	{DIR "/default_c1/req/metadata.json/metadata.json", NULL},
	{DIR "/../req/metadata.json", NULL},
	{DIR "/default_c1/../metadata.json", NULL},
	{DIR "/./default_c1/req/metadata.json", NULL},
	{DIR "/default_c1/req_1/metadata.json", NULL},
	{DIR "/_c1/req/metadata.json", NULL},
	{DIR "/default_/req/metadata.json", NULL},
	{DIR "/a_b_c/req/metadata.json", NULL},
	{DIR "/Default_c1/req/metadata.json", NULL},
	{DIR "x/default_c1/req/metadata.json", NULL},
	/* another driver's, another directory's, a relative path */
	{"/var/lib/kubelet/plugins/e.example/dra-device-metadata/default_c1/req/metadata.json",
		NULL},
	{"/var/lib/kubelet2/plugins/d.example/dra-device-metadata/default_c1/req/metadata.json",
		NULL},
	{"/var/lib/plugins/d.example/dra-device-metadata/default_c1/req/metadata.json", NULL},
	{"/x" DIR "/default_c1/req/metadata.json", NULL},
	{"var/lib/kubelet/plugins/d.example/dra-device-metadata/default_c1/req/metadata.json",
		NULL},
};

START_TEST(mount_shows_claim)
{
	static const char *const kubelet_dirs[] = {
		"/var/lib/kubelet", "/var/lib/kubelet/", "//var/lib/kubelet"};

	for (size_t i = 0; i < ARRAY_SIZE(kubelet_dirs); i++) {
		cleanup_free char *claim =
			claims_of_mount(kubelet_dirs[i], "d.example", rows[_i].source);

		ck_assert_msg(str_equal(claim, rows[_i].claim), "%s: %s", rows[_i].source,
			claim ? claim : "none");
	}
}
END_TEST

START_TEST(lists_are_joined)
{
	struct strlist claims = {0}, all = {0}, none = {0};

	strlist_add(&claims, "default_c1");
	strlist_add(&claims, UID);
	ck_assert(claims_has(&all, &none));
	ck_assert(!claims_has(&all, &claims));
	for (int i = 0; i < 2; i++)
		claims_add(&all, &claims);
	ck_assert_uint_eq(all.n, 2);
	ck_assert(claims_has(&all, &claims));
	strlist_remove(&all, UID);
	ck_assert(!claims_has(&all, &claims));
	strlist_fini(&claims);
	strlist_fini(&all);
}
END_TEST

START_TEST(list_is_bounded)
{
	struct strlist all = {0};

	for (int i = 0; i < 2 * CLAIMS_MAX; i++) {
		cleanup_free char *name = xasprintf("default_c%d", i);
		struct strlist one = {.v = &name, .n = 1};

		claims_add(&all, &one);
	}
	ck_assert_uint_eq(all.n, CLAIMS_MAX);
	strlist_fini(&all);
}
END_TEST

START_TEST(claims_are_named)
{
	struct strlist claims = {0};
	cleanup_free char *one = NULL, *two = NULL;

	strlist_add(&claims, "default_c1");
	one = claims_format(&claims);
	ck_assert_str_eq(one, "claim default/c1");
	strlist_add(&claims, UID);
	two = claims_format(&claims);
	ck_assert_str_eq(two, "claims default/c1, " UID);
	strlist_fini(&claims);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("claims");
	TCase *mounts = tcase_create("mounts"), *lists = tcase_create("lists");

	tcase_add_loop_test(mounts, mount_shows_claim, 0, (int)ARRAY_SIZE(rows));
	suite_add_tcase(suite, mounts);
	tcase_add_test(lists, lists_are_joined);
	tcase_add_test(lists, list_is_bounded);
	tcase_add_test(lists, claims_are_named);
	suite_add_tcase(suite, lists);
	return unit_run(suite);
}
