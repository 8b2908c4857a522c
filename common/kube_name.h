/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The addresses of a host name, without blocking and without a thread. */

#include <uv.h>

#include "common/err.h"

struct kube_name;

/* addresses: "192.0.2.1,2001:db8::1", borrowed; NULL: err says why, ERR_UNAVAILABLE.
 * It may free the query. */
typedef void kube_name_cb(void *ctx, const char *addresses, const struct err *err);

/* Asks as the system's files say: /etc/hosts, and the servers of /etc/resolv.conf, which are
 * read now. cb is called once, later. */
struct kube_name *kube_name_new(uv_loop_t *loop, const char *host, kube_name_cb *cb, void *ctx);
/* cb is not called any more. To be called after it was, too. The handles on the loop close
 * later by themselves. NULL is fine. */
void kube_name_free(struct kube_name *name);
