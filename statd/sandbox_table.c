/* SPDX-License-Identifier: Apache-2.0 */
#include "statd/sandbox_table.h"

#include <fcntl.h>
#include <string.h>

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

void sandbox_put(struct sandbox **all, const char *id, int *netns_fd)
{
	struct sandbox *s = find(all, id);

	if (s) {
		close_fd(netns_fd);
		return;
	}
	s = xcalloc(1, sizeof(*s));
	s->id = xstrdup(id);
	s->netns_fd = take_fd(netns_fd);
	HASH_ADD_KEYPTR(hh, *all, s->id, strlen(s->id), s);
}

int sandbox_netns(struct sandbox *const *all, const char *id)
{
	const struct sandbox *s = find(all, id);

	return s ? fcntl(s->netns_fd, F_DUPFD_CLOEXEC, 3) : -1;
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
