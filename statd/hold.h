/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Devices and shares that a claim is being prepared for right now. A row says the same once the
 * preparation is done; a hold says it while it is under way.
 */

#include "common/err.h"
#include "common/util.h"

struct hold;

/* ERR_BUSY if another claim holds it; success if this one does already. */
int hold_take(struct hold **all, const char *device, const char *share_id,
	const char *claim_uid, struct err *err);
void hold_release_claim(struct hold **all, const char *claim_uid);
/* Adds the UIDs of the claims that hold anything, each once. */
void hold_claims(struct hold *const *all, struct strlist *ret);
