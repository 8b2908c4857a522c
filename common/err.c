/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error object. A message that no longer fits loses its tail, never its head: the head says
 * where, and the caller's context is put in front of it.
 */
#include "common/err.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* gRPC codes: google/rpc/code.proto */
static const struct err_kind_info kinds[ERR_KIND_MAX] = {
	[ERR_NONE] = {"none", 0, false},
	[ERR_NOT_FOUND] = {"not_found", 5, true},
	[ERR_INVALID] = {"invalid", 3, false},
	[ERR_CONFLICT] = {"conflict", 9, true},
	[ERR_BUSY] = {"busy", 8, true},
	[ERR_UNAVAILABLE] = {"unavailable", 14, true},
	[ERR_DEADLINE] = {"deadline", 4, true},
	[ERR_INTERNAL] = {"internal", 13, true},
};

const struct err_kind_info *err_kind_info(enum err_kind kind)
{
	assert(kind < ERR_KIND_MAX);
	return &kinds[kind];
}

enum err_kind err_kind_parse(const char *name)
{
	for (int k = ERR_NONE + 1; k < ERR_KIND_MAX; k++)
		if (strcmp(kinds[k].name, name) == 0)
			return (enum err_kind)k;
	return ERR_INTERNAL;
}

enum err_kind err_kind_of_errno(int sys)
{
	switch (sys) {
	case ENOENT:
	case ENODEV:
	case ESRCH:
	case ENXIO: return ERR_NOT_FOUND;
	case EINVAL:
	case ENAMETOOLONG:
	case ERANGE: return ERR_INVALID;
	case EEXIST: return ERR_CONFLICT;
	case EBUSY:
	case EMFILE: /* descriptors that are free again in a moment */
	case ENFILE:
	case EAGAIN: return ERR_BUSY;
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
	case EOPNOTSUPP:
	case EAFNOSUPPORT: return ERR_UNAVAILABLE;
	case ETIMEDOUT: return ERR_DEADLINE;
	default: return ERR_INTERNAL;
	}
}

static void mark_cut(char *message)
{
	memcpy(message + ERR_MESSAGE_MAX - 4, "...", 4);
}

int(err_vset)(struct err *err, enum err_kind kind, const char *fmt, va_list ap)
{
	int n;

	assert(kind > ERR_NONE && kind < ERR_KIND_MAX);
	err->kind = kind;
	err->sys = 0;
	n = vsnprintf(err->message, sizeof(err->message), fmt, ap);
	if (n < 0 || n >= ERR_MESSAGE_MAX)
		mark_cut(err->message);
	return -1;
}

int(err_set)(struct err *err, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)err_vset(err, kind, fmt, ap);
	va_end(ap);
	return -1;
}

int(err_errno)(struct err *err, int sys, const char *fmt, ...)
{
	char text[ERR_MESSAGE_MAX], reason[128];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	(void)err_set(err, err_kind_of_errno(sys), "%s: %s", text,
		strerror_r(sys, reason, sizeof(reason)));
	err->sys = sys;
	return -1;
}

int(err_wrap)(struct err *err, const char *fmt, ...)
{
	char text[ERR_MESSAGE_MAX], tail[ERR_MESSAGE_MAX];
	va_list ap;
	int n;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	memcpy(tail, err->message, sizeof(tail));
	n = snprintf(err->message, sizeof(err->message), "%s: %s", text, tail);
	if (n < 0 || n >= ERR_MESSAGE_MAX)
		mark_cut(err->message);
	return -1;
}

void err_clear(struct err *err)
{
	err->kind = ERR_NONE;
	err->sys = 0;
	err->message[0] = '\0';
}
