# SPDX-License-Identifier: Apache-2.0
"""The way of a claim with a real API server: what the kubelet waits for, beside what one client takes for one
read of the claim, and the bare kernel for the link. The server runs beside all of it, on the same processors.
Files are on a disk, on an ext4 with a journal as nodes have it."""
import random
import time
from collections import Counter

import procs as procs_module
from cluster_measures import ACCOUNT, RESOURCE, Running, make_claims, source_of
from node import Life, Node, Peer, journaled
from report import median, percentile

PERIOD_SECONDS = 0.7  # of a claim
SLOTS = 5  # of a period: one thing is done in each, so that each meets a machine that was idle before
JITTER_SECONDS = 0.02  # why: measures.at_any_moment
LIVES = 10  # over which calls are counted
QUIET_SECONDS = 1  # without a call: what follows an answer has been done
ABOVE_MEDIAN_MS, ABOVE_P99_MS = 1, 5  # the goals: so much above what cannot be saved
BURST_SECONDS = 2

# what netclaim needs of its own
GOALS = ("prepare, above GET and link", "unprepare, above link")


class ApiClaim(Life):
    """A claim in the API server, and the pod that it is for."""

    def __init__(self, node, house, claim):
        meta = claim["metadata"]
        self.node = node
        self.words = (meta["namespace"], meta["name"], meta["uid"])
        self.pod_uid = claim["status"]["reservedFor"][0]["uid"]
        self.url = f"{house.cluster.server}{RESOURCE}/namespaces/{meta['namespace']}/resourceclaims/{meta['name']}"


class Slots:
    """Calls at even distances, each a little off."""

    def __init__(self):
        self.next = time.monotonic()

    def call(self, function, *words):
        self.next += PERIOD_SECONDS / SLOTS
        time.sleep(max(0, self.next + random.uniform(0, JITTER_SECONDS) - time.monotonic()))
        return function(*words)


class Bench:
    """A node in the cluster, its claims, and the client that only reads."""

    def __init__(self, house, node):
        self.house, self.node = house, node
        self.api = Peer("api")
        self.api.ask("open", house.cluster.ca, house.token)
        self.n_claims = 0

    def claims(self, count, a_pod=1):
        made = make_claims(self.house, count, "dummy{}".format, self.n_claims, a_pod)
        self.n_claims += count
        return [ApiClaim(self.node, self.house, claim) for claim in made]

    def read(self, claim):
        return self.api.time("get", claim.url)

    def create(self):
        return self.node.bare.time("create", self.node.kind, "bare0", "netclaim:00000000-0000-0000-0000-000000000000:dummy")

    def delete(self):
        return self.node.bare.time("delete", "bare0")

    def wait_quiet(self):
        """Until nothing is asked of the API server any more."""
        def look():
            mark = self.house.cluster.mark()
            time.sleep(QUIET_SECONDS)
            return not self.house.calls(mark)
        procs_module.wait_for(look, 60, "quiet")


def paced(report, bench, count):
    """A claim each period. It is never attached, so that unpreparing it deletes its link."""
    claims, slots = bench.claims(count), Slots()
    read, create, delete, prepare, unprepare = ([] for _ in range(5))
    bench.wait_quiet()
    for claim in claims:
        read.append(slots.call(bench.read, claim))
        create.append(slots.call(bench.create))
        prepare.append(slots.call(claim.prepare))
        delete.append(slots.call(bench.delete))
        unprepare.append(slots.call(claim.unprepare))
    needed = [sum(two) for two in zip(read, create)]
    report.latencies("claims", f"A claim every {PERIOD_SECONDS} s, with an API server", [
        ("bare: GET of the claim", read, None),
        ("bare: create a link, set its alias", create, None),
        ("bare: GET and link", needed, None),
        ("NodePrepareResources", prepare, "bare: GET and link"),
        ("bare: delete on the host", delete, None),
        ("NodeUnprepareResources, never attached", unprepare, "bare: delete on the host")])
    above = [[a - b for a, b in zip(ours, bare)] for ours, bare in ((prepare, needed), (unprepare, delete))]
    return [[name, median(values) / 1e6, ABOVE_MEDIAN_MS, percentile(values, 99) / 1e6, ABOVE_P99_MS]
            for name, values in zip(GOALS, above)]


def back_to_back(report, bench, count):
    """One after the other, without a pause."""
    claims = bench.claims(count)
    bench.wait_quiet()
    read = [bench.read(claim) for claim in claims]
    prepare = [claim.prepare() for claim in claims]
    bench.wait_quiet()
    unprepare = [claim.unprepare() for claim in claims]
    report.latencies("claims_back_to_back", "Claims back to back, with an API server", [
        ("bare: GET of the claim", read, None),
        ("NodePrepareResources", prepare, None),
        ("NodeUnprepareResources, never attached", unprepare, None)])


def at_once(report, bench, count):
    """Seconds that all took."""
    words = [word for claim in bench.claims(count, 10) for word in claim.words]
    bench.wait_quiet()
    begin = time.monotonic_ns()
    each = bench.node.kubelet_peer.ask("prepare", *words)
    whole = time.monotonic_ns() - begin
    report.latencies("claims_burst", f"A burst of {count} claims, all at once, with an API server",
                     [("one claim, from the first", each, None), ("all", [whole], None)])
    return ["a burst, seconds", whole / 1e9, BURST_SECONDS, None, None]


def calls_of_a_life(report, bench):
    """As the server has them in its audit log, from the prepare to what follows the unprepare."""
    claims, netns = bench.claims(LIVES), bench.node.netns("pod")
    bench.wait_quiet()
    mark = bench.house.cluster.mark()
    for claim in claims:
        claim.prepare()
        claim.run(netns)
        claim.stop(netns)
        claim.unprepare()
    bench.wait_quiet()
    calls = Counter((c.verb, "/".join(filter(None, (c.resource, c.subresource))), c.code)
                    for c in bench.house.cluster.calls(ACCOUNT, mark) if c.verb != "watch")
    rows = [[f"{verb} {resource}: {code}", number / LIVES] for (verb, resource, code), number in sorted(calls.items())]
    report.table("claims_calls", "Calls of the API server in a claim's life: prepare, run, stop, unprepare",
                 ["", "a claim"], [*rows, ["all", sum(calls.values()) / LIVES]])
    bench.node.end_netns(netns)


def measure(report, chosen, running, directory):
    house = running.house()
    burst = chosen.burst
    devices = 2 * chosen.claims + LIVES + burst
    with Node(devices, directory, source_of(house)) as node:
        house.create_config(node.managers, node.pools)
        node.start()
        bench = Bench(house, node)
        goals = paced(report, bench, chosen.claims)
        back_to_back(report, bench, chosen.claims)
        goals.append(at_once(report, bench, burst))
        calls_of_a_life(report, bench)
        report.table("claims_goals", "What is to hold, ms", ["", "median", "at most", "p99", "at most"], goals)
        bench.api.close()


def claims(report, chosen):
    with Running() as running, journaled(chosen.dir) as directory:
        if running:
            measure(report, chosen, running, directory)
