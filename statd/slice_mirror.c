/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two voices tell of one slice: the answer to a call of ours, and the watch. Versions say which
 * is later. The difficult moments, and what happens in them:
 *
 *	the watch tells of our write before its answer does: `writing` names the slice
 *	the watch tells of our write after its answer: the version is not new
 *	the watch tells of a slice that we deleted since: its record stays, as deleted, until the
 *	    watch has seen that too
 *	somebody else writes right after us: the watch's version is greater than our answer's
 *
 * A list that begins anew brings what is there; what it does not bring has gone. The publisher
 * writes nothing while a list is under way, since a list may be older than an answer.
 *
 * Versions are compared as numbers, which Kubernetes promises for its own kinds since 1.35 and
 * has always made so. One that is none is taken for new.
 */
#include "statd/slice_mirror.h"

#include <string.h>

#include "common/check.h"
#include "statd/slice_form.h"

#define MAX_WORD     64  /* bytes of a UID or a resource version: what servers make has 36 */
#define MAX_MEMBERS  128 /* devices in a slice that the API takes */
/* Bytes of what others attached to a slice. A replacement without it takes it off again, which is
 * better than to hold whatever anybody puts there. */
#define MAX_ATTACHED 4096

static const char *text_at(const json_t *object, const char *outer, const char *inner)
{
	return json_string_value(json_object_get(json_object_get(object, outer), inner));
}

static void record_free(struct slice_record *record)
{
	free(record->name);
	free(record->uid);
	free(record->resource_version);
	free(record->members);
	free(record->attached);
	free(record);
}

static void forget(struct slice_mirror *mirror, struct slice_record *record)
{
	HASH_DEL(mirror->records, record);
	record_free(record);
}

void slice_mirror_fini(struct slice_mirror *mirror)
{
	struct slice_record *record, *next;

	HASH_ITER (hh, mirror->records, record, next) {
		forget(mirror, record);
	}
}

/* --- records ------------------------------------------------------------------------------ */

static bool is_word(const char *text)
{
	return text && *text && strlen(text) <= MAX_WORD;
}

static uint64_t parse_version(const char *text)
{
	int64_t version;

	return parse_i64(text, 1, INT64_MAX, &version) == 0 ? (uint64_t)version : 0;
}

static void read_members(struct slice_record *record, const json_t *devices)
{
	const json_t *device;
	size_t i;

	record->members = xcalloc(MIN(json_array_size(devices), (size_t)MAX_MEMBERS) + 1,
		sizeof(*record->members));
	json_array_foreach (devices, i, device) {
		const char *name = json_string_value(json_object_get(device, "name"));

		if (i >= MAX_MEMBERS)
			break;
		record->members[record->n_members++] = name ? slice_name_hash(name) : 0;
	}
}

static char *read_attached(const json_t *metadata)
{
	static const char *const members[] = {"labels", "annotations", "finalizers"};
	json_t *attached = json_object();
	char *text = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		if (json_object_get(metadata, members[i]))
			(void)json_object_set(
				attached, members[i], json_object_get(metadata, members[i]));
	if (json_object_size(attached) > 0)
		text = json_dumps(attached, JSON_COMPACT);
	json_decref(attached);
	if (!text || strlen(text) <= MAX_ATTACHED)
		return text;
	free(text);
	return NULL;
}

/* What of an object is looked at first. */
struct head {
	const char *name, *uid, *resource_version;
	uint64_t version;
};

static int read_head(const struct slice_mirror *mirror, const json_t *object, struct head *ret,
	struct err *err)
{
	const char *driver = text_at(object, "spec", "driver"),
		   *node = text_at(object, "spec", "nodeName");

	*ret = (struct head){
		.name = text_at(object, "metadata", "name"),
		.uid = text_at(object, "metadata", "uid"),
		.resource_version = text_at(object, "metadata", "resourceVersion"),
	};
	if (!ret->name || check_dns_subdomain(ret->name, err) < 0 || !is_word(ret->uid) ||
		!is_word(ret->resource_version))
		return err_set(err, ERR_INVALID,
			"the API server sent a ResourceSlice without a name, UID or version");
	if (!str_equal(driver, mirror->driver_name) || !str_equal(node, mirror->node_name))
		return err_set(err, ERR_INVALID,
			"the API server sent ResourceSlice %s, which is another driver's or "
			"node's",
			ret->name);
	ret->version = parse_version(ret->resource_version);
	return 0;
}

static struct slice_record *record_new(
	const struct slice_mirror *mirror, const struct head *head, const json_t *object)
{
	const json_t *spec = json_object_get(object, "spec"),
		     *pool = json_object_get(spec, "pool");
	struct slice_record *record = xcalloc(1, sizeof(*record));

	record->name = xstrdup(head->name);
	record->uid = xstrdup(head->uid);
	record->resource_version = xstrdup(head->resource_version);
	record->version = head->version;
	record->in_pool =
		str_equal(json_string_value(json_object_get(pool, "name")), mirror->node_name);
	record->generation = json_integer_value(json_object_get(pool, "generation"));
	record->count = json_integer_value(json_object_get(pool, "resourceSliceCount"));
	record->digest = slice_digest_object(object);
	record->attached = read_attached(json_object_get(object, "metadata"));
	read_members(record, json_object_get(spec, "devices"));
	return record;
}

static bool says_the_same(const struct slice_record *a, const struct slice_record *b)
{
	return a->in_pool == b->in_pool && a->generation == b->generation &&
	       a->count == b->count && a->digest == b->digest;
}

/* Whether the known object was at least this new already. */
static bool is_old(const struct head *head, const struct slice_record *known)
{
	return known && strcmp(known->uid, head->uid) == 0 && head->version > 0 &&
	       known->version >= head->version;
}

/* Takes record. What is known of its content beyond what the server says lasts as long as the
 * content. */
static struct slice_record *put(
	struct slice_mirror *mirror, struct slice_record *record, struct slice_record *known)
{
	record->listed = mirror->listing;
	if (!known) {
		HASH_ADD_KEYPTR(
			hh, mirror->records, record->name, strlen(record->name), record);
		return record;
	}
	if (known->digest == record->digest) {
		record->accepted = known->accepted;
		record->verified = known->verified;
	}
	/* the known one keeps its place, and the name that its place is found by */
	record->hh = known->hh;
	free(record->name);
	record->name = known->name;
	free(known->uid);
	free(known->resource_version);
	free(known->members);
	free(known->attached);
	*known = *record;
	free(record);
	return known;
}

static struct slice_record *find(const struct slice_mirror *mirror, const char *name)
{
	struct slice_record *record;

	HASH_FIND_STR(mirror->records, name, record);
	return record;
}

/* --- the watch ---------------------------------------------------------------------------- */

void slice_mirror_begin(struct slice_mirror *mirror)
{
	mirror->listing = true;
	mirror->overflow = false;
	for (struct slice_record *record = mirror->records; record; record = record->hh.next)
		record->listed = false;
}

static enum slice_news object_went(struct slice_mirror *mirror, struct slice_record *known)
{
	bool writing = str_equal(mirror->writing, known->name),
	     ours = known->deleted || (writing && mirror->deleting);

	mirror->writing_went |= writing && !ours;
	forget(mirror, known);
	return ours ? SLICE_NEWS_NONE : SLICE_NEWS_WENT;
}

static enum slice_news object_is(struct slice_mirror *mirror, const struct head *head,
	const json_t *object, struct slice_record *known)
{
	bool same_object = known && strcmp(known->uid, head->uid) == 0;
	enum slice_news news = SLICE_NEWS_CAME;
	struct slice_record *record;

	if (is_old(head, known) || (same_object && known->deleted)) {
		known->listed = true;
		return SLICE_NEWS_NONE;
	}
	if (!known && HASH_COUNT(mirror->records) >= SLICE_MIRROR_MAX) {
		mirror->overflow = true;
		return SLICE_NEWS_NONE;
	}
	record = record_new(mirror, head, object);
	if (same_object)
		news = says_the_same(record, known) ? SLICE_NEWS_NONE : SLICE_NEWS_EDITED;
	record = put(mirror, record, known);
	return str_equal(mirror->writing, record->name) ? SLICE_NEWS_NONE : news;
}

enum slice_news slice_mirror_event(struct slice_mirror *mirror, enum kube_event event,
	const json_t *object, struct err *err)
{
	struct slice_record *known;
	struct head head;

	err_clear(err);
	if (read_head(mirror, object, &head, err) < 0)
		return SLICE_NEWS_NONE;
	known = find(mirror, head.name);
	if (event != KUBE_DELETED)
		return object_is(mirror, &head, object, known);
	if (!known || strcmp(known->uid, head.uid) != 0)
		return SLICE_NEWS_NONE;
	return object_went(mirror, known);
}

enum slice_news slice_mirror_synced(struct slice_mirror *mirror)
{
	enum slice_news news = SLICE_NEWS_NONE;
	struct slice_record *record, *next;

	HASH_ITER (hh, mirror->records, record, next) {
		if (!record->listed && object_went(mirror, record) != SLICE_NEWS_NONE)
			news = SLICE_NEWS_WENT;
	}
	mirror->listing = false;
	mirror->synced = true;
	return news;
}

/* --- our own writes ----------------------------------------------------------------------- */

void slice_mirror_call_begin(struct slice_mirror *mirror, const char *name, bool deleting)
{
	mirror->writing = name;
	mirror->deleting = deleting;
	mirror->writing_went = false;
}

void slice_mirror_call_end(struct slice_mirror *mirror)
{
	mirror->writing = NULL;
}

struct slice_record *slice_mirror_written(struct slice_mirror *mirror, const json_t *object,
	enum slice_news *ret_news, struct err *err)
{
	struct slice_record *record, *known;
	struct head head;

	*ret_news = SLICE_NEWS_NONE;
	if (read_head(mirror, object, &head, err) < 0)
		return NULL;
	if (mirror->writing_went) {
		*ret_news = SLICE_NEWS_WENT;
		return NULL;
	}
	known = find(mirror, head.name);
	record = record_new(mirror, &head, object);
	if (!is_old(&head, known))
		return put(mirror, record, known);
	if (!says_the_same(record, known))
		*ret_news = SLICE_NEWS_EDITED;
	record_free(record);
	return known;
}

void slice_mirror_deleted(struct slice_mirror *mirror, const char *name)
{
	struct slice_record *record = find(mirror, name);

	if (record)
		record->deleted = true;
}

struct slice_record *slice_mirror_get(const struct slice_mirror *mirror, const char *name)
{
	struct slice_record *record = find(mirror, name);

	return record && !record->deleted ? record : NULL;
}

static int compare_records(const void *a, const void *b)
{
	const struct slice_record *const *ra = a, *const *rb = b;

	return strcmp((*ra)->name, (*rb)->name);
}

struct slice_record **slice_mirror_list(const struct slice_mirror *mirror, size_t *ret_n)
{
	struct slice_record **list =
		xcalloc(HASH_COUNT(mirror->records) + 1, sizeof(struct slice_record *));
	size_t n = 0;

	for (struct slice_record *record = mirror->records; record; record = record->hh.next)
		if (!record->deleted)
			list[n++] = record;
	qsort(list, n, sizeof(struct slice_record *), compare_records);
	*ret_n = n;
	return list;
}
