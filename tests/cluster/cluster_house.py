# SPDX-License-Identifier: Apache-2.0
"""The house in a real cluster: statd with the account, the rights and the admission policy of k8s/, on a
node that has a Node object and no kubelet of its own.

    house = ClusterHouse(procs, rundir, cluster)
    house.create_config(managers, pools)
    house.start_statd()
    manager = MockManager(house, "dummy", [dedicated("dummy0")])
    house.wait_published(1)
    claim = house.pod_with_claim("one-dummy")      # as the real scheduler allocated it
"""
import collections
import itertools
import json
import uuid

import house as h
import procs as procs_module
from controlplane import MERGE_PATCH

ROOT = procs_module.ROOT
ACCOUNT = ("kube-system", "netclaim")
RESOURCE = "/apis/resource.k8s.io/v1"
CONFIGS = "/apis/cilium.io/v2alpha1/ciliumnetworkdrivernodeconfigs"

POOLS = [{"name": "fast-net", "filter": {"deviceManagers": ["dummy"]}},
         {"name": "rx-queue-pool", "filter": {"deviceManagers": ["rxQueue"]}}]
DUMMY = {"dummy": {"enabled": True, "count": 3}}
BOTH = {**DUMMY, "rxQueue": {"enabled": True, "ifaces": [{"ifName": "eth0", "count": 2}]}}

numbers = itertools.count(1)


def install(cluster):
    """What k8s/ has, as an operator applies it; once for each cluster."""
    if getattr(cluster, "netclaim_installed", False):
        return
    cluster.apply(*sorted((ROOT / "k8s/crds").glob("*.yaml")), ROOT / "k8s/rbac.yaml", ROOT / "k8s/admission.yaml")
    cluster.netclaim_installed = True


class ClusterHouse(h.House):
    def __init__(self, procs, directory, cluster, server=None):
        super().__init__(procs, directory)
        install(cluster)
        self.cluster = cluster
        self.node = f"node-{next(numbers)}-{uuid.uuid4().hex[:6]}"
        self.node_object = cluster.make_node(self.node)
        self.namespace = cluster.make_namespace()
        self.token = cluster.driver_token(*ACCOUNT, self.node)
        self.token_file = directory / "token"
        self.token_file.write_text(self.token)
        self.kubeconfig = directory / "kubeconfig"
        cluster.kubeconfig(self.kubeconfig, token_file=self.token_file, server=server)
        for path in (self.token_file, self.kubeconfig):
            path.chmod(0o644)
        self.classes = {}
        self.started_at = cluster.mark()

    # --- programs

    def start_statd(self, *more, ready=True):
        """ready: wait until it serves its managers; otherwise it may be waiting for something."""
        statd = self.procs.start("statd", "--kubeconfig", self.kubeconfig, "--node-name", self.node,
                                 "--runtime-dir", self.runtime_dir, "--user", h.STATD_USER,
                                 "--log-level", "debug", *more)
        statd.wait_log("restored what was prepared" if ready else ": ready$", 30)
        return statd

    def wait_missing(self, text, timeout=30):
        """Waits until `status` says that this is missing; returns the sentence."""
        def look():
            return next((m for m in self.status()["missing"] if text in m), None)
        return procs_module.wait_for(look, timeout, f"{text!r} among what is missing")

    # --- the cluster's objects

    def config(self, managers=None, pools=None, **spec):
        return {"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumNetworkDriverNodeConfig",
                "metadata": {"name": self.node},
                "spec": {"deviceManagerConfigs": managers or DUMMY, "pools": POOLS if pools is None else pools, **spec}}

    def create_config(self, managers=None, pools=None, **spec):
        return self.cluster.create(self.config(managers, pools, **spec))

    def patch_config(self, spec):
        return self.cluster.ok("PATCH", f"{CONFIGS}/{self.node}", {"spec": spec}, content_type=MERGE_PATCH)

    def slices(self):
        return self.cluster.slices(spec_driver=h.DRIVER, spec_nodeName=self.node)

    def published(self):
        """The devices in all of the node's slices, by name."""
        return {device["name"]: device for s in self.slices() for device in s["spec"].get("devices") or ()}

    def wait_published(self, *names, timeout=60):
        def look():
            return sorted(self.published()) == sorted(names) and self.slices()
        return procs_module.wait_for(look, timeout, f"slices with {', '.join(names)}")

    def device_class(self, pool):
        """A DeviceClass as the driver's documentation has it; returns its name. It matches this node's
        devices only, so that tests do not meet."""
        if pool not in self.classes:
            name = f"{pool}.{self.node}"
            self.cluster.create({
                "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression":
                    f'device.driver == "{h.DRIVER}" && '
                    f'device.attributes["{h.DRIVER}"].pool == "{pool}"'}}]}})
            self.classes[pool] = name
        return self.classes[pool]

    def template(self, name, pool, parameters=None, capacity=None, spaced=False):
        """spaced: written as some client libraries do, with white space between JSON's words."""
        request = {"name": "net", "exactly": {"deviceClassName": self.device_class(pool)}}
        if capacity:
            request["exactly"]["capacity"] = {"requests": capacity}
        devices = {"requests": [request]}
        if parameters:
            devices["config"] = [{"requests": ["net"], "opaque": {"driver": h.DRIVER, "parameters": parameters}}]
        manifest = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                    "metadata": {"name": name, "namespace": self.namespace}, "spec": {"spec": {"devices": devices}}}
        self.cluster.ok("POST", f"{RESOURCE}/namespaces/{self.namespace}/resourceclaimtemplates",
                        json.dumps(manifest) if spaced else manifest)

    def make_pod(self, name, template):
        """On this node, if the scheduler finds a device for it."""
        return self.cluster.make_pod(self.namespace, name, {"net": {"template": template}}, spec={
            "nodeSelector": {"kubernetes.io/hostname": self.node}})

    def pod_with_claim(self, name, template):
        """A pod that the scheduler has bound, and its claim, allocated."""
        self.make_pod(name, template)
        pod = self.cluster.wait_bound(self.namespace, name)
        return self.cluster.claims_of(pod)["net"]

    @staticmethod
    def ref(claim):
        meta = claim["metadata"]
        return {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}

    def claim_now(self, claim):
        return self.cluster.claim(claim["metadata"]["namespace"], claim["metadata"]["name"])

    def entries(self, claim):
        """Ours in the claim's status.devices, when all is written."""
        self.wait_status_written()
        devices = self.claim_now(claim)["status"].get("devices") or []
        return [e for e in devices if e["driver"] == h.DRIVER]

    def mark(self):
        """For calls(): those that come from now on. What is still to be written was asked for before."""
        self.wait_status_written()
        return self.cluster.mark()

    def calls(self, since):
        """What statd asked of the server, without watches that were begun anew."""
        self.wait_status_written()
        return [c for c in self.cluster.calls(ACCOUNT, since) if c.verb != "watch"]

    def counted(self):
        """What statd says that it asked of the server for claims."""
        self.wait_status_written()
        return collections.Counter({c["request"]: c["count"] for c in self.status()["calls"] if "claims" in c["request"]})

    def events(self, reason):
        found = self.cluster.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [e for e in found if e["reason"] == reason]

    def wait_event(self, reason, timeout=30):
        return procs_module.wait_for(lambda: self.events(reason), timeout, f"an event {reason}")[0]
