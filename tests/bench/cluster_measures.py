# SPDX-License-Identifier: Apache-2.0
"""statd with an API server: what it holds, how long a restart takes, what an idle connection costs. The
server is a real one, beside it on the same processors, so that most of a restart is the server's."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))

import controlplane  # noqa: E402
import servers  # noqa: E402
from cluster_house import ACCOUNT, RESOURCE, ClusterHouse  # noqa: E402

import house as h  # noqa: E402
import mprpc  # noqa: E402
import procs as procs_module  # noqa: E402
from node import MAX_DEVICES, Sample, cpu_of  # noqa: E402

CLAIMS_A_POD = 10
QUIET_SECONDS = 3
AT_ONCE = 32  # as many as statd reads at once
ATTRIBUTES = {"driver": "mlx5_core", "vendor": "0x15b3", "deviceID": "0x1018", "pfName": "ens1f0"}


def device(number):
    made = h.dedicated(f"vf{number}")
    made["attributes"] |= {name: {"string": value} for name, value in ATTRIBUTES.items()}
    made["attributes"]["vfIndex"] = {"int": number}
    return made


def make_claims(house, count, device_name="vf{}".format, begin=0, a_pod=CLAIMS_A_POD):
    """Allocated and reserved as the scheduler would have it, in a fraction of its time. So many of them, for the
    devices from number begin on."""
    cluster, made = house.cluster, []
    claims = f"{RESOURCE}/namespaces/{house.namespace}/resourceclaims"
    for first in range(begin, begin + count, a_pod):
        names = [f"c{number}" for number in range(first, min(first + a_pod, begin + count))]
        pod = cluster.make_pod(house.namespace, f"p{first}", {name: name for name in names}, node=house.node)
        for number, name in enumerate(names, first):
            claim = cluster.ok("POST", claims, {
                "metadata": {"name": name},
                "spec": {"devices": {"requests": [{"name": "net", "exactly": {"deviceClassName": "any"}}]}}})
            claim["status"] = {
                "allocation": {"devices": {"results": [h.result(device_name(number)) | {"pool": house.node}]},
                               "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                                   {"key": "metadata.name", "operator": "In", "values": [house.node]}]}]}},
                "reservedFor": [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}]}
            made.append(cluster.ok("PUT", f"{claims}/{name}/status", claim))
    return made


def prepare(house, claims):
    """Of the kubelet's door only the call is here. Nanoseconds of each."""
    front, taken = mprpc.connect(house.runtime_dir / "front.sock"), []
    front.call("front.hello", {"role": "draplugind", "version": "0"})
    for claim in claims:
        begin = time.monotonic_ns()
        front.call("claim.prepare", house.ref(claim))
        taken.append(time.monotonic_ns() - begin)
    front.close()
    return taken


def start(house, devices):
    """Nanoseconds from the exec until what was prepared is restored, and statd with its manager."""
    begin = time.monotonic_ns()
    statd = house.start_statd()
    restored = time.monotonic_ns() - begin
    manager = h.MockManager(house, "sr-iov", devices)
    house.wait_ready()
    return statd, manager, restored


def bare_reads(house, claims):
    """The same claims read by curl."""
    urls = "".join(f'url = "{house.cluster.server}{RESOURCE}/namespaces/{house.namespace}/resourceclaims/'
                   f'{claim["metadata"]["name"]}"\noutput = /dev/null\n' for claim in claims)
    begin = time.monotonic_ns()
    subprocess.run(["curl", "--no-progress-meter", "--fail", "--http2", "--parallel", "--parallel-max", str(AT_ONCE), "--cacert", house.cluster.ca,
                    "-H", f"Authorization: Bearer {house.token}", "-K", "-"], input=urls, text=True, check=True)
    return time.monotonic_ns() - begin


def wait_published(house):
    procs_module.wait_for(lambda: ", published" in house.status()["slices"], 120, "publication")


def idle(house, pid, seconds):
    mark, before, cpu = house.cluster.mark(), Sample(pid), cpu_of(pid)
    time.sleep(seconds)  # this is what is measured
    after = Sample(pid)
    return [len(house.cluster.calls(ACCOUNT, mark)) / seconds, (after.switches - before.switches) / seconds,
            (cpu_of(pid) - cpu) / seconds / 1000]


def measure(report, chosen, cluster, root):
    processes = procs_module.Processes(root)
    house = ClusterHouse(processes, root, cluster)
    house.create_config({"sriov": {"enabled": True}}, [{"name": "all", "filter": {"deviceManagers": ["sr-iov"]}}])
    devices = [device(number) for number in range(MAX_DEVICES)]
    begin = time.monotonic_ns()
    statd, manager, _ = start(house, devices)
    wait_published(house)
    published = time.monotonic_ns() - begin
    rows = [[f"{MAX_DEVICES} devices, published", *sizes(statd.pid)]]
    claims = make_claims(house, chosen.many)
    each = prepare(house, claims)
    wait_published(house)
    rows.append([f"and {chosen.many} allocations", *sizes(statd.pid)])
    restored, bare = [], []
    for _ in range(chosen.restores):
        statd.kill()
        manager.close()
        bare.append(bare_reads(house, claims))
        statd, manager, taken = start(house, devices)
        restored.append(taken)
        assert house.status()["allocations"] == len(claims)
    wait_published(house)
    rows.append(["started with them", *sizes(statd.pid)])
    report.table("cluster_memory", f"statd with Kubernetes {cluster.version}, KiB", ["", "PSS", "private", "peak RSS"], rows)
    report.latencies("cluster_times", "statd and an API server on the same processors", [
        (f"bare: {chosen.many} claims read by curl", bare, None),
        (f"exec until {chosen.many} allocations are restored", restored, f"bare: {chosen.many} claims read by curl"),
        (f"exec until {MAX_DEVICES} devices are published the first time", [published], None),
        ("claim.prepare, a read and a write", each, None)])
    seconds = max(chosen.idle, 1)
    report.table("cluster_idle", f"statd idle for {seconds} s, with two watches", ["", "calls/s", "wake-ups/s", "CPU us/s"],
                 [["statd", *idle(house, statd.pid, seconds)]])
    manager.close()
    processes.finish()


def sizes(pid):
    time.sleep(QUIET_SECONDS)  # what work took is given back a while after it
    sample = Sample(pid)
    return [sample.pss, sample.private, sample.peak]


class Running:
    """A context: a control plane, and a directory that goes at the end; None where it is not built."""

    def __init__(self, directory=None):
        self.directory, self.root, self.plane = directory, None, None

    def __enter__(self):
        if not servers.built_versions():
            print("\nNo cluster: its servers are not built; 'make clustertest' does that", flush=True)
            return None
        # a network namespace of the bench's own
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="netclaim-bench-", dir=self.directory))
        self.root.chmod(0o755)  # statd is another user
        self.plane = controlplane.Cluster(servers.built_versions()[0])
        self.plane.start()
        return self

    def __exit__(self, *_):
        if self.plane:
            self.plane.stop()
        if self.root:
            shutil.rmtree(self.root)

    def house(self):
        """What a node has in the cluster, in a directory of its own."""
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        directory.chmod(0o755)
        return ClusterHouse(procs_module.Processes(directory), directory, self.plane)


def source_of(house):
    """statd's options."""
    return ("--kubeconfig", house.kubeconfig, "--node-name", house.node)


def cluster(report, chosen):
    with Running() as running:
        if running:
            measure(report, chosen, running.plane, running.root)
