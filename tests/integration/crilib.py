# SPDX-License-Identifier: Apache-2.0
"""A real containerd for tests: the lab of tests/containerd, with pods as objects.

The lab's network namespace is the node of its pods: daemons under test are started inside it
(`procs.start(..., via=lab.via)`). Its /run is lab.run from outside.
"""
import os
import pathlib
import subprocess
import uuid

import pytest

import cri
import procs

SCRIPT = procs.ROOT / "tests/containerd/lab.sh"
VERSIONS = ("17", "21")
SKIP = 77


class Pod:
    """A sandbox of the runtime."""

    def __init__(self, lab, name, uid, **options):
        self.lab = lab
        self.name = name
        self.uid = uid
        self.config = cri.pod_config(name, uid, **options)
        self.id = lab.cri.run_pod(self.config)

    def netns(self):
        """The path of its network namespace, inside the lab."""
        namespaces = self.lab.cri.pod_info(self.id)["runtimeSpec"]["linux"]["namespaces"]
        return next(ns["path"] for ns in namespaces if ns["type"] == "network")

    def ip(self, *args):
        """Output of ip(8) in the pod."""
        return self.lab.check("nsenter", f"--net={self.netns()}", "ip", *args)

    def start_container(self, name="c1", cdi_devices=()):
        """Returns the container's id."""
        return self.lab.cri.start_container(self.id, self.config, name, cdi_devices)

    def stop(self):
        self.lab.cri.stop_pod(self.id)

    def remove(self):
        self.lab.remove_pod(self.id)


class Lab:
    def __init__(self, version, directory):
        self.version = version
        self.directory = pathlib.Path(directory)
        self.run = self.directory / version / "run"
        self.socket = self.run / "containerd/containerd.sock"
        self.nri_socket = "/run/nri/nri.sock"  # inside
        self.cri = None

    def script(self, command, *args):
        result = subprocess.run(
            [SCRIPT, command, self.version, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, env={**os.environ, "NETCLAIM_LAB": str(self.directory)})
        if result.returncode == SKIP:
            pytest.skip(result.stderr.strip().splitlines()[-1])
        assert result.returncode == 0, f"lab.sh {command} {self.version}: {result.stderr}"
        return result.stdout

    def up(self):
        self.script("up")
        init = (self.directory / self.version / "init.pid").read_text().strip()
        self.via = ["nsenter", "-t", init, "-m", "-n", "-p", "--"]
        self.connect()

    def connect(self):
        """Makes the client anew, and waits until the runtime serves."""
        self.close()
        self.cri = cri.Cri(self.socket, timeout=60 * procs.STRETCH)

        def serves():
            try:
                return self.cri.version()
            except cri.RpcError:
                return None
        return procs.wait_for(serves, 20, "an answer of containerd")

    def close(self):
        if self.cri:
            self.cri.close()
            self.cri = None

    def down(self):
        self.close()
        self.script("down")

    def stop_runtime(self):
        self.script("ctd-stop")

    def kill_runtime(self):
        self.script("ctd-kill")

    def start_runtime(self):
        self.script("ctd-start")
        self.connect()

    @property
    def log_path(self):
        return self.directory / self.version / "containerd.log"

    def log(self, since=0):
        """What containerd wrote, from so many bytes on."""
        with open(self.log_path, "rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def check(self, *command):
        """Runs a command inside, which must succeed; returns its output."""
        result = subprocess.run([*self.via, *command], stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, check=False)
        assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
        return result.stdout

    def pod(self, name, uid=None, **options):
        """Runs a pod; options are those of cri.pod_config."""
        return Pod(self, name, uid or str(uuid.uuid4()), **options)

    def remove_pod(self, pod_id):
        """As the kubelet does, which never removes a sandbox that has containers: containerd 2.1 takes the
        lock that keeps plugins from registering once for such a sandbox and again for each of its
        containers, and waits for ever if a plugin asks to register in between."""
        for container in self.cri.containers(pod_id):
            self.cri.remove_container(container)
        self.cri.remove_pod(pod_id)

    def remove_pods(self):
        for pod in self.cri.pods():
            self.cri.stop_pod(pod["id"])
            self.remove_pod(pod["id"])
