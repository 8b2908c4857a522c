# SPDX-License-Identifier: Apache-2.0
"""Attaching and detaching a pod's devices: statd and netnsd as they ship, real network namespaces, a
manager whose answers the test decides, and MessagePack-RPC by python3-msgpack as the runtime's
door."""
import os
import socket
import stat
import threading

import pytest

import house as h
import mprpc
import procs as procs_module
from house import opaque, result
from netns import Netns

pytestmark = pytest.mark.needs_root

POD = "pod-1"
SO_PROTOCOL, SO_DOMAIN = 38, 39
NETLINK_ROUTE = 0

CONFIG = h.config({"dummy": {"enabled": True, "count": 3}, "sriov": {"enabled": True},
                   "rxQueue": {"enabled": True, "ifaces": [{"ifName": "eth0", "count": 2}]}},
                  [{"name": "all", "filter": {}}])
SHARE = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


class LookingManager(h.MockManager):
    """Keeps what the descriptors were that came with each call, and makes the link that it says it
    moved."""

    def __init__(self, *args, **more):
        self.descriptors = []
        super().__init__(*args, **more)

    def _recorded(self, name, handler):
        inner = super()._recorded(name, handler)

        def handle(peer, params, fds):
            for fd in fds:
                self.descriptors.append((name, describe(fd)))
            return inner(peer, params, fds)
        return handle


def describe(fd):
    if stat.S_ISSOCK(os.fstat(fd).st_mode):
        with socket.socket(fileno=os.dup(fd)) as s:
            return ("socket", s.getsockopt(socket.SOL_SOCKET, SO_DOMAIN), s.getsockopt(socket.SOL_SOCKET, SO_PROTOCOL))
    return ("file", os.fstat(fd).st_ino)


class Setting:
    def __init__(self, procs, rundir):
        self.house = h.House(procs, rundir, CONFIG)
        self.statd = self.house.start_statd()
        self.netnsd = self.house.start_netnsd()
        self.connect()

    def connect(self):
        """What statd is to find: the managers, and a door for the test."""
        self.dummy = LookingManager(self.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
        self.sriov = LookingManager(self.house, "sr-iov", [h.dedicated("vf0"), vfio("vf1")],
                                    rebuild=lambda name: vfio(name) if name == "vf1" else h.dedicated(name))
        self.rx = LookingManager(self.house, "rxQueue", [h.shareable("eth0")])
        self.house.wait_peer("netnsd", "connected")
        self.house.wait_ready()
        self.front = mprpc.connect(self.house.runtime_dir / "front.sock")
        assert self.front.call("front.hello", {"role": "nrihookd", "version": "0"})["ready"]

    def prepare(self, name, results, **more):
        claim = h.Claim(self.house, name, results, **more)
        self.front.call("claim.prepare", claim.ref)
        return claim

    def attach(self, netns, sandbox="sandbox-1", pod=POD):
        fd = netns.open()
        try:
            return self.front.call("pod.attach", {"podUID": pod, "sandboxID": sandbox}, [fd])["devices"]
        finally:
            os.close(fd)

    def detach(self, sandbox="sandbox-1", pod=POD):
        self.front.call("pod.detach", {"podUID": pod, "sandboxID": sandbox})

    def attached(self):
        """(device, sandbox, name) of every row that is attached."""
        return [(r["DeviceName"], r["SandboxID"], r["PodIfName"]) for r in self.house.rows() if "SandboxID" in r]

    def descriptors_of_statd(self):
        """What they are; sockets without their numbers, for a query's is open a moment longer than it."""
        return [n for n in procs_module.paths_held_by(self.statd.pid) if not n.startswith("socket:")]

    def namespaces_held(self):
        return [d for d in self.descriptors_of_statd() if d.startswith("net:[")]

    def close(self):
        for peer in (self.dummy, self.sriov, self.rx, self.front):
            peer.close()

    def restart_statd(self):
        self.statd.stop()
        self.close()
        self.statd = self.house.start_statd()
        self.connect()


def vfio(name):
    device = h.dedicated(name)
    del device["kernelIfName"], device["ifName"]
    return device


@pytest.fixture
def at(procs, rundir):
    setting = Setting(procs, rundir)
    yield setting
    setting.close()


@pytest.fixture
def netns():
    with Netns() as ns:
        yield ns


def test_pod_without_claims(at, netns):
    assert at.attach(netns) == 0
    assert at.dummy.descriptors == [] and at.namespaces_held() == []
    at.detach()


def test_attach_and_detach(at, netns):
    before = procs_module.wait_for(lambda: at.namespaces_held() == [] and at.descriptors_of_statd())
    c = at.prepare("c1", [result("dummy0")], config=[opaque({"podIfName": "net1"})])
    assert at.attach(netns) == 1
    assert at.attached() == [("dummy0", "sandbox-1", "net1")]
    namespace = ("file", os.stat(netns.path).st_ino)
    rtnetlink = ("socket", socket.AF_NETLINK, NETLINK_ROUTE)
    assert at.dummy.descriptors == [("device.check", rtnetlink), ("device.attach", namespace),
                                    ("device.attach", rtnetlink)]
    check, = at.dummy.asked("device.check")
    assert check == {"names": ["net1"], "claimUIDs": [c.uid]}
    attach, = at.dummy.asked("device.attach")
    assert attach["ifName"] == "net1" and attach["allocation"]["claimUID"] == c.uid
    at.detach()
    detach, = at.dummy.asked("device.detach")
    assert detach["ifName"] == "net1" and detach["sandboxID"] == "sandbox-1"
    assert at.attached() == []
    procs_module.wait_for(lambda: at.descriptors_of_statd() == before, what="the descriptors of before")


def test_second_call_is_a_no_op(at, netns):
    at.prepare("c1", [result("dummy0")])
    assert at.attach(netns) == 1 and at.attach(netns) == 1
    assert len(at.dummy.asked("device.attach")) == 1
    at.detach()
    at.detach()
    assert len(at.dummy.asked("device.detach")) == 1


def test_own_name_without_pod_if_name(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    assert at.attached() == [("dummy0", "sandbox-1", "dummy0")]


def test_sysctls(at, netns):
    at.prepare("c1", [result("dummy0")], config=[opaque({
        "podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1", "rp_filter": "2"},
        "interfaceSysctlIPv6": {"accept_ra": "0"}})])
    netns.ip("link", "add", "net1", "type", "veth", "peer", "name", "other")
    at.attach(netns)
    assert netns.sysctl("ipv4/conf/net1/arp_filter") == "1"
    assert netns.sysctl("ipv4/conf/net1/rp_filter") == "2"
    assert netns.sysctl("ipv6/conf/net1/accept_ra") == "0"
    assert [call.get("keepDown", False) for call in at.dummy.asked("device.attach")] == [True, False], "then it is up"


def test_sysctls_of_a_link_that_is_up_already(at, netns):
    """statd has restarted: the pod uses it."""
    at.prepare("c1", [result("dummy0")],
               config=[opaque({"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1"}})])
    at.dummy.attached = {"wasThere": True}
    netns.ip("link", "add", "net1", "type", "veth", "peer", "name", "other")
    assert at.attach(netns) == 1
    assert netns.sysctl("ipv4/conf/net1/arp_filter") == "1"
    assert len(at.dummy.asked("device.attach")) == 1


def test_link_that_cannot_be_brought_up_is_taken_back(at, netns):
    at.prepare("c1", [result("dummy0"), result("dummy1", "b")], config=[
        opaque({"podIfName": "net1"}, ["net"]),
        opaque({"podIfName": "net2", "interfaceSysctlIPv4": {"arp_filter": "1"}}, ["b"])])
    attach = at.dummy.peer.methods["device.attach"]

    def answer(peer, params, fds):
        if params["ifName"] == "net2" and not params.get("keepDown"):
            raise mprpc.Error("internal", "the port is dead")
        return attach(peer, params, fds)
    at.dummy.peer.methods["device.attach"] = answer
    netns.ip("link", "add", "net2", "type", "veth", "peer", "name", "other")
    with pytest.raises(mprpc.Error, match="device dummy1: the port is dead"):
        at.attach(netns)
    assert [d["ifName"] for d in at.dummy.asked("device.detach")] == ["net2", "net1"], "the last first"
    assert at.attached() == [] and at.namespaces_held() == []
    at.dummy.peer.methods["device.attach"] = attach
    assert at.attach(netns) == 2


def test_unknown_sysctl_takes_everything_back(at, netns):
    at.prepare("c1", [result("dummy0"), result("dummy1", "b")], config=[
        opaque({"podIfName": "net1"}, ["net"]),
        opaque({"podIfName": "net2", "interfaceSysctlIPv4": {"no_such_leaf": "1"}}, ["b"])])
    netns.ip("link", "add", "net2", "type", "veth", "peer", "name", "other")
    with pytest.raises(mprpc.Error) as error:
        at.attach(netns)
    assert "sysctl" in error.value.message and "no_such_leaf" in error.value.message
    assert [d["ifName"] for d in at.dummy.asked("device.detach")] == ["net2", "net1"], "the last first"
    assert at.attached() == [] and at.namespaces_held() == []
    assert "no_such_leaf" in [r for r in at.house.rows() if r["DeviceName"] == "dummy1"][0]["Problem"]


def test_what_could_not_be_taken_back_is_not_taken_for_attached(at, netns):
    """The sysctls fail, as they do when netnsd dies, and so does taking the device back: the next try
    makes it whole, and until then nobody is told that it is there."""
    at.prepare("c1", [result("dummy0")],
               config=[opaque({"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1"}})])
    at.dummy.failures["device.detach", "dummy0"] = mprpc.Error("unavailable", "not now")
    with pytest.raises(mprpc.Error, match="sysctl"):
        at.attach(netns)  # there is no net1 yet
    assert at.attached() == [("dummy0", "sandbox-1", "net1")]
    ref = {"podUID": POD, "sandboxID": "sandbox-1"}
    assert at.front.call("pod.check", ref) == {"wanted": 1, "there": 0}
    assert at.front.call("pod.sync", {"pods": [ref]}) == {"sandboxIDs": ["sandbox-1"]}
    netns.ip("link", "add", "net1", "type", "veth", "peer", "name", "other")
    assert at.attach(netns) == 1
    assert netns.sysctl("ipv4/conf/net1/arp_filter") == "1"
    assert at.front.call("pod.check", ref) == {"wanted": 1, "there": 1}
    at.dummy.failures.clear()
    at.detach()
    assert at.attached() == [] and at.namespaces_held() == []


class Forgetful(LookingManager):
    def _restore(self, params):
        return {"verdicts": [{"error": "what is this?"} for _ in params.get("allocations", [])]}


@pytest.mark.parametrize("managers", [[LookingManager], [Forgetful, LookingManager]])
def test_manager_that_comes_back_makes_nothing_whole(at, netns, managers):
    """It takes over what it is told of, but what was left half done when it went is still to be done."""
    at.prepare("c1", [result("dummy0")],
               config=[opaque({"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1"}})])
    at.dummy.failures["device.detach", "dummy0"] = mprpc.Error("unavailable", "not now")
    with pytest.raises(mprpc.Error, match="sysctl"):
        at.attach(netns)  # there is no net1 yet
    ref = {"podUID": POD, "sandboxID": "sandbox-1"}
    for manager in managers:
        at.dummy.close()
        at.house.wait_peer("dmgr-dummy", "missing")
        at.dummy = manager(at.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
        procs_module.wait_for(lambda: at.dummy.asked("device.audit"), what="the end of restoring")
        assert at.front.call("pod.check", ref) == {"wanted": 1, "there": 0}
    netns.ip("link", "add", "net1", "type", "veth", "peer", "name", "other")
    assert at.attach(netns) == 1
    assert netns.sysctl("ipv4/conf/net1/arp_filter") == "1"
    assert at.front.call("pod.check", ref) == {"wanted": 1, "there": 1}
    assert not at.house.rows()[0].get("Problem")


def test_what_was_there_before_is_not_taken_back(at, netns):
    """A pod may be using it: statd that has restarted attaches again what running pods have."""
    at.prepare("c1", [result("dummy0"), result("dummy1", "b")], config=[
        opaque({"podIfName": "net1"}, ["net"]),
        opaque({"podIfName": "net2", "interfaceSysctlIPv4": {"no_such_leaf": "1"}}, ["b"])])
    attach = at.dummy.peer.methods["device.attach"]

    def answer(peer, params, fds):
        return {**attach(peer, params, fds), "wasThere": params["ifName"] == "net1"}
    at.dummy.peer.methods["device.attach"] = answer
    netns.ip("link", "add", "net2", "type", "veth", "peer", "name", "other")
    with pytest.raises(mprpc.Error, match="no_such_leaf"):
        at.attach(netns)
    assert [d["ifName"] for d in at.dummy.asked("device.detach")] == ["net2"]
    assert at.attached() == [("dummy0", "sandbox-1", "net1")]
    at.detach()
    assert [d["ifName"] for d in at.dummy.asked("device.detach")] == ["net2", "net1"]
    assert at.attached() == [] and at.namespaces_held() == []


def test_collision_moves_nothing(at, netns):
    at.prepare("c1", [result("dummy0")], config=[opaque({"podIfName": "eth0"})])
    at.dummy.failures["device.check", None] = mprpc.Error("conflict", 'interface name collision: "eth0" already '
                                                          "exists in pod namespace (possibly from CNI)")
    with pytest.raises(mprpc.Error) as error:
        at.attach(netns)
    assert error.value.code == "conflict" and "pod interface allocations is invalid" in error.value.message
    assert at.dummy.asked("device.attach") == [] and at.attached() == [] and at.namespaces_held() == []


def test_two_managers_all_or_nothing(at, netns):
    at.prepare("c1", [result("dummy0"), result("vf0", "b")])
    at.sriov.failures["device.attach", "vf0"] = mprpc.Error("internal", "the link is busy")
    with pytest.raises(mprpc.Error, match="the link is busy"):
        at.attach(netns)
    assert [d["ifName"] for d in at.dummy.asked("device.detach")] == ["dummy0"]
    assert at.attached() == []
    at.sriov.failures.clear()
    assert at.attach(netns) == 2


def test_missing_link_is_made_again(at, netns):
    c = at.prepare("c1", [result("dummy0")])
    assert c.status
    status = c.status_path.read_bytes()
    at.dummy.failures["device.attach", "dummy0"] = mprpc.Error("not_found", "no such link")
    at.dummy.prepared = {"state": {"Name": "dummy0", "Again": True}}
    recover = at.dummy.peer.methods["device.recover"]

    def recovered(*args):
        at.dummy.failures.clear()
        return recover(*args)
    at.dummy.peer.methods["device.recover"] = recovered
    assert at.attach(netns) == 1
    asked, = at.dummy.asked("device.recover")
    assert asked["claimUID"] == c.uid
    assert at.house.rows()[0]["PreparedDevice"] == {"Name": "dummy0", "Again": True}
    assert c.status_path.read_bytes() == status, "the claim's status is left alone"
    at.statd.wait_log("allocated device link not found; re-creating on demand")


def test_link_missing_even_after_recovery(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.dummy.failures["device.attach", "dummy0"] = mprpc.Error("not_found", "no such link")
    with pytest.raises(mprpc.Error, match="still not found after re-creating it on demand"):
        at.attach(netns)
    assert len(at.dummy.asked("device.recover")) == 1


def test_recovery_fails(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.dummy.failures["device.attach", "dummy0"] = mprpc.Error("not_found", "no such link")
    at.dummy.failures["device.recover", "dummy0"] = mprpc.Error("internal", "no memory in the kernel")
    with pytest.raises(mprpc.Error, match="failed to re-create.*no memory in the kernel"):
        at.attach(netns)


def test_devices_without_links_are_not_moved(at, netns):
    """A receive queue is leased, a function on vfio-pci has no netdev: nothing is asked for them."""
    at.prepare("c1", [result("eth0", share=SHARE, capacity={"rxQueues": "1"}), result("vf1", "b")])
    assert at.attach(netns) == 0
    assert at.rx.descriptors == [] and at.sriov.descriptors == []


def test_life_of_a_function_without_a_link(at, netns):
    """It is set up and freed like any other, also when statd is restarted in between; in the pod nothing
    is done for it, and beside it the others move."""
    c = at.prepare("c1", [result("vf1"), result("dummy0", "b")], config=[opaque({"vlan": 42}, requests=["net"])])
    assert "networkData" not in next(e for e in c.status if e["device"] == "vf1")
    assert at.attach(netns) == 1 and check(at) == (1, 1)
    assert [(device, name) for device, _, name in at.attached()] == [("dummy0", "dummy0")]
    at.detach()
    assert check(at) == (1, 0)
    assert [name for name, _ in at.sriov.calls] == ["device.restore", "device.audit", "device.setup"]
    at.restart_statd()
    restored, = at.sriov.asked("device.restore")[0]["allocations"]
    assert (restored["claimUID"], restored["device"]["name"], restored["config"]) == (c.uid, "vf1", {"vlan": 42})
    assert at.sriov.asked("device.audit") == [{"claimUIDs": [c.uid, c.uid]}], "nothing of it is a leftover"
    assert check(at) == (1, 0) and at.attach(netns) == 1 and check(at) == (1, 1)
    at.front.call("claim.unprepare", c.ref)
    assert at.house.rows() == []
    freed, = at.sriov.asked("device.free")
    assert (freed["device"]["name"], freed["config"]) == ("vf1", {"vlan": 42})
    assert [name for name, _ in at.sriov.calls] == ["device.restore", "device.audit", "device.free"]


def test_a_function_without_a_link_that_cannot_be_set_up(at, netns):
    at.sriov.failures["device.setup", "vf1"] = mprpc.Error("invalid", "ens1f0 refuses VLAN 42")
    with pytest.raises(mprpc.Error, match="failed to prepare device vf1: ens1f0 refuses VLAN 42"):
        at.prepare("c1", [result("dummy0"), result("vf1", "b")])
    assert [p["device"]["name"] for p in at.dummy.asked("device.free")] == ["dummy0"]
    assert at.house.rows() == [] and at.attach(netns) == 0


def test_new_sandbox_of_the_same_pod(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.attach(netns, "sandbox-1")
    with Netns() as second:
        assert at.attach(second, "sandbox-2") == 1
        assert at.attached() == [("dummy0", "sandbox-2", "dummy0")]
        assert [d["sandboxID"] for d in at.dummy.asked("device.detach")] == ["sandbox-1"]
        at.detach("sandbox-1")
        assert at.attached() == [("dummy0", "sandbox-2", "dummy0")], "a late end of the old one touches nothing"
        at.detach("sandbox-2")
    assert at.namespaces_held() == []


def test_unprepare_takes_it_out_first(at, netns):
    c = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.front.call("claim.unprepare", c.ref)
    names = [name for name, _ in at.dummy.calls if name in ("device.detach", "device.free")]
    assert names == ["device.detach", "device.free"]
    assert at.house.rows() == [] and at.namespaces_held() == []


def test_detach_fails_and_unprepare_tries_again(at, netns):
    c = at.prepare("c1", [result("dummy0"), result("dummy1", "b")])
    at.attach(netns)
    at.dummy.failures["device.detach", "dummy1"] = mprpc.Error("internal", "it is stuck")
    with pytest.raises(mprpc.Error, match="dummy1.*it is stuck"):
        at.detach()
    assert at.attached() == [("dummy1", "sandbox-1", "dummy1")], "the other one came back all the same"
    with pytest.raises(mprpc.Error, match="it is stuck"):
        at.front.call("claim.unprepare", c.ref)
    assert [r["DeviceName"] for r in at.house.rows()] == ["dummy1"]
    at.dummy.failures.clear()
    at.front.call("claim.unprepare", c.ref)
    assert at.house.rows() == [] and at.namespaces_held() == []


def test_sync(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.prepare("c2", [result("dummy1")], pod_uid="pod-2")
    at.attach(netns, "gone")
    wanted = at.front.call("pod.sync", {"pods": [{"podUID": "pod-2", "sandboxID": "sandbox-2"},
                                                 {"podUID": "pod-3", "sandboxID": "sandbox-3"}]})
    assert wanted == {"sandboxIDs": ["sandbox-2"]}
    procs_module.wait_for(lambda: at.attached() == [], what="the end of the sandbox that is gone")
    assert [d["sandboxID"] for d in at.dummy.asked("device.detach")] == ["gone"]


def check(at, sandbox="sandbox-1", pod=POD):
    devices = at.front.call("pod.check", {"podUID": pod, "sandboxID": sandbox})
    return devices["wanted"], devices["there"]


def test_check(at, netns):
    at.prepare("c1", [result("dummy0"), result("dummy1", "b")])
    assert check(at) == (2, 0)
    at.attach(netns)
    assert check(at) == (2, 2)
    assert check(at, "sandbox-2") == (2, 0)
    assert check(at, pod="pod-2") == (0, 0)
    at.detach()
    assert check(at) == (2, 0)


def test_devices_without_links_are_not_missed(at):
    """Nothing is to be moved for them, so nothing is waited for."""
    at.prepare("c1", [result("eth0", share=SHARE, capacity={"rxQueues": "1"}), result("vf1", "b")])
    assert check(at) == (0, 0)
    assert not at.front.call("pod.sync", {"pods": [{"podUID": POD, "sandboxID": "sandbox-1"}]}).get("sandboxIDs")


def test_devices_count_when_all_is_done(at, netns):
    """One is in the sandbox already, but the next may still fail, and then it comes back."""
    at.prepare("c1", [result("dummy0"), result("dummy1", "b")])
    goes = threading.Event()
    attach = at.dummy.peer.methods["device.attach"]

    def held(peer, params, fds):
        if params["allocation"]["device"]["name"] == "dummy1":
            goes.wait(30 * procs_module.STRETCH)
        return attach(peer, params, fds)
    at.dummy.peer.methods["device.attach"] = held
    attaching = threading.Thread(target=at.attach, args=[netns])
    attaching.start()
    procs_module.wait_for(at.attached, what="the first device")
    assert check(at) == (2, 0)
    assert at.front.call("pod.sync", {"pods": [{"podUID": POD, "sandboxID": "sandbox-1"}]}) == {
        "sandboxIDs": ["sandbox-1"]}
    goes.set()
    attaching.join()
    assert check(at) == (2, 2)


def test_attach_that_the_manager_ends_too_late_is_taken_back(at, netns):
    """The runtime is told at once; the device does not stay where nobody expects it."""
    at.prepare("c1", [result("dummy0")])
    goes = threading.Event()
    attach = at.dummy.peer.methods["device.attach"]

    def held(peer, params, fds):
        goes.wait(30 * procs_module.STRETCH)
        return attach(peer, params, fds)
    at.dummy.peer.methods["device.attach"] = held
    with pytest.raises(mprpc.Error) as error:
        at.attach(netns)
    assert error.value.code == "deadline"
    procs_module.wait_for(lambda: at.dummy.asked("device.detach"), what="device.detach")
    goes.set()
    undone, = at.dummy.asked("device.detach")
    assert undone["allocation"]["device"]["name"] == "dummy0" and undone["sandboxID"] == "sandbox-1"
    procs_module.wait_for(lambda: not at.attached(), what="the row's being free of the sandbox")
    at.dummy.peer.methods["device.attach"] = attach
    assert at.attach(netns) == 1
    assert check(at) == (1, 1)


def test_a_descriptor_that_is_no_network_namespace(at):
    at.prepare("c1", [result("dummy0")])
    for path, words in (("/dev/null", "is not a namespace"), ("/proc/self/ns/mnt", "not a network namespace")):
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(mprpc.Error) as error:
            at.front.call("pod.attach", {"podUID": POD, "sandboxID": "s"}, [fd])
        os.close(fd)
        assert error.value.code == "invalid" and words in error.value.message


def test_netnsd_is_not_there(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.netnsd.stop()
    at.house.wait_peer("netnsd", "missing")
    with pytest.raises(mprpc.Error) as error:
        at.attach(netns)
    assert error.value.code == "unavailable" and at.attached() == []


def test_device_that_was_there_before_is_looked_for_and_its_name_is_not(at, netns):
    """What the pod has made of its link's name and mark is no reason to refuse it its own device."""
    at.prepare("c1", [result("dummy0"), result("dummy1", "b")],
               config=[opaque({"podIfName": "net1"}, ["net"]), opaque({"podIfName": "net2"}, ["b"])])
    assert at.attach(netns) == 2
    assert [call.get("mayBeThere", False) for call in at.dummy.asked("device.attach")] == [False, False]
    at.restart_statd()
    assert at.attach(netns) == 2
    assert [call.get("mayBeThere", False) for call in at.dummy.asked("device.attach")] == [True, True]
    assert at.dummy.asked("device.check") == []
    at.restart_statd()
    with Netns() as other:
        assert at.attach(other, "sandbox-2") == 2
    assert [call.get("mayBeThere", False) for call in at.dummy.asked("device.attach")] == [False, False]
    assert [sorted(call["names"]) for call in at.dummy.asked("device.check")] == [["net1", "net2"]]


def test_statd_restarts_between(at, netns):
    """What was attached is not known to be after a restart, until the runtime's door says what it
    has; then it is attached again where it is, and leaves as if nothing had happened."""
    c = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.statd.stop()
    at.close()
    at.statd = at.house.start_statd()
    at.dummy = LookingManager(at.house, "dummy", [h.dedicated("dummy0")])
    at.sriov = LookingManager(at.house, "sr-iov", [])
    at.rx = LookingManager(at.house, "rxQueue", [])
    at.house.wait_peer("netnsd", "connected")
    restored, = at.dummy.asked("device.restore")
    assert [(a["claimUID"], a["device"]["name"], a["device"]["state"]) for a in restored["allocations"]] == [
        (c.uid, "dummy0", {"Name": "dummy0"})]
    at.house.wait_ready()
    at.front = mprpc.connect(at.house.runtime_dir / "front.sock")
    at.front.call("front.hello", {"role": "nrihookd", "version": "0"})
    assert at.front.call("pod.sync", {"pods": [{"podUID": POD, "sandboxID": "sandbox-1"}]}) == {
        "sandboxIDs": ["sandbox-1"]}
    assert at.attach(netns) == 1
    at.detach()
    at.front.call("claim.unprepare", c.ref)
    assert at.house.rows() == [] and at.house.files_left() == [] and at.namespaces_held() == []


def test_a_call_that_lacks_its_descriptor_ends_the_connection(at):
    at.prepare("c1", [result("dummy0")])
    with pytest.raises(mprpc.Error, match="unavailable"):
        at.front.call("pod.attach", {"podUID": POD, "sandboxID": "s"})
    at.statd.wait_log("dropping a connection.*lacks 1 of its descriptors")
    assert at.house.status()["ready"], "the daemon lives on"
