/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The node's own record: what this node has prepared, one file a claim, in the state directory.
 *
 *	<state>/boot             the kernel's boot_id; written when the allocations of this boot are complete
 *	<state>/claims/UID.json  one claim: struct claim_record
 *	<state>/pods/UID         empty: this pod has a prepared claim
 *
 * A record is written before and after each change in the kernel, so that a process which is killed at
 * any instant leaves the old or the new one. The file is a line a version, of which the last counts. A
 * version is appended as long as all of them are within a page, which a file takes in any case, and
 * replaces the file otherwise: a kill does not divide a write within a page (mm/filemap.c,
 * generic_perform_write), so an end that is no version is damage, and the record broken. It survives
 * every daemon and whatever becomes of the API's objects, and ends with the boot, as the kernel's state
 * does: nothing is synced to a disk, and a directory of an earlier boot is emptied. pods/ is for
 * nrihookd, which decides by it, without statd and without parsing, whether a pod has a claim of ours.
 *
 * Modes: the state directory and pods/ are statd's, and its reader's group may search them; claims/
 * and what is in it is statd's alone.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/api.h"
#include "common/privileges.h"

#define RECORD_VERSION 1
/* 32 devices with a state, attributes and capacity of the size that an RPC record may have are
 * below it by far. */
#define RECORD_MAX     (2u << 20)
#define BOOT_ID_SIZE   37 /* a UUID: drivers/char/random.c */

struct claim_record {
	struct rec_int version; /* that wrote it; a newer one is not read */
	char *uid, *namespace, *name;
	struct rec_bool status_due; /* the claim's status in the store is still to be written */
	struct REC_LIST(struct alloc_row) devices; /* none: only the status is due */
};
extern const struct rec_desc rec_claim_record;

struct records {
	char *path;
	int dir_fd, claims_fd, pods_fd; /* -1: not open */
	int64_t dev, ino;               /* of dir_fd: which directory it is, for its reader */
	char boot_id[BOOT_ID_SIZE];
	bool on_disk; /* not in memory, as it is meant to be: each step of a claim waits for the disk */
	/* The first restore of this boot has been completed: from then on a claim without a record
	 * is not prepared, whatever its status says. */
	bool complete;
};

/* For the privileged phase of a start: makes the directories, or takes over those that are there,
 * for owner (ignored unless root) and reader, a group; (gid_t)-1 leaves the group alone. */
int records_open(struct records *r, const char *path, const struct identity *owner,
	gid_t reader, struct err *err);
void records_close(struct records *r);

/* Reads the directory: empties it if it is of an earlier boot, else calls record for each, and
 * broken for each that cannot be read, with the UID of its claim, the devices that its text names as
 * far as that can be seen, and why. */
struct records_visitor {
	void (*record)(void *ctx, struct claim_record *record); /* owns what the record owns */
	void (*broken)(void *ctx, const char *uid, const struct strlist *devices,
		const struct err *err);
};
int records_read(struct records *r, const struct records_visitor *v, void *ctx, struct err *err);
int records_set_complete(struct records *r, struct err *err);

/* Writes the claim's record anew. */
int records_write(const struct records *r, const struct claim_record *record, struct err *err);
/* One that is not there is success. */
int records_remove(const struct records *r, const char *uid, struct err *err);
/* Whether the claim has one, readable or not. */
bool records_has(const struct records *r, const char *uid);

/* Both may be repeated. */
int records_pod_add(const struct records *r, const char *pod_uid, struct err *err);
void records_pod_remove(const struct records *r, const char *pod_uid);
/* Removes those that keep() does not want. */
void records_pods_prune(
	const struct records *r, bool (*keep)(void *ctx, const char *pod_uid), void *ctx);
