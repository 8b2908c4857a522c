/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the API server takes of a device in a ResourceSlice (resource.k8s.io/v1, as Kubernetes
 * 1.34 validates it). It refuses a whole slice for one bad value, and a pool that lacks a slice
 * is no use to the scheduler; so what it would refuse is found here, and only that stays away.
 */

#include <jansson.h>

#define SLICE_MAX_DEVICES 64 /* the seed's; the API takes 128 of our kind, 64 of others */
#define SLICE_MAX_ENTRIES 32 /* attributes and capacities of one device */

/* device is an object of spec.devices. What must not be in it is taken out. 0: nothing had to be;
 * 1: something is left out, *ret_note says what and why; -1: the device cannot be published at
 * all, *ret_note says why. The note is the caller's, at most SLICE_LIMITS_MAX_NOTE bytes. */
int slice_limits_apply(json_t *device, char **ret_note);
#define SLICE_LIMITS_MAX_NOTE 1000
