/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML and JSON documents: every node's line is one of the text's, and the tree written as JSON
 * is read as the same tree.
 */
#include <assert.h>
#include <string.h>

#include "common/doc.h"
#include "tests/fuzz/fuzz.h"

static unsigned lines_of(const uint8_t *data, size_t size)
{
	unsigned n = 1;

	/* YAML's other line breaks take two and three bytes */
	for (size_t i = 0; i < size; i++)
		n += data[i] < 0x20 || data[i] > 0x7e;
	return n;
}

static void check_lines(const struct doc *doc, const json_t *node, unsigned max)
{
	const char *key;
	json_t *child;
	size_t i;

	assert(doc_line(doc, node) <= max);
	json_object_foreach ((json_t *)(uintptr_t)node, key, child)
		check_lines(doc, child, max);
	json_array_foreach (node, i, child)
		check_lines(doc, child, max);
}

static void check_round_trip(const json_t *root)
{
	cleanup_free char *text = json_dumps(root, JSON_COMPACT);
	struct err err = ERR_INIT;
	struct doc *again;

	assert(text);
	assert(doc_parse("again", text, strlen(text), &again, &err) == 0);
	assert(json_equal(root, doc_root(again)));
	doc_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct doc *doc;

	if (doc_parse("fuzz", (const char *)data, size, &doc, &err) < 0) {
		assert(err.kind == ERR_INVALID);
		return 0;
	}
	assert(doc_root(doc) && !json_is_null(doc_root(doc)));
	check_lines(doc, doc_root(doc), lines_of(data, size));
	if (json_is_object(doc_root(doc)))
		check_round_trip(doc_root(doc));
	doc_free(doc);
	return 0;
}
