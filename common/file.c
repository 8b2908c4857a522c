/* SPDX-License-Identifier: Apache-2.0 */
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

int file_write_atomic(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
	struct err *err)
{
	cleanup_free char *temporary = NULL;
	cleanup_close int fd = -1;
	unsigned random;
	int r;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return err_errno(err, errno, "%s: random name", name);
	temporary = xasprintf(".%s.%08x.tmp", name, random);
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
