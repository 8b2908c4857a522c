/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims of a pod: whatever the pod says, the names that come out are fit for a path.
 */
#include <assert.h>

#include "common/check.h"
#include "common/doc.h"
#include "statd/podclaims.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct strlist names = {0};
	struct err err = ERR_INIT;
	struct doc *doc;

	if (doc_parse("fuzz", (const char *)data, size, &doc, &err) < 0)
		return 0;
	if (podclaims_names(doc_root(doc), &names, &err) < 0)
		assert(err.kind == ERR_INVALID);
	for (size_t i = 0; i < names.n; i++)
		assert(check_dns_subdomain(names.v[i], &err) == 0);
	strlist_fini(&names);
	doc_free(doc);
	return 0;
}
