/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernel reports of links beside uevents: that one has another MTU, or another
 * alternative name (RTNLGRP_LINK of rtnetlink(7)). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/util.h"

struct link_report {
	int ifindex;
	int64_t mtu; /* -1: unknown */
	struct strlist altnames;
};

/* A socket that does not block. It reports nothing before links_watch(). */
int links_open(struct err *err);
/* From now on these links are reported, and no others: pods' links come and go all the time.
 * fd -1: does nothing. */
void links_watch(int fd, const int *ifindexes, size_t n);
/* One message as it came, aligned as a struct nlmsghdr. False: it reports no link; else altnames are the
 * caller's, for strlist_fini(). */
bool links_read(const void *message, size_t len, struct link_report *ret);
/* Calls each for all reports that have arrived. False: the kernel had to drop some. */
bool links_drain(
	int fd, void (*each)(void *ctx, const struct link_report *report), void *ctx);
