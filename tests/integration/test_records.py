# SPDX-License-Identifier: Apache-2.0
"""The node's own record: what is prepared stays prepared until it is unprepared, whatever becomes of the
claim's object, of statd and of the managers meanwhile. The world is changed between two steps, statd is
killed, and the same must hold as if nothing had happened."""
import contextlib
import json
import os
import pathlib
import re
import stat
import subprocess
import threading

import pytest

import house as h
import mprpc
import procs as procs_module
from house import opaque, result
from netns import Netns
from test_attach import POD, Setting, netns  # noqa: F401 (a fixture)

pytestmark = pytest.mark.needs_root

OTHER_POD = "pod-2"
NET1 = [opaque({"podIfName": "net1"})]


class Recorded(Setting):
    def kill_statd(self):
        """As a crash does; nothing is finished."""
        self.house.wait_status_written()
        self.statd.kill()
        self.close()
        self.statd = self.house.start_statd()
        self.connect()

    def refused(self, claim, verb="prepare"):
        with pytest.raises(mprpc.Error) as caught:
            self.front.call(f"claim.{verb}", claim.ref)
        return str(caught.value)

    def unprepare(self, claim):
        self.front.call("claim.unprepare", claim.ref)

    @contextlib.contextmanager
    def records_unwritable(self):
        directory = self.house.state_dir / "claims"
        files = list(directory.glob("*.json"))
        for path, mode in ((directory, 0o500), *((file, 0o400) for file in files)):
            path.chmod(mode)
        try:
            yield
        finally:
            for path, mode in ((directory, 0o700), *((file, 0o600) for file in files)):
                path.chmod(mode)

    @contextlib.contextmanager
    def records_unwritable_from(self, method, device):
        """From when the manager is asked for this on."""
        with contextlib.ExitStack() as stack:
            def begin():
                del self.dummy.failures[method, device]
                stack.enter_context(self.records_unwritable())
            self.dummy.failures[method, device] = begin
            yield

    def frees(self):
        return [(c["device"]["name"], c["claimUID"]) for c in self.dummy.asked("device.free")]

    def rival(self, device="dummy0", name="rival"):
        return h.Claim(self.house, name, [result(device)], pod_uid="pod-9")

    def check(self, sandbox="sandbox-1", pod=POD, claims=()):
        asked = {"podUID": pod, "sandboxID": sandbox}
        if claims:
            asked["claims"] = list(claims)
        devices = self.front.call("pod.check", asked)
        return devices["wanted"], devices["there"]

    def attach_with(self, ns, claims, sandbox="sandbox-2", pod=OTHER_POD):
        fd = ns.open()
        try:
            return self.front.call(
                "pod.attach", {"podUID": pod, "sandboxID": sandbox, "claims": list(claims)}, [fd])["devices"]
        finally:
            os.close(fd)

    def resync(self, ns, sandbox="sandbox-1", pod=POD):
        """What nrihookd does when statd is back."""
        wanted = self.front.call("pod.sync", {"pods": [{"podUID": pod, "sandboxID": sandbox}]})
        assert wanted == {"sandboxIDs": [sandbox]}
        return self.attach(ns, sandbox, pod)


@pytest.fixture
def at(procs, rundir):
    setting = Recorded(procs, rundir)
    yield setting
    setting.close()


# --- the claim's object changes --------------------------------------------------------------------


def reserve_for_two(at, claim):
    claim.object["status"]["reservedFor"].append({"resource": "pods", "name": "second", "uid": OTHER_POD})
    claim.write()


def reserve_for_none(at, claim):
    claim.object["status"]["reservedFor"] = []
    claim.write()


def delete(at, claim):
    claim.path.unlink()


def replace(at, claim):
    """Another claim of the same name, which has not been prepared."""
    claim.path.unlink()
    h.Claim(at.house, claim.name, [result("dummy2")], pod_uid=OTHER_POD)


def spoil(at, claim):
    claim.path.write_text('{"kind": "ResourceClaim", "status": [')


def lose_status(at, claim):
    claim.status_path.unlink()


def odd_numbers(at, claim):
    text = json.dumps(claim.object)
    entry = ('"status": {"devices": [{"driver": "other.example.com", "pool": "p", "device": "d", '
             '"data": {"guid": 18446744073709551615, "x": 1e400, "y": "\\u0000", "y": 2}}], ')
    claim.path.write_text(text.replace('"status": {', entry, 1))


CHANGES = [reserve_for_two, reserve_for_none, delete, replace, spoil, lose_status, odd_numbers]


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_kept_whatever_becomes_of_the_claim(at, netns, change):
    """Its pod runs; the object changes; statd is killed: the device is the pod's until its claim is
    unprepared, and then it is free."""
    c = at.prepare("c1", [result("dummy0")], config=NET1)
    assert c.status and at.attach(netns) == 1
    change(at, c)
    at.kill_statd()
    row, = at.house.rows()
    assert (row["ClaimUID"], row["PodUID"], row["SandboxID"], row["PodIfName"]) == (c.uid, POD, "sandbox-1", "net1")
    assert at.frees() == [] and at.dummy.asked("device.audit")[0]["claimUIDs"] == [c.uid]
    assert f"held by claim {c.uid}" in at.refused(at.rival()), "nobody else gets it"
    assert at.check() == (1, 0), "until it is known where it is, no container is let through"
    assert at.resync(netns) == 1 and at.check() == (1, 1)
    at.detach()
    detached, = at.dummy.asked("device.detach")
    assert (detached["sandboxID"], detached["allocation"]["claimUID"]) == ("sandbox-1", c.uid)
    at.unprepare(c)
    assert at.frees() == [("dummy0", c.uid)]
    assert at.house.rows() == [] and at.house.records() == {} and at.house.marked_pods() == set()
    at.front.call("claim.prepare", at.rival(name="next").ref)


@pytest.mark.parametrize("change", CHANGES)
def test_unprepare_needs_no_claim(at, netns, change):
    """It is detached and freed from the table alone, though the pod's end was never reported."""
    c = at.prepare("c1", [result("dummy0")])
    assert c.status
    at.attach(netns)
    change(at, c)
    at.unprepare(c)
    assert [d["sandboxID"] for d in at.dummy.asked("device.detach")] == ["sandbox-1"]
    assert at.frees() == [("dummy0", c.uid)] and at.house.rows() == []
    at.kill_statd()
    assert at.house.rows() == [], "and a restart knows that"


def test_allocated_anew(at, netns):
    """The claim has another device now, without having been unprepared: it lets go of the former one first."""
    c = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    c.object["status"]["allocation"]["devices"]["results"] = [result("dummy1")]
    c.write()
    at.front.call("claim.prepare", c.ref)
    assert [d["allocation"]["device"]["name"] for d in at.dummy.asked("device.detach")] == ["dummy0"]
    assert at.frees() == [("dummy0", c.uid)]
    assert [r["DeviceName"] for r in at.house.rows()] == ["dummy1"]
    assert [d["device"] for d in c.status] == ["dummy1"]
    at.front.call("claim.prepare", at.rival("dummy0").ref)


def test_allocated_anew_while_the_former_device_is_stuck(at):
    c = at.prepare("c1", [result("dummy0")])
    at.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "it is stuck")
    c.object["status"]["allocation"]["devices"]["results"] = [result("dummy1")]
    c.write()
    assert "holds a device from before that is not free yet" in (error := at.refused(c)) and "it is stuck" in error
    assert [r["DeviceName"] for r in at.house.rows()] == ["dummy0"] and len(at.dummy.asked("device.setup")) == 1
    at.dummy.failures.clear()
    at.front.call("claim.prepare", c.ref)
    assert [r["DeviceName"] for r in at.house.rows()] == ["dummy1"]


def allocate(claim, *devices):
    claim.object["status"]["allocation"]["devices"]["results"] = [
        result(device, f"r{n}") for n, device in enumerate(devices)]
    claim.write()


def entries(claim):
    return sorted(entry["device"] for entry in claim.status or [])


def test_status_of_a_claim_that_is_allocated_less(at):
    c = at.prepare("c1", [result("dummy0", "r0"), result("dummy1", "r1")])
    assert entries(c) == ["dummy0", "dummy1"]
    allocate(c, "dummy0")
    at.front.call("claim.prepare", c.ref)
    assert entries(c) == ["dummy0"]


def test_status_that_names_a_device_too_many_is_written_anew(at):
    """Of a statd that ended between letting go of the device and saying so."""
    c = at.prepare("c1", [result("dummy0", "r0"), result("dummy1", "r1")])
    assert len(c.status) == 2
    more = c.status_path.read_text()
    allocate(c, "dummy0")
    at.front.call("claim.prepare", c.ref)
    assert len(c.status) == 1
    c.status_path.write_text(more)
    at.front.call("claim.prepare", c.ref)
    assert entries(c) == ["dummy0"]


@pytest.mark.parametrize("failing", ["device.setup", "device.free"])
def test_status_of_a_claim_that_let_go_and_was_refused(at, failing):
    """What it holds no longer is another claim's to take, also after a reboot."""
    c = at.prepare("c1", [result("dummy0", "r0"), result("dummy1", "r1")])
    assert entries(c) == ["dummy0", "dummy1"]
    at.dummy.failures[failing, "dummy1" if failing == "device.free" else "dummy2"] = mprpc.Error("internal", "stuck")
    allocate(c, "dummy2")
    at.refused(c)
    assert entries(c) == [row["DeviceName"] for row in at.house.rows()]


def test_status_of_a_claim_that_is_unprepared_by_half(at):
    c = at.prepare("c1", [result("dummy0", "r0"), result("dummy1", "r1")])
    assert entries(c) == ["dummy0", "dummy1"]
    at.dummy.failures["device.free", "dummy1"] = mprpc.Error("internal", "stuck")
    at.refused(c, "unprepare")
    assert entries(c) == ["dummy1"] == [row["DeviceName"] for row in at.house.rows()]
    at.dummy.failures.clear()
    at.unprepare(c)
    assert c.status is None and at.house.records() == {}


@pytest.mark.parametrize("kept", [0, 1])
def test_device_is_held_until_the_record_is_without_it(at, kept):
    """Free in the kernel and in the table, and then given to another claim, it would be two claims' after a restart."""
    c = at.prepare("c1", [result("dummy0", "r0"), result("dummy1", "r1")])
    if kept:
        at.dummy.failures["device.free", "dummy1"] = mprpc.Error("internal", "stuck")
    with at.records_unwritable_from("device.free", "dummy0"):
        assert "the devices are free, and stay held" in at.refused(c, "unprepare")
        assert [row["DeviceName"] for row in at.house.rows()] == ["dummy0", "dummy1"]
        assert "stay held" in at.house.rows()[0]["Problem"]
        assert "given back by it" in at.refused(at.rival())
        if kept:  # it is not taken for set up, though the claim is as it was
            at.refused(c)
        at.statd.kill()
    at.close()
    at.statd = at.house.start_statd()
    at.connect()
    at.unprepare(c)
    assert at.house.rows() == [] and at.house.records() == {}
    at.front.call("claim.prepare", at.rival(name="next").ref)


def test_claim_whose_devices_are_free_and_held_is_set_up_anew(at):
    """A kubelet that asks for it again does not get what was put back to how it was before the claim."""
    c = at.prepare("c1", [result("dummy0", "r0"), result("dummy1", "r1")])
    with at.records_unwritable_from("device.free", "dummy0"):
        at.refused(c, "unprepare")
    at.front.call("claim.prepare", c.ref)
    assert [s["device"]["name"] for s in at.dummy.asked("device.setup")] == ["dummy0", "dummy1"] * 2
    assert not any("Unfinished" in row or "Problem" in row for row in at.house.rows())
    at.unprepare(c)


def test_devices_that_are_free_and_held_are_let_go_of_later(at):
    c = at.prepare("c1", [result("dummy0")])
    with at.records_unwritable_from("device.free", "dummy0"):
        at.refused(c, "unprepare")
    procs_module.wait_for(lambda: at.house.rows() == [], 20, "the row's end, though nobody asks again")
    assert at.house.records() == {}


def test_nothing_is_freed_without_a_record_of_that(at):
    c = at.prepare("c1", [result("dummy0")])
    with at.records_unwritable():
        assert "state directory" in at.refused(c, "unprepare")
    row, = at.house.rows()
    assert at.frees() == [] and "Unfinished" not in row and "Problem" not in row
    at.front.call("claim.prepare", c.ref)
    assert len(at.dummy.asked("device.setup")) == 1, "it is prepared as it was"
    at.unprepare(c)
    assert at.house.rows() == [] and c.status is None


def test_device_that_could_not_be_freed_is_the_claims_as_before(at):
    c = at.prepare("c1", [result("dummy0")])
    at.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "stuck")
    at.refused(c, "unprepare")
    row, = at.house.rows()
    assert "Unfinished" not in row and "stuck" in row["Problem"] and entries(c) == ["dummy0"]
    at.kill_statd()
    assert "Unfinished" not in at.house.rows()[0] and at.frees() == []


@pytest.mark.parametrize("again", ["unprepare", "prepare"])
def test_unprepare_that_was_cut_off(at, again):
    """A device is free in the kernel when statd is killed: it is not taken for set up after that, as one without a
    link would be, which nothing in the kernel says of."""
    c = at.prepare("c1", [result("vf0")])
    assert entries(c) == ["vf0"]
    at.sriov.failures["device.free", "vf0"] = at.statd.kill
    with pytest.raises((mprpc.Error, OSError, EOFError)):
        at.unprepare(c)
    at.close()
    at.statd = at.house.start_statd()
    at.connect()
    if again == "unprepare":
        procs_module.wait_for(lambda: at.house.rows() == [] and c.status is None, 20, "its end, though nobody asks again")
        assert "was being prepared" not in at.statd.log
        at.unprepare(c)
        assert at.house.records() == {}
    else:
        at.front.call("claim.prepare", c.ref)
        assert at.sriov.asked("device.setup"), "by the managers of now: it is set up anew"
        assert [row["DeviceName"] for row in at.house.rows()] == ["vf0"] and entries(c) == ["vf0"]


def test_device_in_two_records(at):
    """That of the claim which has it prepared counts."""
    c = at.prepare("c1", [result("dummy0")])
    path = at.house.state_dir / "claims" / f"{c.uid}.json"
    at.house.wait_status_written()
    record = h.read_record(path)
    at.statd.kill()
    for uid in "00000000-0000-4000-8000-000000000000", "ffffffff-ffff-4fff-8fff-ffffffffffff":  # read before, and after
        other = json.loads(json.dumps(record).replace(c.uid, uid))
        other["devices"][0]["Unfinished"] = True
        path.with_name(f"{uid}.json").write_text(json.dumps(other))
        path.with_name(f"{uid}.json").chmod(0o600)
        os.chown(path.with_name(f"{uid}.json"), *map(int, h.STATD_USER.split(":")))
    at.close()
    at.statd = at.house.start_statd()
    at.connect()
    assert [(row["ClaimUID"], row.get("Unfinished")) for row in at.house.rows()] == [(c.uid, None)]
    assert at.frees() == []


def limit_descriptors(pid, soft, hard):
    """Of statd: its user may do that without a capability."""
    uid, gid = map(int, h.STATD_USER.split(":"))
    subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={soft}:{hard}"], user=uid, group=gid, extra_groups=(),
                   check=True)


def test_status_that_cannot_be_looked_for_is_removed_later(at):
    """statd can open nothing while its claim is unprepared: that it finds no status means nothing then."""
    c = at.prepare("c1", [result("dummy0")])
    assert entries(c) == ["dummy0"]
    pid = at.statd.pid
    assert at.house.status()["ready"], "the connection for queries is open"
    soft, hard = re.search(r"Max open files +(\d+) +(\d+)", pathlib.Path(f"/proc/{pid}/limits").read_text()).groups()
    at.dummy.failures["device.free", "dummy0"] = lambda: limit_descriptors(pid, 0, hard)
    at.refused(c, "unprepare")
    at.dummy.failures.clear()
    at.front.call("pod.check", {"podUID": POD, "sandboxID": "sandbox-1"})  # the queue has had its turn
    limit_descriptors(pid, soft, hard)
    procs_module.wait_for(lambda: at.house.rows() == [] and c.status is None, 20, "its end, though nobody asks again")
    at.unprepare(c)
    assert c.status is None and at.house.records() == {}


def test_two_claims_that_changed_devices(at):
    """Each is allocated what the other holds."""
    a = at.prepare("a", [result("dummy0")])
    b = at.prepare("b", [result("dummy1")], pod_uid=OTHER_POD)
    for claim, device in ((a, "dummy1"), (b, "dummy0")):
        claim.object["status"]["allocation"]["devices"]["results"] = [result(device)]
        claim.write()
    assert f"held by claim {b.uid}" in at.refused(a)
    assert a.status is None, "it has nothing any more"
    at.front.call("claim.prepare", b.ref)
    at.front.call("claim.prepare", a.ref)
    assert {r["DeviceName"]: r["ClaimUID"] for r in at.house.rows()} == {"dummy0": b.uid, "dummy1": a.uid}


def move_to_other_pod(claim):
    claim.object["status"]["reservedFor"] = [{"resource": "pods", "name": "other", "uid": OTHER_POD}]
    claim.write()


def test_reserved_for_another_pod(at, netns):
    """Its device leaves the former pod's sandbox before it is the other's."""
    c = at.prepare("c1", [result("dummy0")])
    d = at.prepare("c2", [result("dummy1")])
    assert at.attach(netns) == 2
    move_to_other_pod(c)
    at.front.call("claim.prepare", c.ref)
    detached = at.dummy.asked("device.detach")
    assert [(x["allocation"]["device"]["name"], x["sandboxID"]) for x in detached] == [("dummy0", "sandbox-1")]
    assert {r["DeviceName"]: (r["PodUID"], r.get("SandboxID")) for r in at.house.rows()} == {
        "dummy0": (OTHER_POD, None), "dummy1": (POD, "sandbox-1")}
    assert at.house.marked_pods() == {POD, OTHER_POD}
    at.detach()
    assert at.attached() == [] and at.namespaces_held() == [], "the other claim's device has left, too"
    at.unprepare(d)
    assert at.house.marked_pods() == {OTHER_POD}


def test_reserved_for_another_pod_while_the_device_is_stuck(at, netns):
    c = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    move_to_other_pod(c)
    at.dummy.failures["device.detach", "dummy0"] = mprpc.Error("internal", "it is stuck")
    assert "it is stuck" in at.refused(c)
    row, = at.house.rows()
    assert (row["PodUID"], row["SandboxID"]) == (POD, "sandbox-1")


@pytest.mark.parametrize("what", ["unprepare", "prepare for another pod"])
def test_changes_wait_for_an_attach_that_is_under_way(at, netns, what):
    """The row cannot go, or become another pod's, under its feet."""
    c = at.prepare("c1", [result("dummy0")])
    attach = at.dummy.peer.methods["device.attach"]
    done = threading.Event()

    def other():
        second = mprpc.connect(at.house.runtime_dir / "front.sock")
        second.call("claim.unprepare" if what == "unprepare" else "claim.prepare", c.ref)
        second.close()
        done.set()
    thread = threading.Thread(target=other)

    def slowly(*args):
        move_to_other_pod(c)
        thread.start()
        assert not done.wait(0.3), "it did not wait"
        return attach(*args)
    at.dummy.peer.methods["device.attach"] = slowly
    assert at.attach(netns) == 1
    thread.join(10)
    assert done.is_set() and at.statd.running()
    assert [d["sandboxID"] for d in at.dummy.asked("device.detach")] == ["sandbox-1"]
    assert [r["PodUID"] for r in at.house.rows()] == ([] if what == "unprepare" else [OTHER_POD])


# --- one claim, two pods ---------------------------------------------------------------------------


def test_second_pod_of_a_shared_claim(at, netns):
    """The kubelet prepares it once. The second pod's container was given the claim all the same: it is
    refused while the first pod has the device, and gets it when that pod has ended."""
    c = at.prepare("c1", [result("dummy0")])
    with Netns() as second:
        with pytest.raises(mprpc.Error, match=f"conflict.*claim default/c1 is prepared for pod {POD}.*resourceClaimTemplateName"):
            at.attach_with(second, ["default_c1"])
        at.attach(netns)
        assert at.check("sandbox-2", OTHER_POD, ["default_c1"]) == (1, 0)
        assert at.check(claims=["default_c1"]) == (1, 1), "the first is not in its own way"
        with pytest.raises(mprpc.Error, match=f"conflict.*claim default/c1 is in pod {POD}"):
            at.attach_with(second, ["default_c1"])
        assert len(at.dummy.asked("device.attach")) == 1
        at.detach()
        assert at.attach_with(second, ["default_c1"]) == 1
        assert at.attached() == [("dummy0", "sandbox-2", "dummy0")]
        assert at.house.marked_pods() == {OTHER_POD}
        with pytest.raises(mprpc.Error, match="is in pod pod-2"):
            at.attach_with(netns, ["default_c1"], "sandbox-3", POD)
        at.unprepare(c)


def test_claim_that_is_not_prepared_here(at, netns):
    """The kubelet believes that it is."""
    with pytest.raises(mprpc.Error, match="conflict.*given claim default_gone, of which nothing is prepared"):
        at.attach_with(netns, ["default_gone"])
    assert at.check("sandbox-2", OTHER_POD, ["default_gone"]) == (1, 0)


def test_claims_in_the_answer(at, netns):
    """So that a container that is given one of them needs no call."""
    at.prepare("c1", [result("dummy0"), result("dummy1", "b")])
    at.prepare("c2", [result("vf1")])
    fd = netns.open()
    answer = at.front.call("pod.attach", {"podUID": POD, "sandboxID": "sandbox-1"}, [fd])
    os.close(fd)
    assert (answer["devices"], sorted(answer["claims"])) == (2, ["default_c1", "default_c2"])


def test_claim_by_its_uid(at, netns):
    c = at.prepare("c1", [result("dummy0")])
    assert at.attach_with(netns, [c.uid], "sandbox-1", POD) == 1


# --- failures of statd and managers ----------------------------------------------------------------


def test_setup_that_passes_its_deadline_is_undone(at):
    """The manager answers too late and has done the work; it frees the device when it comes to that. Until
    then the device is held."""
    setup, free = at.dummy.peer.methods["device.setup"], at.dummy.peer.methods["device.free"]
    go_on = threading.Event()

    def slowly(method):
        def handle(*args):
            assert go_on.wait(60)
            return method(*args)
        return handle
    at.dummy.peer.methods.update({"device.setup": slowly(setup), "device.free": slowly(free)})
    c = h.Claim(at.house, "c1", [result("dummy0")])
    with pytest.raises(mprpc.Error, match="deadline"):
        at.front.call("claim.prepare", c.ref, timeout=30)
    assert "dummy0 is being prepared for claim" in at.refused(at.rival())
    row, = at.house.rows()
    assert row["Unfinished"] and at.house.marked_pods() == {POD}
    go_on.set()
    procs_module.wait_for(lambda: at.house.rows() == [], 20, "the device's being freed")
    assert at.frees() == [("dummy0", c.uid)] and at.house.records() == {} and at.house.marked_pods() == set()
    at.front.call("claim.prepare", at.rival(name="next").ref)


def test_rollback_that_fails_is_tried_again(at):
    at.dummy.failures["device.setup", "dummy1"] = mprpc.Error("internal", "no room in the kernel")
    at.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "it is stuck")
    c = h.Claim(at.house, "c1", [result("dummy0"), result("dummy1", "b")])
    assert "no room in the kernel" in at.refused(c)
    row, = at.house.rows()
    assert (row["DeviceName"], row["Unfinished"]) == ("dummy0", True) and "it is stuck" in row["Problem"]
    assert "given back by it" in at.refused(at.rival())
    at.statd.kill()
    at.close()
    at.statd = at.house.start_statd()
    procs_module.wait_for(lambda: [r["DeviceName"] for r in at.house.rows()] == ["dummy0"], 5, "the row's being restored")
    at.connect()
    procs_module.wait_for(lambda: at.house.rows() == [], 20, "the device's being freed")
    at.front.call("claim.prepare", at.rival(name="next").ref)


def test_killed_while_a_device_is_set_up(at):
    """What was begun is known, and undone; the kubelet asks again."""
    setup = at.dummy.peer.methods["device.setup"]
    c = h.Claim(at.house, "c1", [result("dummy0")], pod_uid="pod-1")

    def die(*args):
        record, = at.house.records().values()
        assert [(d["DeviceName"], d["Unfinished"]) for d in record["devices"]] == [("dummy0", True)]
        assert at.house.marked_pods() == {"pod-1"}
        at.statd.kill()
        return setup(*args)
    at.dummy.peer.methods["device.setup"] = die
    with pytest.raises((mprpc.Error, EOFError, OSError)):
        at.front.call("claim.prepare", c.ref)
    at.close()
    at.statd = at.house.start_statd()
    at.connect()
    procs_module.wait_for(lambda: at.house.rows() == [], 10, "what was begun being undone")
    assert at.frees() == [("dummy0", c.uid)]
    at.statd.wait_log("claim default/c1 was being prepared when the driver ended; freeing its device")
    at.front.call("claim.prepare", c.ref)
    assert [r["DeviceName"] for r in at.house.rows()] == ["dummy0"] and "Unfinished" not in at.house.rows()[0]


@pytest.fixture
def observed(at):
    """Devices that are observed before they are set up; and a claim of one."""
    at.dummy.publish([{**h.dedicated(f"dummy{i}"), "observe": True} for i in range(3)])
    at.claim = h.Claim(at.house, "c1", [result("dummy0")], pod_uid="pod-1")
    return at


def states_in_the_record(at):
    record, = at.house.records().values()
    return [d["Prepared"]["state"] for d in record["devices"]]


def test_device_that_is_observed_before_it_is_set_up(observed):
    """Once; it is set up with what was seen."""
    at = observed
    at.front.call("claim.prepare", at.claim.ref)
    seen, = at.dummy.asked("device.observe")
    assert seen["device"]["state"] == {"Name": "dummy0"}
    setup, = at.dummy.asked("device.setup")
    assert setup["device"]["state"] == {"Name": "dummy0", "Observed": True} and "observe" not in setup["device"]
    at.unprepare(at.claim)
    assert at.frees() == [("dummy0", at.claim.uid)] and at.house.rows() == []


def test_device_that_cannot_be_observed(observed):
    """Nothing was touched, so nothing is undone."""
    at = observed
    at.dummy.failures["device.observe", "dummy0"] = mprpc.Error("busy", "nobody knows")
    assert "failed to prepare device dummy0: nobody knows" in at.refused(at.claim)
    assert at.dummy.asked("device.setup") == at.frees() == at.house.rows() == [] and at.house.records() == {}
    at.dummy.failures.clear()
    at.front.call("claim.prepare", at.claim.ref)


def test_killed_while_an_observed_device_is_set_up(observed):
    """What was seen is known, whether it is undone or set up once more."""
    at = observed
    setup = at.dummy.peer.methods["device.setup"]

    def die(*args):
        assert states_in_the_record(at) == [{"Name": "dummy0", "Observed": True}]
        at.statd.kill()
        return setup(*args)
    at.dummy.peer.methods["device.setup"] = die
    with pytest.raises((mprpc.Error, EOFError, OSError)):
        at.front.call("claim.prepare", at.claim.ref)
    at.close()
    at.statd = at.house.start_statd()
    at.connect()
    procs_module.wait_for(lambda: at.house.rows() == [], 10, "what was begun being undone")
    freed, = at.dummy.asked("device.free")
    assert freed["device"]["state"] == {"Name": "dummy0", "Observed": True}


def test_killed_while_a_device_is_attached(at, netns):
    """The record names the sandbox before the device moves."""
    at.prepare("c1", [result("dummy0")])
    attach = at.dummy.peer.methods["device.attach"]

    def die(*args):
        record, = at.house.records().values()
        assert [d["SandboxID"] for d in record["devices"]] == ["sandbox-1"]
        at.statd.kill()
        return attach(*args)
    at.dummy.peer.methods["device.attach"] = die
    with pytest.raises((mprpc.Error, EOFError, OSError)):
        at.attach(netns)
    at.close()
    at.statd = at.house.start_statd()
    at.connect()
    row, = at.house.rows()
    assert row["SandboxID"] == "sandbox-1" and "ended while it was attached" in row["Problem"]
    assert at.resync(netns) == 1
    assert "Problem" not in at.house.rows()[0]


def test_manager_that_ends_in_the_middle_of_an_attach(at, netns):
    """Whether the device is in the sandbox is not known, so it counts as being there."""
    at.prepare("c1", [result("dummy0")])

    def die(*_):
        at.dummy.close()
        raise EOFError
    at.dummy.peer.methods["device.attach"] = die
    with pytest.raises(mprpc.Error):
        at.attach(netns)
    row, = at.house.rows()
    assert row["SandboxID"] == "sandbox-1" and row["Problem"]
    at.dummy = type(at.dummy)(at.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
    at.detach()
    assert [d["sandboxID"] for d in at.dummy.asked("device.detach")] == ["sandbox-1"]


# --- sandboxes whose namespace is not known --------------------------------------------------------


def test_sandbox_that_ended_while_statd_was_away(at, netns):
    """Nobody has its namespace: the device must have come back by itself."""
    c = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.kill_statd()
    at.front.call("pod.sync", {"pods": []})
    procs_module.wait_for(lambda: at.attached() == [], what="the end of the sandbox")
    reclaimed, = at.dummy.asked("device.reclaim")
    assert reclaimed["claimUID"] == c.uid and at.dummy.asked("device.detach") == []
    at.unprepare(c)


def test_nothing_is_a_success_that_did_nothing(at, netns):
    """It has not come back: neither a detach nor an unprepare says that all is well."""
    c = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.kill_statd()
    at.dummy.failures["device.reclaim", "dummy0"] = mprpc.Error("busy", "it is not on the host")
    with pytest.raises(mprpc.Error, match="it is not on the host"):
        at.detach()
    with pytest.raises(mprpc.Error, match="it is not on the host"):
        at.unprepare(c)
    assert at.frees() == [] and at.attached() == [("dummy0", "sandbox-1", "dummy0")]
    at.dummy.failures.clear()
    at.unprepare(c)
    assert at.frees() == [("dummy0", c.uid)] and at.house.rows() == []


@pytest.fixture
def restarted(at, netns):
    """statd has restarted under a pod, and a device that is not on the host may be in it still."""
    at.claim = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.kill_statd()
    at.dummy.reclaimed = {"notFound": True}
    return at


def test_sandbox_of_which_nothing_is_known_is_not_over(restarted, netns):
    at, listed = restarted, {"pods": [{"podUID": POD, "sandboxID": "sandbox-1"}]}
    for _ in ("before the runtime has said what it has", "it has this one"):
        assert "sandbox sandbox-1 may be running still" in at.refused(at.claim, "unprepare")
        with Netns() as newer:
            with pytest.raises(mprpc.Error, match="sandbox sandbox-1 may be running still"):
                at.attach(newer, "sandbox-2")
        assert at.attached() == [("dummy0", "sandbox-1", "dummy0")] and at.frees() == []
        assert at.front.call("pod.sync", listed) == {"sandboxIDs": ["sandbox-1"]}
    assert at.attach(netns) == 1
    at.unprepare(at.claim)
    assert [d["sandboxID"] for d in at.dummy.asked("device.detach")] == ["sandbox-1"]
    assert at.frees() == [("dummy0", at.claim.uid)] and at.house.rows() == []


@pytest.mark.parametrize("how", ["reported", "reported after the list", "not in the list"])
def test_sandbox_that_the_runtime_says_is_over(restarted, how):
    at = restarted
    if how == "not in the list":
        at.front.call("pod.sync", {"pods": []})
        procs_module.wait_for(lambda: at.attached() == [], what="the end of the sandbox")
    else:
        if how == "reported after the list":
            at.front.call("pod.sync", {"pods": [{"podUID": POD, "sandboxID": "sandbox-1"}]})
        at.detach()
    assert at.attached() == []
    at.unprepare(at.claim)
    assert at.frees() == [("dummy0", at.claim.uid)] and at.house.rows() == []


def test_end_of_a_sandbox_whose_devices_could_not_be_taken_back_then(restarted):
    """The runtime has said that it is over, once; what is tried again later knows that."""
    at = restarted
    at.dummy.failures["device.reclaim", "dummy0"] = mprpc.Error("internal", "stuck")
    at.front.call("pod.sync", {"pods": [{"podUID": POD, "sandboxID": "sandbox-1"}]})
    with pytest.raises(mprpc.Error, match="stuck"):
        at.detach()
    at.dummy.failures.clear()
    at.unprepare(at.claim)
    assert at.house.rows() == []


def test_sync_takes_nothing_out_of_a_live_sandbox(at, netns):
    """Two sandboxes of one pod are alive: the one that has the device keeps it."""
    at.prepare("c1", [result("dummy0")])
    at.attach(netns, "newer")
    both = {"pods": [{"podUID": POD, "sandboxID": "older"}, {"podUID": POD, "sandboxID": "newer"}]}
    assert at.front.call("pod.sync", both) == {}
    at.kill_statd()
    assert at.front.call("pod.sync", both) == {"sandboxIDs": ["newer"]}


def test_link_that_appears_on_the_host(at, netns):
    """The kernel returned it when the namespace ended, and nobody has said so."""
    at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.dummy.peer.notify("manager.appeared", {"name": "dummy0"})
    procs_module.wait_for(lambda: at.attached() == [], what="the device's leaving its sandbox")
    assert len(at.dummy.asked("device.reclaim")) == 1 and at.namespaces_held() == []
    at.detach()
    assert at.dummy.asked("device.detach") == [], "the late end of the sandbox has nothing to do"


def test_link_that_appears_and_is_in_its_sandbox(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.dummy.failures["device.reclaim", "dummy0"] = mprpc.Error("busy", "it is not on the host")
    at.dummy.peer.notify("manager.appeared", {"name": "dummy0"})
    procs_module.wait_for(lambda: at.dummy.asked("device.reclaim"), what="the manager's being asked")
    procs_module.wait_for(lambda: at.check() == (1, 1), what="the end of the look")
    assert at.attached() == [("dummy0", "sandbox-1", "dummy0")]


def test_sandbox_id_with_another_namespace(at, netns):
    at.prepare("c1", [result("dummy0")])
    at.prepare("c2", [result("dummy1")])
    at.dummy.failures["device.attach", "dummy1"] = mprpc.Error("internal", "no")
    at.dummy.failures["device.detach", "dummy0"] = mprpc.Error("internal", "it is stuck")
    with pytest.raises(mprpc.Error):
        at.attach(netns)
    assert at.attached() == [("dummy0", "sandbox-1", "dummy0")]
    with Netns() as other, pytest.raises(mprpc.Error, match="known with another network namespace"):
        at.attach(other)


# --- claims that nothing is known of ---------------------------------------------------------------


def leftover(device, claim_uid):
    return {"device": {"name": device, "state": {"Name": device}}, "claimUID": claim_uid}


def test_unprepare_of_an_unknown_claim_looks_first(at):
    c = h.Claim(at.house, "c1", [result("dummy0")])
    at.dummy.leftovers = [leftover("dummy0", c.uid), leftover("dummy1", "someone-else")]
    at.unprepare(c)
    assert at.frees() == [("dummy0", c.uid)], "what is its own, and nothing else"
    at.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "it is stuck")
    assert "it is stuck" in at.refused(c, "unprepare")


def test_unprepare_of_an_unknown_claim_while_a_manager_is_away(at):
    c = h.Claim(at.house, "c1", [result("dummy0")])
    at.dummy.close()
    at.house.wait_peer("dmgr-dummy", "missing")
    assert "unavailable" in at.refused(c, "unprepare")


def test_a_mark_proves_nothing_against_a_row(at, netns):
    """Root in a pod can write another claim's mark on its own device."""
    c = at.prepare("c1", [result("dummy0")])
    at.attach(netns)
    at.dummy.leftovers = [leftover("dummy0", "forged")]
    forged = h.Claim(at.house, "forged", [result("dummy1")], uid="forged")
    at.unprepare(forged)
    assert at.frees() == []
    at.statd.wait_log(f"bears the mark of another claim, forged; it stays this one's|mark of another claim.*{c.uid}|{c.uid}.*mark of another")


# --- the state directory ---------------------------------------------------------------------------


def mode_of(path):
    s = path.stat()
    return stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid


def test_modes(at):
    c = at.prepare("c1", [result("dummy0")])
    uid = int(h.STATD_USER.split(":")[0])
    assert mode_of(at.house.state_dir) == (0o750, uid, 0)
    assert mode_of(at.house.state_dir / "claims") == (0o700, uid, 0)
    assert mode_of(at.house.state_dir / "pods") == (0o750, uid, 0)
    assert mode_of(at.house.state_dir / "claims" / f"{c.uid}.json")[0] == 0o600
    hello = at.front.call("front.hello", {"role": "draplugind", "version": "0"})
    found = at.house.state_dir.stat()
    assert (hello["stateDev"], hello["stateIno"]) == (found.st_dev, found.st_ino)


def test_records_of_an_earlier_boot(at):
    """They say nothing of this boot's kernel; what the claim's status says is restored instead."""
    c = at.prepare("c1", [result("dummy0")])
    d = at.prepare("c2", [result("dummy1")], pod_uid=OTHER_POD)
    assert c.status and d.status
    d.path.unlink()
    (at.house.state_dir / "boot").write_text("11111111-2222-3333-4444-555555555555")
    at.kill_statd()
    at.statd.wait_log("are of an earlier boot")
    assert [r["ClaimUID"] for r in at.house.rows()] == [c.uid]
    assert set(at.house.records()) == {c.uid} and at.house.marked_pods() == {POD}


@pytest.mark.parametrize("text, words", [
    ("", "its last line"),
    ('{"version": 1, "uid"', "its last line"),
    ("\0" * 64, "its last line"),
    ("[" * 100000, "its last line"),
    ('{"version": 99, "uid": "UID", "namespace": "default", "name": "c1"}', "version: 99 is of a newer release"),
    ('{"version": 1, "uid": "other", "namespace": "default", "name": "c1"}', "uid: is other, not that of the file's name"),
    ('{"version": 1, "uid": "UID", "namespace": "default", "name": "c1", "devices": [{"DeviceName": "dummy0"}]}', "devices"),
    ("x" * (3 << 20), "at most"),
], ids=["empty", "cut", "zeros", "deep", "newer", "another's", "no pod", "long"])
def test_record_that_cannot_be_read(at, text, words):
    """It is reported, and what its claim has is held; the claim's status is asked instead."""
    c = at.prepare("c1", [result("dummy0")])
    other = at.prepare("c2", [result("dummy1")], pod_uid=OTHER_POD)
    assert c.status and other.status
    at.statd.kill()
    at.close()
    (at.house.state_dir / "claims" / f"{c.uid}.json").write_text(text.replace("UID", c.uid))
    at.statd = at.house.start_statd()
    at.connect()
    at.statd.wait_log(f"a record cannot be read.*{c.uid}.*({words})")
    assert sorted(r["ClaimUID"] for r in at.house.rows()) == sorted([c.uid, other.uid])
    assert set(at.house.records()) == {c.uid, other.uid}, "it is made whole"
    at.unprepare(c)


def test_device_of_a_record_that_was_cut(at):
    """Neither a row nor a mark says that the device is held, as with a function of vfio-pci; what is left of
    the record does."""
    c = at.prepare("c1", [result("vf1")])
    assert c.status
    at.statd.kill()
    at.close()
    path = at.house.state_dir / "claims" / f"{c.uid}.json"
    path.write_text(path.read_text()[:-40])
    c.status_path.unlink()
    at.statd = at.house.start_statd()
    at.connect()
    assert at.house.rows() == []
    assert f"device vf1 is held by claim {c.uid}, whose record cannot be read" in at.refused(at.rival("vf1"))
    at.unprepare(c)
    at.front.call("claim.prepare", at.rival("vf1", "next").ref)


def test_record_whose_last_version_was_cut(at):
    """One before it does not count instead: what came after it has been done."""
    c = at.prepare("c1", [result("vf1")])
    at.house.wait_status_written()
    at.statd.kill()
    at.close()
    path = at.house.state_dir / "claims" / f"{c.uid}.json"
    versions = path.read_text().split("\n")
    assert len(versions) > 1 and [json.loads(v)["uid"] for v in versions] == [c.uid] * len(versions)
    path.write_text("\n".join([*versions[:-1], versions[-1][:-40]]))
    c.status_path.unlink()
    at.statd = at.house.start_statd()
    at.connect()
    assert f"device vf1 is held by claim {c.uid}, whose record cannot be read" in at.refused(at.rival("vf1"))
    at.unprepare(c)


def test_versions_within_a_page(at, netns):  # noqa: F811
    """A record is appended to as long as it fits, and replaced then."""
    c = at.prepare("c1", [result("dummy0")])
    path, sizes, files = at.house.state_dir / "claims" / f"{c.uid}.json", [], set()
    for _ in range(5):
        at.attach(netns)
        sizes.append(path.stat().st_size)
        files.add(path.stat().st_ino)
        at.detach()
        at.house.wait_status_written()
        sizes.append(path.stat().st_size)
        files.add(path.stat().st_ino)
    assert max(sizes) <= 4096 and any(after < before for before, after in zip(sizes, sizes[1:])) and len(files) > 1
    assert h.read_record(path)["devices"][0]["DeviceName"] == "dummy0"
    at.kill_statd()
    assert [row["DeviceName"] for row in at.house.rows()] == ["dummy0"]


def test_record_that_is_more_than_a_page(at, netns):  # noqa: F811
    c = at.prepare("c1", [result("dummy0")])
    path = at.house.state_dir / "claims" / f"{c.uid}.json"
    at.house.wait_status_written()
    at.statd.kill()
    at.close()
    record = h.read_record(path)
    record["devices"][0]["Prepared"]["state"] = {"before": "x" * 5000}
    path.write_text(json.dumps(record))
    at.statd = at.house.start_statd()
    at.connect()
    at.attach(netns)
    assert len(path.read_text().splitlines()) == 1 and path.stat().st_size > 5000
    assert h.read_record(path)["devices"][0]["SandboxID"]


def test_record_that_cannot_be_read_and_no_status(at):
    """Nothing says what it holds but the marks in the kernel: those are kept until it is unprepared."""
    c = at.prepare("c1", [result("dummy0")])
    assert c.status
    at.statd.kill()
    at.close()
    (at.house.state_dir / "claims" / f"{c.uid}.json").write_text("{")
    c.status_path.unlink()
    at.statd = at.house.start_statd()
    at.connect()
    assert at.house.rows() == [] and c.uid in at.dummy.asked("device.audit")[0]["claimUIDs"]
    assert POD in at.house.marked_pods(), "its pod is not let through"
    assert any(f"record of claim {c.uid}" in note for note in at.house.status()["notes"])
    at.dummy.leftovers = [leftover("dummy0", c.uid)]
    at.unprepare(c)
    at.house.wait_status_written()
    assert at.frees() == [("dummy0", c.uid)] and not (at.house.state_dir / "claims" / f"{c.uid}.json").exists()
    assert not at.house.status().get("notes")


def test_directory_that_was_removed(at):
    """Without a record nothing is done."""
    os.rename(at.house.state_dir / "claims", at.house.state_dir / "elsewhere")
    os.rmdir(at.house.state_dir / "elsewhere")
    c = h.Claim(at.house, "c1", [result("dummy0")])
    assert "state directory" in at.refused(c)
    assert at.dummy.asked("device.setup") == [] and at.house.rows() == []


def test_temporary_files_are_removed(at):
    left = at.house.state_dir / "claims" / ".c1.json.0123abcd.tmp"
    left.write_text("{")
    (at.house.state_dir / "pods" / "pod-of-nobody").write_text("")
    at.kill_statd()
    assert not left.exists() and at.house.marked_pods() == set()


def test_option(procs, rundir):
    house = h.House(procs, rundir)
    directory = rundir / "records"
    statd = house.start_statd("--state-dir", directory)
    statd.wait_log("restored what was prepared")
    assert (directory / "boot").read_text().strip() == open("/proc/sys/kernel/random/boot_id").read().strip()
    assert not house.state_dir.exists()


# --- two claims at once ----------------------------------------------------------------------------


class Held:
    """The manager does not answer such calls before it is to go on."""

    def __init__(self, manager, method):
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.handler = manager.peer.methods[method]
        manager.peer.methods[method] = self._handle

    def _handle(self, *args):
        self.begun.set()
        assert self.go_on.wait(60)
        return self.handler(*args)


class Caller:
    """A call over a connection of its own, made in the background."""

    def __init__(self, at, method, params):
        self.error = None
        self.peer = mprpc.connect(at.house.runtime_dir / "front.sock")
        self.thread = threading.Thread(target=self._call, args=(method, params))
        self.thread.start()

    def _call(self, method, params):
        try:
            self.peer.call(method, params, timeout=60)
        except (mprpc.Error, EOFError, OSError) as e:
            self.error = e

    def end(self):
        self.thread.join(60)
        self.peer.close()
        assert not self.thread.is_alive()
        return self.error


def test_device_that_another_claim_takes_while_this_one_lets_go(at):
    """What was free when the claim was read is another's by the time that it has let go of its former device."""
    c = at.prepare("c1", [result("dummy0")])
    c.object["status"]["allocation"]["devices"]["results"] = [result("vf0")]
    c.write()
    free = Held(at.dummy, "device.free")
    first = Caller(at, "claim.prepare", c.ref)
    assert free.begun.wait(10)
    rival = at.prepare("rival", [result("vf0")], pod_uid=OTHER_POD)
    free.go_on.set()
    error = first.end()
    assert at.statd.running()
    assert "conflict" in str(error) and f"held by claim {rival.uid}" in str(error)
    assert [(r["DeviceName"], r["ClaimUID"]) for r in at.house.rows()] == [("vf0", rival.uid)]
    assert len(at.sriov.asked("device.setup")) == 1
    at.house.wait_status_written()
    assert c.status is None, "it has nothing any more"
    at.unprepare(rival)
    at.front.call("claim.prepare", c.ref)


# --- what a manager returns goes into the record ---------------------------------------------------


def test_reason_of_any_length_can_be_read_back(at, netns):
    """Why a manager cannot restore a device goes into the claim's record, with a few words in front of it."""
    c = at.prepare("c1", [result("dummy0")])
    at.house.wait_status_written()
    at.dummy.close()
    at.house.wait_peer("dmgr-dummy", "missing")

    class Forgetful(type(at.dummy)):
        def _restore(self, params):
            return {"verdicts": [{"error": "\N{EURO SIGN}" * 170} for _ in params["allocations"]]}
    at.dummy = Forgetful(at.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
    problem = at.house.rows()[0]["Problem"]
    assert problem.startswith("its manager cannot restore it: ") and len(problem.encode()) <= 512
    c.object["status"]["reservedFor"][0].update(name="other", uid=OTHER_POD)
    c.write()
    at.front.call("claim.prepare", c.ref)  # it is recorded
    assert [d["Problem"] for d in at.house.records()[c.uid]["devices"]] == [problem]
    c.path.unlink()
    at.kill_statd()
    assert "a record cannot be read" not in at.statd.log
    assert [(r["ClaimUID"], r["PodUID"]) for r in at.house.rows()] == [(c.uid, OTHER_POD)]


def test_state_of_any_texts_can_be_read_back(at):
    at.dummy.prepared = {"state": {"Name": "dummy0", "odd": "\0 \x7f \u2028 \U0001f600", "real": 0.1, "least": -2**63}}
    c = at.prepare("c1", [result("dummy0")])
    at.kill_statd()
    assert "a record cannot be read" not in at.statd.log
    row, = at.house.rows()
    assert row["PreparedDevice"] == at.dummy.asked("device.restore")[0]["allocations"][0]["device"]["state"] == {
        "Name": "dummy0", "odd": "\0 \x7f \u2028 \U0001f600", "real": 0.1, "least": -2**63}
    at.unprepare(c)


@pytest.mark.parametrize("change", [
    lambda entry: entry.update(device="Dummy_0"),
    lambda entry: entry.update(shareID="a share"),
    lambda entry: entry["data"].update(LogicalPool="p" * 100),
], ids=["device", "share", "pool"])
def test_status_that_no_row_can_have(at, change):
    """It is reported, and neither spoils the claim's record nor keeps a manager from taking over the others."""
    c = at.prepare("c1", [result("dummy0")])
    d = at.prepare("c2", [result("dummy1")])
    at.house.wait_status_written()
    status = json.loads(c.status_path.read_text())
    change(status["status"]["devices"][0])
    c.status_path.write_text(json.dumps(status))
    (at.house.state_dir / "boot").write_text("11111111-2222-3333-4444-555555555555")
    at.kill_statd()
    at.statd.wait_log("failed to restore allocated device")
    assert [r["ClaimUID"] for r in at.house.rows()] == [d.uid]
    at.kill_statd()
    assert "a record cannot be read" not in at.statd.log


# --- a preparation that is repeated ----------------------------------------------------------------


@pytest.mark.parametrize("failing", ["dummy0", "dummy1"])
def test_repeated_preparation_that_fails_keeps_what_an_earlier_one_has_left(at, failing):
    """A device that was set up and could not be freed stays the claim's, whichever step of the next try fails."""
    c = h.Claim(at.house, "c1", [result("dummy1", "b"), result("dummy0")])
    at.dummy.failures["device.setup", "dummy0"] = mprpc.Error("internal", "no room in the kernel")
    at.dummy.failures["device.free", "dummy1"] = mprpc.Error("internal", "it is stuck")
    assert "no room in the kernel" in at.refused(c)
    assert [(r["DeviceName"], r["Unfinished"]) for r in at.house.rows()] == [("dummy1", True)]
    at.dummy.failures["device.setup", failing] = mprpc.Error("internal", "not again")
    assert failing in at.refused(c)
    assert [(r["DeviceName"], r["Unfinished"]) for r in at.house.rows()] == [("dummy1", True)]
    assert "right now, or given back by it" in at.refused(at.rival("dummy1"))
    at.statd.kill()
    at.close()
    at.statd = at.house.start_statd()
    at.connect()
    procs_module.wait_for(lambda: at.house.rows() == [], 20, "the device's being freed")
    assert ("dummy1", c.uid) in at.frees()


def test_device_that_was_begun_keeps_what_is_known_of_it(at):
    """How it is put back is known from the earlier setup until the next one is answered."""
    at.dummy.prepared = {"state": {"Name": "dummy0", "before": "all of it"}}
    at.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "it is stuck")
    at.dummy.failures["device.setup", "dummy1"] = mprpc.Error("internal", "no")
    c = h.Claim(at.house, "c1", [result("dummy0"), result("dummy1", "b")])
    at.refused(c)
    at.dummy.failures["device.setup", "dummy0"] = mprpc.Error("internal", "not again")
    at.refused(c)
    record, = at.house.records().values()
    assert [d["Prepared"]["state"]["before"] for d in record["devices"]] == ["all of it"]
    at.dummy.failures.clear()
    at.unprepare(c)
    assert all(f["device"]["state"]["before"] == "all of it" for f in at.dummy.asked("device.free"))


def test_status_of_a_claim_whose_next_preparation_was_interrupted(at):
    """Its status was still due. The record's other devices are prepared, and their status is written."""
    c = at.prepare("c1", [result("dummy0"), result("vf0", "b")])
    at.house.wait_status_written()
    at.statd.kill()
    at.close()
    path = at.house.state_dir / "claims" / f"{c.uid}.json"
    record = h.read_record(path)
    record["statusDue"] = True
    [d for d in record["devices"] if d["DeviceName"] == "vf0"][0]["Unfinished"] = True
    path.write_text(json.dumps(record))
    c.status_path.unlink()
    at.statd = at.house.start_statd()
    at.connect()
    procs_module.wait_for(lambda: [r["DeviceName"] for r in at.house.rows()] == ["dummy0"], 10, "the other's being freed")
    at.house.wait_status_written()
    assert [d["device"] for d in c.status] == ["dummy0"]


def test_second_manager_that_reconnects_in_the_middle(at):
    """Of two managers one ends while the other's device is set up already; its answer is lost, its work may be done."""
    c = h.Claim(at.house, "c1", [result("dummy0"), result("vf0", "b")])
    held = Held(at.sriov, "device.setup")
    first = Caller(at, "claim.prepare", c.ref)
    assert held.begun.wait(10)
    at.sriov.close()
    held.go_on.set()
    assert "unavailable" in str(first.end())
    row, = at.house.rows()
    assert (row["DeviceName"], row["Unfinished"]) == ("vf0", True), "the other is free again"
    assert at.frees() == [("dummy0", c.uid)]
    assert "right now, or given back by it" in at.refused(at.rival("vf0"))
    at.sriov = type(at.sriov)(at.house, "sr-iov", [h.dedicated("vf0")])
    procs_module.wait_for(lambda: at.house.rows() == [], 10, "what may have been done being undone")
    assert [f["claimUID"] for f in at.sriov.asked("device.free")] == [c.uid]
    at.front.call("claim.prepare", at.rival("vf0", "next").ref)


def test_prepare_and_unprepare_in_each_others_way(at):
    """Many calls for one claim and for two that want the same device: one after the other, and all are answered."""
    c, d = h.Claim(at.house, "c1", [result("dummy0")]), h.Claim(at.house, "c2", [result("dummy0")], pod_uid=OTHER_POD)
    callers = [Caller(at, f"claim.{verb}", claim.ref) for _ in range(1) for claim in (c, d)
               for verb in ("prepare", "unprepare", "prepare")]
    errors = [caller.end() for caller in callers]
    assert all(e is None or "conflict" in str(e) or "busy" in str(e) for e in errors), errors
    assert at.statd.running()
    for claim in (c, d):
        at.unprepare(claim)
    at.house.wait_status_written()
    assert at.house.rows() == [] and at.house.records() == {} and at.house.marked_pods() == set()


@pytest.mark.parametrize("how", ["detach", "sync"])
def test_sandbox_with_rows_of_which_the_pod_is_not_known(at, how):
    """statd was killed while a pod's own device and one of a claim of several pods were attached: the end of the
    sandbox is that of both."""
    a = at.prepare("c1", [result("dummy0")])
    b = at.prepare("c2", [result("dummy1")])
    at.house.wait_status_written()
    at.statd.kill()
    at.close()
    for claim, change in ((a, {"PodUID": "", "Pods": [POD, OTHER_POD]}), (b, {})):
        path = at.house.state_dir / "claims" / f"{claim.uid}.json"
        record = h.read_record(path)
        record["devices"][0].update(SandboxID="sandbox-1", PodIfName=record["devices"][0]["DeviceName"], **change)
        path.write_text(json.dumps(record))
    at.statd = at.house.start_statd()
    at.connect()
    assert len(at.attached()) == 2
    if how == "detach":
        at.detach()
    else:
        at.front.call("pod.sync", {"pods": []})
    procs_module.wait_for(lambda: at.attached() == [], 5, "the end of the sandbox")
    assert sorted(r["device"]["name"] for r in at.dummy.asked("device.reclaim")) == ["dummy0", "dummy1"]
