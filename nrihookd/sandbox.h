/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "common/privileges.h"

/* Root, for the runtime's socket is root's alone, and no capability at all. */
extern const struct privileges nrihookd_privileges;
