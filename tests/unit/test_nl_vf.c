/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VLANs of virtual functions: the kernel's answer about a physical function is made here, byte by
 * byte as the kernel makes it, with as many functions as no adapter of a test has. What real
 * adapters answer is tested in tests/integration/test_sriov_vm.py.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "common/nl_internal.h"
#include "tests/unit/unit.h"

/* --- a kernel ----------------------------------------------------------------------------- */

#define MAX_ANSWER (1u << 20)

static struct {
	char bytes[MAX_ANSWER] __attribute__((aligned(NLMSG_ALIGNTO)));
	size_t len;
	int refuse; /* errno, 0: it answers */
	struct err err;
} kernel;

#define HEAD_SIZE sizeof(struct nlattr)

/* nla_reserve(), lib/nlattr.c */
static void *put(int type, const void *data, size_t len)
{
	struct nlattr *attr = (void *)(kernel.bytes + kernel.len);
	const size_t padded = (HEAD_SIZE + len + 3) / 4 * 4;

	ck_assert_uint_le(kernel.len + padded, MAX_ANSWER);
	memset(attr, 0, padded);
	attr->nla_type = (uint16_t)type;
	attr->nla_len = (uint16_t)(HEAD_SIZE + len);
	if (len)
		memcpy((char *)attr + HEAD_SIZE, data, len);
	kernel.len += padded;
	return attr;
}

/* nla_nest_end(), include/net/netlink.h: the lowest 16 bits of what it is */
static void nest_end(struct nlattr *nest)
{
	nest->nla_len = (uint16_t)(kernel.bytes + kernel.len - (char *)nest);
}

/* rtnl_fill_vfinfo(), net/core/rtnetlink.c of Linux 7.3, with RTEXT_FILTER_SKIP_STATS */
static void put_vf(uint32_t vf, uint32_t vlan)
{
	const uint32_t pair[2] = {vf}, rate[3] = {vf};
	const struct ifla_vf_mac mac = {.vf = vf};
	const struct ifla_vf_broadcast broadcast = {{0}};
	const struct ifla_vf_vlan old = {.vf = vf, .vlan = vlan};
	const struct ifla_vf_vlan_info info = {
		.vf = vf, .vlan = vlan, .qos = 3, .vlan_proto = htons(ETH_P_8021AD)};
	struct nlattr *entry = put(IFLA_VF_INFO, NULL, 0), *list;

	(void)put(IFLA_VF_MAC, &mac, sizeof(mac));
	(void)put(IFLA_VF_BROADCAST, &broadcast, sizeof(broadcast));
	(void)put(IFLA_VF_VLAN, &old, sizeof(old));
	(void)put(IFLA_VF_RATE, rate, sizeof(rate));
	(void)put(IFLA_VF_TX_RATE, pair, sizeof(pair));
	(void)put(IFLA_VF_SPOOFCHK, pair, sizeof(pair));
	(void)put(IFLA_VF_LINK_STATE, pair, sizeof(pair));
	(void)put(IFLA_VF_RSS_QUERY_EN, pair, sizeof(pair));
	(void)put(IFLA_VF_TRUST, pair, sizeof(pair));
	list = put(IFLA_VF_VLAN_LIST, NULL, 0);
	(void)put(IFLA_VF_VLAN_INFO, &info, sizeof(info));
	nest_end(list);
	nest_end(entry);
}

#define VLAN_OF(vf) (100 + (vf))

/* padding is what else is in the last function's entry, to have lists of any length. */
static void answer(uint32_t vf_count, size_t padding)
{
	struct nlmsghdr *head = (void *)kernel.bytes;
	static const char rest[4096];
	struct nlattr *list, *last;

	memset(kernel.bytes, 0, NLMSG_HDRLEN + sizeof(struct ifinfomsg));
	kernel.len = NLMSG_HDRLEN + sizeof(struct ifinfomsg);
	(void)put(IFLA_IFNAME, "ens1f0", sizeof("ens1f0"));
	(void)put(IFLA_ADDRESS, "\2\0\0\0\0\1", 6);
	(void)put(IFLA_NUM_VF, &vf_count, sizeof(vf_count));
	list = put(IFLA_VFINFO_LIST, NULL, 0);
	for (uint32_t i = 0; i + 1 < vf_count; i++)
		put_vf(i, VLAN_OF(i));
	last = (void *)(kernel.bytes + kernel.len);
	if (vf_count)
		put_vf(vf_count - 1, VLAN_OF(vf_count - 1));
	if (padding) {
		(void)put(200, rest, padding - HEAD_SIZE);
		nest_end(last);
	}
	nest_end(list);
	(void)put(IFLA_LINKINFO, rest, 8);
	(void)put(IFLA_AF_SPEC, rest, 200);
	*head = (struct nlmsghdr){
		.nlmsg_type = RTM_NEWLINK, .nlmsg_len = (uint32_t)kernel.len};
}

int __wrap_nl_talk(struct nl *nl, struct nl_msg *msg, struct nl_answer *a, struct err *err);
int __wrap_nl_talk(
	struct nl *nl UNUSED, struct nl_msg *msg UNUSED, struct nl_answer *a, struct err *err)
{
	struct nl_msg *reply;

	if (kernel.refuse)
		return err_errno(err, kernel.refuse, "the kernel refuses");
	reply = nlmsg_convert((void *)kernel.bytes);
	ck_assert_ptr_nonnull(reply);
	(void)a->on_message(reply, a->ctx);
	nlmsg_free(reply);
	return 0;
}

static int get(unsigned vf, struct vf_vlan *ret)
{
	struct nl nl = {0};

	*ret = (struct vf_vlan){0};
	return nl_vf_get_vlan(&nl, "ens1f0", vf, ret, &kernel.err);
}

static void assert_all_read(unsigned vf_count)
{
	struct vf_vlan vlan;

	for (unsigned vf = 0; vf < vf_count; vf++) {
		ck_assert_msg(get(vf, &vlan) == 0, "%u of %u: %s", vf, vf_count,
			kernel.err.message);
		ck_assert_uint_eq(vlan.id, VLAN_OF(vf));
		ck_assert_uint_eq(vlan.qos, 3);
		ck_assert_uint_eq(vlan.proto, ETH_P_8021AD);
	}
	ck_assert_int_eq(get(vf_count, &vlan), -1);
	ck_assert_int_eq(kernel.err.kind, ERR_NOT_FOUND);
	ck_assert_msg(strstr(kernel.err.message, "link 'ens1f0' has no virtual function"), "%s",
		kernel.err.message);
}

/* --- reading ------------------------------------------------------------------------------ */

/* An attribute's length wraps at 65536 bytes: with 335 functions, with 669, ... */
START_TEST(functions_behind_the_wrap_are_read)
{
	static const unsigned counts[] = {0, 1, 7, 333, 334, 335, 336, 337, 512, 668, 669, 670, 1023};

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		answer(counts[i], 0);
		assert_all_read(counts[i]);
	}
}
END_TEST

static struct nlattr *list_of_answer(void)
{
	struct nlattr *count = nlmsg_find_attr(
		(void *)kernel.bytes, sizeof(struct ifinfomsg), IFLA_NUM_VF);

	return (void *)((char *)count + NLA_ALIGN(count->nla_len));
}

/* The declared length is then 0, or one that is no attribute's. */
START_TEST(list_that_ends_at_the_wrap_is_read)
{
	for (unsigned over = 0; over <= 8; over += 4) {
		size_t padding;

		answer(330, 0);
		padding = 65536 - list_of_answer()->nla_len + over;
		answer(330, padding);
		ck_assert_uint_eq(list_of_answer()->nla_len, over);
		assert_all_read(330);
	}
}
END_TEST

/* --- an answer that shows not all --------------------------------------------------------- */

static void assert_cut(unsigned vf)
{
	struct vf_vlan vlan;

	ck_assert_int_eq(get(vf, &vlan), 1);
	ck_assert_int_eq(kernel.err.kind, ERR_UNAVAILABLE);
	ck_assert_msg(strstr(kernel.err.message, "answer about link 'ens1f0' is cut"), "%s",
		kernel.err.message);
}

START_TEST(answer_that_the_kernel_cannot_give_is_said_to_be_cut)
{
	kernel.refuse = EMSGSIZE;
	assert_cut(400);
	assert_cut(0);
	kernel.refuse = EPERM;
	ck_assert_int_eq(get(0, &(struct vf_vlan){0}), -1);
	ck_assert_int_eq(kernel.err.sys, EPERM);
}
END_TEST

/* As of a receiver with too small a buffer. */
START_TEST(answer_whose_end_is_missing_is_said_to_be_cut)
{
	answer(400, 0);
	((struct nlmsghdr *)(void *)kernel.bytes)->nlmsg_len = 70000;
	assert_cut(399);
	ck_assert_int_eq(get(400, &(struct vf_vlan){0}), -1);
	ck_assert_int_eq(kernel.err.kind, ERR_NOT_FOUND);
}
END_TEST

START_TEST(list_of_another_length_than_its_entries_is_not_believed)
{
	answer(400, 0);
	list_of_answer()->nla_len += 4;
	assert_cut(0);
	assert_cut(399);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("nl_vf");
	TCase *c = tcase_create("answers");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, functions_behind_the_wrap_are_read);
	tcase_add_test(c, list_that_ends_at_the_wrap_is_read);
	tcase_add_test(c, answer_that_the_kernel_cannot_give_is_said_to_be_cut);
	tcase_add_test(c, answer_whose_end_is_missing_is_said_to_be_cut);
	tcase_add_test(c, list_of_another_length_than_its_entries_is_not_believed);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
