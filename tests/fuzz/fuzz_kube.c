/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes from an API server, and the file that says where it is. The first byte chooses:
 *
 *	0  the lines of a watch; the second byte is the longest line, the third the size of the
 *	   pieces that they come in: the lines are what a plain search for newlines finds
 *	1  an answer that is an error, or an event of one; the second byte chooses its HTTP status
 *	2  a kubeconfig: one that is taken has a server, and a certificate has its key
 *	3  a header field "Warning"
 */
#include <assert.h>
#include <string.h>

#include "common/doc.h"
#include "common/kube_access.h"
#include "common/kube_internal.h"
#include "tests/fuzz/fuzz.h"

/* Whether all lines, the unfinished one too, are short enough. */
static bool fits(const uint8_t *data, size_t size, size_t max_line)
{
	size_t len = 0;

	for (size_t i = 0; i < size; i++) {
		len = data[i] == '\n' ? 0 : len + 1;
		if (len > max_line)
			return false;
	}
	return true;
}

/* The next line that is not empty, as a plain search finds it. */
static bool search_line(struct input *in, struct input *ret)
{
	const uint8_t *newline;

	while ((newline = in->size ? memchr(in->data, '\n', in->size) : NULL)) {
		*ret = input_piece(in, (size_t)(newline - in->data));
		(void)input_byte(in);
		if (ret->size > 0)
			return true;
	}
	return false;
}

static void try_lines(struct input in)
{
	struct kube_lines lines = {.max_line = input_byte(&in)};
	size_t piece_size = input_byte(&in) % 32 + 1u;
	struct input rest = in, want;
	bool ok = true;

	while (ok && in.size > 0) {
		struct input piece = input_piece(&in, piece_size);
		size_t len;
		char *line;

		ok = kube_lines_put(&lines, piece.data, piece.size) == 0;
		while (ok && (line = kube_lines_next(&lines, &len))) {
			assert(search_line(&rest, &want));
			assert(len == want.size && memcmp(line, want.data, len) == 0);
			assert(line[len] == '\0');
		}
	}
	if (ok) {
		assert(!search_line(&rest, &want));
		assert(fits(rest.data, rest.size, lines.max_line));
	} else {
		assert(!fits(rest.data, rest.size, lines.max_line));
	}
	kube_lines_reset(&lines);
}

static void try_status(struct input in)
{
	int status = 200 + 2 * input_byte(&in);
	struct kube_error error;

	kube_error_from_status(status, 0, (const char *)in.data, in.size, &error);
	assert(error.err.kind != ERR_NONE && error.err.message[0]);
	assert(error.status == status || (error.status >= 400 && error.status <= 999));
	for (const char *at = error.err.message; *at; at++)
		assert((unsigned char)*at >= ' ');
	for (const char *at = error.reason; *at; at++)
		assert((unsigned char)*at >= ' ');
}

static void try_kubeconfig(struct input in)
{
	struct kube_access access;
	struct err err = ERR_INIT;
	struct doc *doc;

	if (doc_parse("/nonexistent/f", (const char *)in.data, in.size, &doc, &err) < 0)
		return;
	if (kube_access_decode(doc, NULL, &access, &err) == 0) {
		assert(str_has_prefix(access.server, "https://"));
		assert(access.description);
		assert(!access.cert == !access.key);
	} else {
		assert(err.kind == ERR_INVALID && err.message[0]);
		assert(!access.server && !access.key && !access.token);
	}
	kube_access_fini(&access);
	doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	switch (input_byte(&in) % 4) {
	case 0: try_lines(in); break;
	case 1: try_status(in); break;
	case 2: try_kubeconfig(in); break;
	default: kube_warning((const char *)in.data, in.size); break;
	}
	return 0;
}
