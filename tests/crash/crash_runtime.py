# SPDX-License-Identifier: Apache-2.0
"""A container runtime that runs a pod's life and puts up with a plugin that dies, the way containerd
does: without an answer in time it closes the connection and goes on as if the plugin had agreed; a
plugin that connects is told which sandboxes there are; and what is refused is an error of the call.
"""
import contextlib
import select
import socket
import subprocess
import threading
import uuid

import fake_runtime
import nri_wire as wire
from netns import Netns

POLL_SECONDS = 0.01
GONE = (wire.Violation, EOFError, OSError)


class Refused(Exception):
    """A call of kubelet's or the runtime's that failed; it is repeated."""


def check_inside(netns, *command):
    # ip netns exec would mount a sysfs for each
    return subprocess.run(["nsenter", f"--net={netns.path}", *command], check=True, capture_output=True,
                          text=True).stdout


class Sandbox:
    def __init__(self, uid):
        self.netns = Netns()
        self.told = fake_runtime.pod(uuid.uuid4().hex, self.netns.path, uid)
        self.id = self.told["id"]
        self.open = True

    def check(self, *command):
        """Runs a command inside; returns its output."""
        return check_inside(self.netns, *command)

    def close(self):
        """Takes its namespace's name away, as runtimes do early."""
        if self.open:
            self.netns.__exit__()
        self.open = False


class FakePods:
    """habits of real runtimes take turns: whether the namespace goes before the plugin hears of the
    end, and of which version it says it is."""

    VERSIONS = ("1.7.27", "2.1.9")

    def __init__(self, path, manager):
        self.nri_socket = path
        self.host = Netns() if manager.own_host else None  # the node's network namespace; None: this one
        inside = ["nsenter", f"--net={self.host.path}", "--"] if self.host else []
        self.via = {"netnsd": inside, manager.name: inside}
        self.runtime = fake_runtime.Runtime(path).listen()
        self.plugin = None
        self.live = {}  # sandbox id -> what a plugin is told of it
        self.lock = threading.Lock()  # as in a runtime: no list is sent while a pod starts or ends
        self.walks = 0
        self.drops = []  # why connections were given up
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def close(self):
        self.ended.set()
        self.thread.join()
        self.runtime.stop()
        if self.host:
            self.host.__exit__()

    def check(self, *command):
        """Runs a command on the host; returns its output."""
        if self.host:
            return check_inside(self.host, *command)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @staticmethod
    def is_the_hosts(_link):
        return True

    def next_habit(self):
        self.walks += 1

    # --- the plugin's connection

    def _drop(self):
        self.plugin.close()
        self.runtime.connections.remove(self.plugin)
        self.plugin = None

    def _is_gone(self):
        if not select.select([self.plugin.sock], [], [], 0)[0]:
            return False
        try:
            return self.plugin.sock.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def _serve(self):
        while not self.ended.is_set():
            waiting, _, _ = select.select([self.runtime.listener], [], [], POLL_SECONDS)
            with self.lock:
                if self.plugin and self._is_gone():
                    self._drop()
                if waiting:
                    self._admit()

    def _admit(self):
        if self.plugin:  # another process took its place
            self._drop()
        plugin = self.runtime.accept_raw()
        self.plugin = plugin
        try:
            plugin.register(version=self.VERSIONS[self.walks % 2]).synchronize(list(self.live.values()))
        except GONE:
            self._drop()

    def _ask(self, ask):
        """(code, text) of the plugin, or None if there is none to be asked, or it does not answer."""
        if not self.plugin:
            return None
        try:
            return ask(self.plugin)
        except GONE as e:
            self.drops.append(f"{type(e).__name__}: {e}")
            self._drop()
            return None

    def _event(self, event, told):
        return self._ask(lambda plugin: plugin.event(event, told)) or (0, "")

    # --- what the kubelet asks for

    def run(self, uid):
        sandbox = Sandbox(uid)
        with self.lock:
            code, text = self._event(wire.RUN, sandbox.told)
            if code == 0:
                self.live[sandbox.id] = sandbox.told
                return sandbox
            self._event(wire.STOP, sandbox.told)
            sandbox.close()
            self._event(wire.REMOVE, sandbox.told)
        raise Refused(text)

    def create(self, sandbox):
        """Whether a plugin was asked for its leave, and gave it."""
        with self.lock:
            answer = self._ask(lambda plugin: plugin.event(wire.CREATE, sandbox.told))
        if answer and answer[0]:
            raise Refused(answer[1])
        return answer is not None

    def stop(self, sandbox):
        with self.lock:
            if self.walks % 2:
                sandbox.close()
            code, text = self._event(wire.STOP, sandbox.told)
            if code:
                raise Refused(text)
            self.live[sandbox.id] = {**sandbox.told, "pid": 0}
            sandbox.close()

    def remove(self, sandbox):
        with self.lock:
            code, text = self._event(wire.REMOVE, sandbox.told)
            with contextlib.suppress(KeyError):
                del self.live[sandbox.id]
        if code:
            raise Refused(text)
