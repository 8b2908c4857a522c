/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the C library leaves out: allocation that cannot fail, ownership of locals, growing
 * text.
 *
 * Running out of memory ends the process. That is acceptable only because every size that a
 * peer can name is bounded before anything is allocated for it.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h> /* MIN, MAX */
#include <unistd.h>

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))
#define UNUSED                          __attribute__((unused))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t n, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
/* NULL stays NULL. */
char *xstrdup_opt(const char *s);
char *xmemdup0(const void *data, size_t len) __attribute__((malloc, returns_nonnull));
char *xasprintf(const char *fmt, ...)
	__attribute__((format(printf, 1, 2), malloc, returns_nonnull));

/* Cleanup attributes, named by the resource. `take` moves the value out of an owning local. */
static inline void cleanup_free_p(void *p)
{
	free(*(void **)p);
}
static inline void cleanup_close_p(const int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}
static inline void cleanup_file_p(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}
#define cleanup_free  __attribute__((cleanup(cleanup_free_p)))
#define cleanup_close __attribute__((cleanup(cleanup_close_p)))
#define cleanup_file  __attribute__((cleanup(cleanup_file_p)))
static inline int take_fd(int *fd)
{
	int taken = *fd;
	*fd = -1;
	return taken;
}
#define take_ptr(p)                                                                            \
	__extension__({                                                                        \
		__typeof__(p) taken_ = (p);                                                    \
		(p) = NULL;                                                                    \
		taken_;                                                                        \
	})
/* Closes if open and remembers that it is closed. */
static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* A growing byte buffer; data is NUL-terminated beyond len whenever anything was put in. */
struct buf {
	char *data;
	size_t len, cap;
};
#define BUF_INIT                                                                               \
	{                                                                                      \
		.data = NULL                                                                   \
	}
void buf_fini(struct buf *b);
void buf_reserve(struct buf *b, size_t more);
void buf_put(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
/* Drops the first n bytes. */
void buf_shift(struct buf *b, size_t n);
/* The bytes, for free(); the buffer is empty afterwards. Never NULL. */
char *buf_take(struct buf *b);
#define cleanup_buf __attribute__((cleanup(buf_fini)))

/* Lists of strings, as records hold them. */
struct strlist {
	char **v;
	size_t n;
};
void strlist_add(struct strlist *l, const char *s);
void strlist_fini(struct strlist *l);
bool strlist_has(const struct strlist *l, const char *s);
/* All that are equal; the others keep their order. */
void strlist_remove(struct strlist *l, const char *s);

/* Milliseconds and nanoseconds of CLOCK_MONOTONIC; wall clock in milliseconds since 1970. */
uint64_t now_ms(void);
uint64_t now_ns(void);
int64_t wall_ms(void);
#define RFC3339_SIZE sizeof("2026-01-02T03:04:05.678Z")
/* RFC 3339 in UTC, with milliseconds if asked; returns out. */
char *rfc3339_format(int64_t wall_ms, bool millis, char out[static RFC3339_SIZE]);

/* A whole decimal number within bounds, nothing around it. 0, or -1 when it is none. */
int parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret);

bool str_has_prefix(const char *s, const char *prefix);
/* NULL counts as equal to NULL only. */
bool str_equal(const char *a, const char *b);

/* RFC 3629; a NUL is a character like any other. */
bool utf8_valid(const char *text, size_t len);
/* Makes text fit for a log, a gRPC status or a terminal: control bytes become '?', invalid
 * UTF-8 becomes '?'. In place. */
void str_sanitize(char *s);
