/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CDI specifications: what the container runtime reads to mount a claim's metadata file into the
 * containers that use the claim. One file, one device, one mount a request.
 *
 * Source: Container Device Interface specification 0.5.0.
 */

#include "common/err.h"
#include "common/util.h"

struct cdi {
	const char *dir;    /* that the runtime scans; made, 0755, when it is missing */
	const char *driver; /* the vendor of our devices */
};

/* "<driver>/metadata=<uid>_<request>", the caller's: what the kubelet passes to the runtime. */
char *cdi_device_id(const struct cdi *cdi, const char *claim_uid, const char *request);

/* Writes <driver>_metadata_<uid>_<request>.json, 0644; keeps it when it says the same already. The
 * paths are those of the mount. claim_uid and request are checked words. */
int cdi_write(const struct cdi *cdi, const char *claim_uid, const char *request,
	const char *host_path, const char *container_path, struct err *err);
/* Removes every file of the claim. requests are those that it is known to have; where there is none,
 * or a file of one is missing, the whole directory is searched. */
int cdi_remove(const struct cdi *cdi, const char *claim_uid, const struct strlist *requests,
	struct err *err);
/* Removes the temporary files of a cdi_write() that ended with its process. No other may be
 * running. */
int cdi_clean(const struct cdi *cdi, struct err *err);
