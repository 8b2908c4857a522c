/* SPDX-License-Identifier: Apache-2.0 */
/* The client of the API server, without a server: texts, lines, times, and what went wrong. */
#include "common/kube.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/kube_internal.h"
#include "common/kube_lines.h"
#include "common/kube_token.h"
#include "common/util.h"
#include "tests/unit/unit.h"

/* --- paths and queries -------------------------------------------------------------------- */

static const struct path_row {
	const char *group_version, *namespace, *resource, *name, *subresource, *path;
} path_rows[] = {
	{"v1", NULL, "nodes", "n1", NULL, "/api/v1/nodes/n1"},
	{"v1", "ns", "pods", NULL, NULL, "/api/v1/namespaces/ns/pods"},
	{"resource.k8s.io/v1", NULL, "resourceslices", NULL, NULL,
		"/apis/resource.k8s.io/v1/resourceslices"},
	{"resource.k8s.io/v1", "ns", "resourceclaims", "c1", "status",
		"/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c1/status"},
	{"v1", "../x", "pods", "a/b?c#d%e f\xc3\xa9", NULL,
		"/api/v1/namespaces/..%2Fx/pods/a%2Fb%3Fc%23d%25e%20f%C3%A9"},
	{"v1", NULL, "nodes", "A-z_0.9~", NULL, "/api/v1/nodes/A-z_0.9~"},
};

START_TEST(a_path_is_escaped)
{
	const struct path_row *r = &path_rows[_i];
	cleanup_free char *path =
		kube_path(r->group_version, r->namespace, r->resource, r->name, r->subresource);

	ck_assert_str_eq(path, r->path);
}
END_TEST

START_TEST(a_query_is_escaped)
{
	cleanup_buf struct buf query = BUF_INIT;

	kube_query(&query, "fieldSelector", "spec.driver=d,spec.nodeName=n");
	kube_query(&query, "limit", "500");
	kube_query(&query, "empty", "");
	ck_assert_str_eq(query.data,
		"fieldSelector=spec.driver%3Dd%2Cspec.nodeName%3Dn&limit=500&empty=");
}
END_TEST

/* --- counting ----------------------------------------------------------------------------- */

static const struct count_row {
	const char *method, *path, *query, *text;
} count_rows[] = {
	{"GET", "/version", NULL, "get /version"},
	{"GET", "/api/v1/nodes/n1", NULL, "get nodes"},
	{"GET", "/api/v1/pods", "fieldSelector=spec.nodeName%3Dn&limit=25", "list pods"},
	{"GET", "/api/v1/namespaces/ns", NULL, "get namespaces"},
	{"GET", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c", NULL,
		"get resourceclaims"},
	{"PATCH", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status", NULL,
		"patch resourceclaims/status"},
	{"PUT", "/apis/resource.k8s.io/v1/resourceslices/s", NULL, "update resourceslices"},
	{"POST", "/apis/events.k8s.io/v1/namespaces/ns/events", NULL, "create events"},
	{"DELETE", "/apis/resource.k8s.io/v1/resourceslices/s", NULL, "delete resourceslices"},
	{"GET", "/apis/resource.k8s.io/v1/resourceslices", "a=b&watch=true&c=d",
		"watch resourceslices"},
};

START_TEST(a_request_is_counted_by_what_it_is)
{
	const struct count_row *r = &count_rows[_i];
	struct kube_counts counts = {0};

	kube_count(&counts, r->method, r->path, r->query);
	kube_count(&counts, r->method, r->path, r->query);
	ck_assert_uint_eq(counts.n, 1);
	ck_assert_str_eq(counts.v[0].request, r->text);
	ck_assert_uint_eq(counts.v[0].n, 2);
}
END_TEST

START_TEST(kinds_of_requests_are_bounded)
{
	struct kube_counts counts = {0};

	for (int i = 0; i < 100; i++) {
		cleanup_free char *path = xasprintf("/api/v1/kind%d/x", i);

		kube_count(&counts, "GET", path, NULL);
	}
	ck_assert_uint_eq(counts.n, KUBE_COUNTS);
	ck_assert_str_eq(counts.v[KUBE_COUNTS - 2].request, "get kind30");
	ck_assert_str_eq(counts.v[KUBE_COUNTS - 1].request, "other requests");
	ck_assert_uint_eq(counts.v[KUBE_COUNTS - 1].n, 100 - (KUBE_COUNTS - 1));
}
END_TEST

/* --- waiting ------------------------------------------------------------------------------ */

static const struct backoff_row {
	unsigned attempt, retry_after_ms, min_ms, max_ms;
} backoff_rows[] = {
	{0, 0, 400, 600},
	{1, 0, 800, 1200},
	{2, 0, 1600, 2400},
	{5, 0, 12800, 19200},
	{6, 0, 24000, 36000},
	{7, 0, 24000, 36000},
	{31, 0, 24000, 36000},
	{64, 0, 24000, 36000},
	{4294967295, 0, 24000, 36000},
	/* never sooner than asked */
	{0, 399, 400, 600},
	{0, 450, 450, 630},
	{0, 1000, 1000, 1400},
	{3, 1000, 3200, 4800},
	{0, 60000, 60000, 84000},
	{0, 4294967295, 120000, 168000},
};

START_TEST(a_wait_is_within_its_bounds)
{
	const struct backoff_row *r = &backoff_rows[_i];
	uint64_t least = UINT64_MAX, most = 0;

	for (int i = 0; i < 2000; i++) {
		uint64_t ms = kube_backoff_ms(r->attempt, r->retry_after_ms);

		ck_assert_uint_ge(ms, r->min_ms);
		ck_assert_uint_le(ms, r->max_ms);
		least = MIN(least, ms);
		most = MAX(most, ms);
	}
	/* and spread over them */
	ck_assert_uint_lt(least, r->min_ms + (r->max_ms - r->min_ms) / 4);
	ck_assert_uint_gt(most, r->max_ms - (r->max_ms - r->min_ms) / 4);
}
END_TEST

/* --- lines -------------------------------------------------------------------------------- */

#define MAX_LINE 8

static const struct lines_row {
	const char *text,
		*lines; /* lines: each followed by '|'; ending in '!' where too long */
} lines_rows[] = {
	{"", ""},
	{"a\n", "a|"},
	{"a", ""},
	{"a\nbc\ndef\n", "a|bc|def|"},
	{"a\n\n\nb\n", "a|b|"},
	{"\n", ""},
	{"12345678\n", "12345678|"},
	{"12345678\n12345678\n", "12345678|12345678|"},
	{"123456789\n", "!"},
	{"123456789", "!"},
	{"a\nb\n123456789\n", "a|b|!"},
	{"a\n12345678", "a|"},
};

/* What comes out when text goes in by pieces of n bytes. */
static char *split(const char *text, size_t n)
{
	struct kube_lines lines = {.max_line = MAX_LINE};
	struct buf out = BUF_INIT;
	size_t len = strlen(text), at;
	bool too_long = false;

	for (at = 0; at < len && !too_long; at += n) {
		size_t line_len;
		char *line;

		too_long = kube_lines_put(&lines, text + at, MIN(n, len - at)) < 0;
		while (!too_long && (line = kube_lines_next(&lines, &line_len))) {
			ck_assert_uint_eq(strlen(line), line_len);
			buf_printf(&out, "%s|", line);
		}
	}
	if (too_long)
		buf_puts(&out, "!");
	kube_lines_reset(&lines);
	ck_assert_uint_eq(lines.max_line, MAX_LINE);
	return buf_take(&out);
}

START_TEST(lines_are_the_same_whatever_the_pieces)
{
	const struct lines_row *r = &lines_rows[_i];

	for (size_t n = 1; n <= 10; n++) {
		cleanup_free char *lines = split(r->text, n);

		ck_assert_str_eq(lines, r->lines);
	}
}
END_TEST

START_TEST(a_large_line_is_not_kept)
{
	struct kube_lines lines = {.max_line = 1u << 20};
	cleanup_free char *text = xcalloc(1, 1u << 20);
	size_t len;

	memset(text, 'x', 1000000);
	ck_assert_int_eq(kube_lines_put(&lines, text, 1000000), 0);
	ck_assert_ptr_null(kube_lines_next(&lines, &len));
	ck_assert_int_eq(kube_lines_put(&lines, "\n", 1), 0);
	ck_assert_ptr_nonnull(kube_lines_next(&lines, &len));
	ck_assert_uint_eq(len, 1000000);
	ck_assert_ptr_null(kube_lines_next(&lines, &len));
	ck_assert_uint_eq(lines.bytes.cap, 0);
	kube_lines_reset(&lines);
}
END_TEST

START_TEST(lines_that_were_not_taken_stay)
{
	struct kube_lines lines = {.max_line = MAX_LINE};
	size_t len;

	ck_assert_int_eq(kube_lines_put(&lines, "a\nb\nc", 5), 0);
	ck_assert_str_eq(kube_lines_next(&lines, &len), "a");
	ck_assert_int_eq(kube_lines_put(&lines, "d\n", 2), 0);
	ck_assert_str_eq(kube_lines_next(&lines, &len), "b");
	ck_assert_str_eq(kube_lines_next(&lines, &len), "cd");
	ck_assert_ptr_null(kube_lines_next(&lines, &len));
	kube_lines_reset(&lines);
}
END_TEST

/* --- what went wrong ---------------------------------------------------------------------- */

#define STATUS(rest) "{\"kind\":\"Status\",\"apiVersion\":\"v1\"," rest "}"

static const struct status_row {
	int status;
	unsigned retry_after_ms; /* of the header field */
	const char *body;
	/* what comes of it */
	enum err_kind kind;
	int of_error;
	const char *reason, *message;
	unsigned waits_ms;
} status_rows[] = {
	{404, 0, STATUS("\"message\":\"no such\",\"reason\":\"NotFound\",\"code\":404"),
		ERR_NOT_FOUND, 404, "NotFound", "404 NotFound: no such", 0},
	{409, 0, STATUS("\"message\":\"m\",\"reason\":\"AlreadyExists\",\"code\":409"),
		ERR_CONFLICT, 409, "AlreadyExists", "409 AlreadyExists: m", 0},
	{412, 0, "", ERR_CONFLICT, 412, "", "412: the server does not say why", 0},
	{400, 0, STATUS("\"message\":\"m\""), ERR_INVALID, 400, "", "400: m", 0},
	{401, 0, STATUS("\"message\":\"m\""), ERR_INVALID, 401, "", "401: m", 0},
	{403, 0, STATUS("\"message\":\"m\""), ERR_INVALID, 403, "", "403: m", 0},
	{413, 0, STATUS("\"message\":\"m\""), ERR_INVALID, 413, "", "413: m", 0},
	{503, 0, STATUS("\"message\":\"m\""), ERR_BUSY, 503, "", "503: m", 0},
	{504, 0, STATUS("\"message\":\"m\""), ERR_DEADLINE, 504, "", "504: m", 0},
	{500, 0, STATUS("\"message\":\"m\""), ERR_INTERNAL, 500, "", "500: m", 0},
	{302, 0, "", ERR_INTERNAL, 302, "", "302: the server does not say why", 0},
	{410, 0, STATUS("\"message\":\"m\",\"reason\":\"Expired\""), ERR_INTERNAL, 410,
		"Expired", "410 Expired: m", 0},
	/* the object's own code counts: an event of a watch comes with 200 */
	{200, 0, STATUS("\"message\":\"m\",\"reason\":\"Gone\",\"code\":410"), ERR_INTERNAL,
		410, "Gone", "410 Gone: m", 0},
	/* when to come again */
	{429, 3000, STATUS("\"message\":\"m\""), ERR_BUSY, 429, "", "429: m", 3000},
	{429, 0, STATUS("\"message\":\"m\",\"details\":{\"retryAfterSeconds\":7}"), ERR_BUSY,
		429, "", "429: m", 7000},
	{429, 3000, STATUS("\"message\":\"m\",\"details\":{\"retryAfterSeconds\":7}"), ERR_BUSY,
		429, "", "429: m", 3000},
	/* causes: those that the message lacks */
	{422, 0,
		STATUS("\"message\":\"x is invalid: a: "
		       "bad\",\"reason\":\"Invalid\",\"details\":{"
		       "\"causes\":[{\"message\":\"bad\",\"field\":\"a\"},{\"message\":"
		       "\"worse\","
		       "\"field\":\"b[0].c\"},{\"field\":\"d\"},{\"message\":\"third\"}]}"),
		ERR_INVALID, 422, "Invalid",
		"422 Invalid: x is invalid: a: bad; b[0].c: worse; third", 0},
	{422, 0, STATUS("\"details\":{\"causes\":[{\"message\":\"bad\",\"field\":\"a\"}]}"),
		ERR_INVALID, 422, "", "422: a: bad", 0},
	/* others than API servers */
	{404, 0, "404 page not found\n", ERR_NOT_FOUND, 404, "", "404: 404 page not found", 0},
	{502, 0, "\r\n<html>\r\n<body>", ERR_INTERNAL, 502, "", "502: <html>", 0},
	{500, 0, "a\x1b[31mb\x01\xff", ERR_INTERNAL, 500, "", "500: a?[31mb??", 0},
	{500, 0, "{\"kind\":\"Pod\"}", ERR_INTERNAL, 500, "", "500: {\"kind\":\"Pod\"}", 0},
	{500, 0, "[1,2]", ERR_INTERNAL, 500, "", "500: [1,2]", 0},
	{500, 0, "\"Status\"", ERR_INTERNAL, 500, "", "500: \"Status\"", 0},
	/* of a wrong type: the text is all there is */
	{500, 0, "{\"kind\":\"Status\",\"message\":7}", ERR_INTERNAL, 500, "",
		"500: {\"kind\":\"Status\",\"message\":7}", 0},
	/* control characters do not get into a log */
	{403, 0, STATUS("\"message\":\"a\\nb\\u001bc\",\"reason\":\"For\\nbidden\""),
		ERR_INVALID, 403, "For?bidden", "403 For?bidden: a?b?c", 0},
};

START_TEST(an_answer_becomes_an_error)
{
	const struct status_row *r = &status_rows[_i];
	struct kube_error error;

	kube_error_from_status(r->status, r->retry_after_ms, r->body, strlen(r->body), &error);
	ck_assert_str_eq(error.err.message, r->message);
	ck_assert_int_eq(error.err.kind, r->kind);
	ck_assert_int_eq(error.status, r->of_error);
	ck_assert_str_eq(error.reason, r->reason);
	ck_assert_uint_eq(error.retry_after_ms, r->waits_ms);
}
END_TEST

START_TEST(a_long_message_is_cut)
{
	cleanup_free char *long_text = xcalloc(1, 10001);
	cleanup_free char *body = NULL;
	struct kube_error error;

	memset(long_text, 'x', 10000);
	body = xasprintf(STATUS("\"message\":\"%s\",\"reason\":\"%s\""), long_text, "Invalid");
	kube_error_from_status(422, 0, body, strlen(body), &error);
	ck_assert_uint_eq(strlen(error.err.message), ERR_MESSAGE_MAX - 1);
	ck_assert_msg(
		str_has_prefix(error.err.message, "422 Invalid: xxx"), "%s", error.err.message);
}
END_TEST

/* --- the token ---------------------------------------------------------------------------- */

static char directory[] = "/tmp/netclaim-token-XXXXXX";

static void put_file(const char *path, const void *text, size_t len)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

static const struct token_row {
	const char *text, *value, *wrong;
} token_rows[] = {
	{"abc", "abc", NULL},
	{"abc\n", "abc", NULL},
	{"a.b-c_d=+/~\r\n\n \t", "a.b-c_d=+/~", NULL},
	{"", NULL, "is empty"},
	{"\n", NULL, "is empty"},
	{"a b", NULL, "byte 2 of it is no printable character"},
	{"a\nb", NULL, "byte 2 of it is no printable character"},
	{"abc\x7f", NULL, "byte 4 of it is no printable character"},
	{"\xc3\xa9", NULL, "byte 1 of it is no printable character"},
};

START_TEST(a_token_is_read)
{
	const struct token_row *r = &token_rows[_i];
	cleanup_free char *path = NULL;
	struct kube_token token = {0};
	struct err err = ERR_INIT;
	int outcome;

	memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	path = xasprintf("%s/token", directory);
	put_file(path, r->text, strlen(r->text));
	token.path = xstrdup(path);
	outcome = kube_token_refresh(&token, false, &err);
	if (r->value) {
		ck_assert_msg(outcome == 0, "%s", err.message);
		ck_assert_str_eq(token.value, r->value);
		ck_assert_uint_eq(token.generation, 1);
	} else {
		ck_assert_int_lt(outcome, 0);
		ck_assert_int_eq(err.kind, ERR_UNAVAILABLE);
		ck_assert_msg(strstr(err.message, r->wrong) && strstr(err.message, path), "%s",
			err.message);
	}
	kube_token_fini(&token);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

START_TEST(a_token_is_read_again_when_its_file_is_another)
{
	cleanup_free char *path = NULL, *other = NULL;
	struct kube_token token = {0};
	struct err err = ERR_INIT;

	memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	path = xasprintf("%s/token", directory);
	other = xasprintf("%s/other", directory);
	token.path = xstrdup(path);
	ck_assert_int_lt(kube_token_refresh(&token, false, &err), 0);
	put_file(path, "one", 3);
	ck_assert_int_eq(kube_token_refresh(&token, false, &err), 0);
	ck_assert_int_eq(kube_token_refresh(&token, true, &err), 0);
	ck_assert_uint_eq(token.generation, 1);
	/* of the same size, and perhaps the same time */
	put_file(other, "two", 3);
	ck_assert_int_eq(rename(other, path), 0);
	ck_assert_int_eq(kube_token_refresh(&token, false, &err), 0);
	ck_assert_str_eq(token.value, "two");
	ck_assert_uint_eq(token.generation, 2);
	/* the old one is better than none */
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(kube_token_refresh(&token, true, &err), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(kube_token_refresh(&token, true, &err), 0);
	ck_assert_str_eq(token.value, "two");
	kube_token_fini(&token);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

START_TEST(a_token_that_is_too_long_is_none)
{
	cleanup_free char *path = NULL, *text = xcalloc(1, 16385);
	struct kube_token token = {0};
	struct err err = ERR_INIT;

	memset(text, 'x', 16385);
	memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	path = xasprintf("%s/token", directory);
	token.path = xstrdup(path);
	put_file(path, text, 16385);
	ck_assert_int_lt(kube_token_refresh(&token, false, &err), 0);
	ck_assert_msg(strstr(err.message, "longer than 16384 bytes"), "%s", err.message);
	put_file(path, text, 16384);
	ck_assert_int_eq(kube_token_refresh(&token, false, &err), 0);
	kube_token_fini(&token);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kube");
	TCase *texts = tcase_create("texts");
	TCase *lines = tcase_create("lines");
	TCase *errors = tcase_create("errors");
	TCase *token = tcase_create("token");

	tcase_add_loop_test(texts, a_path_is_escaped, 0, ARRAY_SIZE(path_rows));
	tcase_add_test(texts, a_query_is_escaped);
	tcase_add_loop_test(texts, a_request_is_counted_by_what_it_is, 0, ARRAY_SIZE(count_rows));
	tcase_add_test(texts, kinds_of_requests_are_bounded);
	tcase_add_loop_test(texts, a_wait_is_within_its_bounds, 0, ARRAY_SIZE(backoff_rows));
	tcase_add_loop_test(
		lines, lines_are_the_same_whatever_the_pieces, 0, ARRAY_SIZE(lines_rows));
	tcase_add_test(lines, a_large_line_is_not_kept);
	tcase_add_test(lines, lines_that_were_not_taken_stay);
	tcase_add_loop_test(errors, an_answer_becomes_an_error, 0, ARRAY_SIZE(status_rows));
	tcase_add_test(errors, a_long_message_is_cut);
	tcase_add_loop_test(token, a_token_is_read, 0, ARRAY_SIZE(token_rows));
	tcase_add_test(token, a_token_is_read_again_when_its_file_is_another);
	tcase_add_test(token, a_token_that_is_too_long_is_none);
	suite_add_tcase(suite, texts);
	suite_add_tcase(suite, lines);
	suite_add_tcase(suite, errors);
	suite_add_tcase(suite, token);

	return unit_run(suite);
}
