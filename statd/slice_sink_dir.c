/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink that is a file: every slice in one List, as `kubectl get -o json` would print them.
 * Nobody allocates from it, so the devices are cut into slices as they come, and each time anew.
 *
 * It is written one device at a time. Four thousand of them make some megabytes of text, and as
 * trees many times that.
 */
#include "statd/slice_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/file.h"
#include "common/log.h"
#include "statd/publish.h"
#include "statd/slice_limits.h"
#include "statd/slice_plan.h"

#define SLICES_FILE "resourceslices.json"
#define SLICES_MODE 0644
#define RETRY_MS    1000

struct sink_dir {
	struct slice_sink base;
	uv_loop_t *loop;
	const struct tables *tables;
	char *path, *driver_name, *node_name;
	int fd;
	uv_timer_t retry;
	bool begun;        /* retry is on the loop */
	uint64_t revision; /* of the devices table that was written; 0: none */
	struct slice_sink_status status;
	struct err err;
};

/* --- the file ----------------------------------------------------------------------------- */

static void put_text(struct file_draft *draft, const char *text)
{
	file_draft_put(draft, text, strlen(text));
}

/* What is before a slice's devices, which come last. */
static void put_head(
	struct file_draft *draft, const struct sink_dir *s, size_t index, size_t n_slices)
{
	cleanup_free char *head = xasprintf(
		"%s\n"
		"{\n"
		"  \"apiVersion\": \"resource.k8s.io/v1\",\n"
		"  \"kind\": \"ResourceSlice\",\n"
		"  \"metadata\": {\"name\": \"%0*zx-%s-%s\"},\n"
		"  \"spec\": {\n"
		"    \"driver\": \"%s\",\n"
		"    \"nodeName\": \"%s\",\n"
		"    \"pool\": {\"name\": \"%s\", \"generation\": 1, "
		"\"resourceSliceCount\": %zu}",
		index ? "," : "", (int)slice_index_width(n_slices), index, s->driver_name,
		s->node_name, s->driver_name, s->node_name, s->node_name, n_slices);

	put_text(draft, head);
}

static void put_device(struct file_draft *draft, const struct device_row *row, bool first)
{
	json_t *device = publish_device(row);
	cleanup_free char *text = device ? json_dumps(device, JSON_INDENT(2)) : NULL;

	if (text) {
		put_text(draft, first ? ",\n    \"devices\": [\n" : ",\n");
		put_text(draft, text);
	}
	json_decref(device);
}

static void put_slices(struct file_draft *draft, const struct sink_dir *s)
{
	const struct table_row *row = publish_first(s->tables);
	size_t n = 0, n_slices;

	for (; row; row = publish_next(row))
		n++;
	n_slices = slice_count(n);
	row = publish_first(s->tables);
	for (size_t index = 0; index < n_slices; index++) {
		put_head(draft, s, index, n_slices);
		for (size_t i = 0; row && i < SLICE_MAX_DEVICES; i++, row = publish_next(row))
			put_device(draft, device_row_of(row), i == 0);
		put_text(draft, n > 0 ? "\n    ]\n  }\n}" : "\n  }\n}");
	}
}

static int write_file(struct sink_dir *s, struct err *err)
{
	struct file_draft draft;

	file_draft_begin(&draft, s->fd, SLICES_FILE);
	put_text(&draft, "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [");
	put_slices(&draft, s);
	put_text(&draft, "\n]}\n");
	if (file_draft_commit(&draft, SLICES_MODE, err) < 0)
		return err_wrap(err, "%s", s->path);
	return 0;
}

/* --- the sink ----------------------------------------------------------------------------- */

static void set_state(struct sink_dir *s, enum slice_sink_state state)
{
	if (s->status.state != state)
		s->status.since_ms = wall_ms();
	s->status.state = state;
	s->status.generation = 1;
	s->status.reason = state == SLICE_SINK_FAILING ? s->err.message : NULL;
}

static void dir_update(struct slice_sink *base);

static void on_retry(uv_timer_t *timer)
{
	dir_update(timer->data);
}

static size_t count_slices(const struct sink_dir *s)
{
	size_t n = 0;

	for (const struct table_row *row = publish_first(s->tables); row;
		row = publish_next(row))
		n++;
	return slice_count(n);
}

static void dir_update(struct slice_sink *base)
{
	struct sink_dir *s = container_of(base, struct sink_dir, base);
	uint64_t revision = table_revision(s->tables->devices);

	if (!s->begun) {
		(void)uv_timer_init(s->loop, &s->retry);
		s->retry.data = base;
		s->begun = true;
	}
	if (s->status.state == SLICE_SINK_PUBLISHED && s->revision == revision)
		return;
	s->revision = revision;
	if (write_file(s, &s->err) < 0) {
		if (s->status.state != SLICE_SINK_FAILING)
			LOG(ERROR, FIELDS(F("err", s->err.message)),
				"failed to publish resources");
		set_state(s, SLICE_SINK_FAILING);
		(void)uv_timer_start(&s->retry, on_retry, RETRY_MS, 0);
		return;
	}
	s->status.n_slices = count_slices(s);
	set_state(s, SLICE_SINK_PUBLISHED);
}

static void dir_status(const struct slice_sink *base, struct slice_sink_status *ret)
{
	*ret = ((const struct sink_dir *)(const void *)base)->status;
}

static void sink_free(struct sink_dir *s)
{
	close_fd(&s->fd);
	free(s->path);
	free(s->driver_name);
	free(s->node_name);
	free(s);
}

static void on_closed(uv_handle_t *handle)
{
	sink_free(container_of(handle->data, struct sink_dir, base));
}

static void dir_free(struct slice_sink *base)
{
	struct sink_dir *s = container_of(base, struct sink_dir, base);

	if (s->begun)
		uv_close((uv_handle_t *)&s->retry, on_closed);
	else
		sink_free(s);
}

static const struct slice_sink_ops dir_ops = {
	.kind = "directory",
	.update = dir_update,
	.status = dir_status,
	.free = dir_free,
};

struct slice_sink *slice_sink_dir_new(uv_loop_t *loop, const char *path,
	const struct tables *tables, const char *driver_name, const char *node_name,
	struct err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct sink_dir *s;

	if (fd < 0) {
		(void)err_errno(err, errno, "directory of ResourceSlices %s", path);
		return NULL;
	}
	s = xcalloc(1, sizeof(*s));
	*s = (struct sink_dir){.base = {.ops = &dir_ops}, .loop = loop, .tables = tables};
	s->path = xstrdup(path);
	s->driver_name = xstrdup(driver_name);
	s->node_name = xstrdup(node_name);
	s->fd = fd;
	return &s->base;
}
