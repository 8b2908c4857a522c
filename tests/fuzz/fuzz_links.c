/* SPDX-License-Identifier: Apache-2.0 */
/* One report of the kernel's, of a link that has changed. */
#include <assert.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>

#include "common/nl.h"
#include "dmgr-sriov/links.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* of its own size, so that a byte too far is seen, and aligned */
	cleanup_free char *message = malloc(size);
	struct link_report report;

	if (!message || size == 0)
		return 0;
	memcpy(message, data, size);
	if (!links_read(message, size, &report))
		return 0;
	assert(report.mtu >= -1 && report.mtu <= UINT32_MAX);
	for (size_t i = 0; i < report.altnames.n; i++)
		assert(strlen(report.altnames.v[i]) < LINK_ALTNAME_SIZE);
	strlist_fini(&report.altnames);
	return 0;
}
