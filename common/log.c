/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging to the journal or to stderr.
 *
 * A record is put together in one buffer and leaves in one write: lines of several processes
 * that share a stderr do not mix. Whether stderr is the journal is what systemd says about
 * itself: the device and inode in JOURNAL_STREAM (systemd.exec(5)). The journal's datagram
 * format is a line KEY=value per field, or KEY, newline, 64-bit little-endian length, value
 * when the value holds a newline (systemd.io/JOURNAL_NATIVE_PROTOCOL). A record too long for a
 * datagram is cut: messages are bounded, so only a field could be that long.
 *
 * This is the one module with state of its own: a log is the process's, and every function may
 * need it.
 */
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/util.h"

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
#define FIELD_MAX      1024 /* bytes of a field's value in a record */

static struct {
	const char *program;
	enum log_level max_level;
	int journal_fd;
	unsigned long lost;
} state = {.program = "netclaim", .max_level = LOG_INFO, .journal_fd = -1};

/* Priorities: syslog(3). */
static const struct {
	const char *name, *padded;
	int priority;
} levels[LOG_LEVEL_MAX] = {
	[LOG_ERROR] = {"error", "error", 3},
	[LOG_WARN] = {"warn", "warn ", 4},
	[LOG_INFO] = {"info", "info ", 6},
	[LOG_DEBUG] = {"debug", "debug", 7},
};

static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char is[64];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st) < 0)
		return false;
	(void)snprintf(is, sizeof(is), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(stream, is) == 0;
}

static int journal_open(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
		close_fd(&fd);
	return fd;
}

void log_init(const char *program, enum log_level max_level)
{
	state.program = program;
	state.max_level = max_level;
	if (state.journal_fd < 0 && stderr_is_journal())
		state.journal_fd = journal_open();
}

void log_set_level(enum log_level max_level)
{
	state.max_level = max_level;
}

int log_level_parse(const char *name, enum log_level *ret_level)
{
	for (int l = 0; l < LOG_LEVEL_MAX; l++)
		if (strcmp(levels[l].name, name) == 0) {
			*ret_level = (enum log_level)l;
			return 0;
		}
	return -1;
}

bool log_enabled(enum log_level level)
{
	return level <= state.max_level;
}

/* A value is quoted when it would not read as one word. */
static void put_line_value(struct buf *b, const char *value)
{
	bool plain = strpbrk(value, " \t\n\"=\\") == NULL;

	if (plain) {
		buf_put(b, value, strnlen(value, FIELD_MAX));
		return;
	}
	buf_puts(b, "\"");
	for (size_t i = 0; i < FIELD_MAX && value[i]; i++) {
		if (value[i] == '"' || value[i] == '\\')
			buf_puts(b, "\\");
		if (value[i] == '\n')
			buf_puts(b, "\\n");
		else
			buf_put(b, &value[i], 1);
	}
	buf_puts(b, "\"");
}

static void format_line(struct buf *b, enum log_level level, const char *message,
	const struct log_field *fields, size_t n_fields)
{
	char time[RFC3339_SIZE];

	buf_printf(b, "%s %s %s: %s", rfc3339_format(wall_ms(), true, time),
		levels[level].padded, state.program, message);
	for (size_t i = 0; i < n_fields; i++)
		if (fields[i].value && *fields[i].value) {
			buf_printf(b, " %s=", fields[i].name);
			put_line_value(b, fields[i].value);
		}
	if (state.lost)
		buf_printf(b, " lost_records=%lu", state.lost);
	buf_puts(b, "\n");
}

static void put_journal_field(struct buf *b, const char *key, const char *value)
{
	size_t len = strnlen(value, FIELD_MAX);

	buf_puts(b, key);
	if (!memchr(value, '\n', len)) {
		buf_puts(b, "=");
	} else {
		uint8_t le[8];

		for (int i = 0; i < 8; i++)
			le[i] = (uint8_t)((uint64_t)len >> (8 * i));
		buf_puts(b, "\n");
		buf_put(b, le, sizeof(le));
	}
	buf_put(b, value, len);
	buf_puts(b, "\n");
}

static void format_journal(struct buf *b, enum log_level level, const char *message,
	const struct log_field *fields, size_t n_fields)
{
	buf_printf(b, "PRIORITY=%d\nSYSLOG_IDENTIFIER=%s\n", levels[level].priority,
		state.program);
	put_journal_field(b, "MESSAGE", message);
	for (size_t i = 0; i < n_fields; i++) {
		char key[64] = "NETCLAIM_";
		size_t at = strlen(key);

		if (!fields[i].value || !*fields[i].value)
			continue;
		for (const char *c = fields[i].name; *c && at < sizeof(key) - 1; c++)
			key[at++] = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
		key[at] = '\0';
		put_journal_field(b, key, fields[i].value);
	}
}

void log_record(enum log_level level, const struct log_field *fields, size_t n_fields,
	const char *fmt, ...)
{
	cleanup_buf struct buf record = BUF_INIT;
	char message[ERR_MESSAGE_MAX + 256];
	int saved_errno = errno;
	va_list ap;
	ssize_t n;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	if (vsnprintf(message, sizeof(message), fmt, ap) < 0)
		message[0] = '\0';
	va_end(ap);
	str_sanitize(message);
	if (state.journal_fd >= 0) {
		format_journal(&record, level, message, fields, n_fields);
		n = send(
			state.journal_fd, record.data, record.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	} else {
		format_line(&record, level, message, fields, n_fields);
		n = write(STDERR_FILENO, record.data, record.len);
	}
	if (n < 0)
		state.lost++;
	else
		state.lost = 0;
	errno = saved_errno;
}
