# SPDX-License-Identifier: Apache-2.0
"""statd is killed at the n-th system call of a kind, for each n, on the way through a claim's life; kubelet
and runtime do what they do when an answer is lost, and at the end nothing is lost, leaked or handed out twice.
The walk of tests/crash kills between messages; here it is between any two changes of the record and the
kernel's, a record's being written and its getting its name included."""
import contextlib
import os
import shutil
import signal

import pytest

import house as h
import mprpc
import procs as procs_module
from house import opaque, result
from test_attach import CONFIG, POD, netns  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.needs_root,
              pytest.mark.skipif(not shutil.which("strace"), reason="needs strace"),
              pytest.mark.skipif("asan" in str(procs_module.BUILD), reason="its leak check does not run under strace")]

DEVICES = {"dummy": ["dummy0", "dummy1"], "sr-iov": ["vf0"]}
LOST = (mprpc.Error, EOFError, OSError)


class Kernel:
    """What the managers have done, which outlives all connections. What must not be is in wrong."""

    def __init__(self):
        self.owner, self.sandbox, self.wrong = {}, {}, []

    def note(self, ok, *what):
        if not ok:
            self.wrong.append(what)

    def handle(self, method, params):
        allocation = params.get("allocation", params)
        device, claim = allocation["device"]["name"], allocation["claimUID"]
        self.note(self.owner.get(device, claim) == claim, method, device, claim, "is another claim's")
        if method in ("device.setup", "device.recover"):
            self.note(device not in self.sandbox, method, device, "is in a sandbox")
            self.owner[device] = claim
        elif method == "device.attach":
            self.note(device in self.owner, method, device, "is not set up")
            was = self.sandbox.get(device)
            self.note(was in (None, params["sandboxID"]), method, device, "is in", was)
            self.sandbox[device] = params["sandboxID"]
        elif method == "device.detach":
            self.note(self.sandbox.get(device) in (None, params["sandboxID"]), method, device)
            self.sandbox.pop(device, None)
        elif method == "device.reclaim" and device in self.sandbox:
            raise mprpc.Error("busy", "it is not on the host")
        elif method == "device.free":
            self.note(device not in self.sandbox, method, device, "is in a sandbox")
            self.owner.pop(device, None)


class Manager(h.MockManager):
    def __init__(self, kernel, *args):
        self.kernel = kernel
        super().__init__(*args)

    def _recorded(self, name, handler):
        inner = super()._recorded(name, handler)

        def handle(peer, params, fds):
            if "device" in params or "allocation" in params:
                self.kernel.handle(name, params)
            return inner(peer, params, fds)
        return handle

    def _audit(self, params):
        known = params.get("claimUIDs", [])
        return {"leftovers": [{"device": h.dedicated(d), "claimUID": c} for d, c in list(self.kernel.owner.items())
                              if c not in known and d not in self.kernel.sandbox and d in DEVICES[self.kind]]}


class Life:
    def __init__(self, procs, directory, call, nth, fault="signal=KILL"):
        self.house = h.House(procs, directory, CONFIG)
        self.kernel, self.managers, self.front = Kernel(), [], None
        self.sandbox = None  # the namespace of the one that the runtime has, once it was started
        self.strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                       f"inject={call}:{fault}:when={nth}"]
        self.procs, self.restarts, self.fails = procs, 0, "error" in fault
        self.netnsd = self.house.start_netnsd()
        self.statd = None
        self.start(self.strace)

    def start(self, via=()):
        self.statd = self.procs.start(
            "statd", "--config", self.house.config_path, "--claims-dir", self.house.claims_dir,
            "--runtime-dir", self.house.runtime_dir, "--user", h.STATD_USER, "--log-level", "debug", via=via)
        try:
            self.statd.wait_log(": ready$")
            if via:  # strace has had other children before
                self.statd.pid, = procs_module.children_of(self.statd.popen.pid)
            self.connect()
        except (AssertionError, ValueError, *LOST):
            assert via, "it is not the one that is killed"
            self.restart()

    def connect(self):
        self.managers = []
        for kind, names in DEVICES.items():

            self.managers.append(type(f"Manager_{kind}", (Manager,), {"kind": kind})(
                self.kernel, self.house, kind, [h.dedicated(n) for n in names]))
        self.managers.append(h.MockManager(self.house, "rxQueue", [h.shareable("eth0")]))
        self.house.wait_peer("netnsd", "connected")
        self.house.wait_ready()
        self.front = mprpc.connect(self.house.runtime_dir / "front.sock")

    def close(self):
        for peer in (*self.managers, *([self.front] if self.front else [])):
            peer.close()
        self.managers, self.front = [], None

    def end(self):
        """Whether statd lived to the end: it may be killed on its way out as well."""
        self.close()
        with contextlib.suppress(ProcessLookupError):
            self.statd.signal(signal.SIGTERM)
        status = self.statd.wait_exit()
        assert status == 0 or (self.restarts == 0 and status in (-signal.SIGKILL, 128 + signal.SIGKILL))
        self.netnsd.stop()
        return self.restarts == 0 and status == 0

    def restart(self):
        assert self.restarts == 0, "nobody kills the second one"
        self.restarts += 1
        self.statd.expected = True
        self.statd.wait_exit()
        self.close()
        self.start()
        if self.sandbox is not None:
            self.synchronize()

    def synchronize(self):
        """What nrihookd does when statd is back."""
        pod = {"podUID": POD, "sandboxID": "sandbox-1"}
        if self.front.call("pod.sync", {"pods": [pod]})["sandboxIDs"]:
            self.front.call("pod.attach", pod, [self.sandbox])

    def call(self, method, params, fd=None):
        """As kubelet and runtime: once more when the answer was lost."""
        def once():
            return self.front.call(method, params, [fd] if fd is not None else [])
        try:
            return once()
        except LOST as e:
            if self.statd.running() and self.fails:
                return once()
            if self.statd.running() and not str(e).startswith("unavailable: the connection"):
                raise
            self.restart()
            if method == "pod.detach":  # which a runtime does not repeat; nrihookd says what there is
                return self.front.call("pod.sync", {"pods": []})
            return once()

    def rows(self):
        try:
            return self.house.rows()
        except LOST:
            self.restart()
            return self.house.rows()

    def check(self, claims, attached):
        rows = self.rows()
        assert {r["DeviceName"] for r in rows} == set(self.kernel.owner)
        assert not [r for r in rows if r.get("Unfinished")]
        records = self.house.records()
        assert set(records) == {c.uid for c in claims}
        assert sorted(d["DeviceName"] for r in records.values() for d in r["devices"]) == sorted(
            r["DeviceName"] for r in rows)
        assert self.house.marked_pods() == ({POD} if claims else set())
        assert {r["DeviceName"] for r in rows if "SandboxID" in r} == set(self.kernel.sandbox)
        assert bool(self.kernel.sandbox) == attached
        assert self.kernel.wrong == []

    def settle(self):
        """What goes on behind the answers comes to its end; a statd that dies of it is started anew."""
        try:
            self.house.wait_status_written()
            alive = self.statd.running() and self.house.status()
        except LOST:
            alive = None
        if not alive:
            self.restart()
            self.house.wait_status_written()

    def live(self, ns):
        claim = h.Claim(self.house, "c1", [result("dummy0", "a"), result("vf0", "b")], [
            opaque({"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1"}}, ["a"])])
        ns.ip("link", "add", "net1", "type", "veth", "peer", "name", "other")
        fd = ns.open()
        try:
            self.call("claim.prepare", claim.ref)
            self.settle()
            self.check([claim], False)
            pod = {"podUID": POD, "sandboxID": "sandbox-1"}
            self.call("pod.attach", pod, fd)
            self.sandbox = fd
            self.settle()
            self.check([claim], True)
            assert self.call("pod.check", pod) == {"wanted": 2, "there": 2}
            self.sandbox = None
            self.call("pod.detach", pod)
        finally:
            os.close(fd)
        self.kernel.sandbox.clear()  # its namespace has ended: what was in it is on the host
        self.settle()
        self.call("claim.unprepare", claim.ref)
        self.settle()
        self.check([], False)
        assert not claim.status_path.exists()
        rival = h.Claim(self.house, "rival", [result("dummy0", "a"), result("vf0", "b")], pod_uid=POD)
        self.call("claim.prepare", rival.ref)
        self.settle()
        self.check([rival], False)


# The first that is worth it: a start sends and opens a lot before there is anything to be lost.
@pytest.mark.parametrize("call, first", [("renameat", 1), ("unlinkat", 1), ("sendmsg", 14), ("openat", 90)])
def test_nothing_is_lost(procs, rundir, netns, call, first):
    rundir.chmod(0o755)
    for nth in range(first, 1000):
        directory = rundir / f"{call}-{nth}"
        directory.mkdir()

        life = Life(procs, directory, call, nth)
        try:
            life.live(netns)
        except BaseException:
            print(f"killed at {call} number {nth}")
            raise
        netns.ip("link", "del", "net1")
        if life.end():
            break
    assert nth > first, "it was never killed"


@pytest.mark.parametrize("call, first, last, error", [("renameat", 1, 20, "ENOSPC"), ("openat", 90, 150, "EROFS")])
def test_record_that_cannot_be_written(procs, rundir, netns, call, first, last, error):
    """Once, wherever it is: what failed is repeated."""
    rundir.chmod(0o755)
    for nth in range(first, last + 1):
        directory = rundir / f"{call}-{nth}"
        directory.mkdir()
        life = Life(procs, directory, call, nth, f"error={error}")
        try:
            life.live(netns)
        except BaseException:
            print(f"failed at {call} number {nth}")
            raise
        finally:
            life.close()
        netns.ip("link", "del", "net1")
        life.end()
