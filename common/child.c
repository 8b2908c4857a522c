/* SPDX-License-Identifier: Apache-2.0 */
#include "common/child.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"

int child_start(child_main *run, void *ctx, struct err *err)
{
	cleanup_close int ours = -1, its = -1;
	const pid_t parent = getpid();
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_errno(err, errno, "socketpair");
	ours = ends[0];
	its = ends[1];
	(void)signal(SIGCHLD, SIG_IGN);
	pid = fork();
	if (pid < 0)
		return err_errno(err, errno, "fork");
	if (pid > 0)
		return take_fd(&ours);
	close_fd(&ours);
	/* the parent may have ended before the first call took effect */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	_exit(run(its, ctx));
}
