/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The claims that a container was given, as its mounts show them.
 *
 * For each request of a claim that a container names, the kubelet hands the runtime a CDI device
 * of ours, whose one edit is the mount of the request's metadata file (common/claim_files.h). So
 * the mounts of a container show its claims, also one that the node's record has for another pod:
 * of the pods that share a claim, the kubelet has the driver prepare it for the first one only.
 */

#include "common/util.h"

/* As many as a call to statd takes. A pod may have 32. */
#define CLAIMS_MAX 256

/* The claim whose metadata a mount of this source is, by the directory of its files; NULL: it is
 * another mount. kubelet_dir is absolute. The caller's. */
char *claims_of_mount(const char *kubelet_dir, const char *driver, const char *source);
/* Adds those that are not in it, as long as there are not too many. */
void claims_add(struct strlist *to, const struct strlist *claims);
/* Whether all of claims are in it. */
bool claims_has(const struct strlist *in, const struct strlist *claims);
/* For messages: "claim default/c1", "claims default/c1, default/c2"; the caller's. */
char *claims_format(const struct strlist *claims);
