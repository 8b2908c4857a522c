/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is prepared of a manager's devices: statd hands it over with device.restore, and each
 * setup and free since has changed it. A manager looks into it when a device cannot be seen as
 * it is, since its link is in a pod.
 */

#include "common/api.h"

struct prepared;

struct prepared *prepared_new(void);
/* NULL is fine. */
void prepared_free(struct prepared *p);

void prepared_clear(struct prepared *p);
/* device is what restore, setup or recover of this allocation returned. */
void prepared_put(
	struct prepared *p, const struct device_alloc *a, const struct device *device);
/* Of an allocation that is not there: does nothing. */
void prepared_drop(struct prepared *p, const struct device_alloc *a);

/* The state of a prepared device, borrowed until the next change; of one with several shares
 * that of the last one. NULL: it is not prepared. */
const struct packed *prepared_state(const struct prepared *p, const char *device);
