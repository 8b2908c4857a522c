/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Records for tests, written as JSON with single quotes: {'name': 'dummy0'}. */

#include <check.h>
#include <jansson.h>
#include <string.h>

#include "common/rec.h"

static inline json_t *tree_of(const char *text)
{
	cleanup_free char *json = xstrdup(text);
	json_error_t error;
	json_t *tree;

	for (char *p = json; *p; p++)
		if (*p == '\'')
			*p = '"';
	tree = json_loads(json, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(tree != NULL, "%s: %s", json, error.text);
	return tree;
}

static inline void rec_of(const struct rec_desc *desc, const char *text, void *rec)
{
	struct err err = ERR_INIT;
	json_t *tree = tree_of(text);

	memset(rec, 0, desc->size);
	ck_assert_msg(rec_decode(desc, tree, REC_STRICT, "", NULL, rec, &err) == 0, "%s: %s",
		text, err.message);
	json_decref(tree);
}

/* Whether the record says what the text says. */
static inline void assert_rec(const struct rec_desc *desc, const void *rec, const char *text)
{
	json_t *is = rec_encode(desc, rec), *should = tree_of(text);

	if (!json_equal(is, should)) {
		char *shown = json_dumps(is, JSON_SORT_KEYS);

		ck_abort_msg("is %s, should be %s", shown, text);
	}
	json_decref(is);
	json_decref(should);
}
