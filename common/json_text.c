/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A value is checked once, when it is cut off its text; walks over its inside need not doubt it
 * any more. Which brackets are open stands in a buffer, one byte each, so that what nests deeply
 * costs bytes of the heap and at most as many as the text has.
 */
#include "common/json_text.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "common/util.h"

static void skip(struct json_text *t, size_t n)
{
	t->at += n;
	t->len -= n;
}

static bool is_any(char c, const char *chars)
{
	return c && strchr(chars, c);
}

static void skip_space(struct json_text *t)
{
	while (t->len > 0 && is_any(*t->at, " \t\r\n"))
		skip(t, 1);
}

static bool take(struct json_text *t, char c)
{
	if (!json_text_is(*t, c))
		return false;
	skip(t, 1);
	return true;
}

bool json_text_is_blank(struct json_text text)
{
	skip_space(&text);
	return text.len == 0;
}

/* --- scalars ------------------------------------------------------------------------------ */

/* What follows a backslash. */
static bool take_escape(struct json_text *t)
{
	if (t->len == 0 || !is_any(*t->at, "\"\\/bfnrtu"))
		return false;
	if (!take(t, 'u')) {
		skip(t, 1);
		return true;
	}
	if (t->len < 4)
		return false;
	for (int i = 0; i < 4; i++)
		if (!is_any(t->at[i], "0123456789abcdefABCDEF"))
			return false;
	skip(t, 4);
	return true;
}

static bool take_string(struct json_text *t)
{
	if (!take(t, '"'))
		return false;
	while (t->len > 0) {
		unsigned char c = (unsigned char)*t->at;

		if (c < 0x20)
			return false;
		skip(t, 1);
		if (c == '"')
			return true;
		if (c == '\\' && !take_escape(t))
			return false;
	}
	return false;
}

static bool take_digits(struct json_text *t)
{
	size_t before = t->len;

	while (t->len > 0 && *t->at >= '0' && *t->at <= '9')
		skip(t, 1);
	return t->len < before;
}

static bool take_number(struct json_text *t)
{
	(void)take(t, '-');
	if (!take(t, '0') && !take_digits(t))
		return false;
	if (take(t, '.') && !take_digits(t))
		return false;
	if (!take(t, 'e') && !take(t, 'E'))
		return true;
	if (!take(t, '+'))
		(void)take(t, '-');
	return take_digits(t);
}

static bool take_word(struct json_text *t, const char *word)
{
	size_t n = strlen(word);

	if (t->len < n || memcmp(t->at, word, n) != 0)
		return false;
	skip(t, n);
	return true;
}

static bool take_scalar(struct json_text *t)
{
	if (json_text_is(*t, '"'))
		return take_string(t);
	return take_word(t, "true") || take_word(t, "false") || take_word(t, "null") ||
	       take_number(t);
}

/* --- values ------------------------------------------------------------------------------- */

static bool take_key(struct json_text *t)
{
	skip_space(t);
	if (!take_string(t))
		return false;
	skip_space(t);
	return take(t, ':');
}

/* An opening bracket: its closing one is expected from now on. 1: it is next; 0: a value is;
 * -1: neither. */
static int open_bracket(struct json_text *t, struct buf *expected)
{
	char close = *t->at == '{' ? '}' : ']';

	skip(t, 1);
	buf_put(expected, &close, 1);
	skip_space(t);
	if (json_text_is(*t, close))
		return 1;
	return close == ']' || take_key(t) ? 0 : -1;
}

/* What follows a value: closing brackets, or a comma and then another value. */
static bool close_brackets(struct json_text *t, struct buf *expected)
{
	while (expected->len > 0) {
		char close = expected->data[expected->len - 1];

		skip_space(t);
		if (take(t, ','))
			return close == ']' || take_key(t);
		if (!take(t, close))
			return false;
		expected->len--;
	}
	return true;
}

static bool take_value(struct json_text *t)
{
	cleanup_buf struct buf expected = BUF_INIT;

	do {
		skip_space(t);
		if (json_text_is(*t, '{') || json_text_is(*t, '[')) {
			int next = open_bracket(t, &expected);

			if (next < 0)
				return false;
			if (next == 0)
				continue;
		} else if (!take_scalar(t)) {
			return false;
		}
		if (!close_brackets(t, &expected))
			return false;
	} while (expected.len > 0);
	return true;
}

int json_text_value(struct json_text *text, struct json_text *ret)
{
	struct json_text t = *text;
	const char *begin;

	skip_space(&t);
	begin = t.at;
	if (!take_value(&t))
		return -1;
	*ret = (struct json_text){begin, (size_t)(t.at - begin)};
	*text = t;
	return 0;
}

/* --- insides ------------------------------------------------------------------------------ */

struct json_text_walk json_text_walk(struct json_text container)
{
	struct json_text_walk walk = {.is_object = json_text_is(container, '{')};

	assert(walk.is_object || json_text_is(container, '['));
	walk.left = (struct json_text){container.at + 1, container.len - 2};
	return walk;
}

int json_text_next(
	struct json_text_walk *walk, struct json_text *ret_key, struct json_text *ret_value)
{
	struct json_text *t = &walk->left;

	skip_space(t);
	if (take(t, ','))
		skip_space(t);
	if (t->len == 0)
		return 0;
	if (walk->is_object) {
		*ret_key = *t;
		(void)take_string(t);
		ret_key->len -= t->len;
		skip_space(t);
		(void)take(t, ':');
	}
	return json_text_value(t, ret_value) < 0 ? 0 : 1;
}

bool json_text_equal(struct json_text value, const char *text)
{
	size_t n = strlen(text);
	json_t *decoded;
	bool equal;

	if (!json_text_is(value, '"'))
		return false;
	if (!memchr(value.at, '\\', value.len))
		return value.len == n + 2 && memcmp(value.at + 1, text, n) == 0;
	decoded = json_loadb(value.at, value.len, JSON_DECODE_ANY, NULL);
	equal = str_equal(json_string_value(decoded), text);
	json_decref(decoded);
	return equal;
}
