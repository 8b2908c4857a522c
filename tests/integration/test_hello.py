# SPDX-License-Identifier: Apache-2.0
"""What the clients of statd do while it does not take them: one policy for all of them (common/hello.h)."""
import socket
import time

import pytest

import mprpc
from procs import STRETCH, wait_for

pytestmark = pytest.mark.needs_root

REASON = "the role is taken by pid 1"
FRONT = {"driverName": "networkdriver.cilium.io", "nodeName": "n", "retryIntervalMs": 100, "registrationTimeoutMs": 5000,
         "maxAttempts": 3, "ready": False}
MANAGER = {"config": {}}
SYSFS = "bus/pci/devices"


class Statd:
    """Refuses so many hellos."""

    def __init__(self, rundir, refusals):
        self.refusals = refusals
        self.hellos = []  # when
        self.servers = [mprpc.Server(rundir / "front.sock", {"front.hello": self._answer(FRONT)}).start(),
                        mprpc.Server(rundir / "manager.sock", {
                            "manager.hello": self._answer(MANAGER),
                            "manager.devices": lambda peer, params, fds: {}}).start()]

    def _answer(self, result):
        def hello(peer, params, fds):
            self.hellos.append(time.monotonic())
            if len(self.hellos) <= self.refusals:
                raise mprpc.Error("conflict", REASON)
            return result
        return hello

    def stop(self):
        for server in self.servers:
            server.stop()


class Supervisor:
    """systemd, as sd_notify(3) sees it."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.status = ""

    def look(self):
        """The status that was notified last."""
        try:
            while True:
                for line in self.socket.recv(65536).decode().splitlines():
                    if line.startswith("STATUS="):
                        self.status = line.removeprefix("STATUS=")
        except BlockingIOError:
            return self.status


@pytest.fixture
def statd(rundir):
    s = Statd(rundir, refusals=2)
    yield s
    s.stop()


def arguments(program, rundir):
    if program == "draplugind":
        (rundir / "kubelet").mkdir()
        return "--kubelet-dir", rundir / "kubelet", "--cdi-dir", rundir / "cdi"
    if program == "nrihookd":
        return "--nri-socket", rundir / "nri.sock"
    if program == "dmgr-sriov":
        (rundir / "sys" / SYSFS).mkdir(parents=True)
        return "--sysfs-root", rundir / "sys"
    return ()


def restored(manager):
    """Whether it has taken device.restore, which it does when it has read the answer to its hello."""
    try:
        manager.call("device.restore", {"allocations": []}, timeout=10 * STRETCH)
        return True
    except mprpc.Error:
        return False


@pytest.mark.parametrize("program", ["draplugind", "nrihookd", "netnsd", "dmgr-dummy", "dmgr-sriov"])
def test_refused_hello(statd, procs, rundir, program):
    """The process lives, says why once and in its status, and comes back after pauses that grow."""
    supervisor = Supervisor(rundir / "notify.sock")
    process = procs.start(program, "--runtime-dir", rundir, "--log-level", "info", *arguments(program, rundir),
                          env={"NOTIFY_SOCKET": supervisor.path})
    process.wait_log(f"; trying again .*{REASON}")
    wait_for(lambda: REASON in supervisor.look(), what="the reason in the status")
    wait_for(lambda: len(statd.hellos) == 3, 10, "the third hello")
    assert statd.hellos[1] - statd.hellos[0] >= 0.9
    assert statd.hellos[2] - statd.hellos[1] >= 1.9
    assert process.log.count(REASON) == 1
    assert "lost statd" not in process.log
    if program.startswith("dmgr"):
        wait_for(lambda: restored(statd.servers[1].wait_peer()), what="a manager that serves")
    wait_for(lambda: REASON not in supervisor.look(), what="another status")
