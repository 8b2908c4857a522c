# SPDX-License-Identifier: Apache-2.0
"""MessagePack-RPC over Unix sockets, with file descriptors: both ends of it, for either side of a
daemon's conversation. Made of python3-msgpack and threads; nothing of the project's own is in it but
the table of which method carries descriptors.

A connection is a Peer. Either end may call:

    peer = mprpc.connect(path, {"front.ready": on_ready})
    settings = peer.call("front.hello", {"role": "test", "version": "0"})
    peer.notify("front.state", {"state": "registered"})

    server = mprpc.Server(path, {"claim.prepare": prepare}).start()
    server.wait_peer().notify("front.ready")

A handler is called with (peer, params, fds) and returns the result, or (result, fds) where the
method gives descriptors back, or raises Error. Requests are handled each in a thread of its own, so
a handler may block, which is how a test holds a call; notifications are handled in order. fds are
the handler's to close. Everything that arrives is kept in peer.seen as (method, params).
"""
import collections
import itertools
import os
import socket
import threading

import msgpack

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2
MAX_FDS = 16

# method -> (descriptors on the request, on the result); all others carry none
DESCRIPTORS = {
    "device.check": (1, 0),
    "device.attach": (2, 0),
    "device.detach": (2, 0),
    "netns.socket": (1, 1),
    "netns.sysctl": (1, 0),
    "pod.attach": (1, 0),
}


class Error(Exception):
    """What a call fails with, by the peer's word or because there is none (code "unavailable")."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class _Pending:
    def __init__(self, method):
        self.method = method
        self.done = threading.Event()
        self.error = self.result = None
        self.fds = []


class Peer:
    """One connection. methods is a dict of handlers."""

    def __init__(self, sock, methods=None, on_close=None):
        self.methods = methods or {}
        self.seen = []
        self.closed = threading.Event()
        self._on_close = on_close
        self._sock = sock
        self._ids = itertools.count(1)
        self._pending = {}
        self._fds = collections.deque()
        self._sending = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- calling

    def call(self, method, params=None, fds=(), timeout=10, about=()):
        """The result of a method that gives no descriptors. about: what else is said of the call, as
        ({"deadlineMs": …},)."""
        return self.call_fds(method, params, fds, timeout, about)[0]

    def call_fds(self, method, params=None, fds=(), timeout=10, about=()):
        """(result, descriptors), the caller's to close. Ours stay ours."""
        pending = _Pending(method)
        ident = next(self._ids)
        self._pending[ident] = pending
        self._send([REQUEST, ident, method, [params or {}, *about]], fds)
        if self.closed.is_set():
            self._fail_pending()
        if not pending.done.wait(timeout):
            raise TimeoutError(f"{method} was not answered within {timeout} s")
        if pending.error is not None:
            raise pending.error
        return pending.result, pending.fds

    def notify(self, method, params=None):
        self._send([NOTIFICATION, method, [params or {}]])

    def close(self):
        """Ends the connection; returns when nothing of it is left."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster
        if threading.current_thread() is not self._reader:
            self._reader.join()

    # --- the wire

    def _send(self, message, fds=()):
        data = msgpack.packb(message, use_bin_type=True)
        try:
            with self._sending:
                sent = socket.send_fds(self._sock, [data], list(fds)) if fds else 0
                self._sock.sendall(data[sent:])
        except OSError:
            pass  # the reader finds out

    def _read(self):
        unpacker = msgpack.Unpacker(raw=False, strict_map_key=False)
        try:
            while True:
                data, fds, _, _ = socket.recv_fds(self._sock, 65536, MAX_FDS)
                self._fds.extend(fds)
                if not data:
                    break
                unpacker.feed(data)
                for message in unpacker:
                    self._take(message)
        except OSError:
            pass
        self.closed.set()
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())
        self._fail_pending()
        if self._on_close:
            self._on_close(self)

    def _fail_pending(self):
        for ident in list(self._pending):
            pending = self._pending.pop(ident, None)
            if pending:
                pending.error = Error("unavailable", f"the connection ended during {pending.method}")
                pending.done.set()

    def _take_fds(self, count):
        assert len(self._fds) >= count, "a message came without its descriptors"
        return [self._fds.popleft() for _ in range(count)]

    def _take(self, message):
        if message[0] == RESPONSE:
            self._take_response(*message[1:])
        elif message[0] == REQUEST:
            _, ident, method, params = message
            fds = self._take_fds(DESCRIPTORS.get(method, (0, 0))[0])
            self.seen.append((method, params[0] if params else {}))
            threading.Thread(target=self._serve, daemon=True,
                             args=(ident, method, params[0] if params else {}, fds)).start()
        else:
            _, method, params = message
            self.seen.append((method, params[0] if params else {}))
            if method in self.methods:
                self.methods[method](self, params[0] if params else {}, [])

    def _take_response(self, ident, error, result):
        pending = self._pending.pop(ident)
        if error is None:
            pending.result = result
            pending.fds = self._take_fds(DESCRIPTORS.get(pending.method, (0, 0))[1])
        elif isinstance(error, dict):
            pending.error = Error(error.get("code"), error.get("message"))
        else:
            pending.error = Error("internal", str(error))
        pending.done.set()

    def _serve(self, ident, method, params, fds):
        try:
            if method not in self.methods:
                raise Error("not_found", f"there is no method {method}")
            answer = self.methods[method](self, params, fds)
            result, out = answer if isinstance(answer, tuple) else (answer, ())
            self._send([RESPONSE, ident, None, result if result is not None else {}], out)
        except Error as e:
            self._send([RESPONSE, ident, {"code": e.code, "message": e.message}, None])
        except Exception as e:
            self._send([RESPONSE, ident, {"code": "internal", "message": f"the test's handler: {e}"}, None])
            raise


def connect(path, methods=None):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(path))
    return Peer(sock, methods)


class Server:
    """A listening socket; every connection to it is a Peer with the same handlers."""

    def __init__(self, path, methods=None):
        self.path = str(path)
        self.methods = methods or {}
        self.peers = []  # that are connected
        self._changed = threading.Condition()
        self._sock = None
        self._acceptor = None

    def start(self):
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.bind(self.path)
        self._sock.listen(16)
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        return self

    def _accept(self):
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            peer = Peer(sock, self.methods, self._gone)
            with self._changed:
                self.peers.append(peer)
                self._changed.notify_all()

    def _gone(self, peer):
        with self._changed:
            if peer in self.peers:
                self.peers.remove(peer)
            self._changed.notify_all()

    def wait_peer(self, timeout=10):
        """The oldest connection that is there, or the next one."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.peers, timeout):
                raise TimeoutError(f"nobody connected to {self.path} within {timeout} s")
            return self.peers[0]

    def stop(self):
        """As the end of the process that serves: the socket goes, and every connection."""
        os.unlink(self.path)
        self._sock.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._sock.close()
        for peer in list(self.peers):
            peer.close()
