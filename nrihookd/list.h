/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which sandboxes live: the runtime lists them, and statd says which of them lack devices.
 */

#include "nrihookd/hooks.h"

/* The runtime's list, as events of it; ctx is the struct hooks. */
void list_begin(void *ctx);
void list_pod(void *ctx, const struct nri_pod *told);
void list_end(void *ctx);

/* Tells statd which sandboxes live, and has those attached late that lack devices. Does nothing
 * before there is a list and a statd. */
void list_sync(struct hooks *h);
