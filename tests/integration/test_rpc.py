# SPDX-License-Identifier: Apache-2.0
"""The RPC of statd's sockets, spoken by python3-msgpack byte by byte: what is answered, what is
refused, and what ends a connection. Whatever a peer sends, the daemon lives on."""
import contextlib
import os
import socket
import stat
import subprocess
import sys
import time

import msgpack
import pytest

import house as h
import mprpc
import procs as procs_module

BIG = 16 << 20


class Raw:
    """A connection without any manners."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.socket.settimeout(10 * procs_module.STRETCH)
        self.unpacker = msgpack.Unpacker(raw=False)

    def send(self, data, fds=()):
        if fds:
            socket.send_fds(self.socket, [data], list(fds))
        else:
            self.socket.sendall(data)

    def receive(self):
        """The next message, or None at the end of the connection."""
        while True:
            for message in self.unpacker:
                return message
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.unpacker.feed(data)

    def request(self, ident, method, *params):
        self.send(msgpack.packb([0, ident, method, list(params)]))
        return self.receive()

    def close(self):
        self.socket.close()


@pytest.fixture
def house(procs, rundir):
    house = h.House(procs, rundir)
    house.statd = house.start_statd()
    return house


@pytest.fixture
def query(house):
    raw = Raw(house.runtime_dir / "query.sock")
    yield raw
    raw.close()


def test_request_and_answer(query):
    kind, ident, error, result = query.request(7, "status", {})
    assert (kind, ident, error) == (1, 7, None) and result["nodeName"] == h.NODE


def test_params_may_be_left_out_and_unknown_fields_are_ignored(query):
    assert query.request(1, "status")[2] is None
    assert query.request(2, "status", {"from": "the future", "nested": [{"x": 1.5}]})[2] is None


def test_byte_by_byte_and_back_to_back(query):
    for byte in msgpack.packb([0, 1, "status", [{}]]):
        query.send(bytes([byte]))
    assert query.receive()[1] == 1
    query.send(b"".join(msgpack.packb([0, i, "pools", [{}]]) for i in range(50)))
    assert [query.receive()[1] for _ in range(50)] == list(range(50))


@pytest.mark.parametrize("params, words", [
    (({"table": 5},), ["table.list", "table", "text", "number"]),
    (({"table": "no-such"},), ["no-such", h.DEVICES, h.ALLOCATIONS]),
    (({}, {}, {}), ["one map"]),
    (("text",), ["map"]),
    (({"table": "x" * 64},), ["64 bytes", "63"]),
    (({"table": "a\0b"},), ["NUL"]),
])
def test_wrong_params_are_answered(query, params, words):
    _, _, error, result = query.request(1, "table.list", *params)
    assert result is None and error["code"] in ("invalid", "not_found")
    assert all(w in error["message"] for w in words), error
    assert query.request(2, "status", {})[2] is None, "the connection lives on"


@pytest.mark.parametrize("method", ["no.such.method", "claim.prepare", "manager.devices", ""])
def test_methods_of_other_sockets_are_not_there(query, method):
    assert query.request(1, method, {})[2]["code"] == "not_found"


def test_notifications_that_are_not_known_are_ignored(query):
    query.send(msgpack.packb([2, "front.ready", [{}]]))
    assert query.request(1, "status", {})[2] is None


@pytest.mark.parametrize("data, words", [
    (b"\x05", "not MessagePack-RPC"),
    (b"GET / HTTP/1.1\r\n\r\n", "not MessagePack-RPC"),
    (msgpack.packb([3, 1, "status", [{}]]), "not MessagePack-RPC"),
    (msgpack.packb([0, 1, "status"]), "not MessagePack-RPC"),
    (msgpack.packb([0, -1, "status", [{}]]), "not MessagePack-RPC"),
    (msgpack.packb([0, 1 << 40, "status", [{}]]), "not MessagePack-RPC"),
    (msgpack.packb([0, 1, 5, [{}]]), "not MessagePack-RPC"),
    (msgpack.packb([1, 9, None, {}]), "never made"),
    (b"\xdd\x10\x00\x00\x00", "cannot fit"),
    (b"\xdf\x0f\xff\xff\xff", "cannot fit"),
    (b"\x94\x00\x01\xdb\xff\xff\xff\xff", "bytes"),
    (b"\x91" * 40, "nested"),
    (b"\xc1", "0xc1"),
    (b"\x94\x00\x01\xc4\x01x", "0xc4"),
    (b"\x94\x00\x01\xd4\x01x", "0xd4"),
    (msgpack.packb([0, 1, "status", [{5: 1}]]), "key is not a text"),
    (b"\x94\x00\x01\xa6status\x91\x82\xa1a\x01\xa1a\x02", "twice"),
    (b"\x94\x00\x01\xa6status\x91\x81\xa1a\xa1\xff", "UTF-8"),
])
def test_what_ends_a_connection(house, query, data, words):
    query.send(data)
    assert query.receive() is None
    house.statd.wait_log(f"dropping a connection.*{words}")
    assert house.status()["version"], "the daemon lives on"


def test_a_claimed_size_costs_nothing(house):
    before = memory_peak(house.statd)
    for data in (b"\xdd\x00\xff\xff\xff", b"\xdf\x00\x7f\xff\xff", b"\xdb\x00\xff\xff\xff"):
        raw = Raw(house.runtime_dir / "query.sock")
        raw.send(b"\x94\x00\x01\xa6status\x91" + data)
        raw.close()
    house.status()
    assert memory_peak(house.statd) - before < 4 << 20


def memory_peak(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) << 10


def test_the_biggest_message(house, query):
    filler = "x" * (BIG - 100)
    assert query.request(1, "status", {"filler": filler})[2] is None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may be ended half way
        query.send(msgpack.packb([0, 2, "status", [{"filler": filler + "y" * 200}]]))
    assert query.receive() is None
    house.statd.wait_log("at most 16777216 bytes")


def test_stray_descriptors_end_the_connection(house, query):
    def strays():
        fds = f"/proc/{house.statd.pid}/fd"
        return [n for n in os.listdir(fds) if os.readlink(f"{fds}/{n}") == os.devnull]
    before = strays()
    with open(os.devnull, "rb") as null:
        query.send(msgpack.packb([0, 1, "status", [{}]]), [null.fileno()])
        query.receive()
        assert query.receive() is None
    house.statd.wait_log("descriptors came that no message takes")
    other = Raw(house.runtime_dir / "query.sock")
    with open(os.devnull, "rb") as null:
        other.send(b"\x94", [null.fileno()] * 20)
        assert other.receive() is None
    other.close()
    procs_module.wait_for(lambda: strays() == before, what="the end of all stray descriptors")


def test_a_peer_that_does_not_read(house, query):
    request = msgpack.packb([0, 1, "table.list", [{}]])
    query.socket.settimeout(0.2)
    sent = 0
    with pytest.raises((TimeoutError, BrokenPipeError, ConnectionResetError)):
        while sent < 1 << 30:
            query.send(request * 1000)
            sent += len(request) * 1000
    assert house.status()["version"], "others are served meanwhile"


def test_more_connections_than_a_socket_may_have(house):
    raws = [Raw(house.runtime_dir / "query.sock") for _ in range(70)]
    house.statd.wait_log("refusing a connection.*all the connections")
    assert raws[0].request(1, "status", {})[2] is None
    for raw in raws:
        raw.close()

    def serves_again():
        try:
            return house.status()["version"]
        except mprpc.Error:
            return None
    procs_module.wait_for(serves_again, what="room for one more")


CONNECT_AS = """
import os, socket, sys
os.setgroups([int(sys.argv[2])]); os.setgid(64999); os.setuid(64999)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.settimeout(10)
try:
    s.sendall(bytes.fromhex("9400 01a6 7374 6174 7573 9180".replace(" ", "")))
    print(len(s.recv(10)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""


def connect_as(path, group):
    return subprocess.run([sys.executable, "-c", CONNECT_AS, str(path), str(group)], capture_output=True,
                          text=True, check=False)


@pytest.mark.needs_root
def test_who_may_connect(procs, rundir):
    """The socket's group lets a user as far as the socket; whether it may speak is its uid's matter."""
    house = h.House(procs, rundir)
    statd = house.start_statd("--manager-group", "64801", "--front-group", "64802", "--query-group", "64803")
    for name, group in (("manager.sock", 64801), ("front.sock", 64802), ("query.sock", 64803)):
        path = house.runtime_dir / name
        assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_gid) == (0o660, group)
        assert "PermissionError" in connect_as(path, 64999).stderr
    assert connect_as(house.runtime_dir / "query.sock", 64803).stdout == "10\n"
    assert connect_as(house.runtime_dir / "manager.sock", 64801).stdout == "0\n"
    statd.wait_log("refusing a connection socket=manager.sock.*uid=64999")


def test_only_managers_that_are_enabled(house):
    manager = Raw(house.runtime_dir / "manager.sock")
    for kind, word in (("macvlan", "no manager"), ("sr-iov", "not enabled")):
        _, _, error, _ = manager.request(1, "manager.hello", {"type": kind, "version": "1"})
        assert word in error["message"]
    _, _, error, _ = manager.request(1, "manager.devices", {"devices": []})
    assert "manager.hello first" in error["message"]
    manager.close()


def test_work_before_statd_is_ready(house):
    front = Raw(house.runtime_dir / "front.sock")
    _, _, error, _ = front.request(1, "claim.prepare", {"namespace": "default", "name": "c", "uid": "u"})
    assert error["code"] == "unavailable" and "statctl status" in error["message"]
    front.close()


@pytest.mark.parametrize("ref, word", [
    ({"namespace": "../x", "name": "c", "uid": "u"}, "namespace"),
    ({"namespace": "default", "name": "a/b", "uid": "u"}, "name"),
    ({"namespace": "default", "name": "c", "uid": "../../etc"}, "uid"),
    ({"namespace": "default", "name": "c"}, "uid: is required"),
    ({"namespace": "default", "name": "", "uid": "u"}, "name: must not be empty"),
])
def test_names_of_claims_are_checked(house, ref, word):
    front = Raw(house.runtime_dir / "front.sock")
    _, _, error, _ = front.request(1, "claim.prepare", ref)
    assert error["code"] == "invalid" and word in error["message"]
    front.close()


@pytest.mark.needs_root
@pytest.mark.parametrize("program, socket_name, more", [
    ("draplugind", "front.sock", ["--kubelet-dir", "."]),
    ("nrihookd", "front.sock", []),
    ("netnsd", "manager.sock", []),
    ("dmgr-dummy", "manager.sock", []),
    ("dmgr-sriov", "manager.sock", []),
])
def test_who_may_be_statd(procs, rundir, program, socket_name, more):
    """A daemon believes a statd of root's or of its own user, and else only of the one it is told."""
    os.chmod(rundir, 0o777)
    listener = subprocess.Popen(  # listens as another user, as a statd that was not started as root does
        [sys.executable, "-c", "import os,socket,sys\nos.setgid(64999)\nos.setuid(64999)\ns=socket.socket("
         "socket.AF_UNIX)\ns.bind(sys.argv[1])\nos.chmod(sys.argv[1], 0o777)\ns.listen()\nprint(1, flush=True)\nwhile 1:"
         "\n c=s.accept()[0]\n print(len(c.recv(1)), flush=True)", str(rundir / socket_name)], stdout=subprocess.PIPE)
    try:
        assert listener.stdout.readline() == b"1\n"
        args = [str(rundir) if a == "." else a for a in more]
        stranger = procs.start(program, "--runtime-dir", rundir, *args, name=f"{program}-1")
        stranger.wait_log("is served by uid 64999, who is not trusted")
        assert listener.stdout.readline() == b"0\n", "it hung up without a word"
        stranger.stop()
        procs.start(program, "--runtime-dir", rundir, "--statd-user", "64999:64999", *args, name=f"{program}-2")
        procs_module.wait_for(lambda: listener.stdout.readline() == b"1\n", what="its hello")
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()


@pytest.mark.needs_root
@pytest.mark.parametrize("until", ["accepted", "greeted"])
def test_a_statd_that_drops_each_connection_is_called_less_and_less_often(procs, rundir, until):
    """Whatever it is dropped for, at once or after its hello."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(rundir / "manager.sock"))
        listening.listen()
        listening.settimeout(10 * procs_module.STRETCH)
        procs.start(procs.build / "dmgr-dummy", "--runtime-dir", rundir, name="dmgr-dummy")
        accepted, dropped = [], []
        for _ in range(8):
            conn, _ = listening.accept()
            accepted.append(time.monotonic())
            with conn:
                if until == "greeted":
                    conn.settimeout(10 * procs_module.STRETCH)
                    assert b"manager.hello" in conn.recv(4096)
                dropped.append(time.monotonic())  # or a moment later
    waited = [begin - end for begin, end in zip(accepted[1:], dropped)]
    assert all(pause > 0.9 * at_least / 1000 for pause, at_least in zip(waited, (5, 10, 20, 40, 80, 160, 320))), waited
