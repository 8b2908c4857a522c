/* SPDX-License-Identifier: Apache-2.0 */
#include "statd/sandbox_table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/hash.h"
#include "common/util.h"

struct sandbox {
	char *id;
	int netns_fd;
	UT_hash_handle hh;
};

static struct sandbox *find(struct sandbox *const *all, const char *id)
{
	struct sandbox *s;

	HASH_FIND_STR(*all, id, s);
	return s;
}

static bool is_same_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

int sandbox_put(struct sandbox **all, const char *id, int netns_fd, struct err *err)
{
	struct sandbox *s = find(all, id);
	int fd;

	if (s && is_same_file(s->netns_fd, netns_fd))
		return 0;
	if (s)
		return err_set(err, ERR_CONFLICT,
			"sandbox %s is known with another network namespace", id);
	fd = fcntl(netns_fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return err_errno(err, errno, "keeping the network namespace of sandbox %s", id);
	s = xcalloc(1, sizeof(*s));
	s->id = xstrdup(id);
	s->netns_fd = fd;
	HASH_ADD_KEYPTR(hh, *all, s->id, strlen(s->id), s);
	return 0;
}

bool sandbox_is_known(struct sandbox *const *all, const char *id)
{
	return find(all, id) != NULL;
}

int sandbox_netns(struct sandbox *const *all, const char *id)
{
	const struct sandbox *s = find(all, id);

	return s ? s->netns_fd : -1;
}

static void drop(struct sandbox **all, struct sandbox *s)
{
	HASH_DEL(*all, s);
	close_fd(&s->netns_fd);
	free(s->id);
	free(s);
}

void sandbox_drop(struct sandbox **all, const char *id)
{
	struct sandbox *s = find(all, id);

	if (s)
		drop(all, s);
}

void sandbox_drop_all(struct sandbox **all)
{
	struct sandbox *s, *tmp;

	HASH_ITER (hh, *all, s, tmp)
		drop(all, s);
}
