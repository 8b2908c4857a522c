/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "common/privileges.h"

/* What draplugind keeps. */
extern const struct privileges draplugind_privileges;
