/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether two ResourceSlices say the same, without keeping either: a digest of their canonical
 * form, in which a quantity is its value, what is empty is not there, and the order of an
 * object's members is their names'. The order of devices counts: the scheduler prefers earlier
 * ones.
 *
 * Digests are of this process: its key is random. 0 is the digest of nothing.
 */

#include <jansson.h>
#include <stdint.h>

#include "common/util.h"

/* The parts of a slice, in this order: begin, each device, end. */
struct slice_digest {
	struct buf text; /* being hashed; its memory is used again */
	uint64_t devices, head;
};

/* Of the object all of spec but pool and devices counts, and who owns it. */
void slice_digest_begin(struct slice_digest *d, const json_t *object);
/* A device as it is in spec.devices. */
void slice_digest_device(struct slice_digest *d, const json_t *device);
uint64_t slice_digest_end(struct slice_digest *d);
/* All at once. */
uint64_t slice_digest_object(const json_t *object);

/* A device's name, as records of slices keep it. */
uint64_t slice_name_hash(const char *name);
/* Of one device alone. */
uint64_t slice_device_hash(const json_t *device);

/* Parts of devices that a server takes only with a feature gate; counted, so that it shows what
 * an answer lacks. */
struct slice_gated {
	size_t allow_multiple, request_policies;
};
void slice_gated_add(struct slice_gated *gated, const json_t *device);
