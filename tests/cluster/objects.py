# SPDX-License-Identifier: Apache-2.0
"""What tests fill a cluster with: nodes without kubelets, namespaces, pods, claims and accounts."""
import itertools
import time

from kubeapi import MERGE_PATCH, Client, selector
from procs import wait_for


def merged(base, changes):
    """base with changes, dict by dict."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return {**base, **{key: merged(base.get(key), value) for key, value in changes.items()}}


class Objects(Client):
    """A client with words for the objects that tests make and look at."""

    def __init__(self):
        super().__init__()
        self._numbers = itertools.count(1)

    # --- nodes, namespaces, pods

    def make_node(self, name, **changes):
        """A node that the scheduler takes for a running one. changes are merged into the object."""
        manifest = merged({"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}, changes)
        self.ok("POST", "/api/v1/nodes", manifest)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        room = {"cpu": "64", "memory": "256Gi", "pods": "2000"}
        self.ok("PATCH", f"/api/v1/nodes/{name}/status", {"status": {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                            "message": "as a test has it", "lastHeartbeatTime": now, "lastTransitionTime": now}],
        }}, content_type=MERGE_PATCH)
        # a new node is tainted until a controller that does not run here has seen it ready
        return self.ok("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, content_type=MERGE_PATCH)

    def make_namespace(self, prefix="test"):
        """A new one; returns its name. Pods can be made there."""
        name = f"{prefix}-{next(self._numbers)}"
        self.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self._wait_account(name, "default")
        return name

    def _wait_account(self, namespace, name):
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
        wait_for(lambda: self.get(path), 60, f"service account {namespace}/{name}")

    def make_pod(self, namespace, name, claims=None, node=None, **changes):
        """A pod of one container. claims: {its name in the pod: a claim's name, or {"template": its
        name}}, all given to the container. node: it is there at once; otherwise the scheduler says
        where. changes are merged into the object."""
        entries = [{"name": entry, "resourceClaimTemplateName": claim["template"]} if isinstance(claim, dict)
                   else {"name": entry, "resourceClaimName": claim} for entry, claim in (claims or {}).items()]
        container = {"name": "main", "image": "localhost/none", "resources": {
            "claims": [{"name": entry["name"]} for entry in entries]}}
        spec = {"containers": [container], "resourceClaims": entries, "terminationGracePeriodSeconds": 0}
        if node:
            spec["nodeName"] = node
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
                    "spec": spec}
        return self.create(merged(manifest, changes))

    def pod(self, namespace, name):
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def wait_bound(self, namespace, name, timeout=60):
        """Waits until the scheduler has found a node for the pod; returns the pod."""
        def look():
            pod = self.pod(namespace, name)
            return pod if pod and pod["spec"].get("nodeName") else None
        try:
            return wait_for(look, timeout, f"a node for pod {namespace}/{name}")
        except AssertionError as e:
            raise AssertionError(f"{e}: {self.why_pending(namespace, name)}") from None

    def why_pending(self, namespace, name):
        """What the scheduler says about a pod that it found no node for; empty if it did not say yet."""
        conditions = (self.pod(namespace, name) or {}).get("status", {}).get("conditions") or ()
        return "; ".join(condition.get("message", "") for condition in conditions
                         if condition["type"] == "PodScheduled" and condition["status"] == "False")

    def wait_pending(self, namespace, name, timeout=60):
        """Waits until the scheduler has said why there is no node for the pod; returns that."""
        return wait_for(lambda: self.why_pending(namespace, name), timeout, f"a word about pod {namespace}/{name}")

    def delete_pod(self, namespace, name):
        """At once, as no kubelet says that its containers ended."""
        self.ok("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    def claims_of(self, pod):
        """{name in the pod: the claim}, for those that the pod has by now."""
        namespace = pod["metadata"]["namespace"]
        entries = [*pod["spec"].get("resourceClaims", ()), *(pod["status"].get("resourceClaimStatuses") or ())]
        names = {entry["name"]: entry["resourceClaimName"] for entry in entries if entry.get("resourceClaimName")}
        return {entry: self.claim(namespace, name) for entry, name in names.items()}

    def claim(self, namespace, name):
        return self.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")

    def slices(self, **fields):
        """All ResourceSlices, or those with these fields: spec_driver=…, spec_nodeName=…"""
        return self.items(f"/apis/resource.k8s.io/v1/resourceslices?{selector(**fields)}")

    def clean(self):
        """Removes what tests make: pods, claims, slices, device classes, nodes and namespaces. All are gone
        when this returns but namespaces, which take their time to go. CRDs, their objects, and what
        is about rights and admission stay."""
        resources = "/apis/resource.k8s.io/v1"
        at_once = {"gracePeriodSeconds": 0}
        gone = {"/api/v1/pods", f"{resources}/resourceclaims"}
        namespaces = [item["metadata"]["name"] for item in self.items("/api/v1/namespaces")]
        used = {item["metadata"]["namespace"] for path in gone for item in self.items(path)}
        for namespace in used:
            self.ok("DELETE", f"/api/v1/namespaces/{namespace}/pods", at_once)
            for what in ("resourceclaimtemplates", "resourceclaims"):
                self.ok("DELETE", f"{resources}/namespaces/{namespace}/{what}")
        for path in (f"{resources}/resourceslices", f"{resources}/deviceclasses", "/api/v1/nodes"):
            self.ok("DELETE", path)
            gone.add(path)
        for namespace in namespaces:
            if namespace != "default" and not namespace.startswith("kube-"):
                self.api("DELETE", f"/api/v1/namespaces/{namespace}")
        for path in sorted(gone):
            wait_for(lambda: not self.items(path), 60, f"the end of all {path}")  # pylint: disable=W0640

    # --- accounts

    def make_service_account(self, namespace, name):
        self.ok("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})

    def service_account_token(self, namespace, name, pod=None, seconds=3600):
        """A token as a pod gets it. pod: the name of a pod in the same namespace, with this service
        account, that is on a node: the token is bound to it and says which node that is."""
        spec = {"expirationSeconds": seconds}
        if pod:
            uid = self.pod(namespace, pod)["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return self.ok("POST", path, {"spec": spec})["status"]["token"]

    def driver_token(self, namespace, name, node):
        """The token of a driver's pod on the node: service account and pod are made for it."""
        if not self.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"):
            self.make_service_account(namespace, name)
        pod = f"{name}-{node}"
        self.make_pod(namespace, pod, node=node, spec={"serviceAccountName": name})
        return self.service_account_token(namespace, name, pod)
