# SPDX-License-Identifier: Apache-2.0
"""statd's store of a cluster, against the real servers: status that is written and removed for a claim of
which only the name and the UID are known, and what another driver has in a claim."""
import json
import os
import signal
import subprocess
import time
import uuid

import pytest

import faults
import house as h
import mprpc
from cluster_house import DUMMY, RESOURCE, ClusterHouse
from procs import BUILD, wait_for
from test_statd import Setting, claim_of_two_drivers, setting  # noqa: F401  pylint: disable=unused-import

# Each is taken by the API server as another driver's data, and by no decoder of ours. It panics over 1e400.
ODD = {"integer": "18446744073709551615", "NUL": r'"\u0000"', "twice": '{"a":1,"a":2}',
       "deep": "[" * 100 + "]" * 100}


class Failed(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.kind = error["kind"]


class Store:
    """Calls of the store, each by a process of its own that has the account of house's statd."""

    def __init__(self, house):
        self.house = house

    def _run(self, *args):
        done = subprocess.run([BUILD / "tests/cluster/storetool", self.house.kubeconfig, self.house.node, h.DRIVER, *args],
                              capture_output=True, text=True, check=True, timeout=60)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        if "error" in lines[-1]:
            raise Failed(lines[-1]["error"])
        return lines[:-1]

    def write(self, claim, *devices):
        self._run("write", *self.house.ref(claim).values(), json.dumps(devices))

    def remove(self, claim):
        self._run("remove", *self.house.ref(claim).values())

    def list(self):
        return self._run("list")


@pytest.fixture
def store(setting):  # noqa: F811
    return Store(setting.house)


def entry(house, device="dummy0", **more):
    return {"driver": h.DRIVER, "pool": house.node, "device": device, "data": {"Manager": "dummy", **more},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                            "observedGeneration": 0, "lastTransitionTime": "2026-01-02T03:04:05Z"}]}


def made(house, name="p1"):
    house.template("one", "fast-net")
    return house.pod_with_claim(name, "one")


def device_of(claim):
    return claim["status"]["allocation"]["devices"]["results"][0]["device"]


READ_AND_WRITTEN = [("get", ""), ("patch", "status")]


def test_status_of_a_claim_that_is_not_at_hand(setting, store, cluster):  # noqa: F811
    house = setting.house
    claim = made(house)
    mark = cluster.mark()
    store.write(claim, entry(house, device_of(claim), n=1))
    assert [(c.verb, c.subresource) for c in house.calls(mark)] == READ_AND_WRITTEN
    assert [e["data"]["n"] for e in house.entries(claim)] == [1]
    # again, as after a restart: it is there
    mark = cluster.mark()
    store.write(claim, entry(house, device_of(claim), n=1))
    assert [c.verb for c in house.calls(mark)] == ["get"]
    store.write(claim, entry(house, device_of(claim), n=2))
    assert [e["data"]["n"] for e in house.entries(claim)] == [2]
    mark = cluster.mark()
    store.remove(claim)
    assert [(c.verb, c.subresource) for c in house.calls(mark)] == READ_AND_WRITTEN
    assert house.entries(claim) == []
    mark = cluster.mark()
    store.remove(claim)
    assert [c.verb for c in house.calls(mark)] == ["get"], "nothing to be removed"


def test_claim_that_is_gone_or_another(setting, store):  # noqa: F811
    house = setting.house
    claim = made(house)
    for change, kind in (({"uid": str(uuid.uuid4())}, "conflict"), ({"name": "none"}, "not_found")):
        other = json.loads(json.dumps(claim))
        other["metadata"].update(change)
        with pytest.raises(Failed) as failed:
            store.write(other, entry(house))
        assert failed.value.kind == kind, failed.value
        store.remove(other)
    assert house.entries(claim) == []


@pytest.fixture
def through(cluster, proxy, procs, rundir):
    """As setting, but the calls go by the proxy."""
    made_setting = Setting(procs, rundir, cluster, server=proxy.url)
    yield made_setting
    made_setting.kubelet.close()


def test_not_found_of_something_in_between(through, proxy):
    """A 404 that is not the API server's word about the claim is no reason to forget its status."""
    house, store = through.house, Store(through.house)
    claim = made(house)

    def page(exchange, _rule):
        exchange.reply(404, {"Content-Type": "text/plain"}, b"404 page not found\n")
    rule = proxy.rule("", "resourceclaims", page, times=2)
    store.write(claim, entry(house, device_of(claim)))
    assert len(rule.caught) == 2 and len(house.entries(claim)) == 1
    proxy.rule("", "resourceclaims", faults.answer(404, message="the server could not find the requested resource"))
    store.remove(claim)
    assert house.entries(claim) == []


@pytest.mark.parametrize("before, after", [("tm", "m"), ("tm", ""), ("m", "tm"), ("", "t"), ("mt", "tm")])
def test_write_that_meets_another_writer(cluster, through, proxy, before, after):
    """Another driver writes between our read and our write: also such that the places that our patch
    names do not exist any more."""
    house = through.house
    claim, other = claim_of_two_drivers(house, cluster)
    mine, = (r["device"] for r in claim["status"]["allocation"]["devices"]["results"] if r["driver"] == h.DRIVER)
    entries = {"m": entry(house, mine), "t": {"driver": other, "pool": house.node, "device": "gpu0", "data": {"theirs": True}}}
    path = f"{RESOURCE}/namespaces/{house.namespace}/resourceclaims/two/status"

    def write(which):
        cluster.ok("PATCH", path, {"status": {"devices": [entries[w] for w in which]}},
                   content_type="application/merge-patch+json")

    def between(exchange, _rule):
        write(after)
        exchange.pass_on()
    write(before)
    rule = proxy.rule("PATCH", "/status", between)
    assert [d["device_name"] for d in through.prepared(claim)] == [mine]
    house.wait_status_written()
    assert len(rule.caught) == 1 and proxy.seen("PATCH", "/status")[-1].status == 200
    written, = house.entries(claim)
    assert written["data"]["LogicalPool"] == "fast-net"
    theirs = [e for e in house.claim_now(claim)["status"]["devices"] if e["driver"] == other]
    assert [e["data"] for e in theirs] == [{"theirs": True}] * after.count("t")


@pytest.mark.parametrize("odd", ODD)
def test_what_another_driver_has_in_a_claim_stays_and_is_not_judged(setting, store, cluster, odd):  # noqa: F811
    house = setting.house
    claim, other = claim_of_two_drivers(house, cluster)
    path = f"{RESOURCE}/namespaces/{house.namespace}/resourceclaims/two"
    theirs = {"driver": other, "pool": house.node, "device": "gpu0", "data": {"guid": "ODD"}}
    body = json.dumps({**claim, "status": {**claim["status"], "devices": [theirs]}})
    cluster.ok("PUT", f"{path}/status", body.replace('"ODD"', ODD[odd]))

    def their_bytes():
        text = cluster.raw(path)
        at = text.index('"guid":') + len('"guid":')
        return text[at:at + len(ODD[odd])]
    assert their_bytes() == ODD[odd]
    device, = setting.prepared(claim)
    assert their_bytes() == ODD[odd] and len(house.entries(claim)) == 1
    setting.restart()
    assert "cannot be restored" not in setting.statd.log
    assert [r["ClaimUID"] for r in house.rows()] == [claim["metadata"]["uid"]]
    assert setting.prepared(claim) == [device]
    assert setting.unprepare(claim) == ""
    store.remove(claim)
    assert their_bytes() == ODD[odd] and house.entries(claim) == []


def test_pod_that_cannot_be_decoded_whole(setting, cluster):  # noqa: F811
    house = setting.house
    claim = made(house)
    device, = setting.prepared(claim)
    cluster.make_pod(house.namespace, "odd", {}, spec={"nodeName": house.node, "containers": [
        {"name": "c", "image": "none", "args": ["a\0b"]}]})
    setting.restart()
    assert setting.prepared(claim) == [device]


# --- who statd is ---------------------------------------------------------------------------------

BRIEF_SECONDS = 20


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can have files that statd's user may not read")
@pytest.mark.parametrize("in_time", [True, False], ids=["before it expires", "after it has expired"])
def test_client_certificate_that_is_renewed(cluster, procs, rundir, in_time):
    """In files that statd may not read once it has become its user."""
    house = ClusterHouse(procs, rundir, cluster)
    secret = rundir / "secret"
    secret.mkdir(mode=0o700)
    paths = secret / "client.crt", secret / "client.key"

    def install(files):
        for source, path in zip(files, paths):
            new = path.with_suffix(".new")
            new.write_bytes(source.read_bytes())
            new.chmod(0o600)
            new.rename(path)
    later = cluster.authority.client("later", ["system:masters"])
    install(cluster.authority.brief_client("early", "system:masters", BRIEF_SECONDS))
    expires = time.monotonic() + BRIEF_SECONDS + 1
    cluster.kubeconfig(house.kubeconfig, certificate=paths)
    house.create_config(DUMMY)
    statd = house.start_statd()
    manager = h.MockManager(house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
    house.wait_published("dummy0", "dummy1", "dummy2")
    claim = made(house)
    front = mprpc.connect(house.runtime_dir / "front.sock")
    assert time.monotonic() < expires, "this machine is too slow for this test"

    if in_time:
        install(later)
    wait_for(lambda: time.monotonic() > expires, BRIEF_SECONDS + 5, "the end of the first certificate")
    if not in_time:
        with pytest.raises(mprpc.Error, match=f"401.*the certificate in {paths[0]} is not accepted: is it expired"):
            front.call("claim.prepare", house.ref(claim))
        install(later)
    assert [d["device"] for d in front.call("claim.prepare", house.ref(claim))["devices"]] == [device_of(claim)]
    assert len(house.entries(claim)) == 1
    assert ("401" in statd.log) == (not in_time)
    # one process more, which ends with statd
    child, = children(statd.pid)
    with open(f"/proc/{child}/status", encoding="ascii") as lines:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
    assert {status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1" and ("asan" in BUILD.name or status["Seccomp"] == "2")
    assert len(os.listdir(f"/proc/{child}/fd")) == 4, "standard streams and the socket"
    if in_time:
        os.kill(child, signal.SIGKILL)
        statd.wait_log("not read again any more: restart this program before they expire")
        assert house.status()["ready"] and statd.log.count("not read again any more") == 1
    for peer in (front, manager):
        peer.close()
    statd.stop()
    wait_for(lambda: not os.path.exists(f"/proc/{child}"), 5, "the end of the reader")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


def test_claim_that_cannot_be_read_stops_nothing_else(setting, store, cluster):  # noqa: F811
    """Its parameters are ours, and a number that nobody can hold."""
    house = setting.house
    good = made(house)
    device, = setting.prepared(good)
    parameters = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                             "metadata": {"name": "bad", "namespace": house.namespace},
                             "spec": {"spec": {"devices": {
                                 "requests": [{"name": "net", "exactly": {"deviceClassName": house.device_class("fast-net")}}],
                                 "config": [{"opaque": {"driver": h.DRIVER, "parameters": {"vlan": "ODD"}}}]}}}})
    cluster.ok("POST", f"{RESOURCE}/namespaces/{house.namespace}/resourceclaimtemplates",
               parameters.replace('"ODD"', ODD["integer"]))
    bad = house.pod_with_claim("p2", "bad")
    answer, = setting.prepare(bad)
    assert "too big integer" in answer["error"]
    setting.restart()
    assert setting.prepared(good) == [device]
    listed = store.list()
    assert [line["claim"]["metadata"]["uid"] for line in listed if "claim" in line] == [good["metadata"]["uid"]]
    text, = [line["unreadable"] for line in listed if "unreadable" in line]
    assert bad["metadata"]["name"] in text and "too big integer" in text
