/* SPDX-License-Identifier: Apache-2.0 */
#include "common/claim_files.h"

#include <limits.h>
#include <string.h>

#include "common/util.h"

/* Both names together may be longer than a file's name; then the UID has to do. */
char *claim_files_dir(const char *namespace, const char *name, const char *uid)
{
	if (strlen(namespace) + 1 + strlen(name) > NAME_MAX)
		return xstrdup(uid);
	return xasprintf("%s_%s", namespace, name);
}
