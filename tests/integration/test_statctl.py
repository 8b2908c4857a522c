# SPDX-License-Identifier: Apache-2.0
"""statctl as it ships, mostly against statd as it ships; where an answer must be odd, statd is
python3-msgpack's. Whole outputs are compared."""
import fcntl
import json
import os
import pty
import queue
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import pytest

import house as h
import mprpc
from netns import Netns
from procs import ROOT, STRETCH, wait_for

SHARE = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
POD = "pod-1"
CONFIG = h.config({"dummy": {"enabled": True, "count": 3},
                   "rxQueue": {"enabled": True, "ifaces": [{"ifName": "eth0", "count": 2}]}},
                  [{"name": "fast-net", "filter": {"deviceManagers": ["dummy"], "ifNames": ["dummy0", "dummy1"]}},
                   {"name": "rx-queue-pool", "filter": {"deviceManagers": ["rxQueue"]}},
                   {"name": "unused"}])
AGO = re.compile(r"just now|\d+ (s|min) ago")


class Statctl:
    def __init__(self, build, runtime_dir):
        self.program = str(build / "statctl")
        self.runtime_dir = runtime_dir

    def argv(self, *args):
        return [self.program, "--runtime-dir", str(self.runtime_dir), *args]

    def run(self, *args, **more):
        return subprocess.run(self.argv(*args), capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=20 * STRETCH, **more)

    def ok(self, *args):
        """Standard output of what must succeed and complain about nothing."""
        done = self.run(*args)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def json(self, *args):
        return json.loads(self.ok("-o", "json", *args))

    def fails(self, status, *args, **more):
        """Standard error of what must fail with this status and print nothing."""
        done = self.run(*args, **more)
        assert (done.returncode, done.stdout) == (status, "")
        return done.stderr


class Lines:
    """A statctl that goes on, and its lines as they come."""

    def __init__(self, statctl, *args):
        self.popen = subprocess.Popen(statctl.argv(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, stdin=subprocess.DEVNULL)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.popen.stdout:
            self.lines.put(line.rstrip("\n"))

    def next(self, count=1):
        lines = [self.lines.get(timeout=5 * STRETCH) for _ in range(count)]
        return lines if count > 1 else lines[0]

    def wait_end(self):
        status = self.popen.wait(5 * STRETCH)
        return status, self.popen.stderr.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.popen.kill()
        self.popen.wait()


class Setting:
    """statd with two managers that the test plays, and a front door to prepare claims by."""

    def __init__(self, procs, rundir):
        self.house = h.House(procs, rundir, CONFIG)
        self.statd = self.house.start_statd()
        self.statctl = Statctl(procs.build, self.house.runtime_dir)
        self.front = None

    def complete(self):
        self.dummy = h.MockManager(self.house, "dummy", [h.dedicated(f"dummy{i}") for i in range(3)])
        self.rx = h.MockManager(self.house, "rxQueue", [h.shareable("eth0")])
        self.house.wait_ready()
        self.front = mprpc.connect(self.house.runtime_dir / "front.sock")
        assert self.front.call("front.hello", {"role": "nrihookd", "version": "0"})["ready"]
        return self

    def prepare(self, name, results, **more):
        claim = h.Claim(self.house, name, results, pod_uid=POD, **more)
        self.front.call("claim.prepare", claim.ref)
        return claim

    def prepare_both(self):
        """One dedicated device and one share."""
        return (self.prepare("c1", [h.result("dummy0")], config=[h.opaque({"podIfName": "net1"})], uid="uid-1"),
                self.prepare("c2", [h.result("eth0", share=SHARE, capacity={"rxQueues": "1"})], uid="uid-2"))


@pytest.fixture
def setting(procs, rundir):
    return Setting(procs, rundir)


@pytest.fixture
def statctl(builddir, rundir):
    return Statctl(builddir, rundir)


@pytest.fixture
def fake(rundir):
    """A query.sock whose methods the test fills in."""
    server = mprpc.Server(rundir / "query.sock").start()
    yield server
    server.stop()


def row(device, **more):
    return {"DeviceName": device, "Manager": "dummy", "PreparedDevice": {}, "LogicalPool": "fast-net",
            "PodUID": "0e5d2a46-0000-4000-8000-000000000001", "ClaimUID": "uid-1", "Config": {}, "ShareID": "",
            "ConsumedCapacity": None, "ClaimNamespace": "default", "ClaimName": "claim-of-a-pod-5xk7p", **more}


def rows(devices=(), allocations=()):
    return lambda *_: {"revision": 1, "initialized": True, "devices": list(devices), "allocations": list(allocations)}


# --- status


def test_status_not_ready(setting):
    done = setting.statctl.run("status")
    assert (done.returncode, done.stderr) == (3, "")
    head, missing, peers = done.stdout.split("\n\n")
    assert re.sub(r"\([^ ]+Z\)", "(TIME)", AGO.sub("AGO", head)) == f"""\
netclaim {version()} on node worker-node-1
  state        not ready
  started      AGO (TIME)
  driver       networkdriver.cilium.io
  config       file {setting.house.config_path}
  claims       directory {setting.house.claims_dir}
  slices       nothing is published yet
  devices      0
  allocations  0"""
    assert missing.splitlines() == [
        "Missing",
        "  dmgr-dummy has not published its devices: missing, it has not connected yet",
        "  dmgr-rxqueue has not published its devices: missing, it has not connected yet",
        "  netnsd is not connected",
        "  draplugind is not connected",
        "  nrihookd is not connected"]
    assert [line.split()[:2] for line in peers.splitlines()] == [
        ["PROCESS", "STATE"], ["dmgr-dummy", "missing"], ["dmgr-rxqueue", "missing"], ["netnsd", "missing"],
        ["draplugind", "missing"], ["nrihookd", "missing"]]


def test_status_ready(setting):
    setting.complete()
    text = setting.statctl.ok("status")
    assert "  state        ready, but not complete\n" in text
    line = next(line for line in text.splitlines() if line.startswith("dmgr-dummy"))
    assert AGO.sub("AGO", line).split() == ["dmgr-dummy", "published", "AGO", str(os.getpid()), str(os.geteuid()),
                                            "0", "3", "devices"]
    wait_for(lambda: ", published" in setting.house.status()["slices"], what="publication")  # and then nothing changes
    assert setting.statctl.json("status") == setting.house.status()


def notes_shown(text):
    """The lines below Notes; None: it is not there."""
    parts = [part.splitlines() for part in text.split("\n\n")]
    return next((part[1:] for part in parts if part[0] == "Notes"), None)


def test_notes_of_managers(setting):
    """Each inventory's replace those of the one before, and they go with their manager."""
    setting.complete()
    assert setting.house.status()["notes"] == [] and notes_shown(setting.statctl.ok("status")) is None
    setting.rx.publish(setting.rx.devices, ["eth0 has 1 queue"])
    setting.dummy.publish(setting.dummy.devices, ["the first", "the second"])
    told = ["dmgr-dummy: the first", "dmgr-dummy: the second", "dmgr-rxqueue: eth0 has 1 queue"]
    assert setting.house.status()["notes"] == told
    assert notes_shown(setting.statctl.ok("status")) == [f"  {note}" for note in told]
    assert setting.statctl.json("status")["notes"] == told
    setting.dummy.publish(setting.dummy.devices, ["the third"])
    assert setting.house.status()["notes"] == ["dmgr-dummy: the third", told[2]]
    setting.dummy.publish(setting.dummy.devices)
    assert setting.house.status()["notes"] == told[2:]
    setting.dummy.publish(setting.dummy.devices, ["the fourth"])
    setting.rx.close()
    setting.house.wait_peer("dmgr-rxqueue", "missing")
    assert setting.house.status()["notes"] == ["dmgr-dummy: the fourth"]
    restarted = mprpc.connect(setting.house.runtime_dir / "manager.sock")  # before the end of the old one is seen
    restarted.call("manager.hello", {"type": "dummy", "version": "0"})
    assert setting.house.status()["notes"] == []
    restarted.close()


@pytest.mark.parametrize("notes, words", [
    (["x"] * 65, "notes: has 65 elements, at most 64 are allowed"),
    (["x", "x" * 1024], "notes[1]: must have 1 to 1023 bytes"),
    ([""], "notes[0]: must have 1 to 1023 bytes"),
    ("x", "notes: "),
])
def test_notes_are_bounded(setting, notes, words):
    """What is refused changes nothing, and what a note may be is taken."""
    setting.complete()
    most = ["x" * 1023] * 64
    setting.dummy.publish(setting.dummy.devices, most)
    with pytest.raises(mprpc.Error) as error:
        setting.dummy.peer.call("manager.devices", {"devices": [], "notes": notes})
    assert error.value.code == "invalid" and words in str(error.value)
    status = setting.house.status()
    assert status["notes"] == [f"dmgr-dummy: {note}" for note in most] and status["devices"] == 4


def test_status_ages(fake, statctl):
    now = int(time.time() * 1000)
    ages = {"a": 0, "b": 7, "c": 3 * 60 + 5, "d": 5 * 3600 + 100, "e": 49 * 3600, "f": -3600}
    peers = [{"role": role, "state": "registered", "sinceMs": now - seconds * 1000 - 300}
             for role, seconds in ages.items()]
    fake.methods["status"] = lambda *_: {
        "version": "9", "nodeName": "n", "driverName": "d", "config": "c", "store": "s", "startedMs": now,
        "ready": True, "missing": [], "devices": 0, "allocations": 0, "revision": 1, "peers": peers}
    text = statctl.ok("status")
    assert "  state        ready\n" in text and "Missing" not in text
    table = text.split("\n\n")[1].splitlines()
    shown = {line.split()[0]: line[line.index("registered") + 12:line.index("registered") + 22].strip()
             for line in table[1:]}
    assert shown == {"a": "just now", "b": "7 s ago", "c": "3 min ago", "d": "5 h ago", "e": "2 d ago",
                     "f": "just now"}


@pytest.mark.parametrize("due, words", [(0, None), (1, "to be written: 1 claim"), (2, "to be written: 2 claims")])
def test_status_to_be_written(fake, statctl, due, words):
    """Beside the number of allocations, and why among the notes."""
    note = "the status of 2 claims is still to be written: the API server is away"
    fake.methods["status"] = lambda *_: {
        "version": "9", "nodeName": "n", "driverName": "d", "config": "c", "store": "s", "startedMs": 0,
        "ready": True, "missing": [], "notes": [note] if due else [], "devices": 0, "allocations": 2,
        "revision": 1, "statusDue": due, "peers": []}
    text = statctl.ok("status")
    lines = text.split("\n\n")[0].splitlines()
    line = f"  status       {words}"
    assert lines[lines.index("  allocations  2") + 1:] == ([line] if words else [])
    assert notes_shown(text) == ([f"  {note}"] if due else None)
    assert statctl.json("status")["statusDue"] == due


# --- tables


def test_devices(setting):
    setting.complete().prepare_both()
    assert setting.statctl.ok("devices") == """\
DEVICE  MANAGER  POOL           INTERFACE  STATE
dummy0  dummy    fast-net       dummy0     prepared
dummy1  dummy    fast-net       dummy1     free
dummy2  dummy    -              dummy2     free
eth0    rxQueue  rx-queue-pool  eth0       prepared
dummy2: device matches no pool
"""
    setting.prepare("c3", [h.result("eth0", share=SHARE.replace("a", "b"), capacity={"rxQueues": "1"})])
    assert "eth0    rxQueue  rx-queue-pool  eth0       0 attached, 2 prepared\n" in setting.statctl.ok("devices")
    assert setting.statctl.json("devices") == setting.house.query("table.list")


def test_allocations(setting):
    setting.complete()
    assert setting.statctl.ok("allocations") == "(none)\n"
    claim, _ = setting.prepare_both()
    setting.dummy.failures["device.free", "dummy0"] = mprpc.Error("internal", "no way to free it")
    with pytest.raises(mprpc.Error):
        setting.front.call("claim.unprepare", claim.ref)
    header, dummy, share, problem = setting.statctl.ok("allocations").splitlines()
    assert header.split() == ["DEVICE", "POOL", "CLAIM", "POD-UID", "STATE", "IN-POD"]
    assert dummy.split() == ["dummy0", "fast-net", "default/c1", POD, "prepared", "-"]
    assert share.split() == [f"eth0/{SHARE}", "rx-queue-pool", "default/c2", POD, "prepared", "-"]
    assert problem.startswith("dummy0: ") and problem.endswith("no way to free it")
    assert setting.statctl.json("allocations") == setting.house.query("table.list", {"table": h.ALLOCATIONS})


@pytest.mark.parametrize("more, state, problem", [
    ({"Unfinished": True}, "preparing", None),
    ({"Unfinished": True, "Problem": "no way to free it"}, "preparing", "no way to free it"),
    ({}, "prepared", None),
    ({"SandboxID": "box-1", "PodIfName": "net1", "Problem": "it is being attached"}, "attaching", None),
    ({"SandboxID": "box-1", "PodIfName": "net1"}, "attached", None),
    ({"SandboxID": "box-1", "PodIfName": "net1", "Problem": "it does not leave"}, "attached", "it does not leave"),
])
def test_state(fake, statctl, more, state, problem):
    """The same in every view. What is on its way is no problem."""
    fake.methods["table.list"] = rows([{"Name": "dummy0", "Manager": "dummy", "Dev": {}}], [row("dummy0", **more)])
    fake.methods["table.watch"] = fake.methods["table.list"]
    assert statctl.ok("devices").splitlines()[1].split() == ["dummy0", "dummy", "-", "-", state]
    _, shown, *below = statctl.ok("allocations").splitlines()
    assert shown.split()[-2:] == [state, more.get("PodIfName", "-")]
    assert below == ([f"dummy0: {problem}"] if problem else [])
    with Lines(statctl, "watch") as lines:
        told = lines.next(2)[1]
    assert f" state={state} " in told
    assert re.findall(r'problem="(.*)"', told) == ([problem] if problem else [])
    assert statctl.json("allocations")["allocations"][0].get("Problem") == more.get("Problem")


def test_states_of_shares(fake, statctl):
    """The two states that last are always counted, the others where there are any."""
    attached = {"SandboxID": "box-1", "PodIfName": "net1"}
    more = [attached, attached, {}, {**attached, "Problem": "it is being attached"}, {"Unfinished": True}]

    def shown(count):
        shares = [row("eth0", ShareID=f"share-{n}", **more[n]) for n in range(count)]
        fake.methods["table.list"] = rows([{"Name": "eth0", "Manager": "rxQueue", "Dev": {}}], shares)
        return statctl.ok("devices").splitlines()[1].split(maxsplit=4)[4]
    assert [shown(count) for count in range(6)] == [
        "free", "attached", "2 attached, 0 prepared", "2 attached, 1 prepared", "2 attached, 1 attaching, 1 prepared",
        "2 attached, 1 attaching, 1 prepared, 1 preparing"]


def test_pools(setting):
    setting.complete().prepare_both()
    assert setting.statctl.ok("pools") == """\
POOL           DEVICES  TAKEN  FREE  FILTER
fast-net             2      1     1  deviceManagers=dummy ifNames=dummy0,dummy1
rx-queue-pool        1      1     0  deviceManagers=rxQueue
unused               0      0     0  none: takes nothing

In no pool, so not published: dummy2
"""
    assert setting.statctl.json("pools") == setting.house.query("pools")


def test_pool_that_takes_everything(fake, statctl):
    fake.methods["pools"] = lambda *_: {"pools": [{"name": "all", "filter": {}, "devices": ["a"], "allocated": []}],
                                        "unmatched": []}
    assert statctl.ok("pools") == """\
POOL  DEVICES  TAKEN  FREE  FILTER
all         1      0     1  empty: takes every device
"""


# --- statedb


DEVICES_DUMP = """\
  "networkdriver-dra-devices": [
    {"Name":"dummy0","Manager":"dummy","Dev":{"Name":"dummy0"}},
    {"Name":"dummy1","Manager":"dummy","Dev":{"Name":"dummy1"}},
    {"Name":"dummy2","Manager":"dummy","Dev":{"Name":"dummy2"}},
    {"Name":"eth0","Manager":"rxQueue","Dev":{"physicalIfName":"eth0"}}
  ]"""
ALLOCATIONS_DUMP = f"""\
  "networkdriver-dra-allocations": [
    {{"DeviceName":"dummy0","Manager":"dummy","PreparedDevice":{{"Name":"dummy0"}},"LogicalPool":"fast-net",\
"PodUID":"pod-1","ClaimUID":"uid-1","Config":{{"podIfName":"net1"}},"ShareID":"","ConsumedCapacity":null}},
    {{"DeviceName":"eth0","Manager":"rxQueue","PreparedDevice":{{"physicalIfName":"eth0"}},\
"LogicalPool":"rx-queue-pool","PodUID":"pod-1","ClaimUID":"uid-2","Config":{{}},"ShareID":"{SHARE}",\
"ConsumedCapacity":{{"rxQueues":"1"}}}}
  ]"""

# as users of the Cilium Network Driver have them in their scripts
JQ_STATE = """{
    inventory: .["networkdriver-dra-devices"] | map({Name, Manager}),
    allocations: .["networkdriver-dra-allocations"] |
      map({DeviceName, Manager, LogicalPool, ShareID, ConsumedCapacity,
           PodUID, ClaimUID, Config})
  }"""
JQ_RX_QUEUE = """.["networkdriver-dra-allocations"][] |
      select(.Manager == "rxQueue") |
      {DeviceName, ShareID, ConsumedCapacity, PreparedDevice}"""


def jq(program, text):
    return json.loads(subprocess.run(["jq", program], input=text, capture_output=True, text=True, check=True).stdout)


def test_statedb(setting):
    setting.complete()
    assert setting.statctl.ok("statedb", "allocations") == '{\n  "networkdriver-dra-allocations": [\n  ]\n}\n'
    setting.prepare_both()
    dump = setting.statctl.ok("statedb")
    assert dump == f"{{\n{DEVICES_DUMP},\n{ALLOCATIONS_DUMP}\n}}\n"
    assert setting.statctl.ok("-o", "json", "statedb") == dump
    for name in "devices", h.DEVICES:
        assert setting.statctl.ok("statedb", name) == f"{{\n{DEVICES_DUMP}\n}}\n"
    assert setting.statctl.ok("statedb", h.ALLOCATIONS) == f"{{\n{ALLOCATIONS_DUMP}\n}}\n"
    state = jq(JQ_STATE, dump)
    assert state["inventory"] == [{"Name": f"dummy{i}", "Manager": "dummy"} for i in range(3)] + [
        {"Name": "eth0", "Manager": "rxQueue"}]
    assert state["allocations"][0] == {
        "DeviceName": "dummy0", "Manager": "dummy", "LogicalPool": "fast-net", "ShareID": "",
        "ConsumedCapacity": None, "PodUID": "pod-1", "ClaimUID": "uid-1", "Config": {"podIfName": "net1"}}
    assert jq(JQ_RX_QUEUE, dump) == {"DeviceName": "eth0", "ShareID": SHARE, "ConsumedCapacity": {"rxQueues": "1"},
                                     "PreparedDevice": {"physicalIfName": "eth0"}}


def test_unknown_table(setting):
    for command in "statedb", "watch":
        assert setting.statctl.fails(1, command, "nothing") == (
            f'statctl: there is no table "nothing"; these are: {h.DEVICES}, {h.ALLOCATIONS}\n')


# --- watch


def test_watch_tells_rows_and_changes(setting):
    setting.complete()
    with Lines(setting.statctl, "watch") as lines:
        assert lines.next(4) == [
            "present device     dummy0 manager=dummy pool=fast-net",
            "present device     dummy1 manager=dummy pool=fast-net",
            'present device     dummy2 manager=dummy note="device matches no pool"',
            "present device     eth0 manager=rxQueue pool=rx-queue-pool"]
        claim, _ = setting.prepare_both()
        assert lines.next(4) == [
            f"{op}  allocation {device} state={state} claim=default/{claim} pod={POD}"
            for device, claim in (("dummy0", "c1"), (f"eth0/{SHARE}", "c2"))
            for op, state in (("insert", "preparing"), ("update", "prepared"))]
        setting.front.call("claim.unprepare", claim.ref)
        for op in "update", "delete":
            assert lines.next() == f"{op}  allocation dummy0 state=releasing claim=default/c1 pod={POD}"
        setting.dummy.publish(setting.dummy.devices[1:])
        assert lines.next() == "delete  device     dummy0 manager=dummy pool=fast-net"
        setting.statd.stop()
        assert lines.wait_end() == (1, "statctl: statd went away: it closed the connection\n")


@pytest.mark.needs_root
def test_attached_in_every_view(setting):
    setting.complete().prepare_both()
    setting.house.start_netnsd()
    setting.house.wait_peer("netnsd", "connected")
    with Lines(setting.statctl, "watch", "allocations") as lines, Netns() as netns:
        lines.next(2)
        fd = netns.open()
        setting.front.call("pod.attach", {"podUID": POD, "sandboxID": "box-1"}, [fd])
        os.close(fd)
        for state in "attaching", "attached":
            assert lines.next() == (f"update  allocation dummy0 state={state} claim=default/c1 "
                                    f"pod={POD} interface=net1 sandbox=box-1")
        assert "dummy0  dummy    fast-net       dummy0     attached\n" in setting.statctl.ok("devices")
        assert setting.statctl.ok("allocations").splitlines()[1].split()[-2:] == ["attached", "net1"]
        setting.front.call("pod.detach", {"podUID": POD, "sandboxID": "box-1"})
        assert lines.next() == f"update  allocation dummy0 state=prepared claim=default/c1 pod={POD}"


def test_watch_json(setting):
    setting.complete()
    with Lines(setting.statctl, "watch", "-o", "json") as lines:
        peer = mprpc.connect(setting.house.runtime_dir / "query.sock")
        now = peer.call("table.watch")
        assert [json.loads(line) for line in lines.next(4)] == [
            {"table": h.DEVICES, "revision": now["revision"], "op": "present", "device": device}
            for device in now["devices"]]
        setting.prepare_both()
        told = [json.loads(line) for line in lines.next(4)]

        def events():
            return [params for method, params in peer.seen if method == "table.event"]
        wait_for(lambda: len(events()) >= 4, what="the same events")
        assert told == events()[:4]
        peer.close()
    with Lines(setting.statctl, "-o", "json", "watch", h.ALLOCATIONS) as lines:
        now = setting.house.query("table.list")
        assert [json.loads(line) for line in lines.next(2)] == [
            {"table": h.ALLOCATIONS, "revision": now["revision"], "op": "present", "allocation": allocation}
            for allocation in now["allocations"]]


def test_no_new_privileges(setting):
    setting.complete()
    with Lines(setting.statctl, "watch") as lines:
        lines.next()
        with open(f"/proc/{lines.popen.pid}/status") as status:
            assert "NoNewPrivs:\t1\n" in status.read()


def test_events_behind_the_answer_come_after_the_rows(fake, statctl):
    event = {"table": h.DEVICES, "revision": 2, "op": "insert", "device": {"Name": "b", "Manager": "dummy", "Dev": {}}}

    def watch(peer, _, __):
        # both in one write: the answer first
        result = rows([{"Name": "a", "Manager": "dummy", "Dev": {}}])()
        packed = mprpc.msgpack.packb([mprpc.RESPONSE, 1, None, result]) + mprpc.msgpack.packb(
            [mprpc.NOTIFICATION, "table.event", [event]])
        peer._sock.sendall(packed)
        return {}

    fake.methods["table.watch"] = watch
    with Lines(statctl, "watch") as lines:
        assert lines.next(2) == ["present device     a manager=dummy", "insert  device     b manager=dummy"]


def test_watch_ends_quietly_with_its_reader(setting):
    setting.complete()
    with subprocess.Popen(setting.statctl.argv("watch"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as popen:
        popen.stdout.readline()
        popen.stdout.close()
        setting.prepare_both()  # the next line finds nobody
        assert popen.wait(5 * STRETCH) == -signal.SIGPIPE
        assert popen.stderr.read() == b""


# --- terminals


def on_terminal(statctl, columns, *args, env=None):
    """What a terminal so wide is sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run(statctl.argv(*args), stdout=slave, stderr=slave, stdin=subprocess.DEVNULL, check=True,
                   env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}, timeout=20 * STRETCH)
    os.close(slave)
    sent = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # EIO: nobody has it open any more
            break
        if not more:
            break
        sent += more
    os.close(master)
    return sent.decode().replace("\r\n", "\n")


def test_colours_on_a_terminal_only(fake, statctl):
    fake.methods["table.list"] = rows(allocations=[
        row("dummy0", SandboxID="box-1", PodIfName="net1"),
        row("dummy1", Problem="a name is taken")])
    red, green, off = "\x1b[31m", "\x1b[32m", "\x1b[0m"
    text = on_terminal(statctl, 120, "allocations")
    assert f"{green}attached{off}" in text
    assert f"{red}prepared{off}" in text
    assert f"{red}dummy1: a name is taken{off}\n" in text
    plain = statctl.ok("allocations")
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d*m", "", text).split() == plain.split()
    assert "\x1b" not in on_terminal(statctl, 120, "allocations", env={"NO_COLOR": "1"})


def test_tables_fit_the_terminal(fake, statctl):
    fake.methods["table.list"] = rows(allocations=[row("dummy0", SandboxID="box-1", PodIfName="net1")])
    wide = statctl.ok("allocations").splitlines()
    assert max(map(len, wide)) > 80
    narrow = on_terminal(statctl, 80, "allocations", env={"NO_COLOR": "1"}).splitlines()
    assert max(map(len, narrow)) <= 80
    assert narrow[1].split()[0] == "dummy0" and narrow[1].split()[-2:] == ["attached", "net1"]
    uid = wide[1].split()[3]
    assert uid in "".join(line[narrow[0].index("POD-UID"):][:len(uid)].split(" ")[0] for line in narrow[1:]), \
        "nothing is cut off"


def test_control_characters_do_not_reach_the_terminal(fake, statctl):
    evil = "\x1b]0;owned\x07\x1b[31m"
    fake.methods["table.list"] = rows([{"Name": f"d{evil}", "Manager": "dummy", "Dev": {}, "Note": f"n{evil}"}],
                                      [row("dummy0", Problem=f"p{evil}", ClaimName=f"c{evil}")])
    fake.methods["table.watch"] = fake.methods["table.list"]
    for args in ("devices",), ("allocations",), ("statedb",), ("-o", "json", "devices"):
        assert re.findall(r"[\x00-\x09\x0b-\x1f]", statctl.ok(*args)) == []
    with Lines(statctl, "watch") as lines:
        assert not re.search(r"[\x00-\x1f]", "".join(lines.next(2)))


# --- what goes wrong


def test_no_statd(statctl, rundir):
    advice = ("Is statd running? ('systemctl status statd', or see statd(8)); "
              "--runtime-dir says where its sockets are.\n")
    path = rundir / "query.sock"
    for command in "status", "devices", "allocations", "pools", "watch", "statedb":
        assert statctl.fails(1, command) == f"statctl: cannot reach statd at {path}: No such file or directory. {advice}"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    assert statctl.fails(1, "status") == f"statctl: cannot reach statd at {path}: Connection refused. {advice}"


def test_runtime_dir_by_default(builddir):
    done = subprocess.run([builddir / "statctl", "--help"], capture_output=True, text=True, check=True)
    assert "(default: /run/netclaim)" in done.stdout


def test_path_too_long(builddir):
    long = Statctl(builddir, "/" + "x" * 200)
    assert long.fails(1, "status") == (f"statctl: cannot reach statd: /{'x' * 200}/query.sock: "
                                       "a socket's path may have at most 107 bytes\n")


@pytest.mark.needs_root
def test_who_may_ask(procs, rundir):
    house = h.House(procs, rundir, CONFIG)
    house.start_statd("--query-group", "64702")
    statctl = Statctl(procs.build, house.runtime_dir)
    # neither the build nor the machine's root directory need be open to everybody
    stranger = {"user": 64701, "group": 64701, "extra_groups": []}
    copy = rundir / "statctl"
    copy.write_bytes((procs.build / "statctl").read_bytes())
    copy.chmod(0o755)
    statctl.program = str(copy)
    assert statctl.fails(1, "status", **stranger) == (
        f"statctl: cannot reach statd at {house.runtime_dir}/query.sock: Permission denied. "
        "Only root and members of group 64702 may ask.\n")
    assert statctl.run("status", **{**stranger, "extra_groups": [64702]}).returncode == 3
    os.chown(house.runtime_dir / "query.sock", -1, 0)
    assert "Only root and members of group root may ask." in statctl.fails(1, "status", **stranger)
    house.runtime_dir.chmod(0o700)
    assert statctl.fails(1, "status", **stranger).endswith("This user may not even look into the directory.\n")


def test_statd_that_breaks(fake, statctl):
    fake.methods["status"] = lambda *_: {"version": "9"}
    assert statctl.fails(1, "status") == "statctl: answer of statd to status: nodeName: is required\n"
    assert statctl.fails(1, "pools") == "statctl: there is no method pools\n"
    fake.methods["status"] = lambda peer, *_: peer._sock.sendall(b"\xc1")
    assert "statctl: statd went away during status: " in statctl.fails(1, "status")
    fake.methods["status"] = lambda peer, *_: peer.close()
    assert statctl.fails(1, "status") == "statctl: statd went away during status: it closed the connection\n"


@pytest.mark.parametrize("args, complaint", [
    ((), "no command"),
    (("statsu",), 'unknown command "statsu"; did you mean status?'),
    (("device",), 'unknown command "device"; did you mean devices?'),
    (("aallocations",), 'unknown command "aallocations"; did you mean allocations?'),
    (("dump",), 'unknown command "dump"'),
    (("status", "x"), "status takes no operand"),
    (("watch", "devices", "x"), "watch takes one operand only"),
    (("-o", "table", "statedb"), "statedb prints JSON only"),
    (("-o", "yaml", "status"), 'option --output: "yaml" is not table or json'),
    (("--output",), "option --output needs a value"),
    (("--runtime-dir=", "status"), "option --runtime-dir: the path is empty"),
    (("--outptu=json", "status"), "unknown option --outptu; did you mean --output?"),
    (("--methods", "status"), "--methods takes no command"),
])
def test_usage(statctl, args, complaint):
    assert statctl.fails(2, *args) == f"statctl: {complaint}\nTry 'statctl --help'.\n"


def test_full_disk(fake, statctl):
    fake.methods["pools"] = lambda *_: {"pools": [], "unmatched": []}
    fake.methods["table.watch"] = rows([{"Name": "a", "Manager": "dummy", "Dev": {}}])
    for args in ("pools",), ("watch",), ("--methods",):
        with open("/dev/full", "w") as full:
            done = subprocess.run(statctl.argv(*args), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                                  timeout=20 * STRETCH)
        assert (done.returncode, done.stderr) == (1, "statctl: standard output: No space left on device\n")


# --- what it says about itself


def version():
    return (ROOT / "VERSION").read_text().strip()


def test_version(statctl):
    assert statctl.ok("--version") == f"statctl {version()}\n"


def test_methods(statctl):
    source = (ROOT / "common/api.c").read_text()
    declared = re.findall(r'\[API_\w+\] = \{"([a-z.]+)"', source)
    assert len(declared) > 20
    lines = statctl.ok("--methods").splitlines()
    assert lines[0].split() == ["METHOD", "FROM", "TO", "DEADLINE-MS", "FDS-IN", "FDS-OUT", "WHAT"]
    assert [line.split()[0] for line in lines[1:]] == declared
    by_name = {line.split()[0]: line.split(maxsplit=6)[1:] for line in lines[1:]}
    assert by_name["device.attach"][:5] == ["statd", "manager", "1500", "2", "0"]
    assert by_name["front.state"][2] == "-"
    methods = statctl.json("--methods")
    assert list(methods) == declared
    assert methods["netns.socket"] == {
        "from": "statd", "to": "netnsd", "deadlineMs": 1500, "requestFds": 1, "resultFds": 1,
        "what": "a netlink socket opened inside the namespace handed over",
        "params": {"protocol": "route or generic netlink"}, "result": {}}
    assert methods["front.state"]["result"] is None


# --- completion


def complete(*words):
    """What bash offers for the last of these words, statctl's first operand being the second."""
    script = """
        . "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        complete -p statctl | grep -q -- '-F _statctl' || exit 9
        _statctl && printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-ec", script, "bash", ROOT / "completions/statctl", "statctl", *words],
                          capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_completion_is_complete(statctl):
    text = statctl.ok("--help")
    options = set(re.findall(r"^ +(?:(-\w), )?(--[\w-]+)", text, re.MULTILINE))
    options = {word for pair in options for word in pair if word}
    commands = re.findall(r"^  (\w+)(?: \[TABLE\])? +", text.split("Commands:\n")[1], re.MULTILINE)
    assert len(options) == 7 and len(commands) == 6
    assert complete("") == options | set(commands)
    tables = {"devices", "allocations", h.DEVICES, h.ALLOCATIONS}
    for command in commands:
        takes_table = f"{command} [TABLE]" in text
        assert complete(command, "") == options | (tables if takes_table else set())


def test_completion_of_parts(tmp_path):
    assert complete("st") == {"status", "statedb"}
    assert complete("--me") == {"--methods"}
    assert complete("watch", "net") == {h.DEVICES, h.ALLOCATIONS}
    assert complete("-o", "json", "watch", "de") == {"devices"}
    assert complete("-o", "") == complete("--output", "") == complete("--output", "=") == {"table", "json"}
    assert complete("--output", "=", "j") == {"json"}
    (tmp_path / "run").mkdir()
    (tmp_path / "rum").write_text("")
    assert complete("--runtime-dir", f"{tmp_path}/ru") == {f"{tmp_path}/run"}
    assert complete("--runtime-dir", "=", f"{tmp_path}/ru") == {f"{tmp_path}/run"}
