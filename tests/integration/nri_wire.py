# SPDX-License-Identifier: Apache-2.0
"""NRI on the wire (multiplexer, ttrpc, nri.pkg.api.v1alpha1) for tests, in plain Python: an
implementation of its own, which shares nothing with the one under test."""
import struct

import pbmini as pb

MUX_HEADER = struct.Struct(">II")  # channel, payload length
TTRPC_HEADER = struct.Struct(">IIBB")  # data length, stream id, type, flags
PLUGIN, RUNTIME = 1, 2  # channels: the runtime calls, the plugin calls
REQUEST, RESPONSE = 1, 2
GO_READER = 4096  # bytes that the Go implementation's reader takes at a time

SERVICE_RUNTIME = "nri.pkg.api.v1alpha1.Runtime"
SERVICE_PLUGIN = "nri.pkg.api.v1alpha1.Plugin"

RUN, STOP, REMOVE, CREATE = 1, 2, 3, 4
EVENT_NAMES = {RUN: "RunPodSandbox", STOP: "StopPodSandbox", REMOVE: "RemovePodSandbox",
               CREATE: "CreateContainer"}

# --- ttrpc's envelope
KEY_VALUE = {1: ("key", "str"), 2: ("value", "str")}
TTRPC_REQUEST = {1: ("service", "str"), 2: ("method", "str"), 3: ("payload", "bytes"),
                 4: ("timeout_nano", "i"), 5: ("metadata", ("rep", ("msg", KEY_VALUE)))}
STATUS = {1: ("code", "i"), 2: ("message", "str")}
TTRPC_RESPONSE = {1: ("status", ("msg", STATUS)), 2: ("payload", "bytes")}

# --- NRI's messages
NAMESPACE = {1: ("type", "str"), 2: ("path", "str")}
LINUX_POD = {1: ("pod_overhead", "bytes"), 2: ("pod_resources", "bytes"), 3: ("cgroup_parent", "str"),
             4: ("cgroups_path", "str"), 5: ("namespaces", ("rep", ("msg", NAMESPACE))),
             6: ("resources", "bytes")}
POD = {1: ("id", "str"), 2: ("name", "str"), 3: ("uid", "str"), 4: ("namespace", "str"),
       5: ("labels", ("map", "str")), 6: ("annotations", ("map", "str")), 7: ("runtime_handler", "str"),
       8: ("linux", ("msg", LINUX_POD)), 9: ("pid", "u"), 10: ("ips", ("rep", "str"))}
MOUNT = {1: ("destination", "str"), 2: ("type", "str"), 3: ("source", "str"), 4: ("options", ("rep", "str"))}
CONTAINER = {1: ("id", "str"), 2: ("pod_sandbox_id", "str"), 3: ("name", "str"), 4: ("state", "u"),
             9: ("mounts", ("rep", ("msg", MOUNT)))}
REGISTER = {1: ("plugin_name", "str"), 2: ("plugin_idx", "str"), 3: ("nri_version", "str")}
CONFIGURE = {1: ("config", "str"), 2: ("runtime_name", "str"), 3: ("runtime_version", "str"),
             4: ("registration_timeout", "i"), 5: ("request_timeout", "i"), 6: ("nri_version", "str")}
CONFIGURE_RESPONSE = {2: ("events", "i")}
SYNCHRONIZE = {1: ("pods", ("rep", ("msg", POD))), 2: ("containers", ("rep", ("msg", CONTAINER))),
               3: ("more", "u")}
SYNCHRONIZE_RESPONSE = {1: ("update", ("rep", "bytes")), 2: ("more", "u")}
POD_REQUEST = {1: ("pod", ("msg", POD))}
CREATE_CONTAINER = {1: ("pod", ("msg", POD)), 2: ("container", ("msg", CONTAINER))}
STATE_CHANGE = {1: ("event", "u"), 2: ("pod", ("msg", POD)), 3: ("container", ("msg", CONTAINER))}


class Violation(AssertionError):
    """The plugin did what a runtime does not put up with."""


class Trunk:
    """One socket with its channels, as the Go implementation has it: its receiving side takes a
    frame of more than 4096 bytes only as the rest of a message that has begun."""

    def __init__(self, sock):
        self.sock = sock
        self.channels = {}

    def _receive(self, count):
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += part
        return data

    def _receive_frame(self):
        channel, length = MUX_HEADER.unpack(self._receive(MUX_HEADER.size))
        have = self.channels.get(channel, b"")
        if length > GO_READER:
            begun = len(have) >= TTRPC_HEADER.size
            left = TTRPC_HEADER.unpack(have[:10])[0] + 10 - len(have) if begun else 0
            if length > left:
                raise Violation(f"a frame of {length} bytes that the peer cannot read")
        self.channels[channel] = have + self._receive(length)

    def receive(self):
        """(channel, stream, type, data) of the next whole message."""
        while True:
            for channel, have in self.channels.items():
                if len(have) >= TTRPC_HEADER.size:
                    length, stream, kind, _ = TTRPC_HEADER.unpack(have[:10])
                    if len(have) >= 10 + length:
                        self.channels[channel] = have[10 + length:]
                        return channel, stream, kind, have[10:10 + length]
            self._receive_frame()

    def send(self, channel, stream, kind, data):
        """As Go does: the first 4096 bytes, and the rest in one frame."""
        message = TTRPC_HEADER.pack(len(data), stream, kind, 0) + data
        for part in (message[:GO_READER], message[GO_READER:]):
            if part:
                self.sock.sendall(MUX_HEADER.pack(channel, len(part)) + part)


def encode_status(code, message):
    return pb.encode(TTRPC_RESPONSE, {"status": {"code": code, "message": message}})
