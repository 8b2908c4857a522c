/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of every method: what is decoded equals its copy, and itself after the way out and
 * in. The first byte chooses the method, and whether it is the request or the result; the rest is
 * the record's MessagePack.
 */
#include <assert.h>

#include "common/api.h"
#include "common/mp.h"
#include "common/rpc.h"
#include "tests/fuzz/fuzz.h"

#define RESULT 0x80

static const struct rec_desc *choose(uint8_t byte)
{
	const struct api_method_info *info =
		api_method_info((enum api_method)((byte & ~RESULT) % API_METHOD_MAX));

	return byte & RESULT && info->result ? info->result : info->request;
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
	struct input in = {data, size};
	const struct rec_desc *desc = choose(input_byte(&in));
	struct mp_scan scan = {0};
	struct err err = ERR_INIT;
	json_t *tree;

	if (mp_scan(&scan, in.data, in.size, RPC_MAX_MESSAGE, &err) <= 0 ||
		mp_decode(in.data, scan.at, &tree, &err) < 0)
		return 0;
	decode(desc, tree);
	json_decref(tree);
	return 0;
}
