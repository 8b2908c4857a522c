/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Structured, levelled logging: one record is a level, a message and fields.
 *
 * Under systemd (JOURNAL_STREAM is set and names our stderr) records go to the journal in its
 * own datagram protocol, each field as NETCLAIM_<FIELD>; elsewhere each is one line on stderr:
 *
 *	2026-01-02T03:04:05.678Z info  statd: claim prepared claim=1f0c… pod=… devices=1
 *
 * Field names are the same in every daemon: claim, pod, sandbox, device, pool, manager, peer,
 * method, err. Logging never blocks and never fails; what cannot be written is counted and the
 * count is told with the next record that can.
 */

#include "common/err.h"

#include <stddef.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVEL_MAX };

struct log_field {
	const char *name;
	const char *value; /* a field whose value is NULL or "" is left out */
};

/* Opens the journal's socket if stderr is the journal. program: a string that stays. To be
 * called before the process confines itself. */
void log_init(const char *program, enum log_level max_level);
void log_set_level(enum log_level max_level);
/* 0 and *ret_level, or -1 for an unknown name. */
int log_level_parse(const char *name, enum log_level *ret_level);
bool log_enabled(enum log_level level);

void log_record(enum log_level level, const struct log_field *fields, size_t n_fields,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* log_info(F("claim", uid), F("pod", pod_uid)), "prepared %zu devices", n) is spelt
 *	LOG(INFO, FIELDS(F("claim", uid), F("pod", pod)), "prepared %zu devices", n);
 * and without fields
 *	LOG(INFO, NO_FIELDS, "ready"); */
#define F(name_, value_)                                                                       \
	{                                                                                      \
		.name = (name_), .value = (value_)                                             \
	}
#define FIELDS(...)                                                                            \
	(const struct log_field[]){__VA_ARGS__},                                               \
		sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field)
#define NO_FIELDS NULL, 0
#define LOG(level_, ...)                                                                       \
	do {                                                                                   \
		if (log_enabled(LOG_##level_))                                                 \
			log_record(LOG_##level_, __VA_ARGS__);                                 \
	} while (0)
