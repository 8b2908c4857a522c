/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Links by name, read together.
 *
 * The kernel answers a request for one link under the lock that every change of a link takes, and
 * so each request may wait for all that other processes do with theirs. A listing takes it once
 * for some tens of links. Many links are therefore listed, few are asked for.
 */

#include "common/nl.h"

struct link_table {
	struct link_list links; /* sorted by name */
};

/* Reads those of the names that exist. A link that cannot be read is left out, as one that does not
 * exist. Names may be in any order, and repeat; "" is
 * none. */
void link_table_read(
	struct nl *nl, const char *const *names, size_t n_names, struct link_table *ret);
/* NULL: there is none. Borrowed. */
const struct link_info *link_table_find(const struct link_table *table, const char *name);
void link_table_fini(struct link_table *table);
#define cleanup_link_table __attribute__((cleanup(link_table_fini)))
