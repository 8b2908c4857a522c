/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in a directory of our own. On a tmpfs, where it is meant to be, a version that is appended
 * costs some microseconds, and one that replaces its file some tens; on a disk both are as safe, since a
 * boot's records are worth nothing in the next.
 *
 * The claim's UID is the file's name and stands in the record as well: a file that was renamed by
 * hand is broken, not another claim's.
 */
#include "statd/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/check.h"
#include "common/file.h"
#include "common/log.h"
#include "common/util.h"

#define SUFFIX      ".json"
#define BOOT_FILE   "boot"
#define BOOT_ID     "/proc/sys/kernel/random/boot_id"
#define MAX_DEVICES 64 /* a claim has at most 32 results, and may hold as many that it let go of */
#define MAX_NAME    253
#define APPEND_MAX  4096 /* a page */

/* --- the record --------------------------------------------------------------------------- */

static const struct rec_field record_fields[] = {
	REC_INT(struct claim_record, version, "version", REC_REQUIRED, 1, INT64_MAX,
		"of this form"),
	REC_STR(struct claim_record, uid, "uid", REC_REQUIRED, MAX_NAME, check_uid,
		"of the ResourceClaim"),
	REC_STR(struct claim_record, namespace, "namespace", REC_REQUIRED, MAX_NAME,
		check_dns_label, "of the ResourceClaim"),
	REC_STR(struct claim_record, name, "name", REC_REQUIRED, MAX_NAME, check_dns_subdomain,
		"of the ResourceClaim"),
	REC_BOOL(struct claim_record, status_due, "statusDue", REC_OPTIONAL,
		"the claim's status is still to be written"),
	REC_RECS(struct claim_record, devices, "devices", REC_OPTIONAL, MAX_DEVICES,
		struct alloc_row, &rec_alloc_row, "what it holds"),
};

static int check_record(const void *rec, struct err *err)
{
	const struct claim_record *record = rec;

	if (record->version.v > RECORD_VERSION)
		return err_set(err, ERR_INVALID,
			"version: %lld is of a newer release than this, which knows %d",
			(long long)record->version.v, RECORD_VERSION);
	for (size_t i = 0; i < record->devices.n; i++) {
		const struct alloc_row *row = &record->devices.v[i];

		if (!str_equal(row->claim_uid, record->uid))
			return err_set(err, ERR_INVALID,
				"devices[%zu].ClaimUID: is %s, not that of the record", i,
				row->claim_uid ? row->claim_uid : "missing");
		if (!row->prepared || !row->pod_uid || !row->claim_namespace || !row->claim_name ||
			manager_type_parse(row->manager) == MANAGER_INVALID)
			return err_set(err, ERR_INVALID,
				"devices[%zu]: lacks its prepared device, pod, claim or manager", i);
	}
	return 0;
}

REC_DESC(rec_claim_record, struct claim_record, "claim record", record_fields, check_record,
	"what this node has prepared for a claim");

/* --- opening ------------------------------------------------------------------------------ */

static int read_boot_id(char out[static BOOT_ID_SIZE], struct err *err)
{
	cleanup_close int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, BOOT_ID_SIZE - 1);

	if (n < 0)
		return err_errno(err, errno, BOOT_ID);
	out[n] = '\0';
	if (n != BOOT_ID_SIZE - 1)
		return err_set(err, ERR_INTERNAL, BOOT_ID ": has %zd bytes", n);
	return 0;
}

/* As root for another user: what a start under another user left is taken over with it. */
static int give_to(int fd, const struct identity *owner, gid_t reader, mode_t mode,
	const char *what, struct err *err)
{
	if (geteuid() == 0 && fchown(fd, owner->uid, reader) < 0)
		return err_errno(err, errno, "%s: changing its owner", what);
	if (fchmod(fd, mode) < 0)
		return err_errno(err, errno, "%s: changing its mode", what);
	return 0;
}

static int open_dir(int at, const char *path, const struct identity *owner, gid_t reader,
	mode_t mode, struct err *err)
{
	cleanup_close int fd = -1;

	if (mkdirat(at, path, 0700) < 0 && errno != EEXIST)
		return err_errno(err, errno, "making directory %s", path);
	fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, errno, "opening directory %s", path);
	if (give_to(fd, owner, reader, mode, path, err) < 0)
		return -1;
	return take_fd(&fd);
}

/* Calls each(ctx, dir, entry) for the entries of a directory that do not begin with a dot. */
static int for_each_entry(int dir,
	void (*each)(void *ctx, int dir, const char *entry), void *ctx, struct err *err)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!stream) {
		(void)err_errno(err, errno, "listing a directory");
		close_fd(&fd);
		return -1;
	}
	while ((entry = readdir(stream)))
		if (entry->d_name[0] != '.' || file_is_temporary(entry->d_name, SUFFIX))
			each(ctx, dir, entry->d_name);
	(void)closedir(stream);
	return 0;
}

static void take_over(void *ctx, int dir, const char *entry)
{
	const struct identity *owner = ctx;

	if (fchownat(dir, entry, owner->uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		LOG(WARN, FIELDS(F("err", strerror(errno))), "record %s stays another user's",
			entry);
}

static int take_over_all(struct records *r, const struct identity *owner, struct err *err)
{
	struct identity copy = *owner;

	if (geteuid() != 0)
		return 0;
	if (for_each_entry(r->claims_fd, take_over, &copy, err) < 0)
		return -1;
	return for_each_entry(r->pods_fd, take_over, &copy, err);
}

int records_open(struct records *r, const char *path, const struct identity *owner,
	gid_t reader, struct err *err)
{
	struct statfs fs;
	struct stat st;

	*r = (struct records){.path = xstrdup(path), .dir_fd = -1, .claims_fd = -1, .pods_fd = -1};
	if (read_boot_id(r->boot_id, err) < 0)
		return -1;
	r->dir_fd = open_dir(AT_FDCWD, path, owner, reader, 0750, err);
	if (r->dir_fd < 0)
		return err_wrap(err, "state directory");
	r->claims_fd = open_dir(r->dir_fd, "claims", owner, reader, 0700, err);
	if (r->claims_fd >= 0)
		r->pods_fd = open_dir(r->dir_fd, "pods", owner, reader, 0750, err);
	if (r->pods_fd < 0 || take_over_all(r, owner, err) < 0)
		return err_wrap(err, "state directory %s", path);
	if (fstat(r->dir_fd, &st) < 0)
		return err_errno(err, errno, "state directory %s", path);
	if (fstatfs(r->dir_fd, &fs) < 0)
		return err_errno(err, errno, "state directory %s", path);
	r->on_disk = fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC;
	r->dev = (int64_t)st.st_dev;
	r->ino = (int64_t)st.st_ino;
	return 0;
}

void records_close(struct records *r)
{
	if (!r->path)
		return;
	close_fd(&r->dir_fd);
	close_fd(&r->claims_fd);
	close_fd(&r->pods_fd);
	free(r->path);
	*r = (struct records){.dir_fd = -1, .claims_fd = -1, .pods_fd = -1};
}

/* --- reading ------------------------------------------------------------------------------ */

static int read_file(int dir, const char *name, size_t max, struct buf *to, struct err *err)
{
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", name);
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)max)
		return err_set(err, ERR_INVALID,
			"%s: is not a file of at most %zu bytes", name, max);
	buf_reserve(to, (size_t)st.st_size + 1);
	n = read(fd, to->data, (size_t)st.st_size);
	if (n < 0)
		return err_errno(err, errno, "%s", name);
	to->len = (size_t)n;
	to->data[n] = '\0';
	return 0;
}

/* A row's share is always shown (api.c), and empty if there is none. */
static void unset_empty_shares(struct claim_record *record)
{
	for (size_t i = 0; i < record->devices.n; i++) {
		struct alloc_row *row = &record->devices.v[i];

		if (row->share_id && !*row->share_id)
			free(take_ptr(row->share_id));
	}
}

/* The last line: what follows the last end of a line that has anything behind it. */
static json_t *load_version(const struct buf *text, json_error_t *where)
{
	size_t end = text->len, begin;

	while (end > 0 && text->data[end - 1] == '\n')
		end--;
	for (begin = end; begin > 0 && text->data[begin - 1] != '\n';)
		begin--;
	return json_loadb(text->data + begin, end - begin,
		JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, where);
}

static int parse_record(
	const struct buf *text, const char *uid, struct claim_record *ret, struct err *err)
{
	json_error_t where;
	json_t *tree = load_version(text, &where);
	int rc;

	if (!tree)
		return err_set(err, ERR_INVALID, "its last line: %s", where.text);
	rc = rec_decode(&rec_claim_record, tree, REC_LENIENT, "", NULL, ret, err);
	json_decref(tree);
	if (rc < 0)
		return -1;
	unset_empty_shares(ret);
	if (strcmp(ret->uid, uid) == 0)
		return 0;
	(void)err_set(err, ERR_INVALID, "uid: is %s, not that of the file's name", ret->uid);
	rec_fini(&rec_claim_record, ret);
	return -1;
}

/* What the names of devices follow in a record: compact JSON, so without white space. */
#define DEVICE_NAME "\"DeviceName\":\""

/* In a text that is not a record any more, cut off or written over. */
static void salvage_devices(const struct buf *text, struct strlist *ret)
{
	const char *at = text->data, *end = text->data + text->len;

	while (at && (at = memmem(at, (size_t)(end - at), DEVICE_NAME, strlen(DEVICE_NAME)))) {
		cleanup_free char *name = NULL;
		struct err err;

		at += strlen(DEVICE_NAME);
		name = xmemdup0(at, strcspn(at, "\""));
		if (ret->n < MAX_DEVICES && check_dns_label(name, &err) == 0)
			strlist_add(ret, name);
	}
}

static int load_record(int dir, const char *file, const char *uid, struct claim_record *ret,
	struct strlist *ret_devices, struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT;

	if (read_file(dir, file, RECORD_MAX, &text, err) < 0)
		return -1;
	if (parse_record(&text, uid, ret, err) == 0)
		return 0;
	salvage_devices(&text, ret_devices);
	return err_wrap(err, "%s", file);
}

struct reading {
	const struct records_visitor *visitor;
	void *ctx;
};

static void read_entry(void *ctx, int dir, const char *entry)
{
	size_t len = strlen(entry), suffix = strlen(SUFFIX);
	struct claim_record record = {0};
	struct reading *reading = ctx;
	cleanup_free char *uid = NULL;
	struct strlist devices = {0};
	struct err err = ERR_INIT;

	if (file_is_temporary(entry, SUFFIX)) {
		(void)unlinkat(dir, entry, 0);
		return;
	}
	if (len <= suffix || strcmp(entry + len - suffix, SUFFIX) != 0)
		return;
	uid = xmemdup0(entry, len - suffix);
	if (check_uid(uid, &err) < 0)
		return;
	if (load_record(dir, entry, uid, &record, &devices, &err) < 0)
		reading->visitor->broken(reading->ctx, uid, &devices, &err);
	else
		reading->visitor->record(reading->ctx, &record);
	strlist_fini(&devices);
}

static void remove_entry(void *ctx UNUSED, int dir, const char *entry)
{
	(void)unlinkat(dir, entry, 0);
}

/* What another boot has left says nothing of this one's kernel. */
static int empty(struct records *r, struct err *err)
{
	if (for_each_entry(r->claims_fd, remove_entry, NULL, err) < 0 ||
		for_each_entry(r->pods_fd, remove_entry, NULL, err) < 0)
		return -1;
	return 0;
}

/* Whether the directory's records are of this boot; one without the file has none that count: it is
 * new, or its first restore was not completed. Then *ret_other says whether they are another's. */
static bool is_of_this_boot(struct records *r, bool *ret_other)
{
	cleanup_buf struct buf id = BUF_INIT;
	struct err err;

	*ret_other = false;
	if (read_file(r->dir_fd, BOOT_FILE, BOOT_ID_SIZE, &id, &err) < 0)
		return false;
	*ret_other = strncmp(id.data, r->boot_id, BOOT_ID_SIZE - 1) != 0;
	return !*ret_other;
}

int records_read(struct records *r, const struct records_visitor *v, void *ctx, struct err *err)
{
	struct reading reading = {v, ctx};
	bool other;

	r->complete = is_of_this_boot(r, &other);
	if (other) {
		LOG(INFO, NO_FIELDS, "the records in %s are of an earlier boot; removing them",
			r->path);
		(void)unlinkat(r->dir_fd, BOOT_FILE, 0);
		if (empty(r, err) < 0)
			return err_wrap(err, "state directory %s", r->path);
	}
	if (for_each_entry(r->claims_fd, read_entry, &reading, err) < 0)
		return err_wrap(err, "state directory %s", r->path);
	return 0;
}

int records_set_complete(struct records *r, struct err *err)
{
	if (r->complete)
		return 0;
	if (file_write_unsynced(
		    r->dir_fd, BOOT_FILE, r->boot_id, strlen(r->boot_id), 0640, err) < 0)
		return err_wrap(err, "state directory %s", r->path);
	r->complete = true;
	return 0;
}

/* --- writing ------------------------------------------------------------------------------ */

static char *file_of(const char *uid)
{
	return xasprintf("%s" SUFFIX, uid);
}

/* 1: it would be more than a page. */
static int append(int dir, const char *file, const struct buf *line, struct err *err)
{
	cleanup_close int fd = -1;
	struct stat st;
	size_t skip;
	ssize_t n;

	if (line->len > APPEND_MAX)
		return 1;
	fd = openat(dir, file,
		O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", file);
	if (st.st_size + (off_t)line->len > APPEND_MAX)
		return 1;
	/* the end of the line before it */
	skip = st.st_size > 0 ? 0 : 1;
	n = write(fd, line->data + skip, line->len - skip);
	if (n == (ssize_t)(line->len - skip))
		return 0;
	(void)err_errno(err, n < 0 ? errno : ENOSPC, "%s: writing", file);
	/* as it was; if that fails as well, the record is broken, and its devices held */
	(void)(st.st_size > 0 ? ftruncate(fd, st.st_size) : unlinkat(dir, file, 0));
	return -1;
}

static void put_text(json_t *tree, struct buf *to)
{
	size_t room = to->cap - to->len;
	size_t len = json_dumpb(tree, to->data + to->len, room, JSON_COMPACT);

	if (len > room) {
		buf_reserve(to, len);
		len = json_dumpb(tree, to->data + to->len, len, JSON_COMPACT);
	}
	to->len += len;
}

int records_write(const struct records *r, const struct claim_record *record, struct err *err)
{
	cleanup_free char *file = file_of(record->uid);
	json_t *tree = rec_encode(&rec_claim_record, record);
	cleanup_buf struct buf line = BUF_INIT;
	int rc;

	buf_reserve(&line, APPEND_MAX);
	buf_puts(&line, "\n");
	put_text(tree, &line);
	json_decref(tree);
	if (line.len == 1 || line.len > RECORD_MAX)
		return err_set(err, ERR_INTERNAL, "record of claim %s: has %zu bytes, not 1 to %u",
			record->uid, line.len - 1, RECORD_MAX - 1);
	rc = append(r->claims_fd, file, &line, err);
	if (rc > 0)
		rc = file_write_unsynced(
			r->claims_fd, file, line.data + 1, line.len - 1, 0600, err);
	return rc < 0 ? err_wrap(err, "state directory %s", r->path) : 0;
}

int records_remove(const struct records *r, const char *uid, struct err *err)
{
	cleanup_free char *file = file_of(uid);

	if (unlinkat(r->claims_fd, file, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "state directory %s: removing %s", r->path, file);
	return 0;
}

bool records_has(const struct records *r, const char *uid)
{
	cleanup_free char *file = file_of(uid);

	return faccessat(r->claims_fd, file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --- pods --------------------------------------------------------------------------------- */

int records_pod_add(const struct records *r, const char *pod_uid, struct err *err)
{
	cleanup_close int fd = openat(r->pods_fd, pod_uid,
		O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0640);

	if (fd < 0)
		return err_errno(err, errno, "state directory %s: pods/%s", r->path, pod_uid);
	return 0;
}

void records_pod_remove(const struct records *r, const char *pod_uid)
{
	/* one that stays makes nrihookd ask about a pod that has no claim, and is pruned at the
	 * next start */
	if (unlinkat(r->pods_fd, pod_uid, 0) < 0 && errno != ENOENT)
		LOG(WARN, FIELDS(F("pod", pod_uid), F("err", strerror(errno))),
			"the record of a pod could not be removed");
}

struct pruning {
	bool (*keep)(void *ctx, const char *pod_uid);
	void *ctx;
};

static void prune_entry(void *ctx, int dir, const char *entry)
{
	const struct pruning *p = ctx;

	if (!p->keep(p->ctx, entry))
		(void)unlinkat(dir, entry, 0);
}

void records_pods_prune(
	const struct records *r, bool (*keep)(void *ctx, const char *pod_uid), void *ctx)
{
	struct pruning p = {keep, ctx};
	struct err err;

	if (for_each_entry(r->pods_fd, prune_entry, &p, &err) < 0)
		LOG(WARN, FIELDS(F("err", err.message)), "records of pods are not pruned");
}
