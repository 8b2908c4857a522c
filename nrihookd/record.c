/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's record of pods.
 *
 * A name that is missing lets a pod start without a call to statd, so nothing else may look like
 * a missing name:
 *   - statd reports device and inode of its state directory, and only a directory that has these
 *     is believed: not an empty one at the same path, as where a mount is missing.
 *   - The directory stays open, so that its inode number is not used again, and at each lookup
 *     the path must still lead to it.
 *   - It is believed from when statd was ready with it: one that is new is filled until then.
 *   - Names that cannot be looked up, and a record without its directory of pods, are a problem
 *     and no answer.
 *
 * What was believed once stays so while statd is away.
 */
#include "nrihookd/record.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/util.h"

#define PODS    "pods/"
#define UID_MAX 63 /* check_uid() */

/* --- problems ----------------------------------------------------------------------------- */

const char *record_problem(const struct record *r)
{
	return r->problem;
}

static void set_problem(struct record *r, const char *problem)
{
	if (str_equal(r->problem, problem))
		return;
	if (*problem)
		LOG(WARN, FIELDS(F("err", problem)),
			"no use of the node's record: while statd is away, new pods wait for it");
	else
		LOG(INFO, FIELDS(F("directory", r->path)), "the node's record can be read");
	(void)snprintf(r->problem, sizeof(r->problem), "%s", problem);
	r->changed(r->ctx);
}

/* --- the directory ------------------------------------------------------------------------ */

static bool is_the_one(const struct record *r, const struct stat *st)
{
	return st->st_dev == r->dev && st->st_ino == r->ino;
}

static int is_another(const struct record *r, struct err *err)
{
	return err_set(err, ERR_CONFLICT,
		"%s is not the state directory of statd: give both the same --state-dir, and "
		"the same mount of it",
		r->path);
}

static int open_dir(struct record *r, struct err *err)
{
	cleanup_close int dir = open(r->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (dir < 0 || fstat(dir, &st) < 0)
		return err_errno(err, errno, "statd's state directory %s", r->path);
	if (!is_the_one(r, &st))
		return is_another(r, err);
	r->dir = take_fd(&dir);
	return 0;
}

/* The directory that statd means is open, and is what the path leads to. */
static int check_dir(struct record *r, struct err *err)
{
	struct stat st;

	if (r->dir < 0)
		return open_dir(r, err);
	if (stat(r->path, &st) < 0)
		return err_errno(err, errno, "statd's state directory %s", r->path);
	return is_the_one(r, &st) ? 0 : is_another(r, err);
}

/* Names in it can be looked up. */
static int check_pods(const struct record *r, struct err *err)
{
	struct stat st;

	if (fstatat(r->dir, PODS ".", &st, 0) < 0)
		return err_errno(err, errno, "%s/" PODS, r->path);
	return 0;
}

/* Positive if it is there, 0 if not. */
static int look_up(const struct record *r, const char *pod_uid, struct err *err)
{
	char name[sizeof(PODS) + UID_MAX];
	struct stat st;

	(void)snprintf(name, sizeof(name), PODS "%s", pod_uid);
	if (fstatat(r->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	if (errno != ENOENT)
		return err_errno(err, errno, "%s/" PODS, r->path);
	return check_pods(r, err);
}

/* --- for the owner ------------------------------------------------------------------------ */

void record_init(struct record *r, const char *path, void (*changed)(void *ctx), void *ctx)
{
	*r = (struct record){.changed = changed, .ctx = ctx, .path = path, .dir = -1};
}

void record_fini(struct record *r)
{
	close_fd(&r->dir);
}

static bool is_named(const struct record *r, const struct front_hello_result *settings)
{
	return r->named && (uint64_t)r->dev == (uint64_t)settings->state_dev.v &&
	       (uint64_t)r->ino == (uint64_t)settings->state_ino.v;
}

void record_hello(struct record *r, const struct front_hello_result *settings)
{
	struct err err = ERR_INIT;

	if (!settings->state_dev.set || !settings->state_ino.set) {
		close_fd(&r->dir);
		r->named = r->trusted = false;
		set_problem(r, "this statd does not report a state directory: update it");
		return;
	}
	if (!is_named(r, settings)) {
		close_fd(&r->dir);
		r->dev = (dev_t)settings->state_dev.v;
		r->ino = (ino_t)settings->state_ino.v;
		r->named = true;
		r->trusted = false;
	}
	if (check_dir(r, &err) < 0 || check_pods(r, &err) < 0)
		set_problem(r, err.message);
	else
		set_problem(r, "");
}

void record_ready(struct record *r)
{
	r->trusted = r->named;
}

enum record_answer record_find(struct record *r, const char *pod_uid)
{
	struct err err = ERR_INIT;
	int found;

	if (!r->trusted)
		return RECORD_UNKNOWN;
	found = check_dir(r, &err);
	if (found == 0)
		found = look_up(r, pod_uid, &err);
	set_problem(r, found < 0 ? err.message : "");
	if (found < 0)
		return RECORD_UNKNOWN;
	return found > 0 ? RECORD_HAS : RECORD_HAS_NOT;
}
