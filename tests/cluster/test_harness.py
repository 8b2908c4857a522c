# SPDX-License-Identifier: Apache-2.0
"""The harness itself: that the servers are real ones and do their work, and that faults are what they
say. Where a client is needed it is curl."""
import contextlib
import json
import re
import subprocess

import pytest
import yaml

import faults
from controlplane import ADMIN, Call
from procs import wait_for

DRIVER = "harness.example"
RESOURCES = "/apis/resource.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def device(name, **more):
    return {"name": name, **more}


def publish(cluster, node, devices):
    """A ResourceSlice as a driver of that node would have it."""
    return cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
                           "spec": {"driver": DRIVER, "nodeName": node, "devices": devices,
                                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})


def make_class(cluster, name="harness"):
    ours = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    return cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
                           "spec": ours})


def claim_spec(**exactly):
    return {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "harness", **exactly}}]}}


def make_template(cluster, namespace, name, **exactly):
    return cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                           "metadata": {"name": name, "namespace": namespace},
                           "spec": {"spec": claim_spec(**exactly)}})


def make_claim(cluster, namespace, name, **exactly):
    return cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                           "metadata": {"name": name, "namespace": namespace}, "spec": claim_spec(**exactly)})


def curl(cluster, url, *options, token=None, check=True):
    """Asks, with a certificate check; returns (exit status, HTTP status, body)."""
    argv = ["curl", "-sS", "--cacert", cluster.ca, "--max-time", "60", "-w", "\n%{http_code}", *options, url]
    if token:
        argv[1:1] = ["-H", f"Authorization: Bearer {token}"]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert result.returncode == 0 or not check, result.stderr
    body, _, code = result.stdout.rpartition("\n")
    return result.returncode, int(code), body


@contextlib.contextmanager
def curl_behind(cluster, token, url, *options):
    """Asks while the test goes on: the process, with its output in a pipe. It is gone at the end."""
    argv = ["curl", "-sSN", "--cacert", cluster.ca, "--max-time", "60", "-H", f"Authorization: Bearer {token}"]
    with subprocess.Popen([*argv, *options, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as client:
        try:
            yield client
        finally:
            client.kill()


@pytest.fixture
def token(cluster, namespace):
    """Of a service account that may work with ConfigMaps of the default namespace."""
    cluster.make_service_account(namespace, "worker")
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "worker"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "worker"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "worker"},
               "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": namespace}]}
    cluster.apply(role, binding)
    yield cluster.service_account_token(namespace, "worker")
    for name in ("rolebindings", "roles"):
        cluster.ok("DELETE", f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/{name}/worker")
    for item in cluster.items(CONFIGMAPS):
        if item["metadata"]["name"] != "kube-root-ca.crt":
            cluster.ok("DELETE", f"{CONFIGMAPS}/{item['metadata']['name']}")


# --- the servers ----------------------------------------------------------------------------------


def test_server_tells_its_version(cluster):
    told = cluster.ok("GET", "/version")
    assert told["gitVersion"] == cluster.version
    assert (told["major"], told["minor"]) == ("1", str(cluster.minor))


def test_scheduler_allocates_claim_of_template(cluster, namespace):
    cluster.make_node("n1")
    cluster.make_node("n2")
    publish(cluster, "n2", [device("eth0")])
    make_class(cluster)
    make_template(cluster, namespace, "nic")

    made = cluster.make_pod(namespace, "p", {"net": {"template": "nic"}})
    pod = cluster.wait_bound(namespace, "p")

    assert pod["spec"]["nodeName"] == "n2"
    claim = cluster.claims_of(pod)["net"]
    result, = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["device"], result["request"]) == (DRIVER, "n2", "eth0", "nic")
    assert [consumer["uid"] for consumer in claim["status"]["reservedFor"]] == [made["metadata"]["uid"]]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


def test_pod_waits_for_a_device_that_another_has(cluster, namespace):
    cluster.make_node("n1")
    publish(cluster, "n1", [device("eth0")])
    make_class(cluster)
    for name in ("a", "b"):
        make_claim(cluster, namespace, name)
    cluster.make_pod(namespace, "a", {"net": "a"})
    cluster.wait_bound(namespace, "a")

    cluster.make_pod(namespace, "b", {"net": "b"})
    assert "cannot allocate all claims" in cluster.wait_pending(namespace, "b")
    assert not cluster.pod(namespace, "b")["spec"].get("nodeName")

    cluster.delete_pod(namespace, "a")
    cluster.wait_bound(namespace, "b")
    wait_for(lambda: "allocation" not in cluster.claim(namespace, "a").get("status", {}), 30,
             "the end of the allocation")


def test_two_claims_share_a_device(cluster, namespace):
    cluster.make_node("n1")
    publish(cluster, "n1", [device("eth0", allowMultipleAllocations=True, capacity={"bandwidth": {"value": "10G"}})])
    make_class(cluster)
    for name, wanted in (("a", "4G"), ("b", "6G"), ("c", "1G")):
        make_claim(cluster, namespace, name, capacity={"requests": {"bandwidth": wanted}})
        cluster.make_pod(namespace, name, {"net": name})
        if name != "c":
            cluster.wait_bound(namespace, name)

    assert cluster.wait_pending(namespace, "c")
    shares = [cluster.claim(namespace, name)["status"]["allocation"]["devices"]["results"][0] for name in "ab"]
    assert [share["consumedCapacity"]["bandwidth"] for share in shares] == ["4G", "6G"]
    assert shares[0]["shareID"] != shares[1]["shareID"]


def test_feature_gate_off_drops_a_field(cluster):
    cluster.restart({"DRAConsumableCapacity": False})
    published = publish(cluster, "n1", [device("eth0", allowMultipleAllocations=True)])
    assert "allowMultipleAllocations" not in published["spec"]["devices"][0]


def test_feature_gate_is_on_again(cluster):
    published = publish(cluster, "n1", [device("eth0", allowMultipleAllocations=True)])
    assert published["spec"]["devices"][0]["allowMultipleAllocations"]


def test_killed_server_keeps_its_data(cluster, namespace):
    cluster.make_node("n1")
    publish(cluster, "n1", [device("eth0")])
    make_class(cluster)
    make_template(cluster, namespace, "nic")
    url = cluster.server
    before = cluster.slices(spec_nodeName="n1")

    cluster.kill_apiserver()
    with pytest.raises(OSError):
        cluster.api("GET", "/readyz")
    cluster.start_apiserver()

    assert cluster.server == url
    assert cluster.slices(spec_nodeName="n1") == before
    # the controllers have found it again, and so has the scheduler
    cluster.make_pod(namespace, "p", {"net": {"template": "nic"}})
    cluster.wait_bound(namespace, "p")


def test_clean_leaves_nothing(cluster, namespace):
    cluster.make_node("n1")
    publish(cluster, "n1", [device("eth0")])
    make_class(cluster)
    make_template(cluster, namespace, "nic")
    make_claim(cluster, namespace, "unused")
    cluster.make_pod(namespace, "p", {"net": {"template": "nic"}})
    cluster.wait_bound(namespace, "p")

    cluster.clean()

    for path in ("/api/v1/nodes", "/api/v1/pods", *(f"{RESOURCES}/{what}" for what in (
            "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"))):
        assert cluster.items(path) == []
    wait_for(lambda: not cluster.get(f"/api/v1/namespaces/{namespace}"), 60, "the end of the namespace")


# --- accounts -------------------------------------------------------------------------------------


def test_token_says_which_node_its_pod_is_on(cluster, namespace):
    cluster.make_node("n1")
    token = cluster.driver_token(namespace, "driver", "n1")
    review = cluster.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, user=token)
    user = review["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:driver"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == ["n1"]
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["driver-n1"]


def test_account_has_no_rights_but_those_it_was_given(cluster, token):
    assert cluster.api("GET", CONFIGMAPS, user=token)[0] == 200
    assert cluster.api("GET", "/api/v1/nodes", user=token)[0] == 403
    assert cluster.api("GET", CONFIGMAPS, user="no token")[0] == 401


def test_kubeconfig_holds_what_a_client_needs(cluster, token, tmp_path):
    config = yaml.safe_load(cluster.kubeconfig(tmp_path / "config", token=token).read_text())
    assert config["users"][0]["user"] == {"token": token}
    assert curl(cluster, config["clusters"][0]["cluster"]["server"] + CONFIGMAPS, token=token)[1] == 200

    certificate = cluster.authority.client("someone", ["system:masters"])
    config = yaml.safe_load(cluster.kubeconfig(tmp_path / "config", certificate=certificate).read_text())
    user = config["users"][0]["user"]
    options = ["--cert", user["client-certificate"], "--key", user["client-key"]]
    assert curl(cluster, cluster.server + CONFIGMAPS, *options)[1] == 200


# --- manifests and the audit log ------------------------------------------------------------------


def test_file_of_manifests_is_applied(cluster, tmp_path):
    path = tmp_path / "manifests.yaml"
    path.write_text("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.harness.example}
spec:
  group: harness.example
  scope: Cluster
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, maximum: 3}}
---
apiVersion: harness.example/v1
kind: Widget
metadata: {name: w}
spec: {size: 3}
---
""")
    cluster.apply(path)
    try:
        assert cluster.ok("GET", "/apis/harness.example/v1/widgets/w")["spec"]["size"] == 3
        with pytest.raises(AssertionError, match="422.*should be less than or equal to 3"):
            cluster.apply({"apiVersion": "harness.example/v1", "kind": "Widget", "metadata": {"name": "w"},
                           "spec": {"size": 4}})
    finally:
        cluster.ok("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.harness.example")


def test_calls_are_counted(cluster, namespace, token):
    cluster.ok("GET", CONFIGMAPS, user=token)
    since = cluster.mark()
    path = f"{CONFIGMAPS}/counted"
    cluster.ok("POST", CONFIGMAPS, {"metadata": {"name": "counted"}}, user=token)
    cluster.ok("GET", path, user=token)
    cluster.ok("PATCH", path, {"data": {"a": "b"}}, user=token, content_type="application/merge-patch+json")
    cluster.ok("GET", CONFIGMAPS, user=token)
    assert cluster.api("GET", "/api/v1/namespaces/default/pods/p/status", user=token)[0] == 403
    cluster.ok("DELETE", path, user=token)
    cluster.ok("GET", f"{CONFIGMAPS}?watch=true&timeoutSeconds=1", user=token)
    cluster.ok("GET", "/version", user=token)
    cluster.ok("GET", CONFIGMAPS, user=ADMIN)

    assert cluster.calls((namespace, "worker"), since) == [
        Call("create", "configmaps", "", "counted", 201),
        Call("get", "configmaps", "", "counted", 200),
        Call("patch", "configmaps", "", "counted", 200),
        Call("list", "configmaps", "", "", 200),
        Call("get", "pods", "status", "p", 403),
        Call("delete", "configmaps", "", "counted", 200),
        Call("watch", "configmaps", "", "", 200),
        Call("get", "/version", "", "", 200),
    ]
    assert cluster.calls(since=since) == cluster.calls((namespace, "worker"), since)
    assert not cluster.calls((namespace, "worker"), cluster.mark())


# --- faults ---------------------------------------------------------------------------------------


def created(cluster, name):
    return cluster.get(f"{CONFIGMAPS}/{name}") is not None


def body_named(name):
    return ["-H", "Content-Type: application/json", "-d", json.dumps({"metadata": {"name": name}})]


def post(cluster, between, token, name, check=True):
    return curl(cluster, between.url + CONFIGMAPS, *body_named(name), token=token, check=check)


def post_behind(cluster, between, token, name):
    return curl_behind(cluster, token, between.url + CONFIGMAPS, *body_named(name))


def test_proxy_passes_on(cluster, proxy, token):
    assert post(cluster, proxy, token, "passed")[1] == 201
    status, _, body = curl(cluster, proxy.url + CONFIGMAPS + "/passed", token=token)
    assert (status, json.loads(body)["metadata"]["name"]) == (0, "passed")
    assert curl(cluster, proxy.url + CONFIGMAPS, "-H", "Accept-Encoding: gzip", "--compressed", token=token)[1] == 200
    assert [(r.method, r.path, r.status) for r in proxy.requests] == [
        ("POST", CONFIGMAPS, 201), ("GET", CONFIGMAPS + "/passed", 200), ("GET", CONFIGMAPS, 200)]
    assert proxy.requests[0].json == {"metadata": {"name": "passed"}}


def test_proxy_is_reached_by_ipv6(cluster, token):
    with faults.Proxy.of(cluster, host="::1") as proxy:
        assert curl(cluster, proxy.url + CONFIGMAPS, token=token)[1] == 200


def test_proxy_passes_large_bodies(cluster, proxy, token):
    text = "x" * 900_000
    cluster.ok("POST", CONFIGMAPS, {"metadata": {"name": "large"}, "data": {"text": text}})
    _, code, body = curl(cluster, proxy.url + CONFIGMAPS + "/large", token=token)
    assert (code, len(json.loads(body)["data"]["text"])) == (200, len(text))
    large = json.dumps({"data": {"text": text[1:]}})
    head = ["curl", "-sS", "--cacert", cluster.ca, "-X", "PATCH", "-H", f"Authorization: Bearer {token}",
            "-H", "Content-Type: application/merge-patch+json", "--data-binary", "@-"]
    for more in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"]):
        result = subprocess.run([*head, *more, proxy.url + CONFIGMAPS + "/large"], input=large,
                                capture_output=True, text=True, check=True)
        assert json.loads(result.stdout)["data"]["text"] == text[1:]


@pytest.mark.parametrize("code, reason", [(409, "Conflict"), (422, "Invalid"), (429, "TooManyRequests"),
                                          (500, "InternalError"), (503, "ServiceUnavailable")])
def test_proxy_answers_in_the_place_of_the_server(cluster, proxy, token, code, reason):
    rule = proxy.rule("POST", "/configmaps$", faults.answer(code, retry_after=7), nth=2)
    assert post(cluster, proxy, token, "first")[1] == 201
    _, got, body = curl(cluster, proxy.url + CONFIGMAPS, "-i", "-d", "{}", token=token)
    head, _, status = body.replace("\r", "").partition("\n\n")
    status = json.loads(status)
    assert (got, status["kind"], status["code"], status["reason"]) == (code, "Status", code, reason)
    assert status["details"]["retryAfterSeconds"] == 7 and "Retry-After: 7" in head.splitlines()
    assert post(cluster, proxy, token, "third")[1] == 201
    assert len(rule.caught) == 1 and not created(cluster, "second")


def test_proxy_cuts_before(cluster, proxy, token):
    proxy.rule("POST", "", faults.cut_before())
    assert post(cluster, proxy, token, "cut", check=False)[0] in (52, 56)  # nothing came; ended
    assert not created(cluster, "cut")
    assert post(cluster, proxy, token, "cut")[1] == 201


def test_proxy_cuts_after(cluster, proxy, token):
    proxy.rule("POST", "", faults.cut_after())
    assert post(cluster, proxy, token, "cut", check=False)[0] in (52, 56)
    assert created(cluster, "cut")
    assert post(cluster, proxy, token, "cut")[1] == 409


def test_proxy_cuts_within_an_answer(cluster, proxy, token):
    proxy.rule("GET", "", faults.cut_within(10))
    status, _, body = curl(cluster, proxy.url + CONFIGMAPS, token=token, check=False)
    assert status in (18, 56) and len(body) == 10  # a part came; ended


@pytest.mark.parametrize("act, there", [(faults.hang(), False), (faults.hang_after(), True)], ids=["before", "after"])
def test_proxy_hangs(cluster, proxy, token, act, there):
    rule = proxy.rule("POST", "", act)
    with post_behind(cluster, proxy, token, "hung") as client:
        rule.wait()
        # others are served, and this one is not
        assert curl(cluster, proxy.url + CONFIGMAPS, token=token)[1] == 200
        wait_for(lambda: created(cluster, "hung") == there)
        assert client.poll() is None
        rule.release()
        assert client.wait(30) in (52, 56)
    assert created(cluster, "hung") == there


def test_proxy_delays(cluster, proxy, token):
    rule = proxy.rule("POST", "", faults.delay())
    with post_behind(cluster, proxy, token, "late") as client:
        rule.wait()
        assert not created(cluster, "late")
        rule.release()
        assert json.loads(client.communicate(timeout=30)[0])["metadata"]["name"] == "late"
    assert created(cluster, "late")


def watch_through(cluster, between, token):
    """A curl that watches ConfigMaps through what is in between."""
    return curl_behind(cluster, token, between.url + CONFIGMAPS + "?watch=true&timeoutSeconds=300")


def next_change(client, name):
    """Reads until the watch tells about this ConfigMap."""
    for line in client.stdout:
        event = json.loads(line)
        if event["object"]["metadata"]["name"] == name:
            return event["type"]
    raise AssertionError("the watch ended")


@pytest.fixture(params=["proxy", "tunnel"])
def between(request):
    return request.getfixturevalue(request.param)


def test_watch_passes_unbuffered_and_is_cut(cluster, between, token):
    with watch_through(cluster, between, token) as client:
        # the next is made when the one before was told: nothing is kept back
        for name in ("one", "two", "three"):
            cluster.ok("POST", CONFIGMAPS, {"metadata": {"name": name}})
            assert next_change(client, name) == "ADDED"
        between.cut()
        assert client.wait(30) in (18, 56)  # a part came; ended
    assert curl(cluster, between.url + CONFIGMAPS, token=token)[1] == 200


def test_watch_ends_with_its_client(cluster, namespace, between, token):
    since = cluster.mark()
    with watch_through(cluster, between, token) as client:
        cluster.ok("POST", CONFIGMAPS, {"metadata": {"name": "one"}})
        assert next_change(client, "one") == "ADDED"

    # as the server has it
    def ended():
        cluster.mark()
        events = map(json.loads, cluster.audit_log.read_bytes()[since:].splitlines())
        return any((event["verb"], event["stage"], event["user"]["username"]) == (
            "watch", "ResponseComplete", f"system:serviceaccount:{namespace}:worker") for event in events)
    wait_for(ended, 30, "the end of the watch")


def test_watch_ends_with_the_server(cluster, between, token):
    with watch_through(cluster, between, token) as client:
        cluster.ok("POST", CONFIGMAPS, {"metadata": {"name": "one"}})
        assert next_change(client, "one") == "ADDED"
        cluster.kill_apiserver()
        assert client.wait(30) in (18, 56)
    cluster.start_apiserver()
    assert curl(cluster, between.url + CONFIGMAPS, token=token)[1] == 200


def test_server_refuses_and_comes_back(cluster, between, token):
    url = between.url
    between.refuse()
    assert curl(cluster, url + CONFIGMAPS, token=token, check=False)[0] == 7  # no connection
    between.listen()
    assert between.url == url
    assert curl(cluster, url + CONFIGMAPS, token=token)[1] == 200


def test_tunnel_lets_http2_through(cluster, tunnel, token):
    _, _, body = curl(cluster, tunnel.url + CONFIGMAPS, "-i", "--http2", token=token)
    assert re.match(r"HTTP/2 200\b", body)
    assert tunnel.connections == 1


def test_tunnel_freezes(cluster, tunnel, token):
    with watch_through(cluster, tunnel, token) as client:
        cluster.ok("POST", CONFIGMAPS, {"metadata": {"name": "one"}})
        assert next_change(client, "one") == "ADDED"
        tunnel.freeze()
        cluster.ok("POST", CONFIGMAPS, {"metadata": {"name": "two"}})
        # a new connection is made, and nothing comes
        assert curl(cluster, tunnel.url + CONFIGMAPS, "--max-time", "1", token=token, check=False)[0] == 28
        tunnel.thaw()
        assert next_change(client, "two") == "ADDED"
