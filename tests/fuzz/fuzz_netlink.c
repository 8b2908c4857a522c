/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of the kernel to requests for links, in the place of what its socket would bring. The
 * input is one datagram; a message in it whose sequence number is 0 answers our request.
 */
#include <assert.h>
#include <linux/netlink.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <string.h>

#include "common/nl.h"
#include "tests/fuzz/fuzz.h"

static struct {
	struct nl nl;
	struct input answer;
	bool told;
	uint32_t seq;
} t;

static int take_request(struct nl_sock *sock UNUSED, struct nl_msg *msg)
{
	t.seq = nlmsg_hdr(msg)->nlmsg_seq;
	t.told = false;
	return (int)nlmsg_hdr(msg)->nlmsg_len;
}

static void number(unsigned char *datagram, int left)
{
	struct nlmsghdr *h = (void *)datagram;

	for (; nlmsg_ok(h, left); h = nlmsg_next(h, &left))
		if (h->nlmsg_seq == 0)
			h->nlmsg_seq = t.seq;
}

static int give_answer(struct nl_sock *sock UNUSED, struct sockaddr_nl *from,
	unsigned char **ret, struct ucred **creds UNUSED)
{
	if (t.told || t.answer.size == 0)
		return -NLE_AGAIN;
	t.told = true;
	*from = (struct sockaddr_nl){.nl_family = AF_NETLINK};
	*ret = (unsigned char *)xmemdup0(t.answer.data, t.answer.size);
	number(*ret, (int)t.answer.size);
	return (int)t.answer.size;
}

static void set_up(void)
{
	struct nl_cb *cb;
	struct err err = ERR_INIT;

	assert(nl_init(&t.nl, -1, &err) == 0);
	cb = nl_socket_get_cb(t.nl.sock);
	nl_cb_overwrite_send(cb, take_request);
	nl_cb_overwrite_recv(cb, give_answer);
	nl_cb_put(cb);
}

static void check_link(const struct link_info *link)
{
	assert(memchr(link->name, '\0', sizeof(link->name)));
	assert(memchr(link->kind, '\0', sizeof(link->kind)));
	assert(memchr(link->mac, '\0', sizeof(link->mac)));
	assert(memchr(link->alias, '\0', sizeof(link->alias)));
	assert(memchr(link->parent, '\0', sizeof(link->parent)));
	for (size_t i = 0; i < link->altnames.n; i++)
		assert(strlen(link->altnames.v[i]) < LINK_ALTNAME_SIZE);
}

static bool is_up(const void *ctx UNUSED, const struct link_info *link)
{
	check_link(link);
	return link->up;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct link_info link;
	struct err err = ERR_INIT;

	if (!t.nl.sock)
		set_up();
	t.answer = (struct input){data, size};
	if (nl_link_get(&t.nl, "eth7", &link, &err) == 0)
		check_link(&link);
	link_info_fini(&link);
	(void)nl_link_find(&t.nl, is_up, NULL, &link, &err);
	link_info_fini(&link);
	(void)nl_link_set_number(&t.nl, 7, LINK_MTU, 1400, &err);
	return 0;
}
