/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a pod's network namespace.
 *
 * Runtimes pin a namespace by mounting it on an empty file in a directory of theirs. A process
 * in a container that has that directory mounted, but does not get mounts that come later, sees
 * the empty file: it opens, and only its file system tells the difference. That is the one
 * mistake that everybody makes once, so it has an error of its own.
 *
 * The path is the runtime's word, so it is opened without waiting (a FIFO would) and believed
 * only after the kernel has said what was opened.
 */
#include "nrihookd/pod_netns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "common/netns.h"
#include "common/util.h"

int pod_netns_init(struct pod_netns *n, const char *dir, struct err *err)
{
	if (dir && *dir != '/')
		return err_set(
			err, ERR_INVALID, "--netns-dir %s: is not an absolute path", dir);
	*n = (struct pod_netns){.dir = dir, .own = netns_open_own(err)};
	return n->own < 0 ? -1 : 0;
}

void pod_netns_fini(struct pod_netns *n)
{
	close_fd(&n->own);
}

/* The path as it is from here; the caller's. */
static char *translate(const struct pod_netns *n, const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	if (*path != '/' || *name == '\0' || str_equal(name, ".") || str_equal(name, "..")) {
		(void)err_set(err, ERR_INVALID, "'%s' is no path of a network namespace", path);
		return NULL;
	}
	return n->dir ? xasprintf("%s/%s", n->dir, name) : xstrdup(path);
}

static int check_kind(const struct pod_netns *n, int fd, const char *path, struct err *err)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return err_errno(err, errno, "'%s'", path);
	if (fs.f_type != NSFS_MAGIC)
		return err_set(err, ERR_INVALID,
			"'%s' is a plain file and no network namespace: mount propagation "
			"missing "
			"(mount its directory with HostToContainer)",
			path);
	return netns_check(fd, n->own, err) < 0 ? err_wrap(err, "'%s'", path) : 0;
}

int pod_netns_open(const struct pod_netns *n, const char *path, struct err *err)
{
	cleanup_free char *here = translate(n, path, err);
	cleanup_close int fd = -1;

	if (!here)
		return -1;
	fd = open(here, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_errno(err, errno, "opening the network namespace '%s'", here);
	if (check_kind(n, fd, here, err) < 0)
		return -1;
	return take_fd(&fd);
}
