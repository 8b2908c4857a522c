/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "common/privileges.h"

/* What netnsd and its children keep. */
extern const struct privileges netnsd_privileges;
