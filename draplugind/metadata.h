/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Device metadata files: what a workload can read about the devices of its claim, one file a
 * request of the claim.
 *
 * Source: KEP-5304, metadata.resource.k8s.io/v1beta1 and v1alpha1. The file is a stream of one
 * JSON object a version, newest first, all saying the same.
 */

#include "common/api.h"
#include "common/err.h"

struct metadata {
	const char *dir; /* the plugin's data directory, absolute; it must be there */
	const char *driver;
};

/* The part of a request reference that names a request of the claim: "req" of "req/sub". The
 * caller's. */
char *metadata_request(const char *reference);

/* Writes, or brings up to date, the file of one request with the devices prepared for it. The
 * generation is 1 for a claim's first file and one more whenever the content changes; a file that
 * says the same already is not touched. All words of claim and prepared are checked ones. */
int metadata_write(const struct metadata *m, const struct claim_ref *claim,
	const struct claim_prepare_result *prepared, const char *request, struct err *err);
/* The requests of the claim that have a directory, in no order: all that were ever written, and some
 * of another claim of the same name perhaps. None is an ordinary outcome. */
int metadata_requests(const struct metadata *m, const struct claim_ref *claim,
	struct strlist *ret, struct err *err);
/* Removes the claim's files; requests are those that metadata_requests() found. What belongs to another
 * claim of the same name stays. */
int metadata_remove(const struct metadata *m, const struct claim_ref *claim,
	const struct strlist *requests, struct err *err);

/* Where the file is on the host, and where a container is to find it. The caller's. */
char *metadata_host_path(
	const struct metadata *m, const struct claim_ref *claim, const char *request);
char *metadata_container_path(const struct metadata *m, const struct claim_ref *claim,
	const char *pod_claim_name, const char *request);
