/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Errors: what every fallible function here returns.
 *
 * A function that can fail returns int and takes a caller-owned `struct err *` as its last
 * parameter. 0 is success. Negative is failure, and then err is filled. Positive is an ordinary
 * outcome that the function documents. The message reads as a path, outermost context first:
 *
 *	preparing claim 1f0c…: device 'ens1f0': is not in the inventory
 *
 * Whoever originates an error calls err_set() (or err_errno() after a system call); whoever
 * forwards one may put context in front with err_wrap(). Nobody logs an error that it returns.
 */

#include <stdarg.h>
#include <stdbool.h>

#define ERR_MESSAGE_MAX 512 /* bytes with the NUL; longer texts end in "..." */

/* What kind of failure it is decides what a peer is told and whether it should try again. The
 * names are those of the RPC contract; gRPC codes are google.rpc.Code. */
enum err_kind {
	ERR_NONE = 0,
	ERR_NOT_FOUND, /* the thing named does not exist */
	ERR_INVALID,   /* the request or the configuration is wrong; repeating it cannot help */
	ERR_CONFLICT,  /* it exists, but in the hands of someone else */
	ERR_BUSY,      /* not now: a limit is reached or the work is under way */
	ERR_UNAVAILABLE, /* a process or kernel feature that is needed is not there */
	ERR_DEADLINE,    /* no answer in time; the work may or may not have been done */
	ERR_INTERNAL,    /* everything else, the kernel's refusals included */
	ERR_KIND_MAX
};

struct err {
	enum err_kind kind;
	int sys; /* errno of the system call behind it, 0 if none */
	char message[ERR_MESSAGE_MAX];
};

#define ERR_INIT                                                                               \
	{                                                                                      \
		.kind = ERR_NONE                                                               \
	}

/* One row a kind. */
struct err_kind_info {
	const char *name; /* on the wire and in logs */
	int grpc_code;
	bool retry; /* whether the same call may succeed later */
};

const struct err_kind_info *err_kind_info(enum err_kind kind);

/* The kind whose name is this; ERR_INTERNAL for a name from the future. */
enum err_kind err_kind_parse(const char *name);

/* The kind that an errno usually means: ENOENT not_found, EEXIST conflict, ... */
enum err_kind err_kind_of_errno(int sys);

/* Each returns -1, so that `return err_set(...)` reads well. err must not be NULL. */
int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));
int err_vset(struct err *err, enum err_kind kind, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0), cold));
/* Message is the text, then ": " and strerror(sys); the kind is err_kind_of_errno(sys). */
int err_errno(struct err *err, int sys, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));
/* Puts "text: " in front of the message that is there. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

void err_clear(struct err *err);

#ifdef __clang_analyzer__
/* An analyser sees one file at a time: the contract once more, in a form that it can follow. */
#define err_set(...)   (err_set(__VA_ARGS__), -1)
#define err_vset(...)  (err_vset(__VA_ARGS__), -1)
#define err_errno(...) (err_errno(__VA_ARGS__), -1)
#define err_wrap(...)  (err_wrap(__VA_ARGS__), -1)
#endif
