/* SPDX-License-Identifier: Apache-2.0 */
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "common/util.h"

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

#define RANDOM_DIGITS 8
#define TEMPORARY     ".tmp"

bool file_is_temporary(const char *entry, const char *suffix)
{
	const size_t tail = 1 + RANDOM_DIGITS + strlen(TEMPORARY);
	size_t len = strlen(entry), suffix_len = strlen(suffix);

	if (entry[0] != '.' || len < 1 + suffix_len + tail)
		return false;
	len -= tail;
	return strncmp(entry + len - suffix_len, suffix, suffix_len) == 0 &&
	       strspn(entry + len + 1, "0123456789abcdef") == RANDOM_DIGITS &&
	       entry[len] == '.' && strcmp(entry + len + 1 + RANDOM_DIGITS, TEMPORARY) == 0;
}

void file_draft_begin(struct file_draft *draft, int dir_fd, const char *name)
{
	unsigned random;

	*draft = (struct file_draft){.dir_fd = dir_fd, .fd = -1, .name = xstrdup(name)};
	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		(void)err_errno(&draft->err, errno, "%s: random name", name);
		return;
	}
	draft->temporary = xasprintf(".%s.%0*x" TEMPORARY, name, RANDOM_DIGITS, random);
	draft->fd = openat(dir_fd, draft->temporary,
		O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (draft->fd < 0)
		(void)err_errno(&draft->err, errno, "%s: creating", draft->temporary);
}

void file_draft_put(struct file_draft *draft, const void *data, size_t len)
{
	if (draft->err.kind == ERR_NONE && write_all(draft->fd, data, len) < 0)
		(void)err_errno(&draft->err, errno, "%s: writing", draft->name);
}

static void replace(const struct file_draft *draft, mode_t mode, struct err *err)
{
	if (fchmod(draft->fd, mode) < 0 || (!draft->unsynced && fsync(draft->fd) < 0))
		(void)err_errno(err, errno, "%s: writing", draft->name);
	else if (renameat(draft->dir_fd, draft->temporary, draft->dir_fd, draft->name) < 0)
		(void)err_errno(err, errno, "%s: replacing", draft->name);
}

int file_draft_commit(struct file_draft *draft, mode_t mode, struct err *err)
{
	int r = 0;

	if (draft->err.kind == ERR_NONE)
		replace(draft, mode, &draft->err);
	if (draft->err.kind != ERR_NONE) {
		*err = draft->err;
		r = -1;
		if (draft->fd >= 0)
			(void)unlinkat(draft->dir_fd, draft->temporary, 0);
	} else if (!draft->unsynced && fsync(draft->dir_fd) < 0) {
		r = err_errno(err, errno, "%s: syncing its directory", draft->name);
	}
	close_fd(&draft->fd);
	free(draft->name);
	free(draft->temporary);
	return r;
}

static int write_whole(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
	bool unsynced, struct err *err)
{
	struct file_draft draft;

	file_draft_begin(&draft, dir_fd, name);
	draft.unsynced = unsynced;
	file_draft_put(&draft, data, len);
	return file_draft_commit(&draft, mode, err);
}

int file_write_atomic(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err)
{
	return write_whole(dir_fd, name, data, len, mode, false, err);
}

int file_write_unsynced(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err)
{
	return write_whole(dir_fd, name, data, len, mode, true, err);
}
