# SPDX-License-Identifier: Apache-2.0
"""dmgr-sriov on a made-up sysfs with many virtual functions: how long it takes to find them, beside what
reading the same files takes, and what it holds."""
import pathlib
import queue
import shutil
import subprocess
import tempfile
import time

import mprpc
import procs as procs_module
from node import Sample, cpu_of, kind_of_link
from report import median
from sysfs_tree import SysfsTree

FUNCTIONS = 256
ADAPTERS = 2
FILES = ("class", "vendor", "device", "numa_node")  # of each function


def make_tree(path):
    tree = SysfsTree(path)
    names = []
    for adapter in range(ADAPTERS):
        pf = f"0000:{adapter + 1:02x}:00.0"
        tree.pf(pf, f"pf{adapter}", FUNCTIONS // ADAPTERS, numvfs=FUNCTIONS // ADAPTERS)
        for index in range(FUNCTIONS // ADAPTERS):
            names.append(f"pf{adapter}v{index}")
            tree.vf(pf, index, f"0000:{adapter + 1:02x}:{index // 8 + 1:02x}.{index % 8}", names[-1])
    return names


def make_links(names):
    """A function's link is asked for its largest MTU, so there has to be one."""
    kind = kind_of_link()
    batch = "".join(f"link add {name} type {kind}\n" for name in names)
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)


def read_files(path):
    """Nanoseconds that cat(1) takes for them, its start included."""
    files = [file for device in sorted((path / "bus/pci/devices").iterdir()) for name in FILES
             if (file := device / name).exists()]
    begin = time.monotonic_ns()
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic_ns() - begin


class Discovery:
    """statd's end: the time from the answer to device.restore, which comes before, to the inventory."""

    def __init__(self, directory):
        self.inventories = queue.Queue()
        self.server = mprpc.Server(directory / "manager.sock", {
            "manager.hello": lambda *_: {"config": {}},
            "manager.devices": self._devices,
        }).start()

    def _devices(self, _, params, __):
        self.inventories.put((time.monotonic_ns(), len(params.get("devices", []))))

    def take(self):
        peer = self.server.wait_peer()

        def restored():
            try:
                peer.call("device.restore", {"allocations": []})
                return time.monotonic_ns()
            except mprpc.Error:  # faster than the answer to its hello
                return None
        begin = procs_module.wait_for(restored, what="the manager's configuration")
        end, count = self.inventories.get(timeout=30)
        assert count == FUNCTIONS, count
        return max(end - begin, 0)


def sriov(report, chosen):
    root = pathlib.Path(tempfile.mkdtemp(prefix="netclaim-bench-", dir=chosen.dir))
    processes = procs_module.Processes(root)
    taken, bare, computed = [], [], []
    discovery = None
    try:
        make_links(make_tree(root / "sys"))
        discovery = Discovery(root)
        for _ in range(chosen.runs):
            bare.append(read_files(root / "sys"))
            manager = processes.start("dmgr-sriov", "--runtime-dir", root, "--sysfs-root", root / "sys")
            manager.wait_log("ready$")
            before = cpu_of(manager.pid)
            taken.append(discovery.take())
            computed.append(cpu_of(manager.pid) - before)
            manager.wait_log("serving")
            sample = Sample(manager.pid)
            manager.stop()
        report.latencies("sriov", f"{FUNCTIONS} virtual functions of {ADAPTERS} adapters", [
            ("cat of the files that are read", bare, None),
            ("discovered and told", taken, "cat of the files that are read")])
        report.table("sriov_memory", f"dmgr-sriov with {FUNCTIONS} functions, KiB",
                     ("PSS", "private", "peak", "computed, ms"),
                     [(sample.pss, sample.private, sample.peak, round(median(computed) / 1e6, 2))])
    finally:
        processes.finish()
        if discovery:
            discovery.server.stop()
        shutil.rmtree(root)
