/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MessagePack: what the guard lets through can be unpacked within bounds, the guard judges a
 * message that comes byte by byte as one that comes whole, and a tree survives the way out and in.
 */
#include <assert.h>

#include "common/mp.h"
#include "common/rpc.h"
#include "tests/fuzz/fuzz.h"

static int scan_by_bytes(const uint8_t *data, size_t size, struct mp_scan *scan)
{
	struct err err = ERR_INIT;
	int r = 0;

	for (size_t n = 0; r == 0 && n <= size; n++)
		r = mp_scan(scan, data, n, RPC_MAX_MESSAGE, &err);
	return r;
}

static void check_round_trip(const json_t *tree)
{
	cleanup_buf struct buf bytes = BUF_INIT;
	struct mp_scan scan = {0};
	struct err err = ERR_INIT;
	json_t *again = NULL;

	mp_encode(tree, &bytes);
	assert(mp_scan(&scan, bytes.data, bytes.len, RPC_MAX_MESSAGE, &err) == 1);
	assert(scan.at == bytes.len);
	assert(mp_decode(bytes.data, bytes.len, &again, &err) == 0);
	assert(json_equal(tree, again));
	json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mp_scan whole = {0}, by_bytes = {0};
	struct err err = ERR_INIT;
	json_t *tree = NULL;
	int r = mp_scan(&whole, data, size, RPC_MAX_MESSAGE, &err);

	assert(scan_by_bytes(data, size, &by_bytes) == r);
	if (r <= 0)
		return 0;
	assert(whole.at <= size && by_bytes.at == whole.at);
	if (mp_decode(data, whole.at, &tree, &err) < 0) {
		assert(err.kind == ERR_INVALID);
		return 0;
	}
	check_round_trip(tree);
	json_decref(tree);
	return 0;
}
