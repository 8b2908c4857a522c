/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzz targets share: the state that a daemon has when it begins to decode, without its log.
 */
#include "tests/fuzz/fuzz.h"

#include <signal.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/util.h"

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
