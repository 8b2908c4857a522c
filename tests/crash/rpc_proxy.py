# SPDX-License-Identifier: Apache-2.0
"""A proxy between statd and everybody who connects to it, which sees every message whole and stops
the world at any of them.

    proxy = Proxy(front_directory, statd_directory, methods)
    proxy.phase = "attach"
    ...
    proxy.trace        # every message so far, as Point, in the order of their arrival
    proxy.fault = Fault(point, "before", action)

The daemons' --runtime-dir is the front directory, statd's the other one. Messages are forwarded as
they came, with the descriptors that rode on them, by one thread: while an action runs nothing else
is forwarded, so "before" and "after" a message are instants of the whole house. A message that is on
its way to a process that died meanwhile is lost, as it is in a socket.
"""
import collections
import os
import selectors
import socket
import struct
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import Callable

import msgpack

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2
KINDS = {REQUEST: "request", RESPONSE: "response", NOTIFICATION: "notification"}
MAX_FDS = 16
SOCKETS = ("manager.sock", "front.sock")
UP, DOWN = "to statd", "from statd"
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Point:
    """One message of a life cycle: the nth of its like in its phase."""
    phase: str
    link: str  # the process that statd talks to
    direction: str
    kind: str
    method: str
    nth: int

    def __str__(self):
        number = f" #{self.nth}" if self.nth > 1 else ""
        return f"{self.phase}: {self.method} {self.kind}{number}, {self.link} {self.direction}"


@dataclass
class Fault:
    """action is called once, by the proxy's thread."""
    point: Point
    side: str  # "before" or "after"
    action: Callable
    fired: threading.Event = field(default_factory=threading.Event)


@dataclass
class Method:
    """What `statctl --methods` says of one."""
    seconds: float
    request_fds: int
    result_fds: int


def pid_of(sock):
    """The process at the other end."""
    return struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


class Way:
    """One direction of a connection."""

    def __init__(self, source, target, direction):
        self.source, self.target = source, target
        self.direction = direction
        self.unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
        self.data = bytearray()  # what was read of messages that are not forwarded yet
        self.begin = 0  # where data begins in the stream
        self.fds = collections.deque()
        self.calls = {}  # id -> (method, when it was forwarded), of requests that went this way

    def messages(self, data, fds):
        """Takes what was read; yields (message, its bytes)."""
        self.fds.extend(fds)
        self.data += data
        self.unpacker.feed(data)
        for message in self.unpacker:
            end = self.unpacker.tell()
            yield message, bytes(self.data[:end - self.begin])
            del self.data[:end - self.begin]
            self.begin = end


class Connection:
    def __init__(self, below, above):
        self.link = "?"
        self.pids = {"below": pid_of(below), "statd": pid_of(above)}
        self.up = Way(below, above, UP)
        self.down = Way(above, below, DOWN)

    def back(self, way):
        return self.down if way is self.up else self.up

    def close(self):
        for way in (self.up, self.down):
            way.source.close()
            while way.fds:
                os.close(way.fds.popleft())


class Proxy:
    def __init__(self, front, back, methods):
        self.front, self.back = front, back
        self.methods = methods
        self.phase = ""
        self.trace = []
        self.counts = collections.Counter()
        self.fault = None
        self.ticks = []  # called at every turn of the loop
        self.caller_returned = False  # whoever drives the house notes here that its call is over
        self.problems = []
        self._connections = []
        self._selector = selectors.DefaultSelector()
        self._ended = threading.Event()
        front.mkdir(exist_ok=True)
        for name in SOCKETS:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(front / name))
            listener.listen(16)
            self._selector.register(listener, selectors.EVENT_READ, name)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self):
        self._ended.set()
        self._thread.join()
        for connection in self._connections:
            connection.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()

    def begin(self, phase):
        self.phase = phase
        self.counts.clear()

    def pending(self, process):
        """When the last call that this process has not answered passes its deadline; None: it has none."""
        now = time.monotonic()
        ends = []
        for connection in self._connections:
            way = connection.up if process == "statd" else connection.down
            if process in ("statd", connection.link):
                ends += [when + self.methods[method].seconds for method, when in way.calls.values()]
        return max((end for end in ends if end > now), default=None)

    def quiet(self):
        """Whether every call has its answer."""
        return not any(way.calls for c in list(self._connections) for way in (c.up, c.down))

    def unlinked(self, pids):
        """(process, its pid, pid of its statd) of each that is not connected to this statd but should be,
        and of each that is but should not."""
        found = collections.Counter((c.link, c.pids["below"], c.pids["statd"]) for c in list(self._connections))
        wanted = collections.Counter((name, pid, pids["statd"]) for name, pid in pids.items() if name != "statd")
        return sorted(((found - wanted) + (wanted - found)).elements())

    # --- the thread

    def _run(self):
        while not self._ended.is_set():
            for key, _ in self._selector.select(POLL_SECONDS):
                if isinstance(key.data, str):
                    self._try(self._accept, key.fileobj, key.data)
                elif key.data[0] in self._connections:
                    self._try(self._pump, *key.data)
            for tick in self.ticks:
                self._try(tick)

    def _try(self, function, *args):
        """Whatever goes wrong, the walk must hear of it and the house go on."""
        try:
            function(*args)
        except Exception:
            self.problems.append(traceback.format_exc())

    def _accept(self, listener, name):
        below, _ = listener.accept()
        above = socket.socket(socket.AF_UNIX)
        try:
            above.connect(str(self.back / name))
        except OSError:  # there is no statd, which is what the caller finds out
            below.close()
            above.close()
            return
        connection = Connection(below, above)
        self._connections.append(connection)
        self._selector.register(below, selectors.EVENT_READ, (connection, connection.up))
        self._selector.register(above, selectors.EVENT_READ, (connection, connection.down))

    def _end(self, connection):
        for way in (connection.up, connection.down):
            self._selector.unregister(way.source)
        self._connections.remove(connection)
        connection.close()

    def _pump(self, connection, way):
        try:
            data, fds, _, _ = socket.recv_fds(way.source, 65536, MAX_FDS)
        except ConnectionError:
            data, fds = b"", []
        if not data:
            self._end(connection)
            return
        for message, raw in way.messages(data, fds):
            self._message(connection, way, message, raw)

    def _message(self, connection, way, message, raw):
        kind = message[0]
        calls = connection.back(way).calls
        if kind == RESPONSE:
            method = calls[message[1]][0]
            count = 0 if message[2] else self.methods[method].result_fds
        else:
            method = message[-2]
            count = self.methods[method].request_fds if kind == REQUEST else 0
        if method in ("manager.hello", "front.hello") and kind == REQUEST:
            connection.link = name_of(message[-1][0])
        point = self._point(connection, way, kind, method)
        self._hit(point, "before")
        fds = [way.fds.popleft() for _ in range(count)]
        if kind == RESPONSE:
            del calls[message[1]]
        try:
            sent = socket.send_fds(way.target, [raw], fds) if fds else 0
            way.target.sendall(raw[sent:])
        except OSError:
            pass  # nobody is there to read it
        for fd in fds:
            os.close(fd)
        if kind == REQUEST:
            way.calls[message[1]] = method, time.monotonic()
        self._hit(point, "after")

    def _point(self, connection, way, kind, method):
        like = connection.link, way.direction, KINDS[kind], method
        self.counts[like] += 1
        point = Point(self.phase, *like, self.counts[like])
        self.trace.append(point)
        return point

    def _hit(self, point, side):
        fault = self.fault
        if fault and (fault.point, fault.side) == (point, side) and not fault.fired.is_set():
            fault.action()
            fault.fired.set()


def name_of(hello):
    """The program that says this hello."""
    names = {"netns": "netnsd", "sr-iov": "dmgr-sriov"}
    return hello["role"] if "role" in hello else names.get(hello["type"], f"dmgr-{hello['type']}")


def read_methods(text):
    """What `statctl --methods` prints."""
    methods = {}
    for line in text.splitlines()[1:]:
        name, _, _, milliseconds, request_fds, result_fds = line.split()[:6]
        seconds = 0 if milliseconds == "-" else int(milliseconds) / 1000
        methods[name] = Method(seconds, int(request_fds), int(result_fds))
    return methods
