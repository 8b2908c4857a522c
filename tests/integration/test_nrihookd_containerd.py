# SPDX-License-Identifier: Apache-2.0
"""The very nrihookd with real containerds: what the imitation of one is made after."""
import json
import re
import shutil

import pytest

import cri
from hook_statd import DRIVER, Refusing, Statd
from procs import wait_for

pytestmark = pytest.mark.needs_root


class Hooked:
    """A lab's containerd with nrihookd and a statd."""

    def __init__(self, lab, rundir, procs):
        self.lab = lab
        self.rundir = rundir
        self.procs = procs
        self.statd = Statd(rundir).start()
        self.process = None
        self.cdi_file = None

    def start(self):
        self.process = self.procs.start("nrihookd", "--runtime-dir", self.rundir, "--nri-socket",
                                        self.lab.nri_socket, "--kubelet-dir", "/run/kubelet", "--log-level", "debug",
                                        via=self.lab.via)
        self.process.wait_log("registered with the container runtime.*containerd")

    def cdi_device(self, claim):
        """Makes the metadata file and the CDI device of a claim with one request, as draplugind does;
        returns the device."""
        path = f"kubelet/plugins/{DRIVER}/dra-device-metadata/{claim}/net/metadata.json"  # in /run, inside
        target = f"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/{claim}/net/{DRIVER}-metadata.json"
        (self.lab.run / path).parent.mkdir(parents=True)
        (self.lab.run / path).write_text("{}")
        mount = {"hostPath": f"/run/{path}", "containerPath": target, "options": ["ro", "bind"]}
        name = claim.replace("_", "-")
        self.cdi_file = self.lab.run / "cdi" / f"{DRIVER}_{name}.json"
        self.cdi_file.write_text(json.dumps({
            "cdiVersion": "0.5.0", "kind": f"{DRIVER}/metadata",
            "devices": [{"name": f"{name}_net", "containerEdits": {"mounts": [mount]}}]}))
        return f"{DRIVER}/metadata={name}_net"

    def remove_cdi(self):
        if self.cdi_file:
            self.cdi_file.unlink()
            shutil.rmtree(self.lab.run / "kubelet")

    def inode(self, pod):
        return int(re.search(r"\[(\d+)\]", self.lab.check(
            "nsenter", f"--net={pod.netns()}", "readlink", "/proc/self/ns/net"))[1])


@pytest.fixture
def hooked(lab, rundir, procs):
    h = Hooked(lab, rundir, procs)
    yield h
    lab.remove_pods()
    h.remove_cdi()
    h.statd.stop()


def test_pod(hooked):
    hooked.start()
    pod = hooked.lab.pod("p1", uid="aaaaaaaa-0000-0000-0000-000000000001")
    [attach] = hooked.statd.attaches
    assert attach == {"podUID": pod.uid, "sandboxID": pod.id, "podName": "p1", "podNamespace": "default",
                      "inode": hooked.inode(pod)}
    pod.stop()
    pod.remove()
    assert hooked.statd.calls == [("attach", pod.id), ("detach", pod.id), ("detach", pod.id)]
    assert hooked.statd.wait_state("registered")["detail"].startswith("containerd ")


def test_pod_that_was_missed(hooked):
    """Started while nobody listened: attached as soon as somebody does."""
    pod = hooked.lab.pod("p1")
    hooked.statd.wanted = {pod.uid}
    hooked.start()
    wait_for(lambda: hooked.statd.attaches, what="the late attach")
    assert hooked.statd.attaches[0]["inode"] == hooked.inode(pod)
    hooked.process.wait_log("late attach: 1 devices")


def test_runtime_restarts(hooked):
    hooked.start()
    pod = hooked.lab.pod("p1")
    hooked.lab.kill_runtime()
    hooked.process.wait_log("lost the container runtime")
    hooked.lab.start_runtime()
    wait_for(lambda: hooked.statd.syncs[-1] == [(pod.uid, pod.id)], 20, "the list after the restart")
    second = hooked.lab.pod("p2")
    assert hooked.statd.calls[-1] == ("attach", second.id)


def test_attach_refused(hooked):
    """The reason reaches whoever asked: for the pod, or for its container where the runtime would leave
    a refused sandbox behind."""
    hooked.start()
    hooked.statd.attach = Refusing("conflict", "interface 'net1' is taken")
    with pytest.raises(cri.RpcError, match="interface 'net1' is taken"):
        hooked.lab.pod("p1").start_container()
    hooked.statd.attach = lambda params: {"devices": 1}
    if hooked.lab.version == "17":
        hooked.lab.pod("p1").start_container()
        assert [method for method, _ in hooked.statd.calls] == ["attach", "detach", "detach", "attach"]
    else:
        pod, = hooked.lab.cri.pods()
        config = cri.pod_config("p1", pod["metadata"]["uid"])
        hooked.lab.cri.start_container(pod["id"], config, "c1")
        assert [method for method, _ in hooked.statd.calls] == ["attach"] * 3


def test_container_of_sandbox_that_is_new_to_us(hooked):
    """What a runtime tells of a container's sandbox is enough to attach to it."""
    pod = hooked.lab.pod("p1")
    hooked.start()
    pod.start_container("c1")
    assert hooked.statd.calls == []  # it was in the list, and lacked nothing
    hooked.statd.server.stop()
    hooked.process.wait_log("lost statd")
    pod.start_container("c2")
    hooked.statd.server.start()


def test_container_that_was_given_a_claim(hooked):
    """Runtimes inject what CDI adds before they call plugins: it is among the mounts of the container that
    is to be created. The refusal reaches the kubelet, and the pod's other containers run."""
    hooked.statd.keep_record()
    hooked.start()
    device = hooked.cdi_device("default_c1")
    pod = hooked.lab.pod("p1")
    hooked.statd.attach = Refusing("conflict", "claim default/c1 is in use by pod default/other")
    with pytest.raises(cri.RpcError, match="attach of the devices of pod default/p1: claim default/c1 is in use by pod"):
        pod.start_container("c1", [device])
    pod.start_container("c2")
    hooked.statd.attach = lambda params: {"devices": 1}
    pod.start_container("c1", [device])
    assert hooked.statd.claims == [["default_c1"]] * 2
    hooked.statd.server.stop()
    hooked.process.wait_log("lost statd")
    pod.start_container("c3", [device])
    second = hooked.lab.pod("p2")
    second.start_container("c1")
    with pytest.raises(cri.RpcError, match="claim default/c1: whether the devices are there is not known"):
        second.start_container("c2", [device])
    hooked.statd.server.start()
