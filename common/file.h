/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that others read while we write them. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* Replaces the file `name` in the directory dir_fd by one with this content, so that a reader
 * and a crash see the old or the new one, never a part: a temporary file ".<name>.<random>.tmp"
 * in the same directory, fsync, rename, fsync of the directory. The temporary file is in the
 * same directory because watchers of it (CDI caches) act on the rename. name is one path
 * segment. */
int file_write_atomic(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err);

/* The same without a sync: readers see the old or the new file, and so does a process that starts
 * after this one was killed. After a loss of power the file may be the old one, missing, empty or
 * cut short; this is for a content that is then written anew. */
int file_write_unsynced(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err);

/* The first in pieces, for a content that is never whole in memory. The first failure is kept and
 * told by the commit. */
struct file_draft {
	int dir_fd, fd;
	bool unsynced; /* as file_write_unsynced(); set between begin and commit */
	char *name, *temporary;
	struct err err; /* ERR_NONE: all is well */
};
void file_draft_begin(struct file_draft *draft, int dir_fd, const char *name);
void file_draft_put(struct file_draft *draft, const void *data, size_t len);
int file_draft_commit(struct file_draft *draft, mode_t mode, struct err *err);

/* Whether an entry of a directory is the temporary file of one whose name ends in suffix: left
 * behind by a process that was killed, if nobody is writing. */
bool file_is_temporary(const char *entry, const char *suffix);
