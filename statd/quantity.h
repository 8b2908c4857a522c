/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Quantities of Kubernetes ("1500m", "64Ki", "1e3"): their exact value, since one value has many
 * spellings and the API server answers in its own.
 */

#include <stdint.h>

#include "common/err.h"

/* A quantity that is not negative. The API's resolution is a billionth. */
struct quantity {
	uint64_t whole; /* at most INT64_MAX, which is where the API caps */
	uint32_t nanos; /* below 1000000000 */
};

#define QUANTITY_MAX_TEXT 32 /* bytes; what the API server writes has at most 20 */

/* A fraction of a billionth is rounded up, as the API does. ERR_INVALID: it is none, or negative,
 * or too large or too long. */
int quantity_parse(const char *text, struct quantity *ret, struct err *err);
/* Less than, equal to or greater than 0. */
int quantity_compare(struct quantity a, struct quantity b);
