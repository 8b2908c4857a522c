/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim in the API server's binary form. What comes out can be read again, and says the same
 * when our entries are exchanged for the same ones.
 */
#include <assert.h>
#include <string.h>

#include "statd/claim_splice.h"
#include "tests/fuzz/fuzz.h"

/* of the seed */
#define UID    "25b17560-3e63-4c7c-8051-825cc7202291"
#define DRIVER "networkdriver.cilium.io"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *devices = json_pack("[{ss ss ss s[{ss ss}] s{ss} s{ss}}]", "driver", DRIVER, "pool",
		"worker-1", "device", "dummy0", "conditions", "type", "Ready", "status", "True",
		"data", "Manager", "dummy", "networkData", "interfaceName", "net1");
	struct buf once = BUF_INIT, twice = BUF_INIT;
	struct err err = ERR_INIT;

	if (claim_splice(data, size, UID, DRIVER, devices, &once, &err) < 0) {
		assert(err.kind == ERR_INVALID || err.kind == ERR_CONFLICT);
	} else {
		int again =
			claim_splice(once.data, once.len, UID, DRIVER, devices, &twice, &err);

		assert(again == 0);
		assert(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
	}
	buf_fini(&once);
	buf_fini(&twice);
	json_decref(devices);
	return 0;
}
