/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A claim's status in the API server's binary form (protobuf behind "k8s\0"), with our entries
 * exchanged and every other byte as it was.
 */

#include <jansson.h>

#include "common/err.h"
#include "common/util.h"

#define CLAIM_BINARY "application/vnd.kubernetes.protobuf"

/* object is a ResourceClaim as the server sent it. In ret (empty) it is put with `devices` (as in
 * JSON) in the place of all entries that the driver has in status.devices. ERR_CONFLICT when it
 * has another UID; ERR_INVALID when it is no such object. */
int claim_splice(const void *object, size_t len, const char *uid, const char *driver_name,
	const json_t *devices, struct buf *ret, struct err *err);
