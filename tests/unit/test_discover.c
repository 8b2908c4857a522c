/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inventory of virtual functions and the kernel's events, on a sysfs made of files: which
 * events cost a new look, which links are reported as appeared, and what is offered of a
 * function that cannot be seen. The kernel's events come through a socket pair.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/prepared.h"
#include "dmgr-sriov/sriov.h"
#include "dmgr-sriov/state.h"
#include "draplugind/tree.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define PF      "0000:01:00.0"
#define VF0     "0000:01:10.0"
#define VF1     "0000:01:10.2"
#define DEV0    "0000-01-10-0"
#define DEV1    "0000-01-10-2"
#define DEVICES "bus/pci/devices/"

static struct {
	char top[40];
	int events; /* the kernel's end */
	struct sriov s;
	struct prepared *prepared;
	struct device_list found;
	struct strlist appeared;
	struct err err;
} t;

/* --- a sysfs ------------------------------------------------------------------------------ */

static void put_dir(const char *path)
{
	cleanup_free char *part = xstrdup(path);

	for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdirat(t.s.sys_fd, part, 0755);
		*slash = '/';
	}
	(void)mkdirat(t.s.sys_fd, path, 0755);
}

static void put(const char *addr, const char *name, const char *text)
{
	cleanup_free char *path = xasprintf(DEVICES "%s/%s", addr, name);
	cleanup_close int fd = openat(
		t.s.sys_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_msg(fd >= 0, "%s", path);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void put_link(const char *addr, const char *name, const char *target)
{
	cleanup_free char *path = xasprintf(DEVICES "%s/%s", addr, name);

	ck_assert_int_eq(symlinkat(target, t.s.sys_fd, path), 0);
}

static void drop(const char *addr, const char *name, int flags)
{
	cleanup_free char *path = xasprintf(DEVICES "%s/%s", addr, name);

	ck_assert_msg(unlinkat(t.s.sys_fd, path, flags) == 0, "%s", path);
}

static void put_net(const char *addr, const char *if_name)
{
	cleanup_free char *path = xasprintf(DEVICES "%s/net/%s", addr, if_name);

	put_dir(path);
}

static void drop_net(const char *addr, const char *if_name)
{
	cleanup_free char *name = xasprintf("net/%s", if_name);

	drop(addr, name, AT_REMOVEDIR);
}

static void rename_net(const char *addr, const char *from, const char *to)
{
	drop_net(addr, from);
	put_net(addr, to);
}

static void put_vf(unsigned id, const char *addr, const char *driver, const char *if_name)
{
	cleanup_free char *dir = xasprintf(DEVICES "%s", addr);
	cleanup_free char *bound = xasprintf("../../drivers/%s", driver);
	cleanup_free char *virtfn = xasprintf("virtfn%u", id);
	cleanup_free char *target = xasprintf("../%s", addr);

	put_dir(dir);
	put(addr, "class", "0x020000\n");
	put(addr, "vendor", "0x8086\n");
	put(addr, "device", "0x10ca\n");
	put_link(addr, "physfn", "../" PF);
	put_link(addr, "driver", bound);
	put_link(PF, virtfn, target);
	if (if_name)
		put_net(addr, if_name);
}

static void set_up(void)
{
	int ends[2];

	memset(&t, 0, sizeof(t));
	t.s = (struct sriov)SRIOV_INIT;
	(void)snprintf(t.top, sizeof(t.top), "/tmp/test_discover-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(t.top));
	t.s.sysfs_root = t.top;
	t.s.sys_fd = pci_open(t.top, &t.err);
	ck_assert_int_ge(t.s.sys_fd, 0);
	put_dir(DEVICES PF);
	put(PF, "sriov_totalvfs", "8\n");
	put(PF, "sriov_numvfs", "2\n");
	put_net(PF, "pf0");
	put(PF, "net/pf0/mtu", "1500\n");
	put(PF, "net/pf0/speed", "10000\n");
	put_vf(0, VF0, "igbvf", "no-such-link0");
	put_vf(1, VF1, "igbvf", "no-such-link1");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
	t.s.uevent_fd = ends[0];
	t.events = ends[1];
	ck_assert_int_eq(nl_init(&t.s.host, -1, &t.err), 0);
	t.s.provisioner = provisioner_start(t.s.sys_fd, &t.err);
	ck_assert_ptr_nonnull(t.s.provisioner);
	t.prepared = prepared_new();
	sriov_ops.use_prepared(&t.s, t.prepared);
}

static void tear_down(void)
{
	sriov_close(&t.s);
	(void)close(t.events);
	prepared_free(t.prepared);
	rec_fini(&rec_device_list, &t.found);
	strlist_fini(&t.appeared);
	ck_assert_int_eq(tree_remove(AT_FDCWD, t.top, &t.err), 0);
}

/* --- looking ------------------------------------------------------------------------------ */

static void look(void)
{
	rec_fini(&rec_device_list, &t.found);
	ck_assert_int_ge(sriov_discover(&t.s, &t.found, &t.err), 0);
}

static const struct device *find(const char *name)
{
	for (size_t i = 0; i < t.found.devices.n; i++)
		if (strcmp(t.found.devices.v[i].name, name) == 0)
			return &t.found.devices.v[i];
	ck_abort_msg("%s is not offered", name);
}

/* The only one. */
static void assert_note(const char *note)
{
	ck_assert_msg(t.found.notes.n == 1, "%zu notes", t.found.notes.n);
	ck_assert_str_eq(t.found.notes.v[0], note);
}

/* What appeared since the last call: a name, "" for none. */
static void assert_appeared(const char *name)
{
	strlist_fini(&t.appeared);
	sriov_take_appeared(&t.s, &t.appeared);
	ck_assert_uint_eq(t.appeared.n, *name ? 1 : 0);
	if (*name)
		ck_assert_str_eq(t.appeared.v[0], name);
}

/* As setup returned it; more is of its state. */
static void prepare(const char *device, const char *addr, const char *if_name, const char *more)
{
	cleanup_free char *text = xasprintf(
		"{'name': '%s', 'state': {'Addr': '%s', 'Driver': 'igbvf', 'Vendor': '0x8086', "
		"'DeviceID': '0x10ca', 'PFName': 'pf0', 'VFID': 0, 'KernelIfaceName': '%s', "
		"'PFAddr': '" PF "', 'Link': {'Name': '%s', 'AltNames': ['alt0']}%s}}",
		device, addr, if_name, if_name, more);
	struct device d;

	rec_of(&rec_device, text, &d);
	prepared_put(t.prepared,
		&(const struct device_alloc){.device = &d, .claim_uid = (char[]){"claim"}}, &d);
	rec_fini(&rec_device, &d);
}

static bool wakes(const char *subsystem, const char *action, const char *path)
{
	struct buf text = {0};
	bool matters;

	buf_printf(&text, "%s@%s%cACTION=%s%cSUBSYSTEM=%s%cDEVPATH=%s", action, path, 0, action,
		0, subsystem, 0, path);
	ck_assert_int_eq(send(t.events, text.data, text.len, 0), (ssize_t)text.len);
	buf_fini(&text);
	matters = sriov_woken(&t.s);
	return matters;
}

static bool link_wakes(const char *addr)
{
	cleanup_free char *path =
		xasprintf("/devices/pci0000:00/0000:00:01.0/%s/net/whatever", addr);

	return wakes("net", "move", path);
}

static int64_t int_attribute(const struct device *device, const char *name)
{
	json_t *tree = packed_open(device->attributes);
	const json_t *value = json_object_get(json_object_get(tree, name), "int");
	const int64_t n = value ? json_integer_value(value) : -1;

	json_decref(tree);
	return n;
}

/* --- what events cost --------------------------------------------------------------------- */

START_TEST(which_events_cost_a_look)
{
	look();
	ck_assert(wakes("pci", "bind", "/devices/x"));
	ck_assert(!wakes("pci", "change", "/devices/x"));
	ck_assert(link_wakes(PF));
	ck_assert(!link_wakes(VF0)); /* it is as it was */
	ck_assert(!link_wakes("0000:05:00.0"));
	ck_assert(!wakes("net", "add", "/devices/virtual/net/veth0"));
	rename_net(VF0, "no-such-link0", "renamed");
	ck_assert(link_wakes(VF0));
	ck_assert(!link_wakes(VF0)); /* it is known by now */
	put_vf(2, "0000:01:10.4", "igbvf", "new");
	ck_assert(link_wakes("0000:01:10.4"));
	assert_appeared("");
}
END_TEST

START_TEST(own_moves_cost_none)
{
	prepare(DEV0, VF0, "no-such-link0", "");
	look();
	/* in */
	drop_net(VF0, "no-such-link0");
	sriov_settle(&t.s, DEV0);
	ck_assert(!link_wakes(VF0));
	/* and out, on its way under another name */
	put_net(VF0, "no-such-link0");
	sriov_settle(&t.s, DEV0);
	ck_assert(!link_wakes(VF0));
	assert_appeared("");
	/* of a device that does not exist */
	sriov_settle(&t.s, "nonsense");
	sriov_settle(&t.s, "");
}
END_TEST

/* --- links that appear -------------------------------------------------------------------- */

START_TEST(link_that_comes_back_by_itself_is_reported)
{
	prepare(DEV0, VF0, "no-such-link0", "");
	look();
	drop_net(VF0, "no-such-link0");
	sriov_settle(&t.s, DEV0);
	put_net(VF0, "net1");
	(void)link_wakes(VF0);
	assert_appeared(DEV0);
	assert_appeared("");
	/* its own name again */
	rename_net(VF0, "net1", "no-such-link0");
	(void)link_wakes(VF0);
	assert_appeared("");
}
END_TEST

START_TEST(lost_event_is_made_up_for)
{
	prepare(DEV0, VF0, "no-such-link0", "");
	look();
	drop_net(VF0, "no-such-link0");
	sriov_settle(&t.s, DEV0);
	look();
	assert_appeared("");
	put_net(VF0, "no-such-link0");
	look();
	assert_appeared(DEV0);
	look();
	assert_appeared("");
}
END_TEST

START_TEST(link_that_came_back_before_the_start_is_reported)
{
	prepare(DEV0, VF0, "vf0", ""); /* and is called otherwise */
	prepare(DEV1, VF1, "no-such-link1", "");
	look();
	assert_appeared(DEV0);
}
END_TEST

START_TEST(first_link_of_a_driver_is_not_reported)
{
	drop_net(VF0, "no-such-link0");
	look();
	put_net(VF0, "eth5");
	ck_assert(link_wakes(VF0));
	assert_appeared("");
	/* what was elsewhere without a claim may be a forgotten one's */
	drop_net(VF0, "eth5");
	ck_assert(link_wakes(VF0));
	put_net(VF0, "eth5");
	ck_assert(link_wakes(VF0));
	assert_appeared(DEV0);
}
END_TEST

/* --- what is offered ---------------------------------------------------------------------- */

START_TEST(without_a_link_it_is_a_note)
{
	drop_net(VF0, "no-such-link0");
	look();
	ck_assert_uint_eq(t.found.devices.n, 1);
	(void)find(DEV1);
	assert_note("virtual function " VF0 " is not offered: it has no link on the host: its "
		    "driver igbvf has not made one yet, or the link is in another network "
		    "namespace");
	put_net(VF0, "late0");
	ck_assert(link_wakes(VF0));
	look();
	ck_assert_str_eq(find(DEV0)->kernel_if_name, "late0");
	ck_assert_uint_eq(t.found.notes.n, 0);
}
END_TEST

START_TEST(function_of_user_space_needs_none)
{
	put_vf(2, "0000:01:10.4", "vfio-pci", NULL);
	look();
	ck_assert_uint_eq(t.found.devices.n, 3);
	ck_assert_ptr_null(find("0000-01-10-4")->kernel_if_name);
	ck_assert_uint_eq(t.found.notes.n, 0);
}
END_TEST

/* What cannot be seen is as it was prepared. */
START_TEST(prepared_one_is_offered_as_it_was)
{
	const struct device *device;

	prepare(DEV0, VF0, "vf0", ", 'MaxMTU': 9216");
	drop_net(VF0, "no-such-link0");
	look();
	device = find(DEV0);
	ck_assert_str_eq(device->kernel_if_name, "vf0");
	ck_assert_str_eq(device->if_name, "vf0");
	ck_assert_int_eq(int_attribute(device, "maxMTU"), 1500);
	ck_assert_int_eq(int_attribute(device, "linkSpeed"), 10000);
	assert_rec(&rec_device, device,
		"{'name': '" DEV0 "', 'ifName': 'vf0', 'kernelIfName': 'vf0', 'state': {"
		"'Addr': '" VF0 "', 'Driver': 'igbvf', 'Vendor': '0x8086', 'DeviceID': "
		"'0x10ca', 'PFName': 'pf0', 'VFID': 0, 'KernelIfaceName': 'vf0', 'PFAddr': "
		"'" PF "'}, 'attributes': {'kernelIfName': {'string': 'vf0'}, "
		"'resource.kubernetes.io/pciBusID': {'string': '" VF0 "'}, 'pfName': {'string':"
		" 'pf0'}, 'vendor': {'string': '0x8086'}, 'deviceID': {'string': '0x10ca'}, "
		"'driver': {'string': 'igbvf'}, 'vfID': {'int': 0}, 'linkSpeed': {'int': 10000},"
		" 'rdma': {'bool': false}, 'maxMTU': {'int': 1500}}, "
		"'alternatives': {'kernelIfName': ['alt0']}}");
	ck_assert_uint_eq(t.found.notes.n, 0);
	/* back by itself, under the pod's name: it will be called vf0 again */
	put_net(VF0, "net1");
	look();
	ck_assert_str_eq(find(DEV0)->kernel_if_name, "vf0");
}
END_TEST

START_TEST(prepared_one_of_another_driver_has_no_link)
{
	prepare(DEV0, VF0, "vf0", "");
	drop_net(VF0, "no-such-link0");
	drop(VF0, "driver", 0);
	put_link(VF0, "driver", "../../drivers/vfio-pci");
	look();
	ck_assert_ptr_null(find(DEV0)->kernel_if_name);
}
END_TEST

START_TEST(prepared_one_stays_while_its_driver_is_away)
{
	prepare(DEV0, VF0, "vf0", "");
	drop_net(VF0, "no-such-link0");
	drop(VF0, "driver", 0);
	look();
	ck_assert_str_eq(find(DEV0)->kernel_if_name, "vf0");
	assert_note("virtual function " VF0
		    " is prepared, and offered as it was: no driver is bound to it");
}
END_TEST

START_TEST(prepared_one_stays_while_its_physical_functions_link_is_away)
{
	cleanup_free char *pf_name = NULL;

	look();
	prepare(DEV0, VF0, "no-such-link0", "");
	drop(PF, "net/pf0/mtu", 0);
	drop(PF, "net/pf0/speed", 0);
	drop_net(PF, "pf0");
	look();
	ck_assert_uint_eq(t.found.devices.n, 1);
	ck_assert_int_eq(int_attribute(find(DEV0), "linkSpeed"), 10000); /* known before */
	pf_name = packed_text(find(DEV0)->attributes, "pfName", "string");
	ck_assert_str_eq(pf_name, "pf0");
	ck_assert_uint_eq(t.found.notes.n, 2);
	ck_assert_str_eq(t.found.notes.v[0],
		"virtual function " VF0
		" is prepared, and offered as it was: physical function " PF
		": has no link on the host");
	ck_assert_str_eq(t.found.notes.v[1],
		"virtual function " VF1 " is not offered: physical function " PF
		": has no link on the host");
}
END_TEST

START_TEST(prepared_one_that_was_removed_is_not_offered)
{
	prepare("0000-01-10-6", "0000:01:10.6", "vf3", "");
	look();
	ck_assert_uint_eq(t.found.devices.n, 2);
}
END_TEST

static const struct {
	const char *name, *shown;
} unfit[] = {{"eth\xe9", "eth?"}, {"\x01\x02", "??"}, {"a\x7f", "a?"}, {"all", "all"}};

START_TEST(name_that_cannot_be_published_is_a_note)
{
	cleanup_free char *note = xasprintf("virtual function " VF0
					    " is not offered: its link is called \"%s\", which "
					    "is not a name that can be published: rename it",
		unfit[_i].shown);

	rename_net(VF0, "no-such-link0", unfit[_i].name);
	look();
	ck_assert_uint_eq(t.found.devices.n, 1);
	assert_note(note);
	prepare(DEV0, VF0, "vf0", "");
	look();
	ck_assert_str_eq(find(DEV0)->kernel_if_name, "vf0");
	ck_assert_uint_eq(t.found.notes.n, 0);
}
END_TEST

START_TEST(name_of_a_physical_function_that_cannot_be_published)
{
	drop(PF, "net/pf0/mtu", 0);
	drop(PF, "net/pf0/speed", 0);
	rename_net(PF, "pf0", "pf\xff");
	look();
	ck_assert_uint_eq(t.found.devices.n, 2);
	assert_note("the link of physical function " PF " is called \"pf?\": its virtual "
		    "functions are offered without pfName; rename it");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("discover");
	TCase *c = tcase_create("events"), *offered = tcase_create("offered");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, which_events_cost_a_look);
	tcase_add_test(c, own_moves_cost_none);
	tcase_add_test(c, link_that_comes_back_by_itself_is_reported);
	tcase_add_test(c, lost_event_is_made_up_for);
	tcase_add_test(c, link_that_came_back_before_the_start_is_reported);
	tcase_add_test(c, first_link_of_a_driver_is_not_reported);
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(offered, set_up, tear_down);
	tcase_add_test(offered, without_a_link_it_is_a_note);
	tcase_add_test(offered, function_of_user_space_needs_none);
	tcase_add_test(offered, prepared_one_is_offered_as_it_was);
	tcase_add_test(offered, prepared_one_of_another_driver_has_no_link);
	tcase_add_test(offered, prepared_one_stays_while_its_driver_is_away);
	tcase_add_test(offered, prepared_one_stays_while_its_physical_functions_link_is_away);
	tcase_add_test(offered, prepared_one_that_was_removed_is_not_offered);
	tcase_add_loop_test(
		offered, name_that_cannot_be_published_is_a_note, 0, ARRAY_SIZE(unfit));
	tcase_add_test(offered, name_of_a_physical_function_that_cannot_be_published);
	suite_add_tcase(s, offered);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
