# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of a DRA plugin, on grpcio: finds the registration socket, registers the driver,
prepares and unprepares claims over the one connection that it keeps, and checks the answers as the
kubelet does.

    kubelet = Kubelet(kubelet_dir, "networkdriver.cilium.io")
    kubelet.register()
    entries = kubelet.prepare([claim("default", "c1", uid)])
"""
import os
import stat
import urllib.parse

import grpc

import pbmini
import procs

INFO_REQUEST = {}
PLUGIN_INFO = {1: ("type", "str"), 2: ("name", "str"), 3: ("endpoint", "str"),
               4: ("supported_versions", ("rep", "str"))}
REGISTRATION_STATUS = {1: ("plugin_registered", "u"), 2: ("error", "str")}
REGISTRATION_STATUS_RESPONSE = {}

CLAIM = {1: ("namespace", "str"), 2: ("uid", "str"), 3: ("name", "str")}
CLAIMS_REQUEST = {1: ("claims", ("rep", ("msg", CLAIM)))}
DEVICE = {1: ("request_names", ("rep", "str")), 2: ("pool_name", "str"), 3: ("device_name", "str"),
          4: ("cdi_device_ids", ("rep", "str")), 5: ("share_id", "str")}
PREPARE_ENTRY = {1: ("devices", ("rep", ("msg", DEVICE))), 2: ("error", "str")}
PREPARE_RESPONSE = {1: ("claims", ("map", ("msg", PREPARE_ENTRY)))}
UNPREPARE_ENTRY = {1: ("error", "str")}
UNPREPARE_RESPONSE = {1: ("claims", ("map", ("msg", UNPREPARE_ENTRY)))}

REGISTRATION = "/pluginregistration.Registration/"
DIAL_SECONDS = 10
GET_INFO_SECONDS = 1
NOTIFY_SECONDS = 5
CLAIMS_SECONDS = 45


def dra_path(version, method):
    return f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{method}"


def claim(namespace, name, uid):
    return {"namespace": namespace, "name": name, "uid": uid}


class Client:
    """A gRPC connection to a Unix socket. authority is what the client calls the server."""

    def __init__(self, path, authority="localhost"):
        self.channel = grpc.insecure_channel(f"unix:{path}", options=[
            ("grpc.default_authority", authority),
            ("grpc.use_local_subchannel_pool", 1),  # no connection of another test's
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.max_send_message_length", -1)])

    def dial(self):
        """Waits until the server has greeted; returns self."""
        grpc.channel_ready_future(self.channel).result(DIAL_SECONDS * procs.STRETCH)
        return self

    def start(self, path, request_schema, response_schema, request, timeout, **more):
        """Starts a call; the future's result() is the decoded response."""
        method = self.channel.unary_unary(
            path,
            request_serializer=lambda message: pbmini.encode(request_schema, message),
            response_deserializer=lambda data: pbmini.decode(response_schema, data))
        return method.future(request, timeout=timeout, **more)

    def call(self, path, request_schema, response_schema, request, timeout, **more):
        return self.start(path, request_schema, response_schema, request, timeout, **more).result()

    def close(self):
        self.channel.close()


class WrongAnswer(Exception):
    """What the kubelet would not accept."""


def checked(claims, response):
    """The entries by UID, if the kubelet would take them."""
    entries = response.get("claims", {})
    wanted = {c["uid"] for c in claims}
    for uid in entries:
        if uid not in wanted:
            raise WrongAnswer(f"unknown claim UID {uid}")
    if len(entries) != len(wanted):
        raise WrongAnswer(f"{len(wanted) - len(entries)} claims were skipped")
    return entries


class Kubelet:
    """A kubelet that has one driver. Use as a context manager, or close it."""

    def __init__(self, root, driver):
        self.registry_socket = os.path.join(root, "plugins_registry", f"{driver}-reg.sock")
        self.client = None  # to the DRA socket, once registered

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.client:
            self.client.close()
            self.client = None

    # --- registration

    def wait_socket(self, timeout=5):
        """Waits for the registration socket, as the kubelet's watch would see it."""
        def look():
            try:
                return stat.S_ISSOCK(os.stat(self.registry_socket).st_mode)
            except FileNotFoundError:
                return False
        procs.wait_for(look, timeout, self.registry_socket)

    def registration(self):
        """A connection to the registration socket, made and greeted. The kubelet dials a bare path,
        of which grpc-go makes a percent-encoded authority."""
        return Client(self.registry_socket, urllib.parse.quote(self.registry_socket, safe="")).dial()

    def get_info(self, client):
        return client.call(REGISTRATION + "GetInfo", INFO_REQUEST, PLUGIN_INFO, {},
                           GET_INFO_SECONDS * procs.STRETCH)

    def notify(self, client, registered=True, error=""):
        return client.call(REGISTRATION + "NotifyRegistrationStatus", REGISTRATION_STATUS,
                           REGISTRATION_STATUS_RESPONSE,
                           {"plugin_registered": registered, "error": error},
                           NOTIFY_SECONDS * procs.STRETCH)

    def register(self, timeout=5):
        """From the socket's appearance to the connection to the endpoint; returns the PluginInfo."""
        self.wait_socket(timeout)
        client = self.registration()
        try:
            info = self.get_info(client)
            if info["type"] != "DRAPlugin" or "v1.DRAPlugin" not in info["supported_versions"]:
                raise WrongAnswer(f"no DRA plugin: {info}")
            self.notify(client)
        finally:
            client.close()
        self.close()
        self.client = Client(info["endpoint"])
        return info

    # --- claims

    def start_prepare(self, claims, version="v1", timeout=CLAIMS_SECONDS):
        """A future of the unchecked response."""
        return self.client.start(dra_path(version, "NodePrepareResources"), CLAIMS_REQUEST,
                                 PREPARE_RESPONSE, {"claims": claims}, timeout)

    def start_unprepare(self, claims, version="v1", timeout=CLAIMS_SECONDS):
        return self.client.start(dra_path(version, "NodeUnprepareResources"), CLAIMS_REQUEST,
                                 UNPREPARE_RESPONSE, {"claims": claims}, timeout)

    def prepare(self, claims, version="v1", timeout=CLAIMS_SECONDS):
        """uid -> {"devices": [...]} or {"error": text}"""
        return checked(claims, self.start_prepare(claims, version, timeout).result())

    def unprepare(self, claims, version="v1", timeout=CLAIMS_SECONDS):
        """uid -> {} or {"error": text}"""
        return checked(claims, self.start_unprepare(claims, version, timeout).result())
