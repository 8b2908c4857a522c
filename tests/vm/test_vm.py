# SPDX-License-Identifier: Apache-2.0
"""The test VM itself: what the other tests in it stand on."""
import pathlib
import subprocess

import pytest

pytestmark = [pytest.mark.in_vm, pytest.mark.needs_dummy]


def ip(*args):
    return subprocess.run(["ip", *args], check=True, capture_output=True, text=True).stdout


def test_dummy_moves_into_a_namespace():
    ip("netns", "add", "pod")
    try:
        ip("link", "add", "dummy-vm", "type", "dummy")
        ip("link", "set", "dummy-vm", "netns", "pod", "name", "net1")
        assert "net1" in ip("-n", "pod", "link")
        assert "dummy-vm" not in ip("link")
    finally:
        ip("netns", "del", "pod")


def test_cgroups_are_of_version_2():
    assert pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()


def test_containerd_runs_a_pod(lab):
    pod = lab.pod("first")
    assert "eth0" in pod.ip("-brief", "link")
    container = pod.start_container()
    pid = lab.cri.container_info(container)["pid"]
    assert lab.check("cat", f"/proc/{pid}/cmdline").startswith("/pause")

    lab.kill_runtime()
    lab.start_runtime()
    assert [found["id"] for found in lab.cri.pods()] == [pod.id]

    pod.stop()
    pod.remove()
    assert lab.cri.pods() == []
    assert lab.check("ls", "/run/netns") == ""
