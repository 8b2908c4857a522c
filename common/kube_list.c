/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists, page by page. A page is asked for when all of the one before it has been told, so that
 * there is never more than one here.
 *
 * How large a page becomes nobody knows before it is there. One that is too long for an answer
 * is asked for again with half as many objects: the server takes the place where a page begins
 * from the token alone.
 */
#include "common/kube_internal.h"

#include <string.h>

struct kube_list {
	struct kube *kube;
	struct kube_transfer t;
	char *path, *query;
	char *next; /* the server's token for the next page, NULL: the first */
	unsigned page_size;
	bool begun;
	bool telling, cancelled; /* cancelled while an object is told */
	void (*begin)(void *ctx);
	kube_each_cb *each;
	kube_listed_cb *done;
	void *ctx;
};

static const struct kube_transfer_ops list_ops;

static void list_free(struct kube_list *list)
{
	free(list->path);
	free(list->query);
	free(list->next);
	free(list);
}

static void ask(struct kube_list *list)
{
	cleanup_buf struct buf query = BUF_INIT;
	struct kube_request request = {.method = "GET", .path = list->path};
	char limit[16];

	if (list->query)
		buf_puts(&query, list->query);
	(void)snprintf(limit, sizeof(limit), "%u", list->page_size);
	kube_query(&query, "limit", limit);
	if (list->next)
		kube_query(&query, "continue", list->next);
	request.query = query.data;
	kube_transfer_init(&list->t, list->kube, &list_ops, &request, NULL);
	kube_transfer_start(&list->t);
}

/* "PodList" is a list of objects of the kind "Pod". */
static json_t *item_kind(const json_t *page)
{
	const char *kind = json_string_value(json_object_get(page, "kind"));
	size_t len = kind ? strlen(kind) : 0;

	if (len <= 4 || strcmp(kind + len - 4, "List") != 0)
		return NULL;
	return json_stringn(kind, len - 4);
}

static void tell_objects(struct kube_list *list, const json_t *page)
{
	json_t *version = json_object_get(page, "apiVersion"), *kind = item_kind(page), *item;
	size_t i;

	json_array_foreach (json_object_get(page, "items"), i, item) {
		if (!json_is_object(item))
			continue;
		if (kind && !json_object_get(item, "kind"))
			(void)json_object_set(item, "kind", kind);
		if (version && !json_object_get(item, "apiVersion"))
			(void)json_object_set(item, "apiVersion", version);
		list->each(list->ctx, item);
		if (list->cancelled)
			break;
	}
	json_decref(kind);
}

/* Whoever is told may cancel the list, and may close the client. */
static void tell(struct kube_list *list, const json_t *page)
{
	struct kube *kube = list->kube;

	kube->telling = list;
	list->telling = true;
	if (!list->begun && list->begin)
		list->begin(list->ctx);
	list->begun = true;
	if (!list->cancelled)
		tell_objects(list, page);
	list->telling = false;
	kube->telling = NULL;
}

static void finish(
	struct kube_list *list, const struct kube_error *error, const char *resource_version)
{
	list->done(list->ctx, error, resource_version);
	list_free(list);
}

static void page_came(struct kube_list *list, const json_t *page)
{
	const json_t *metadata = json_object_get(page, "metadata");
	const char *next = json_string_value(json_object_get(metadata, "continue"));
	const char *version = json_string_value(json_object_get(metadata, "resourceVersion"));

	tell(list, page);
	if (list->cancelled) {
		list_free(list);
		return;
	}
	if (!next || !*next) {
		finish(list, NULL, version ? version : "");
		return;
	}
	free(list->next);
	list->next = xstrdup(next);
	ask(list);
}

static bool is_list(const json_t *page)
{
	return json_is_array(json_object_get(page, "items")) ||
	       json_is_null(json_object_get(page, "items"));
}

static void list_done(struct kube_transfer *t, const struct kube_error *error)
{
	struct kube_list *list = container_of(t, struct kube_list, t);
	bool was_too_long = t->too_long;
	size_t size = t->answer.len;
	struct kube_error wrong;
	json_t *page = NULL;

	if (!error) {
		page = kube_transfer_json(t, &wrong);
		if (!page)
			error = &wrong;
	}
	if (page && !is_list(page)) {
		kube_error_set(&wrong, ERR_INTERNAL, "the answer is no list");
		kube_error_wrap(t, &wrong);
		error = &wrong;
	}
	kube_transfer_fini(t);
	if (error && was_too_long && list->page_size > 1) {
		list->page_size /= 2;
		ask(list);
	} else if (error) {
		finish(list, error, NULL);
	} else {
		page_came(list, page);
	}
	json_decref(page);
	kube_give_back(size);
}

static const struct kube_transfer_ops list_ops = {.done = list_done};

struct kube_list *kube_list_start(struct kube *kube, const char *path, const char *query,
	unsigned page_size, kube_each_cb *each, kube_listed_cb *done, void *ctx)
{
	struct kube_list *list = xcalloc(1, sizeof(*list));

	*list = (struct kube_list){
		.kube = kube,
		.path = xstrdup(path),
		.query = xstrdup_opt(query),
		.page_size = page_size,
		.each = each,
		.done = done,
		.ctx = ctx,
	};
	ask(list);
	return list;
}

void kube_list_on_begin(struct kube_list *list, void (*begin)(void *ctx))
{
	list->begin = begin;
}

void kube_list_close(struct kube_list *list)
{
	struct kube_error error;

	if (list->cancelled)
		return;
	list->cancelled = true;
	kube_error_set(&error, ERR_UNAVAILABLE, "the client was closed");
	list->done(list->ctx, &error, NULL);
}

void kube_list_cancel(struct kube_list *list)
{
	if (!list)
		return;
	list->cancelled = true;
	if (list->telling)
		return;
	kube_transfer_fini(&list->t);
	list_free(list);
}
