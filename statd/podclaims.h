/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which ResourceClaims a pod uses (core/v1 Pod, KEP-4381).
 */

#include <jansson.h>

#include "common/err.h"
#include "common/util.h"

/* Adds the names of the claims in the pod's namespace to ret, each once, in the order of
 * spec.resourceClaims: the claim named there, or the one made from the template named there, by
 * status.resourceClaimStatuses; a claim that is not made yet, or that will not be, is left out.
 * The claim behind extended resources (status.extendedResourceClaimStatus) comes last. Names
 * are checked: they are fit for a URL's path.
 *
 * -1 if some entry cannot be understood; err is about the first such, and ret has the claims of
 * all the others nevertheless. */
int podclaims_names(const json_t *pod, struct strlist *ret, struct err *err);
