# SPDX-License-Identifier: Apache-2.0
"""crash_runtime.FakePods, but real: pods of a containerd, run and ended the way the kubelet does it."""
import contextlib
import json
import os
import re
import tempfile

import cri
import crilib
from crash_runtime import Refused

PHASES = ("attach", "detach")  # those in which the runtime has a part

# what containerd makes itself when a pod runs
BRIDGE, VETH = "labbr0", "veth"

# what it writes when a plugin's answer is late; it closes the connection, and goes on as if there were no plugin
LATE = re.compile("closing plugin .* deadline exceeded")


class CriSandbox:
    def __init__(self, lab, pod):
        self.lab, self.pod = lab, pod
        self.id = pod.id
        self.netns = pod.netns()

    def check(self, *command):
        return self.lab.check("nsenter", f"--net={self.netns}", *command)

    def close(self):
        with contextlib.suppress(cri.RpcError):
            self.lab.remove_pods()


class CriPods:
    def __init__(self, lab, node):
        self.lab, self.node = lab, node
        self.nri_socket = lab.nri_socket
        self.via = dict.fromkeys(("netnsd", "dmgr-dummy", "nrihookd"), lab.via)
        self.check = lab.check
        self.hook = None  # process that was there when the sandbox started
        self.log_start = 0  # where containerd's log ended then

    def close(self):
        """A containerd that cannot do this, or on whose node something stays, is left for a new one."""
        try:
            self.lab.remove_pods()
            links = [link["ifname"] for link in json.loads(self.check("ip", "-j", "link")) if self.is_the_hosts(link)]
            if links == ["lo"]:
                return
        except cri.RpcError:
            pass
        self.lab.down()
        self.lab.up()

    def next_habit(self):
        pass

    @staticmethod
    def is_the_hosts(link):
        """Not of the pods' network."""
        return link["ifname"] != BRIDGE and not link["ifname"].startswith(VETH)

    def hook_now(self):
        with self.node.changing:  # one that is being killed is none
            return self.node.daemons["nrihookd"]

    def run(self, uid):
        self.hook = self.hook_now()
        self.log_start = self.lab.log_path.stat().st_size
        try:
            return CriSandbox(self.lab, self.lab.pod("pod", uid))
        except cri.RpcError as e:
            with contextlib.suppress(cri.RpcError):
                self.lab.remove_pods()
            raise Refused(str(e)) from e

    def create(self, sandbox):
        """Whether a plugin was asked for its leave, and gave it in time."""
        try:
            sandbox.pod.start_container(f"c{os.urandom(4).hex()}")
        except cri.RpcError as e:
            raise Refused(str(e)) from e
        return (self.hook is self.hook_now() and not self.node.was_stopped("nrihookd")
                and not LATE.search(self.lab.log(self.log_start)))

    def stop(self, sandbox):
        try:
            sandbox.pod.stop()
        except cri.RpcError as e:
            raise Refused(str(e)) from e

    def remove(self, sandbox):
        try:
            sandbox.pod.remove()
        except cri.RpcError as e:
            raise Refused(str(e)) from e


@contextlib.contextmanager
def runtime(version):
    """Makes a containerd; gives what makes the pods of a house with it."""
    with tempfile.TemporaryDirectory(prefix="netclaim-lab-") as directory:
        lab = crilib.Lab(version, directory)
        lab.up()
        try:
            yield lambda node: CriPods(lab, node)
        finally:
            lab.down()
