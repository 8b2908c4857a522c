# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices on the real API server: what is published and with which calls, and that it stays right
whatever the server, its users and the kubelet do. The devices are a stand-in's, as many as a test wants."""
import itertools
import re

import pytest

import faults
import house as h
from cluster_house import DUMMY, RESOURCE, ClusterHouse
from controlplane import MERGE_PATCH
from procs import wait_for

SLICES = f"{RESOURCE}/resourceslices"
CALLS_PER_SECOND = 20  # of statd, in the long run; as many may be made at once
POOL = [{"name": "fast-net", "filter": {"deviceManagers": ["dummy"]}}]


def devices(n, **attributes):
    return [device(f"d{i:04}", **attributes) for i in range(n)]


def device(name, **attributes):
    return {"name": name, "state": {}, "attributes": attributes}


class Node:
    """statd in the cluster with a stand-in for a device manager, which has this many devices."""

    def __init__(self, procs, rundir, cluster, offered, server=None):
        self.house = ClusterHouse(procs, rundir, cluster, server)
        self.house.create_config(DUMMY, POOL)
        self.cluster = cluster
        self.offered = offered
        self.since = cluster.mark()
        self.start()

    def start(self):
        self.statd = self.house.start_statd()
        self.manager = h.MockManager(self.house, "dummy", self.offered)

    def restart(self):
        self.statd.kill()
        self.since = self.cluster.mark()
        self.start()

    def offer(self, offered):
        """The manager has others now; calls are counted from here on."""
        self.since = self.cluster.mark()
        self.offered = offered
        self.manager.publish(offered)

    def told(self):
        return self.house.status()["slices"]

    def wait_told(self, pattern, timeout=60):
        return wait_for(lambda: re.fullmatch(pattern, self.told()), timeout,
                        f"{pattern!r}, which is {self.told()!r} now")

    def wait_settled(self, timeout=60, whole=True):
        """Waits until statd says that all is published, and it is. Returns the generation. whole: with
        all attributes."""
        n = max(1, -(-len(self.offered) // 64))

        def look():
            published = self.house.published()
            if {d["name"] for d in self.offered} != set(published):
                return None
            if whole and not all(d.get("attributes", {}).items() <= published[d["name"]]["attributes"].items()
                                 for d in self.offered):
                return None
            told = re.match(rf"{n} slices?, generation (\d+), published", self.told())
            return told and int(told[1])
        generation = wait_for(look, timeout, f"{n} slices with all devices")
        slices = sorted(self.house.slices(), key=lambda s: s["metadata"]["name"])
        assert [s["metadata"]["name"][:6] for s in slices] == [f"{i:05x}-" for i in range(n)]
        found = [d["name"] for s in slices for d in s["spec"].get("devices") or []]
        assert len(found) == len(set(found))
        for s in slices:
            assert s["spec"]["pool"] == {"name": self.house.node, "generation": generation, "resourceSliceCount": n}
            assert len(s["spec"].get("devices") or []) <= 64
        return generation

    def counts(self):
        """{verb: calls about slices since then}; a list may have pages."""
        counted = {}
        for call in self.house.calls(self.since):
            if call.resource == "resourceslices":
                counted[call.verb] = counted.get(call.verb, 0) + 1
        return counted

    def assert_quiet(self):
        """A change of the table that no slice shows, and nothing is called."""
        since = self.cluster.mark()
        before = self.house.status()["revision"]
        self.manager.publish([{**d, "state": {"Changed": True}} for d in self.offered])
        if self.offered:
            wait_for(lambda: self.house.status()["revision"] > before, 10, "the change of the table")
        self.wait_settled()
        assert self.house.calls(since) == []


@pytest.fixture
def node(cluster, procs, rundir):
    return lambda offered, server=None: Node(procs, rundir, cluster, offered, server)


# --- what is published

@pytest.mark.parametrize("n", [0, 1, 64, 65, 130, 4096])
def test_first_publication(node, n):
    at = node(devices(n, speed={"int": 1}))
    slices = max(1, -(-n // 64))
    assert at.wait_settled() == 1
    assert at.counts() == {"list": 1, "create": slices}
    at.assert_quiet()

    # what is there already is found again
    at.restart()
    assert at.wait_settled() == 1
    assert set(at.counts()) == {"list"}

    if n < 130:
        return
    # one device of many: one write; and one in each of two slices: a new generation
    changed = list(at.offered)
    changed[100] = device("d0100", speed={"int": 2})
    at.offer(changed)
    wait_for(lambda: at.counts() == {"update": 1}, 30, "one update")
    assert at.wait_settled() == 1
    assert at.house.published()["d0100"]["attributes"]["speed"] == {"int": 2}
    changed[0] = device("d0000", speed={"int": 3})
    changed[100] = device("d0100", speed={"int": 3})
    at.offer(changed)
    wait_for(lambda: at.counts() == {"update": slices}, 60, "updates of all slices")
    assert at.wait_settled() == 2


def test_object(node):
    at = node([{**h.shareable("b"), "capacity": {"memory": {"value": "1024Mi", "requestPolicy": {
        "default": "1Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}}}}, h.dedicated("a")])
    at.wait_settled()
    found, = at.house.slices()
    assert found["metadata"]["name"].startswith(f"00000-{h.DRIVER}-node-")
    assert found["metadata"]["ownerReferences"] == [{
        "apiVersion": "v1", "kind": "Node", "name": at.house.node,
        "uid": at.house.node_object["metadata"]["uid"], "controller": True}]
    spec = found["spec"]
    assert (spec["driver"], spec["nodeName"]) == (h.DRIVER, at.house.node)
    own = {"pool": {"string": "fast-net"}, "deviceManager": {"string": "dummy"}}
    assert spec["devices"] == [
        {"name": "a", "attributes": {"ifName": {"string": "a"}, "kernelIfName": {"string": "a"}, **own}},
        {"name": "b", "attributes": {"ifName": {"string": "b"}, **own}, "allowMultipleAllocations": True,
         "capacity": {"memory": {"value": "1Gi", "requestPolicy": {
             "default": "1Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}}}}]
    # the server writes 1024Mi in its own way, which is not taken for a change
    at.assert_quiet()
    at.restart()
    at.wait_settled()
    assert set(at.counts()) == {"list"}


def test_devices_stay_in_their_slices(node):
    at = node(devices(130))
    at.wait_settled()

    def placed():
        return {d["name"]: s["metadata"]["name"] for s in at.house.slices() for d in s["spec"]["devices"]}
    before = placed()
    # two of the first slice go, three come: the two gaps, and one behind all
    at.offer([d for d in at.offered if d["name"] not in ("d0003", "d0004")] + [device(f"a{i}") for i in range(3)])
    at.wait_settled()
    after = placed()
    assert all(after[name] == before[name] for name in after if name in before)
    assert [after[f"a{i}"][:5] for i in range(3)] == ["00000", "00000", "00002"]
    assert at.counts() == {"update": 3}
    # fewer slices: nothing moves that need not
    at.offer(at.offered[:128])
    at.wait_settled()
    after_that = placed()
    assert all(after_that[name] == after[name] for name in after_that if not after[name].startswith("00002"))


# --- what the API would refuse

EDGES = {
    "long": {"string": "x" * 64}, "empty": {"string": ""}, "min": {"int": -2**63}, "max": {"int": 2**63 - 1},
    "off": {"bool": False}, "version": {"version": "1.2.3-rc.1+build.7"}, "_x9": {"int": 1}, "a" * 32: {"int": 1},
    "resource.kubernetes.io/pciBusID": {"string": "0000:03:00.1"}, "a" * 63 + "/x": {"int": 1},
    "Upper.Example.COM/x": {"int": 1},
}
WRONG = {
    "long": {"string": "x" * 65}, "kind": {"version": "v1.2.3"}, "zero": {"version": "01.2.3"},
    "a-b": {"int": 1}, "9a": {"int": 1}, "a" * 33: {"int": 1}, "a" * 64 + "/x": {"int": 1}, "x.y/": {"int": 1},
    "/x": {"int": 1}, "none": {}, "two": {"int": 1, "string": "x"}, "wide": {"version": "1.2.3+" + "x" * 59},
}
CAPACITIES = {
    "whole": {"value": "4"}, "part": {"value": "1500m"}, "huge": {"value": "7Ei"},
    "list": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "2", "4"]}},
    "range": {"value": "8", "requestPolicy": {"default": "4", "validRange": {"min": "2", "max": "6", "step": "2"}}},
    "preset": {"value": "8", "requestPolicy": {"default": "1"}},
}
WRONG_CAPACITIES = {
    "unknown": {"value": "4", "requestPolicy": {"default": "3", "validValues": ["1", "2"]}},
    "order": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["2", "1"]}},
    "large": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "5"]}},
    "alone": {"value": "4", "requestPolicy": {"validValues": ["1"]}},
    "both": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}},
    "nomin": {"value": "4", "requestPolicy": {"default": "1", "validRange": {"max": "2"}}},
    "step": {"value": "8", "requestPolicy": {"default": "4", "validRange": {"min": "1", "step": "2"}}},
    "beyond": {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "5"}}},
    "nothing": {}, "text": {"value": "many"},
    "eleven": {"value": "11", "requestPolicy": {"default": "1", "validValues": [str(i + 1) for i in range(11)]}},
}


def test_limits_are_the_servers(node, cluster):
    """What we take the server takes, and what we leave out it would refuse."""
    shared = {"name": "c", "state": {}, "allowMultipleAllocations": True,
              "capacity": {**CAPACITIES, **WRONG_CAPACITIES}}
    at = node([device("a", **EDGES), device("b", ok={"int": 1}, **WRONG), shared, device("d")])
    at.wait_settled(whole=False)
    published = at.house.published()
    assert published["a"]["attributes"].items() >= EDGES.items()
    assert published["b"]["attributes"].items() >= {"ok": {"int": 1}}.items()
    assert not set(published["b"]["attributes"]) & set(WRONG)
    assert set(published["c"]["capacity"]) == set(CAPACITIES)
    assert at.counts() == {"list": 1, "create": 1}
    notes = {row["Name"]: row.get("Note") for row in at.house.rows(h.DEVICES)}
    assert notes["a"] is None and notes["d"] is None
    assert "is left out: " in notes["b"] and notes["b"].endswith(f"and {len(WRONG) - 3} more")
    assert f"and {len(WRONG_CAPACITIES) - 3} more" in notes["c"]

    def asked(**members):
        return cluster.api("POST", f"{SLICES}?dryRun=All", {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"generateName": "x-"},
            "spec": {"driver": "other.example.com", "nodeName": at.house.node, "devices": [{"name": "a", **members}],
                     "pool": {"name": "x", "generation": 1, "resourceSliceCount": 1}}})
    assert asked(attributes=EDGES)[0] == 201
    for name, value in WRONG.items():
        assert asked(attributes={name: value})[0] in (400, 422), name
    for name, value in WRONG_CAPACITIES.items():
        if name == "nothing":
            continue  # the server reads it as 0; of ours it is a mistake
        assert asked(capacity={name: value}, allowMultipleAllocations=True)[0] in (400, 422), name
    assert asked(capacity={"c": CAPACITIES["list"]})[0] == 422  # which is why we take the policy away


def test_refused_device_is_hidden(node, proxy):
    """What our limits do not know: the server names the device, the others are published."""
    rule = proxy.rule("POST", "resourceslices", faults.answer(
        422, message='ResourceSlice "x" is invalid: spec.devices[1].attributes[a].int: Invalid value: it is odd'))
    at = node(devices(3, a={"int": 1}), proxy.url)
    rule.wait()
    at.offered = [d for d in at.offered if d["name"] != "d0001"]
    at.wait_settled()
    note, = [row["Note"] for row in at.house.rows(h.DEVICES) if row["Name"] == "d0001"]
    assert note == "device cannot be published: spec.devices[1].attributes[a].int: Invalid value: it is odd"
    assert at.statd.log.count("it is odd") == 1
    # as soon as it is another it is tried again
    at.offer(devices(3, a={"int": 2}))
    at.wait_settled()


@pytest.fixture
def without_sharing(cluster):
    if cluster.minor > 35 and "DRAConsumableCapacity" not in cluster.feature_gates:
        pytest.skip("this version has no feature gate DRAConsumableCapacity any more")
    cluster.restart({**cluster.feature_gates, "DRAConsumableCapacity": False})


@pytest.mark.usefixtures("without_sharing")
def test_dropped_fields(node):
    at = node([h.shareable("a"), h.dedicated("b")])
    at.wait_settled()
    assert "DRAConsumableCapacity" in at.told()
    assert at.statd.log.count("DRAConsumableCapacity") == 1
    assert "allowMultipleAllocations" not in at.house.published()["a"]
    assert at.house.published()["b"]["attributes"]["ifName"] == {"string": "b"}
    assert at.counts() == {"list": 1, "create": 1}
    at.assert_quiet()
    at.offer([h.shareable("a"), h.dedicated("b"), h.dedicated("c")])
    at.wait_settled()
    assert at.counts() == {"update": 1}
    assert at.statd.log.count("DRAConsumableCapacity") == 1


# --- what others do

def test_edit_is_repaired(node, cluster):
    at = node(devices(130, speed={"int": 1}))
    at.wait_settled()
    at.since = cluster.mark()
    victim = sorted(s["metadata"]["name"] for s in at.house.slices())[1]
    cluster.ok("PATCH", f"{SLICES}/{victim}", {"metadata": {"labels": {"mine": "yes"}}, "spec": {
        "devices": [{"name": "d0064", "attributes": {"speed": {"int": 9}}}]}}, content_type=MERGE_PATCH)
    wait_for(lambda: at.counts() == {"update": 1}, 30, "the repair")
    assert at.wait_settled() == 1
    assert at.house.published()["d0064"]["attributes"]["speed"] == {"int": 1}
    labels, = [s["metadata"].get("labels") for s in at.house.slices() if s["metadata"]["name"] == victim]
    assert labels == {"mine": "yes"}


def test_deletion_is_repaired(node, cluster):
    at = node(devices(130))
    at.wait_settled()
    victim = sorted(s["metadata"]["name"] for s in at.house.slices())[1]
    at.since = cluster.mark()
    cluster.ok("DELETE", f"{SLICES}/{victim}")
    wait_for(lambda: at.counts() == {"create": 1, "update": 2}, 30, "the repair")
    assert at.wait_settled() == 2


def test_kubelets_wipe_is_repaired(node, cluster):
    at = node(devices(4096))
    at.wait_settled()
    at.since = cluster.mark()
    cluster.ok("DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3D{at.house.node}")
    wait_for(lambda: at.counts().get("create", 0) >= 64, 60, "the repair")
    at.wait_settled()
    # the wipe is one burst: what was created is not deleted and created again
    assert at.counts() == {"create": 64}


@pytest.mark.parametrize("there", [
    {"name": "00000-other", "pool": {"generation": 1, "resourceSliceCount": 2}},  # an index that is taken
    {"name": "00007-other", "pool": {"generation": 3, "resourceSliceCount": 9}},  # a generation that is higher
    {"name": "node-driver-8vx2k", "pool": {"generation": 1, "resourceSliceCount": 1}},  # as older helpers name them
    {"name": "00000-other", "pool": {"name": "logical", "generation": 8, "resourceSliceCount": 1}},  # another pool
], ids=lambda there: f"{there['name']}-{there['pool']['generation']}")
def test_slices_of_others_are_withdrawn(node, cluster, there):
    at = node(devices(130))
    at.wait_settled()
    cluster.create({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": there["name"]},
        "spec": {"driver": h.DRIVER, "nodeName": at.house.node, "devices": [{"name": "d0000"}],
                 "pool": {"name": at.house.node, **there["pool"]}}})
    wait_for(lambda: there["name"] not in {s["metadata"]["name"] for s in at.house.slices()}, 30,
             "the other slice's deletion")
    at.wait_settled()


def test_node_made_anew(node, cluster):
    """The collector deletes what the old Node owned, and goes on doing so until the owner is the new one."""
    at = node(devices(70))
    at.wait_settled()
    cluster.ok("DELETE", f"/api/v1/nodes/{at.house.node}")
    cluster.ok("DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3D{at.house.node}")
    at.wait_told(r"failing since .*nodes \"?.*not found", 60)
    new = cluster.make_node(at.house.node)
    at.wait_settled(90)
    owners = {s["metadata"]["ownerReferences"][0]["uid"] for s in at.house.slices()}
    assert owners == {new["metadata"]["uid"]}


# --- failures

def assert_rate(proxy, since=0):
    """No second has more calls than may be made at once and in a second; watches and lists count too."""
    times = [r.when for r in proxy.seen(path="resourceslices", since=since)]
    for i, begin in enumerate(times):
        assert sum(begin <= t < begin + 1 for t in times[i:]) <= 2 * CALLS_PER_SECOND + 4


FAULTS = {
    "409": lambda: faults.answer(409), "422": lambda: faults.answer(422), "429": lambda: faults.answer(429, retry_after=1),
    "403": lambda: faults.answer(403), "500": lambda: faults.answer(500), "503": lambda: faults.answer(503),
    "nothing": faults.hang, "nothing-done": faults.hang_after, "cut": faults.cut_before, "cut-done": faults.cut_after,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_each_step(node, proxy, fault):
    """Of a list, a watch, the second creation and the second replacement, once each."""
    rules = [proxy.rule(method, path, FAULTS[fault](), nth=nth) for method, path, nth in (
        ("GET", r"resourceslices\?(?!.*watch)", 1), ("GET", r"resourceslices\?.*watch", 1),
        ("POST", "resourceslices", 2), ("PUT", "resourceslices", 2))]
    at = node(devices(130, speed={"int": 1}), proxy.url)
    assert at.wait_settled(120) == 1
    at.offer(devices(130, speed={"int": 2}))
    assert at.wait_settled(120) == 2
    for rule in rules:
        rule.wait()
        rule.release()
    assert "delete" not in at.counts()
    assert "by somebody else" not in at.statd.log
    assert_rate(proxy)


@pytest.mark.parametrize("fault", ["500", "409", "cut-done"])
def test_server_that_fails_most_of_the_time(node, proxy, fault):
    """Two of three writes fail."""
    act, seen = FAULTS[fault](), itertools.count()

    def fail_two_of_three(exchange, rule):
        if next(seen) % 3 == 2:
            exchange.pass_on()
        else:
            act(exchange, rule)
    rule = proxy.rule("", r"resourceslices(/|$)", fail_two_of_three, times=None)
    at = node(devices(300, speed={"int": 1}), proxy.url)
    at.wait_settled(120)
    at.offer(devices(300, speed={"int": 2}))
    at.wait_settled(120)
    assert len(rule.caught) >= 10
    assert "by somebody else" not in at.statd.log
    assert_rate(proxy)


def test_apiserver_killed_during_publication(node, cluster):
    at = node(devices(4096))
    wait_for(lambda: len(at.house.slices()) > 10, 30, "some of the slices")
    cluster.kill_apiserver()
    at.wait_told("failing since .*", 60)
    cluster.start_apiserver()
    generation = at.wait_settled(120)
    assert generation == 1
    at.assert_quiet()


def test_forbidden_is_told_once(node, proxy):
    rule = proxy.rule("POST", "resourceslices", faults.answer(403, message="resourceslices is forbidden: no"), times=3)
    at = node(devices(1), proxy.url)
    rule.wait(3)
    at.wait_told("failing since .*403 Forbidden.*resourceslices is forbidden: no", 10)
    at.wait_settled()
    assert at.statd.log.count("failed to publish resources") == 1
