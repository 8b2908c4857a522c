# SPDX-License-Identifier: Apache-2.0
"""A container runtime's side of NRI, with the habits of the real ones, for a plugin under test.

    runtime = Runtime(path, style="0.12").listen()
    plugin = runtime.accept()          # connected, registered, configured
    plugin.synchronize([pod("a")])
    code, text = plugin.event(RUN, pod("b", netns="/run/netns/b"))

style is the NRI release: "0.6" tells no timeouts, "0.8" does, "0.12" has a call for each event.
"""
import os
import socket

import nri_wire as wire
import pbmini as pb
from nri_wire import CREATE, Violation

# of containerd, with that NRI; none that leaves refused sandboxes behind
VERSIONS = {"0.6": "1.7.24~ds1", "0.8": "1.7.27", "0.12": "2.3.4+unknown"}
# of a container that was given nothing
MOUNTS = ("proc", "tmpfs", "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/s/hosts")
VALID_EVENTS = {"0.6": 0x7ff, "0.8": 0x7ff, "0.12": 0x3fff}
METADATA = [{"key": "containerd-namespace-ttrpc", "value": "k8s.io"},
            {"key": "traceparent", "value": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}]


def pod(ident, netns=None, uid=None, pid=1, annotations=None, name=None):
    """A sandbox; netns None: on the host's network."""
    namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
    if netns is not None:
        namespaces.append({"type": "network", "path": str(netns)})
    uid = uid or f"uid-{ident}"
    return {"id": ident.ljust(64, "0"), "name": name or f"pod-{ident}", "uid": uid, "namespace": "default",
            "labels": {"io.kubernetes.pod.uid": uid}, "annotations": annotations or {"a": "b"},
            "linux": {"cgroup_parent": "/kubepods", "namespaces": namespaces}, "pid": pid}


class Plugin:
    """A plugin's connection. Requests that were sent may be answered in any order."""

    def __init__(self, sock, style, timeout, metadata):
        self.sock = sock
        self.trunk = wire.Trunk(sock)
        self.style = style
        self.timeout = timeout
        self.metadata = METADATA if metadata else []
        self.stream = -1
        self.identity = None
        self.events = None
        self.answers = {}
        self.dedicated = style == "0.12"

    # --- registration, step by step

    def read_registration(self):
        self.sock.settimeout(5)
        channel, stream, kind, data = self.trunk.receive()
        if (channel, stream, kind) != (wire.RUNTIME, 1, wire.REQUEST):
            raise Violation(f"the first message is {(channel, stream, kind)}")
        request = pb.decode(wire.TTRPC_REQUEST, data)
        if (request["service"], request["method"]) != (wire.SERVICE_RUNTIME, "RegisterPlugin"):
            raise Violation(f"unexpected call {request}")
        self.identity = pb.decode(wire.REGISTER, request["payload"])
        index = self.identity.get("plugin_idx", "")
        if len(index) != 2 or not index.isdigit() or not self.identity.get("plugin_name"):
            raise Violation(f"bad identity {self.identity}")

    def answer_registration(self, code=0, text=""):
        """Success is a message without data."""
        self.trunk.send(wire.RUNTIME, 1, wire.RESPONSE, wire.encode_status(code, text) if code else b"")

    def send_configure(self, name="containerd", version=None):
        config = {"runtime_name": name, "runtime_version": version or VERSIONS[self.style]}
        if self.style != "0.6":
            config.update(registration_timeout=5000, request_timeout=int(self.timeout * 1000))
        if self.style == "0.12":
            config["nri_version"] = "v0.12.0"
        return self.send("Configure", pb.encode(wire.CONFIGURE, config))

    def wait_configured(self, stream):
        response = self.wait(stream)
        self.events = pb.decode(wire.CONFIGURE_RESPONSE, response.get("payload", b"")).get("events", 0)
        if self.events & ~VALID_EVENTS[self.style]:
            raise Violation(f"events {self.events:#x} are unknown to this runtime")

    def register(self, **configure):
        """Configure goes before the answer to RegisterPlugin, as real runtimes may have it."""
        self.read_registration()
        stream = self.send_configure(**configure)
        self.answer_registration()
        self.wait_configured(stream)
        return self

    # --- calls

    def skip_stream(self):
        """As after a request that died before it was sent."""
        self.stream += 2

    def send(self, method, payload=b"", timeout=None):
        """Sends a request; returns its stream."""
        self.stream += 2
        nano = int((self.timeout if timeout is None else timeout) * 1e9)
        self.trunk.send(wire.PLUGIN, self.stream, wire.REQUEST, pb.encode(wire.TTRPC_REQUEST, {
            "service": wire.SERVICE_PLUGIN, "method": method, "payload": payload,
            "timeout_nano": nano, "metadata": self.metadata}))
        return self.stream

    def wait(self, stream, timeout=None):
        """The response to a request, within the time that the runtime gives."""
        self.sock.settimeout(timeout or self.timeout)
        while stream not in self.answers:
            try:
                channel, answered, kind, data = self.trunk.receive()
            except TimeoutError:
                raise Violation(f"stream {stream}: no answer; a runtime closes and starts the pod")
            if (channel, kind) != (wire.PLUGIN, wire.RESPONSE):
                raise Violation(f"message of type {kind} on channel {channel}")
            self.answers[answered] = pb.decode(wire.TTRPC_RESPONSE, data)
        return self.answers.pop(stream)

    def synchronize(self, pods=(), per_message=None):
        """All parts share one stretch of time, and each must be answered as it was asked."""
        pods = list(pods)
        per_message = per_message or max(len(pods), 1)
        parts = [pods[i:i + per_message] for i in range(0, len(pods), per_message)] or [[]]
        for number, part in enumerate(parts):
            more = number + 1 < len(parts)
            response = self.wait(self.send("Synchronize", pb.encode(
                wire.SYNCHRONIZE, {"pods": part, "more": int(more)})))
            if response.get("status", {}).get("code"):
                raise Violation(f"Synchronize failed: {response}")
            reply = pb.decode(wire.SYNCHRONIZE_RESPONSE, response.get("payload", b""))
            if bool(reply.get("more")) != more:
                raise Violation("plugin does not handle split sync requests")
        return self

    def send_event(self, event, told, timeout=None, mounts=()):
        """mounts: sources of a container's mounts, besides those that every container has."""
        if not self.events & 1 << (event - 1):
            raise Violation(f"{wire.EVENT_NAMES[event]} is not subscribed")
        if event == CREATE:  # a call of its own in every release
            container = {"id": "c" * 64, "pod_sandbox_id": told["id"], "name": "c1",
                         "mounts": [{"destination": f"/m{i}", "source": source, "options": ["ro", "bind"]}
                                    for i, source in enumerate((*MOUNTS, *mounts))]}
            return self.send(wire.EVENT_NAMES[event], pb.encode(
                wire.CREATE_CONTAINER, {"pod": told, "container": container}), timeout)
        if self.dedicated:
            return self.send(wire.EVENT_NAMES[event], pb.encode(wire.POD_REQUEST, {"pod": told}), timeout)
        return self.send("StateChange", pb.encode(wire.STATE_CHANGE, {"event": event, "pod": told}), timeout)

    def wait_event(self, stream, timeout=None):
        """(code, text) of the answer."""
        status = self.wait(stream, timeout).get("status", {})
        if status.get("code") == 12:
            raise Violation("an event is not implemented")
        return status.get("code", 0), status.get("message", "")

    def event(self, event, told, timeout=None, mounts=()):
        return self.wait_event(self.send_event(event, told, timeout, mounts), timeout)

    # --- the end

    def wait_closed(self, timeout=5):
        """Waits until the plugin has closed; returns nothing, answers are dropped."""
        self.sock.settimeout(timeout)
        try:
            while True:
                self.trunk.receive()
        except (EOFError, ConnectionError):
            self.close()

    def close(self):
        self.sock.close()


class Runtime:
    """Listens where plugins look for it."""

    def __init__(self, path, style="0.8", timeout=2.0, metadata=False):
        self.path = str(path)
        self.style = style
        self.timeout = timeout
        self.metadata = metadata
        self.listener = None
        self.connections = []

    def listen(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4)
        return self

    def accept_raw(self, timeout=10):
        """A connection of which nothing has been read."""
        self.listener.settimeout(timeout)
        sock, _ = self.listener.accept()
        plugin = Plugin(sock, self.style, self.timeout, self.metadata)
        self.connections.append(plugin)
        return plugin

    def accept(self, timeout=10, **configure):
        return self.accept_raw(timeout).register(**configure)

    def stop(self):
        """As the end of the process: connections end, and the socket's file stays."""
        for plugin in self.connections:
            plugin.close()
        self.connections.clear()
        if self.listener:
            self.listener.close()
        self.listener = None
