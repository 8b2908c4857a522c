/* SPDX-License-Identifier: Apache-2.0 */
/* Documents: texts and the trees or the messages that they become. */
#include "common/doc.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/unit/unit.h"

/* --- what is read ------------------------------------------------------------------------------ */

static const struct good_row {
	const char *text, *json; /* json: sorted keys, compact */
} good_rows[] = {
	/* structure */
	{"a: 1\nb:\n  - x\n  - c: z\n", "{\"a\":1,\"b\":[\"x\",{\"c\":\"z\"}]}"},
	{"a: \"%TAG %TAG\"\n", "{\"a\":\"%TAG %TAG\"}"},
	{"---\na: b\n...\n", "{\"a\":\"b\"}"},
	{"%YAML 1.1\n---\na: b\n", "{\"a\":\"b\"}"},
	{"# comment\na: b # more\n", "{\"a\":\"b\"}"},
	{"[a, {b: c}]", "[\"a\",{\"b\":\"c\"}]"},
	{"text", "\"text\""},
	{"\xef\xbb\xbf"
	 "a: b\n",
		"{\"a\":\"b\"}"},
	{"a: |\n  x\n  y\n", "{\"a\":\"x\\ny\\n\"}"},
	{"a: >-\n  x\n  y\n", "{\"a\":\"x y\"}"},
	{"a:\r\n  b: c\r\n", "{\"a\":{\"b\":\"c\"}}"},
	{"\"\": x\n", "{\"\":\"x\"}"},
	{"\"<<\": x\n", "{\"<<\":\"x\"}"},
	{"1: x\ntrue: z\n", "{\"1\":\"x\",\"true\":\"z\"}"},
	{"a: \"\\u00e9\\n\"\n", "{\"a\":\"\xc3\xa9\\n\"}"},
	/* null */
	{"a:\nb: ~\nc: null\nd: NULL\n", "{\"a\":null,\"b\":null,\"c\":null,\"d\":null}"},
	{"a: \"\"\nb: 'null'\nc: \"~\"\n", "{\"a\":\"\",\"b\":\"null\",\"c\":\"~\"}"},
	/* booleans */
	{"a: true\nb: False\nc: TRUE\nd: tRue\n",
		"{\"a\":true,\"b\":false,\"c\":true,\"d\":\"tRue\"}"},
	{"a: 'yes'\nb: \"no\"\n\"on\": x\n", "{\"a\":\"yes\",\"b\":\"no\",\"on\":\"x\"}"},
	{"a: yesterday\nb: one\n", "{\"a\":\"yesterday\",\"b\":\"one\"}"},
	/* integers */
	{"[0, -0, 12, -12, +12]", "[0,0,12,-12,12]"},
	{"[0x1f, 0xFF, 0o17]", "[31,255,15]"},
	{"[9223372036854775807, -9223372036854775808]",
		"[9223372036854775807,-9223372036854775808]"},
	{"['12', \"0x1f\", '007']", "[\"12\",\"0x1f\",\"007\"]"},
	{"[0x, 0xg, 0o8, 12a, -, +, 15b3, 0x15b3]",
		"[\"0x\",\"0xg\",\"0o8\",\"12a\",\"-\",\"+\",\"15b3\",5555]"},
	/* floats */
	{"[1.5, -0.25, .5, 2., 1e3, 1.5E-1]", "[1.5,-0.25,0.5,2.0,1000.0,0.15]"},
	{"[1.2.3, ., e3, 1e, 1e+, '1.5']", "[\"1.2.3\",\".\",\"e3\",\"1e\",\"1e+\",\"1.5\"]"},
	/* texts that some schema takes for something else */
	{"[0000:03:00.1, 12:30:45, 02:00:00:00:00:01]",
		"[\"0000:03:00.1\",\"12:30:45\",\"02:00:00:00:00:01\"]"},
	{"[2026-01-02, 192.0.2.1, v1.34, 10Gi]",
		"[\"2026-01-02\",\"192.0.2.1\",\"v1.34\",\"10Gi\"]"},
	/* JSON */
	{"{\"a\": [1, 2.5, true, null, \"x\"]}", "{\"a\":[1,2.5,true,null,\"x\"]}"},
	{" \r\n\t{\n\t\"a\":\t1\n}\n", "{\"a\":1}"},
	{"{\"a\": \"yes\", \"b\": \"007\"}", "{\"a\":\"yes\",\"b\":\"007\"}"},
};

START_TEST(good_text_is_read)
{
	const struct good_row *r = &good_rows[_i];
	struct err err = ERR_INIT;
	cleanup_free char *json = NULL;
	struct doc *doc = NULL;

	ck_assert_msg(
		doc_parse("f", r->text, strlen(r->text), &doc, &err) == 0, "%s", err.message);
	json = json_dumps(doc_root(doc),
		JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	ck_assert_str_eq(json, r->json);
	ck_assert_str_eq(doc_name(doc), "f");
	doc_free(doc);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------- */

#define DISPUTED                                                                               \
	" is a boolean to some readers and text to others: quote it, or say true or false"
#define NUMBERS                                                                                \
	" is read as different numbers or as text: quote it, or write it without leading "     \
	"zeros "                                                                               \
	"and underscores"

static const struct bad_row {
	const char *text, *message;
	size_t len; /* 0: to the NUL */
} bad_rows[] = {
	{"", "f:1:1: no document is there", 0},
	{"# nothing\n", "f:2:1: no document is there", 0},
	{"---\n", "f:2:1: the document is empty", 0},
	{"null\n", "f:1:1: the document is empty", 0},
	{"a: 1\n---\nb: 2\n", "f:2:1: a second document starts here", 0},
	{"a: 1\nb: 2\na: 3\n", "f:3:1: \"a\" is there twice", 0},
	{"a: 1\n\"a\": 3\n", "f:2:1: \"a\" is there twice", 0},
	{"x:\n- a: &here 1\n", "f:2:6: anchors (&here) are not accepted", 0},
	{"x: &here [1]\n", "f:1:4: anchors (&here) are not accepted", 0},
	{"x: &here\n  a: 1\n", "f:1:4: anchors (&here) are not accepted", 0},
	{"&here x: 1\n", "f:1:1: anchors (&here) are not accepted", 0},
	{"x: *there\n", "f:1:4: aliases (*there) are not accepted", 0},
	{"*there : 1\n", "f:1:1: a key must be a text", 0},
	{"x: !!str 1\n", "f:1:4: tags (tag:yaml.org,2002:str) are not accepted", 0},
	{"x: ! 1\n", "f:1:4: tags (!) are not accepted", 0},
	{"x: !mine [1]\n", "f:1:4: tags (!mine) are not accepted", 0},
	{"x: !mine {a: 1}\n", "f:1:4: tags (!mine) are not accepted", 0},
	{"%TAG !a! x\n---\na: b\n", "f:1:1: %TAG directives are not accepted", 0},
	{"# x\r%TAG !a! x\n---\na: b\n", "f:1:5: %TAG directives are not accepted", 0},
	{"# x\xe2\x80\xa8%TAG !a! x\n---\na: b\n", "f:1:7: %TAG directives are not accepted",
		0},
	{"a:\n  <<: {b: c}\n", "f:2:3: merge keys (<<) are not accepted", 0},
	{"? [a]\n: b\n", "f:1:3: a key must be a text", 0},
	{"[? : b]", "f:1:5: a key is missing", 0},
	{"a: yes\n", "f:1:4: yes" DISPUTED, 0},
	{"a: No\n", "f:1:4: No" DISPUTED, 0},
	{"a: [ON]\n", "f:1:5: ON" DISPUTED, 0},
	{"a: off\n", "f:1:4: off" DISPUTED, 0},
	{"y: 1\n", "f:1:1: y" DISPUTED, 0},
	{"on: 1\n", "f:1:1: on" DISPUTED, 0},
	{"a: 007\n", "f:1:4: 007" NUMBERS, 0},
	{"a: -010\n", "f:1:4: -010" NUMBERS, 0},
	{"a: 00\n", "f:1:4: 00" NUMBERS, 0},
	{"a: 1_000\n", "f:1:4: 1_000" NUMBERS, 0},
	{"a: 0b11\n", "f:1:4: 0b11" NUMBERS, 0},
	{"a: 9223372036854775808\n", "f:1:4: 9223372036854775808 does not fit in 64 bits", 0},
	{"a: 0xfffffffffffffffff\n", "f:1:4: 0xfffffffffffffffff does not fit in 64 bits", 0},
	{"a: 1e999\n", "f:1:4: 1e999 is too large a number", 0},
	{"a: .inf\n", "f:1:4: .inf is no number that JSON has", 0},
	{"a: -.Inf\n", "f:1:4: -.Inf is no number that JSON has", 0},
	{"a: .NaN\n", "f:1:4: .NaN is no number that JSON has", 0},
	{"a: \"x\\0y\"\n", "f:1:4: a NUL byte in a text", 0},
	{"a: b\nc: \"x\n",
		"f:3:1: found unexpected end of stream while scanning a quoted scalar", 0},
	{"a: [1\nb: 2\n",
		"f:2:2: did not find expected ',' or ']' while parsing a flow sequence", 0},
	{"a: b: c\n", "f:1:5: mapping values are not allowed in this context", 0},
	{"a:\n\t- b\n",
		"f:2:1: found character that cannot start any token while scanning for the "
		"next token",
		0},
	{"a: b\nc: \x01\n", "f:2:4: control characters are not allowed", 0},
	{"a: b\nc: x\xff\n", "f:2:5: invalid leading UTF-8 octet", 0},
	{"\xff\xfe"
	 "a\0:\0 \0b\0",
		"f:1:1: invalid leading UTF-8 octet", 10},
	{"a: \0b\n", "f:1:4: control characters are not allowed", 6},
	{"{\"a\": 1,\n \"b\": }\n", "f:2:7: unexpected token near '}'", 0},
	{"{\"a\": 1, \"a\": 2}\n", "f:1:12: duplicate object key near '\"a\"'", 0},
	{"{\"a\": 1} {}", "f:1:10: end of file expected near '{'", 0},
	{"{\"a\": \"\\u0000\"}",
		"f:1:14: \\u0000 is not allowed without JSON_ALLOW_NUL near '\"\\u0000\"'", 0},
	{"{\"a\": 9223372036854775808}", "f:1:25: too big integer near '9223372036854775808'",
		0},
	{"{\"a\": \"\xff\"}", "f:1:7: unable to decode byte 0xff near '\"'", 0},
	{"{a: 1}", "f:1:2: string or '}' expected near 'a'", 0},
};

static void assert_refused(const char *text, size_t len, const char *message)
{
	struct err err = ERR_INIT;
	struct doc *doc = NULL;

	ck_assert_int_eq(doc_parse("f", text, len, &doc, &err), -1);
	ck_assert_str_eq(err.message, message);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ck_assert_ptr_null(doc);
}

START_TEST(bad_text_is_refused)
{
	const struct bad_row *r = &bad_rows[_i];

	assert_refused(r->text, r->len ? r->len : strlen(r->text), r->message);
}
END_TEST

static struct doc *parse(const char *text, size_t len)
{
	struct err err = ERR_INIT;
	struct doc *doc = NULL;

	ck_assert_msg(doc_parse("f", text, len, &doc, &err) == 0, "%s", err.message);
	return doc;
}

/* depth times before, then depth times after */
static char *nest(const char *before, const char *after, unsigned depth)
{
	struct buf b = BUF_INIT;

	for (unsigned i = 0; i < depth; i++)
		buf_puts(&b, before);
	buf_puts(&b, "1");
	for (unsigned i = 0; i < depth; i++)
		buf_puts(&b, after);
	return buf_take(&b);
}

START_TEST(nothing_is_refused)
{
	assert_refused(NULL, 0, "f:1:1: no document is there");
}
END_TEST

START_TEST(depth_is_bounded)
{
	cleanup_free char *yaml_ok = nest("[", "]", DOC_MAX_DEPTH);
	cleanup_free char *yaml_bad = nest("[", "]", DOC_MAX_DEPTH + 1);
	cleanup_free char *yaml_worse = nest("- ", "", 100000);
	cleanup_free char *json_ok = nest("{\"a\":", "}", DOC_MAX_DEPTH);
	cleanup_free char *json_bad = nest("{\"a\":", "}", DOC_MAX_DEPTH + 1);

	doc_free(parse(yaml_ok, strlen(yaml_ok)));
	doc_free(parse(json_ok, strlen(json_ok)));
	assert_refused(yaml_bad, strlen(yaml_bad), "f:1:65: nested deeper than 64");
	assert_refused(yaml_worse, strlen(yaml_worse), "f:1:129: nested deeper than 64");
	assert_refused(json_bad, strlen(json_bad), "f: nested deeper than 64");
}
END_TEST

START_TEST(size_is_bounded)
{
	cleanup_free char *text = xcalloc(DOC_MAX_BYTES + 1, 1);

	memset(text, ' ', DOC_MAX_BYTES + 1);
	memcpy(text, "a: b", 4);
	doc_free(parse(text, DOC_MAX_BYTES));
	assert_refused(text, DOC_MAX_BYTES + 1, "f: longer than 4194304 bytes");
}
END_TEST

/* --- lines --------------------------------------------------------------------------------------- */

START_TEST(nodes_have_lines)
{
	static const char text[] = "spec:\n"
				   "  driver: x\n"
				   "\n"
				   "  pools:\n"
				   "  - name: one\n"
				   "    count: 3\n"
				   "  - {name: two,\n"
				   "     on_line: eight}\n"
				   "  enabled: true\n";
	struct doc *doc = parse(text, sizeof(text) - 1);
	json_t *spec = json_object_get(doc_root(doc), "spec"), *other = json_string("x");
	json_t *pools = json_object_get(spec, "pools");
	json_t *one = json_array_get(pools, 0), *two = json_array_get(pools, 1);

	ck_assert_uint_eq(doc_line(doc, doc_root(doc)), 1);
	ck_assert_uint_eq(doc_line(doc, spec), 2);
	ck_assert_uint_eq(doc_line(doc, json_object_get(spec, "driver")), 2);
	ck_assert_uint_eq(doc_line(doc, pools), 5);
	ck_assert_uint_eq(doc_line(doc, one), 5);
	ck_assert_uint_eq(doc_line(doc, json_object_get(one, "count")), 6);
	ck_assert_uint_eq(doc_line(doc, two), 7);
	ck_assert_uint_eq(doc_line(doc, json_object_get(two, "on_line")), 8);
	ck_assert_uint_eq(doc_line(doc, json_object_get(spec, "enabled")), 0);
	ck_assert_uint_eq(doc_line(doc, other), 0);
	json_decref(other);
	doc_free(doc);
}
END_TEST

START_TEST(json_nodes_have_none)
{
	struct doc *doc = parse("{\"a\": 1}", 8);

	ck_assert_uint_eq(doc_line(doc, doc_root(doc)), 0);
	doc_free(doc);
}
END_TEST

/* --- files --------------------------------------------------------------------------------------- */

static char dir[] = "/tmp/test_doc.XXXXXX";
static char *path;

static void make_dir(void)
{
	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	path = xasprintf("%s/doc.yaml", dir);
}

static void remove_dir(void)
{
	(void)unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
	free(path);
}

static void write_file(const char *text, size_t len)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
}

static void assert_read_refused(enum err_kind kind, const char *message)
{
	cleanup_free char *expected = xasprintf("%s%s", path, message);
	struct err err = ERR_INIT;
	struct doc *doc = NULL;

	ck_assert_int_eq(doc_read(path, &doc, &err), -1);
	ck_assert_str_eq(err.message, expected);
	ck_assert_int_eq(err.kind, kind);
}

START_TEST(file_is_read)
{
	struct err err = ERR_INIT;
	struct doc *doc = NULL;

	write_file("a: b\n", 5);
	ck_assert_msg(doc_read(path, &doc, &err) == 0, "%s", err.message);
	ck_assert_str_eq(doc_name(doc), path);
	ck_assert_str_eq(json_string_value(json_object_get(doc_root(doc), "a")), "b");
	doc_free(doc);
	write_file("a: b: c\n", 8);
	assert_read_refused(
		ERR_INVALID, ":1:5: mapping values are not allowed in this context");
	write_file("", 0);
	assert_read_refused(ERR_INVALID, ":1:1: no document is there");
}
END_TEST

START_TEST(missing_file_is_told)
{
	assert_read_refused(ERR_NOT_FOUND, ": No such file or directory");
}
END_TEST

/* Nor does opening it wait for somebody to write. */
START_TEST(fifo_is_refused)
{
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	assert_read_refused(ERR_INVALID, ": is not a regular file");
}
END_TEST

START_TEST(long_file_is_refused)
{
	cleanup_free char *text = xcalloc(DOC_MAX_BYTES + 2, 1);
	struct err err = ERR_INIT;
	struct doc *doc = NULL;

	memset(text, ' ', DOC_MAX_BYTES + 2);
	memcpy(text, "a: b", 4);
	write_file(text, DOC_MAX_BYTES);
	ck_assert_msg(doc_read(path, &doc, &err) == 0, "%s", err.message);
	doc_free(doc);
	write_file(text, DOC_MAX_BYTES + 2);
	assert_read_refused(ERR_INVALID, ": longer than 4194304 bytes");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("doc");
	TCase *texts = tcase_create("texts"), *files = tcase_create("files");

	tcase_add_loop_test(texts, good_text_is_read, 0, (int)ARRAY_SIZE(good_rows));
	tcase_add_loop_test(texts, bad_text_is_refused, 0, (int)ARRAY_SIZE(bad_rows));
	tcase_add_test(texts, nothing_is_refused);
	tcase_add_test(texts, depth_is_bounded);
	tcase_add_test(texts, size_is_bounded);
	tcase_add_test(texts, nodes_have_lines);
	tcase_add_test(texts, json_nodes_have_none);
	suite_add_tcase(suite, texts);
	tcase_add_checked_fixture(files, make_dir, remove_dir);
	tcase_add_test(files, file_is_read);
	tcase_add_test(files, missing_file_is_told);
	tcase_add_test(files, fifo_is_refused);
	tcase_add_test(files, long_file_is_refused);
	suite_add_tcase(suite, files);
	return unit_run(suite);
}
