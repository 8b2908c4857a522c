/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dmgr-dummy where the kernel makes no dummy links: the very same program, linked with these in front
 * of the functions that make and read links. What it calls a dummy link is an ifb, which is as cheap
 * to make, to move and to delete, and ends with its namespace too.
 *
 * What the kernel takes for the last move into a pod is left in the file that MOVED_FILE names, as
 * nanoseconds: a number of 8 bytes. It is mapped before the process gives up opening files.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/nl.h"
#include "common/util.h"

#define MOVED_FILE "NETCLAIM_BENCH_MOVED"

#define ASKED "dummy"
#define MADE  "ifb"

/* the linker's names: ld(1), --wrap */
int __real_nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err);
int __wrap_nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err);
int __real_nl_link_get_by_index(
	struct nl *nl, int ifindex, struct link_info *ret, struct err *err);
int __wrap_nl_link_get_by_index(
	struct nl *nl, int ifindex, struct link_info *ret, struct err *err);
int __real_nl_link_find(struct nl *nl, bool (*match)(const void *, const struct link_info *),
	const void *ctx, struct link_info *ret, struct err *err);
int __wrap_nl_link_find(struct nl *nl, bool (*match)(const void *, const struct link_info *),
	const void *ctx, struct link_info *ret, struct err *err);
int __real_nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err);
int __wrap_nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err);
int __real_nl_link_find_all(struct nl *nl,
	bool (*match)(const void *, const struct link_info *), const void *ctx,
	struct link_list *ret, struct err *err);
int __wrap_nl_link_find_all(struct nl *nl,
	bool (*match)(const void *, const struct link_info *), const void *ctx,
	struct link_list *ret, struct err *err);
int __real_nl_link_move_up(
	struct nl *nl, int ifindex, int netns_fd, const char *name, struct err *err);
int __wrap_nl_link_move_up(
	struct nl *nl, int ifindex, int netns_fd, const char *name, struct err *err);

static void rename_kind(struct link_info *link)
{
	if (strcmp(link->kind, MADE) == 0)
		memcpy(link->kind, ASKED, sizeof(ASKED));
}

int __wrap_nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err)
{
	int rc = __real_nl_link_get(nl, name, ret, err);

	rename_kind(ret);
	return rc;
}

int __wrap_nl_link_get_by_index(
	struct nl *nl, int ifindex, struct link_info *ret, struct err *err)
{
	int rc = __real_nl_link_get_by_index(nl, ifindex, ret, err);

	rename_kind(ret);
	return rc;
}

struct search {
	bool (*match)(const void *ctx, const struct link_info *link);
	const void *ctx;
};

static bool match_renamed(const void *ctx, const struct link_info *link)
{
	const struct search *search = ctx;
	struct link_info renamed = *link;

	rename_kind(&renamed);
	return search->match(search->ctx, &renamed);
}

int __wrap_nl_link_find(struct nl *nl, bool (*match)(const void *, const struct link_info *),
	const void *ctx, struct link_info *ret, struct err *err)
{
	const struct search search = {.match = match, .ctx = ctx};
	int rc = __real_nl_link_find(nl, match_renamed, &search, ret, err);

	rename_kind(ret);
	return rc;
}

int __wrap_nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err)
{
	return __real_nl_link_add(nl, name, strcmp(kind, ASKED) == 0 ? MADE : kind, group, err);
}

int __wrap_nl_link_find_all(struct nl *nl,
	bool (*match)(const void *, const struct link_info *), const void *ctx,
	struct link_list *ret, struct err *err)
{
	const struct search search = {.match = match, .ctx = ctx};
	int rc = __real_nl_link_find_all(nl, match_renamed, &search, ret, err);

	for (size_t i = 0; i < ret->n; i++)
		rename_kind(&ret->v[i]);
	return rc;
}

static uint64_t *moved;

__attribute__((constructor)) static void map_moved(void)
{
	const char *path = getenv(MOVED_FILE);
	cleanup_close int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *mapped =
		fd < 0 ? MAP_FAILED
		       : mmap(NULL, sizeof(*moved), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	moved = mapped == MAP_FAILED ? NULL : mapped;
}

int __wrap_nl_link_move_up(
	struct nl *nl, int ifindex, int netns_fd, const char *name, struct err *err)
{
	const uint64_t started = now_ns();
	int rc = __real_nl_link_move_up(nl, ifindex, netns_fd, name, err);

	if (moved)
		*moved = now_ns() - started;
	return rc;
}
