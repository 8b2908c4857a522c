/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of every method: what is decoded equals its copy, and itself after the way out and
 * in. The input is MessagePack: [method, "request" or "result", record].
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

static void decode(const struct rec_desc *desc, const json_t *tree)
{
	cleanup_free void *rec = xcalloc(1, desc->size);
	struct err err = ERR_INIT;

	if (rec_decode(desc, tree, REC_LENIENT, "", NULL, rec, &err) < 0) {
		assert(err.kind == ERR_INVALID);
		return;
	}
	check_copy(desc, rec);
	check_round_trip(desc, rec);
	rec_fini(desc, rec);
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
		decode(desc, json_array_get(input, 2));
	json_decref(input);
	return 0;
}
