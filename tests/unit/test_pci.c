/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inventory of virtual functions, on a sysfs that is made up in a directory of the test's
 * own, and on one that was recorded (tests/golden/sysfs-igb).
 */
#include "dmgr-sriov/pci.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/util.h"
#include "draplugind/tree.h"
#include "tests/unit/unit.h"

#define ROOT "devices/pci0000:00"
#define PF   "0000:02:00.0"
#define VF   "0000:02:00.1"

static struct {
	char dir[40];
	int fd;
	size_t fds; /* that were open before */
	struct pci_scan scan;
	struct err err;
} t;

/* Calls that the module makes, seen on their way to the kernel. */
static struct {
	size_t opens, opens_of_pf;
	const char *when; /* a link of this name is about to be read */
	void (*then)(void);
} calls;

/* --- system calls ------------------------------------------------------------------------- */

int seen_openat(int dir, const char *path, int flags, ...) __asm__("openat");
ssize_t seen_readlinkat(int dir, const char *path, char *out, size_t size) __asm__(
	"readlinkat");

int seen_openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (flags & O_CREAT) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	calls.opens++;
	if (strcmp(path, PF) == 0)
		calls.opens_of_pf++;
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

ssize_t seen_readlinkat(int dir, const char *path, char *out, size_t size)
{
	if (calls.when && strcmp(path, calls.when) == 0) {
		calls.when = NULL;
		calls.then();
	}
	return syscall(SYS_readlinkat, dir, path, out, size);
}

/* --- making a tree ------------------------------------------------------------------------ */

/* The directories on the way to a path. */
static void make_parents(const char *path)
{
	cleanup_free char *part = xstrdup(path);

	for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		ck_assert(mkdirat(t.fd, part, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
}

static void put_dir(const char *path)
{
	make_parents(path);
	ck_assert_msg(mkdirat(t.fd, path, 0755) == 0 || errno == EEXIST, "%s", path);
}

static void put_bytes(const char *path, const void *data, size_t len)
{
	cleanup_close int fd = -1;

	make_parents(path);
	fd = openat(t.fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_msg(fd >= 0, "%s", path);
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
}

static void put_link(const char *path, const char *target)
{
	make_parents(path);
	ck_assert_msg(symlinkat(target, t.fd, path) == 0, "%s", path);
}

static void drop(const char *path)
{
	ck_assert_msg(unlinkat(t.fd, path, 0) == 0, "%s", path);
}

#define AT(...)                                                                                \
	__extension__({                                                                        \
		(void)snprintf(at, sizeof(at), __VA_ARGS__);                                   \
		at;                                                                            \
	})

/* A file of a device. */
static void put(const char *addr, const char *name, const char *text)
{
	char at[256];

	(void)snprintf(at, sizeof(at), ROOT "/%s/%s", addr, name);
	put_bytes(at, text, strlen(text));
}

static void put_net(const char *addr, const char *if_name)
{
	char at[256];

	put_dir(AT(ROOT "/%s/net/%s", addr, if_name));
}

/* Something else is at that address then, or nothing. */
static void forget(const char *addr, const char *name)
{
	char at[256];

	drop(AT(ROOT "/%s/%s", addr, name));
}

static void bind_driver(const char *addr, const char *driver)
{
	char at[256], target[64];

	(void)snprintf(target, sizeof(target), "../../../bus/pci/drivers/%s", driver);
	put_link(AT(ROOT "/%s/driver", addr), target);
}

static void put_device(const char *addr)
{
	char at[256], target[64];

	(void)snprintf(target, sizeof(target), "../../../" ROOT "/%s", addr);
	put_link(AT("bus/pci/devices/%s", addr), target);
	put(addr, "class", "0x020000\n");
	put(addr, "vendor", "0x15b3\n");
	put(addr, "device", "0x1018\n");
	put(addr, "numa_node", "1\n");
}

static void put_pf(const char *addr, const char *if_name)
{
	put_device(addr);
	put(addr, "sriov_totalvfs", "8\n");
	put(addr, "sriov_numvfs", "1\n");
	bind_driver(addr, "mlx5_core");
	if (if_name)
		put_net(addr, if_name);
}

static void put_vf(const char *pf, unsigned id, const char *addr, const char *if_name)
{
	char at[256], target[64];

	put_device(addr);
	bind_driver(addr, "mlx5_core");
	(void)snprintf(target, sizeof(target), "../%s", pf);
	put_link(AT(ROOT "/%s/physfn", addr), target);
	(void)snprintf(target, sizeof(target), "../%s", addr);
	put_link(AT(ROOT "/%s/virtfn%u", pf, id), target);
	if (if_name)
		put_net(addr, if_name);
}

/* One of each, as they should be. */
static void put_pair(void)
{
	put_pf(PF, "ens1f0");
	put_vf(PF, 0, VF, "ens1f0v0");
}

static size_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static void set_up(void)
{
	memset(&t, 0, sizeof(t));
	memset(&calls, 0, sizeof(calls));
	t.fds = count_fds();
	(void)snprintf(t.dir, sizeof(t.dir), "/tmp/test_pci-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(t.dir));
	t.fd = pci_open(t.dir, &t.err);
	ck_assert_msg(t.fd >= 0, "%s", t.err.message);
	put_dir("bus/pci/devices");
}

static void tear_down(void)
{
	pci_scan_fini(&t.scan);
	(void)close(t.fd);
	ck_assert_uint_eq(count_fds(), t.fds);
	ck_assert_int_eq(tree_remove(AT_FDCWD, t.dir, &t.err), 0);
}

/* --- looking at it ------------------------------------------------------------------------ */

static void scan_ok(size_t n_vfs, size_t n_skipped)
{
	pci_scan_fini(&t.scan);
	ck_assert_msg(pci_scan(t.fd, &t.scan, &t.err) == 0, "%s", t.err.message);
	ck_assert_msg(t.scan.n_skipped == n_skipped, "%zu skipped: %s", t.scan.n_skipped,
		t.scan.n_skipped ? t.scan.skipped[0].why.message : "");
	ck_assert_uint_eq(t.scan.n_vfs, n_vfs);
}

/* The only one. */
static const struct pci_vf *scan_one(void)
{
	scan_ok(1, 0);
	return &t.scan.vfs[0];
}

/* The only one is skipped for this reason, and what reads it alone says so too. */
static void scan_skips(const char *why)
{
	struct pci_vf vf;

	scan_ok(0, 1);
	ck_assert_str_eq(t.scan.skipped[0].vf.addr, VF);
	ck_assert_str_eq(t.scan.skipped[0].why.message, why);
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), -1);
	ck_assert_int_ne(t.err.kind, ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(t.err.message, why));
}

static void scan_finds_none(void)
{
	struct pci_vf vf;

	scan_ok(0, 0);
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
}

/* --- what is offered ---------------------------------------------------------------------- */

/* As the driver's own tests have it: directories where the kernel has links. */
START_TEST(virtual_function_is_found_by_its_links)
{
	const struct pci_vf *vf;

	put_bytes("bus/pci/devices/0000:02:00.0/class", "0x020000", 8);
	put_bytes("bus/pci/devices/0000:02:00.0/sriov_totalvfs", "4", 1);
	put_bytes("bus/pci/devices/0000:02:00.0/sriov_numvfs", "0", 1);
	put_link("bus/pci/devices/0000:02:00.0/driver", "../../drivers/mlx5_core");
	put_link("bus/pci/devices/0000:02:00.0/virtfn1", "../0000:02:00.1");
	put_dir("bus/pci/devices/0000:02:00.0/net/mypf");
	put_bytes("bus/pci/devices/0000:02:00.1/class", "0x020000", 8);
	put_bytes("bus/pci/devices/0000:02:00.1/vendor", "myvendor", 8);
	put_bytes("bus/pci/devices/0000:02:00.1/device", "mydeviceid", 10);
	put_link("bus/pci/devices/0000:02:00.1/driver", "../../drivers/mydriver");
	put_link("bus/pci/devices/0000:02:00.1/physfn", "../0000:02:00.0");
	put_dir("bus/pci/devices/0000:02:00.1/net/myvf");

	vf = scan_one();
	ck_assert_str_eq(vf->addr, "0000:02:00.1");
	ck_assert_str_eq(vf->pf_addr, "0000:02:00.0");
	ck_assert_str_eq(vf->driver, "mydriver");
	ck_assert_str_eq(vf->vendor, "myvendor");
	ck_assert_str_eq(vf->device_id, "mydeviceid");
	ck_assert_str_eq(vf->pf_name, "mypf");
	ck_assert_uint_eq(vf->id, 1);
	ck_assert_str_eq(vf->if_name, "myvf");
	ck_assert_str_eq(vf->pcie_root, "");
	ck_assert_int_eq(vf->numa_node, -1);
	ck_assert_int_eq(vf->link_speed, -1);
	ck_assert(!vf->rdma);
}
END_TEST

/* A line is D directory, F file and its content, or L link and its target. */
static void put_recorded(const char *path)
{
	cleanup_file FILE *f = fopen(path, "re");
	char line[512], kind, name[256], what[256];

	ck_assert_msg(f, "%s", path);
	while (fgets(line, sizeof(line), f)) {
		const int n = sscanf(line, "%c %255s %255s", &kind, name, what);

		if (kind == '#')
			continue;
		ck_assert_msg(n == (kind == 'D' ? 2 : 3), "%s", line);
		if (kind == 'D') {
			put_dir(name);
		} else if (kind == 'L') {
			put_link(name, what);
		} else {
			ck_assert_int_eq(kind, 'F');
			(void)strncat(what, "\n", sizeof(what) - strlen(what) - 1);
			put_bytes(name, what, strlen(what));
		}
	}
}

START_TEST(recorded_adapter_is_understood)
{
	static const struct {
		const char *addr, *if_name;
	} expected[] = {
		{"0000:01:10.0", "eth2"}, {"0000:01:10.2", "eth3"}, {"0000:01:10.4", "eth4"}};
	struct pci_pf pf;

	put_recorded("tests/golden/sysfs-igb/tree");
	scan_ok(ARRAY_SIZE(expected), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct pci_vf *vf = &t.scan.vfs[i];

		ck_assert_str_eq(vf->addr, expected[i].addr);
		ck_assert_str_eq(vf->if_name, expected[i].if_name);
		ck_assert_uint_eq(vf->id, i);
		ck_assert_str_eq(vf->pf_addr, "0000:01:00.0");
		ck_assert_str_eq(vf->pf_name, "eth0");
		ck_assert_str_eq(vf->driver, "igbvf");
		ck_assert_str_eq(vf->vendor, "0x8086");
		ck_assert_str_eq(vf->device_id, "0x10ca");
		ck_assert_str_eq(vf->pcie_root, "pci0000:00");
		ck_assert_int_eq(vf->numa_node, -1);
		ck_assert(!vf->rdma);
	}
	ck_assert_int_eq(pci_pf_by_name(t.fd, "eth0", &pf, &t.err), 0);
	ck_assert_str_eq(pf.addr, "0000:01:00.0");
	ck_assert_str_eq(pf.name, "eth0");
	ck_assert_str_eq(pf.driver, "igb");
	ck_assert_uint_eq(pf.total_vfs, 7);
	ck_assert_uint_eq(pf.num_vfs, 3);
}
END_TEST

START_TEST(index_is_not_the_function_number)
{
	put_pf(PF, "ens1f0");
	put_vf(PF, 1, "0000:02:10.0", NULL);
	put_vf(PF, 12, "0000:02:10.2", NULL);
	put_vf(PF, 0, "0000:02:10.4", NULL);
	scan_ok(3, 0);
	ck_assert_uint_eq(t.scan.vfs[0].id, 1);
	ck_assert_uint_eq(t.scan.vfs[1].id, 12);
	ck_assert_uint_eq(t.scan.vfs[2].id, 0);
}
END_TEST

START_TEST(without_a_link_it_is_offered_too)
{
	put_pf(PF, "ens1f0");
	put_vf(PF, 0, VF, NULL); /* in a pod */
	ck_assert_str_eq(scan_one()->if_name, "");
	put_dir(ROOT "/" VF "/net");
	ck_assert_str_eq(scan_one()->if_name, "");
	forget(VF, "driver");
	bind_driver(VF, "vfio-pci");
	ck_assert_str_eq(scan_one()->driver, "vfio-pci");
}
END_TEST

START_TEST(class_is_a_number)
{
	static const struct {
		const char *class;
		bool is_ethernet;
	} cases[] = {
		{"0x020000\n", true},
		{"0x0200ff\n", true},
		{"131072\n", true},
		{"0x000200\n", false}, /* as some virtio devices have it */
		{"0x020700\n", false}, /* InfiniBand */
		{"0x028000\n", false},
		{"0x1020000\n", false},
		{"0x060400\n", false},
	};

	put_pair();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put(VF, "class", cases[i].class);
		if (cases[i].is_ethernet)
			(void)scan_one();
		else
			scan_finds_none();
	}
}
END_TEST

START_TEST(two_links_below_a_virtual_function)
{
	put_pair();
	put_net(VF, "aport1");
	put(VF, "net/aport1/dev_port", "1\n");
	put(VF, "net/ens1f0v0/dev_port", "0\n");
	ck_assert_str_eq(scan_one()->if_name, "ens1f0v0");
	put(VF, "net/ens1f0v0/dev_port", "2\n");
	ck_assert_str_eq(scan_one()->if_name, "aport1");
}
END_TEST

START_TEST(rdma_needs_a_device)
{
	put_pair();
	ck_assert(!scan_one()->rdma);
	put_dir(ROOT "/" VF "/infiniband");
	ck_assert(!scan_one()->rdma);
	put_dir(ROOT "/" VF "/infiniband/mlx5_2");
	ck_assert(scan_one()->rdma);
}
END_TEST

START_TEST(numa_node_may_be_unknown)
{
	static const struct {
		const char *text;
		int node;
	} cases[] = {{"0\n", 0}, {"3", 3}, {"-1\n", -1}, {"\n", -1}, {"99999999999\n", -1},
		{"one\n", -1}};

	put_pair();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put(VF, "numa_node", cases[i].text);
		ck_assert_int_eq(scan_one()->numa_node, cases[i].node);
	}
	forget(VF, "numa_node");
	ck_assert_int_eq(scan_one()->numa_node, -1);
}
END_TEST

START_TEST(link_speed_may_be_unknown)
{
	static const struct {
		const char *text;
		int64_t speed;
	} cases[] = {{"25000\n", 25000}, {"-1\n", -1}, {"4294967295\n", -1}, {"0\n", -1},
		{"", -1}, {"fast\n", -1}, {"400000\n", 400000}};

	put_pair();
	ck_assert_int_eq(scan_one()->link_speed, -1);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put(PF, "net/ens1f0/speed", cases[i].text);
		ck_assert_int_eq(scan_one()->link_speed, cases[i].speed);
	}
}
END_TEST

/* --- links of physical functions ---------------------------------------------------------- */

START_TEST(representor_is_not_the_physical_function)
{
	static const char *const representors[] = {
		"pf0vf0", "pf0vf127", "pf1sf3", "c1pf0vf2", "c0pf0sf88"};

	put_pair();
	put(PF, "net/ens1f0/phys_port_name", "p0\n");
	put(PF, "net/ens1f0/dev_port", "5\n");
	put_net(PF, "aaa");
	for (size_t i = 0; i < ARRAY_SIZE(representors); i++) {
		put(PF, "net/aaa/phys_port_name", representors[i]);
		ck_assert_str_eq(scan_one()->pf_name, "ens1f0");
	}
}
END_TEST

START_TEST(port_name_of_another_form_is_no_representor)
{
	static const char *const names[] = {
		"p0", "", "pf0", "pfvf", "pf0vf", "pf0vf1x", "vf0", "xpf0vf1", "c1p0", "pf0v1"};

	put_pair();
	put(PF, "net/ens1f0/dev_port", "5\n");
	put_net(PF, "aaa");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		put(PF, "net/aaa/phys_port_name", names[i]);
		ck_assert_str_eq(scan_one()->pf_name, "aaa");
	}
}
END_TEST

START_TEST(first_port_is_the_physical_function)
{
	put_pair();
	put_net(PF, "zzz");
	put_net(PF, "aaa");
	put(PF, "net/ens1f0/dev_port", "1\n");
	put(PF, "net/zzz/dev_port", "0\n");
	put(PF, "net/aaa/dev_port", "1\n");
	ck_assert_str_eq(scan_one()->pf_name, "zzz");
	put(PF, "net/zzz/dev_port", "1\n");
	ck_assert_str_eq(scan_one()->pf_name, "aaa");
}
END_TEST

/* The physical function's own is elsewhere. */
START_TEST(representor_alone_is_not_the_physical_function)
{
	put_pf(PF, NULL);
	put_vf(PF, 0, VF, NULL);
	put_net(PF, "rep0");
	put(PF, "net/rep0/phys_port_name", "pf0vf0\n");
	ck_assert_str_eq(scan_one()->pf_name, "");
}
END_TEST

/* --- links behind another bus ------------------------------------------------------------- */

/* A device that a driver makes below a function, with the bus that it is of. */
static void put_child(const char *addr, const char *path, const char *bus)
{
	char at[256], target[64];

	(void)snprintf(target, sizeof(target), "../../../../bus/%s", bus);
	put_link(AT(ROOT "/%s/%s/subsystem", addr, path), target);
}

static void put_link_below(const char *addr, const char *path, const char *bus, const char *name)
{
	char at[256], net[128];

	(void)snprintf(net, sizeof(net), "%s/net/%s", path, name);
	put_dir(AT(ROOT "/%s/%s", addr, net));
	if (bus)
		put_child(addr, path, bus);
}

/* As virtio, vdpa and the auxiliary bus name their devices. */
static const struct {
	const char *path, *bus;
} behind[] = {
	{"virtio3", NULL}, /* by its name alone */
	{"virtio3", "virtio"},
	{"mlx5_core.eth.0", "auxiliary"},
	{"anything", "vdpa"},
};

START_TEST(link_behind_another_bus_is_the_functions)
{
	char if_name[IFNAMSIZ], file[64];
	struct pci_pf pf;
	struct pci_vf vf;

	put_pf(PF, NULL);
	put_vf(PF, 0, VF, NULL);
	put_link_below(PF, behind[_i].path, behind[_i].bus, "ens1f0");
	put_link_below(VF, behind[_i].path, behind[_i].bus, "ens1f0v0");
	put_link_below(VF, "power", NULL, "none");
	put_pf("0000:03:00.0", "ens2f0");
	(void)snprintf(file, sizeof(file), "%s/net/ens1f0/speed", behind[_i].path);
	put(PF, file, "25000\n");
	(void)snprintf(file, sizeof(file), "%s/net/ens1f0/mtu", behind[_i].path);
	put(PF, file, "9000\n");
	ck_assert_str_eq(scan_one()->if_name, "ens1f0v0");
	ck_assert_str_eq(t.scan.vfs[0].pf_name, "ens1f0");
	ck_assert_int_eq(t.scan.vfs[0].link_speed, 25000);
	ck_assert_int_eq(t.scan.vfs[0].pf_mtu, 9000);
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), 0);
	ck_assert_str_eq(vf.if_name, "ens1f0v0");
	ck_assert_msg(pci_pf_by_name(t.fd, "ens1f0", &pf, &t.err) == 0, "%s", t.err.message);
	ck_assert_str_eq(pf.addr, PF);
	ck_assert_str_eq(pf.name, "ens1f0");
	ck_assert_int_eq(pci_look(t.fd, VF, if_name), PCI_VF);
	ck_assert_str_eq(if_name, "ens1f0v0");
	ck_assert_int_eq(pci_pf_by_name(t.fd, "none", &pf, &t.err), -1);
}
END_TEST

START_TEST(link_behind_three_buses_is_the_functions)
{
	put_pf(PF, "ens1f0");
	put_vf(PF, 0, VF, NULL);
	put_child(VF, "mlx5_core.vnet.0", "auxiliary");
	put_child(VF, "mlx5_core.vnet.0/vdpa0", "vdpa");
	put_link_below(VF, "mlx5_core.vnet.0/vdpa0/virtio0", "virtio", "eth7");
	ck_assert_str_eq(scan_one()->if_name, "eth7");
	/* deeper than a tree of this file is removed */
	ck_assert_int_eq(unlinkat(t.fd, ROOT "/" VF "/mlx5_core.vnet.0/vdpa0/virtio0/net/eth7",
				 AT_REMOVEDIR), 0);
	ck_assert_int_eq(unlinkat(t.fd, ROOT "/" VF "/mlx5_core.vnet.0/vdpa0/virtio0/net",
				 AT_REMOVEDIR), 0);
}
END_TEST

START_TEST(links_of_other_devices_are_not_the_functions)
{
	put_pf(PF, "ens1f0");
	put_vf(PF, 0, VF, NULL);
	put_link_below(VF, "mlx5_core.sf.2", "auxiliary", "sub0");
	put_link_below(VF, "mdio_bus", NULL, "port0");
	put_link_below(VF, "0000:05:00.0", "pci", "other0");
	ck_assert_str_eq(scan_one()->if_name, "");
	/* its own hides all others */
	put_link_below(VF, "virtio1", "virtio", "aaa");
	put_net(VF, "own0");
	ck_assert_str_eq(scan_one()->if_name, "own0");
}
END_TEST

START_TEST(what_an_address_is)
{
	char if_name[IFNAMSIZ];

	put_pair();
	put_device("0000:05:00.0");
	ck_assert_int_eq(pci_look(t.fd, VF, if_name), PCI_VF);
	ck_assert_str_eq(if_name, "ens1f0v0");
	ck_assert_int_eq(pci_look(t.fd, PF, if_name), PCI_PF);
	ck_assert_str_eq(if_name, "");
	ck_assert_int_eq(pci_look(t.fd, "0000:05:00.0", if_name), PCI_OTHER);
	ck_assert_int_eq(pci_look(t.fd, "0000:09:00.0", if_name), PCI_OTHER);
	ck_assert_int_eq(pci_look(t.fd, "../devices/" VF, if_name), PCI_OTHER);
}
END_TEST

START_TEST(mtu_of_the_physical_function_is_read)
{
	put_pair();
	ck_assert_int_eq(scan_one()->pf_mtu, -1);
	put(PF, "net/ens1f0/mtu", "1500\n");
	ck_assert_int_eq(scan_one()->pf_mtu, 1500);
}
END_TEST

/* --- what is not offered ------------------------------------------------------------------ */

START_TEST(without_a_driver_it_is_skipped)
{
	put_pair();
	forget(VF, "driver");
	scan_skips("no driver is bound to it");
}
END_TEST

/* All else is known of it, and what was done with it can be undone. */
START_TEST(without_its_physical_functions_link_it_is_read)
{
	const struct pci_vf *vf;
	struct pci_vf alone;

	put_pf(PF, NULL);
	put_vf(PF, 3, VF, "ens1f0v0");
	vf = scan_one();
	ck_assert_str_eq(vf->pf_name, "");
	ck_assert_str_eq(vf->pf_addr, PF);
	ck_assert_uint_eq(vf->id, 3);
	ck_assert_int_eq(vf->link_speed, -1);
	ck_assert_int_eq(vf->pf_mtu, -1);
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &alone, &t.err), 0);
	ck_assert_str_eq(alone.pf_name, "");
	ck_assert_uint_eq(alone.id, 3);
}
END_TEST

START_TEST(one_that_is_skipped_is_read_as_far_as_it_can_be)
{
	const struct pci_vf *vf;

	put_pair();
	put(PF, "net/ens1f0/mtu", "1500\n");
	forget(VF, "driver");
	scan_skips("no driver is bound to it");
	vf = pci_scan_find(&t.scan, VF);
	ck_assert_ptr_nonnull(vf);
	ck_assert_str_eq(vf->driver, "");
	ck_assert_str_eq(vf->vendor, "0x15b3");
	ck_assert_str_eq(vf->pf_name, "ens1f0");
	ck_assert_str_eq(vf->pcie_root, "pci0000:00");
	ck_assert_int_eq(vf->numa_node, 1);
	ck_assert_int_eq(vf->pf_mtu, 1500);
	ck_assert_ptr_null(pci_scan_find(&t.scan, PF));
}
END_TEST

START_TEST(without_an_index_it_is_skipped)
{
	static const char why[] =
		"physical function " PF " has no virtfn link to it, so its index is not known";

	put_pair();
	forget(PF, "virtfn0");
	scan_skips(why);
	put_link(ROOT "/" PF "/virtfn0", "../0000:02:00.2");
	put_link(ROOT "/" PF "/virtfn", "../" VF);
	put_link(ROOT "/" PF "/virtfn1x", "../" VF);
	put_link(ROOT "/" PF "/virtfn70000", "../" VF);
	put(PF, "virtfn5", VF);
	scan_skips(why);
	put_link(ROOT "/" PF "/virtfn7", "../" VF);
	ck_assert_uint_eq(scan_one()->id, 7);
}
END_TEST

START_TEST(physical_function_that_is_gone_is_told)
{
	put_pair();
	drop("bus/pci/devices/" PF);
	scan_skips("physical function " PF ": " PF ": No such file or directory");
}
END_TEST

START_TEST(physfn_is_a_link_to_an_address)
{
	put_pair();
	forget(VF, "physfn");
	put_link(ROOT "/" VF "/physfn", "..");
	scan_skips("physfn: points to \"..\", which is no PCI address");
	forget(VF, "physfn");
	put_link(ROOT "/" VF "/physfn", "../0000:02:00.0-and-something-behind-it");
	scan_skips("physfn: points to a name of 36 bytes");
	forget(VF, "physfn");
	put(VF, "physfn", PF);
	scan_skips("physfn: Invalid argument");
	forget(VF, "physfn");
	scan_finds_none();
}
END_TEST

START_TEST(one_that_is_wrong_keeps_no_other_away)
{
	put_pf(PF, "ens1f0");
	put_vf(PF, 0, "0000:02:00.3", NULL);
	put_vf(PF, 1, VF, NULL);
	put_vf(PF, 2, "0000:02:00.2", NULL);
	put_pf("0000:03:00.0", "ens2f0");
	put_vf("0000:03:00.0", 0, "0000:03:00.1", NULL);
	forget("0000:03:00.1", "vendor");
	forget("0000:02:00.2", "driver");
	scan_ok(2, 2);
	ck_assert_str_eq(t.scan.vfs[0].addr, VF);
	ck_assert_str_eq(t.scan.vfs[1].addr, "0000:02:00.3");
	ck_assert_str_eq(t.scan.skipped[0].vf.addr, "0000:02:00.2");
	ck_assert_str_eq(t.scan.skipped[1].vf.addr, "0000:03:00.1");
}
END_TEST

/* What it shares with the other one is read from either. */
START_TEST(one_without_ids_spoils_no_other)
{
	const struct pci_vf *vf = NULL;

	put_pf(PF, "ens1f0");
	put_vf(PF, 0, "0000:02:00.3", NULL);
	put_vf(PF, 1, VF, NULL);
	forget("0000:02:00.3", "vendor");
	pci_scan_fini(&t.scan);
	ck_assert_int_eq(pci_scan(t.fd, &t.scan, &t.err), 0);
	for (size_t i = 0; i < t.scan.n_vfs; i++)
		if (strcmp(t.scan.vfs[i].addr, VF) == 0)
			vf = &t.scan.vfs[i];
	ck_assert_ptr_nonnull(vf);
	ck_assert_str_eq(vf->vendor, "0x15b3");
	ck_assert_str_eq(vf->device_id, "0x1018");
}
END_TEST

/* --- what a file may say ------------------------------------------------------------------ */

START_TEST(ids_are_made_printable)
{
	static const char binary[] = "\x7f\0\xff"
				     "0x15\tb3 \n";

	put_pair();
	put(VF, "vendor", " \t0x15b3  \n\n");
	put_bytes(ROOT "/" VF "/device", binary, sizeof(binary) - 1);
	ck_assert_str_eq(scan_one()->vendor, "0x15b3");
	ck_assert_str_eq(t.scan.vfs[0].device_id, "???0x15?b3");
}
END_TEST

START_TEST(ids_that_are_none_are_told)
{
	char *huge = xcalloc(1, 1 << 20);
	char longest[PCI_TEXT_SIZE + 2] = {0};

	put_pair();
	memset(huge, 'x', (1 << 20) - 1);
	put(VF, "vendor", huge);
	scan_skips("vendor: is longer than 64 bytes");
	memset(huge, '\n', 1 << 18);
	put(VF, "vendor", huge);
	scan_skips("vendor: is empty");
	free(huge);
	put(VF, "vendor", "");
	scan_skips("vendor: is empty");
	memset(longest, 'y', PCI_TEXT_SIZE);
	put(VF, "vendor", longest);
	scan_skips("vendor: is longer than 64 bytes");
	longest[PCI_TEXT_SIZE - 1] = '\n';
	put(VF, "vendor", longest);
	ck_assert_uint_eq(strlen(scan_one()->vendor), PCI_TEXT_SIZE - 1);
	forget(VF, "device");
	scan_skips("device: No such file or directory");
	put_dir(ROOT "/" VF "/device");
	scan_skips("device: Is a directory");
}
END_TEST

START_TEST(class_that_is_no_number_is_told)
{
	put_pair();
	put(VF, "class", "\x01\x02network\n");
	scan_skips("class: \"\?\?network\" is not a number from 0 to 4294967295");
	put(VF, "class", "");
	scan_skips("class: \"\" is not a number from 0 to 4294967295");
	put(VF, "class", "0x100020000");
	scan_skips("class: \"0x100020000\" is not a number from 0 to 4294967295");
	forget(VF, "class");
	scan_skips("class: No such file or directory");
}
END_TEST

START_TEST(driver_without_a_proper_name_is_told)
{
	char target[128];

	put_pair();
	forget(VF, "driver");
	memset(target, 'd', sizeof(target));
	target[sizeof(target) - 1] = '\0';
	put_link(ROOT "/" VF "/driver", target);
	scan_skips("driver: points to a name of 127 bytes");
	forget(VF, "driver");
	put_link(ROOT "/" VF "/driver", "../drivers/\n ");
	scan_skips("driver: points to no name");
}
END_TEST

/* --- where it is -------------------------------------------------------------------------- */

START_TEST(domain_may_have_more_digits)
{
	const char *vmd = "../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e1:00.1";

	put_pf("10000:e1:00.0", "ens9");
	put_vf("10000:e1:00.0", 3, "10000:e1:00.1", "ens9v3");
	ck_assert_str_eq(scan_one()->addr, "10000:e1:00.1");
	ck_assert_str_eq(t.scan.vfs[0].pf_addr, "10000:e1:00.0");
	ck_assert_uint_eq(t.scan.vfs[0].id, 3);
	/* the root that the processor has */
	drop("bus/pci/devices/10000:e1:00.1");
	put_link("bus/pci/devices/10000:e1:00.1", vmd);
	put_link("devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e1:00.1",
		"../../10000:e1:00.1");
	ck_assert_str_eq(scan_one()->pcie_root, "pci0000:00");
}
END_TEST

START_TEST(root_is_the_first_that_is_one)
{
	static const struct {
		const char *dir, *root;
	} cases[] = {
		{"devices/platform/pcie@40000000/pci0001:02", "pci0001:02"},
		{"devices/platform/1c00000.pcie/pci0001:00", "pci0001:00"},
		{"devices/LNXSYSTM:00/PNP0A08:00/pci10000:00/10000:00:01.0", "pci10000:00"},
		{"devices/pci0000:zz", ""},
		{"devices/pci000:00", ""},
		{"devices/pci0000:00x", ""},
		{"devices/xpci0000:00", ""},
		{"devices/virtual", ""},
	};
	char at[256], to[256];

	put_pf(PF, "ens1f0");
	put_vf(PF, 0, VF, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put_dir(cases[i].dir);
		(void)snprintf(to, sizeof(to), "%s/%s/" ROOT "/" VF, t.dir, "");
		put_link(AT("%s/" VF, cases[i].dir), to);
		drop("bus/pci/devices/" VF);
		(void)snprintf(to, sizeof(to), "../../../%s/" VF, cases[i].dir);
		put_link("bus/pci/devices/" VF, to);
		ck_assert_str_eq(scan_one()->pcie_root, cases[i].root);
	}
}
END_TEST

START_TEST(addresses_are_the_kernels)
{
	static const char *const good[] = {
		"0000:01:10.0", "ffff:ff:1f.7", "10000:e1:00.0", "00010000:00:00.0"};
	static const char *const bad[] = {"", ".", "..", "0000:01:10", "000:01:10.0",
		"0000:01:10.8", "0000:1:10.0", "0000:01:10.00", "0000:01:1g.0", "0000:01:1F.0",
		"01:10.0", "0000:01:10.0/", "../0000:01:10.0", "000000000:01:10.0",
		"0000-01-10-0", "0000:01:10.0\n", "virtfn0"};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ck_assert_msg(pci_addr_ok(good[i]), "%s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(!pci_addr_ok(bad[i]), "%s", bad[i]);
}
END_TEST

START_TEST(device_is_named_after_its_address)
{
	char out[PCI_ADDR_SIZE];

	pci_device_name("0000:03:00.1", out);
	ck_assert_str_eq(out, "0000-03-00-1");
	pci_device_name("10000:e1:00.0", out);
	ck_assert_str_eq(out, "10000-e1-00-0");
}
END_TEST

START_TEST(entry_that_is_no_address_is_no_device)
{
	put_pair();
	put_link("bus/pci/devices/virtfn0", VF);
	put_bytes("bus/pci/devices/README", "x", 1);
	put_dir("bus/pci/devices/0000:02:00.9");
	(void)scan_one();
}
END_TEST

/* --- what is not there -------------------------------------------------------------------- */

START_TEST(tree_that_is_missing_is_told)
{
	char path[64];
	struct pci_vf vf;
	struct pci_pf pf;

	(void)snprintf(path, sizeof(path), "%s/nowhere", t.dir);
	ck_assert_int_eq(pci_open(path, &t.err), -1);
	ck_assert_ptr_nonnull(strstr(t.err.message, path));
	ck_assert_int_eq(unlinkat(t.fd, "bus/pci/devices", AT_REMOVEDIR), 0);
	ck_assert_int_eq(pci_scan(t.fd, &t.scan, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_UNAVAILABLE);
	ck_assert_str_eq(t.err.message, "bus/pci/devices: No such file or directory");
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_UNAVAILABLE);
	ck_assert_int_eq(pci_pf_read(t.fd, PF, &pf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_UNAVAILABLE);
	ck_assert_int_eq(pci_pf_by_name(t.fd, "ens1f0", &pf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_UNAVAILABLE);
}
END_TEST

START_TEST(no_devices_is_an_inventory_too)
{
	scan_finds_none();
}
END_TEST

/* As the kernel removes one: drivers/pci/iov.c, pci_iov_remove_virtfn(). */
static void vf_goes(void)
{
	forget(PF, "virtfn0");
	forget(VF, "physfn");
	drop("bus/pci/devices/" VF);
	forget(VF, "driver");
	forget(VF, "vendor");
}

static void another_comes(void)
{
	vf_goes();
	put_link("bus/pci/devices/" VF, "../../../devices/pci0000:00/0000:02:00.7");
	put(".", "0000:02:00.7/vendor", "0x8086\n");
}

START_TEST(one_that_vanishes_is_no_problem)
{
	struct pci_vf vf;

	put_pair();
	put_link("bus/pci/devices/0000:09:00.1", "nowhere");
	calls.when = "driver";
	calls.then = vf_goes;
	scan_ok(0, 0);
	ck_assert_ptr_null(calls.when);
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
}
END_TEST

START_TEST(another_may_take_its_address)
{
	struct pci_vf vf;

	put_pair();
	calls.when = "driver";
	calls.then = another_comes;
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
	ck_assert_ptr_null(calls.when);
}
END_TEST

/* --- one alone ---------------------------------------------------------------------------- */

START_TEST(one_is_read_as_it_is_now)
{
	struct pci_vf vf;

	put_pair();
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), 0);
	ck_assert_str_eq(vf.if_name, "ens1f0v0");
	ck_assert_int_eq(
		renameat(t.fd, ROOT "/" VF "/net/ens1f0v0", t.fd, ROOT "/" VF "/net/renamed"),
		0);
	ck_assert_int_eq(pci_vf_read(t.fd, VF, &vf, &t.err), 0);
	ck_assert_str_eq(vf.if_name, "renamed");
	ck_assert_str_eq(vf.addr, VF);
	ck_assert_str_eq(vf.pcie_root, "pci0000:00");
}
END_TEST

START_TEST(one_that_is_no_virtual_function_is_not_found)
{
	static const char *const others[] = {
		PF, "0000:09:00.1", "..", "", "../devices/0000:02:00.1"};
	struct pci_vf vf;

	put_pair();
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		ck_assert_int_eq(pci_vf_read(t.fd, others[i], &vf, &t.err), -1);
		ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
	}
}
END_TEST

START_TEST(physical_function_is_read)
{
	struct pci_pf pf;

	put_pair();
	ck_assert_int_eq(pci_pf_read(t.fd, PF, &pf, &t.err), 0);
	ck_assert_str_eq(pf.addr, PF);
	ck_assert_str_eq(pf.name, "ens1f0");
	ck_assert_str_eq(pf.driver, "mlx5_core");
	ck_assert_uint_eq(pf.total_vfs, 8);
	ck_assert_uint_eq(pf.num_vfs, 1);
	forget(PF, "driver");
	put(PF, "sriov_totalvfs", " 0x10\n");
	ck_assert_int_eq(pci_pf_read(t.fd, PF, &pf, &t.err), 0);
	ck_assert_str_eq(pf.driver, "");
	ck_assert_uint_eq(pf.total_vfs, 16);
}
END_TEST

START_TEST(numbers_of_a_physical_function_have_bounds)
{
	static const char *const bad[] = {
		"", "\n", "-1", "65536", "four", "4 4", "0x", "99999999999999999999"};
	struct pci_pf pf;

	put_pair();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put(PF, "sriov_numvfs", bad[i]);
		ck_assert_int_eq(pci_pf_read(t.fd, PF, &pf, &t.err), -1);
		ck_assert_int_eq(t.err.kind, ERR_INVALID);
		ck_assert_ptr_nonnull(
			strstr(t.err.message, "physical function " PF ": sriov_numvfs: "));
	}
	forget(PF, "sriov_numvfs");
	ck_assert_int_eq(pci_pf_read(t.fd, PF, &pf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_UNAVAILABLE);
	forget(PF, "sriov_totalvfs");
	ck_assert_int_eq(pci_pf_read(t.fd, PF, &pf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
}
END_TEST

static void not_found_by_name(const char *if_name, const char *why)
{
	struct pci_pf pf;

	ck_assert_int_eq(pci_pf_by_name(t.fd, if_name, &pf, &t.err), -1);
	ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
	ck_assert_str_eq(t.err.message, why);
}

START_TEST(physical_function_is_found_by_its_link)
{
	static const char *const bad[] = {"", "..", ".", "../net/ens1f0"};
	struct pci_pf pf;

	put_pair();
	put_pf("0000:03:00.0", "ens2f0");
	ck_assert_int_eq(pci_pf_by_name(t.fd, "ens2f0", &pf, &t.err), 0);
	ck_assert_str_eq(pf.addr, "0000:03:00.0");
	not_found_by_name("ens3f0", "no PCI device has a link of this name");
	not_found_by_name("sixteen-letters-", "no PCI device has a link of this name");
	not_found_by_name("ens1f0v0", "its device " VF " has no SR-IOV capability");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(pci_pf_by_name(t.fd, bad[i], &pf, &t.err), -1);
		ck_assert_int_eq(t.err.kind, ERR_INVALID);
	}
}
END_TEST

/* --- many --------------------------------------------------------------------------------- */

#define MANY 256

/* What takes time is system calls: a physical function's are made once. */
START_TEST(many_are_read_with_few_calls)
{
	char addr[PCI_ADDR_SIZE], if_name[IFNAMSIZ];

	put_pf(PF, "ens1f0");
	for (unsigned i = MANY; i-- > 0;) {
		(void)snprintf(addr, sizeof(addr), "0000:02:%02x.%u", 1 + i / 8, i % 8);
		(void)snprintf(if_name, sizeof(if_name), "v%u", i);
		put_vf(PF, i, addr, if_name);
	}
	calls.opens = calls.opens_of_pf = 0;
	scan_ok(MANY, 0);
	/* the device, numa_node, net, infiniband */
	ck_assert_uint_le(calls.opens, 4 * MANY + 20);
	/* as any other device, and for all of its own */
	ck_assert_uint_eq(calls.opens_of_pf, 2);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_uint_eq(t.scan.vfs[i].id, i);
		ck_assert(i == 0 || strcmp(t.scan.vfs[i - 1].addr, t.scan.vfs[i].addr) < 0);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pci");
	TCase *c = tcase_create("offered");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, virtual_function_is_found_by_its_links);
	tcase_add_test(c, recorded_adapter_is_understood);
	tcase_add_test(c, index_is_not_the_function_number);
	tcase_add_test(c, without_a_link_it_is_offered_too);
	tcase_add_test(c, class_is_a_number);
	tcase_add_test(c, two_links_below_a_virtual_function);
	tcase_add_test(c, rdma_needs_a_device);
	tcase_add_test(c, numa_node_may_be_unknown);
	tcase_add_test(c, link_speed_may_be_unknown);
	tcase_add_test(c, representor_is_not_the_physical_function);
	tcase_add_test(c, port_name_of_another_form_is_no_representor);
	tcase_add_test(c, first_port_is_the_physical_function);
	tcase_add_loop_test(c, link_behind_another_bus_is_the_functions, 0, ARRAY_SIZE(behind));
	tcase_add_test(c, link_behind_three_buses_is_the_functions);
	tcase_add_test(c, links_of_other_devices_are_not_the_functions);
	tcase_add_test(c, mtu_of_the_physical_function_is_read);
	tcase_add_test(c, domain_may_have_more_digits);
	tcase_add_test(c, root_is_the_first_that_is_one);
	tcase_add_test(c, addresses_are_the_kernels);
	tcase_add_test(c, device_is_named_after_its_address);
	suite_add_tcase(s, c);

	c = tcase_create("many");
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60); /* a tree of so many takes long to write on a busy machine */
	tcase_add_test(c, many_are_read_with_few_calls);
	suite_add_tcase(s, c);

	c = tcase_create("not offered");
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, representor_alone_is_not_the_physical_function);
	tcase_add_test(c, without_a_driver_it_is_skipped);
	tcase_add_test(c, without_its_physical_functions_link_it_is_read);
	tcase_add_test(c, one_that_is_skipped_is_read_as_far_as_it_can_be);
	tcase_add_test(c, without_an_index_it_is_skipped);
	tcase_add_test(c, physical_function_that_is_gone_is_told);
	tcase_add_test(c, physfn_is_a_link_to_an_address);
	tcase_add_test(c, one_that_is_wrong_keeps_no_other_away);
	tcase_add_test(c, one_without_ids_spoils_no_other);
	tcase_add_test(c, ids_are_made_printable);
	tcase_add_test(c, ids_that_are_none_are_told);
	tcase_add_test(c, class_that_is_no_number_is_told);
	tcase_add_test(c, driver_without_a_proper_name_is_told);
	tcase_add_test(c, entry_that_is_no_address_is_no_device);
	tcase_add_test(c, tree_that_is_missing_is_told);
	tcase_add_test(c, no_devices_is_an_inventory_too);
	tcase_add_test(c, one_that_vanishes_is_no_problem);
	tcase_add_test(c, another_may_take_its_address);
	suite_add_tcase(s, c);

	c = tcase_create("one");
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, one_is_read_as_it_is_now);
	tcase_add_test(c, what_an_address_is);
	tcase_add_test(c, one_that_is_no_virtual_function_is_not_found);
	tcase_add_test(c, physical_function_is_read);
	tcase_add_test(c, numbers_of_a_physical_function_have_bounds);
	tcase_add_test(c, physical_function_is_found_by_its_link);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
