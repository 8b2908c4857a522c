# SPDX-License-Identifier: Apache-2.0
"""Starts of a node with many virtual functions: from the first exec until the kubelet has its answer. The
functions are made up, in memory, as sysfs is; each has a link. Daemons are started in any order."""
import contextlib
import pathlib
import random
import shutil
import subprocess
import tempfile

from cluster_measures import Running, source_of
from node import Node, cpu_of
from report import median, percentile
from sriov_measures import make_links, make_tree

FUNCTIONS, ADAPTERS = 1100, 10
IN_MEMORY = "/dev/shm"
MOST_MS = 150
WARM_UP = 1  # starts that are not counted: programs and libraries are read from a disk


@contextlib.contextmanager
def made_up_sysfs():
    """Where it is. Its links go at the end."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="netclaim-bench-", dir=IN_MEMORY))
    names = make_tree(root / "sys", FUNCTIONS, ADAPTERS)
    make_links(names)
    try:
        yield root / "sys"
    finally:
        subprocess.run(["ip", "-batch", "-"], input="".join(f"link del {name}\n" for name in names), text=True, check=True)
        shutil.rmtree(root)


def start(chosen, sysfs_root, source):
    """Nanoseconds until the kubelet has its answer, and what each daemon has computed until then and soon after."""
    with Node(directory=chosen.dir, source=source, sysfs_root=sysfs_root) as node:
        order = random.sample(node.daemon_names, len(node.daemon_names))
        _, get_info, _ = node.start(order)
        return get_info, {name: cpu_of(pid) for name, pid in node.pids().items()}


def distribution(name, values):
    return [name, len(values), *(value / 1e6 for value in (min(values), median(values), percentile(values, 90), max(values))),
            MOST_MS]


def times(chosen, sysfs_root, source):
    taken = [start(chosen, sysfs_root, source) for _ in range(WARM_UP + chosen.starts)][WARM_UP:]
    return [took for took, _ in taken], [computed for _, computed in taken]


def in_a_cluster(chosen, sysfs_root):
    """The node's objects exist, its slices from the second start on."""
    with Running() as running:
        if not running:
            return None
        house = running.house()
        with Node(directory=chosen.dir, sysfs_root=sysfs_root) as node:
            house.create_config(node.managers, node.pools)
        return times(chosen, sysfs_root, source_of(house))


def starts(report, chosen):
    with made_up_sysfs() as sysfs_root:
        measured = {"files": times(chosen, sysfs_root, ()), "API server": in_a_cluster(chosen, sysfs_root)}
    measured = {name: of for name, of in measured.items() if of}
    report.table("starts", f"From the first exec until the kubelet has GetInfo, {FUNCTIONS} functions",
                 ["ms", "n", "min", "median", "p90", "max", "at most"],
                 [distribution(name, taken) for name, (taken, _) in measured.items()])
    daemons = list(next(iter(measured.values()))[1][0])
    report.table("starts_cpu", "Computed by each until then, median", ["ms", *sorted(daemons), "all"], [
        [name, *(median([each[daemon] for each in computed]) / 1e6 for daemon in sorted(daemons)),
         median([sum(each.values()) for each in computed]) / 1e6] for name, (_, computed) in measured.items()])
