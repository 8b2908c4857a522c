/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a claim in statd's state directory. It is a record or is reported as broken, never
 * both and never neither; a record that is read can be written, and is read as the same one again.
 */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "statd/record.h"
#include "tests/fuzz/fuzz.h"

#define UID "11111111-2222-4333-8444-555555555555"

struct seen {
	size_t records, broken;
	json_t *tree;
	struct records *dir;
	bool rewrite;
};

static void on_record(void *ctx, struct claim_record *record)
{
	struct seen *seen = ctx;
	struct err err = ERR_INIT;

	seen->records++;
	assert(strcmp(record->uid, UID) == 0);
	seen->tree = rec_encode(&rec_claim_record, record);
	if (seen->rewrite)
		assert(records_write(seen->dir, record, &err) == 0);
	rec_fini(&rec_claim_record, record);
}

static void on_broken(
	void *ctx, const char *uid, const struct strlist *devices UNUSED, const struct err *err)
{
	struct seen *seen = ctx;

	seen->broken++;
	assert(strcmp(uid, UID) == 0 && *err->message);
}

static const struct records_visitor visitor = {on_record, on_broken};

static struct records *state_directory(void)
{
	static const char *const dirs[] = {"state"};
	static struct records records;
	static bool is_open;

	if (!is_open) {
		const struct identity owner = {.uid = getuid(), .gid = getgid()};
		cleanup_free char *path = xasprintf("/proc/self/fd/%d/state", fuzz_tree(dirs, 1));
		struct err err = ERR_INIT;

		assert(records_open(&records, path, &owner, (gid_t)-1, &err) == 0);
		is_open = true;
	}
	return &records;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct records *dir = state_directory();
	struct seen first = {.dir = dir, .rewrite = true}, again = {.dir = dir};
	struct err err = ERR_INIT;
	int fd = openat(dir->claims_fd, UID ".json", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	(void)close(fd);
	assert(records_read(dir, &visitor, &first, &err) == 0);
	assert(first.records + first.broken == 1);
	assert(records_read(dir, &visitor, &again, &err) == 0);
	assert(again.records == first.records && again.broken == first.broken);
	assert(!first.tree || json_equal(first.tree, again.tree));
	json_decref(first.tree);
	json_decref(again.tree);
	return 0;
}
