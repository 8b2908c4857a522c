/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What fuzz targets share. A target is one function from bytes to nothing; it fails by crashing,
 * by an assertion of its own about what must hold, by a leak, or by taking too long.
 */

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry points: the second is each target's, the first is fuzz.c's. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input whose first bytes choose what is done with the others. */
struct input {
	const uint8_t *data;
	size_t size;
};
/* The next byte, which is used up; 0 when there is none. */
uint8_t input_byte(struct input *in);
/* A directory of the process's own in memory, with these directories in it, parents first: a
 * descriptor, which lasts as long as the process. */
int fuzz_tree(const char *const *dirs, size_t n);

/* The next n bytes, or as many as there are. */
struct input input_piece(struct input *in, size_t n);
