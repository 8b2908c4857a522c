/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of every method: what is decoded equals its copies, and itself after the way out and
 * in; and the bytes say the same as the tree that is made of them. The input is MessagePack: [method,
 * "request" or "result", record].
 */
#include <assert.h>
#include <string.h>

#include "common/api.h"
#include "common/mp.h"
#include "common/rpc.h"
#include "tests/fuzz/fuzz.h"

/* NULL: it chooses none. */
static const struct rec_desc *choose(const json_t *input)
{
	const json_t *name = json_array_get(input, 0);
	const char *which = json_string_value(json_array_get(input, 1));
	const struct api_method_info *info;
	enum api_method method;

	if (!json_is_string(name) || !which)
		return NULL;
	method = api_method_parse(json_string_value(name), json_string_length(name));
	if (method == API_METHOD_MAX)
		return NULL;
	info = api_method_info(method);
	return strcmp(which, "result") == 0 ? info->result : info->request;
}

static void check_copy(const struct rec_desc *desc, const void *rec)
{
	cleanup_free void *copy = xcalloc(1, desc->size);

	rec_copy(desc, copy, rec);
	assert(rec_equal(desc, rec, copy));
	rec_fini(desc, copy);
}

static bool has_trees(const struct rec_desc *desc)
{
	for (size_t i = 0; i < desc->n_fields; i++)
		if (desc->fields[i].type == REC_TYPE_TREE ||
			desc->fields[i].type == REC_TYPE_OBJECT)
			return true;
	return false;
}

static void check_freeze(const struct rec_desc *desc, const void *rec)
{
	const char *text;
	void *frozen;

	if (has_trees(desc))
		return;
	frozen = rec_freeze(desc, rec, "beside it", &text);
	assert(rec_equal(desc, rec, frozen));
	assert(strcmp(text, "beside it") == 0);
	free(frozen);
}

static void check_round_trip(const struct rec_desc *desc, const void *rec)
{
	cleanup_free void *again = xcalloc(1, desc->size);
	json_t *tree = rec_encode(desc, rec);
	struct err err = ERR_INIT;

	assert(rec_decode(desc, tree, REC_STRICT, "", NULL, again, &err) == 0);
	assert(rec_equal(desc, rec, again));
	rec_fini(desc, again);
	json_decref(tree);
}

static void check_wire_round_trip(const struct rec_desc *desc, const void *rec)
{
	cleanup_free void *again = xcalloc(1, desc->size);
	cleanup_buf struct buf bytes = BUF_INIT;
	struct mp_scan scan = {0};
	struct mp_cursor cursor;
	struct err err = ERR_INIT;

	rec_pack(desc, rec, &bytes);
	assert(mp_scan(&scan, bytes.data, bytes.len, RPC_MAX_MESSAGE, &err) == 1);
	assert(scan.at == bytes.len && mp_check(bytes.data, bytes.len, &err) == 0);
	cursor = mp_cursor(bytes.data);
	assert(rec_unpack(desc, &cursor, again, &err) == 0);
	assert(cursor.at == (const uint8_t *)bytes.data + bytes.len);
	assert(rec_equal(desc, rec, again));
	rec_fini(desc, again);
}

/* What the tree is decoded to, the bytes are, whether that is a record or the words why not. */
static void decode(const struct rec_desc *desc, const json_t *tree, struct mp_cursor bytes)
{
	cleanup_free void *rec = xcalloc(1, desc->size), *unpacked = xcalloc(1, desc->size);
	struct err err = ERR_INIT, wire_err = ERR_INIT;
	int r = rec_decode(desc, tree, REC_LENIENT, "", NULL, rec, &err);

	assert(rec_unpack(desc, &bytes, unpacked, &wire_err) == r);
	if (r < 0) {
		assert(err.kind == ERR_INVALID && wire_err.kind == ERR_INVALID);
		assert(strcmp(err.message, wire_err.message) == 0);
		return;
	}
	assert(rec_equal(desc, rec, unpacked));
	check_copy(desc, rec);
	check_freeze(desc, rec);
	check_round_trip(desc, rec);
	check_wire_round_trip(desc, unpacked);
	rec_fini(desc, rec);
	rec_fini(desc, unpacked);
}

/* The third element of the list that the input is. */
static struct mp_cursor third(const uint8_t *data)
{
	struct mp_cursor c = mp_cursor(data);

	(void)mp_next(&c);
	mp_skip(&c);
	mp_skip(&c);
	return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rec_desc *desc;
	struct mp_scan scan = {0};
	struct err err = ERR_INIT;
	json_t *input;

	if (mp_scan(&scan, data, size, RPC_MAX_MESSAGE, &err) <= 0 ||
		mp_decode(data, scan.at, &input, &err) < 0)
		return 0;
	desc = choose(input);
	if (desc && json_array_size(input) == 3)
		decode(desc, json_array_get(input, 2), third(data));
	json_decref(input);
	return 0;
}
