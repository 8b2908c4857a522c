# SPDX-License-Identifier: Apache-2.0
"""The very draplugind, between a kubelet on grpcio and a statd on python3-msgpack."""
import contextlib
import json
import os
import shutil
import signal
import socket
import threading

import grpc
import pytest

import mprpc
from kubelet import (CLAIMS_REQUEST, PREPARE_RESPONSE, REGISTRATION, REGISTRATION_STATUS,
                     REGISTRATION_STATUS_RESPONSE, Client, Kubelet, claim, dra_path)
from procs import STRETCH, wait_for

DRIVER = "networkdriver.cilium.io"
NODE = "worker-1"
UID = "11111111-2222-3333-4444-555555555555"
UID2 = "66666666-7777-8888-9999-000000000000"
SHARE = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
IN_CONTAINER = "/var/run/kubernetes.io/dra-device-attributes"
HEALTH = "/v1alpha1.DRAResourceHealth/NodeWatchResources"


def device(request="net", name="dummy0", if_name="net1", share=None, attributes=None):
    return {"request": request, "pool": NODE, "device": name, "shareID": share, "ifName": if_name,
            "attributes": attributes or {"pool": {"string": "fast-net"}, "deviceManager": {"string": "dummy"}}}


class Statd:
    """What draplugind sees of statd. prepare and unprepare may be replaced by a test."""

    def __init__(self, rundir):
        self.settings = {"driverName": DRIVER, "nodeName": NODE, "retryIntervalMs": 100,
                         "registrationTimeoutMs": 5000 * STRETCH, "maxAttempts": 3, "ready": True}
        self.states = []
        self.hellos = []
        self.calls = []  # (method, claim's uid) in the order of their arrival
        self.prepare = lambda ref: {"devices": [device()]}
        self.unprepare = lambda ref: {}
        self.server = mprpc.Server(rundir / "front.sock", {
            "front.hello": self._hello,
            "front.state": lambda peer, params, fds: self.states.append(params),
            "claim.prepare": lambda peer, params, fds: self._call("prepare", params),
            "claim.unprepare": lambda peer, params, fds: self._call("unprepare", params),
        })

    def _hello(self, peer, params, fds):
        self.hellos.append(params)
        return self.settings

    def _call(self, method, params):
        self.calls.append((method, params["uid"]))
        return getattr(self, method)(params)

    def start(self):
        self.server.start()
        return self

    def stop(self):
        self.server.stop()

    def wait_calls(self, count):
        wait_for(lambda: len(self.calls) >= count, what=f"{count} calls of statd")

    def wait_state(self, state):
        return wait_for(lambda: [s for s in self.states if s["state"] == state][-1:],
                        what=f"state {state}")[0]


class Held:
    """A handler that answers when it is told to."""

    def __init__(self, result):
        self.result = result
        self.go = threading.Event()

    def __call__(self, ref):
        self.go.wait(30 * STRETCH)
        return self.result


class Node:
    """One node: directories, statd, draplugind, kubelet."""

    def __init__(self, rundir, procs):
        self.dir = rundir
        self.procs = procs
        self.kubelet_dir = rundir / "kubelet"
        self.kubelet_dir.mkdir()
        self.cdi_dir = rundir / "cdi"
        self.plugin_dir = self.kubelet_dir / "plugins" / DRIVER
        self.dra_socket = self.plugin_dir / "dra.sock"
        self.statd = Statd(rundir)
        self.kubelet = Kubelet(self.kubelet_dir, DRIVER)
        self.process = None
        self.serving = False

    def serve(self):
        self.statd.start()
        self.serving = True

    def start(self):
        """statd and draplugind."""
        if not self.serving:
            self.serve()
        self.process = self.procs.start("draplugind", "--runtime-dir", self.dir, "--kubelet-dir",
                                        self.kubelet_dir, "--cdi-dir", self.cdi_dir,
                                        "--log-level", "debug")
        return self.process

    def registered(self):
        self.start()
        self.kubelet.register()
        return self.kubelet

    def metadata_path(self, name="c1", request="net", namespace="default"):
        return self.plugin_dir / "dra-device-metadata" / f"{namespace}_{name}" / request / "metadata.json"

    def cdi_path(self, uid=UID, request="net"):
        return self.cdi_dir / f"{DRIVER}_metadata_{uid}_{request}.json"

    def finish(self):
        self.kubelet.close()
        if self.serving:
            self.statd.stop()


@pytest.fixture
def node(rundir, procs):
    n = Node(rundir, procs)
    yield n
    n.finish()


C1 = claim("default", "c1", UID)


def read_stream(path):
    """The objects of a metadata file, each pretty-printed and ended by a newline."""
    text, objects = path.read_text(), []
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        assert text[:end] == json.dumps(value, indent=2) and text[end] == "\n"
        objects.append(value)
        text = text[end + 1:]
    return objects


def generation(path):
    return read_stream(path)[0]["metadata"]["generation"]


def files_below(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


def sockets_of(process):
    """The sockets that a process has open, by inode."""
    found = set()
    for entry in os.listdir(f"/proc/{process.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/{process.pid}/fd/{entry}")
            if target.startswith("socket:"):
                found.add(target)
    return found


def identity(path):
    """Of a file, as long as it is the same file: an inode's number alone is used again."""
    info = os.stat(path)
    return info.st_ino, info.st_ctime_ns


def count_fds(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


# --- registration ------------------------------------------------------------------------------


def test_registers_with_what_the_kubelet_wants_to_know(node):
    node.start()
    node.kubelet.wait_socket()
    client = node.kubelet.registration()
    info = {"type": "DRAPlugin", "name": DRIVER, "endpoint": str(node.dra_socket),
            "supported_versions": ["v1.DRAPlugin", "v1beta1.DRAPlugin"]}
    assert node.kubelet.get_info(client) == info
    assert node.kubelet.get_info(client) == info
    node.statd.wait_state("registering")
    node.kubelet.notify(client)
    client.close()
    node.statd.wait_state("registered")
    assert node.statd.hellos == [{"role": "draplugind", "version": (node.statd.hellos[0]["version"])}]
    assert os.stat(node.plugin_dir).st_mode & 0o777 == 0o750


def test_the_name_by_which_the_kubelet_calls_the_server_does_not_matter(node):
    node.start()
    node.kubelet.wait_socket()
    for authority in ("localhost", "%2Fvar%2Flib%2Fkubelet%2Fx-reg.sock", "anything.example:80"):
        client = Client(node.kubelet.registry_socket, authority).dial()
        assert node.kubelet.get_info(client)["name"] == DRIVER
        client.close()


def test_registers_only_when_statd_is_ready(node):
    node.statd.settings["ready"] = False
    process = node.start()
    peer = node.statd.server.wait_peer()
    process.wait_log("configured by statd")
    assert node.statd.wait_state("waiting")
    assert not os.path.exists(node.kubelet.registry_socket)
    peer.notify("front.ready")
    node.kubelet.register()


def test_waits_for_a_statd_that_comes_later(node):
    process = node.procs.start("draplugind", "--runtime-dir", node.dir, "--kubelet-dir",
                               node.kubelet_dir, "--cdi-dir", node.cdi_dir)
    process.wait_log("cannot reach statd")
    node.serve()
    node.kubelet.register()


def test_recreates_its_sockets_until_the_kubelet_says_yes(node):
    node.statd.settings.update(registrationTimeoutMs=500, maxAttempts=1000)
    process = node.start()
    node.kubelet.wait_socket()
    first = [identity(path) for path in (node.kubelet.registry_socket, node.dra_socket)]
    process.wait_log("did not register the driver in time, recreating the sockets")
    process.wait_log("attempt 2 of 1000")

    def refuse():
        """False when the sockets were taken away in the middle of it."""
        client = node.kubelet.registration()
        with pytest.raises(grpc.RpcError) as refused:
            node.kubelet.notify(client, False, "no such plugin")
        client.close()
        return (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNKNOWN, "no such plugin")

    wait_for(refuse, what="a refusal")
    wait_for(lambda: {"state": "registering", "detail": "no such plugin"} in node.statd.states)
    process.wait_log('recreating the sockets err="no such plugin"')

    def register():
        with contextlib.suppress(grpc.RpcError):
            return node.kubelet.register()

    wait_for(register, what="a registration")
    for path, before in zip((node.kubelet.registry_socket, node.dra_socket), first):
        assert identity(path) != before
    node.statd.wait_state("registered")
    assert node.kubelet.prepare([C1])[UID]["devices"]


def test_gives_up_after_the_last_attempt(node):
    node.statd.settings.update(registrationTimeoutMs=50, retryIntervalMs=10, maxAttempts=2)
    process = node.start()
    assert process.wait_exit() == 1
    assert "the kubelet did not register the driver in 2 attempts" in process.log
    failed = node.statd.wait_state("failed")
    assert "in 2 attempts" in failed["detail"]
    assert not os.path.exists(node.kubelet.registry_socket)
    assert not node.dra_socket.exists()


def test_a_kubelet_that_restarts_finds_everything_as_it_was(node):
    kubelet = node.registered()
    before = identity(kubelet.registry_socket)
    answer = kubelet.prepare([C1])
    kubelet.close()
    kubelet.register()
    assert identity(kubelet.registry_socket) == before
    assert kubelet.prepare([C1]) == answer
    assert generation(node.metadata_path()) == 1


def test_removes_sockets_that_a_crash_left(node):
    for directory, name in ((node.plugin_dir, "dra.sock"),
                            (node.kubelet_dir / "plugins_registry", f"{DRIVER}-reg.sock")):
        directory.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(directory / name))
    process = node.registered() and node.process
    process.kill()
    assert node.dra_socket.exists()
    node.registered()


def test_does_not_remove_what_is_no_socket(node):
    node.plugin_dir.mkdir(parents=True)
    node.dra_socket.write_text("not yours")
    process = node.start()
    assert process.wait_exit() == 1
    assert f"{node.dra_socket}: is there and is not a socket" in process.log
    assert node.dra_socket.read_text() == "not yours"


def test_says_when_a_path_is_too_long_for_a_socket(node):
    node.kubelet_dir = node.dir / ("k" * 80)
    node.kubelet_dir.mkdir()
    process = node.start()
    assert process.wait_exit() == 1
    assert "a socket's path may have at most 107 bytes" in process.log


@pytest.mark.parametrize("argument, complaint", [
    ("relative", "--kubelet-dir relative: must be absolute"),
    ("/nonexistent/kubelet", "--kubelet-dir /nonexistent/kubelet: No such file or directory"),
    ("/dev/null", "--kubelet-dir /dev/null: is not a directory"),
])
def test_refuses_a_kubelet_directory_that_cannot_be_one(procs, argument, complaint):
    process = procs.start("draplugind", "--kubelet-dir", argument)
    assert process.wait_exit() == 1
    assert complaint in process.log


def test_leaves_a_socket_that_is_not_its_own(node):
    kubelet = node.registered()
    os.unlink(kubelet.registry_socket)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(kubelet.registry_socket)
        kubelet.close()
        node.process.stop()
        assert os.path.exists(kubelet.registry_socket)
    assert not node.dra_socket.exists()


# --- claims -------------------------------------------------------------------------------------


def test_prepares_and_unprepares_a_claim(node):
    kubelet = node.registered()
    cdi_id = f"{DRIVER}/metadata={UID}_net"
    assert kubelet.prepare([C1]) == {UID: {"devices": [
        {"request_names": ["net"], "pool_name": NODE, "device_name": "dummy0", "cdi_device_ids": [cdi_id]}]}}
    path = node.metadata_path()
    expected = {
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "metadata": {"name": "c1", "namespace": "default", "uid": UID, "generation": 1},
        "requests": [{"name": "net", "devices": [{
            "driver": DRIVER, "pool": NODE, "name": "dummy0",
            "attributes": {"deviceManager": {"string": "dummy"}, "pool": {"string": "fast-net"}},
            "networkData": {"interfaceName": "net1"}}]}],
    }
    alpha = {**expected, "apiVersion": "metadata.resource.k8s.io/v1alpha1"}
    assert path.read_text() == json.dumps(expected, indent=2) + "\n" + json.dumps(alpha, indent=2) + "\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == path.parent.parent.stat().st_mode & 0o777 == 0o755
    assert json.loads(node.cdi_path().read_text()) == {
        "cdiVersion": "0.5.0",
        "kind": f"{DRIVER}/metadata",
        "devices": [{"name": f"{UID}_net", "containerEdits": {"mounts": [{
            "hostPath": str(path),
            "containerPath": f"{IN_CONTAINER}/resourceclaims/c1/net/{DRIVER}-metadata.json",
            "options": ["ro", "bind"]}]}}],
    }
    assert node.cdi_path().stat().st_mode & 0o777 == 0o644
    assert node.cdi_dir.stat().st_mode & 0o777 == 0o755
    assert files_below(node.cdi_dir) == [node.cdi_path().name]

    assert kubelet.unprepare([C1]) == {UID: {}}
    assert kubelet.unprepare([C1]) == {UID: {}}
    assert files_below(node.cdi_dir) == []
    assert not path.parent.parent.exists()
    assert node.statd.calls == [("prepare", UID), ("unprepare", UID), ("unprepare", UID)]


@pytest.mark.parametrize("version, expected", [("v1", {"share_id": SHARE}), ("v1beta1", {})])
def test_share_ids_are_of_v1_only(node, version, expected):
    node.statd.prepare = lambda ref: {"devices": [device(share=SHARE)]}
    kubelet = node.registered()
    answer = kubelet.prepare([C1], version)[UID]["devices"][0]
    assert {k: v for k, v in answer.items() if k == "share_id"} == expected
    assert kubelet.unprepare([C1], version) == {UID: {}}


def test_a_claim_of_a_template_is_mounted_under_the_pods_name_for_it(node):
    node.statd.prepare = lambda ref: {"podClaimName": "net", "devices": [device()]}
    node.registered().prepare([C1])
    mount = json.loads(node.cdi_path().read_text())["devices"][0]["containerEdits"]["mounts"][0]
    assert mount["containerPath"] == f"{IN_CONTAINER}/resourceclaimtemplates/net/net/{DRIVER}-metadata.json"
    for version in read_stream(node.metadata_path()):
        assert version["podClaimName"] == "net"
        assert list(version) == ["kind", "apiVersion", "metadata", "podClaimName", "requests"]


def test_each_request_has_a_file_and_its_first_device_the_id(node):
    node.statd.prepare = lambda ref: {"devices": [
        device("net/fast", "dummy0"), device("net/fast", "dummy1"), device("storage", "dummy2", if_name=None),
        device("net/fast", "dummy0", share=SHARE)]}
    answer = node.registered().prepare([C1])[UID]["devices"]
    ids = [f"{DRIVER}/metadata={UID}_{request}" for request in ("net", "storage")]
    assert [(d["request_names"], d["device_name"], d.get("cdi_device_ids")) for d in answer] == [
        (["net"], "dummy0", [ids[0]]), (["net"], "dummy1", None), (["storage"], "dummy2", [ids[1]]),
        (["net"], "dummy0", None)]
    requests = read_stream(node.metadata_path())[0]["requests"]
    assert [(r["name"], [d["name"] for d in r["devices"]]) for r in requests] == [
        ("net/fast", ["dummy0", "dummy1", "dummy0"])]
    storage = read_stream(node.metadata_path(request="storage"))[0]["requests"]
    assert storage[0]["name"] == "storage" and "networkData" not in storage[0]["devices"][0]
    assert files_below(node.cdi_dir) == [node.cdi_path(request=r).name for r in ("net", "storage")]


def test_a_claim_without_devices_is_prepared_without_files(node):
    node.statd.prepare = lambda ref: {"devices": []}
    assert node.registered().prepare([C1]) == {UID: {}}
    assert files_below(node.kubelet_dir) == []


def test_one_claims_failure_is_that_claims(node):
    def prepare(ref):
        if ref["uid"] == UID:
            raise mprpc.Error("conflict", "device dummy0 is taken\n")
        return {"devices": [device()]}
    node.statd.prepare = prepare
    answer = node.registered().prepare([C1, claim("default", "c2", UID2)])
    assert answer[UID] == {"error": "device dummy0 is taken?"}
    assert answer[UID2]["devices"][0]["device_name"] == "dummy0"
    assert files_below(node.cdi_dir) == [node.cdi_path(UID2).name]


def test_a_failed_unprepare_keeps_the_files_for_the_next(node):
    kubelet = node.registered()
    kubelet.prepare([C1])

    def unprepare(ref):
        raise mprpc.Error("busy", "link is in use")
    node.statd.unprepare = unprepare
    assert kubelet.unprepare([C1]) == {UID: {"error": "link is in use"}}
    assert node.metadata_path().exists() and node.cdi_path().exists()
    node.statd.unprepare = lambda ref: {}
    assert kubelet.unprepare([C1]) == {UID: {}}
    assert files_below(node.cdi_dir) == []


def test_names_that_would_leave_the_directory_are_refused(node):
    kubelet = node.registered()
    answer = kubelet.prepare([claim("..", "c1", UID), claim("default", "../../x", UID2)])
    assert answer[UID]["error"].startswith("namespace: ") and answer[UID2]["error"].startswith("name: ")
    assert node.statd.calls == []
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.prepare([claim("default", "c1", "../x")])
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_uid_that_is_named_twice_is_one_claim(node):
    kubelet = node.registered()
    assert list(kubelet.prepare([C1, C1])) == [UID]
    assert node.statd.calls == [("prepare", UID)]
    answer = kubelet.prepare([C1, claim("default", "c2", UID)])
    assert "two claims of this UID" in answer[UID]["error"]


def test_no_claims_and_too_many(node):
    kubelet = node.registered()
    assert kubelet.prepare([]) == {}
    many = [claim("default", f"c{i}", f"{UID}-{i}") for i in range(129)]
    assert len(kubelet.prepare(many[:128])) == 128
    assert len(kubelet.unprepare(many[:128])) == 128
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.prepare(many)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "129 claims" in refused.value.details()


def test_the_longest_names_that_kubernetes_allows(node):
    long = claim("n" * 63, ".".join(["c" * 62] * 4), UID)
    request = f"{'r' * 63}/{'s' * 63}"
    node.statd.prepare = lambda ref: {"devices": [device(request)]}
    kubelet = node.registered()
    assert kubelet.prepare([long])[UID]["devices"][0]["request_names"] == ["r" * 63]
    mount = json.loads(node.cdi_path(request="r" * 63).read_text())["devices"][0]["containerEdits"]["mounts"][0]
    assert os.path.isfile(mount["hostPath"])
    kubelet.unprepare([long])
    assert files_below(node.kubelet_dir) == files_below(node.cdi_dir) == []


# --- metadata over time -------------------------------------------------------------------------


def test_the_generation_goes_up_when_the_content_changes_and_only_then(node):
    kubelet = node.registered()
    path, spec = node.metadata_path(), node.cdi_path()
    kubelet.prepare([C1])
    before = identity(path), path.read_bytes(), identity(spec)
    kubelet.prepare([C1])
    assert (identity(path), path.read_bytes(), identity(spec)) == before

    node.statd.prepare = lambda ref: {"devices": [device(if_name="net7")]}
    kubelet.prepare([C1])
    assert generation(path) == 2
    assert read_stream(path)[0]["requests"][0]["devices"][0]["networkData"] == {"interfaceName": "net7"}

    node.process.kill()
    kubelet = node.registered()
    kubelet.prepare([C1])
    assert generation(path) == 2
    node.statd.prepare = lambda ref: {"devices": [device(if_name="net8")]}
    kubelet.prepare([C1])
    assert generation(path) == 3


def test_the_order_of_attributes_is_no_change(node):
    kubelet = node.registered()
    node.statd.prepare = lambda ref: {"devices": [device(attributes={"a": {"int": 1}, "b": {"bool": True}})]}
    kubelet.prepare([C1])
    before = node.metadata_path().read_bytes()
    node.statd.prepare = lambda ref: {"devices": [device(attributes={"b": {"bool": True}, "a": {"int": 1}})]}
    kubelet.prepare([C1])
    assert node.metadata_path().read_bytes() == before


def test_another_claim_of_the_same_name_is_another_claim(node):
    kubelet = node.registered()
    node.statd.prepare = lambda ref: {"devices": [device(if_name=f"net{len(node.statd.calls)}")]}
    kubelet.prepare([C1])
    kubelet.prepare([C1])
    assert generation(node.metadata_path()) == 2
    kubelet.prepare([claim("default", "c1", UID2)])
    assert read_stream(node.metadata_path())[0]["metadata"]["uid"] == UID2
    assert generation(node.metadata_path()) == 1
    kubelet.unprepare([C1])
    assert node.metadata_path().exists() and files_below(node.cdi_dir) == [node.cdi_path(UID2).name]
    kubelet.unprepare([claim("default", "c1", UID2)])
    assert files_below(node.kubelet_dir) == files_below(node.cdi_dir) == []


def test_files_that_an_operator_damaged_are_written_anew(node):
    kubelet = node.registered()
    kubelet.prepare([C1])
    good = node.metadata_path().read_bytes(), node.cdi_path().read_bytes()
    node.metadata_path().write_text("{")
    node.cdi_path().unlink()
    kubelet.prepare([C1])
    assert (node.metadata_path().read_bytes(), node.cdi_path().read_bytes()) == good


def test_what_an_interrupted_write_left_is_removed(node):
    """Of the CDI directory at the next start, of the claim's own directory with the claim."""
    kubelet = node.registered()
    kubelet.prepare([C1])
    node.process.kill()
    (node.cdi_dir / f".{node.cdi_path().name}.01234567.tmp").write_text("")
    (node.cdi_dir / ".vendor_other.json.01234567.tmp").write_text("{}")
    (node.metadata_path().parent / ".metadata.json.01234567.tmp").write_text("")
    kubelet = node.registered()
    assert files_below(node.cdi_dir) == [".vendor_other.json.01234567.tmp", node.cdi_path().name]
    assert kubelet.unprepare([C1]) == {UID: {}}
    assert files_below(node.cdi_dir) == [".vendor_other.json.01234567.tmp"]
    assert not node.metadata_path().parent.parent.exists()


def test_what_a_loss_of_power_left_is_written_anew(node):
    """Files are not synced, so they may be empty."""
    kubelet = node.registered()
    kubelet.prepare([C1])
    good = node.metadata_path().read_bytes(), node.cdi_path().read_bytes()
    for path in (node.metadata_path(), node.cdi_path()):
        os.truncate(path, 0)
    kubelet.prepare([C1])
    assert (node.metadata_path().read_bytes(), node.cdi_path().read_bytes()) == good
    for path in (node.metadata_path(), node.cdi_path()):
        os.truncate(path, 0)
    assert kubelet.unprepare([C1]) == {UID: {}}
    assert files_below(node.kubelet_dir) == files_below(node.cdi_dir) == []


def test_a_claims_specifications_are_found_without_its_metadata(node):
    kubelet = node.registered()
    kubelet.prepare([C1])
    shutil.rmtree(node.metadata_path().parent.parent)
    assert kubelet.unprepare([C1]) == {UID: {}}
    assert files_below(node.cdi_dir) == []


def test_nothing_is_synced_to_disk(node):
    """A prepare does not wait for a disk: strace(1) sees each system call."""
    strace = shutil.which("strace")
    assert strace, "strace is missing"
    kubelet = node.registered()
    trace = node.dir / "strace"
    tracer = node.procs.start(strace, "-p", node.process.pid, "-o", trace,
                              "-e", "trace=fsync,fdatasync,renameat,renameat2,getdents64")
    tracer.wait_log("attached")
    kubelet.prepare([C1])
    assert kubelet.unprepare([C1]) == {UID: {}}
    tracer.signal(signal.SIGINT)
    tracer.wait_exit()
    calls = trace.read_text()
    assert calls.count("rename") == 2 and "sync(" not in calls


def test_a_claim_whose_files_cannot_be_written_is_not_prepared(node):
    kubelet = node.registered()
    node.cdi_dir.write_text("in the way")
    assert kubelet.prepare([C1]) == {UID: {"error": f"CDI directory {node.cdi_dir}: Not a directory"}}
    node.cdi_dir.unlink()
    store = node.plugin_dir / "dra-device-metadata"
    os.rename(store, node.dir / "elsewhere")
    store.symlink_to(node.dir / "elsewhere")
    assert kubelet.prepare([C1])[UID]["error"].startswith(
        f"metadata of request net: opening directory {store}: ")
    store.unlink()
    assert kubelet.prepare([C1])[UID]["devices"]


# --- statd comes and goes -----------------------------------------------------------------------


def test_a_call_waits_for_a_statd_that_restarts(node):
    kubelet = node.registered()
    before = identity(kubelet.registry_socket)
    node.statd.stop()
    node.process.wait_log("lost statd")
    future = kubelet.start_prepare([C1])
    node.process.wait_log("cannot reach statd")
    node.statd.start()
    assert future.result()["claims"][UID]["devices"]
    node.statd.wait_state("registered")
    assert [s["state"] for s in node.statd.states] == ["waiting", "registering", "registered", "registered"]
    assert identity(kubelet.registry_socket) == before


def test_a_call_that_was_with_statd_is_made_again(node):
    held = Held({"devices": [device(name="never")]})
    node.statd.prepare = held
    future = node.registered().start_prepare([C1, claim("default", "c2", UID2)])
    node.statd.wait_calls(2)
    node.statd.stop()
    node.statd.prepare = lambda ref: {"devices": [device()]}
    node.statd.start()
    claims = future.result()["claims"]
    held.go.set()
    assert [claims[uid]["devices"][0]["device_name"] for uid in (UID, UID2)] == ["dummy0", "dummy0"]
    assert sorted(node.statd.calls) == 2 * [("prepare", UID)] + 2 * [("prepare", UID2)]


def test_a_call_waits_until_statd_is_ready(node):
    kubelet = node.registered()
    node.statd.stop()
    node.statd.settings["ready"] = False
    node.statd.start()
    node.statd.server.wait_peer()
    future = kubelet.start_prepare([C1])
    answer = kubelet.prepare([claim("default", "c2", UID2)], timeout=2)
    assert answer == {UID2: {"error": "statd is still starting"}}
    assert node.statd.calls == []
    node.statd.server.wait_peer().notify("front.ready")
    assert future.result()["claims"][UID]["devices"]


def test_a_statd_that_stays_away_is_told_to_the_kubelet(node):
    kubelet = node.registered()
    node.statd.stop()
    node.serving = False
    assert kubelet.prepare([C1], timeout=2) == {UID: {"error": "statd is not running"}}
    assert kubelet.unprepare([C1], timeout=2) == {UID: {"error": "statd is not running"}}
    assert os.path.exists(kubelet.registry_socket)


def test_the_kubelet_hears_why_before_its_deadline(node):
    node.statd.prepare = held = Held({})
    answer = node.registered().prepare([C1], timeout=2)
    held.go.set()
    assert answer == {UID: {"error": "statd did not answer claim.prepare in time"}}


def test_another_driver_name_is_another_start(node):
    node.registered()
    node.statd.stop()
    node.statd.settings["driverName"] = "other.example"
    node.statd.start()
    assert node.process.wait_exit() == 1
    assert "the driver is called differently now" in node.process.log


def test_a_statd_that_refuses_us(node):
    """The claims' errors say so, and when it does not any more, it goes on."""
    kubelet = node.registered()
    greet = node.statd.server.methods["front.hello"]

    def refuse(peer, params, fds):
        raise mprpc.Error("invalid", "unknown role")
    node.statd.stop()
    node.statd.server.methods["front.hello"] = refuse
    node.statd.start()
    node.process.wait_log("statd refuses us; trying again.*unknown role")
    assert kubelet.prepare([C1]) == {UID: {"error": "statd refuses draplugind: unknown role"}}
    node.statd.server.methods["front.hello"] = greet
    wait_for(lambda: "error" not in kubelet.prepare([C1])[UID], 10, "a claim that is prepared")


# --- many at once -------------------------------------------------------------------------------


def test_a_blocked_prepare_blocks_nobody(node):
    kubelet = node.registered()
    node.statd.prepare = held = Held({"devices": [device()]})
    future = kubelet.start_prepare([C1])
    node.statd.wait_calls(1)
    client = kubelet.registration()
    assert kubelet.get_info(client)["name"] == DRIVER
    client.close()
    assert kubelet.unprepare([claim("default", "c2", UID2)]) == {UID2: {}}
    held.go.set()
    assert future.result()["claims"][UID]["devices"]


def test_work_on_one_claim_is_done_in_order(node):
    kubelet = node.registered()
    node.statd.prepare = held = Held({"devices": [device()]})
    first = kubelet.start_prepare([C1])
    node.statd.wait_calls(1)
    first.cancel()
    unprepared = kubelet.start_unprepare([C1])
    again = kubelet.start_prepare([C1])
    # answered after those two have arrived: they are on the same connection
    assert kubelet.unprepare([claim("default", "c2", UID2)]) == {UID2: {}}
    assert node.statd.calls == [("prepare", UID), ("unprepare", UID2)]
    held.go.set()
    assert unprepared.result()["claims"] == {UID: {}}
    assert again.result()["claims"][UID]["devices"]
    assert node.statd.calls[2:] == [("unprepare", UID), ("prepare", UID)]
    assert node.metadata_path().exists()


def test_hundreds_of_calls_at_once_leave_nothing_open(node):
    kubelet = node.registered()
    kubelet.prepare([C1])
    before = count_fds(node.process)
    claims = [claim("default", f"c{i}", f"{UID}-{i}") for i in range(300)]
    futures = [kubelet.start_prepare([c]) for c in claims]
    for c, future in zip(claims, futures):
        assert future.result()["claims"][c["uid"]]["devices"]
    futures = [kubelet.start_unprepare([c]) for c in claims]
    for c, future in zip(claims, futures):
        assert future.result()["claims"] == {c["uid"]: {}}
    assert count_fds(node.process) == before
    assert files_below(node.cdi_dir) == [node.cdi_path().name]


# --- gRPC ---------------------------------------------------------------------------------------


def test_a_method_that_is_not_there_costs_no_connection(node):
    kubelet = node.registered()
    kubelet.prepare([C1])
    before = sockets_of(node.process)
    for path in (HEALTH, "/v1.DRAResourceHealth/NodeWatchResources", "/a/b",
                 dra_path("v1", "NodeMakeCoffee"), dra_path("v2", "NodePrepareResources")):
        with pytest.raises(grpc.RpcError) as missing:
            kubelet.client.call(path, {}, {}, {}, 5)
        assert missing.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert missing.value.details() == f"there is no method {path}"
    stream = kubelet.client.channel.unary_stream(HEALTH)(b"")
    with pytest.raises(grpc.RpcError) as missing:
        next(stream)
    assert missing.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert kubelet.prepare([C1])[UID]["devices"]
    assert sockets_of(node.process) == before


def test_messages_have_a_limit(node):
    kubelet = node.registered()
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.prepare([claim("default", "c" * (4 << 20), UID)])
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "at most 4194304 are taken" in refused.value.details()
    answer = kubelet.prepare([claim("default", "c" * ((4 << 20) - 200), UID)])
    assert answer[UID]["error"].startswith("name: ")
    assert kubelet.prepare([C1])[UID]["devices"]


def test_compressed_messages_are_refused(node):
    kubelet = node.registered()
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.client.call(dra_path("v1", "NodePrepareResources"), CLAIMS_REQUEST, PREPARE_RESPONSE,
                            {"claims": [C1] * 50}, 5, compression=grpc.Compression.Gzip)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_message_are_refused(node):
    kubelet = node.registered()
    call = kubelet.client.channel.unary_unary(dra_path("v1", "NodePrepareResources"))
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\x0a\xff\xff", timeout=5)
    assert refused.value.code() == grpc.StatusCode.INTERNAL
    assert "cannot decode the request" in refused.value.details()


def test_an_error_text_survives_the_header(node):
    node.start()
    node.kubelet.wait_socket()
    client = node.kubelet.registration()
    with pytest.raises(grpc.RpcError) as refused:
        client.call(REGISTRATION + "NotifyRegistrationStatus", REGISTRATION_STATUS,
                    REGISTRATION_STATUS_RESPONSE, {"error": "100 % größer\n"}, 5)
    client.close()
    assert refused.value.details() == "100 % größer?"


def test_a_client_that_speaks_no_http2_is_dropped_and_told_of(node):
    kubelet = node.registered()
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(5 * STRETCH)
        raw.connect(str(node.dra_socket))
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while raw.recv(4096):
            pass
    node.process.wait_log("warn .*gRPC client: ")
    assert kubelet.prepare([C1])[UID]["devices"]


def test_connections_are_bounded(node):
    kubelet = node.registered()
    kubelet.prepare([C1])
    others = [socket.socket(socket.AF_UNIX) for _ in range(8)]
    for other in others:
        other.settimeout(5 * STRETCH)
        other.connect(str(node.dra_socket))
    assert others[7].recv(1) == b""
    assert others[6].recv(9)[3:4] == b"\x04"  # SETTINGS, before a word of ours
    assert kubelet.prepare([C1])[UID]["devices"]
    for other in others:
        other.close()


# --- the end ------------------------------------------------------------------------------------


def test_sigterm_takes_the_sockets_away(node):
    kubelet = node.registered()
    kubelet.prepare([C1])
    node.process.stop()
    assert not os.path.exists(kubelet.registry_socket) and not node.dra_socket.exists()
    assert node.metadata_path().exists() and node.cdi_path().exists()


def test_sigterm_finishes_what_is_in_flight(node):
    kubelet = node.registered()
    node.statd.prepare = held = Held({"devices": [device()]})
    future = kubelet.start_prepare([C1])
    node.statd.wait_calls(1)
    node.process.signal(signal.SIGTERM)
    wait_for(lambda: not os.path.exists(kubelet.registry_socket), what="the end of the sockets")
    held.go.set()
    assert future.result()["claims"][UID]["devices"]
    assert node.process.wait_exit() == 0


def test_sigterm_does_not_wait_for_a_statd_that_is_away(node):
    kubelet = node.registered()
    node.statd.stop()
    node.serving = False
    node.process.wait_log("cannot reach statd")
    future = kubelet.start_prepare([C1])
    node.process.signal(signal.SIGTERM)
    assert node.process.wait_exit(3) == 0
    with contextlib.suppress(grpc.RpcError):
        assert "error" in future.result()["claims"][UID]


def test_it_holds_no_privilege(node):
    node.start()
    node.process.wait_log("ready")
    with open(f"/proc/{node.process.pid}/status") as status:
        fields = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
    for sets in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[sets], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2" or "no system call filter" in node.process.log
    assert fields["Threads"] == "1"
