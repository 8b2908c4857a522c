/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories below the kubelet's and the runtime's, seen through descriptors: between two steps
 * nobody can put a link in the way. How a file is written is common/file.c.
 */
#include "draplugind/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_NESTING 8 /* of a tree to be removed; ours have two levels */
#define READ_STEP   4096

int tree_open(int at, const char *name, struct err *err)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_errno(err, errno, "opening directory %s", name) : fd;
}

int tree_make(int at, const char *name, mode_t mode, struct err *err)
{
	cleanup_close int fd = -1;
	int made = mkdirat(at, name, mode);

	if (made < 0 && errno != EEXIST)
		return err_errno(err, errno, "making directory %s", name);
	fd = tree_open(at, name, err);
	if (fd < 0)
		return -1;
	/* the process's umask has had its say */
	if (made == 0 && fchmod(fd, mode) < 0)
		return err_errno(err, errno, "setting the mode of directory %s", name);
	return take_fd(&fd);
}

int tree_list(int dir, struct strlist *to, struct err *err)
{
	/* a stream has its descriptor, and its place in the directory, to itself */
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed;
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!stream) {
		(void)err_errno(err, errno, "listing a directory");
		close_fd(&fd);
		return -1;
	}
	errno = 0;
	while ((entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			strlist_add(to, entry->d_name);
	failed = errno;
	(void)closedir(stream);
	return failed ? err_errno(err, failed, "listing a directory") : 0;
}

int tree_read(int at, const char *name, size_t max, struct buf *to, struct err *err)
{
	cleanup_close int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	size_t before = to->len;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return 1;
	if (fd < 0)
		return err_errno(err, errno, "opening %s", name);
	do {
		buf_reserve(to, READ_STEP);
		n = read(fd, to->data + to->len, READ_STEP);
		if (n < 0)
			return err_errno(err, errno, "reading %s", name);
		to->len += (size_t)n;
		to->data[to->len] = '\0';
		if (to->len - before > max)
			return err_set(
				err, ERR_INVALID, "%s has more than %zu bytes", name, max);
	} while (n > 0);
	return 0;
}

bool tree_holds(int at, const char *name, const char *data, size_t len)
{
	cleanup_buf struct buf there = BUF_INIT;
	struct err ignored;

	return tree_read(at, name, len, &there, &ignored) == 0 && there.len == len &&
	       memcmp(there.data, data, len) == 0;
}

static int remove_nested(int at, const char *name, unsigned depth, struct err *err)
{
	struct strlist entries = {0};
	cleanup_close int fd = -1;
	int r;

	if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return err_errno(err, errno, "removing %s", name);
	if (depth == 0)
		return err_set(err, ERR_CONFLICT, "%s: directories are nested too deep", name);
	fd = tree_open(at, name, err);
	if (fd < 0)
		return -1;
	r = tree_list(fd, &entries, err);
	for (size_t i = 0; r == 0 && i < entries.n; i++)
		r = remove_nested(fd, entries.v[i], depth - 1, err);
	strlist_fini(&entries);
	if (r < 0)
		return err_wrap(err, "%s", name);
	if (unlinkat(at, name, AT_REMOVEDIR) < 0)
		return err_errno(err, errno, "removing directory %s", name);
	return 0;
}

int tree_remove(int at, const char *name, struct err *err)
{
	return remove_nested(at, name, MAX_NESTING, err);
}
