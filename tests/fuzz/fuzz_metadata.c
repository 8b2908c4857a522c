/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A metadata file that is there already, with whatever in it: it is replaced by ours, which then
 * stays as it is, and removed with the claim.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "draplugind/metadata.h"
#include "draplugind/tree.h"
#include "tests/fuzz/fuzz.h"

#define REQUEST "net"

static char dir[] = "/dev/shm/fuzz_metadata-XXXXXX";
static char namespace[] = "default", name[] = "c1", request[] = REQUEST, device[] = "dummy0";
static char uid[] = "11111111-2222-3333-4444-555555555555", pool[] = "worker-1";

static const struct metadata metadata = {.dir = dir, .driver = "networkdriver.cilium.io"};
static const struct claim_ref claim = {.namespace = namespace, .name = name, .uid = uid};

static void remove_dir(void)
{
	struct err ignored;

	(void)tree_remove(AT_FDCWD, dir, &ignored);
}

/* One directory for the process. */
static void make_dir(void)
{
	if (!strstr(dir, "XXXXXX"))
		return;
	assert(mkdtemp(dir));
	(void)atexit(remove_dir);
}

static void write_ours(void)
{
	struct prepared_device devices[] = {
		{.request = request, .pool = pool, .device = device}};
	const struct claim_prepare_result prepared = {.devices = {devices, 1}};
	struct err err = ERR_INIT;

	assert(metadata_write(&metadata, &claim, &prepared, REQUEST, &err) == 0);
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
	cleanup_close int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	assert(fd >= 0);
	assert(write(fd, data, size) == (ssize_t)size);
}

static char *read_file(const char *path)
{
	struct buf text = BUF_INIT;
	struct err err;

	assert(tree_read(AT_FDCWD, path, SIZE_MAX, &text, &err) == 0);
	return buf_take(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *path = NULL, *once = NULL, *twice = NULL;
	struct strlist requests = {0};
	struct err err = ERR_INIT;

	make_dir();
	path = metadata_host_path(&metadata, &claim, REQUEST);
	write_ours();
	write_file(path, data, size);
	write_ours();
	once = read_file(path);
	write_ours();
	twice = read_file(path);
	assert(strstr(once, uid) && strcmp(once, twice) == 0);
	write_file(path, data, size);
	assert(metadata_requests(&metadata, &claim, &requests, &err) == 0);
	assert(metadata_remove(&metadata, &claim, &requests, &err) == 0);
	strlist_fini(&requests);
	return 0;
}
