#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever dies whenever: nothing is lost, leaked or handed out twice.

Walks through the life of a claim and of its pod (prepared, attached, each daemon restarted in turn,
detached, unprepared) once undisturbed, and notes every message between statd and the others. Each
message gives two boundaries, before it and after it. Then for each boundary, each daemon and each of
two faults the life is lived again: when the boundary comes the daemon is killed and started anew, or
stopped until its callers' deadlines have passed. The callers do what kubelet and container runtime do,
the life goes on to its end, and then the world must be what it was before.

    crash_walk.py                          all of it
    crash_walk.py --every 20 --offset 3    every twentieth walk, from the fourth on
    crash_walk.py --only 'attach: device.attach' --daemon statd --fault kill
    crash_walk.py --containerd 21          attach and detach, with pods of a real containerd 2.1
    crash_walk.py --list                   what there is to be walked

    crash_walk.py --manager sriov          with virtual functions of real adapters in VLANs

Needs root. The kernel's links are dummy ones, or ifb where it makes none; with --manager sriov they are
virtual functions, of which there is one node at a time.
"""
import argparse
import contextlib
import dataclasses
import difflib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

if __name__ == "__main__":
    sys.dont_write_bytecode = True
    TESTS = pathlib.Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(TESTS / name) for name in ("integration", "containerd", "crash")]

import house as h
import mprpc
import procs as procs_module
import rpc_proxy
import managers
import walk_jobs
from crash_node import POLL_SECONDS, SETTLE_SECONDS, Lost, Node, wait_for
from crash_runtime import FakePods, Refused

FAULTS = ("kill", "stop")
STEP_SECONDS = 60  # by then a caller that repeats must have had its way
TRIES = 5  # to come to a boundary

N_DEVICES = 2
SYSCTLS = {"ipv4/conf/net0/arp_filter": "1", "ipv6/conf/net0/accept_ra": "0",
           "ipv4/conf/net1/arp_filter": "1", "ipv6/conf/net1/accept_ra": "0"}


def claim_config(manager, number):
    return h.opaque({"podIfName": f"net{number}", "interfaceSysctlIPv4": {"arp_filter": "1"},
                     "interfaceSysctlIPv6": {"accept_ra": "0"}, **manager.parameters(number)}, [f"r{number}"])


def daemons_of(manager):
    return "statd", "netnsd", manager.name, "draplugind", "nrihookd"


DAEMONS = daemons_of(managers.Dummy)


class DidNotCome(Exception):
    """The boundary of a walk was not there this time."""


# --- the life of a claim ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Boundary:
    point: rpc_proxy.Point
    side: str

    def __str__(self):
        return f"{self.side} {self.point}"


@dataclasses.dataclass(frozen=True)
class Case:
    boundary: Boundary
    daemon: str
    fault: str

    def __str__(self):
        done = {"kill": "killed", "stop": "stopped"}[self.fault]
        return f"{self.daemon} {done} {self.boundary}"


class Life:
    """One life cycle. told is what callers were told instead of success."""

    def __init__(self, node):
        self.node = node
        self.proxy = node.proxy
        self.devices = node.manager.devices[:N_DEVICES]
        self.uid = str(uuid.uuid4())
        self.sandbox = None
        self.told = []
        self.claim = self._claim("c1")
        self.rival = self._claim("c2")

    def _claim(self, name):
        results = [h.result(device, f"r{n}") for n, device in enumerate(self.devices)]
        config = [claim_config(self.node.manager, n) for n in range(N_DEVICES)]
        return h.Claim(self.node, name, results, config, pod_uid=self.uid)

    def until_done(self, what, action):
        """Repeats what fails, as the caller in question would."""
        deadline = time.monotonic() + STEP_SECONDS * procs_module.STRETCH
        while True:
            try:
                result = action()
                self.proxy.caller_returned = True
                return result
            except Refused as e:
                self.proxy.caller_returned = True
                self.told.append(f"{what}: {e}")
            if time.monotonic() > deadline:
                raise Lost(f"{what} never succeeds: {self.told[-1]}")
            time.sleep(2 * POLL_SECONDS)

    # --- the steps

    def prepare(self):
        self.until_done("prepare", lambda: self.node.watcher.try_claims("prepare", [self.claim.ref]))
        self.assert_prepared()

    def attach(self):
        self.sandbox = self.until_done("RunPodSandbox", lambda: self.node.pods.run(self.uid))
        gated = self.until_done("CreateContainer", lambda: self.node.pods.create(self.sandbox))
        if gated:
            self.assert_attached()
        else:  # nobody was there to be asked; whoever comes back makes up for it
            wait_for(self.is_attached, SETTLE_SECONDS,
                     lambda: f"the pod stays without its devices: {self.node.state()}")

    def detach(self):
        self.until_done("StopPodSandbox", lambda: self.node.pods.stop(self.sandbox))
        self.until_done("RemovePodSandbox", lambda: self.node.pods.remove(self.sandbox))
        self.sandbox = None

    def unprepare(self):
        self.until_done("unprepare", lambda: self.node.watcher.try_claims("unprepare", [self.claim.ref]))

    def restart(self, name):
        self.node.restart(name)
        self.proxy.caller_returned = True  # nobody waits

    # --- what holds in between

    def assert_prepared(self):
        # a statd that was killed writes what is due when it is back
        wait_for(lambda: [entry["device"] for entry in self.claim.status or ()] == list(self.devices), SETTLE_SECONDS,
                 lambda: f"prepared, but the claim's status is {self.claim.status}")
        links = self.node.all_links(self.node.pods.check)
        for device in self.devices:
            link = self.node.devices_of(links).get(device, {})
            if self.claim.uid not in link.get("ifalias", ""):
                raise Lost(f"prepared, but {device} is not there with the claim's mark: {link}")
            unlike = self.node.manager.unlike_prepared(device, link, links)
            if unlike:
                raise Lost(f"prepared, but {device} is there{unlike}")

    def pod_problem(self):
        """What is wrong with the pod's devices."""
        script = "ip -d -j link; " + "cat " + " ".join(f"/proc/sys/net/{leaf}" for leaf in SYSCTLS)
        listing, _, values = self.sandbox.check("sh", "-c", f"{script} 2>/dev/null; true").rpartition("]")
        links = {link["ifname"]: link for link in json.loads(listing + "]")}
        for n, device in enumerate(self.devices):
            link = links.get(f"net{n}")
            if not link:
                return f"net{n} is not in the pod, only {list(links)}"
            if "UP" not in link["flags"] or not self.node.manager.is_device(link):
                return f"net{n} is not as it should be: {link}"
            if self.claim.uid not in link.get("ifalias", "") or device not in link["ifalias"]:
                return f"net{n} has the mark {link.get('ifalias')}"
        found = dict(zip(SYSCTLS, values.split()))
        if found != SYSCTLS:
            return f"sysctls are {found}"
        on_host = self.node.all_links(self.node.pods.check)
        left = set(self.node.devices_of(on_host)).intersection(self.devices)
        if left:
            return f"{left} are on the host as well"
        return "; ".join(f"{device} is{unlike}" for device in self.devices
                         if (unlike := self.node.manager.unlike_attached(device, on_host))) or None

    def is_attached(self):
        return self.pod_problem() is None

    def assert_attached(self):
        problem = self.pod_problem()
        if problem:
            raise Lost(f"the container was accepted, but {problem}; {self.node.state()}")

    def in_table(self):
        rows = self.node.rows()
        return len(rows) == N_DEVICES and all(row.get("SandboxID") == self.sandbox.id for row in rows)

    def nowhere_in_table(self):
        return all("SandboxID" not in row for row in self.node.rows())

    def assert_not_given_twice(self):
        """Another claim for the same devices is refused."""
        def attempt():
            try:
                self.node.watcher.try_claims("prepare", [self.rival.ref])
            except Refused as e:
                if self.devices[0] in str(e):
                    return
                raise
            raise Lost(f"{self.devices} are given to a second claim")
        self.until_done("a rival's prepare", attempt)

    # --- from the beginning to the end

    def phases(self, restarts):
        yield "prepare", self.prepare, lambda: True
        yield "attach", self.attach, self.in_table
        for name in restarts:
            yield f"restart {name}", lambda name=name: self.restart(name), self.in_table
        yield "detach", self.detach, self.nowhere_in_table
        yield "unprepare", self.unprepare, lambda: True

    def live(self, restarts=()):
        for phase, step, condition in self.phases(restarts):
            self.proxy.begin(phase)
            step()
            self.node.settle(condition)
            self.proxy.begin("between")
            if self.sandbox and phase != "attach" or phase == "attach" and not restarts:
                self.assert_attached()
                self.assert_not_given_twice()
                self.node.settle(self.in_table)

    def end(self):
        """The API server's part: the claims are deleted."""
        for claim in (self.claim, self.rival):
            claim.path.unlink()

    def abandon(self):
        if self.sandbox:
            self.sandbox.close()


# --- one walk -------------------------------------------------------------------------------------------


class Injection:
    """A fault in one daemon, at one boundary."""

    MIN_SECONDS = 0.5

    def __init__(self, node, case):
        self.node, self.case = node, case
        self.since = self.until = None
        self.stopped = None  # the process that is
        act = self.kill if case.fault == "kill" else self.stop
        self.fault = rpc_proxy.Fault(case.boundary.point, case.boundary.side, act)

    def arm(self):
        self.node.proxy.fault = self.fault
        self.node.proxy.caller_returned = False
        self.node.proxy.ticks = [self.tick]

    def disarm(self):
        self.node.proxy.ticks = []
        self.node.proxy.fault = None
        self.go_on()

    def kill(self):
        self.node.restart(self.case.daemon)

    def stop(self):
        with self.node.changing:
            self.stopped = self.node.daemons[self.case.daemon]
        self.node.stopped.add(self.stopped.pid)
        self.stopped.suspend()
        self.node.proxy.caller_returned = bool(restart_of(self.case.boundary))  # nobody waits for a restart
        self.since = time.monotonic()

    def tick(self):
        """Ends a stop when the first call that the process has left unanswered is past its deadline and
        whoever started it has heard of that."""
        if self.stopped is None:
            return
        now = time.monotonic()
        if self.until is None:
            self.until = self.node.proxy.pending(self.case.daemon)
        if now > max(self.until or 0, self.since) + self.MIN_SECONDS and self.node.proxy.caller_returned:
            self.go_on()

    def go_on(self):
        stopped, self.stopped = self.stopped, None
        if stopped is not None:
            stopped.resume()


def restart_of(boundary):
    kind, _, name = boundary.point.phase.partition(" ")
    return [name] if kind == "restart" else []


def difference(what, before, after):
    """For a report."""
    texts = [json.dumps(value, indent=1, sort_keys=True).splitlines() for value in (before, after)]
    return "\n".join([f"the {what} are not what they were",
                      *list(difflib.unified_diff(*texts, "before", "after", n=1, lineterm=""))[2:]])


class Walker:
    """Makes houses and walks through them; a house that a walk has spoilt is left for a new one."""

    def __init__(self, manager=None, pods_of=None):
        self.manager = manager or managers.Dummy()
        self.pods_of = pods_of or (lambda node: FakePods(node.directory / "nri.sock", node.manager))
        self.node = self.directory = self.before = None

    def open(self):
        self.directory = tempfile.TemporaryDirectory(prefix="netclaim-", dir=procs_module.MEMORY, ignore_cleanup_errors=True)
        self.manager.clear()
        self.node = Node(pathlib.Path(self.directory.name), self.manager, self.pods_of)
        self.node.settle()
        self.manager.remember()
        for _ in range(2):  # what is made once only is there from then on
            self._live_once()
        self.node.wait_status_written()
        self.before = {**dict(self.node.world()), "descriptors": self.node.steady_descriptors()}

    def close(self, failed=False):
        if self.node:
            self.node.close(failed)
            self.directory.cleanup()
        self.node = None

    def _live_once(self, restarts=()):
        life = Life(self.node)
        life.live(restarts)
        life.end()

    def boundaries(self):
        """Every message of an undisturbed life, and the instants before and after it. Those that do not
        come each time are left out: nobody could wait for them."""
        traces = []
        for _ in range(2):
            self.node.proxy.trace.clear()
            self._live_once(daemons_of(self.manager))
            traces.append([point for point in self.node.proxy.trace if point.phase != "between"])
        points = [point for point in traces[0] if point in set(traces[1])]
        left_out = set(traces[0]).symmetric_difference(traces[1])
        return [Boundary(point, side) for point in points for side in ("before", "after")], sorted(left_out, key=str)

    def compare(self):
        differs = None

        def look():
            nonlocal differs
            differs = next(((what, self.before[what], value) for what, value in self.node.world()
                            if value != self.before[what]), None)
            return differs is None
        wait_for(look, 3, lambda: difference(*differs))
        self.node.forget_ended()

    def walk(self, case):
        """None, or what was lost. Raises DidNotCome if the boundary never came, however often the life
        was lived: which of two messages is first is at times for the scheduler to say."""
        for _ in range(TRIES):
            with contextlib.suppress(DidNotCome):
                return self._walk_once(case)
        raise DidNotCome(str(case.boundary))

    def _walk_once(self, case):
        if not self.node:
            self.open()
        self.node.proxy.trace.clear()
        self.node.pods.next_habit()
        injection = Injection(self.node, case)
        life = Life(self.node)
        injection.arm()
        try:
            life.live(restart_of(case.boundary))
            wait_for(lambda: injection.stopped is None, STEP_SECONDS, "the stopped process goes on")
            life.end()
            self.compare()
            if self.node.proxy.problems:
                return self._failed("the proxy had problems", life, injection)
            if not injection.fault.fired.is_set():
                raise DidNotCome
        except (AssertionError, mprpc.Error, TimeoutError, OSError, subprocess.SubprocessError) as e:
            return self._failed(f"{type(e).__name__}: {e}", life, injection)
        finally:
            injection.disarm()
        return None

    def _failed(self, reason, life, injection):
        injection.disarm()
        report = [reason, *[f"told: {text}" for text in life.told[-5:]], *self.node.proxy.problems]
        keep = os.environ.get("CRASH_LOGS")
        if keep:
            path = pathlib.Path(keep)
            path.mkdir(parents=True, exist_ok=True)
            with open(path / f"{uuid.uuid4().hex[:6]}.log", "w", encoding="utf-8") as log:
                log.write("\n".join([str(injection.case), *report, *map(str, self.node.proxy.trace)]))
                for name, text in self.node.processes.logs()[-12:]:
                    log.write(f"\n--- {name}\n" + "\n".join(text.splitlines()[-150:]))
        life.abandon()
        self.close(failed=True)
        return "\n".join(report)


# --- all of them ------------------------------------------------------------------------------------------


def cases_of(boundaries, daemons, faults):
    return [Case(boundary, daemon, fault) for boundary in boundaries for fault in faults for daemon in daemons]


def evenly(cases, count):
    """So many of them, from the first to the last."""
    every = max(1, len(cases) // count)
    while math.gcd(every, len(DAEMONS) * len(FAULTS)) > 1:  # else each of them would be of the same daemon
        every += 1
    return cases[every // 2::every]


def walk_all(walker, cases, say=print):
    """Walks them; returns [(case, what was lost)] and how many boundaries never came."""
    failures = []
    missed = 0
    for number, case in enumerate(cases, 1):
        started = time.monotonic()
        try:
            lost = walker.walk(case)
        except DidNotCome:
            missed += 1
            say(f"--   {number}/{len(cases)} {case}: it did not come")
            continue
        say(f"{'LOST' if lost else 'ok  '} {number}/{len(cases)} {case} ({time.monotonic() - started:.1f} s)")
        if lost:
            failures.append((case, lost))
            say("    " + lost.replace("\n", "\n    "))
    return failures, missed


def summary(boundaries, walks, failures, missed, seconds):
    return (f"{boundaries} boundaries, {walks} walks, {walks - failures} with nothing lost, {failures} failures, "
            f"{missed} to boundaries that did not come, {seconds:.0f} s")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth walk")
    parser.add_argument("--offset", type=int, default=0, metavar="K", help="beginning with the Kth")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="so many houses at a time")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="only this one")
    parser.add_argument("--daemon", choices=sorted({*DAEMONS, *daemons_of(managers.Sriov)}), action="append",
                        help="only this one")
    parser.add_argument("--only", default="", metavar="TEXT", help="only boundaries whose description has it")
    parser.add_argument("--phase", action="append", help="only boundaries of this one")
    parser.add_argument("--containerd", choices=("17", "21"),
                        help="with a real containerd's pods; unless phases are given, attach and detach")
    parser.add_argument("--manager", choices=tuple(managers.KINDS), default="dummy",
                        help="whose devices; sriov: functions of real adapters")
    parser.add_argument("--list", action="store_true", help="tell the boundaries and end")
    return parser.parse_args()


def run_jobs(options):
    """Shares the walks among processes of this program, and adds up what they say."""
    rest = [f"--{name}={value}" for name in ("fault", "daemon", "phase") for value in getattr(options, name) or ()]
    rest += [f"--{name}={value}" for name in ("only", "containerd") if (value := getattr(options, name))]
    commands = [[__file__, "--every", str(options.every * options.jobs), "--manager", options.manager,
                 "--offset", str(options.offset + job * options.every), *rest] for job in range(options.jobs)]
    last = [""] * options.jobs

    def relay(job, line):
        last[job] = line
        print(f"[{job}] {line}", end="", flush=True)
    started = time.monotonic()
    status = walk_jobs.run(commands, relay)
    if status < 2:
        numbers = [[int(word) for word in line.split() if word.isdigit()] for line in last]
        print(summary(numbers[0][0], sum(n[1] for n in numbers), sum(n[3] for n in numbers),
                      sum(n[4] for n in numbers), time.monotonic() - started))
    return status


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    if options.jobs > 1:
        return run_jobs(options)
    with contextlib.ExitStack() as stack:
        pods_of = None
        if options.containerd:
            import crash_cri  # it imports much
            pods_of = stack.enter_context(crash_cri.runtime(options.containerd))
            options.phase = options.phase or crash_cri.PHASES
        walker = Walker(managers.KINDS[options.manager](), pods_of)
        stack.callback(walker.close, failed=True)
        return walk(walker, options)


def walk(walker, options):
    started = time.monotonic()
    walker.open()
    boundaries, left_out = walker.boundaries()
    for point in left_out:
        print(f"left out, it does not come each time: {point}")
    wanted = [boundary for boundary in boundaries if options.only in str(boundary)
              and boundary.point.phase in (options.phase or [boundary.point.phase])]
    print(f"{len(boundaries)} boundaries, {len(wanted)} of them wanted")
    if options.list:
        print("\n".join(map(str, wanted)))
        return 0
    cases = cases_of(wanted, options.daemon or daemons_of(walker.manager), options.fault or FAULTS)
    cases = cases[options.offset::options.every]
    failures, missed = walk_all(walker, cases, lambda text: print(text, flush=True))
    walker.close()
    for case, lost in failures:
        print(f"FAILED: {case}: {lost.splitlines()[0]}")
    print(summary(len(wanted), len(cases), len(failures), missed, time.monotonic() - started), flush=True)
    return 1 if failures or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
