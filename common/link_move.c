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
 * Root in the pod can rename the link, change its MTU, its alternative names and its mark, and
 * can mark another link. Therefore what comes back is checked to be the same kind of device,
 * with the same parent on its bus, before it is let out, and is marked anew as soon as it has
 * arrived; alternative names that it did not leave with are removed inside, where they harm
 * nobody; all else is restored from the record, then compared with it. A device of a bus is found
 * without its mark, too, by what the kernel says of its parent; another link without one stays
 * where it is.
 *
 * A link always comes back, whatever has become of the host meanwhile. A value that the kernel
 * refuses to take back (see is_refusal()) is a difference that is reported, the link's name and
 * alternative names included: where another link has its name it keeps the one that it travelled
 * under. A request that could not be carried out is a failure, and the call is to be repeated.
 */
#include "common/link_move.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/check.h"
#include "common/log.h"

#define MAX_ALTNAMES  64 /* what udev gives is a handful */
#define MAX_ADDRESSES 64 /* as many as are listed: common/nl_address.c */

#define BOOT_SIZE 40 /* a UUID */

#define TRAVEL_PREFIX "nc" /* and 13 hex digits: a name as long as one can be */
_Static_assert(IFNAMSIZ == sizeof(TRAVEL_PREFIX) + 13, "13 digits");

/* --- what is remembered ------------------------------------------------------------------- */

#define ESCAPE         "\\x"
#define ENCODED(size_) (sizeof(ESCAPE) + 2 * ((size_t)(size_)-1)) /* with the NUL */

char *link_text_encode(const char *bytes)
{
	const size_t len = strlen(bytes);
	char *text;

	if (utf8_valid(bytes, len) && !str_has_prefix(bytes, ESCAPE))
		return xstrdup(bytes);
	text = xcalloc(1, ENCODED(len + 1));
	(void)snprintf(text, sizeof(ESCAPE), ESCAPE);
	for (size_t i = 0; i < len; i++)
		(void)snprintf(text + strlen(ESCAPE) + 2 * i, 3, "%02x",
			(unsigned)(unsigned char)bytes[i]);
	return text;
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

void link_text_decode(const char *text, char *out, size_t size)
{
	size_t n = 0;

	if (!str_has_prefix(text, ESCAPE)) {
		(void)snprintf(out, size, "%s", text);
		return;
	}
	for (const char *at = text + strlen(ESCAPE); n + 1 < size; at += 2) {
		const int high = hex_digit(at[0]), low = high < 0 ? -1 : hex_digit(at[1]);

		/* a NUL would end it as well */
		if (low < 0 || high + low == 0)
			break;
		out[n++] = (char)(high << 4 | low);
	}
	out[n] = '\0';
}

static size_t decoded_len(const char *text)
{
	return str_has_prefix(text, ESCAPE) ? (strlen(text) - strlen(ESCAPE)) / 2 : strlen(text);
}

static int check_altname(const char *text, struct err *err)
{
	if (!*text || decoded_len(text) >= LINK_ALTNAME_SIZE)
		return err_set(
			err, ERR_INVALID, "must have 1 to %d bytes", LINK_ALTNAME_SIZE - 1);
	return 0;
}

static int check_alias(const char *text, struct err *err)
{
	if (decoded_len(text) >= LINK_ALIAS_SIZE)
		return err_set(
			err, ERR_INVALID, "must have at most %d bytes", LINK_ALIAS_SIZE - 1);
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
	REC_STR(struct link_origin, alias, "Alias", REC_OPTIONAL, ENCODED(LINK_ALIAS_SIZE) - 1,
		check_alias, "alias of before"),
	REC_STR(struct link_origin, kind, "Kind", REC_OPTIONAL, LINK_KIND_SIZE - 1, NULL,
		"kind of virtual link; unset: a device of a bus"),
	REC_STR(struct link_origin, parent, "Parent", REC_OPTIONAL, LINK_PARENT_SIZE - 1, NULL,
		"its device on the bus"),
	REC_STR(struct link_origin, boot, "Boot", REC_OPTIONAL, BOOT_SIZE - 1, NULL,
		"boot of the node (/proc/sys/kernel/random/boot_id)"),
};
REC_DESC(rec_link_origin, struct link_origin, "link", link_origin_fields, NULL,
	"a link as it was on the host");

/* --- which boot it is of ------------------------------------------------------------------ */

const char *link_boot(void)
{
	static char boot[BOOT_SIZE];
	cleanup_close int fd = -1;
	ssize_t n;

	if (*boot)
		return boot;
	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, boot, sizeof(boot) - 1);
	boot[MAX(n, 0)] = '\0';
	boot[strspn(boot, "0123456789abcdef-")] = '\0';
	return boot;
}

/* What a new boot makes new is nothing that the claim has changed: numbers, and the addresses that
 * drivers choose at random. */
static bool is_of_this_boot(const struct link_origin *origin)
{
	return !origin->boot || !*link_boot() || strcmp(origin->boot, link_boot()) == 0;
}

/* --- what is remembered, from the link ---------------------------------------------------- */

static char *dup_unless_empty(const char *text)
{
	return *text ? xstrdup(text) : NULL;
}

/* An alias that only begins like a mark is none. */
static bool link_is_marked(const struct link_info *link)
{
	struct link_mark mark;

	return link_mark_parse(link->alias, &mark, NULL);
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
		.alias = link_is_marked(link) || !*link->alias ? NULL
							       : link_text_encode(link->alias),
		.kind = dup_unless_empty(link->kind),
		.parent = dup_unless_empty(link->parent),
	};
	for (int i = 0; i < LINK_NUMBER_MAX; i++)
		ret->numbers[i] =
			(struct rec_int){.v = link->numbers[i], .set = link->known >> i & 1};
	for (size_t i = 0; i < link->altnames.n; i++) {
		cleanup_free char *altname = link_text_encode(link->altnames.v[i]);

		strlist_add(&ret->altnames, altname);
	}
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

/* Without a note behind it: in the pod anybody could write one. */
static int set_mark(
	struct nl *host, const struct link_info *link, const char *mark, struct err *err)
{
	if (strcmp(link->alias, mark) == 0)
		return 0;
	return nl_link_set_alias(host, link->ifindex, mark, err);
}

/* Nothing has it, and nobody can take it in time: whoever is root in the pod might try. */
static void travel_name(char out[static IFNAMSIZ])
{
	uint64_t bits;
	ssize_t n = getrandom(&bits, sizeof(bits), 0);

	/* up to 256 bytes are never short or interrupted: getrandom(2) */
	assert(n == sizeof(bits));
	(void)n;
	(void)snprintf(
		out, IFNAMSIZ, TRAVEL_PREFIX "%013" PRIx64, bits & ((UINT64_C(1) << 52) - 1));
}

static bool is_travel_name(const char *name)
{
	return str_has_prefix(name, TRAVEL_PREFIX) && strlen(name) == IFNAMSIZ - 1 &&
	       strspn(name + strlen(TRAVEL_PREFIX), "0123456789abcdef") ==
		       IFNAMSIZ - 1 - strlen(TRAVEL_PREFIX);
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

static bool is_same_device(const struct link_origin *o, const struct link_info *link)
{
	return strcmp(link->kind, o->kind ? o->kind : "") == 0 &&
	       strcmp(link->parent, o->parent ? o->parent : "") == 0;
}

static bool is_sought(const void *ctx, const struct link_info *link)
{
	const struct sought *s = ctx;

	return is_same_device(s->origin, link) && is_marked_so(s, link);
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

/* Whether the kernel has looked at a value and will not have it: the adapter's limits are others by
 * now, its administrator has fixed the value, another link has the name. Asking again would not
 * help. What says nothing of the value is no refusal: no answer at all, a link that does not
 * exist any more, a kernel or an adapter that could not do it just now. */
static bool is_refusal(const struct err *err)
{
	switch (err->sys) {
	case 0: return err->kind == ERR_INVALID; /* by our own side: the record's is no value */
	case EAGAIN:
	case EBUSY:
	case EINTR:
	case EIO:
	case ENOBUFS:
	case ENODEV:
	case ENOMEM:
	case ETIMEDOUT: return false;
	default: return true;
	}
}

/* A restoration under way. It goes on past a step that fails, so that as much as possible is as it
 * was. */
struct restoring {
	struct nl *host;
	struct link_info *link;
	const struct link_origin *origin;
	bool from_pod;      /* its name may be one that the pod gave it */
	struct buf refused; /* what the kernel said to each value that it refused */
	struct err failure; /* the first request that could not be carried out */
};

static void note_failure(struct restoring *r, const struct err *err)
{
	if (is_refusal(err))
		buf_printf(&r->refused, "%s%s", r->refused.len ? "; " : "", err->message);
	else if (r->failure.kind == ERR_NONE)
		r->failure = *err;
}

/* All that are not to be kept, as a record has them. -1: one at least could not be removed. */
static int drop_altnames(struct nl *nl, const struct link_info *link,
	const struct strlist *keep, struct err *err)
{
	struct err failed;
	int rc = 0;

	for (size_t i = 0; i < link->altnames.n; i++) {
		const char *altname = link->altnames.v[i];
		cleanup_free char *text = link_text_encode(altname);

		if (strlist_has(keep, text) ||
			nl_link_del_altname(nl, link->ifindex, altname, &failed) == 0 ||
			failed.kind == ERR_NOT_FOUND)
			continue;
		*err = failed;
		rc = -1;
	}
	return rc;
}

static bool has_altname(struct nl *nl, int ifindex, const char *altname)
{
	cleanup_link_info struct link_info link = {0};
	struct err err;

	return nl_link_get(nl, altname, &link, &err) == 0 && link.ifindex == ifindex;
}

static int rename_down(struct nl *nl, struct link_info *link, const char *name, struct err *err)
{
	if (strcmp(link->name, name) == 0)
		return 0;
	/* before 6.2 most links cannot be renamed while they are up */
	if (link->up && nl_link_set_up(nl, link->ifindex, false, err) < 0)
		return -1;
	link->up = false;
	if (nl_link_set_name(nl, link->ifindex, name, err) < 0)
		return -1;
	(void)snprintf(link->name, sizeof(link->name), "%s", name);
	return 0;
}

static int move_to_host(const struct link_ends *ends, const struct link_info *link,
	const char *name, const struct link_origin *origin, struct err *err)
{
	const bool has_number = origin->ifindex.set && is_of_this_boot(origin);
	const int want = has_number ? (int)origin->ifindex.v : 0;

	if (nl_link_move(ends->pod, link->ifindex, ends->host_netns_fd, name, want, err) == 0)
		return 0;
	if (want == 0 || err->sys != EBUSY)
		return -1;
	/* another link has its number by now */
	return nl_link_move(ends->pod, link->ifindex, ends->host_netns_fd, name, 0, err);
}

/* From the pod to the host, under this name for travelling. */
static int move_out(const struct link_ends *ends, struct link_info *link, const char *name,
	const struct link_origin *origin, struct err *err)
{
	static const struct strlist none = {0};

	if ((drop_altnames(ends->pod, link, &origin->altnames, err) < 0 && !is_refusal(err)) ||
		rename_down(ends->pod, link, name, err) < 0)
		return -1;
	if (move_to_host(ends, link, name, origin, err) == 0)
		return 0;
	/* only an alternative name can be taken: one that is free it has again on the host */
	if (err->sys != EEXIST || drop_altnames(ends->pod, link, &none, err) < 0)
		return -1;
	return move_to_host(ends, link, name, origin, err);
}

static void copy_text(char *to, size_t size, const char *from)
{
	(void)snprintf(to, size, "%s", from ? from : "");
}

static void restore_altnames(struct restoring *r)
{
	struct err err;

	if (drop_altnames(r->host, r->link, &r->origin->altnames, &err) < 0)
		note_failure(r, &err);
}

/* Its own or, where that is another link's by now, one that nothing has: the pod's is not left on
 * the host. */
static void restore_name(struct restoring *r)
{
	char name[IFNAMSIZ];
	struct err err;

	if (rename_down(r->host, r->link, r->origin->name, &err) == 0)
		return;
	note_failure(r, &err);
	if (!r->from_pod || !is_refusal(&err) || is_travel_name(r->link->name))
		return;
	travel_name(name);
	if (rename_down(r->host, r->link, name, &err) < 0)
		note_failure(r, &err);
}

/* final: what fails is noted; else it is tried again in the end, when others are as they were. */
static void restore_numbers(struct restoring *r, const struct link_info *link, bool final)
{
	struct err err;

	for (int i = 0; i < LINK_NUMBER_MAX; i++) {
		const struct rec_int *was = &r->origin->numbers[i];

		if (was->set && (link->known >> i & 1) && was->v != link->numbers[i] &&
			nl_link_set_number(r->host, link->ifindex, (enum link_number)i,
				(uint32_t)was->v, &err) < 0 &&
			final)
			note_failure(r, &err);
	}
}

static void restore_numbers_first(struct restoring *r)
{
	restore_numbers(r, r->link, false);
}

/* While it is down: many drivers refuse it otherwise. */
static void restore_mac(struct restoring *r)
{
	const char *mac = r->origin->mac;
	struct err err;

	if (!mac || strcmp(mac, r->link->mac) == 0 ||
		(!r->from_pod && !is_of_this_boot(r->origin)))
		return;
	if (r->link->up) {
		if (nl_link_set_up(r->host, r->link->ifindex, false, &err) < 0)
			note_failure(r, &err);
		else
			r->link->up = false;
	}
	if (nl_link_set_mac(r->host, r->link->ifindex, mac, &err) < 0)
		note_failure(r, &err);
}

static void add_altnames(struct restoring *r)
{
	struct err err;

	for (size_t i = 0; i < r->origin->altnames.n; i++) {
		char altname[LINK_ALTNAME_SIZE];

		link_text_decode(r->origin->altnames.v[i], altname, sizeof(altname));
		/* it may have it by now: udev names what arrives, too */
		if (!strlist_has(&r->link->altnames, altname) &&
			nl_link_add_altname(r->host, r->link->ifindex, altname, &err) < 0 &&
			!has_altname(r->host, r->link->ifindex, altname))
			note_failure(r, &err);
	}
}

static void restore_flags(struct restoring *r)
{
	const struct rec_int *was = &r->origin->flags;
	struct err err;

	if (was->set && (r->link->flags & LINK_FLAGS) != was->v &&
		nl_link_set_flags(r->host, r->link->ifindex, (unsigned)was->v, &err) < 0)
		note_failure(r, &err);
}

/* Before it is up: that is when the kernel makes the address. */
static void restore_addr_gen_mode(struct restoring *r)
{
	const struct rec_int *was = &r->origin->addr_gen_mode;
	struct err err;

	if (was->set && r->link->addr_gen_mode >= 0 && r->link->addr_gen_mode != was->v &&
		nl_link_set_addr_gen_mode(r->host, r->link->ifindex, (int)was->v, &err) < 0)
		note_failure(r, &err);
}

static void restore_up(struct restoring *r)
{
	const struct rec_bool *was = &r->origin->up;
	struct err err;

	if (was->set && was->v != r->link->up &&
		nl_link_set_up(r->host, r->link->ifindex, was->v, &err) < 0)
		note_failure(r, &err);
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

static void restore_addresses(struct restoring *r)
{
	struct err err;

	/* they are labelled with its name, and a rename would number the labels */
	if (strcmp(r->link->name, r->origin->name) != 0)
		return;
	for (size_t i = 0; i < r->origin->addresses.n; i++) {
		struct link_address a;

		address_of(&r->origin->addresses.v[i], &a);
		/* a link that was on the host all the time has them still */
		if (nl_address_add(r->host, r->link->ifindex, &a, &err) < 0 &&
			err.kind != ERR_CONFLICT)
			note_failure(r, &err);
	}
}

static void restore(struct restoring *r)
{
	static void (*const steps[])(struct restoring *) = {
		restore_altnames, /* first: its name might have become one of them */
		restore_name, restore_numbers_first, restore_mac, add_altnames, restore_flags,
		restore_addr_gen_mode, restore_up,
		restore_addresses, /* up: else those of IPv6 are lost again */
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		steps[i](r);
}

/* --- comparing ---------------------------------------------------------------------------- */

static void add_difference(struct buf *to, const char *what)
{
	buf_printf(to, "%s%s", to->len ? ", " : "", what);
}

static void add_missing(struct buf *to, const char *what, const char *which)
{
	buf_printf(to, "%s%s %s is missing", to->len ? ", " : "", what, which);
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
			add_missing(to, "address", was->addresses.v[i].local);
}

static void compare_int(
	struct buf *to, const char *what, const struct rec_int *was, const struct rec_int *is)
{
	if (was->set && is->set && was->v != is->v)
		buf_printf(to, "%s%s is %lld, was %lld", to->len ? ", " : "", what,
			(long long)is->v, (long long)was->v);
}

static void compare_text(struct buf *to, const char *what, const char *was, const char *is)
{
	if (was && (!is || strcmp(was, is) != 0))
		buf_printf(to, "%s%s is %s, was %s", to->len ? ", " : "", what, is ? is : "none",
			was);
}

static void compare(struct buf *to, const struct link_origin *was, const struct link_origin *is)
{
	const bool same_boot = is_of_this_boot(was);

	compare_text(to, "name", was->name, is->name);
	if (same_boot)
		compare_text(to, "address", was->mac, is->mac);
	for (int i = 0; i < LINK_NUMBER_MAX; i++)
		compare_int(to, link_number_name((enum link_number)i), &was->numbers[i],
			&is->numbers[i]);
	compare_int(to, "flags", &was->flags, &is->flags);
	compare_int(to, "addrgenmode", &was->addr_gen_mode, &is->addr_gen_mode);
	if (same_boot)
		compare_int(to, "ifindex", &was->ifindex, &is->ifindex);
	if (was->up.set && was->up.v != is->up.v)
		add_difference(to, was->up.v ? "is down, was up" : "is up, was down");
	for (size_t i = 0; i < was->altnames.n; i++)
		if (!strlist_has(&is->altnames, was->altnames.v[i]))
			add_missing(to, "alternative name", was->altnames.v[i]);
	compare_addresses(to, was, is);
}

/* Reports what is not as it was: the link is back, so this is no failure, but an operator's to
 * know. */
static void report(const struct restoring *r, const struct link_info *link)
{
	struct link_origin now = {0};
	struct buf differences = {0};
	struct err err = ERR_INIT;

	if (link_origin_of(r->host, link, &now, &err) == 0)
		compare(&differences, r->origin, &now);
	if (r->refused.len)
		buf_printf(&differences, "%s%s", differences.len ? "; " : "", r->refused.data);
	if (differences.len)
		LOG(WARN, FIELDS(F("device", r->origin->name), F("err", differences.data)),
			"link is back, but not all of it is as it was");
	rec_fini(&rec_link_origin, &now);
	buf_fini(&differences);
}

/* The numbers once more, as one may have changed another, and what has come of it all. */
static int restore_rest(struct restoring *r, struct err *err)
{
	cleanup_link_info struct link_info again = {0}, now = {0};

	if (nl_link_get_by_index(r->host, r->link->ifindex, &again, err) < 0)
		return -1;
	restore_numbers(r, &again, true);
	if (r->failure.kind != ERR_NONE) {
		*err = r->failure;
		return -1;
	}
	if (nl_link_get_by_index(r->host, again.ifindex, &now, err) < 0)
		return -1;
	report(r, &now);
	return 0;
}

static int restore_on_host(struct nl *host, struct link_info *link,
	const struct link_origin *origin, bool from_pod, struct err *err)
{
	struct restoring r = {
		.host = host, .link = link, .origin = origin, .from_pod = from_pod};
	int rc;

	restore(&r);
	rc = restore_rest(&r, err);
	buf_fini(&r.refused);
	return rc < 0 ? err_wrap(err, "restoring '%s'", origin->name) : 0;
}

/* The link that has just arrived: udev may have renamed it by now. */
static int find_arrived(struct nl *host, const struct sought *sought, const char *name,
	struct link_info *ret, struct err *err)
{
	if (nl_link_get(host, name, ret, err) == 0 && is_same_device(sought->origin, ret))
		return 0;
	link_info_fini(ret);
	return find(host, sought, ret, err);
}

/* From the pod to the host, where it has its mark again before anything else reads its alias. */
static int take_out(const struct link_ends *ends, struct link_info *link, const char *mark,
	const struct link_origin *origin, struct link_info *ret, struct err *err)
{
	/* by what it is: its alias is the pod's still */
	const struct sought arrived = {.mark = mark, .origin = origin, .in_pod = true};
	char name[IFNAMSIZ];

	travel_name(name);
	if (move_out(ends, link, name, origin, err) < 0)
		return err_wrap(err, "taking '%s' out of the pod", link->name);
	if (find_arrived(ends->host, &arrived, name, ret, err) < 0) {
		err->kind = ERR_INTERNAL;
		return err_wrap(err, "link was moved out of the pod as '%s'", name);
	}
	return set_mark(ends->host, ret, mark, err);
}

int link_take(const struct link_ends *ends, const char *mark, const struct link_origin *origin,
	struct err *err)
{
	cleanup_link_info struct link_info inside = {0}, outside = {0};

	if (link_find(ends->pod, mark, origin, &inside, err) == 0) {
		if (take_out(ends, &inside, mark, origin, &outside, err) < 0)
			return -1;
	} else if (err->kind != ERR_NOT_FOUND) {
		return -1;
	} else if (find_on_host(ends->host, mark, origin, &outside, err) < 0) {
		if (err->kind != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 1;
	}
	if (restore_on_host(ends->host, &outside, origin, true, err) < 0)
		return -1;
	err_clear(err);
	return 0;
}

int link_reclaim(struct nl *host, struct link_info *link, const char *mark,
	const struct link_origin *origin, struct err *err)
{
	if (!is_same_device(origin, link))
		return err_set(err, ERR_CONFLICT,
			"link '%s' (kind '%s', device '%s') is not what the claim had (kind "
			"'%s', device '%s')",
			link->name, link->kind, link->parent, origin->kind ? origin->kind : "",
			origin->parent ? origin->parent : "");
	if (set_mark(host, link, mark, err) < 0)
		return -1;
	return restore_on_host(host, link, origin, true, err);
}

int link_release(
	struct nl *host, const char *mark, const struct link_origin *origin, struct err *err)
{
	cleanup_link_info struct link_info link = {0};
	char alias[LINK_ALIAS_SIZE];

	if (find_on_host(host, mark, origin, &link, err) < 0) {
		if (err->kind != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 1;
	}
	if (restore_on_host(host, &link, origin, false, err) < 0)
		return -1;
	err_clear(err);
	link_text_decode(origin->alias ? origin->alias : "", alias, sizeof(alias));
	return nl_link_set_alias(host, link.ifindex, alias, err);
}

/* --- giving ------------------------------------------------------------------------------- */

static bool is_text(const char *name)
{
	return utf8_valid(name, strlen(name));
}

/* A link that is down in the pod has not been finished; one that is up has, and if it has
 * another name by now, the pod has given it that; which may be no text, and then it is called by
 * the name that it was given. 1 if nothing had to be done. */
static int finish(struct nl *pod, struct link_info *link, const struct device_attach *a,
	struct device_attach_result *ret, struct err *err)
{
	if (link->up) {
		ret->if_name = xstrdup(is_text(link->name) ? link->name : a->if_name);
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
