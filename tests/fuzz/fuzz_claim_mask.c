/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim's text and its mask. What the laxest JSON reader takes is JSON to the mask, and the
 * masked text is JSON to it again; a second mask changes nothing, nor does it matter to what stays
 * whether the text or its tree is masked. YAML, which is no JSON, is read or refused.
 */
#include <assert.h>
#include <string.h>

#include "common/doc.h"
#include "common/json_mask.h"
#include "statd/claim_mask.h"
#include "tests/fuzz/fuzz.h"

#define DRIVER "networkdriver.cilium.io"
#define LAX    (JSON_DECODE_ANY | JSON_ALLOW_NUL)

/* A text that ends where its memory ends, so that a read beyond it is seen. */
static char *exact(const void *data, size_t size)
{
	char *copy = malloc(size ? size : 1);

	assert(copy);
	memcpy(copy, data, size);
	return copy;
}

static void check_again(const struct buf *once)
{
	cleanup_free char *text = exact(once->data, once->len);
	cleanup_buf struct buf twice = BUF_INIT;
	struct err err = ERR_INIT;

	assert(json_mask_text(&claim_mask, DRIVER, text, once->len, &twice, &err) == 0);
	assert(twice.len == once->len && memcmp(twice.data, once->data, once->len) == 0);
}

/* Where a reader takes it whole, without members that are there twice, both ways lead to one; but
 * for names of others that are written with escapes, which the text's stub leaves out. */
static void check_tree(const char *text, size_t size, const struct buf *masked)
{
	json_t *tree = json_loadb(text, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
	json_t *other;

	if (!tree)
		return;
	other = json_loadb(masked->data, masked->len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES,
		NULL);
	assert(other);
	json_mask_tree(&claim_mask, DRIVER, tree);
	assert(json_equal(tree, other) || memchr(text, '\\', size));
	json_decref(tree);
	json_decref(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = exact(data, size);
	cleanup_buf struct buf masked = BUF_INIT;
	/* jansson takes a NUL for the end of the text */
	json_t *lax = memchr(text, '\0', size) ? NULL : json_loadb(text, size, LAX, NULL);
	json_t *after;
	struct err err = ERR_INIT;
	struct doc *doc;

	if (json_mask_text(&claim_mask, DRIVER, text, size, &masked, &err) == 0) {
		after = lax ? json_loadb(masked.data, masked.len, LAX, NULL) : NULL;
		assert(after || !lax);
		check_again(&masked);
		check_tree(text, size, &masked);
		json_decref(after);
	} else {
		assert(!lax && err.kind == ERR_INVALID);
	}
	json_decref(lax);
	if (doc_parse_masked("fuzz", text, size, &claim_mask, DRIVER, &doc, &err) == 0)
		doc_free(doc);
	return 0;
}
