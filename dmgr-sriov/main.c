/* SPDX-License-Identifier: Apache-2.0 */
#include "dmgr-sriov/sandbox.h"
#include "dmgr-sriov/sriov.h"

int main(int argc, char **argv)
{
	struct sriov sriov = SRIOV_INIT;
	int status = manager_main(&sriov_ops, &sriov, &sriov_privileges,
		"Device manager of netclaim for SR-IOV virtual functions.", argc, argv);

	sriov_close(&sriov);
	return status;
}
