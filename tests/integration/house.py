# SPDX-License-Identifier: Apache-2.0
"""The house under test: statd and whatever of its peers a test wants, in directories of their own,
with claims as files. MockManager stands in for a device manager where a test must decide what the
manager answers; everything else is the real program.

    house = House(procs, rundir)
    house.start_statd()
    manager = MockManager(house, "dummy", [dedicated("dummy0")])
    house.start_draplugind()
    with house.kubelet() as kubelet:
        kubelet.register()
"""
import json
import os
import uuid

import mprpc
import procs as procs_module
from kubelet import Kubelet

DRIVER = "networkdriver.cilium.io"
NODE = "worker-node-1"
STATD_USER = "64700:64700"  # of nobody: a number needs no entry in any file

DEVICES = "networkdriver-dra-devices"
ALLOCATIONS = "networkdriver-dra-allocations"


def config(managers, pools):
    return {"apiVersion": "cilium.io/v2alpha1", "kind": "CiliumNetworkDriverNodeConfig",
            "metadata": {"name": NODE},
            "spec": {"draRegistrationRetryInterval": 1,
                     "deviceManagerConfigs": managers, "pools": pools}}


DUMMY_CONFIG = config({"dummy": {"enabled": True, "count": 3}},
                      [{"name": "fast-net", "filter": {"deviceManagers": ["dummy"]}}])


def result(device, request="net", driver=DRIVER, share=None, capacity=None):
    """One entry of a claim's allocation results."""
    entry = {"request": request, "driver": driver, "pool": NODE, "device": device}
    if share:
        entry["shareID"] = share
    if capacity:
        entry["consumedCapacity"] = capacity
    return entry


def opaque(parameters, requests=None, driver=DRIVER, source="FromClaim"):
    """One entry of a claim's allocation config."""
    entry = {"source": source, "opaque": {"driver": driver, "parameters": parameters}}
    if requests is not None:
        entry["requests"] = requests
    return entry


def read_record(path):
    """The version that counts of a record, the last."""
    return json.loads(path.read_text().splitlines()[-1])


class Claim:
    """A ResourceClaim, as the scheduler leaves it, in the house's directory of claims."""

    def __init__(self, house, name, results, config=(), pod_uid="pod-1", namespace="default",
                 annotations=None, reserved=None, uid=None, suffix=".json"):
        self.house = house
        self.namespace, self.name = namespace, name
        self.uid = uid or str(uuid.uuid4())
        reserved = [pod_uid] if reserved is None else reserved
        self.object = {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": self.uid, "generation": 1,
                         "annotations": annotations or {}},
            "spec": {"devices": {"requests": []}},
            "status": {"allocation": {"devices": {"results": list(results), "config": list(config)}},
                       "reservedFor": [{"resource": "pods", "name": f"name-of-{u}", "uid": u}
                                       for u in reserved]}}
        self.path = house.claims_dir / f"{namespace}_{name}{suffix}"
        self.status_path = house.claims_dir / f"{namespace}_{name}.status.json"
        self.write()

    def write(self):
        self.path.write_text(json.dumps(self.object))

    @property
    def ref(self):
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    @property
    def status(self):
        """What the driver wrote: the entries of status.devices; None: nothing was written. A statd that runs
        has written what it is to write."""
        self.house.wait_status_written()
        if not self.status_path.exists():
            return None
        written = json.loads(self.status_path.read_text())
        assert written["metadata"]["uid"] == self.uid
        return written["status"]["devices"]


class House:
    def __init__(self, procs, directory, configuration=None):
        self.procs = procs
        self.directory = directory
        self.runtime_dir = directory / "run"
        self.kubelet_dir = directory / "kubelet"
        self.cdi_dir = directory / "cdi"
        self.claims_dir = directory / "claims"
        self.config_path = directory / "netclaim.yaml"
        for made in (self.kubelet_dir, self.kubelet_dir / "plugins_registry", self.claims_dir):
            made.mkdir()
        if os.geteuid() == 0:
            os.chmod(directory, 0o755)
            uid, gid = map(int, STATD_USER.split(":"))
            os.chown(self.claims_dir, uid, gid)
        self.configure(configuration or DUMMY_CONFIG)
        self.plugin_dir = self.kubelet_dir / "plugins" / DRIVER
        self._query = None

    def configure(self, configuration):
        self.config_path.write_text(json.dumps(configuration))  # JSON is YAML

    # --- programs

    def start_statd(self, *more):
        statd = self.procs.start("statd", "--config", self.config_path, "--claims-dir", self.claims_dir,
                                 "--runtime-dir", self.runtime_dir, "--user", STATD_USER,
                                 "--log-level", "debug", *more)
        statd.wait_log(": ready$")
        return statd

    def _start(self, program, *more, via=()):
        return self.procs.start(program, "--runtime-dir", self.runtime_dir, "--log-level", "debug",
                                *more, via=via)

    def start_draplugind(self, *more):
        return self._start("draplugind", "--kubelet-dir", self.kubelet_dir, "--cdi-dir", self.cdi_dir,
                           *more)

    def start_nrihookd(self, *more, via=()):
        return self._start("nrihookd", *more, via=via)

    def start_netnsd(self, *more, via=()):
        return self._start("netnsd", *more, via=via)

    def start_dummy(self, *more, via=()):
        return self._start("dmgr-dummy", *more, via=via)

    def start_sriov(self, *more, via=()):
        return self._start("dmgr-sriov", *more, via=via)

    def kubelet(self):
        return Kubelet(str(self.kubelet_dir), DRIVER)

    # --- what it knows

    def query(self, method, params=None):
        peer = mprpc.connect(self.runtime_dir / "query.sock")
        try:
            return peer.call(method, params)
        finally:
            peer.close()

    def rows(self, table=ALLOCATIONS):
        key = "devices" if table == DEVICES else "allocations"
        return self.query("table.list", {"table": table})[key]

    def status(self):
        return self.query("status")

    def wait_ready(self):
        procs_module.wait_for(lambda: self.status()["ready"], 5, "statd's being ready")

    def statd_is_away(self):
        """It was ended, and not only stopped for a while or started anew."""
        return not any(p.name == "statd" and p.running() for p in self.procs.all)

    def wait_status_written(self):
        """Claims' status is written in the background: waits for it, if there is a statd."""
        def written():
            try:
                return not self.status().get("statusDue")
            except (OSError, EOFError, TimeoutError, mprpc.Error):
                return self.statd_is_away()
        procs_module.wait_for(written, 10, "the claims' status being written")

    def wait_peer(self, role, state, timeout=5):
        """Waits until `status` says of this role that it is in this state."""
        def look():
            return any(p["role"] == role and p["state"] == state for p in self.status()["peers"])
        procs_module.wait_for(look, timeout, f"{role} being {state}")

    @property
    def state_dir(self):
        return self.runtime_dir / "state"

    def records(self):
        """The node's own record: UID -> what it says when no status is due any more."""
        self.wait_status_written()
        return {path.stem: read_record(path) for path in (self.state_dir / "claims").glob("*.json")}

    def marked_pods(self):
        """Pods that have a prepared claim, by the state directory."""
        return {path.name for path in (self.state_dir / "pods").iterdir()}

    def files_left(self):
        """Files of the driver's making, of claims that it has prepared, when no status is due any more."""
        self.wait_status_written()
        found = [p for p in self.cdi_dir.glob("*")] if self.cdi_dir.exists() else []
        found += [p for p in (self.plugin_dir / "dra-device-metadata").rglob("*")]
        return found + list(self.claims_dir.glob("*.status.json"))


# --- a stand-in for a device manager

def dedicated(name, **more):
    return {"name": name, "ifName": name, "kernelIfName": name, "state": {"Name": name},
            "attributes": {"ifName": {"string": name}, "kernelIfName": {"string": name}}, **more}


def shareable(name, units=2):
    return {"name": name, "ifName": name, "kernelIfName": name, "state": {"physicalIfName": name},
            "attributes": {"ifName": {"string": name}},
            "capacity": {"rxQueues": {"value": str(units),
                                      "requestPolicy": {"default": "1", "validValues": ["1"]}}},
            "allowMultipleAllocations": True}


class MockManager:
    """Plays one type of manager. calls keeps what it was asked, as (method, params). What it should
    fail with is in failures[(method, device name)], or what is done before they are answered; what prepared devices get on top of the
    advertised one is in prepared, what attaching answers on top of the name in attached, and reclaiming in
    reclaimed; rebuild(name) makes the device that one is restored as."""

    def __init__(self, house, manager_type, devices, prepared=None, leftovers=(), rebuild=dedicated):
        self.calls = []
        self.rebuild = rebuild
        self.leftovers = list(leftovers)
        self.failures = {}
        self.prepared = prepared or {}
        self.attached = {}
        self.reclaimed = {}
        self.devices = devices
        methods = {"device.restore": self._restore, "device.audit": self._audit, "device.setup": self._setup,
                   "device.observe": self._observe, "device.recover": self._setup, "device.free": self._empty,
                   "device.check": self._check, "device.attach": self._attach,
                   "device.detach": self._detach, "device.reclaim": self._reclaim}
        self.peer = mprpc.connect(house.runtime_dir / "manager.sock",
                                  {name: self._recorded(name, handler) for name, handler in methods.items()})
        hello = self.peer.call("manager.hello", {"type": manager_type, "version": "0"})
        self.config = hello["config"]
        procs_module.wait_for(lambda: self.asked("device.restore"), 5, "device.restore")
        self.publish(devices)

    def publish(self, devices, notes=()):
        self.devices = devices
        self.peer.call("manager.devices", {"devices": devices, "notes": list(notes)})

    def close(self):
        self.peer.close()

    def asked(self, method):
        return [params for name, params in self.calls if name == method]

    def _recorded(self, name, handler):
        def handle(_, params, fds):
            self.calls.append((name, params))
            device = params.get("device") or params.get("allocation", {}).get("device") or {}
            failure = self.failures.get((name, device.get("name")))
            for fd in fds:
                os.close(fd)
            if callable(failure):
                failure()
            elif failure:
                raise failure
            return handler(params)
        return handle

    def _restore(self, params):
        for allocation in params.get("allocations", []):
            assert allocation.get("shareID") != "" and allocation["claimUID"], "as a real manager checks"
        return {"verdicts": [{"device": {**self.rebuild(a["device"]["name"]), "state": a["device"]["state"]}}
                             for a in params.get("allocations", [])]}

    def _audit(self, params):
        known = params.get("claimUIDs", [])
        return {"leftovers": [left for left in self.leftovers if left["claimUID"] not in known]}

    def _observe(self, params):
        device = params["device"]
        return {"device": {**device, "state": {**device["state"], "Observed": True}}}

    def _setup(self, params):
        return {"device": {**params["device"], **self.prepared}}

    @staticmethod
    def _empty(_):
        return {}

    _check = _detach = _empty

    def _reclaim(self, _):
        return self.reclaimed

    def _attach(self, params):
        return {"ifName": params["ifName"], **self.attached}
