# SPDX-License-Identifier: Apache-2.0
"""k8s/ at real API servers: what becomes of configurations, what the account may do, and what the
admission policies keep it from."""
import copy
import json
import re
import uuid

import pytest

import mprpc
from cluster_house import ACCOUNT, RESOURCE, ClusterHouse, install
from controlplane import ADMIN, APPLY_PATCH, MERGE_PATCH, Cluster
from crd_form import Form, Refused
from house import MockManager, dedicated
from manifest_cases import (CASES, CHANGES, CLUSTER_CONFIGS, DEFAULTED, DRIVER, NODE_CONFIGS, PUBLISHED,
                            PUBLISHED_CLAIMS, cluster_config, definition, documents, node_config)
from procs import ROOT, wait_for
from statd_reads import refusal, understood

CILIUM = "/apis/cilium.io/v2alpha1"
SLICES = f"{RESOURCE}/resourceslices"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
IDS = [case.name for case in CASES]
EXAMPLES = sorted(str(path.relative_to(ROOT / "k8s")) for path in (ROOT / "k8s/examples").glob("*.yaml"))
PLURALS = {"CiliumNetworkDriverNodeConfig": NODE_CONFIGS, "CiliumNetworkDriverClusterConfig": CLUSTER_CONFIGS}


@pytest.fixture
def server(control_plane):
    """A control plane with k8s/; what a test makes of cilium.io's objects is removed."""
    install(control_plane)
    yield control_plane
    for plural in PLURALS.values():
        control_plane.ok("DELETE", f"{CILIUM}/{plural}")


def path_of(config):
    return f"{CILIUM}/{PLURALS[config['kind']]}"


def refused_by(answer, status, words):
    assert status >= 400, answer
    return words in answer["message"]


def like_stored(given):
    """What the stand-in for the server makes of it, None if it refuses."""
    try:
        return Form(definition(PLURALS[given["kind"]])).store(given)["spec"]
    except Refused:
        return None


# --- the forms


@pytest.mark.parametrize("plural,short,status", [(NODE_CONFIGS, "ndnc", False), (CLUSTER_CONFIGS, "ndcc", True)])
def test_established(server, plural, short, status):
    found = server.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.cilium.io")
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert conditions == {"Established": "True", "NamesAccepted": "True"}
    served = {resource["name"]: resource for resource in server.ok("GET", CILIUM)["resources"]}
    assert served[plural]["shortNames"] == [short] and served[plural]["categories"] == ["cilium"]
    assert not served[plural]["namespaced"]
    assert (f"{plural}/status" in served) == status


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_configuration(server, procs, rundir, builddir, case):
    """The server does with it what the case and the stand-in have, and statd reads what it stored."""
    given = node_config(case.spec)
    status, answer = server.api("POST", path_of(given), given)
    if case.server:
        assert refused_by(answer, status, f"{case.server}: ")
        assert like_stored(given) is None
        return
    assert status == 201, answer
    assert answer["spec"] == like_stored(given)
    stored = server.ok("GET", f"{path_of(given)}/{given['metadata']['name']}")
    assert stored["spec"] == answer["spec"]
    if case.stored:
        assert case.stored in refusal(builddir, rundir / "stored", stored)
        return
    told = understood(procs, rundir / "stored", stored)
    if not case.of_text:
        assert told == understood(procs, rundir / "given", given)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_configuration_of_a_group(server, case):
    given = cluster_config(case.spec)
    status, answer = server.api("POST", path_of(given), given)
    if case.server:
        assert refused_by(answer, status, f"spec.{case.server}: ")
    else:
        assert status == 201, answer
        assert answer["spec"] == like_stored(given)


@pytest.mark.parametrize("case", [case for case in CASES if not case.server and "is not a field" in (case.text or "")],
                         ids=lambda case: case.name)
def test_what_is_dropped_is_told(server, case):
    """As kubectl asks for it."""
    given = node_config(case.spec)
    status, answer = server.api("POST", f"{path_of(given)}?fieldValidation=Strict", given)
    assert refused_by(answer, status, f'unknown field "{case.text.split(":")[0]}"')


def test_defaults(server):
    given, stored = DEFAULTED
    assert server.create(node_config(given))["spec"] == stored
    assert server.create(cluster_config(given))["spec"]["spec"] == stored


@pytest.mark.parametrize("name,before,after,complaint", CHANGES, ids=[change[0] for change in CHANGES])
@pytest.mark.parametrize("wrap", (node_config, cluster_config))
def test_change(server, wrap, name, before, after, complaint):
    stored = server.create(wrap(before))
    changed = {**stored, "spec": wrap(after)["spec"]}
    status, answer = server.api("PUT", f"{path_of(stored)}/{stored['metadata']['name']}", changed)
    if complaint:
        assert status == 422 and complaint in answer["message"] and "vfCount" in answer["message"]
    else:
        assert status == 200, answer


def is_within(part, whole):
    """Whether all of it is there, and no list has more than it."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_within, part, whole))
    return part == whole


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configuration(server, procs, rundir, name):
    """Cilium's are stored with nothing lost and understood as they stand."""
    given = PUBLISHED[name]
    server.ok("POST", f"{path_of(given)}?fieldValidation=Strict", given)
    stored = server.ok("GET", f"{path_of(given)}/{given['metadata']['name']}")
    assert is_within(given, stored)
    if given["kind"] == "CiliumNetworkDriverClusterConfig":
        given, stored = node_config(given["spec"]["spec"]), node_config(stored["spec"]["spec"])
    assert understood(procs, rundir / "given", given) == understood(procs, rundir / "stored", stored)


def try_to_create(server, given):
    """What it would be stored as; pods get their volume with the account's token on the way."""
    path = server._path_of(given)  # pylint: disable=protected-access
    return server.ok("POST", f"{path}?dryRun=All&fieldValidation=Strict", given)


@pytest.mark.parametrize("given", PUBLISHED_CLAIMS, ids=lambda given: given["metadata"]["name"])
def test_published_claims(server, given):
    stored = try_to_create(server, given)
    stored["spec"].pop("volumes", None)
    if given["kind"] != "Pod":
        assert is_within(given, stored)


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples(server, path):
    for given in documents(path):
        try_to_create(server, given)


CONFLICT = {"type": "cilium.io/ConflictingClusterConfiguration", "status": "True", "message": "",
            "reason": "configurationConflict", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def test_condition_of_a_group(server):
    """Is written through the status and nowhere else."""
    given, condition = cluster_config({}), CONFLICT
    stored = server.create({**given, "status": {"conditions": [condition]}})
    assert "status" not in stored
    path = f"{path_of(given)}/{given['metadata']['name']}"
    changed = {**stored, "status": {"conditions": [condition]}, "spec": {"spec": {"driverName": "other"}}}
    stored = server.ok("PUT", f"{path}/status", changed)
    assert stored["status"]["conditions"] == [condition]
    assert stored["spec"]["spec"]["driverName"] == DRIVER
    for wrong in ({"type": "a b"}, {"status": "true"}, {"reason": ""}, {"lastTransitionTime": "now"}):
        status, answer = server.api("PUT", f"{path}/status", {
            **stored, "status": {"conditions": [{**condition, **wrong}]}})
        assert refused_by(answer, status, f"status.conditions[0].{next(iter(wrong))}")
    status, answer = server.api("PUT", f"{path}/status", {**stored, "status": {"conditions": [condition, condition]}})
    assert refused_by(answer, status, "status.conditions[1]: Duplicate value")


def table_of(server, plural):
    """As kubectl get shows them: the columns that it shows without being asked for more, and the rows."""
    table = server.ok("GET", f"{CILIUM}/{plural}", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    return ([column["name"] for column in table["columnDefinitions"] if column["priority"] == 0],
            [row["cells"] for row in table["rows"]])


def test_columns(server):
    server.create(node_config({}))
    columns, [[name, age]] = table_of(server, NODE_CONFIGS)
    assert columns == ["Name", "Age"] and name == "worker-node-1" and re.match(r"\d+s$", age)

    stored = server.create(cluster_config({}))
    server.ok("PUT", f"{path_of(stored)}/{stored['metadata']['name']}/status",
              {**stored, "status": {"conditions": [CONFLICT]}})
    server.create(cluster_config({}, name="other"))
    columns, rows = table_of(server, CLUSTER_CONFIGS)
    assert columns == ["Name", "Conflicting", "Age"]
    assert {name: conflicting for name, conflicting, _ in rows} == {"of-case": "True", "other": None}


# --- the account


def rights_of_manifest():
    """(group, resource, verb, name or "") of the ClusterRole."""
    [role] = [found for found in documents("rbac.yaml") if found["kind"] == "ClusterRole"]
    return {(rule["apiGroups"][0], rule["resources"][0], verb, rule.get("resourceNames", [""])[0])
            for rule in role["rules"] for verb in rule["verbs"]}


def resources_of(server):
    """(group, resource) of all that the server serves, and what is only asked for as a right."""
    found = {("resource.k8s.io", "resourceclaims/driver"), ("resource.k8s.io", "resourceclaims/binding"),
             ("", "users"), ("", "groups"), ("", "userextras")}
    groups = [""] + [group["name"] for group in server.ok("GET", "/apis")["groups"]]
    for group in groups:
        roots = ["/api/v1"] if not group else [
            f"/apis/{version['groupVersion']}" for version in server.ok("GET", f"/apis/{group}")["versions"]]
        found |= {(group, resource["name"]) for root in roots for resource in server.ok("GET", root)["resources"]}
    return found


def may(server, token, group, resource, verb, name="", namespace=""):
    resource, _, subresource = resource.partition("/")
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "resourceAttributes": {"group": group, "resource": resource, "subresource": subresource, "verb": verb,
                               "name": name, "namespace": namespace}}}
    answer = server.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, user=token)
    return answer["status"]["allowed"]


KEYS = ("driver", "pool", "device", "shareID")  # of an entry of status.devices


class Account:
    """The driver's account on two nodes, and a pod on the first."""

    def __init__(self, server):
        self.server = server
        self.nodes = [f"node-{uuid.uuid4().hex[:8]}" for _ in range(2)]
        for node in self.nodes:
            server.make_node(node)
        self.tokens = [server.driver_token(*ACCOUNT, node) for node in self.nodes]
        self.unbound = server.service_account_token(*ACCOUNT)
        pod = server.make_pod("default", f"app-{self.nodes[0]}", node=self.nodes[0])
        self.reserved_for = {"resource": "pods", **{key: pod["metadata"][key] for key in ("name", "uid")}}

    def wait_policies(self):
        """A server takes a moment to know them."""
        claim = self.make_claim()

        def in_force():
            of_slices = self.server.api("POST", f"{SLICES}?dryRun=All", slice_of(self.nodes[1]), user=self.tokens[0])
            of_claims = self.server.api("PATCH", f"{status_path(claim)}?dryRun=All", {"status": {"reservedFor": None}},
                                        user=self.unbound, content_type=MERGE_PATCH)
            return denied(of_slices, "netclaim-resourceslices") and denied(of_claims, "netclaim-resourceclaims")
        wait_for(in_force, 60, "the admission policies")

    def make_claim(self, selector=None, others=(), allocated=True, reserved=True):
        """As the scheduler leaves one with a device of ours and another driver's, on the first node; others:
        what its drivers say of other devices than ours."""
        claim = self.server.create({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{uuid.uuid4().hex[:8]}", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": name, "exactly": {"deviceClassName": "any"}}
                                              for name in ("net", "gpu")]}}})
        if not allocated:
            return claim
        claim["status"] = {
            "allocation": {
                "devices": {"results": [
                    {"request": "net", "driver": DRIVER, "pool": "pool", "device": "dummy0"},
                    *({"request": "gpu", **{key: other[key] for key in KEYS if key in other}}
                      for other in others or [entry("gpu.example.com")])]},
                "nodeSelector": selector or at_node(self.nodes[0])},
            "reservedFor": [self.reserved_for] if reserved else [],
            "devices": list(others)}
        return self.server.ok("PUT", status_path(claim), json.dumps(claim, separators=(",", ":")))  # as Go has it


@pytest.fixture
def account(cluster):
    """The account as k8s/ has it."""
    install(cluster)
    return Account(cluster)


TOO_MUCH = ({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "too-much"},
             "rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]}]},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
             "metadata": {"name": "too-much"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "too-much"},
             "subjects": [{"kind": "ServiceAccount", "namespace": ACCOUNT[0], "name": ACCOUNT[1]}]})


@pytest.fixture(scope="module")
def spoilt(control_plane):
    """The account where RBAC allows it everything about devices, on a control plane of its own that has
    all versions of the API: what is refused there, the policies refuse."""
    with Cluster(control_plane.version, control_plane.feature_gates, flags=["--runtime-config=api/beta=true"]) as server:
        install(server)
        server.apply(*TOO_MUCH)
        made = Account(server)
        made.wait_policies()
        yield made


def test_rights(account):
    """Of all verbs on all that the server has, these and no others, but what every account may."""
    server = account.server
    anyone = server.service_account_token("default", "default")
    verbs = {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate",
             "impersonate", "use", "sign", "approve", "attest", "associated-node:patch", "associated-node:update",
             "arbitrary-node:patch", "arbitrary-node:update"}
    resources = resources_of(server)
    assert {(group, resource) for group, resource, _, _ in rights_of_manifest()} <= resources
    found = set()
    for group, resource in resources:
        for verb in verbs:
            for name in ("", DRIVER):
                if may(server, account.tokens[0], group, resource, verb, name) \
                        and not may(server, anyone, group, resource, verb, name):
                    found.add((group, resource, verb, name))
    # whoever may something to all may it to the one of this name
    expected = {(*right[:3], name) for right in rights_of_manifest() for name in {right[3], DRIVER}}
    assert found == expected
    assert not may(server, account.tokens[0], "resource.k8s.io", "resourceclaims/driver", "associated-node:patch", "other")


def test_every_right_is_used(cluster, procs, rundir):
    """By what statd does in the life of a node."""
    house = ClusterHouse(procs, rundir, cluster)
    since = cluster.mark()
    house.create_config()
    house.start_statd()
    manager = MockManager(house, "dummy", [dedicated(f"dummy{i}") for i in range(65)])
    house.wait_published(*(f"dummy{i}" for i in range(65)))
    manager.publish(manager.devices[:1])  # one slice changes, the other goes
    house.wait_published("dummy0")
    house.template("one", "fast-net", {"podIfName": "net1"}, spaced=True)  # which no patch can write
    claim = house.pod_with_claim("app", "one")
    manager.failures["device.setup", "dummy0"] = mprpc.Error("internal", "not today")
    house.start_draplugind()
    with house.kubelet() as kubelet:
        kubelet.register()
        uid = claim["metadata"]["uid"]
        assert "not today" in kubelet.prepare([house.ref(claim)])[uid]["error"]
        house.wait_event("PrepareFailed")
        manager.failures.clear()
        assert "error" not in kubelet.prepare([house.ref(claim)])[uid]
        assert house.entries(claim)
    used = {(call.resource + (f"/{call.subresource}" if call.subresource else ""), call.verb)
            for call in cluster.calls(ACCOUNT, since) if not call.resource.startswith("/")}
    # the verbs of other rights than calls have a colon
    assert used == {(resource, verb) for _, resource, verb, _ in rights_of_manifest() if ":" not in verb}


# --- slices


def slice_of(node, name=None, driver=DRIVER, pool=None, **where):
    where = where or {"nodeName": node}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": name or f"slice-{uuid.uuid4().hex[:8]}"},
            "spec": {"driver": driver, "pool": {"name": pool or node, "generation": 1, "resourceSliceCount": 1},
                     "devices": [{"name": "dummy0"}], **where}}


def with_devices(found, *names):
    changed = copy.deepcopy(found)
    changed["spec"]["devices"] = [{"name": name} for name in names]
    return changed


def denied(outcome, policy, *words):
    status, answer = outcome
    return status == 403 and f"ValidatingAdmissionPolicy '{policy}'" in answer["message"] \
        and all(word in answer["message"] for word in words)


def assert_denied(outcome, *words):
    assert denied(outcome, "netclaim-resourceslices", *words), outcome


def slice_path(found):
    return f"/apis/{found['apiVersion']}/resourceslices/{found['metadata']['name']}"


def test_own_slices(account):
    server, [node, _], [token, _] = account.server, account.nodes, account.tokens
    created = server.ok("POST", SLICES, slice_of(node), user=token)
    path = slice_path(created)
    changed = server.ok("PUT", path, with_devices(created, "dummy0", "dummy1"), user=token)
    assert [device["name"] for device in changed["spec"]["devices"]] == ["dummy0", "dummy1"]
    server.ok("DELETE", path, {"preconditions": {"uid": created["metadata"]["uid"]}}, user=token)
    assert server.get(path) is None
    wait_for(lambda: denied(server.api("POST", SLICES, slice_of(account.nodes[1]), user=token),
                            "netclaim-resourceslices"), 60, "the policy's no")


def test_own_slices_where_all_is_allowed(spoilt):
    server, [node, _], [token, _] = spoilt.server, spoilt.nodes, spoilt.tokens
    created = server.ok("POST", SLICES, slice_of(node), user=token)
    server.ok("PUT", slice_path(created), with_devices(created, "dummy0", "dummy1"), user=token)
    server.ok("PATCH", slice_path(created), {"spec": {"devices": []}}, user=token, content_type=MERGE_PATCH)
    server.ok("DELETE", slice_path(created), user=token)


def test_new_slices_of_others(spoilt):
    server, [node, other], [token, _] = spoilt.server, spoilt.nodes, spoilt.tokens
    for words, tried in (
            (f"netclaim on node '{node}' may not write a slice of node '{other}'", slice_of(other)),
            ("of no one node", slice_of(node, allNodes=True)),
            ("of no one node", slice_of(node, nodeSelector=at_node(node))),
            ("of driver 'gpu.example.com'", slice_of(node, driver="gpu.example.com")),
            (f"in pool '{other}'", slice_of(node, pool=other))):
        assert_denied(server.api("POST", SLICES, tried, user=token), words)


@pytest.mark.parametrize("version", ("v1", "v1beta2", "v1beta1"))
def test_slices_of_others(spoilt, version):
    """They stand as they are, whatever version of the API they are asked for in."""
    server, [node, other], [token, _] = spoilt.server, spoilt.nodes, spoilt.tokens
    root = f"/apis/resource.k8s.io/{version}"
    if not server.get(root):
        pytest.skip(f"Kubernetes {server.version} has no resource.k8s.io/{version}")
    for made in slice_of(other), slice_of(node, driver="gpu.example.com"), slice_of(node, allNodes=True):
        made = server.create(made)
        path = f"{root}/resourceslices/{made['metadata']['name']}"
        found = server.get(path)
        fresh = {**found, "metadata": {"name": f"slice-{uuid.uuid4().hex[:8]}"}}
        assert_denied(server.api("POST", f"{root}/resourceslices", fresh, user=token))
        assert_denied(server.api("PUT", path, {**found, "spec": {**found["spec"], "devices": []}}, user=token))
        assert_denied(server.api("PATCH", path, {"spec": {"devices": []}}, user=token, content_type=MERGE_PATCH))
        assert_denied(server.api("DELETE", path, user=token))
        assert_denied(server.api("DELETE", f"{root}/resourceslices", user=token))
        assert server.get(path) == found
        server.ok("DELETE", path)


def test_stale_slices(spoilt):
    """What an earlier driver has left on the node may go, and is not taken up."""
    server, [node, _], [token, _] = spoilt.server, spoilt.nodes, spoilt.tokens
    stale = server.create(slice_of(node, pool="of-earlier"))
    outcome = server.api("PUT", slice_path(stale), with_devices(stale, "dummy0", "dummy1"), user=token)
    assert_denied(outcome, "in pool 'of-earlier'")
    server.ok("DELETE", slice_path(stale), user=token)


def test_slices_cannot_move(spoilt):
    """To the own node, or to the own pool: what the policy does not look at is immutable."""
    server, [node, other], [token, _] = spoilt.server, spoilt.nodes, spoilt.tokens
    for made in slice_of(other), slice_of(node, driver="gpu.example.com"), slice_of(node, pool="of-earlier"):
        found = server.create(made)
        taken = slice_of(node, found["metadata"]["name"])
        taken["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        status, answer = server.api("PUT", slice_path(found), taken, user=token)
        assert status == 422 and "immutable" in answer["message"], answer
        server.ok("DELETE", slice_path(found))


def test_slices_by_a_token_of_no_node(spoilt):
    server, [node, _] = spoilt.server, spoilt.nodes
    found = server.create(slice_of(node))
    for outcome in (server.api("POST", SLICES, slice_of(node), user=spoilt.unbound),
                    server.api("POST", SLICES, slice_of(node, allNodes=True), user=spoilt.unbound),
                    server.api("PUT", slice_path(found), with_devices(found), user=spoilt.unbound),
                    server.api("DELETE", slice_path(found), user=spoilt.unbound)):
        assert_denied(outcome, "names no node")
    server.ok("DELETE", slice_path(found))


def test_slices_of_other_accounts(spoilt):
    """Are no concern of the policy."""
    server, [_, other] = spoilt.server, spoilt.nodes
    found = server.create(slice_of(other, driver="gpu.example.com"), user=ADMIN)
    server.ok("PUT", slice_path(found), with_devices(found), user=ADMIN)
    server.ok("DELETE", slice_path(found), user=ADMIN)


# --- status of claims


def at_node(node):
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}


def entry(driver=DRIVER, **more):
    return {"driver": driver, "pool": "pool", "device": "dummy0", "conditions": [], **more}


def status_path(claim):
    return f"{RESOURCE}/namespaces/default/resourceclaims/{claim['metadata']['name']}/status"


def exchange_status(server, claim, devices, token):
    """Has these for the driver's entries, as statd does it: no byte of the others is touched."""
    now = server.claim("default", claim["metadata"]["name"])
    before = now["status"].get("devices", [])
    patch = [{"op": "test", "path": "/metadata/uid", "value": claim["metadata"]["uid"]}]
    patch += [{"op": "remove", "path": f"/status/devices/{i}"} for i in reversed(range(len(before)))
              if before[i]["driver"] == DRIVER]
    if not before:
        patch.append({"op": "add", "path": "/status/devices", "value": []})
    patch += [{"op": "add", "path": "/status/devices/-", "value": device} for device in devices]
    return server.api("PATCH", status_path(claim), patch, user=token, content_type="application/json-patch+json")


def apply_status(server, claim, devices, token):
    """The same by server-side apply."""
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {key: claim["metadata"][key] for key in ("name", "namespace", "uid")},
            "status": {"devices": devices}}
    return server.api("PATCH", f"{status_path(claim)}?fieldManager={DRIVER}&force=true", body, user=token,
                      content_type=APPLY_PATCH)


def patch_status(server, claim, changes, token):
    return server.api("PATCH", status_path(claim), {"status": changes}, user=token, content_type=MERGE_PATCH)


GPU = entry("gpu.example.com", data={"of": {"another": ["driver", 1, None, True]}},
            networkData={"interfaceName": "x", "ips": ["192.0.2.1/24"]},
            conditions=[{"type": "Ready", "status": "True", "reason": "Set", "message": "",
                         "lastTransitionTime": "2026-01-01T00:00:00Z"}])


UNSORTED = {**GPU, "data": {"b": 1, "a": {"z": [1, {"y": 2, "x": 3}], "q": 2}}}


def write_own_status(account, write, *neighbours):
    """Written, changed and taken back, beside what another driver has there."""
    server, [token, _] = account.server, account.tokens
    for others in ((), *([neighbour] for neighbour in neighbours)):
        claim = account.make_claim(others=others)
        for data in ({"Manager": "dummy", "Dev": {"Name": "dummy0"}}, {"Manager": "dummy", "Dev": {"Name": "dummy1"}}):
            status, answer = write(server, claim, [entry(data=data)], token)
            assert status == 200, answer
            found = {device["driver"]: device for device in answer["status"]["devices"]}
            assert found[DRIVER]["data"] == data and len(found) == 1 + len(others)
        status, answer = write(server, claim, [], token)
        assert status == 200, answer
        assert [device["driver"] for device in answer["status"].get("devices", ())] == [o["driver"] for o in others]
        assert all(map(is_within, others, answer["status"].get("devices", ())))
        assert answer["status"]["reservedFor"] == claim["status"]["reservedFor"]


def test_status_of_own_claims(account):
    write_own_status(account, exchange_status, GPU, UNSORTED)
    write_own_status(account, apply_status, GPU)


@pytest.mark.parametrize("write", (exchange_status, apply_status))
def test_status_of_own_claims_where_all_is_allowed(spoilt, write):
    """Server-side apply sorts the keys in everybody's data; to the policy that is no change."""
    write_own_status(spoilt, write, GPU, UNSORTED)


def not_at(node):
    """Selectors of nodes that are another than that of this node alone, for claims with our devices."""
    [term] = at_node(node)["nodeSelectorTerms"]
    [field] = term["matchFields"]
    label = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "another node": at_node("elsewhere"),
        "one of two terms": {"nodeSelectorTerms": [term, *at_node("elsewhere")["nodeSelectorTerms"]]},
        "more than the name": {"nodeSelectorTerms": [{**term, "matchExpressions": [label]}]},
        "any but the node": {"nodeSelectorTerms": [{"matchFields": [{**field, "operator": "NotIn"}]}]},
        "a label": {"nodeSelectorTerms": [{"matchExpressions": [label]}]},
    }


def assert_unwritten(account, claim, outcome, *words):
    """By the policy, where it alone could refuse; else by whoever is asked first."""
    status, answer = outcome
    if account.server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/too-much"):
        assert denied(outcome, "netclaim-resourceclaims", *words), outcome
    else:
        assert (status, "Forbidden: changing status." in answer["message"]) == (422, True), outcome
    now = account.server.claim("default", claim["metadata"]["name"])
    assert now["metadata"]["resourceVersion"] == claim["metadata"]["resourceVersion"]


@pytest.mark.parametrize("where", not_at("node"))
def test_status_of_claims_elsewhere(spoilt, where):
    server, [node, _], [token, _] = spoilt.server, spoilt.nodes, spoilt.tokens
    claim = spoilt.make_claim(not_at(node)[where])
    assert_unwritten(spoilt, claim, apply_status(server, claim, [entry()], token), node, "not allocated there")


def test_status_of_a_claim_that_is_not_allocated(spoilt):
    claim = spoilt.make_claim(allocated=False)
    for changes in ({"devices": []}, {"reservedFor": [spoilt.reserved_for]}):
        outcome = patch_status(spoilt.server, claim, changes, spoilt.tokens[0])
        assert outcome[0] in (403, 422), outcome
    outcome = spoilt.server.api("PUT", status_path(claim), claim, user=spoilt.tokens[0])
    assert_unwritten(spoilt, claim, outcome, "not allocated there")


def test_status_by_a_token_of_no_node(spoilt):
    claim = spoilt.make_claim()
    outcome = apply_status(spoilt.server, claim, [entry()], spoilt.unbound)
    assert_unwritten(spoilt, claim, outcome, "names no node")


NOT_OURS = {
    "whom it is reserved for": {"reservedFor": None},
    "somebody else": {"reservedFor": [{"resource": "pods", "name": "mine", "uid": str(uuid.uuid4())}]},
    "not allocated": {"allocation": None, "reservedFor": None, "devices": None},
    "another driver's data": {"devices": [{**GPU, "data": {"of": {"another": ["driver", 2, None, True]}}}]},
    "another driver's condition": {"devices": [{**GPU, "conditions": []}]},
    "another driver's network": {"devices": [{**GPU, "networkData": {"interfaceName": "x"}}]},
    "another driver's entry gone": {"devices": [entry()]},
    "all entries gone": {"devices": None},
}


def write_status(account, claim, changes, verb):
    """Changes the status as the driver."""
    if verb == "PATCH":
        return patch_status(account.server, claim, changes, account.tokens[0])
    changed = {key: value for key, value in {**claim["status"], **changes}.items() if value is not None}
    return account.server.api("PUT", status_path(claim), {**claim, "status": changed}, user=account.tokens[0])


@pytest.mark.parametrize("what", NOT_OURS)
@pytest.mark.parametrize("verb", ("PATCH", "PUT"))
def test_status_that_is_not_the_drivers(spoilt, what, verb):
    claim, changes = spoilt.make_claim(others=[GPU]), NOT_OURS[what]
    words = "whom it is reserved for" if "reservedFor" in changes else "other drivers"
    assert_unwritten(spoilt, claim, write_status(spoilt, claim, changes, verb), "netclaim may not change", words)


@pytest.mark.parametrize("verb", ("PATCH", "PUT"))
def test_allocation_of_a_claim_that_nobody_uses(spoilt, verb):
    claim = spoilt.make_claim(reserved=False)
    outcome = write_status(spoilt, claim, {"allocation": None}, verb)
    assert_unwritten(spoilt, claim, outcome, "what is allocated")


SHARES = [str(uuid.uuid4()) for _ in range(2)]


@pytest.mark.parametrize("key,values", [("device", ("dummy1", "dummy2")), ("pool", ("pool1", "pool2")),
                                        ("driver", ("gpu.example.com", "npu.example.com")), ("shareID", SHARES)])
def test_entries_of_others_exchanged(spoilt, key, values):
    """One is told from the other by any of what names a device."""
    claim = spoilt.make_claim(others=[entry(**{"driver": "gpu.example.com", key: value}, data={"of": value})
                                      for value in values])
    both = claim["status"]["devices"]
    assert [(e[key], e["data"]) for e in both] == [(value, {"of": value}) for value in values]
    exchanged = [{**both[0], "data": both[1]["data"]}, {**both[1], "data": both[0]["data"]}]
    outcome = write_status(spoilt, claim, {"devices": exchanged}, "PATCH")
    assert_unwritten(spoilt, claim, outcome, "other drivers")
    # their order is nothing
    status, answer = write_status(spoilt, claim, {"devices": both[::-1]}, "PATCH")
    assert status == 200, answer


def test_another_drivers_new_entry(spoilt):
    claim = spoilt.make_claim()
    outcome = apply_status(spoilt.server, claim, [entry(), entry("gpu.example.com")], spoilt.tokens[0])
    assert_unwritten(spoilt, claim, outcome, "other drivers")


@pytest.mark.parametrize("version", ("v1beta2", "v1beta1"))
def test_status_in_other_versions(spoilt, version):
    root = f"/apis/resource.k8s.io/{version}"
    if not spoilt.server.get(root):
        pytest.skip(f"Kubernetes {spoilt.server.version} has no resource.k8s.io/{version}")
    claim = spoilt.make_claim(others=[GPU])
    path = f"{root}/namespaces/default/resourceclaims/{claim['metadata']['name']}/status"
    for changes, words in (({"reservedFor": None}, "whom it is reserved for"), ({"devices": None}, "other drivers")):
        outcome = spoilt.server.api("PATCH", path, {"status": changes}, user=spoilt.tokens[0], content_type=MERGE_PATCH)
        assert_unwritten(spoilt, claim, outcome, words)


@pytest.mark.parametrize("what", NOT_OURS)
def test_status_with_the_rights_of_k8s(account, what):
    """From 1.36 on the server refuses by itself what the policy refuses."""
    if account.server.minor < 36:
        pytest.skip("granular status authorization is of Kubernetes 1.36 and later")
    claim = account.make_claim(others=[GPU])
    assert_unwritten(account, claim, patch_status(account.server, claim, NOT_OURS[what], account.tokens[0]))


def test_status_by_other_accounts(spoilt):
    """Is no concern of the policy: the scheduler, controllers and drivers write it, too."""
    claim = spoilt.make_claim(others=[GPU])
    status, answer = patch_status(spoilt.server, claim, NOT_OURS["not allocated"], ADMIN)
    assert status == 200, answer


# --- the policies themselves


def test_policies_are_well_typed(cluster):
    """The controller that checks expressions against the types that they are about has no doubts."""
    install(cluster)
    for name in "netclaim-resourceslices", "netclaim-resourceclaims":
        def checked(name=name):
            policy = cluster.get(f"{POLICIES}/{name}")
            status = policy.get("status", {})
            return policy if status.get("observedGeneration") == policy["metadata"]["generation"] else None
        policy = wait_for(checked, 60, f"the check of {name}")
        assert "expressionWarnings" not in policy["status"].get("typeChecking", {}), policy["status"]


# --- one pod a claim


def reserve(account, claim, *pods, dry=False):
    """Reserves it for these pods, as the scheduler does. A controller may write it at the same time."""
    while True:
        now = account.server.claim("default", claim["metadata"]["name"])
        now["status"]["reservedFor"] = [
            {"resource": "pods", **{key: pod["metadata"][key] for key in ("name", "uid")}} for pod in pods]
        status, answer = account.server.api("PUT", status_path(claim) + ("?dryRun=All" if dry else ""), now)
        if status != 409:
            return status, answer


def make_pods(account, count):
    return [account.server.make_pod("default", f"app-{uuid.uuid4().hex[:8]}", node=account.nodes[0])
            for _ in range(count)]


@pytest.fixture
def one_pod(account):
    """Applies the policy, for the test's time; returns when the server knows it."""
    server, applied = account.server, []

    def apply():
        claim = account.make_claim(reserved=False)
        a, b = make_pods(account, 2)
        assert reserve(account, claim, a)[0] == 200
        server.apply(ROOT / "k8s/one-pod.yaml")
        applied.extend(documents("one-pod.yaml"))
        wait_for(lambda: denied(reserve(account, claim, a, b, dry=True), "netclaim-one-pod",
                                f"is in use by '{a['metadata']['name']}'",
                                f"claim '{claim['metadata']['name']}'", "give each pod a claim of its own"), 60,
                 "the policy of one pod")
    yield apply
    for found in applied:
        server.ok("DELETE", f"{server._path_of(found)}/{found['metadata']['name']}")  # pylint: disable=protected-access


def test_one_pod_a_claim(account, one_pod):
    """Another pod is refused, whatever the claim had; everything else about it goes on."""
    shared, single = (account.make_claim(reserved=False) for _ in range(2))
    foreign = account.make_claim(allocated=False)
    results = [found for found in shared["status"]["allocation"]["devices"]["results"] if found["driver"] != DRIVER]
    foreign["status"] = {"allocation": {"devices": {"results": results}, "nodeSelector": at_node(account.nodes[0])}}
    account.server.ok("PUT", status_path(foreign), foreign)
    a, b, c = make_pods(account, 3)
    assert reserve(account, shared, a, b)[0] == 200
    assert reserve(account, single, a)[0] == 200
    one_pod()
    assert denied(reserve(account, single, a, b), "netclaim-one-pod")
    assert denied(reserve(account, shared, a, b, c), "netclaim-one-pod")
    assert denied(reserve(account, shared, a, c), "netclaim-one-pod")
    assert reserve(account, foreign, a, b)[0] == 200
    outcome = account.server.api("PATCH", status_path(shared), {"status": {"devices": [entry()]}}, user=account.tokens[0],
                                 content_type=MERGE_PATCH)
    assert outcome[0] == 200, outcome
    assert len(outcome[1]["status"]["reservedFor"]) == 2
    for pods in (b,), (c,), (), (a,):
        assert reserve(account, shared, *pods)[0] == 200


def test_second_pod_of_a_claim_is_not_scheduled(cluster, procs, rundir, one_pod):
    """And its condition says why, until the first one is gone."""
    house = ClusterHouse(procs, rundir, cluster)
    house.create_config()
    house.start_statd()
    manager = MockManager(house, "dummy", [dedicated("dummy0")])
    house.wait_published("dummy0")
    one_pod()
    cluster.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                    "metadata": {"name": "shared", "namespace": house.namespace},
                    "spec": {"devices": {"requests": [
                        {"name": "net", "exactly": {"deviceClassName": house.device_class("fast-net")}}]}}})

    def make(name):
        cluster.make_pod(house.namespace, name, {"net": "shared"})

    def why_pending():
        conditions = cluster.pod(house.namespace, "second").get("status", {}).get("conditions", [])
        return [c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False" and
                "a network device cannot be in two pods at once" in c.get("message", "")]
    make("first")
    cluster.wait_bound(house.namespace, "first")
    make("second")
    [message] = wait_for(why_pending, 60, "the reason why the second pod is pending")
    assert "'shared' is in use by 'first'" in message and "resourceClaimTemplateName" in message
    cluster.ok("DELETE", f"/api/v1/namespaces/{house.namespace}/pods/first")
    cluster.wait_bound(house.namespace, "second", timeout=120)
    manager.close()
