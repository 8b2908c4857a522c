# SPDX-License-Identifier: Apache-2.0
"""The very nrihookd, between a runtime with the habits of containerd and a statd on python3-msgpack.

What runtimes do to their plugins, and where it is shown that nrihookd bears it. Names with a file are
of integration tests there, with "unit" of unit tests; all others are here.

the wire
    Configure comes before the answer to RegisterPlugin     test_pod, unit test_registered_after_both
    a frame of more than 4096 bytes is not read             test_reason_of_10_kilobytes,
                                                            unit test_frames_sent_hold_at_most_4096_bytes
    frames are cut anywhere                                 unit test_recording,
                                                            unit test_streams_are_the_same_at_any_cut
    channels, types and methods that nobody has heard of    test_noise, unit test_unknown_calls,
                                                            unit test_other_types_and_answers_are_ignored
    streams have gaps; even ones are wrong                  test_metadata_and_gaps_in_streams, unit test_stream_ids
    more bytes than anybody should send                     test_list_of_6_megabytes, test_too_long,
                                                            test_annotations_of_400_kilobytes
events
    one call for each, or StateChange for all               test_pod, test_attach_refused
    a mask of 0 means all, a bit too many the end           test_pod, unit test_events_not_asked_for
    CreateContainer is a call in every release              test_container_of_pod_that_is_known, unit test_container
    a pod's failure is never "unimplemented" (12)           test_attach_refused, unit test_errors
the list
    in parts, each answered as it was asked                 test_list_in_parts, unit test_list_in_parts
    cut off between two parts                               test_runtime_closes
    empty                                                   test_empty_node
    sandboxes that are dead, or have no process             test_list_in_parts, test_sandboxes_without_process
    the only word of what ended meanwhile                   test_pods_that_the_list_lacks_are_forgotten,
                                                            test_nrihookd_containerd.py test_runtime_restarts
    the way back for what started meanwhile                 test_nrihookd_containerd.py test_pod_that_was_missed,
                                                            test_runtime_closes_during_a_hook
    not complete in old releases                            test_container_of_sandbox_that_is_not_listed
    refused, it leaves a connection of no use               test_list_that_cannot_be_read
    so does a registration that is refused                  test_registration_refused
time
    a late answer starts the pod                            test_statd_does_not_answer, test_short_budget,
                                                            test_container_while_statd_does_not_answer
    one hook of a node at a time                            test_statd_is_away_for_long,
                                                            test_container_of_pod_that_is_known
    a runtime that went on without us                       test_runtime_closes_during_a_hook,
                                                            test_container_after_a_start_that_was_cut_off
errors
    fail the pod, with code and text                        test_attach_refused,
                                                            test_nrihookd_containerd.py test_attach_refused
    leave a sandbox behind, which ends the next start       test_first_gate, unit releases_that_leak,
                                                            test_gates.py test_runtime_restarts_after_a_failure
    of a stop are heard by CRI-O, of a removal by nobody    test_detach_refused
order
    start, stop and removal without waiting                 test_events_without_waiting,
                                                            test_stop_behind_a_start_that_hangs,
                                                            test_container_of_sandbox_that_stops
    a start twice, a stop without one                       test_start_twice, test_stop_without_start
    the same pod in another sandbox                         test_second_sandbox_of_a_pod
namespaces
    no path is told of a sandbox that stops                 test_pod
    CRI-O tells a path that is gone                         test_stop_when_the_namespace_is_gone
    none at all: the host's network                         test_pod_on_the_hosts_network
    a plain file, for want of mount propagation             test_what_is_no_namespace
    one that we keep open stays                             every test: the fixture counts
connections
    not yet there, stale, closed at any point               test_runtime_is_not_there_yet,
                                                            test_runtime_leaves_its_socket_behind, test_runtime_closes
never silent, whatever fails                                test_gates.py test_no_container_without_its_device
a claim that the kubelet does not prepare again             test_container_that_was_given_a_claim_of_another_pod,
                                                            test_nrihookd_containerd.py test_container_that_was_given_a_claim
and in nobody's way who has no claim                        test_pod_that_the_record_does_not_name,
                                                            test_gates.py test_plain_pods_while_statd_is_dead
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

import nri_wire
import pbmini as pb
from fake_runtime import VERSIONS, Runtime, pod
from hook_statd import DRIVER, Held, Refusing, Statd, sandbox_id
from nri_wire import CREATE, REMOVE, RUN, STOP
from procs import ROOT, STRETCH, wait_for

pytestmark = pytest.mark.needs_root

BUDGET = 2.0 * STRETCH  # seconds, as runtimes give
STYLES = ("0.6", "0.8", "0.12")

LEAKY = "2.1.9+unknown"  # a containerd that leaves refused sandboxes behind

# google.rpc.Code
FAILED_PRECONDITION, INTERNAL, UNAVAILABLE = 9, 13, 14


class Namespaces:
    """Network namespaces, pinned as runtimes do."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()

    def make(self, name):
        path = self.directory / name
        path.touch()
        subprocess.run(["unshare", f"--net={path}", "true"], check=True)
        return path

    def pin_own(self, name):
        path = self.directory / name
        path.touch()
        subprocess.run(["mount", "--bind", "/proc/self/ns/net", path], check=True)
        return path

    def remove(self, path):
        subprocess.run(["umount", path], check=True)
        path.unlink()

    def finish(self):
        for path in self.directory.iterdir():
            subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)


class Node:
    """One node: directories, statd, nrihookd, runtime."""

    def __init__(self, rundir, procs):
        self.dir = rundir
        self.procs = procs
        self.nri_socket = rundir / "nri.sock"
        self.netns = Namespaces(rundir / "netns")
        self.statd = Statd(rundir)
        self.runtime = Runtime(self.nri_socket, timeout=BUDGET)
        self.process = None
        self.serving = False

    def serve(self):
        self.statd.start()
        self.serving = True

    def start(self, *args):
        """statd and nrihookd."""
        if not self.serving:
            self.serve()
        self.process = self.procs.start("nrihookd", "--runtime-dir", self.dir, "--nri-socket",
                                        self.nri_socket, "--log-level", "debug", *args)
        return self.process

    def registered(self, style="0.8", pods=(), **configure):
        """All of them, registered with a runtime of this style that has these pods."""
        self.runtime.style = style
        self.runtime.listen()
        self.start()
        return self.again(pods, **configure)

    def again(self, pods=(), **configure):
        """The next registration."""
        syncs = len(self.statd.syncs)
        plugin = self.runtime.accept(**configure).synchronize(pods)
        self.statd.wait_syncs(syncs + 1)
        return plugin

    def stop_statd(self):
        self.statd.stop()
        self.serving = False

    def open_namespaces(self):
        """How many the process has open: its own, to compare with, and no pod's."""
        targets = []
        for fd in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                targets.append(os.readlink(fd))
        return len([target for target in targets if target.startswith("net:")])

    def finish(self):
        self.runtime.stop()
        if self.serving:
            self.statd.stop()
        self.netns.finish()


@pytest.fixture
def node(rundir, procs):
    n = Node(rundir, procs)
    yield n
    if n.process and n.process.running():
        assert n.open_namespaces() == 1
    n.finish()


# --- the life of a pod


@pytest.mark.parametrize("style", STYLES)
def test_pod(node, style):
    path = node.netns.make("cni-1")
    plugin = node.registered(style)
    assert plugin.identity == {"plugin_name": DRIVER, "plugin_idx": "00"}
    assert plugin.events == 0xf

    assert plugin.event(RUN, pod("a", path)) == (0, "")
    [attach] = node.statd.attaches
    assert attach == {"podUID": "uid-a", "sandboxID": sandbox_id("a"), "podName": "pod-a",
                      "podNamespace": "default", "inode": os.stat(path).st_ino}
    # what containerd 1.7 tells of a sandbox that stops
    assert plugin.event(STOP, pod("a", pid=0)) == (0, "")
    assert plugin.event(REMOVE, pod("a", pid=0)) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("detach", "a"), ("detach", "a"))
    assert node.statd.wait_state("registered")["detail"].startswith(f"containerd {VERSIONS[style]}; ")
    assert node.statd.hellos[0]["role"] == "nrihookd"


def test_metadata_and_gaps_in_streams(node):
    path = node.netns.make("cni-1")
    node.runtime.metadata = True
    plugin = node.registered()
    plugin.skip_stream()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    plugin.skip_stream()
    plugin.skip_stream()
    assert plugin.event(STOP, pod("a", path)) == (0, "")


def test_noise(node):
    """Channels, types and frames that mean nothing."""
    path = node.netns.make("cni-1")
    plugin = node.registered()

    def noise():
        for channel, data in ((0, b"noise"), (77, b"noise"), (nri_wire.PLUGIN, b""), (nri_wire.RUNTIME, b"")):
            plugin.sock.sendall(nri_wire.MUX_HEADER.pack(channel, len(data)) + data)
        for kind in (nri_wire.RESPONSE, 3, 9):
            plugin.trunk.send(nri_wire.PLUGIN, 99, kind, b"noise")
    for event in (RUN, CREATE, STOP):
        noise()
        assert plugin.event(event, pod("a", path)) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("detach", "a"))


def test_annotations_of_400_kilobytes(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    annotations = {f"key-{i}": "x" * 4000 for i in range(100)}
    assert plugin.event(RUN, pod("a", path, annotations=annotations)) == (0, "")
    node.statd.wait_calls(("attach", "a"))


def test_pod_on_the_hosts_network(node):
    plugin = node.registered()
    for told in (pod("a"), pod("b", netns="")):
        for event in (RUN, STOP, REMOVE):
            assert plugin.event(event, told) == (0, "")
    # also when it is known from the list only
    plugin.close()
    plugin = node.again([pod("c")])
    assert plugin.event(STOP, pod("c")) == (0, "")
    node.statd.wait_calls()
    assert node.statd.syncs == [[], []]


@pytest.mark.parametrize("names", [
    {"uid": ""}, {"uid": "a/b"}, {"uid": "x" * 64}, {"uid": "ü"}, {"name": "Pod_1"}, {"name": "x" * 254},
    {"namespace": "a b"}, {"name": b"\xff"}], ids=str)
def test_pod_that_is_not_of_kubernetes(node, names):
    """Somebody else's client may call its pods what it likes."""
    path = node.netns.make("cni-1")
    told = {**pod("a", path), **names}
    plugin = node.registered(pods=[told])
    for event in (RUN, STOP, REMOVE):
        assert plugin.event(event, told) == (0, "")
    node.statd.wait_calls()
    assert node.statd.syncs == [[]]


def test_sandbox_id_that_is_none(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    code, text = plugin.event(RUN, {**pod("a", path), "id": "../a"})
    assert code == FAILED_PRECONDITION
    assert "../a" in text
    node.statd.wait_calls()


def test_index_and_namespace_directory(node):
    """The runtime's directory of namespaces is mounted elsewhere."""
    path = node.netns.make("cni-1")
    node.runtime.listen()
    node.start("--nri-index", "42", "--netns-dir", node.netns.directory)
    plugin = node.runtime.accept().synchronize()
    assert plugin.identity["plugin_idx"] == "42"
    assert plugin.event(RUN, pod("a", "/elsewhere/netns/cni-1")) == (0, "")
    assert node.statd.attaches[0]["inode"] == os.stat(path).st_ino


# --- namespaces that are none


def make_plain_file(node):
    (node.netns.directory / "plain").touch()
    return node.netns.directory / "plain"


def make_fifo(node):
    os.mkfifo(node.netns.directory / "fifo")
    return node.netns.directory / "fifo"


@pytest.mark.parametrize("make,message", [
    (make_plain_file, "plain file and no network namespace: mount propagation missing"),
    (make_fifo, "mount propagation missing"),
    (lambda node: node.netns.pin_own("own"), "the namespace is the host's own"),
    (lambda node: "/proc/self/ns/uts", "the namespace is of another kind"),
    (lambda node: node.netns.directory / "gone", "No such file"),
    (lambda node: "relative/path", "no path of a network namespace"),
])
def test_what_is_no_namespace(node, make, message):
    """A pod with devices is told why; one without is not stopped by it."""
    path = make(node)
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.wanted.add("uid-b")
    code, text = plugin.event(RUN, pod("b", path))
    assert code == FAILED_PRECONDITION
    assert message in text
    assert text.startswith("attach of the devices of pod default/pod-b: ")
    # nor is a container of a sandbox that is seen for the first time
    assert plugin.event(CREATE, pod("a2", path)) == (0, "")
    node.statd.wanted.add("uid-b2")
    code, text = plugin.event(CREATE, pod("b2", path))
    assert code == FAILED_PRECONDITION
    assert message in text
    node.statd.wait_calls()
    assert node.statd.checks == [sandbox_id(ident) for ident in ("a", "b", "a2", "b2")]


# --- refusals


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("code,told", [
    ("internal", INTERNAL), ("conflict", FAILED_PRECONDITION), ("not_found", FAILED_PRECONDITION),
    ("invalid", FAILED_PRECONDITION), ("busy", UNAVAILABLE), ("code from the future", INTERNAL)])
def test_attach_refused(node, style, code, told):
    path = node.netns.make("cni-1")
    plugin = node.registered(style)
    node.statd.attach = Refusing(code, "interface 'net1' is taken")
    assert plugin.event(RUN, pod("a", path)) == (
        told, "attach of the devices of pod default/pod-a: interface 'net1' is taken")
    # as runtimes do then
    assert plugin.event(STOP, pod("a", path)) == (0, "")
    assert plugin.event(REMOVE, pod("a")) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("detach", "a"), ("detach", "a"))


@pytest.mark.parametrize("event", [RUN, CREATE])
def test_reason_of_10_kilobytes(node, event):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    node.statd.attach = Refusing("internal", "long\n\x1b[1m" + "ä" * 5000)
    code, text = plugin.event(event, pod("a", path))
    assert code == INTERNAL
    assert 200 < len(text.encode()) <= 1024
    assert "�" not in text and text.isprintable()


def test_detach_refused(node):
    """Told of a stop, where CRI-O tries again; kept back of a removal, which is the end."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    node.statd.detach = Refusing("internal", "the link is stuck")
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    assert plugin.event(STOP, pod("a", path)) == (
        INTERNAL, "detach of the devices of pod default/pod-a: the link is stuck")
    assert plugin.event(REMOVE, pod("a")) == (0, "")
    assert len([line for line in node.process.log.splitlines() if "detach failed" in line]) == 2


ELSEWHERE = "it is in another network namespace and comes back when that ends"
NOT_TAKEN_BACK = UNAVAILABLE, f"detach of the devices of pod default/pod-a: {ELSEWHERE}"


def test_detach_by_a_statd_that_does_not_know_the_namespace(node):
    """It was started after the sandbox began to end: it is handed the namespace, which is there for as long as the
    runtime waits for us."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.detach = Refusing("busy", ELSEWHERE, times=1)
    assert plugin.event(STOP, pod("a", path)) == (0, "")
    assert node.statd.calls == [("attach", sandbox_id("a")), ("detach", sandbox_id("a"))] * 2
    first, second = node.statd.attaches
    assert first == second


def test_namespace_is_handed_over_once(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.detach = Refusing("busy", ELSEWHERE)
    assert plugin.event(STOP, pod("a", path)) == NOT_TAKEN_BACK
    assert node.statd.calls == [("attach", sandbox_id("a")), ("detach", sandbox_id("a"))] * 2


def test_namespace_that_statd_does_not_take(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.detach, node.statd.attach = Refusing("busy", ELSEWHERE), Refusing("internal", "no")
    assert plugin.event(STOP, pod("a", path)) == NOT_TAKEN_BACK


def test_namespace_that_is_gone_is_not_handed_over(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.netns.remove(path)
    node.statd.detach = Refusing("busy", ELSEWHERE)
    assert plugin.event(STOP, pod("a", path)) == NOT_TAKEN_BACK
    node.statd.wait_calls(("attach", "a"), ("detach", "a"))


def test_unavailable_is_tried_again(node):
    """A manager that restarts is back within the time that the runtime gives."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    node.statd.attach = Refusing("unavailable", "dmgr-dummy is not there", times=3)
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.wait_calls(*[("attach", "a")] * 4)


# --- time


@pytest.mark.parametrize("style", STYLES)
def test_statd_does_not_answer(node, style):
    """The runtime gets an error while it still listens, and the connection is kept."""
    path = node.netns.make("cni-1")
    plugin = node.registered(style)
    held = node.statd.attach = Held({"devices": 1})
    begun = time.monotonic()
    code, text = plugin.event(RUN, pod("a", path))
    took = time.monotonic() - begun
    assert code == UNAVAILABLE
    assert text.startswith("attach of the devices of pod default/pod-a: ")
    assert BUDGET / 2 < took < BUDGET
    held.go.set()
    assert plugin.event(STOP, pod("a", path)) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("detach", "a"))


def test_short_budget(node):
    """Half of it is ours, however short it is."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    node.statd.attach = Held({"devices": 1})
    stream = plugin.send_event(RUN, pod("a", path), timeout=0.2)
    begun = time.monotonic()
    code, _ = plugin.wait_event(stream)
    assert code == UNAVAILABLE
    assert time.monotonic() - begun >= 0.09
    node.statd.attach.go.set()


def test_one_pod_does_not_wait_for_another(node):
    paths = [node.netns.make(f"cni-{i}") for i in range(2)]
    plugin = node.registered()
    held = Held({"devices": 1})
    node.statd.attach = lambda params: held(params) if params["podUID"] == "uid-a" else {"devices": 1}
    first = plugin.send_event(RUN, pod("a", paths[0]))
    assert plugin.event(RUN, pod("b", paths[1])) == (0, "")
    held.go.set()
    assert plugin.wait_event(first) == (0, "")


# --- order


def test_events_without_waiting(node):
    """A client that gave up: stop and removal come while the start is being worked on."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    held = node.statd.attach = Held({"devices": 1})
    streams = [plugin.send_event(event, pod("a", path)) for event in (RUN, STOP, REMOVE)]
    node.statd.wait_calls(("attach", "a"))
    held.go.set()
    assert [plugin.wait_event(stream) for stream in streams] == [(0, "")] * 3
    node.statd.wait_calls(("attach", "a"), ("detach", "a"), ("detach", "a"))


def test_stop_behind_a_start_that_hangs(node):
    """Each is answered in time, and the detach is made, though late."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    held = node.statd.attach = Held({"devices": 1})
    streams = [plugin.send_event(event, pod("a", path)) for event in (RUN, STOP, REMOVE)]
    codes = [plugin.wait_event(stream)[0] for stream in streams]
    assert codes[0] == UNAVAILABLE
    held.go.set()
    node.statd.wait_calls(("attach", "a"), ("detach", "a"), ("detach", "a"))


def test_start_twice(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("attach", "a"))


def test_stop_without_start(node):
    """As after a restart of ours, or of a runtime that forgot."""
    plugin = node.registered()
    assert plugin.event(STOP, pod("a", pid=0)) == (0, "")
    assert plugin.event(REMOVE, pod("b", pid=0)) == (0, "")
    node.statd.wait_calls(("detach", "a"), ("detach", "b"))


def test_stop_when_the_namespace_is_gone(node):
    """As with CRI-O, which removes it first and tells its path nevertheless."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.netns.remove(path)
    assert plugin.event(STOP, pod("a", path)) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("detach", "a"))


def test_second_sandbox_of_a_pod(node):
    paths = [node.netns.make(f"cni-{i}") for i in range(2)]
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", paths[0], uid="uid-1")) == (0, "")
    assert plugin.event(RUN, pod("b", paths[1], uid="uid-1")) == (0, "")
    assert plugin.event(STOP, pod("a", paths[0], uid="uid-1")) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("attach", "b"), ("detach", "a"))
    assert [a["inode"] for a in node.statd.attaches] == [os.stat(path).st_ino for path in paths]


# --- containers


@pytest.mark.parametrize("style", STYLES)
def test_container_of_pod_that_is_known(node, style):
    """Answered from memory, statd or no statd."""
    path = node.netns.make("cni-1")
    plugin = node.registered(style, pods=[pod("listed", path)])
    node.statd.attach = lambda params: {"devices": int(params["podUID"] == "uid-a")}
    known = [pod("a", path), pod("idle", path)]
    for told in known:
        assert plugin.event(RUN, told) == (0, "")
    known += [pod("listed", path), pod("host"), {**pod("other", path), "uid": ""}]
    for told in known:
        assert plugin.event(CREATE, told) == (0, "")
    node.stop_statd()
    node.process.wait_log("lost statd")
    for told in known:
        assert plugin.event(CREATE, told) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("attach", "idle"))
    assert node.statd.checks == []


@pytest.mark.parametrize("style", STYLES)
def test_container_of_sandbox_that_lacks_its_devices(node, style):
    """An attach is tried once more for each, until one succeeds."""
    path = node.netns.make("cni-1")
    plugin = node.registered(style, version=LEAKY)
    node.statd.attach = Refusing("conflict", "device dummy0: interface 'net1' is taken")
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    for _ in range(2):
        assert plugin.event(CREATE, pod("a", path)) == (
            FAILED_PRECONDITION,
            "attach of the devices of pod default/pod-a: device dummy0: interface 'net1' is taken")
    node.statd.attach = lambda params: {"devices": 1}
    for _ in range(2):
        assert plugin.event(CREATE, pod("a", path)) == (0, "")
    node.statd.wait_calls(*[("attach", "a")] * 4)
    assert plugin.event(STOP, pod("a", path)) == (0, "")


@pytest.mark.parametrize("name,version,defers", [
    ("containerd", "1.7.24~ds1", False), ("containerd", "2.1.9+unknown", True), ("containerd", "2.2.5", True),
    ("containerd", "2.2.6", False), ("containerd", "", True), ("cri-o", "1.35.0", False)])
def test_first_gate(node, name, version, defers):
    """Where a refused sandbox would stay behind it is not refused; its containers are everywhere."""
    path = node.netns.make("cni-1")
    node.runtime.listen()
    node.start()
    plugin = node.runtime.accept_raw()
    plugin.read_registration()
    stream = plugin.send("Configure", pb.encode(nri_wire.CONFIGURE, {
        "runtime_name": name, "runtime_version": version}))
    plugin.answer_registration()
    plugin.wait_configured(stream)
    plugin.synchronize()
    node.process.wait_log("when the devices of a pod cannot be attached, its sandbox "
                          + ("stands and its containers are refused, because" if defers else "is refused"))
    node.statd.attach = Refusing("internal")
    code, _ = plugin.event(RUN, pod("a", path))
    assert code == (0 if defers else INTERNAL)
    node.process.wait_log("attach failed: the sandbox "
                          + ("stands, its containers are refused" if defers else "is refused")
                          + " pod=uid-a sandbox=a0.*err=\"it will not go\"")
    assert plugin.event(CREATE, pod("a", path))[0] == INTERNAL
    node.process.wait_log("attach failed: the container is refused pod=uid-a")


def test_container_while_statd_does_not_answer(node):
    """Refused in time, and the answer that comes late does no harm."""
    path = node.netns.make("cni-1")
    plugin = node.registered(version=LEAKY)
    held = node.statd.attach = Held({"devices": 1})
    for event in (RUN, CREATE):
        begun = time.monotonic()
        code, _ = plugin.event(event, pod("a", path))
        assert time.monotonic() - begun < BUDGET
        assert code == (UNAVAILABLE if event == CREATE else 0)
    held.go.set()
    assert plugin.event(CREATE, pod("a", path)) == (0, "")


def test_container_while_statd_is_away(node):
    """A pod that statd said nothing of yet may have devices, so it has to wait; others do not."""
    path = node.netns.make("cni-1")
    plugin = node.registered(pods=[pod("old", path)], version=LEAKY)
    node.stop_statd()
    node.process.wait_log("lost statd")
    assert plugin.event(RUN, pod("new", path)) == (0, "")
    for ident in ("new", "unheard-of"):
        code, text = plugin.event(CREATE, pod(ident, path))
        assert code == UNAVAILABLE
        assert text == (f"attach of the devices of pod default/pod-{ident}: whether it has any is not known: "
                        "statd is not running")
    assert plugin.event(CREATE, pod("old", path)) == (0, "")
    node.serve()
    node.statd.wait_syncs(2)
    for ident in ("new", "unheard-of"):
        assert plugin.event(CREATE, pod(ident, path)) == (0, "")


def test_statd_is_away_for_long(node):
    """Nothing is waited for then: the runtime serves one pod at a time."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    node.stop_statd()
    node.process.wait_log("lost statd")

    def is_quick():
        begun = time.monotonic()
        assert plugin.event(CREATE, pod("a", path))[0] == UNAVAILABLE
        return time.monotonic() - begun < BUDGET / 4
    assert not is_quick()
    wait_for(is_quick, 15, "a quick answer")
    # as soon as it is there again, that is over
    node.serve()
    wait_for(lambda: plugin.event(CREATE, pod("a", path)) == (0, ""), what="a container")


def test_container_of_sandbox_that_is_not_listed(node):
    """Started while nobody listened, and old containerd forgot to list it."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    plugin = node.registered()
    node.statd.attach = Refusing("internal", times=1)
    assert plugin.event(CREATE, pod("a", path))[0] == INTERNAL
    assert plugin.event(CREATE, pod("a", path)) == (0, "")
    assert plugin.event(STOP, pod("a")) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("attach", "a"), ("detach", "a"))


def test_container_waits_for_the_late_attach(node):
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    held = node.statd.attach = Held({"devices": 1})
    plugin = node.registered(pods=[pod("a", path)])
    node.statd.wait_calls(("attach", "a"))
    stream = plugin.send_event(CREATE, pod("a", path))
    # what comes after it has been served, so it has been taken
    assert plugin.event(CREATE, pod("host")) == (0, "")
    assert stream not in plugin.answers
    held.go.set()
    assert plugin.wait_event(stream) == (0, "")
    node.statd.wait_calls(("attach", "a"))


def test_container_does_not_wait_for_others_late_attaches(node):
    """These are a few at a time, and it needs its own now."""
    path = node.netns.make("cni-1")
    idents = [f"p{i}x" for i in range(20)]
    node.statd.wanted = {f"uid-{ident}" for ident in idents}
    held = Held({"devices": 1})
    node.statd.attach = lambda params: {"devices": 1} if params["podUID"] == wanted else held(params)
    wanted = None
    plugin = node.registered(pods=[pod(ident, path) for ident in idents])
    wait_for(lambda: node.statd.busy == 16, what="16 attaches at statd")
    wanted = (node.statd.wanted - {attach["podUID"] for attach in node.statd.attaches}).pop()
    begun = time.monotonic()
    assert plugin.event(CREATE, pod(wanted.removeprefix("uid-"), path)) == (0, "")
    assert time.monotonic() - begun < BUDGET / 2  # and not when the others have given up
    held.go.set()
    wait_for(lambda: len(node.statd.attached) == 20, what="20 attaches")


def test_container_behind_a_late_attach_that_hangs(node):
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    held = node.statd.attach = Held({"devices": 1})
    plugin = node.registered(pods=[pod("a", path)])
    node.statd.wait_calls(("attach", "a"))
    code, text = plugin.event(CREATE, pod("a", path), timeout=0.4 * STRETCH)
    assert code == UNAVAILABLE
    assert "not done within the runtime's time" in text
    held.go.set()
    assert plugin.event(CREATE, pod("a", path)) == (0, "")


def test_container_after_a_late_attach_that_failed(node):
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    node.statd.attach = Refusing("conflict", "taken")
    plugin = node.registered(pods=[pod("a", path)])
    node.process.wait_log("late attach failed")
    assert plugin.event(CREATE, pod("a", path)) == (
        FAILED_PRECONDITION, "attach of the devices of pod default/pod-a: taken")
    node.statd.attach = lambda params: {"devices": 1}
    assert plugin.event(CREATE, pod("a", path)) == (0, "")


def test_late_attach_without_an_answer_is_asked_for_again(node):
    """Nobody else would: the runtime has told its sandboxes, and the pod's containers run."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    held = node.statd.attach = Held({"devices": 1})
    node.registered(pods=[pod("a", path)])
    node.process.wait_log("late attach failed.*sandbox=a0", 10)
    assert len(node.statd.syncs) == 1
    node.statd.attach = lambda params: {"devices": 1}
    held.go.set()
    wait_for(lambda: len(node.statd.syncs) >= 2, 10, "a second pod.sync")


def test_container_after_a_start_that_was_cut_off(node):
    """The runtime has lost patience and runs the sandbox; the attach came to nothing."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    held = node.statd.attach = Held({"devices": 1})
    plugin.send_event(RUN, pod("a", path))
    node.statd.wait_calls(("attach", "a"))
    plugin.close()
    plugin = node.again([pod("a", path)])
    node.statd.attach = Refusing("internal", times=1)
    assert plugin.event(CREATE, pod("a", path))[0] != 0
    held.go.set()
    wait_for(lambda: plugin.event(CREATE, pod("a", path)) == (0, ""), what="a container")


def test_answer_of_statd_that_is_out_of_date(node):
    """Asked before the sandbox was started again, told after that had failed."""
    path = node.netns.make("cni-1")
    plugin = node.registered(version=LEAKY)
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.sync_goes.clear()
    node.runtime.stop()
    node.runtime.listen()
    plugin = node.again([pod("a", path)], version=LEAKY)
    node.statd.attach = Refusing("internal")
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.sync_goes.set()
    # the next answer on the same connection comes after that one
    assert plugin.event(RUN, pod("b", path)) == (0, "")
    assert plugin.event(CREATE, pod("a", path))[0] == INTERNAL


def test_missing_devices_that_a_newer_sandbox_was_given_meanwhile(node):
    """The older one would take them from it; what it lacks is asked for anew."""
    path = node.netns.make("cni-1")
    node.registered()
    node.statd.wanted = {"uid-a"}
    node.statd.sync_goes.clear()
    node.runtime.stop()
    node.runtime.listen()
    plugin = node.again([pod("a", path)])
    assert plugin.event(RUN, pod("b", path, uid="uid-a")) == (0, "")
    node.statd.wanted = set()
    syncs = len(node.statd.syncs)
    node.statd.sync_goes.set()
    node.statd.wait_syncs(syncs + 1)
    assert plugin.event(CREATE, pod("b", path, uid="uid-a")) == (0, "")
    node.statd.wait_calls(("attach", "b"))


def test_late_attach_that_a_newer_sandbox_overtakes(node):
    """It waits for a manager while the other sandbox starts, and must not take the devices from it then."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    node.statd.attach = Refusing("unavailable")
    plugin = node.registered(pods=[pod("a", path)])
    wait_for(lambda: len(node.statd.calls) >= 2, what="a late attach that is tried again")
    number = plugin.send_event(RUN, pod("b", path, uid="uid-a"))
    wait_for(lambda: ("attach", sandbox_id("b")) in node.statd.calls, what="the other sandbox")
    node.statd.wanted = set()
    node.statd.attach = lambda params: {"devices": 1}
    assert plugin.wait_event(number) == (0, "")
    node.statd.wait_syncs(2)
    after = node.statd.calls[node.statd.calls.index(("attach", sandbox_id("b"))):]
    assert set(after[1:]) == {("attach", sandbox_id("b"))}, "the older one has no turn any more"


def test_two_sandboxes_of_a_pod_that_both_lack_devices(node):
    """Both are asked for at once: neither is known to be the newer one."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    node.registered(pods=[pod("a", path), pod("b", path, uid="uid-a")])
    wait_for(lambda: len(node.statd.calls) >= 2, what="two late attaches")
    assert sorted(node.statd.calls) == [("attach", sandbox_id("a")), ("attach", sandbox_id("b"))]
    assert len(node.statd.syncs) == 1


def test_statd_that_restarts_misses_devices(node):
    """What was in place is not any more, once it says so."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.stop_statd()
    node.process.wait_log("lost statd")
    assert plugin.event(CREATE, pod("a", path)) == (0, "")
    node.statd.attach = Refusing("internal")
    node.serve()
    node.process.wait_log("late attach failed")
    assert plugin.event(CREATE, pod("a", path))[0] == INTERNAL


def test_container_of_sandbox_that_stops(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    held = node.statd.attach = Held({"devices": 1})
    streams = [plugin.send_event(event, pod("a", path)) for event in (RUN, STOP, CREATE)]
    node.statd.wait_calls(("attach", "a"))
    held.go.set()
    assert [plugin.wait_event(stream) for stream in streams[:2]] == [(0, "")] * 2
    code, text = plugin.wait_event(streams[2])
    assert (code, text) == (FAILED_PRECONDITION,
                            "attach of the devices of pod default/pod-a: the sandbox has stopped")
    node.statd.wait_calls(("attach", "a"), ("detach", "a"))


@pytest.mark.parametrize("action", ["refuse", "log"])
def test_on_attach_failure(node, action):
    path = node.netns.make("cni-1")
    node.runtime.listen()
    node.start("--on-attach-failure", action)
    plugin = node.runtime.accept().synchronize()
    node.statd.attach = Refusing("conflict", "device dummy0: it is taken")
    code = FAILED_PRECONDITION if action == "refuse" else 0
    assert plugin.event(RUN, pod("a", path))[0] == code
    assert plugin.event(CREATE, pod("a", path))[0] == code
    assert plugin.event(RUN, {**pod("b", path), "id": "../b"})[0] == code
    if action == "log":
        node.process.wait_log("cannot be attached, it runs without them, as --on-attach-failure says")
    what = (("the sandbox is refused", "the container is refused") if action == "refuse" else
            ("the pod runs without its devices", "the container runs without the pod's devices"))
    for consequence in what:
        node.process.wait_log(f"error nrihookd: attach failed: {consequence} pod=uid-a sandbox=a0* namespace=default "
                              'name=pod-a err="device dummy0: it is taken"')
    node.process.wait_log(f"error nrihookd: an event of the runtime's is not taken: {what[0]} pod=uid-b")
    # a stop goes the same way whatever is chosen
    node.statd.detach = Refusing("internal")
    assert plugin.event(STOP, pod("a", path))[0] == INTERNAL


# --- the node's own record


def at_once(plugin, *events):
    """(event, pod) each: that it is let through, without waiting."""
    for event, told in events:
        begun = time.monotonic()
        assert plugin.event(event, told) == (0, "")
        assert time.monotonic() - begun < BUDGET / 4


BRIEF = 0.4 * STRETCH  # for an event that is refused when its time is up


def life(told):
    return [(event, told) for event in (RUN, CREATE, CREATE, STOP, REMOVE)]


def refused(plugin, told):
    other = {**told, "id": sandbox_id("other")}  # the first is gone when its start is refused
    for event, about in (RUN, told), (CREATE, other), (STOP, told):
        code, text = plugin.event(event, about, BRIEF)
        assert code == UNAVAILABLE
        assert text.endswith("statd is not running")


@pytest.mark.parametrize("style", STYLES)
def test_pod_that_the_record_does_not_name(node, style):
    """It passes without a call, and whether statd is there or not."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    node.statd.name("uid-b")
    plugin = node.registered(style, pods=[pod("old", path)])
    assert node.statd.wait_state("registered")["detail"] == f"containerd {VERSIONS[style]}"
    at_once(plugin, *life(pod("a", path)))
    node.stop_statd()
    node.process.wait_log("lost statd")
    at_once(plugin, *life(pod("a2", path)), (STOP, pod("old", pid=0)), (CREATE, pod("unheard-of", path)))
    refused(plugin, pod("b", path))
    node.statd.wait_calls()


def test_pod_that_the_record_names(node):
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    node.statd.name("uid-a")
    plugin = node.registered(version=LEAKY)
    node.statd.attach = Refusing("conflict", "taken", times=1)
    for event in RUN, CREATE, CREATE, STOP, REMOVE:
        assert plugin.event(event, pod("a", path)) == (0, "")
    node.statd.wait_calls(*[("attach", "a")] * 2, *[("detach", "a")] * 2)


def test_pod_that_the_record_does_not_name_any_more(node):
    """What was attached is detached nevertheless, and what failed stays refused."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    for uid in "uid-a", "uid-b":
        node.statd.name(uid)
    plugin = node.registered(version=LEAKY)
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.attach = Refusing("conflict", "taken")
    assert plugin.event(RUN, pod("b", path)) == (0, "")
    for uid in "uid-a", "uid-b":
        node.statd.forget(uid)
    assert plugin.event(CREATE, pod("b", path))[0] == FAILED_PRECONDITION
    for ident in "a", "b":
        assert plugin.event(STOP, pod(ident)) == (0, "")
    node.statd.wait_calls(("attach", "a"), *[("attach", "b")] * 2, ("detach", "a"), ("detach", "b"))


@pytest.mark.parametrize("style", STYLES)
def test_pod_on_the_hosts_network_that_the_record_names(node, style):
    """A device that would have to be moved is not in it; one without a link is of no concern here."""
    node.statd.keep_record()
    for uid in "uid-a", "uid-b", "uid-c":
        node.statd.name(uid)
    node.statd.wanted = {"uid-a"}
    plugin = node.registered(style)
    for event in RUN, CREATE:
        code, text = plugin.event(event, pod(f"a{event}", netns="", uid="uid-a"))
        assert (code, text) != (0, "") and "hostNetwork: true" in text, (event, code, text)
    for event in RUN, CREATE, CREATE, STOP, REMOVE:
        assert plugin.event(event, pod("b", netns="")) == (0, "")
    assert node.statd.calls == [], "there is nothing to be taken back"
    node.stop_statd()
    node.process.wait_log("lost statd")
    at_once(plugin, *life(pod("d", netns="")))
    for event in RUN, CREATE:
        assert plugin.event(event, pod(f"c{event}", netns="", uid="uid-c"), BRIEF)[0] == UNAVAILABLE


def test_late_attach_of_a_pod_that_the_record_does_not_name(node):
    """statd's own word goes before it."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    node.statd.wanted = {"uid-a"}
    node.statd.attach = Refusing("conflict", "taken")
    plugin = node.registered(pods=[pod("a", path)])
    node.process.wait_log("late attach failed")
    assert plugin.event(CREATE, pod("a", path))[0] == FAILED_PRECONDITION
    assert plugin.event(STOP, pod("a")) == (0, "")
    node.statd.wait_calls(*[("attach", "a")] * 2, ("detach", "a"))


def replace_directory(node):
    node.statd.state_dir.rename(node.dir / "elsewhere")
    (node.dir / "state/pods").mkdir(parents=True)


def remove_directory(node):
    node.statd.state_dir.rename(node.dir / "elsewhere")


def remove_pods(node):
    (node.statd.state_dir / "pods").rmdir()


def make_pods_a_file(node):
    remove_pods(node)
    (node.statd.state_dir / "pods").touch()


SPOILT = [(replace_directory, "state is not the state directory of statd"),
          (remove_directory, "No such file"), (remove_pods, "state/pods/: No such file"),
          (make_pods_a_file, "state/pods/: Not a directory")]


@pytest.mark.parametrize("spoil,message", SPOILT)
def test_record_that_is_spoilt_while_statd_is_away(node, spoil, message):
    """It is not believed: what is missing there may have been named in the right one."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    plugin = node.registered()
    node.stop_statd()
    node.process.wait_log("lost statd")
    spoil(node)
    assert plugin.event(RUN, pod("a", path), BRIEF)[0] == UNAVAILABLE
    node.process.wait_log(f"no use of the node's record: while statd is away, new pods wait for it.*{message}")
    assert node.process.log.count("no use of the node's record") == 1


@pytest.mark.parametrize("spoil,message", SPOILT)
def test_record_that_is_spoilt(node, spoil, message):
    """statd is asked instead, and shows why."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    plugin = node.registered()
    spoil(node)
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.wait_calls(("attach", "a"))
    wait_for(lambda: message in node.statd.states[-1]["detail"], what="the problem in front.state")


def test_record_that_is_mended(node):
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    plugin = node.registered()
    node.stop_statd()
    node.process.wait_log("lost statd")
    replace_directory(node)
    assert plugin.event(RUN, pod("a", path), BRIEF)[0] == UNAVAILABLE
    (node.dir / "state").rename(node.dir / "wrong")
    (node.dir / "elsewhere").rename(node.dir / "state")
    at_once(plugin, *life(pod("b", path)))
    node.process.wait_log("the node's record can be read")


def no_record(node):
    return ()


def other_directory(node):
    node.statd.keep_record()
    (node.dir / "other/pods").mkdir(parents=True)
    return "--state-dir", node.dir / "other"


def missing_directory(node):
    node.statd.keep_record()
    return "--state-dir", node.dir / "none"


@pytest.mark.parametrize("make,message", [
    (no_record, "this statd does not report a state directory: update it"),
    (other_directory, "other is not the state directory of statd: give both the same --state-dir"),
    (missing_directory, "none: No such file")])
def test_no_record(node, make, message):
    """As before there was one: statd is asked for every pod, and waited for."""
    path = node.netns.make("cni-1")
    node.runtime.listen()
    node.start(*make(node))
    plugin = node.runtime.accept().synchronize()
    node.process.wait_log(f"no use of the node's record.*{message}")
    assert message in node.statd.wait_state("registered")["detail"]
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.stop_statd()
    node.process.wait_log("lost statd")
    assert plugin.event(RUN, pod("b", path), BRIEF)[0] == UNAVAILABLE
    node.statd.wait_calls(("attach", "a"))


def test_state_directory_elsewhere(node):
    path = node.netns.make("cni-1")
    node.statd.keep_record(node.dir / "elsewhere")
    node.runtime.listen()
    node.start("--state-dir", node.dir / "elsewhere")
    at_once(node.runtime.accept().synchronize(), *life(pod("a", path)))
    node.statd.wait_calls()


def test_record_of_a_statd_that_restarts(node):
    """The same directory stays believed while statd is not ready; a new one may lack names until it is."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    plugin = node.registered()
    node.stop_statd()
    node.statd.settings["ready"] = False
    node.serve()
    wait_for(lambda: len(node.statd.hellos) == 2, what="the second hello")
    at_once(plugin, *life(pod("a", path)))
    node.stop_statd()
    node.statd.state_dir.rename(node.dir / "old")
    node.statd.keep_record()
    node.serve()
    wait_for(lambda: len(node.statd.states) and len(node.statd.hellos) == 3, what="the third hello")
    code, text = plugin.event(RUN, pod("b", path), BRIEF)
    assert code == UNAVAILABLE and "statd is not ready yet" in text
    node.statd.name("uid-b")
    node.statd.ready()
    node.process.wait_log("statd is ready(.*\n)*.*statd is ready")
    assert plugin.event(RUN, pod("b", path)) == (0, "")
    at_once(plugin, *life(pod("c", path)))
    node.statd.wait_calls(("attach", "b"))


# --- claims that a container was given


def files(*claims, kubelet="/var/lib/kubelet", driver=DRIVER, request="net"):
    """The sources of the mounts that containers get."""
    return [f"{kubelet}/plugins/{driver}/dra-device-metadata/{claim}/{request}/metadata.json" for claim in claims]


IN_USE = "claim default/c1 is in use by pod default/other: give each pod a claim of its own"


@pytest.mark.parametrize("style", STYLES)
def test_container_that_was_given_a_claim_of_another_pod(node, style):
    """The kubelet prepares a claim for the first of its pods: the record does not name the second."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    plugin = node.registered(style)
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.statd.attach = Refusing("conflict", IN_USE)
    for _ in range(2):
        assert plugin.event(CREATE, pod("a", path), mounts=files("default_c1")) == (
            FAILED_PRECONDITION, f"attach of the devices of pod default/pod-a: {IN_USE}")
    # its others were given nothing
    assert plugin.event(CREATE, pod("a", path)) == (0, "")
    node.statd.attach = lambda params: {"devices": 1}
    assert plugin.event(CREATE, pod("a", path), mounts=files("default_c1")) == (0, "")
    assert plugin.event(STOP, pod("a")) == (0, "")
    node.statd.wait_calls(*[("attach", "a")] * 3, ("detach", "a"))
    assert node.statd.claims == [["default_c1"]] * 3


def test_container_of_a_claim_that_is_known(node):
    """What statd has said once of a sandbox and a claim goes for all its containers, statd or no statd."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    node.statd.name("uid-a")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    both = files("default_c1", "default_c2")
    for mounts in both[:1], both, both[:1], both[1:], both + both, ():
        assert plugin.event(CREATE, pod("a", path), mounts=mounts) == (0, "")
    assert node.statd.claims == [[], ["default_c1"], ["default_c1", "default_c2"]]
    node.stop_statd()
    node.process.wait_log("lost statd")
    for mounts in both, both[1:], ():
        at_once(plugin, (CREATE, pod("a", path)))
        assert plugin.event(CREATE, pod("a", path), mounts=mounts) == (0, "")
    code, text = plugin.event(CREATE, pod("a", path), BRIEF, both + files("default_c3"))
    assert code == UNAVAILABLE
    assert text == ("attach of the devices of pod default/pod-a: claims default/c1, default/c2, default/c3: whether "
                    "the devices are there is not known: statd is not running")


def test_container_with_a_claim_while_statd_is_away(node):
    """Refused, though the record does not name the pod; the sandbox and its other containers stand."""
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    plugin = node.registered()
    node.stop_statd()
    node.process.wait_log("lost statd")
    at_once(plugin, (RUN, pod("a", path)))
    uid = "1f0c9dc2-5d5c-4b0c-9e1c-0123456789ab"
    for claim, name in ("default_c1", "default/c1"), (uid, uid):
        code, text = plugin.event(CREATE, pod("a", path), BRIEF, files(claim))
        assert code == UNAVAILABLE
        assert text == (f"attach of the devices of pod default/pod-a: claim {name}: whether the devices are there is "
                        "not known: statd is not running")
    at_once(plugin, (CREATE, pod("a", path)))
    # back in time, it decides
    stream = plugin.send_event(CREATE, pod("a", path), mounts=files("default_c1"))
    node.serve()
    assert plugin.wait_event(stream) == (0, "")


def test_claim_without_a_namespace_to_attach_to(node):
    """As pod.attach would, pod.check names the claims."""
    path = node.netns.directory / "gone"
    node.statd.keep_record()
    plugin = node.registered()
    assert plugin.event(CREATE, pod("a", path), mounts=files("default_c1")) == (0, "")
    node.statd.wanted.add("uid-b")
    code, text = plugin.event(CREATE, pod("b", path), mounts=files("default_c1"))
    assert code == FAILED_PRECONDITION and "No such file" in text
    assert node.statd.claims == [["default_c1"]] * 2


def test_claims_that_a_new_start_forgets(node):
    """So does statd's word that devices are missing."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    for _ in range(2):
        assert plugin.event(RUN, pod("a", path)) == (0, "")
        assert plugin.event(CREATE, pod("a", path), mounts=files("default_c1")) == (0, "")
    node.statd.wanted = {"uid-a"}
    node.stop_statd()
    node.serve()
    node.statd.wait_syncs(2)
    node.process.wait_log("late attach: 1 devices")
    assert plugin.event(CREATE, pod("a", path), mounts=files("default_c1")) == (0, "")
    assert node.statd.claims == [[], ["default_c1"]] * 3


def test_mounts_that_show_no_claim(node):
    path = node.netns.make("cni-1")
    node.statd.keep_record()
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    mine = files("default_c1")[0]
    for source in (*files("default_c1", driver="other.example"), *files("default_c1", kubelet="/kubelet"),
                   *files("..", "a/b", ".", "Default_c1"), *files("default_c1", request=".."), f"/host{mine}",
                   mine.removeprefix("/"), f"{mine}.tmp", mine.removesuffix("/net/metadata.json"), b"\xff" * 5000):
        assert plugin.event(CREATE, pod("a", path), mounts=[source]) == (0, "")
    assert plugin.event(CREATE, pod("a", path), mounts=[f"/{'x' * 300}"] * 2000) == (0, "")
    node.statd.wait_calls()


def test_container_with_too_many_claims(node):
    """No pod can have so many; nothing of it is believed."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    code, text = plugin.event(CREATE, pod("a", path), mounts=files(*(f"default_c{i}" for i in range(257))))
    assert (code, text) == (3, "the payload cannot be read: a container with too many claims")
    assert plugin.event(CREATE, pod("a", path), mounts=files(*(f"default_c{i}" for i in range(256)))) == (0, "")
    assert len(node.statd.claims[0]) == 256


@pytest.mark.parametrize("given", ["/k", "/k/"])
def test_kubelet_directory_elsewhere(node, given):
    path = node.netns.make("cni-1")
    node.runtime.listen()
    node.start("--kubelet-dir", given)
    plugin = node.runtime.accept().synchronize()
    for mounts in files("default_c1"), files("default_c2", kubelet="/k"):
        assert plugin.event(CREATE, pod("a", path), mounts=mounts) == (0, "")
    assert node.statd.claims == [[], ["default_c2"]]


# --- the runtime's list of sandboxes


def test_empty_node(node):
    """A list without a single byte."""
    node.runtime.listen()
    node.start()
    plugin = node.runtime.accept()
    assert plugin.wait(plugin.send("Synchronize", b"")) == {}
    assert node.statd.wait_syncs(1) == set()


def test_list_in_parts(node):
    """All of a large node, and only those that live; late attach for one that was missed."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-late", "uid-dead", "uid-stale"}
    node.runtime.listen()
    node.start()
    pods = [pod(f"x{i}", annotations={"a": "b" * 1000}) for i in range(25)]
    pods += [pod("late", path), pod("idle", path), pod("dead", path, pid=0), pod("stale", "/no/such")]
    node.runtime.accept().synchronize(pods, per_message=10)
    assert node.statd.wait_syncs(1) == {"late", "idle"}
    node.statd.wait_calls(("attach", "late"))
    assert node.statd.attaches[0]["inode"] == os.stat(path).st_ino
    node.process.wait_log("late attach: 1 devices")


def test_sandboxes_without_process(node):
    """CRI-O's have none, containerd's are dead then."""
    path = node.netns.make("cni-1")
    plugin = node.registered(pods=[pod("a", path, pid=0)], name="cri-o", version="1.35.0")
    assert node.statd.wait_syncs(1) == {"a"}
    plugin.close()
    node.again([pod("a", path, pid=0)], name="containerd")
    assert node.statd.wait_syncs(2) == set()


def test_late_attaches_are_a_few_at_a_time(node):
    path = node.netns.make("cni-1")
    idents = [f"p{i}x" for i in range(60)]
    node.statd.wanted = {f"uid-{ident}" for ident in idents}
    held = node.statd.attach = Held({"devices": 1})
    node.registered(pods=[pod(ident, path) for ident in idents])
    wait_for(lambda: node.statd.busy == 16, what="16 attaches at statd")
    held.go.set()
    wait_for(lambda: len(node.statd.attached) == 60, what="60 attaches")
    assert node.statd.busiest == 16
    assert len(node.statd.calls) == 60


def test_live_pod_whose_namespace_is_not_seen(node):
    """It lives, whatever we see of it: statd must not take its devices back."""
    path = make_plain_file(node)
    node.statd.wanted = {"uid-a"}
    node.registered(pods=[pod("a", path), pod("b", path)])
    assert node.statd.wait_syncs(1) == {"a", "b"}
    node.process.wait_log("late attach failed: .*sandbox=a0.*mount propagation missing")
    node.statd.wait_calls()


def test_late_attach_refused(node):
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    node.statd.attach = Refusing("conflict", "taken")
    plugin = node.registered(pods=[pod("a", path)])
    node.process.wait_log("late attach failed: the pod runs without its devices .*sandbox=a0.*err=taken")
    assert plugin.event(STOP, pod("a")) == (0, "")


def test_pods_that_the_list_lacks_are_forgotten(node):
    """A runtime that restarts does not tell what stopped meanwhile."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    for ident in ("a", "b"):
        assert plugin.event(RUN, pod(ident, path)) == (0, "")
    node.runtime.stop()
    node.runtime.listen()
    node.again([pod("b", path)])
    assert node.statd.wait_syncs(2) == {"b"}


# --- the runtime comes and goes


def test_runtime_is_not_there_yet(node):
    node.start()
    node.process.wait_log("cannot register.*No such file")
    assert "No such file" in node.statd.wait_state("connecting")["detail"]
    node.runtime.listen()
    node.runtime.accept().synchronize()
    node.statd.wait_state("registered")


def test_runtime_leaves_its_socket_behind(node):
    node.runtime.listen()
    node.runtime.stop()
    node.start()
    node.process.wait_log("cannot register.*Connection refused")
    node.runtime.listen()
    node.runtime.accept().synchronize()


def close_at_once(plugin):
    plugin.close()


def close_after_registration(plugin):
    plugin.read_registration()
    plugin.close()


def close_after_answer(plugin):
    plugin.read_registration()
    plugin.answer_registration()
    plugin.close()


def close_after_configure(plugin):
    plugin.register()
    plugin.close()


def close_between_parts(plugin):
    plugin.register()
    plugin.wait(plugin.send("Synchronize", pb.encode(
        nri_wire.SYNCHRONIZE, {"pods": [pod("old", "/no/such")], "more": 1})))
    plugin.close()


def close_in_a_frame(plugin):
    plugin.register()
    plugin.sock.sendall(nri_wire.MUX_HEADER.pack(1, 100) + b"\0" * 50)
    plugin.close()


def close_after_list(plugin):
    plugin.register().synchronize()
    plugin.close()


@pytest.mark.parametrize("end", [
    close_at_once, close_after_registration, close_after_answer, close_after_configure, close_between_parts,
    close_in_a_frame, close_after_list])
def test_runtime_closes(node, end):
    path = node.netns.make("cni-1")
    node.runtime.listen()
    node.start()
    end(node.runtime.accept_raw())
    plugin = node.runtime.accept().synchronize([pod("new", path)])
    wait_for(lambda: node.statd.syncs and node.statd.syncs[-1] == [("uid-new", sandbox_id("new"))],
             what="the list of the new connection")
    assert plugin.event(STOP, pod("new")) == (0, "")


def test_runtime_closes_during_a_hook(node):
    """What it started without waiting is attached late, once, and the old answer goes nowhere."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    plugin = node.registered()
    held = node.statd.attach = Held({"devices": 1})
    plugin.send_event(RUN, pod("a", path))
    node.statd.wait_calls(("attach", "a"))
    plugin.close()
    plugin = node.runtime.accept().synchronize([pod("a", path)])
    assert node.statd.wait_syncs(2) == {"a"}
    held.go.set()
    assert plugin.event(STOP, pod("a")) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("detach", "a"))


def test_registration_refused(node):
    """The runtime leaves such a connection open, and useless."""
    node.runtime.listen()
    node.start()
    plugin = node.runtime.accept_raw()
    plugin.read_registration()
    plugin.answer_registration(2, "invalid plugin index")
    plugin.wait_closed()
    node.process.wait_log("cannot register.*invalid plugin index")
    node.runtime.accept().synchronize()
    node.statd.wait_state("registered")


def test_list_that_cannot_be_read(node):
    """An old runtime would keep the connection and never call again."""
    node.runtime.listen()
    node.start()
    plugin = node.runtime.accept()
    assert plugin.wait(plugin.send("Synchronize", b"\x0a\xff\xff\xff\x7f"))["status"]["code"] == 3
    plugin.wait_closed()
    node.runtime.accept().synchronize()


@pytest.mark.parametrize("data", [
    nri_wire.MUX_HEADER.pack(1, (16 << 20) + 11),
    nri_wire.MUX_HEADER.pack(1, 10) + nri_wire.TTRPC_HEADER.pack(1 << 24, 3, 1, 0),
], ids=["frame", "message"])
def test_too_long(node, data):
    plugin = node.registered()
    plugin.sock.sendall(data)
    plugin.wait_closed()
    node.process.wait_log("lost the container runtime.*at most")
    node.runtime.accept().synchronize()


def test_list_of_6_megabytes(node):
    """Containerd up to 1.7.25 sends what it says nobody may."""
    path = node.netns.make("cni-1")
    pods = [pod(f"p{i}x", path, annotations={"a": "b" * 400_000}) for i in range(15)]
    plugin = node.registered("0.6", pods)
    assert len(node.statd.syncs[-1]) == 15
    assert plugin.event(RUN, pod("a", path)) == (0, "")


# --- statd comes and goes


def test_statd_is_not_ready(node):
    """No runtime gets to see a plugin that could not answer."""
    node.statd.settings["ready"] = False
    node.runtime.listen()
    node.start()
    assert node.statd.wait_state("waiting")["detail"].startswith("for statd")
    with pytest.raises(TimeoutError):
        node.runtime.accept_raw(timeout=0.3)
    node.statd.ready()
    node.runtime.accept().synchronize()
    node.statd.wait_state("registered")


def test_statd_restarts(node):
    """It gets the namespaces again, and the runtime does not notice."""
    path = node.netns.make("cni-1")
    node.statd.wanted = {"uid-a"}
    plugin = node.registered()
    for ident in ("a", "b"):
        assert plugin.event(RUN, pod(ident, path)) == (0, "")
    node.stop_statd()
    node.serve()
    assert node.statd.wait_syncs(2) == {"a", "b"}
    node.statd.wait_calls(("attach", "a"), ("attach", "b"), ("attach", "a"))
    assert len(node.statd.hellos) == 2
    assert node.statd.wait_state("registered")
    assert plugin.event(STOP, pod("a")) == (0, "")


def test_statd_is_back_in_time(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    node.stop_statd()
    node.process.wait_log("lost statd")
    streams = [plugin.send_event(RUN, pod("a", path)), plugin.send_event(STOP, pod("b"))]
    node.serve()
    assert [plugin.wait_event(stream) for stream in streams] == [(0, ""), (0, "")]
    assert sorted(node.statd.calls) == [("attach", sandbox_id("a")), ("detach", sandbox_id("b"))]


def test_statd_ends_during_an_attach(node):
    """The call is repeated at its successor: a second attach does no harm."""
    path = node.netns.make("cni-1")
    plugin = node.registered()
    held = node.statd.attach = Held({"devices": 1})
    stream = plugin.send_event(RUN, pod("a", path))
    node.statd.wait_calls(("attach", "a"))
    node.stop_statd()
    node.statd.attach = lambda params: {"devices": 1}
    node.serve()
    assert plugin.wait_event(stream) == (0, "")
    node.statd.wait_calls(("attach", "a"), ("attach", "a"))
    held.go.set()


@pytest.mark.parametrize("event", [RUN, STOP])
def test_statd_stays_away(node, event):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    node.stop_statd()
    node.process.wait_log("lost statd")
    code, text = plugin.event(event, pod("a", path))
    assert code == UNAVAILABLE
    assert text.startswith(f"{'attach' if event == RUN else 'detach'} of the devices of pod default/pod-a: ")
    assert text.endswith("statd is not running")
    assert plugin.event(RUN, pod("h")) == (0, "")


def test_namespace_that_is_gone_is_not_told(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    assert plugin.event(RUN, pod("a", path)) == (0, "")
    node.netns.remove(path)
    node.stop_statd()
    node.serve()
    assert node.statd.wait_syncs(2) == set()


# --- the process


def test_stop_finishes_what_is_asked(node):
    path = node.netns.make("cni-1")
    plugin = node.registered()
    held = node.statd.attach = Held({"devices": 1})
    stream = plugin.send_event(RUN, pod("a", path))
    node.statd.wait_calls(("attach", "a"))
    node.process.signal(signal.SIGTERM)
    node.process.wait_log("stopping")
    held.go.set()
    assert plugin.wait_event(stream) == (0, "")
    plugin.wait_closed()
    assert node.process.wait_exit() == 0


def test_stop_without_anybody(node):
    """Neither statd nor a runtime has ever been there."""
    process = node.procs.start("nrihookd", "--runtime-dir", node.dir, "--nri-socket", node.nri_socket)
    process.wait_log("ready")
    process.stop()


@pytest.mark.parametrize("args,message", [
    (["--nri-index", "7"], "two digits"),
    (["--nri-index", "ab"], "two digits"),
    (["--nri-socket", "/" + "x" * 107], "at most 107 bytes"),
    (["--netns-dir", "netns"], "not an absolute path"),
    (["--kubelet-dir", "kubelet"], "not an absolute path"),
    (["--statd-user", "nobody-of-that-name"], "no user"),
    (["--on-attach-failure", "ignore"], "refuse or log"),
])
def test_options_refused(node, args, message):
    process = node.procs.start("nrihookd", "--runtime-dir", node.dir, *args)
    assert process.wait_exit() in (1, 2)
    assert message in process.log


def test_privileges(node):
    node.registered()
    status = dict(line.split(":\t", 1) for line in
                  pathlib.Path(f"/proc/{node.process.pid}/status").read_text().splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    if "asan" not in node.procs.build.name:
        assert status["Seccomp"] == "2"
    assert int(status["Threads"]) == 1


# --- the list at the top


def test_list_of_tests_is_right():
    named = re.findall(r"(?:(test_\w+\.py|unit) )?\b(test_\w+|releases_that_leak)\b(?!\.py)", __doc__)
    units = "".join(path.read_text() for path in (ROOT / "tests/unit").glob("*.c"))
    assert len(named) > 50
    for where, name in named:
        if where == "unit":
            assert f"START_TEST({name})" in units
        else:
            here = pathlib.Path(__file__)
            assert f"def {name}(" in (here.with_name(where) if where else here).read_text(), name
