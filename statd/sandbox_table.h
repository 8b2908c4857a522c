/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sandboxes that hold devices of ours, each with its network namespace as a descriptor. An
 * open namespace stays alive, so one is held no longer than a device is in it.
 */

#include <stdbool.h>

#include "common/err.h"

struct sandbox;

/* Keeps a duplicate of the sandbox's namespace. One that is kept already stays if it is the same
 * namespace; if it is another, ERR_CONFLICT: an id names one namespace for as long as a device is
 * in it. Without a duplicate nothing could ever be taken back: that is an error, too. */
int sandbox_put(struct sandbox **all, const char *id, int netns_fd, struct err *err);
bool sandbox_is_known(struct sandbox *const *all, const char *id);
/* The descriptor, borrowed for as long as a row names the sandbox; -1: it is not known. No duplicate:
 * what is to be taken back must not need a descriptor that there may be none of. */
int sandbox_netns(struct sandbox *const *all, const char *id);
/* Forgets it and closes its namespace. */
void sandbox_drop(struct sandbox **all, const char *id);
void sandbox_drop_all(struct sandbox **all);
