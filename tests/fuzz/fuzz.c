/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzz targets share: the state that a daemon has when it begins to decode, without its log.
 */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/util.h"
#include "draplugind/tree.h"

int LLVMFuzzerInitialize(int *argc UNUSED, char ***argv UNUSED)
{
	log_set_level(LOG_ERROR);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)umask(0027);
	return 0;
}

uint8_t input_byte(struct input *in)
{
	if (in->size == 0)
		return 0;
	in->size--;
	return *in->data++;
}

struct input input_piece(struct input *in, size_t n)
{
	struct input piece = {.data = in->data, .size = MIN(n, in->size)};

	in->data += piece.size;
	in->size -= piece.size;
	return piece;
}

static char tree[] = "/dev/shm/fuzz-XXXXXX";

static void remove_tree(void)
{
	struct err ignored;

	(void)tree_remove(AT_FDCWD, tree, &ignored);
}

int fuzz_tree(const char *const *dirs, size_t n)
{
	int fd;

	assert(mkdtemp(tree));
	(void)atexit(remove_tree);
	fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert(fd >= 0);
	for (size_t i = 0; i < n; i++)
		assert(mkdirat(fd, dirs[i], 0755) == 0);
	return fd;
}
