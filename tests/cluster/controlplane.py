#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes control plane for tests: etcd, kube-apiserver, kube-scheduler and kube-controller-manager
as their projects release them (see servers.py), with node objects but no kubelets.

The harness speaks to the API server as its administrator; what is tested has an account of its own and
the rights that k8s/rbac.yaml gives it. Every call but the control plane's own is in the audit log, so a
test can count what a program asked for.

All state is in memory (/dev/shm) and gone at the end, and the servers end with whoever started them.

  controlplane.py [VERSION]   starts one, says where its kubeconfig is, and keeps it until interrupted
"""
import base64
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from typing import NamedTuple

import yaml

HERE = pathlib.Path(__file__).resolve().parent
for directory in (HERE, HERE.parent / "integration"):
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
import servers  # noqa: E402
from authority import Authority  # noqa: E402
from kubeapi import ADMIN, APPLY_PATCH, JSON, MERGE_PATCH, ApiError, selector  # noqa: E402,F401 (for tests too)
from objects import Objects  # noqa: E402
from procs import Process, wait_for  # noqa: E402

BARRIER = "audit-barrier"  # may do nothing; what it asks for is in the audit log

START_SECONDS = 180  # a server, on a machine that has much else to do
RATE = 1000  # calls a second of the scheduler and of each controller: by default tests would wait for them

FOLLOWERS = ("kube-controller-manager", "kube-scheduler")

# what is needed for pods and claims to live and die without a kubelet; the others cost time
CONTROLLERS = ("resourceclaim-controller", "garbage-collector-controller", "namespace-controller",
               "serviceaccount-controller", "validatingadmissionpolicy-status-controller")

# What the harness and the control plane ask for is left out; what is tested may live in kube-system too
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": ["system:serviceaccount:kube-system:netclaim"]},
        {"level": "None", "users": ["system:kube-scheduler", "system:kube-controller-manager", "system:apiserver"]},
        {"level": "None", "userGroups": ["system:masters", "system:serviceaccounts:kube-system"]},
        {"level": "Metadata"},
    ],
}


class Call(NamedTuple):
    """A call as the audit log has it. resource is the path where there is no resource."""
    verb: str
    resource: str
    subresource: str
    name: str
    code: int


def free_port():
    """A port of 127.0.0.1 that is free, and stays so: it is none of those that the kernel gives to
    connections, so that a server which is killed finds it again."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    for _ in range(1000):
        port = random.randrange(max(1024, lowest - 12000), lowest)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise AssertionError("no port of 127.0.0.1 is free")


def new_directory():
    """In memory. What a process that was killed has left is removed; the name has its pid."""
    parent = pathlib.Path("/dev/shm")
    for old in parent.glob("netclaim-cluster-*"):
        if not pathlib.Path("/proc", old.name.split("-")[2]).exists():
            shutil.rmtree(old, ignore_errors=True)
    return pathlib.Path(tempfile.mkdtemp(prefix=f"netclaim-cluster-{os.getpid()}-", dir=parent))


class Cluster(Objects):
    """One control plane. As a context manager it is started, and stopped at the end.

    version       of Kubernetes; its servers must be built
    feature_gates of all its servers: {"DRAConsumableCapacity": True}
    flags         more flags for kube-apiserver
    progress      is called with a line of text now and then while it starts
    """

    def __init__(self, version=None, feature_gates=None, flags=(), progress=None):
        super().__init__()
        self.version = version or servers.built_versions()[0]
        self.minor = servers.number_of(self.version)[1]
        self.feature_gates = dict(feature_gates or {})
        self.flags = flags
        self.processes = {}  # name -> Process
        self.directory = self.authority = self.audit_log = None
        self._progress = progress or (lambda text: None)
        self._program = servers.binary(self.version)

    # --- starting and ending

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def server(self):
        return f"https://127.0.0.1:{self.port}"

    def start(self):
        started = time.monotonic()
        assert self._program.exists(), f"Kubernetes {self.version} is not built: make clustertest"
        try:
            self.directory = new_directory()
            self.authority = Authority(self.directory)
            self.ca = self.authority.certificate
            self.audit_log = self.directory / "audit.log"
            self.port = free_port()
            self._write_files()
            self._start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - started
        self._progress(f"Kubernetes {self.version} is up on {self.server} after {self.start_seconds:.0f} s")

    def stop(self):
        """All of it is thrown away: nothing is asked to end well."""
        for process in reversed(self.processes.values()):
            if process.running():
                process.kill()
        self.processes = {}
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None

    def _write_files(self):
        authority = self.authority
        self._certificates = {ADMIN: authority.client(ADMIN, ["system:masters"]), BARRIER: authority.client(BARRIER)}
        self.server_certificate = authority.server("kube-apiserver")
        self._account_key = authority.service_account_key()
        self._write("audit.yaml", AUDIT_POLICY)
        for name in FOLLOWERS:
            self._certificates[name] = authority.client(f"system:{name}")
            self.kubeconfig(self.directory / f"{name}.kubeconfig", certificate=self._certificates[name])
        # pods are tried again soon: a test that waits for one should not wait for nothing
        self._write("scheduler.yaml", {
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.directory / "kube-scheduler.kubeconfig"),
                                 "qps": RATE, "burst": RATE},
            "leaderElection": {"leaderElect": False}, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2,
        })

    def _write(self, name, value):
        (self.directory / name).write_text(json.dumps(value), encoding="utf-8")

    def _start(self, name, *flags):
        log = self.directory / f"{name}.log"
        process = Process(name, [str(self._program), name, *map(str, flags)], log,
                          via=("setpriv", "--pdeathsig", "KILL"))
        self.processes[name] = process
        return process

    def _await(self, name, ready, what):
        """Waits until a server is ready; fails with the end of its log if it ends before."""
        process, begun = self.processes[name], time.monotonic()
        told = [begun]

        def look():
            if not process.running():
                raise AssertionError(f"{name} ended with status {process.status}:\n{self.log_of(name)}")
            if time.monotonic() - told[0] > 10:
                told[0] = time.monotonic()
                self._progress(f"waiting for {what}, {told[0] - begun:.0f} s")
            return ready()
        try:
            return wait_for(look, START_SECONDS, what)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log_of(name)}") from None

    def log_of(self, name, lines=20):
        """The last lines that a server logged of what is not merely informative."""
        told = [line for line in self.processes[name].log.splitlines() if not re.match(r"I\d{4} ", line)]
        return "\n".join(told[-lines:])

    def _start_etcd(self):
        # what it tells others about itself must look like TCP, but there are no others
        self._start("etcd", "--data-dir", self.directory / "etcd", "--unsafe-no-fsync", "--log-level=error",
                    "--listen-client-urls", f"unix://{self.directory}/etcd.client",
                    "--listen-peer-urls", f"unix://{self.directory}/etcd.peer",
                    "--advertise-client-urls=http://localhost:2379")

        def listens():
            with socket.socket(socket.AF_UNIX) as s:
                return s.connect_ex(f"{self.directory}/etcd.client") == 0
        self._await("etcd", listens, "etcd")

    def _gates(self):
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in self.feature_gates.items())
        return [f"--feature-gates={gates}"] if gates else []

    def start_apiserver(self, wait=True):
        """On the same port and with the same data as before, if it ran before."""
        certificate, key = self.server_certificate
        private, public = self._account_key
        self._start(
            "kube-apiserver", "--etcd-servers", f"unix://{self.directory}/etcd.client",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self.port}",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/24",
            "--tls-cert-file", certificate, "--tls-private-key-file", key, "--client-ca-file", self.ca,
            "--authorization-mode=Node,RBAC", "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-signing-key-file", private, "--service-account-key-file", public,
            "--audit-policy-file", self.directory / "audit.yaml", "--audit-log-path", self.audit_log,
            "--audit-log-mode=blocking", "--audit-log-maxsize=100000", "--profiling=false",
            *self._gates(), *self.flags)
        if wait:
            self.wait_apiserver()

    def wait_apiserver(self):
        """Waits until it is ready; scheduler and controllers run then."""
        self._await("kube-apiserver", self.ready, f"kube-apiserver {self.version}")
        if not all(name in self.processes and self.processes[name].running() for name in FOLLOWERS):
            self._start_followers()

    def ready(self):
        try:
            return self.api("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def kill_apiserver(self):
        """As a crash would end it. Scheduler and controllers are ended too: when it came back they would
        not look for it for a minute."""
        self._kill("kube-apiserver", *FOLLOWERS)

    def _kill(self, *names):
        for name in names:
            if self.processes[name].running():
                self.processes[name].kill()
        self.forget_connections()

    def _start_followers(self):
        self._kill(*(name for name in FOLLOWERS if name in self.processes))
        private, _ = self._account_key
        config = self.directory / "kube-controller-manager.kubeconfig"
        self._start("kube-controller-manager", "--kubeconfig", config, "--leader-elect=false", "--secure-port=0",
                    "--use-service-account-credentials", "--service-account-private-key-file", private,
                    "--root-ca-file", self.ca, "--controllers", ",".join(CONTROLLERS),
                    f"--kube-api-qps={RATE}", f"--kube-api-burst={RATE}", *self._gates())
        self._start("kube-scheduler", "--secure-port=0", "--config", self.directory / "scheduler.yaml",
                    *self._gates())

        def has_account():
            return self.api("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200
        self._await("kube-controller-manager", has_account, "kube-controller-manager")

    def restart(self, feature_gates=None):
        """Ends all servers but etcd and starts them again, with other feature gates if any are given."""
        if feature_gates is not None:
            self.feature_gates = dict(feature_gates)
        self._kill("kube-apiserver", *FOLLOWERS)
        self.start_apiserver()

    # --- accounts

    def kubeconfig(self, path, token=None, token_file=None, certificate=None, server=None):
        """Writes one, for one way to say who one is. certificate: (certificate, key), see
        Authority.client. server: another than the API server itself, such as a fault proxy."""
        user = {}
        if token:
            user["token"] = token
        if token_file:
            user["tokenFile"] = str(token_file)
        if certificate:
            user.update({"client-certificate": str(certificate[0]), "client-key": str(certificate[1])})
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        pathlib.Path(path).write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": server or self.server, "certificate-authority-data": authority}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }), encoding="utf-8")
        return path

    # --- what was called

    def mark(self):
        """Now, for calls() and audit(): a place in the audit log behind all that was answered."""
        name = f"barrier-{next(self._numbers)}"
        start = self.audit_log.stat().st_size
        self.api("GET", f"/api/v1/namespaces/default/configmaps/{name}", user=BARRIER)

        def look():
            with open(self.audit_log, "rb") as f:
                f.seek(start)
                return name.encode() in f.read()
        wait_for(look, 30, "the audit log")
        return self.audit_log.stat().st_size

    def audit(self, user=None, since=0):
        """The audit events of calls that were answered, and of watches that began, in this order.
        user: (namespace, name) of a service account, or a name."""
        until = self.mark()
        if isinstance(user, tuple):
            user = "system:serviceaccount:" + ":".join(user)
        with open(self.audit_log, "rb") as f:
            f.seek(since)
            events = [json.loads(line) for line in f.read(until - since).splitlines()]
        return [event for event in events
                if event["stage"] == ("ResponseStarted" if event["verb"] == "watch" else "ResponseComplete")
                and event["user"].get("username") != BARRIER
                and (user is None or event["user"].get("username") == user)]

    def calls(self, user=None, since=0):
        """As audit(), in short."""
        def call(event):
            about = event.get("objectRef", {})
            resource = about.get("resource") or event["requestURI"].partition("?")[0]
            return Call(event["verb"], resource, about.get("subresource", ""), about.get("name", ""),
                        event.get("responseStatus", {}).get("code"))
        return [call(event) for event in self.audit(user, since)]


def main():
    version = sys.argv[1] if len(sys.argv) > 1 else servers.versions()[0]
    servers.build(version)
    with Cluster(version, progress=lambda text: print(text, flush=True)) as cluster:
        path = cluster.kubeconfig(cluster.directory / "admin.kubeconfig", certificate=cluster.authority.client(
            "operator", ["system:masters"]))
        print(f"kubeconfig: {path}\nlogs: {cluster.directory}\nInterrupt to end it.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
