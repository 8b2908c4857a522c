/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lines out of a stream of bytes that comes in pieces: how a watch's events are sent. */

#include <stddef.h>

#include "common/util.h"

struct kube_lines {
	size_t max_line; /* bytes without the newline */
	/* private */
	struct buf bytes;
	size_t begin;   /* of the first line that was not taken */
	size_t scanned; /* there is no newline between the last one and this */
	size_t last;    /* behind the last newline that is there */
};

/* Takes in what came. -1 when a line, complete or not, is longer than allowed: then the stream
 * is of no use any more. */
int kube_lines_put(struct kube_lines *l, const void *data, size_t len);
/* The next complete line, without its newline, NUL-terminated; NULL when there is none. It
 * stays until the next call of any of these. Empty lines are passed over. */
char *kube_lines_next(struct kube_lines *l, size_t *ret_len);
/* Forgets everything but max_line. */
void kube_lines_reset(struct kube_lines *l);
