/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Handing a link into a pod's network namespace, and taking it back as it was.
 *
 * A link is known by its mark, never by its name alone: setup writes into its ifalias which
 * allocation holds it, and the mark moves with it. Both directions can be repeated: whatever a
 * crash or a failure left half done, the next call with the same mark finishes.
 */

#include "common/api.h"
#include "common/nl.h"
#include "common/rec.h"

#define LINK_MARK_PREFIX "netclaim:"
/* "netclaim:<claim uid>:<device>[:<share>]", each at most 63 bytes (api.h). A note of the
 * manager's may follow behind a space, for as long as the link has not been in a pod. */
#define LINK_MARK_SIZE   208
_Static_assert(LINK_MARK_SIZE <= LINK_ALIAS_SIZE, "a mark is an alias");

void link_mark_format(const struct device_alloc *a, char out[static LINK_MARK_SIZE]);

#define LINK_MARK_WORD_SIZE 64
struct link_mark {
	char claim_uid[LINK_MARK_WORD_SIZE], device[LINK_MARK_WORD_SIZE];
	char share_id[LINK_MARK_WORD_SIZE]; /* "": none */
};
/* Whether it is a mark, and then *ret. *note, if not NULL, is what follows, borrowed; "": none. */
bool link_mark_parse(const char *alias, struct link_mark *ret, const char **note);
/* Whether this alias is that mark, whatever the note. */
bool link_mark_is(const char *alias, const char *mark);

/* What a link was before it was handed over: part of a prepared device's state, so that it is
 * in the claim's status and outlives everything but the claim. What is unset is left as it is. */
struct link_origin {
	char *name;
	char *mac;
	struct strlist altnames;
	struct rec_int numbers[LINK_NUMBER_MAX];
	struct rec_int flags, addr_gen_mode;
	struct rec_int ifindex; /* it has it again if it is free */
	struct rec_bool up;
	struct REC_LIST(struct origin_address) addresses;
	char *alias; /* of before the mark; link_release() sets it */
	/* Names and alias are bytes to the kernel and text in a record: link_text_encode(). */
	char *boot; /* of which boot of the node it is; unset: it is not known */
	/* what it is, so that a link which somebody else has marked is not taken for it; one
	 * with a parent is known by that alone where its mark is gone */
	char *kind, *parent;
};
extern const struct rec_desc rec_link_origin;

/* struct link_address, as a record. */
struct origin_address {
	char *local, *peer, *broadcast, *label;
	struct rec_int flags, metric, scope, proto;
};

/* Alias and alternative names as a record has them: bytes that are not UTF-8, or that look like what
 * is written for those, are "\\x" and their hex digits. The caller's. */
char *link_text_encode(const char *bytes);
/* Writes at most size - 1 bytes and a NUL. */
void link_text_decode(const char *text, char *out, size_t size);

/* The kernel's number of this boot; "" if it cannot be read. Opens a file at the first call. */
const char *link_boot(void);

/* boot is left unset. *ret is for rec_fini(), also after a failure. */
int link_origin_of(
	struct nl *nl, const struct link_info *link, struct link_origin *ret, struct err *err);

/* The two ends of a hand-over. All borrowed. */
struct link_ends {
	struct nl *host, *pod;
	int host_netns_fd, pod_netns_fd;
};

/* The link of this mark in the pod that is what origin says it is. A device of a bus is found
 * whatever its mark. ERR_NOT_FOUND. */
int link_find(struct nl *pod, const char *mark, const struct link_origin *origin,
	struct link_info *ret, struct err *err);

/* ERR_CONFLICT if a link in this namespace has one of the names or has one as an alternative
 * name, unless it carries the mark of one of the list's claims. */
int link_check_names(struct nl *pod, const struct name_list *list, struct err *err);

/* Links that carry a mark of a claim which is not among these, into *ret (zeroed). */
int link_find_leftovers(struct nl *nl, const struct strlist *claim_uids, struct link_list *ret,
	struct err *err);

/* Moves the marked link from the host to the pod, names it a->if_name and, unless a->keep_down,
 * brings it up. One that is already in the pod is only finished; ret->was_there says that it was
 * up and nothing had to be done, and ret->if_name what it is called. *ret is for rec_fini().
 * ERR_NOT_FOUND: there is no such link on either side. On every failure the link is back on the
 * host, as origin says. */
int link_give(const struct link_ends *ends, const char *mark, const struct link_origin *origin,
	const struct device_attach *a, struct device_attach_result *ret, struct err *err);

/* Takes the marked link back to the host, as origin says. 0, or 1 when there is no such link on
 * either side. A value that the kernel refuses is a difference, not a failure: all that is not as
 * it was is logged, each by name and with both values. A link whose name another one has by now
 * is called "nc" and 13 digits. After a failure the link keeps its mark, so that the call can be
 * repeated. */
int link_take(const struct link_ends *ends, const char *mark, const struct link_origin *origin,
	struct err *err);

/* Restores a link that the kernel has returned to the host because its namespace ended, and
 * marks it. What its alias says by then proves nothing: that it is the claim's the caller knows
 * by what it is. A step that was done already is left out. ERR_CONFLICT: it is not the kind of
 * device that origin says. What is set and yet not as it was is logged, as by link_take(). */
int link_reclaim(struct nl *host, struct link_info *link, const char *mark,
	const struct link_origin *origin, struct err *err);

/* Restores a link that is on the host, wherever it has been, and takes the mark off it. 0, or 1
 * when there is no such link. */
int link_release(
	struct nl *host, const char *mark, const struct link_origin *origin, struct err *err);
