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

/* Copies a part of a path that is a PCI address. */
static bool take_addr(const char *part, size_t len, char addr[static PCI_ADDR_SIZE])
{
	char text[PCI_ADDR_SIZE];

	if (len >= sizeof(text))
		return false;
	memcpy(text, part, len);
	text[len] = '\0';
	if (!pci_addr_ok(text))
		return false;
	memcpy(addr, text, len + 1);
	return true;
}

bool uevent_function(const struct uevent *e, char addr[static PCI_ADDR_SIZE])
{
	const char *net = strstr(e->devpath, "/net/");
	bool found = false;

	if (strcmp(e->subsystem, "net") != 0 || !net)
		return false;
	/* the last one: a bridge's is before it, and a device of another bus may be behind it */
	for (const char *part = e->devpath; part < net; part += strcspn(part, "/")) {
		part += strspn(part, "/");
		found |= take_addr(part, strcspn(part, "/"), addr);
	}
	return found;
}

bool uevent_is_of_pci(const struct uevent *e)
{
	return strcmp(e->subsystem, "pci") == 0 && strcmp(e->action, "change") != 0;
}

bool uevent_drain(int fd, void (*each)(void *ctx, const struct uevent *e), void *ctx)
{
	char text[MESSAGE_SIZE + 1];
	struct sockaddr_nl from = {0};
	bool is_complete = true;
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
		if (n < 0 && errno == ENOBUFS) {
			is_complete = false;
			continue;
		}
		if (n <= 0)
			return is_complete;
		text[n] = '\0';
		if (from.nl_pid == 0 && uevent_parse(text, (size_t)n, &e))
			each(ctx, &e);
	}
}
