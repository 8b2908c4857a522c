/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "common/privileges.h"

/* What dmgr-dummy keeps. */
extern const struct privileges dummy_privileges;
