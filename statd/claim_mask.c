/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What statd reads of a claim and of a pod. Whatever reads another field adds it here; a test
 * compares this table with the records.
 */
#include "statd/claim_mask.h"

#include "common/doc.h"

#define MASK(name_, members_)                                                                  \
	static const struct json_mask name_ = {                                                \
		.members = members_, .n_members = ARRAY_SIZE(members_)}

/* --- metadata ----------------------------------------------------------------------------- */

static const struct json_mask_member annotations_members[] = {
	{"resource.kubernetes.io/pod-claim-name", NULL},
};
MASK(annotations_mask, annotations_members);

static const struct json_mask_member metadata_members[] = {
	{"name", NULL},
	{"namespace", NULL},
	{"uid", NULL},
	{"resourceVersion", NULL},
	{"generation", NULL},
	{"deletionTimestamp", NULL},
	{"annotations", &annotations_mask},
};
MASK(metadata_mask, metadata_members);

/* --- a claim's spec ----------------------------------------------------------------------- */

static const struct json_mask_member subrequest_members[] = {{"name", NULL}};
MASK(subrequest_mask, subrequest_members);

static const struct json_mask_member exactly_members[] = {
	{"deviceClassName", NULL},
	{"adminAccess", NULL},
};
MASK(exactly_mask, exactly_members);

static const struct json_mask_member request_members[] = {
	{"name", NULL},
	{"exactly", &exactly_mask},
	{"firstAvailable", &subrequest_mask},
};
MASK(request_mask, request_members);

static const struct json_mask_member spec_devices_members[] = {{"requests", &request_mask}};
MASK(spec_devices_mask, spec_devices_members);

/* --- a claim's status --------------------------------------------------------------------- */

static const char *const result_stub[] = {"request", "driver", "pool", "device"};
static const struct json_mask result_mask = {
	.owner = {"driver"},
	.stub = result_stub,
	.n_stub = ARRAY_SIZE(result_stub),
};

static const struct json_mask config_mask = {.owner = {"opaque", "driver"}};

static const struct json_mask_member allocation_devices_members[] = {
	{"results", &result_mask},
	{"config", &config_mask},
};
MASK(allocation_devices_mask, allocation_devices_members);

static const struct json_mask_member allocation_members[] = {
	{"devices", &allocation_devices_mask},
};
MASK(allocation_mask, allocation_members);

static const struct json_mask_member consumer_members[] = {
	{"apiGroup", NULL},
	{"resource", NULL},
	{"name", NULL},
	{"uid", NULL},
};
MASK(consumer_mask, consumer_members);

static const char *const entry_stub[] = {"driver", "pool", "device"};
static const struct json_mask entry_mask = {
	.owner = {"driver"},
	.stub = entry_stub,
	.n_stub = ARRAY_SIZE(entry_stub),
};

/* --- a pod -------------------------------------------------------------------------------- */

static const struct json_mask_member pod_claim_members[] = {
	{"name", NULL},
	{"resourceClaimName", NULL},
	{"resourceClaimTemplateName", NULL},
};
MASK(pod_claim_mask, pod_claim_members);

static const struct json_mask_member extended_members[] = {{"resourceClaimName", NULL}};
MASK(extended_mask, extended_members);

/* --- both --------------------------------------------------------------------------------- */

#define POD_SPEC   {"resourceClaims", &pod_claim_mask}
#define POD_STATUS {"resourceClaimStatuses", &pod_claim_mask}, {"extendedResourceClaimStatus", &extended_mask}

static const struct json_mask_member spec_members[] = {
	{"devices", &spec_devices_mask},
	POD_SPEC,
};
MASK(spec_mask, spec_members);

static const struct json_mask_member status_members[] = {
	{"allocation", &allocation_mask},
	{"reservedFor", &consumer_mask},
	{"devices", &entry_mask},
	POD_STATUS,
};
MASK(status_mask, status_members);

static const struct json_mask_member claim_members[] = {
	{"apiVersion", NULL},
	{"kind", NULL},
	{"metadata", &metadata_mask},
	{"spec", &spec_mask},
	{"status", &status_mask},
};
const struct json_mask claim_mask = {
	.members = claim_members, .n_members = ARRAY_SIZE(claim_members)};

int claim_parse(const char *name, const char *text, size_t len, const char *driver_name,
	json_t **ret, struct err *err)
{
	struct doc *doc;

	if (doc_parse_masked(name, text, len, &claim_mask, driver_name, &doc, err) < 0)
		return -1;
	*ret = json_incref(doc_root(doc));
	doc_free(doc);
	return 0;
}
