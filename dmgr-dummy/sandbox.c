/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CAP_NET_ADMIN makes, moves and deletes links. The host's netlink socket and namespace are
 * open before the filter is on, and the pod's come from statd, so nothing is opened later.
 */
#include "dmgr-dummy/sandbox.h"

#include <linux/capability.h>

#include "common/util.h"

static const int caps[] = {CAP_NET_ADMIN};

const struct privileges dummy_privileges = {
	.program = "dmgr-dummy",
	.caps = caps,
	.n_caps = ARRAY_SIZE(caps),
	.max_fds = 64, /* one connection, and the descriptors of the calls it may queue */
};
