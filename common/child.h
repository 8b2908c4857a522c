/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A child that keeps for its parent what the parent gives up. It is forked while the parent is
 * privileged, serves one socket, and ends with its parent, or when the parent closes the socket.
 * Nobody waits for it: one that hangs in the kernel does not end on request, and its end is seen on
 * the socket.
 */

#include "common/err.h"

/* In the child, with its end of a pair of sockets that keep their messages apart. Returns the exit
 * status. */
typedef int child_main(int fd, void *ctx);

/* To be called while the process has one thread; from now on the kernel reaps its children. Returns
 * the parent's end, or -1. */
int child_start(child_main *run, void *ctx, struct err *err);
