/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory store.
 *
 * The claim's file is the scheduler's and the user's; what we write is in a file of our own
 * beside it, named after the claim's UID inside, so that the status of a claim that was
 * replaced by another of the same name is never taken for the new one's. A reader gets both
 * merged: entries of the status file, and those of other drivers that the claim's file has.
 *
 * Of a file only what concerns our driver is read (claim_mask.c): another driver's part of a claim
 * may hold what no JSON or YAML reader takes. It stays in the claim's own file, which is never
 * written.
 *
 * Files are small and on a local disk, so they are read and written where the call is made;
 * only the answer waits for the loop.
 */
#include "statd/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/doc.h"
#include "common/file.h"
#include "common/util.h"
#include "statd/claim.h"
#include "statd/claim_mask.h"
#include "statd/podclaims.h"

#define STATUS_SUFFIX ".status.json"
#define SLICES_FILE   "resourceslices.json"
#define STATUS_MODE   0644

static const char *const suffixes[] = {".json", ".yaml", ".yml"};

struct store_dir {
	struct store base;
	uv_loop_t *loop;
	char *path;
	int fd;
	struct answer *answers; /* not given yet */
};

/* An answer that waits for the loop. */
struct answer {
	uv_timer_t timer;
	struct store_dir *store;
	struct answer *prev, *next;
	store_claim_cb *claim_cb;
	store_done_cb *done_cb;
	const struct store_listing *listing;
	void *ctx;
	bool failed;
	struct err err;
	json_t *claims, *pods; /* claims: the claim itself for claim_cb */
	struct strlist unreadable, problems;
};

/* --- answering ---------------------------------------------------------------------------- */

static void answer_closed(uv_handle_t *handle)
{
	struct answer *a = handle->data;

	json_decref(a->claims);
	json_decref(a->pods);
	strlist_fini(&a->unreadable);
	strlist_fini(&a->problems);
	free(a);
}

static void answer_listing(const struct answer *a)
{
	const json_t *claim;
	size_t i;

	json_array_foreach (a->claims, i, claim)
		a->listing->claim(a->ctx, claim);
	for (i = 0; i < a->unreadable.n; i++)
		a->listing->unreadable(a->ctx, a->unreadable.v[i]);
	for (i = 0; i < a->problems.n; i++)
		a->listing->problem(a->ctx, a->problems.v[i]);
	a->listing->done(a->ctx, a->failed ? &a->err : NULL);
}

static void answer_give(struct answer *a)
{
	const struct err *err = a->failed ? &a->err : NULL;

	if (a->prev)
		a->prev->next = a->next;
	else
		a->store->answers = a->next;
	if (a->next)
		a->next->prev = a->prev;
	if (a->claim_cb)
		a->claim_cb(a->ctx, err, err ? NULL : a->claims);
	else if (a->listing)
		answer_listing(a);
	else
		a->done_cb(a->ctx, err);
	uv_close((uv_handle_t *)&a->timer, answer_closed);
}

static void on_answer_timer(uv_timer_t *timer)
{
	answer_give(timer->data);
}

static struct answer *answer_new(struct store *base, void *ctx)
{
	struct store_dir *s = container_of(base, struct store_dir, base);
	struct answer *a = xcalloc(1, sizeof(*a));

	a->store = s;
	a->ctx = ctx;
	a->next = s->answers;
	if (a->next)
		a->next->prev = a;
	s->answers = a;
	(void)uv_timer_init(s->loop, &a->timer);
	a->timer.data = a;
	(void)uv_timer_start(&a->timer, on_answer_timer, 0, 0);
	return a;
}

/* --- files -------------------------------------------------------------------------------- */

static bool ends_in(const char *name, const char *suffix)
{
	size_t len = strlen(name), n = strlen(suffix);

	return len > n && strcmp(name + len - n, suffix) == 0;
}

static bool is_status_file(const char *name)
{
	return name[0] != '.' && ends_in(name, STATUS_SUFFIX);
}

/* The length of name without its suffix, or 0 if it is not a file of objects. */
static size_t stem_length(const char *name)
{
	if (name[0] == '.' || strcmp(name, SLICES_FILE) == 0 || is_status_file(name))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (ends_in(name, suffixes[i]))
			return strlen(name) - strlen(suffixes[i]);
	return 0;
}

static bool is_object_file(const char *name)
{
	return stem_length(name) > 0;
}

static char *status_name(const char *file)
{
	return xasprintf("%.*s%s", (int)stem_length(file), file, STATUS_SUFFIX);
}

static const char *text_at(const json_t *object, const char *outer, const char *inner)
{
	const json_t *node = json_object_get(object, outer);
	const char *text = json_string_value(inner ? json_object_get(node, inner) : node);

	return text ? text : "";
}

static bool is_claim(const json_t *object, const char *namespace, const char *name)
{
	return strcmp(text_at(object, "kind", NULL), "ResourceClaim") == 0 &&
	       strcmp(text_at(object, "metadata", "namespace"), namespace) == 0 &&
	       strcmp(text_at(object, "metadata", "name"), name) == 0;
}

static int read_object(
	const struct store_dir *s, const char *file, json_t **ret, struct err *err)
{
	cleanup_free char *path = xasprintf("%s/%s", s->path, file);
	struct doc *doc;

	if (doc_read_masked(path, &claim_mask, s->base.driver_name, &doc, err) < 0)
		return -1;
	*ret = json_incref(doc_root(doc));
	doc_free(doc);
	return 0;
}

/* Puts what the status file says into the claim: its entries, and of the claim's own file those
 * that the status file does not replace. */
static int merge_status(
	const struct store_dir *s, const char *file, json_t *claim, struct err *err)
{
	cleanup_free char *name = status_name(file);
	json_t *written, *status, *devices, *entry;
	size_t i;

	if (read_object(s, name, &written, err) < 0)
		return err->kind == ERR_NOT_FOUND ? 0 : -1;
	status = json_object_get(claim, "status");
	if (strcmp(text_at(written, "metadata", "uid"), text_at(claim, "metadata", "uid")) !=
			0 ||
		!json_is_object(status)) {
		json_decref(written);
		return 0;
	}
	devices = json_copy(json_object_get(json_object_get(written, "status"), "devices"));
	json_array_foreach (json_object_get(status, "devices"), i, entry) {
		if (strcmp(text_at(entry, "driver", NULL), text_at(written, "driver", NULL)) !=
			0)
			(void)json_array_append(devices, entry);
	}
	if (devices)
		(void)json_object_set_new(status, "devices", devices);
	json_decref(written);
	return 0;
}

/* Calls each(ctx, file) for files that `is`, until it returns true. */
static int each_file(const struct store_dir *s, bool (*is)(const char *name),
	bool (*each)(void *ctx, const char *file), void *ctx, struct err *err)
{
	int fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		(void)err_errno(err, errno, "listing %s", s->path);
		close_fd(&fd);
		return -1;
	}
	while ((entry = readdir(dir)))
		if (is(entry->d_name) && each(ctx, entry->d_name))
			break;
	(void)closedir(dir);
	return 0;
}

struct search {
	const struct store_dir *store;
	const char *namespace, *name;
	char *file;
	char *twin; /* another file with the same claim; NULL: none was found */
	json_t *claim;
	struct err unreadable; /* the first file that could not be read */
};

static bool try_file(void *ctx, const char *file)
{
	struct search *search = ctx;
	json_t *object;
	struct err err;

	if (str_equal(search->file, file))
		return false;
	if (read_object(search->store, file, &object, &err) < 0) {
		if (err.kind != ERR_NOT_FOUND && search->unreadable.kind == ERR_NONE)
			search->unreadable = err;
		return false;
	}
	if (!is_claim(object, search->namespace, search->name)) {
		json_decref(object);
		return false;
	}
	if (search->file) {
		search->twin = xstrdup(file);
		json_decref(object);
		return true;
	}
	search->file = xstrdup(file);
	search->claim = object;
	return false;
}

/* A file of objects whose name does not say whose claim is in it. */
static bool is_unconventional(const char *name)
{
	return is_object_file(name) && !strchr(name, '_');
}

/* By the conventional names first, then whatever the files are called. A claim that has a file
 * of a conventional name is not looked for in those of others. */
static void find_claim(struct search *search)
{
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		cleanup_free char *file =
			xasprintf("%s_%s%s", search->namespace, search->name, suffixes[i]);

		if (faccessat(search->store->fd, file, F_OK, 0) == 0 && try_file(search, file))
			return;
	}
	if (each_file(search->store, search->file ? is_unconventional : is_object_file, try_file,
		    search, &err) < 0 &&
		search->unreadable.kind == ERR_NONE)
		search->unreadable = err;
}

static int load_claim(const struct store_dir *s, const char *namespace, const char *name,
	char **ret_file, json_t **ret, struct err *err)
{
	struct search search = {.store = s, .namespace = namespace, .name = name};
	cleanup_free char *twin = NULL;

	find_claim(&search);
	twin = search.twin;
	if (!search.file) {
		if (search.unreadable.kind != ERR_NONE) {
			*err = search.unreadable;
			return err_wrap(err, "claim %s/%s is not in %s, but this is", namespace,
				name, s->path);
		}
		return err_set(err, ERR_NOT_FOUND, "claim %s/%s is not in %s", namespace, name,
			s->path);
	}
	if (twin)
		(void)err_set(err, ERR_INVALID,
			"claim %s/%s is in two files of %s, %s and %s: remove one of them",
			namespace, name, s->path, search.file, twin);
	if (twin || merge_status(s, search.file, search.claim, err) < 0) {
		json_decref(search.claim);
		free(search.file);
		return -1;
	}
	*ret_file = search.file;
	*ret = search.claim;
	return 0;
}

/* --- the operations ----------------------------------------------------------------------- */

static void dir_get_claim(struct store *base, const char *namespace, const char *name,
	store_claim_cb *cb, void *ctx)
{
	struct answer *a = answer_new(base, ctx);
	cleanup_free char *file = NULL;

	a->claim_cb = cb;
	a->failed = load_claim(a->store, namespace, name, &file, &a->claims, &a->err) < 0;
}

static int write_json(
	struct store_dir *s, const char *file, const json_t *object, struct err *err)
{
	cleanup_free char *text = json_dumps(object, JSON_INDENT(2));
	cleanup_free char *line = xasprintf("%s\n", text ? text : "");

	if (file_write_atomic(s->fd, file, line, strlen(line), STATUS_MODE, err) < 0)
		return err_wrap(err, "%s", s->path);
	return 0;
}

static int write_claim_status(struct store_dir *s, const struct claim_ref *ref,
	const char *driver_name, const json_t *devices, struct err *err)
{
	cleanup_free char *file = NULL, *name = NULL;
	json_t *claim, *written;
	int r;

	if (load_claim(s, ref->namespace, ref->name, &file, &claim, err) < 0)
		return -1;
	if (strcmp(text_at(claim, "metadata", "uid"), ref->uid) != 0) {
		r = err_set(err, ERR_CONFLICT, "claim %s/%s got replaced meanwhile",
			ref->namespace, ref->name);
		json_decref(claim);
		return r;
	}
	json_decref(claim);
	name = status_name(file);
	written = json_pack("{ss ss ss s{ss ss ss} s{sO}}", "apiVersion", "resource.k8s.io/v1",
		"kind", "ResourceClaim", "driver", driver_name, "metadata", "name", ref->name,
		"namespace", ref->namespace, "uid", ref->uid, "status", "devices", devices);
	r = write_json(s, name, written, err);
	json_decref(written);
	return r;
}

static void dir_write_status(struct store *base, const struct claim_ref *claim,
	const struct claim_seen *seen UNUSED, const char *driver_name, const json_t *devices,
	store_done_cb *cb, void *ctx)
{
	struct answer *a = answer_new(base, ctx);

	a->done_cb = cb;
	a->failed = write_claim_status(a->store, claim, driver_name, devices, &a->err) < 0;
}

/* Status files are found by the UID inside: the claim's own file may be gone, or another's by
 * now. */
struct removal {
	const struct store_dir *store;
	const char *uid;
	bool done;
	struct err err; /* why it is not known whether it is done */
};

/* One that is no status, or not for us to read, is none that we wrote. */
static bool is_foreign(const struct err *err)
{
	return !err->sys || err->sys == ENOENT || err->sys == EACCES || err->sys == ELOOP;
}

static bool remove_status_file(void *ctx, const char *file)
{
	struct removal *r = ctx;
	json_t *written;
	struct err err;
	bool is_it;

	if (read_object(r->store, file, &written, &err) < 0) {
		if (!is_foreign(&err))
			r->err = err;
		return false;
	}
	is_it = strcmp(text_at(written, "metadata", "uid"), r->uid) == 0;
	json_decref(written);
	if (!is_it)
		return false;
	r->done = true;
	if (unlinkat(r->store->fd, file, 0) < 0 && errno != ENOENT)
		(void)err_errno(&r->err, errno, "%s: removing a claim's status",
			r->store->path);
	else
		r->err = (struct err)ERR_INIT;
	return true;
}

static void dir_remove_status(struct store *base, const struct claim_ref *claim,
	const char *driver_name UNUSED, store_done_cb *cb, void *ctx)
{
	struct answer *a = answer_new(base, ctx);
	struct removal removal = {.store = a->store, .uid = claim->uid, .err = ERR_INIT};
	cleanup_free char *name =
		xasprintf("%s_%s%s", claim->namespace, claim->name, STATUS_SUFFIX);
	struct err err;

	a->done_cb = cb;
	if (faccessat(a->store->fd, name, F_OK, 0) == 0)
		(void)remove_status_file(&removal, name);
	if (!removal.done &&
		each_file(a->store, is_status_file, remove_status_file, &removal, &err) < 0)
		removal.err = err;
	if (removal.err.kind != ERR_NONE) {
		a->failed = true;
		a->err = removal.err;
	}
}

static bool list_file(void *ctx, const char *file)
{
	struct answer *a = ctx;
	struct err err = ERR_INIT;
	const char *kind;
	json_t *object;

	if (read_object(a->store, file, &object, &err) < 0) {
		if (err.kind != ERR_NOT_FOUND)
			strlist_add(&a->unreadable, err.message);
		return false;
	}
	kind = text_at(object, "kind", NULL);
	if (strcmp(kind, "Pod") == 0) {
		(void)json_array_append(a->pods, object);
	} else if (strcmp(kind, "ResourceClaim") == 0) {
		if (merge_status(a->store, file, object, &err) < 0)
			strlist_add(&a->unreadable, err.message);
		else
			(void)json_array_append(a->claims, object);
	} else {
		cleanup_free char *problem = xasprintf(
			"%s/%s: is neither a ResourceClaim nor a Pod", a->store->path, file);

		strlist_add(&a->problems, problem);
	}
	json_decref(object);
	return false;
}

static bool has_claim(const json_t *claims, const char *namespace, const char *name)
{
	const json_t *claim;
	size_t i;

	json_array_foreach (claims, i, claim)
		if (is_claim(claim, namespace, name))
			return true;
	return false;
}

/* Claims that a pod names and that are not there. */
static void check_pod(struct answer *a, const json_t *pod)
{
	const char *namespace = text_at(pod, "metadata", "namespace");
	struct strlist names = {0};
	struct err err;

	if (podclaims_names(pod, &names, &err) < 0) {
		(void)err_wrap(&err, "pod %s/%s", namespace, text_at(pod, "metadata", "name"));
		strlist_add(&a->unreadable, err.message);
	}
	for (size_t i = 0; i < names.n; i++) {
		cleanup_free char *problem = NULL;

		if (has_claim(a->claims, namespace, names.v[i]))
			continue;
		problem = xasprintf("claim %s/%s not found in store", namespace, names.v[i]);
		strlist_add(&a->problems, problem);
	}
	strlist_fini(&names);
}

static void dir_list(struct store *base, const struct store_listing *listing, void *ctx)
{
	struct answer *a = answer_new(base, ctx);
	const json_t *pod;
	size_t i;

	a->listing = listing;
	a->claims = json_array();
	a->pods = json_array();
	a->failed = each_file(a->store, is_object_file, list_file, a, &a->err) < 0;
	json_array_foreach (a->pods, i, pod)
		check_pod(a, pod);
}

static void dir_free(struct store *base)
{
	struct store_dir *s = container_of(base, struct store_dir, base);

	while (s->answers)
		answer_give(s->answers);
	close_fd(&s->fd);
	free(s->path);
	free(s->base.description);
	free(s);
}

static const struct store_ops dir_ops = {
	.kind = "directory",
	.get_claim = dir_get_claim,
	.write_status = dir_write_status,
	.remove_status = dir_remove_status,
	.list = dir_list,
	.free = dir_free,
};

static bool is_temporary(const char *name)
{
	return file_is_temporary(name, STATUS_SUFFIX) || file_is_temporary(name, SLICES_FILE);
}

static bool remove_file(void *ctx, const char *file)
{
	const struct store_dir *s = ctx;

	(void)unlinkat(s->fd, file, 0);
	return false;
}

struct store *store_dir_new(uv_loop_t *loop, const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct err ignored;
	struct store_dir *s;

	if (fd < 0) {
		(void)err_errno(err, errno, "claims directory %s", path);
		return NULL;
	}
	s = xcalloc(1, sizeof(*s));
	*s = (struct store_dir){.base = {.ops = &dir_ops}, .loop = loop, .fd = fd};
	s->path = xstrdup(path);
	s->base.description = xasprintf("directory %s", path);
	/* what a statd that was killed was writing */
	(void)each_file(s, is_temporary, remove_file, s, &ignored);
	return &s->base;
}
