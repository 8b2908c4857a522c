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

int file_write_atomic(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err)
{
	cleanup_free char *temporary = NULL;
	cleanup_close int fd = -1;
	unsigned random;
	int r;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return err_errno(err, errno, "%s: random name", name);
	temporary = xasprintf(".%s.%0*x" TEMPORARY, name, RANDOM_DIGITS, random);
	fd = openat(
		dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_errno(err, errno, "%s: creating", temporary);
	if (write_all(fd, data, len) < 0 || fchmod(fd, mode) < 0 || fsync(fd) < 0)
		r = err_errno(err, errno, "%s: writing", name);
	else if (renameat(dir_fd, temporary, dir_fd, name) < 0)
		r = err_errno(err, errno, "%s: replacing", name);
	else
		return fsync(dir_fd) < 0 ? err_errno(err, errno, "%s: syncing its folder", name)
					 : 0;
	(void)unlinkat(dir_fd, temporary, 0);
	return r;
}
