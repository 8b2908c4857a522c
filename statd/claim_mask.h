/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Claims and pods without what is other programs': their entries in a claim's status and
 * configuration, the record of who set which field, annotations, and all that statd does not read.
 */

#include <jansson.h>

#include "common/err.h"
#include "common/json_mask.h"

/* Of a ResourceClaim or a Pod; its owner is a driver's name. Lists keep their length, so that a
 * place in status.devices is the object's. */
extern const struct json_mask claim_mask;

/* A claim as an API server sends it. name is what errors call it. The tree is the caller's.
 * ERR_INVALID: it is not JSON, or what is ours in it cannot be read. */
int claim_parse(const char *name, const char *text, size_t len, const char *driver_name,
	json_t **ret, struct err *err);
