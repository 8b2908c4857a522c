# SPDX-License-Identifier: Apache-2.0
"""The crash walk with real containerds: faults at the boundaries of attach and detach. See crash_walk.py."""
import os

import pytest

import cri
import crash_walk
from crash_runtime import Refused

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_dummy, pytest.mark.in_vm]

# walks with each containerd, of those that there are; 0: all
WALKS = int(os.environ.get("NETCLAIM_CRASH_CRI", "5"))


class CriSandbox:
    def __init__(self, lab, pod):
        self.lab, self.pod = lab, pod
        self.id = pod.id
        self.netns = pod.netns()

    def check(self, *command):
        return self.lab.check("nsenter", f"--net={self.netns}", *command)

    def close(self):
        self.lab.remove_pods()


class CriPods:
    """crash_runtime.FakePods, but real."""

    kinds = ("dummy",)

    def __init__(self, lab, node):
        self.lab, self.node = lab, node
        self.nri_socket = lab.nri_socket
        self.via = dict.fromkeys(("netnsd", "dmgr-dummy", "nrihookd"), lab.via)
        self.check = lab.check
        self.hook = None  # process that was there when the sandbox started

    def close(self):
        self.lab.remove_pods()

    def next_habit(self):
        pass

    @staticmethod
    def is_the_hosts(link):
        """Not of the pods' network."""
        return link["ifname"] != "labbr0" and not link["ifname"].startswith("veth")

    def run(self, uid):
        self.hook = self.node.daemons["nrihookd"].pid
        try:
            return CriSandbox(self.lab, self.lab.pod("pod", uid))
        except cri.RpcError as e:
            self.lab.remove_pods()
            raise Refused(str(e)) from e

    def create(self, sandbox):
        try:
            sandbox.pod.start_container(f"c{os.urandom(4).hex()}")
        except cri.RpcError as e:
            raise Refused(str(e)) from e
        return self.hook == self.node.daemons["nrihookd"].pid and not self.node.was_stopped("nrihookd")

    def stop(self, sandbox):
        try:
            sandbox.pod.stop()
        except cri.RpcError as e:
            raise Refused(str(e)) from e

    def remove(self, sandbox):
        try:
            sandbox.pod.remove()
        except cri.RpcError as e:
            raise Refused(str(e)) from e


@pytest.fixture(scope="module")
def walker(containerd):
    walker = crash_walk.Walker(pods_of=lambda node: CriPods(containerd, node))
    walker.open()
    yield walker
    walker.close(failed=True)


def daemons_of(version):
    """containerd 2.1 holds a read lock in RemovePodSandbox and asks for it again for each container; a plugin
    that registers in between asks for the write lock, and all three wait for ever. What makes nrihookd
    register anew is left out there: it would be the runtime's walk."""
    left_out = {"nrihookd"} if version == "21" else set()
    return [daemon for daemon in crash_walk.DAEMONS if daemon not in left_out]


def test_nothing_is_lost(walker, containerd):
    if containerd.version == "21" and "NETCLAIM_CRASH_CRI" not in os.environ:
        pytest.skip("open: with containerd 2.1 the walk that kills dmgr-dummy behind a pod.detach does not end, for "
                    "the proxy forwards nothing any more; set NETCLAIM_CRASH_CRI to walk")
    boundaries, _ = walker.boundaries()
    boundaries = [b for b in boundaries if b.point.phase in ("attach", "detach")]
    assert len(boundaries) > 30, "the trace is too short to be true"
    cases = crash_walk.cases_of(boundaries, daemons_of(containerd.version), crash_walk.FAULTS)
    cases = crash_walk.evenly(cases, WALKS or len(cases))
    failures, missed = crash_walk.walk_all(walker, cases)
    print(crash_walk.summary(len(boundaries), len(cases), len(failures), missed, 0))
    assert not failures, "\n".join(f"{case}: {lost}" for case, lost in failures)
