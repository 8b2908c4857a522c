/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "common/kube.h"
#include "statd/store.h"

/* The ResourceClaims of a cluster (store.h). kube is borrowed and freed after the store. */
struct store *store_kube_new(uv_loop_t *loop, struct kube *kube, const char *node_name);
