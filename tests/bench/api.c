/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the API server that does nothing but read: one connection, HTTP/2, as statd's is.
 *
 *	open CA TOKEN                   a file of certificates, and the token itself
 *	get URL                         answers how long the whole of the answer took
 */
#include <curl/curl.h>
#include <string.h>

#include "common/util.h"
#include "tests/bench/lines.h"

struct api {
	CURL *easy;
	struct curl_slist *headers;
};

static size_t on_body(char *data UNUSED, size_t size, size_t n, void *ctx UNUSED)
{
	return size * n;
}

static void run_open(void *ctx, char **words, size_t n UNUSED)
{
	cleanup_free char *bearer = xasprintf("Authorization: Bearer %s", words[1]);
	struct api *api = ctx;

	api->easy = curl_easy_init();
	api->headers = curl_slist_append(NULL, bearer);
	if (!api->easy || !api->headers)
		lines_fail("curl: no memory");
	(void)curl_easy_setopt(api->easy, CURLOPT_CAINFO, words[0]);
	(void)curl_easy_setopt(api->easy, CURLOPT_HTTPHEADER, api->headers);
	(void)curl_easy_setopt(
		api->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	(void)curl_easy_setopt(api->easy, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(api->easy, CURLOPT_FAILONERROR, 1L);
	(void)curl_easy_setopt(api->easy, CURLOPT_WRITEFUNCTION, on_body);
	lines_ok(NULL, 0);
}

static void run_get(void *ctx, char **words, size_t n UNUSED)
{
	const struct api *api = ctx;
	uint64_t started = now_ns(), took;
	CURLcode code;

	(void)curl_easy_setopt(api->easy, CURLOPT_URL, words[0]);
	code = curl_easy_perform(api->easy);
	took = now_ns() - started;
	if (code != CURLE_OK)
		lines_fail("%s: %s", words[0], curl_easy_strerror(code));
	lines_ok(&took, 1);
}

static const struct lines_command commands[] = {
	{"open", 2, run_open},
	{"get", 1, run_get},
};

int main(void)
{
	struct api api = {0};

	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
	lines_serve(commands, ARRAY_SIZE(commands), &api);
	curl_easy_cleanup(api.easy);
	curl_slist_free_all(api.headers);
	curl_global_cleanup();
	return EXIT_SUCCESS;
}
