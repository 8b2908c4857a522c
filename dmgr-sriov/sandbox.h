/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "common/privileges.h"

/* What dmgr-sriov keeps. */
extern const struct privileges sriov_privileges;
/* What its child keeps, which makes virtual functions and ends. */
extern const struct privileges sriov_provision_privileges;
