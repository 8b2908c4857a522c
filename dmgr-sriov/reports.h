/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sockets on which the kernel reports by itself: netlink(7), of any family. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* One that does not block and is in no group yet. what: for errors. */
int reports_open(int protocol, const char *what, struct err *err);
/* From now on it hears these groups, a bit each. */
int reports_join(int fd, uint32_t groups, const char *what, struct err *err);
/* Calls each for every message of the kernel's that has arrived, in the caller's buffer. Others may
 * send to such a socket, too: theirs are dropped. False: the kernel had to drop some, or one was
 * greater than the buffer. fd -1: does nothing. */
bool reports_drain(int fd, void *buffer, size_t size, void (*each)(void *ctx, size_t len),
	void *ctx);
