/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory is opened anew each time: it lives in /run, belongs to everybody who writes CDI
 * specifications, and may be removed and made again behind our back.
 *
 * A file is not synced: the directory is in memory on a node, and after a reboot the kubelet
 * prepares every claim again, which compares the whole file and replaces what differs.
 *
 * Which requests a claim has is known from its metadata directory, so that the files of one claim
 * are removed by name, among those of a thousand others. The directory is listed only when that
 * does not account for all of them, and at the start for temporary files.
 */
#include "draplugind/cdi.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "draplugind/tree.h"

/* The first version that lets a device's name begin with a digit, as UIDs do. */
#define CDI_VERSION "0.5.0"
#define CDI_CLASS   "metadata"
#define SUFFIX      ".json"

char *cdi_device_id(const struct cdi *cdi, const char *claim_uid, const char *request)
{
	return xasprintf("%s/" CDI_CLASS "=%s_%s", cdi->driver, claim_uid, request);
}

static int open_dir(const struct cdi *cdi, struct err *err)
{
	int fd = open(cdi->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_errno(err, errno, "CDI directory %s", cdi->dir) : fd;
}

static int make_and_open_dir(const struct cdi *cdi, struct err *err)
{
	int fd = open_dir(cdi, err);

	if (fd >= 0 || err->sys != ENOENT)
		return fd;
	if (mkdir(cdi->dir, 0755) == 0) {
		if (chmod(cdi->dir, 0755) < 0)
			return err_errno(err, errno, "mode of CDI directory %s", cdi->dir);
	} else if (errno != EEXIST) {
		return err_errno(err, errno, "making CDI directory %s", cdi->dir);
	}
	return open_dir(cdi, err);
}

/* What every file of a claim starts with. A UID holds no underscore: no other claim's files do. */
static char *file_prefix(const struct cdi *cdi, const char *claim_uid)
{
	return xasprintf("%s_" CDI_CLASS "_%s_", cdi->driver, claim_uid);
}

static char *file_name(const struct cdi *cdi, const char *claim_uid, const char *request)
{
	cleanup_free char *prefix = file_prefix(cdi, claim_uid);

	return xasprintf("%s%s" SUFFIX, prefix, request);
}

static char *format_spec(const struct cdi *cdi, const char *claim_uid, const char *request,
	const char *host_path, const char *container_path)
{
	cleanup_free char *kind = xasprintf("%s/" CDI_CLASS, cdi->driver);
	cleanup_free char *device = xasprintf("%s_%s", claim_uid, request);
	json_t *spec = json_pack("{s:s, s:s, s:[{s:s, s:{s:[{s:s, s:s, s:[s, s]}]}}]}",
		"cdiVersion", CDI_VERSION, "kind", kind, "devices", "name", device,
		"containerEdits", "mounts", "hostPath", host_path, "containerPath",
		container_path, "options", "ro", "bind");
	char *text = json_dumps(spec, JSON_INDENT(2));

	json_decref(spec);
	return text;
}

int cdi_write(const struct cdi *cdi, const char *claim_uid, const char *request,
	const char *host_path, const char *container_path, struct err *err)
{
	cleanup_free char *name = file_name(cdi, claim_uid, request);
	cleanup_free char *spec =
		format_spec(cdi, claim_uid, request, host_path, container_path);
	cleanup_close int dir = make_and_open_dir(cdi, err);

	if (dir < 0)
		return -1;
	if (!spec)
		return err_set(
			err, ERR_INTERNAL, "CDI specification %s: cannot be formatted", name);
	if (tree_holds(dir, name, spec, strlen(spec)))
		return 0;
	if (file_write_unsynced(dir, name, spec, strlen(spec), 0644, err) < 0)
		return err_wrap(err, "CDI directory %s", cdi->dir);
	return 0;
}

static bool has_suffix(const char *text, const char *suffix)
{
	size_t len = strlen(text), suffix_len = strlen(suffix);

	return len >= suffix_len && strcmp(text + len - suffix_len, suffix) == 0;
}

/* --- removing -------------------------------------------------------------------------------- */

static bool is_spec(const char *entry, const char *prefix)
{
	return str_has_prefix(entry, prefix) && has_suffix(entry, SUFFIX);
}

/* The temporary file of a specification that was being written when the process was killed. */
static bool is_leftover(const char *entry, const char *prefix)
{
	return entry[0] == '.' && str_has_prefix(entry + 1, prefix) &&
	       file_is_temporary(entry, SUFFIX);
}

static int remove_matching(int dir, bool (*matches)(const char *entry, const char *prefix),
	const char *prefix, struct err *err)
{
	struct strlist entries = {0};
	int r = tree_list(dir, &entries, err);

	for (size_t i = 0; r == 0 && i < entries.n; i++) {
		const char *entry = entries.v[i];

		if (!matches(entry, prefix))
			continue;
		if (unlinkat(dir, entry, 0) < 0 && errno != ENOENT)
			r = err_errno(err, errno, "removing %s", entry);
	}
	strlist_fini(&entries);
	return r;
}

/* 1: at least one was missing. */
static int remove_named(const struct cdi *cdi, int dir, const char *claim_uid,
	const struct strlist *requests, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < requests->n; i++) {
		cleanup_free char *name = file_name(cdi, claim_uid, requests->v[i]);

		if (unlinkat(dir, name, 0) == 0)
			continue;
		/* an entry of the metadata directory that no request can have made */
		if (errno != ENOENT && errno != ENAMETOOLONG)
			return err_errno(err, errno, "removing %s", name);
		r = 1;
	}
	return r;
}

static int remove_of_claim(const struct cdi *cdi, int dir, const char *claim_uid,
	const struct strlist *requests, struct err *err)
{
	cleanup_free char *prefix = file_prefix(cdi, claim_uid);

	if (requests->n) {
		int r = remove_named(cdi, dir, claim_uid, requests, err);

		if (r <= 0)
			return r;
	}
	return remove_matching(dir, is_spec, prefix, err);
}

int cdi_remove(const struct cdi *cdi, const char *claim_uid, const struct strlist *requests,
	struct err *err)
{
	cleanup_close int dir = open_dir(cdi, err);

	if (dir < 0)
		return err->sys == ENOENT ? 0 : -1;
	if (remove_of_claim(cdi, dir, claim_uid, requests, err) < 0)
		return err_wrap(err, "CDI directory %s", cdi->dir);
	return 0;
}

int cdi_clean(const struct cdi *cdi, struct err *err)
{
	cleanup_free char *prefix = xasprintf("%s_" CDI_CLASS "_", cdi->driver);
	cleanup_close int dir = open_dir(cdi, err);

	if (dir < 0)
		return err->sys == ENOENT ? 0 : -1;
	if (remove_matching(dir, is_leftover, prefix, err) < 0)
		return err_wrap(err, "CDI directory %s", cdi->dir);
	return 0;
}
