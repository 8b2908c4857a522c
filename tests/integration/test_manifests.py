# SPDX-License-Identifier: Apache-2.0
"""k8s/ without a cluster: the forms of configuration against what statd itself accepts and understands,
and whether the manifests fit together. tests/cluster has the same cases with real servers."""
import re

import pytest
import yaml

from crd_form import Form, Refused, nodes
from manifest_cases import (CASES, CHANGES, CLUSTER_CONFIGS, DEFAULTED, DRIVER, NODE_CONFIGS, PUBLISHED,
                            PUBLISHED_CLAIMS, cluster_config, definition, documents, node_config)
from procs import ROOT
from statd_reads import refusal, understood

MANIFESTS = sorted(str(path.relative_to(ROOT / "k8s")) for path in (ROOT / "k8s").rglob("*.yaml"))
EXAMPLES = [path for path in MANIFESTS if path.startswith("examples/")]
# of Cilium's form alone; see the definitions
NOT_OURS = {"macvlan", "eswitchSriov"}


def form(plural):
    return Form(definition(plural))


def of_kind(objects, kind):
    return [found for found in objects if found["kind"] == kind]


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice at {node.start_mark}: {keys}"
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("path", MANIFESTS)
def test_parses(path):
    objects = list(yaml.load_all((ROOT / "k8s" / path).read_text(), StrictLoader))
    assert objects
    for found in objects:
        assert found["apiVersion"] and found["kind"] and found["metadata"]["name"]
    assert path in (ROOT / "k8s/README.md").read_text() or path in EXAMPLES


# --- the forms


@pytest.mark.parametrize("plural,short,status", [(NODE_CONFIGS, "ndnc", False), (CLUSTER_CONFIGS, "ndcc", True)])
def test_definition(plural, short, status):
    found = definition(plural)
    names = found["spec"]["names"]
    assert found["metadata"]["name"] == f"{plural}.cilium.io"
    assert found["spec"]["group"] == "cilium.io" and found["spec"]["scope"] == "Cluster"
    assert names["plural"] == plural and names["singular"] == names["kind"].lower() == plural[:-1]
    assert names["listKind"] == names["kind"] + "List"
    assert names["shortNames"] == [short] and names["categories"] == ["cilium"]
    [version] = found["spec"]["versions"]
    assert version["name"] == "v2alpha1" and version["served"] and version["storage"]
    assert version["subresources"] == ({"status": {}} if status else {})
    age = version["additionalPrinterColumns"][-1]
    assert age == {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


@pytest.mark.parametrize("plural", (NODE_CONFIGS, CLUSTER_CONFIGS))
def test_every_field_is_described(plural):
    for path, node in nodes(form(plural).schema):
        if path.endswith("[]") and node["type"] == "string":
            continue  # the list says what is in it
        if path == ".metadata":
            assert node == {"type": "object"}  # the server allows no word about it
            continue
        assert re.fullmatch(r"[A-Za-z].*[.]", node["description"], re.DOTALL), path


def spec_of(plural):
    spec = form(plural).schema["properties"]["spec"]
    return spec["properties"]["spec"] if plural == CLUSTER_CONFIGS else spec


def test_one_spec():
    [node, cluster] = [spec_of(plural) for plural in (NODE_CONFIGS, CLUSTER_CONFIGS)]
    assert node["properties"] == cluster["properties"]
    assert {key: node[key] for key in node if key != "description"} == \
           {key: cluster[key] for key in cluster if key != "description"}


def table(path, array):
    """A record's table of fields in the sources: name -> (type, required)."""
    source = (ROOT / path).read_text()
    body = source[source.index(f"{array}[")::]
    body = body[:body.index("\n};")]
    found = {name: (kind, need == "REQUIRED") for kind, name, need in
             re.findall(r'REC_(\w+)\([^"]*?"(\w+)",\s*REC_(REQUIRED|OPTIONAL)', body)}
    found.update({name: ("STRLIST", False) for name in re.findall(r'FILTER_FIELD\(\s*\w+,\s*"(\w+)"', body)})
    assert len(found) == body.count("REC_") // 2 + body.count("FILTER_FIELD("), (array, found)
    return found


@pytest.mark.parametrize("where,source,array", [
    ((), "statd/config.c", "spec_fields"),
    (("deviceManagerConfigs",), "statd/config.c", "manager_configs_fields"),
    (("deviceManagerConfigs", "dummy"), "statd/config.c", "dummy_config_fields"),
    (("deviceManagerConfigs", "sriov"), "statd/config.c", "sriov_config_fields"),
    (("deviceManagerConfigs", "sriov", "ifaces"), "statd/config.c", "sriov_iface_fields"),
    (("deviceManagerConfigs", "rxQueue"), "statd/config.c", "rxqueue_config_fields"),
    (("deviceManagerConfigs", "rxQueue", "ifaces"), "statd/config.c", "rxqueue_iface_fields"),
    (("pools",), "statd/pool.c", "pool_fields"),
    (("pools", "filter"), "statd/pool.c", "pool_filter_fields"),
])
def test_fields_are_those_of_statd(where, source, array):
    node = spec_of(NODE_CONFIGS)
    for name in where:
        node = node["properties"][name]
        node = node.get("items", node)
    types = {"STR": "string", "INT": "integer", "BOOL": "boolean", "STRLIST": "array", "RECS": "array", "SUB": "object"}
    ours = {name: (types[kind], required) for name, (kind, required) in table(source, array).items()}
    theirs = {name: (sub["type"], name in node.get("required", ())) for name, sub in node["properties"].items()}
    for name in NOT_OURS.intersection(theirs):
        assert node["properties"][name]["x-kubernetes-preserve-unknown-fields"]
        del theirs[name]
    assert theirs == ours


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_server_and_statd(procs, rundir, builddir, case):
    """Each says of it what the case has, and where both accept they understand the same: a default that
    the server fills in is the one that statd would have taken."""
    given = node_config(case.spec)
    try:
        stored = form(NODE_CONFIGS).store(given)
        assert case.server is None, stored
    except Refused as e:
        assert case.server is not None and f".{case.server}: " in f"{e}"
        stored = None
    of_text = of_stored = None
    if case.of_text:
        assert case.of_text in refusal(builddir, rundir / "text", given)
    else:
        of_text = understood(procs, rundir / "text", given)
    if case.stored:
        assert case.stored in refusal(builddir, rundir / "stored", stored)
    elif stored:
        of_stored = understood(procs, rundir / "stored", stored)
    if of_text and of_stored:
        assert of_text == of_stored


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_of_a_group(case):
    """The form for a group of nodes says the same of its spec."""
    try:
        stored = form(CLUSTER_CONFIGS).store(cluster_config(case.spec))
    except Refused as e:
        assert case.server is not None and f".spec.{case.server}: " in f"{e}"
        return
    assert case.server is None
    assert stored["spec"]["spec"] == form(NODE_CONFIGS).store(node_config(case.spec))["spec"]


def test_defaults():
    given, stored = DEFAULTED
    assert form(NODE_CONFIGS).store(node_config(given))["spec"] == stored


@pytest.mark.parametrize("name,before,after,complaint", CHANGES, ids=[change[0] for change in CHANGES])
@pytest.mark.parametrize("wrap,plural", [(node_config, NODE_CONFIGS), (cluster_config, CLUSTER_CONFIGS)],
                         ids=("node", "cluster"))
def test_change(wrap, plural, name, before, after, complaint):
    stored = form(plural).store(wrap(before))
    try:
        form(plural).store(wrap(after), stored)
        assert complaint is None
    except Refused as e:
        assert complaint is not None and f"vfCount: {complaint}" in f"{e}"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(procs, rundir, name):
    """What is written for Cilium's driver is stored as it is, all of it, and statd understands the same."""
    given = PUBLISHED[name]
    cluster = given["kind"] == "CiliumNetworkDriverClusterConfig"
    stored = form(CLUSTER_CONFIGS if cluster else NODE_CONFIGS).store(given)

    def is_within(part, whole):
        if isinstance(part, dict):
            return all(key in whole and is_within(value, whole[key]) for key, value in part.items())
        if isinstance(part, list):
            return len(part) == len(whole) and all(map(is_within, part, whole))
        return part == whole
    assert is_within(given, stored)
    if cluster:
        given, stored = node_config(given["spec"]["spec"]), node_config(stored["spec"]["spec"])
    assert understood(procs, rundir / "given", given) == understood(procs, rundir / "stored", stored)


# --- the account


def account():
    """(namespace, name) of the ServiceAccount."""
    [found] = of_kind(documents("rbac.yaml"), "ServiceAccount")
    return found["metadata"]["namespace"], found["metadata"]["name"]


def test_rights():
    """Exactly these calls, and each rule has its reason."""
    allowed = {
        ("cilium.io", NODE_CONFIGS): {"list", "watch"},
        ("resource.k8s.io", "resourceclaims"): {"get"},
        ("resource.k8s.io", "resourceclaims/status"): {"patch", "update"},
        ("resource.k8s.io", "resourceclaims/driver", DRIVER): {"associated-node:patch", "associated-node:update"},
        ("resource.k8s.io", "resourceslices"): {"list", "watch", "create", "update", "delete"},
        ("", "nodes"): {"get"},
        ("", "pods"): {"list"},
        ("events.k8s.io", "events"): {"create"},
    }
    found = {}
    [role] = of_kind(documents("rbac.yaml"), "ClusterRole")
    for rule in role["rules"]:
        [group], [resource] = rule.pop("apiGroups"), rule.pop("resources")
        key = (group, resource, *rule.pop("resourceNames", ()))
        assert key not in found
        found[key] = set(rule.pop("verbs"))
        assert not rule
    assert found == allowed
    text = (ROOT / "k8s/rbac.yaml").read_text()
    assert len(re.findall(r"^  #.*\n  - apiGroups:", text, re.MULTILINE)) == len(role["rules"])


def test_account_has_the_rights():
    namespace, name = account()
    objects = documents("rbac.yaml")
    [role] = of_kind(objects, "ClusterRole")
    [binding] = of_kind(objects, "ClusterRoleBinding")
    assert len(objects) == 3
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                                  "name": role["metadata"]["name"]}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]


def test_policies_concern_the_account():
    objects = documents("admission.yaml")
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    concerned = set()
    for policy in policies:
        spec = policy["spec"]
        [binding] = [found for found in of_kind(objects, "ValidatingAdmissionPolicyBinding")
                     if found["spec"]["policyName"] == policy["metadata"]["name"]]
        assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
        assert spec["failurePolicy"] == "Fail" and spec["matchConstraints"]["matchPolicy"] == "Equivalent"
        [condition] = spec["matchConditions"]
        assert condition["expression"] == \
            f'request.userInfo.username == "system:serviceaccount:{":".join(account())}"'
        variables = {variable["name"]: variable["expression"] for variable in spec["variables"]}
        assert variables["drivers"] == f'["{DRIVER}"]'
        assert all("message" in validation or "messageExpression" in validation for validation in spec["validations"])
        for rule in spec["matchConstraints"]["resourceRules"]:
            concerned |= {(resource, operation) for resource in rule["resources"] for operation in rule["operations"]}
    assert len(objects) == 2 * len(policies)
    assert concerned == {("resourceslices", "CREATE"), ("resourceslices", "UPDATE"), ("resourceslices", "DELETE"),
                         ("resourceclaims/status", "UPDATE")}


def test_policy_of_one_pod():
    """It concerns everybody, and the same drivers as the others."""
    policy, binding = documents("one-pod.yaml")
    spec = policy["spec"]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert spec["failurePolicy"] == "Fail" and spec["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert "userInfo" not in str(spec)
    variables = {variable["name"]: variable["expression"] for variable in spec["variables"]}
    assert variables["drivers"] == f'["{DRIVER}"]'
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["resourceclaims/status"] and rule["operations"] == ["UPDATE"]


def test_namespace_can_be_changed():
    """As the sign tells it."""
    text = "".join((ROOT / "k8s" / path).read_text() + "\n---\n" for path in ("rbac.yaml", "admission.yaml"))
    command = re.search(r"sed -i 's/(\S+)/NAMESPACE/' k8s/rbac.yaml k8s/admission.yaml",
                        (ROOT / "k8s/README.md").read_text())
    assert command[1] == account()[0]
    changed = re.sub(command[1], "other", text)
    objects = [found for found in yaml.safe_load_all(changed) if found]
    assert of_kind(objects, "ServiceAccount")[0]["metadata"]["namespace"] == "other"
    assert of_kind(objects, "ClusterRoleBinding")[0]["subjects"][0]["namespace"] == "other"
    assert changed.count("system:serviceaccount:other:") == len(of_kind(objects, "ValidatingAdmissionPolicy"))
    # sed without g changes the first of a line
    assert all(line.count(command[1]) < 2 for line in text.splitlines())


# --- the examples


def device_parameters():
    source = (ROOT / "common/api.c").read_text()
    start = source.index("FIELDS_OF(device_config_fields)")
    return set(re.findall(r'"(\w+)", REC_', source[start:source.index("\n};", start)]))


@pytest.mark.parametrize("path", EXAMPLES)
def test_example_is_a_configuration(procs, rundir, path):
    for given in documents(path):
        if given["kind"] == "CiliumNetworkDriverClusterConfig":
            given = node_config(form(CLUSTER_CONFIGS).store(given)["spec"]["spec"])
        elif given["kind"] != "CiliumNetworkDriverNodeConfig":
            continue
        given["metadata"]["name"] = "worker-node-1"
        stored = form(NODE_CONFIGS).store(given)
        told = understood(procs, rundir / "stored", stored)
        assert told["pools"]
        assert any(told[manager] for manager in ("dummy", "sr-iov", "rxQueue"))


def _fit(objects):
    """One class, one template and one pod, each of which refers to the one before."""
    [device_class] = of_kind(objects, "DeviceClass")
    [template] = of_kind(objects, "ResourceClaimTemplate")
    [pod] = of_kind(objects, "Pod")
    devices = template["spec"]["spec"]["devices"]
    [request] = devices["requests"]
    assert request["exactly"]["deviceClassName"] == device_class["metadata"]["name"]
    for config in devices.get("config", ()):
        assert config["requests"] == [request["name"]]
        assert config["opaque"]["driver"] == DRIVER
        assert set(config["opaque"]["parameters"]) <= device_parameters()
    [claim] = pod["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert [c["resources"]["claims"] for c in pod["spec"]["containers"]] == [[{"name": claim["name"]}]]
    [selector] = device_class["spec"]["selectors"]
    assert f'device.driver == "{DRIVER}"' in selector["cel"]["expression"]
    return re.search(r'\.pool == "([^"]+)"', selector["cel"]["expression"])[1]


@pytest.mark.parametrize("path", [path for path in EXAMPLES if "cluster" not in path])
def test_example_fits_together(path):
    objects = documents(path)
    [configuration] = of_kind(objects, "CiliumNetworkDriverNodeConfig")
    assert len(objects) == 4
    assert [_fit(objects)] == [pool["name"] for pool in configuration["spec"]["pools"]]


def test_examples_have_every_kind_of_device():
    managers = set()
    for path in EXAMPLES:
        for found in of_kind(documents(path), "CiliumNetworkDriverNodeConfig"):
            managers |= set(found["spec"]["deviceManagerConfigs"])
    assert managers == set(spec_of(NODE_CONFIGS)["properties"]["deviceManagerConfigs"]["properties"]) - NOT_OURS


def test_published_claims_use_what_there_is():
    for template in of_kind(PUBLISHED_CLAIMS, "ResourceClaimTemplate"):
        for config in template["spec"]["spec"]["devices"].get("config", ()):
            assert set(config["opaque"]["parameters"]) <= device_parameters()
