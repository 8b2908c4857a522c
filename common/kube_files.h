/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Certificates and keys that are replaced in their files while we use them.
 *
 * They matter when a connection is made, and when the server does not accept us any more; at both
 * times the files are read again. What a connection was made with stays until the connection is
 * gone.
 */

#include <uv.h>

#include "common/kube_access.h"

/* PEM texts, as in kube_access. Counted references. */
struct kube_credentials {
	unsigned refs;
	unsigned generation; /* another one each time that something was replaced */
	char *ca, *cert, *key;
};
struct kube_credentials *kube_credentials_ref(struct kube_credentials *c);
void kube_credentials_unref(struct kube_credentials *c); /* NULL is fine; keys are wiped */

struct kube_files;

/* Begins with what access has. read() is notified when a reading that was under way has ended. access
 * is borrowed, its reader included. */
struct kube_files *kube_files_new(uv_loop_t *loop, const struct kube_access *access,
	void (*read)(void *ctx), void *ctx);
/* From anywhere; nothing is notified any more. */
void kube_files_free(struct kube_files *files);

/* Reads all files again. true: this is under way, and its end will be told. A file that cannot be
 * read or is no PEM is logged once, and the old one stays. */
bool kube_files_refresh(struct kube_files *files);
bool kube_files_is_busy(const struct kube_files *files);
/* Borrowed. Another one after each change. */
struct kube_credentials *kube_files_credentials(const struct kube_files *files);
