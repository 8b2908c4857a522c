# SPDX-License-Identifier: Apache-2.0
"""statd in a cluster, from its configuration to the end of a claim, against the real servers: what the
scheduler allocates is prepared as it stands, and all that statd asks for is allowed by k8s/rbac.yaml."""
import json
import os
import uuid

import pytest

import house as h
import mprpc
from cluster_house import BOTH, CONFIGS, DUMMY, POOLS, RESOURCE, ClusterHouse
from netns import Netns
from procs import BUILD, wait_for


class Setting:
    """A house whose statd is up and has published three dummies, and two queues if asked for."""

    def __init__(self, procs, rundir, cluster, managers=None, server=None):
        self.house = ClusterHouse(procs, rundir, cluster, server=server)
        self.house.create_config(managers or DUMMY)
        self.statd = self.house.start_statd()
        self.connect(managers)
        names = [f"dummy{i}" for i in range(3)] + (["eth0"] if managers else [])
        self.house.wait_published(*names)
        self.draplugind = self.house.start_draplugind()
        self.kubelet = self.house.kubelet()
        self.kubelet.register()

    def connect(self, managers=None):
        self.dummy = h.MockManager(self.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
        self.rx = None
        if managers:
            self.rx = h.MockManager(self.house, "rxQueue", [h.shareable("eth0")],
                                    prepared={"ifName": "eth0", "state": {"physicalQueueID": 7}})

    def restart(self, managers=None, new_boot=False):
        """new_boot: as after a restart of the node, by its records."""
        self.house.wait_status_written()
        self.statd.kill()
        if new_boot:
            (self.house.state_dir / "boot").write_text("11111111-2222-3333-4444-555555555555")
        self.statd = self.house.start_statd()
        self.connect(managers)
        self.house.wait_ready()

    def prepare(self, *claims):
        entries = self.kubelet.prepare([self.house.ref(c) for c in claims])
        return [entries[c["metadata"]["uid"]] for c in claims]

    def prepared(self, claim):
        entry, = self.prepare(claim)
        assert "error" not in entry, entry
        return entry["devices"]

    def unprepare(self, claim):
        uid = claim["metadata"]["uid"]
        return self.kubelet.unprepare([self.house.ref(claim)])[uid].get("error", "")


@pytest.fixture
def setting(cluster, procs, rundir):
    made = Setting(procs, rundir, cluster)
    yield made
    made.kubelet.close()


@pytest.fixture
def sharing(cluster, procs, rundir):
    if cluster.minor < 36 and not cluster.feature_gates.get("DRAConsumableCapacity"):
        pytest.skip("this cluster was started without the feature gate DRAConsumableCapacity")
    made = Setting(procs, rundir, cluster, BOTH)
    yield made
    made.kubelet.close()


# --- configuration

def test_configuration_is_waited_for_and_used_once(cluster, procs, rundir):
    house = ClusterHouse(procs, rundir, cluster)
    statd = house.start_statd(ready=False)
    # a server that has only just heard of the kind says so, and is asked again
    house.wait_missing(f"waiting for a CiliumNetworkDriverNodeConfig named {house.node}")
    assert not house.status()["ready"]

    house.create_config(DUMMY)
    statd.wait_log("network driver configuration found", 30)
    h.MockManager(house, "dummy", [h.dedicated("dummy0")])
    house.wait_ready()
    assert house.status()["notes"] == []
    assert house.status()["driverName"] == h.DRIVER  # the server filled in the default

    house.patch_config({"draRegistrationTimeout": 7})
    wait_for(lambda: house.status()["notes"], 30, "a note about the change")
    assert "it is used when statd is restarted" in house.status()["notes"][0]
    assert statd.wait_log("config received, but we already have one")
    house.patch_config({"draRegistrationTimeout": 5})
    wait_for(lambda: not house.status()["notes"], 30, "the note's end")

    cluster.ok("DELETE", f"{CONFIGS}/{house.node}")
    wait_for(lambda: house.status()["notes"], 30, "a note about the end of the configuration")
    assert "was deleted" in house.status()["notes"][0]
    assert house.status()["ready"]


def test_invalid_configuration_is_told_and_the_next_one_is_used(cluster, procs, rundir):
    house = ClusterHouse(procs, rundir, cluster)
    house.create_config(DUMMY, [POOLS[0], POOLS[0]])
    statd = house.start_statd(ready=False)
    statd.wait_log("invalid configuration", 30)
    assert "duplicated pool name" in house.wait_missing("CiliumNetworkDriverNodeConfig")
    house.patch_config({"pools": POOLS})
    statd.wait_log("restored what was prepared", 30)


def test_node_that_has_not_registered_is_waited_for(cluster, procs, rundir):
    house = ClusterHouse(procs, rundir, cluster)
    name = f"late-{uuid.uuid4().hex[:6]}"
    house.node = name
    statd = house.start_statd(ready=False)
    statd.wait_log(f"no Node named {name}", 30)
    assert name in house.wait_missing("a Node named")
    cluster.make_node(name)
    house.create_config(DUMMY)
    statd.wait_log("restored what was prepared", 60)


def test_server_that_is_too_old_is_waited_for(cluster, proxy, procs, rundir):
    def old(exchange, _rule):
        exchange.reply(200, {"Content-Type": "application/json"},
                       json.dumps({"major": "1", "minor": "33+", "gitVersion": "v1.33.9"}).encode())
    proxy.rule("GET", "^/version", old, times=None)
    house = ClusterHouse(procs, rundir, cluster, server=proxy.url)
    house.start_statd(ready=False)
    assert house.wait_missing("v1.33.9") == "waiting for Kubernetes v1.34 or later; this server is v1.33.9"
    assert not proxy.seen("GET", "nodes")


def test_what_is_wrong_with_the_command_line_is_said(cluster, procs, rundir):
    house = ClusterHouse(procs, rundir, cluster)
    for arguments, text in (
            (["--kubeconfig", house.kubeconfig], "--node-name"),
            (["--node-name", "n"], "--kubeconfig"),
            (["--kubeconfig", rundir / "none", "--node-name", "n"], "No such file"),
            (["--kubeconfig", house.kubeconfig, "--kube-context", "other", "--node-name", "n"], "other")):
        statd = procs.start("statd", "--runtime-dir", house.runtime_dir, "--user", h.STATD_USER, *arguments)
        assert statd.wait_exit() == 1
        assert text in statd.log


def test_what_the_process_holds(setting):
    """With the network it is still without capabilities, threads, or more than it needs."""
    with open(f"/proc/{setting.statd.pid}/status", encoding="ascii") as lines:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
    assert {status[name].split()[0] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert set(status["Uid"].split()) == {h.STATD_USER.split(":")[0]}
    assert (status["NoNewPrivs"], status["Threads"]) == ("1", "1")
    if "asan" not in BUILD.name:  # a sanitized build has no filter
        assert status["Seccomp"] == "2"


# --- claims as the scheduler leaves them

def test_dedicated_device_from_template_to_the_end(setting, cluster):
    house = setting.house
    house.template("one", "fast-net", {"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1"}})
    claim = house.pod_with_claim("p1", "one")
    mark, counted = house.mark(), house.counted()
    device, = setting.prepared(claim)
    assert house.counted() - counted == {"get resourceclaims": 1, "patch resourceclaims/status": 1}
    assert device["pool_name"] == house.node and device["request_names"] == ["net"]
    entry, = house.entries(claim)
    assert entry["device"] == device["device_name"]
    assert entry["pool"] == house.node and "shareID" not in entry
    condition, = entry["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "Ready")
    assert entry["networkData"] == {"interfaceName": "net1"}
    assert entry["data"]["Config"]["podIfName"] == "net1"
    assert entry["data"]["LogicalPool"] == "fast-net"
    assert [(c.verb, c.resource, c.subresource, c.code) for c in house.calls(mark)] == [
        ("get", "resourceclaims", "", 200), ("patch", "resourceclaims", "status", 200)]

    mark = house.mark()
    assert setting.prepared(claim) == [device]
    assert [c.verb for c in house.calls(mark)] == ["get"]  # nothing to be written

    mark = house.mark()
    assert setting.unprepare(claim) == ""
    assert house.rows() == [] and house.calls(mark) == []


def test_claim_that_was_made_by_hand(setting, cluster):
    house = setting.house
    cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                    "metadata": {"name": "mine", "namespace": house.namespace},
                    "spec": {"devices": {"requests": [{"name": "net", "firstAvailable": [
                        {"name": "first", "deviceClassName": house.device_class("fast-net")}]}]}}})
    cluster.make_pod(house.namespace, "p1", {"net": "mine"},
                     spec={"nodeSelector": {"kubernetes.io/hostname": house.node}})
    pod = cluster.wait_bound(house.namespace, "p1")
    claim = cluster.claims_of(pod)["net"]
    assert claim["status"]["allocation"]["devices"]["results"][0]["request"] == "net/first"
    device, = setting.prepared(claim)
    assert device["request_names"] == ["net"]
    mark = house.mark()
    assert setting.unprepare(claim) == ""
    assert house.entries(claim) == [], "its pod and the claim stay, and nothing is prepared"
    assert [(c.verb, c.subresource, c.code) for c in house.calls(mark)] == [("get", "", 200), ("patch", "status", 200)]
    setting.restart(new_boot=True)
    assert house.rows() == []


def test_two_claims_get_two_shares_and_the_third_waits(sharing, cluster):
    house = sharing.house
    # the scheduler of 1.34 finds nothing for a request of a capacity when other devices of the pool have
    # none; the device's policy makes it one queue as well
    house.template("queue", "rx-queue-pool", capacity={"rxQueues": "1"} if cluster.minor > 34 else None)
    claims = [house.pod_with_claim(f"p{i}", "queue") for i in range(2)]
    house.make_pod("p2", "queue")
    assert "cannot allocate all claims" in cluster.wait_pending(house.namespace, "p2")
    devices = [sharing.prepared(claim)[0] for claim in claims]
    assert [d["device_name"] for d in devices] == ["eth0", "eth0"]
    shares = [claim["status"]["allocation"]["devices"]["results"][0]["shareID"] for claim in claims]
    assert [d["share_id"] for d in devices] == shares and shares[0] != shares[1]
    for claim, share in zip(claims, shares):
        entry, = house.entries(claim)
        assert entry["shareID"] == share
        assert entry["data"]["ConsumedCapacity"] == {"rxQueues": "1"}
    rows = house.rows()
    assert sorted(r["ShareID"] for r in rows) == sorted(shares)

    sharing.restart(BOTH)
    assert sorted(r["ShareID"] for r in house.rows()) == sorted(shares)
    assert [sharing.prepared(claim)[0] for claim in claims] == devices
    # the one that is given back is the third pod's
    assert sharing.unprepare(claims[0]) == ""
    cluster.delete_pod(house.namespace, "p0")
    third = cluster.wait_bound(house.namespace, "p2", 120)
    assert sharing.prepared(cluster.claims_of(third)["net"])


def claim_of_two_drivers(house, cluster):
    """Named two, with a device of each; returns it and the other driver's name."""
    other = f"other-{house.node}.example.com"
    cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                    "metadata": {"name": f"other-{house.node}"},
                    "spec": {"driver": other, "nodeName": house.node, "devices": [{"name": "gpu0"}],
                             "pool": {"name": house.node, "generation": 1, "resourceSliceCount": 1}}})
    cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": other},
                    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{other}"'}}]}})
    cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                    "metadata": {"name": "two", "namespace": house.namespace},
                    "spec": {"devices": {"requests": [
                        {"name": "gpu", "exactly": {"deviceClassName": other}},
                        {"name": "net", "exactly": {"deviceClassName": house.device_class("fast-net")}}]}}})
    cluster.make_pod(house.namespace, "p1", {"net": "two"},
                     spec={"nodeSelector": {"kubernetes.io/hostname": house.node}})
    return cluster.claims_of(cluster.wait_bound(house.namespace, "p1"))["net"], other


def test_entries_of_other_drivers_stay(setting, cluster):
    """Both drivers have a device in the claim; the other one's entry is there before ours is."""
    house = setting.house
    claim, other = claim_of_two_drivers(house, cluster)
    path = f"{RESOURCE}/namespaces/{house.namespace}/resourceclaims/two/status"
    cluster.ok("PATCH", f"{path}?fieldManager=other&force=true",
               {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "two"},
                "status": {"devices": [{"driver": other, "pool": house.node, "device": "gpu0",
                                        "data": {"theirs": True}}]}}, content_type="application/apply-patch+yaml")
    device, = setting.prepared(claim)
    house.wait_status_written()
    assert device["request_names"] == ["net"]
    devices = house.claim_now(claim)["status"]["devices"]
    assert sorted(d["driver"] for d in devices) == sorted([other, h.DRIVER])
    assert next(d for d in devices if d["driver"] == other)["data"] == {"theirs": True}
    assert setting.unprepare(claim) == ""


PATCHED = [("get", ""), ("patch", "status")]
SPLICED = PATCHED + [("get", ""), ("update", "status")]  # the patch was refused


@pytest.mark.parametrize("parameters, spaced, calls", [
    # members in another order than the server's own
    ({"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1"}}, False, PATCHED),
    ({"podIfName": "net1"}, True, SPLICED),
    ({"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "a < b & c > d"}}, False, SPLICED),
], ids=["unsorted", "white space", "escaped"])
def test_opaque_parameters_are_never_written_anew(setting, cluster, parameters, spaced, calls):
    """The server keeps them as bytes and takes any other form for a change of the allocation."""
    house = setting.house
    house.template("one", "fast-net", parameters, spaced=spaced)
    claim = house.pod_with_claim("p1", "one")
    mark = house.mark()
    device, = setting.prepared(claim)
    entry, = house.entries(claim)
    assert entry["device"] == device["device_name"] and entry["networkData"] == {"interfaceName": "net1"}
    condition, = entry["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == ("Ready", "Ready", "Device is ready")
    assert condition["lastTransitionTime"][:4] >= "2024"
    now = house.claim_now(claim)
    assert now["status"]["allocation"] == claim["status"]["allocation"]
    assert now["status"]["reservedFor"] == claim["status"]["reservedFor"]
    assert now["spec"] == claim["spec"]
    assert [(c.verb, c.subresource) for c in house.calls(mark)] == calls
    setting.restart()
    assert setting.prepared(claim) == [device]
    assert setting.unprepare(claim) == ""


def test_other_drivers_data_is_never_written_anew(setting, cluster):
    house = setting.house
    claim, other = claim_of_two_drivers(house, cluster)
    path = f"{RESOURCE}/namespaces/{house.namespace}/resourceclaims/two/status"
    theirs = {"driver": other, "pool": house.node, "device": "gpu0", "data": {"b": [1, 2], "a": "<>"},
              "conditions": [{"type": "Ready", "status": "False", "reason": "Slow", "message": "",
                              "lastTransitionTime": "2026-01-02T03:04:05Z"}]}
    status = {**claim["status"], "devices": [theirs]}
    cluster.ok("PUT", path, json.dumps({**claim, "status": status}, indent=1))
    assert setting.prepared(claim)
    devices = house.claim_now(claim)["status"]["devices"]
    assert [d for d in devices if d["driver"] == other] == [theirs]
    assert len(house.entries(claim)) == 1
    assert setting.unprepare(claim) == ""


def test_claim_that_is_not_the_one_asked_for(setting):
    house = setting.house
    house.template("one", "fast-net")
    claim = house.pod_with_claim("p1", "one")
    impostor = json.loads(json.dumps(claim))
    impostor["metadata"]["uid"] = str(uuid.uuid4())
    entry, = setting.prepare(impostor)
    assert "replaced" in entry["error"]
    missing = json.loads(json.dumps(claim))
    missing["metadata"].update({"name": "none", "uid": str(uuid.uuid4())})
    entry, = setting.prepare(missing)
    assert "not found" in entry["error"]
    assert setting.prepared(claim)


def test_failure_is_an_event_of_the_claim(setting):
    house = setting.house
    house.template("bad", "fast-net", {"podIfName": "a-name-that-is-too-long"})
    claim = house.pod_with_claim("p1", "bad")
    entry, = setting.prepare(claim)
    assert "too long" in entry["error"]
    event = house.wait_event("PrepareFailed")
    assert event["regarding"]["uid"] == claim["metadata"]["uid"]
    assert event["regarding"]["kind"] == "ResourceClaim"
    assert event["type"] == "Warning" and "too long" in event["note"]
    # the kubelet asks again and again, the event is told once
    setting.prepare(claim)
    setting.prepare(claim)
    assert len(house.events("PrepareFailed")) == 1


def test_attach_that_fails_and_one_that_comes_late_are_events_of_the_pod(setting):
    house = setting.house
    house.start_netnsd()
    house.wait_peer("netnsd", "connected")
    house.template("one", "fast-net")
    claim = house.pod_with_claim("p1", "one")
    device, = setting.prepared(claim)
    pod, = claim["status"]["reservedFor"]
    sandbox = {"podUID": pod["uid"], "sandboxID": "s1"}
    front = mprpc.connect(house.runtime_dir / "front.sock")
    front.call("front.hello", {"role": "nrihookd", "version": "0"})

    def attach():
        fd = netns.open()
        try:
            front.call("pod.attach", {**sandbox, "podName": "p1", "podNamespace": house.namespace}, [fd])
        finally:
            os.close(fd)
    failure = "device.attach", device["device_name"]
    with Netns() as netns:
        setting.dummy.failures[failure] = mprpc.Error("internal", "the cable is out")
        with pytest.raises(mprpc.Error):
            attach()
        failed = house.wait_event("AttachFailed")
        assert (failed["regarding"]["kind"], failed["regarding"]["uid"]) == ("Pod", pod["uid"])
        assert "the cable is out" in failed["note"]
        assert not house.events("AttachedLate")

        setting.dummy.failures.clear()
        assert front.call("pod.sync", {"pods": [sandbox]}) == {"sandboxIDs": ["s1"]}
        attach()
        late = house.wait_event("AttachedLate")
        assert (late["regarding"]["name"], late["regarding"]["uid"]) == ("p1", pod["uid"])
        front.call("pod.detach", sandbox)
    front.close()


def test_leftover_of_an_interrupted_preparation_is_an_event_of_the_claim(setting):
    house = setting.house
    house.template("one", "fast-net")
    claim = house.pod_with_claim("p1", "one")
    setting.statd.kill()
    (house.state_dir / "boot").unlink()  # the records were lost
    setting.statd = house.start_statd()
    uid = claim["metadata"]["uid"]
    manager = h.MockManager(house, "dummy", [h.dedicated("dummy0")], leftovers=[
        {"device": h.dedicated("dummy0"), "claimUID": uid, "config": {}}])
    event = house.wait_event("LeftoverFreed")
    assert event["regarding"]["uid"] == uid and "dummy0" in event["note"]
    assert [freed["claimUID"] for freed in manager.asked("device.free")] == [uid]


def test_missing_right_is_named(setting, cluster):
    if cluster.minor < 36:
        pytest.skip("granular status authorization is of Kubernetes 1.36 and later")
    house = setting.house
    house.template("one", "fast-net")
    claim = house.pod_with_claim("p1", "one")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/netclaim"
    role = cluster.ok("GET", path)
    try:
        rules = [r for r in role["rules"] if "resourceclaims/driver" not in r["resources"]]
        cluster.ok("PATCH", path, {"rules": rules}, content_type="application/merge-patch+json")

        assert setting.prepared(claim), "it is prepared, and its status is due"

        def noted():
            return next((n for n in house.status().get("notes", []) if "still to be written" in n), None)
        note = wait_for(noted, 30, "a note of what is wrong")
        assert "associated-node:patch on resourceclaims/driver" in note and h.DRIVER in note
        assert house.status()["statusDue"] == 1
    finally:
        cluster.ok("PATCH", path, {"rules": role["rules"]}, content_type="application/merge-patch+json")
    wait_for(lambda: not house.status().get("statusDue"), 90, "the status's being written")
    assert len(house.entries(claim)) == 1


# --- restarts

@pytest.mark.parametrize("new_boot, claims_read", [
    (False, {}), (True, {("list", "pods"): 1, ("get", "resourceclaims"): 3})])
def test_restart_restores_without_the_manager_being_asked(setting, cluster, new_boot, claims_read):
    """From the node's own record; in the first start of a boot from the claims' status."""
    house = setting.house
    house.template("one", "fast-net", {"podIfName": "net1"})
    claims = [house.pod_with_claim(f"p{i}", "one") for i in range(3)]
    devices = [setting.prepared(claim) for claim in claims]
    rows = sorted((r["DeviceName"], r["ClaimUID"], r["PodUID"], r["LogicalPool"]) for r in house.rows())
    slices = {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in house.slices()}
    mark = house.mark()
    setting.restart(new_boot=new_boot)
    assert sorted((r["DeviceName"], r["ClaimUID"], r["PodUID"], r["LogicalPool"]) for r in house.rows()) == rows
    assert setting.dummy.asked("device.setup") == []
    wait_for(lambda: ", published" in house.status()["slices"], 30, "publication")
    counts = {}
    for call in house.calls(mark):
        key = (call.verb, call.resource)
        counts[key] = counts.get(key, 0) + 1
    assert counts == {("get", "/version"): 1, ("get", "nodes"): 1, ("list", "ciliumnetworkdrivernodeconfigs"): 1,
                      ("list", "resourceslices"): 1, **claims_read}
    assert {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in house.slices()} == slices
    assert [setting.prepared(claim) for claim in claims] == devices
    for claim in claims:
        assert setting.unprepare(claim) == ""


def test_server_that_is_down_at_the_start_is_waited_for(setting, cluster):
    house = setting.house
    house.template("one", "fast-net")
    claim = house.pod_with_claim("p1", "one")
    assert setting.prepared(claim)
    setting.statd.kill()
    cluster.kill_apiserver()
    try:
        setting.statd = house.start_statd(ready=False)
        assert "API server" in house.wait_missing("waiting for")
    finally:
        cluster.start_apiserver()
    setting.statd.wait_log("restored what was prepared", 60)
    assert [r["ClaimUID"] for r in house.rows()] == [claim["metadata"]["uid"]]
    setting.connect()
    house.wait_ready()
    assert setting.unprepare(claim) == ""


def test_unprepare_needs_no_server(setting, cluster):
    house = setting.house
    house.template("one", "fast-net")
    claim = house.pod_with_claim("p1", "one")
    assert setting.prepared(claim)
    cluster.kill_apiserver()
    try:
        assert setting.unprepare(claim) == ""
        assert house.rows() == []
    finally:
        cluster.start_apiserver()
