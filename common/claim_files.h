/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the metadata files of claims are, which containers get mounted through CDI:
 *
 *	<kubelet-dir>/plugins/<driver>/dra-device-metadata/<claim>/<request>/metadata.json
 *
 * <claim> is "<namespace>_<name>", or the UID where that is too long (check_claim_dir()).
 * draplugind writes them; nrihookd knows by such a mount which claims a container was given.
 */

#define CLAIM_FILES_STORE "dra-device-metadata"
#define CLAIM_FILES_NAME  "metadata.json"

/* The directory's name; the caller's. */
char *claim_files_dir(const char *namespace, const char *name, const char *uid);
