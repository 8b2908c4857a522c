/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kube_count.h"

#include <stdio.h>
#include <string.h>

#include "common/util.h"

#define MAX_SEGMENTS 8

struct segments {
	const char *at[MAX_SEGMENTS];
	int len[MAX_SEGMENTS];
	size_t n;
};

static struct segments split(const char *path)
{
	struct segments s = {.n = 0};

	while (*path && s.n < MAX_SEGMENTS) {
		path += *path == '/';
		s.at[s.n] = path;
		s.len[s.n++] = (int)strcspn(path, "/");
		path += strcspn(path, "/");
	}
	return s;
}

static bool segment_is(const struct segments *s, size_t i, const char *text)
{
	return i < s->n && (size_t)s->len[i] == strlen(text) &&
	       memcmp(s->at[i], text, strlen(text)) == 0;
}

/* Where the resource stands: behind "api/VERSION" or "apis/GROUP/VERSION", and "namespaces/NAME" if
 * something follows. */
static size_t resource_of(const struct segments *s)
{
	size_t i = segment_is(s, 0, "api") ? 2 : segment_is(s, 0, "apis") ? 3 : s->n;

	return segment_is(s, i, "namespaces") && i + 2 < s->n ? i + 2 : i;
}

static const char *verb_of(const char *method, const char *query, bool has_name)
{
	static const struct {
		const char *method, *verb;
	} verbs[] = {
		{"POST", "create"}, {"PUT", "update"}, {"PATCH", "patch"}, {"DELETE", "delete"}};

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(method, verbs[i].method) == 0)
			return verbs[i].verb;
	if (has_name)
		return "get";
	return query && strstr(query, "watch=true") ? "watch" : "list";
}

static void describe(char ret[static KUBE_COUNT_TEXT], const char *method, const char *path,
	const char *query)
{
	struct segments s = split(path);
	size_t i = resource_of(&s);
	bool has_name = i + 1 < s.n, has_sub = i + 2 < s.n;

	if (i >= s.n)
		(void)snprintf(
			ret, KUBE_COUNT_TEXT, "%s %s", verb_of(method, query, true), path);
	else
		(void)snprintf(ret, KUBE_COUNT_TEXT, "%s %.*s%s%.*s",
			verb_of(method, query, has_name), s.len[i], s.at[i], has_sub ? "/" : "",
			has_sub ? s.len[i + 2] : 0, has_sub ? s.at[i + 2] : "");
}

void kube_count(
	struct kube_counts *counts, const char *method, const char *path, const char *query)
{
	char text[KUBE_COUNT_TEXT];
	struct kube_count *c = counts->v;

	describe(text, method, path, query);
	while (c < counts->v + counts->n && strcmp(c->request, text) != 0)
		c++;
	if (c == counts->v + KUBE_COUNTS)
		c--;
	else if (c == counts->v + counts->n)
		(void)snprintf(c->request, sizeof(c->request), "%s",
			++counts->n == KUBE_COUNTS ? "other requests" : text);
	c->n++;
}
