/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files that are replaced while we run, opened by a process that may open them.
 *
 * A kubeconfig names files of certificates and keys that only root reads, and whatever renews
 * them replaces them. The client has given up being root by then. So a child is forked before
 * that: it keeps the user that it was started as, without any capability, takes the number of a
 * file, opens that file for reading, and passes the descriptor. The paths are those of the start:
 * nothing that the client says later names another file. It reads no byte of a file itself. See
 * common/child.h for its end.
 */

#include <stddef.h>

#include "common/err.h"

struct kube_reader;

/* To be called while the process is privileged and has one thread. Paths may be NULL, and are
 * numbered from 0. NULL and err when there can be no child. */
struct kube_reader *kube_reader_start(
	const char *const *paths, size_t n_paths, struct err *err);
/* NULL is fine. */
void kube_reader_free(struct kube_reader *reader);

/* Readable when an answer is there. -1: the child has ended. */
int kube_reader_fd(const struct kube_reader *reader);
/* Asks for a file. Answers come in the order of the requests. ERR_UNAVAILABLE: the child has
 * ended. */
int kube_reader_ask(struct kube_reader *reader, unsigned path, struct err *err);
/* An answer. 0: *ret_fd is the file, the caller's; 1: there is none yet; -1: the file could not be
 * opened, or, with ERR_UNAVAILABLE, the child has ended. */
int kube_reader_take(struct kube_reader *reader, int *ret_fd, struct err *err);
