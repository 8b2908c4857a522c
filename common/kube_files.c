/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files are opened by this process, or by the reader if there is one, which answers later: at once
 * in all likelihood, but a file system that hangs must not hang the loop. All files are asked for
 * together, and what came is used when all are there, so that a certificate and its key change at
 * once. One that changed alone does not fit the other, and fails the connection that uses it; the
 * next one reads both again.
 */
#include "common/kube_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/kube_reader.h"
#include "common/log.h"
#include "common/util.h"

/* For opening local files. */
#define READER_MS 5000

struct kube_files {
	const struct kube_access *access;
	struct kube_credentials *now;
	char *texts[KUBE_FILES]; /* read, while others are not yet */
	unsigned at;             /* the next answer is about this file */
	bool busy, failed, complained; /* failed: one of this reading's files was not read */
	void (*read)(void *ctx);
	void *ctx;
	uv_poll_t poll;
	uv_timer_t timer;
	bool has_poll, freed;
	unsigned n_handles;
};

/* --- credentials -------------------------------------------------------------------------- */

static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

struct kube_credentials *kube_credentials_ref(struct kube_credentials *c)
{
	c->refs++;
	return c;
}

void kube_credentials_unref(struct kube_credentials *c)
{
	if (!c || --c->refs > 0)
		return;
	free(c->ca);
	free(c->cert);
	wipe(c->key);
	free(c);
}

static struct kube_credentials *credentials_new(
	unsigned generation, const char *ca, const char *cert, const char *key)
{
	struct kube_credentials *c = xcalloc(1, sizeof(*c));

	*c = (struct kube_credentials){
		.refs = 1,
		.generation = generation,
		.ca = xstrdup_opt(ca),
		.cert = xstrdup_opt(cert),
		.key = xstrdup_opt(key),
	};
	return c;
}

/* --- the end of a reading ----------------------------------------------------------------- */

static void forget_texts(struct kube_files *f)
{
	for (unsigned i = 0; i < KUBE_FILES; i++)
		wipe(take_ptr(f->texts[i]));
}

static const char *newer(const char *read, const char *now)
{
	return read ? read : now;
}

static void use_texts(struct kube_files *f)
{
	struct kube_credentials *now = f->now;
	const char *ca = newer(f->texts[KUBE_FILE_CA], now->ca),
		   *cert = newer(f->texts[KUBE_FILE_CERT], now->cert),
		   *key = newer(f->texts[KUBE_FILE_KEY], now->key);

	if (!str_equal(ca, now->ca) || !str_equal(cert, now->cert) ||
		!str_equal(key, now->key)) {
		f->now = credentials_new(now->generation + 1, ca, cert, key);
		kube_credentials_unref(now);
		LOG(INFO, NO_FIELDS, "certificates of the API server's access were replaced");
	}
	forget_texts(f);
	f->complained &= f->failed;
	f->failed = false;
}

static void complain(struct kube_files *f, unsigned file, const struct err *why)
{
	struct err err = *why;

	(void)err_wrap(&err, "%s", f->access->files[file]);
	f->failed = true;
	if (!f->complained)
		LOG(WARN, FIELDS(F("err", err.message)),
			"a certificate or key of the API server's access cannot be read again, "
			"the old one is used");
	f->complained = true;
}

/* The next file that has a name, from this one on. */
static unsigned next_named(const struct kube_files *f, unsigned file)
{
	while (file < KUBE_FILES && !f->access->files[file])
		file++;
	return file;
}

/* --- by this process ---------------------------------------------------------------------- */

static void read_one(struct kube_files *f, unsigned file, int fd)
{
	struct err err = ERR_INIT;

	if (kube_access_read_pem(fd, &f->texts[file], &err) < 0)
		complain(f, file, &err);
}

static void read_directly(struct kube_files *f)
{
	for (unsigned i = next_named(f, 0); i < KUBE_FILES; i = next_named(f, i + 1)) {
		cleanup_close int fd = open(
			f->access->files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		struct err err;

		if (fd >= 0) {
			read_one(f, i, fd);
			continue;
		}
		(void)err_errno(&err, errno, "opening it");
		complain(f, i, &err);
	}
	use_texts(f);
}

/* --- by the reader ------------------------------------------------------------------------ */

static void reading_ended(struct kube_files *f)
{
	f->busy = false;
	(void)uv_timer_stop(&f->timer);
	use_texts(f);
	f->read(f->ctx);
}

static void stop_polling(struct kube_files *f);

/* Nothing was asked for: it is the reader's end. */
static void reader_ended(struct kube_files *f)
{
	struct err err;
	int fd = -1;

	if (kube_reader_take(f->access->reader, &fd, &err) >= 0) {
		close_fd(&fd);
		return;
	}
	LOG(ERROR, FIELDS(F("err", err.message)),
		"certificates of the API server's access are not read again any more: restart "
		"this program before they expire");
	stop_polling(f);
}

static void on_answer(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
	struct kube_files *f = poll->data;

	if (!f->busy) {
		reader_ended(f);
		return;
	}
	while (f->busy && f->at < KUBE_FILES) {
		struct err err = ERR_INIT;
		int fd, r = kube_reader_take(f->access->reader, &fd, &err);

		if (r > 0)
			return;
		if (r == 0) {
			read_one(f, f->at, fd);
			(void)close(fd);
		} else {
			complain(f, f->at, &err);
		}
		f->at = err.kind == ERR_UNAVAILABLE ? KUBE_FILES : next_named(f, f->at + 1);
		if (err.kind == ERR_UNAVAILABLE)
			stop_polling(f);
	}
	if (f->busy)
		reading_ended(f);
}

/* An answer that comes later than this would be taken for one to the next request. */
static void on_late(uv_timer_t *timer)
{
	struct kube_files *f = timer->data;
	struct err err;

	(void)err_set(&err, ERR_DEADLINE, "not opened within %d s", READER_MS / 1000);
	complain(f, f->at, &err);
	stop_polling(f);
	reading_ended(f);
}

static void ask_reader(struct kube_files *f)
{
	struct err err;

	f->at = next_named(f, 0);
	for (unsigned i = f->at; i < KUBE_FILES; i = next_named(f, i + 1)) {
		if (kube_reader_ask(f->access->reader, i, &err) < 0) {
			complain(f, i, &err);
			stop_polling(f);
			return;
		}
	}
	f->busy = true;
	(void)uv_timer_start(&f->timer, on_late, READER_MS, 0);
}

bool kube_files_refresh(struct kube_files *f)
{
	if (f->busy)
		return true;
	if (!f->access->reader)
		read_directly(f);
	else if (f->has_poll)
		ask_reader(f);
	return f->busy;
}

bool kube_files_is_busy(const struct kube_files *f)
{
	return f->busy;
}

struct kube_credentials *kube_files_credentials(const struct kube_files *f)
{
	return f->now;
}

/* --- beginning and end -------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
	struct kube_files *f = handle->data;

	if (--f->n_handles == 0 && f->freed)
		free(f);
}

static void stop_polling(struct kube_files *f)
{
	if (!f->has_poll)
		return;
	f->has_poll = false;
	(void)uv_poll_stop(&f->poll);
	uv_close((uv_handle_t *)&f->poll, on_closed);
}

struct kube_files *kube_files_new(uv_loop_t *loop, const struct kube_access *access,
	void (*read)(void *ctx), void *ctx)
{
	struct kube_files *f = xcalloc(1, sizeof(*f));
	int fd = access->reader ? kube_reader_fd(access->reader) : -1;

	f->access = access;
	f->now = credentials_new(0, access->ca, access->cert, access->key);
	f->read = read;
	f->ctx = ctx;
	(void)uv_timer_init(loop, &f->timer);
	f->timer.data = f;
	f->n_handles = 1;
	if (fd < 0 || uv_poll_init(loop, &f->poll, fd) < 0)
		return f;
	f->poll.data = f;
	f->n_handles++;
	f->has_poll = true;
	(void)uv_poll_start(&f->poll, UV_READABLE, on_answer);
	return f;
}

void kube_files_free(struct kube_files *f)
{
	if (!f)
		return;
	f->busy = false;
	f->freed = true;
	forget_texts(f);
	kube_credentials_unref(f->now);
	stop_polling(f);
	uv_close((uv_handle_t *)&f->timer, on_closed);
}
