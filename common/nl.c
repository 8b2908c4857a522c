/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links over rtnetlink, on libnl's sockets and messages.
 *
 * Messages are built and read here rather than through libnl-route's link objects, which know
 * nothing of alternative names and turn every errno into one of a few codes of their own.
 *
 * A request is sent with NLM_F_ACK; nl_talk() reads until the kernel has acknowledged it, refused
 * it or, for a dump, said that it is done. Answers to another request are skipped: they can
 * only be late ones, to a request that was given up after ANSWER_TIMEOUT.
 *
 * libnl does not know extended acks (NETLINK_EXT_ACK, netlink(7)): the options are set by hand
 * and the error callback reads the text that follows the error.
 */
#include "common/nl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <string.h>
#include <sys/socket.h>

#include "common/nl_internal.h"

/* The kernel works on a request inside send(), so its answer is there at once; only one that
 * was dropped for want of buffer space is waited for. */
#define ANSWER_TIMEOUT_S 5
/* How often a dump is repeated that links appearing and vanishing made inconsistent. */
#define DUMP_TRIES       16
#define MAX_ERRNO        4095 /* include/linux/err.h */

/* IFLA_GSO_IPV4_MAX_SIZE and its like, of Linux 6.3 (linux/if_link.h) */
#define ATTR_GSO_IPV4_MAX_SIZE 63
#define ATTR_GRO_IPV4_MAX_SIZE 64
#define ATTR_MAX               ATTR_GRO_IPV4_MAX_SIZE
_Static_assert(ATTR_MAX >= IFLA_AF_SPEC && ATTR_MAX >= IFLA_GRO_MAX_SIZE, "one table for all");

void nl_msg_free_p(struct nl_msg **msg)
{
	nlmsg_free(*msg);
}

void link_info_fini(struct link_info *link)
{
	strlist_fini(&link->altnames);
}

void link_list_fini(struct link_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		link_info_fini(&list->v[i]);
	free(list->v);
	*list = (struct link_list){0};
}

/* --- the socket --------------------------------------------------------------------------- */

static int open_socket(struct err *err)
{
	struct sockaddr_nl any = {.nl_family = AF_NETLINK};
	cleanup_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return err_errno(err, errno, "opening a rtnetlink socket");
	if (bind(fd, (const struct sockaddr *)&any, sizeof(any)) < 0)
		return err_errno(err, errno, "binding a rtnetlink socket");
	return take_fd(&fd);
}

static int set_option(
	int fd, int level, int name, const void *value, socklen_t len, struct err *err)
{
	if (setsockopt(fd, level, name, value, len) < 0)
		return err_errno(err, errno, "setting option %d of a rtnetlink socket", name);
	return 0;
}

static int set_options(int fd, struct err *err)
{
	static const int flags[] = {NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK};
	const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
	const int on = 1;

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (set_option(fd, SOL_NETLINK, flags[i], &on, sizeof(on), err) < 0)
			return -1;
	return set_option(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout), err);
}

int nl_init(struct nl *nl, int fd, struct err *err)
{
	cleanup_close int own = fd < 0 ? open_socket(err) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int rc;

	nl->sock = NULL;
	if (own < 0)
		return fd < 0 ? -1 : err_errno(err, errno, "duplicating a rtnetlink socket");
	if (set_options(own, err) < 0)
		return -1;
	nl->sock = nl_socket_alloc();
	if (!nl->sock)
		return err_errno(err, ENOMEM, "making a rtnetlink socket");
	rc = nl_socket_set_fd(nl->sock, NETLINK_ROUTE, own);
	if (rc < 0) {
		nl_fini(nl);
		return err_set(
			err, ERR_INTERNAL, "adopting a rtnetlink socket: %s", nl_geterror(rc));
	}
	(void)take_fd(&own);
	return 0;
}

void nl_fini(struct nl *nl)
{
	nl_socket_free(nl->sock);
	nl->sock = NULL;
}

/* --- one request and its answer ----------------------------------------------------------- */

static int on_seq_check(struct nl_msg *msg, void *arg)
{
	const struct nl_answer *a = arg;

	return nlmsg_hdr(msg)->nlmsg_seq == a->seq ? NL_OK : NL_SKIP;
}

static int on_done(struct nl_msg *msg UNUSED, void *arg)
{
	struct nl_answer *a = arg;

	a->done = true;
	return NL_OK;
}

/* The attributes follow the error: NETLINK_CAP_ACK keeps the request from being echoed. */
static void read_reason(struct nlmsgerr *e, struct nl_answer *a)
{
	const struct nlmsghdr *h = (const void *)((const char *)e - NLMSG_HDRLEN);
	const unsigned flags = NLM_F_ACK_TLVS | NLM_F_CAPPED;
	struct nlattr *text;

	if ((h->nlmsg_flags & flags) != flags || h->nlmsg_len < NLMSG_HDRLEN + sizeof(*e))
		return;
	text = nla_find((const void *)(e + 1), (int)(h->nlmsg_len - NLMSG_HDRLEN - sizeof(*e)),
		NLMSGERR_ATTR_MSG);
	if (text)
		(void)nla_strlcpy(a->reason, text, sizeof(a->reason));
	str_sanitize(a->reason);
}

static int on_error(struct sockaddr_nl *from UNUSED, struct nlmsgerr *e, void *arg)
{
	struct nl_answer *a = arg;

	a->sys = e->error < 0 && e->error >= -MAX_ERRNO ? -e->error : EPROTO;
	a->done = true;
	read_reason(e, a);
	return NL_SKIP;
}

static int on_message(struct nl_msg *msg, void *arg)
{
	const struct nl_answer *a = arg;

	return a->on_message ? a->on_message(msg, a->ctx) : NL_OK;
}

static void listen_for(struct nl_sock *sock, struct nl_answer *a)
{
	(void)nl_socket_modify_cb(sock, NL_CB_SEQ_CHECK, NL_CB_CUSTOM, on_seq_check, a);
	(void)nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, on_message, a);
	(void)nl_socket_modify_cb(sock, NL_CB_FINISH, NL_CB_CUSTOM, on_done, a);
	(void)nl_socket_modify_cb(sock, NL_CB_ACK, NL_CB_CUSTOM, on_done, a);
	(void)nl_socket_modify_err_cb(sock, NL_CB_CUSTOM, on_error, a);
}

int nl_talk(struct nl *nl, struct nl_msg *msg, struct nl_answer *a, struct err *err)
{
	int rc;

	nl_complete_msg(nl->sock, msg);
	a->seq = nlmsg_hdr(msg)->nlmsg_seq;
	listen_for(nl->sock, a);
	rc = nl_send(nl->sock, msg);
	while (rc >= 0 && !a->done)
		rc = nl_recvmsgs_default(nl->sock);
	if (a->sys && a->reason[0])
		return err_errno(err, a->sys, "%s", a->reason);
	if (a->sys)
		return err_errno(err, a->sys, "the kernel refuses");
	if (rc == -NLE_DUMP_INTR)
		return rc;
	if (rc < 0)
		return err_set(err, rc == -NLE_AGAIN ? ERR_DEADLINE : ERR_INTERNAL,
			"talking rtnetlink: %s", nl_geterror(rc));
	return 0;
}

int nl_command(struct nl *nl, struct nl_msg *msg, struct err *err)
{
	struct nl_answer a = {0};
	int rc = nl_talk(nl, msg, &a, err);

	nlmsg_free(msg);
	return rc;
}

/* --- messages ----------------------------------------------------------------------------- */

struct nl_msg *nl_request(int type, int flags, const void *body, size_t len)
{
	struct nl_msg *msg = nlmsg_alloc_simple(type, flags | NLM_F_REQUEST | NLM_F_ACK);
	void *room;

	/* out of memory ends the process, as in common/util.h */
	if (!msg || !(room = nlmsg_reserve(msg, len, NLMSG_ALIGNTO)))
		abort();
	memcpy(room, body, len);
	return msg;
}

static struct nl_msg *link_request(int type, int flags, const struct ifinfomsg *body)
{
	return nl_request(type, flags, body, sizeof(*body));
}

struct nl_msg *nl_change(int ifindex)
{
	return link_request(RTM_SETLINK, 0, &(struct ifinfomsg){.ifi_index = ifindex});
}

void nl_put(struct nl_msg *msg, int attr, const void *data, size_t len)
{
	int rc = nla_put(msg, attr, (int)len, data);

	assert(rc == 0);
}

static void put_text(struct nl_msg *msg, int attr, const char *text, size_t size)
{
	assert(strlen(text) < size);
	nl_put(msg, attr, text, strlen(text) + 1);
}

void nl_put_u32(struct nl_msg *msg, int attr, uint32_t value)
{
	nl_put(msg, attr, &value, sizeof(value));
}

struct nlattr *nl_nest(struct nl_msg *msg, int attr)
{
	struct nlattr *nest = nla_nest_start(msg, attr);

	assert(nest);
	return nest;
}

/* --- reading links ------------------------------------------------------------------------ */

static void copy_text(char *to, size_t size, const struct nlattr *attr)
{
	if (attr)
		(void)nla_strlcpy(to, attr, size);
}

static void format_mac(char out[static LINK_MAC_SIZE], const struct nlattr *attr)
{
	const uint8_t *bytes;
	size_t len;

	if (!attr)
		return;
	bytes = nla_data(attr);
	len = MIN((size_t)nla_len(attr), (size_t)LINK_MAC_SIZE / 3);
	for (size_t i = 0; i < len; i++)
		(void)snprintf(out + 3 * i, LINK_MAC_SIZE - 3 * i, "%02x%s", bytes[i],
			i + 1 < len ? ":" : "");
}

static void read_kind(char out[static LINK_KIND_SIZE], struct nlattr *linkinfo)
{
	struct nlattr *attrs[IFLA_INFO_MAX + 1];

	if (linkinfo && nla_parse_nested(attrs, IFLA_INFO_MAX, linkinfo, NULL) == 0)
		copy_text(out, LINK_KIND_SIZE, attrs[IFLA_INFO_KIND]);
}

static void read_altnames(struct strlist *out, const struct nlattr *list)
{
	char altname[LINK_ALTNAME_SIZE];
	struct nlattr *attr;
	int left;

	if (!list)
		return;
	nla_for_each_nested(attr, list, left) if (nla_type(attr) == IFLA_ALT_IFNAME)
	{
		copy_text(altname, sizeof(altname), attr);
		strlist_add(out, altname);
	}
}

static const struct {
	const char *name;
	int attr;
} numbers[LINK_NUMBER_MAX] = {
	[LINK_MTU] = {"mtu", IFLA_MTU},
	[LINK_TX_QUEUE_LEN] = {"txqlen", IFLA_TXQLEN},
	[LINK_GROUP] = {"group", IFLA_GROUP},
	[LINK_GSO_MAX_SIZE] = {"gso_max_size", IFLA_GSO_MAX_SIZE},
	[LINK_GSO_MAX_SEGS] = {"gso_max_segs", IFLA_GSO_MAX_SEGS},
	[LINK_GRO_MAX_SIZE] = {"gro_max_size", IFLA_GRO_MAX_SIZE},
	[LINK_GSO_IPV4_MAX_SIZE] = {"gso_ipv4_max_size", ATTR_GSO_IPV4_MAX_SIZE},
	[LINK_GRO_IPV4_MAX_SIZE] = {"gro_ipv4_max_size", ATTR_GRO_IPV4_MAX_SIZE},
};

const char *link_number_name(enum link_number which)
{
	return numbers[which].name;
}

static bool read_u32(const struct nlattr *attr, uint32_t *ret)
{
	if (!attr || nla_len(attr) < (int)sizeof(*ret))
		return false;
	*ret = nla_get_u32(attr);
	return true;
}

static void read_numbers(struct link_info *ret, struct nlattr **attrs)
{
	for (int i = 0; i < LINK_NUMBER_MAX; i++)
		if (read_u32(attrs[numbers[i].attr], &ret->numbers[i]))
			ret->known |= 1u << i;
}

static int read_addr_gen_mode(struct nlattr *spec)
{
	struct nlattr *families[AF_INET6 + 1], *inet6[IFLA_INET6_MAX + 1];

	if (!spec || nla_parse_nested(families, AF_INET6, spec, NULL) < 0 ||
		!families[AF_INET6] ||
		nla_parse_nested(inet6, IFLA_INET6_MAX, families[AF_INET6], NULL) < 0 ||
		!inet6[IFLA_INET6_ADDR_GEN_MODE] ||
		nla_len(inet6[IFLA_INET6_ADDR_GEN_MODE]) < 1)
		return -1;
	return nla_get_u8(inet6[IFLA_INET6_ADDR_GEN_MODE]);
}

static int read_link(struct nl_msg *msg, struct link_info *ret)
{
	struct nlattr *attrs[ATTR_MAX + 1];
	const struct ifinfomsg *body = nlmsg_data(nlmsg_hdr(msg));

	*ret = (struct link_info){0};
	if (nlmsg_hdr(msg)->nlmsg_type != RTM_NEWLINK ||
		nlmsg_parse(nlmsg_hdr(msg), sizeof(*body), attrs, ATTR_MAX, NULL) < 0)
		return -1;
	ret->ifindex = body->ifi_index;
	ret->flags = body->ifi_flags;
	ret->up = body->ifi_flags & IFF_UP;
	copy_text(ret->name, sizeof(ret->name), attrs[IFLA_IFNAME]);
	copy_text(ret->alias, sizeof(ret->alias), attrs[IFLA_IFALIAS]);
	copy_text(ret->parent, sizeof(ret->parent), attrs[IFLA_PARENT_DEV_NAME]);
	read_kind(ret->kind, attrs[IFLA_LINKINFO]);
	format_mac(ret->mac, attrs[IFLA_ADDRESS]);
	read_numbers(ret, attrs);
	(void)read_u32(attrs[IFLA_MAX_MTU], &ret->max_mtu);
	ret->addr_gen_mode = read_addr_gen_mode(attrs[IFLA_AF_SPEC]);
	read_altnames(&ret->altnames, attrs[IFLA_PROP_LIST]);
	return 0;
}

/* Of the links that an answer brings, the first max that match. */
struct harvest {
	struct link_list links;
	size_t max;
	bool (*match)(const void *ctx, const struct link_info *link); /* NULL: any */
	const void *match_ctx;
};

static int on_link(struct nl_msg *msg, void *arg)
{
	struct link_info link;
	struct harvest *h = arg;

	if (h->links.n == h->max || read_link(msg, &link) < 0)
		return NL_OK;
	if (h->match && !h->match(h->match_ctx, &link)) {
		link_info_fini(&link);
		return NL_OK;
	}
	h->links.v = xrealloc(h->links.v, h->links.n + 1, sizeof(link));
	h->links.v[h->links.n++] = link;
	return NL_OK;
}

/* Moves the only link of a list out of it. */
static struct link_info take_link(struct link_list *list)
{
	struct link_info link = list->v[0];

	assert(list->n == 1);
	list->n = 0;
	link_list_fini(list);
	return link;
}

/* Takes msg, which says of which link. */
static int get_link(struct nl *nl, struct nl_msg *msg, struct link_info *ret, struct err *err)
{
	struct harvest h = {.max = 1};
	struct nl_answer a = {.on_message = on_link, .ctx = &h};
	int rc;

	*ret = (struct link_info){0};
	nl_put_u32(msg, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
	rc = nl_talk(nl, msg, &a, err);
	nlmsg_free(msg);
	if (rc == 0 && h.links.n == 1) {
		*ret = take_link(&h.links);
		return 0;
	}
	link_list_fini(&h.links);
	return rc < 0 ? -1 : err_set(err, ERR_INTERNAL, "no answer");
}

int nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err)
{
	struct nl_msg *msg = link_request(RTM_GETLINK, 0, &(struct ifinfomsg){0});

	/* by either attribute a link is found under any of its names */
	if (strlen(name) < IFNAMSIZ)
		put_text(msg, IFLA_IFNAME, name, IFNAMSIZ);
	else
		put_text(msg, IFLA_ALT_IFNAME, name, LINK_ALTNAME_SIZE);
	if (get_link(nl, msg, ret, err) < 0)
		return err_wrap(err, "looking up link '%s'", name);
	return 0;
}

int nl_link_get_by_index(struct nl *nl, int ifindex, struct link_info *ret, struct err *err)
{
	struct nl_msg *msg =
		link_request(RTM_GETLINK, 0, &(struct ifinfomsg){.ifi_index = ifindex});

	if (get_link(nl, msg, ret, err) < 0)
		return err_wrap(err, "looking up link %d", ifindex);
	return 0;
}

/* As nl_talk(), and -NLE_DUMP_INTR when links changed meanwhile and one may have been missed. */
static int dump(struct nl *nl, struct nl_answer *a, struct err *err)
{
	cleanup_nl_msg struct nl_msg *msg =
		link_request(RTM_GETLINK, NLM_F_DUMP, &(struct ifinfomsg){0});

	nl_put_u32(msg, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
	return nl_talk(nl, msg, a, err);
}

/* The first max links that match, into *ret. */
static int list(struct nl *nl, size_t max,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err)
{
	for (int i = 0; i < DUMP_TRIES; i++) {
		struct harvest h = {.max = max, .match = match, .match_ctx = ctx};
		struct nl_answer a = {.on_message = on_link, .ctx = &h};
		int rc = dump(nl, &a, err);

		if (rc == 0 || (rc == -NLE_DUMP_INTR && h.links.n == max)) {
			*ret = h.links;
			return 0;
		}
		link_list_fini(&h.links);
		if (rc != -NLE_DUMP_INTR)
			return err_wrap(err, "listing links");
	}
	return err_set(err, ERR_BUSY, "listing links: they changed during each of %d tries",
		DUMP_TRIES);
}

int nl_link_find(struct nl *nl, bool (*match)(const void *ctx, const struct link_info *link),
	const void *ctx, struct link_info *ret, struct err *err)
{
	struct link_list found = {0};

	*ret = (struct link_info){0};
	if (list(nl, 1, match, ctx, &found, err) < 0)
		return -1;
	if (found.n == 0)
		return err_set(err, ERR_NOT_FOUND, "no such link");
	*ret = take_link(&found);
	return 0;
}

int nl_link_find_all(struct nl *nl,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err)
{
	return list(nl, SIZE_MAX, match, ctx, ret, err);
}

/* --- making and changing links ------------------------------------------------------------ */

int nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err)
{
	struct nl_msg *msg = link_request(
		RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &(struct ifinfomsg){.ifi_index = 0});
	struct nlattr *info;

	put_text(msg, IFLA_IFNAME, name, IFNAMSIZ);
	info = nl_nest(msg, IFLA_LINKINFO);
	put_text(msg, IFLA_INFO_KIND, kind, LINK_KIND_SIZE);
	(void)nla_nest_end(msg, info);
	if (group)
		nl_put_u32(msg, IFLA_GROUP, group);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "adding %s link '%s'", kind, name);
	return 0;
}

int nl_link_del(struct nl *nl, int ifindex, struct err *err)
{
	struct nl_msg *msg =
		link_request(RTM_DELLINK, 0, &(struct ifinfomsg){.ifi_index = ifindex});

	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "deleting link %d", ifindex);
	return 0;
}

int nl_link_set_name(struct nl *nl, int ifindex, const char *name, struct err *err)
{
	struct nl_msg *msg = nl_change(ifindex);

	put_text(msg, IFLA_IFNAME, name, IFNAMSIZ);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "renaming link %d to '%s'", ifindex, name);
	return 0;
}

/* Without its NUL: an empty one removes the alias (net/core/dev.c). */
static void put_alias(struct nl_msg *msg, const char *alias)
{
	assert(strlen(alias) < LINK_ALIAS_SIZE);
	nl_put(msg, IFLA_IFALIAS, alias, strlen(alias));
}

int nl_link_set_alias(struct nl *nl, int ifindex, const char *alias, struct err *err)
{
	struct nl_msg *msg = nl_change(ifindex);

	put_alias(msg, alias);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "setting the alias of link %d", ifindex);
	return 0;
}

int nl_link_set_alias_and_group(
	struct nl *nl, int ifindex, const char *alias, uint32_t group, struct err *err)
{
	struct nl_msg *msg = nl_change(ifindex);

	put_alias(msg, alias);
	nl_put_u32(msg, IFLA_GROUP, group);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "setting alias and group of link %d", ifindex);
	return 0;
}

int nl_link_set_number(
	struct nl *nl, int ifindex, enum link_number which, uint32_t value, struct err *err)
{
	struct nl_msg *msg = nl_change(ifindex);

	nl_put_u32(msg, numbers[which].attr, value);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "setting %s of link %d to %u", numbers[which].name,
			ifindex, value);
	return 0;
}

static int set_flags(struct nl *nl, int ifindex, unsigned mask, unsigned flags, struct err *err)
{
	const struct ifinfomsg body = {
		.ifi_index = ifindex, .ifi_change = mask, .ifi_flags = flags & mask};

	return nl_command(nl, link_request(RTM_SETLINK, 0, &body), err);
}

int nl_link_set_flags(struct nl *nl, int ifindex, unsigned flags, struct err *err)
{
	if (set_flags(nl, ifindex, LINK_FLAGS, flags, err) < 0)
		return err_wrap(err, "setting the flags of link %d to 0x%x", ifindex, flags);
	return 0;
}

int nl_link_set_addr_gen_mode(struct nl *nl, int ifindex, int mode, struct err *err)
{
	struct nl_msg *msg = nl_change(ifindex);
	const uint8_t value = (uint8_t)mode;
	struct nlattr *spec, *inet6;

	spec = nl_nest(msg, IFLA_AF_SPEC);
	inet6 = nl_nest(msg, AF_INET6);
	nl_put(msg, IFLA_INET6_ADDR_GEN_MODE, &value, sizeof(value));
	(void)nla_nest_end(msg, inet6);
	(void)nla_nest_end(msg, spec);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "setting addrgenmode of link %d to %d", ifindex, mode);
	return 0;
}

/* Bytes in mac, or 0 if it is not hex pairs joined by colons. */
static size_t parse_mac(const char *mac, uint8_t out[static LINK_MAC_SIZE / 3])
{
	for (size_t n = 0; n < LINK_MAC_SIZE / 3; mac += 3) {
		if (strspn(mac, "0123456789abcdefABCDEF") != 2)
			return 0;
		out[n++] = (uint8_t)strtoul(mac, NULL, 16);
		if (mac[2] == '\0')
			return n;
		if (mac[2] != ':')
			return 0;
	}
	return 0;
}

int nl_link_set_mac(struct nl *nl, int ifindex, const char *mac, struct err *err)
{
	uint8_t bytes[LINK_MAC_SIZE / 3];
	size_t len = parse_mac(mac, bytes);
	struct nl_msg *msg;

	if (len == 0)
		return err_set(err, ERR_INVALID, "'%s' is not a link-layer address", mac);
	msg = nl_change(ifindex);
	nl_put(msg, IFLA_ADDRESS, bytes, len);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "setting the address of link %d to %s", ifindex, mac);
	return 0;
}

int nl_link_set_up(struct nl *nl, int ifindex, bool up, struct err *err)
{
	if (set_flags(nl, ifindex, IFF_UP, up ? IFF_UP : 0, err) < 0)
		return err_wrap(err, "setting link %d %s", ifindex, up ? "up" : "down");
	return 0;
}

static int change_altname(
	struct nl *nl, int type, int ifindex, const char *altname, struct err *err)
{
	struct nl_msg *msg =
		link_request(type, type == RTM_NEWLINKPROP ? NLM_F_CREATE | NLM_F_EXCL : 0,
			&(struct ifinfomsg){.ifi_index = ifindex});
	struct nlattr *list = nl_nest(msg, IFLA_PROP_LIST);

	put_text(msg, IFLA_ALT_IFNAME, altname, LINK_ALTNAME_SIZE);
	(void)nla_nest_end(msg, list);
	return nl_command(nl, msg, err);
}

int nl_link_add_altname(struct nl *nl, int ifindex, const char *altname, struct err *err)
{
	if (change_altname(nl, RTM_NEWLINKPROP, ifindex, altname, err) < 0)
		return err_wrap(
			err, "adding alternative name '%s' to link %d", altname, ifindex);
	return 0;
}

int nl_link_del_altname(struct nl *nl, int ifindex, const char *altname, struct err *err)
{
	if (change_altname(nl, RTM_DELLINKPROP, ifindex, altname, err) < 0)
		return err_wrap(
			err, "removing alternative name '%s' of link %d", altname, ifindex);
	return 0;
}

static void put_move(struct nl_msg *msg, int netns_fd, const char *name)
{
	nl_put(msg, IFLA_NET_NS_FD, &netns_fd, sizeof(netns_fd));
	put_text(msg, IFLA_IFNAME, name, IFNAMSIZ);
}

int nl_link_move(struct nl *nl, int ifindex, int netns_fd, const char *name, int want_ifindex,
	struct err *err)
{
	struct nl_msg *msg = nl_change(ifindex);

	put_move(msg, netns_fd, name);
	if (want_ifindex > 0)
		nl_put_u32(msg, IFLA_NEW_IFINDEX, (uint32_t)want_ifindex);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "moving link %d as '%s'", ifindex, name);
	return 0;
}

int nl_link_move_up(struct nl *nl, int ifindex, int netns_fd, const char *name, struct err *err)
{
	const struct ifinfomsg body = {
		.ifi_index = ifindex, .ifi_change = IFF_UP, .ifi_flags = IFF_UP};
	struct nl_msg *msg = link_request(RTM_SETLINK, 0, &body);

	put_move(msg, netns_fd, name);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "moving link %d as '%s'", ifindex, name);
	return 0;
}
