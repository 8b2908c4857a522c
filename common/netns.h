/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Descriptors of network namespaces and of sockets inside them: is it what it is said to be?
 *
 * Namespaces travel between the daemons as descriptors. Whoever receives one asks here before
 * it uses it, so that a peer that sends a file, a socket of another kind or the host's own
 * namespace gets an error and nothing else.
 */

#include <stdbool.h>

#include "common/err.h"

/* Opens the namespace that this process is in, to be kept for the functions below. The
 * descriptor, or -1. */
int netns_open_own(struct err *err);

/* 0 if fd is a network namespace and another one than own; ERR_INVALID otherwise. */
int netns_check(int fd, int own, struct err *err);

/* 0 if fd is a raw netlink socket of this protocol (NETLINK_ROUTE, ...) inside another
 * namespace than own, and inside netns_fd's unless that is -1; ERR_INVALID otherwise. Needs
 * CAP_NET_ADMIN over that namespace, as any use of such a socket does: without it err->sys is
 * EPERM. */
int netns_check_socket(int fd, int protocol, int netns_fd, int own, struct err *err);
