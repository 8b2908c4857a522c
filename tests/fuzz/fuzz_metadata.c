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

static void remove_dir(void)
{
	struct err ignored;

	(void)tree_remove(AT_FDCWD, dir, &ignored);
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
	struct prepared_device devices[] = {
		{.request = request, .pool = pool, .device = device}};
	const struct claim_prepare_result prepared = {.devices = {devices, 1}};
	const struct claim_ref claim = {.namespace = namespace, .name = name, .uid = uid};
	const struct metadata m = {.dir = dir, .driver = "networkdriver.cilium.io"};
	cleanup_free char *path = metadata_host_path(&m, &claim, REQUEST);
	struct err err = ERR_INIT;

	if (strchr(dir, 'X')) {
		assert(mkdtemp(dir));
		(void)atexit(remove_dir);
		free(path);
		path = metadata_host_path(&m, &claim, REQUEST);
	}
	assert(metadata_write(&m, &claim, &prepared, REQUEST, &err) == 0);
	write_file(path, data, size);
	assert(metadata_write(&m, &claim, &prepared, REQUEST, &err) == 0);
	{
		cleanup_free char *once = read_file(path), *twice = NULL;

		assert(strstr(once, uid));
		assert(metadata_write(&m, &claim, &prepared, REQUEST, &err) == 0);
		twice = read_file(path);
		assert(strcmp(once, twice) == 0);
	}
	write_file(path, data, size);
	assert(metadata_remove(&m, &claim, &err) == 0);
	return 0;
}
