/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How the bench talks to its measuring peers: a command a line on standard input, an answer a line
 * on standard output. Times are CLOCK_MONOTONIC in nanoseconds, taken inside the peer, so that
 * neither this conversation nor the interpreter at its other end is in them.
 *
 * The first word of an answer is "ok", or "refused" where another try may help, or "error": then the
 * peer ends.
 */

#include <stddef.h>
#include <stdint.h>

struct lines_command {
	const char *name;
	size_t min_words; /* after the name */
	/* words[n] is NULL. Calls one of the functions below. */
	void (*run)(void *ctx, char **words, size_t n);
};

/* Serves commands until the end of the input. */
void lines_serve(const struct lines_command *commands, size_t n, void *ctx);

void lines_ok(const uint64_t *numbers, size_t n);
void lines_refuse(const char *text);
void lines_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* The same, with what errno says. */
void lines_fail_errno(const char *what) __attribute__((noreturn));
