/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists, page by page. A page is asked for when all of the one before it has been told, so that
 * there is never more than one here.
 *
 * How large a page becomes nobody knows before it is there. One that is too long for an answer
 * is asked for again with half as many objects: the server takes the place where a page begins
 * from the token alone.
 *
 * A page is never a tree: its objects are cut out of the text and decoded one by one, so that one
 * that cannot be decoded does not take the others with it, and that the page costs its text and
 * one object.
 */
#include "common/kube_internal.h"

#include <string.h>

#include "common/json_text.h"

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
	const struct json_mask *mask; /* NULL: objects are decoded whole */
	kube_undecoded_cb *undecoded; /* NULL: one ends the list */
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

/* --- a page ------------------------------------------------------------------------------- */

struct page {
	struct buf text;
	json_t *head;           /* all but the objects */
	struct json_text items; /* of text */
	json_t *item_kind;
};

static const struct json_mask_member head_members[] = {
	{"kind", NULL},
	{"apiVersion", NULL},
	{"metadata", NULL},
};
static const struct json_mask head_mask = {
	.members = head_members, .n_members = ARRAY_SIZE(head_members)};

static void page_fini(struct page *page)
{
	buf_fini(&page->text);
	json_decref(page->head);
	json_decref(page->item_kind);
}

static json_t *decode(struct json_text text, const struct json_mask *mask, struct err *err)
{
	cleanup_buf struct buf masked = BUF_INIT;
	json_error_t why;
	json_t *tree;

	if (mask) {
		if (json_mask_text(mask, "", text.at, text.len, &masked, err) < 0)
			return NULL;
		text = (struct json_text){masked.data, masked.len};
	}
	tree = json_loadb(text.at, text.len, 0, &why);
	if (!tree)
		(void)err_set(err, ERR_INVALID, "%s at byte %d", why.text, why.position);
	return tree;
}

static bool find_items(struct json_text text, struct json_text *ret)
{
	struct json_text key, value, whole;
	struct json_text_walk walk;
	bool found = false;

	if (json_text_value(&text, &whole) < 0 || !json_text_is(whole, '{'))
		return false;
	walk = json_text_walk(whole);
	while (!found && json_text_next(&walk, &key, &value) > 0)
		found = json_text_equal(key, "items");
	if (!found)
		return false;
	*ret = json_text_is(value, '[') ? value : (struct json_text){"[]", 2};
	return json_text_is(value, '[') || json_text_is(value, 'n');
}

/* "PodList" is a list of objects of the kind "Pod". */
static json_t *item_kind(const json_t *head)
{
	const char *kind = json_string_value(json_object_get(head, "kind"));
	size_t len = kind ? strlen(kind) : 0;

	if (len <= 4 || strcmp(kind + len - 4, "List") != 0)
		return NULL;
	return json_stringn(kind, len - 4);
}

/* Takes the answer out of the transfer. */
static int page_init(struct page *page, struct kube_transfer *t, struct kube_error *ret)
{
	struct json_text text;
	struct err err;

	*page = (struct page){.text = t->answer};
	t->answer = (struct buf)BUF_INIT;
	text = (struct json_text){page->text.data, page->text.len};
	page->head = decode(text, &head_mask, &err);
	if (!page->head) {
		kube_error_set(ret, ERR_INTERNAL, "the answer is no JSON: %s", err.message);
	} else if (!find_items(text, &page->items)) {
		kube_error_set(ret, ERR_INTERNAL, "the answer is no list");
	} else {
		page->item_kind = item_kind(page->head);
		return 0;
	}
	ret->status = t->status;
	kube_error_wrap(t, ret);
	return -1;
}

/* --- telling ------------------------------------------------------------------------------ */

static void tell_object(struct kube_list *list, const struct page *page, json_t *object)
{
	json_t *version = json_object_get(page->head, "apiVersion");

	if (page->item_kind && !json_object_get(object, "kind"))
		(void)json_object_set(object, "kind", page->item_kind);
	if (version && !json_object_get(object, "apiVersion"))
		(void)json_object_set(object, "apiVersion", version);
	list->each(list->ctx, object);
}

/* For people. */
static char *object_name(struct json_text object)
{
	static const struct json_mask_member names[] = {{"namespace", NULL}, {"name", NULL}};
	static const struct json_mask metadata = {.members = names, .n_members = 2};
	static const struct json_mask_member top[] = {{"metadata", &metadata}};
	static const struct json_mask mask = {.members = top, .n_members = 1};
	struct err ignored;
	json_t *tree = decode(object, &mask, &ignored);
	const json_t *meta = json_object_get(tree, "metadata");
	const char *namespace = json_string_value(json_object_get(meta, "namespace"));
	const char *name = json_string_value(json_object_get(meta, "name"));
	char *text = xasprintf("%s%s%s", namespace ? namespace : "", namespace ? "/" : "",
		name ? name : "an object without a name");

	json_decref(tree);
	return text;
}

/* -1: the list ends with it. */
static int tell_undecoded(struct kube_list *list, const struct page *page,
	struct json_text object, const struct err *why, struct kube_error *ret)
{
	const char *kind = json_string_value(page->item_kind);
	cleanup_free char *name = object_name(object);
	struct err err = *why;

	(void)err_wrap(&err, "%s %s", kind ? kind : "object", name);
	str_sanitize(err.message);
	if (list->undecoded) {
		list->undecoded(list->ctx, &err);
		return 0;
	}
	kube_error_set(ret, ERR_INTERNAL, "%s", err.message);
	return -1;
}

static int tell_objects(
	struct kube_list *list, const struct page *page, struct kube_error *ret)
{
	struct json_text_walk walk = json_text_walk(page->items);
	struct json_text key, value;
	int outcome = 0;

	while (outcome == 0 && !list->cancelled && json_text_next(&walk, &key, &value) > 0) {
		struct err err = ERR_INIT;
		json_t *object;

		if (!json_text_is(value, '{'))
			continue;
		object = decode(value, list->mask, &err);
		if (object)
			tell_object(list, page, object);
		else
			outcome = tell_undecoded(list, page, value, &err, ret);
		json_decref(object);
	}
	return outcome;
}

/* Whoever is told may cancel the list, and may close the client. */
static int tell(struct kube_list *list, const struct page *page, struct kube_error *ret)
{
	struct kube *kube = list->kube;
	int outcome = 0;

	kube->telling = list;
	list->telling = true;
	if (!list->begun && list->begin)
		list->begin(list->ctx);
	list->begun = true;
	if (!list->cancelled)
		outcome = tell_objects(list, page, ret);
	list->telling = false;
	kube->telling = NULL;
	return outcome;
}

static void finish(
	struct kube_list *list, const struct kube_error *error, const char *resource_version)
{
	list->done(list->ctx, error, resource_version);
	list_free(list);
}

static void page_came(struct kube_list *list, const struct page *page)
{
	const json_t *metadata = json_object_get(page->head, "metadata");
	const char *next = json_string_value(json_object_get(metadata, "continue"));
	const char *version = json_string_value(json_object_get(metadata, "resourceVersion"));
	struct kube_error error;
	int outcome = tell(list, page, &error);

	if (list->cancelled) {
		list_free(list);
	} else if (outcome < 0) {
		finish(list, &error, NULL);
	} else if (!next || !*next) {
		finish(list, NULL, version ? version : "");
	} else {
		free(list->next);
		list->next = xstrdup(next);
		ask(list);
	}
}

static void list_done(struct kube_transfer *t, const struct kube_error *error)
{
	struct kube_list *list = container_of(t, struct kube_list, t);
	bool was_too_long = t->too_long;
	size_t size = t->answer.len;
	struct kube_error wrong;
	struct page page = {0};

	if (!error && page_init(&page, t, &wrong) < 0)
		error = &wrong;
	kube_transfer_fini(t);
	if (error && was_too_long && list->page_size > 1) {
		list->page_size /= 2;
		ask(list);
	} else if (error) {
		finish(list, error, NULL);
	} else {
		page_came(list, &page);
	}
	page_fini(&page);
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

void kube_list_set_mask(
	struct kube_list *list, const struct json_mask *mask, kube_undecoded_cb *undecoded)
{
	list->mask = mask;
	list->undecoded = undecoded;
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
