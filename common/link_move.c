/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hand-over of links.
 *
 * A link travels under a name that nothing else has, a random one: the namespace it arrives in
 * may have a link of its old name, and a move with a rename is not atomic (a taken name is
 * answered with EEXIST after the link has moved). Only when it has arrived is it given its name
 * there, so a name that is taken fails on the side where that can be told and undone.
 *
 *	give:  host 'ens1f0v0' up  ->  pod 'nc0123…' down  ->  'net1' down  ->  'net1' up
 *	take:  pod 'net1' down  ->  'nc0123…' down  ->  host 'nc0123…'  ->  'ens1f0v0' down
 *
 * Each arrow is one request to the kernel. A crash between two leaves a state that the next
 * call recognises: it looks for the mark in both namespaces and goes on from there.
 *
 * Whoever is root in the pod can rename the link, change its MTU, its alternative names and its
 * mark, and can mark another link. Therefore what comes back is checked to be the same kind of
 * device, with the same parent on its bus, before it is let out; alternative names that it did
 * not leave with are removed inside, where they harm nobody; and MTU, address and names are
 * restored from the record. A link whose mark was removed stays and returns when the kernel
 * tears down the namespace, if it is a device of a bus.
 */
#include "common/link_move.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "common/check.h"
#include "common/log.h"

#define MAX_ALTNAMES 64 /* what udev gives is a handful */
#define MIN_MTU      0  /* of a link whose driver does not care: net/core/dev.c */
#define MAX_MTU      INT32_MAX

/* --- what is remembered ------------------------------------------------------------------- */

static int check_altname(const char *text, struct err *err)
{
	if (!*text || strlen(text) >= LINK_ALTNAME_SIZE)
		return err_set(
			err, ERR_INVALID, "must have 1 to %d bytes", LINK_ALTNAME_SIZE - 1);
	return 0;
}

static const struct rec_field link_origin_fields[] = {
	REC_STR(struct link_origin, name, "Name", REC_REQUIRED, 0, check_kernel_if_name,
		"name on the host"),
	REC_INT(struct link_origin, mtu, "MTU", REC_OPTIONAL, MIN_MTU, MAX_MTU, "bytes"),
	REC_STR(struct link_origin, mac, "MAC", REC_OPTIONAL, LINK_MAC_SIZE - 1, NULL,
		"link-layer address, hex pairs joined by colons"),
	REC_STRLIST(struct link_origin, altnames, "AltNames", REC_OPTIONAL, MAX_ALTNAMES,
		check_altname, "alternative names"),
	REC_STR(struct link_origin, kind, "Kind", REC_OPTIONAL, LINK_KIND_SIZE - 1, NULL,
		"kind of virtual link; unset: a device of a bus"),
	REC_STR(struct link_origin, parent, "Parent", REC_OPTIONAL, LINK_PARENT_SIZE - 1, NULL,
		"its device on the bus"),
};
REC_DESC(rec_link_origin, struct link_origin, "link", link_origin_fields, NULL,
	"a link as it was on the host");

static char *dup_unless_empty(const char *text)
{
	return *text ? xstrdup(text) : NULL;
}

void link_origin_of(const struct link_info *link, struct link_origin *ret)
{
	*ret = (struct link_origin){
		.name = xstrdup(link->name),
		.mtu = {.v = link->mtu, .set = true},
		.mac = dup_unless_empty(link->mac),
		.kind = dup_unless_empty(link->kind),
		.parent = dup_unless_empty(link->parent),
	};
	for (size_t i = 0; i < link->altnames.n; i++)
		strlist_add(&ret->altnames, link->altnames.v[i]);
}

/* --- marks -------------------------------------------------------------------------------- */

void link_mark_format(const struct device_alloc *a, char out[static LINK_MARK_SIZE])
{
	(void)snprintf(out, LINK_MARK_SIZE, LINK_MARK_PREFIX "%s:%s%s%s", a->claim_uid,
		a->device->name, a->share_id ? ":" : "", a->share_id ? a->share_id : "");
}

/* The next word of a mark, up to a colon or the end. NULL if there is none or check refuses. */
static const char *parse_word(const char *at, int (*check)(const char *text, struct err *err),
	char out[static LINK_MARK_WORD_SIZE])
{
	size_t len = strcspn(at, ":");
	struct err err;

	if (len >= LINK_MARK_WORD_SIZE)
		return NULL;
	memcpy(out, at, len);
	out[len] = '\0';
	return check(out, &err) == 0 ? at + len : NULL;
}

bool link_mark_parse(const char *alias, struct link_mark *ret)
{
	const char *at = alias + strlen(LINK_MARK_PREFIX);

	*ret = (struct link_mark){0};
	if (!str_has_prefix(alias, LINK_MARK_PREFIX))
		return false;
	at = parse_word(at, check_uid, ret->claim_uid);
	if (!at || *at != ':')
		return false;
	at = parse_word(at + 1, check_dns_label, ret->device);
	if (at && *at == ':')
		at = parse_word(at + 1, check_uid, ret->share_id);
	return at && *at == '\0';
}

/* Nothing has it, and nobody can take it in time: whoever is root in the pod might try. */
static void travel_name(char out[static IFNAMSIZ])
{
	uint64_t bits;
	ssize_t n = getrandom(&bits, sizeof(bits), 0);

	/* up to 256 bytes are never short or interrupted: getrandom(2) */
	assert(n == sizeof(bits));
	(void)n;
	(void)snprintf(out, IFNAMSIZ, "nc%013" PRIx64, bits & ((UINT64_C(1) << 52) - 1));
}

struct sought {
	const char *mark;
	const struct link_origin *origin;
};

static bool is_sought(const void *ctx, const struct link_info *link)
{
	const struct sought *s = ctx;
	const struct link_origin *o = s->origin;

	return strcmp(link->alias, s->mark) == 0 &&
	       strcmp(link->kind, o->kind ? o->kind : "") == 0 &&
	       strcmp(link->parent, o->parent ? o->parent : "") == 0;
}

int link_find(struct nl *nl, const char *mark, const struct link_origin *origin,
	struct link_info *ret, struct err *err)
{
	const struct sought sought = {.mark = mark, .origin = origin};

	if (nl_link_find(nl, is_sought, &sought, ret, err) < 0)
		return err_wrap(err, "link of '%s'", mark);
	return 0;
}

/* As link_find(), by name first: a host with many pods has thousands of links. */
static int find_on_host(struct nl *host, const char *mark, const struct link_origin *origin,
	struct link_info *ret, struct err *err)
{
	const struct sought sought = {.mark = mark, .origin = origin};

	if (nl_link_get(host, origin->name, ret, err) == 0 && is_sought(&sought, ret))
		return 0;
	link_info_fini(ret);
	return link_find(host, mark, origin, ret, err);
}

static bool is_of_claims(const struct link_info *link, const struct strlist *claim_uids)
{
	struct link_mark mark;

	return link_mark_parse(link->alias, &mark) && strlist_has(claim_uids, mark.claim_uid);
}

int link_check_names(struct nl *pod, const struct name_list *list, struct err *err)
{
	for (size_t i = 0; i < list->names.n; i++) {
		cleanup_link_info struct link_info link = {0};
		const char *name = list->names.v[i];

		if (nl_link_get(pod, name, &link, err) == 0) {
			if (is_of_claims(&link, &list->claim_uids))
				continue;
			return err_set(err, ERR_CONFLICT,
				"interface name collision: \"%s\" already exists in pod "
				"namespace (possibly from CNI)",
				name);
		}
		if (err->kind != ERR_NOT_FOUND)
			return -1;
	}
	err_clear(err);
	return 0;
}

static bool is_leftover(const void *claim_uids, const struct link_info *link)
{
	struct link_mark mark;

	return link_mark_parse(link->alias, &mark) && !strlist_has(claim_uids, mark.claim_uid);
}

int link_find_leftovers(
	struct nl *nl, const struct strlist *claim_uids, struct link_list *ret, struct err *err)
{
	return nl_link_find_all(nl, is_leftover, claim_uids, ret, err);
}

/* --- giving back -------------------------------------------------------------------------- */

static int drop_altnames(struct nl *nl, const struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	for (size_t i = 0; i < link->altnames.n; i++) {
		const char *altname = link->altnames.v[i];

		if (!strlist_has(&origin->altnames, altname) &&
			nl_link_del_altname(nl, link->ifindex, altname, err) < 0)
			return -1;
	}
	return 0;
}

static bool has_altname(struct nl *nl, int ifindex, const char *altname)
{
	cleanup_link_info struct link_info link = {0};
	struct err err;

	return nl_link_get(nl, altname, &link, &err) == 0 && link.ifindex == ifindex;
}

static int add_altnames(struct nl *nl, const struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	for (size_t i = 0; i < origin->altnames.n; i++) {
		const char *altname = origin->altnames.v[i];

		/* it may have it by now: udev names what arrives, too */
		if (!strlist_has(&link->altnames, altname) &&
			nl_link_add_altname(nl, link->ifindex, altname, err) < 0 &&
			!has_altname(nl, link->ifindex, altname))
			return -1;
	}
	return 0;
}

static int rename_down(
	struct nl *nl, const struct link_info *link, const char *name, struct err *err)
{
	if (strcmp(link->name, name) == 0)
		return 0;
	/* before 6.2 most links cannot be renamed while they are up */
	if (link->up && nl_link_set_up(nl, link->ifindex, false, err) < 0)
		return -1;
	return nl_link_set_name(nl, link->ifindex, name, err);
}

/* From the pod to the host, under its name for travelling. */
static int move_out(const struct link_ends *ends, const struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	char name[IFNAMSIZ];

	travel_name(name);
	if (drop_altnames(ends->pod, link, origin, err) < 0 ||
		rename_down(ends->pod, link, name, err) < 0)
		return -1;
	return nl_link_move(ends->pod, link->ifindex, ends->host_netns_fd, name, err);
}

static int restore_name(struct nl *host, const struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	return rename_down(host, link, origin->name, err);
}

static int restore_mtu(struct nl *host, const struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	if (!origin->mtu.set || origin->mtu.v == link->mtu)
		return 0;
	return nl_link_set_mtu(host, link->ifindex, (uint32_t)origin->mtu.v, err);
}

static int restore_mac(struct nl *host, const struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	if (!origin->mac || strcmp(origin->mac, link->mac) == 0)
		return 0;
	return nl_link_set_mac(host, link->ifindex, origin->mac, err);
}

/* Goes on past a step that fails, so that as much as possible is as it was; err is the first
 * failure. */
static int restore(struct nl *host, const struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	static int (*const steps[])(struct nl *, const struct link_info *,
		const struct link_origin *, struct err *) = {
		drop_altnames, /* first: its name might have become one of them */
		restore_name,
		restore_mtu,
		restore_mac,
		add_altnames,
	};
	struct err later;
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (steps[i](host, link, origin, rc < 0 ? &later : err) < 0)
			rc = -1;
	return rc;
}

int link_take(const struct link_ends *ends, const char *mark, const struct link_origin *origin,
	struct err *err)
{
	cleanup_link_info struct link_info inside = {0}, outside = {0};

	if (link_find(ends->pod, mark, origin, &inside, err) == 0) {
		if (move_out(ends, &inside, origin, err) < 0)
			return err_wrap(err, "taking '%s' out of the pod", inside.name);
	} else if (err->kind != ERR_NOT_FOUND) {
		return -1;
	}
	if (find_on_host(ends->host, mark, origin, &outside, err) < 0) {
		if (err->kind != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 1;
	}
	if (restore(ends->host, &outside, origin, err) < 0)
		return err_wrap(err, "restoring '%s'", origin->name);
	err_clear(err);
	return 0;
}

/* --- giving ------------------------------------------------------------------------------- */

/* A link that is down in the pod has not been finished; one that is up has, and if it has
 * another name by now, the pod has given it that. 1 if nothing had to be done. */
static int finish(struct nl *pod, const struct link_info *link, const char *if_name,
	struct device_attach_result *ret, struct err *err)
{
	if (link->up) {
		ret->if_name = xstrdup(link->name);
		return 1;
	}
	/* its own alternative name would be in the way; it has it back when it returns */
	if (strlist_has(&link->altnames, if_name) &&
		nl_link_del_altname(pod, link->ifindex, if_name, err) < 0)
		return -1;
	if (rename_down(pod, link, if_name, err) < 0 ||
		nl_link_set_up(pod, link->ifindex, true, err) < 0)
		return -1;
	ret->if_name = xstrdup(if_name);
	return 0;
}

/* The failure that is being undone is what the caller reports; this one has nobody else. */
static void undo(const struct link_ends *ends, const char *mark,
	const struct link_origin *origin, bool was_up)
{
	cleanup_link_info struct link_info link = {0};
	struct err err = ERR_INIT;

	if (link_take(ends, mark, origin, &err) < 0 ||
		(was_up && (find_on_host(ends->host, mark, origin, &link, &err) < 0 ||
				   nl_link_set_up(ends->host, link.ifindex, true, &err) < 0)))
		LOG(ERROR, FIELDS(F("device", origin->name), F("err", err.message)),
			"link could not be put back on the host as it was");
}

static int move_in(const struct link_ends *ends, const struct link_info *link, struct err *err)
{
	char name[IFNAMSIZ];

	travel_name(name);
	return nl_link_move(ends->host, link->ifindex, ends->pod_netns_fd, name, err);
}

static int give_from_host(const struct link_ends *ends, const char *mark,
	const struct link_origin *origin, const char *if_name, struct device_attach_result *ret,
	struct err *err)
{
	cleanup_link_info struct link_info outside = {0}, inside = {0};
	struct link_origin before;

	if (find_on_host(ends->host, mark, origin, &outside, err) < 0)
		return -1;
	if (move_in(ends, &outside, err) == 0 &&
		link_find(ends->pod, mark, origin, &inside, err) == 0 &&
		finish(ends->pod, &inside, if_name, ret, err) >= 0)
		return 0;
	link_origin_of(&outside, &before);
	undo(ends, mark, &before, outside.up);
	rec_fini(&rec_link_origin, &before);
	return -1;
}

int link_give(const struct link_ends *ends, const char *mark, const struct link_origin *origin,
	const char *if_name, struct device_attach_result *ret, struct err *err)
{
	cleanup_link_info struct link_info inside = {0};
	int rc;

	*ret = (struct device_attach_result){.was_there = {.set = true}};
	if (link_find(ends->pod, mark, origin, &inside, err) < 0) {
		if (err->kind != ERR_NOT_FOUND)
			return -1;
		rc = give_from_host(ends, mark, origin, if_name, ret, err);
	} else {
		rc = finish(ends->pod, &inside, if_name, ret, err);
		if (rc < 0)
			undo(ends, mark, origin, false);
	}
	if (rc < 0)
		return err_wrap(err, "handing '%s' to the pod as '%s'", origin->name, if_name);
	ret->was_there.v = rc > 0;
	err_clear(err);
	return 0;
}
