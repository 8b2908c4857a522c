/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link_table.h"

#include <string.h>

#define FEW 16 /* a host has some hundred links, and to list one takes a third of asking for it */

/* Sorted, each once. */
struct wanted {
	const char **names;
	size_t n;
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static struct wanted wanted_of(const char *const *names, size_t n)
{
	struct wanted w = {.names = xcalloc(n, sizeof(*w.names))};
	size_t all = 0;

	for (size_t i = 0; i < n; i++)
		if (*names[i])
			w.names[all++] = names[i];
	if (all)
		qsort(w.names, all, sizeof(*w.names), compare_names);
	for (size_t i = 0; i < all; i++)
		if (w.n == 0 || strcmp(w.names[w.n - 1], w.names[i]) != 0)
			w.names[w.n++] = w.names[i];
	return w;
}

static bool is_wanted(const void *ctx, const struct link_info *link)
{
	const struct wanted *w = ctx;
	const char *name = link->name;

	return bsearch(&name, w->names, w->n, sizeof(*w->names), compare_names);
}

static void ask_for_each(struct nl *nl, const struct wanted *w, struct link_list *ret)
{
	struct err err;

	ret->v = xcalloc(w->n, sizeof(*ret->v));
	for (size_t i = 0; i < w->n; i++)
		if (nl_link_get(nl, w->names[i], &ret->v[ret->n], &err) == 0)
			ret->n++;
}

static int compare_links(const void *a, const void *b)
{
	const struct link_info *la = a, *lb = b;

	return strcmp(la->name, lb->name);
}

void link_table_read(
	struct nl *nl, const char *const *names, size_t n_names, struct link_table *ret)
{
	struct wanted w = wanted_of(names, n_names);
	struct err err;

	*ret = (struct link_table){0};
	if (w.n <= FEW || nl_link_find_all(nl, is_wanted, &w, &ret->links, &err) < 0)
		ask_for_each(nl, &w, &ret->links);
	if (ret->links.n)
		qsort(ret->links.v, ret->links.n, sizeof(*ret->links.v), compare_links);
	free(w.names);
}

static int compare_name(const void *name, const void *link)
{
	const struct link_info *l = link;

	return strcmp(name, l->name);
}

const struct link_info *link_table_find(const struct link_table *table, const char *name)
{
	const struct link_list *links = &table->links;

	if (!links->n)
		return NULL;
	return bsearch(name, links->v, links->n, sizeof(*links->v), compare_name);
}

void link_table_fini(struct link_table *table)
{
	link_list_fini(&table->links);
}
