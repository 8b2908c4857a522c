/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between the parts of claims: claim.c (the object, its status) and claim_plan.c. */

#include <string.h>

#include "statd/claim.h"

#define CLAIM_API_VERSION "resource.k8s.io/v1"

#define CLAIM_MAX_RESULTS 32 /* resource.k8s.io/v1: AllocationResultsMaxSize */
#define CLAIM_MAX_CONFIGS 64 /* DeviceConfigMaxSize of a class and of a claim */

/* set by the claim controller on claims that it makes from a template */
#define CLAIM_POD_CLAIM_NAME "resource.kubernetes.io/pod-claim-name"

extern const struct rec_desc rec_claim_result, rec_claim_config;

/* What of a row goes into the claim's status; ERR_INVALID if it is more than the API takes. */
int claim_data_encode(const struct alloc_row *row, json_t **ret, struct err *err);

/* NULL and empty are the same: no share. */
static inline bool same_share(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

/* A text of an object that may be anything; "" where there is none. */
static inline const char *text_at(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

static inline const struct claim_allocation_devices *allocation_of(const struct claim *claim)
{
	const struct claim_status *status = claim->status;

	return status && status->allocation ? status->allocation->devices : NULL;
}

/* The lists of the allocation, whose elements may be anything; NULL: there is none. */
static inline const json_t *results_of(const struct claim *claim)
{
	const struct claim_allocation_devices *devices = allocation_of(claim);

	return devices ? devices->results : NULL;
}

static inline const json_t *configs_of(const struct claim *claim)
{
	const struct claim_allocation_devices *devices = allocation_of(claim);

	return devices ? devices->config : NULL;
}
