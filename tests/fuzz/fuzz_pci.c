/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two PCI devices in sysfs, one perhaps a virtual function of the other. The input is pieces,
 * each behind its length in one byte: what is in their files, where their links point to, what
 * their interfaces are called, in the order of the table below; at last an address.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/check.h"
#include "common/util.h"
#include "dmgr-sriov/pci.h"
#include "tests/fuzz/fuzz.h"

#define PF      "0000:01:00.0"
#define VF      "0000:01:10.0"
#define PF_PATH "bus/pci/devices/" PF "/"
#define VF_PATH "bus/pci/devices/" VF "/"

enum kind {
	FILE_CONTENT,
	LINK_TARGET, /* empty: no link */
	DIR_NAME,    /* empty, or none: no directory */
};
static const struct {
	const char *path;
	enum kind kind;
} pieces[] = {
	{VF_PATH "class", FILE_CONTENT},
	{VF_PATH "physfn", LINK_TARGET},
	{VF_PATH "driver", LINK_TARGET},
	{VF_PATH "vendor", FILE_CONTENT},
	{VF_PATH "device", FILE_CONTENT},
	{VF_PATH "numa_node", FILE_CONTENT},
	{VF_PATH "net", DIR_NAME},
	{PF_PATH "net", DIR_NAME},
	{PF_PATH "net/eth0/phys_port_name", FILE_CONTENT},
	{PF_PATH "net/eth0/dev_port", FILE_CONTENT},
	{PF_PATH "net/eth0/speed", FILE_CONTENT},
	{PF_PATH "virtfn0", LINK_TARGET},
	{PF_PATH "sriov_totalvfs", FILE_CONTENT},
	{PF_PATH "sriov_numvfs", FILE_CONTENT},
	{VF_PATH "virtio1/net", DIR_NAME},
};

static int sys_fd = -1;
static char made[3][512]; /* directories of this input */
static size_t n_made;

/* One tree for the process. */
static void make_tree(void)
{
	static const char *const dirs[] = {"bus", "bus/pci", "bus/pci/devices", PF_PATH,
		PF_PATH "net", PF_PATH "net/eth0", VF_PATH, VF_PATH "net", VF_PATH "virtio1",
		VF_PATH "virtio1/net"};

	if (sys_fd >= 0)
		return;
	sys_fd = fuzz_tree(dirs, ARRAY_SIZE(dirs));
}

static void put_file(const char *path, const struct input *piece)
{
	cleanup_close int fd =
		openat(sys_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert(fd >= 0);
	assert(write(fd, piece->data, piece->size) == (ssize_t)piece->size);
}

static void put_link(const char *path, const char *target)
{
	assert(unlinkat(sys_fd, path, 0) == 0 || errno == ENOENT);
	assert(!*target || symlinkat(target, sys_fd, path) == 0);
}

static void put_dir(const char *parent, const char *name)
{
	char *path = made[n_made];

	(void)snprintf(path, sizeof(made[0]), "%s/%s", parent, name);
	/* a namespace has a name once */
	if (*name && strcmp(name, "eth0") != 0 && !strchr(name, '/') &&
		mkdirat(sys_fd, path, 0755) == 0)
		n_made++;
}

static void put_pieces(struct input *in)
{
	for (; n_made; n_made--)
		assert(unlinkat(sys_fd, made[n_made - 1], AT_REMOVEDIR) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		const size_t size = input_byte(in);
		const struct input piece = input_piece(in, size);
		cleanup_free char *text = xmemdup0(piece.data, piece.size);

		if (pieces[i].kind == FILE_CONTENT)
			put_file(pieces[i].path, &piece);
		else if (pieces[i].kind == LINK_TARGET)
			put_link(pieces[i].path, text);
		else
			put_dir(pieces[i].path, text);
	}
}

static void check_text(const char *text, size_t max)
{
	assert(strlen(text) <= max);
	for (; *text; text++)
		assert(*text >= ' ' && *text <= '~');
}

static void check_vf(const struct pci_vf *vf)
{
	assert(strcmp(vf->addr, VF) == 0 && strcmp(vf->pf_addr, PF) == 0 && vf->id == 0);
	check_text(vf->driver, 64);
	check_text(vf->vendor, 64);
	check_text(vf->device_id, 64);
	assert(*vf->driver && *vf->vendor && *vf->device_id);
	assert(strlen(vf->pf_name) < IFNAMSIZ && strlen(vf->if_name) < IFNAMSIZ);
	assert(vf->numa_node >= -1 && (vf->link_speed == -1 || vf->link_speed > 0));
	assert(*vf->pf_name || (vf->link_speed == -1 && vf->pf_mtu == -1));
}

/* Both ways to it see the same. */
static void read_vfs(void)
{
	struct pci_scan scan;
	struct pci_vf vf;
	struct err err = ERR_INIT;
	int rc;

	assert(pci_scan(sys_fd, &scan, &err) == 0);
	assert(scan.n_vfs + scan.n_skipped <= 1);
	rc = pci_vf_read(sys_fd, VF, &vf, &err);
	if (scan.n_vfs) {
		assert(rc == 0);
		check_vf(&vf);
		check_vf(scan.vfs);
		assert(strcmp(vf.if_name, scan.vfs[0].if_name) == 0 &&
			strcmp(vf.pf_name, scan.vfs[0].pf_name) == 0 &&
			vf.link_speed == scan.vfs[0].link_speed);
	} else if (scan.n_skipped) {
		check_text(scan.skipped[0].why.message, ERR_MESSAGE_MAX);
		assert(rc < 0 && err.kind != ERR_NOT_FOUND);
		assert(strstr(err.message, scan.skipped[0].why.message));
	} else {
		assert(rc < 0 && err.kind == ERR_NOT_FOUND);
	}
	assert(!pci_scan_find(&scan, VF) == (scan.n_vfs + scan.n_skipped == 0));
	pci_scan_fini(&scan);
}

static void read_pf(void)
{
	struct pci_pf pf, by_name;
	struct err err = ERR_INIT;
	const int rc = pci_pf_read(sys_fd, PF, &pf, &err);

	assert(pci_pf_by_name(sys_fd, "eth0", &by_name, &err) == rc);
	if (rc < 0)
		assert(err.kind == ERR_INVALID);
	else
		assert(pf.total_vfs <= 65535 && by_name.num_vfs == pf.num_vfs &&
			strcmp(pf.name, by_name.name) == 0);
}

static void read_addr(const char *addr)
{
	char name[PCI_ADDR_SIZE];
	struct pci_vf vf;
	struct err err = ERR_INIT;

	if (pci_addr_ok(addr)) {
		pci_device_name(addr, name);
		assert(check_dns_label(name, &err) == 0 && strlen(name) == strlen(addr));
	} else {
		assert(pci_vf_read(sys_fd, addr, &vf, &err) < 0);
		assert(err.kind == ERR_NOT_FOUND);
	}
}

/* The next descriptor's number stays the same. */
static void check_descriptors(void)
{
	static int expected = -1;
	const int next = dup(sys_fd);

	assert(next >= 0 && (expected < 0 || next == expected));
	expected = next;
	(void)close(next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	cleanup_free char *addr = NULL;

	make_tree();
	put_pieces(&in);
	read_vfs();
	read_pf();
	addr = xmemdup0(in.data, in.size);
	read_addr(addr);
	check_descriptors();
	return 0;
}
