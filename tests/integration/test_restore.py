# SPDX-License-Identifier: Apache-2.0
"""What statd knows after a start: allocations from the claims' status, inventory from the managers,
and no work before both. The directory of claims is what another statd, or an API server's copy,
would have left."""
import json

import pytest

import house as h
import mprpc
import procs as procs_module
from house import result

SHARE = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
CONFIG = h.config({"dummy": {"enabled": True, "count": 3},
                   "rxQueue": {"enabled": True, "ifaces": [{"ifName": "eth0", "count": 2}]}},
                  [{"name": "fast-net", "filter": {"deviceManagers": ["dummy"]}}])


@pytest.fixture
def house(procs, rundir):
    return h.House(procs, rundir, CONFIG)


def prepared(house, name, device="dummy0", manager="dummy", data=None, more=(), **claim):
    """A claim with the status that preparing it left."""
    c = h.Claim(house, name, [result(device, share=claim.pop("share", None))], **claim)
    share = c.object["status"]["allocation"]["devices"]["results"][0].get("shareID")
    entry = {"driver": h.DRIVER, "pool": h.NODE, "device": device,
             "data": data or {"Manager": manager, "Dev": {"Name": device}, "Config": {"podIfName": "net1"},
                              "LogicalPool": "fast-net"}}
    if share:
        entry["shareID"] = share
    c.object["status"]["devices"] = [*more, entry]
    c.write()
    return c


def pod(house, name, claims, statuses=None, uid="pod-1"):
    (house.claims_dir / f"pod-{name}.json").write_text(json.dumps({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"nodeName": h.NODE, "resourceClaims": claims},
        "status": {"resourceClaimStatuses": statuses or []}}))


def start(house):
    statd = house.start_statd()
    dummy = h.MockManager(house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
    rx = h.MockManager(house, "rxQueue", [h.shareable("eth0")])
    house.wait_ready()
    return statd, dummy, rx


def test_direct_and_template_claims(house):
    a = prepared(house, "a")
    b = prepared(house, "b-x7k2p", "dummy1", pod_uid="pod-2",
                 annotations={"resource.kubernetes.io/pod-claim-name": "b"})
    pod(house, "p1", [{"name": "x", "resourceClaimName": "a"}])
    pod(house, "p2", [{"name": "b", "resourceClaimTemplateName": "t"}],
        [{"name": "b", "resourceClaimName": "b-x7k2p"}], uid="pod-2")
    statd, dummy, rx = start(house)
    assert [(r["DeviceName"], r["ClaimUID"], r["PodUID"], r["LogicalPool"], r["Config"]) for r in house.rows()] == [
        ("dummy0", a.uid, "pod-1", "fast-net", {"podIfName": "net1"}),
        ("dummy1", b.uid, "pod-2", "fast-net", {"podIfName": "net1"})]
    assert "failed to restore" not in statd.log
    dummy.close()
    rx.close()


def test_restored_claim_is_unprepared(house):
    c = prepared(house, "a")
    _, dummy, rx = start(house)
    front = mprpc.connect(house.runtime_dir / "front.sock")
    front.call("claim.unprepare", c.ref)
    freed, = dummy.asked("device.free")
    assert (freed["claimUID"], freed["device"]["state"], freed["config"]) == (
        c.uid, {"Name": "dummy0"}, {"podIfName": "net1"})
    assert house.rows() == []
    for peer in (front, dummy, rx):
        peer.close()


def test_what_a_killed_statd_was_writing_is_removed(house):
    ours = [".default_a.status.json.0123abcd.tmp", ".resourceslices.json.89ab4567.tmp"]
    others = [".resourceslices.json.tmp", "default_a.status.json.0123abcd.tmp", ".notes.0123abcd.tmp"]
    for name in ours + others:
        (house.claims_dir / name).write_text("{")
    _, dummy, rx = start(house)
    left = {path.name for path in house.claims_dir.iterdir()}
    assert left.issuperset(others) and left.isdisjoint(ours)
    dummy.close()
    rx.close()


def test_share_and_capacity(house):
    prepared(house, "a", "eth0", share=SHARE, data={
        "Manager": "rxQueue", "Dev": {"queue": 7}, "Config": {}, "ConsumedCapacity": {"rxQueues": "1"},
        "LogicalPool": "rx"})
    _, dummy, rx = start(house)
    row, = house.rows()
    assert (row["ShareID"], row["ConsumedCapacity"], row["LogicalPool"], row["PreparedDevice"]) == (
        SHARE, {"rxQueues": "1"}, "rx", {"queue": 7})
    handed, = rx.asked("device.restore")[0]["allocations"]
    assert handed["shareID"] == SHARE and handed["consumedCapacity"] == {"rxQueues": "1"}
    dummy.close()
    rx.close()


@pytest.mark.parametrize("broken, words", [
    ({"Manager": "macvlan", "Dev": {}}, "unknown device manager type macvlan"),
    ({"Manager": "sr-iov", "Dev": {}}, "unknown device manager type sr-iov.*not enabled"),
    ({"Dev": {}}, "failed to deserialize.*Manager: is required"),
    ({"Manager": "dummy", "Dev": "text"}, "failed to deserialize.*Dev"),
    ({"Manager": "dummy", "Dev": {}, "Config": {"vlan": "x"}}, "failed to deserialize.*vlan"),
])
def test_what_cannot_be_restored_does_not_keep_others_back(house, broken, words):
    prepared(house, "broken", "dummy1", data=broken)
    good = prepared(house, "good")
    statd, dummy, rx = start(house)
    statd.wait_log(f"failed to restore allocated device.*default/broken.*{words}")
    assert [r["ClaimUID"] for r in house.rows()] == [good.uid]
    dummy.close()
    rx.close()


@pytest.mark.parametrize("reserved", [["pod-1", "pod-2"], []])
def test_not_one_consumer(house, reserved):
    """What was prepared is held, though it is not known for which pod; none of them passes without it."""
    c = prepared(house, "a", reserved=reserved)
    rival = h.Claim(house, "rival", [result("dummy0")], pod_uid="pod-3")
    _, dummy, rx = start(house)
    row, = house.rows()
    assert (row["ClaimUID"], row["PodUID"], row.get("Pods", [])) == (c.uid, "", reserved)
    assert house.marked_pods() == set(reserved)
    front = mprpc.connect(house.runtime_dir / "front.sock")
    with pytest.raises(mprpc.Error, match=f"dummy0 is still held by claim {c.uid}"):
        front.call("claim.prepare", rival.ref)
    for pod in reserved:
        assert front.call("pod.check", {"podUID": pod, "sandboxID": "s"}) == {"wanted": 1, "there": 0}
    front.call("claim.unprepare", c.ref)
    freed, = dummy.asked("device.free")
    assert freed["claimUID"] == c.uid and house.rows() == [] and house.marked_pods() == set()
    for peer in (front, dummy, rx):
        peer.close()


def test_entries_of_other_drivers_are_skipped(house):
    prepared(house, "a", more=[{"driver": "gpu.example.com", "pool": "p", "device": "gpu0", "data": {"x": 1}}])
    statd, dummy, rx = start(house)
    assert [r["DeviceName"] for r in house.rows()] == ["dummy0"] and "failed to restore" not in statd.log
    dummy.close()
    rx.close()


# What no JSON or YAML reader takes, each as the value of a member.
ODD = {"integer": "18446744073709551615", "real": "1e400", "NUL": r'"\u0000"', "twice": '{"a": 1, "a": 2}',
       "deep": "[" * 100 + "]" * 100}


def odd_claim(house, name, device, suffix, odd, **more):
    """A prepared claim of ours in which all that is another program's holds this value."""
    theirs = {"driver": "gpu.example.com", "pool": "p", "device": "gpu0", "data": {"guid": "ODD"},
              "conditions": ["ODD"], "networkData": "ODD"}
    c = prepared(house, name, device, more=[theirs], suffix=suffix, **more)
    devices = c.object["status"]["allocation"]["devices"]
    devices["config"].append({"source": "FromClass", "opaque": {"parameters": {"x": "ODD"}, "driver": "gpu.example.com"}})
    devices["results"].append({**result("gpu0", "gpu", "gpu.example.com"), "consumedCapacity": "ODD"})
    c.object["metadata"]["managedFields"] = ["ODD"]
    c.object["metadata"]["annotations"] = {"their.example.com/a": "ODD"}
    c.object["spec"]["devices"]["config"] = "ODD"
    text = json.dumps(c.object, indent=1).replace('"ODD"', odd)
    c.path.write_text(text if suffix == ".json" else f"# not JSON\n{text}")
    return c


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_ours_is_not_judged(house, odd, suffix):
    c = odd_claim(house, "a", "dummy0", suffix, ODD[odd])
    before = c.path.read_bytes()
    statd, dummy, rx = start(house)
    assert [r["ClaimUID"] for r in house.rows()] == [c.uid]
    assert "cannot be restored" not in statd.log and "failed to restore" not in statd.log
    front = mprpc.connect(house.runtime_dir / "front.sock")
    prepared_now = front.call("claim.prepare", c.ref)
    assert [d["device"] for d in prepared_now["devices"]] == ["dummy0"]
    front.call("claim.unprepare", c.ref)
    assert house.rows() == [] and c.path.read_bytes() == before
    fresh = odd_claim(house, "b", "dummy1", suffix, ODD[odd])
    fresh.path.write_text(fresh.path.read_text().replace(h.DRIVER + '",\n    "pool"', 'other.example.com",\n    "pool"'))
    assert [d["device"] for d in front.call("claim.prepare", fresh.ref)["devices"]] == ["dummy1"]
    assert [e["device"] for e in fresh.status] == ["dummy1"]
    for peer in (front, dummy, rx):
        peer.close()


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_what_is_ours_is_refused_with_its_place(house, suffix):
    c = h.Claim(house, "a", [result("dummy0")], [h.opaque({"vlan": "ODD"})], suffix=suffix)
    text = json.dumps(c.object, indent=1).replace('"ODD"', ODD["integer"])
    line = text[:text.index(ODD["integer"])].count("\n") + 1 + (suffix == ".yaml")
    c.path.write_text(text if suffix == ".json" else f"# not JSON\n{text}")
    good = prepared(house, "good", "dummy1")
    statd, dummy, rx = start(house)
    statd.wait_log(f"a claim cannot be read.*default_a{suffix}:{line}:")
    assert [r["ClaimUID"] for r in house.rows()] == [good.uid]
    front = mprpc.connect(house.runtime_dir / "front.sock")
    with pytest.raises(mprpc.Error, match=rf"default_a{suffix}:{line}:\d+: .*(big|fit)"):
        front.call("claim.prepare", c.ref)
    for peer in (front, dummy, rx):
        peer.close()


def test_pod_of_which_only_the_claims_count(house):
    prepared(house, "a")
    pod(house, "p1", [{"name": "x", "resourceClaimName": "a"}, {"name": "y", "resourceClaimName": "gone"}])
    path = house.claims_dir / "pod-p1.json"
    path.write_text(path.read_text().replace('"nodeName":', r'"containers": [{"args": ["\u0000"]}], "nodeName":'))
    statd, dummy, rx = start(house)
    statd.wait_log("claim default/gone not found in store")
    assert len(house.rows()) == 1 and "pod-p1" not in statd.log
    dummy.close()
    rx.close()


def test_claim_that_a_pod_names_is_missing(house):
    prepared(house, "a")
    pod(house, "p1", [{"name": "x", "resourceClaimName": "gone"}, {"name": "y", "resourceClaimName": "a"},
                      {"name": "z", "resourceClaimTemplateName": "t"}])
    statd, dummy, rx = start(house)
    statd.wait_log("claim default/gone not found in store")
    assert len(house.rows()) == 1, "and the other one is restored"
    dummy.close()
    rx.close()


def leftover(device, claim_uid):
    return {"device": {"name": device, "state": {"Name": device}}, "claimUID": claim_uid}


def test_leftovers_are_freed_before_anything_is_served(house):
    half = h.Claim(house, "half", [result("dummy0")])
    h.Claim(house, "only-allocated", [result("dummy2")])
    known = prepared(house, "known", "dummy2")
    statd = house.start_statd()
    dummy = h.MockManager(house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)], leftovers=[
        leftover("dummy0", half.uid), leftover("dummy1", "gone-for-good"), leftover("dummy2", known.uid)])
    assert not house.status()["ready"], "the other manager has not been asked yet"
    rx = h.MockManager(house, "rxQueue", [])
    house.wait_ready()
    assert dummy.asked("device.audit")[0]["claimUIDs"] == [known.uid]
    assert [(f["device"]["name"], f["claimUID"]) for f in dummy.asked("device.free")] == [
        ("dummy0", half.uid), ("dummy1", "gone-for-good")]
    statd.wait_log(f"claim default/half was being prepared when the driver ended.*{half.uid}")
    statd.wait_log("a device of a claim that is not known.*gone-for-good")
    assert "only-allocated" not in statd.log, "a claim of which nothing was made is not half prepared"
    dummy.close()
    rx.close()


def test_leftover_that_cannot_be_freed(house):
    statd = house.start_statd()

    class Stuck(h.MockManager):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            self.failures["device.free", "dummy0"] = mprpc.Error("internal", "it is stuck")

        def _audit(self, params):
            self.failures["device.free", "dummy0"] = mprpc.Error("internal", "it is stuck")
            return super()._audit(params)
    dummy = Stuck(house, "dummy", [h.dedicated("dummy0")], leftovers=[leftover("dummy0", "u1"), leftover("dummy1", "u2")])
    rx = h.MockManager(house, "rxQueue", [])
    house.wait_ready()
    statd.wait_log("a leftover could not be freed.*dummy0.*it is stuck")
    assert [f["device"]["name"] for f in dummy.asked("device.free")] == ["dummy0", "dummy1"], "and goes on"
    dummy.close()
    rx.close()


def test_a_claim_that_is_being_prepared_is_no_leftover(house):
    """A manager comes back when one device of a claim is set up and another one is about to be."""
    _, dummy, rx = start(house)
    c = h.Claim(house, "a", [result("dummy0"), result("eth0", "rx", share=SHARE, capacity={"rxQueues": "1"})])
    front = mprpc.connect(house.runtime_dir / "front.sock")
    again = []

    def setup(_, params, _fds):
        dummy.close()
        again.append(h.MockManager(house, "dummy", dummy.devices, leftovers=[leftover("dummy0", c.uid)]))
        procs_module.wait_for(lambda: again[0].asked("device.audit"), what="the audit")
        return {"device": params["device"]}
    rx.peer.methods["device.setup"] = setup
    front.call("claim.prepare", c.ref)
    audit, = again[0].asked("device.audit")
    assert set(audit["claimUIDs"]) == {c.uid} and again[0].asked("device.free") == []
    assert sorted(r["DeviceName"] for r in house.rows()) == ["dummy0", "eth0"]
    for peer in (front, rx, *again):
        peer.close()


def test_files_that_cannot_be_read(house):
    (house.claims_dir / "broken.yaml").write_text("a: [1\n")
    (house.claims_dir / "other.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")
    (house.claims_dir / "notes.txt").write_text("not an object")
    prepared(house, "a")
    statd, dummy, rx = start(house)
    statd.wait_log(r"a claim cannot be read.*broken\.yaml:\d+:\d+")
    statd.wait_log(r"something in the store cannot be restored.*other\.yaml: is neither")
    assert "notes.txt" not in statd.log and len(house.rows()) == 1
    dummy.close()
    rx.close()


def test_yaml_claims_and_status_of_a_replaced_claim(house):
    c = h.Claim(house, "a", [result("dummy0")], suffix=".yaml")
    c.status_path.write_text(json.dumps({
        "driver": h.DRIVER, "metadata": {"name": "a", "namespace": "default", "uid": "another"},
        "status": {"devices": [{"driver": h.DRIVER, "pool": h.NODE, "device": "dummy0",
                                "data": {"Manager": "dummy", "Dev": {"Name": "dummy0"}}}]}}))
    _, dummy, rx = start(house)
    assert house.rows() == [], "the status is of another claim"
    front = mprpc.connect(house.runtime_dir / "front.sock")
    front.call("claim.prepare", c.ref)
    assert [r["ClaimUID"] for r in house.rows()] == [c.uid]
    for peer in (front, dummy, rx):
        peer.close()


def test_not_ready_before_every_manager_has_published(house):
    house.start_statd()
    front = mprpc.connect(house.runtime_dir / "front.sock")
    assert not front.call("front.hello", {"role": "draplugind", "version": "0"})["ready"]
    dummy = h.MockManager(house, "dummy", [h.dedicated("dummy0")])
    status = house.status()
    assert not status["ready"] and any("dmgr-rxqueue has not published" in m for m in status["missing"])
    assert ("front.ready", {}) not in front.seen
    rx = h.MockManager(house, "rxQueue", [h.shareable("eth0")])
    procs_module.wait_for(lambda: ("front.ready", {}) in front.seen, what="front.ready")
    assert house.status()["ready"]
    rx.publish([])
    assert front.seen.count(("front.ready", {})) == 1, "once"
    for peer in (front, dummy, rx):
        peer.close()


def test_manager_cannot_restore_one(house, procs):
    c = prepared(house, "a")
    statd = house.start_statd()

    class Refusing(h.MockManager):
        def _restore(self, params):
            return {"verdicts": [{"error": "this is no dummy"} for _ in params.get("allocations", [])]}
    dummy = Refusing(house, "dummy", [h.dedicated("dummy0")])
    statd.wait_log(f"failed to restore allocated device.*{c.uid}.*this is no dummy")
    row, = house.rows()
    assert "this is no dummy" in row["Problem"], "it is not forgotten before it is freed"
    dummy.close()


def published(house):
    """Devices of the slices that are written, with their pools."""
    path = house.claims_dir / "resourceslices.json"
    slices = json.loads(path.read_text())["items"] if path.exists() else []
    return {d["name"]: d["attributes"]["pool"]["string"] for s in slices for d in s["spec"].get("devices", [])}


def test_device_is_offered_again_when_the_allocation_that_hid_it_is_gone(procs, rundir):
    """The claim has it from a pool that the configuration has no longer."""
    house = h.House(procs, rundir, h.config({"dummy": {"enabled": True, "count": 3},
                                             "rxQueue": {"enabled": True, "ifaces": [{"ifName": "eth0", "count": 2}]}},
                                            [{"name": "new", "filter": {"deviceManagers": ["dummy"]}}]))
    c = prepared(house, "a")
    _, dummy, rx = start(house)
    procs_module.wait_for(lambda: published(house) == {"dummy1": "new", "dummy2": "new"}, what="the others")
    front = mprpc.connect(house.runtime_dir / "front.sock")
    front.call("claim.unprepare", c.ref)
    procs_module.wait_for(lambda: published(house).get("dummy0") == "new", what="dummy0 in its new pool")
    for peer in (front, dummy, rx):
        peer.close()


def test_slices_are_published(house):
    _, dummy, rx = start(house)
    path = house.claims_dir / "resourceslices.json"

    def names():
        slices = json.loads(path.read_text())["items"] if path.exists() else []
        return [[d["name"] for d in s["spec"].get("devices", [])] for s in slices]
    procs_module.wait_for(lambda: names() == [["dummy0", "dummy1", "dummy2"]], what="the first publication")
    spec = json.loads(path.read_text())["items"][0]["spec"]
    assert spec["driver"] == h.DRIVER and spec["nodeName"] == h.NODE
    assert (spec["pool"]["name"], spec["pool"]["resourceSliceCount"]) == (h.NODE, 1)
    assert spec["devices"][0]["attributes"]["pool"] == {"string": "fast-net"}
    dummy.publish([h.dedicated("dummy2")])
    procs_module.wait_for(lambda: names() == [["dummy2"]], what="a publication after a change")
    dummy.publish([h.dedicated(f"dummy{i}") for i in range(65)])
    procs_module.wait_for(lambda: [len(s) for s in names()] == [64, 1], what="a second slice")
    dummy.close()
    rx.close()


@pytest.mark.parametrize("change, words", [
    (lambda c: c["metadata"].update(name="another-node"), ["metadata.name", "another-node"]),
    (lambda c: c["spec"].update(pool=[]), ["spec.pool", "pools"]),
    (lambda c: c["spec"]["pools"].append({"name": "fast-net"}), ["spec.pools[1].name", "duplicated pool name"]),
    (lambda c: c["spec"]["deviceManagerConfigs"]["dummy"].update(count=-1), ["count", "-1"]),
    (lambda c: c.update(kind="ConfigMap"), ["kind", "CiliumNetworkDriverNodeConfig"]),
])
def test_wrong_configuration(house, procs, change, words):
    configuration = json.loads(json.dumps(CONFIG))
    change(configuration)
    house.config_path.write_text(json.dumps(configuration, indent=1).replace("{", " {", 1))  # as YAML: lines
    statd = procs.start("statd", "--config", house.config_path, "--claims-dir", house.claims_dir, "--runtime-dir",
                        house.runtime_dir, "--user", h.STATD_USER, "--node-name", h.NODE)
    assert statd.wait_exit() == 1
    assert all(w in statd.log for w in [str(house.config_path), *words]), statd.log


def test_stops_with_what_is_in_flight(house):
    statd, dummy, rx = start(house)
    c = h.Claim(house, "a", [result("dummy0")])
    front = mprpc.connect(house.runtime_dir / "front.sock")
    setup, stopped = dummy.peer.methods["device.setup"], []

    def slowly(*args):
        statd.signal(15)
        statd.wait_log("SIGTERM|stopping")
        stopped.append(True)
        return setup(*args)
    dummy.peer.methods["device.setup"] = slowly
    assert front.call("claim.prepare", c.ref)["devices"] and stopped
    assert statd.wait_exit() == 0
    for peer in (front, dummy, rx):
        peer.close()
    _, dummy, rx = start(house)
    assert [r["ClaimUID"] for r in house.rows()] == [c.uid] and c.status, "what was still to be written is written now"
    for peer in (dummy, rx):
        peer.close()
