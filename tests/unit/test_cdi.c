/* SPDX-License-Identifier: Apache-2.0 */
/* CDI specifications: what they say, how they get into place, what becomes of them. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "common/util.h"
#include "draplugind/cdi.h"
#include "draplugind/tree.h"
#include "tests/unit/unit.h"

#define DRIVER "networkdriver.cilium.io"
#define UID    "11111111-2222-3333-4444-555555555555"
#define PREFIX DRIVER "_metadata_" UID "_"

static struct fixture {
	char top[32], dir[48];
	struct cdi cdi;
	struct err err;
} t;

static void setup(void)
{
	t = (struct fixture){.top = "/tmp/test_cdi-XXXXXX"};
	ck_assert_ptr_nonnull(mkdtemp(t.top));
	(void)snprintf(t.dir, sizeof(t.dir), "%s/cdi", t.top);
	(void)umask(0027); /* as every daemon sets it */
	t.cdi = (struct cdi){.dir = t.dir, .driver = DRIVER};
}

static void teardown(void)
{
	ck_assert_int_eq(tree_remove(AT_FDCWD, t.top, &t.err), 0);
}

static void write_ok(const char *request, const char *host_path)
{
	ck_assert_msg(cdi_write(&t.cdi, UID, request, host_path, "/in/container", &t.err) == 0,
		"%s", t.err.message);
}

static void remove_requests(const struct strlist *requests)
{
	ck_assert_msg(cdi_remove(&t.cdi, UID, requests, &t.err) == 0, "%s", t.err.message);
}

/* Of a claim of which nothing else is known. */
static void remove_ok(void)
{
	const struct strlist none = {0};

	remove_requests(&none);
}

static char *path_of(const char *entry)
{
	return xasprintf("%s/%s", t.dir, entry);
}

static void make_file(const char *entry)
{
	cleanup_free char *path = path_of(entry);
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
}

static bool is_there(const char *entry)
{
	cleanup_free char *path = path_of(entry);

	return access(path, F_OK) == 0;
}

static size_t count_entries(void)
{
	cleanup_close int dir = open(t.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct strlist entries = {0};
	size_t n;

	ck_assert_int_eq(tree_list(dir, &entries, &t.err), 0);
	n = entries.n;
	strlist_fini(&entries);
	return n;
}

START_TEST(test_device_id)
{
	cleanup_free char *id = cdi_device_id(&t.cdi, UID, "net");

	ck_assert_str_eq(id, DRIVER "/metadata=" UID "_net");
}
END_TEST

START_TEST(test_text_is_exactly_this)
{
	cleanup_free char *path = path_of(PREFIX "net.json");
	cleanup_buf struct buf text = BUF_INIT;
	struct stat st;

	write_ok("net", "/host/metadata.json");
	ck_assert_int_eq(tree_read(AT_FDCWD, path, 4096, &text, &t.err), 0);
	ck_assert_str_eq(text.data, "{\n"
				    "  \"cdiVersion\": \"0.5.0\",\n"
				    "  \"kind\": \"" DRIVER "/metadata\",\n"
				    "  \"devices\": [\n"
				    "    {\n"
				    "      \"name\": \"" UID "_net\",\n"
				    "      \"containerEdits\": {\n"
				    "        \"mounts\": [\n"
				    "          {\n"
				    "            \"hostPath\": \"/host/metadata.json\",\n"
				    "            \"containerPath\": \"/in/container\",\n"
				    "            \"options\": [\n"
				    "              \"ro\",\n"
				    "              \"bind\"\n"
				    "            ]\n"
				    "          }\n"
				    "        ]\n"
				    "      }\n"
				    "    }\n"
				    "  ]\n"
				    "}");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0644);
	ck_assert_int_eq(stat(t.dir, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	ck_assert_uint_eq(count_entries(), 1);
}
END_TEST

/* A runtime refreshes its view on these events only. */
START_TEST(test_a_watching_runtime_sees_the_file)
{
	cleanup_close int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	char events[4096];

	write_ok("net", "/old");
	ck_assert_int_ge(inotify_add_watch(watch, t.dir, IN_MOVED_FROM), 0);
	write_ok("net", "/new");
	ck_assert_int_gt(read(watch, events, sizeof(events)), 0);
	write_ok("net", "/new");
	ck_assert_int_lt(read(watch, events, sizeof(events)), 0);
}
END_TEST

START_TEST(test_only_the_claims_own_files_are_removed)
{
	static const char *const others[] = {
		DRIVER "_metadata_" UID "0_net.json", /* a longer UID */
		DRIVER "_metadata_other_net.json",
		"x" PREFIX "net.json",
		PREFIX "net.yaml",
		"." PREFIX "net.json.0123abcd.tmp", /* may be one that is being written */
	};

	write_ok("net", "/a");
	write_ok("storage", "/b");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		make_file(others[i]);
	remove_ok();
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		ck_assert_msg(is_there(others[i]), "%s", others[i]);
	ck_assert_uint_eq(count_entries(), ARRAY_SIZE(others));
}
END_TEST

START_TEST(test_requests_that_are_known_are_removed_by_name)
{
	char *const known[] = {(char[]){"net"}, (char[]){"storage"}};
	const struct strlist requests = {.v = (char **)(uintptr_t)known, .n = 2};

	write_ok("net", "/a");
	write_ok("storage", "/b");
	make_file(PREFIX "other.json");
	remove_requests(&requests);
	ck_assert(is_there(PREFIX "other.json")); /* so the directory was not searched */
	ck_assert_uint_eq(count_entries(), 1);
	/* one that is missing: what is known is not all */
	remove_requests(&requests);
	ck_assert_uint_eq(count_entries(), 0);
}
END_TEST

START_TEST(test_a_request_whose_name_is_too_long_is_none)
{
	char name[256];
	char *const known[] = {name};
	const struct strlist requests = {.v = (char **)(uintptr_t)known, .n = 1};

	memset(name, 'r', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	write_ok("net", "/a");
	remove_requests(&requests);
	ck_assert_uint_eq(count_entries(), 0);
}
END_TEST

START_TEST(test_leftovers_go_at_the_start)
{
	static const char *const others[] = {
		".x" PREFIX "net.json.0123abcd.tmp",
		"." PREFIX "net.json.1.tmp",
		"." PREFIX "net.yaml.0123abcd.tmp",
		".vendor_metadata_" UID "_net.json.0123abcd.tmp",
		PREFIX "net.json",
	};

	ck_assert_int_eq(cdi_clean(&t.cdi, &t.err), 0); /* there is no directory */
	write_ok("net", "/a");
	make_file("." PREFIX "net.json.0123abcd.tmp");
	make_file("." DRIVER "_metadata_other_storage.json.fedcba98.tmp");
	for (size_t i = 0; i < ARRAY_SIZE(others) - 1; i++)
		make_file(others[i]);
	ck_assert_int_eq(cdi_clean(&t.cdi, &t.err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		ck_assert_msg(is_there(others[i]), "%s", others[i]);
	ck_assert_uint_eq(count_entries(), ARRAY_SIZE(others));
}
END_TEST

/* What a loss of power may leave of a file that was not synced. */
START_TEST(test_a_file_that_is_cut_short_is_replaced)
{
	cleanup_free char *path = path_of(PREFIX "net.json");
	struct stat whole, now;

	write_ok("net", "/a");
	ck_assert_int_eq(stat(path, &whole), 0);
	for (off_t len = 0; len < whole.st_size; len++) {
		ck_assert_int_eq(truncate(path, len), 0);
		write_ok("net", "/a");
		ck_assert_int_eq(stat(path, &now), 0);
		ck_assert_int_eq(now.st_size, whole.st_size);
	}
	ck_assert_int_eq(truncate(path, 0), 0);
	remove_ok();
	ck_assert_uint_eq(count_entries(), 0);
}
END_TEST

START_TEST(test_removing_is_repeatable)
{
	remove_ok();
	write_ok("net", "/a");
	remove_ok();
	remove_ok();
	ck_assert_uint_eq(count_entries(), 0);
}
END_TEST

START_TEST(test_the_directory_may_come_and_go)
{
	write_ok("net", "/a");
	ck_assert_int_eq(tree_remove(AT_FDCWD, t.dir, &t.err), 0);
	write_ok("net", "/a");
	ck_assert(is_there(PREFIX "net.json"));
}
END_TEST

START_TEST(test_failures_name_the_directory)
{
	cleanup_free char *expected = NULL;
	const struct strlist none = {0};

	t.cdi.dir = "/dev/null";
	ck_assert_int_lt(cdi_write(&t.cdi, UID, "net", "/a", "/b", &t.err), 0);
	ck_assert_str_eq(t.err.message, "CDI directory /dev/null: Not a directory");
	ck_assert_int_lt(cdi_remove(&t.cdi, UID, &none, &t.err), 0);
	t.cdi.dir = "/nonexistent/cdi";
	ck_assert_int_lt(cdi_write(&t.cdi, UID, "net", "/a", "/b", &t.err), 0);
	ck_assert_str_eq(t.err.message,
		"making CDI directory /nonexistent/cdi: No such file or directory");

	t.cdi.dir = t.dir;
	ck_assert_int_eq(mkdir(t.dir, 0755), 0);
	expected = path_of(PREFIX "net.json");
	ck_assert_int_eq(mkdir(expected, 0755), 0);
	ck_assert_int_lt(cdi_write(&t.cdi, UID, "net", "/a", "/b", &t.err), 0);
	ck_assert_ptr_nonnull(strstr(t.err.message, t.dir));
	ck_assert_uint_eq(count_entries(), 1);
	ck_assert_int_lt(cdi_remove(&t.cdi, UID, &none, &t.err), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cdi");
	TCase *tc = tcase_create("specifications");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_device_id);
	tcase_add_test(tc, test_text_is_exactly_this);
	tcase_add_test(tc, test_a_watching_runtime_sees_the_file);
	tcase_add_test(tc, test_only_the_claims_own_files_are_removed);
	tcase_add_test(tc, test_requests_that_are_known_are_removed_by_name);
	tcase_add_test(tc, test_a_request_whose_name_is_too_long_is_none);
	tcase_add_test(tc, test_leftovers_go_at_the_start);
	tcase_add_test(tc, test_a_file_that_is_cut_short_is_replaced);
	tcase_add_test(tc, test_removing_is_repeatable);
	tcase_add_test(tc, test_the_directory_may_come_and_go);
	tcase_add_test(tc, test_failures_name_the_directory);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
