/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI sysfs.
 *
 * What a virtual function is called and which one it is of its physical function, only links
 * tell: net/<name>, and virtfnN in the physical function's directory. The function number is
 * not the index. A physical function's links are read once for all of its virtual functions.
 *
 * A driver makes its network link below the function itself, or below a device of another bus
 * that it makes for it: <function>/virtio3/net/eth0 (drivers/virtio/virtio_pci_common.c),
 * <function>/mlx5_core.vnet.0/vdpa0/virtio3/net/eth0 (drivers/vdpa). A sub-function is a device
 * of the auxiliary bus as well, and another device: its link is not the function's.
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
#define NUMBER_UNKNOWN UINT32_MAX /* a speed, as a driver that does not know it may write it */
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

/* A file system may leave the type out. */
static bool is_of_type(const struct dirent64 *entry, unsigned char type)
{
	return type == DT_UNKNOWN || entry->d_type == DT_UNKNOWN || entry->d_type == type;
}

/* Calls each for the entries of an open directory until it returns false. type is of dirent64,
 * DT_UNKNOWN for any. */
static int for_each_of(int dir, const char *path, unsigned char type,
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
			if (entry->d_name[0] == '.' || !is_of_type(entry, type))
				continue;
			if (!each(ctx, dir, entry->d_name))
				return 0;
		}
	}
	return n < 0 ? err_errno(err, errno, "%s", path) : 0;
}

static int for_each_in(int dir, const char *path,
	bool (*each)(void *ctx, int dir, const char *name), void *ctx, struct err *err)
{
	return for_each_of(dir, path, DT_UNKNOWN, each, ctx, err);
}

static int for_each_entry(int at, const char *path,
	bool (*each)(void *ctx, int dir, const char *name), void *ctx, struct err *err)
{
	cleanup_close int dir = open_dir(at, path, err);

	return dir < 0 ? -1 : for_each_in(dir, path, each, ctx, err);
}

/* --- links of a device -------------------------------------------------------------------- */

/* Buses between a function and its link at most: auxiliary, vdpa, virtio. */
#define MAX_BUSES 3

/* A look for the links of a function. */
struct link_search {
	bool (*each)(void *ctx, int dir, const char *name);
	void *ctx;
	unsigned depth;
	bool has_any;
};

static bool found_link(void *ctx, int dir, const char *name)
{
	struct link_search *s = ctx;

	s->has_any = true;
	return s->each(s->ctx, dir, name);
}

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

/* Whether an entry of a device's directory is a device of a bus that its own link may be
 * behind. A sub-function is "mlx5_core.sf.2" (Documentation/networking/devlink/devlink-port.rst). */
static bool leads_to_links(int dir, const char *name)
{
	static const char *const buses[] = {"virtio", "vdpa", "auxiliary"};
	const char *end = past(name, "virtio");
	char path[NAME_MAX + sizeof("/subsystem")], bus[32];
	struct err none;

	if (end && !*end)
		return true;
	(void)snprintf(path, sizeof(path), "%s/subsystem", name);
	if (strstr(name, ".sf.") || read_link_name(dir, path, bus, sizeof(bus), &none) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(buses); i++)
		if (strcmp(bus, buses[i]) == 0)
			return true;
	return false;
}

static bool search_below(void *ctx, int dir, const char *name);

/* Links of the device itself hide those of devices below it. */
static void search_links(int device, struct link_search *s)
{
	cleanup_close int below = -1;
	struct err none;

	(void)for_each_entry(device, "net", found_link, s, &none);
	if (s->has_any || s->depth == MAX_BUSES)
		return;
	below = open_dir(device, ".", &none);
	if (below < 0)
		return;
	s->depth++;
	(void)for_each_of(below, ".", DT_DIR, search_below, s, &none);
	s->depth--;
}

static bool search_below(void *ctx, int dir, const char *name)
{
	cleanup_close int device = -1;
	struct err none;

	if (!leads_to_links(dir, name) || (device = open_dir(dir, name, &none)) < 0)
		return true;
	search_links(device, ctx);
	return true;
}

static void for_each_link(
	int device, bool (*each)(void *ctx, int dir, const char *name), void *ctx)
{
	struct link_search s = {.each = each, .ctx = ctx};

	search_links(device, &s);
}

/* The link that is the function's own, of those below it. */
struct own_link {
	char name[IFNAMSIZ]; /* "": there is none */
	int64_t port;
	int fd; /* its directory */
};

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
	close_fd(&best->fd);
	best->fd = take_fd(&link);
	return true;
}

static void own_link_fini(struct own_link *link)
{
	close_fd(&link->fd);
}
#define cleanup_own_link __attribute__((cleanup(own_link_fini)))

static struct own_link find_own_link(int device)
{
	struct own_link best = {.fd = -1};

	for_each_link(device, keep_own_link, &best);
	return best;
}

static void read_own_link(int device, char out[static IFNAMSIZ])
{
	cleanup_own_link struct own_link own = find_own_link(device);

	memcpy(out, own.name, IFNAMSIZ);
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

	*out = '\0';
	for_each_link(device, stop_at_second, &first);
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

/* -1: it cannot be read, as the speed of a link that is down: EINVAL, net/core/net-sysfs.c */
static int64_t read_link_number(const struct own_link *link, const char *name)
{
	int64_t number;
	struct err none;

	if (read_number(link->fd, name, 1, NUMBER_UNKNOWN - 1, &number, &none) < 0)
		return -1;
	return number;
}

/* --- physical functions ------------------------------------------------------------------- */

struct virtfn {
	unsigned id;
	char addr[PCI_ADDR_SIZE];
};

/* What all virtual functions of a physical function share: the kernel has it from the one SR-IOV
 * capability (pci_read_vf_config_common(), pci_iov_add_virtfn(), drivers/pci/iov.c). It is read from
 * the first of them that can be read. */
struct shared {
	bool has_class, has_ids;
	int64_t class;
	char vendor[PCI_TEXT_SIZE], device_id[PCI_TEXT_SIZE];
};

struct pf {
	char addr[PCI_ADDR_SIZE], name[IFNAMSIZ]; /* name is "": its link is not on the host */
	int64_t link_speed, mtu;
	struct shared vfs;
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

static void read_pf_link(int device, struct pf *pf)
{
	cleanup_own_link struct own_link own = find_own_link(device);

	memcpy(pf->name, own.name, sizeof(pf->name));
	if (!*own.name)
		return;
	pf->link_speed = read_link_number(&own, "speed");
	pf->mtu = read_link_number(&own, "mtu");
}

static int read_pf(int devices, struct pf *pf, struct err *err)
{
	cleanup_close int device = open_dir(devices, pf->addr, err);

	if (device < 0)
		return -1;
	read_pf_link(device, pf);
	return for_each_in(device, pf->addr, keep_virtfn, pf, err);
}

static struct pf *get_pf(int devices, struct pf_list *list, const char *addr)
{
	struct pf *pf;

	for (size_t i = 0; i < list->n; i++)
		if (strcmp(list->v[i].addr, addr) == 0)
			return &list->v[i];
	list->v = xrealloc(list->v, list->n + 1, sizeof(*list->v));
	pf = &list->v[list->n++];
	*pf = (struct pf){.link_speed = -1, .mtu = -1};
	(void)snprintf(pf->addr, sizeof(pf->addr), "%s", addr);
	if (read_pf(devices, pf, &pf->why) == 0)
		err_clear(&pf->why);
	return pf;
}

/* --- one virtual function ----------------------------------------------------------------- */

#define PCI_VF_INIT ((struct pci_vf){.numa_node = -1, .link_speed = -1, .pf_mtu = -1})

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
	vf->pf_mtu = pf->mtu;
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

static int read_class(int device, struct shared *shared, struct err *err)
{
	if (!shared->has_class &&
		read_number(device, "class", 0, UINT32_MAX, &shared->class, err) < 0)
		return -1;
	shared->has_class = true;
	return 0;
}

/* 1: it is no virtual function, or none of an Ethernet adapter. */
static int identify(
	int devices, int device, struct pf_list *pfs, struct pci_vf *vf, struct err *err)
{
	struct err link = ERR_INIT;
	struct shared own = {0}, *shared = &own;
	const int rc =
		read_link_name(device, "physfn", vf->pf_addr, sizeof(vf->pf_addr), &link);
	const bool is_addr = rc == 0 && pci_addr_ok(vf->pf_addr);

	if (rc < 0 && link.sys == ENOENT)
		return 1;
	if (is_addr)
		shared = &get_pf(devices, pfs, vf->pf_addr)->vfs;
	if (read_class(device, shared, err) < 0)
		return -1;
	if (shared->class >> 8 != CLASS_ETHERNET)
		return 1;
	if (rc < 0) {
		*err = link;
		return -1;
	}
	if (!is_addr)
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

/* err is the first failure, and what can be read is in *vf. */
static int read_ids(int device, struct shared *shared, struct pci_vf *vf, struct err *err)
{
	struct err later;
	int rc;

	if (!shared->has_ids) {
		rc = read_id(device, "vendor", vf->vendor, err);
		if (read_id(device, "device", vf->device_id, rc < 0 ? &later : err) < 0 ||
			rc < 0)
			return -1;
		memcpy(shared->vendor, vf->vendor, sizeof(shared->vendor));
		memcpy(shared->device_id, vf->device_id, sizeof(shared->device_id));
		shared->has_ids = true;
	}
	memcpy(vf->vendor, shared->vendor, sizeof(vf->vendor));
	memcpy(vf->device_id, shared->device_id, sizeof(vf->device_id));
	return 0;
}

static int read_driver(int device, char out[static PCI_TEXT_SIZE], struct err *err)
{
	if (read_link_name(device, "driver", out, PCI_TEXT_SIZE, err) == 0)
		return 0;
	if (err->sys == ENOENT)
		return err_set(err, ERR_UNAVAILABLE, "no driver is bound to it");
	return -1;
}

/* Reads on past what cannot be read; err is the first failure. */
static int read_properties(
	int devices, int device, struct pf_list *pfs, struct pci_vf *vf, struct err *err)
{
	int64_t numa_node;
	struct err later;
	int rc = read_driver(device, vf->driver, err);

	if (read_ids(device, &get_pf(devices, pfs, vf->pf_addr)->vfs, vf,
		    rc < 0 ? &later : err) < 0)
		rc = -1;
	read_vf_link(device, vf->if_name);
	if (read_number(device, "numa_node", 0, INT_MAX, &numa_node, &later) == 0)
		vf->numa_node = (int)numa_node;
	read_pcie_root(devices, vf->addr, vf->pcie_root);
	vf->rdma = has_rdma(device);
	if (find_in_pf(devices, pfs, vf, rc < 0 ? &later : err) < 0)
		rc = -1;
	return rc;
}

/* 1: it is no virtual function, or it is no more. */
static int read_vf(
	int devices, struct pf_list *pfs, const char *addr, struct pci_vf *vf, struct err *err)
{
	cleanup_close int device = openat(devices, addr, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (device < 0)
		return errno == ENOENT ? 1 : err_errno(err, errno, "open");
	*vf = PCI_VF_INIT;
	(void)snprintf(vf->addr, sizeof(vf->addr), "%s", addr);
	rc = identify(devices, device, pfs, vf, err);
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

	*ret = PCI_VF_INIT;
	if (devices < 0)
		return -1;
	rc = pci_addr_ok(addr) ? read_vf(devices, &pfs, addr, ret, err) : 1;
	if (rc > 0)
		return err_set(err, ERR_NOT_FOUND, "there is no virtual function %s", addr);
	if (rc < 0)
		return err_wrap(err, "virtual function %s", addr);
	return 0;
}

enum pci_kind pci_look(int sys_fd, const char *addr, char if_name[static IFNAMSIZ])
{
	struct err none;
	cleanup_close int devices = open_devices(sys_fd, &none);
	cleanup_close int device = -1;

	*if_name = '\0';
	if (devices < 0 || !pci_addr_ok(addr) || (device = open_dir(devices, addr, &none)) < 0)
		return PCI_OTHER;
	if (is_there(device, "sriov_totalvfs"))
		return PCI_PF;
	if (!is_there(device, "physfn"))
		return PCI_OTHER;
	read_vf_link(device, if_name);
	return PCI_VF;
}

/* Drivers that give a function to user space: it has no link at all. */
bool pci_driver_has_no_link(const char *driver)
{
	return strstr(driver, "vfio") || strcmp(driver, "uio_pci_generic") == 0 ||
	       strcmp(driver, "igb_uio") == 0 || strcmp(driver, "pci-stub") == 0;
}

/* --- all of them -------------------------------------------------------------------------- */

struct scanning {
	struct pf_list pfs;
	struct pci_scan *to;
};

static void skip(struct pci_scan *to, const struct pci_vf *vf, const struct err *why)
{
	to->skipped = xrealloc(to->skipped, to->n_skipped + 1, sizeof(*to->skipped));
	to->skipped[to->n_skipped++] = (struct pci_skipped){.vf = *vf, .why = *why};
}

static bool scan_one(void *ctx, int devices, const char *name)
{
	struct scanning *s = ctx;
	struct pci_vf vf = PCI_VF_INIT;
	struct err err = ERR_INIT;
	int rc;

	if (!pci_addr_ok(name))
		return true;
	(void)snprintf(vf.addr, sizeof(vf.addr), "%s", name);
	rc = read_vf(devices, &s->pfs, name, &vf, &err);
	if (rc < 0) {
		skip(s->to, &vf, &err);
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

	return strcmp(sa->vf.addr, sb->vf.addr);
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

static int compare_addr(const void *addr, const void *vf)
{
	const struct pci_vf *v = vf;

	return strcmp(addr, v->addr);
}

const struct pci_vf *pci_scan_find(const struct pci_scan *scan, const char *addr)
{
	const struct pci_vf *found = NULL;

	if (scan->n_vfs)
		found = bsearch(addr, scan->vfs, scan->n_vfs, sizeof(*scan->vfs), compare_addr);
	for (size_t i = 0; !found && i < scan->n_skipped; i++)
		if (strcmp(scan->skipped[i].vf.addr, addr) == 0)
			found = &scan->skipped[i].vf;
	return found;
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
	bool is_hit;
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

static bool is_the_name(void *ctx, int dir UNUSED, const char *name)
{
	struct search *s = ctx;

	s->is_hit = strcmp(name, s->if_name) == 0;
	return !s->is_hit;
}

/* As stop_at_name(), behind devices of other buses. Virtual functions are many. */
static bool stop_at_name_below(void *ctx, int devices, const char *name)
{
	struct search *s = ctx;
	cleanup_close int device = -1;
	struct err none;

	if (!pci_addr_ok(name) || (device = open_dir(devices, name, &none)) < 0 ||
		is_there(device, "physfn"))
		return true;
	for_each_link(device, is_the_name, s);
	if (s->is_hit)
		(void)snprintf(s->addr, sizeof(s->addr), "%s", name);
	return !s->is_hit;
}

static int find_by_name(int sys_fd, struct search *s, struct err *err)
{
	if (for_each_entry(sys_fd, DEVICES, stop_at_name, s, err) < 0)
		return -1;
	if (*s->addr)
		return 0;
	return for_each_entry(sys_fd, DEVICES, stop_at_name_below, s, err);
}

int pci_pf_by_name(int sys_fd, const char *if_name, struct pci_pf *ret, struct err *err)
{
	cleanup_close int devices = open_devices(sys_fd, err);
	struct search s = {.if_name = if_name};

	*ret = (struct pci_pf){0};
	if (devices < 0 || check_any_if_name(if_name, err) < 0)
		return -1;
	/* a longer name can only be an alternative one, which sysfs does not have */
	if (strlen(if_name) < IFNAMSIZ && find_by_name(sys_fd, &s, err) < 0)
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
