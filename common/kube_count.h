/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How often which request was sent: for an operator, and for measurements. */

#include <stddef.h>
#include <stdint.h>

#define KUBE_COUNT_TEXT 64
#define KUBE_COUNTS     32

/* As an API server's audit log has it: "get resourceclaims", "patch resourceclaims/status", "watch
 * ciliumnetworkdrivernodeconfigs", "get /version". */
struct kube_count {
	char request[KUBE_COUNT_TEXT];
	uint64_t n;
};

struct kube_counts {
	struct kube_count v[KUBE_COUNTS]; /* the last takes what finds no place */
	size_t n;
};

/* A request of this method ("GET", ...), path and query (NULL: none). */
void kube_count(
	struct kube_counts *counts, const char *method, const char *path, const char *query);
