/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Descriptors of network namespaces and of sockets inside them: is it what it is said to be?
 *
 * Namespaces travel between the daemons as descriptors. Whoever receives one asks here before it
 * uses it, so that a peer that sends a file, a socket of another kind or the host's own namespace
 * gets an error and nothing else.
 */

#include <stdbool.h>

#include "common/err.h"

/* 0 if fd is a network namespace and not the one that this process is in; ERR_INVALID otherwise. */
int netns_check(int fd, struct err *err);

/* 0 if fd is a netlink socket of this protocol (NETLINK_ROUTE, ...) inside a namespace other than
 * ours, and inside netns_fd's unless that is -1; ERR_INVALID otherwise. Needs CAP_NET_ADMIN over
 * that namespace, as every use of such a socket does: without it the errno is EPERM. */
int netns_check_socket(int fd, int protocol, int netns_fd, struct err *err);

/* Opens the namespace that this process is in. The descriptor, or -1. */
int netns_open_own(struct err *err);
