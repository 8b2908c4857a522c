# SPDX-License-Identifier: Apache-2.0
"""Configurations, and what becomes of each at the API server, by k8s/crds, and at statd. The same cases
are put to the definitions' stand-in (crd_form.py) and to real servers (tests/cluster).
"""
from typing import NamedTuple

import yaml

from procs import ROOT

DRIVER = "networkdriver.cilium.io"
NODE = "worker-node-1"
NODE_CONFIGS = "ciliumnetworkdrivernodeconfigs"
CLUSTER_CONFIGS = "ciliumnetworkdriverclusterconfigs"


def documents(path):
    """The objects of a manifest, path relative to k8s/."""
    return [document for document in yaml.safe_load_all((ROOT / "k8s" / path).read_text()) if document]


def definition(plural):
    [document] = documents(f"crds/{plural}.yaml")
    return document


def node_config(spec, name=NODE):
    return {"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumNetworkDriverNodeConfig", "metadata": {"name": name},
            "spec": spec}


def cluster_config(spec, name="of-case", selector=None):
    outer = {"spec": spec} if selector is None else {"nodeSelector": selector, "spec": spec}
    return {"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumNetworkDriverClusterConfig",
            "metadata": {"name": name}, "spec": outer}


class Case(NamedTuple):
    """Each verdict is a part of the complaint, None: accepted. stored: statd's, of what the server
    stored. text: statd's, of the same configuration in a file; by default the same as of what was
    stored, and where the server refuses, the only one of statd's."""
    name: str
    spec: object
    server: str = None
    stored: str = None
    text: str = "as stored"

    @property
    def of_text(self):
        return self.stored if self.text == "as stored" else self.text


def _managers(**sections):
    return {"deviceManagerConfigs": sections}


def _sriov(*ifaces, **more):
    return _managers(sriov={"enabled": True, "ifaces": list(ifaces), **more})


def _rxqueue(*ifaces, **more):
    return _managers(rxQueue={"enabled": True, "ifaces": list(ifaces), **more})


def _pools(*pools):
    return {"pools": list(pools)}


def _filter(**lists):
    return _pools({"name": "a", "filter": lists})


# What is published for Cilium's driver must be taken as it stands: its kinds and fields, by the shapes
# that its documentation shows.
PUBLISHED = {
    "dummy": node_config({
        **_managers(dummy={"enabled": True, "count": 3}),
        **_pools({"name": "fast-net", "filter": {"deviceManagers": ["dummy"]}})}),
    "sriov": node_config({
        **_sriov({"ifName": "ens1f0", "vfCount": 4}),
        **_pools({"name": "sriov-pool", "filter": {"deviceManagers": ["sr-iov"], "pfNames": ["ens1f0"]}})}),
    "rxqueue": node_config({
        **_rxqueue({"ifName": "ens1f0", "count": 4}),
        **_pools({"name": "rx-queue-pool", "filter": {"deviceManagers": ["rxQueue"], "ifNames": ["ens1f0"]}})}),
    "registration": node_config({
        "driverName": DRIVER, "draRegistrationRetryInterval": 1, "draRegistrationTimeout": 5,
        "draRegistrationMaxAttempts": 10}),
    "cluster": cluster_config({
        **_sriov({"ifName": "ens1f0", "vfCount": 4}),
        **_pools({"name": "sriov-pool", "filter": {"deviceManagers": ["sr-iov"], "pfNames": ["ens1f0"]}})},
        name="sriov-workers", selector={"matchLabels": {"node-role": "sriov-worker"}}),
}


def _class(name, *conditions):
    conditions = [f'device.driver == "{DRIVER}"'] + [f'device.attributes["{DRIVER}"].{c}' for c in conditions]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": " && ".join(conditions)}}]}}


def _template(name, request, device_class, parameters=None, **exactly):
    devices = {"requests": [{"name": request, "exactly": {"deviceClassName": device_class, **exactly}}]}
    if parameters:
        devices["config"] = [{"requests": [request], "opaque": {"driver": DRIVER, "parameters": parameters}}]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"devices": devices}}}


def _pod(name, claim, template):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"resourceClaims": [{"name": claim, "resourceClaimTemplateName": template}],
                     "containers": [{"name": "app", "image": "app:latest", "resources": {"claims": [{"name": claim}]}}]}}


# What users of it write beside the configuration.
PUBLISHED_CLAIMS = (
    _class(f"sriov-pool.{DRIVER}", 'pool == "sriov-pool"'),
    _template("sriov-claim", "net", f"sriov-pool.{DRIVER}",
              {"vlan": 1001, "podIfName": "sriov0", "interfaceSysctlIPv4": {"arp_filter": "1"}}),
    _class("cilium-rx-queue", 'deviceManager == "rxQueue"', 'pool == "rx-queue-pool"'),
    _template("rx-queue-claim", "rx-queue", "cilium-rx-queue", allocationMode="ExactCount", count=1,
              capacity={"requests": {"rxQueues": "1"}}),
    _pod("dpdk-app", "net", "sriov-claim"),
    _pod("rx-queue-app", "rx-queue", "rx-queue-claim"),
)

_EVERYTHING = {
    "driverName": "net.example.com", "draRegistrationRetryInterval": 2, "draRegistrationTimeout": 7,
    "draRegistrationMaxAttempts": 3,
    "deviceManagerConfigs": {
        "dummy": {"enabled": True, "count": 3},
        "sriov": {"enabled": True, "sysBusPCIDevPath": "/tmp/sys",
                  "ifaces": [{"ifName": "ens1f0", "vfCount": 4}, {"ifName": "ens1f1"}]},
        "rxQueue": {"enabled": True, "ifaces": [{"ifName": "ens2f0", "count": 4}, {"ifName": "ens2f1"}]}},
    "pools": [
        {"name": "some", "filter": {
            "deviceManagers": ["dummy", "sr-iov", "rxQueue"], "deviceIDs": ["0x1018"], "drivers": ["mlx5_core"],
            "ifNames": ["a", "b"], "parentIfNames": ["c"], "pciAddrs": ["0000:03:00.1"], "pfNames": ["d"],
            "vendorIDs": ["0x15b3"]}},
        {"name": "all", "filter": {}},
        {"name": "none"}],
}

CASES = (
    # --- both accept, and understand the same
    Case("nothing", {}),
    Case("everything", _EVERYTHING),
    Case("empty sections", _managers(dummy={}, sriov={}, rxQueue={})),
    Case("sections that are not enabled", _managers(
        dummy={"enabled": False, "count": 2}, sriov={"ifaces": [{"ifName": "ens1f0"}]},
        rxQueue={"ifaces": [{"ifName": "ens1f0"}]})),
    Case("enabled, no more", _managers(dummy={"enabled": True}, sriov={"enabled": True})),
    Case("empty lists", {**_sriov(), **_pools()}),
    Case("empty path", _sriov(sysBusPCIDevPath="")),
    Case("nulls", {
        "driverName": None, "draRegistrationTimeout": None, "pools": None,
        **_managers(dummy={"enabled": True, "count": None}, rxQueue=None,
                    sriov={"enabled": True, "sysBusPCIDevPath": None, "ifaces": [{"ifName": "a", "vfCount": None}]})}),
    Case("null filter", _pools({"name": "a", "filter": None}, {"name": "b", "filter": {"ifNames": None}})),
    Case("one interface for two managers", {"deviceManagerConfigs": {
        **_sriov({"ifName": "a"})["deviceManagerConfigs"], **_rxqueue({"ifName": "a"})["deviceManagerConfigs"]}}),
    Case("twice in one pool", _filter(ifNames=["a", "a"])),
    Case("bounds", {
        "draRegistrationRetryInterval": 86400, "draRegistrationTimeout": 86400, "draRegistrationMaxAttempts": 1000000,
        "deviceManagerConfigs": {
            "dummy": {"enabled": True, "count": 4096},
            **_sriov({"ifName": "fifteen-letters", "vfCount": 65535})["deviceManagerConfigs"],
            **_rxqueue({"ifName": "a", "count": 4095})["deviceManagerConfigs"]},
        **_pools({"name": "n" * 64})}),
    Case("whatever case a manager's name has", _filter(deviceManagers=["RXQUEUE"])),

    # --- the server drops it, and says so to who asks; in a file it is a mistake
    Case("field of an older form", {"publishInterval": 3}, text="spec.publishInterval: is not a field"),
    Case("misspelt field of a filter", _filter(ifname=["a"]), text="spec.pools[0].filter.ifname: is not a field"),
    Case("misspelt manager", _managers(rxqueue={"enabled": True}),
         text="spec.deviceManagerConfigs.rxqueue: is not a field"),

    # --- both refuse
    Case("spec that is no map", [], "spec", text="spec: must be a map"),
    Case("pool without a name", _pools({"filter": {}}), "spec.pools[0].name", text="spec.pools[0].name: is required"),
    Case("null name", _pools({"name": None}), "spec.pools[0].name", text="spec.pools[0].name: is required"),
    Case("empty name", _pools({"name": ""}), "spec.pools[0].name", text="spec.pools[0].name: "),
    Case("slash in a name", _pools({"name": "a/b"}), "spec.pools[0].name", text="spec.pools[0].name: "),
    Case("null pool", _pools(None), "spec.pools[0]", text="spec.pools[0]: must be a map"),
    Case("text for a list", _filter(ifNames="a"), "spec.pools[0].filter.ifNames",
         text="spec.pools[0].filter.ifNames: must be a list"),
    Case("number for a text", _filter(vendorIDs=[5555]), "spec.pools[0].filter.vendorIDs[0]",
         text="spec.pools[0].filter.vendorIDs[0]: must be a text"),
    Case("text for a number", _managers(dummy={"count": "3"}), "spec.deviceManagerConfigs.dummy.count",
         text="spec.deviceManagerConfigs.dummy.count: must be a whole number"),
    Case("text for a boolean", _managers(dummy={"enabled": "true"}), "spec.deviceManagerConfigs.dummy.enabled",
         text="spec.deviceManagerConfigs.dummy.enabled: must be"),
    Case("duration for a number", {"draRegistrationTimeout": "5s"}, "spec.draRegistrationTimeout",
         text="spec.draRegistrationTimeout: must be a whole number"),
    Case("list for sections", {"deviceManagerConfigs": []}, "spec.deviceManagerConfigs",
         text="spec.deviceManagerConfigs: must be a map"),
    Case("dummies below none", _managers(dummy={"enabled": True, "count": -1}), "spec.deviceManagerConfigs.dummy.count",
         text="spec.deviceManagerConfigs.dummy.count: -1 is out of range"),
    Case("no queue", _rxqueue({"ifName": "a", "count": 0}), "spec.deviceManagerConfigs.rxQueue.ifaces[0].count",
         text="spec.deviceManagerConfigs.rxQueue.ifaces[0].count: 0 is out of range"),
    Case("no interface with queues", _rxqueue(), "spec.deviceManagerConfigs.rxQueue.ifaces",
         text="spec.deviceManagerConfigs.rxQueue: no RX queue interfaces"),
    Case("physical function without a name", _sriov({"vfCount": 1}),
         "spec.deviceManagerConfigs.sriov.ifaces[0].ifName",
         text="spec.deviceManagerConfigs.sriov.ifaces[0].ifName: is required"),
    Case("adapter without a name", _rxqueue({"count": 1}), "spec.deviceManagerConfigs.rxQueue.ifaces[0].ifName",
         text="spec.deviceManagerConfigs.rxQueue.ifaces[0].ifName: is required"),
    Case("physical function twice", _sriov({"ifName": "a"}, {"ifName": "a"}),
         "spec.deviceManagerConfigs.sriov.ifaces[1]",
         text="spec.deviceManagerConfigs.sriov.ifaces[1].ifName: duplicate"),
    Case("adapter twice", _rxqueue({"ifName": "a"}, {"ifName": "a"}), "spec.deviceManagerConfigs.rxQueue.ifaces[1]",
         text="spec.deviceManagerConfigs.rxQueue.ifaces[1].ifName: duplicate"),

    # --- the server alone refuses: the form wants an interface, statd only where it would matter
    Case("no interface, and not enabled", _managers(rxQueue={"ifaces": []}),
         "spec.deviceManagerConfigs.rxQueue.ifaces", text=None),

    # --- statd alone refuses: what the form has no bounds for, what cannot be, and what is not done here
    Case("no pause", {"draRegistrationRetryInterval": 0}, stored="spec.draRegistrationRetryInterval: 0 is out of range"),
    Case("no time", {"draRegistrationTimeout": 0}, stored="spec.draRegistrationTimeout: 0 is out of range"),
    Case("no attempt", {"draRegistrationMaxAttempts": 0}, stored="spec.draRegistrationMaxAttempts: 0 is out of range"),
    Case("no driver name", {"driverName": ""}, stored="spec.driverName: "),
    Case("no DNS name", {"driverName": "Not A Name"}, stored="spec.driverName: "),
    Case("too many dummies", _managers(dummy={"count": 4097}),
         stored="spec.deviceManagerConfigs.dummy.count: 4097 is out of range"),
    Case("functions below none", _sriov({"ifName": "a", "vfCount": -1}),
         stored="spec.deviceManagerConfigs.sriov.ifaces[0].vfCount: -1 is out of range"),
    Case("too many functions", _sriov({"ifName": "a", "vfCount": 65536}),
         stored="spec.deviceManagerConfigs.sriov.ifaces[0].vfCount: 65536 is out of range"),
    Case("too many queues", _rxqueue({"ifName": "a", "count": 4096}),
         stored="spec.deviceManagerConfigs.rxQueue.ifaces[0].count: 4096 is out of range"),
    Case("relative path", _sriov(sysBusPCIDevPath="sys"),
         stored='spec.deviceManagerConfigs.sriov.sysBusPCIDevPath: "sys" is not an absolute path'),
    Case("no list of interfaces", _managers(rxQueue={"enabled": True}),
         stored="spec.deviceManagerConfigs.rxQueue: no RX queue interfaces"),
    Case("reserved interface", _rxqueue({"ifName": "lo"}), stored="spec.deviceManagerConfigs.rxQueue.ifaces[0].ifName: "),
    Case("long name of an interface", _filter(ifNames=["sixteencharacter" * 8]),
         stored="spec.pools[0].filter.ifNames[0]: interface name too long"),
    Case("long name of a pool", _pools({"name": "n" * 65}), stored="spec.pools[0].name: pool name too long"),
    Case("unknown manager in a filter", _filter(deviceManagers=["macvlan"]),
         stored="spec.pools[0].filter.deviceManagers[0]: unknown device manager type"),
    Case("no PCI address", _filter(pciAddrs=["03:00.1"]), stored="spec.pools[0].filter.pciAddrs[0]: "),
    Case("empty text in a list", _filter(drivers=[""]), stored="spec.pools[0].filter.drivers[0]: must not be empty"),
    Case("pool twice", _pools({"name": "a"}, {"name": "a"}), stored="spec.pools[1].name: duplicated pool name: a"),
    Case("interface in two pools", _pools({"name": "a", "filter": {"ifNames": ["x"]}},
                                          {"name": "b", "filter": {"ifNames": ["x"]}}),
         stored="spec.pools[1].filter.ifNames[0]: ifname contained in multiple pools: x on pools a and b"),
    Case("PCI address in two pools", _pools({"name": "a", "filter": {"pciAddrs": ["0000:03:00.1"]}},
                                            {"name": "b", "filter": {"pciAddrs": ["0000:03:00.1"]}}),
         stored="spec.pools[1].filter.pciAddrs[0]: pci addr contained in multiple pools: 0000:03:00.1"),
    # managers of Cilium's that are not ours: kept by the server as they are, for the node to refuse by name
    Case("macvlan", _managers(macvlan={"enabled": True, "ifaces": [{"parentIfName": "a", "mode": "bridge"}]}),
         stored="spec.deviceManagerConfigs.macvlan: is not a field of this driver's device managers"),
    Case("eswitchSriov", _managers(eswitchSriov={"enabled": True, "bridges": [{"name": "br0", "params": {"k": "v"}}]}),
         stored="spec.deviceManagerConfigs.eswitchSriov: is not a field of this driver's device managers"),
)

# What is given, and what the server stores
DEFAULTED = (
    {**_managers(dummy={}, sriov={"ifaces": [{"ifName": "a"}]}, rxQueue={"ifaces": [{"ifName": "b"}]}),
     **_pools({"name": "a"}, {"name": "b", "filter": {}})},
    {"driverName": DRIVER, "draRegistrationRetryInterval": 1, "draRegistrationTimeout": 5,
     "draRegistrationMaxAttempts": 10,
     **_managers(dummy={"enabled": False, "count": 0}, sriov={"enabled": False, "ifaces": [{"ifName": "a", "vfCount": 0}]},
                 rxQueue={"enabled": False, "ifaces": [{"ifName": "b", "count": 1}]}),
     **_pools({"name": "a"}, {"name": "b", "filter": {}})},
)

# What is changed about a stored object: (name, before, after, a part of the complaint or None)
CHANGES = (
    ("vfCount", _sriov({"ifName": "a", "vfCount": 2}), _sriov({"ifName": "a", "vfCount": 3}), "VFCount is immutable"),
    ("vfCount left out", _sriov({"ifName": "a", "vfCount": 2}), _sriov({"ifName": "a"}), "VFCount is immutable"),
    ("vfCount of one in another order", _sriov({"ifName": "a", "vfCount": 2}, {"ifName": "b", "vfCount": 3}),
     _sriov({"ifName": "b", "vfCount": 2}, {"ifName": "a", "vfCount": 2}), "VFCount is immutable"),
    ("order", _sriov({"ifName": "a", "vfCount": 2}, {"ifName": "b", "vfCount": 3}),
     _sriov({"ifName": "b", "vfCount": 3}, {"ifName": "a", "vfCount": 2}), None),
    ("interface taken out", _sriov({"ifName": "a", "vfCount": 2}), _sriov(), None),
    ("another interface", _sriov({"ifName": "a", "vfCount": 2}), _sriov({"ifName": "b", "vfCount": 3}), None),
    ("queues", _rxqueue({"ifName": "a", "count": 2}), _rxqueue({"ifName": "a", "count": 3}), None),
    ("dummies", _managers(dummy={"count": 2}), _managers(dummy={"count": 3}), None),
    ("pools", _pools({"name": "a"}), _pools({"name": "b"}), None),
)
