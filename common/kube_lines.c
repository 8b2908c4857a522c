/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The splitter looks at each byte once, however small the pieces are, and moves what is left of
 * an unfinished line to the front only when the lines before it have been taken.
 */
#include "common/kube_lines.h"

#include <string.h>

/* A buffer that one big event has made this large is given back when it is empty. */
#define KEEP_BYTES (16u << 10)

int kube_lines_put(struct kube_lines *l, const void *data, size_t len)
{
	const char *newline;

	buf_put(&l->bytes, data, len);
	while ((newline =
			memchr(l->bytes.data + l->scanned, '\n', l->bytes.len - l->scanned))) {
		size_t end = (size_t)(newline - l->bytes.data);

		if (end - l->last > l->max_line)
			return -1;
		l->last = l->scanned = end + 1;
	}
	l->scanned = l->bytes.len;
	return l->bytes.len - l->last > l->max_line ? -1 : 0;
}

/* All complete lines were taken: what is left begins the next one. */
static void compact(struct kube_lines *l)
{
	if (l->begin == l->bytes.len && l->bytes.cap > KEEP_BYTES)
		buf_fini(&l->bytes);
	else
		buf_shift(&l->bytes, l->begin);
	l->begin = l->last = 0;
	l->scanned = l->bytes.len;
}

char *kube_lines_next(struct kube_lines *l, size_t *ret_len)
{
	while (l->begin < l->last) {
		char *line = l->bytes.data + l->begin;
		char *newline = memchr(line, '\n', l->last - l->begin);

		*newline = '\0';
		*ret_len = (size_t)(newline - line);
		l->begin += *ret_len + 1;
		if (*ret_len > 0)
			return line;
	}
	if (l->begin > 0)
		compact(l);
	return NULL;
}

void kube_lines_reset(struct kube_lines *l)
{
	buf_fini(&l->bytes);
	*l = (struct kube_lines){.max_line = l->max_line};
}
