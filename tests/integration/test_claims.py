# SPDX-License-Identifier: Apache-2.0
"""Claims through the kubelet's door: grpcio as the kubelet, draplugind and statd as they ship, and a
manager whose answers the test decides. Each test is one scenario of preparing and unpreparing."""
import json
import os

import pytest

import house as h
import mprpc
from house import opaque, result

SHARE_A = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
SHARE_B = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"

CONFIG = h.config({"dummy": {"enabled": True, "count": 3},
                   "rxQueue": {"enabled": True, "ifaces": [{"ifName": "eth0", "count": 2}]}},
                  [{"name": "fast-net", "filter": {"deviceManagers": ["dummy"]}},
                   {"name": "rx-queue-pool", "filter": {"deviceManagers": ["rxQueue"]}}])


class Setting:
    def __init__(self, procs, rundir, *options):
        self.house = h.House(procs, rundir, CONFIG)
        self.options = options
        self.start_statd()
        self.draplugind = self.house.start_draplugind()
        self.kubelet = self.house.kubelet()
        self.kubelet.register()

    def start_statd(self):
        self.statd = self.house.start_statd(*self.options)
        self.dummy = h.MockManager(self.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
        self.rx = h.MockManager(self.house, "rxQueue", [h.shareable("eth0")],
                                prepared={"ifName": "net9", "state": {"prepared": True, "queue": 7}})
        self.house.wait_ready()

    def restart_statd(self):
        self.statd.kill()
        self.dummy.close()
        self.rx.close()
        self.start_statd()

    def claim(self, name, results, **more):
        return h.Claim(self.house, name, results, **more)

    def prepare(self, *claims, version="v1"):
        """The entries, in the order of the claims."""
        entries = self.kubelet.prepare([c.ref for c in claims], version)
        return [entries[c.uid] for c in claims]

    def prepared(self, claim, version="v1"):
        entry, = self.prepare(claim, version=version)
        assert "error" not in entry, entry
        return entry["devices"]

    def refused(self, claim):
        entry, = self.prepare(claim)
        assert not entry.get("devices")
        return entry["error"]

    def unprepare(self, claim, version="v1"):
        return self.kubelet.unprepare([claim.ref], version)[claim.uid].get("error", "")

    def rows(self):
        return self.house.rows()

    def setups(self):
        return [c["device"]["name"] for c in self.dummy.asked("device.setup") + self.rx.asked("device.setup")]

    def frees(self):
        return [c["device"]["name"] for c in self.dummy.asked("device.free") + self.rx.asked("device.free")]

    def close(self):
        self.kubelet.close()
        self.dummy.close()
        self.rx.close()


@pytest.fixture
def at(procs, rundir):
    setting = Setting(procs, rundir)
    yield setting
    setting.close()


@pytest.fixture
def waiting(procs, rundir):
    """A statd that answers when the claim's status is written."""
    setting = Setting(procs, rundir, "--wait-for-status")
    yield setting
    setting.close()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_one_device(at, version):
    c = at.claim("c1", [result("dummy0")], config=[opaque({"podIfName": "net1"}, ["net"])])
    device, = at.prepared(c, version)
    assert device["request_names"] == ["net"]
    assert (device["pool_name"], device["device_name"]) == (h.NODE, "dummy0")
    assert device["cdi_device_ids"] == [f"{h.DRIVER}/metadata={c.uid}_net"]
    row, = at.rows()
    assert {k: row[k] for k in ("DeviceName", "Manager", "PreparedDevice", "LogicalPool", "PodUID",
                                "ClaimUID", "Config", "ShareID", "ConsumedCapacity")} == {
        "DeviceName": "dummy0", "Manager": "dummy", "PreparedDevice": {"Name": "dummy0"},
        "LogicalPool": "fast-net", "PodUID": "pod-1", "ClaimUID": c.uid,
        "Config": {"podIfName": "net1"}, "ShareID": "", "ConsumedCapacity": None}
    assert at.unprepare(c, version) == ""
    assert at.rows() == [] and at.house.files_left() == []
    assert len(at.house.rows(h.DEVICES)) == 4, "the inventory row stays"


def test_two_devices_in_the_order_of_the_results(at):
    c = at.claim("c1", [result("dummy1", "b"), result("dummy0", "a")])
    assert [(d["device_name"], d["request_names"]) for d in at.prepared(c)] == [
        ("dummy1", ["b"]), ("dummy0", ["a"])]
    assert [(s["device"], s["pool"]) for s in c.status] == [("dummy1", h.NODE), ("dummy0", h.NODE)]
    assert sorted(r["DeviceName"] for r in at.rows()) == ["dummy0", "dummy1"]
    assert at.setups() == ["dummy1", "dummy0"]


def test_status_entry(at):
    c = at.claim("c1", [result("dummy0"), result("eth0", "rx", share=SHARE_A, capacity={"rxQueues": "1"})],
                 config=[opaque({"podIfName": "net1"}, ["net"])])
    at.prepared(c)
    dedicated, shared = c.status
    condition, = dedicated.pop("conditions")
    assert condition.pop("lastTransitionTime").endswith("Z")
    assert condition == {"type": "Ready", "status": "True", "reason": "Ready",
                         "message": "Device is ready", "observedGeneration": 1}
    assert dedicated == {"driver": h.DRIVER, "pool": h.NODE, "device": "dummy0",
                         "data": {"Manager": "dummy", "Dev": {"Name": "dummy0"},
                                  "Config": {"podIfName": "net1"}, "LogicalPool": "fast-net"},
                         "networkData": {"interfaceName": "net1"}}
    assert shared["shareID"] == SHARE_A
    assert shared["networkData"] == {"interfaceName": "net9"}, "the prepared device's own name"
    assert shared["data"] == {"Manager": "rxQueue", "Dev": {"prepared": True, "queue": 7}, "Config": {},
                              "ConsumedCapacity": {"rxQueues": "1"}, "LogicalPool": "rx-queue-pool"}


def make_status_unwritable(at):
    """statd's user can read the directory of claims, and no longer write into it."""
    os.chown(at.house.claims_dir, 0, 0)


@pytest.mark.needs_root
def test_status_update_fails(waiting):
    at = waiting
    c = at.claim("c1", [result("dummy0"), result("dummy1", "b")])
    make_status_unwritable(at)
    error = at.refused(c)
    assert "c1" in error and "status" in error
    assert at.frees() == ["dummy1", "dummy0"], "freed once each, the last first"
    assert at.rows() == []


@pytest.mark.needs_root
def test_status_update_fails_for_a_share(waiting):
    at = waiting
    c = at.claim("c1", [result("eth0", "rx", share=SHARE_A, capacity={"rxQueues": "1"})])
    make_status_unwritable(at)
    at.refused(c)
    freed, = at.rx.asked("device.free")
    assert freed["shareID"] == SHARE_A and freed["consumedCapacity"] == {"rxQueues": "1"}
    assert freed["device"]["state"] == {"prepared": True, "queue": 7}, "the prepared object, not the advertised"


@pytest.mark.needs_root
def test_status_is_written_when_it_can_be(at):
    """A prepare does not wait for it, and it is not lost: not with a statd that is killed either."""
    c = at.claim("c1", [result("dummy0")])
    make_status_unwritable(at)
    at.prepared(c)
    at.statd.wait_log("claim status is not written; trying again.*default_c1")
    assert at.house.status()["statusDue"] == 1 and not c.status_path.exists()
    assert any("status of 1 claims is still to be written" in note for note in at.house.status()["notes"])
    at.restart_statd()
    assert at.house.status()["statusDue"] == 1 and not c.status_path.exists()
    uid, gid = map(int, h.STATD_USER.split(":"))
    os.chown(at.house.claims_dir, uid, gid)
    assert [entry["device"] for entry in c.status] == ["dummy0"]
    at.unprepare(c)
    assert c.status is None


def test_second_setup_fails(at):
    at.dummy.failures["device.setup", "dummy1"] = mprpc.Error("internal", "no room in the kernel")
    c = at.claim("c1", [result("dummy0"), result("dummy1", "b")])
    error = at.refused(c)
    assert "dummy1" in error and "no room in the kernel" in error
    assert at.frees() == ["dummy0"] and c.status is None and at.rows() == []


def test_second_device_not_in_inventory(at):
    c = at.claim("c1", [result("dummy0"), result("dummy9", "b")])
    assert "device not found" in at.refused(c)
    assert at.setups() == [], "nothing is touched before the whole claim is right"


def test_rollback_free_fails(at):
    at.dummy.failures["device.setup", "dummy1"] = mprpc.Error("internal", "the first trouble")
    at.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "the second trouble")
    c = at.claim("c1", [result("dummy0"), result("dummy1", "b")])
    error = at.refused(c)
    assert "the first trouble" in error and "the second trouble" not in error
    at.statd.wait_log("failed to free device during rollback.*the second trouble")


def test_prepared_twice(at):
    c = at.claim("c1", [result("dummy0")])
    first = at.prepared(c)
    assert c.status
    written = c.status_path.stat()
    assert at.prepared(c) == first
    assert at.setups() == ["dummy0"]
    assert c.status_path.stat().st_ino == written.st_ino, "no second write"


def test_row_without_status_entry(at):
    c = at.claim("c1", [result("dummy0")])
    at.prepared(c)
    status = c.status
    c.status_path.unlink()
    at.prepared(c)
    assert at.setups() == ["dummy0"] and [s["data"] for s in c.status] == [s["data"] for s in status]


def test_two_claims_of_one_pod(at):
    a, b = at.claim("a", [result("dummy0")]), at.claim("b", [result("dummy1")])
    assert all("error" not in e for e in at.prepare(a, b))
    assert len(at.rows()) == 2


def test_two_shares_of_one_device_in_one_pod(at):
    a = at.claim("a", [result("eth0", share=SHARE_A, capacity={"rxQueues": "1"})],
                 config=[opaque({"podIfName": "q0"})])
    b = at.claim("b", [result("eth0", share=SHARE_B, capacity={"rxQueues": "1"})],
                 config=[opaque({"podIfName": "q1"})])
    assert [d["share_id"] for c in (a, b) for d in at.prepared(c)] == [SHARE_A, SHARE_B]
    assert sorted(r["ShareID"] for r in at.rows()) == [SHARE_A, SHARE_B]
    assert [r["ConsumedCapacity"] for r in at.rows()] == [{"rxQueues": "1"}] * 2


def test_share_is_told_in_v1_only(at):
    c = at.claim("c1", [result("eth0", share=SHARE_A, capacity={"rxQueues": "1"})])
    assert at.prepared(c, "v1beta1")[0].get("share_id") is None
    assert at.prepared(c, "v1")[0]["share_id"] == SHARE_A


def test_same_share_retried(at):
    c = at.claim("c1", [result("eth0", share=SHARE_A, capacity={"rxQueues": "1"})])
    assert at.prepared(c) == at.prepared(c)
    assert at.setups() == ["eth0"] and len(at.rows()) == 1


@pytest.mark.parametrize("pod", ["pod-1", "pod-2"])
def test_one_device_two_claims(at, pod):
    a, b = at.claim("a", [result("dummy0")]), at.claim("b", [result("dummy0")], pod_uid=pod)
    at.prepared(a)
    error = at.refused(b)
    assert "dummy0" in error and a.uid in error
    assert at.setups() == ["dummy0"] and at.frees() == []
    assert [r["ClaimUID"] for r in at.rows()] == [a.uid]


def test_same_share_in_two_claims(at):
    a = at.claim("a", [result("eth0", share=SHARE_A, capacity={"rxQueues": "1"})])
    b = at.claim("b", [result("eth0", share=SHARE_A, capacity={"rxQueues": "1"})])
    at.prepared(a)
    assert "already allocated" in at.refused(b)


def test_share_of_an_exclusive_device(at):
    error = at.refused(at.claim("c1", [result("dummy0", share=SHARE_A)]))
    assert "unexpected input" in error and "multiple allocations" in error
    assert at.setups() == []


def test_shareable_device_without_share(at):
    error = at.refused(at.claim("c1", [result("eth0")]))
    assert "unexpected input" in error and "share ID" in error
    assert at.setups() == []


def test_device_twice_in_one_claim(at):
    error = at.refused(at.claim("c1", [result("dummy0"), result("dummy0", "b")]))
    assert "unexpected input" in error and "dummy0 is allocated twice" in error
    assert at.setups() == []


@pytest.mark.parametrize("parameters, words", [
    ({"podIfName": "a234567890123456"}, ["podIfName", "a234567890123456", "15"]),
    ({"podIfName": "lo"}, ["podIfName", "reserved"]),
    ({"podIfName": "cilium_host"}, ["podIfName", "reserved"]),
    ({"podIfName": ".."}, ["podIfName"]),
    ({"podIfName": 5}, ["podIfName", "text", "number"]),
    ({"vlan": 4095}, ["vlan", "4095", "4094"]),
    ({"vlan": -1}, ["vlan", "-1"]),
    ({"vlan": "7"}, ["vlan", "number"]),
    ({"interfaceSysctlIPv4": {"../x": "1"}}, ["interfaceSysctlIPv4", "../x"]),
    ({"interfaceSysctlIPv6": {"accept_ra": ""}}, ["interfaceSysctlIPv6", "accept_ra", "empty"]),
    ({"interfaceSysctlIPv4": {"net.ipv4.conf.net1.arp_filter": "1"}},
     ["interfaceSysctlIPv4", "net.ipv4.conf.net1.arp_filter", "only the part behind the interface: arp_filter"]),
    ({"podIfName": "net1", "interfaceSysctlIPv6": {"net1.accept_ra": "1"}},
     ["interfaceSysctlIPv6", "only the part behind the interface: accept_ra"]),
    ({"podIfNam": "net1"}, ["podIfNam", "these are: podIfName, vlan, interfaceSysctlIPv4, interfaceSysctlIPv6",
                            "did you mean podIfName?"]),
    ({"Vlann": 42}, ["Vlann", "did you mean vlan?"]),
    ({"mtu": 9000}, ["mtu", "is not a field"]),
    ({"podIfName": "net1", "podifname": "net2"}, ["podIfName", "podifname", "twice"]),
    ({"vlan": 42}, ["vlan", "device dummy1", "manager dummy have no VLAN"]),
])
def test_wrong_parameters_touch_nothing(at, parameters, words):
    c = at.claim("c1", [result("dummy0"), result("dummy1", "b")], config=[opaque(parameters, ["b"])])
    error = at.refused(c)
    assert all(w in error for w in words + ["request b", "device dummy1", "default/c1"]), error
    assert at.setups() == [] and c.status is None


def test_parameters_of_a_class(at):
    c = at.claim("c1", [result("dummy0")], config=[opaque({"mtu": 9000}, ["net"], source="FromClass"),
                                                   opaque({"podIfName": "net1"}, ["net"])])
    refused_by_name(at, c, "config[0] (of the DeviceClass)", "mtu")


REQUESTS = [{"name": "net", "firstAvailable": [{"name": "fast"}, {"name": "slow"}]}, {"name": "rx", "exactly": {}}]


@pytest.mark.parametrize("spec, request_of, names, wrong", [
    (REQUESTS, "net/slow", ["nope"], "nope"),
    (REQUESTS, "net/slow", ["rx", "net/none"], "net/none"),
    (REQUESTS, "net/slow", ["net/fast", "net/slow", "net", "rx"], None),
    (None, "net/slow", ["net", "net/fast"], None),
    (None, "net", ["nope"], "nope"),
    (None, "net", ["net/fast"], "net/fast"),
])
def test_request_of_a_config(at, spec, request_of, names, wrong):
    c = at.claim("c1", [result("dummy0", request_of)], config=[opaque({"podIfName": "net1"}, names)])
    c.object["spec"] = {"devices": {"requests": spec}} if spec else None
    c.write()
    if wrong:
        refused_by_name(at, c, f"config[0]: requests[{names.index(wrong)}]: \"{wrong}\" is no request of the claim",
                        "these are: net")
    else:
        at.prepared(c)
        assert at.rows()[0]["Config"] == {"podIfName": "net1"}


def refused_by_name(at, claim, *words):
    """It is, before anything is touched, and this is said."""
    error = at.refused(claim)
    assert all(word in error for word in (f"{claim.namespace}/{claim.name}",) + words), error
    assert at.setups() == [] and claim.status is None and at.rows() == []


@pytest.mark.parametrize("reserved", [[], ["pod-1", "pod-2"]])
def test_not_reserved_for_one_pod(at, reserved):
    more = ["a claim of its own", "resourceClaimTemplateName"] if reserved else []
    refused_by_name(at, at.claim("c1", [result("dummy0")], reserved=reserved),
                    "unexpected input", f"{len(reserved)} consumers", *more)


def test_reserved_for_something_else_than_a_pod(at):
    c = at.claim("c1", [result("dummy0")])
    c.object["status"]["reservedFor"][0]["resource"] = "jobs"
    c.write()
    refused_by_name(at, c, "reservedFor[0].resource", "jobs", "pods only")


@pytest.mark.parametrize("more, words", [
    ({"adminAccess": True}, ["asks for adminAccess", "does not offer"]),
    ({"pool": "worker-9"}, ["pool", "worker-9", h.NODE]),
    ({"skipNodeOperations": ["NodeUnprepareResources"]}, ["skipNodeOperations", "is not a field"]),
    ({"compatibilityGroups": {"a": "b"}}, ["compatibilityGroups", "is not a field"]),
    ({"request": "mon.x"}, ["results[1].request", "mon.x"]),
])
def test_result_that_is_not_understood(at, more, words):
    c = at.claim("c1", [result("dummy0"), result("dummy1", "mon") | more])
    refused_by_name(at, c, f"request {more.get('request', 'mon')}", "device dummy1", *words)


def test_watcher_does_not_take_the_device(at):
    """Neither before its owner nor after."""
    watcher = at.claim("mon", [result("dummy0", "mon") | {"adminAccess": True}], pod_uid="pod-2")
    refused_by_name(at, watcher, "request mon", "device dummy0", "adminAccess")
    at.prepared(at.claim("c1", [result("dummy0")]))
    assert "adminAccess" in at.refused(watcher) and at.setups() == ["dummy0"]


def test_result_with_what_is_the_schedulers(at):
    c = at.claim("c1", [result("dummy0") | {
        "adminAccess": False, "tolerations": [{"operator": "Exists"}], "bindingConditions": ["a"],
        "bindingFailureConditions": ["b"]}])
    at.prepared(c)


def test_annotation_that_cannot_be_a_path(at):
    c = at.claim("c1", [result("dummy0")], annotations={"resource.kubernetes.io/pod-claim-name": "a.b"})
    refused_by_name(at, c, "pod-claim-name", "a.b")


def test_claim_of_another_version(at):
    c = at.claim("c1", [result("dummy0")])
    c.object["apiVersion"] = "resource.k8s.io/v1beta1"
    c.write()
    refused_by_name(at, c, "apiVersion", "resource.k8s.io/v1beta1", "as resource.k8s.io/v1 only")


def test_claim_of_a_template(at):
    c = at.claim("c1-x7k2p", [result("dummy0")],
                 annotations={"resource.kubernetes.io/pod-claim-name": "fast"})
    at.prepared(c)
    spec = json.loads((at.house.cdi_dir / f"{h.DRIVER}_metadata_{c.uid}_net.json").read_text())
    mount, = spec["devices"][0]["containerEdits"]["mounts"]
    assert mount["containerPath"] == ("/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/"
                                      f"fast/net/{h.DRIVER}-metadata.json")
    assert '"podClaimName": "fast"' in open(mount["hostPath"], encoding="utf-8").read()


def test_prepare_after_a_rollback(at):
    at.dummy.failures["device.setup", "dummy0"] = mprpc.Error("busy", "not now")
    c = at.claim("c1", [result("dummy0")])
    at.refused(c)
    at.dummy.failures.clear()
    at.prepared(c)
    assert len(at.rows()) == 1


def test_unprepare_hands_back_what_was_prepared(at):
    c = at.claim("c1", [result("eth0", share=SHARE_A, capacity={"rxQueues": "1"})],
                 config=[opaque({"podIfName": "net5"})])
    at.prepared(c)
    c.path.unlink()  # the object may be gone by then
    assert at.unprepare(c) == ""
    freed, = at.rx.asked("device.free")
    assert freed["shareID"] == SHARE_A and freed["consumedCapacity"] == {"rxQueues": "1"}
    assert freed["config"] == {"podIfName": "net5"} and freed["claimUID"] == c.uid
    assert at.rows() == []


def test_unprepare_fails_and_is_retried(at):
    c = at.claim("c1", [result("dummy0")])
    at.prepared(c)
    at.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "it is stuck")
    error = at.unprepare(c)
    assert "it is stuck" in error and "dummy0" in error
    row, = at.rows()
    assert "it is stuck" in row["Problem"]
    at.dummy.failures.clear()
    assert at.unprepare(c) == "" and at.rows() == [] and at.house.files_left() == []


def test_unprepare_one_of_two_fails(at):
    c = at.claim("c1", [result("dummy0"), result("dummy1", "b")])
    at.prepared(c)
    at.dummy.failures["device.free", "dummy1"] = mprpc.Error("internal", "it is stuck")
    assert "it is stuck" in at.unprepare(c)
    assert [r["DeviceName"] for r in at.rows()] == ["dummy1"]
    at.dummy.failures.clear()
    assert at.unprepare(c) == "" and sorted(at.frees()) == ["dummy0", "dummy1", "dummy1"]


def test_unprepare_unknown_claim(at):
    assert at.unprepare(at.claim("c1", [result("dummy0")])) == ""
    assert at.frees() == []


def test_metadata(at):
    at.dummy.publish([h.dedicated("dummy0")])
    c = at.claim("c1", [result("dummy0"), result("eth0", "rx/fast", share=SHARE_A, capacity={"rxQueues": "1"})],
                 config=[opaque({"podIfName": "net1"}, ["net"])])
    assert [d["request_names"] for d in at.prepared(c)] == [["net"], ["rx"]]
    folder = at.house.plugin_dir / "dra-device-metadata" / "default_c1"
    versions = []
    decoder, text = json.JSONDecoder(), (folder / "net" / "metadata.json").read_text()
    while text.strip():
        value, end = decoder.raw_decode(text)
        versions.append(value)
        text = text[end:].lstrip()
    assert [v.pop("apiVersion") for v in versions] == ["metadata.resource.k8s.io/v1beta1",
                                                       "metadata.resource.k8s.io/v1alpha1"]
    assert versions[0] == versions[1] == {
        "kind": "DeviceMetadata",
        "metadata": {"name": "c1", "namespace": "default", "uid": c.uid, "generation": 1},
        "requests": [{"name": "net", "devices": [{
            "driver": h.DRIVER, "pool": h.NODE, "name": "dummy0",
            "attributes": {"ifName": {"string": "dummy0"}, "kernelIfName": {"string": "dummy0"},
                           "pool": {"string": "fast-net"}, "deviceManager": {"string": "dummy"}},
            "networkData": {"interfaceName": "net1"}}]}]}
    first, _ = json.JSONDecoder().raw_decode((folder / "rx" / "metadata.json").read_text())
    assert first["requests"][0]["name"] == "rx/fast"
    assert first["requests"][0]["devices"][0]["networkData"] == {"interfaceName": "net9"}


def test_claims_config_overrides_the_classes_whole(at):
    c = at.claim("c1", [result("dummy0")], config=[
        opaque({"podIfName": "class0", "interfaceSysctlIPv4": {"arp_filter": "1"}}, ["net"], source="FromClass"),
        opaque({"podIfName": "claim0"}, ["net"])])
    at.prepared(c)
    assert at.rows()[0]["Config"] == {"podIfName": "claim0"}


@pytest.mark.parametrize("requests", [None, [], ["net"], ["other", "net"]])
def test_config_for_all_requests_and_subrequests(at, requests):
    c = at.claim("c1", [result("dummy0", "net/fast"), result("gpu0", "other", driver="gpu.example.com")],
                 config=[opaque({"podIfName": "net1"}, requests)])
    at.prepared(c)
    assert at.rows()[0]["Config"] == {"podIfName": "net1"}


def test_other_drivers_results_and_config_are_not_ours(at):
    theirs = {"driver": "gpu.example.com", "device": "GPU 0", "pool": 7, "shareID": {}, "adminAccess": True, "future": 1}
    c = at.claim("c1", [theirs, result("dummy0")],
                 config=[opaque({"podIfName": 99}, ["nope"], driver="gpu.example.com")])
    assert [d["device_name"] for d in at.prepared(c)] == ["dummy0"]
    assert [s["driver"] for s in c.status] == [h.DRIVER] and at.setups() == ["dummy0"]


def test_names_of_parameters_in_any_case(at):
    c = at.claim("c1", [result("dummy0")], config=[opaque({"PodIFname": "net1"})])
    at.prepared(c)
    assert at.rows()[0]["Config"] == {"podIfName": "net1"}


def test_unknown_parameters_as_a_warning(procs, rundir):
    at = Setting(procs, rundir, "--unknown-parameters=warn")
    c = at.claim("c1", [result("dummy0")], config=[opaque({"PodIFname": "net1", "future": {"x": 1}})])
    at.prepared(c)
    assert at.rows()[0]["Config"] == {"podIfName": "net1"}
    at.statd.wait_log("a parameter of the claim is ignored.*request net, device dummy0.*parameters.future")
    at.close()


def test_one_name_for_two_devices(at):
    c = at.claim("c1", [result("dummy0"), result("dummy1", "b")], config=[opaque({"podIfName": "net1"})])
    error = at.refused(c)
    assert all(w in error for w in ("net1", "dummy0", "dummy1"))
    a = at.claim("a", [result("dummy0")], config=[opaque({"podIfName": "net1"})])
    b = at.claim("b", [result("dummy1")], config=[opaque({"podIfName": "net1"})])
    at.prepared(a)
    assert "net1" in at.refused(b) and at.setups() == ["dummy0"]


def test_default_name_is_taken(at):
    """A device that is not named has its own name, which another must not be given: in the claim, and in
    the pod's other claims, whichever comes first."""
    both = at.claim("both", [result("dummy0"), result("dummy1", "b")], config=[opaque({"podIfName": "dummy0"}, ["b"])])
    refused_by_name(at, both, "podIfName", "dummy0", "dummy1")
    named = at.claim("named", [result("dummy1")], config=[opaque({"podIfName": "dummy0"})])
    unnamed = at.claim("unnamed", [result("dummy0")])
    for first, second in ((named, unnamed), (unnamed, named)):
        at.prepared(first)
        before = at.setups()
        error = at.refused(second)
        assert all(w in error for w in ("podIfName", "\"dummy0\"", first.uid)), error
        assert at.setups() == before
        assert at.unprepare(first) == ""
    other = at.claim("other", [result("dummy0")], pod_uid="pod-2")
    at.prepared(named)
    at.prepared(other)


def test_claim_not_allocated_missing_or_replaced(at):
    c = at.claim("c1", [])
    del c.object["status"]["allocation"]
    c.write()
    assert "not allocated" in at.refused(c)
    gone = at.claim("c2", [result("dummy0")])
    gone.path.unlink()
    assert "default/c2" in at.refused(gone)
    old = at.claim("c3", [result("dummy0")])
    uid, old.object["metadata"]["uid"] = old.uid, "another"
    old.write()
    assert uid in at.refused(old) and at.setups() == []


@pytest.mark.parametrize("first", ["default_c1.json", "first.json"])
@pytest.mark.parametrize("second", ["default_c1.yaml", "copy.yaml"])
def test_claim_in_two_files(at, first, second):
    c = at.claim("c1", [result("dummy0")])
    c.path = c.path.rename(at.house.claims_dir / first)
    twin = at.house.claims_dir / second
    twin.write_text(c.path.read_text())
    refused_by_name(at, c, "two files", first, second, "remove one")
    twin.unlink()
    at.prepared(c)


def test_one_claims_failure_is_its_own(at):
    bad, good = at.claim("bad", [result("dummy9")]), at.claim("good", [result("dummy0")])
    entries = at.prepare(bad, good)
    assert "error" in entries[0] and entries[1]["devices"][0]["device_name"] == "dummy0"


def test_manager_is_not_there(at):
    at.dummy.close()
    at.house.wait_peer("dmgr-dummy", "missing")
    error = at.refused(at.claim("c1", [result("dummy0")]))
    assert "nobody is connected" in error


def test_state_too_big_for_the_claims_status(at):
    at.dummy.prepared = {"state": {"Name": "x" * 10240}}
    error = at.refused(at.claim("c1", [result("dummy0")]))
    assert "10240" in error and at.frees() == ["dummy0"] and at.rows() == []
