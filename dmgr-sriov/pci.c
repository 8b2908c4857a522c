/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI sysfs.
 *
 * What a virtual function is called and which one it is of its physical function, only links
 * tell: net/<name>, and virtfnN in the physical function's directory. The function number is
 * not the index. A physical function's links are read once for all of its virtual functions.
 *
 * Anything may vanish between two reads; a device that does is no device. What is read is
 * bounded, and made printable: it comes from drivers, and goes into logs and to the API server.
 *
 * Whoever reads has given up everything else: openat(), getdents64(), readlinkat(),
 * newfstatat() and read() are all that it uses.
 */
#include "dmgr-sriov/pci.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/check.h"
#include "common/util.h"

#define DEVICES        "bus/pci/devices"
#define CLASS_ETHERNET 0x0200     /* base class and subclass: linux/pci_ids.h */
#define MAX_VFS        65535      /* TotalVFs of the SR-IOV capability has 16 bits */
#define SPEED_UNKNOWN  UINT32_MAX /* as a driver that does not know may tell it, unsigned */
/* The functions that two PCI domains can have; a directory of one function has a link for each
 * of at most MAX_VFS others. */
#define MAX_ENTRIES    (2 * 65536)

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

/* A sysfs without it is not one device less. */
static int open_devices(int sys_fd, struct err *err)
{
	const int fd = open_dir(sys_fd, DEVICES, err);

	if (fd < 0)
		err->kind = ERR_UNAVAILABLE;
	return fd;
}

static bool is_there(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Without white space around it; what is not printable becomes '?'. -1: it is too long. */
static int copy_text(const char *text, size_t len, char *out, size_t size)
{
	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	while (len && isspace((unsigned char)*text)) {
		text++;
		len--;
	}
	if (len >= size)
		return -1;
	for (size_t i = 0; i < len; i++)
		out[i] = text[i];
	for (size_t i = 0; i < len; i++)
		if (out[i] < ' ' || out[i] > '~')
			out[i] = '?';
	out[len] = '\0';
	return 0;
}

/* What a file says: its first bytes, which is more than any of those read here has. */
static int read_text(int dir, const char *name, char *out, size_t size, struct err *err)
{
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char text[256];
	ssize_t n;

	*out = '\0';
	if (fd < 0)
		return err_errno(err, errno, "%s", name);
	do
		n = read(fd, text, sizeof(text));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno(err, errno, "%s", name);
	if (copy_text(text, (size_t)n, out, size) < 0)
		return err_set(
			err, ERR_INVALID, "%s: is longer than %zu bytes", name, size - 1);
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
	if (copy_text(last, strlen(last), out, size) < 0)
		return err_set(err, ERR_INVALID, "%s: points to a name of %zu bytes", name,
			strlen(last));
	if (!*out)
		return err_set(err, ERR_INVALID, "%s: points to no name", name);
	return 0;
}

/* Calls each for the entries of an open directory until it says no. */
static int for_each_in(int dir, const char *path,
	bool (*each)(void *ctx, int dir, const char *name), void *ctx, struct err *err)
{
	union {
		char bytes[4096];
		struct dirent64 first; /* how they are aligned */
	} batch;
	size_t entries = 0;
	ssize_t n;

	while ((n = getdents64(dir, &batch, sizeof(batch))) > 0) {
		const struct dirent64 *entry;

		for (ssize_t at = 0; at < n; at += entry->d_reclen) {
			entry = (const void *)&batch.bytes[at];
			if (++entries > MAX_ENTRIES)
				return err_set(err, ERR_INTERNAL,
					"%s: has more than %d entries", path, MAX_ENTRIES);
			if (entry->d_name[0] != '.' && !each(ctx, dir, entry->d_name))
				return 0;
		}
	}
	return n < 0 ? err_errno(err, errno, "%s", path) : 0;
}

static int for_each_entry(int at, const char *path,
	bool (*each)(void *ctx, int dir, const char *name), void *ctx, struct err *err)
{
	cleanup_close int dir = open_dir(at, path, err);

	return dir < 0 ? -1 : for_each_in(dir, path, each, ctx, err);
}

/* --- links of a device -------------------------------------------------------------------- */

struct own_link {
	char name[IFNAMSIZ];
	int64_t port;
};

/* Behind a word and a number, NULL when there is something else. */
static const char *past(const char *text, const char *word)
{
	size_t digits;

	if (!text || !str_has_prefix(text, word))
		return NULL;
	text += strlen(word);
	digits = strspn(text, "0123456789");
	return digits ? text + digits : NULL;
}

/* "pf0vf1", "pf0sf2", "c1pf0vf1": a representor, which in switchdev mode is beside the
 * function's own link (Documentation/networking/devlink/devlink-port.rst). */
static bool is_representor(int link)
{
	char text[32];
	const char *pf, *end;
	struct err none;

	if (read_text(link, "phys_port_name", text, sizeof(text), &none) < 0)
		return false;
	pf = past(text, "c");
	pf = past(pf ? pf : text, "pf");
	end = past(pf, "vf");
	if (!end)
		end = past(pf, "sf");
	return end && !*end;
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

/* The link that is the function's own, of those below it. */
static void read_own_link(int device, char out[static IFNAMSIZ])
{
	struct own_link best = {0};
	struct err none;

	(void)for_each_entry(device, "net", keep_own_link, &best, &none);
	(void)snprintf(out, IFNAMSIZ, "%s", best.name);
}

struct first {
	char name[NAME_MAX + 1];
	bool is_only;
};

static bool stop_at_second(void *ctx, int dir UNUSED, const char *name)
{
	struct first *first = ctx;

	if (*first->name) {
		first->is_only = false;
		return false;
	}
	(void)snprintf(first->name, sizeof(first->name), "%s", name);
	return true;
}

/* A virtual function seldom has more than one, and to ask a link about its port takes the lock
 * of all links. */
static void read_vf_link(int device, char out[static IFNAMSIZ])
{
	struct first first = {.is_only = true};
	struct err none;

	*out = '\0';
	(void)for_each_entry(device, "net", stop_at_second, &first, &none);
	if (first.is_only && strlen(first.name) < IFNAMSIZ)
		memcpy(out, first.name, strlen(first.name) + 1);
	else
		read_own_link(device, out);
}

static bool has_rdma(int device)
{
	struct first first = {0};
	struct err none;

	return for_each_entry(device, "infiniband", stop_at_second, &first, &none) == 0 &&
	       *first.name;
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
	read_own_link(device, pf->name);
	if (!*pf->name)
		return err_set(err, ERR_UNAVAILABLE, "has no link on the host");
	pf->link_speed = read_link_speed(device, pf->name);
	return for_each_in(device, pf->addr, keep_virtfn, pf, err);
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

/* The length of "pci0000:00", a domain and a bus; 0: it is none. */
static size_t span_root(const char *text)
{
	const size_t domain = str_has_prefix(text, "pci") ? span_hex(text + 3) : 0;

	if (domain < 4 || domain > 8 || text[3 + domain] != ':' ||
		span_hex(text + domain + 4) != 2)
		return 0;
	return text[domain + 6] == '/' ? domain + 6 : 0;
}

/* ".../devices/pci0000:00/0000:00:01.0/...": the first that is one. There may be a controller
 * before it, and another root below (VMD). */
static void read_pcie_root(int devices, const char *addr, char out[static PCI_TEXT_SIZE])
{
	char target[PATH_MAX];
	const ssize_t n = readlinkat(devices, addr, target, sizeof(target) - 1);

	*out = '\0';
	if (n < 0)
		return;
	target[n] = '\0';
	for (const char *at = strchr(target, '/'); at; at = strchr(at + 1, '/')) {
		const size_t len = span_root(at + 1);

		if (!len)
			continue;
		memcpy(out, at + 1, len);
		out[len] = '\0';
		return;
	}
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

/* 1: it is no virtual function, or none of an Ethernet adapter. */
static int identify(int device, struct pci_vf *vf, struct err *err)
{
	int64_t class;
	struct err link = ERR_INIT;
	const int rc =
		read_link_name(device, "physfn", vf->pf_addr, sizeof(vf->pf_addr), &link);

	if (rc < 0 && link.sys == ENOENT)
		return 1;
	if (read_number(device, "class", 0, UINT32_MAX, &class, err) < 0)
		return -1;
	if (class >> 8 != CLASS_ETHERNET)
		return 1;
	if (rc < 0) {
		*err = link;
		return -1;
	}
	if (!pci_addr_ok(vf->pf_addr))
		return err_set(err, ERR_INVALID,
			"physfn: points to \"%s\", which is no PCI address", vf->pf_addr);
	return 0;
}

/* vendor, device: "0x8086" */
static int read_id(
	int device, const char *name, char out[static PCI_TEXT_SIZE], struct err *err)
{
	if (read_text(device, name, out, PCI_TEXT_SIZE, err) < 0)
		return -1;
	return *out ? 0 : err_set(err, ERR_INVALID, "%s: is empty", name);
}

static int read_driver(int device, char out[static PCI_TEXT_SIZE], struct err *err)
{
	if (read_link_name(device, "driver", out, PCI_TEXT_SIZE, err) == 0)
		return 0;
	if (err->sys == ENOENT)
		return err_set(err, ERR_UNAVAILABLE, "no driver is bound to it");
	return -1;
}

static int read_properties(
	int devices, int device, struct pf_list *pfs, struct pci_vf *vf, struct err *err)
{
	int64_t numa_node;
	struct err none;

	if (read_driver(device, vf->driver, err) < 0 ||
		read_id(device, "vendor", vf->vendor, err) < 0 ||
		read_id(device, "device", vf->device_id, err) < 0)
		return -1;
	read_vf_link(device, vf->if_name);
	if (read_number(device, "numa_node", 0, INT_MAX, &numa_node, &none) == 0)
		vf->numa_node = (int)numa_node;
	read_pcie_root(devices, vf->addr, vf->pcie_root);
	vf->rdma = has_rdma(device);
	return find_in_pf(devices, pfs, vf, err);
}

/* 1: it is no virtual function, or it is no more. */
static int read_vf(
	int devices, struct pf_list *pfs, const char *addr, struct pci_vf *vf, struct err *err)
{
	cleanup_close int device = openat(devices, addr, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (device < 0)
		return errno == ENOENT ? 1 : err_errno(err, errno, "open");
	*vf = (struct pci_vf){.numa_node = -1, .link_speed = -1};
	(void)snprintf(vf->addr, sizeof(vf->addr), "%s", addr);
	rc = identify(device, vf, err);
	if (rc == 0)
		rc = read_properties(devices, device, pfs, vf, err);
	if (rc >= 0)
		return rc;
	/* its directory stays ours, and empty, while another device may take its address */
	if (!is_there(device, "physfn"))
		return 1;
	if (err->kind == ERR_NOT_FOUND) /* of something that it should have */
		err->kind = ERR_UNAVAILABLE;
	return -1;
}

int pci_vf_read(int sys_fd, const char *addr, struct pci_vf *ret, struct err *err)
{
	cleanup_close int devices = open_devices(sys_fd, err);
	cleanup_pf_list struct pf_list pfs = {0};
	int rc;

	*ret = (struct pci_vf){.numa_node = -1, .link_speed = -1};
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

static bool scan_one(void *ctx, int devices, const char *name)
{
	struct scanning *s = ctx;
	struct err err = ERR_INIT;
	struct pci_vf vf;
	int rc;

	if (!pci_addr_ok(name))
		return true;
	rc = read_vf(devices, &s->pfs, name, &vf, &err);
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
	cleanup_close int devices = open_devices(sys_fd, err);
	struct scanning s = {.to = ret};
	int rc;

	*ret = (struct pci_scan){0};
	if (devices < 0)
		return -1;
	rc = for_each_in(devices, DEVICES, scan_one, &s, err);
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

static int read_pf_at(int devices, const char *addr, struct pci_pf *ret, struct err *err)
{
	struct err none;
	cleanup_close int device = pci_addr_ok(addr) ? open_dir(devices, addr, &none) : -1;

	if (device < 0 || !is_there(device, "sriov_totalvfs"))
		return err_set(err, ERR_NOT_FOUND, "there is no physical function %s", addr);
	(void)snprintf(ret->addr, sizeof(ret->addr), "%s", addr);
	read_own_link(device, ret->name);
	(void)read_link_name(device, "driver", ret->driver, sizeof(ret->driver), &none);
	if (read_pf_numbers(device, ret, err) == 0)
		return 0;
	if (is_there(device, "sriov_totalvfs") && err->kind == ERR_NOT_FOUND)
		err->kind = ERR_UNAVAILABLE;
	return err_wrap(err, "physical function %s", addr);
}

int pci_pf_read(int sys_fd, const char *addr, struct pci_pf *ret, struct err *err)
{
	cleanup_close int devices = open_devices(sys_fd, err);

	*ret = (struct pci_pf){0};
	return devices < 0 ? -1 : read_pf_at(devices, addr, ret, err);
}

struct search {
	const char *if_name;
	char addr[PCI_ADDR_SIZE];
};

static bool stop_at_name(void *ctx, int devices, const char *name)
{
	struct search *s = ctx;
	char path[PCI_ADDR_SIZE + sizeof("/net/") + IFNAMSIZ];

	if (!pci_addr_ok(name))
		return true;
	(void)snprintf(path, sizeof(path), "%s/net/%s", name, s->if_name);
	if (!is_there(devices, path))
		return true;
	(void)snprintf(s->addr, sizeof(s->addr), "%s", name);
	return false;
}

int pci_pf_by_name(int sys_fd, const char *if_name, struct pci_pf *ret, struct err *err)
{
	cleanup_close int devices = open_devices(sys_fd, err);
	struct search s = {.if_name = if_name};

	*ret = (struct pci_pf){0};
	if (devices < 0 || check_kernel_if_name(if_name, err) < 0 ||
		for_each_in(devices, DEVICES, stop_at_name, &s, err) < 0)
		return -1;
	if (!*s.addr)
		return err_set(err, ERR_NOT_FOUND, "no PCI device has a link of this name");
	if (read_pf_at(devices, s.addr, ret, err) == 0)
		return 0;
	if (err->kind == ERR_NOT_FOUND)
		return err_set(
			err, ERR_NOT_FOUND, "its device %s has no SR-IOV capability", s.addr);
	return -1;
}
