/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Small trees of files whose names come from claims.
 *
 * Everything is relative to an open directory and follows no symbolic link. A name is one path
 * component; who calls has checked that.
 */

#include <sys/types.h>

#include "common/err.h"
#include "common/util.h"

/* Opens a directory below `at`, the caller's to close; -1 if it fails, with ENOENT in err->sys if
 * there is none. */
int tree_open(int at, const char *name, struct err *err);
/* The same, but makes it with this mode when it is missing. */
int tree_make(int at, const char *name, mode_t mode, struct err *err);

/* The names in a directory, without "." and "..", in no order. */
int tree_list(int dir, struct strlist *to, struct err *err);

/* Appends a file's bytes; 1 when there is no file. More than max bytes is an error. */
int tree_read(int at, const char *name, size_t max, struct buf *to, struct err *err);
/* Whether a file is there and holds exactly these bytes. */
bool tree_holds(int at, const char *name, const char *data, size_t len);

/* Removes a file, or a directory with all that is in it. What is not there is success. */
int tree_remove(int at, const char *name, struct err *err);
