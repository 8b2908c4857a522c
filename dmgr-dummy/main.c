/* SPDX-License-Identifier: Apache-2.0 */
#include "dmgr-dummy/dummy.h"
#include "dmgr-dummy/sandbox.h"

int main(int argc, char **argv)
{
	struct dummy dummy = {.host_netns_fd = -1};
	int status = manager_main(&dummy_ops, &dummy, &dummy_privileges,
		"Device manager of netclaim for Linux dummy interfaces.", argc, argv);

	dummy_close(&dummy);
	return status;
}
