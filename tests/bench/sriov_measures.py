# SPDX-License-Identifier: Apache-2.0
"""dmgr-sriov on a made-up sysfs with many virtual functions: how long it takes to find them, beside what
reading the same files takes, and what it holds."""
import pathlib
import shutil
import subprocess
import tempfile
import time

import managed
import procs as procs_module
from node import Sample, cpu_of, kind_of_link
from report import median
from sysfs_tree import SysfsTree

FUNCTIONS, ADAPTERS = 256, 2
FILES = ("class", "vendor", "device", "numa_node")  # of each function


def make_tree(path, functions=FUNCTIONS, adapters=ADAPTERS):
    """Names of the functions' links."""
    tree = SysfsTree(path)
    names = []
    for adapter in range(adapters):
        pf = f"0000:{adapter + 1:02x}:00.0"
        tree.pf(pf, f"pf{adapter}", functions // adapters, numvfs=functions // adapters)
        for index in range(functions // adapters):
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


def discover(statd):
    """Nanoseconds from the answer to device.restore, which comes before, to the inventory."""
    statd.next_hello()
    statd.restore()
    begin = time.monotonic_ns()
    count = len(statd.next_inventory())
    assert count == FUNCTIONS, count
    return time.monotonic_ns() - begin


def sriov(report, chosen):
    root = pathlib.Path(tempfile.mkdtemp(prefix="netclaim-bench-", dir=chosen.dir))
    processes = procs_module.Processes(root)
    taken, bare, computed = [], [], []
    statd = managed.Statd(root, {})
    try:
        make_links(make_tree(root / "sys"))
        statd.start()
        for _ in range(chosen.runs):
            bare.append(read_files(root / "sys"))
            manager = processes.start("dmgr-sriov", "--runtime-dir", root, "--sysfs-root", root / "sys")
            manager.wait_log("ready$")
            before = cpu_of(manager.pid)
            taken.append(discover(statd))
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
        if statd.server:
            statd.stop()
        shutil.rmtree(root)
