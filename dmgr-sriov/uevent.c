/* SPDX-License-Identifier: Apache-2.0 */
#include "dmgr-sriov/uevent.h"

#include <linux/netlink.h>
#include <string.h>

#include "common/util.h"
#include "dmgr-sriov/pci.h"
#include "dmgr-sriov/reports.h"

#define KERNEL_GROUP 1    /* lib/kobject_uevent.c; 2 is udev's */
#define MESSAGE_SIZE 8192 /* UEVENT_BUFFER_SIZE is 2048, and the header comes on top */

#define WHAT "uevents"

int uevent_open(struct err *err)
{
	cleanup_close int fd = reports_open(NETLINK_KOBJECT_UEVENT, WHAT, err);

	if (fd < 0 || reports_join(fd, KERNEL_GROUP, WHAT, err) < 0)
		return -1;
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

struct draining {
	char text[MESSAGE_SIZE + 1];
	void (*each)(void *ctx, const struct uevent *e);
	void *ctx;
};

static void read_message(void *ctx, size_t len)
{
	struct draining *d = ctx;
	struct uevent e;

	d->text[len] = '\0';
	if (uevent_parse(d->text, len, &e))
		d->each(d->ctx, &e);
}

bool uevent_drain(int fd, void (*each)(void *ctx, const struct uevent *e), void *ctx)
{
	struct draining d = {.each = each, .ctx = ctx};

	return reports_drain(fd, d.text, MESSAGE_SIZE, read_message, &d);
}
