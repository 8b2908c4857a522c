/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A bearer token that is replaced in its file while we use it. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "common/err.h"

struct kube_token {
	char *path;  /* NULL: value is the token for ever */
	char *value; /* NULL: there is none, or it was not read yet */
	/* Another one each time that the value changes: a call remembers which it was sent
	 * with. */
	unsigned generation;
	/* private */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
	uint64_t read_ms;
	bool complained;
};

/* Sees to it that value is what the file has now. The file is looked at each time and read when
 * it has changed, at least once a minute, or always with force. With an old value at hand a
 * file that cannot be read is no failure, but logged. Errors: ERR_UNAVAILABLE. */
int kube_token_refresh(struct kube_token *token, bool force, struct err *err);
void kube_token_fini(struct kube_token *token); /* wiped */
