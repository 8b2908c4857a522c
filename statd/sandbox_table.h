/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sandboxes that hold devices of ours, each with its network namespace as a descriptor. An
 * open namespace stays alive, so one is held no longer than a device is in it.
 */

struct sandbox;

/* Takes *netns_fd. A sandbox that is known already keeps its descriptor, and this one is
 * closed. */
void sandbox_put(struct sandbox **all, const char *id, int *netns_fd);
/* A duplicate of the descriptor, the caller's; -1: the sandbox is not known. */
int sandbox_netns(struct sandbox *const *all, const char *id);
/* Forgets it and closes its namespace. */
void sandbox_drop(struct sandbox **all, const char *id);
void sandbox_drop_all(struct sandbox **all);
