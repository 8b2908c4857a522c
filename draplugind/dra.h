/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The DRA service: NodePrepareResources and NodeUnprepareResources, of v1 and v1beta1.
 */

#include "draplugind/cdi.h"
#include "draplugind/grpc.h"
#include "draplugind/metadata.h"
#include "draplugind/rpc.h"

struct dra {
	struct dra_rpc *rpc;
	char *driver;
	char *plugin_dir;
	struct metadata metadata;
	struct cdi cdi;
	struct work *works; /* claims in hand, in the order in which they came */
};

/* Its handlers' ctx is a struct dra. */
extern const struct grpc_service dra_service;

/* rpc and cdi_dir are borrowed. */
void dra_init(struct dra *dra, struct dra_rpc *rpc, const char *driver, const char *kubelet_dir,
	const char *cdi_dir);
/* After the loop is empty: no claim is in hand any more. */
void dra_fini(struct dra *dra);
