/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text documents into trees.
 *
 * YAML comes as libyaml's events, from which a tree is built by recursion, which DOC_MAX_DEPTH
 * bounds. Plain scalars are where YAML's readers disagree: what one takes for a boolean or an
 * octal number is text to the next. Manifests are read by several programs; so a scalar that
 * would mean different things to them is refused, with the advice to quote it, and the rest is
 * resolved as all of them would.
 *
 * With a mask the document is read twice over: first with every value, one that is refused as a text
 * that only stands for it, and with the reason in a list; then, when what is another program's is
 * gone, a node of that list that is still there is the reason to refuse the document.
 *
 * Lines are remembered by node: (address, line) pairs, sorted once when the document is
 * complete. Jansson has one true, one false and one null for all, so these have no line of
 * their own; nor have the nodes of JSON, whose parser does not tell.
 */
#include "common/doc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#include "common/json_mask.h"
#include "common/util.h"

/* Of other programs, in one document: each is looked for in what stays. */
#define MAX_REFUSED 256

struct node_line {
	const json_t *node;
	unsigned line;
};

/* A node that the document must not have, unless a mask takes it out. */
struct refused {
	json_t *node;
	char *why;
};

struct doc {
	struct rec_source source;
	char *name;
	json_t *root;
	struct node_line *lines; /* sorted by address */
	size_t n_lines, lines_cap;
	struct refused *refused;
	size_t n_refused;
};

json_t *doc_root(const struct doc *doc)
{
	return doc->root;
}

const char *doc_name(const struct doc *doc)
{
	return doc->name;
}

void doc_free(struct doc *doc)
{
	if (!doc)
		return;
	json_decref(doc->root);
	for (size_t i = 0; i < doc->n_refused; i++) {
		json_decref(doc->refused[i].node);
		free(doc->refused[i].why);
	}
	free(doc->refused);
	free(doc->lines);
	free(doc->name);
	free(doc);
}

/* --- lines -------------------------------------------------------------------------------- */

static int compare_lines(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct node_line *)a)->node;
	uintptr_t y = (uintptr_t)((const struct node_line *)b)->node;

	return (x > y) - (x < y);
}

static bool is_shared(const json_t *node)
{
	return json_is_null(node) || json_is_boolean(node);
}

static void remember_line(struct doc *doc, const json_t *node, unsigned line)
{
	if (is_shared(node))
		return;
	if (doc->n_lines == doc->lines_cap) {
		doc->lines_cap = doc->lines_cap ? 2 * doc->lines_cap : 64;
		doc->lines = xrealloc(doc->lines, doc->lines_cap, sizeof(*doc->lines));
	}
	doc->lines[doc->n_lines++] = (struct node_line){node, line};
}

static void sort_lines(struct doc *doc)
{
	if (doc->n_lines)
		qsort(doc->lines, doc->n_lines, sizeof(*doc->lines), compare_lines);
}

unsigned doc_line(const struct doc *doc, const json_t *node)
{
	const struct node_line key = {.node = node}, *found;

	if (doc->n_lines == 0)
		return 0;
	found = bsearch(&key, doc->lines, doc->n_lines, sizeof(*doc->lines), compare_lines);
	return found ? found->line : 0;
}

static unsigned source_line(const struct rec_source *source, const json_t *node)
{
	return doc_line((const struct doc *)(const void *)source, node);
}

const struct rec_source *doc_source(const struct doc *doc)
{
	return doc ? &doc->source : NULL;
}

/* --- YAML: plain scalars ------------------------------------------------------------------ */

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(text, list[i]) == 0)
			return true;
	return false;
}
#define IS_ONE_OF(text, ...)                                                                   \
	is_one_of(text, (const char *const[]){__VA_ARGS__},                                    \
		ARRAY_SIZE(((const char *const[]){__VA_ARGS__})))

/* Booleans of YAML 1.1, text in 1.2. */
static bool is_disputed_bool(const char *s)
{
	return IS_ONE_OF(s, "y", "Y", "yes", "Yes", "YES", "n", "N", "no", "No", "NO", "on",
		"On", "ON", "off", "Off", "OFF");
}

static const char *skip_sign(const char *s)
{
	return s + (*s == '-' || *s == '+');
}

/* Whether s is one or more of these, to its end. */
static bool is_all(const char *s, const char *chars)
{
	return *s && s[strspn(s, chars)] == '\0';
}

/* 0123 is 83 in YAML 1.1 and 123 in 1.2; 0b11 and 1_000 are numbers in 1.1 and text in 1.2. */
static bool is_disputed_int(const char *s)
{
	s = skip_sign(s);
	if (*s == '0' && is_all(s + 1, "0123456789_"))
		return true;
	if (str_has_prefix(s, "0b") && is_all(s + 2, "01_"))
		return true;
	return *s >= '1' && *s <= '9' && is_all(s, "0123456789_") && strchr(s, '_');
}

/* The base when s is an integer: -12, 0x1f, 0o17; 0 if it is none. */
static int int_base(const char *s)
{
	if (str_has_prefix(s, "0x") && is_all(s + 2, "0123456789abcdefABCDEF"))
		return 16;
	if (str_has_prefix(s, "0o") && is_all(s + 2, "01234567"))
		return 8;
	return is_all(skip_sign(s), "0123456789") ? 10 : 0;
}

/* [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)? : YAML 1.2, 10.3.2 */
static bool is_float(const char *s)
{
	size_t whole, fraction = 0;

	s = skip_sign(s);
	whole = strspn(s, "0123456789");
	s += whole;
	if (*s == '.') {
		fraction = strspn(s + 1, "0123456789");
		s += 1 + fraction;
	}
	if (whole + fraction == 0)
		return false;
	if (*s != 'e' && *s != 'E')
		return *s == '\0';
	return is_all(skip_sign(s + 1), "0123456789");
}

static bool is_not_finite(const char *s)
{
	return IS_ONE_OF(skip_sign(s), ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN");
}

/* --- YAML: events ------------------------------------------------------------------------- */

struct yaml {
	struct doc *doc;
	const char *text;
	size_t len;
	bool masked; /* what is refused may go yet */
	yaml_parser_t parser;
};

static void cleanup_event_p(yaml_event_t *event)
{
	yaml_event_delete(event);
}
#define cleanup_event __attribute__((cleanup(cleanup_event_p)))

static int refuse_at(const struct yaml *y, const yaml_mark_t *mark, struct err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));

static int refuse_at(
	const struct yaml *y, const yaml_mark_t *mark, struct err *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)err_vset(err, ERR_INVALID, fmt, ap);
	va_end(ap);
	return err_wrap(err, "%s:%zu:%zu", y->doc->name, mark->line + 1, mark->column + 1);
}

/* The reader, which finds what is no text at all, knows an offset only. */
static yaml_mark_t mark_of_offset(const struct yaml *y, size_t offset)
{
	yaml_mark_t mark = {0};

	for (size_t i = 0; i < MIN(offset, y->len); i++) {
		mark.column++;
		if (y->text[i] == '\n') {
			mark.line++;
			mark.column = 0;
		}
	}
	return mark;
}

static int refuse_syntax(const struct yaml *y, struct err *err)
{
	const yaml_parser_t *p = &y->parser;
	yaml_mark_t mark = p->problem_mark;
	const char *problem = p->problem ? p->problem : "no YAML";

	if (p->error == YAML_READER_ERROR)
		mark = mark_of_offset(y, p->problem_offset);
	if (p->context)
		return refuse_at(y, &mark, err, "%s %s", problem, p->context);
	return refuse_at(y, &mark, err, "%s", problem);
}

static int next(struct yaml *y, yaml_event_t *ret, struct err *err)
{
	if (!yaml_parser_parse(&y->parser, ret)) {
		*ret = (yaml_event_t){0};
		return refuse_syntax(y, err);
	}
	return 0;
}

static int refuse_anchor_and_tag(const struct yaml *y, const yaml_event_t *e,
	const yaml_char_t *anchor, const yaml_char_t *tag, struct err *err)
{
	if (anchor)
		return refuse_at(y, &e->start_mark, err, "anchors (&%s) are not accepted",
			(const char *)anchor);
	if (tag)
		return refuse_at(y, &e->start_mark, err, "tags (%s) are not accepted",
			(const char *)tag);
	return 0;
}

/* --- YAML: what is refused, unless it goes ------------------------------------------------- */

/* node is refused for what err says: -1, or 0 if a mask may take it out. */
static int refuse_node(struct yaml *y, json_t *node, struct err *err)
{
	struct doc *doc = y->doc;

	if (!y->masked)
		return -1;
	if (doc->n_refused == MAX_REFUSED)
		return err_set(err, ERR_INVALID, "%s: more than %d values are refused",
			doc->name, MAX_REFUSED);
	if (!doc->refused)
		doc->refused = xcalloc(MAX_REFUSED, sizeof(*doc->refused));
	doc->refused[doc->n_refused++] =
		(struct refused){json_incref(node), xstrdup(err->message)};
	return 0;
}

/* The same of a value that there is no node for. */
static int refuse_value(struct yaml *y, json_t **ret, struct err *err)
{
	json_t *instead = json_string("");
	int r = refuse_node(y, instead, err);

	if (r < 0)
		json_decref(instead);
	else
		*ret = instead;
	return r;
}

static const char *why_refused(const struct doc *doc, const json_t *node)
{
	for (size_t i = 0; i < doc->n_refused; i++)
		if (doc->refused[i].node == node)
			return doc->refused[i].why;
	return NULL;
}

/* The first that is still there; NULL: none. */
static const char *find_refused(const struct doc *doc, json_t *node)
{
	const char *why = why_refused(doc, node), *key;
	json_t *item;
	size_t i;

	json_array_foreach (node, i, item)
		if (!why)
			why = find_refused(doc, item);
	json_object_foreach (node, key, item)
		if (!why)
			why = find_refused(doc, item);
	return why;
}

/* --- YAML: nodes -------------------------------------------------------------------------- */

static const char *scalar_text(const yaml_event_t *e)
{
	return (const char *)e->data.scalar.value;
}

static bool is_plain(const yaml_event_t *e)
{
	return e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* What holds for keys as for values. */
static int check_scalar(const struct yaml *y, const yaml_event_t *e, struct err *err)
{
	const char *s = scalar_text(e);

	if (refuse_anchor_and_tag(y, e, e->data.scalar.anchor, e->data.scalar.tag, err) < 0)
		return -1;
	if (memchr(s, '\0', e->data.scalar.length))
		return refuse_at(y, &e->start_mark, err, "a NUL byte in a text");
	if (!is_plain(e))
		return 0;
	if (is_disputed_bool(s))
		return refuse_at(y, &e->start_mark, err,
			"%s is a boolean to some readers and text to others: quote it, or say "
			"true "
			"or false",
			s);
	if (is_disputed_int(s))
		return refuse_at(y, &e->start_mark, err,
			"%s is read as different numbers or as text: quote it, or write it "
			"without "
			"leading zeros and underscores",
			s);
	return 0;
}

static int parse_int(
	const struct yaml *y, const yaml_event_t *e, int base, json_t **ret, struct err *err)
{
	const char *s = scalar_text(e);
	long long v;

	errno = 0;
	v = strtoll(base == 10 ? s : s + 2, NULL, base);
	if (errno)
		return refuse_at(y, &e->start_mark, err, "%s does not fit in 64 bits", s);
	*ret = json_integer(v);
	return 0;
}

static int parse_float(
	const struct yaml *y, const yaml_event_t *e, json_t **ret, struct err *err)
{
	double v = strtod(scalar_text(e), NULL);

	if (!isfinite(v))
		return refuse_at(
			y, &e->start_mark, err, "%s is too large a number", scalar_text(e));
	*ret = json_real(v);
	return 0;
}

static int parse_plain(
	const struct yaml *y, const yaml_event_t *e, json_t **ret, struct err *err)
{
	const char *s = scalar_text(e);
	int base = int_base(s);

	if (base)
		return parse_int(y, e, base, ret, err);
	if (is_float(s))
		return parse_float(y, e, ret, err);
	if (is_not_finite(s))
		return refuse_at(y, &e->start_mark, err, "%s is no number that JSON has", s);
	if (IS_ONE_OF(s, "", "~", "null", "Null", "NULL"))
		*ret = json_null();
	else if (IS_ONE_OF(s, "true", "True", "TRUE"))
		*ret = json_true();
	else if (IS_ONE_OF(s, "false", "False", "FALSE"))
		*ret = json_false();
	else
		*ret = json_string(s);
	return 0;
}

static int parse_scalar(struct yaml *y, const yaml_event_t *e, json_t **ret, struct err *err)
{
	if (check_scalar(y, e, err) < 0)
		return refuse_value(y, ret, err);
	if (!is_plain(e))
		*ret = json_string(scalar_text(e));
	else if (parse_plain(y, e, ret, err) < 0)
		return refuse_value(y, ret, err);
	return 0;
}

static int parse_node(
	struct yaml *y, const yaml_event_t *e, unsigned depth, json_t **ret, struct err *err);

static int parse_sequence(struct yaml *y, json_t *array, unsigned depth, struct err *err)
{
	for (;;) {
		cleanup_event yaml_event_t e = {0};
		json_t *item;

		if (next(y, &e, err) < 0)
			return -1;
		if (e.type == YAML_SEQUENCE_END_EVENT)
			return 0;
		if (parse_node(y, &e, depth, &item, err) < 0)
			return -1;
		(void)json_array_append_new(array, item);
	}
}

static int check_key(
	const struct yaml *y, const yaml_event_t *e, const json_t *object, struct err *err)
{
	const char *key;

	if (e->type != YAML_SCALAR_EVENT)
		return refuse_at(y, &e->start_mark, err, "a key must be a text");
	key = scalar_text(e);
	if (check_scalar(y, e, err) < 0)
		return -1;
	if (is_plain(e) && strcmp(key, "<<") == 0)
		return refuse_at(y, &e->start_mark, err, "merge keys (<<) are not accepted");
	if (is_plain(e) && !*key)
		return refuse_at(y, &e->start_mark, err, "a key is missing");
	if (json_object_get(object, key))
		return refuse_at(y, &e->start_mark, err, "\"%s\" is there twice", key);
	return 0;
}

/* Members whose key is refused go with it, those that are there twice are one. */
static int refuse_member(
	struct yaml *y, json_t *object, const char *key, json_t *value, struct err *err)
{
	json_t *instead = NULL;

	json_decref(value);
	if (refuse_value(y, &instead, err) < 0)
		return -1;
	(void)json_object_set_new(object, key, instead);
	return 0;
}

static int parse_mapping(struct yaml *y, json_t *object, unsigned depth, struct err *err)
{
	for (;;) {
		cleanup_event yaml_event_t key = {0}, value = {0};
		struct err key_err = ERR_INIT;
		json_t *item;
		int checked;

		if (next(y, &key, err) < 0)
			return -1;
		if (key.type == YAML_MAPPING_END_EVENT)
			return 0;
		checked = check_key(y, &key, object, &key_err);
		if (checked < 0 && (!y->masked || key.type != YAML_SCALAR_EVENT)) {
			*err = key_err;
			return -1;
		}
		if (next(y, &value, err) < 0 || parse_node(y, &value, depth, &item, err) < 0)
			return -1;
		if (checked == 0)
			(void)json_object_set_new(object, scalar_text(&key), item);
		else if (refuse_member(y, object, scalar_text(&key), item, &key_err) < 0) {
			*err = key_err;
			return -1;
		}
	}
}

/* To the end of a collection whose start was read. */
static int skip_collection(struct yaml *y, struct err *err)
{
	for (size_t depth = 1; depth > 0;) {
		cleanup_event yaml_event_t e = {0};

		if (next(y, &e, err) < 0)
			return -1;
		if (e.type == YAML_SEQUENCE_START_EVENT || e.type == YAML_MAPPING_START_EVENT)
			depth++;
		else if (e.type == YAML_SEQUENCE_END_EVENT || e.type == YAML_MAPPING_END_EVENT)
			depth--;
	}
	return 0;
}

/* A sequence or a mapping, whose start is e. */
static int parse_collection(
	struct yaml *y, const yaml_event_t *e, unsigned depth, json_t **ret, struct err *err)
{
	bool is_sequence = e->type == YAML_SEQUENCE_START_EVENT;
	json_t *node;
	int r;

	if (depth == DOC_MAX_DEPTH) {
		(void)refuse_at(y, &e->start_mark, err, "nested deeper than %d", DOC_MAX_DEPTH);
		if (refuse_value(y, ret, err) < 0)
			return -1;
		if (skip_collection(y, err) == 0)
			return 0;
		json_decref(take_ptr(*ret));
		return -1;
	}
	node = is_sequence ? json_array() : json_object();
	r = is_sequence ? parse_sequence(y, node, depth + 1, err)
			: parse_mapping(y, node, depth + 1, err);
	if (r < 0) {
		json_decref(node);
		return -1;
	}
	*ret = node;
	return 0;
}

static int parse_any(
	struct yaml *y, const yaml_event_t *e, unsigned depth, json_t **ret, struct err *err)
{
	const yaml_char_t *anchor, *tag;
	struct err refusal = ERR_INIT;
	int r;

	if (e->type == YAML_ALIAS_EVENT) {
		(void)refuse_at(y, &e->start_mark, err, "aliases (*%s) are not accepted",
			(const char *)e->data.alias.anchor);
		return refuse_value(y, ret, err);
	}
	if (e->type == YAML_SCALAR_EVENT)
		return parse_scalar(y, e, ret, err);
	if (e->type == YAML_SEQUENCE_START_EVENT) {
		anchor = e->data.sequence_start.anchor;
		tag = e->data.sequence_start.tag;
	} else {
		assert(e->type == YAML_MAPPING_START_EVENT);
		anchor = e->data.mapping_start.anchor;
		tag = e->data.mapping_start.tag;
	}
	r = refuse_anchor_and_tag(y, e, anchor, tag, &refusal);
	if (r < 0 && !y->masked) {
		*err = refusal;
		return -1;
	}
	if (parse_collection(y, e, depth, ret, err) < 0)
		return -1;
	if (r == 0 || refuse_node(y, *ret, &refusal) == 0)
		return 0;
	*err = refusal;
	json_decref(take_ptr(*ret));
	return -1;
}

/* depth: how many collections it stands in. */
static int parse_node(
	struct yaml *y, const yaml_event_t *e, unsigned depth, json_t **ret, struct err *err)
{
	json_t *node = NULL;

	if (parse_any(y, e, depth, &node, err) < 0)
		return -1;
	assert(node); /* libyaml lets through valid UTF-8 only */
	remember_line(y->doc, node, (unsigned)e->start_mark.line + 1);
	*ret = node;
	return 0;
}

/* --- YAML: the document ------------------------------------------------------------------- */

static int expect(
	struct yaml *y, yaml_event_type_t type, const char *otherwise, struct err *err)
{
	cleanup_event yaml_event_t e = {0};

	if (next(y, &e, err) < 0)
		return -1;
	if (e.type != type)
		return refuse_at(y, &e.start_mark, err, "%s", otherwise);
	return 0;
}

static int parse_root(struct yaml *y, struct err *err)
{
	cleanup_event yaml_event_t e = {0};

	if (next(y, &e, err) < 0 || parse_node(y, &e, 0, &y->doc->root, err) < 0)
		return -1;
	if (json_is_null(y->doc->root))
		return refuse_at(y, &e.start_mark, err, "the document is empty");
	return 0;
}

/* libyaml compares each with all before it, which takes hours for a document full of them.
 * Tags are not accepted anyway. A line may end in any of YAML 1.1's breaks, some of which
 * are not ASCII. */
static int refuse_tag_directives(const struct yaml *y, struct err *err)
{
	static const char directive[] = "%TAG";
	const char *end = y->text + y->len, *at = y->text;

	while ((at = memmem(at, (size_t)(end - at), directive, sizeof(directive) - 1))) {
		unsigned char before = at == y->text ? '\n' : (unsigned char)at[-1];

		if (before == '\n' || before == '\r' || before >= 0x80) {
			yaml_mark_t mark = mark_of_offset(y, (size_t)(at - y->text));

			return refuse_at(y, &mark, err, "%%TAG directives are not accepted");
		}
		at += sizeof(directive) - 1;
	}
	return 0;
}

static int parse_stream(struct yaml *y, struct err *err)
{
	if (refuse_tag_directives(y, err) < 0 ||
		expect(y, YAML_STREAM_START_EVENT, "no YAML", err) < 0 ||
		expect(y, YAML_DOCUMENT_START_EVENT, "no document is there", err) < 0 ||
		parse_root(y, err) < 0 ||
		expect(y, YAML_DOCUMENT_END_EVENT, "no end of the document", err) < 0)
		return -1;
	return expect(y, YAML_STREAM_END_EVENT, "a second document starts here", err);
}

/* A mask, and whose objects stay whole. */
struct masked {
	const struct json_mask *mask; /* NULL: the whole document is read */
	const char *owner;
};

static int mask_yaml(struct doc *doc, const struct masked *m, struct err *err)
{
	const char *why;

	json_mask_tree(m->mask, m->owner, doc->root);
	why = doc->n_refused ? find_refused(doc, doc->root) : NULL;
	return why ? err_set(err, ERR_INVALID, "%s", why) : 0;
}

static int parse_yaml(struct doc *doc, const char *text, size_t len, const struct masked *m,
	struct err *err)
{
	struct yaml y = {.doc = doc, .text = text, .len = len, .masked = m->mask != NULL};
	int r;

	if (!yaml_parser_initialize(&y.parser))
		return err_errno(err, ENOMEM, "%s", doc->name);
	yaml_parser_set_encoding(&y.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&y.parser, (const unsigned char *)text, len);
	r = parse_stream(&y, err);
	yaml_parser_delete(&y.parser);
	sort_lines(doc);
	if (r < 0 || !m->mask)
		return r;
	return mask_yaml(doc, m, err);
}

/* --- JSON --------------------------------------------------------------------------------- */

static bool is_too_deep(json_t *node, unsigned depth)
{
	const char *key;
	json_t *item;
	size_t i;

	if (!json_is_array(node) && !json_is_object(node))
		return false;
	if (depth == DOC_MAX_DEPTH)
		return true;
	json_array_foreach (node, i, item)
		if (is_too_deep(item, depth + 1))
			return true;
	json_object_foreach (node, key, item)
		if (is_too_deep(item, depth + 1))
			return true;
	return false;
}

static int parse_json(struct doc *doc, const char *text, size_t len, const struct masked *m,
	struct err *err)
{
	cleanup_buf struct buf masked = BUF_INIT;
	json_error_t why;

	/* what is no JSON is refused by the decoder, which says where */
	if (m->mask && json_mask_text(m->mask, m->owner, text, len, &masked, err) == 0) {
		text = masked.data;
		len = masked.len;
	}
	doc->root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!doc->root)
		return err_set(err, ERR_INVALID, "%s:%d:%d: %s", doc->name, why.line,
			why.column, why.text);
	if (is_too_deep(doc->root, 0))
		return err_set(err, ERR_INVALID, "%s: nested deeper than %d", doc->name,
			DOC_MAX_DEPTH);
	return 0;
}

/* --- a text, a file ----------------------------------------------------------------------- */

static bool is_json(const char *text, size_t len)
{
	size_t i = 0;

	while (i < len &&
		(text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n'))
		i++;
	return i < len && text[i] == '{';
}

int doc_parse(const char *name, const char *text, size_t len, struct doc **ret, struct err *err)
{
	return doc_parse_masked(name, text, len, NULL, NULL, ret, err);
}

int doc_parse_masked(const char *name, const char *text, size_t len,
	const struct json_mask *mask, const char *owner, struct doc **ret, struct err *err)
{
	const struct masked m = {mask, owner};
	struct doc *doc;
	int r;

	if (len > DOC_MAX_BYTES)
		return err_set(
			err, ERR_INVALID, "%s: longer than %u bytes", name, DOC_MAX_BYTES);
	doc = xcalloc(1, sizeof(*doc));
	doc->name = xstrdup(name);
	doc->source = (struct rec_source){.name = doc->name, .line = source_line};
	/* libyaml insists on a pointer, even to nothing */
	if (len == 0)
		text = "";
	r = is_json(text, len) ? parse_json(doc, text, len, &m, err)
			       : parse_yaml(doc, text, len, &m, err);
	if (r < 0) {
		doc_free(doc);
		return -1;
	}
	*ret = doc;
	return 0;
}

/* Without O_NONBLOCK opening a FIFO would wait for its writer. */
static int open_regular(const char *path, struct err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "%s: is not a regular file", path);
	return take_fd(&fd);
}

/* Up to one byte more than a document may have, which tells doc_parse() that it is too long. */
static int read_all(int fd, const char *path, struct buf *b, struct err *err)
{
	while (b->len <= DOC_MAX_BYTES) {
		ssize_t n;

		buf_reserve(b, 1);
		n = read(fd, b->data + b->len,
			MIN(b->cap - b->len - 1, DOC_MAX_BYTES + 1 - b->len));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(err, errno, "%s", path);
		if (n == 0)
			return 0;
		b->len += (size_t)n;
	}
	return 0;
}

int doc_read(const char *path, struct doc **ret, struct err *err)
{
	return doc_read_masked(path, NULL, NULL, ret, err);
}

int doc_read_masked(const char *path, const struct json_mask *mask, const char *owner,
	struct doc **ret, struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT;
	cleanup_close int fd = open_regular(path, err);

	if (fd < 0 || read_all(fd, path, &text, err) < 0)
		return -1;
	return doc_parse_masked(path, text.data, text.len, mask, owner, ret, err);
}
