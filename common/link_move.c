/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hand-over of links.
 *
 * A move with a rename is not atomic: a name that is taken where the link arrives is answered
 * with EEXIST, and then the link may have moved or not. And the name that it leaves with may be
 * taken there, too. Into the pod it goes in one request all the same, since each rename waits for
 * every processor (synchronize_net() in dev_change_name(), net/core/dev.c), and since nobody can
 * die between its steps: the names were checked before, and when the kernel refuses, the link is
 * looked for on both sides and taken back. Out of the pod, where whoever is root may have left any
 * names at all, it travels under one that nothing else has, a random one.
 *
 *	give:  host 'ens1f0v0' up  ->  pod 'net1' up
 *	take:  pod 'net1' down  ->  'nc0123…' down  ->  host 'nc0123…'  ->  'ens1f0v0' as before
 *
 * Each arrow is one request to the kernel. A crash between two leaves a state that the next
 * call recognises: it looks for the mark in both namespaces and goes on from there. A link with
 * sysctls to be set is left down in the pod until the next call.
 *
 * Whoever is root in the pod can rename the link, change its MTU, its alternative names and its
 * mark, and can mark another link. Therefore what comes back is checked to be the same kind of
 * device, with the same parent on its bus, before it is let out; alternative names that it did
 * not leave with are removed inside, where they harm nobody; all else is restored from the
 * record, then compared with it. A device of a bus is found without its mark, too, by what the
 * kernel says of its parent; another link without one stays where it is.
 */
#include "common/link_move.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "common/check.h"
#include "common/log.h"

#define MAX_ALTNAMES  64 /* what udev gives is a handful */
#define MAX_ADDRESSES 64 /* as many as are listed: common/nl_address.c */

/* --- what is remembered ------------------------------------------------------------------- */

static int check_altname(const char *text, struct err *err)
{
	if (!*text || strlen(text) >= LINK_ALTNAME_SIZE)
		return err_set(
			err, ERR_INVALID, "must have 1 to %d bytes", LINK_ALTNAME_SIZE - 1);
	return 0;
}

static const struct rec_field origin_address_fields[] = {
	REC_STR(struct origin_address, local, "Local", REC_REQUIRED, ADDRESS_SIZE - 1, NULL,
		"address, with its prefix length if there is no peer"),
	REC_STR(struct origin_address, peer, "Peer", REC_OPTIONAL, ADDRESS_SIZE - 1, NULL,
		"address at the other end, with its prefix length"),
	REC_STR(struct origin_address, broadcast, "Broadcast", REC_OPTIONAL, ADDRESS_SIZE - 1,
		NULL, "of IPv4"),
	REC_STR(struct origin_address, label, "Label", REC_OPTIONAL, ADDRESS_LABEL_SIZE - 1,
		NULL, "of IPv4"),
	REC_INT(struct origin_address, flags, "Flags", REC_OPTIONAL, 0, UINT32_MAX,
		"IFA_F_* (linux/if_addr.h)"),
	REC_INT(struct origin_address, metric, "Metric", REC_OPTIONAL, 0, UINT32_MAX,
		"of its route"),
	REC_INT(struct origin_address, scope, "Scope", REC_OPTIONAL, 0, UINT8_MAX,
		"RT_SCOPE_* (linux/rtnetlink.h)"),
	REC_INT(struct origin_address, proto, "Proto", REC_OPTIONAL, 0, UINT8_MAX,
		"IFAPROT_* (linux/if_addr.h)"),
};
static REC_DESC(rec_origin_address, struct origin_address, "address", origin_address_fields,
	NULL, "an address of a link");

#define NUMBER(which_, name_)                                                                  \
	REC_INT(struct link_origin, numbers[which_], name_, REC_OPTIONAL, 0, UINT32_MAX,       \
		"of `ip -d link`")

static const struct rec_field link_origin_fields[] = {
	REC_STR(struct link_origin, name, "Name", REC_REQUIRED, 0, check_kernel_if_name,
		"name on the host"),
	NUMBER(LINK_MTU, "MTU"),
	REC_STR(struct link_origin, mac, "MAC", REC_OPTIONAL, LINK_MAC_SIZE - 1, NULL,
		"link-layer address, hex pairs joined by colons"),
	REC_STRLIST(struct link_origin, altnames, "AltNames", REC_OPTIONAL, MAX_ALTNAMES,
		check_altname, "alternative names"),
	NUMBER(LINK_TX_QUEUE_LEN, "TxQueueLen"),
	NUMBER(LINK_GROUP, "Group"),
	NUMBER(LINK_GSO_MAX_SIZE, "GSOMaxSize"),
	NUMBER(LINK_GSO_MAX_SEGS, "GSOMaxSegs"),
	NUMBER(LINK_GRO_MAX_SIZE, "GROMaxSize"),
	NUMBER(LINK_GSO_IPV4_MAX_SIZE, "GSOIPv4MaxSize"),
	NUMBER(LINK_GRO_IPV4_MAX_SIZE, "GROIPv4MaxSize"),
	REC_INT(struct link_origin, flags, "Flags", REC_OPTIONAL, 0, UINT32_MAX,
		"IFF_* (linux/if.h)"),
	REC_INT(struct link_origin, addr_gen_mode, "AddrGenMode", REC_OPTIONAL, 0, UINT8_MAX,
		"IN6_ADDR_GEN_MODE_* (linux/if_link.h)"),
	REC_INT(struct link_origin, ifindex, "IfIndex", REC_OPTIONAL, 1, INT32_MAX,
		"number on the host"),
	REC_BOOL(struct link_origin, up, "Up", REC_OPTIONAL, "administratively"),
	REC_RECS(struct link_origin, addresses, "Addresses", REC_OPTIONAL, MAX_ADDRESSES,
		struct origin_address, &rec_origin_address, "permanent addresses"),
	REC_STR(struct link_origin, alias, "Alias", REC_OPTIONAL, LINK_ALIAS_SIZE - 1, NULL,
		"alias of before"),
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

static bool link_is_marked(const struct link_info *link)
{
	return str_has_prefix(link->alias, LINK_MARK_PREFIX);
}

/* Zero is what an unset one means: the claim's status is kept short. */
static struct rec_int int_unless_zero(int64_t v)
{
	return (struct rec_int){.v = v, .set = v != 0};
}

static void keep_addresses(struct link_origin *ret, const struct address_list *list)
{
	ret->addresses.v = xcalloc(list->n, sizeof(*ret->addresses.v));
	ret->addresses.n = list->n;
	for (size_t i = 0; i < list->n; i++) {
		const struct link_address *a = &list->v[i];

		ret->addresses.v[i] = (struct origin_address){
			.local = xstrdup(a->local),
			.peer = dup_unless_empty(a->peer),
			.broadcast = dup_unless_empty(a->broadcast),
			.label = dup_unless_empty(a->label),
			.flags = int_unless_zero(a->flags),
			.metric = int_unless_zero(a->metric),
			.scope = int_unless_zero(a->scope),
			.proto = int_unless_zero(a->proto),
		};
	}
}

int link_origin_of(
	struct nl *nl, const struct link_info *link, struct link_origin *ret, struct err *err)
{
	cleanup_address_list struct address_list addresses = {0};

	*ret = (struct link_origin){
		.name = xstrdup(link->name),
		.mac = dup_unless_empty(link->mac),
		.flags = {.v = link->flags & LINK_FLAGS, .set = true},
		.addr_gen_mode = {.v = link->addr_gen_mode, .set = link->addr_gen_mode >= 0},
		.ifindex = {.v = link->ifindex, .set = true},
		.up = {.v = link->up, .set = true},
		.alias = link_is_marked(link) ? NULL : dup_unless_empty(link->alias),
		.kind = dup_unless_empty(link->kind),
		.parent = dup_unless_empty(link->parent),
	};
	for (int i = 0; i < LINK_NUMBER_MAX; i++)
		ret->numbers[i] =
			(struct rec_int){.v = link->numbers[i], .set = link->known >> i & 1};
	for (size_t i = 0; i < link->altnames.n; i++)
		strlist_add(&ret->altnames, link->altnames.v[i]);
	if (nl_address_list(nl, link->ifindex, &addresses, err) < 0)
		return -1;
	keep_addresses(ret, &addresses);
	return 0;
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
	size_t len = strcspn(at, ": ");
	struct err err;

	if (len >= LINK_MARK_WORD_SIZE)
		return NULL;
	memcpy(out, at, len);
	out[len] = '\0';
	return check(out, &err) == 0 ? at + len : NULL;
}

bool link_mark_parse(const char *alias, struct link_mark *ret, const char **note)
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
	if (!at || (*at != '\0' && *at != ' '))
		return false;
	if (note)
		*note = *at ? at + 1 : at;
	return true;
}

bool link_mark_is(const char *alias, const char *mark)
{
	const size_t len = strlen(mark);

	return strncmp(alias, mark, len) == 0 && (alias[len] == '\0' || alias[len] == ' ');
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
	bool in_pod;
};

/* In a pod a mark proves nothing: whoever is root there can write it. What the kernel says
 * does, and so a device of a bus is known by its parent; on the host another claim may have got
 * it meanwhile, and then its mark is there. */
static bool is_marked_so(const struct sought *s, const struct link_info *link)
{
	return link_mark_is(link->alias, s->mark) ||
	       (s->origin->parent && (s->in_pod || !link_is_marked(link)));
}

static bool is_sought(const void *ctx, const struct link_info *link)
{
	const struct sought *s = ctx;
	const struct link_origin *o = s->origin;

	return strcmp(link->kind, o->kind ? o->kind : "") == 0 &&
	       strcmp(link->parent, o->parent ? o->parent : "") == 0 && is_marked_so(s, link);
}

static int find(
	struct nl *nl, const struct sought *sought, struct link_info *ret, struct err *err)
{
	if (nl_link_find(nl, is_sought, sought, ret, err) < 0)
		return err_wrap(err, "link of '%s'", sought->mark);
	return 0;
}

int link_find(struct nl *pod, const char *mark, const struct link_origin *origin,
	struct link_info *ret, struct err *err)
{
	const struct sought sought = {.mark = mark, .origin = origin, .in_pod = true};

	return find(pod, &sought, ret, err);
}

/* The link that has its own name still. -1: it is to be looked for, err says nothing. */
static int find_by_name(
	struct nl *host, const struct sought *sought, struct link_info *ret, struct err *err)
{
	if (nl_link_get(host, sought->origin->name, ret, err) == 0 && is_sought(sought, ret))
		return 0;
	link_info_fini(ret);
	return -1;
}

/* By name first: a host with many pods has thousands of links. */
static int find_on_host(struct nl *host, const char *mark, const struct link_origin *origin,
	struct link_info *ret, struct err *err)
{
	const struct sought sought = {.mark = mark, .origin = origin};

	if (find_by_name(host, &sought, ret, err) == 0)
		return 0;
	return find(host, &sought, ret, err);
}

static bool is_of_claims(const struct link_info *link, const struct strlist *claim_uids)
{
	struct link_mark mark;

	return link_mark_parse(link->alias, &mark, NULL) &&
	       strlist_has(claim_uids, mark.claim_uid);
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

	return link_mark_parse(link->alias, &mark, NULL) &&
	       !strlist_has(claim_uids, mark.claim_uid);
}

int link_find_leftovers(
	struct nl *nl, const struct strlist *claim_uids, struct link_list *ret, struct err *err)
{
	return nl_link_find_all(nl, is_leftover, claim_uids, ret, err);
}

/* --- giving back -------------------------------------------------------------------------- */

static int drop_altnames(struct nl *nl, struct link_info *link,
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

static int add_altnames(struct nl *nl, struct link_info *link, const struct link_origin *origin,
	struct err *err)
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

static int rename_down(struct nl *nl, struct link_info *link, const char *name, struct err *err)
{
	if (strcmp(link->name, name) == 0)
		return 0;
	/* before 6.2 most links cannot be renamed while they are up */
	if (link->up && nl_link_set_up(nl, link->ifindex, false, err) < 0)
		return -1;
	link->up = false;
	return nl_link_set_name(nl, link->ifindex, name, err);
}

/* From the pod to the host, under its name for travelling. */
static int move_out(const struct link_ends *ends, struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	const int want = origin->ifindex.set ? (int)origin->ifindex.v : 0;
	char name[IFNAMSIZ];

	travel_name(name);
	if (drop_altnames(ends->pod, link, origin, err) < 0 ||
		rename_down(ends->pod, link, name, err) < 0)
		return -1;
	if (nl_link_move(ends->pod, link->ifindex, ends->host_netns_fd, name, want, err) == 0)
		return 0;
	if (want == 0 || err->sys != EBUSY)
		return -1;
	/* another link has its number by now */
	return nl_link_move(ends->pod, link->ifindex, ends->host_netns_fd, name, 0, err);
}

static void copy_text(char *to, size_t size, const char *from)
{
	(void)snprintf(to, size, "%s", from ? from : "");
}

static int restore_name(struct nl *host, struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	if (rename_down(host, link, origin->name, err) == 0) {
		copy_text(link->name, sizeof(link->name), origin->name);
		return 0;
	}
	/* of a function that was made anew: the kernel has given it a name, and the old one to
	 * another, which is a difference to tell */
	return err->sys == EEXIST && !link_is_marked(link) ? 0 : -1;
}

/* As restore() past one that fails. */
static int restore_numbers(struct nl *host, struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	struct err later;
	int rc = 0;

	for (int i = 0; i < LINK_NUMBER_MAX; i++) {
		const struct rec_int *was = &origin->numbers[i];

		if (was->set && (link->known >> i & 1) && was->v != link->numbers[i] &&
			nl_link_set_number(host, link->ifindex, (enum link_number)i,
				(uint32_t)was->v, rc < 0 ? &later : err) < 0)
			rc = -1;
	}
	return rc;
}

/* Whoever administers the physical function may have fixed it meanwhile, and a function that was
 * made anew has another: that is a difference to tell, and no reason to keep the link. */
static int restore_mac(struct nl *host, struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	if (!origin->mac || strcmp(origin->mac, link->mac) == 0)
		return 0;
	if (nl_link_set_mac(host, link->ifindex, origin->mac, err) == 0)
		return 0;
	return err->sys == EADDRNOTAVAIL || err->sys == EOPNOTSUPP ? 0 : -1;
}

static int restore_flags(struct nl *host, struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	if (!origin->flags.set || (link->flags & LINK_FLAGS) == origin->flags.v)
		return 0;
	return nl_link_set_flags(host, link->ifindex, (unsigned)origin->flags.v, err);
}

/* Before it is up: that is when the kernel makes the address. */
static int restore_addr_gen_mode(struct nl *host, struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	if (!origin->addr_gen_mode.set || link->addr_gen_mode < 0 ||
		link->addr_gen_mode == origin->addr_gen_mode.v)
		return 0;
	return nl_link_set_addr_gen_mode(
		host, link->ifindex, (int)origin->addr_gen_mode.v, err);
}

static int restore_up(struct nl *host, struct link_info *link, const struct link_origin *origin,
	struct err *err)
{
	if (!origin->up.set || origin->up.v == link->up)
		return 0;
	return nl_link_set_up(host, link->ifindex, origin->up.v, err);
}

static void address_of(const struct origin_address *a, struct link_address *ret)
{
	*ret = (struct link_address){
		.flags = (uint32_t)a->flags.v,
		.metric = (uint32_t)a->metric.v,
		.scope = (uint8_t)a->scope.v,
		.proto = (uint8_t)a->proto.v,
	};
	copy_text(ret->local, sizeof(ret->local), a->local);
	copy_text(ret->peer, sizeof(ret->peer), a->peer);
	copy_text(ret->broadcast, sizeof(ret->broadcast), a->broadcast);
	copy_text(ret->label, sizeof(ret->label), a->label);
}

static int restore_addresses(struct nl *host, struct link_info *link,
	const struct link_origin *origin, struct err *err)
{
	/* they are labelled with its name, and a rename would number the labels */
	if (strcmp(link->name, origin->name) != 0)
		return 0;
	for (size_t i = 0; i < origin->addresses.n; i++) {
		struct link_address a;

		address_of(&origin->addresses.v[i], &a);
		/* a link that was on the host all the time has them still */
		if (nl_address_add(host, link->ifindex, &a, err) < 0 &&
			err->kind != ERR_CONFLICT)
			return -1;
	}
	return 0;
}

/* Goes on past a step that fails, so that as much as possible is as it was; err is the first
 * failure. */
static int restore(struct nl *host, struct link_info *link, const struct link_origin *origin,
	struct err *err)
{
	static int (*const steps[])(
		struct nl *, struct link_info *, const struct link_origin *, struct err *) = {
		drop_altnames, /* first: its name might have become one of them */
		restore_name, restore_numbers,
		restore_mac, /* while it is down: many drivers refuse it otherwise */
		add_altnames, restore_flags, restore_addr_gen_mode, restore_up,
		restore_addresses, /* up: else those of IPv6 are lost again */
	};
	struct err later;
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (steps[i](host, link, origin, rc < 0 ? &later : err) < 0)
			rc = -1;
	return rc;
}

/* --- comparing ---------------------------------------------------------------------------- */

static void add_difference(struct buf *to, const char *what)
{
	buf_printf(to, "%s%s", to->len ? ", " : "", what);
}

static bool has_address(const struct link_origin *in, const struct origin_address *a)
{
	for (size_t i = 0; i < in->addresses.n; i++)
		if (strcmp(in->addresses.v[i].local, a->local) == 0)
			return true;
	return false;
}

static void compare_addresses(
	struct buf *to, const struct link_origin *was, const struct link_origin *is)
{
	for (size_t i = 0; i < was->addresses.n; i++)
		if (!has_address(is, &was->addresses.v[i]))
			add_difference(to, was->addresses.v[i].local);
}

static bool is_changed(const struct rec_int *was, const struct rec_int *is)
{
	return was->set && is->set && was->v != is->v;
}

static void compare(struct buf *to, const struct link_origin *was, const struct link_origin *is)
{
	if (strcmp(was->name, is->name) != 0)
		add_difference(to, "name");
	if (was->mac && (!is->mac || strcmp(was->mac, is->mac) != 0))
		add_difference(to, "address");
	for (int i = 0; i < LINK_NUMBER_MAX; i++)
		if (is_changed(&was->numbers[i], &is->numbers[i]))
			add_difference(to, link_number_name((enum link_number)i));
	if (is_changed(&was->flags, &is->flags))
		add_difference(to, "flags");
	if (is_changed(&was->addr_gen_mode, &is->addr_gen_mode))
		add_difference(to, "addrgenmode");
	if (is_changed(&was->ifindex, &is->ifindex))
		add_difference(to, "ifindex");
	if (was->up.set && was->up.v != is->up.v)
		add_difference(to, was->up.v ? "up" : "down");
	for (size_t i = 0; i < was->altnames.n; i++)
		if (!strlist_has(&is->altnames, was->altnames.v[i]))
			add_difference(to, was->altnames.v[i]);
	compare_addresses(to, was, is);
}

/* Says what is not as it was: it is back, so this is nobody's failure, but somebody's to know. */
static void report(struct nl *host, const char *mark, const struct link_origin *origin)
{
	cleanup_link_info struct link_info link = {0};
	struct link_origin now = {0};
	struct buf differences = {0};
	struct err err = ERR_INIT;

	if (find_on_host(host, mark, origin, &link, &err) == 0 &&
		link_origin_of(host, &link, &now, &err) == 0)
		compare(&differences, origin, &now);
	if (differences.len)
		LOG(WARN, FIELDS(F("device", origin->name), F("err", differences.data)),
			"link is back, but not all of it is as it was");
	rec_fini(&rec_link_origin, &now);
	buf_fini(&differences);
}

static int restore_on_host(struct nl *host, const char *mark, const struct link_origin *origin,
	struct link_info *link, struct err *err)
{
	cleanup_link_info struct link_info again = {0};

	if (restore(host, link, origin, err) < 0)
		return err_wrap(err, "restoring '%s'", origin->name);
	/* one number may have changed another */
	if (find_on_host(host, mark, origin, &again, err) < 0 ||
		restore_numbers(host, &again, origin, err) < 0)
		return err_wrap(err, "restoring '%s'", origin->name);
	report(host, mark, origin);
	return 0;
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
	if (restore_on_host(ends->host, mark, origin, &outside, err) < 0)
		return -1;
	err_clear(err);
	return 0;
}

int link_release(
	struct nl *host, const char *mark, const struct link_origin *origin, struct err *err)
{
	cleanup_link_info struct link_info link = {0};

	if (find_on_host(host, mark, origin, &link, err) < 0) {
		if (err->kind != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 1;
	}
	if (restore_on_host(host, mark, origin, &link, err) < 0)
		return -1;
	err_clear(err);
	return nl_link_set_alias(host, link.ifindex, origin->alias ? origin->alias : "", err);
}

/* --- giving ------------------------------------------------------------------------------- */

/* A link that is down in the pod has not been finished; one that is up has, and if it has
 * another name by now, the pod has given it that. 1 if nothing had to be done. */
static int finish(struct nl *pod, struct link_info *link, const struct device_attach *a,
	struct device_attach_result *ret, struct err *err)
{
	if (link->up) {
		ret->if_name = xstrdup(link->name);
		return 1;
	}
	/* its own alternative name would be in the way; it has it back when it returns */
	if (strlist_has(&link->altnames, a->if_name) &&
		nl_link_del_altname(pod, link->ifindex, a->if_name, err) < 0)
		return -1;
	if (rename_down(pod, link, a->if_name, err) < 0 ||
		(!a->keep_down.v && nl_link_set_up(pod, link->ifindex, true, err) < 0))
		return -1;
	ret->if_name = xstrdup(a->if_name);
	return 0;
}

/* The failure that is being undone is what the caller reports; this one has nobody else. */
static void undo(
	const struct link_ends *ends, const char *mark, const struct link_origin *origin)
{
	struct err err = ERR_INIT;

	if (link_take(ends, mark, origin, &err) < 0)
		LOG(ERROR, FIELDS(F("device", origin->name), F("err", err.message)),
			"link could not be put back on the host as it was");
}

/* The name is one of its own alternative names, which it can lose only where it has arrived. */
static int move_in_by_steps(const struct link_ends *ends, const struct link_info *link,
	const char *mark, const struct link_origin *origin, const struct device_attach *a,
	struct device_attach_result *ret, struct err *err)
{
	cleanup_link_info struct link_info inside = {0};
	char name[IFNAMSIZ];

	travel_name(name);
	if (nl_link_move(ends->host, link->ifindex, ends->pod_netns_fd, name, 0, err) < 0 ||
		link_find(ends->pod, mark, origin, &inside, err) < 0)
		return -1;
	return finish(ends->pod, &inside, a, ret, err) < 0 ? -1 : 0;
}

static int move_in(const struct link_ends *ends, const struct link_info *link,
	const struct device_attach *a, struct device_attach_result *ret, struct err *err)
{
	const int fd = ends->pod_netns_fd;
	int rc;

	if (a->keep_down.v)
		rc = nl_link_move(ends->host, link->ifindex, fd, a->if_name, 0, err);
	else
		rc = nl_link_move_up(ends->host, link->ifindex, fd, a->if_name, err);
	if (rc == 0)
		ret->if_name = xstrdup(a->if_name);
	return rc;
}

/* Without a note behind it: in the pod anybody could write one. */
static int set_mark(
	struct nl *host, const struct link_info *link, const char *mark, struct err *err)
{
	if (strcmp(link->alias, mark) == 0)
		return 0;
	return nl_link_set_alias(host, link->ifindex, mark, err);
}

static int give_from_host(const struct link_ends *ends, const struct link_info *link,
	const char *mark, const struct link_origin *origin, const struct device_attach *a,
	struct device_attach_result *ret, struct err *err)
{
	struct link_origin before = {0};
	int rc = -1;

	if (set_mark(ends->host, link, mark, err) == 0 &&
		link_origin_of(ends->host, link, &before, err) == 0) {
		if (strlist_has(&link->altnames, a->if_name))
			rc = move_in_by_steps(ends, link, mark, origin, a, ret, err);
		else
			rc = move_in(ends, link, a, ret, err);
		if (rc < 0)
			undo(ends, mark, &before);
	}
	rec_fini(&rec_link_origin, &before);
	return rc;
}

/* Where the link is. What is on the host under its own name is not in a pod, and that is asked
 * for in one message; then the pod's links are looked through, which are few, and last the host's,
 * where the link may have got another name. */
static int locate(const struct link_ends *ends, const char *mark,
	const struct link_origin *origin, struct link_info *ret, bool *ret_in_pod,
	struct err *err)
{
	const struct sought on_host = {.mark = mark, .origin = origin};

	*ret_in_pod = false;
	if (find_by_name(ends->host, &on_host, ret, err) == 0)
		return 0;
	if (link_find(ends->pod, mark, origin, ret, err) == 0)
		*ret_in_pod = true;
	else if (err->kind != ERR_NOT_FOUND || find(ends->host, &on_host, ret, err) < 0)
		return -1;
	return 0;
}

int link_give(const struct link_ends *ends, const char *mark, const struct link_origin *origin,
	const struct device_attach *a, struct device_attach_result *ret, struct err *err)
{
	cleanup_link_info struct link_info link = {0};
	bool in_pod;
	int rc;

	*ret = (struct device_attach_result){.was_there = {.set = true}};
	rc = locate(ends, mark, origin, &link, &in_pod, err);
	if (rc == 0 && in_pod) {
		rc = finish(ends->pod, &link, a, ret, err);
		if (rc < 0)
			undo(ends, mark, origin);
	} else if (rc == 0) {
		rc = give_from_host(ends, &link, mark, origin, a, ret, err);
	}
	if (rc < 0)
		return err_wrap(
			err, "handing '%s' to the pod as '%s'", origin->name, a->if_name);
	ret->was_there.v = rc > 0;
	err_clear(err);
	return 0;
}
