# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between a program and the API server: two things to put in between.

Proxy understands HTTP. It passes every request on but those that a rule catches:

    rule = proxy.rule("PATCH", r"/resourceclaims/[^/]+/status", faults.answer(409))
    ...
    rule.wait()                      # until it has caught one

Tunnel passes bytes and does not look into them, so that HTTP/2 goes through it; it can cut the
connections, stop all bytes, and listen no more.

Both present the API server's own certificate and remember what went through them.
"""
import contextlib
import http.client
import http.server
import json
import re
import select
import socket
import socketserver
import ssl
import threading
import time
from dataclasses import dataclass, field

from controlplane import free_port
from procs import wait_for

SERVER_SECONDS = 60  # an answer of the API server may take this long; a watch's next word, for ever
PIECE = 65536

REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
           422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}

# what is between two neighbours only, and so is not passed on
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "content-length",
              "expect"}


class Cut(Exception):
    """The connection to the client ends here."""


# --- what a rule does ------------------------------------------------------------------------------
#
# A function of (exchange, rule) which is called in the place of Exchange.pass_on.


def answer(code, reason=None, message="as the test has it", retry_after=None):
    """A Status of this code, in the server's place. The server does not see the request."""
    def act(exchange, _rule):
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                  "reason": reason or REASONS[code], "code": code}
        headers = {"Content-Type": "application/json"}
        if retry_after is not None:
            status["details"] = {"retryAfterSeconds": retry_after}
            headers["Retry-After"] = str(retry_after)
        exchange.reply(code, headers, json.dumps(status).encode())
    return act


def cut_before():
    """The connection ends, and the server has not seen the request."""
    def act(_exchange, _rule):
        raise Cut
    return act


def cut_after():
    """The server has done what it was asked for, but the client only sees the connection end."""
    def act(exchange, _rule):
        exchange.ask().read()
        raise Cut
    return act


def cut_within(bytes_passed):
    """The answer ends after this many bytes of its body."""
    def act(exchange, _rule):
        exchange.pass_answer(exchange.ask(), limit=bytes_passed)
    return act


def hang():
    """No answer until the rule is released; then the connection ends. The server does not see it."""
    def act(exchange, rule):
        exchange.hold(rule)
        raise Cut
    return act


def hang_after():
    """As hang, but the server has done what it was asked for."""
    def act(exchange, rule):
        exchange.ask().read()
        exchange.hold(rule)
        raise Cut
    return act


def delay(seconds=None):
    """The request is passed on when the rule is released, or after this time if there is one."""
    def act(exchange, rule):
        exchange.hold(rule, seconds)
        exchange.pass_on()
    return act


def passed():
    """Nothing: it is passed on, and counted by the rule."""
    def act(exchange, _rule):
        exchange.pass_on()
    return act


# --- the proxy -------------------------------------------------------------------------------------


@dataclass
class Request:
    """One that came. status is what the client was answered, None: nothing, or not yet."""
    when: float  # of time.monotonic()
    method: str
    path: str  # with its query
    body: bytes
    status: int | None = None
    headers: dict = field(default_factory=dict, repr=False)

    @property
    def json(self):
        return json.loads(self.body)


class Rule:
    """Catches requests by method ("" for any) and a regular expression that is searched for in the
    path with its query: from the nth that matches on, that many times (None: always)."""

    def __init__(self, method, path, act, nth=1, times=1):
        self.method, self.path, self.act = method, re.compile(path), act
        self.nth, self.times = nth, times
        self.matched = 0
        self.caught = []  # the requests
        self.released = threading.Event()

    def catches(self, request):
        if self.method not in ("", request.method) or not self.path.search(request.path):
            return False
        self.matched += 1
        if self.matched < self.nth or (self.times is not None and self.matched >= self.nth + self.times):
            return False
        self.caught.append(request)
        return True

    def wait(self, count=1, timeout=30):
        """Waits until it has caught as many."""
        wait_for(lambda: len(self.caught) >= count, timeout, f"request {count} of {self.method} {self.path.pattern}")

    def release(self):
        """Whoever hangs here goes on, and whoever comes later does not hang."""
        self.released.set()


class Exchange(http.server.BaseHTTPRequestHandler):
    """The requests of one connection, one after the other."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = None

    def setup(self):
        self.upstream = None
        super().setup()

    def finish(self):
        if self.upstream:
            self.upstream.close()
        with contextlib.suppress(OSError):
            super().finish()
        shut(self.connection)
        self.connection.close()

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def handle(self):
        try:
            super().handle()
        except (Cut, OSError, http.client.HTTPException):
            self.close_connection = True

    def handle_request(self):
        proxy = self.server.proxy
        self.body = self.read_body()
        self.request_seen = Request(time.monotonic(), self.command, self.path, self.body, headers=dict(self.headers))
        rule = proxy.rule_for(self.request_seen)
        if rule:
            rule.act(self, rule)
        else:
            self.pass_on()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_request

    def read_body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return body

    def ask(self):
        """Asks the server; returns its answer, not read yet."""
        if not self.upstream:
            self.upstream = self.server.proxy.connect()
        upstream = self.upstream
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP_BY_HOP:
                upstream.putheader(name, value)
        if self.body or self.command in ("POST", "PUT", "PATCH"):
            upstream.putheader("Content-Length", str(len(self.body)))
        upstream.endheaders(self.body or None)
        return upstream.getresponse()

    def pass_on(self):
        self.pass_answer(self.ask())

    def pass_answer(self, response, limit=None):
        """Passes the answer on as it comes. One that the server breaks off is broken off here too."""
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        length = response.length
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()
        self.request_seen.status = response.status
        if length is not None:
            self.pass_body(response, length, limit)
            return
        with self.ends_with_client():
            self.pass_body(response, length, limit)
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def pass_body(self, response, length, limit):
        done = 0
        while limit is None or done < limit:
            piece = response.read1(PIECE if limit is None else limit - done)
            if not piece:
                break
            done += len(piece)
            self.wfile.write(piece if length is not None else b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if limit is not None or (length is not None and done < length):
            raise Cut
        response.close()  # read1() does not, at the end of a body whose length is known

    @contextlib.contextmanager
    def ends_with_client(self):
        """Within, while the client has nothing to say, its end is that of the connection to the server
        too: so that a watch does not stay there until its next word."""
        mine, watcher = socket.socketpair()

        def watch():
            readable, _, _ = select.select([self.connection, watcher], [], [])
            if watcher not in readable:
                shut(self.upstream.sock)
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            mine.close()
            thread.join()
            watcher.close()

    def reply(self, code, headers, body):
        self.send_response_only(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        self.request_seen.status = code

    def hold(self, rule, seconds=None):
        """Waits until the rule is released, the time is over, or the client has gone."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not rule.released.wait(0.05):
            if deadline is not None and time.monotonic() >= deadline:
                return
            if select.select([self.connection], [], [], 0)[0] or self.server.proxy.closed:
                raise Cut


def shut(sock):
    """Ends a connection that another thread may be waiting on."""
    if sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS has no say in it


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address, handler):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request, client_address):
        pass  # a client that goes away is nothing special


class Between:
    """What listens in front of the API server. As a context manager it is closed at the end."""

    def __init__(self, target, ca, certificate, host="127.0.0.1"):
        self.target, self.ca, self.certificate, self.host = target, ca, certificate, host
        self.closed = False
        self.live = set()  # sockets of clients
        self.lock = threading.Lock()
        self.port = None
        self.listen()

    @classmethod
    def of(cls, cluster, **options):
        return cls(("127.0.0.1", cluster.port), cluster.ca, cluster.server_certificate, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def url(self):
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    def listen(self):
        """Listens, after refuse() on the same port as before."""
        self.listener = Listener((self.host, self.port or free_port()), self.handler())
        self.listener.proxy = self
        self.port = self.listener.server_address[1]
        self.thread = threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def refuse(self):
        """Connections are refused from now on, those there are end."""
        self.listener.shutdown()
        self.thread.join()
        self.listener.server_close()
        self.cut()

    def cut(self):
        """Ends all connections there are; new ones are welcome."""
        with self.lock:
            live = list(self.live)
        for sock in live:
            shut(sock)

    def close(self):
        self.closed = True
        self.refuse()

    @contextlib.contextmanager
    def lives(self, sock):
        with self.lock:
            self.live.add(sock)
        try:
            yield
        finally:
            with self.lock:
                self.live.discard(sock)


class Proxy(Between):
    """See above. It speaks HTTP/1.1."""

    def __init__(self, *args, **options):
        self.rules = []
        self.requests = []  # all that came, in their order
        super().__init__(*args, **options)

    def handler(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate)
        context.set_alpn_protocols(["http/1.1"])
        proxy = self

        class Accepted(Exchange):
            def setup(self):
                # within this connection's thread: a slow client keeps nobody else waiting
                self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def handle(self):
                with proxy.lives(self.request):
                    super().handle()
        return Accepted

    def connect(self):
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection(*self.target, timeout=SERVER_SECONDS, context=context)
        connection.connect()
        connection.sock.settimeout(None)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def rule(self, method, path, act, nth=1, times=1):
        """A new rule. The first that catches a request decides about it."""
        rule = Rule(method, path, act, nth, times)
        with self.lock:
            self.rules.append(rule)
        return rule

    def forget(self):
        """No rule any more; whoever hangs at one goes on."""
        with self.lock:
            rules, self.rules = self.rules, []
        for rule in rules:
            rule.release()

    def rule_for(self, request):
        with self.lock:
            self.requests.append(request)
            return next((rule for rule in self.rules if rule.catches(request)), None)

    def seen(self, method="", path="", since=0):
        """The requests that came of this method and with this in their path; since: as many as there
        were then are left out."""
        with self.lock:
            requests = self.requests[since:]
        return [r for r in requests if method in ("", r.method) and re.search(path, r.path)]

    def wait(self, method="", path="", count=1, since=0, timeout=30):
        """Waits until as many have come; returns them."""
        def look():
            found = self.seen(method, path, since)
            return found if len(found) >= count else None
        return wait_for(look, timeout, f"{count} requests {method} {path}")


class Tunnel(Between):
    """See above."""

    def __init__(self, *args, **options):
        self.flowing = threading.Event()
        self.flowing.set()
        self.connections = 0  # that there ever were
        super().__init__(*args, **options)

    def freeze(self):
        """No byte goes either way, new connections are accepted: a server that hangs."""
        self.flowing.clear()

    def thaw(self):
        self.flowing.set()

    def close(self):
        self.thaw()
        super().close()

    def handler(self):
        tunnel = self

        class Accepted(socketserver.BaseRequestHandler):
            def handle(self):
                tunnel.connections += 1
                with tunnel.lives(self.request):
                    tunnel.carry(self.request)
        return Accepted

    def carry(self, client):
        with contextlib.suppress(OSError), socket.create_connection(self.target) as server, self.lives(server):
            back = threading.Thread(target=self.pump, args=(server, client), daemon=True)
            back.start()
            self.pump(client, server)
            back.join()

    def pump(self, source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE):
                self.flowing.wait()
                sink.sendall(piece)
        # one side's end is the end of both
        shut(source)
        shut(sink)
