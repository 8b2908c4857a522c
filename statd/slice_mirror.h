/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is known of this node's ResourceSlices on the API server: of each a small record, never the
 * object. It is fed by a watch and, sooner, by the answers to our own writes; what the watch tells
 * later than an answer did is recognised as old.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/hash.h"
#include "common/kube.h"

struct slice_record {
	UT_hash_handle hh; /* by name */
	char *name, *uid, *resource_version;
	uint64_t version; /* resource_version as a number, which grows; 0: it is none */
	bool in_pool;     /* of the pool that is named after the node */
	int64_t generation, count;
	uint64_t digest;   /* slice_digest_object() */
	uint64_t *members; /* slice_name_hash() of its devices, in order */
	size_t n_members;
	char *attached; /* labels, annotations and finalizers, which others gave it, as an object in
			 * JSON; NULL: none, or more than is kept */
	bool deleted; /* by us; the watch will say so */
	bool listed;  /* the list under way has told of it */

	/* the publisher's */
	uint64_t accepted; /* what we sent, when the server made `digest` of it; 0: nothing */
	uint64_t verified; /* revision of the devices table that it is known to agree with */
};

/* A server that has more of ours is told to delete these first. */
#define SLICE_MIRROR_MAX 1024

struct slice_mirror {
	const char *driver_name, *node_name; /* borrowed */
	struct slice_record *records;
	bool synced;   /* since the first list was complete */
	bool listing;  /* from the beginning of a list to its end */
	bool overflow; /* the server has more than SLICE_MIRROR_MAX */
	/* The slice that a call of ours creates, replaces or deletes at this moment, borrowed; NULL:
	 * none. What the watch tells of it is our own doing, up to the version of the answer. */
	const char *writing;
	bool deleting;     /* the call deletes */
	bool writing_went; /* somebody deleted it meanwhile */
};

/* What an event was to us. */
enum slice_news {
	SLICE_NEWS_NONE,   /* known, or our own doing */
	SLICE_NEWS_EDITED, /* somebody changed a slice: its record is what it is now */
	SLICE_NEWS_CAME,   /* somebody made one */
	SLICE_NEWS_WENT,   /* somebody deleted one: its record is gone */
};

void slice_mirror_fini(struct slice_mirror *mirror);

void slice_mirror_begin(struct slice_mirror *mirror);
/* What is no ResourceSlice of ours is ignored; err says why if the server should not have sent it,
 * and is ERR_NONE otherwise. */
enum slice_news slice_mirror_event(struct slice_mirror *mirror, enum kube_event event,
	const json_t *object, struct err *err);
/* Whether any went. */
enum slice_news slice_mirror_synced(struct slice_mirror *mirror);

/* Around a call that writes. */
void slice_mirror_call_begin(struct slice_mirror *mirror, const char *name, bool deleting);
void slice_mirror_call_end(struct slice_mirror *mirror);

/* The answer to a write of ours, before the call's end. Returns its record, and in *ret_news
 * whether somebody changed it since then. NULL if somebody deleted it since then, and with
 * *ret_news NONE and err if this is no answer to that. */
struct slice_record *slice_mirror_written(struct slice_mirror *mirror, const json_t *object,
	enum slice_news *ret_news, struct err *err);
/* We deleted it, or it was gone when we wanted to. */
void slice_mirror_deleted(struct slice_mirror *mirror, const char *name);

/* A record stays where it is until the news that it went. NULL if there is none, or it is deleted. */
struct slice_record *slice_mirror_get(const struct slice_mirror *mirror, const char *name);
/* All that there are, sorted by name; a new array, *ret_n its length. */
struct slice_record **slice_mirror_list(const struct slice_mirror *mirror, size_t *ret_n);
