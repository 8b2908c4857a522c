# SPDX-License-Identifier: Apache-2.0
"""Virtual functions of real adapters, through the whole node side: grpcio as the kubelet, a real
containerd, and every daemon as it ships. What the host had is compared with what it has in the end,
all that ip(8) can tell."""
import contextlib
import json
import os
import queue
import random
import socket
import subprocess
import threading
import uuid

import pytest

import house as h
import managed
import mprpc
import nsfd
import sriovlib
from house import opaque, result
from netns import Netns
from procs import wait_for
from sriovlib import device_name, ip, link_of, vlan_of

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_igb]

VFS = 7  # that an adapter can have
SEED_CONFIG = {"vlan": 1001, "podIfName": "sriov0", "interfaceSysctlIPv4": {"arp_filter": "1"}}
CYCLES = int(os.environ.get("NETCLAIM_CYCLES", "40"))
SEED = int(os.environ.get("NETCLAIM_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def configuration(counts=None):
    ifaces = [{"ifName": link_of(pf), "vfCount": (counts or {}).get(pf, VFS)} for pf in sriovlib.pfs()]
    return h.config({"sriov": {"enabled": True, "sysBusPCIDevPath": "/sys", "ifaces": ifaces}},
                    [{"name": "sriov-pool", "filter": {"deviceManagers": ["sr-iov"]}}])


class Node(h.House):
    """The house; the physical functions and dmgr-sriov are in the VM's own network namespace."""

    def __init__(self, procs, rundir, lab=None):
        super().__init__(procs, rundir, configuration())
        self.lab = lab
        self.daemons = {}
        if lab:
            self.cdi_dir = lab.run / "cdi"

    def start(self, name):
        via = self.lab.via if self.lab else ()
        starters = {
            "statd": self.start_statd,
            "netnsd": lambda: self.start_netnsd(via=via),
            "dmgr-sriov": lambda: self.start_sriov("--sysfs-root", "/sys"),
            "draplugind": self.start_draplugind,
            "nrihookd": lambda: self.start_nrihookd("--nri-socket", self.lab.nri_socket, via=via),
        }
        self.daemons[name] = starters[name]()

    def start_all(self):
        names = ["statd", "netnsd", "dmgr-sriov"] + (["draplugind", "nrihookd"] if self.lab else [])
        for name in names:
            self.start(name)
        self.wait_working()

    def wait_working(self):
        self.wait_peer("netnsd", "connected", 20)
        self.wait_peer("dmgr-sriov", "published", 60)
        self.wait_ready()
        if "nrihookd" in self.daemons:
            self.wait_peer("nrihookd", "registered", 20)

    def restart_all(self):
        for daemon in reversed(self.daemons.values()):
            daemon.stop(20)
        self.start_all()

    def slice_devices(self):
        slices = json.loads((self.claims_dir / "resourceslices.json").read_text())["items"]
        return {device["name"]: {name: next(iter(value.values())) for name, value in device["attributes"].items()}
                for s in slices for device in s["spec"].get("devices", [])}


class Claimed:
    """A claim of one pod that holds one function."""

    def __init__(self, node, kubelet, addr, config=None, name="c1"):
        self.node, self.kubelet, self.addr = node, kubelet, addr
        self.pod_uid = str(uuid.uuid4())
        self.name = name
        self.claim = h.Claim(node, name, [result(device_name(addr))],
                             config=[opaque(SEED_CONFIG if config is None else config)], pod_uid=self.pod_uid)
        self.pod = None

    def prepare(self):
        entry = self.kubelet.prepare([self.claim.ref])[self.claim.uid]
        assert "error" not in entry, entry
        return self

    def run(self):
        self.pod = self.node.lab.pod(self.name, self.pod_uid)
        return self

    @property
    def via(self):
        return [*self.node.lab.via, "nsenter", f"--net={self.pod.netns()}"]

    def give_address(self, address, name="sriov0"):
        self.pod.ip("addr", "add", address, "dev", name)

    def end(self):
        self.pod.stop()
        self.pod.remove()
        self.unprepare()

    def unprepare(self):
        entry = self.kubelet.unprepare([self.claim.ref])[self.claim.uid]
        assert "error" not in entry, entry


@pytest.fixture(scope="module")
def functions():
    """(address of the physical function, index) -> address, of both adapters; made by dmgr-sriov itself."""
    assert len(sriovlib.pfs()) == 2, "the VM has its two adapters"
    for pf in sriovlib.pfs():
        sriovlib.set_count(pf, 0)
        ip("link", "set", link_of(pf), "up")

    def all_of_them():
        return {(pf, index): addr for pf in sriovlib.pfs() for index, addr in enumerate(sriovlib.vfs_of(pf))}
    return all_of_them


def wait_links(functions):
    """All that `snapshot` compares is settled then."""
    wait_for(lambda: all(link_of(a) for a in functions().values()), 20, "links of all functions")
    sriovlib.announce(functions().values())


@pytest.fixture
def node(procs, rundir, lab, functions):
    node = Node(procs, rundir, lab)
    node.start_all()
    wait_links(functions)
    return node


@pytest.fixture
def kubelet(node):
    with node.kubelet() as kubelet:
        kubelet.register()
        yield kubelet


def assert_as_before(before):
    wait_for(lambda: sriovlib.snapshot()[0].keys() == before[0].keys(), 10, "all links under their names")
    links, addresses = sriovlib.snapshot()
    for name, link in before[0].items():
        assert links[name] == link
    assert addresses == before[1]


def test_functions_are_made_and_published(procs, rundir, functions):
    """On adapters that have none."""
    for pf in sriovlib.pfs():
        sriovlib.set_count(pf, 0)
    node = Node(procs, rundir)
    node.start_all()
    assert len(functions()) == 2 * VFS
    wait_for(lambda: (node.claims_dir / "resourceslices.json").exists() and len(node.slice_devices()) == 2 * VFS, 10,
             "all functions in the slices")
    devices = node.slice_devices()
    for (pf, index), addr in functions().items():
        attributes = devices[device_name(addr)]
        assert attributes.pop("maxMTU") == 1500  # its physical function's; igbvf takes 9216
        assert attributes.pop("linkSpeed", 1000) == 1000  # not before the wire is up
        assert attributes == {
            "resource.kubernetes.io/pciBusID": addr, "resource.kubernetes.io/pcieRoot": "pci0000:00",
            "pfName": link_of(pf), "vfID": index, "kernelIfName": link_of(addr), "vendor": "0x8086",
            "deviceID": "0x10ca", "driver": "igbvf", "rdma": False, "deviceManager": "sr-iov", "pool": "sriov-pool"}
    assert node.daemons["dmgr-sriov"].log.count("virtual functions were made") == 2
    assert len(devices) == 14 and "0000-01-10-0" in devices


def dress(addr, number):
    """As nobody else's."""
    name = link_of(addr)
    ip("link", "set", name, "txqueuelen", 77 + number, "group", 7, "mtu", 1400)
    ip("link", "set", name, "gso_max_size", 32000, "gso_max_segs", 16)
    ip("link", "property", "add", "dev", name, "altname", f"a-name-longer-than-fifteen-bytes-{number}")
    ip("link", "set", name, "alias", f"uplink of rack {number}")
    ip("link", "set", name, "multicast", "off", "allmulticast", "on", "up")
    ip("addr", "add", f"10.66.{number}.1/24", "brd", "+", "dev", name)
    ip("addr", "add", f"10.66.{number}.2/24", "dev", name)
    ip("addr", "add", f"fd66:{number}::1/64", "dev", name, "nodad")


def undress(addr, number):
    name = link_of(addr)
    ip("addr", "flush", "dev", name, "scope", "global")
    ip("link", "set", name, "down", "txqueuelen", 1000, "group", 0, "mtu", 1500, "multicast", "on",
       "allmulticast", "off")
    ip("link", "set", name, "gso_max_size", 65536, "gso_max_segs", 65535)
    ip("link", "property", "del", "dev", name, "altname", f"a-name-longer-than-fifteen-bytes-{number}")
    ip("link", "set", name, "alias", "")


@pytest.fixture
def dressed(node, functions):
    addr = functions()[sriovlib.pfs()[0], 2]
    dress(addr, 1)
    yield addr
    undress(addr, 1)


def test_claim_of_the_seed(node, kubelet, dressed):
    """Prepared, attached, detached, unprepared: what was seen before is seen after."""
    pf = sriovlib.pfs()[0]
    before = sriovlib.snapshot()
    claimed = Claimed(node, kubelet, dressed).prepare()
    assert vlan_of(pf, 2) == 1001
    claimed.run()
    link, = json.loads(claimed.pod.ip("-d", "-j", "link", "show", "sriov0"))
    assert "UP" in link["flags"] and link["parentdev"] == dressed
    assert link["ifalias"] == f"netclaim:{claimed.claim.uid}:{device_name(dressed)}"
    assert node.lab.check("nsenter", f"--net={claimed.pod.netns()}", "cat",
                          "/proc/sys/net/ipv4/conf/sriov0/arp_filter").strip() == "1"
    assert link_of(dressed) is None
    # what root in the pod may do
    claimed.pod.ip("link", "set", "sriov0", "down")
    claimed.pod.ip("link", "set", "sriov0", "name", "spoilt", "mtu", "1500", "txqueuelen", "3", "alias", "mine")
    claimed.pod.ip("link", "set", "spoilt", "address", "02:00:00:00:00:07", "group", "9")
    claimed.pod.ip("link", "set", "spoilt", "gso_max_size", "16000", "gso_max_segs", "8", "addrgenmode", "none")
    claimed.pod.ip("link", "set", "spoilt", "multicast", "on", "allmulticast", "off", "promisc", "on", "arp", "off")
    claimed.pod.ip("link", "set", "spoilt", "up")
    claimed.end()
    assert vlan_of(pf, 2) == 0
    assert_as_before(before)
    assert node.rows() == [] and node.files_left() == []
    assert "not all of it is as it was" not in node.daemons["dmgr-sriov"].log


def test_vlans_keep_pods_apart(node, kubelet, functions):
    """Two pods of one VLAN reach each other, over the wire as well; another's are not reached."""
    pf, other = sriovlib.pfs()
    vlans = {"a": (pf, 0, 1001), "b": (pf, 1, 1001), "c": (pf, 2, 1002), "d": (other, 0, 1002), "e": (other, 1, 1001)}
    before = sriovlib.snapshot()
    pods = {}
    for number, (name, (of, index, vlan)) in enumerate(vlans.items()):
        claimed = Claimed(node, kubelet, functions()[of, index], {"vlan": vlan, "podIfName": "sriov0"}, name=name)
        pods[name] = claimed.prepare().run()
        claimed.give_address(f"10.9.0.{number + 1}/24")

    def reach(a, b, tries=1):
        return sriovlib.reaches(pods[a].via, f"10.9.0.{list(pods).index(b) + 1}", tries)
    for a, b in (("a", "b"), ("a", "e"), ("c", "d")):
        wait_for(lambda a=a, b=b: reach(a, b), 20, f"a ping from {a} to {b}")
    for a, b in (("a", "c"), ("a", "d"), ("b", "c"), ("e", "d")):
        assert not reach(a, b, 2), f"{a} reaches {b}"
    for claimed in pods.values():
        claimed.end()
    assert_as_before(before)


def test_function_of_user_space(node, kubelet, functions):
    """Bound to vfio-pci it has no link: nothing is moved, its VLAN is set and taken away."""
    pf, addr = sriovlib.pfs()[1], functions()[sriovlib.pfs()[1], 3]
    try:
        sriovlib.bind(addr, "vfio-pci")
        wait_for(lambda: node.slice_devices()[device_name(addr)]["driver"] == "vfio-pci", 20, "the new driver")
        assert "kernelIfName" not in node.slice_devices()[device_name(addr)]
        before = sriovlib.snapshot()
        claimed = Claimed(node, kubelet, addr).prepare()
        assert vlan_of(pf, 3) == 1001
        claimed.run()
        assert claimed.pod.start_container()
        assert "sriov0" not in claimed.pod.ip("-br", "link")
        node.restart_all()
        kubelet.register()
        claimed.end()
        assert vlan_of(pf, 3) == 0
        assert_as_before(before)
    finally:
        sriovlib.bind(addr, None)
    wait_for(lambda: node.slice_devices()[device_name(addr)].get("kernelIfName") == link_of(addr), 20,
             "its link in the slices again")


def test_restart_with_the_function_in_the_pod(node, kubelet, dressed):
    before = sriovlib.snapshot()
    claimed = Claimed(node, kubelet, dressed).prepare().run()
    node.restart_all()
    kubelet.register()
    devices = node.slice_devices()
    assert len(devices) == 2 * VFS
    row, = node.rows()
    assert row["DeviceName"] == device_name(dressed) and row["ClaimUID"] == claimed.claim.uid
    claimed.end()
    assert vlan_of(sriovlib.pfs()[0], 2) == 0
    assert_as_before(before)


def test_port_with_a_policy(node, kubelet, functions):
    """A VLAN that the administrator gave a port is left alone by a claim that asks for none, and is
    back when one that asked for another is done."""
    pf = sriovlib.pfs()[0]
    ip("link", "set", link_of(pf), "vf", 4, "vlan", 300, "qos", 3)
    try:
        before = sriovlib.snapshot()
        for config, during in (({"podIfName": "net1"}, 300), ({"podIfName": "net1", "vlan": 7}, 7),
                               ({"podIfName": "net1", "vlan": 0}, 0)):
            claimed = Claimed(node, kubelet, functions()[pf, 4], config).prepare()
            assert vlan_of(pf, 4) == during
            claimed.run()
            assert vlan_of(pf, 4) == during
            claimed.end()
            assert_as_before(before)
    finally:
        ip("link", "set", link_of(pf), "vf", 4, "vlan", 0)


def test_namespace_that_is_gone_before_anyone_asks(procs, rundir, functions):
    """The kernel returns the function under the name that it had in the pod."""
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        before = sriovlib.snapshot()
        addr = functions()[sriovlib.pfs()[0], 1]
        held = cycle.hold(addr, 1001, "sriov0")
        cycle.prepare(held)
        cycle.attach(held)
        cycle.node.daemons["statd"].kill()  # it holds the namespace
        cycle.delete_namespace(held)
        wait_for(lambda: link_of(addr) == "sriov0", 20, "the kernel's returning the function")
        cycle.restart("statd")
        cycle.unprepare(held)
        assert_as_before(before)


def test_status_that_is_lost_after_the_pod(procs, rundir, functions):
    """Neither the node's own record nor the status says how the port was; the audit takes the function out of
    the claim's VLAN all the same."""
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        before = sriovlib.snapshot()
        pf = sriovlib.pfs()[0]
        held = cycle.hold(functions()[pf, 3], 1001, "sriov0")
        cycle.prepare(held)
        cycle.attach(held)
        cycle.detach(held)
        assert held.claim.status
        cycle.node.daemons["statd"].kill()
        held.claim.status_path.unlink()
        state = cycle.node.state_dir
        for lost in (state / "boot", state / "claims" / f"{held.claim.uid}.json"):
            lost.unlink()
        cycle.restart("statd")
        cycle.node.daemons["dmgr-sriov"].wait_log("is taken out of VLAN 1001; what its port had before")
        wait_for(lambda: vlan_of(pf, 3) == 0, 10, "the audit")
        cycle.delete_namespace(held)
        assert_as_before(before)


def test_vlan_of_an_earlier_try_is_not_left_behind(procs, rundir, functions):
    """A link with the claim's mark alone, in the claim's VLAN: what is put back is no VLAN, not that one."""
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        before = sriovlib.snapshot()
        pf, addr = sriovlib.pfs()[0], functions()[sriovlib.pfs()[0], 3]
        held = cycle.hold(addr, 1001, "sriov0")
        ip("link", "set", link_of(addr), "alias", f"netclaim:{held.claim.uid}:{device_name(addr)}")
        ip("link", "set", link_of(pf), "vf", 3, "vlan", 1001)
        cycle.prepare(held)
        cycle.unprepare(held)
        assert vlan_of(pf, 3) == 0
        cycle.delete_namespace(held)
        assert_as_before(before)


def test_physical_function_that_is_renamed(procs, rundir, functions):
    """The configuration has its old name; the function is known by its address."""
    pf = sriovlib.pfs()[1]
    old = link_of(pf)
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        before = sriovlib.snapshot()
        held = cycle.hold(functions()[pf, 0], 1001, "sriov0")
        cycle.prepare(held)
        cycle.attach(held)
        # it stays up: igbvf can hang for ever, with the lock of all links, when a function whose adapter was reset
        # under it is taken down
        ip("link", "set", old, "name", "uplink1")
        try:
            wait_for(lambda: cycle.node.slice_devices()[device_name(held.addr)]["pfName"] == "uplink1", 20,
                     "the new name in the slices")
            cycle.restart("dmgr-sriov")
            assert any(f"interface {old}: no PCI device has a link of this name" in note
                       for note in cycle.node.status()["notes"])
            cycle.detach(held)
            cycle.unprepare(held)
            assert vlan_of(pf, 0) == 0
        finally:
            ip("link", "set", "uplink1", "name", old)
        assert_as_before(before)


def test_functions_that_are_made_anew(procs, rundir, functions):
    """A claim that was prepared with the old one has the new one in its VLAN; one whose function is gone
    is let go."""
    pf = sriovlib.pfs()[1]
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        kept, gone = (cycle.hold(functions()[pf, index], 1001, "sriov0") for index in (0, 6))
        for held in (kept, gone):
            cycle.prepare(held)
        sriovlib.set_count(pf, 0)
        sriovlib.set_count(pf, 3)
        wait_for(lambda: len(cycle.node.slice_devices()) == VFS + 3, 20, "what there is now")
        assert vlan_of(pf, 0) == 0
        cycle.attach(kept)
        assert vlan_of(pf, 0) == 1001
        assert any("has 3 virtual functions" in note for note in cycle.node.status()["notes"])
        cycle.detach(kept)
        for held in (kept, gone):
            cycle.unprepare(held)
        assert vlan_of(pf, 0) == 0
    sriovlib.set_count(pf, VFS)
    wait_links(functions)


def test_functions_that_vanish_from_the_pods(procs, rundir, functions):
    """Their claims end all the same, and the new ones can be claimed."""
    pfs = sriovlib.pfs()
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        wait_links(functions)
        addrs = [functions()[pf, 0] for pf in pfs]
        pods = [cycle.hold(addr, 1001, "sriov0") for addr in addrs]
        for held in pods:
            cycle.prepare(held)
            cycle.attach(held)
        for pf in pfs:
            sriovlib.set_count(pf, 0)
        assert all("sriov0" not in held.netns.ip("-br", "link") for held in pods)
        for pf in pfs:
            sriovlib.set_count(pf, VFS)
            wait_for(lambda pf=pf: all(link_of(a) for a in sriovlib.vfs_of(pf)), 20, "links of the new ones")
        for held in pods:
            cycle.detach(held)
            cycle.unprepare(held)
        assert cycle.node.rows() == [] and [vlan_of(pf, 0) for pf in pfs] == [0, 0]
        before = sriovlib.snapshot()
        assert not any(link.get("ifalias") for link in before[0].values())
        for addr in addrs:
            held = cycle.hold(addr, 1002, "sriov0")
            for step in STEPS:
                getattr(cycle, step)(held)
        assert_as_before(before)


# --- dmgr-sriov alone, and the kernel that returns what a namespace held -----------------------------


class Manager(managed.Statd):
    """dmgr-sriov, called by the test in statd's place."""

    def __init__(self, procs, rundir):
        super().__init__(rundir, {"enabled": True, "ifaces": [{"ifName": link_of(pf), "vfCount": VFS}
                                                              for pf in sriovlib.pfs()]})
        self.start()
        self.process = procs.start(procs.build / "dmgr-sriov", "--runtime-dir", rundir, "--sysfs-root", "/sys",
                                   name="dmgr-sriov")
        self.next_hello()
        self.restore()
        self.devices = {d["name"]: d for d in self.inventories.get(timeout=60)["devices"]}

    def device(self, addr):
        """As it is by now."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.devices = {d["name"]: d for d in self.inventories.get_nowait()["devices"]}
        return self.devices[device_name(addr)]

    def setup(self, addr, **config):
        allocation = {"device": self.devices[device_name(addr)], "claimUID": str(uuid.uuid4()), "config": config}
        return {**allocation, "device": self.call("device.setup", allocation)["device"]}

    def in_pod(self, method, pod, allocation):
        with socket.socket(fileno=pod.open_socket()) as sock:
            return self.call(method, {"allocation": allocation, "ifName": "net1", "sandboxID": "5a5a5a"},
                             [pod.fd, sock.fileno()])


@pytest.fixture
def manager(procs, rundir, functions):
    m = Manager(procs, rundir)
    wait_for(lambda: len(functions()) == 2 * VFS and all(link_of(a) for a in functions().values()), 20,
             "links of all functions")
    yield m
    m.stop()


@pytest.fixture
def dressed_alone(manager, functions):
    addr = functions()[sriovlib.pfs()[0], 2]
    dress(addr, 1)
    yield addr
    undress(addr, 1)


@pytest.mark.parametrize("again", [False, True])
def test_setup_of_a_function_of_user_space_that_was_cut_off(manager, functions, again):
    """It has no link to note the administrator's VLAN on; it was observed before, and that is known."""
    pf, addr = sriovlib.pfs()[1], functions()[sriovlib.pfs()[1], 4]
    try:
        sriovlib.bind(addr, "vfio-pci")
        wait_for(lambda: manager.device(addr).get("observe"), 20, "the new driver")
        ip("link", "set", link_of(pf), "vf", 4, "vlan", 33, "qos", 2)
        before = sriovlib.snapshot()
        allocation = {"device": manager.device(addr), "claimUID": str(uuid.uuid4()), "config": {"vlan": 1001}}
        observed = {**allocation, "device": manager.call("device.observe", allocation)["device"]}
        assert_as_before(before)
        manager.call("device.setup", observed)
        assert vlan_of(pf, 4) == 1001
        if again:  # nobody has heard the answer
            observed = {**observed, "device": manager.call("device.observe", observed)["device"]}
            manager.call("device.setup", observed)
        assert manager.call("device.free", observed) == {}
        assert_as_before(before)
    finally:
        ip("link", "set", link_of(pf), "vf", 4, "vlan", 0)
        sriovlib.bind(addr, None)
    wait_for(lambda: link_of(addr), 20, "its link")


@pytest.mark.parametrize("name,alias", [
    ("spoilt", "netclaim:another-claim:0000-01-10-4"), (os.fsdecode(b"sp\xe9ilt"), "netclaim:"),
    ("spoilt", os.fsdecode(b"caf\xe9")), ("spoilt", "")])
def test_reclaim_of_what_the_kernel_returned(manager, dressed_alone, name, alias):
    """Nobody detaches; the namespace ends, and the function is on the host with all that the pod left on it."""
    addr, pf = dressed_alone, sriovlib.pfs()[0]
    before = sriovlib.snapshot()
    own = link_of(addr)
    prepared = manager.setup(addr, vlan=1001)
    pod = nsfd.Netns()
    manager.in_pod("device.attach", pod, prepared)
    assert manager.refused("busy", "device.reclaim", prepared).startswith(f"the link of virtual function {addr} is not on")
    pod.run("ip", "link", "set", "net1", "down")
    pod.run("ip", "link", "set", "net1", "name", name, "mtu", "1500", "txqueuelen", "3", "alias", alias)
    pod.run("ip", "link", "set", name, "address", "02:00:00:00:00:07", "group", "9")
    pod.run("ip", "link", "set", name, "multicast", "on", "allmulticast", "off", "promisc", "on", "arp", "off")
    pod.run("ip", "link", "property", "add", "dev", name, "altname", "the-pods-own")
    pod.run("ip", "link", "set", name, "up")
    pod.close()
    wait_for(lambda: link_of(addr), 20, "the kernel's returning the function")
    ip("link", "set", link_of(pf), "vf", 2, "vlan", 0)  # as one that was made anew
    assert manager.call("device.reclaim", prepared) == {}
    assert vlan_of(pf, 2) == 1001
    during = sriovlib.snapshot()
    assert during[0][own].pop("ifalias") == f"netclaim:{prepared['claimUID']}:{device_name(addr)}"
    assert during[0][own] == {k: v for k, v in before[0][own].items() if k != "ifalias"}
    assert during[1][own] == before[1][own]
    assert manager.call("device.reclaim", prepared) == {}
    assert manager.call("device.free", prepared) == {}
    assert vlan_of(pf, 2) == 0
    assert_as_before(before)
    assert "not all of it is as it was" not in manager.process.log


@pytest.mark.parametrize("alias", ["netclaim:another-claim:0000-01-10-4", "netclaim:", ""])
def test_detach_marks_anew_whatever_the_pod_has_written(manager, dressed_alone, alias):
    """The mark of another claim was believed: the function was on the host and not found there."""
    addr, pf = dressed_alone, sriovlib.pfs()[0]
    before = sriovlib.snapshot()
    own = link_of(addr)
    prepared = manager.setup(addr, vlan=1001)
    with nsfd.Netns() as pod:
        manager.in_pod("device.attach", pod, prepared)
        pod.run("ip", "link", "set", "net1", "alias", alias)
        assert manager.in_pod("device.detach", pod, prepared) == {}
        assert sriovlib.snapshot()[0][own]["ifalias"] == f"netclaim:{prepared['claimUID']}:{device_name(addr)}"
    assert manager.call("device.free", prepared) == {}
    assert vlan_of(pf, 2) == 0
    assert_as_before(before)


def test_values_that_the_adapter_does_not_take_back(manager, functions):
    """Its physical function was set to an MTU of 1500 meanwhile: the function is back, and what differs is reported."""
    pf = sriovlib.pfs()[0]
    addr = functions()[pf, 3]
    own, uplink = link_of(addr), link_of(pf)
    ip("link", "set", uplink, "mtu", 9000)
    ip("link", "set", own, "mtu", 9000)
    try:
        prepared = manager.setup(addr)
        with nsfd.Netns() as pod:
            manager.in_pod("device.attach", pod, prepared)
            pod.ip("link set net1 mtu 1400")
            ip("link", "set", uplink, "vf", 3, "mac", "02:00:00:00:00:33")  # the function's own is refused from now on
            pod.ip("link set net1 down")
            ip("link", "set", uplink, "mtu", 1500)
            assert manager.in_pod("device.detach", pod, prepared) == {}
        assert link_of(addr) == own
        print(manager.process.log)
        assert manager.call("device.free", prepared) == {}
        assert "ifalias" not in json.loads(ip("-j", "link", "show", own))[0]
    finally:
        ip("link", "set", uplink, "mtu", 1500)
        ip("link", "set", own, "mtu", 1500)


# --- what the manager sees and says, led by the test as its statd -----------------------------------


class Led(managed.Statd):
    """dmgr-sriov on the VM's adapters, whose statd is the test."""

    def __init__(self, procs, rundir):
        super().__init__(rundir, {"enabled": True})
        self.procs = procs
        self.start()
        self.process, self.devices, self.verdicts = None, {}, []

    def run(self, *allocations):
        self.process = self.procs.start("dmgr-sriov", "--runtime-dir", self.rundir, "--sysfs-root", "/sys", "--log-level",
                                        "debug")
        self.next_hello()
        self.verdicts = self.restore(*allocations)
        self.devices = {device["name"]: device for device in self.next_inventory()}
        return self

    def wait(self, condition, what):
        """For an inventory of which this holds."""
        def look():
            while not condition(self.devices):
                self.devices = {device["name"]: device for device in self.next_inventory()}
            return True
        wait_for(look, 20, what)

    def setup(self, addr, **config):
        more = {"claimUID": str(uuid.uuid4()), "config": config}
        device = self.call("device.setup", {"device": self.devices[device_name(addr)], **more})["device"]
        return {"device": device, **more}

    def move(self, method, pod, allocation):
        params = {"allocation": allocation, "ifName": "net1", "sandboxID": "5a5a"}
        with socket.socket(fileno=pod.open_socket()) as sock:
            return self.call(method, params, [pod.fd, sock.fileno()])


@pytest.fixture
def led(procs, rundir, functions):
    for pf in sriovlib.pfs():
        sriovlib.set_count(pf, VFS)
    wait_links(functions)
    statd = Led(procs, rundir)
    yield statd
    statd.stop()


def max_mtu(devices, addr):
    return devices[device_name(addr)]["attributes"]["maxMTU"]["int"]


def without_speed(device):
    """The port's, which has none for a moment after its functions were made."""
    return {**device, "attributes": {k: v for k, v in device["attributes"].items() if k != "linkSpeed"}}


def test_link_whose_namespace_ends_is_reported(led, functions):
    """Once; a move of the manager's own is not. The largest MTU is known all the time, also to a new process."""
    pf, addr = sriovlib.pfs()[0], functions()[sriovlib.pfs()[0], 2]
    before = sriovlib.snapshot()
    prepared = led.run().setup(addr, vlan=1001)
    device = led.devices[device_name(addr)]
    with nsfd.Netns() as pod:
        led.move("device.attach", pod, prepared)
        led.move("device.detach", pod, prepared)
        led.move("device.attach", pod, prepared)
        led.process.kill()
        led.run(prepared)
        assert without_speed(led.devices[device_name(addr)]) == without_speed(device)
        assert max_mtu(led.devices, addr) == 1500
        assert without_speed(led.verdicts[0]["device"])["attributes"] == without_speed(device)["attributes"]
    assert led.next_appeared() == device_name(addr)
    assert link_of(addr) == "net1"
    led.call("device.free", prepared)
    assert vlan_of(pf, 2) == 0 and led.appeared.empty()
    assert_as_before(before)


def test_link_that_comes_late(led, functions):
    """By a driver that is bound anew, or from a namespace that no claim knows: its function is offered then."""
    addr = functions()[sriovlib.pfs()[0], 3]
    name, device = link_of(addr), device_name(addr)
    led.run()
    (sriovlib.PCI / addr / "driver/unbind").write_text(addr)
    led.wait(lambda devices: device not in devices, "an inventory without it")
    assert led.notes == [f"virtual function {addr} is not offered: no driver is bound to it"]
    sriovlib.bind(addr, None)
    led.wait(lambda devices: device in devices, "an inventory with it")
    name = link_of(addr)
    assert led.devices[device]["kernelIfName"] == name and led.notes == []
    with nsfd.Netns() as other:
        ip("link", "set", name, "netns", other.path)
        led.wait(lambda devices: device not in devices, "an inventory without it")
        note, = led.notes
        assert note.startswith(f"virtual function {addr} is not offered: it has no link on the host")
        other.ip(f"link set {name} netns {os.getpid()}")
        led.wait(lambda devices: device in devices, "an inventory with it")
    assert led.notes == []


def test_names_that_no_message_can_hold(led, functions):
    """A pod's name for its function, on the host when its namespace has ended: all are offered as before, and it is
    given back."""
    addr = functions()[sriovlib.pfs()[1], 1]
    before = sriovlib.snapshot()
    prepared = led.run().setup(addr)
    devices = dict(led.devices)
    with nsfd.Netns() as pod:
        led.move("device.attach", pod, prepared)
        pod.ip("link set net1 down")
        subprocess.run(pod.inside("ip", "link", "set", "net1", "name") + [b"eth\xe9"], check=True)
    assert led.next_appeared() == device_name(addr)
    led.process.kill()
    led.run(prepared)
    assert led.devices == devices and led.notes == [] and led.hellos.empty()
    led.call("device.free", prepared)
    assert_as_before(before)


def test_changes_of_a_physical_function(led, functions):
    """Another alternative name, another MTU: what is offered follows, and a VLAN that is set on it costs no look."""
    pf, other = sriovlib.pfs()
    link, addr = link_of(pf), functions()[pf, 0]
    led.run()
    assert max_mtu(led.devices, addr) == 1500
    ip("link", "property", "add", "dev", link, "altname", "an-older-name-of-this-adapter")
    try:
        led.wait(lambda devices: "alternatives" in devices[device_name(addr)], "the alternative name")
        assert led.devices[device_name(addr)]["alternatives"] == {"pfName": ["an-older-name-of-this-adapter"]}
    finally:
        ip("link", "property", "del", "dev", link, "altname", "an-older-name-of-this-adapter")
    led.wait(lambda devices: "alternatives" not in devices[device_name(addr)], "its end")
    sriovlib.set_count(pf, 0)  # the adapter is reset
    ip("link", "set", link, "mtu", 9000)
    sriovlib.set_count(pf, VFS)
    try:
        led.wait(lambda devices: device_name(addr) in devices and max_mtu(devices, addr) == 9000, "the larger MTU")
        assert max_mtu(led.devices, functions()[other, 0]) == 1500
    finally:
        sriovlib.set_count(pf, 0)
        ip("link", "set", link, "mtu", 1500)
        sriovlib.set_count(pf, VFS)
        wait_links(functions)


def test_adapter_that_is_known_by_an_older_name(procs, rundir, functions):
    """Configured by an alternative name, its functions are made, and a pool takes them by it."""
    pf, other = sriovlib.pfs()
    for addr in (pf, other):
        sriovlib.set_count(addr, 0)
    ip("link", "property", "add", "dev", link_of(pf), "altname", "an-older-name-of-this-adapter")
    try:
        node = Node(procs, rundir)
        node.configure(h.config({"sriov": {"enabled": True, "ifaces": [
            {"ifName": "an-older-name-of-this-adapter", "vfCount": 3}, {"ifName": link_of(other), "vfCount": 2}]}},
            [{"name": "pool", "filter": {"pfNames": ["an-older-name-of-this-adapter"]}}]))
        node.start_all()
        wait_for(lambda: (node.claims_dir / "resourceslices.json").exists() and node.slice_devices(), 10, "the slices")
        assert sorted(node.slice_devices()) == sorted(device_name(a) for a in sriovlib.vfs_of(pf))
        assert len(sriovlib.vfs_of(pf)) == 3 and len(sriovlib.vfs_of(other)) == 2
    finally:
        ip("link", "property", "del", "dev", link_of(pf), "altname", "an-older-name-of-this-adapter")
        for addr in (pf, other):
            sriovlib.set_count(addr, 0)
            sriovlib.set_count(addr, VFS)
    wait_links(functions)


# --- names of the longest kind, and names that are taken ------------------------------------------

LONG = "an-alternative-name-is-longer-than-that"


def rename(old, new):
    ip("link", "set", old, "down")
    ip("link", "set", old, "name", new)


def refusal(cycle, method, params, fds=()):
    with pytest.raises(mprpc.Error) as error:
        cycle.front.call(method, params, list(fds), 30)
    return str(error.value)


@pytest.fixture
def longest(procs, rundir, functions):
    """A cycle, and a function with a name of the longest kind and alternative ones."""
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        addr = functions()[sriovlib.pfs()[0], 5]
        own = wait_for(lambda: link_of(addr), 20, f"a link of {addr}")
        rename(own, "fifteen-bytes-0")
        for altname in ("fifteen-bytes-1", LONG):
            ip("link", "property", "add", "dev", "fifteen-bytes-0", "altname", altname)
        yield cycle, addr
    # a test that failed has had it in a namespace that is gone by now
    name = wait_for(lambda: link_of(addr), 20, f"a link of {addr}")
    link, = json.loads(ip("-j", "link", "show", name))
    for altname in link.get("altnames", ()):
        ip("link", "property", "del", "dev", name, "altname", altname)
    rename(name, own)


def test_names_of_either_side(longest):
    """In the pod it is called by what was its alternative name; what the pod called it stays there."""
    cycle, addr = longest
    before = sriovlib.snapshot()
    held = cycle.hold(addr, 1001, "fifteen-bytes-1")
    cycle.prepare(held)
    cycle.attach(held)
    link, = json.loads(held.netns.ip("-d", "-j", "link", "show", "fifteen-bytes-1"))
    assert link["ifname"] == "fifteen-bytes-1" and link["parentdev"] == addr
    assert link["altnames"] == [LONG]
    held.netns.ip("link", "property", "add", "dev", "fifteen-bytes-1", "altname", "an-alternative-name-of-the-pod")
    held.netns.ip("link", "property", "add", "dev", "fifteen-bytes-1", "altname", "fifteen-bytes-0")
    cycle.detach(held)
    cycle.unprepare(held)
    assert_as_before(before)


@pytest.mark.parametrize("taken", ["fifteen-bytes-0", LONG])
def test_name_that_the_host_has_given_away(longest, taken):
    """The function comes back all the same; its name is reported, and it has it again when that is free."""
    cycle, addr = longest
    before = sriovlib.snapshot()
    held = cycle.hold(addr, 1001, "net1")
    cycle.prepare(held)
    cycle.attach(held)
    ip("link", "add", "taker", "type", "dummy")
    ip("link", "property", "add", "dev", "taker", "altname", taken)
    try:
        cycle.detach(held)
        name = link_of(addr)
        link, = json.loads(ip("-j", "link", "show", name))
        assert link["ifalias"] == f"netclaim:{held.claim.uid}:{device_name(addr)}"
        assert (name == "fifteen-bytes-0") == (taken == LONG) and "net1" not in (name, *link.get("altnames", ()))
        log = cycle.node.daemons["dmgr-sriov"].log
        assert f"name is {name}, was {taken}" in log or f"alternative name {taken} is missing" in log
    finally:
        ip("link", "del", "taker")
    cycle.unprepare(held)
    assert vlan_of(sriovlib.pfs()[0], 5) == 0
    assert_as_before(before)


@pytest.mark.parametrize("taken", ["net1", LONG])
def test_name_that_the_pod_has_already(longest, taken):
    cycle, addr = longest
    before = sriovlib.snapshot()
    held = cycle.hold(addr, 1001, "net1")
    cycle.prepare(held)
    prepared = sriovlib.snapshot()
    held.netns.ip("link", "property", "add", "dev", "lo", "altname", taken)
    with open(held.netns.path, "rb") as netns:
        said = refusal(cycle, "pod.attach", held.pod, [netns.fileno()])
    assert taken in said
    mark = sriovlib.snapshot()[0][link_of(addr)]["ifalias"]
    assert mark.split()[0] == f"netclaim:{held.claim.uid}:{device_name(addr)}"
    prepared[0][link_of(addr)]["ifalias"] = mark  # once a move was tried it has no note any more
    assert_as_before(prepared)
    held.netns.ip("link", "property", "del", "dev", "lo", "altname", taken)
    cycle.attach(held)
    cycle.detach(held)
    cycle.unprepare(held)
    assert_as_before(before)


def test_functions_of_all_adapters_made_anew_in_another_order(procs, rundir, functions):
    """While two of them are in pods: their names have gone to others, and that keeps nobody's claim."""
    pfs = sriovlib.pfs()
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        both = [cycle.hold(functions()[pf, 0], 1001, "sriov0") for pf in pfs]
        for held in both:
            cycle.prepare(held)
            cycle.attach(held)
        for pf in pfs:
            sriovlib.set_count(pf, 0)
        for pf in reversed(pfs):
            sriovlib.set_count(pf, VFS)
        wait_links(functions)
        for held in both:
            cycle.detach(held)
            cycle.unprepare(held)
            cycle.delete_namespace(held)
        assert cycle.node.rows() == []
        for index, addr in functions().items():
            link, = json.loads(ip("-d", "-j", "link", "show", link_of(addr)))
            assert "ifalias" not in link and vlan_of(*index) == 0
    for pf in pfs:  # the order of before, for the tests that follow
        sriovlib.set_count(pf, 0)
    for pf in pfs:
        sriovlib.set_count(pf, VFS)
    wait_links(functions)


# --- attach and detach, again and again, while daemons are killed ----------------------------------


class Held:
    def __init__(self, addr, claim, netns, sandbox):
        self.addr, self.claim, self.netns = addr, claim, netns
        self.pod = {"podUID": claim.object["status"]["reservedFor"][0]["uid"], "sandboxID": sandbox}
        self.step = 0

    def delete_namespace(self):
        if self.netns:
            self.netns.__exit__()
        self.netns = None


class Cycle:
    """statd, netnsd and dmgr-sriov, and the test in the place of their callers: it asks until it is
    done, as they do."""

    KILLED = ("statd", "netnsd", "dmgr-sriov")

    def __init__(self, procs, rundir):
        self.node = Node(procs, rundir)
        self.node.start_all()
        self.front = None
        self.held = []
        self.attached = []
        self.connect()

    def connect(self):
        if self.front:
            self.front.close()
        self.front = mprpc.connect(self.node.runtime_dir / "front.sock")
        wait_for(lambda: self.front.call("front.hello", {"role": "nrihookd", "version": "0"})["ready"], 20,
                 "statd's being ready")

    def synchronize(self):
        """What nrihookd does after a restart of statd, which does not know the sandboxes any more."""
        for held in self.attached:
            self.attach(held)

    def close(self):
        self.front.close()
        for held in self.held:
            held.delete_namespace()

    def restart(self, name):
        with contextlib.suppress(ProcessLookupError):
            self.node.daemons[name].kill()
        self.node.start(name)
        self.node.wait_working()
        if name == "statd":
            self.connect()
            self.synchronize()

    def hold(self, addr, vlan, if_name):
        number = len(self.held) + 1
        config = {"podIfName": if_name} | ({} if vlan is None else {"vlan": vlan})
        claim = h.Claim(self.node, f"c{number}", [result(device_name(addr))], config=[opaque(config)],
                        pod_uid=f"pod-{number}")
        self.held.append(Held(addr, claim, Netns(), f"s{number}"))
        return self.held[-1]

    def ask(self, method, params, fds=(), killing=None, delay=0.0, when_done=lambda: None):
        """Until it succeeds; a daemon is killed in the first try, after so many seconds. when_done is called
        before that daemon is started again: a statd that is new is told by it."""
        def once():
            answer = self.front.call(method, params, list(fds), 30)
            when_done()
            return answer
        killer = None
        if killing:
            def kill():
                threading.Event().wait(delay)
                self.node.daemons[killing].kill()
            killer = threading.Thread(target=kill)
            killer.start()
        try:
            return once()
        except (mprpc.Error, OSError):
            assert killer, f"{method} fails while all daemons are well"
        finally:
            if killer:
                killer.join()
                self.restart(killing)
        done = []

        def again():
            try:
                done.append(once())
                return True
            except mprpc.Error as e:
                print(f"{method}: {e}")
                return False
        wait_for(again, 60, f"{method} after {killing} was killed")
        return done[0]

    def prepare(self, held, **how):
        self.ask("claim.prepare", held.claim.ref, **how)

    def attach(self, held, **how):
        def remember():
            if held not in self.attached:
                self.attached.append(held)
        fd = held.netns.open()
        try:
            attached = self.ask("pod.attach", held.pod, [fd], when_done=remember, **how)
        finally:
            os.close(fd)
        assert attached["devices"] == 1

    def detach(self, held, **how):
        self.ask("pod.detach", held.pod, when_done=lambda: self.attached.remove(held), **how)

    def delete_namespace(self, held):
        if held in self.attached:
            self.attached.remove(held)
        held.delete_namespace()

    def unprepare(self, held, **how):
        self.ask("claim.unprepare", held.claim.ref, **how)


STEPS = ("prepare", "attach", "detach", "unprepare")


def advance(cycle, held, rng):
    """One step more, maybe with a kill in it. Whether it was the last."""
    step = STEPS[held.step]
    how = {"killing": rng.choice(Cycle.KILLED), "delay": rng.uniform(0, 0.05)} if rng.random() < 0.2 else {}
    if step == "detach" and rng.random() < 0.1:  # nobody asks, and the pod's namespace is deleted
        cycle.delete_namespace(held)
        step = "unprepare"
        held.step += 1
    getattr(cycle, step)(held, **how)
    held.step += 1
    if held.step < len(STEPS):
        return False
    held.delete_namespace()
    return True


def test_kills_at_random(procs, rundir, functions):
    """NETCLAIM_CYCLES claims over all functions, each with a VLAN of its own or none, while daemons are
    killed; NETCLAIM_SEED repeats a run."""
    print(f"seed {SEED}, {CYCLES} cycles")
    rng = random.Random(SEED)
    with contextlib.closing(Cycle(procs, rundir)) as cycle:
        wait_links(functions)
        before = sriovlib.snapshot()
        free, held = list(functions().values()), []
        begun = 0
        while begun < CYCLES or held:
            if begun < CYCLES and free and (not held or rng.random() < 0.4):
                addr = free.pop(rng.randrange(len(free)))
                held.append(cycle.hold(addr, rng.choice([None, *range(100, 110)]), rng.choice(["net1", "sriov0"])))
                begun += 1
            one = rng.choice(held)
            if advance(cycle, one, rng):
                held.remove(one)
                free.append(one.addr)
                index = next((pf, i) for (pf, i), addr in functions().items() if addr == one.addr)
                assert vlan_of(*index) == 0, f"{one.addr} is left in a VLAN"
        assert sorted(free) == sorted(functions().values())
        assert cycle.node.rows() == []
        assert_as_before(before)
