/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The one program of the lab's image: waits until it is told to end. It serves as the sandbox
 * container and as the container of a pod.
 */

#include <signal.h>
#include <unistd.h>

static void end(int signal_number)
{
	(void)signal_number;
	_exit(0);
}

int main(void)
{
	/* as process 1 of its namespace it gets only the signals that it handles */
	signal(SIGTERM, end);
	signal(SIGINT, end);
	for (;;)
		pause();
}
