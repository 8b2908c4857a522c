/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records from and to trees, driven by their tables.
 *
 * A decode carries the path to where it is as a chain of frames on the stack; the frames hold
 * their nodes, so that the line of the innermost one that the document knows can be told. What
 * is said of a place that is wrong, and the bounds of values, are here for decoding from
 * MessagePack as well.
 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "common/cli.h"
#include "common/rec_internal.h"

/* --- what is wrong ------------------------------------------------------------------------ */

static void format_path(struct buf *out, const char *root, const struct frame *at)
{
	if (at->up)
		format_path(out, root, at->up);
	else
		buf_puts(out, root);
	if (!at->name) {
		if (at->up)
			buf_printf(out, "[%zu]", at->index);
		return;
	}
	buf_printf(out, "%s%s", out->len ? "." : "", at->name);
}

static unsigned line_of(const struct rec_source *source, const struct frame *at)
{
	for (; at; at = at->up) {
		unsigned line = source->line(source, at->node);

		if (line)
			return line;
	}
	return 0;
}

/* Puts path, line and file in front of what is in err. */
int decode_fail_at(const struct decoder *d, const struct frame *at)
{
	cleanup_buf struct buf path = BUF_INIT;
	unsigned line;

	format_path(&path, d->root, at);
	if (path.len)
		(void)err_wrap(d->err, "%s", path.data);
	if (!d->source)
		return -1;
	line = line_of(d->source, at);
	if (line)
		return err_wrap(d->err, "%s:%u", d->source->name, line);
	return err_wrap(d->err, "%s", d->source->name);
}

int decode_fail(const struct decoder *d, const struct frame *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)err_vset(d->err, ERR_INVALID, fmt, ap);
	va_end(ap);
	return decode_fail_at(d, at);
}

int decode_fail_type(
	const struct decoder *d, const struct frame *at, const char *expected, const char *is)
{
	return decode_fail(d, at, "must be %s, not %s", expected, is);
}

/* --- bounds ------------------------------------------------------------------------------- */

static size_t bound(const struct rec_field *f, size_t otherwise)
{
	return f->max > 0 ? (size_t)f->max : otherwise;
}

size_t decode_max_text(const struct rec_field *f)
{
	return bound(f, REC_MAX_TEXT);
}

int decode_check_text(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, const char *text, size_t len, size_t max)
{
	if (strlen(text) != len)
		return decode_fail(d, at, "contains a NUL byte");
	if (len > max)
		return decode_fail(
			d, at, "is %zu bytes long, at most %zu are allowed", len, max);
	if (len == 0 && (f->flags & REC_REQUIRED))
		return decode_fail(d, at, "must not be empty");
	if (f->check && f->check(text, d->err) < 0)
		return decode_fail_at(d, at);
	return 0;
}

int decode_check_int(const struct decoder *d, const struct frame *at, const struct rec_field *f,
	int64_t v, struct rec_int *ret)
{
	if (v < f->min || v > f->max)
		return decode_fail(d, at, "%" PRId64 " is out of range %" PRId64 "..%" PRId64,
			v, f->min, f->max);
	*ret = (struct rec_int){.v = v, .set = true};
	return 0;
}

int decode_check_count(
	const struct decoder *d, const struct frame *at, const struct rec_field *f, size_t n)
{
	size_t max = bound(f, REC_MAX_ITEMS);

	if (n > max)
		return decode_fail(d, at, "has %zu elements, at most %zu are allowed", n, max);
	if (n == 0 && (f->flags & REC_REQUIRED))
		return decode_fail(d, at, "must not be empty");
	return 0;
}

int decode_check_packed(
	const struct decoder *d, const struct frame *at, const struct packed *packed)
{
	if (packed->len > REC_MAX_PACKED)
		return decode_fail(d, at, "takes %u bytes, at most %d are allowed", packed->len,
			REC_MAX_PACKED);
	if (packed_depth(packed) > REC_MAX_PACKED_DEPTH)
		return decode_fail(
			d, at, "is nested deeper than %d levels", REC_MAX_PACKED_DEPTH);
	return 0;
}

/* --- decoding ----------------------------------------------------------------------------- */

static const char *type_name(const json_t *node)
{
	switch (json_typeof(node)) {
	case JSON_OBJECT: return "a map";
	case JSON_ARRAY: return "a list";
	case JSON_STRING: return "a text";
	case JSON_INTEGER:
	case JSON_REAL: return "a number";
	case JSON_TRUE:
	case JSON_FALSE: return "a boolean";
	case JSON_NULL: return "null";
	default: return "something else";
	}
}

static int expect(const struct decoder *d, const struct frame *at, bool is, const char *what)
{
	return is ? 0 : decode_fail_type(d, at, what, type_name(at->node));
}

static int decode_text(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, size_t max, char **ret)
{
	const char *text;

	if (expect(d, at, json_is_string(at->node), "a text") < 0)
		return -1;
	text = json_string_value(at->node);
	if (decode_check_text(d, at, f, text, json_string_length(at->node), max) < 0)
		return -1;
	*ret = xstrdup(text);
	return 0;
}

static int decode_int(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct rec_int *ret)
{
	if (expect(d, at, json_is_integer(at->node), "a whole number") < 0)
		return -1;
	return decode_check_int(d, at, f, json_integer_value(at->node), ret);
}

static int decode_packed(const struct decoder *d, const struct frame *at, void *to)
{
	struct packed *packed;

	if (expect(d, at, json_is_object(at->node), "a map") < 0)
		return -1;
	packed = packed_new(at->node);
	ptr_store(to, packed);
	return decode_check_packed(d, at, packed);
}

static int decode_strlist(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct strlist *ret)
{
	const json_t *node;
	size_t i;

	if (expect(d, at, json_is_array(at->node), "a list of texts") < 0 ||
		decode_check_count(d, at, f, json_array_size(at->node)) < 0)
		return -1;
	json_array_foreach (at->node, i, node) {
		struct frame here = {.up = at, .index = i, .node = node};
		cleanup_free char *text = NULL;

		if (decode_text(d, &here, f, REC_MAX_TEXT, &text) < 0)
			return -1;
		strlist_add(ret, text);
	}
	return 0;
}

static int decode_strmap(const struct decoder *d, const struct frame *at,
	const struct rec_field *f, struct strmap *ret)
{
	static const struct rec_field plain = {.name = ""};
	json_t *node;
	const char *key;

	if (expect(d, at, json_is_object(at->node), "a map of texts") < 0 ||
		decode_check_count(d, at, f, json_object_size(at->node)) < 0)
		return -1;
	json_object_foreach ((json_t *)(uintptr_t)at->node, key, node) {
		struct frame here = {.up = at, .name = key, .node = node};
		cleanup_free char *text = NULL;

		if (decode_check_text(d, &here, f, key, strlen(key), REC_MAX_TEXT) < 0 ||
			decode_text(d, &here, &plain, REC_MAX_TEXT, &text) < 0)
			return -1;
		strmap_put(ret, key, text);
	}
	return 0;
}

static int decode_fields(const struct decoder *d, const struct frame *at,
	const struct rec_desc *desc, void *rec);

static int decode_list(
	const struct decoder *d, const struct frame *at, const struct rec_field *f, void *to)
{
	struct raw_list l = {0};
	const json_t *node;
	size_t i;

	if (expect(d, at, json_is_array(at->node), "a list") < 0 ||
		decode_check_count(d, at, f, json_array_size(at->node)) < 0)
		return -1;
	if (json_array_size(at->node) == 0)
		return 0;
	l.v = xcalloc(json_array_size(at->node), f->sub->size);
	json_array_foreach (at->node, i, node) {
		struct frame here = {.up = at, .index = i, .node = node};

		/* counted before it is decoded: a half-decoded element is freed with the
		 * rest */
		l.n = i + 1;
		list_store(to, l);
		if (decode_fields(d, &here, f->sub, element(l, f->sub, i)) < 0)
			return -1;
	}
	return 0;
}

static int decode_field(
	const struct decoder *d, const struct frame *at, const struct rec_field *f, void *to)
{
	switch (f->type) {
	case REC_TYPE_STR: return decode_text(d, at, f, decode_max_text(f), to);
	case REC_TYPE_INT: return decode_int(d, at, f, to);
	case REC_TYPE_BOOL:
		if (expect(d, at, json_is_boolean(at->node), "true or false") < 0)
			return -1;
		*(struct rec_bool *)to = (struct rec_bool){json_is_true(at->node), true};
		return 0;
	case REC_TYPE_STRLIST: return decode_strlist(d, at, f, to);
	case REC_TYPE_STRMAP: return decode_strmap(d, at, f, to);
	case REC_TYPE_OBJECT:
		if (expect(d, at, json_is_object(at->node), "a map") < 0)
			return -1;
		ptr_store(to, json_incref((json_t *)(uintptr_t)at->node));
		return 0;
	case REC_TYPE_PACKED: return decode_packed(d, at, to);
	case REC_TYPE_TREE: ptr_store(to, json_incref((json_t *)(uintptr_t)at->node)); return 0;
	case REC_TYPE_SUB: {
		void *sub = xcalloc(1, f->sub->size);

		ptr_store(to, sub);
		return decode_fields(d, at, f->sub, sub);
	}
	case REC_TYPE_LIST: return decode_list(d, at, f, to);
	}
	abort(); /* every type is above */
}

static const json_t *find(const json_t *object, const char *name, bool any_case)
{
	const json_t *node = json_object_get(object, name);
	json_t *each;
	const char *key;

	if (node || !any_case)
		return node;
	json_object_foreach ((json_t *)(uintptr_t)object, key, each)
		if (strcasecmp(key, name) == 0)
			return each;
	return NULL;
}

static bool ignores_case(const struct decoder *d)
{
	return d->mode == REC_LENIENT_CASE || d->mode == REC_STRICT_CASE;
}

static bool is_strict(const struct decoder *d)
{
	return d->mode == REC_STRICT || d->mode == REC_STRICT_CASE;
}

static bool is_field(const struct rec_desc *desc, const char *name, bool any_case)
{
	for (size_t i = 0; i < desc->n_fields; i++)
		if ((any_case ? strcasecmp : strcmp)(desc->fields[i].name, name) == 0)
			return true;
	return false;
}

/* The field that a misspelt name was probably meant for, NULL if none is near. */
static const char *nearest_field(const struct rec_desc *desc, const char *name)
{
	const char *best = NULL;
	size_t best_distance = SIZE_MAX, d;

	for (size_t i = 0; i < desc->n_fields; i++) {
		const char *field = desc->fields[i].name;

		if (strlen(field) > CLI_NEAR_MAX ||
			!cli_is_near(name, strlen(name), field, &d) || d >= best_distance)
			continue;
		best = field;
		best_distance = d;
	}
	return best;
}

static int refuse_field(const struct decoder *d, const struct frame *at,
	const struct rec_desc *desc, const char *name)
{
	const char *near = nearest_field(desc, name);
	cleanup_buf struct buf names = BUF_INIT;

	for (size_t i = 0; i < desc->n_fields; i++)
		buf_printf(&names, "%s%s", i ? ", " : "", desc->fields[i].name);
	return decode_fail(d, at, "is not a field of %s; these are: %s%s%s%s", desc->name,
		names.data ? names.data : "none", near ? "; did you mean " : "",
		near ? near : "", near ? "?" : "");
}

/* The first name of the object that is the same as another but for its case. */
static const char *find_twin(const json_t *object, const char *name)
{
	const char *key;
	json_t *node;

	json_object_foreach ((json_t *)(uintptr_t)object, key, node)
		if (strcmp(key, name) != 0 && strcasecmp(key, name) == 0)
			return key;
	return NULL;
}

static int refuse_unknown(
	const struct decoder *d, const struct frame *at, const struct rec_desc *desc)
{
	const char *key;
	json_t *node;

	json_object_foreach ((json_t *)(uintptr_t)at->node, key, node) {
		struct frame here = {.up = at, .name = key, .node = node};
		const char *twin;

		if (!is_field(desc, key, ignores_case(d)))
			return refuse_field(d, &here, desc, key);
		twin = ignores_case(d) ? find_twin(at->node, key) : NULL;
		if (twin)
			return decode_fail(
				d, &here, "is there twice: %s is the same name", twin);
	}
	return 0;
}

static int decode_fields(
	const struct decoder *d, const struct frame *at, const struct rec_desc *desc, void *rec)
{
	if (expect(d, at, json_is_object(at->node), "a map") < 0)
		return -1;
	if (is_strict(d) && refuse_unknown(d, at, desc) < 0)
		return -1;
	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];
		const json_t *node = find(at->node, f->name, ignores_case(d));
		struct frame here = {.up = at, .name = f->name, .node = node};

		if (!node || json_is_null(node)) {
			here.node = at->node;
			if (f->flags & REC_REQUIRED)
				return decode_fail(d, &here, "is required");
			continue;
		}
		if (decode_field(d, &here, f, member(rec, f)) < 0)
			return -1;
	}
	if (desc->check && desc->check(rec, d->err) < 0)
		return decode_fail_at(d, at);
	return 0;
}

int rec_decode(const struct rec_desc *desc, const json_t *tree, enum rec_mode mode,
	const char *root, const struct rec_source *source, void *rec, struct err *err)
{
	struct decoder d = {.mode = mode, .root = root, .source = source, .err = err};
	struct frame top = {.node = tree};

	if (decode_fields(&d, &top, desc, rec) < 0) {
		rec_fini(desc, rec);
		return -1;
	}
	return 0;
}

/* --- encoding ----------------------------------------------------------------------------- */

static json_t *encode_strlist(const struct strlist *l)
{
	json_t *array = json_array();

	for (size_t i = 0; i < l->n; i++)
		(void)json_array_append_new(array, json_string(l->v[i]));
	return array;
}

static json_t *encode_strmap(const struct strmap *m)
{
	json_t *object = json_object();

	for (size_t i = 0; i < m->n; i++)
		(void)json_object_set_new(object, m->v[i].key, json_string(m->v[i].value));
	return object;
}

static json_t *encode_list(struct raw_list l, const struct rec_desc *sub)
{
	json_t *array = json_array();

	for (size_t i = 0; i < l.n; i++)
		(void)json_array_append_new(array, rec_encode(sub, element(l, sub, i)));
	return array;
}

/* NULL: the field is unset. */
static json_t *encode_field(const struct rec_field *f, const void *at)
{
	switch (f->type) {
	case REC_TYPE_STR: {
		const char *text = ptr_load(at);

		return text ? json_string(text) : NULL;
	}
	case REC_TYPE_INT: {
		const struct rec_int *v = at;

		return v->set ? json_integer(v->v) : NULL;
	}
	case REC_TYPE_BOOL: {
		const struct rec_bool *v = at;

		return v->set ? json_boolean(v->v) : NULL;
	}
	case REC_TYPE_STRLIST: {
		const struct strlist *l = at;

		return l->n ? encode_strlist(l) : NULL;
	}
	case REC_TYPE_STRMAP: {
		const struct strmap *m = at;

		return m->n ? encode_strmap(m) : NULL;
	}
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT: return json_incref((json_t *)ptr_load(at));
	case REC_TYPE_PACKED: return packed_open(ptr_load(at));
	case REC_TYPE_SUB: {
		const void *sub = ptr_load(at);

		return sub ? rec_encode(f->sub, sub) : NULL;
	}
	case REC_TYPE_LIST: {
		struct raw_list l = list_load(at);

		return l.n ? encode_list(l, f->sub) : NULL;
	}
	}
	abort(); /* every type is above */
}

static json_t *encode_unset(const struct rec_field *f)
{
	switch (f->type) {
	case REC_TYPE_STR: return json_string("");
	case REC_TYPE_STRLIST:
	case REC_TYPE_LIST: return json_array();
	case REC_TYPE_INT:
	case REC_TYPE_BOOL:
	case REC_TYPE_STRMAP:
	case REC_TYPE_TREE:
	case REC_TYPE_OBJECT:
	case REC_TYPE_PACKED:
	case REC_TYPE_SUB:
	default: return json_null();
	}
}

json_t *rec_encode(const struct rec_desc *desc, const void *rec)
{
	json_t *object = json_object();

	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];
		json_t *value = encode_field(f, member_const(rec, f));

		if (!value && (f->flags & REC_ALWAYS))
			value = encode_unset(f);
		if (value)
			(void)json_object_set_new(object, f->name, value);
	}
	return object;
}
