# SPDX-License-Identifier: Apache-2.0
"""Many at once: what a node does after its restart, when the kubelet prepares every claim and starts
every pod in the same moment. All of it is worked off, in the order in which it came for each claim and
each sandbox, within everybody's deadlines or with an error that says so; memory stays bounded; and
nothing is left."""
import contextlib
import json
import os
import pathlib
import tempfile
import threading
import time
import uuid

import grpc
import pytest

import house as h
import mprpc
import nri_wire as wire
import procs as procs_module
from fake_runtime import Runtime, pod
from house import result
from netns import Netns

pytestmark = pytest.mark.needs_root

SANITIZED = "asan" in procs_module.BUILD.name
CLAIMS = 50 if SANITIZED else 500  # a sanitized process takes ten times as long to fork, for one
CLAIMS_OF_A_CALL = 128  # that draplugind takes: a pod has at most so many
RUNTIME_SECONDS = 2.0 * procs_module.STRETCH  # that a container runtime waits for an answer
ATTACH_SECONDS = 1.5  # that statd waits for a manager

# The high-water mark of each daemon's memory under this load, in MiB: a process that has just started has
# 2 to 4, and each of 500 claims takes statd about 12 KB with its rows and calls. A sanitizer keeps what was
# freed: up to 256 MiB, and as much again around it.
MEMORY_MIB = 1024 if SANITIZED else 24
ROUNDS = 20  # of tries, until the last of those that were refused for want of time is done


def peak_mib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"{process.name} has no VmHWM")


class Busy:
    """The house, with a device for each claim."""

    def __init__(self, procs, rundir, state_dir, count):
        self.state_dir = state_dir
        self.house = h.House(procs, rundir, h.config({"dummy": {"enabled": True, "count": count}},
                                                     [{"name": "all", "filter": {}}]))
        self.devices = [f"dummy{i}" for i in range(count)]
        self.statd = self.house.start_statd("--state-dir", state_dir, "--log-level", "info")
        self.netnsd = self.house.start_netnsd("--log-level", "info")
        self.manager = h.MockManager(self.house, "dummy", [h.dedicated(name) for name in self.devices])
        self.house.wait_peer("netnsd", "connected")
        procs_module.wait_for(self.is_published, what="the first publication")
        self.daemons = [self.statd, self.netnsd]

    def is_published(self):
        """The file is there and statd has let go of it: else it counts among "the descriptors of before"."""
        slices = self.house.claims_dir / "resourceslices.json"
        return slices.exists() and not any(
            path.startswith(f"{self.house.claims_dir}/") for path in procs_module.paths_held_by(self.statd.pid))

    def claims(self):
        return [h.Claim(self.house, f"c{i}", [result(name)], pod_uid=str(uuid.uuid4()))
                for i, name in enumerate(self.devices)]

    def front(self):
        peer = mprpc.connect(self.house.runtime_dir / "front.sock")
        peer.call("front.hello", {"role": "nrihookd", "version": "0"})
        return peer

    def descriptors(self):
        return {process.name: len(os.listdir(f"/proc/{process.pid}/fd")) for process in self.daemons}

    def assert_bounded(self):
        peaks = {process.name: round(peak_mib(process), 1) for process in self.daemons}
        print(f"peaks of memory, MiB: {peaks}")
        assert max(peaks.values()) <= MEMORY_MIB, peaks

    def close(self):
        self.manager.close()


@pytest.fixture
def state_dir():
    """On a tmpfs, as on a node: the file system of a disk may write a file out when it is replaced, and two
    replacements for each of 500 sandboxes are then a second and more."""
    with tempfile.TemporaryDirectory(prefix="netclaim-", dir="/dev/shm") as path:
        yield path


@pytest.fixture
def busy(state_dir, procs, rundir):
    busy = Busy(procs, rundir, state_dir, CLAIMS)
    yield busy
    busy.close()


@pytest.fixture(scope="module")
def namespaces():
    """A few namespaces do for many sandboxes: a manager that is played moves nothing."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Netns()) for _ in range(8)]


def in_parallel(count, work):
    """Runs work(0), work(1), ... each in a thread of its own; returns their results in this order."""
    results = [None] * count

    def run(number):
        results[number] = work(number)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def succeeds(call):
    """Whether it does; what fails for want of time may be asked for again."""
    try:
        call()
        return True
    except mprpc.Error as e:
        assert e.code == "deadline", e
        return False


def until_done(call):
    """Asks again until it succeeds, as callers do."""
    procs_module.wait_for(lambda: succeeds(call), 20, "success")


def attach_all(front, fd, numbers):
    """Attaches these pods into one namespace at once; returns those that were refused."""
    done = in_parallel(len(numbers), lambda at: succeeds(lambda: front.call(
        "pod.attach", {"podUID": f"pod-{numbers[at]}", "sandboxID": f"s{numbers[at]}"}, [fd], 30)))
    return [number for number, ok in zip(numbers, done) if not ok]


def prepared_through_the_kubelet(busy, kubelet, claims):
    """One call for each claim, all on their way before the first answer is read."""
    started = time.monotonic()
    futures = [kubelet.start_prepare([claim.ref]) for claim in claims]
    answers = [future.result()["claims"] for future in futures]
    print(f"{len(claims)} claims prepared in {time.monotonic() - started:.2f} s")
    return answers


def test_claims_through_the_kubelet(busy):
    draplugind = busy.house.start_draplugind("--log-level", "info")
    busy.daemons.append(draplugind)
    claims = busy.claims()
    with busy.house.kubelet() as kubelet:
        kubelet.register()
        kubelet.unprepare([claims[0].ref])  # of nothing: the connection is there from here on
        before = busy.descriptors()
        for number, answer in enumerate(prepared_through_the_kubelet(busy, kubelet, claims)):
            device, = answer[claims[number].uid]["devices"]
            assert device["device_name"] == busy.devices[number]
        setups = busy.manager.asked("device.setup")
        assert sorted(a["device"]["name"] for a in setups) == sorted(busy.devices), "each device once"
        assert {row["ClaimUID"] for row in busy.house.rows()} == {claim.uid for claim in claims}

        # preparing and unpreparing of one claim at once is done in the order of the calls
        pairs = [(kubelet.start_unprepare([claim.ref]), kubelet.start_prepare([claim.ref])) for claim in claims[:20]]
        for claim, (unprepare, prepare) in zip(claims, pairs):
            assert unprepare.result()["claims"][claim.uid].get("error") is None
            assert prepare.result()["claims"][claim.uid].get("error") is None
        assert len(busy.house.rows()) == CLAIMS

        futures = [kubelet.start_unprepare([claim.ref]) for claim in claims]
        for claim, future in zip(claims, futures):
            assert future.result()["claims"][claim.uid].get("error") is None
        assert busy.house.rows() == [] and busy.house.files_left() == []
        busy.assert_bounded()
        procs_module.wait_for(lambda: busy.descriptors() == before, what="the descriptors of before")


def test_calls_with_many_claims(busy):
    busy.daemons.append(busy.house.start_draplugind("--log-level", "info"))
    claims = busy.claims()
    with busy.house.kubelet() as kubelet:
        kubelet.register()
        refs = [claim.ref for claim in claims]
        too_many = [{**ref, "uid": f"{ref['uid']}-{n}"} for n in range(CLAIMS_OF_A_CALL) for ref in refs[:2]]
        with pytest.raises(grpc.RpcError, match="256 claims in one call, at most 128 are taken"):
            kubelet.prepare(too_many)
        assert busy.house.rows() == []
        calls = [refs[at:at + CLAIMS_OF_A_CALL] for at in range(0, CLAIMS, CLAIMS_OF_A_CALL)]
        for future in [kubelet.start_prepare(call) for call in calls]:
            assert all("devices" in entry for entry in future.result()["claims"].values())
        assert len(busy.house.rows()) == CLAIMS
        for future in [kubelet.start_unprepare(call) for call in calls]:
            assert all(entry == {} for entry in future.result()["claims"].values())
    assert busy.house.rows() == [] and busy.house.files_left() == []
    busy.assert_bounded()


def test_claims_of_a_manager_that_hangs(busy):
    """What does not come in time is refused by name, and what comes later is done."""
    busy.daemons.append(busy.house.start_draplugind("--log-level", "info"))
    go = threading.Event()
    setup = busy.manager.peer.methods["device.setup"]
    busy.manager.peer.methods["device.setup"] = lambda *args: (go.wait(60), setup(*args))[1]
    claims = busy.claims()[:CLAIMS_OF_A_CALL]
    with busy.house.kubelet() as kubelet:
        kubelet.register()
        started = time.monotonic()
        seconds = 3 * procs_module.STRETCH
        futures = [kubelet.start_prepare([claim.ref], timeout=seconds) for claim in claims]
        for claim, future in zip(claims, futures):
            with contextlib.suppress(grpc.RpcError):  # the kubelet's own clock may be a hair faster
                error = future.result()["claims"][claim.uid]["error"]
                assert "in time" in error or "deadline" in error, error
        assert time.monotonic() - started < seconds + 1 * procs_module.STRETCH
        go.set()
        refs = [claim.ref for claim in claims]

        def all_prepared():
            return all("error" not in entry for entry in kubelet.prepare(refs).values())
        procs_module.wait_for(all_prepared, 10, "all claims to be prepared in the end")
        assert all(entry == {} for entry in kubelet.unprepare(refs).values())
    assert busy.house.rows() == [] and busy.house.files_left() == []
    busy.assert_bounded()


class OneAtATime:
    """A kernel that takes its time for each move; as with managers proper, what has waited behind others
    for longer than its caller does is refused."""

    def __init__(self, inner, seconds):
        self.inner, self.seconds = inner, seconds
        self.lock = threading.Lock()

    def __call__(self, *args):
        deadline = time.monotonic() + ATTACH_SECONDS
        with self.lock:
            if time.monotonic() > deadline:
                for fd in args[2]:
                    os.close(fd)
                raise mprpc.Error("deadline", "waited behind other calls for too long")
            threading.Event().wait(self.seconds)
        return self.inner(*args)


@pytest.mark.parametrize("seconds", [0, 5 / CLAIMS], ids=["fast", "slow"])
def test_sandboxes_by_pod_attach(busy, namespaces, seconds):
    methods = busy.manager.peer.methods
    if seconds:
        methods["device.attach"] = OneAtATime(methods["device.attach"], seconds)
    front = busy.front()
    claims = busy.claims()
    pods = [claim.object["status"]["reservedFor"][0]["uid"] for claim in claims]
    before = busy.descriptors()
    in_parallel(CLAIMS, lambda n: front.call("claim.prepare", claims[n].ref, timeout=40))

    def attach(number):
        fd = namespaces[number % len(namespaces)].open()
        try:
            return front.call("pod.attach", {"podUID": pods[number], "sandboxID": f"s{number}"}, [fd], 30)
        except mprpc.Error as e:
            return e
        finally:
            os.close(fd)
    left = list(range(CLAIMS))
    refused = 0
    started = time.monotonic()
    for _ in range(ROUNDS):  # what was refused for want of time is asked for again, as a kubelet does
        results = in_parallel(len(left), lambda n, left=left: attach(left[n]))
        errors = [(number, r) for number, r in zip(left, results) if isinstance(r, mprpc.Error)]
        assert all(e.code == "deadline" for _, e in errors), errors[0]
        left = [number for number, _ in errors]
        refused += len(errors)
        if not left:
            break
    assert not left, f"{len(left)} are refused for ever"
    print(f"{CLAIMS} sandboxes attached in {time.monotonic() - started:.2f} s, {refused} tries refused")
    assert refused or not seconds, "a slow kernel cannot do all of it in time"
    rows = busy.house.rows()
    assert sorted(row["SandboxID"] for row in rows) == sorted(f"s{n}" for n in range(CLAIMS))
    assert all(row["PodUID"] == pods[int(row["SandboxID"][1:])] for row in rows)
    busy.assert_bounded()

    in_parallel(CLAIMS, lambda n: until_done(
        lambda: front.call("pod.detach", {"podUID": pods[n], "sandboxID": f"s{n}"}, timeout=30)))
    in_parallel(CLAIMS, lambda n: front.call("claim.unprepare", claims[n].ref, timeout=40))
    assert busy.house.rows() == [] and busy.house.files_left() == []
    procs_module.wait_for(lambda: busy.descriptors() == before, what="the descriptors of before")
    front.close()


def test_sandboxes_by_the_hook(busy, rundir, namespaces):
    """All pods of the node start in one moment, on one connection of the runtime's, and end so."""
    runtime = Runtime(rundir / "nri.sock", timeout=RUNTIME_SECONDS).listen()
    busy.daemons.append(busy.house.start_nrihookd("--state-dir", busy.state_dir, "--nri-socket", runtime.path,
                                                  "--log-level", "info"))
    plugin = runtime.accept()
    plugin.synchronize()
    before = busy.descriptors()
    kubelet = mprpc.connect(busy.house.runtime_dir / "front.sock")
    kubelet.call("front.hello", {"role": "draplugind", "version": "0"})
    claims = busy.claims()
    in_parallel(CLAIMS, lambda n: kubelet.call("claim.prepare", claims[n].ref, timeout=40))
    sandboxes = [pod(f"{n:x}x", namespaces[n % len(namespaces)].path, claim.object["status"]["reservedFor"][0]["uid"])
                 for n, claim in enumerate(claims)]

    started = time.monotonic()
    streams = [(plugin.send_event(wire.RUN, told), plugin.send_event(wire.CREATE, told)) for told in sandboxes]
    refused = []
    for told, (run, create) in zip(sandboxes, streams):
        code, text = plugin.wait_event(run)
        created, _ = plugin.wait_event(create)
        if code:
            assert text and created, "a container of a sandbox that was refused"
            refused.append(told)
    print(f"{CLAIMS} sandboxes started in {time.monotonic() - started:.2f} s, {len(refused)} refused")
    assert not refused or procs_module.STRETCH > 1, "a release build has time for all of them"
    for told in refused:  # the kubelet's next try, one after the other
        assert plugin.event(wire.RUN, told)[0] == 0
    assert sorted(row["SandboxID"] for row in busy.house.rows()) == sorted(told["id"] for told in sandboxes)
    busy.assert_bounded()

    streams = [(plugin.send_event(wire.STOP, told), plugin.send_event(wire.REMOVE, told)) for told in sandboxes]
    for both in streams:
        assert [plugin.wait_event(stream)[0] for stream in both] == [0, 0]
    assert all("SandboxID" not in row for row in busy.house.rows())
    in_parallel(CLAIMS, lambda n: kubelet.call("claim.unprepare", claims[n].ref, timeout=40))
    assert busy.house.rows() == [] and busy.house.files_left() == []
    kubelet.close()
    procs_module.wait_for(lambda: busy.descriptors() == before, what="the descriptors of before")
    runtime.stop()


@pytest.mark.needs_dummy
def test_real_links(procs, rundir):
    """A few dozens, with dmgr-dummy as it ships: every link is in its pod, and the host's are as before."""
    count = 48
    with Netns() as host, Netns() as pods:  # their names differ, so one namespace does for all pods
        house = h.House(procs, rundir, h.config({"dummy": {"enabled": True, "count": count}},
                                                [{"name": "all", "filter": {}}]))
        via = ["nsenter", f"--net={host.path}", "--"]
        daemons = [house.start_statd("--log-level", "info"), house.start_netnsd("--log-level", "info", via=via),
                   house.start_dummy("--log-level", "info", via=via)]
        house.wait_peer("dmgr-dummy", "published")
        house.wait_peer("netnsd", "connected")
        before = host.ip("-d", "-j", "link"), pods.ip("-d", "-j", "link")
        front = mprpc.connect(house.runtime_dir / "front.sock")
        front.call("front.hello", {"role": "nrihookd", "version": "0"})
        claims = [h.Claim(house, f"c{n}", [result(f"dummy{n}")], pod_uid=f"pod-{n}") for n in range(count)]
        in_parallel(count, lambda n: front.call("claim.prepare", claims[n].ref, timeout=40))
        fd = pods.open()
        left = list(range(count))
        for _ in range(ROUNDS):
            left = attach_all(front, fd, left)
            if not left:
                break
        os.close(fd)
        assert not left, f"{len(left)} are refused for ever"
        assert host.ip("-d", "-j", "link") == before[0]
        there = {link["ifname"] for link in json.loads(pods.ip("-j", "link"))}
        assert there.issuperset(f"dummy{n}" for n in range(count))
        peaks = {process.name: round(peak_mib(process), 1) for process in daemons}
        print(f"peaks of memory, MiB: {peaks}")
        assert max(peaks.values()) <= MEMORY_MIB

        in_parallel(count, lambda n: until_done(
            lambda: front.call("pod.detach", {"podUID": f"pod-{n}", "sandboxID": f"s{n}"}, timeout=30)))
        in_parallel(count, lambda n: front.call("claim.unprepare", claims[n].ref, timeout=40))
        front.close()
        assert (host.ip("-d", "-j", "link"), pods.ip("-d", "-j", "link")) == before
        assert house.rows() == [] and house.files_left() == []
