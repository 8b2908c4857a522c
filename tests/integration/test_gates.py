# SPDX-License-Identifier: Apache-2.0
"""Never silent: with real containerds, the very statd, netnsd and nrihookd, and a device manager that
makes real links, no container of a pod with a prepared claim runs without its device, whatever fails
on the way. What the kubelet does then, trying again, succeeds when the trouble is over, and the
runtime can be restarted after all of it."""
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid

import pytest

import cri
import house as h
import mprpc
from house import opaque, result
from procs import STRETCH, wait_for

pytestmark = pytest.mark.needs_root

ANSWER = 2 * STRETCH  # seconds that a runtime gives us for one answer
LINK = "net1"


class LinkManager(h.MockManager):
    """What it attaches is a bridge, which every kernel has. As real ones do, it takes a second attach
    for the end of the first."""

    def __init__(self, house):
        self.works = threading.Event()
        self.works.set()
        self.one_at_a_time = threading.Lock()
        super().__init__(house, "dummy", [h.dedicated("dummy0")])

    def _recorded(self, name, handler):
        inner = super()._recorded(name, handler)
        move = {"device.attach": self._give, "device.detach": self._take}.get(name)

        def handle(peer, params, fds):
            if move:
                self.works.wait(60 * STRETCH)
            if move and (name, "dummy0") not in self.failures:
                with self.one_at_a_time:
                    move(f"--net=/proc/{os.getpid()}/fd/{fds[0]}", params["ifName"])
            return inner(peer, params, fds)
        return handle

    @staticmethod
    def _is_there(netns, link):
        return subprocess.run(["nsenter", netns, "ip", "link", "show", link], capture_output=True,
                              check=False).returncode == 0

    def _give(self, netns, link):
        if not self._is_there(netns, link):
            subprocess.run(["nsenter", netns, "ip", "link", "add", link, "type", "bridge"], check=True)

    def _take(self, netns, link):
        if self._is_there(netns, link):
            subprocess.run(["nsenter", netns, "ip", "link", "del", link], check=True)


class Node(h.House):
    def __init__(self, procs, directory, lab):
        super().__init__(procs, directory)
        self.lab = lab
        self.statd = self.start_statd()
        self.start_netnsd()
        self.manager = LinkManager(self)
        self.wait_peer("netnsd", "connected")
        self.hookd = self.start_nrihookd("--nri-socket", lab.nri_socket, via=lab.via)
        self.wait_registered()

    def wait_registered(self):
        self.wait_peer("nrihookd", "registered", 20)

    def claim(self):
        """The UID of a pod that has one, prepared."""
        claim = h.Claim(self, "c1", [result("dummy0")], config=[opaque({"podIfName": LINK})],
                        pod_uid=str(uuid.uuid4()))
        peer = mprpc.connect(self.runtime_dir / "front.sock")
        try:
            peer.call("front.hello", {"role": "draplugind", "version": "0"})
            peer.call("claim.prepare", claim.ref)
        finally:
            peer.close()
        return claim.object["status"]["reservedFor"][0]["uid"]

    def close(self):
        self.manager.works.set()
        self.lab.remove_pods()
        self.manager.close()


@pytest.fixture
def node(procs, rundir, lab):
    node = Node(procs, rundir, lab)
    yield node
    node.close()


class Kubelet:
    """Brings up one pod as the kubelet does: a sandbox unless there is one, then its container."""

    def __init__(self, node, name, uid):
        self.lab = node.lab
        self.name = name
        self.uid = uid
        self.pod = None

    def sync(self):
        """One try. It fails as the runtime does, else the container runs."""
        if not self.pod:
            self.pod = self.lab.pod(self.name, self.uid)
        return self.pod.start_container()

    def refused(self):
        """One try that must fail, in time, with a reason that names the pod; returns that."""
        begun = time.monotonic()
        with pytest.raises(cri.RpcError) as failure:
            self.sync()
        assert time.monotonic() - begun < 2 * ANSWER + 3 * STRETCH  # two hooks, and the runtime's own work
        assert f"attach of the devices of pod default/{self.name}: " in failure.value.details()
        return failure.value.details()

    def comes_up(self):
        """By itself, as it tries again; then the device is there."""
        def look():
            try:
                return self.sync()
            except cri.RpcError:
                return None
        wait_for(look, 30, "the container")
        assert LINK in self.pod.ip("link", "show", LINK)


# --- troubles: each a function that begins one, and returns one that ends it


def manager_is_dead(node):
    node.manager.close()
    node.wait_peer("dmgr-dummy", "missing")

    def end():
        node.manager = LinkManager(node)
    return end


def manager_hangs(node):
    node.manager.works.clear()
    return node.manager.works.set


def statd_is_stopped(node):
    node.statd.signal(signal.SIGSTOP)
    return lambda: node.statd.signal(signal.SIGCONT)


def statd_is_killed(node):
    node.statd.kill()
    node.manager.close()

    def end():
        node.statd = node.start_statd()
        node.manager = LinkManager(node)
    return end


TROUBLES = [manager_is_dead, manager_hangs, statd_is_stopped, statd_is_killed]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_container_without_its_device(node, trouble):
    claimed = Kubelet(node, "claimed", node.claim())
    other = Kubelet(node, "other", str(uuid.uuid4()))
    other.sync()
    end = trouble(node)
    for _ in range(2):
        claimed.refused()
    other.pod.start_container("c2")  # known to have no claims
    end()
    claimed.comes_up()
    # all was answered in time: else the runtime would have closed
    assert "lost the container runtime" not in node.hookd.log
    restart(node, node.lab.kill_runtime, claimed, other)
    for kubelet in claimed, other:
        kubelet.pod.start_container("c3")


def restart(node, end_runtime, *kubelets):
    """The runtime comes up again, with each of these pods once."""
    registrations = node.hookd.log.count("registered with the container runtime")
    end_runtime()
    node.lab.start_runtime()
    assert sorted(pod["id"] for pod in node.lab.cri.pods()) == sorted(kubelet.pod.id for kubelet in kubelets)
    wait_for(lambda: node.hookd.log.count("registered with the container runtime") > registrations, 20,
             "the next registration")


def test_plain_pods_while_statd_is_dead(node):
    """A pod that has no claim lives and ends as if nothing had happened; one that has is refused."""
    claimed = Kubelet(node, "claimed", node.claim())
    statd_is_killed(node)
    node.hookd.wait_log("lost statd")
    plain = Kubelet(node, "plain", str(uuid.uuid4()))
    plain.sync()
    plain.pod.start_container("c2")
    assert "statd is not running" in claimed.refused()
    plain.pod.stop()
    node.lab.remove_pod(plain.pod.id)
    assert plain.uid not in complaints(node)


def test_record_that_is_exchanged_while_statd_is_dead(node):
    """Nothing is believed of it: a pod that it does not name may have a claim."""
    state = node.runtime_dir / "state"
    statd_is_killed(node)
    node.hookd.wait_log("lost statd")
    state.rename(node.runtime_dir / "elsewhere")
    (state / "pods").mkdir(parents=True)
    plain = Kubelet(node, "plain", str(uuid.uuid4()))
    assert "statd is not running" in plain.refused()
    node.hookd.wait_log("no use of the node's record.*is not the state directory of statd")
    shutil.rmtree(state)
    (node.runtime_dir / "elsewhere").rename(state)
    plain.sync()


def complaints(node):
    return "\n".join(line for line in node.hookd.log.splitlines() if " error " in line or " warn " in line)


def test_reason(node):
    """The device that failed, and why, reaches the pod's events."""
    claimed = Kubelet(node, "claimed", node.claim())
    node.manager.failures["device.attach", "dummy0"] = mprpc.Error("conflict", "someone else has it")
    for _ in range(2):
        assert "device dummy0: someone else has it" in claimed.refused()
    node.manager.failures.clear()
    claimed.comes_up()


def test_runtime_restarts_after_a_failure(node):
    """One attach that fails, one try of the same pod that succeeds, and a restart: what ends a
    containerd that was told of the failure at the wrong time."""
    claimed = Kubelet(node, "claimed", node.claim())
    node.manager.failures["device.attach", "dummy0"] = mprpc.Error("internal", "it will not go")
    claimed.refused()
    if claimed.pod:  # the sandbox stands: its end must leave nothing either
        claimed.pod.stop()
        claimed.pod.remove()
        claimed.pod = None
    node.manager.failures.clear()
    claimed.comes_up()
    for end_runtime in node.lab.stop_runtime, node.lab.kill_runtime:
        restart(node, end_runtime, claimed)


def test_sandbox_that_was_started_while_we_were_away(node):
    """Its containers wait for the late attach."""
    claimed = Kubelet(node, "claimed", node.claim())
    node.hookd.stop()
    claimed.pod = node.lab.pod("claimed", claimed.uid)
    node.manager.works.clear()
    node.hookd = node.start_nrihookd("--nri-socket", node.lab.nri_socket, via=node.lab.via)
    node.wait_registered()
    wait_for(lambda: node.manager.asked("device.check"), what="the late attach")
    claimed.refused()
    node.manager.works.set()
    claimed.comes_up()


def test_attach_failure_is_only_logged(procs, rundir, lab):
    """--on-attach-failure=log: the pod matters more than its device."""
    node = Node(procs, rundir, lab)
    node.hookd.stop()
    node.hookd = node.start_nrihookd("--nri-socket", lab.nri_socket, "--on-attach-failure", "log", via=lab.via)
    node.wait_registered()
    claimed = Kubelet(node, "claimed", node.claim())
    node.manager.failures["device.attach", "dummy0"] = mprpc.Error("internal", "it will not go")
    claimed.sync()
    for consequence in ("the pod runs without its devices", "the container runs without the pod's devices"):
        node.hookd.wait_log(f"error nrihookd: attach failed: {consequence} pod={claimed.uid} "
                            f"sandbox={claimed.pod.id} .*it will not go")
    node.close()
