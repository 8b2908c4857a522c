/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dmgr-dummy where the kernel makes no dummy links: the very same program, linked with these in front
 * of the functions that make and read links. What it calls a dummy link is an ifb, which is as cheap
 * to make, to move and to delete, and ends with its namespace too.
 */
#include <string.h>

#include "common/nl.h"

#define ASKED "dummy"
#define MADE  "ifb"

/* the linker's names: ld(1), --wrap */
int __real_nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err);
int __wrap_nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err);
int __real_nl_link_find(struct nl *nl, bool (*match)(const void *, const struct link_info *),
	const void *ctx, struct link_info *ret, struct err *err);
int __wrap_nl_link_find(struct nl *nl, bool (*match)(const void *, const struct link_info *),
	const void *ctx, struct link_info *ret, struct err *err);
int __real_nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err);
int __wrap_nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err);

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
