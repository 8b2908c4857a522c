/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI sysfs.
 *
 * What a virtual function is called and which one it is of its physical function, only links
 * tell: net/<name>, and virtfnN in the physical function's directory. The function number is
 * not the index. A physical function's links are read once for all of its virtual functions.
 *
 * Anything may vanish between two reads; a device that does is no device.
 */
#include "dmgr-sriov/pci.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"

#define DEVICES        "bus/pci/devices"
#define CLASS_ETHERNET 0x0200     /* base class and subclass: linux/pci_ids.h */
#define MAX_VFS        65535      /* TotalVFs of the SR-IOV capability has 16 bits */
#define SPEED_UNKNOWN  UINT32_MAX /* as a driver that does not know may tell it, unsigned */

/* --- names -------------------------------------------------------------------------------- */

static size_t span_hex(const char *text)
{
	return strspn(text, "0123456789abcdef");
}

bool pci_addr_ok(const char *addr)
{
	const size_t domain = span_hex(addr);

	return domain >= 4 && domain <= 8 && strlen(addr) == domain + 8 &&
	       addr[domain] == ':' && span_hex(addr + domain + 1) == 2 &&
	       addr[domain + 3] == ':' && span_hex(addr + domain + 4) == 2 &&
	       addr[domain + 6] == '.' && addr[domain + 7] >= '0' && addr[domain + 7] <= '7';
}

void pci_device_name(const char *addr, char out[static PCI_ADDR_SIZE])
{
	(void)snprintf(out, PCI_ADDR_SIZE, "%s", addr);
	for (char *p = out; *p; p++)
		if (*p == ':' || *p == '.')
			*p = '-';
}

/* --- reading ------------------------------------------------------------------------------ */

int pci_open(const char *root, struct err *err)
{
	const int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "%s", root);
	return fd;
}

static int open_dir(int at, const char *path, struct err *err)
{
	const int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno, "%s", path);
	return fd;
}

/* What a file says, without white space around it. What is not printable becomes '?'. */
static int read_text(int dir, const char *name, char *out, size_t size, struct err *err)
{
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char text[256], *start = text;
	ssize_t n;

	*out = '\0';
	if (fd < 0)
		return err_errno(err, errno, "%s", name);
	do
		n = read(fd, text, sizeof(text) - 1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno(err, errno, "%s", name);
	text[n] = '\0';
	while (isspace((unsigned char)*start))
		start++;
	for (size_t len = strlen(start); len && isspace((unsigned char)start[len - 1]);)
		start[--len] = '\0';
	if (strlen(start) >= size)
		return err_set(
			err, ERR_INVALID, "%s: is longer than %zu bytes", name, size - 1);
	(void)snprintf(out, size, "%s", start);
	for (char *p = out; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return 0;
}

/* Decimal, or hexadecimal after 0x. */
static int read_number(
	int dir, const char *name, int64_t min, int64_t max, int64_t *ret, struct err *err)
{
	char text[32], *end;
	long long v;

	if (read_text(dir, name, text, sizeof(text), err) < 0)
		return -1;
	errno = 0;
	v = strtoll(text, &end, 0);
	if (!*text || *end || errno || v < min || v > max)
		return err_set(err, ERR_INVALID, "%s: \"%s\" is not a number from %lld to %lld",
			name, text, (long long)min, (long long)max);
	*ret = v;
	return 0;
}

/* The last part of what a link points to. */
static int read_link_name(int dir, const char *name, char *out, size_t size, struct err *err)
{
	char target[PATH_MAX];
	const ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	const char *last;

	*out = '\0';
	if (n < 0)
		return err_errno(err, errno, "%s", name);
	target[n] = '\0';
	last = strrchr(target, '/');
	last = last ? last + 1 : target;
	if (!*last || strlen(last) >= size)
		return err_set(err, ERR_INVALID, "%s: points to \"%s\"", name, target);
	(void)snprintf(out, size, "%s", last);
	return 0;
}

/* Calls each for the entries of a directory until it says no. A directory that is not there has
 * none. */
static int for_each_entry(int at, const char *path,
	bool (*each)(void *ctx, int dir, const char *name), void *ctx, struct err *err)
{
	const int fd = open_dir(at, path, err);
	struct dirent *entry;
	DIR *dir;

	if (fd < 0)
		return -1;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return err_errno(err, errno, "%s", path);
	}
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && !each(ctx, dirfd(dir), entry->d_name))
			break;
	(void)closedir(dir);
	return 0;
}

/* --- links of a device -------------------------------------------------------------------- */

static bool stop_at_first(void *ctx, int dir UNUSED, const char *name)
{
	char *out = ctx;

	if (strlen(name) >= IFNAMSIZ)
		return true;
	(void)snprintf(out, IFNAMSIZ, "%s", name);
	return false;
}

static void read_if_name(int device, char out[static IFNAMSIZ])
{
	struct err none;

	*out = '\0';
	(void)for_each_entry(device, "net", stop_at_first, out, &none);
}

struct own_link {
	char name[IFNAMSIZ];
	int64_t port;
};

/* "pf0vf1", "pf0sf2": a representor, which in switchdev mode is beside the function's own link
 * (Documentation/networking/representors.rst). */
static bool is_representor(int link)
{
	char text[32];
	struct err none;

	return read_text(link, "phys_port_name", text, sizeof(text), &none) == 0 &&
	       str_has_prefix(text, "pf") && (strstr(text, "vf") || strstr(text, "sf"));
}

static bool keep_own_link(void *ctx, int dir, const char *name)
{
	struct own_link *best = ctx;
	cleanup_close int link = -1;
	int64_t port = 0;
	struct err none;

	if (strlen(name) >= IFNAMSIZ || (link = open_dir(dir, name, &none)) < 0 ||
		is_representor(link))
		return true;
	(void)read_number(link, "dev_port", 0, INT32_MAX, &port, &none);
	if (*best->name &&
		(port > best->port || (port == best->port && strcmp(name, best->name) > 0)))
		return true;
	best->port = port;
	(void)snprintf(best->name, sizeof(best->name), "%s", name);
	return true;
}

static void read_pf_name(int device, char out[static IFNAMSIZ])
{
	struct own_link best = {0};
	struct err none;

	(void)for_each_entry(device, "net", keep_own_link, &best, &none);
	(void)snprintf(out, IFNAMSIZ, "%s", best.name);
}

static int64_t read_link_speed(int device, const char *if_name)
{
	cleanup_free char *path = xasprintf("net/%s/speed", if_name);
	int64_t speed;
	struct err none;

	/* EINVAL while it is down: net/core/net-sysfs.c */
	if (read_number(device, path, 1, SPEED_UNKNOWN - 1, &speed, &none) < 0)
		return -1;
	return speed;
}

/* --- physical functions ------------------------------------------------------------------- */

struct virtfn {
	unsigned id;
	char addr[PCI_ADDR_SIZE];
};

struct pf {
	char addr[PCI_ADDR_SIZE], name[IFNAMSIZ];
	int64_t link_speed;
	struct virtfn *virtfns;
	size_t n_virtfns;
	struct err why; /* why it cannot be read; ERR_NONE: it could */
};

struct pf_list {
	struct pf *v;
	size_t n;
};

static void pf_list_fini(struct pf_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->v[i].virtfns);
	free(list->v);
}
#define cleanup_pf_list __attribute__((cleanup(pf_list_fini)))

static bool keep_virtfn(void *ctx, int dir, const char *name)
{
	struct pf *pf = ctx;
	struct virtfn v;
	int64_t id;
	struct err none;

	if (!str_has_prefix(name, "virtfn") ||
		parse_i64(name + strlen("virtfn"), 0, MAX_VFS, &id) < 0 ||
		read_link_name(dir, name, v.addr, sizeof(v.addr), &none) < 0)
		return true;
	v.id = (unsigned)id;
	pf->virtfns = xrealloc(pf->virtfns, pf->n_virtfns + 1, sizeof(v));
	pf->virtfns[pf->n_virtfns++] = v;
	return true;
}

static int read_pf(int devices, struct pf *pf, struct err *err)
{
	cleanup_close int device = open_dir(devices, pf->addr, err);

	if (device < 0)
		return -1;
	read_pf_name(device, pf->name);
	if (!*pf->name)
		return err_set(err, ERR_UNAVAILABLE, "has no link on the host");
	pf->link_speed = read_link_speed(device, pf->name);
	return for_each_entry(device, ".", keep_virtfn, pf, err);
}

static const struct pf *get_pf(int devices, struct pf_list *list, const char *addr)
{
	struct pf *pf;

	for (size_t i = 0; i < list->n; i++)
		if (strcmp(list->v[i].addr, addr) == 0)
			return &list->v[i];
	list->v = xrealloc(list->v, list->n + 1, sizeof(*list->v));
	pf = &list->v[list->n++];
	*pf = (struct pf){0};
	(void)snprintf(pf->addr, sizeof(pf->addr), "%s", addr);
	if (read_pf(devices, pf, &pf->why) == 0)
		err_clear(&pf->why);
	return pf;
}

/* --- one virtual function ----------------------------------------------------------------- */

/* ".../devices/pci0000:00/0000:00:01.0/..." */
static void read_pcie_root(int devices, const char *addr, char out[static PCI_TEXT_SIZE])
{
	char target[PATH_MAX];
	const ssize_t n = readlinkat(devices, addr, target, sizeof(target) - 1);
	const char *root;
	size_t len;

	*out = '\0';
	if (n < 0)
		return;
	target[n] = '\0';
	root = strstr(target, "/pci");
	if (!root)
		return;
	len = strcspn(++root, "/");
	/* "pci" is three bytes, then domain and bus: "pci0000:00" */
	if (len < 10 || len >= PCI_TEXT_SIZE || root[len - 3] != ':' ||
		span_hex(root + 3) != len - 6 || span_hex(root + len - 2) != 2)
		return;
	memcpy(out, root, len);
	out[len] = '\0';
}

static bool has_rdma(int device)
{
	char name[IFNAMSIZ] = "";
	struct err none;

	return for_each_entry(device, "infiniband", stop_at_first, name, &none) == 0 && *name;
}

static int find_in_pf(int devices, struct pf_list *pfs, struct pci_vf *vf, struct err *err)
{
	const struct pf *pf = get_pf(devices, pfs, vf->pf_addr);

	if (pf->why.kind != ERR_NONE) {
		*err = pf->why;
		return err_wrap(err, "physical function %s", vf->pf_addr);
	}
	(void)snprintf(vf->pf_name, sizeof(vf->pf_name), "%s", pf->name);
	vf->link_speed = pf->link_speed;
	for (size_t i = 0; i < pf->n_virtfns; i++) {
		if (strcmp(pf->virtfns[i].addr, vf->addr) != 0)
			continue;
		vf->id = pf->virtfns[i].id;
		return 0;
	}
	return err_set(err, ERR_UNAVAILABLE,
		"physical function %s has no virtfn link to it, so its index is not known",
		vf->pf_addr);
}

/* Whether it is an Ethernet device that is a virtual function. */
static bool is_vf(int device, char pf_addr[static PCI_ADDR_SIZE])
{
	int64_t class;
	struct err none;

	return read_link_name(device, "physfn", pf_addr, PCI_ADDR_SIZE, &none) == 0 &&
	       read_number(device, "class", 0, UINT32_MAX, &class, &none) == 0 &&
	       class >> 8 == CLASS_ETHERNET;
}

/* 1: it is no virtual function, or it is no more. */
static int read_vf(
	int devices, struct pf_list *pfs, const char *addr, struct pci_vf *vf, struct err *err)
{
	struct err none;
	cleanup_close int device = open_dir(devices, addr, &none);
	int64_t numa_node;

	*vf = (struct pci_vf){.numa_node = -1, .link_speed = -1};
	if (device < 0 || !is_vf(device, vf->pf_addr))
		return 1;
	(void)snprintf(vf->addr, sizeof(vf->addr), "%s", addr);
	read_if_name(device, vf->if_name);
	if (read_link_name(device, "driver", vf->driver, sizeof(vf->driver), err) < 0)
		return err->sys == ENOENT
			       ? err_set(err, ERR_UNAVAILABLE, "no driver is bound to it")
			       : -1;
	if (read_text(device, "vendor", vf->vendor, sizeof(vf->vendor), err) < 0 ||
		read_text(device, "device", vf->device_id, sizeof(vf->device_id), err) < 0)
		return -1;
	if (read_number(device, "numa_node", 0, INT_MAX, &numa_node, &none) == 0)
		vf->numa_node = (int)numa_node;
	read_pcie_root(devices, addr, vf->pcie_root);
	vf->rdma = has_rdma(device);
	return find_in_pf(devices, pfs, vf, err);
}

int pci_vf_read(int sys_fd, const char *addr, struct pci_vf *ret, struct err *err)
{
	cleanup_close int devices = open_dir(sys_fd, DEVICES, err);
	cleanup_pf_list struct pf_list pfs = {0};
	int rc;

	if (devices < 0)
		return -1;
	rc = pci_addr_ok(addr) ? read_vf(devices, &pfs, addr, ret, err) : 1;
	if (rc > 0)
		return err_set(err, ERR_NOT_FOUND, "there is no virtual function %s", addr);
	if (rc < 0)
		return err_wrap(err, "virtual function %s", addr);
	return 0;
}

/* --- all of them -------------------------------------------------------------------------- */

struct scanning {
	int devices;
	struct pf_list pfs;
	struct pci_scan *to;
};

static void skip(struct pci_scan *to, const char *addr, const struct err *why)
{
	struct pci_skipped *s;

	to->skipped = xrealloc(to->skipped, to->n_skipped + 1, sizeof(*to->skipped));
	s = &to->skipped[to->n_skipped++];
	*s = (struct pci_skipped){.why = *why};
	(void)snprintf(s->addr, sizeof(s->addr), "%s", addr);
}

static bool scan_one(void *ctx, int dir UNUSED, const char *name)
{
	struct scanning *s = ctx;
	struct err err = ERR_INIT;
	struct pci_vf vf;
	int rc;

	if (!pci_addr_ok(name))
		return true;
	rc = read_vf(s->devices, &s->pfs, name, &vf, &err);
	if (rc < 0) {
		skip(s->to, name, &err);
	} else if (rc == 0) {
		s->to->vfs = xrealloc(s->to->vfs, s->to->n_vfs + 1, sizeof(vf));
		s->to->vfs[s->to->n_vfs++] = vf;
	}
	return true;
}

static int compare_vfs(const void *a, const void *b)
{
	const struct pci_vf *va = a, *vb = b;

	return strcmp(va->addr, vb->addr);
}

static int compare_skipped(const void *a, const void *b)
{
	const struct pci_skipped *sa = a, *sb = b;

	return strcmp(sa->addr, sb->addr);
}

int pci_scan(int sys_fd, struct pci_scan *ret, struct err *err)
{
	cleanup_close int devices = open_dir(sys_fd, DEVICES, err);
	struct scanning s = {.devices = devices, .to = ret};
	int rc;

	*ret = (struct pci_scan){0};
	if (devices < 0)
		return -1;
	rc = for_each_entry(sys_fd, DEVICES, scan_one, &s, err);
	pf_list_fini(&s.pfs);
	if (ret->n_vfs)
		qsort(ret->vfs, ret->n_vfs, sizeof(*ret->vfs), compare_vfs);
	if (ret->n_skipped)
		qsort(ret->skipped, ret->n_skipped, sizeof(*ret->skipped), compare_skipped);
	return rc;
}

void pci_scan_fini(struct pci_scan *scan)
{
	free(scan->vfs);
	free(scan->skipped);
	*scan = (struct pci_scan){0};
}

/* --- physical functions, for provisioning ------------------------------------------------- */

static int read_pf_numbers(int device, struct pci_pf *pf, struct err *err)
{
	int64_t total, num;

	if (read_number(device, "sriov_totalvfs", 0, MAX_VFS, &total, err) < 0 ||
		read_number(device, "sriov_numvfs", 0, MAX_VFS, &num, err) < 0)
		return -1;
	pf->total_vfs = (unsigned)total;
	pf->num_vfs = (unsigned)num;
	return 0;
}

int pci_pf_read(int sys_fd, const char *addr, struct pci_pf *ret, struct err *err)
{
	cleanup_free char *path = xasprintf(DEVICES "/%s", addr);
	struct err none;
	cleanup_close int device = pci_addr_ok(addr) ? open_dir(sys_fd, path, &none) : -1;

	*ret = (struct pci_pf){0};
	if (device < 0 || faccessat(device, "sriov_totalvfs", F_OK, 0) < 0)
		return err_set(err, ERR_NOT_FOUND, "there is no physical function %s", addr);
	(void)snprintf(ret->addr, sizeof(ret->addr), "%s", addr);
	read_pf_name(device, ret->name);
	(void)read_link_name(device, "driver", ret->driver, sizeof(ret->driver), &none);
	if (read_pf_numbers(device, ret, err) < 0)
		return err_wrap(err, "physical function %s", addr);
	return 0;
}

struct search {
	const char *if_name;
	char addr[PCI_ADDR_SIZE];
};

static bool stop_at_name(void *ctx, int dir, const char *name)
{
	cleanup_free char *path = xasprintf("%s/net", name);
	struct err none;
	struct search *s = ctx;
	cleanup_close int net = -1;

	if (!pci_addr_ok(name) || (net = open_dir(dir, path, &none)) < 0 ||
		faccessat(net, s->if_name, F_OK, 0) < 0)
		return true;
	(void)snprintf(s->addr, sizeof(s->addr), "%s", name);
	return false;
}

int pci_pf_by_name(int sys_fd, const char *if_name, struct pci_pf *ret, struct err *err)
{
	struct search s = {.if_name = if_name};

	if (for_each_entry(sys_fd, DEVICES, stop_at_name, &s, err) < 0)
		return -1;
	if (!*s.addr)
		return err_set(err, ERR_NOT_FOUND, "no PCI device has a link of this name");
	if (pci_pf_read(sys_fd, s.addr, ret, err) == 0)
		return 0;
	if (err->kind == ERR_NOT_FOUND)
		return err_set(err, ERR_NOT_FOUND,
			"its device %s has no SR-IOV capability that is enabled", s.addr);
	return -1;
}
