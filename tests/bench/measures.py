# SPDX-License-Identifier: Apache-2.0
"""What is measured. Each function measures one thing on nodes of its own and reports it."""
import random
import time

import procs as procs_module
from claims_measures import claims
from cluster_measures import cluster
from node import DAEMONS, MANAGER, MAX_DEVICES, Node, Sample, kernel_namespaces, reset_peak
from report import median, slope
from sriov_measures import sriov
from start_measures import starts

FILE_BYTES = 1500  # about a claim's status, a metadata file, a CDI specification
FEW = 3
SAMPLES = 20  # of a look for leaks
TICKS_SECONDS = 0.02  # two ticks of a kernel at 100 Hz, five at 250


# --- start

def cold_start(report, chosen):
    """From the first exec to an answer for the kubelet and one for the runtime."""
    orders = {"statd first": DAEMONS, "statd last": (*DAEMONS[1:], DAEMONS[0])}
    spawned, registered, synchronized, both, bare = ({name: [] for name in orders} for _ in range(5))
    computed = []
    for _ in range(chosen.runs):
        for name, order in orders.items():
            with Node(FEW, chosen.dir) as node:
                started, get_info, sync = node.start(order)
                spawned[name].append(started)
                registered[name].append(get_info)
                synchronized[name].append(sync)
                both[name].append(max(get_info, sync))
                computed.append(node.cpu())
                bare[name].append(node.bare.time("spawn", len(DAEMONS), "/bin/true"))
    rows = [("bare: as many processes of /bin/true", sum(bare.values(), []), None)]
    for name in orders:
        rows += [(f"{name}: all are started", spawned[name], None),
                 (f"{name}: kubelet has GetInfo", registered[name], rows[0][0]),
                 (f"{name}: runtime has Synchronize", synchronized[name], rows[0][0]),
                 (f"{name}: both", both[name], rows[0][0])]
    report.latencies("cold_start", "Cold start of all daemons, from the first exec", rows)
    means = [sum(run[name] for run in computed) / len(computed) / 1000 for name in DAEMONS]
    report.table("cpu_start", "Computed from exec until all work", ["us", *DAEMONS, "all"],
                 [["start", *means, sum(means)]])


# --- latency

def fill(node, count, netns):
    """Prepares and attaches so many."""
    claims = [node.claim(f"dummy{i}") for i in range(count)]
    for claim in claims:
        claim.prepare()
        claim.run(netns)
    node.wait_status_written()
    return claims


def at_any_moment(call, *words):
    """Much of the kernel's work on a link is waiting for grace periods, which end on a tick, as did the one
    before: what begins right after it would always meet the same part of the tick."""
    time.sleep(random.uniform(0, TICKS_SECONDS))
    return call(*words)


def bare_cycle(node, netns, times):
    mark = "netclaim:00000000-0000-0000-0000-000000000000:dummy"
    times["create"].append(at_any_moment(node.bare.time, "create", node.kind, "bare0", mark))
    whole, move = at_any_moment(node.bare.ask, "attach", "bare0", netns, "pod0")
    times["attach"].append(whole)
    times["attach but for the move"].append(whole - move)
    times["detach"].append(at_any_moment(node.bare.time, "detach", "pod0", netns))
    node.bare.ask("create", node.kind, "bare0", mark)
    times["delete"].append(at_any_moment(node.bare.time, "delete", "bare0"))
    for name, directory, *synced in (("claims", node.claims_dir, "synced"), ("kubelet", node.plugin_dir),
                                     ("cdi", node.cdi_dir)):
        times[f"file in {name}"].append(node.bare.time("replace", directory, FILE_BYTES, *synced))


class Spent:
    """Adds up what each daemon computes for one kind of call."""

    def __init__(self, node):
        self.node = node
        self.calls = {}

    def on(self, name, call, *words):
        before = self.node.cpu()
        time_taken = at_any_moment(call, *words)
        after = self.node.cpu()
        self.calls.setdefault(name, []).append({daemon: after[daemon] - before[daemon] for daemon in DAEMONS})
        return time_taken

    def rows(self):
        """A mean in microseconds for each daemon, and their sum. A mean, since what is put off to after the
        answer is charged to the next call."""
        for name, calls in self.calls.items():
            means = [sum(call[daemon] for call in calls) / len(calls) / 1000 for daemon in DAEMONS]
            yield [name, *means, sum(means)]


def our_cycle(node, device, netns, times, spent):
    times["no method, kubelet"].append(node.kubelet_peer.time("unknown"))
    times["no method, runtime"].append(node.runtime.time("unknown"))
    claim = node.claim(device)
    times["prepare"].append(spent.on("NodePrepareResources", claim.prepare))
    spent.on("status, written behind it", node.wait_status_written)
    times["prepare again"].append(spent.on("NodePrepareResources again", claim.prepare))
    times["run"].append(spent.on("RunPodSandbox", claim.run, netns))
    if node.moved():
        times["run but for the move"].append(times["run"][-1] - node.moved())
    times["stop"].append(spent.on("StopPodSandbox and Remove", claim.stop, netns))
    times["unprepare"].append(spent.on("NodeUnprepareResources", claim.unprepare))
    claim = node.claim(device)
    claim.prepare()
    node.wait_status_written()
    times["unprepare unused"].append(at_any_moment(claim.unprepare))
    times["run, no claim"].append(node.runtime.time("run", "pod-without", "f" * 64, netns))
    node.runtime.ask("remove", "pod-without", "f" * 64, netns)


class Times(dict):
    def __missing__(self, name):
        self[name] = []
        return self[name]


def without_the_move(ours, bare):
    """Rows, where the manager is one that tells."""
    if not ours["run but for the move"]:
        return []
    name = "bare: the same without the move itself"
    return [(name, bare["attach but for the move"], None),
            ("RunPodSandbox, without the move itself", ours["run but for the move"], name)]


def latency_at(report, chosen, existing, devices):
    ours, bare = Times(), Times()
    with Node(devices, chosen.dir) as node:
        node.start()
        netns = node.netns("pod")
        fill(node, existing, node.netns("others"))
        spent = Spent(node)
        for _ in range(chosen.reps):
            bare_cycle(node, netns, bare)
            our_cycle(node, f"dummy{devices - 1}", netns, ours, spent)
    files = [sum(three) for three in zip(*(bare[f"file in {name}"] for name in ("claims", "kubelet", "cdi")))]
    report.latencies(f"latency_{existing}", f"Latency at {existing} existing allocations of {devices} devices", [
        ("floor: gRPC call of no method", ours["no method, kubelet"], None),
        ("floor: NRI call of no method", ours["no method, runtime"], None),
        ("bare: create a link, set its alias", bare["create"], None),
        ("bare: 3 files replaced, one synced", files, None),
        ("bare: link and files", [sum(two) for two in zip(bare["create"], files)], None),
        ("NodePrepareResources", ours["prepare"], "bare: link and files"),
        ("NodePrepareResources again", ours["prepare again"], "floor: gRPC call of no method"),
        ("bare: move in, rename, sysctl, up", bare["attach"], None),
        ("RunPodSandbox", ours["run"], "bare: move in, rename, sysctl, up"),
        *without_the_move(ours, bare),
        ("RunPodSandbox, pod without claim", ours["run, no claim"], "floor: NRI call of no method"),
        ("bare: enter, delete", bare["detach"], None),
        ("StopPodSandbox", ours["stop"], "bare: enter, delete"),
        ("NodeUnprepareResources", ours["unprepare"], "floor: gRPC call of no method"),
        ("bare: delete on the host", bare["delete"], None),
        ("NodeUnprepareResources, never attached", ours["unprepare unused"], "bare: delete on the host"),
    ])
    report.table(f"cpu_{existing}", f"Computed at {existing} existing allocations", ["us", *DAEMONS, "all"],
                 list(spent.rows()))


def latency(report, chosen):
    latency_at(report, chosen, 1, FEW)
    latency_at(report, chosen, chosen.many, MAX_DEVICES)


# --- memory

def samples(node):
    return {name: Sample(pid) for name, pid in node.pids().items()}


class Taken:
    """What each daemon holds at some states of the node, and the most that it held on the way there."""

    def __init__(self):
        self.held, self.peaks = {}, {}

    def look(self, node, state):
        settle(node)
        self.held[state] = samples(node)

    def peak(self, node, what):
        """Since the last look at a peak."""
        self.peaks[what] = samples(node)
        for pid in node.pids().values():
            reset_peak(pid)

    def report(self, report):
        rows = [[name, *(getattr(held[name], field) for held in self.held.values() for field in ("pss", "private"))]
                for name in DAEMONS]
        rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, len(rows[0])))])
        report.table("memory", "Memory in KiB, PSS and private",
                     ["", *(f"{column}{state}" for state in self.held for column in ("", "private "))], rows)
        rows = [[name, *(peak[name].peak for peak in self.peaks.values())] for name in DAEMONS]
        report.table("peaks", "Most that was resident, in KiB", ["", *self.peaks], rows)


def burst(node, claims):
    """Prepares all at once. Nanoseconds that each took, and all."""
    words = [word for claim in claims for word in claim.words]
    begin = time.monotonic_ns()
    each = node.kubelet_peer.ask("prepare", *words)
    return each, time.monotonic_ns() - begin


def memory(report, chosen):
    """PSS, shared pages counted by how many share them, so that a sum is what is taken from the
    machine."""
    taken = Taken()
    with Node(FEW, chosen.dir) as node:
        node.start()
        taken.look(node, f"{FEW} dev")
    with Node(chosen.many, chosen.dir) as node:
        node.start()
        taken.look(node, f"{chosen.many} dev")
        taken.peak(node, f"start, {chosen.many} dev")
        claims = [node.claim(f"dummy{i}") for i in range(chosen.many)]
        each, whole = burst(node, claims[:chosen.burst])
        taken.peak(node, f"burst of {chosen.burst}")
        for claim in claims[chosen.burst:]:
            claim.prepare()
        netns = node.netns("pods")
        for claim in claims:
            claim.run(netns)
        taken.look(node, f"{chosen.many} alloc")
    with Node(MAX_DEVICES, chosen.dir) as node:
        node.start()
        taken.look(node, f"{MAX_DEVICES} dev")
        taken.peak(node, f"start, {MAX_DEVICES} dev")
        fill(node, chosen.many, node.netns("pods"))
        taken.look(node, f"{MAX_DEVICES} dev {chosen.many} alloc")
        taken.peak(node, f"{chosen.many} alloc of {MAX_DEVICES}")
        node.restart_manager()
        node.list_tables()
        taken.look(node, "again")
        taken.peak(node, f"{MANAGER} again, tables listed")
    taken.report(report)
    report.latencies("burst", f"A burst of {chosen.burst} claims, all at once",
                     [("one claim, from the first", each, None), ("all", [whole], None)])


# --- idle

def idle(report, chosen):
    rows = []
    with Node(FEW, chosen.dir) as node:
        node.start()
        claim, netns = node.claim("dummy0"), node.netns("pod")
        claim.prepare()
        claim.run(netns)
        settle(node)
        before, cpu_before = samples(node), node.cpu()
        time.sleep(chosen.idle)  # this is what is measured
        after, cpu_after = samples(node), node.cpu()
        for name in DAEMONS:
            rows.append([name, (after[name].switches - before[name].switches) / chosen.idle,
                         (cpu_after[name] - cpu_before[name]) / chosen.idle / 1000])
    report.table("idle", f"Idle for {chosen.idle} s, with one pod", ["", "wake-ups/s", "CPU us/s"], rows)


def settle(node):
    """Waits until nobody works any more: the last answer is out, and what follows it is not."""
    def look():
        before = node.cpu()
        time.sleep(procs_module.POLL_SECONDS)
        return before == node.cpu()
    procs_module.wait_for(look, 10, "the daemons' being idle")


# --- leaks

def leak_sample(node):
    """One look between two claims."""
    sample = {"links": node.links(), "namespaces": kernel_namespaces(),
              "files": len(node.files_left())}
    for name, taken in samples(node).items():
        sample[f"{name}: descriptors"] = taken.descriptors
        sample[f"{name}: resident KiB"] = taken.rss
        sample[f"{name}: private KiB"] = taken.private
    return sample


def leak(report, chosen):
    """Each cycle is a claim and a pod of its own, and a network namespace of its own. The first of the
    samples is a tenth of the way in: what a process keeps for good it has by then."""
    taken = []
    with Node(FEW, chosen.dir) as node:
        node.start()
        every = max(1, chosen.cycles // SAMPLES)
        for cycle in range(1, chosen.cycles + 1):
            netns = node.netns("pod")
            claim = node.claim(f"dummy{cycle % FEW}")
            claim.prepare()
            claim.run(netns)
            claim.stop(netns)
            claim.unprepare()
            node.end_netns(netns)
            if cycle % every == 0 and cycle * 10 >= chosen.cycles:
                taken.append((cycle, leak_sample(node)))
    rows = []
    for name in taken[0][1]:
        points = [(cycle / 1000, sample[name]) for cycle, sample in taken if sample[name] is not None]
        if points:
            values = [value for _, value in points]
            rows.append([name, values[0], median(values), max(values), values[-1], slope(points)])
    report.table("leak", f"{chosen.cycles} claims, one after the other",
                 ["", "first", "median", "max", "last", "slope/1000"], rows)


ALL = {"start": cold_start, "latency": latency, "memory": memory, "idle": idle, "sriov": sriov, "cluster": cluster,
       "claims": claims, "starts": starts, "leak": leak}
