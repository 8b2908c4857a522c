/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VLANs of virtual functions over rtnetlink, asked and set on the link of their physical
 * function: ndo_get_vf_config(), ndo_set_vf_vlan().
 *
 * One function can be set, but not asked for: the kernel shows all of a link in one attribute,
 * IFLA_VFINFO_LIST, with about 200 bytes each (rtnl_fill_vf(), net/core/rtnetlink.c). An
 * attribute's length has 16 bits, so from some 335 functions on it wraps round (nla_nest_end(),
 * include/net/netlink.h), while all entries are in the message: they are read by their own
 * lengths. A kernel that refuses such an answer instead (EMSGSIZE: nla_nest_end_safe()) does not
 * show any function's VLAN. There is no other way: devlink has functions of switchdev mode only,
 * and no VLAN. RTEXT_FILTER_SKIP_STATS, which leaves out as much again, is asked for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <string.h>

#include "common/nl_internal.h"

struct sought {
	unsigned vf, vf_count;
	bool found;
	struct vf_vlan vlan;
};

/* The list has one entry in the kernels there are; it tells the protocol, and IFLA_VF_VLAN, for
 * older readers, does not. */
static bool read_vlan_list(const struct nlattr *list, struct sought *s)
{
	const struct ifla_vf_vlan_info *info;
	struct nlattr *attr;
	int left;

	if (!list)
		return false;
	nla_for_each_nested(attr, list, left) if (nla_type(attr) == IFLA_VF_VLAN_INFO &&
						  nla_len(attr) >= (int)sizeof(*info))
	{
		info = nla_data(attr);
		if (info->vf != s->vf)
			return false;
		s->vlan = (struct vf_vlan){.id = (uint16_t)info->vlan,
			.qos = (uint8_t)info->qos,
			.proto = info->vlan_proto ? ntohs(info->vlan_proto) : ETH_P_8021Q};
		return true;
	}
	return false;
}

static bool read_vlan(const struct nlattr *attr, struct sought *s)
{
	const struct ifla_vf_vlan *vlan;

	if (!attr || nla_len(attr) < (int)sizeof(*vlan))
		return false;
	vlan = nla_data(attr);
	if (vlan->vf != s->vf)
		return false;
	s->vlan = (struct vf_vlan){
		.id = (uint16_t)vlan->vlan, .qos = (uint8_t)vlan->qos, .proto = ETH_P_8021Q};
	return true;
}

static void read_vf(const struct nlattr *info, struct sought *s)
{
	struct nlattr *attrs[IFLA_VF_MAX + 1];

	if (!s->found &&
		nla_parse(attrs, IFLA_VF_MAX, nla_data(info), nla_len(info), NULL) == 0)
		s->found = read_vlan_list(attrs[IFLA_VF_VLAN_LIST], s) ||
			   read_vlan(attrs[IFLA_VF_VLAN], s);
}

#define HEAD_SIZE sizeof(struct nlattr)
_Static_assert(HEAD_SIZE % NLA_ALIGNTO == 0, "a head needs no padding");

/* What it takes in a message. */
static size_t size_of(const struct nlattr *attr)
{
	return ((size_t)attr->nla_len + NLA_ALIGNTO - 1) / NLA_ALIGNTO * NLA_ALIGNTO;
}

/* The attribute at `at`, if all of it is within len bytes. */
static const struct nlattr *attr_at(const char *at, size_t len)
{
	const struct nlattr *attr = (const void *)at;

	if (len < HEAD_SIZE || attr->nla_len < HEAD_SIZE || size_of(attr) > len)
		return NULL;
	return attr;
}

/* Reads the list of functions, which begins left bytes before the message's end. Its declared
 * length is the lowest 16 bits of what it has; that of each entry is right. What comes behind the
 * list is never of the entries' type: IFLA_ADDRESS is of the same number and stands before it. */
static void read_list(const struct nlattr *list, size_t left, struct sought *s)
{
	const char *begin = (const char *)list, *at = begin + HEAD_SIZE;
	const struct nlattr *info;

	while ((info = attr_at(at, left - (size_t)(at - begin))) &&
		nla_type(info) == IFLA_VF_INFO) {
		read_vf(info, s);
		at += size_of(info);
	}
	/* otherwise it is not as the kernel makes it, and what was read may be anything */
	if ((uint16_t)(at - begin) != list->nla_len)
		s->found = false;
}

static int on_pf(struct nl_msg *msg, void *ctx)
{
	const struct nlmsghdr *head = nlmsg_hdr(msg);
	const struct nlattr *attr;
	struct sought *s = ctx;
	const char *at;
	size_t left;

	if (head->nlmsg_type != RTM_NEWLINK ||
		!nlmsg_valid_hdr(head, sizeof(struct ifinfomsg)))
		return NL_OK;
	at = (const char *)nlmsg_attrdata(head, sizeof(struct ifinfomsg));
	left = (size_t)nlmsg_attrlen(head, sizeof(struct ifinfomsg));
	for (; left >= HEAD_SIZE; at += size_of(attr), left -= size_of(attr)) {
		/* its length may be nothing, or more than there is: it is looked at first */
		if (nla_type((const void *)at) == IFLA_VFINFO_LIST) {
			read_list((const void *)at, left, s);
			return NL_OK;
		}
		attr = attr_at(at, left);
		if (!attr)
			return NL_OK;
		if (nla_type(attr) == IFLA_NUM_VF && nla_len(attr) >= 4)
			s->vf_count = nla_get_u32(attr);
	}
	return NL_OK;
}

static void put_name(struct nl_msg *msg, const char *name)
{
	nl_put(msg, IFLA_IFNAME, name, strnlen(name, IFNAMSIZ - 1) + 1);
}

int nl_vf_get_vlan(
	struct nl *nl, const char *pf_name, unsigned vf, struct vf_vlan *ret, struct err *err)
{
	const struct ifinfomsg body = {0};
	cleanup_nl_msg struct nl_msg *msg = nl_request(RTM_GETLINK, 0, &body, sizeof(body));
	struct sought s = {.vf = vf};
	struct nl_answer a = {.on_message = on_pf, .ctx = &s};
	int rc;

	put_name(msg, pf_name);
	nl_put_u32(msg, IFLA_EXT_MASK, RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS);
	rc = nl_talk(nl, msg, &a, err);
	if (rc < 0 && err->sys != EMSGSIZE)
		return err_wrap(err, "looking up link '%s'", pf_name);
	if (rc == 0 && !s.found && vf >= s.vf_count)
		return err_set(err, ERR_NOT_FOUND, "link '%s' has no virtual function %u",
			pf_name, vf);
	if (!s.found) {
		(void)err_set(err, ERR_UNAVAILABLE,
			"the kernel's answer about link '%s' is cut and does not show virtual "
			"function %u: it has no more than 64 KiB for all of them",
			pf_name, vf);
		return 1;
	}
	*ret = s.vlan;
	return 0;
}

int nl_vf_set_vlan(struct nl *nl, const char *pf_name, unsigned vf, const struct vf_vlan *vlan,
	struct err *err)
{
	const struct ifinfomsg body = {0};
	struct nl_msg *msg = nl_request(RTM_SETLINK, 0, &body, sizeof(body));
	struct nlattr *list, *info, *vlans;

	put_name(msg, pf_name);
	list = nl_nest(msg, IFLA_VFINFO_LIST);
	info = nl_nest(msg, IFLA_VF_INFO);
	if (vlan->proto == ETH_P_8021Q) {
		const struct ifla_vf_vlan v = {.vf = vf, .vlan = vlan->id, .qos = vlan->qos};

		nl_put(msg, IFLA_VF_VLAN, &v, sizeof(v));
	} else {
		const struct ifla_vf_vlan_info v = {.vf = vf,
			.vlan = vlan->id,
			.qos = vlan->qos,
			.vlan_proto = htons(vlan->proto)};

		vlans = nl_nest(msg, IFLA_VF_VLAN_LIST);
		nl_put(msg, IFLA_VF_VLAN_INFO, &v, sizeof(v));
		(void)nla_nest_end(msg, vlans);
	}
	(void)nla_nest_end(msg, info);
	(void)nla_nest_end(msg, list);
	if (nl_command(nl, msg, err) < 0)
		return err_wrap(err, "setting VLAN %u of virtual function %u on link '%s'",
			vlan->id, vf, pf_name);
	return 0;
}
