# SPDX-License-Identifier: Apache-2.0
"""A house for walks: every daemon as it ships, with the proxy between statd and the others, a kubelet
that watches for whoever makes its sockets anew, and a look at everything that must be as it was."""
import collections
import contextlib
import json
import os
import subprocess
import threading
import time

import grpc

import house as h
import kubelet as kubelet_module
import mprpc
import procs as procs_module
import rpc_proxy
from crash_runtime import Refused

WORKING = {"netnsd": "connected", "draplugind": "registered", "nrihookd": "registered"}  # and the manager

KUBELET_SECONDS = 3  # this kubelet is not as patient as the real one
SETTLE_SECONDS = 75  # the longest deadlines in the house are of 30 s, and one comes after another
POLL_SECONDS = 0.01


class Lost(AssertionError):
    """What the house promises did not hold."""


def wait_for(condition, seconds, what):
    """As procs.wait_for, with a reason that may be computed when it is needed."""
    deadline = time.monotonic() + seconds * procs_module.STRETCH
    pause = POLL_SECONDS / 16  # most of what is waited for has all but happened
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Lost(f"{what() if callable(what) else what} (waited for {seconds * procs_module.STRETCH} s)")
        time.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS)


# --- the callers -----------------------------------------------------------------------------------


class WatchingKubelet(kubelet_module.Kubelet):
    """Registers whoever makes the registration socket anew, as the kubelet's watch does."""

    def __init__(self, root, driver):
        super().__init__(root, driver)
        self._registered = None  # the socket that was registered last
        self._changing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self):
        if threading.current_thread() is not self._thread:
            self._ended.set()
            self._thread.join()
        super().close()

    def _identity(self):
        try:
            found = os.stat(self.registry_socket)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_ctime_ns

    def is_current(self):
        return self._identity() == self._registered

    def _watch(self):
        while not self._ended.wait(POLL_SECONDS):
            identity = self._identity()
            if identity in (None, self._registered):
                continue
            with contextlib.suppress(grpc.RpcError, grpc.FutureTimeoutError, AssertionError,
                                     kubelet_module.WrongAnswer):
                self._register()
                self._registered = identity

    def _register(self):
        client = self.registration()
        try:
            info = self.get_info(client)
            self.notify(client)
        finally:
            client.close()
        with self._changing:
            super().close()
            client = kubelet_module.Client(info["endpoint"])
            self._dial(client)
            self.client = client

    def _dial(self, client):
        try:
            grpc.channel_ready_future(client.channel).result(KUBELET_SECONDS)
        except grpc.FutureTimeoutError:
            client.close()
            raise

    def registration(self):
        authority = self.registry_socket.replace("/", "%2F")
        client = kubelet_module.Client(self.registry_socket, authority)
        self._dial(client)
        return client

    def try_claims(self, verb, claims):
        """prepare or unprepare, once; raises Refused for whatever reason it was not done."""
        with self._changing:
            if not self.client:
                raise Refused("no driver is registered")
            start = self.start_prepare if verb == "prepare" else self.start_unprepare
            try:
                future = start(claims, timeout=KUBELET_SECONDS)
            except ValueError as e:
                raise Refused(str(e)) from e
        try:
            entries = kubelet_module.checked(claims, future.result())
        except grpc.FutureCancelledError as e:
            raise Refused("the driver was registered anew") from e
        except grpc.RpcError as e:
            raise Refused(e.details()) from e
        for entry in entries.values():
            if "error" in entry:
                raise Refused(entry["error"])
        return entries


# --- the house -------------------------------------------------------------------------------------


class Node(h.House):
    """All daemons, with the proxy in their middle. manager: managers.py."""

    proxy_type = rpc_proxy.Proxy

    def __init__(self, directory, manager, pods_of):
        self.processes = procs_module.Processes(directory)
        super().__init__(self.processes, directory, manager.configuration())
        self.statd_dir = directory / "statd"
        self.statd_dir.mkdir()
        self.manager = manager
        methods = rpc_proxy.read_methods(subprocess.run(
            [procs_module.BUILD / "statctl", "--methods"], check=True, capture_output=True, text=True).stdout)
        for verb in ("prepare", "unprepare"):
            methods[f"claim.{verb}"].seconds = KUBELET_SECONDS
        self.proxy = self.proxy_type(self.runtime_dir, self.statd_dir, methods)
        self.pods = pods_of(self)
        self.daemons = {}
        self.stopped = set()  # pids that were, for a while
        self.changing = threading.RLock()  # which process is which daemon
        self.names = ("statd", "netnsd", manager.name, "draplugind", "nrihookd")
        for name in self.names:
            self.start(name)
        self.watcher = WatchingKubelet(str(self.kubelet_dir), h.DRIVER)

    def start(self, name):
        """Does not wait for it."""
        common = ["--runtime-dir", self.statd_dir if name == "statd" else self.runtime_dir, "--log-level", "debug"]
        special = {
            "statd": ["--config", self.config_path, "--claims-dir", self.claims_dir, "--user", h.STATD_USER],
            "draplugind": ["--kubelet-dir", self.kubelet_dir, "--cdi-dir", self.cdi_dir],
            "nrihookd": ["--nri-socket", self.pods.nri_socket, "--kubelet-dir", self.kubelet_dir,
                         "--state-dir", self.state_dir],
            self.manager.name: self.manager.arguments,
        }
        program = self.manager.program if name == self.manager.name else name
        self.daemons[name] = self.procs.start(program, *common, *special.get(name, ()), name=name,
                                              via=self.pods.via.get(name, ()))

    def forget_ended(self):
        """Those that were killed have left nothing behind; their pids may be others' from here on."""
        self.processes.all = list(self.daemons.values())
        self.stopped.clear()

    def was_stopped(self, name):
        return self.daemons[name].pid in self.stopped

    def restart(self, name):
        with self.changing:
            self.daemons[name].kill()
            self.start(name)

    def close(self, failed=False):
        self.watcher.close()
        try:
            self.processes.finish()
        except AssertionError:
            if not failed:
                raise
        finally:
            self.proxy.close()
            self.pods.close()

    def query(self, method, params=None):
        try:
            peer = mprpc.connect(self.statd_dir / "query.sock")
        except OSError as e:
            raise mprpc.Error("unavailable", str(e)) from e
        try:
            return peer.call(method, params)
        finally:
            peer.close()

    @property
    def state_dir(self):
        return self.statd_dir / "state"

    # --- what the world is

    @staticmethod
    def all_links(check):
        return json.loads(check("ip", "-d", "-j", "link"))

    def host_links(self):
        links = [self.manager.settled(link) for link in self.all_links(self.pods.check) if self.pods.is_the_hosts(link)]
        return sorted(links, key=lambda link: link["ifname"])

    def devices_of(self, links):
        """device -> link, of links on the host."""
        return {self.manager.device_named(link): link for link in links if self.manager.is_device(link)}

    def descriptors(self, name):
        """How many of which kind."""
        directory = f"/proc/{self.daemons[name].pid}/fd"
        kinds = collections.Counter()
        with contextlib.suppress(FileNotFoundError):  # it has just been killed
            for number in os.listdir(directory):
                with contextlib.suppress(FileNotFoundError):
                    kinds[os.readlink(f"{directory}/{number}").split(":[")[0]] += 1
        return dict(sorted(kinds.items()))

    def steady_descriptors(self):
        """Those of all daemons, when the last question's connection has ended as well."""
        seen = []

        def look():
            seen.append({name: self.descriptors(name) for name in self.names})
            return seen[-5:] == seen[-1:] * 5
        wait_for(look, 5, "the descriptors do not stay as they are")
        return seen[-1]

    def files(self):
        files = [p for top in (self.claims_dir, self.cdi_dir, self.kubelet_dir) for p in top.rglob("*")]
        return sorted(str(p.relative_to(self.directory)) for p in files)

    def steady_devices(self):
        """Without the speed of the port, which has none for a moment after its functions were made."""
        rows = self.rows(h.DEVICES)
        for row in rows:
            row.get("Device", {}).get("attributes", {}).pop("linkSpeed", None)
        return rows

    def world(self):
        """Everything that a life cycle must leave as it found it: (what, how it is), one after the other."""
        yield "allocations", self.rows()
        yield "devices", self.steady_devices()
        yield "files", self.files()
        yield "descriptors", {name: self.descriptors(name) for name in self.names}
        yield "processes", len(procs_module.session_members({process.session for process in self.processes.all}))
        yield "links", self.host_links()

    def unlinked(self):
        return self.proxy.unlinked({name: process.pid for name, process in self.daemons.items()})

    def working(self):
        status = self.status()
        peers = {peer["role"]: peer for peer in status["peers"]}
        states = {**WORKING, self.manager.name: "published"}
        return status["ready"] and all(peers[name]["state"] == state and not peers[name].get("pending")
                                       for name, state in states.items())

    def settle(self, condition=lambda: True):
        """Waits until everybody is at work, nothing is under way, and the condition holds."""
        def calm():
            for process in self.daemons.values():
                if not process.running() and not process.expected:
                    raise Lost(f"{process.name} ended by itself with status {process.status}")
            try:
                return not self.unlinked() and self.proxy.quiet() and self.watcher.is_current() and \
                    self.working() and condition()
            except (mprpc.Error, TimeoutError):  # statd is stopped, or starts
                return False
        wait_for(calm, SETTLE_SECONDS, lambda: f"the house does not come to rest: {self.state()}")

    def state(self):
        """For a report."""
        try:
            status = self.status()
            peers = {peer["role"]: (peer["state"], peer.get("pending", 0)) for peer in status["peers"]}
            rows = [(r["DeviceName"], r.get("SandboxID", "")[:12], r.get("Problem")) for r in self.rows()]
            return {"ready": status["ready"], "missing": status.get("missing"), "peers": peers, "rows": rows,
                    "unlinked": self.unlinked(), "quiet": self.proxy.quiet()}
        except (mprpc.Error, TimeoutError) as e:
            return str(e)
