/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * When what the node offers is looked at anew: the tables wake it, it keeps the devices table's
 * columns right (publish.h) and tells the sink, which keeps the ResourceSlices (slice_sink.h).
 */

#include <uv.h>

#include "statd/publish.h"

struct statd;

struct publisher {
	uv_timer_t timer;
	uv_timer_t quiet; /* runs out when nothing happened for a while */
	struct flaws flaws;
};

void publisher_init(struct statd *s);
/* A table changed, or statd became ready. */
void publisher_wake(struct statd *s);
/* Now: the columns only. */
void publisher_annotate(struct statd *s);
/* Nothing is told to the sink any more. */
void publisher_close(struct statd *s);
