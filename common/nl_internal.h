/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the parts of rtnetlink share: one request and its answer. Included by common/nl*.c. */

#include <linux/netlink.h>
#include <netlink/msg.h>

#include "common/nl.h"

struct nl_answer {
	/* What it brings, a message at a time; NULL: nothing is expected. */
	int (*on_message)(struct nl_msg *msg, void *ctx);
	void *ctx;
	/* the rest is nl_talk()'s own */
	uint32_t seq;
	bool done;
	int sys; /* what the kernel refused it with */
	char reason[128];
};

void nl_msg_free_p(struct nl_msg **msg);
#define cleanup_nl_msg __attribute__((cleanup(nl_msg_free_p)))

/* A request with this body behind its header. */
struct nl_msg *nl_request(int type, int flags, const void *body, size_t len);
/* A change of this link. */
struct nl_msg *nl_change(int ifindex);

/* A message has room for a page; what is put into one is bounded by the sizes in nl.h. */
void nl_put(struct nl_msg *msg, int attr, const void *data, size_t len);
void nl_put_u32(struct nl_msg *msg, int attr, uint32_t value);
struct nlattr *nl_nest(struct nl_msg *msg, int attr);

/* Sends it and reads until the kernel has acknowledged it, refused it or, for a dump, said that
 * it is done. 0, or -1 with the errno in err->sys. -NLE_DUMP_INTR: what was listed changed
 * meanwhile and something may have been missed. */
int nl_talk(struct nl *nl, struct nl_msg *msg, struct nl_answer *a, struct err *err);
/* As nl_talk(), for a request that only succeeds or fails; frees msg. */
int nl_command(struct nl *nl, struct nl_msg *msg, struct err *err);
