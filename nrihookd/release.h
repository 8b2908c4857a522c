/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is known of releases of container runtimes.
 */

#include <stdbool.h>

/* Whether this runtime, by the name and version that it tells of itself, leaves the sandbox's
 * process and record behind when a plugin refuses a sandbox. */
bool release_leaks_refused(const char *runtime, const char *version);
