/* SPDX-License-Identifier: Apache-2.0 */
#include "statd/slice_sink.h"

#include <inttypes.h>

#include "common/util.h"

static char *describe_failing(const struct slice_sink_status *status)
{
	char since[RFC3339_SIZE];

	return xasprintf("failing since %s: %s", rfc3339_format(status->since_ms, false, since),
		status->reason ? status->reason : "");
}

char *slice_sink_describe(const struct slice_sink *sink)
{
	struct slice_sink_status status = {.state = SLICE_SINK_IDLE};

	if (sink)
		slice_sink_status(sink, &status);
	switch (status.state) {
	case SLICE_SINK_IDLE: return xstrdup("nothing is published yet");
	case SLICE_SINK_PUBLISHING: return xstrdup("publishing");
	case SLICE_SINK_FAILING: return describe_failing(&status);
	case SLICE_SINK_PUBLISHED: break;
	}
	return xasprintf("%zu slice%s, generation %" PRId64 ", published%s%s", status.n_slices,
		status.n_slices == 1 ? "" : "s", status.generation, status.reason ? "; " : "",
		status.reason ? status.reason : "");
}
