/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's configuration, and what is done with it: sections for the managers, and pools that
 * take devices.
 */
#include <assert.h>

#include "statd/config.h"
#include "tests/fuzz/fuzz.h"

static void use_pools(const struct node_config *config)
{
	static char name[] = "dummy0";
	const struct device device = {.name = name, .if_name = name, .kernel_if_name = name};
	const struct pool_list *pools = &config->spec.pools;
	struct strlist matches = {0};
	const struct pool *first = pool_resolve(pools, MANAGER_DUMMY, &device, &matches);

	assert((first != NULL) == (matches.n > 0));
	for (size_t i = 0; i < pools->pools.n; i++) {
		const struct pool *pool = &pools->pools.v[i];
		cleanup_free char *why = pool_explain(pool, MANAGER_DUMMY, &device);

		assert(why && *why);
		assert(pool_find(pools, pool->name) == pool);
		assert(pool_match(pool, MANAGER_DUMMY, &device) ==
			strlist_has(&matches, pool->name));
	}
	strlist_fini(&matches);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct node_config config;
	struct err err = ERR_INIT;
	struct doc *doc;

	if (doc_parse("fuzz", (const char *)data, size, &doc, &err) < 0)
		return 0;
	if (config_decode(doc_root(doc), doc, NULL, &config, &err) == 0) {
		for (int m = 0; m < MANAGER_TYPE_MAX; m++)
			assert(config_enabled(&config, (enum manager_type)m) ==
				(config.sections[m] != NULL));
		use_pools(&config);
	} else {
		assert(err.kind == ERR_INVALID);
	}
	config_fini(&config);
	doc_free(doc);
	return 0;
}
