/* SPDX-License-Identifier: Apache-2.0 */
#include "dmgr-sriov/uevent.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "common/log.h"
#include "common/util.h"
#include "dmgr-sriov/pci.h"

#define KERNEL_GROUP 1    /* lib/kobject_uevent.c; 2 is udev's */
#define MESSAGE_SIZE 8192 /* UEVENT_BUFFER_SIZE is 2048, and the header comes on top */

int uevent_open(struct err *err)
{
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
	cleanup_close int fd = socket(
		AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);

	if (fd < 0)
		return err_errno(err, errno, "opening a uevent socket");
	if (bind(fd, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return err_errno(err, errno, "binding a uevent socket");
	return take_fd(&fd);
}

static void read_value(const char *text, const char *key, const char **ret)
{
	if (str_has_prefix(text, key))
		*ret = text + strlen(key);
}

bool uevent_parse(const char *text, size_t len, struct uevent *ret)
{
	*ret = (struct uevent){.action = "", .subsystem = "", .devpath = ""};
	if (len == 0 || !memchr(text, '@', strnlen(text, len)))
		return false;
	for (size_t at = 0; at < len; at += strlen(text + at) + 1) {
		read_value(text + at, "ACTION=", &ret->action);
		read_value(text + at, "SUBSYSTEM=", &ret->subsystem);
		read_value(text + at, "DEVPATH=", &ret->devpath);
	}
	return true;
}

/* ".../0000:01:00.0/net/ens1f0" */
static bool is_of_pf(const char *devpath, int sys_fd)
{
	const char *net = strstr(devpath, "/net/"), *start = net;
	char addr[PCI_ADDR_SIZE];
	struct pci_pf pf;
	struct err err;

	if (!net)
		return false;
	while (start > devpath && start[-1] != '/')
		start--;
	if ((size_t)(net - start) >= sizeof(addr))
		return false;
	memcpy(addr, start, (size_t)(net - start));
	addr[net - start] = '\0';
	return pci_addr_ok(addr) && pci_pf_read(sys_fd, addr, &pf, &err) == 0;
}

bool uevent_matters(const struct uevent *e, int sys_fd)
{
	if (strcmp(e->subsystem, "pci") == 0)
		return strcmp(e->action, "change") != 0;
	/* a VF's own name changes with each hand-over, and is looked up when it is needed */
	return strcmp(e->subsystem, "net") == 0 && is_of_pf(e->devpath, sys_fd);
}

bool uevent_drain(int fd, int sys_fd)
{
	char text[MESSAGE_SIZE + 1];
	struct sockaddr_nl from = {0};
	bool matters = false;
	struct uevent e;

	for (;;) {
		struct iovec iov = {.iov_base = text, .iov_len = MESSAGE_SIZE};
		struct msghdr msg = {.msg_name = &from,
			.msg_namelen = sizeof(from),
			.msg_iov = &iov,
			.msg_iovlen = 1};
		const ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS) { /* some were lost, so anything may be */
			matters = true;
			continue;
		}
		if (n <= 0)
			return matters;
		text[n] = '\0';
		if (from.nl_pid == 0 && uevent_parse(text, (size_t)n, &e))
			matters |= uevent_matters(&e, sys_fd);
	}
}
