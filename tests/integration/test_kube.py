# SPDX-License-Identifier: Apache-2.0
"""The client of the API server with servers that do what a real one seldom does: bookmarks at once, odd
ends, odd answers. tests/cluster/test_kube.py has a real one."""
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from kubetool import Failed, KubeTool, write_kubeconfig
from procs import BUILD, STRETCH, wait_for

h2 = pytest.importorskip("h2.connection", reason="needs python3-h2")
import h2.config  # noqa: E402  pylint: disable=wrong-import-position
import h2.errors  # noqa: E402  pylint: disable=wrong-import-position
import h2.events  # noqa: E402  pylint: disable=wrong-import-position
import h2.exceptions  # noqa: E402  pylint: disable=wrong-import-position
import h2.settings  # noqa: E402  pylint: disable=wrong-import-position

PODS = "/api/v1/pods"
SANITIZED = "asan" in BUILD.name


def pod(name, version="1"):
    return {"metadata": {"name": name, "resourceVersion": version}}


def pod_list(*names, version="1", following=None):
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": following or ""},
            "items": [{"metadata": {"name": name}} for name in names]}


def line(kind, item):
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def status(code, message, **more):
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, **more}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key) of a server on the loopback."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "server.crt", directory / "server.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=server", "-addext", "subjectAltName=DNS:api.test,IP:127.0.0.1,IP:::1",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


class Server:
    """Accepts TLS connections, each served by a thread, and keeps the requests that came."""
    protocol = None  # of ALPN

    def __init__(self, certificate, host="127.0.0.1", port=0):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        context.set_alpn_protocols([self.protocol])
        self.context, self.requests, self.connections, self.live = context, [], 0, []
        self.listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port = self.listener.getsockname()[1]
        self.url = f"https://[{host}]:{self.port}" if ":" in host else f"https://{host}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # whoever waits in accept() is woken
        except OSError:
            pass
        self.listener.close()
        self.cut()

    def cut(self):
        for connection in list(self.live):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain):
        self.live.append(plain)
        try:
            with self.context.wrap_socket(plain, server_side=True) as connection:
                self.live.append(connection)
                self.serve(connection)
        except OSError:
            pass

    def paths(self, pattern=""):
        return [path for _, path, _, _ in self.requests if re.search(pattern, path)]


class Http1(Server):
    """answer(server, connection, method, path, body) says what is done with a request; it returns False
    to end the connection."""
    protocol = "http/1.1"

    def __init__(self, certificate, answer, **options):
        self.answer = answer
        super().__init__(certificate, **options)

    def serve(self, connection):
        stream = connection.makefile("rb")
        while True:
            first = stream.readline().split()
            if not first:
                return
            headers = {}
            while (field := stream.readline().strip()):
                name, _, value = field.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = stream.read(int(headers.get("content-length", 0)))
            method, path = (word.decode(errors="replace") for word in first[:2])
            self.requests.append((method, path, headers, body))
            if self.answer(self, connection, method, path, body) is False:
                return


def reply(connection, code, body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Type": "application/json", "Content-Length": len(data),
              **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.sendall(f"HTTP/1.1 {code} X\r\n".encode() +
                       "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode() + b"\r\n" + data)


def begin_stream(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


def chunk(connection, data):
    connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))


@pytest.fixture
def start(rundir, certificate):
    """Starts the client, confined, for this server."""
    def begin(server, more=("--confine",), url=None, cluster=None, user=None, **options):
        path = write_kubeconfig(rundir / "kubeconfig", url or server.url, user or {"token": "secret"},
                                {"certificate-authority": str(certificate[0]), **(cluster or {})})
        return KubeTool("--kubeconfig", path, *more, **options)
    return begin


@pytest.fixture
def http1(certificate):
    """Makes servers of HTTP/1.1."""
    servers = []

    def make(answer, **options):
        servers.append(Http1(certificate, answer, **options))
        return servers[-1]
    yield make
    for server in servers:
        server.close()


def failed(told):
    with pytest.raises(Failed) as info:
        told()
    return info.value


# --- calls ----------------------------------------------------------------------------------------


def test_what_is_sent(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with start(server, env={"https_proxy": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1",
                            "ALL_PROXY": "http://127.0.0.1:1"}) as tool:
        assert tool.get("/a/../b") == {}
        tool.apply("/c", {"x": "\u00e4"}, manager="a b")
        tool.delete("/d", uid="u", resource_version="7")
        tool.request("POST", "/e", query="a=b", contentType="application/x", body={})
    sent = [(m, p, {n: v for n, v in h.items() if n != "host"}, b) for m, p, h, b in server.requests]
    common = {"accept": "application/json", "authorization": "Bearer secret",
              "user-agent": f"netclaim/{open('VERSION', encoding='ascii').read().strip()}"}
    assert sent[0] == ("GET", "/a/../b", common, b"")
    body = '{"x":"\u00e4"}'.encode()
    assert sent[1] == ("PATCH", "/c?fieldManager=a%20b&force=true", {
        **common, "content-type": "application/apply-patch+yaml", "content-length": str(len(body))}, body)
    assert sent[2][:2] == ("DELETE", "/d") and json.loads(sent[2][3]) == {
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u", "resourceVersion": "7"}}
    assert sent[3] == ("POST", "/e?a=b", {**common, "content-type": "application/x", "content-length": "2"}, b"{}")
    assert server.connections == 1


def test_an_empty_answer_is_null(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 200, b""))
    with start(server) as tool:
        assert tool.get("/x") is None


def test_an_answer_that_is_no_json(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 200, b"<html>"))
    with start(server) as tool:
        error = failed(lambda: tool.get("/x"))
        assert error.kind == "internal" and "GET /x: the answer is no JSON" in error.message and error.status == 200


def test_a_redirect_is_not_followed(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 302, b"", Location="/elsewhere"))
    with start(server) as tool:
        assert failed(lambda: tool.get("/x")).status == 302
        assert server.paths() == ["/x"]


def test_the_server_says_when_to_come_again(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 429, status(429, "slow down"), Retry_After="3"))
    with start(server) as tool:
        error = failed(lambda: tool.get("/x"))
        assert (error.kind, error.status, error.retry_after_ms) == ("busy", 429, 3000)
        assert error.message == "GET /x: 429: slow down"


@pytest.mark.parametrize("answered", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"], ids=["none", "half"])
def test_no_write_is_made_twice(http1, start, answered):
    """Neither on a connection that was used before: there a client may think that it was closed
    before the request came."""
    def answer(_server, connection, method, _path, _body):
        if method == "GET":
            reply(connection, 200, {})
            return True
        connection.sendall(answered)
        return False
    server = http1(answer)
    with start(server) as tool:
        for method in "POST", "PUT", "PATCH", "DELETE":
            assert tool.get("/x") == {}
            error = failed(lambda m=method: tool.request(m, "/y", body={"a": "b"}))
            assert (error.kind, error.status) == ("unavailable", 0), error.message
        assert [r[0] for r in server.requests if r[1] == "/y"] == ["POST", "PUT", "PATCH", "DELETE"]
        assert tool.get("/x") == {}


def test_a_connection_that_the_server_closed_while_it_idled(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with start(server) as tool:
        assert tool.get("/x") == {}
        server.cut()
        assert tool.request("POST", "/x", body={}) == {}
        assert server.connections == 2


def test_a_call_has_its_time(http1, start):
    gate = threading.Event()
    server = http1(lambda *_: gate.wait(30))
    with start(server) as tool:
        began = time.monotonic()
        error = failed(lambda: tool.request("GET", "/x", timeoutMs=300))
        assert error.kind == "deadline" and error.message == f"GET /x: no answer of {server.url} within 0.3 s"
        assert 0.25 < time.monotonic() - began < 5 * STRETCH
    gate.set()


def test_what_waits_for_its_turn_has_its_time_too(http1, start):
    gate = threading.Event()
    server = http1(lambda *_: gate.wait(30))
    with start(server) as tool:
        for told in tool.start_many(100, "request", "/x", method="GET", timeoutMs=500):
            assert failed(told.answer).kind == "deadline"
        assert len(server.requests) <= 64 and server.connections <= 64
    gate.set()


def test_too_many_calls_are_refused(http1, start):
    gate = threading.Event()

    def answer(_server, connection, *_):
        gate.wait(60)
        reply(connection, 200, {})
    server = http1(answer)
    with start(server) as tool:
        told = tool.start_many(4100, "request", "/x", method="GET", timeoutMs=120000)
        refused = [failed(one.answer) for one in told[4096:]]
        assert {e.kind for e in refused} == {"busy"} and "4096 calls are waiting or under way" in refused[0].message
        gate.set()
        for one in told[:4096]:
            assert one.answer(60 * STRETCH) == {}


def test_the_client_ends_while_calls_are_under_way(http1, start):
    gate = threading.Event()
    server = http1(lambda *_: gate.wait(30))
    with start(server) as tool:
        told = tool.start_many(40, "get", "/x")
        wait_for(lambda: server.requests, what="a request")
        tool.popen.stdin.close()
        for one in told:
            error = failed(one.answer)
            assert error.kind == "unavailable" and "the client was closed" in error.message
        assert tool.popen.wait(30) == 0
    gate.set()


@pytest.mark.parametrize("do", ["get", "list", "watch"])
def test_the_client_ends_from_within_a_callback(http1, start, do):
    """Whatever else is under way ends as well, and nothing more is told."""
    gate = threading.Event()

    def answer(_server, connection, _method, path, _body):
        if path.startswith("/wait"):
            gate.wait(30)
        reply(connection, 200, pod_list("a", "b", "c", following="more"))
    server = http1(answer)
    with start(server) as tool:
        call, pages, watch = tool.start("get", "/wait"), tool.start("list", "/wait/list", pageSize=2), tool.watch("/wait/watch")
        wait_for(lambda: len(server.requests) == 3, what="all requests")
        told = tool.start(do, PODS, pageSize=2, close=True)
        told.next()
        assert failed(call.answer).kind == "unavailable"
        assert failed(pages.listed).kind == "unavailable"
        if do == "list":
            assert failed(told.listed).message == "the client was closed"
        tool.popen.stdin.close()
        assert tool.popen.wait(30 * STRETCH) == 0
        for one in told, watch:
            assert one.lines.get() is None
    gate.set()


def test_nobody_listens(http1, start):
    server = http1(lambda *_: False)
    server.close()
    with start(server) as tool:
        error = failed(lambda: tool.get("/x"))
        assert error.kind == "unavailable" and f"GET /x: no answer of {server.url}: " in error.message


def test_tls_alone_is_spoken(start):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                connection.close()
        threading.Thread(target=serve, daemon=True).start()
        with start(None, url=f"https://127.0.0.1:{listener.getsockname()[1]}") as tool:
            assert failed(lambda: tool.get("/x")).kind == "unavailable"


def test_another_name_than_the_address(http1, start):
    """tls-server-name is what the certificate has to have, and the server is asked by its address."""
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with start(server, cluster={"tls-server-name": "api.test"}) as tool:
        assert tool.get("/x") == {}
        assert server.requests[0][2]["host"] == f"127.0.0.1:{server.port}"
    with start(server, cluster={"tls-server-name": "other.test"}) as tool:
        error = failed(lambda: tool.get("/x"))
        assert error.kind == "invalid" and "other.test" in error.message


def test_a_path_in_front_of_all_others(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with start(server, url=f"{server.url}/k8s/clusters/c-1/") as tool:
        assert tool.get("/api/v1/x") == {}
    with start(server, url=f"{server.url}/k8s/clusters/c-1", cluster={"tls-server-name": "api.test"}) as tool:
        assert tool.get("/api/v1/x") == {}
    assert server.paths() == ["/k8s/clusters/c-1/api/v1/x"] * 2


def test_ipv6(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 200, {}), host="::1")
    with start(server) as tool:
        assert tool.get("/x") == {} and tool.threads() == 1
    with start(server, cluster={"tls-server-name": "api.test"}) as tool:
        assert tool.get("/x") == {}
        assert server.requests[1][2]["host"] == f"[::1]:{server.port}"


def test_without_an_authority_those_of_the_system_count(http1, start, rundir, certificate):
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    path = write_kubeconfig(rundir / "kubeconfig", server.url)
    with KubeTool("--kubeconfig", path, "--confine") as tool:
        error = failed(lambda: tool.get("/x"))
        assert error.kind == "invalid" and "certificate" in error.message
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    if os.geteuid() != 0 or not os.path.exists(bundle):
        return
    via = ("unshare", "--mount", "sh", "-c", f'mount --bind "$1" {bundle} && shift && exec "$@"', "sh", certificate[0])
    with KubeTool("--kubeconfig", path, "--confine", via=via) as tool:
        assert tool.get("/x") == {}
        assert "authorization" not in server.requests[0][2]


# --- who we are -----------------------------------------------------------------------------------


def test_a_401_counts_although_the_connection_ends_within_it(http1, start):
    """As servers end it for who is not authenticated."""
    def answer(_server, connection, *_):
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nno")
        return False
    with start(http1(answer)) as tool:
        error = failed(lambda: tool.get("/x"))
        assert (error.status, error.kind) == (401, "invalid")
        assert error.message.startswith("GET /x: 401: no: the token in the kubeconfig is not accepted: is it expired?")


def test_a_401_is_not_hidden_by_what_comes_after_it(http1, start):
    def answer(server, connection, *_):
        codes = {1: 401, 3: 200, 4: 403}
        code = codes.get(len(server.requests))
        return bool(code) and reply(connection, code, status(code, "no")) is None
    with start(http1(answer)) as tool:
        assert failed(lambda: tool.get("/x")).status == 401
        ended = failed(lambda: tool.request("POST", "/x", body={}))
        assert ended.kind == "unavailable" and "before that the server has said: 401: no" in ended.message
        assert tool.get("/x")["code"] == 200
        assert failed(lambda: tool.get("/x")).status == 403
        assert "before that" not in failed(lambda: tool.request("POST", "/x", body={})).message


def client_certificate(directory, name):
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


class Authenticating(Http1):
    """Lets in whose client certificate has the name that is accepted; others get a 401. Any of `names` is
    one that can be shown at all."""

    def __init__(self, certificate, directory, names):
        self.accepted, self.seen, self.files = names[0], [], {n: client_certificate(directory, n) for n in names}
        super().__init__(certificate, None)
        for crt, _ in self.files.values():
            self.context.load_verify_locations(crt)
        self.context.verify_mode = ssl.CERT_REQUIRED

    def answer(self, _server, connection, method, path, _body):  # pylint: disable=method-hidden
        name = dict(pair for rdn in connection.getpeercert()["subject"] for pair in rdn)["commonName"]
        self.seen.append((method, path, name))
        reply(connection, 200 if name == self.accepted else 401, status(401, "Unauthorized"))

    def serve(self, connection):
        self.__dict__.pop("answer", None)
        super().serve(connection)


@pytest.fixture
def authenticating(certificate, rundir):
    with Authenticating(certificate, rundir, ["one", "two"]) as server:
        yield server


def install(files, directory):
    """As what renews a certificate does it."""
    for source, name in zip(files, ("client.crt", "client.key")):
        new = directory / f".{name}"
        new.write_bytes(source.read_bytes())
        new.rename(directory / name)


def test_a_certificate_that_was_replaced_is_used(authenticating, start, rundir):
    install(authenticating.files["one"], rundir)
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    with start(authenticating, user=user) as tool:
        assert tool.get("/a")
        # it is accepted no longer, and there is no other
        authenticating.accepted = "two"
        error = failed(lambda: tool.get("/b"))
        assert error.status == 401 and f"the certificate in {rundir}/client.crt is not accepted" in error.message
        # there is: nobody who calls sees the old one's end
        install(authenticating.files["two"], rundir)
        assert tool.request("POST", "/c", body={})
        assert authenticating.seen[-1] == ("POST", "/c", "two")
        assert tool.wait_log("certificates of the API server's access were replaced")
        # many at once, which all get a 401
        install(authenticating.files["one"], rundir)
        authenticating.accepted = "one"
        calls = [tool.start("get", f"/d{n}") for n in range(5)]
        assert [call.answer()["code"] for call in calls] == [401] * 5
        # what cannot be read is reported once, and the old one is used
        (rundir / "client.key").unlink()
        (rundir / "client.crt").write_text("nothing")
        for accepted in "two", "one", "two":
            authenticating.accepted = accepted
            if accepted == "one":
                assert tool.get("/e")
            else:
                assert failed(lambda: tool.get("/e")).status == 401
        assert tool.log.count("cannot be read again, the old one is used") == 1


def test_an_authority_that_was_replaced_is_believed(http1, start, rundir, certificate):
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    other, key = client_certificate(rundir, "other")
    install((other, key), rundir)
    with start(server, cluster={"certificate-authority": "client.crt"}) as tool:
        assert failed(lambda: tool.get("/x")).kind == "invalid"
        install(certificate, rundir)
        assert tool.get("/x") == {}


# --- names ----------------------------------------------------------------------------------------


class Names:
    """A name server on an address of the loopback that nobody else has. addresses: {name: [address]}; a
    name that it does not have does not exist; silent: it says nothing."""
    HOST = "127.53.53.53"

    def __init__(self):
        self.addresses, self.silent, self.asked, self.questions = {}, False, [], 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((self.HOST, 53))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            question, peer = self.socket.recvfrom(4096)
            if not question:
                return
            self.questions += 1
            if not self.silent:
                self.socket.sendto(self._answer(question), peer)

    def _answer(self, question):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        name, kind = ".".join(labels), struct.unpack_from(">H", question, at + 1)[0]
        self.asked.append((name, kind))
        known = self.addresses.get(name)
        records = []
        for address in known or ():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == (28 if family == socket.AF_INET6 else 1):
                data = socket.inet_pton(family, address)
                records.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(data)) + data)
        code = 0 if known is not None else 3
        return question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0) + question[12:at + 5] + b"".join(records)

    def close(self):
        self.socket.sendto(b"", self.socket.getsockname())
        self.thread.join()
        self.socket.close()


@pytest.fixture
def names():
    running = Names()
    yield running
    running.close()


@pytest.fixture
def named(start, rundir):
    """Starts the client where /etc/hosts and /etc/resolv.conf are these."""
    def begin(server, hosts="", url=None, **options):
        for name, text in ("hosts", hosts), ("resolv.conf", f"nameserver {Names.HOST}\noptions timeout:1\n"):
            (rundir / name).write_text(text)
        script = 'mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/resolv.conf" /etc/resolv.conf && shift && exec "$@"'
        return start(server, url=url or f"https://api.test:{server.port}",
                     via=("unshare", "--mount", "sh", "-c", script, "sh", rundir), **options)
    return begin


@pytest.mark.needs_root
def test_a_name_of_the_file_of_hosts(http1, named, names):
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with named(server, "127.0.0.1 api.test\n") as tool:
        for _ in range(3):
            assert tool.get("/x") == {}
        assert tool.threads() == 1 and not names.asked and server.connections == 1
        assert server.requests[0][2]["host"] == f"api.test:{server.port}"


@pytest.mark.needs_root
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_name_of_a_name_server(http1, named, names, host):
    names.addresses["api.test"] = [host]
    server = http1(lambda _s, c, *_: reply(c, 200, {}), host=host)
    with named(server) as tool:
        assert tool.get("/x") == {}
        asked = len(names.asked)
        assert tool.get("/x") == {}
        assert tool.threads() == 1 and 1 <= asked == len(names.asked)


@pytest.mark.needs_root
def test_a_name_that_has_several_addresses(http1, named, names):
    """Nobody listens on the others."""
    names.addresses["api.test"] = ["127.0.0.3", "127.0.0.2", "::1", "127.0.0.1"]
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with named(server) as tool:
        assert tool.get("/x") == {}


@pytest.mark.needs_root
def test_a_server_that_moves(http1, named, names, certificate):
    names.addresses["api.test"] = ["127.0.0.1"]
    answer = lambda _s, c, *_: reply(c, 200, {"kind": "PodList", "items": [], "metadata": {"resourceVersion": "1"}})  # noqa: E731
    old = http1(answer)
    with named(old) as tool:
        assert tool.get("/x")
        names.addresses["api.test"] = ["127.0.0.2"]
        old.close()
        with Http1(certificate, answer, host="127.0.0.2", port=old.port) as new:
            # a call on the old connection may fail, once
            try:
                tool.get("/x")
            except Failed as e:
                assert e.kind == "unavailable"
            assert tool.get("/x")
            assert new.connections == 1


@pytest.mark.needs_root
def test_a_name_that_is_none(http1, named, names):
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with named(server) as tool:
        error = failed(lambda: tool.get("/x"))
        assert error.kind == "unavailable" and "GET /x: the address of api.test: " in error.message
        assert "not found" in error.message
        # there by now
        names.addresses["api.test"] = ["127.0.0.1"]
        assert tool.get("/x") == {}


@pytest.mark.needs_root
def test_a_name_server_that_says_nothing(http1, named, names):
    names.silent = True
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with named(server) as tool:
        told = tool.start_many(3, "request", "/x", method="GET", timeoutMs=500)
        for one in told:
            error = failed(one.answer)
            assert error.kind == "deadline" and "its address is not known yet" in error.message
        names.addresses["api.test"], names.silent = ["127.0.0.1"], False
        assert tool.get("/x") == {}


@pytest.mark.needs_root
def test_the_client_ends_while_a_name_is_asked_for(http1, named, names):
    names.silent = True
    with named(http1(lambda *_: False)) as tool:
        told = tool.start("get", "/x")
        wait_for(lambda: names.questions, what="the question")
        tool.popen.stdin.close()
        assert failed(told.answer).kind == "unavailable"


@pytest.mark.needs_root
def test_another_name_than_the_server_s(http1, named, names):
    names.addresses["other.test"] = ["127.0.0.1"]
    server = http1(lambda _s, c, *_: reply(c, 200, {}))
    with named(server, url=f"https://other.test:{server.port}", cluster={"tls-server-name": "api.test"}) as tool:
        assert tool.get("/x") == {}
        assert server.requests[0][2]["host"] == f"other.test:{server.port}"


# --- lists ----------------------------------------------------------------------------------------


def test_a_list_that_is_none(http1, start):
    server = http1(lambda _s, c, *_: reply(c, 200, {"kind": "Pod"}))
    with start(server) as tool:
        error = failed(lambda: tool.list(PODS, 10))
        assert error.message == f"GET {PODS}: the answer is no list"


def test_a_list_is_stopped_within(http1, start):
    gate = threading.Event()

    def answer(_server, connection, _method, path, _body):
        if "continue" in path:
            gate.wait(30)
        reply(connection, 200, pod_list("a", "b", following="more"))
    server = http1(answer)
    with start(server) as tool:
        told = tool.start("list", PODS, pageSize=2)
        assert [told.next()["object"]["metadata"]["name"] for _ in range(2)] == ["a", "b"]
        wait_for(lambda: len(server.requests) == 2, what="the second page")
        told.stop()
        gate.set()
    assert told.nothing_yet() or told.next is not None


# --- watches --------------------------------------------------------------------------------------


class Watched:
    """Lists pods, then runs one script after the other for the watches; a script is a function of the
    connection. After the last one watches stay silent."""

    def __init__(self, *scripts, lists=None):
        self.scripts, self.lists = list(scripts), lists or [pod_list("a", version="10")]
        self.gate = threading.Event()

    def __call__(self, _server, connection, _method, path, _body):
        if "watch=true" not in path:
            page = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
            if isinstance(page, tuple):
                reply(connection, page[0], page[1])
            else:
                reply(connection, 200, page)
            return True
        if self.scripts:
            return self.scripts.pop(0)(connection)
        begin_stream(connection)
        self.gate.wait(60)
        return False


def say(*pieces, end=True):
    """A stream with these pieces in it, which then ends as streams do."""
    def script(connection):
        begin_stream(connection)
        for piece in pieces:
            chunk(connection, piece)
        if end:
            connection.sendall(b"0\r\n\r\n")
        return end
    return script


def versions(server):
    return [re.search("resourceVersion=([^&]*)", path)[1] for path in server.paths("watch=true")]


def begin_watch(tool):
    watch = tool.watch(PODS)
    watch.event("begin")
    watch.event("added", "a")
    watch.event("synced")
    return watch


def test_a_bookmark_is_where_the_next_watch_begins(http1, start):
    server = http1(Watched(
        say(line("ADDED", pod("b", "11")), line("BOOKMARK", pod("", "20"))),
        say(line("DELETED", pod("b", "21")), line("FROM-THE-FUTURE", pod("b", "30")))))
    with start(server) as tool:
        watch = begin_watch(tool)
        watch.event("added", "b")
        watch.event("deleted", "b")
        wait_for(lambda: versions(server) == ["10", "20", "30"], what="the third watch")
        assert watch.nothing_yet() and len(server.paths("limit=")) == 1


def test_lines_in_pieces(http1, start):
    whole = line("ADDED", pod("b", "11")) + b"\n" + line("MODIFIED", pod("b", "12")) + line("ADDED", pod("c\u00e4", "13"))
    server = http1(Watched(say(*(whole[i:i + 1] for i in range(len(whole))))))
    with start(server) as tool:
        watch = begin_watch(tool)
        watch.event("added", "b")
        watch.event("modified", "b")
        watch.event("added", "c\u00e4")


def gone(connection):
    reply(connection, 410, status(410, "too old resource version", reason="Expired"))


@pytest.mark.parametrize("script", [
    gone, say(line("ERROR", status(410, "too old resource version", reason="Expired")))], ids=["status", "event"])
def test_410_begins_again(http1, start, script):
    server = http1(Watched(say(line("ADDED", pod("b", "11"))), script,
                           lists=[pod_list("a", version="10"), pod_list("c", version="50")]))
    with start(server) as tool:
        watch = begin_watch(tool)
        watch.event("added", "b")
        # at once, and no failure
        watch.event("begin")
        watch.event("added", "c")
        watch.event("synced")
        wait_for(lambda: versions(server) == ["10", "11", "50"], what="the third watch")


def test_410_again_and_again_is_a_failure(http1, start):
    server = http1(Watched(*[gone] * 50))
    with start(server) as tool:
        watch = begin_watch(tool)
        lines = watch.until("failed", 30 * STRETCH) + watch.until("failed", 30 * STRETCH)
        told = [one for one in lines if one["told"] == "failed"]
        assert all(one["error"]["status"] == 410 for one in told)
        assert 400 <= told[0]["retryMs"] <= 600 and 800 <= told[1]["retryMs"] <= 1200
        assert len(server.paths("limit=")) <= 4


def test_a_stream_that_ends_at_once_is_not_begun_without_end(http1, start):
    server = http1(Watched(*[say()] * 1000))
    with start(server) as tool:
        watch = begin_watch(tool)
        time.sleep(3)
        # 0, at once, 0.5, 1, 2 s
        assert 3 <= len(server.paths("watch=true")) <= 6
        assert watch.nothing_yet()


@pytest.mark.parametrize("bad, what", [
    (b"no json\n", "a line of the watch is no JSON"),
    (b"{}\n", "a line of the watch is no event"),
    (b'{"type":"ADDED"}\n', "a line of the watch is no event"),
    (b'{"type":"ADDED","object":{}}\n', "an event's object has no resourceVersion"),
    (line("ERROR", status(500, "etcd is gone")), "500: etcd is gone"),
    (b"x" * (4 << 20) + b"x", "the answer is longer than 4194304 bytes"),
], ids=["no-json", "no-event", "no-object", "no-version", "error", "too-long"])
def test_a_line_that_is_wrong_is_a_failure(http1, start, bad, what):
    server = http1(Watched(say(line("ADDED", pod("b", "11")), bad)))
    with start(server) as tool:
        watch = begin_watch(tool)
        watch.event("added", "b")
        told = watch.event("failed")
        assert told["error"]["message"] == f"GET {PODS}: {what}" and 400 <= told["retryMs"] <= 600
        # it goes on where it was
        wait_for(lambda: versions(server) == ["10", "11"], what="the next watch")


def test_a_version_that_the_server_never_had_is_given_up(http1, start):
    """As after its data was restored from an older copy."""
    ahead = lambda c: reply(c, 504, status(504, "Too large resource version: 10, current: 5", reason="Timeout"))  # noqa: E731
    server = http1(Watched(ahead, ahead, ahead, ahead, lists=[pod_list("a", version="10"), pod_list("b", version="5")]))
    with start(server) as tool:
        watch = begin_watch(tool)
        lines = watch.until("begin", 60 * STRETCH)
        assert [one["told"] for one in lines] == ["failed"] * 4 + ["begin"]
        watch.event("added", "b")
        watch.event("synced")
        wait_for(lambda: versions(server)[-1] == "5", what="the watch")


def test_failures_of_the_list(http1, start):
    server = http1(Watched(lists=[(503, status(503, "not yet")), (429, status(429, "busy", details={"retryAfterSeconds": 1})),
                                  (403, status(403, "no")), pod_list("a", version="10")]))
    with start(server) as tool:
        watch = tool.watch(PODS)
        told = [watch.event("failed", timeout=30 * STRETCH) for _ in range(3)]
        assert [one["error"]["status"] for one in told] == [503, 429, 403]
        assert 400 <= told[0]["retryMs"] <= 600 and 1000 <= told[1]["retryMs"] <= 1400 and 1600 <= told[2]["retryMs"] <= 2400
        watch.event("begin", timeout=30 * STRETCH)
        watch.event("added", "a")
        watch.event("synced")


def test_a_stream_that_never_begins(http1, start):
    """It is given up; one that has begun and says nothing is not."""
    gate = threading.Event()

    def answer(_server, connection, _method, path, _body):
        if "watch=true" not in path:
            reply(connection, 200, pod_list("a", version="10"))
            return True
        if path.startswith("/silent"):
            begin_stream(connection)
        gate.wait(90)
        return False
    server = http1(answer)
    # of two clients: one would take its connection for dead
    with start(server) as tool, start(server) as other:
        silent = other.watch("/silent")
        silent.until("synced")
        wait_for(lambda: server.paths("^/silent.*watch=true"), what="the silent stream")
        never = tool.watch("/never")
        never.until("synced")
        told = never.event("failed", timeout=30 * STRETCH)
        assert told["error"]["kind"] == "deadline" and "within 15." in told["error"]["message"]
        wait_for(lambda: len(server.paths("^/never.*watch=true")) == 2, what="the next watch")
        assert silent.nothing_yet() and len(server.paths("^/silent.*watch=true")) == 1
    gate.set()


def test_a_watch_is_stopped(http1, start):
    watched = Watched()
    server = http1(watched)
    with start(server) as tool:
        watch = begin_watch(tool)
        wait_for(lambda: server.paths("watch=true"), what="the watch")
        watch.stop()
        assert tool.get(PODS)["kind"] == "PodList"
        assert watch.nothing_yet()
        # and one that waits for its next attempt
        server.close()
        other = tool.watch(PODS)
        other.event("failed")
        other.stop()
    watched.gate.set()


# --- HTTP/2 ---------------------------------------------------------------------------------------


class Http2(Server):
    """Answers every request, with its path, at once or when act(server, http, stream, path) says what
    else is to be done (then it returns True). limit: of streams at once."""
    protocol = "h2"

    def __init__(self, certificate, act=None, limit=None):
        self.act, self.limit, self.most_at_once = act, limit, 0
        super().__init__(certificate)

    def serve(self, connection):
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        if self.limit:
            http.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self.limit})
        http.initiate_connection()
        connection.sendall(http.data_to_send())
        waiting = {}
        while True:
            data = connection.recv(65536)
            if not data:
                return
            for event in http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    fields = {n.decode(): v.decode() for n, v in event.headers}
                    waiting[event.stream_id] = fields
                    self.most_at_once = max(self.most_at_once, http.open_inbound_streams)
                elif isinstance(event, h2.events.StreamEnded):
                    fields = waiting.pop(event.stream_id)
                    self.requests.append((fields[":method"], fields[":path"], fields, b""))
                    if not (self.act and self.act(self, http, event.stream_id, fields[":path"])):
                        answer2(http, event.stream_id, {"path": fields[":path"]})
                elif isinstance(event, h2.events.ConnectionTerminated):
                    return
            connection.sendall(http.data_to_send())


def answer2(http, stream, body, code=200, end=True):
    http.send_headers(stream, [(":status", str(code)), ("content-type", "application/json")])
    http.send_data(stream, json.dumps(body).encode(), end_stream=end)


@pytest.fixture
def http2(certificate):
    """Makes servers of HTTP/2."""
    servers = []

    def make(*args, **options):
        servers.append(Http2(certificate, *args, **options))
        return servers[-1]
    yield make
    for server in servers:
        server.close()


def test_http2(http2, start):
    held = []

    def sixteen_at_once(_server, http, stream, path):
        held.append(stream)
        if len(held) == 16:
            for one in held:
                answer2(http, one, {"path": path})
            held.clear()
        return True
    server = http2(sixteen_at_once)
    with start(server) as tool:
        for told in tool.start_many(208, "get", "/x"):
            assert told.answer() == {"path": "/x"}
        assert server.connections == 1 and server.most_at_once <= 32
        assert server.requests[0][2][":authority"] == f"127.0.0.1:{server.port}"
        assert "accept-encoding" not in server.requests[0][2]


def test_a_server_of_few_streams(http2, start):
    server = http2(limit=2)
    with start(server) as tool:
        for told in tool.start_many(100, "get", "/x"):
            assert told.answer() == {"path": "/x"}
        assert server.most_at_once <= 2 or server.connections <= 16


def test_a_server_that_says_goodbye(http2, start):
    """GOAWAY: what is under way is answered, what follows goes by another connection."""
    def act(_server, http, stream, path):
        if path == "/last":
            answer2(http, stream, {"path": path})
            http.close_connection(h2.errors.ErrorCodes.NO_ERROR, last_stream_id=stream)
            return True
        return False
    server = http2(act)
    with start(server) as tool:
        assert tool.get("/x") and tool.get("/last") == {"path": "/last"}
        assert tool.get("/y") == {"path": "/y"}
        assert server.connections == 2


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "ENHANCE_YOUR_CALM", "PROTOCOL_ERROR"])
def test_a_stream_that_is_reset(http2, start, code):
    def act(_server, http, stream, path):
        if path == "/reset":
            http.reset_stream(stream, h2.errors.ErrorCodes[code])
            return True
        return False
    server = http2(act)
    with start(server) as tool:
        assert tool.get("/x")
        error = failed(lambda: tool.request("POST", "/reset", body={"a": "b"}))
        assert (error.kind, error.status) == ("unavailable", 0)
        assert tool.get("/x") == {"path": "/x"}
        assert server.paths().count("/reset") == 1


def test_no_write_is_made_twice_by_http2(http2, start):
    def act(server, _http, _stream, path):
        if path == "/cut":
            server.cut()
            return True
        return False
    server = http2(act)
    with start(server) as tool:
        assert tool.get("/x")
        error = failed(lambda: tool.request("POST", "/cut", body={"a": "b"}))
        assert (error.kind, error.status) == ("unavailable", 0), error.message
        assert tool.get("/x") == {"path": "/x"}
        assert server.paths().count("/cut") == 1


def test_another_implementation(certificate, start, rundir):
    """nghttpd, a server of files."""
    if not os.path.exists("/usr/sbin/nghttpd"):
        pytest.skip("needs nghttp2-server")
    root = rundir / "root/api"
    root.mkdir(parents=True)
    (root / "thing").write_text(json.dumps({"text": "x" * 300_000}))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with subprocess.Popen(["/usr/sbin/nghttpd", "-d", rundir / "root", str(port), certificate[1], certificate[0]],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            def listens():
                with socket.socket() as s:
                    return s.connect_ex(("127.0.0.1", port)) == 0
            wait_for(listens, what="nghttpd")
            with start(None, url=f"https://127.0.0.1:{port}") as tool:
                assert len(tool.get("/api/thing")["text"]) == 300_000
                for told in tool.start_many(64, "get", "/api/thing"):
                    assert len(told.answer(60 * STRETCH)["text"]) == 300_000
                assert failed(lambda: tool.get("/api/none")).status == 404
                # answers that were large are not kept
                assert tool.memory()["Private_Dirty"] < 16384 or SANITIZED
        finally:
            server.kill()
