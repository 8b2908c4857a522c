/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of links over rtnetlink. */
#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/nl_internal.h"

/* IFA_PROTO and its values, of Linux 5.18 (linux/if_addr.h) */
#define ATTR_PROTO    11
#define ATTR_MAX      ATTR_PROTO
#define PROTO_LO      1 /* IFAPROT_KERNEL_LO */
#define PROTO_RA      2 /* IFAPROT_KERNEL_RA */
#define PROTO_LL      3 /* IFAPROT_KERNEL_LL */
#define DUMP_TRIES    16
/* A link that has more is a router's, and nobody hands it out; a claim's status has 10 KiB. */
#define MAX_ADDRESSES 64

/* IFA_F_* that are a user's to give. */
#define ADDRESS_FLAGS                                                                          \
	(IFA_F_NODAD | IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR | IFA_F_NOPREFIXROUTE |        \
		IFA_F_MCAUTOJOIN)

void address_list_fini(struct address_list *list)
{
	free(list->v);
	*list = (struct address_list){0};
}

/* --- reading ------------------------------------------------------------------------------ */

static void format_address(
	char out[static ADDRESS_SIZE], int family, const struct nlattr *attr, int prefix_len)
{
	const int size = family == AF_INET ? 4 : 16;
	size_t len;

	*out = '\0';
	if (!attr || nla_len(attr) < size ||
		!inet_ntop(family, nla_data(attr), out, ADDRESS_SIZE))
		return;
	len = strlen(out);
	if (prefix_len >= 0)
		(void)snprintf(out + len, ADDRESS_SIZE - len, "/%d", prefix_len);
}

static bool is_same(const struct nlattr *a, const struct nlattr *b)
{
	return a && b && nla_len(a) == nla_len(b) &&
	       memcmp(nla_data(a), nla_data(b), (size_t)nla_len(a)) == 0;
}

/* The kernel gives these by itself, when the link is up or when a router tells. */
static bool is_of_the_kernel(const struct link_address *a)
{
	return a->proto == PROTO_LO || a->proto == PROTO_RA || a->proto == PROTO_LL;
}

static uint32_t flags_of(const struct ifaddrmsg *body, const struct nlattr *attr)
{
	return attr && nla_len(attr) >= 4 ? nla_get_u32(attr) : body->ifa_flags;
}

/* Whether it is one of those that are listed. */
static bool read_address(struct nl_msg *msg, int ifindex, struct link_address *ret)
{
	const struct ifaddrmsg *body = nlmsg_data(nlmsg_hdr(msg));
	struct nlattr *attrs[ATTR_MAX + 1];
	const struct nlattr *local;
	uint32_t flags;

	if (nlmsg_hdr(msg)->nlmsg_type != RTM_NEWADDR ||
		nlmsg_parse(nlmsg_hdr(msg), sizeof(*body), attrs, ATTR_MAX, NULL) < 0 ||
		(int)body->ifa_index != ifindex ||
		(body->ifa_family != AF_INET && body->ifa_family != AF_INET6))
		return false;
	flags = flags_of(body, attrs[IFA_FLAGS]);
	if (!(flags & IFA_F_PERMANENT))
		return false;
	*ret = (struct link_address){.flags = flags & ADDRESS_FLAGS, .scope = body->ifa_scope};
	/* IPv6 has IFA_LOCAL only beside a peer, IPv4 always: ip-address(8) */
	local = attrs[IFA_LOCAL] ? attrs[IFA_LOCAL] : attrs[IFA_ADDRESS];
	if (attrs[IFA_ADDRESS] && !is_same(local, attrs[IFA_ADDRESS])) {
		format_address(ret->local, body->ifa_family, local, -1);
		format_address(
			ret->peer, body->ifa_family, attrs[IFA_ADDRESS], body->ifa_prefixlen);
	} else {
		format_address(ret->local, body->ifa_family, local, body->ifa_prefixlen);
	}
	format_address(ret->broadcast, body->ifa_family, attrs[IFA_BROADCAST], -1);
	if (attrs[IFA_LABEL])
		(void)nla_strlcpy(ret->label, attrs[IFA_LABEL], sizeof(ret->label));
	if (attrs[IFA_RT_PRIORITY] && nla_len(attrs[IFA_RT_PRIORITY]) >= 4)
		ret->metric = nla_get_u32(attrs[IFA_RT_PRIORITY]);
	if (attrs[ATTR_PROTO] && nla_len(attrs[ATTR_PROTO]) >= 1)
		ret->proto = nla_get_u8(attrs[ATTR_PROTO]);
	return *ret->local && !is_of_the_kernel(ret);
}

struct harvest {
	int ifindex;
	struct address_list list;
};

static int on_address(struct nl_msg *msg, void *ctx)
{
	struct link_address address;
	struct harvest *h = ctx;

	if (h->list.n == MAX_ADDRESSES || !read_address(msg, h->ifindex, &address))
		return NL_OK;
	h->list.v = xrealloc(h->list.v, h->list.n + 1, sizeof(address));
	h->list.v[h->list.n++] = address;
	return NL_OK;
}

int nl_address_list(struct nl *nl, int ifindex, struct address_list *ret, struct err *err)
{
	/* an older kernel lists those of all links */
	const struct ifaddrmsg body = {.ifa_index = (unsigned)ifindex};

	for (int i = 0; i < DUMP_TRIES; i++) {
		struct harvest h = {.ifindex = ifindex};
		struct nl_answer a = {.on_message = on_address, .ctx = &h};
		struct nl_msg *msg = nl_request(RTM_GETADDR, NLM_F_DUMP, &body, sizeof(body));
		int rc = nl_talk(nl, msg, &a, err);

		nlmsg_free(msg);
		if (rc == 0) {
			*ret = h.list;
			return 0;
		}
		address_list_fini(&h.list);
		if (rc != -NLE_DUMP_INTR)
			return err_wrap(err, "listing the addresses of link %d", ifindex);
	}
	return err_set(err, ERR_BUSY,
		"listing the addresses of link %d: they changed during each of %d tries",
		ifindex, DUMP_TRIES);
}

/* --- adding ------------------------------------------------------------------------------- */

struct parsed {
	int family;
	unsigned char bytes[16];
	size_t len;
	uint8_t prefix_len;
};

static int parse_address(const char *text, struct parsed *ret, struct err *err)
{
	char host[ADDRESS_SIZE];
	const char *slash = strchr(text, '/');
	const size_t len = slash ? (size_t)(slash - text) : strlen(text);
	int64_t prefix_len;

	ret->family = strchr(text, ':') ? AF_INET6 : AF_INET;
	ret->len = ret->family == AF_INET ? 4 : 16;
	prefix_len = (int64_t)ret->len * 8;
	if (len >= sizeof(host))
		return err_set(err, ERR_INVALID, "'%.80s' is not an address", text);
	memcpy(host, text, len);
	host[len] = '\0';
	if (inet_pton(ret->family, host, ret->bytes) != 1 ||
		(slash && parse_i64(slash + 1, 0, prefix_len, &prefix_len) < 0))
		return err_set(err, ERR_INVALID, "'%s' is not an address", text);
	ret->prefix_len = (uint8_t)prefix_len;
	return 0;
}

static int put_address(
	struct nl_msg *msg, int attr, const char *text, int family, struct err *err)
{
	struct parsed p;

	if (parse_address(text, &p, err) < 0)
		return -1;
	if (p.family != family)
		return err_set(err, ERR_INVALID,
			"'%s' is of another family than its link's address", text);
	nl_put(msg, attr, p.bytes, p.len);
	return 0;
}

static int put_all(struct nl_msg *msg, const struct link_address *a, const struct parsed *local,
	struct err *err)
{
	const bool has_peer = *a->peer;

	nl_put(msg, IFA_LOCAL, local->bytes, local->len);
	if (put_address(msg, IFA_ADDRESS, has_peer ? a->peer : a->local, local->family, err) <
		0)
		return -1;
	if (*a->broadcast &&
		put_address(msg, IFA_BROADCAST, a->broadcast, local->family, err) < 0)
		return -1;
	if (*a->label && local->family == AF_INET)
		nl_put(msg, IFA_LABEL, a->label, strlen(a->label) + 1);
	nl_put_u32(msg, IFA_FLAGS, a->flags & ADDRESS_FLAGS);
	if (a->metric)
		nl_put_u32(msg, IFA_RT_PRIORITY, a->metric);
	if (a->proto)
		nl_put(msg, ATTR_PROTO, &a->proto, sizeof(a->proto));
	return 0;
}

int nl_address_add(
	struct nl *nl, int ifindex, const struct link_address *address, struct err *err)
{
	struct parsed local, net;
	struct ifaddrmsg body;
	struct nl_msg *msg;

	if (parse_address(address->local, &local, err) < 0 ||
		parse_address(*address->peer ? address->peer : address->local, &net, err) < 0)
		return -1;
	body = (struct ifaddrmsg){
		.ifa_family = (uint8_t)local.family,
		.ifa_prefixlen = net.prefix_len,
		.ifa_scope = address->scope,
		.ifa_index = (unsigned)ifindex,
	};
	msg = nl_request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body, sizeof(body));
	if (put_all(msg, address, &local, err) < 0) {
		nlmsg_free(msg);
		return -1;
	}
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "adding %s to link %d", address->local, ifindex);
	return 0;
}
