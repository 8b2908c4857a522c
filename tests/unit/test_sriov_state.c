/* SPDX-License-Identifier: Apache-2.0 */
/* A virtual function as it is kept, shown and noted, and which of the kernel's events are about
 * one. */
#include "dmgr-sriov/state.h"

#include <check.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dmgr-sriov/uevent.h"
#include "draplugind/tree.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define ADDR   "0000:03:00.1"
#define DEVICE "0000-03-00-1"

static const struct pci_vf seen = {
	.addr = ADDR,
	.pf_addr = "0000:03:00.0",
	.pf_name = "ens1f0",
	.id = 0,
	.driver = "mlx5_core",
	.vendor = "0x15b3",
	.device_id = "0x1018",
	.if_name = "ens1f0v0",
	.pcie_root = "pci0000:00",
	.numa_node = 0,
	.link_speed = 25000,
	.rdma = true,
};

/* As the driver written in Go has it. */
#define THEIRS                                                                                 \
	"'Addr': '" ADDR "', 'Driver': 'mlx5_core', 'Vendor': '0x15b3', "                      \
	"'DeviceID': '0x1018', 'PFName': 'ens1f0', 'VFID': 0, 'KernelIfaceName': 'ens1f0v0'"

static char name[] = DEVICE;

static int state_of(const char *text, struct vf_state *ret, struct err *err)
{
	cleanup_free struct packed *state = text ? packed_take(tree_of(text)) : NULL;
	const struct device device = {.name = name, .state = state};

	*ret = (struct vf_state){0};
	return vf_state_open(&device, ret, err);
}

/* --- state -------------------------------------------------------------------------------- */

START_TEST(state_of_one_that_is_seen_comes_back)
{
	struct vf_state state, back = {0};
	struct device device;
	struct err err;

	vf_state_of(&seen, &state);
	vf_make_device(&state, &seen, 9000, &device);
	ck_assert_str_eq(device.name, DEVICE);
	ck_assert_str_eq(device.if_name, "ens1f0v0");
	ck_assert_str_eq(device.kernel_if_name, "ens1f0v0");
	ck_assert_ptr_null(device.capacity);
	ck_assert(!device.allow_multiple.v);
	ck_assert_msg(vf_state_open(&device, &back, &err) == 0, "%s", err.message);
	ck_assert(rec_equal(&rec_vf_state, &state, &back));
	assert_rec(&rec_vf_state, &back, "{" THEIRS ", 'PFAddr': '0000:03:00.0'}");
	rec_fini(&rec_vf_state, &back);
	rec_fini(&rec_vf_state, &state);
	rec_fini(&rec_device, &device);
}
END_TEST

START_TEST(state_of_a_prepared_one_comes_back)
{
	static const char text[] =
		"{" THEIRS ", 'PFAddr': '0000:03:00.0', "
		"'Link': {'Name': 'ens1f0v0', 'MTU': 1500, 'MAC': '02:00:00:00:00:01', "
		"'AltNames': ['enp3s0f0v0'], 'Up': true, 'IfIndex': 7, 'Alias': 'mine', "
		"'Parent': '" ADDR "'}, "
		"'PortVLAN': {'ID': 100, 'QoS': 3, 'Proto': 34984}}";
	struct vf_state state, back = {0};
	struct device device;
	struct err err;

	ck_assert_msg(state_of(text, &state, &err) == 0, "%s", err.message);
	ck_assert_str_eq(state.link->alias, "mine");
	ck_assert_int_eq(state.port_vlan->id.v, 100);
	vf_make_device(&state, NULL, 0, &device);
	ck_assert_int_eq(vf_state_open(&device, &back, &err), 0);
	ck_assert(rec_equal(&rec_vf_state, &state, &back));
	assert_rec(&rec_vf_state, &back, text);
	rec_fini(&rec_vf_state, &back);
	rec_fini(&rec_vf_state, &state);
	rec_fini(&rec_device, &device);
}
END_TEST

static int64_t max_mtu_of(const struct device *device)
{
	json_t *tree = packed_open(device->attributes);
	const json_t *mtu = json_object_get(json_object_get(tree, "maxMTU"), "int");
	const int64_t value = mtu ? json_integer_value(mtu) : 0;

	json_decref(tree);
	return value;
}

/* It cannot be read while its link is in a pod, also not by a new process. */
START_TEST(prepared_one_keeps_its_largest_mtu)
{
	struct pci_vf vf = seen;
	struct vf_state state, back = {0};
	struct device device, again;
	struct err err;

	ck_assert_int_eq(
		state_of("{" THEIRS ", 'Link': {'Name': 'ens1f0v0'}}", &state, &err), 0);
	vf.pf_mtu = 1500;
	vf_make_device(&state, &vf, 9216, &device);
	ck_assert_int_eq(max_mtu_of(&device), 1500);
	ck_assert_int_eq(vf_state_open(&device, &back, &err), 0);
	ck_assert_int_eq(back.max_mtu.v, 9216);
	vf.pf_mtu = 9000;
	vf_make_device(&back, &vf, 0, &again);
	ck_assert_int_eq(max_mtu_of(&again), 9000);
	rec_fini(&rec_device, &again);
	vf_make_device(&back, NULL, 0, &again);
	ck_assert_int_eq(max_mtu_of(&again), 9216);
	rec_fini(&rec_device, &again);
	rec_fini(&rec_device, &device);
	rec_fini(&rec_vf_state, &back);
	rec_fini(&rec_vf_state, &state);
}
END_TEST

START_TEST(state_of_the_driver_in_go_is_understood)
{
	struct vf_state state;
	struct err err;

	ck_assert_msg(state_of("{" THEIRS "}", &state, &err) == 0, "%s", err.message);
	ck_assert_str_eq(state.addr, ADDR);
	ck_assert_str_eq(state.driver, "mlx5_core");
	ck_assert_str_eq(state.vendor, "0x15b3");
	ck_assert_str_eq(state.device_id, "0x1018");
	ck_assert_str_eq(state.pf_name, "ens1f0");
	ck_assert(state.vf_id.set && state.vf_id.v == 0);
	ck_assert_str_eq(state.kernel_if_name, "ens1f0v0");
	ck_assert_ptr_null(state.pf_addr);
	ck_assert_ptr_null(state.link);
	ck_assert_ptr_null(state.port_vlan);
	rec_fini(&rec_vf_state, &state);
}
END_TEST

START_TEST(state_from_the_future_is_understood)
{
	struct vf_state state;
	struct err err;

	ck_assert_int_eq(
		state_of("{'Addr': '" ADDR "', 'Driver': null, 'New': 1}", &state, &err), 0);
	ck_assert_ptr_null(state.driver);
	rec_fini(&rec_vf_state, &state);
}
END_TEST

START_TEST(state_that_is_none_is_refused)
{
	static const struct {
		const char *state, *why;
	} rows[] = {

		{"{}", "state.Addr"},
		{"{'Addr': null}", "state.Addr"},
		{"{'Addr': ''}", "state.Addr"},
		{"{'Addr': 7}", "state.Addr"},
		{"{'Addr': 'eth0'}", "'eth0' is not a PCI address"},
		{"{'Addr': '../0000:03:00.1'}", "is not a PCI address"},
		{"{'Addr': '0000:03:00.2'}",
			"state.Addr is 0000:03:00.2, which is not '" DEVICE "'"},
		{"{'Addr': '10000:03:00.1'}", "which is not '" DEVICE "'"},
		{"{'Addr': '" ADDR "', 'VFID': -1}", "state.VFID"},
		{"{'Addr': '" ADDR "', 'VFID': 65536}", "state.VFID"},
		{"{'Addr': '" ADDR "', 'VFID': '0'}", "state.VFID"},
		{"{'Addr': '" ADDR "', 'KernelIfaceName': 'a-name-of-16-byt'}",
			"state.KernelIfaceName"},
		{"{'Addr': '" ADDR "', 'PFName': 'a-name-of-16-byt'}", "state.PFName"},
		{"{'Addr': '" ADDR "', 'PFAddr': 'eth0'}", "state.PFAddr"},
		{"{'Addr': '" ADDR "', 'PortVLAN': {}}", "state.PortVLAN.ID"},
		{"{'Addr': '" ADDR "', 'PortVLAN': {'ID': 4096}}", "state.PortVLAN.ID"},
		{"{'Addr': '" ADDR "', 'PortVLAN': {'ID': 1, 'QoS': 8}}", "state.PortVLAN.QoS"},
		{"{'Addr': '" ADDR "', 'Link': {'Name': 'a/b'}}", "state.Link.Name"},
		{"{'Addr': '" ADDR "', 'Link': {}}", "state.Link.Name"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = ERR_INIT;
		struct vf_state state;

		ck_assert_msg(state_of(rows[i].state, &state, &err) == -1, "%s", rows[i].state);
		ck_assert_int_eq(err.kind, ERR_INVALID);
		ck_assert_msg(strstr(err.message, rows[i].why), "%s", err.message);
		ck_assert_ptr_null(state.addr);
	}
}
END_TEST

/* --- attributes --------------------------------------------------------------------------- */

static void attributes(const struct pci_vf *vf, bool is_seen, uint32_t max_mtu, const char *is)
{
	cleanup_free struct packed *want = packed_take(tree_of(is));
	struct vf_state state;
	struct device device;

	vf_state_of(vf, &state);
	vf_make_device(&state, is_seen ? vf : NULL, max_mtu, &device);
	if (!packed_equal(device.attributes, want)) {
		json_t *tree = packed_open(device.attributes);
		char *shown = json_dumps(tree, JSON_SORT_KEYS);

		ck_abort_msg("is %s, should be %s", shown, is);
	}
	ck_assert(!device.if_name == !*vf->if_name);
	ck_assert(!device.kernel_if_name == !*vf->if_name);
	rec_fini(&rec_vf_state, &state);
	rec_fini(&rec_device, &device);
}

#define OF_STATE                                                                               \
	"'resource.kubernetes.io/pciBusID': {'string': '" ADDR "'}, "                          \
	"'pfName': {'string': 'ens1f0'}, 'vendor': {'string': '0x15b3'}, "                     \
	"'deviceID': {'string': '0x1018'}, "

START_TEST(attributes_are_what_is_known)
{
	struct pci_vf vf = seen;

	attributes(&vf, true, 9000,
		"{" OF_STATE "'kernelIfName': {'string': 'ens1f0v0'}, "
		"'driver': {'string': 'mlx5_core'}, 'vfID': {'int': 0}, "
		"'resource.kubernetes.io/pcieRoot': {'string': 'pci0000:00'}, "
		"'numaNode': {'int': 0}, 'linkSpeed': {'int': 25000}, "
		"'rdma': {'bool': true}, 'maxMTU': {'int': 9000}}");
	vf.numa_node = -1;
	vf.link_speed = -1;
	vf.pcie_root[0] = '\0';
	vf.if_name[0] = '\0';
	vf.rdma = false;
	vf.id = 65535;
	(void)snprintf(vf.driver, sizeof(vf.driver), "vfio-pci");
	attributes(&vf, true, 0,
		"{" OF_STATE "'driver': {'string': 'vfio-pci'}, "
		"'vfID': {'int': 65535}, 'rdma': {'bool': false}}");
}
END_TEST

START_TEST(attributes_of_one_that_is_gone_are_its_states)
{
	attributes(&seen, false, 0,
		"{" OF_STATE "'kernelIfName': {'string': 'ens1f0v0'}, "
		"'driver': {'string': 'mlx5_core'}, 'vfID': {'int': 0}}");
}
END_TEST

/* --- VLAN --------------------------------------------------------------------------------- */

static const struct vf_vlan vlans[] = {
	{.id = 0, .qos = 0, .proto = ETH_P_8021Q},
	{.id = 100, .qos = 0, .proto = ETH_P_8021Q},
	{.id = 4095, .qos = 7, .proto = ETH_P_8021AD},
	{.id = 0, .qos = 5, .proto = ETH_P_8021Q},
	{.id = 1, .qos = 0, .proto = 1},
	{.id = 1, .qos = 0, .proto = UINT16_MAX},
};

static void same_vlan(const struct vf_vlan *a, const struct vf_vlan *b)
{
	ck_assert_uint_eq(a->id, b->id);
	ck_assert_uint_eq(a->qos, b->qos);
	ck_assert_uint_eq(a->proto, b->proto);
}

START_TEST(vlan_of_a_port_comes_back)
{
	for (size_t i = 0; i < ARRAY_SIZE(vlans); i++) {
		struct port_vlan *p = port_vlan_of(&vlans[i]);
		struct vf_vlan back = vf_vlan_of(p);

		same_vlan(&back, &vlans[i]);
		/* what is usual is not written */
		ck_assert(p->id.set);
		ck_assert(p->qos.set == (vlans[i].qos != 0));
		ck_assert(p->proto.set == (vlans[i].proto != ETH_P_8021Q));
		free(p);
	}
}
END_TEST

/* --- notes -------------------------------------------------------------------------------- */

static const char *const aliases[] = {"", "uplink of rack 7", " ", " leading", "trailing ", "-",
	"1.2.3", "100.3.33024 of another", "netclaim:x:y"};

START_TEST(notes_come_back)
{
	for (size_t i = 0; i < ARRAY_SIZE(vlans) * ARRAY_SIZE(aliases); i++) {
		const struct vf_vlan *vlan = &vlans[i % ARRAY_SIZE(vlans)];
		const char *alias = aliases[i / ARRAY_SIZE(vlans)], *back;
		struct port_vlan *p = port_vlan_of(vlan);
		struct vf_vlan v;
		char note[VF_NOTE_SIZE];

		vf_note_format(p, alias, note);
		ck_assert_msg(vf_note_parse(note, &v, &back), "%s", note);
		same_vlan(&v, vlan);
		ck_assert_str_eq(back, alias);
		free(p);
	}
}
END_TEST

START_TEST(notes_without_a_vlan_come_back)
{
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
		char note[VF_NOTE_SIZE];
		const char *back;
		struct vf_vlan v;

		vf_note_format(NULL, aliases[i], note);
		ck_assert_msg(vf_note_parse(note, &v, &back), "%s", note);
		ck_assert_uint_eq(v.proto, 0);
		ck_assert_str_eq(back, aliases[i]);
	}
}
END_TEST

START_TEST(notes_have_a_form)
{
	const struct port_vlan p = {.id = {100, true}, .qos = {3, true}};
	char note[VF_NOTE_SIZE];

	vf_note_format(&p, "the alias", note);
	ck_assert_str_eq(note, "100.3.33024 the alias");
	vf_note_format(&p, NULL, note);
	ck_assert_str_eq(note, "100.3.33024");
	vf_note_format(NULL, "the alias", note);
	ck_assert_str_eq(note, "- the alias");
	vf_note_format(NULL, NULL, note);
	ck_assert_str_eq(note, "-");
}
END_TEST

START_TEST(long_alias_is_noted_as_far_as_there_is_room)
{
	const struct port_vlan p = {.id = {4095, true}, .qos = {7, true}};
	char alias[LINK_ALIAS_SIZE], note[VF_NOTE_SIZE];
	const char *back;
	struct vf_vlan v;

	memset(alias, 'x', sizeof(alias) - 1);
	alias[sizeof(alias) - 1] = '\0';
	vf_note_format(&p, alias, note);
	ck_assert_uint_eq(strlen(note), VF_NOTE_SIZE - 1);
	ck_assert(vf_note_parse(note, &v, &back));
	ck_assert_uint_eq(v.id, 4095);
	ck_assert_uint_eq(strlen(back), VF_NOTE_SIZE - 1 - strlen("4095.7.33024 "));
	ck_assert_ptr_eq(strstr(alias, back), alias);
}
END_TEST

START_TEST(garbage_is_no_note)
{
	static const char *const bad[] = {"", " ", "x", "--", "-x", "100", "100.", "100.3",
		"100.3.", "100.3. x", ".3.33024", "100..33024", "4096.0.33024", "100.8.33024",
		"100.3.65536", "100.3.0", "-1.0.33024", "+1.0.33024", " 1.0.33024",
		"1 .0.33024", "1.0.33024x", "1.0.33024.x", "0x1.0.33024", "1.0.0x8100",
		"00000001.0.33024", "99999999999999999999.0.33024", "1,0,33024"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct vf_vlan v = {.id = 7, .qos = 7, .proto = 7};
		const char *alias = NULL;

		ck_assert_msg(!vf_note_parse(bad[i], &v, &alias), "%s", bad[i]);
		ck_assert(v.id == 0 && v.qos == 0 && v.proto == 0);
		ck_assert_ptr_null(alias);
	}
}
END_TEST

/* --- events ------------------------------------------------------------------------------- */

#define PF_PATH "/devices/pci0000:00/0000:00:01.0/0000:03:00.0"
#define VF_PATH "/devices/pci0000:00/0000:00:01.0/0000:03:00.1"

START_TEST(event_is_parsed)
{
	static const char text[] = "add@" VF_PATH "\0"
				   "ACTION=add\0"
				   "DEVPATH=" VF_PATH "\0"
				   "SUBSYSTEM=pci\0"
				   "PCI_CLASS=20000\0"
				   "SEQNUM=3109";
	struct uevent e;

	ck_assert(uevent_parse(text, sizeof(text) - 1, &e));
	ck_assert_str_eq(e.action, "add");
	ck_assert_str_eq(e.subsystem, "pci");
	ck_assert_str_eq(e.devpath, VF_PATH);
	ck_assert(uevent_parse(text, sizeof(text), &e));
	ck_assert_str_eq(e.subsystem, "pci");
}
END_TEST

START_TEST(event_that_tells_nothing_is_one)
{
	static const char text[] = "add@/x\0\0\0XACTION=add\0action=add\0ACTION\0SUBSYSTEM=";
	struct uevent e;

	ck_assert(uevent_parse(text, sizeof(text) - 1, &e));
	ck_assert_str_eq(e.action, "");
	ck_assert_str_eq(e.subsystem, "");
	ck_assert_str_eq(e.devpath, "");
	ck_assert(!uevent_is_of_pci(&e));
}
END_TEST

START_TEST(what_the_kernel_does_not_send_is_no_event)
{
	static const struct {
		const char *text;
		size_t len;
	} rows[] = {
		{"", 0},
		{"\0", 1},
		{"ACTION=add\0SUBSYSTEM=pci\0a@b", 27},
		/* udev's own */
		{"libudev\0\xfe\xed\xca\xfe\0\0\0\x28@ACTION=add\0SUBSYSTEM=pci", 42},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uevent e = {.action = "add", .subsystem = "pci", .devpath = "/"};

		ck_assert_msg(!uevent_parse(rows[i].text, rows[i].len, &e), "row %zu", i);
		ck_assert_str_eq(e.subsystem, "");
	}
}
END_TEST

/* --- what they are about ------------------------------------------------------------------ */

START_TEST(event_is_of_a_function)
{
	static const struct {
		struct uevent e;
		bool is_of_pci;
		const char *addr; /* of the function whose link it is about */
	} rows[] = {
		{{"add", "pci", VF_PATH}, true, NULL},
		{{"remove", "pci", VF_PATH}, true, NULL},
		{{"bind", "pci", VF_PATH}, true, NULL},
		{{"unbind", "pci", VF_PATH}, true, NULL},
		{{"add", "pci", PF_PATH}, true, NULL},
		{{"change", "pci", PF_PATH}, false, NULL},
		{{"add", "net", PF_PATH "/net/ens1f0"}, false, "0000:03:00.0"},
		{{"remove", "net", PF_PATH "/net/ens1f0"}, false, "0000:03:00.0"},
		{{"move", "net", VF_PATH "/net/ens1f0v0"}, false, "0000:03:00.1"},
		{{"add", "net", VF_PATH "/virtio3/net/eth0"}, false, "0000:03:00.1"},
		{{"add", "net", VF_PATH "/mlx5_core.vnet.0/vdpa0/virtio3/net/eth0"}, false,
			"0000:03:00.1"},
		{{"add", "net", "/devices/pci0000:00/0000:04:00.0/net/eth0"}, false,
			"0000:04:00.0"},
		{{"add", "net", "/devices/virtual/net/veth0"}, false, NULL},
		{{"add", "net", "0000:03:00.0/net/ens1f0"}, false, "0000:03:00.0"},
		{{"add", "net", "/net/0000:03:00.0"}, false, NULL},
		{{"add", "net", "/net/"}, false, NULL},
		{{"add", "net", PF_PATH}, false, NULL},
		{{"add", "net", ""}, false, NULL},
		{{"add", "net",
			 "/devices/00000000000000000000000000000000000000000000000000/net/x"},
			false, NULL},
		{{"add", "queues", PF_PATH "/net/ens1f0/queues/rx-0"}, false, NULL},
		{{"add", "block", "/devices/virtual/block/loop0"}, false, NULL},
		{{"", "", ""}, false, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char addr[PCI_ADDR_SIZE] = "";

		ck_assert_msg(uevent_is_of_pci(&rows[i].e) == rows[i].is_of_pci, "%s@%s",
			rows[i].e.action, rows[i].e.devpath);
		ck_assert_msg(uevent_function(&rows[i].e, addr) == (rows[i].addr != NULL),
			"%s@%s", rows[i].e.action, rows[i].e.devpath);
		ck_assert_str_eq(addr, rows[i].addr ? rows[i].addr : "");
	}
}
END_TEST

static void count_events(void *ctx, const struct uevent *e)
{
	size_t *n = ctx;

	*n += *e->action != '\0';
}

static size_t drained(int fd)
{
	size_t n = 0;

	ck_assert(uevent_drain(fd, count_events, &n));
	return n;
}

static void send_event(int fd, const char *text, size_t len)
{
	ck_assert_int_eq(send(fd, text, len, 0), (ssize_t)len);
}
#define SEND(fd, text) send_event(fd, text, sizeof(text))

START_TEST(socket_is_drained)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
	ck_assert_uint_eq(drained(ends[0]), 0);
	SEND(ends[1], "garbage");
	ck_assert_uint_eq(drained(ends[0]), 0);
	SEND(ends[1], "add@/x\0ACTION=add\0SUBSYSTEM=pci");
	SEND(ends[1], "change@/x\0ACTION=change\0SUBSYSTEM=pci");
	ck_assert_uint_eq(drained(ends[0]), 2);
	ck_assert_uint_eq(drained(ends[0]), 0); /* all of them are read */
	(void)close(ends[0]);
	(void)close(ends[1]);
}
END_TEST

/* Who may send one is root in this network namespace. */
START_TEST(event_of_another_process_is_none)
{
	static const char text[] = "add@/x\0ACTION=add\0SUBSYSTEM=pci";
	struct sockaddr_nl to = {0};
	socklen_t len = sizeof(to);
	struct err err;
	cleanup_close int fd = uevent_open(&err);
	cleanup_close int other =
		socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT);
	char got[sizeof(text)];

	ck_assert_msg(fd >= 0, "%s", err.message);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&to, &len), 0);
	ck_assert_int_ne((int)to.nl_pid, 0);
	to.nl_groups = 0;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(sendto(other, text, sizeof(text), 0,
					 (const struct sockaddr *)&to, sizeof(to)),
			(ssize_t)sizeof(text));
	/* it is there, and would matter */
	ck_assert_int_eq(recv(fd, got, sizeof(got), MSG_PEEK), (ssize_t)sizeof(text));
	ck_assert_mem_eq(got, text, sizeof(text));
	ck_assert_uint_eq(drained(fd), 0);
	ck_assert_int_eq(recv(fd, got, sizeof(got), 0), -1);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("sriov_state");
	TCase *c = tcase_create("state"), *events = tcase_create("events");

	tcase_add_test(c, state_of_one_that_is_seen_comes_back);
	tcase_add_test(c, state_of_a_prepared_one_comes_back);
	tcase_add_test(c, prepared_one_keeps_its_largest_mtu);
	tcase_add_test(c, state_of_the_driver_in_go_is_understood);
	tcase_add_test(c, state_from_the_future_is_understood);
	tcase_add_test(c, state_that_is_none_is_refused);
	tcase_add_test(c, attributes_are_what_is_known);
	tcase_add_test(c, attributes_of_one_that_is_gone_are_its_states);
	tcase_add_test(c, vlan_of_a_port_comes_back);
	tcase_add_test(c, notes_come_back);
	tcase_add_test(c, notes_without_a_vlan_come_back);
	tcase_add_test(c, notes_have_a_form);
	tcase_add_test(c, long_alias_is_noted_as_far_as_there_is_room);
	tcase_add_test(c, garbage_is_no_note);
	suite_add_tcase(s, c);
	tcase_add_test(events, event_is_parsed);
	tcase_add_test(events, event_that_tells_nothing_is_one);
	tcase_add_test(events, what_the_kernel_does_not_send_is_no_event);
	tcase_add_test(events, event_is_of_a_function);
	tcase_add_test(events, socket_is_drained);
	tcase_add_test(events, event_of_another_process_is_none);
	suite_add_tcase(s, events);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
