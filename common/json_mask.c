/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text is written again with blanks in the place of what goes. The recursion is the table's,
 * never the text's: each step down is one from a mask to the mask of one of its members.
 */
#include "common/json_mask.h"

#include <string.h>

#include "common/json_text.h"

struct masking {
	const char *owner;
	struct buf *to;
};

static const struct json_mask_member *find_member(
	const struct json_mask *mask, struct json_text key)
{
	for (size_t i = 0; i < mask->n_members; i++)
		if (json_text_equal(key, mask->members[i].name))
			return &mask->members[i];
	return NULL;
}

/* --- writing ------------------------------------------------------------------------------ */

static void put(struct masking *m, const char *from, const char *to)
{
	buf_put(m->to, from, (size_t)(to - from));
}

/* Blanks for all but the first `written` bytes, whose place is taken; all line breaks. */
static void put_blanks(struct masking *m, struct json_text gone, size_t written)
{
	for (size_t i = 0; i < gone.len; i++)
		if (gone.at[i] == '\n')
			buf_puts(m->to, "\n");
		else if (i >= written)
			buf_puts(m->to, " ");
}

static const char *end_of(struct json_text text)
{
	return text.at + text.len;
}

static struct json_text between(const char *from, const char *to)
{
	return (struct json_text){from, (size_t)(to - from)};
}

/* --- owners ------------------------------------------------------------------------------- */

/* Whether an object is of the owner that is asked for, of another, or does not say. */
enum owned { OWN, OTHER, UNKNOWN };

/* Of several members of one name the first that is ours decides: it is for a decoder to refuse
 * them. */
static enum owned owned_by_member(struct json_text object, const char *name, const char *owner)
{
	struct json_text_walk walk = json_text_walk(object);
	struct json_text key, value;
	enum owned owned = UNKNOWN;

	while (json_text_next(&walk, &key, &value) > 0) {
		if (!json_text_equal(key, name) || !json_text_is(value, '"'))
			continue;
		if (json_text_equal(value, owner))
			return OWN;
		owned = OTHER;
	}
	return owned;
}

static bool is_others(const struct json_mask *mask, struct json_text object, const char *owner)
{
	struct json_text_walk walk = json_text_walk(object);
	struct json_text key, value;

	if (!mask->owner[1])
		return owned_by_member(object, mask->owner[0], owner) == OTHER;
	while (json_text_next(&walk, &key, &value) > 0)
		if (json_text_equal(key, mask->owner[0]) && json_text_is(value, '{') &&
			owned_by_member(value, mask->owner[1], owner) != OTHER)
			return false;
	return true;
}

static bool is_plain(const char *text, size_t len)
{
	if (len == 0 || len > JSON_MASK_STUB_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (text[i] < ' ' || text[i] > '~' || text[i] == '\\' || text[i] == '"')
			return false;
	return true;
}

static struct json_text stub_text(struct json_text object, const char *name)
{
	struct json_text_walk walk = json_text_walk(object);
	struct json_text key, value;

	while (json_text_next(&walk, &key, &value) > 0)
		if (json_text_equal(key, name) && json_text_is(value, '"') &&
			is_plain(value.at + 1, value.len - 2))
			return value;
	return (struct json_text){"\"-\"", 3};
}

static void put_stub(struct masking *m, const struct json_mask *mask, struct json_text object)
{
	size_t before = m->to->len;

	buf_puts(m->to, "{");
	for (size_t i = 0; i < mask->n_stub; i++) {
		struct json_text value = stub_text(object, mask->stub[i]);

		buf_printf(m->to, "%s\"%s\":", i ? "," : "", mask->stub[i]);
		buf_put(m->to, value.at, value.len);
	}
	buf_puts(m->to, "}");
	put_blanks(m, object, m->to->len - before);
}

/* --- members and elements ----------------------------------------------------------------- */

static void put_value(struct masking *m, const struct json_mask *mask, struct json_text value);

static void put_object(struct masking *m, const struct json_mask *mask, struct json_text object)
{
	struct json_text_walk walk = json_text_walk(object);
	const char *done = object.at + 1;
	struct json_text key, value;
	bool any = false;

	buf_puts(m->to, "{");
	while (json_text_next(&walk, &key, &value) > 0) {
		const struct json_mask_member *member = find_member(mask, key);

		if (!member) {
			put_blanks(m, between(done, end_of(value)), 0);
		} else {
			/* a comma that stands in front of the first one goes as well */
			if (any)
				put(m, done, key.at);
			else
				put_blanks(m, between(done, key.at), 0);
			put(m, key.at, value.at);
			put_value(m, member->mask, value);
			any = true;
		}
		done = end_of(value);
	}
	put_blanks(m, between(done, end_of(object) - 1), 0);
	buf_puts(m->to, "}");
}

static void put_element(
	struct masking *m, const struct json_mask *mask, struct json_text element)
{
	if (!json_text_is(element, '{'))
		put(m, element.at, end_of(element));
	else if (mask->owner[0] && is_others(mask, element, m->owner))
		put_stub(m, mask, element);
	else
		put_value(m, mask, element);
}

static void put_value(struct masking *m, const struct json_mask *mask, struct json_text value)
{
	struct json_text_walk walk;
	struct json_text key, element;
	const char *done = value.at;

	if (mask && !mask->owner[0] && json_text_is(value, '{')) {
		put_object(m, mask, value);
		return;
	}
	if (mask && json_text_is(value, '[')) {
		walk = json_text_walk(value);
		while (json_text_next(&walk, &key, &element) > 0) {
			put(m, done, element.at);
			put_element(m, mask, element);
			done = end_of(element);
		}
	}
	put(m, done, end_of(value));
}

int json_mask_text(const struct json_mask *mask, const char *owner, const char *text,
	size_t len, struct buf *ret, struct err *err)
{
	struct masking m = {.owner = owner, .to = ret};
	struct json_text left = {text, len}, value;

	if (json_text_value(&left, &value) < 0 || !json_text_is_blank(left))
		return err_set(err, ERR_INVALID, "is not JSON");
	buf_reserve(ret, len);
	put(&m, text, value.at);
	put_value(&m, mask, value);
	put(&m, left.at, left.at + left.len);
	return 0;
}

/* --- trees -------------------------------------------------------------------------------- */

static bool tree_is_others(
	const struct json_mask *mask, const json_t *object, const char *owner)
{
	const json_t *at = json_object_get(object, mask->owner[0]);

	if (mask->owner[1] && !json_is_object(at))
		return true;
	if (mask->owner[1])
		at = json_object_get(at, mask->owner[1]);
	return json_is_string(at) && !str_equal(json_string_value(at), owner);
}

static json_t *tree_stub_text(const json_t *value)
{
	const char *text = json_string_value(value);

	if (!text || !is_plain(text, json_string_length(value)))
		return json_string("-");
	return json_incref((json_t *)(uintptr_t)value);
}

static json_t *tree_stub(const struct json_mask *mask, const json_t *object)
{
	json_t *stub = json_object();

	for (size_t i = 0; i < mask->n_stub; i++)
		(void)json_object_set_new(stub, mask->stub[i],
			tree_stub_text(json_object_get(object, mask->stub[i])));
	return stub;
}

static const struct json_mask_member *tree_find_member(
	const struct json_mask *mask, const char *key)
{
	for (size_t i = 0; i < mask->n_members; i++)
		if (strcmp(mask->members[i].name, key) == 0)
			return &mask->members[i];
	return NULL;
}

static void mask_object(const struct json_mask *mask, const char *owner, json_t *object)
{
	const char *key;
	json_t *value;
	void *tmp;

	json_object_foreach_safe(object, tmp, key, value)
	{
		const struct json_mask_member *member = tree_find_member(mask, key);

		if (!member)
			(void)json_object_del(object, key);
		else if (member->mask)
			json_mask_tree(member->mask, owner, value);
	}
}

static void mask_array(const struct json_mask *mask, const char *owner, json_t *array)
{
	json_t *value;
	size_t i;

	json_array_foreach (array, i, value) {
		if (!json_is_object(value))
			continue;
		if (!mask->owner[0])
			mask_object(mask, owner, value);
		else if (tree_is_others(mask, value, owner))
			(void)json_array_set_new(array, i, tree_stub(mask, value));
	}
}

void json_mask_tree(const struct json_mask *mask, const char *owner, json_t *tree)
{
	if (json_is_array(tree))
		mask_array(mask, owner, tree);
	else if (json_is_object(tree) && !mask->owner[0])
		mask_object(mask, owner, tree);
}
