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
	struct strlist touched; /* devices whose allocations came or went */
	uint64_t told; /* revision of the devices table that the sink has; UINT64_MAX: none */
	uv_timer_t quiet; /* runs out when nothing happened for a while */
	struct flaws flaws;
};

void publisher_init(struct statd *s);
/* What a table's watcher is told. */
void publisher_changed(struct statd *s, const struct table_commit *commit);
/* statd became ready. */
void publisher_wake(struct statd *s);
/* Nothing is told to the sink any more. */
void publisher_close(struct statd *s);
