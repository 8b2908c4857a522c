# SPDX-License-Identifier: Apache-2.0
"""The very dmgr-sriov, in a network namespace that is the host to it, led by a statd on
python3-msgpack. Its sysfs is made of files, and links of another kind stand in for those of virtual
functions; they have no VLAN. With real ones it is test_sriov_vm.py."""
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import zlib

import pytest

import managed
from nsfd import Netns
from procs import STRETCH, children_of, wait_for
from sysfs_tree import SysfsTree

pytestmark = pytest.mark.needs_root

UID, UID2 = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
SANDBOX = "5a5a5a"
CAP_NET_ADMIN = 12

PF, VF0, VF1, VF2 = "0000:01:00.0", "0000:01:10.0", "0000:01:10.2", "0000:01:10.4"
DEV0, DEV1, DEV2 = "0000-01-10-0", "0000-01-10-2", "0000-01-10-4"


def kind_of_link():
    """The kernel's modules decide: both are links that a namespace's end does not return."""
    made = subprocess.run(["unshare", "--net", "ip", "link", "add", "type", "ifb"], capture_output=True, check=False)
    return "ifb" if made.returncode == 0 else "veth"


KIND = kind_of_link()


def mark(device=DEV0, uid=UID):
    return f"netclaim:{uid}:{device}"


def alloc(device, uid=UID, **changes):
    return {"device": device, "claimUID": uid, **changes}


class Statd(managed.Statd):
    """allocation, as it is in the calls, has the device that setup() returned."""

    def serve(self, *allocations):
        """From a manager's hello to its inventory, by name."""
        self.next_hello()
        verdicts = self.restore(*allocations)
        return {device["name"]: device for device in self.next_inventory()}, verdicts

    def setup(self, device, **more):
        prepared = self.call("device.setup", alloc(device, **more))["device"]
        return alloc(prepared, **more)

    def in_pod(self, method, pod, allocation, if_name="net1", refused=None):
        params = {"allocation": allocation, "ifName": if_name, "sandboxID": SANDBOX}
        with socket.socket(fileno=pod.open_socket()) as sock:
            if refused:
                return self.refused(refused, method, params, [pod.fd, sock.fileno()])
            return self.call(method, params, [pod.fd, sock.fileno()])

    def attach(self, pod, allocation, **kw):
        return self.in_pod("device.attach", pod, allocation, **kw)

    def detach(self, pod, allocation, **kw):
        return self.in_pod("device.detach", pod, allocation, **kw)


class Host(Netns):
    def add(self, name):
        """Always with the same address: this kind of link has it for life."""
        address = f"02:00:00:00:00:{zlib.crc32(name.encode()) & 0xff:02x}"
        self.ip(f"link add {name} address {address} type {KIND}" + (f" peer name {name}-peer" if KIND == "veth" else ""))

    def alias(self, name="vf0"):
        return self.links()[name].get("ifalias", "")

    def state(self, name="vf0"):
        """All that ip(8) says of a link, but for what is not the manager's to give back."""
        link, = json.loads(self.ip(f"-json -details addr show dev {name}"))
        link["flags"] = sorted(set(link["flags"]) - {"LOWER_UP", "NO-CARRIER"})
        link["altnames"] = sorted(link.get("altnames", []))
        return {key: value for key, value in link.items() if key not in ("operstate", "qdisc")}


@pytest.fixture
def tree(rundir):
    t = SysfsTree(rundir / "sys")
    t.pf(PF, "pf0", total=8, numvfs=3)
    t.vf(PF, 0, VF0, "vf0")
    t.vf(PF, 1, VF1, "vf1")
    t.vf(PF, 2, VF2, driver="vfio-pci")
    return t


@pytest.fixture
def statd(rundir):
    s = Statd(rundir, {"enabled": True})
    s.start()
    yield s
    s.stop()


@pytest.fixture
def host():
    with Host() as netns:
        netns.add("vf0")
        netns.add("vf1")
        yield netns


@pytest.fixture
def pod():
    with Netns() as netns:
        netns.ip("link add eth0 type veth peer name peer")
        yield netns


@pytest.fixture
def start(procs, rundir, host, tree):
    def start_manager():
        return procs.start(*host.inside(procs.build / "dmgr-sriov", "--runtime-dir", rundir, "--sysfs-root", tree.path,
                                        "--log-level", "debug"),
                           name="dmgr-sriov")
    return start_manager


@pytest.fixture
def manager(statd, start):
    """One that serves; devices are what it offered."""
    process = start()
    process.devices, _ = statd.serve()
    return process


@pytest.fixture
def vf0(manager):
    return manager.devices[DEV0]


# --- inventory

def attributes(**values):
    names = {"pciBusID": "resource.kubernetes.io/pciBusID", "pcieRoot": "resource.kubernetes.io/pcieRoot"}
    types = {str: "string", int: "int", bool: "bool"}
    return {names.get(name, name): {types[type(value)]: value} for name, value in values.items()}


def test_inventory(statd, start, host, tree):
    tree.set(VF1, numa_node=1)
    tree.add_rdma(VF1)
    tree.device("0000:03:00.0", "e1000e", "eth9")
    process = start()
    version = (pathlib.Path(__file__).parents[2] / "VERSION").read_text().strip()
    assert statd.next_hello() == {"type": "sr-iov", "version": version}
    assert statd.inventories.empty()
    statd.restore()
    found = statd.next_inventory()
    max_mtu = {name: link["max_mtu"] for name, link in host.links().items()}
    mtu = {name: {"maxMTU": value} if value else {} for name, value in max_mtu.items()}
    same = {"pcieRoot": "pci0000:00", "pfName": "pf0", "vendor": "0x8086", "deviceID": "0x10ca", "linkSpeed": 1000}
    seen = {"Vendor": "0x8086", "DeviceID": "0x10ca", "PFName": "pf0", "PFAddr": PF}
    assert found == [
        {"name": DEV0, "ifName": "vf0", "kernelIfName": "vf0",
         "state": {"Addr": VF0, "Driver": "igbvf", "VFID": 0, "KernelIfaceName": "vf0", **seen},
         "attributes": attributes(kernelIfName="vf0", pciBusID=VF0, driver="igbvf", vfID=0, rdma=False, **same,
                                  **mtu["vf0"])},
        {"name": DEV1, "ifName": "vf1", "kernelIfName": "vf1",
         "state": {"Addr": VF1, "Driver": "igbvf", "VFID": 1, "KernelIfaceName": "vf1", **seen},
         "attributes": attributes(kernelIfName="vf1", pciBusID=VF1, driver="igbvf", vfID=1, rdma=True, numaNode=1, **same,
                                  **mtu["vf1"])},
        {"name": DEV2,
         "state": {"Addr": VF2, "Driver": "vfio-pci", "VFID": 2, "KernelIfaceName": "", **seen},
         "attributes": attributes(pciBusID=VF2, driver="vfio-pci", vfID=2, rdma=False, **same), "observe": True},
    ]
    assert statd.notes == []
    process.wait_log("serving 3 devices")


def test_functions_that_cannot_be_offered_are_told(statd, start, tree):
    tree.bind(VF1, None)
    process = start()
    devices, _ = statd.serve()
    assert set(devices) == {DEV0, DEV2}
    assert statd.notes == [f"virtual function {VF1} is not offered: no driver is bound to it"]
    statd.stop()
    statd.start()
    statd.serve()
    assert statd.notes == [f"virtual function {VF1} is not offered: no driver is bound to it"]
    assert process.log.count("is not offered") == 1, "logged once"
    tree.bind(VF1, "igbvf")
    statd.stop()
    statd.start()
    assert set(statd.serve()[0]) == {DEV0, DEV1, DEV2} and statd.notes == []


def test_many_functions_and_as_many_problems(statd, start, tree):
    """More notes than statd takes are summed up; all of them are logged."""
    tree.pf("0000:02:00.0", "pf1", total=256, numvfs=256)
    for index in range(256):
        tree.vf("0000:02:00.0", index, f"0000:{3 + index // 32:02x}:{index % 32:02x}.0", f"pf1v{index}",
                driver="iavf" if index >= 100 else None)
    process = start()
    devices, _ = statd.serve()
    assert len(devices) == 3 + 156
    indexes = {device["attributes"]["vfID"]["int"] for device in devices.values()
               if device["attributes"]["pfName"] == {"string": "pf1"}}
    assert indexes == set(range(100, 256))
    assert len(statd.notes) == 64 and statd.notes[63] == "and 37 more; the log has all"
    assert process.log.count("is not offered") == 100
    for addr in [f"0000:{3 + index // 32:02x}:{index % 32:02x}.0" for index in range(100)]:
        tree.bind(addr, "iavf")
    statd.stop()
    statd.start()
    assert len(statd.serve()[0]) == 3 + 256 and statd.notes == []


def test_no_functions_are_published_too(statd, start, tree):
    for addr in (VF0, VF1, VF2):
        tree.remove(addr)
    start()
    assert statd.serve()[0] == {} and statd.notes == []


def link_event(host, addr, name="whatever", action="add"):
    host.uevent(action, "net", f"/devices/pci0000:00/0000:00:01.0/{addr}/net/{name}")


def test_links_behind_virtio(statd, start, host, tree):
    """Of physical function and virtual ones, also with another driver's physical function."""
    virtio_pf = "0000:02:00.0"
    tree.pf(virtio_pf, None, total=2, driver="virtio-pci")
    tree.add_netdev(virtio_pf, "pf1", below="virtio1", bus="virtio", speed=25000)
    tree.vf(virtio_pf, 0, "0000:02:00.1", driver="virtio-pci")
    tree.add_netdev("0000:02:00.1", "vf8", below="virtio3", bus="virtio")
    tree.vf(PF, 3, "0000:01:10.6", driver="virtio-pci")
    tree.add_netdev("0000:01:10.6", "vf9", below="virtio4")
    host.add("vf9")
    statd.config["ifaces"] = [{"ifName": "pf1", "vfCount": 2}]
    start()
    devices, _ = statd.serve()
    assert statd.notes == [] and tree.num_vfs(virtio_pf) == 2
    assert devices["0000-02-00-1"]["kernelIfName"] == "vf8"
    assert devices["0000-02-00-1"]["attributes"]["pfName"] == {"string": "pf1"}
    assert devices["0000-02-00-1"]["attributes"]["linkSpeed"] == {"int": 25000}
    assert devices["0000-01-10-6"]["kernelIfName"] == "vf9"
    prepared = statd.setup(devices["0000-01-10-6"])
    assert host.alias("vf9").startswith(mark("0000-01-10-6"))
    statd.call("device.free", prepared)
    (tree.dir(virtio_pf) / "virtio1/net/pf1").rename(tree.dir(virtio_pf) / "virtio1/net/uplink1")
    host.uevent("move", "net", f"/devices/pci0000:00/0000:00:01.0/{virtio_pf}/virtio1/net/uplink1")
    renamed, = [d for d in statd.next_inventory() if d["name"] == "0000-02-00-1"]
    assert renamed["attributes"]["pfName"] == {"string": "uplink1"}


def rename(host, tree, addr, old, new):
    """A link, to any bytes, as the kernel lets one be called."""
    subprocess.run(host.inside("ip", "link", "set", "dev") + [old, "name", new], check=True)
    net = bytes(tree.dir(addr) / "net") + b"/"
    os.rename(net + old, net + new)


@pytest.mark.parametrize("name,shown", [(b"eth\xe9", "eth?"), (b"\x01", "?"), (b"v\x7f", "v?")])
def test_name_that_cannot_be_published(statd, start, tree, host, name, shown):
    """It keeps no other function away; of one that is prepared the name of before counts, and it is given back."""
    start()
    devices, _ = statd.serve()
    prepared = statd.setup(devices[DEV0])
    for link, addr in (("vf0", VF0), ("vf1", VF1)):
        rename(host, tree, addr, link.encode(), name + link[2:].encode())
        link_event(host, addr)
    found = {d["name"]: d for d in statd.next_inventory()}
    assert set(found) == {DEV0, DEV2} and found[DEV0] == devices[DEV0]
    assert statd.notes == [f'virtual function {VF1} is not offered: its link is called "{shown}1", which is not a name that '
                           "can be published: rename it"]
    assert statd.hellos.empty(), "statd took all messages"
    statd.call("device.free", prepared)
    rename(host, tree, VF1, name + b"1", b"vf1")
    assert host.alias("vf0") == ""


def test_leftover_whose_name_no_message_can_hold(statd, tree, host, vf0):
    """It is reported without it, and freed."""
    statd.setup(vf0)
    rename(host, tree, VF0, b"vf0", b"eth\xe9")
    leftover, = statd.call("device.audit", {"claimUIDs": []})["leftovers"]
    assert "kernelIfName" not in leftover["device"] and leftover["claimUID"] == UID
    statd.call("device.free", leftover)
    rename(host, tree, VF0, b"eth\xe9", b"vf0")
    assert host.alias() == "" and statd.hellos.empty()


def test_setup_whose_answer_no_message_can_hold(statd, tree, host, vf0):
    """Its link was renamed a moment ago: refused, and nothing is left of it."""
    host.ip("link set vf0 alias before")
    rename(host, tree, VF0, b"vf0", b"eth\xe9")
    assert "UTF-8" in statd.refused("conflict", "device.setup", alloc(vf0))
    rename(host, tree, VF0, b"eth\xe9", b"vf0")
    assert host.alias() == "before" and statd.hellos.empty()


def test_link_that_is_made_late(statd, start, tree, host):
    """Until then its function is not offered, and a note says why."""
    tree.remove_netdev(VF0, "vf0")
    start()
    devices, _ = statd.serve()
    assert set(devices) == {DEV1, DEV2}
    note, = statd.notes
    assert note.startswith(f"virtual function {VF0} is not offered: it has no link on the host: its driver igbvf has not")
    assert "not in the inventory" in statd.refused("not_found", "device.setup", alloc({**devices[DEV1], "name": DEV0}))
    tree.add_netdev(VF0, "vf0")
    link_event(host, VF0)
    found = {d["name"]: d for d in statd.next_inventory()}
    assert found[DEV0]["kernelIfName"] == "vf0" and statd.notes == []
    statd.setup(found[DEV0])
    assert statd.appeared.empty()


def test_largest_mtu_is_what_can_be_used(statd, start, tree, host, pod):
    """At most the physical function's, and known while the function is in a pod, also to a new process."""
    host.ip("link add vf8 type veth peer name vf8-peer")
    tree.vf(PF, 3, "0000:01:10.6", "vf8")
    device = "0000-01-10-6"
    process = start()
    devices, _ = statd.serve()
    assert devices[device]["attributes"]["maxMTU"] == {"int": 65535}
    tree.set_netdev(PF, "pf0", mtu=1500)
    link_event(host, PF, "pf0", "move")
    found = {d["name"]: d for d in statd.next_inventory()}
    assert found[device]["attributes"]["maxMTU"] == {"int": 1500}
    prepared = statd.setup(found[device])
    assert prepared["device"]["attributes"]["maxMTU"] == {"int": 1500}
    statd.attach(pod, prepared)
    tree.remove_netdev("0000:01:10.6", "vf8")
    process.kill()
    tree.set_netdev(PF, "pf0", mtu=9000)
    start()
    found, (verdict,) = statd.serve(prepared)
    assert found[device]["attributes"]["maxMTU"] == {"int": 9000} == verdict["device"]["attributes"]["maxMTU"]
    assert found[device]["kernelIfName"] == "vf8"
    statd.detach(pod, prepared)


def test_physical_function_without_a_link(statd, start, tree, host, manager):
    """It is in another namespace, say: what is prepared stays offered and can be freed, the rest is not offered."""
    prepared = statd.setup(manager.devices[DEV0])
    tree.remove_netdev(PF, "pf0")
    link_event(host, PF, "pf0", "remove")
    device, = statd.next_inventory()
    assert device == manager.devices[DEV0]
    assert statd.notes == [
        f"virtual function {VF0} is prepared, and offered as it was: physical function {PF}: has no link on the host",
        f"virtual function {VF1} is not offered: physical function {PF}: has no link on the host",
        f"virtual function {VF2} is not offered: physical function {PF}: has no link on the host"]
    statd.call("device.free", prepared)
    assert host.alias() == ""


def test_more_functions_than_can_be_offered(statd, start, tree):
    """The first, and before them what is prepared; a note says so."""
    tree.pf("0000:80:00.0", "pf8", total=4200, numvfs=4200)
    for index in range(4100):
        tree.vf("0000:80:00.0", index, f"0001:{index // 256:02x}:{index // 8 % 32:02x}.{index % 8}", driver="vfio-pci")
    last = "0001-10-00-3"
    state = {"Addr": "0001:10:00.3", "Driver": "vfio-pci", "VFID": 4099, "PFAddr": "0000:80:00.0"}
    start()
    devices, _ = statd.serve(alloc({"name": last, "state": state}))
    assert len(devices) == 4096
    assert statd.notes == ["there are 4103 devices, and 7 of them are not offered: a manager offers at most 4096, first "
                           "those that are prepared, then by name"]
    assert {DEV0, DEV1, DEV2, last} < set(devices) and "0001-10-00-2" not in devices


@pytest.mark.parametrize("configured", ["old-name-of-pf1", "a-name-that-only-an-alternative-one-can-be"])
def test_alternative_names(statd, start, tree, host, configured):
    """Of a physical function: to provision it, and for pools, which are no part of what users see."""
    host.add("pf1")
    host.add("pf0")
    names = [("pf1", configured), ("pf0", "eth0"), ("pf0", "a-name-of-more-than-fifteen"), ("vf0", "v0")]
    for link, altname in names:
        host.ip(f"link property add dev {link} altname {altname}")
    tree.pf("0000:02:00.0", "pf1", total=4)
    statd.config["ifaces"] = [{"ifName": configured, "vfCount": 4}]
    start()
    devices, _ = statd.serve()
    assert tree.num_vfs("0000:02:00.0") == 4 and statd.notes == []
    of_pf = ["eth0", "a-name-of-more-than-fifteen"]
    assert devices[DEV0]["alternatives"] == {"pfName": of_pf, "kernelIfName": ["v0"]}
    assert devices[DEV1]["alternatives"] == {"pfName": of_pf}


def test_changes_of_a_physical_function_are_seen(statd, start, tree, host):
    """Of which there is no uevent: an alternative name, an MTU. Those of other links are dropped by the kernel."""
    host.add("pf0")
    host.ip("link set pf0 up")  # of one that is down the kernel does not report another name
    process = start()
    assert "alternatives" not in statd.serve()[0][DEV1]
    host.ip("link set vf1 mtu 1400")
    host.ip("link property add dev vf1 altname of-no-physical-function")
    host.ip("link property add dev pf0 altname eth0")
    found = {d["name"]: d for d in statd.next_inventory()}
    assert found[DEV0]["alternatives"] == {"pfName": ["eth0"]}
    tree.set_netdev(PF, "pf0", mtu=1300)
    host.ip("link add vf8 type veth peer name vf8-peer")
    tree.vf(PF, 3, "0000:01:10.6", "vf8")
    host.ip("link set pf0 mtu 1300")
    found = {d["name"]: d for d in statd.next_inventory()}
    assert found["0000-01-10-6"]["attributes"]["maxMTU"] == {"int": 1300}
    host.ip("link property del dev pf0 altname eth0")
    found = {d["name"]: d for d in statd.next_inventory()}
    assert "alternatives" not in found[DEV0]
    assert process.running()


# --- links that come back by themselves

def test_link_that_comes_back_by_itself_is_reported(statd, start, tree, host, pod, vf0):
    """Not one that the manager has moved itself."""
    prepared = statd.setup(vf0)
    tree.remove_netdev(VF0, "vf0")
    statd.attach(pod, prepared)
    tree.add_netdev(VF0, "vf0")
    statd.detach(pod, prepared)
    link_event(host, VF0)
    tree.remove_netdev(VF0, "vf0")
    statd.attach(pod, prepared)
    tree.add_netdev(VF0, "net1")
    link_event(host, VF0, "net1")
    assert statd.next_appeared() == DEV0
    statd.detach(pod, prepared)
    assert statd.appeared.empty() and statd.inventories.empty()


def test_link_that_comes_back_while_statd_is_away(statd, start, tree, host, pod, vf0):
    prepared = statd.setup(vf0)
    tree.remove_netdev(VF0, "vf0")
    statd.attach(pod, prepared)
    statd.stop()
    tree.add_netdev(VF0, "net1")
    link_event(host, VF0, "net1")
    statd.start()
    statd.serve(prepared)
    assert statd.next_appeared() == DEV0


# --- configuration

@pytest.mark.parametrize("more", ["", "/", "//"])
def test_sysfs_that_is_the_configured_one(statd, start, tree, more):
    statd.config["sysBusPCIDevPath"] = f"{tree.path}{more}"
    start()
    assert len(statd.serve()[0]) == 3


def test_sysfs_that_is_another(statd, start, tree):
    statd.config["sysBusPCIDevPath"] = "/another/sys"
    start().wait_log("cannot serve")
    message = statd.refused("unavailable", "device.restore", {"allocations": []})
    assert f"sysBusPCIDevPath is /another/sys, but dmgr-sriov reads {tree.path}: start it with " \
        "--sysfs-root /another/sys" in message


@pytest.mark.parametrize("config,why", [
    ({"ifaces": [{"ifName": "pf/0", "vfCount": 1}]}, "ifName"),
    ({"ifaces": [{"vfCount": 1}]}, "ifName"),
    ({"ifaces": [{"ifName": "pf0", "vfCount": -1}]}, "vfCount"),
    ({"ifaces": [{"ifName": "pf0", "vfCount": 65536}]}, "vfCount"),
    ({"ifaces": "pf0"}, "ifaces"),
])
def test_wrong_configuration_is_told_to_statd(statd, start, tree, config, why):
    statd.config.update(config)
    start().wait_log("cannot serve")
    assert why in statd.refused("unavailable", "device.restore", {"allocations": []})
    assert tree.num_vfs(PF) == 3


@pytest.mark.parametrize("root,why", [("nowhere", "No such file"), ("run.log", "Not a directory")])
def test_sysfs_must_be_there(procs, rundir, host, root, why):
    (rundir / "run.log").write_text("")
    process = procs.start(*host.inside(procs.build / "dmgr-sriov", "--runtime-dir", rundir, "--sysfs-root", rundir / root),
                          name="dmgr-sriov")
    assert process.wait_exit() != 0
    assert "--sysfs-root" in process.log and why in process.log


# --- provisioning

def test_functions_are_made(statd, start, tree):
    """One interface that cannot be served keeps nobody else's functions away, and is tried again."""
    tree.pf("0000:02:00.0", "pf1", total=4)
    statd.config["ifaces"] = [{"ifName": "pf9", "vfCount": 1}, {"ifName": "pf1", "vfCount": 4},
                              {"ifName": "pf0", "vfCount": 2}]
    process = start()
    assert set(statd.serve()[0]) == {DEV0, DEV1, DEV2}
    assert tree.num_vfs("0000:02:00.0") == 4 and tree.num_vfs(PF) == 3
    assert statd.notes[0] == "interface pf9: no PCI device has a link of this name"
    assert statd.notes[1].startswith("interface pf0: has 3 virtual functions, which are left as they are, not 2")
    assert f"echo 0 > /sys/bus/pci/devices/{PF}/sriov_numvfs" in statd.notes[1] and len(statd.notes) == 2
    assert len(children_of(process.pid)) == 1
    tree.pf("0000:04:00.0", "pf9", total=1)
    assert len(statd.next_inventory()) == 3 and len(statd.notes) == 1
    assert tree.num_vfs("0000:04:00.0") == 1
    wait_for(lambda: not children_of(process.pid), what="the end of the child that has nothing left to do")


def test_child_is_gone_when_nothing_is_configured(statd, manager):
    wait_for(lambda: not children_of(manager.pid), what="the end of the child")


def test_killed_child_is_told(statd, start, tree):
    tree.pf("0000:02:00.0", "pf1", total=4)
    statd.config["ifaces"] = [{"ifName": "pf1", "vfCount": 5}]
    process = start()
    statd.serve()
    assert statd.notes == ["interface pf1: can have at most 4 virtual functions, not 5"]
    child, = children_of(process.pid)
    subprocess.run(["kill", "-9", str(child)], check=True)
    wait_for(lambda: not children_of(process.pid), what="the end of the child")
    statd.config["ifaces"] = [{"ifName": "pf1", "vfCount": 4}]
    statd.stop()
    statd.start()
    assert len(statd.serve()[0]) == 3
    assert statd.notes == ["interface pf1: the process that makes virtual functions has ended: restart dmgr-sriov"]
    assert tree.num_vfs("0000:02:00.0") == 0


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_privileges_are_those_of_the_table(statd, start):
    statd.config["ifaces"] = [{"ifName": "pf9", "vfCount": 1}]  # the child stays
    process = start()
    statd.serve()
    child, = children_of(process.pid)
    for pid, caps in ((process.pid, 1 << CAP_NET_ADMIN), (child, 0)):
        s = status_of(pid)
        assert int(s["CapEff"], 16) == int(s["CapPrm"], 16) == caps
        assert int(s["CapInh"], 16) == int(s["CapAmb"], 16) == 0
        assert s["NoNewPrivs"] == "1"


# --- a claim's life

PODS_ALIASES = ["netclaim:another-claim:0000-01-10-0", "netclaim:", "mine", ""]


def spoil(pod, alias):
    for text in ("link set net1 down", "link set net1 name spoilt mtu 1300 txqueuelen 3 group 9",
                 "link property add dev spoilt altname pods-own"):
        pod.ip(text)
    pod.run("ip", "link", "set", "spoilt", "alias", alias)


def but_its_number(state):
    """Which number a link gets is the kernel's to choose where nobody asks for one."""
    return {key: value for key, value in state.items() if key not in ("ifindex", "link_index")}


def test_setup_marks_the_link(statd, host, vf0):
    before = host.state()
    prepared = statd.setup(vf0)["device"]
    assert host.alias() == f"{mark()} -"
    assert {**host.state(), "ifalias": None} == {**before, "ifalias": None}, "nothing else was touched"
    link = prepared["state"].pop("Link")
    assert link["Name"] == "vf0" and link["Kind"] == KIND and "Alias" not in link
    assert prepared == vf0


def test_setup_again_changes_nothing(statd, start, manager, host, vf0):
    """Not even after a restart, with all that statd was told forgotten: what was before the mark is kept."""
    host.ip("link set vf0 alias before")
    host.ip("addr add 10.0.0.1/24 dev vf0")
    prepared = statd.setup(vf0)
    assert host.alias() == f"{mark()} - before"
    assert prepared["device"]["state"]["Link"]["Alias"] == "before"
    assert statd.setup(vf0) == prepared
    assert statd.setup(prepared["device"]) == prepared
    stale = {**vf0, "state": {**prepared["device"]["state"], "PortVLAN": {"ID": 7}}}
    assert statd.setup(stale) == prepared, "the claim asks for no VLAN"
    manager.kill()
    start()
    devices, _ = statd.serve()
    assert statd.setup(devices[DEV0]) == prepared
    assert host.alias() == f"{mark()} - before"
    statd.call("device.free", prepared)
    assert host.alias() == "before"


def test_other_claims_are_refused(statd, host, manager, vf0):
    statd.setup(vf0)
    for method in ("device.setup", "device.recover"):
        message = statd.refused("conflict", method, alloc(vf0, UID2))
        assert "link 'vf0' belongs to another claim" in message and UID in message
    statd.setup(manager.devices[DEV1], uid=UID2)
    assert host.alias("vf1") == f"{mark(DEV1, UID2)} -"


def test_share_is_another_claim(statd, host, vf0):
    share = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
    statd.setup(vf0, shareID=share)
    assert host.alias() == f"{mark()}:{share} -"
    statd.refused("conflict", "device.setup", alloc(vf0))


def dress(host):
    """As nobody else's link."""
    for text in ("link set vf0 mtu 1400 txqueuelen 77 group 7 addrgenmode none alias tied-up",
                 "link property add dev vf0 altname first-altname altname second-altname",
                 "link set vf0 up", "addr add 10.0.0.1/24 dev vf0", "addr add 2001:db8::1/64 dev vf0 nodad"):
        host.ip(text)


def test_a_claims_life(statd, host, pod, vf0):
    dress(host)
    before = host.state()
    prepared = statd.setup(vf0)
    assert statd.attach(pod, prepared) == {"ifName": "net1", "wasThere": False}
    link = pod.links()["net1"]
    assert "UP" in link["flags"] and link["ifalias"] == mark() and "vf0" not in host.links()
    assert statd.attach(pod, prepared) == {"ifName": "net1", "wasThere": True}
    spoil(pod, mark())
    pod.ip("link set spoilt up")
    assert statd.detach(pod, prepared) == {}
    assert set(pod.links()) == {"lo", "eth0", "peer"}
    assert host.state() == {**before, "ifalias": mark()}
    assert statd.detach(pod, prepared) == {}
    assert statd.call("device.free", prepared) == {}
    assert host.state() == before
    assert statd.call("device.free", prepared) == {}
    assert host.state() == before


def test_link_of_a_plain_host_is_down_again(statd, host, pod, vf0):
    before = host.state()
    prepared = statd.setup(vf0)
    statd.attach(pod, prepared)
    statd.detach(pod, prepared)
    statd.call("device.free", prepared)
    assert host.state() == before and "UP" not in before["flags"]


def test_killed_manager_goes_on_where_it_was(statd, start, tree, manager, host, pod, vf0):
    dress(host)
    before = host.state()
    prepared = statd.setup(vf0)
    statd.attach(pod, prepared)
    tree.remove_netdev(VF0, "vf0")
    manager.kill()
    start()
    devices, (verdict,) = statd.serve(prepared)
    altnames = {"alternatives": {"kernelIfName": ["first-altname", "second-altname"]}}
    assert devices[DEV0] == {**vf0, **altnames}, "what cannot be seen is as it was"
    assert verdict["device"] == prepared["device"] and not verdict.get("error")
    assert statd.attach(pod, prepared) == {"ifName": "net1", "wasThere": True}
    statd.detach(pod, prepared)
    tree.add_netdev(VF0, "vf0")
    statd.call("device.free", prepared)
    assert host.state() == before


def test_link_that_is_renamed_is_the_same(statd, tree, host, pod, vf0):
    """By udev, say: the function is known by its address, and sysfs tells its name."""
    host.ip("link set vf0 name renamed")
    tree.rename_netdev(VF0, "vf0", "renamed")
    prepared = statd.setup(vf0)
    assert prepared["device"]["kernelIfName"] == "renamed"
    assert prepared["device"]["state"]["KernelIfaceName"] == "renamed"
    statd.attach(pod, prepared)
    statd.detach(pod, prepared)
    statd.call("device.free", prepared)
    assert host.alias("renamed") == ""


def test_taken_name_in_the_pod_leaves_the_link_on_the_host(statd, host, pod, vf0):
    dress(host)
    prepared = statd.setup(vf0)
    after_setup = host.state()
    statd.attach(pod, prepared, if_name="eth0", refused="conflict")
    assert set(pod.links()) == {"lo", "eth0", "peer"}
    assert {**host.state(), "ifalias": None} == {**after_setup, "ifalias": None}
    assert statd.attach(pod, prepared)["ifName"] == "net1"


def test_taken_names_are_a_collision(statd, manager, pod):
    with socket.socket(fileno=pod.open_socket()) as sock:
        statd.call("device.check", {"names": ["net1", "net2"]}, [sock.fileno()])
        assert '"eth0" already exists' in statd.refused("conflict", "device.check", {"names": ["eth0"]}, [sock.fileno()])


def test_free_touches_nothing_that_the_claim_has_no_more(statd, host, manager, vf0):
    theirs = alloc(statd.setup(vf0, uid=UID2)["device"], UID)
    before = host.state()
    assert statd.call("device.free", theirs) == {}
    assert host.state() == before
    manager.wait_log("left alone: this link is not the claim's")
    host.ip("link set vf0 alias somebody's")
    before = host.state()
    assert statd.call("device.free", alloc(vf0)) == {}
    assert host.state() == before, "one that was never set up"


def test_free_of_a_function_that_is_gone(statd, tree, host, manager, vf0):
    prepared = statd.setup(vf0)
    tree.remove(VF0)
    assert statd.call("device.free", prepared) == {}
    manager.wait_log("virtual function is gone")
    for method in ("device.setup", "device.recover"):
        assert f"there is no virtual function {VF0}" in statd.refused("not_found", method, prepared)


def test_missing_link_is_not_found(statd, tree, host, pod, vf0):
    prepared = statd.setup(vf0)
    host.ip("link del vf0")
    tree.remove_netdev(VF0, "vf0")
    statd.attach(pod, prepared, refused="not_found")
    assert "is not on the host: it is in another network namespace" in statd.detach(pod, prepared, refused="busy")
    tree.remove(VF0)
    assert statd.detach(pod, prepared) == {}


@pytest.mark.parametrize("alias", PODS_ALIASES)
def test_detach_finds_on_the_host_what_has_lost_its_mark(statd, tree, host, pod, vf0, alias):
    """A namespace of the pod's own had it, and ended before the pod did."""
    dress(host)
    before = but_its_number(host.state())
    prepared = statd.setup(vf0)
    statd.attach(pod, prepared)
    spoil(pod, alias)
    pod.ip(f"link set spoilt netns {host.path}")
    tree.rename_netdev(VF0, "vf0", "spoilt")
    assert statd.detach(pod, prepared) == {}
    assert but_its_number(host.state()) == {**before, "ifalias": mark()}
    tree.rename_netdev(VF0, "spoilt", "vf0")
    assert statd.call("device.free", prepared) == {}
    assert but_its_number(host.state()) == before


@pytest.mark.parametrize("alias", ["netclaim:", "netclaim:another-claim:vf9"])
def test_alias_that_is_no_mark_of_the_function_keeps_no_claim(statd, host, vf0, alias):
    host.ip(f"link set vf0 alias {alias}")
    prepared = statd.setup(vf0)
    assert host.alias() == mark() + " -" + (f" {alias}" if alias == "netclaim:" else "")
    assert statd.call("device.free", prepared) == {}


def test_mtu_that_the_physical_function_does_not_have(statd, host, manager, vf0):
    host.add("pf0")
    host.ip("link set pf0 mtu 1400")
    statd.setup(vf0)
    manager.wait_log("link 'vf0' has an MTU of 1500, and its physical function 'pf0' one of 1400")


@pytest.mark.parametrize("lost", [False, True])
def test_alias_that_is_not_text_comes_back(statd, host, vf0, lost):
    """Also when the record is lost: the note behind the mark has it."""
    def ip_says():
        return subprocess.run(host.inside("ip", "link", "show", "vf0"), check=True, capture_output=True).stdout
    subprocess.run(host.inside("ip", "link", "set", "vf0", "alias", os.fsdecode(b"caf\xe9")), check=True)
    prepared = statd.setup(vf0)
    assert prepared["device"]["state"]["Link"]["Alias"] == "\\x636166e9"
    assert statd.setup(vf0) == prepared
    assert statd.call("device.free", alloc(vf0) if lost else prepared) == {}
    assert b"alias caf\xe9\n" in ip_says()


def test_record_is_of_this_boot(statd, vf0):
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert statd.setup(vf0)["device"]["state"]["Link"]["Boot"] == boot


def test_name_that_is_not_text(statd, tree, host, vf0):
    name = os.fsdecode(b"vf\xe9")
    subprocess.run(host.inside("ip", "link", "set", "vf0", "name", name), check=True)
    tree.rename_netdev(VF0, "vf0", name)
    message = statd.refused("conflict", "device.setup", alloc(vf0))
    assert f"the name of link 'vf?' of virtual function {VF0} is not UTF-8: rename it" in message


@pytest.mark.parametrize("method", ["device.setup", "device.recover", "device.free"])
def test_link_in_another_namespace_is_busy(statd, tree, host, vf0, method):
    """Of a pod that the runtime has not ended yet."""
    prepared = statd.setup(vf0)
    host.ip("link del vf0")
    tree.remove_netdev(VF0, "vf0")
    message = statd.refused("busy", method, prepared)
    assert f"the link of virtual function {VF0} is not on the host" in message
    host.add("vf0")
    tree.add_netdev(VF0, "vf0")
    statd.call(method, prepared)
    assert host.alias().startswith(mark()) == (method != "device.free")


def test_it_is_recovered(statd, host, pod, vf0):
    """A function made anew has no mark; what the claim's status says of it stays."""
    host.ip("link set vf0 alias before")
    prepared = statd.setup(vf0)
    host.ip("link del vf0")
    host.add("vf0")
    assert statd.call("device.recover", prepared)["device"] == prepared["device"]
    assert host.alias() == mark()
    assert statd.call("device.recover", prepared)["device"] == prepared["device"]
    statd.attach(pod, prepared)
    statd.detach(pod, prepared)
    statd.call("device.free", prepared)
    assert host.alias() == "before"


# --- returned by the kernel

@pytest.mark.parametrize("alias", PODS_ALIASES)
def test_reclaim_takes_what_the_kernel_returned_whatever_its_alias(statd, tree, host, pod, vf0, alias):
    dress(host)
    before = but_its_number(host.state())
    prepared = statd.setup(vf0)
    statd.attach(pod, prepared)
    tree.remove_netdev(VF0, "vf0")
    message = statd.refused("busy", "device.reclaim", prepared)
    assert f"the link of virtual function {VF0} is not on the host" in message
    spoil(pod, alias)
    pod.ip(f"link set spoilt netns {host.path}")  # the kernel returns only what hangs on a bus
    tree.add_netdev(VF0, "spoilt")
    assert statd.call("device.reclaim", prepared) == {}
    assert but_its_number(host.state()) == {**before, "ifalias": mark()}
    tree.rename_netdev(VF0, "spoilt", "vf0")
    assert statd.call("device.reclaim", prepared) == {}
    assert but_its_number(host.state()) == {**before, "ifalias": mark()}
    assert statd.call("device.free", prepared) == {}
    assert but_its_number(host.state()) == before


def test_reclaim_of_a_function_that_is_gone(statd, tree, manager, vf0):
    prepared = statd.setup(vf0)
    tree.remove(VF0)
    assert statd.call("device.reclaim", prepared) == {}
    manager.wait_log("virtual function is gone")


def test_reclaim_of_a_function_of_user_space(statd, tree, host, manager):
    prepared = statd.setup(manager.devices[DEV2])
    assert statd.call("device.reclaim", prepared) == {}
    host.add("vf2")  # its own driver has it now
    tree.bind(VF2, "igbvf")
    tree.add_netdev(VF2, "vf2")
    assert statd.call("device.reclaim", prepared) == {}
    assert host.alias("vf2") == mark(DEV2)


def test_function_of_user_space(statd, host, pod, manager):
    """It has no link, so nothing is marked and nothing moves."""
    device = manager.devices[DEV2]
    assert device.pop("observe") is True, "nothing about it would tell how its port was"
    prepared = statd.setup(device)
    assert prepared["device"] == device == statd.call("device.observe", prepared)["device"]
    assert statd.setup(device) == prepared
    assert statd.call("device.recover", prepared)["device"] == device
    for call in (statd.attach, statd.detach):
        assert f"virtual function {VF2} has no link to hand over (driver vfio-pci)" in call(
            pod, prepared, refused="invalid")
    assert statd.call("device.free", prepared) == {}


# --- VLAN

@pytest.mark.parametrize("link", ["absent", "there"])
def test_vlan_that_the_adapter_cannot_set(statd, host, manager, vf0, link):
    """Neither a claim's mark nor anything else is left behind."""
    if link == "there":
        host.add("pf0")
    host.ip("link set vf0 alias before")
    before = host.state()
    why = "link 'pf0' has no virtual function" if link == "there" else "looking up link 'pf0'"
    for vlan in (0, 100, 4094):
        message = statd.refused("not_found", "device.setup", alloc(vf0, config={"vlan": vlan}))
        assert message.startswith("VLAN of virtual function 0: ") and why in message
    message = statd.refused("not_found", "device.setup", alloc(manager.devices[DEV2], config={"vlan": 100}))
    assert message.startswith("VLAN of virtual function 2: ") and why in message
    assert host.state() == before


def test_mark_of_an_earlier_try_stays(statd, host, vf0):
    """It notes what the port had, which is to be found by whoever undoes it."""
    noted = f"{mark()} 5.3.33024 before"
    host.run("ip", "link", "set", "vf0", "alias", noted)
    statd.refused("not_found", "device.setup", alloc(vf0, config={"vlan": 100}))
    assert host.alias() == noted


@pytest.mark.parametrize("vlan", [4095, -1, 65536, "100"])
def test_vlan_that_is_none(statd, host, vf0, vlan):
    assert "vlan" in statd.refused("invalid", "device.setup", alloc(vf0, config={"vlan": vlan}))
    assert host.alias() == ""


# --- what no claim knows

def test_audit(statd, host, manager, vf0):
    host.ip("link set vf0 alias before")
    statd.setup(vf0)
    statd.setup(manager.devices[DEV1], uid=UID2)
    assert statd.call("device.audit", {"claimUIDs": [UID, UID2]}) == {}
    leftover, = statd.call("device.audit", {"claimUIDs": [UID2]})["leftovers"]
    device = {**vf0, "attributes": {k: v for k, v in vf0["attributes"].items() if k != "maxMTU"}}
    assert leftover == {"device": device, "claimUID": UID}
    assert statd.call("device.free", leftover) == {}
    assert host.alias() == "before" and host.alias("vf1") == f"{mark(DEV1, UID2)} -"
    assert statd.call("device.audit", {"claimUIDs": [UID2]}) == {}


def test_audit_of_marks_that_are_not_its_own(statd, host, manager):
    host.ip("link set vf0 alias netclaim:no-device")
    host.ip(f"link set vf1 alias {mark(DEV0)}")  # of another function
    host.add("other0")
    host.ip(f"link set other0 alias {mark('other0')}")  # another manager's
    assert statd.call("device.audit", {"claimUIDs": []}) == {}


def test_states_that_say_something_else(statd, host, vf0):
    """A device's state is checked against its name, whoever sends it."""
    for state, why in (({"Addr": VF1}, DEV0), ({"Addr": "../../etc"}, "not a PCI address"), ({}, "Addr"),
                       ({**vf0["state"], "VFID": -1}, "VFID")):
        wrong = {**vf0, "state": state}
        verdict, = statd.call("device.restore", {"allocations": [alloc(wrong)]})["verdicts"]
        assert why in verdict["error"]
        for method in ("device.setup", "device.recover", "device.free"):
            assert why in statd.refused("invalid", method, alloc(wrong))
    assert host.alias() == ""


def test_driver_that_hangs_keeps_nobody_waiting(statd, start, tree):
    """A lease on the file holds its writer, as a driver does; other functions are handed out meanwhile."""
    tree.pf("0000:02:00.0", "pf1", total=4)
    statd.config["ifaces"] = [{"ifName": "pf1", "vfCount": 4}]
    numvfs = os.open(tree.dir("0000:02:00.0") / "sriov_numvfs", os.O_RDONLY)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(numvfs, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    process = start()
    statd.next_hello()
    statd.restore()
    devices = {d["name"]: d for d in statd.inventories.get(timeout=30 * STRETCH)["devices"]}
    took, end = [], time.monotonic() + 8  # beyond the next try
    while time.monotonic() < end:
        begin = time.monotonic()
        statd.setup(devices[DEV0])
        took.append(time.monotonic() - begin)
    fcntl.fcntl(numvfs, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(numvfs)
    assert max(took) < 3 * STRETCH
    wait_for(lambda: tree.num_vfs("0000:02:00.0") == 4, 10, "the driver")
    wait_for(lambda: not children_of(process.pid), 10, "the end of the child")
