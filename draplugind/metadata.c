/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where: claim_files.h.
 *
 * The directory is named after the claim as its users call it, but a claim is its UID: a file of
 * another UID is never taken for ours. It has no bearing on our generation, and it stays when our
 * claim is removed.
 *
 * The generation lives in the file alone. It is read back before each write, so it goes on where
 * it was after a restart of ours or of the kubelet, which has every claim prepared again. To find
 * out whether anything changed, the new text is made with the old generation and compared byte for
 * byte; therefore attributes are sorted, so that their order says nothing.
 *
 * A file is mounted into containers by its inode, and replaced by renaming: containers that run
 * keep what they were started with. It is not synced: after a loss of power the kubelet prepares
 * the claim again, and a file that is empty or cut short differs from what is then made.
 *
 * The directories of a claim's requests also say which CDI specifications the claim has.
 */
#include "draplugind/metadata.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "common/claim_files.h"
#include "common/file.h"
#include "draplugind/tree.h"

#define STORE          CLAIM_FILES_STORE
#define FILE_NAME      CLAIM_FILES_NAME
#define DIR_MODE       0755
#define CONTAINER_BASE "/var/run/kubernetes.io/dra-device-attributes"
#define API_GROUP      "metadata.resource.k8s.io"
/* 32 devices of 32 attributes with 64 bytes a value are far less, twice */
#define MAX_BYTES      (1u << 20)

static const char *const versions[] = {API_GROUP "/v1beta1", API_GROUP "/v1alpha1"};

/* --- names ----------------------------------------------------------------------------------- */

char *metadata_request(const char *reference)
{
	return xmemdup0(reference, strcspn(reference, "/"));
}

static bool is_of_request(const struct prepared_device *device, const char *request)
{
	size_t len = strlen(request);

	return strncmp(device->request, request, len) == 0 &&
	       (device->request[len] == '\0' || device->request[len] == '/');
}

static char *claim_dir(const struct claim_ref *claim)
{
	return claim_files_dir(claim->namespace, claim->name, claim->uid);
}

char *metadata_host_path(
	const struct metadata *m, const struct claim_ref *claim, const char *request)
{
	cleanup_free char *dir = claim_dir(claim);

	return xasprintf("%s/" STORE "/%s/%s/" FILE_NAME, m->dir, dir, request);
}

char *metadata_container_path(const struct metadata *m, const struct claim_ref *claim,
	const char *pod_claim_name, const char *request)
{
	return xasprintf(CONTAINER_BASE "/%s/%s/%s/%s-metadata.json",
		pod_claim_name ? "resourceclaimtemplates" : "resourceclaims",
		pod_claim_name ? pod_claim_name : claim->name, request, m->driver);
}

/* --- the text -------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A new object with the same members, sorted by name. */
static json_t *sorted(const struct packed *attributes)
{
	json_t *object = packed_open(attributes);
	size_t n = 0, size = json_object_size(object);
	cleanup_free const char **names = xcalloc(size, sizeof(*names));
	json_t *to = json_object(), *value;
	const char *name;

	json_object_foreach (object, name, value)
		names[n++] = name;
	qsort(names, n, sizeof(*names), compare_names);
	for (size_t i = 0; i < n; i++)
		(void)json_object_set(to, names[i], json_object_get(object, names[i]));
	json_decref(object);
	return to;
}

static json_t *device_object(const struct metadata *m, const struct prepared_device *device)
{
	json_t *o = json_pack("{s:s, s:s, s:s}", "driver", m->driver, "pool", device->pool,
		"name", device->device);

	if (packed_size(device->attributes))
		(void)json_object_set_new(o, "attributes", sorted(device->attributes));
	if (device->if_name)
		(void)json_object_set_new(
			o, "networkData", json_pack("{s:s}", "interfaceName", device->if_name));
	return o;
}

/* The element of this full reference, made at its first device. */
static json_t *request_object(json_t *requests, const char *reference)
{
	json_t *o;
	size_t i;

	json_array_foreach (requests, i, o)
		if (strcmp(json_string_value(json_object_get(o, "name")), reference) == 0)
			return o;
	o = json_pack("{s:s, s:[]}", "name", reference, "devices");
	(void)json_array_append_new(requests, o);
	return o;
}

static json_t *requests_array(const struct metadata *m,
	const struct claim_prepare_result *prepared, const char *request)
{
	json_t *requests = json_array();

	for (size_t i = 0; i < prepared->devices.n; i++) {
		const struct prepared_device *device = &prepared->devices.v[i];

		if (!is_of_request(device, request))
			continue;
		(void)json_array_append_new(
			json_object_get(request_object(requests, device->request), "devices"),
			device_object(m, device));
	}
	return requests;
}

static int put_version(struct buf *to, const char *api_version, const struct claim_ref *claim,
	const char *pod_claim_name, json_t *requests, int64_t generation, struct err *err)
{
	json_t *o = json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:I}, s:s*, s:O}", "kind",
		"DeviceMetadata", "apiVersion", api_version, "metadata", "name", claim->name,
		"namespace", claim->namespace, "uid", claim->uid, "generation",
		(json_int_t)generation, "podClaimName", pod_claim_name, "requests", requests);
	cleanup_free char *text = json_dumps(o, JSON_INDENT(2));

	json_decref(o);
	/* whatever Jansson will not encode it should not have let in */
	if (!text)
		return err_set(err, ERR_INTERNAL, "metadata cannot be formatted");
	buf_puts(to, text);
	buf_puts(to, "\n");
	return 0;
}

static int put_text(struct buf *to, const struct metadata *m, const struct claim_ref *claim,
	const struct claim_prepare_result *prepared, const char *request, int64_t generation,
	struct err *err)
{
	json_t *requests = requests_array(m, prepared, request);
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(versions); i++)
		r = put_version(to, versions[i], claim, prepared->pod_claim_name, requests,
			generation, err);
	json_decref(requests);
	return r;
}

/* --- what is there --------------------------------------------------------------------------- */

struct found {
	struct buf text;
	char *uid;
	int64_t generation;
};

static void found_fini(struct found *f)
{
	buf_fini(&f->text);
	free(f->uid);
}
#define cleanup_found __attribute__((cleanup(found_fini)))

/* Reads the first object of a request's file, which is in dir. What is no metadata has no UID. */
static int find_file(int dir, struct found *ret, struct err *err)
{
	const json_t *meta;
	json_t *first;

	if (tree_read(dir, FILE_NAME, MAX_BYTES, &ret->text, err) < 0)
		return -1;
	first = json_loadb(ret->text.data ? ret->text.data : "", ret->text.len,
		JSON_DISABLE_EOF_CHECK, NULL);
	meta = json_object_get(first, "metadata");
	ret->uid = xstrdup_opt(json_string_value(json_object_get(meta, "uid")));
	ret->generation = json_integer_value(json_object_get(meta, "generation"));
	json_decref(first);
	return 0;
}

/* --- writing --------------------------------------------------------------------------------- */

static int open_store(const struct metadata *m, struct err *err)
{
	cleanup_free char *path = xasprintf("%s/" STORE, m->dir);

	return tree_open(AT_FDCWD, path, err);
}

static int make_store(const struct metadata *m, struct err *err)
{
	cleanup_close int dir = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return err_errno(err, errno, "plugin directory %s", m->dir);
	return tree_make(dir, STORE, DIR_MODE, err);
}

/* Opens the directory of a request, made as far as it is missing. */
static int make_request_dir(const struct metadata *m, const struct claim_ref *claim,
	const char *request, struct err *err)
{
	cleanup_free char *name = claim_dir(claim);
	cleanup_close int store = open_store(m, err), of_claim = -1;

	if (store < 0 && err->sys == ENOENT)
		store = make_store(m, err);
	if (store < 0)
		return -1;
	of_claim = tree_make(store, name, DIR_MODE, err);
	if (of_claim < 0)
		return -1;
	return tree_make(of_claim, request, DIR_MODE, err);
}

static int bring_up_to_date(int dir, const struct metadata *m, const struct claim_ref *claim,
	const struct claim_prepare_result *prepared, const char *request, struct err *err)
{
	cleanup_found struct found old = {0};
	cleanup_buf struct buf text = BUF_INIT;
	int64_t generation = 1;

	if (find_file(dir, &old, err) < 0)
		return -1;
	if (str_equal(old.uid, claim->uid) && old.generation >= 1) {
		generation = old.generation;
		if (put_text(&text, m, claim, prepared, request, generation, err) < 0)
			return -1;
		if (text.len == old.text.len && memcmp(text.data, old.text.data, text.len) == 0)
			return 0;
		text.len = 0;
		/* so many were never made, but a file can say so */
		generation = generation < INT64_MAX ? generation + 1 : 1;
	}
	if (put_text(&text, m, claim, prepared, request, generation, err) < 0)
		return -1;
	return file_write_unsynced(dir, FILE_NAME, text.data, text.len, 0644, err);
}

int metadata_write(const struct metadata *m, const struct claim_ref *claim,
	const struct claim_prepare_result *prepared, const char *request, struct err *err)
{
	cleanup_close int dir = make_request_dir(m, claim, request, err);

	if (dir < 0 || bring_up_to_date(dir, m, claim, prepared, request, err) < 0)
		return err_wrap(err, "metadata of request %s", request);
	return 0;
}

/* --- what a claim has ------------------------------------------------------------------------ */

/* The claim's directory, in the open store. 1: there is none. */
static int open_claim(int store, const struct claim_ref *claim, int *ret, struct err *err)
{
	cleanup_free char *name = claim_dir(claim);

	*ret = tree_open(store, name, err);
	if (*ret >= 0)
		return 0;
	return err->sys == ENOENT ? 1 : -1;
}

static int list_requests(
	int store, const struct claim_ref *claim, struct strlist *ret, struct err *err)
{
	cleanup_close int of_claim = -1;
	int r = open_claim(store, claim, &of_claim, err);

	return r == 0 ? tree_list(of_claim, ret, err) : MIN(r, 0);
}

int metadata_requests(const struct metadata *m, const struct claim_ref *claim,
	struct strlist *ret, struct err *err)
{
	cleanup_close int store = open_store(m, err);

	if (store < 0)
		return err->sys == ENOENT ? 0 : -1;
	if (list_requests(store, claim, ret, err) < 0)
		return err_wrap(err, "metadata of the claim");
	return 0;
}

/* --- removing -------------------------------------------------------------------------------- */

/* Whether an entry of a claim's directory holds the file of another claim. */
static bool is_foreign(int of_claim, const char *entry, const struct claim_ref *claim)
{
	cleanup_found struct found f = {0};
	struct err ignored;
	cleanup_close int dir = tree_open(of_claim, entry, &ignored);

	return dir >= 0 && find_file(dir, &f, &ignored) == 0 && f.uid &&
	       strcmp(f.uid, claim->uid) != 0;
}

/* As a prepare leaves it: a file, in a directory of its own. */
static bool remove_file_and_dir(int of_claim, const char *request)
{
	struct err ignored;
	cleanup_close int dir = tree_open(of_claim, request, &ignored);

	return dir >= 0 && unlinkat(dir, FILE_NAME, 0) == 0 &&
	       unlinkat(of_claim, request, AT_REMOVEDIR) == 0;
}

/* Where another claim of the name still has files, an empty directory stays: it may have written
 * to it before this claim did, and its specification is found by that. */
static int remove_request(int of_claim, const char *request, bool keep_dir, struct err *err)
{
	int fd;

	if (!remove_file_and_dir(of_claim, request) && tree_remove(of_claim, request, err) < 0)
		return -1;
	if (!keep_dir)
		return 0;
	fd = tree_make(of_claim, request, DIR_MODE, err);
	if (fd < 0)
		return -1;
	close_fd(&fd);
	return 0;
}

static int remove_requests(int of_claim, const struct claim_ref *claim,
	const struct strlist *requests, bool *ret_shared, struct err *err)
{
	struct strlist own = {0};
	int r = 0;

	for (size_t i = 0; i < requests->n; i++)
		if (!is_foreign(of_claim, requests->v[i], claim))
			strlist_add(&own, requests->v[i]);
	*ret_shared = own.n < requests->n;
	for (size_t i = 0; r == 0 && i < own.n; i++)
		r = remove_request(of_claim, own.v[i], *ret_shared, err);
	strlist_fini(&own);
	return r;
}

static int remove_claim(int store, const struct claim_ref *claim,
	const struct strlist *requests, struct err *err)
{
	cleanup_free char *name = claim_dir(claim);
	cleanup_close int of_claim = -1;
	bool is_shared;
	int r = open_claim(store, claim, &of_claim, err);

	if (r != 0)
		return MIN(r, 0);
	if (remove_requests(of_claim, claim, requests, &is_shared, err) < 0)
		return -1;
	if (is_shared || unlinkat(store, name, AT_REMOVEDIR) == 0)
		return 0;
	return tree_remove(store, name, err);
}

int metadata_remove(const struct metadata *m, const struct claim_ref *claim,
	const struct strlist *requests, struct err *err)
{
	cleanup_close int store = open_store(m, err);

	if (store < 0)
		return err->sys == ENOENT ? 0 : -1;
	if (remove_claim(store, claim, requests, err) < 0)
		return err_wrap(err, "metadata of the claim");
	return 0;
}
