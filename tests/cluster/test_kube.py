# SPDX-License-Identifier: Apache-2.0
"""The client of the API server with a real one: calls, lists, watches, and what goes wrong on the way."""
import base64
import http.client
import json
import socket
import time

import pytest
import yaml

import faults
from kubetool import Failed, KubeTool, write_kubeconfig
from procs import STRETCH, wait_for

MAPS = "/api/v1/namespaces/{}/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def compact(cluster):
    """Makes the server's store forget all that is not current."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f"{cluster.directory}/etcd.client")
        connection = http.client.HTTPConnection("etcd")
        connection.sock = s

        def call(path, body):
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, answer
            return json.loads(answer)
        # a read of nothing tells the revision
        now = call("/v3/kv/range", {"key": base64.b64encode(b"none").decode()})["header"]["revision"]
        call("/v3/kv/compaction", {"revision": now, "physical": True})


@pytest.fixture
def maps(namespace):
    """The path of a namespace's ConfigMaps. It has none but ours."""
    return MAPS.format(namespace)


@pytest.fixture
def account(cluster, namespace):
    """A service account that may do everything: its token."""
    cluster.make_service_account(namespace, "everything")
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "everything"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "everything"}]}
    cluster.ok("POST", ROLES, role)
    token = cluster.service_account_token(namespace, "everything")
    wait_for(lambda: cluster.api("GET", "/api/v1/nodes", user=token)[0] == 200, 20, "its rights")
    yield token
    cluster.ok("DELETE", f"{ROLES}/everything")


@pytest.fixture
def start(cluster, rundir, account):
    """Starts the client, confined, as an account that may do everything if nothing else is said."""
    def begin(server=None, more=("--confine",), via=(), **who):
        path = rundir / "kubeconfig"
        cluster.kubeconfig(path, server=server, **(who or {"token": account}))
        return KubeTool("--kubeconfig", path, *more, via=via)
    return begin


@pytest.fixture
def tool(start):
    with start() as running:
        yield running


def names(objects):
    return [o["metadata"]["name"] for o in objects]


def synced(watch):
    """Reads the watch's list; returns the names in it."""
    lines = watch.until("synced")
    assert lines[0]["told"] == "begin" and all(line["told"] == "added" for line in lines[1:-1]), lines
    return names(line["object"] for line in lines[1:-1])


def event(watch, kind, name):
    return watch.event(kind, name)["object"]


# --- calls ----------------------------------------------------------------------------------------


def test_an_object_lives_and_dies(tool, cluster, maps):
    made = tool.create(maps, config_map("one", a="b"))
    assert made["metadata"]["name"] == "one" and made["kind"] == "ConfigMap"
    assert tool.get(f"{maps}/one") == made == cluster.get(f"{maps}/one")
    changed = tool.replace(f"{maps}/one", {**made, "data": {"a": "c"}})
    assert changed["data"] == {"a": "c"}
    applied = tool.apply(f"{maps}/one", config_map("one", d="e"))
    assert applied["data"] == {"a": "c", "d": "e"}
    assert ["kubetool", "Apply"] in [[f["manager"], f["operation"]] for f in applied["metadata"]["managedFields"]]
    # forced: what another manager had is ours now
    assert tool.apply(f"{maps}/one", config_map("one", a="f"))["data"] == {"a": "f"}
    tool.delete(f"{maps}/one", uid=made["metadata"]["uid"])
    assert cluster.get(f"{maps}/one") is None


def refused(told):
    with pytest.raises(Failed) as failed:
        told()
    return failed.value


def test_what_is_wrong_is_told_in_the_server_s_words(tool, cluster, maps, namespace):
    gone = refused(lambda: tool.get(f"{maps}/none"))
    assert (gone.kind, gone.status, gone.reason) == ("not_found", 404, "NotFound")
    assert gone.message == f'GET {maps}/none: 404 NotFound: configmaps "none" not found'

    made = tool.create(maps, config_map("one"))
    twice = refused(lambda: tool.create(maps, config_map("one")))
    assert (twice.kind, twice.status, twice.reason) == ("conflict", 409, "AlreadyExists")

    tool.replace(f"{maps}/one", {**made, "data": {"a": "b"}})
    stale = refused(lambda: tool.replace(f"{maps}/one", {**made, "data": {"a": "c"}}))
    assert (stale.kind, stale.status, stale.reason) == ("conflict", 409, "Conflict")
    assert "the object has been modified" in stale.message

    for precondition in {"uid": "0f0f0f0f-0000-0000-0000-000000000000"}, {"resource_version": "1"}:
        other = refused(lambda p=precondition: tool.delete(f"{maps}/one", **p))
        assert (other.kind, other.status) == ("conflict", 409)
    assert cluster.get(f"{maps}/one")

    invalid = refused(lambda: tool.create(maps, config_map("Not A Name")))
    assert (invalid.kind, invalid.status, invalid.reason) == ("invalid", 422, "Invalid")
    assert "metadata.name" in invalid.message and "RFC 1123" in invalid.message

    nowhere = refused(lambda: tool.get("/apis/nothing.example/v1/things"))
    assert (nowhere.kind, nowhere.status) == ("not_found", 404) and "404" in nowhere.message

    no_object = refused(lambda: tool.create(maps, {"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "x"}}))
    assert (no_object.kind, no_object.status) == ("invalid", 400)


def test_who_may_not_is_told_so(start, cluster, namespace, maps):
    cluster.make_service_account(namespace, "nobody")
    token = cluster.service_account_token(namespace, "nobody")
    with start(token=token) as tool:
        denied = refused(lambda: tool.get(f"{maps}/one"))
        assert (denied.kind, denied.status, denied.reason) == ("invalid", 403, "Forbidden")
        assert f"system:serviceaccount:{namespace}:nobody" in denied.message and "cannot get resource" in denied.message
        assert token not in tool.log
    with start(token="not.a.token") as tool:
        unknown = refused(lambda: tool.get(f"{maps}/one"))
        assert (unknown.kind, unknown.status, unknown.reason) == ("invalid", 401, "Unauthorized")


def test_many_calls_go_by_one_connection(start, cluster, tunnel, maps):
    cluster.ok("POST", maps, config_map("one"))
    with start(tunnel.url) as tool:
        for told in tool.start_many(1000, "get", f"{maps}/one"):
            assert told.answer()["metadata"]["name"] == "one"
        assert tunnel.connections == 1 and tool.threads() == 1


def test_a_call_is_stopped(start, cluster, proxy, maps):
    cluster.ok("POST", maps, config_map("one"))
    rule = proxy.rule("GET", "/one$", faults.delay())
    with start(proxy.url) as tool:
        stopped = tool.start("get", f"{maps}/one")
        rule.wait()
        stopped.stop()
        rule.release()
        assert tool.get(f"{maps}/one")["metadata"]["name"] == "one"
        assert stopped.nothing_yet()


def test_an_answer_that_is_too_long_is_refused(tool, cluster, maps):
    cluster.ok("POST", maps, config_map("long", text="x" * 100_000))
    long = refused(lambda: tool.request("GET", f"{maps}/long", maxBytes=100_000))
    assert long.message == f"GET {maps}/long: the answer is longer than 100000 bytes" and long.kind == "internal"
    assert len(tool.request("GET", f"{maps}/long", maxBytes=200_000)["data"]["text"]) == 100_000


def test_paths_and_queries_are_as_asked(tool, cluster, namespace):
    cluster.ok("POST", MAPS.format(namespace), config_map("a.b-c"))
    found, _ = tool.list(MAPS.format(namespace), 10, query="fieldSelector=metadata.name%3Da.b-c")
    assert names(found) == ["a.b-c"]


def test_the_server_s_warnings_are_logged_once(tool):
    for _ in range(2):
        tool.get("/api/v1/componentstatuses")
    tool.wait_log("the API server warns: v1 ComponentStatus is deprecated")
    assert tool.log.count("the API server warns") == 1


# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 2, 4, 5, 100])
def test_a_list_comes_in_pages(start, cluster, proxy, maps, page_size):
    for name in "abcde":
        cluster.ok("POST", maps, config_map(name))
    with start(proxy.url) as tool:
        objects, version = tool.list(maps, page_size)
        assert names(objects) == list("abcde") and int(version) > 0
        assert all(o["kind"] == "ConfigMap" and o["apiVersion"] == "v1" for o in objects)
        requests = proxy.seen("GET", maps)
        assert len(requests) == -(-5 // page_size)
        assert all(f"limit={page_size}" in r.path for r in requests)


def test_an_empty_list(tool, namespace):
    objects, version = tool.list(CLAIMS.format(namespace), 10)
    assert objects == [] and int(version) > 0


def test_pages_that_are_too_long_become_shorter(start, cluster, proxy, maps):
    for name in "abcdefgh":
        cluster.ok("POST", maps, config_map(name, text="x" * 1_000_000))
    with start(proxy.url) as tool:
        objects, _ = tool.list(maps, 500)
        assert names(objects) == list("abcdefgh")
        assert all(len(o["data"]["text"]) == 1_000_000 for o in objects if "text" in (o.get("data") or {}))


def test_a_list_that_takes_too_long_ends_with_410(start, cluster, proxy, maps):
    for name in "abcde":
        cluster.ok("POST", maps, config_map(name))
    rule = proxy.rule("GET", "continue=", faults.delay())
    with start(proxy.url) as tool:
        told = tool.start("list", maps, pageSize=2)
        rule.wait()
        cluster.ok("DELETE", f"{maps}/e")
        compact(cluster)
        # nor does a cache remember
        cluster.kill_apiserver()
        cluster.start_apiserver()
        rule.release()
        with pytest.raises(Failed) as failed:
            told.listed()
        assert (failed.value.status, failed.value.reason) == (410, "Expired")
        assert names(tool.list(maps, 2)[0]) == list("abcd")


# --- watches --------------------------------------------------------------------------------------


def test_a_watch_tells_what_is_and_what_changes(tool, cluster, maps):
    for name in "abc":
        cluster.ok("POST", maps, config_map(name))
    watch = tool.watch(maps, 2)
    assert synced(watch) == list("abc")
    cluster.ok("POST", maps, config_map("new"))
    event(watch, "added", "new")
    cluster.ok("PUT", f"{maps}/new", config_map("new", a="b"))
    assert event(watch, "modified", "new")["data"] == {"a": "b"}
    cluster.ok("DELETE", f"{maps}/new")
    assert event(watch, "deleted", "new")["data"] == {"a": "b"}
    watch.stop()
    cluster.ok("POST", maps, config_map("later"))
    assert tool.get(f"{maps}/later") and watch.nothing_yet()


def test_a_watch_with_large_events(tool, cluster, maps):
    watch = tool.watch(maps, 10)
    synced(watch)
    for name in "ab":
        cluster.ok("POST", maps, config_map(name, text=name * 1_000_000))
        assert event(watch, "added", name)["data"]["text"] == name * 1_000_000


def test_a_watch_costs_nothing_while_nothing_happens(start, cluster, tunnel, namespace, maps):
    since = cluster.mark()

    def wake_ups(tool):
        with open(f"/proc/{tool.pid}/status", encoding="ascii") as f:
            return sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
    with start(tunnel.url) as tool:
        synced(tool.watch(maps))
        wait_for(lambda: [c.verb for c in cluster.calls((namespace, "everything"), since)] == ["list", "watch"], 20, "the watch")
        tool.get(maps)  # what came with the begin is read
        time.sleep(2)  # curl's timer of the connect may still be set
        before = wake_ups(tool)
        time.sleep(4)
        # at most one bookmark or frame of the connection itself
        assert wake_ups(tool) - before <= 3
        assert tunnel.connections == 1
        assert [c.verb for c in cluster.calls((namespace, "everything"), since)] == ["list", "watch", "list"]


def begun(proxy):
    """The watches that the server has begun to answer."""
    return [r for r in proxy.seen("GET", "watch=true") if r.status == 200]


def test_a_watch_whose_connection_ends_goes_on(start, cluster, proxy, maps):
    with start(proxy.url) as tool:
        watch = tool.watch(maps)
        synced(watch)
        for number in range(3):
            wait_for(lambda n=number: len(begun(proxy)) > n, 20, "the watch")
            proxy.cut()
            cluster.ok("POST", maps, config_map(f"after-{number}"))
            # neither told as a failure nor listed again
            event(watch, "added", f"after-{number}")
        watches = begun(proxy)
        assert len(watches) == 4 and len(proxy.seen("GET", "limit=")) == 1
        for request in watches:
            assert "allowWatchBookmarks=true" in request.path and "resourceVersion=" in request.path
        seconds = {int(r.path.partition("timeoutSeconds=")[2].partition("&")[0]) for r in watches}
        assert all(300 <= s <= 600 for s in seconds) and len(seconds) > 1


def test_a_watch_that_is_too_far_behind_begins_again(start, cluster, proxy, maps):
    cluster.ok("POST", maps, config_map("old"))
    cluster.ok("POST", maps, config_map("stays"))
    with start(proxy.url) as tool:
        watch = tool.watch(maps)
        assert synced(watch) == ["old", "stays"]
        wait_for(lambda: begun(proxy), 20, "the watch")
        proxy.refuse()
        assert watch.event("failed")["error"]["kind"] == "unavailable"
        cluster.ok("DELETE", f"{maps}/old")
        cluster.ok("POST", maps, config_map("new"))
        # neither the store nor a cache remembers
        compact(cluster)
        cluster.kill_apiserver()
        cluster.start_apiserver()
        cluster.ok("POST", maps, config_map("newest"))
        compact(cluster)
        proxy.listen()
        lines = watch.until("synced", 60 * STRETCH)
        lines = lines[[line["told"] for line in lines].index("begin"):]
        assert names(line["object"] for line in lines[1:-1]) == ["new", "newest", "stays"]
        cluster.ok("DELETE", f"{maps}/new")
        event(watch, "deleted", "new")


def test_the_server_is_killed_and_comes_back(start, cluster, maps):
    with start() as tool:
        watch = tool.watch(maps)
        synced(watch)
        cluster.kill_apiserver()
        dead = refused(lambda: tool.get(maps))
        assert (dead.kind, dead.status) == ("unavailable", 0) and cluster.server in dead.message
        told = watch.event("failed")
        assert told["error"]["kind"] == "unavailable" and 400 <= told["retryMs"] <= 600
        cluster.start_apiserver()
        cluster.ok("POST", maps, config_map("after"))
        lines = watch.until("added", 60 * STRETCH)
        assert lines[-1]["object"]["metadata"]["name"] == "after"
        waits = [line["retryMs"] for line in lines if line["told"] == "failed"]
        assert all(later > 0 for later in waits) and len(waits) < 12, waits
        assert tool.get(f"{maps}/after")


def test_a_connection_that_is_dead_is_not_used_again(start, cluster, tunnel, maps):
    cluster.ok("POST", maps, config_map("one"))
    with start(tunnel.url) as tool:
        watch = tool.watch(maps)
        assert synced(watch) == ["one"]
        assert tool.get(f"{maps}/one")
        assert tunnel.connections == 1
        tunnel.freeze()
        silent = refused(lambda: tool.request("GET", f"{maps}/one", timeoutMs=1000))
        assert silent.kind == "deadline" and "within 1.0 s" in silent.message
        # calls that follow go by a new one, and so does the watch
        wait_for(lambda: tunnel.connections == 2, what="a second connection")
        tunnel.thaw()
        assert tool.get(f"{maps}/one")
        cluster.ok("POST", maps, config_map("two"))
        event(watch, "added", "two")
        assert tunnel.connections == 2


def test_a_slow_call_does_not_cost_the_connection(start, cluster, tunnel, maps):
    """Others are answered meanwhile: it lives."""
    cluster.ok("POST", maps, config_map("one"))
    with start(tunnel.url) as tool:
        watch = tool.watch(maps)
        assert synced(watch) == ["one"]
        slow = tool.start("request", f"{maps}?watch=true", method="GET", timeoutMs=1000)
        assert tool.get(f"{maps}/one")
        assert refused(slow.answer).kind == "deadline"
        assert tool.get(f"{maps}/one")
        assert tunnel.connections == 1


# --- who and where --------------------------------------------------------------------------------


def answers(proxy):
    """The server ends its connections after a 401: what the proxy cannot pass on then is asked again."""
    return [r.status for r in proxy.requests if r.status]


def test_the_token_s_file_is_read_again(start, cluster, proxy, namespace, maps, rundir):
    for name in "first", "second":
        cluster.make_service_account(namespace, name)
    tokens = [cluster.service_account_token(namespace, name) for name in ("first", "second")]
    # as the kubelet does it: a directory for each, a link to the current one, and one to the file in it
    for number, token in enumerate(tokens):
        (rundir / str(number)).mkdir()
        (rundir / str(number) / "token").write_text(token + "\n")
    (rundir / "data").symlink_to("0")
    (rundir / "token").symlink_to("data/token")

    def who(tool):
        return refused(lambda: tool.get(f"{maps}/one")).message.partition(f"{namespace}:")[2].partition('"')[0]
    with start(proxy.url, token_file=rundir / "token") as tool:
        assert who(tool) == "first"
        (rundir / "next").symlink_to("1")
        (rundir / "next").rename(rundir / "data")
        assert who(tool) == "second"
        # a 401 is repeated only if there is another token by now
        answered = len(answers(proxy))
        (rundir / "1/token").write_text("not.a.token")
        assert refused(lambda: tool.get(f"{maps}/one")).status == 401 and answers(proxy)[answered:] == [401]
        # gone for a while: the old one is used
        (rundir / "1/token").write_text(tokens[0])
        assert who(tool) == "first"
        (rundir / "1/token").unlink()
        assert who(tool) == "first" and who(tool) == "first"
        tool.wait_log("cannot be read again")
        assert tool.log.count("cannot be read again") == 1


def test_a_401_is_repeated_with_the_new_token(start, cluster, proxy, namespace, maps, rundir):
    cluster.make_service_account(namespace, "first")
    token, file = cluster.service_account_token(namespace, "first"), rundir / "token"
    file.write_text("old.token")

    def replaced_meanwhile(exchange, _rule):
        file.write_text(token)
        exchange.pass_on()
    proxy.rule("GET", "/one$", replaced_meanwhile)
    with start(proxy.url, token_file=file) as tool:
        assert refused(lambda: tool.get(f"{maps}/one")).status == 403
        assert answers(proxy) == [401, 403]


def test_the_token_s_file_comes_later(start, cluster, namespace, maps, rundir):
    cluster.make_service_account(namespace, "first")
    with start(token_file=rundir / "token") as tool:
        missing = refused(lambda: tool.get(f"{maps}/one"))
        assert missing.kind == "unavailable" and f"the token: {rundir}/token: No such file" in missing.message
        (rundir / "token").write_text(cluster.service_account_token(namespace, "first"))
        assert refused(lambda: tool.get(f"{maps}/one")).status == 403


@pytest.mark.parametrize("inline", [False, True], ids=["files", "inline"])
def test_with_a_client_certificate(cluster, maps, rundir, inline):
    certificate, key = cluster.authority.client("admin", ["system:masters"])
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    if inline:
        user = {f"{what}-data": base64.b64encode(open(path, "rb").read()).decode() for what, path in user.items()}
    path = write_kubeconfig(rundir / "kubeconfig", cluster.server, user, {"certificate-authority": str(cluster.ca)})
    with KubeTool("--kubeconfig", path, "--confine") as tool:
        assert tool.create(maps, config_map("one"))


def test_by_ipv6(start, cluster, maps):
    with faults.Proxy.of(cluster, host="::1") as proxy, start(proxy.url) as tool:
        assert tool.create(maps, config_map("one"))
        assert proxy.url.startswith("https://[::1]:") and tool.threads() == 1


def test_in_a_container(cluster, proxy, namespace, maps, rundir):
    cluster.make_service_account(namespace, "first")
    (rundir / "token").write_text(cluster.service_account_token(namespace, "first"))
    (rundir / "ca.crt").write_text(cluster.ca.read_text())
    env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.port)}
    with KubeTool("--service-account", rundir, "--confine", env=env) as tool:
        assert f"{namespace}:first" in refused(lambda: tool.get(f"{maps}/one")).message


def test_another_authority_is_not_believed(start, cluster, rundir, maps):
    """Neither one of the system's nor any other but the one given."""
    stranger = rundir / "stranger"
    stranger.mkdir()
    other = type(cluster.authority)(stranger)
    path = rundir / "kubeconfig"
    cluster.kubeconfig(path, token="x")
    config = yaml.safe_load(path.read_text())
    config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(other.certificate.read_bytes()).decode()
    path.write_text(yaml.safe_dump(config))
    with KubeTool("--kubeconfig", path) as tool:
        strange = refused(lambda: tool.get(f"{maps}/one"))
        assert (strange.kind, strange.status) == ("invalid", 0) and "certificate" in strange.message


def test_numbers_of_memory(start, cluster, maps, capsys):
    """What one idle watch takes, printed."""
    with start() as tool:
        synced(tool.watch(maps))
        memory = tool.memory()
        with capsys.disabled():
            print("\nidle watch:", {k: v for k, v in memory.items() if k in ("Rss", "Pss", "Private_Clean", "Private_Dirty")})
        assert memory["Private_Dirty"] < 4096
