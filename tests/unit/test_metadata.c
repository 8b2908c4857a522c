/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata files: where they are, what they say, when they change, what becomes of them. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/util.h"
#include "draplugind/metadata.h"
#include "draplugind/tree.h"
#include "tests/unit/unit.h"

#define UID       "11111111-2222-3333-4444-555555555555"
#define OTHER_UID "66666666-7777-8888-9999-000000000000"

static struct fixture {
	char dir[40];
	struct metadata m;
	struct claim_ref claim;
	struct prepared_device devices[3];
	struct claim_prepare_result prepared;
	struct err err;
} t;

static char ns[] = "default", name[] = "c1", uid[] = UID, other_uid[] = OTHER_UID;
static char pool[] = "worker-1", device[] = "dummy0", second[] = "dummy1", net[] = "net";
static char net_fast[] = "net/fast", network[] = "network", if_name[] = "net1";

static void setup(void)
{
	t = (struct fixture){.dir = "/tmp/test_metadata-XXXXXX"};
	ck_assert_ptr_nonnull(mkdtemp(t.dir));
	(void)umask(0027); /* as every daemon sets it */
	t.m = (struct metadata){.dir = t.dir, .driver = "networkdriver.cilium.io"};
	t.claim = (struct claim_ref){.namespace = ns, .name = name, .uid = uid};
	t.devices[0] = (struct prepared_device){
		.request = net, .pool = pool, .device = device, .if_name = if_name};
	t.prepared.devices.v = t.devices;
	t.prepared.devices.n = 1;
}

static void teardown(void)
{
	ck_assert_int_eq(tree_remove(AT_FDCWD, t.dir, &t.err), 0);
}

static void write_ok(const char *request)
{
	ck_assert_msg(metadata_write(&t.m, &t.claim, &t.prepared, request, &t.err) == 0, "%s",
		t.err.message);
}

static void remove_ok(void)
{
	struct strlist requests = {0};

	ck_assert_msg(metadata_requests(&t.m, &t.claim, &requests, &t.err) == 0, "%s",
		t.err.message);
	ck_assert_msg(metadata_remove(&t.m, &t.claim, &requests, &t.err) == 0, "%s",
		t.err.message);
	strlist_fini(&requests);
}

static char *read_file(const char *request)
{
	cleanup_free char *path = metadata_host_path(&t.m, &t.claim, request);
	struct buf text = BUF_INIT;

	ck_assert_int_eq(tree_read(AT_FDCWD, path, SIZE_MAX, &text, &t.err), 0);
	return buf_take(&text);
}

static bool is_there(const char *request)
{
	cleanup_free char *path = metadata_host_path(&t.m, &t.claim, request);

	return access(path, F_OK) == 0;
}

static int64_t generation(const char *request)
{
	cleanup_free char *text = read_file(request);
	json_t *o = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
	int64_t g = json_integer_value(
		json_object_get(json_object_get(o, "metadata"), "generation"));

	json_decref(o);
	return g;
}

/* --- where ----------------------------------------------------------------------------------- */

START_TEST(test_request_of_a_reference)
{
	cleanup_free char *a = metadata_request("net"), *b = metadata_request("net/fast");

	ck_assert_str_eq(a, "net");
	ck_assert_str_eq(b, "net");
}
END_TEST

START_TEST(test_paths)
{
	cleanup_free char *host = metadata_host_path(&t.m, &t.claim, "net");
	cleanup_free char *direct = metadata_container_path(&t.m, &t.claim, NULL, "net");
	cleanup_free char *template = metadata_container_path(&t.m, &t.claim, "nic", "net");
	cleanup_free char *expected =
		xasprintf("%s/dra-device-metadata/default_c1/net/metadata.json", t.dir);

	ck_assert_str_eq(host, expected);
	ck_assert_str_eq(direct,
		"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c1/net/"
		"networkdriver.cilium.io-metadata.json");
	ck_assert_str_eq(template,
		"/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/nic/net/"
		"networkdriver.cilium.io-metadata.json");
}
END_TEST

/* A directory's name has room for 255 bytes; both names together may have 317. */
START_TEST(test_long_names_give_way_to_the_uid)
{
	char long_name[254];
	cleanup_free char *fits = NULL, *long_path = NULL;

	memset(long_name, 'c', sizeof(long_name));
	long_name[NAME_MAX - sizeof(ns)] = '\0';
	t.claim.name = long_name;
	fits = metadata_host_path(&t.m, &t.claim, "net");
	ck_assert_ptr_nonnull(strstr(fits, "/default_cc"));
	write_ok("net");

	memset(long_name, 'c', sizeof(long_name) - 1);
	long_name[NAME_MAX - sizeof(ns) + 1] = '\0';
	long_path = metadata_host_path(&t.m, &t.claim, "net");
	ck_assert_ptr_nonnull(strstr(long_path, "/" UID "/net/"));
	write_ok("net");
	remove_ok();
	ck_assert(!is_there("net"));
}
END_TEST

/* --- what ------------------------------------------------------------------------------------ */

#define OBJECT(version)                                                                        \
	"{\n"                                                                                  \
	"  \"kind\": \"DeviceMetadata\",\n"                                                    \
	"  \"apiVersion\": \"metadata.resource.k8s.io/" version "\",\n"                        \
	"  \"metadata\": {\n"                                                                  \
	"    \"name\": \"c1\",\n"                                                              \
	"    \"namespace\": \"default\",\n"                                                    \
	"    \"uid\": \"" UID "\",\n"                                                          \
	"    \"generation\": 1\n"                                                              \
	"  },\n"                                                                               \
	"  \"podClaimName\": \"nic\",\n"                                                       \
	"  \"requests\": [\n"                                                                  \
	"    {\n"                                                                              \
	"      \"name\": \"net/fast\",\n"                                                      \
	"      \"devices\": [\n"                                                               \
	"        {\n"                                                                          \
	"          \"driver\": \"networkdriver.cilium.io\",\n"                                 \
	"          \"pool\": \"worker-1\",\n"                                                  \
	"          \"name\": \"dummy0\",\n"                                                    \
	"          \"attributes\": {\n"                                                        \
	"            \"a\": {\n"                                                               \
	"              \"int\": 1\n"                                                           \
	"            },\n"                                                                     \
	"            \"b\": {\n"                                                               \
	"              \"string\": \"x\"\n"                                                    \
	"            }\n"                                                                      \
	"          },\n"                                                                       \
	"          \"networkData\": {\n"                                                       \
	"            \"interfaceName\": \"net1\"\n"                                            \
	"          }\n"                                                                        \
	"        },\n"                                                                         \
	"        {\n"                                                                          \
	"          \"driver\": \"networkdriver.cilium.io\",\n"                                 \
	"          \"pool\": \"worker-1\",\n"                                                  \
	"          \"name\": \"dummy1\"\n"                                                     \
	"        }\n"                                                                          \
	"      ]\n"                                                                            \
	"    }\n"                                                                              \
	"  ]\n"                                                                                \
	"}\n"

START_TEST(test_text_is_exactly_this)
{
	cleanup_free char *text = NULL;

	t.prepared.pod_claim_name = (char[]){"nic"};
	t.devices[0].request = net_fast;
	t.devices[0].attributes =
		packed_take(json_pack("{s:{s:s}, s:{s:i}}", "b", "string", "x", "a", "int", 1));
	t.devices[1] =
		(struct prepared_device){.request = network, .pool = pool, .device = device};
	t.devices[2] = (struct prepared_device){.request = net_fast,
		.pool = pool,
		.device = second,
		.attributes = packed_take(json_object())};
	t.prepared.devices.n = 3;
	write_ok("net");
	text = read_file("net");
	ck_assert_str_eq(text, OBJECT("v1beta1") OBJECT("v1alpha1"));
	free(t.devices[0].attributes);
	free(t.devices[2].attributes);
}
END_TEST

START_TEST(test_modes_do_not_depend_on_the_umask)
{
	cleanup_free char *path = metadata_host_path(&t.m, &t.claim, "net");
	struct stat st;

	write_ok("net");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0644);
	for (int up = 0; up < 3; up++) {
		*strrchr(path, '/') = '\0';
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0755);
	}
	ck_assert_ptr_nonnull(strstr(path, "dra-device-metadata"));
}
END_TEST

/* --- when ------------------------------------------------------------------------------------ */

START_TEST(test_same_content_is_not_written_again)
{
	cleanup_free char *path = metadata_host_path(&t.m, &t.claim, "net");
	struct stat before, after;

	write_ok("net");
	ck_assert_int_eq(stat(path, &before), 0);
	write_ok("net");
	ck_assert_int_eq(stat(path, &after), 0);
	ck_assert_uint_eq(before.st_ino, after.st_ino);
	ck_assert_int_eq(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
	ck_assert_int_eq(generation("net"), 1);
}
END_TEST

START_TEST(test_generations_count_changes)
{
	write_ok("net");
	t.devices[0].if_name = NULL;
	write_ok("net");
	ck_assert_int_eq(generation("net"), 2);
	write_ok("net");
	ck_assert_int_eq(generation("net"), 2);
	t.devices[0].if_name = if_name;
	write_ok("net");
	ck_assert_int_eq(generation("net"), 3);
}
END_TEST

START_TEST(test_what_is_no_metadata_is_replaced)
{
	static const char *const garbage[] = {"", "{", "[]", "null", "{\"metadata\": 3}",
		"{\"metadata\": {\"uid\": \"" UID "\", \"generation\": -5}}",
		"{\"metadata\": {\"uid\": \"" UID "\", \"generation\": 9223372036854775807}}",
		"{\"metadata\": {\"uid\": \"" UID "\", \"generation\": \"9\"}}"};
	cleanup_free char *path = metadata_host_path(&t.m, &t.claim, "net");

	write_ok("net");
	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
		FILE *f = fopen(path, "w");

		ck_assert_int_ge(fputs(garbage[i], f), 0);
		ck_assert_int_eq(fclose(f), 0);
		write_ok("net");
		ck_assert_int_eq(generation("net"), 1);
	}
}
END_TEST

/* What a loss of power may leave of a file that was not synced. */
START_TEST(test_a_file_that_is_cut_short_is_replaced)
{
	cleanup_free char *path = metadata_host_path(&t.m, &t.claim, "net");
	struct stat whole;

	write_ok("net");
	ck_assert_int_eq(stat(path, &whole), 0);
	for (off_t len = 0; len < whole.st_size; len++) {
		cleanup_free char *text = NULL;
		json_t *newest, *older;
		json_error_t error;

		ck_assert_int_eq(truncate(path, len), 0);
		write_ok("net");
		text = read_file("net");
		newest = json_loads(text, JSON_DISABLE_EOF_CHECK, &error);
		older = json_loads(text + error.position, 0, &error);
		ck_assert_ptr_nonnull(newest);
		ck_assert_ptr_nonnull(older);
		json_decref(newest);
		json_decref(older);
	}
	ck_assert_int_eq(truncate(path, 0), 0);
	remove_ok();
	ck_assert(!is_there("net"));
}
END_TEST

/* --- whose ----------------------------------------------------------------------------------- */

START_TEST(test_another_claim_of_the_name_starts_at_one_and_stays)
{
	write_ok("net");
	t.devices[0].if_name = NULL;
	write_ok("net");
	t.claim.uid = other_uid;
	write_ok("net");
	ck_assert_int_eq(generation("net"), 1);
	t.claim.uid = uid;
	remove_ok();
	ck_assert(is_there("net"));
	t.claim.uid = other_uid;
	remove_ok();
	ck_assert(!is_there("net"));
}
END_TEST

static bool has_requests(const char *const *expected, size_t n)
{
	struct strlist requests = {0};
	bool all;

	ck_assert_int_eq(metadata_requests(&t.m, &t.claim, &requests, &t.err), 0);
	all = requests.n == n;
	for (size_t i = 0; i < n; i++)
		all = all && strlist_has(&requests, expected[i]);
	strlist_fini(&requests);
	return all;
}

START_TEST(test_requests_are_known)
{
	static const char *const both[] = {"net", "storage"};
	static char storage[] = "storage";

	ck_assert(has_requests(NULL, 0));
	write_ok("net");
	ck_assert(has_requests(both, 1));
	t.devices[0].request = storage;
	write_ok("storage");
	ck_assert(has_requests(both, 2));
	remove_ok();
	ck_assert(has_requests(NULL, 0));
}
END_TEST

/* The first claim's specification of the request is found by it. */
START_TEST(test_the_name_of_a_request_stays_for_another_claim_of_the_name)
{
	static const char *const both[] = {"net", "storage"};
	static char storage[] = "storage";

	write_ok("net");
	t.devices[0].request = storage;
	write_ok("storage");
	t.claim.uid = other_uid;
	t.devices[0].request = net;
	write_ok("net");
	remove_ok();
	ck_assert(!is_there("net"));
	ck_assert(is_there("storage"));
	t.claim.uid = uid;
	ck_assert(has_requests(both, 2));
	remove_ok();
	ck_assert(has_requests(NULL, 0));
}
END_TEST

START_TEST(test_removing_is_repeatable)
{
	cleanup_free char *store = xasprintf("%s/dra-device-metadata", t.dir);

	remove_ok();
	write_ok("net");
	remove_ok();
	remove_ok();
	ck_assert_int_eq(rmdir(store), 0);
	ck_assert_int_eq(rmdir(t.dir), 0);
	remove_ok();
	ck_assert_int_eq(mkdir(t.dir, 0700), 0);
}
END_TEST

START_TEST(test_links_are_not_followed)
{
	cleanup_free char *store = xasprintf("%s/dra-device-metadata", t.dir);
	cleanup_free char *target = xasprintf("%s/target", t.dir);
	cleanup_free char *of_claim = xasprintf("%s/default_c1", store);
	cleanup_free char *kept = xasprintf("%s/kept", target);
	struct strlist none = {0};

	ck_assert_int_eq(mkdir(store, 0755), 0);
	ck_assert_int_eq(mkdir(target, 0755), 0);
	ck_assert_int_eq(mkdir(kept, 0755), 0);
	ck_assert_int_eq(symlink(target, of_claim), 0);
	ck_assert_int_lt(metadata_write(&t.m, &t.claim, &t.prepared, "net", &t.err), 0);
	ck_assert_str_eq(t.err.message,
		"metadata of request net: opening directory default_c1: Not a directory");
	ck_assert_int_lt(metadata_requests(&t.m, &t.claim, &none, &t.err), 0);
	ck_assert_int_lt(metadata_remove(&t.m, &t.claim, &none, &t.err), 0);
	ck_assert_int_eq(access(kept, F_OK), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("metadata");
	TCase *tc = tcase_create("files");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_request_of_a_reference);
	tcase_add_test(tc, test_paths);
	tcase_add_test(tc, test_long_names_give_way_to_the_uid);
	tcase_add_test(tc, test_text_is_exactly_this);
	tcase_add_test(tc, test_modes_do_not_depend_on_the_umask);
	tcase_add_test(tc, test_same_content_is_not_written_again);
	tcase_add_test(tc, test_generations_count_changes);
	tcase_add_test(tc, test_what_is_no_metadata_is_replaced);
	tcase_add_test(tc, test_another_claim_of_the_name_starts_at_one_and_stays);
	tcase_add_test(tc, test_a_file_that_is_cut_short_is_replaced);
	tcase_add_test(tc, test_requests_are_known);
	tcase_add_test(tc, test_the_name_of_a_request_stays_for_another_claim_of_the_name);
	tcase_add_test(tc, test_removing_is_repeatable);
	tcase_add_test(tc, test_links_are_not_followed);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
