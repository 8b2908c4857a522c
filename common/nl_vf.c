/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VLANs of virtual functions over rtnetlink, asked and set on the link of their physical
 * function: ndo_get_vf_config(), ndo_set_vf_vlan().
 */
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <string.h>

#include "common/nl_internal.h"

struct sought {
	unsigned vf;
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

static void read_vf(struct nlattr *info, struct sought *s)
{
	struct nlattr *attrs[IFLA_VF_MAX + 1];

	if (nla_type(info) == IFLA_VF_INFO &&
		nla_parse_nested(attrs, IFLA_VF_MAX, info, NULL) == 0)
		s->found = read_vlan_list(attrs[IFLA_VF_VLAN_LIST], s) ||
			   read_vlan(attrs[IFLA_VF_VLAN], s);
}

static int on_pf(struct nl_msg *msg, void *ctx)
{
	struct nlattr *attrs[IFLA_VFINFO_LIST + 1], *info;
	struct sought *s = ctx;
	int left;

	if (nlmsg_hdr(msg)->nlmsg_type != RTM_NEWLINK ||
		nlmsg_parse(nlmsg_hdr(msg), sizeof(struct ifinfomsg), attrs, IFLA_VFINFO_LIST,
			NULL) < 0 ||
		!attrs[IFLA_VFINFO_LIST])
		return NL_OK;
	nla_for_each_nested(info, attrs[IFLA_VFINFO_LIST], left) if (!s->found)
		read_vf(info, s);
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

	put_name(msg, pf_name);
	nl_put_u32(msg, IFLA_EXT_MASK, RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS);
	if (nl_talk(nl, msg, &a, err) < 0)
		return err_wrap(err, "looking up link '%s'", pf_name);
	if (!s.found)
		return err_set(err, ERR_NOT_FOUND, "link '%s' has no virtual function %u",
			pf_name, vf);
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
