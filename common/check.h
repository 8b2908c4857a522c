/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Grammars: checks of one text each, as record fields name them. All return 0, or -1 with
 * ERR_INVALID and a message that says what is wrong with the text, quoting it.
 */

#include "common/err.h"

/* A Linux interface name that a user may choose: 1 to 15 bytes of [a-zA-Z0-9._-]; not "lo",
 * ".", "..", "all" or "default" (the kernel or its sysctl tree own these), nothing that
 * starts with "cilium_" (seed). "" is refused: a name that is not set is NULL. */
int check_if_name(const char *text, struct err *err);
/* The name of an interface that exists: whatever the kernel allows (dev_valid_name(),
 * net/core/dev.c): 1 to 15 bytes, no '/', ':' or white space, not "." or "..", and not "all" or
 * "default", which would name the settings of others (sysctl_dev_name_is_allowed(),
 * net/ipv4/devinet.c). */
int check_kernel_if_name(const char *text, struct err *err);
/* A name by which an interface can be found, its own or an alternative one, which may have up to
 * 127 bytes. */
int check_any_if_name(const char *text, struct err *err);
/* A leaf below net.ipv4.conf.<if>: elements of [-0-9_a-zA-Z]+ joined by dots. */
int check_sysctl_leaf(const char *text, struct err *err);
/* The same as a user writes it, who may have written the sysctl's whole name: refused are a name
 * that begins with "net.", "ipv4.", "ipv6.", "conf." or with the interface's own, whose rest is
 * named then, and one of over 255 bytes. interface: NULL if it is not known. */
int check_sysctl_short(const char *text, const char *interface, struct err *err);
/* RFC 1123 label of at most 63 bytes, lower case: the name of a DRA device. */
int check_dns_label(const char *text, struct err *err);
/* RFC 1123 subdomain of at most 253 bytes: Kubernetes object names. */
int check_dns_subdomain(const char *text, struct err *err);
/* A driver name: a subdomain of at most 63 bytes that starts with a letter, since it also is
 * a CDI vendor. */
int check_driver_name(const char *text, struct err *err);
/* A UID as an opaque word that is safe in file names: 1 to 63 bytes of [A-Za-z0-9-]. */
int check_uid(const char *text, struct err *err);
/* The directory of a claim's metadata files (claim_files.h): "<namespace>_<name>", or a UID. */
int check_claim_dir(const char *text, struct err *err);
/* A request reference: label, or label/label. */
int check_request_ref(const char *text, struct err *err);
/* A runtime's sandbox id: 1 to 128 bytes of [A-Za-z0-9_.-]. */
int check_sandbox_id(const char *text, struct err *err);
/* A logical pool's name: 1 to 64 bytes (it becomes an attribute's value), no slash. */
int check_pool_name(const char *text, struct err *err);
/* One of the device managers' type names; case is ignored, as the seed's decoder does. */
int check_manager_type(const char *text, struct err *err);
