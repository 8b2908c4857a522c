#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A client of a container runtime's CRI (runtime.v1), as the kubelet is one.

No generated code: the messages' fields that are needed are the tables below (field numbers from
k8s.io/cri-api/pkg/apis/runtime/v1/api.proto).
"""
import argparse
import json
import pathlib
import sys

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import pbmini as pb  # noqa: E402

IMAGE = "localhost/netclaim/pause:1"
CGROUP = "/netclaim-lab"
NETWORK_OF_NODE = 2

POD_METADATA = {1: ("name", "str"), 2: ("uid", "str"), 3: ("namespace", "str"), 4: ("attempt", "u")}
LINUX = {1: ("cgroup_parent", "str"),
         2: ("security_context", ("msg", {1: ("namespace_options", ("msg", {1: ("network", "u")}))}))}
POD_CONFIG = {1: ("metadata", ("msg", POD_METADATA)), 2: ("hostname", "str"), 6: ("labels", ("map", "str")),
              7: ("annotations", ("map", "str")), 8: ("linux", ("msg", LINUX))}
RUN_POD = {1: ("config", ("msg", POD_CONFIG))}
POD_ID = {1: ("pod_sandbox_id", "str")}
POD = {1: ("id", "str"), 2: ("metadata", ("msg", POD_METADATA)), 3: ("state", "u")}
POD_LIST = {1: ("items", ("rep", ("msg", POD)))}
CDI_DEVICE = {1: ("name", "str")}
CONTAINER_CONFIG = {1: ("metadata", ("msg", {1: ("name", "str"), 2: ("attempt", "u")})),
                    2: ("image", ("msg", {1: ("image", "str")})), 3: ("command", ("rep", "str")),
                    9: ("labels", ("map", "str")), 10: ("annotations", ("map", "str")),
                    17: ("cdi_devices", ("rep", ("msg", CDI_DEVICE)))}
CREATE_CONTAINER = {1: ("pod_sandbox_id", "str"), 2: ("config", ("msg", CONTAINER_CONFIG)),
                    3: ("sandbox_config", ("msg", POD_CONFIG))}
CONTAINER_ID = {1: ("container_id", "str")}
LIST_CONTAINERS = {1: ("filter", ("msg", {3: ("pod_sandbox_id", "str")}))}
CONTAINER_LIST = {1: ("containers", ("rep", ("msg", {1: ("id", "str"), 2: ("pod_sandbox_id", "str")})))}
STOP_CONTAINER = {1: ("container_id", "str"), 2: ("timeout", "i")}
STATUS_REQUEST = {1: ("id", "str"), 2: ("verbose", "u")}
STATUS = {2: ("info", ("map", "str"))}
VERSION = {2: ("runtime_name", "str"), 3: ("runtime_version", "str")}

RpcError = grpc.RpcError


def pod_config(name, uid, namespace="default", attempt=0, annotations=None, host_network=False):
    """What the kubelet tells a runtime of a pod."""
    config = {
        "metadata": {"name": name, "uid": uid, "namespace": namespace, "attempt": attempt},
        "labels": {"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": namespace,
                   "io.kubernetes.pod.uid": uid},
        "annotations": annotations or {},
        "linux": {"cgroup_parent": CGROUP},
    }
    if host_network:
        config["linux"]["security_context"] = {"namespace_options": {"network": NETWORK_OF_NODE}}
    else:
        config["hostname"] = name
    return config


class Cri:
    """Each method is one call; errors are grpc.RpcError. timeout is in seconds."""

    def __init__(self, socket_path, timeout=60):
        self.channel = grpc.insecure_channel(
            f"unix://{socket_path}", options=(("grpc.default_authority", "localhost"),))
        self.timeout = timeout

    def close(self):
        self.channel.close()

    def call(self, method, request_schema, request, result_schema):
        call = self.channel.unary_unary(
            f"/runtime.v1.RuntimeService/{method}",
            request_serializer=lambda message: pb.encode(request_schema, message),
            response_deserializer=lambda wire: pb.decode(result_schema, wire))
        return call(request, timeout=self.timeout)

    def version(self):
        return self.call("Version", {}, {}, VERSION)

    def run_pod(self, config):
        """Returns the sandbox's id."""
        return self.call("RunPodSandbox", RUN_POD, {"config": config}, POD_ID)["pod_sandbox_id"]

    def pod_info(self, pod_id):
        """The runtime's own, verbose description of a sandbox."""
        request = {"id": pod_id, "verbose": 1}
        return json.loads(self.call("PodSandboxStatus", STATUS_REQUEST, request, STATUS)["info"]["info"])

    def pods(self):
        return self.call("ListPodSandbox", {}, {}, POD_LIST).get("items", [])

    def stop_pod(self, pod_id):
        self.call("StopPodSandbox", POD_ID, {"pod_sandbox_id": pod_id}, {})

    def remove_pod(self, pod_id):
        self.call("RemovePodSandbox", POD_ID, {"pod_sandbox_id": pod_id}, {})

    def start_container(self, pod_id, config, name, cdi_devices=()):
        """Creates and starts a container of the pod that was run with config; returns its id."""
        container = {"metadata": {"name": name}, "image": {"image": IMAGE}, "command": ["/pause"],
                     "cdi_devices": [{"name": device} for device in cdi_devices]}
        request = {"pod_sandbox_id": pod_id, "sandbox_config": config, "config": container}
        container_id = self.call("CreateContainer", CREATE_CONTAINER, request, CONTAINER_ID)["container_id"]
        self.call("StartContainer", CONTAINER_ID, {"container_id": container_id}, {})
        return container_id

    def containers(self, pod_id):
        """The ids of a sandbox's containers."""
        request = {"filter": {"pod_sandbox_id": pod_id}}
        found = self.call("ListContainers", LIST_CONTAINERS, request, CONTAINER_LIST)
        return [container["id"] for container in found.get("containers", [])]

    def container_info(self, container_id):
        request = {"id": container_id, "verbose": 1}
        return json.loads(self.call("ContainerStatus", STATUS_REQUEST, request, STATUS)["info"]["info"])

    def stop_container(self, container_id):
        self.call("StopContainer", STOP_CONTAINER, {"container_id": container_id, "timeout": 5}, {})

    def remove_container(self, container_id):
        self.call("RemoveContainer", CONTAINER_ID, {"container_id": container_id}, {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", default="/run/containerd/containerd.sock")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="name and version of the runtime")
    commands.add_parser("pods", help="one line of JSON a sandbox")
    run = commands.add_parser("run", help="run a pod, print its sandbox id")
    run.add_argument("name")
    run.add_argument("uid")
    run.add_argument("--host-network", action="store_true")
    start = commands.add_parser("start", help="start a container in a sandbox, print its id")
    start.add_argument("pod_id")
    start.add_argument("name")
    for command in ("info", "stop", "remove"):
        commands.add_parser(command, help=f"{command} a sandbox").add_argument("pod_id")
    a = parser.parse_args()

    cri = Cri(a.socket)
    try:
        if a.command == "version":
            print(json.dumps(cri.version()))
        elif a.command == "pods":
            for pod in cri.pods():
                print(json.dumps(pod))
        elif a.command == "run":
            print(cri.run_pod(pod_config(a.name, a.uid, host_network=a.host_network)))
        elif a.command == "start":
            pod = next(pod["metadata"] for pod in cri.pods() if pod["id"] == a.pod_id)
            print(cri.start_container(a.pod_id, pod_config(pod["name"], pod["uid"], pod["namespace"]), a.name))
        elif a.command == "info":
            print(json.dumps(cri.pod_info(a.pod_id), indent=2))
        elif a.command == "stop":
            cri.stop_pod(a.pod_id)
        elif a.command == "remove":
            cri.remove_pod(a.pod_id)
    except RpcError as e:
        sys.exit(f"cri.py: {e.code().name}: {e.details()}")


if __name__ == "__main__":
    main()
