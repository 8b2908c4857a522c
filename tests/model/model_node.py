# SPDX-License-Identifier: Apache-2.0
"""The steps of machine.py, done to real daemons, and the view of what became of them.

    machine = Machine(directory, managers.dummy())
    answer = machine.apply({"do": "prepare", "uid": "c0.1"})
    machine.see()            # as machine.view() has it

The labels of a walk (UIDs, pods, sandboxes) are made into the real thing here and back again. Every
sandbox's namespace is kept open until it was looked at for the last time, as a process of the pod's that
takes its time to end would keep it: so a link that was left in it is seen.
"""
import contextlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import threading
import uuid

import house as h
import nri_wire as wire
import procs as procs_module
import rpc_proxy
from crash_node import Lost, Node, wait_for
from crash_runtime import FakePods, Refused, Sandbox
from machine import HOST, OK, REFUSED, SKIPPED, UNASKED
from netns import Netns

BEGIN_SECONDS = 0.15  # in which a call that meets no lock is done, on an idle machine
HELD_SECONDS = 1.0  # a message is held no longer, so that its deadline does not pass
WRITTEN_SECONDS = 10  # by then the status of claims is written, when statd has just started
MARK_TEXTS = {"foreign": "netclaim:{other}:{device}", "garbage": "netclaim:?", "empty": "", "plain": "uplink of rack 7"}
ODD_MAC = "02:00:5e:00:53:01"
ODD_ENTRY = {"driver": "other.example.com", "pool": "elsewhere", "device": "d0", "data": {"guid": 18446744073709551615}}


def limit_descriptors(pid, soft, hard):
    """Of statd: its user may do that without a capability."""
    uid, gid = map(int, h.STATD_USER.split(":"))
    subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={soft}:{hard}"], user=uid, group=gid, extra_groups=(),
                   check=True, capture_output=True)


class NotHere(Exception):
    """What a step needs is not part of this build."""


class Plan:
    """What happens at the at-th message from now on: action is called, and if hold is set the message
    and all behind it on its way wait until let_go."""

    def __init__(self, at, action=None, hold=False):
        self.at, self.action, self.hold = at, action, hold
        self.came = threading.Event()
        self.acted = threading.Event()
        self.over = threading.Event()

    def let_go(self):
        self.over.set()

    def end(self):
        """Whether the message came; then what was to happen has happened."""
        if self.came.is_set():
            self.acted.wait()
        return self.came.is_set()


class HoldingProxy(rpc_proxy.Proxy):
    """A proxy that can keep one message back while the others pass."""

    def __init__(self, *args):
        self.plan = self.holding = None
        self.waiting = {}  # way -> [(connection, message, bytes)], until the plan that is holding lets go
        super().__init__(*args)
        self.ticks = [self._tick]

    def follow(self, plan):
        self.plan = plan

    def _message(self, connection, way, message, raw):
        plan = self.plan
        if way in self.waiting:
            self.waiting[way].append((connection, message, raw))
            return
        if plan and not plan.came.is_set():
            plan.at -= 1
            if plan.at < 0:
                plan.came.set()
                if plan.action:
                    plan.action()
                if plan.hold:
                    self.waiting[way] = [(connection, message, raw)]
                    self.holding = plan
                plan.acted.set()
                if plan.hold:
                    return
        super()._message(connection, way, message, raw)

    def _tick(self):
        if not self.waiting or not self.holding.over.is_set():
            return
        for way, messages in list(self.waiting.items()):
            del self.waiting[way]
            for connection, message, raw in messages:
                if connection in self._connections:
                    super()._message(connection, way, message, raw)


class Box(Sandbox):
    """A sandbox. other: a namespace of the pod's own making."""

    def __init__(self, label, uid):
        super().__init__(uid)
        self.label = label
        self.fd = self.netns.open()
        self.other = None

    def check(self, *command):
        return subprocess.run(["nsenter", f"--net=/proc/self/fd/{self.fd}", *command], pass_fds=[self.fd], check=True,
                              capture_output=True, text=True).stdout

    def leave(self):
        """Nothing of ours keeps its namespace any more."""
        self.close()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Pods(FakePods):
    """Answers of the plugin as a walk has them."""

    def ask(self, event, box, **more):
        """(answer, text)"""
        with self.lock:
            return self._ask_held(event, box, **more)

    def _ask_held(self, event, box, **more):
        said = self._ask(lambda plugin: plugin.event(event, box.told, **more))
        if said is None:
            return UNASKED, "; ".join(self.drops[-1:])
        return (REFUSED if said[0] else OK), said[1]

    def start(self, box):
        with self.lock:
            answer, text = self._ask_held(wire.RUN, box)
            if answer == REFUSED:
                self._ask_held(wire.STOP, box)
                self._ask_held(wire.REMOVE, box)
            else:
                self.live[box.id] = box.told
            return answer, text

    def end(self, box, early):
        with self.lock:
            if early:
                box.close()
            answer, text = self._ask_held(wire.STOP, box)
            if answer != REFUSED:
                box.close()
                self.live.pop(box.id, None)
                self._ask_held(wire.REMOVE, box)
            return answer, text

    def forget(self, box):
        with self.lock:
            self.live.pop(box.id, None)


class ModelNode(Node):
    proxy_type = HoldingProxy


class Machine:
    def __init__(self, directory, manager):
        self.manager = manager
        manager.clear()
        self.node = ModelNode(directory, manager, lambda node: Pods(node.directory / "nri.sock", manager))
        self.pods = self.node.pods
        self.state_dir = self.node.state_dir
        self.begin()
        self.node.settle()
        manager.remember()

    def begin(self):
        """A walk: all labels are new."""
        self.nonce = uuid.uuid4()
        self.labels = {}  # what the daemons know -> label
        self.claims = {}  # name -> h.Claim
        self.boxes = {}  # label -> Box
        self.ended = []  # boxes that were stopped and not yet looked into
        self.indices = {}  # ifindex -> device
        self.told = []  # (step, answer, text)
        self.legible = True  # the API answers
        self.overlapping = False  # several steps are under way

    def close(self, failed=False):
        for box in [*self.boxes.values(), *self.ended]:
            box.leave()
            if box.other:
                box.other.__exit__()
        self.node.close(failed)

    def real(self, label):
        """The UID of this label."""
        uid = str(uuid.uuid5(self.nonce, label))
        self.labels[uid] = label
        return uid

    def label(self, real):
        return self.labels.get(real, real) if real else None

    # --- steps: each answers (answer, text)

    def apply(self, step):
        """One of OK, REFUSED, UNASKED, SKIPPED; for several things at a time a tuple of them."""
        arguments = {key: value for key, value in step.items() if key != "do"}
        answer, text = getattr(self, "do_" + step["do"])(**arguments)
        self.told.append((step, answer, text))
        return answer

    def do_publish(self, uid, devices, pods):
        name = uid.split(".")[0]
        results = [h.result(device, f"r{n}") for n, device in enumerate(devices)]
        config = [h.opaque(self.parameters(device), [f"r{n}"]) for n, device in enumerate(devices)]
        self.claims[name] = h.Claim(self.node, name, results, config, uid=self.real(uid),
                                    reserved=[self.real(pod) for pod in pods])
        self.write(self.claims[name])
        return OK, ""

    def parameters(self, device):
        """With sysctls for some: they are set between two calls to the manager."""
        sysctls = {"interfaceSysctlIPv4": {"arp_filter": "1"}} if self.number(device) % 2 == 0 else {}
        return {"podIfName": self.pod_name(device), **sysctls, **self.manager.parameters(self.number(device))}

    def do_edit(self, name, devices=None, pods=None, legible=None):
        claim = self.claims.get(name)
        if not claim:
            return SKIPPED, ""
        status = claim.object["status"]
        label = self.label(claim.uid)
        if devices is not None or pods is not None:
            old = status
            devices = devices or [r["device"] for r in status["allocation"]["devices"]["results"]]
            pods = [self.label(p["uid"]) for p in status["reservedFor"]] if pods is None else pods
            torn = getattr(claim, "torn", False)
            self.do_publish(label, devices, pods)
            claim = self.claims[name]
            claim.torn = torn
            if "devices" in old:
                claim.object["status"]["devices"] = old["devices"]
        if legible is not None:
            claim.torn = not legible
        self.write(claim)
        return OK, ""

    def do_entry(self, name):
        claim = self.claims.get(name)
        if not claim:
            return SKIPPED, ""
        claim.object["status"]["devices"] = [ODD_ENTRY]
        return self.do_edit(name)

    def do_delete(self, name):
        claim = self.claims.pop(name, None)
        if not claim:
            return SKIPPED, ""
        claim.path.unlink()
        return OK, ""

    def do_api(self, legible):
        """The files cannot be read; without its directory statd would not start."""
        self.legible = legible
        for claim in self.claims.values():
            self.write(claim)
        return OK, ""

    def do_written(self):
        if not self.legible or any(getattr(claim, "torn", False) for claim in self.claims.values()):
            return SKIPPED, ""
        self.node.settle()
        wait_for(lambda: not self.node.status().get("statusDue"), WRITTEN_SECONDS, "claims' status stays due")
        return OK, ""

    def write(self, claim):
        text = json.dumps(claim.object)
        if getattr(claim, "torn", False):
            text = text[:len(text) // 2]
        claim.path.write_text(text)
        claim.path.chmod(0o644 if self.legible else 0o600)

    def _claims(self, verb, uid):
        ref = {"namespace": "default", "name": uid.split(".")[0], "uid": self.real(uid)}
        try:
            self.node.watcher.try_claims(verb, [ref])
        except Refused as e:
            return REFUSED, str(e)
        return OK, ""

    def do_prepare(self, uid):
        answer, text = self._claims("prepare", uid)
        if answer == OK and not self.overlapping:
            self.assert_given(uid)
        return answer, text

    def do_unprepare(self, uid):
        answer, text = self._claims("unprepare", uid)
        if answer == OK and not self.overlapping:
            self.assert_nothing_of(uid)
        return answer, text

    def do_run(self, pod, sandbox):
        if sandbox in self.boxes:
            return SKIPPED, ""
        box = Box(sandbox, self.real(pod))
        self.labels[box.id] = sandbox
        answer, text = self.pods.start(box)
        if answer == REFUSED:
            box.close()
            self.ended.append(box)
        else:
            self.boxes[sandbox] = box
        return answer, text

    def do_create(self, sandbox, claims=()):
        box = self.boxes.get(sandbox)
        if not box or box.id not in self.pods.live:
            return SKIPPED, ""
        return self.pods.ask(wire.CREATE, box, mounts=[mount for name in claims for mount in self.mounts(name)])

    def mounts(self, name):
        """Sources of the mounts that a container is given for this claim, whatever became of the claim since."""
        return [str(self.node.plugin_dir / "dra-device-metadata" / f"default_{name}" / "r0" / "metadata.json")]

    def do_stop(self, sandbox, early=False):
        box = self.boxes.get(sandbox)
        if not box or box.id not in self.pods.live:
            return SKIPPED, ""
        answer, text = self.pods.end(box, early)
        if answer == OK:
            self.ended.append(self.boxes.pop(sandbox))
        elif answer == UNASKED:
            box.leave()
        return answer, text

    def do_vanish(self, sandbox):
        box = self.boxes.get(sandbox)
        if not box or box.id not in self.pods.live:
            return SKIPPED, ""
        self.pods.forget(box)
        box.leave()
        return OK, ""

    def do_spoil(self, device, how, text=None):
        box, link = self.find_in_pod(device)
        if not link:
            return SKIPPED, ""
        name = link["ifname"]
        if how == "rename":
            box.check("sh", "-c", f"ip link set {name} down && ip link set {name} name {self.renamed(device)} && "
                                  f"ip link set {self.renamed(device)} up")
        elif how == "mac":  # an ifb has no choice of one
            box.check("sh", "-c", f"ip link set {name} down; ip link set {name} address {ODD_MAC}; "
                                  f"ip link set {name} up")
        elif how == "mark":
            alias = link.get("ifalias", "")
            other = next((claim.uid for claim in self.claims.values() if claim.uid not in alias), "nobody")
            box.check("ip", "link", "set", "dev", name, "alias", MARK_TEXTS[text].format(other=other, device=device))
        elif how == "mtu":
            box.check("ip", "link", "set", name, "mtu", "1400")
        elif how == "move":
            box.other = box.other or Netns()
            box.check("ip", "link", "set", name, "netns", box.other.name)
        else:
            if self.manager.physical:
                return SKIPPED, ""
            box.check("ip", "link", "del", name)
        return OK, ""

    def do_bury(self, sandbox):
        box = self.boxes.get(sandbox) or next((b for b in self.ended if b.label == sandbox), None)
        if not box or not box.other:
            return SKIPPED, ""
        box.other.__exit__()
        box.other = None
        return OK, ""

    def do_restart(self, daemon, how="kill"):
        name = self.daemon(daemon)
        if how == "kill":
            self.node.restart(name)
        else:
            with self.node.changing:
                self.node.daemons[name].stop(30)
                self.node.start(name)
        return OK, ""

    def daemon(self, name):
        return self.manager.name if name == "manager" else name

    def do_without(self, step):
        with self.node.changing:
            self.node.daemons["statd"].kill()
            answer = self.apply(step)
            self.node.start("statd")
        return answer, ""

    def do_damage(self, uid, how):
        path = self.state_dir / "claims" / f"{self.real(uid)}.json"
        if not path.exists():
            raise NotHere
        with self.node.changing:
            self.node.daemons["statd"].kill()
            data = path.read_bytes()
            path.write_bytes({"cut": data[:-(len(data.splitlines()[-1]) // 2)], "empty": b"", "garbage": os.urandom(200)}[how])
            self.node.start("statd")
        return OK, ""

    def do_during(self, outer, inner, at):
        plan = Plan(at, hold=True)
        answers = [None] * (1 + len(inner))

        def go(number, step):
            answers[number] = self.apply(step)
        threads = [threading.Thread(target=go, args=(n, step), daemon=True) for n, step in enumerate([outer, *inner])]
        self.overlapping = True
        self.node.proxy.follow(plan)
        threads[0].start()
        with contextlib.suppress(Lost):
            wait_for(lambda: plan.came.is_set() or not threads[0].is_alive(), 5, "the message")
        for thread in threads[1:]:
            thread.start()
            thread.join(BEGIN_SECONDS * procs_module.STRETCH)
        plan.let_go()
        came = plan.end()
        for thread in threads:
            thread.join()
        self.overlapping = False
        self.node.proxy.follow(None)
        return tuple(answers), "" if came else "the message did not come"

    def do_interrupted(self, step, daemon, at):
        plan = Plan(at, action=lambda: self.node.restart(self.daemon(daemon)))
        self.node.proxy.follow(plan)
        answer = self.apply(step)
        self.node.proxy.follow(None)
        came = plan.end()
        if came and daemon == "statd" and step["do"] == "stop":  # nothing but its descriptor kept the namespace
            self.looked()
        return (answer, came), ""

    def do_starved(self, step, at, left):
        """From the at-th message of a step to its end statd can open so many descriptors more, and no others."""
        pid = self.node.daemons["statd"].pid
        limits = re.search(r"Max open files +(\d+) +(\d+)", pathlib.Path(f"/proc/{pid}/limits").read_text()).groups()

        def starve():
            used = set(map(int, os.listdir(f"/proc/{pid}/fd")))
            free = (number for number in itertools.count() if number not in used)
            limit_descriptors(pid, next(itertools.islice(free, left, None)), limits[1])
        plan = Plan(at, action=starve)
        self.node.proxy.follow(plan)
        answer = self.apply(step)
        self.node.proxy.follow(None)
        came = plan.end()
        with contextlib.suppress(subprocess.CalledProcessError):  # it has ended: settle() finds out
            limit_descriptors(pid, *limits)
        return answer, "" if came else "the message did not come"

    # --- what can be seen

    def number(self, device):
        return self.manager.devices.index(device)

    def pod_name(self, device):
        return f"net{self.number(device)}"

    def renamed(self, device):
        return f"odd{self.number(device)}"

    def devices_of(self, links):
        """device -> link. One that is none of them is called by its name."""
        found = {}
        for link in links:
            if self.manager.is_device(link):
                found.setdefault(self.device_of(link), link)
        return found

    def device_of(self, link):
        names = [self.pod_name(device) for device in self.manager.devices]
        device = self.manager.device_named(link, names) or self.indices.get(link["ifindex"])
        if device:
            self.indices[link["ifindex"]] = device
        return device or f"{link['ifname']}, which is not known"

    def find_in_pod(self, device):
        for box in self.boxes.values():
            if box.id in self.pods.live:
                link = self.devices_of(self.node.all_links(box.check)).get(device)
                if link:
                    return box, link
        return None, None

    def state_on_host(self, device, link, row, links):
        if not row:
            return HOST + self.manager.unlike_free(device, link, links)
        marked = self.label(link.get("ifalias", "").partition(":")[2].partition(":")[0])
        mark = "" if marked == row[0] else f", marked for {marked}"
        return HOST + mark + self.manager.unlike_prepared(device, link, links)

    def see_places(self, rows):
        places = {device: [] for device in self.manager.devices}
        on_host = self.node.all_links(self.pods.check)
        for device, link in self.devices_of(on_host).items():
            places.setdefault(device, []).append(self.state_on_host(device, link, rows.get(device), on_host))
        for box in [*self.boxes.values(), *self.ended]:
            for device in self.devices_of(self.node.all_links(box.check)) if box.fd >= 0 else ():
                places.setdefault(device, []).append(box.label + self.manager.unlike_attached(device, on_host))
        return {device: " and ".join(found) or None for device, found in places.items()}

    def see_rows(self):
        rows = dict.fromkeys(self.manager.devices)
        for row in self.node.rows():
            rows[row["DeviceName"]] = tuple(self.label(row.get(key)) for key in ("ClaimUID", "PodUID", "SandboxID"))
        return rows

    def see_status(self):
        status = {}
        for claim in self.claims.values():
            try:
                written = json.loads(claim.status_path.read_text())
            except FileNotFoundError:
                written = {"metadata": {"uid": None}}
            ours = written["status"]["devices"] if written["metadata"]["uid"] == claim.uid else []
            status[self.label(claim.uid)] = sorted(entry["device"] for entry in ours)
        return status

    def see_records(self):
        """The files of the state directory; None: this build has none."""
        if not self.state_dir.exists():
            return None
        claims = self.state_dir.glob("claims/*.json")
        return {"claims": sorted(self.label(path.name.removesuffix(".json")) for path in claims),
                "pods": sorted(self.label(path.name) for path in self.state_dir.glob("pods/*"))}

    def see(self):
        rows = self.see_rows()
        return {"rows": rows, "places": self.see_places(rows), "status": self.see_status(),
                "records": self.see_records()}

    def looked(self):
        """The sandboxes that have ended are not looked at any more."""
        for box in self.ended:
            box.leave()
            if box.other:
                self.boxes[box.label] = box
        self.ended = []

    def only_status_is_due(self, path):
        """A record without devices: the claim's entry in the status is still to be removed."""
        try:
            record = h.read_record(path) if path.parent == self.state_dir / "claims" else {}
            return record.get("statusDue") and "devices" not in record
        except FileNotFoundError:
            return True

    def assert_given(self, uid):
        """Success was answered for a prepare: containers are given what do_create() gives them."""
        paths = self.node.cdi_dir.glob(f"*_{self.real(uid)}_*.json")
        edits = [device["containerEdits"] for path in paths for device in json.loads(path.read_text())["devices"]]
        sources = [mount["hostPath"] for edit in edits for mount in edit["mounts"]]
        if self.mounts(uid.split(".")[0])[0] not in sources:
            raise Lost(f"a container of claim {uid} is given {sources}")

    def assert_nothing_of(self, uid):
        """Success was answered for an unprepare."""
        real = self.real(uid)
        files = [path for top in (self.node.cdi_dir, self.node.plugin_dir, self.state_dir) for path in top.rglob("*")
                 if real in path.name and not self.only_status_is_due(path)]
        if files:
            raise Lost(f"unprepare of {uid} has succeeded, and left {', '.join(map(str, files))}")
