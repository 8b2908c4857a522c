/* SPDX-License-Identifier: Apache-2.0 */
#include "common/util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

__attribute__((noreturn, cold)) static void out_of_memory(void)
{
	static const char text[] = "netclaim: out of memory\n";

	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	abort();
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (!p)
		out_of_memory();
	return p;
}

void *xrealloc(void *p, size_t n, size_t size)
{
	void *q = reallocarray(p, n ? n : 1, size ? size : 1);

	if (!q)
		out_of_memory();
	return q;
}

char *xstrdup(const char *s)
{
	char *p = strdup(s);

	if (!p)
		out_of_memory();
	return p;
}

char *xstrdup_opt(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

char *xmemdup0(const void *data, size_t len)
{
	char *p = xcalloc(len + 1, 1);

	if (len)
		memcpy(p, data, len);
	return p;
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (n < 0)
		out_of_memory();
	return s;
}

void buf_fini(struct buf *b)
{
	free(b->data);
	*b = (struct buf)BUF_INIT;
}

void buf_reserve(struct buf *b, size_t more)
{
	size_t cap = b->cap ? b->cap : 256;

	if (b->cap - b->len > more)
		return;
	while (cap - b->len <= more) {
		if (cap > SIZE_MAX / 2)
			out_of_memory();
		cap *= 2;
	}
	b->data = xrealloc(b->data, cap, 1);
	b->cap = cap;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
	buf_reserve(b, len);
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
	buf_put(b, s, strlen(s));
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return;
	buf_reserve(b, (size_t)n);
	(void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	b->len += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

void buf_shift(struct buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
		return;
	}
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
	b->data[b->len] = '\0';
}

char *buf_take(struct buf *b)
{
	char *s = b->data ? b->data : xstrdup("");

	*b = (struct buf)BUF_INIT;
	return s;
}

void strlist_add(struct strlist *l, const char *s)
{
	l->v = xrealloc(l->v, l->n + 1, sizeof(*l->v));
	l->v[l->n++] = xstrdup(s);
}

void strlist_fini(struct strlist *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct strlist){0};
}

void strlist_remove(struct strlist *l, const char *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->v[i], s) == 0)
			free(l->v[i]);
		else
			l->v[kept++] = l->v[i];
	}
	l->n = kept;
}

bool strlist_has(const struct strlist *l, const char *s)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->v[i], s) == 0)
			return true;
	return false;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	(void)clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t now_ms(void)
{
	return now_ns() / 1000000u;
}

int64_t wall_ms(void)
{
	return (int64_t)(clock_ns(CLOCK_REALTIME) / 1000000u);
}

char *rfc3339_format(int64_t wall, bool millis, char out[static RFC3339_SIZE])
{
	time_t seconds = (time_t)(wall / 1000);
	struct tm tm;
	size_t n;

	(void)gmtime_r(&seconds, &tm);
	n = strftime(out, RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	if (millis)
		(void)snprintf(
			out + n, RFC3339_SIZE - n, ".%03uZ", (unsigned)(wall % 1000) % 1000u);
	else
		(void)snprintf(out + n, RFC3339_SIZE - n, "Z");
	return out;
}

int parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret)
{
	char *end;
	long long v;

	if (*s != '-' && (*s < '0' || *s > '9'))
		return -1;
	errno = 0;
	v = strtoll(s, &end, 10);
	if (errno || end == s || *end || v < min || v > max)
		return -1;
	*ret = v;
	return 0;
}

bool str_has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_equal(const char *a, const char *b)
{
	if (!a || !b)
		return a == b;
	return strcmp(a, b) == 0;
}

/* Length of the valid UTF-8 sequence at s (RFC 3629: no surrogates, nothing over U+10FFFF, no
 * overlong forms), or 0. A NUL ends what may be read as well as len, which is not 0, does. */
static size_t utf8_sequence(const unsigned char *s, size_t len)
{
	unsigned char low = 0x80, high = 0xbf;
	size_t n;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	if (n > len)
		return 0;
	if (s[0] == 0xe0)
		low = 0xa0;
	else if (s[0] == 0xed)
		high = 0x9f;
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f;
	if (s[1] < low || s[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return n;
}

bool utf8_valid(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;

	while (len > 0) {
		size_t n = utf8_sequence(p, len);

		if (n == 0)
			return false;
		p += n;
		len -= n;
	}
	return true;
}

void str_sanitize(char *s)
{
	for (unsigned char *p = (unsigned char *)s; *p;) {
		size_t n = utf8_sequence(p, SIZE_MAX);

		if (n == 0 || *p < 0x20 || *p == 0x7f) {
			*p++ = '?';
			continue;
		}
		p += n;
	}
}
