/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The loop that keeps the node's ResourceSlices as the tables say (publish.h builds them, the
 * store writes them).
 */

#include <uv.h>

#include "statd/publish.h"

struct statd;

struct publisher {
	uv_timer_t timer;
	bool due, writing;
	uint64_t revision; /* of the devices table when the slices were built; 0: write them */
};

void publisher_init(struct statd *s);
/* A table changed, or statd became ready. */
void publisher_wake(struct statd *s);
/* Nothing is written any more. */
void publisher_close(struct statd *s);
