# SPDX-License-Identifier: Apache-2.0
"""The API server in trouble at each step of starting and preparing: whatever it answers, or not, all is
well when it is well again. Nothing is lost, nothing is set up twice, and it is never stormed."""
import threading

import pytest

import faults
import house as h
from cluster_house import DUMMY, ClusterHouse
from procs import wait_for

ONE_VERSION = True

# what a server in trouble does to one request; the last two of them have done what was asked for
TROUBLES = {
    "conflict": faults.answer(409), "invalid": faults.answer(422), "busy": faults.answer(429, retry_after=1),
    "broken": faults.answer(500), "unavailable": faults.answer(503), "cut": faults.cut_before(),
    "silent": faults.hang(), "cut after": faults.cut_after(), "silent after": faults.hang_after(),
}
CLAIM = r"/resourceclaims/[^/?]+$"
STATUS = r"/resourceclaims/[^/]+/status"
# asked for in this order by a start, and what waits when it fails
START = {"version": "^/version", "node": "^/api/v1/nodes/", "configuration": "/ciliumnetworkdrivernodeconfigs",
         "pods": "^/api/v1/pods", "claim": CLAIM, "slices": r"^/apis/resource.k8s.io/v1/resourceslices"}

# No more than so many in any second: backoff begins at half a second, and the parts of a start come one
# after the other.
BURST_OF_FAILURES = 4


class Setting:
    def __init__(self, cluster, procs, rundir, proxy):
        self.cluster, self.proxy = cluster, proxy
        self.house = ClusterHouse(procs, rundir, cluster, server=proxy.url)
        self.house.create_config(DUMMY)
        self.start()
        self.house.wait_published("dummy0", "dummy1", "dummy2")
        self.house.template("one", "fast-net", {"podIfName": "net1"})
        self.draplugind = self.house.start_draplugind()
        self.kubelet = self.house.kubelet()
        self.kubelet.register()

    def start(self, *options):
        self.statd = self.house.start_statd(*options)
        self.manager = h.MockManager(self.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])

    def kill_for_a_new_boot(self):
        """The next one asks the server for all that there is: its records are of an earlier boot."""
        self.house.wait_status_written()
        self.statd.kill()
        (self.house.state_dir / "boot").write_text("11111111-2222-3333-4444-555555555555")

    def start_waiting(self):
        """A statd that answers when the claim's status is written."""
        self.statd.stop()
        self.manager.close()
        self.start("--wait-for-status")
        self.house.wait_ready()

    def prepare(self, claim):
        return self.kubelet.prepare([self.house.ref(claim)])[claim["metadata"]["uid"]]

    def prepare_at_last(self, claim):
        """As the kubelet does: again and again."""
        def look():
            entry = self.prepare(claim)
            return None if "error" in entry else entry["devices"]
        return wait_for(look, 60, "a prepared claim")

    def held(self):
        """Devices that the manager has set up and not freed since, once for each time."""
        names = [c["device"]["name"] for c in self.manager.asked("device.setup")]
        for freed in self.manager.asked("device.free"):
            names.remove(freed["device"]["name"])
        return names

    def is_whole(self, claim):
        """The claim is prepared once, and that is said in all places."""
        device, = {e["device"] for e in self.house.entries(claim)}
        assert [e["device"] for e in self.house.entries(claim)] == [device]
        assert [(r["DeviceName"], r["ClaimUID"]) for r in self.house.rows()] == [(device, claim["metadata"]["uid"])]
        return device


@pytest.fixture
def at(cluster, procs, rundir, proxy):
    made = Setting(cluster, procs, rundir, proxy)
    yield made
    proxy.forget()
    made.kubelet.close()


def storm(requests):
    """The most requests in any one second."""
    times = sorted(r.when for r in requests)
    return max((sum(1 for t in times if start <= t < start + 1) for start in times), default=0)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("step", ["GET", "PATCH"])
def test_prepare(at, step, trouble):
    claim = at.house.pod_with_claim("p1", "one")
    rule = at.proxy.rule(step, CLAIM if step == "GET" else STATUS, TROUBLES[trouble])
    device, = at.prepare_at_last(claim)
    wait_for(lambda: rule.caught, 30, "the trouble's being met")
    wait_for(lambda: not at.house.status().get("statusDue"), 60, "the status's being written")
    assert at.is_whole(claim) == device["device_name"]
    # a setup of what is set up already is the same device
    assert set(at.held()) == {device["device_name"]}
    assert at.kubelet.unprepare([at.house.ref(claim)])[claim["metadata"]["uid"]].get("error", "") == ""
    assert at.house.rows() == []


@pytest.mark.parametrize("step", ["GET", "PATCH"])
def test_server_that_stays_in_trouble(at, step):
    """The kubelet gets the reason within its time, and nothing stays set up: if the claim cannot be read, and
    if its status is waited for."""
    at.start_waiting()
    claim = at.house.pod_with_claim("p1", "one")
    path = CLAIM if step == "GET" else STATUS
    at.proxy.rule(step, path, faults.answer(500, message="etcd is on fire"), times=None)
    since = len(at.proxy.requests)
    entry = at.prepare(claim)
    assert "etcd is on fire" in entry["error"]
    assert at.held() == [] and at.house.rows() == []
    tries = [r for r in at.proxy.requests[since:] if r.method == step]
    assert len(tries) > 1 and storm(tries) <= BURST_OF_FAILURES
    at.proxy.forget()
    device, = at.prepare_at_last(claim)
    assert at.is_whole(claim) == device["device_name"]


def test_status_that_cannot_be_written_for_long(at):
    """The claim is prepared all the same, what is wrong is shown, and the status is there in the end."""
    claim = at.house.pod_with_claim("p1", "one")
    at.proxy.rule("PATCH", STATUS, faults.answer(500, message="etcd is on fire"), times=None)
    device, = at.prepare_at_last(claim)
    wait_for(lambda: any("etcd is on fire" in n for n in at.house.status().get("notes", [])), 60, "a note")
    assert at.held() == [device["device_name"]]
    at.proxy.forget()
    wait_for(lambda: not at.house.status().get("statusDue"), 90, "the status's being written")
    assert at.is_whole(claim) == device["device_name"]


def test_server_that_is_gone_while_a_claim_is_prepared(at, cluster):
    claim = at.house.pod_with_claim("p1", "one")
    cluster.kill_apiserver()
    try:
        entry = at.prepare(claim)
        assert entry["error"] and at.held() == [] and at.house.rows() == []
    finally:
        cluster.start_apiserver()
    device, = at.prepare_at_last(claim)
    assert at.is_whole(claim) == device["device_name"]


def test_claim_that_is_replaced_in_the_middle(at, cluster):
    """Its status is not written to the one that has its name by now."""
    at.start_waiting()
    claim = at.house.pod_with_claim("p1", "one")
    meta = claim["metadata"]
    path = f"/apis/resource.k8s.io/v1/namespaces/{meta['namespace']}/resourceclaims/{meta['name']}"
    rule = at.proxy.rule("PATCH", STATUS, faults.delay())
    entries = []
    asking = threading.Thread(target=lambda: entries.append(at.prepare(claim)))
    asking.start()
    rule.wait()
    cluster.delete_pod(meta["namespace"], "p1")
    cluster.ok("PATCH", path, {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
    cluster.api("DELETE", path)
    wait_for(lambda: not cluster.get(path), 30, "the end of the claim")
    cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                    "metadata": {"name": meta["name"], "namespace": meta["namespace"]}, "spec": claim["spec"]})
    rule.release()
    asking.join()
    assert "replaced" in entries[0]["error"]
    assert at.held() == [] and at.house.rows() == []
    assert "devices" not in cluster.get(path).get("status", {})


# --- starting

@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("step", START)
def test_start(at, step, trouble):
    claim = at.house.pod_with_claim("p1", "one")
    at.prepare_at_last(claim)
    device = at.is_whole(claim)
    before = {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in at.house.slices()}
    at.kill_for_a_new_boot()
    rule = at.proxy.rule("GET", START[step], TROUBLES[trouble])
    at.start()
    at.house.wait_ready()
    wait_for(lambda: rule.caught, 30, f"trouble with {step}")
    assert at.is_whole(claim) == device
    assert at.manager.asked("device.setup") == []
    wait_for(lambda: ", published" in at.house.status()["slices"], 60, "publication")
    assert {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in at.house.slices()} == before


@pytest.mark.parametrize("step", START)
def test_start_that_keeps_failing_does_not_storm_the_server(at, step):
    at.kill_for_a_new_boot()
    at.proxy.rule("GET", START[step], faults.answer(500), times=None)
    if step == "claim":
        at.house.pod_with_claim("p1", "one")
    since = len(at.proxy.requests)
    if step == "slices":
        at.start()
        assert at.house.status()
    else:
        at.statd = at.house.start_statd(ready=False)

    def failures():
        return [r for r in at.proxy.requests[since:] if r.status == 500]
    wait_for(lambda: len(failures()) >= 5, 90, "five failures")
    assert storm(at.proxy.requests[since:]) <= BURST_OF_FAILURES + 6  # the steps before it, once
    assert storm(failures()) <= BURST_OF_FAILURES
    if step not in ("slices",):
        assert at.house.wait_missing("waiting for")
    at.proxy.forget()
    if step == "slices":
        wait_for(lambda: ", published" in at.house.status()["slices"], 60, "publication")
    else:
        at.statd.wait_log("restored what was prepared", 60)
