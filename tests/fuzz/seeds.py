#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds that are not texts, beside this file. Those named regression-* are left alone.

What a target makes of its input is said at the top of its source.
"""
import pathlib
import struct

import msgpack

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
UID, POD_UID, SHARE = "5f1c1f6e-7d0c-4c5f-9c5b-3f1f0a5b8a11", "0c8b6e1a-5a39-4d5b-8d3f-0d8f3f6b2c44", "share-1"
DRIVER = "networkdriver.cilium.io"


def write(target, name, data):
    path = HERE / "seeds" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# --- MessagePack ----------------------------------------------------------------------------------

CONFIG = {"podIfName": "net1", "vlan": 7, "interfaceSysctlIPv4": {"arp_filter": "1"},
          "interfaceSysctlIPv6": {"disable_ipv6": "0"}}
DEVICE = {"name": "dummy0", "ifName": "dummy0", "kernelIfName": "dummy0", "state": {"Name": "dummy0"},
          "attributes": {"kind": {"string": "dummy"}, "numa": {"int": 1}}, "capacity": {"mac": {"value": "1"}},
          "allowMultipleAllocations": True}
ALLOCATION = {"device": DEVICE, "claimUID": UID, "shareID": SHARE, "consumedCapacity": {"mac": "1"}, "config": CONFIG}
ATTACH = {"allocation": ALLOCATION, "ifName": "net1", "sandboxID": "0d1bc9a6", "mayBeThere": True}
CLAIM = {"namespace": "default", "name": "c1", "uid": UID}
DEVICE_ROW = {"Name": "dummy0", "Manager": "dummy", "Dev": {"Name": "dummy0"}, "Device": DEVICE, "Pool": "net"}
ALLOC_ROW = {"DeviceName": "dummy0", "Manager": "dummy", "PreparedDevice": {"Name": "dummy0"}, "LogicalPool": "net",
             "PodUID": POD_UID, "ClaimUID": UID, "Config": CONFIG, "ShareID": None, "ConsumedCapacity": {},
             "ClaimNamespace": "default", "ClaimName": "c1", "Request": "net/fast", "DRAPool": "worker-1",
             "SandboxID": "0d1bc9a6", "PodIfName": "net1", "Problem": "detach: no", "Prepared": DEVICE}
TABLES = {"revision": 3, "initialized": True, "devices": [DEVICE_ROW], "allocations": [ALLOC_ROW]}
PEER = {"role": "netnsd", "state": "connected", "detail": "", "sinceMs": 1, "pid": 2, "uid": 0, "pending": 0}

# method: request, result
RECORDS = {
    "manager.hello": ({"type": "dummy", "version": "0.1"}, {"config": {"enabled": True, "count": 3}}),
    "manager.devices": ({"devices": [DEVICE]}, {}),
    "device.restore": ({"allocations": [ALLOCATION]},
                       {"verdicts": [{"device": DEVICE, "error": None}, {"device": None, "error": "gone"}]}),
    "device.observe": ({**ALLOCATION, "device": {**DEVICE, "observe": True}}, {"device": DEVICE}),
    "device.reclaim": (ALLOCATION, {"notFound": True}),
    "device.setup": (ALLOCATION, {"device": DEVICE}),
    "device.check": ({"names": ["net1", "net2"], "claimUIDs": [UID]}, {}),
    "device.attach": (ATTACH, {"ifName": "net1", "wasThere": False}),
    "device.audit": ({"claimUIDs": [UID]}, {"leftovers": [ALLOCATION]}),
    "netns.socket": ({"protocol": "route"}, {}),
    "netns.sysctl": ({"ifName": "net1", "settings": [{"family": "ipv4", "leaf": "arp_filter", "value": "1"}]}, {}),
    "front.hello": ({"role": "draplugind", "version": "0.1"},
                    {"driverName": DRIVER, "nodeName": "worker-1", "retryIntervalMs": 1000,
                     "registrationTimeoutMs": 5000, "maxAttempts": 10, "ready": True}),
    "front.state": ({"state": "registered", "detail": "1.31"}, {}),
    "claim.prepare": (CLAIM, {"podClaimName": "nic", "devices": [
        {"request": "net/fast", "pool": "worker-1", "device": "dummy0", "shareID": SHARE, "ifName": "net1",
         "attributes": {"kind": {"string": "dummy"}}}]}),
    "pod.attach": ({"podUID": POD_UID, "sandboxID": "0d1bc9a6", "podName": "app", "podNamespace": "default"},
                   {"devices": 1}),
    "pod.detach": ({"podUID": POD_UID, "sandboxID": "0d1bc9a6"}, {}),
    "pod.sync": ({"pods": [{"podUID": POD_UID, "sandboxID": "0d1bc9a6"}]}, {"sandboxIDs": ["0d1bc9a6"]}),
    "table.list": ({"table": "networkdriver-dra-devices"}, TABLES),
    "table.event": ({"table": "networkdriver-dra-allocations", "revision": 4, "op": "update", "device": None,
                     "allocation": ALLOC_ROW}, {}),
    "status": ({}, {"version": "0.1", "nodeName": "worker-1", "driverName": DRIVER, "config": "/c", "store": "/d",
                    "startedMs": 1, "ready": False, "missing": ["netnsd"], "devices": 1, "allocations": 1,
                    "revision": 3, "peers": [PEER]}),
    "pools": ({}, {"pools": [{"name": "net", "filter": {"ifNames": ["dummy0"]}, "devices": ["dummy0"],
                              "allocated": []}], "unmatched": ["dummy1"]}),
}


def messagepack():
    pack = msgpack.packb
    write("mp", "scalars", pack([None, False, True, 0, 127, 128, 65536, 1 << 40, -1, -33, -129, -(1 << 40), 1.5]))
    write("mp", "float32", pack(0.25, use_single_float=True))
    write("mp", "texts", pack(["", "a" * 31, "b" * 40, "c" * 300, "\u00e4"]))
    write("mp", "map", pack({"a": {"b": [1, {}, []]}, "c": "d"}))
    write("mp", "deepest", b"\x91" * 16 + b"\xc0")
    write("mp", "too-deep", b"\x91" * 17 + b"\xc0")
    write("mp", "key-twice", b"\x82\xa1a\x01\xa1a\x02")
    write("mp", "greedy-array", b"\xdd\x10\x00\x00\x00")
    write("mp", "greedy-text", b"\xdb\x00\xff\xff\xff")
    write("mp", "binary", pack(b"x", use_bin_type=True))
    for method, (request, result) in RECORDS.items():
        for which, record in (("request", request), ("result", result)):
            if record:
                write("records", f"{method}-{which}", pack([method, which, record]))


def rpc():
    def stream(n_fds, flags, *messages):
        return bytes([n_fds, flags]) + b"".join(map(msgpack.packb, messages))

    def requests(*methods):
        return [[0, i, method, [RECORDS[method][0]]] for i, method in enumerate(methods)]
    write("rpc", "requests", stream(0, 0, *requests("manager.hello", "manager.devices", "claim.prepare", "status")))
    write("rpc", "held-requests", stream(0, 1, *requests("claim.prepare", "pod.detach", "device.setup")))
    write("rpc", "two-descriptors", stream(2, 0, *requests("device.attach", "status")))
    write("rpc", "descriptor-each", stream(2, 0, *requests("netns.socket", "netns.sysctl")))
    write("rpc", "stray-descriptor", stream(1, 0, *requests("status")))
    write("rpc", "descriptor-missing", stream(1, 0, *requests("device.attach")))
    write("rpc", "too-many-descriptors", stream(5, 0, *requests("device.attach")))
    write("rpc", "result", stream(0, 0, [1, 1, None, RECORDS["claim.prepare"][1]]))
    write("rpc", "result-with-descriptor", stream(1, 2, [1, 1, None, {}]))
    write("rpc", "cancelled", stream(1, 6, [1, 1, None, {}]))
    write("rpc", "error", stream(0, 0, [1, 1, {"code": "busy", "message": "not now"}, None]))
    write("rpc", "never-asked", stream(0, 0, [1, 99, None, {}]))
    write("rpc", "notifications", stream(0, 0, [2, "front.state", [RECORDS["front.state"][0]]], [2, "future", []]))
    write("rpc", "wrong-parameters", stream(0, 0, [0, 1, "claim.prepare", [{"uid": "/"}]], [0, 2, "none", []],
                                            [0, 3, "status", [{}, {}]]))
    write("rpc", "no-rpc", stream(0, 0, [7, 1, 2, 3]))


# --- NRI ------------------------------------------------------------------------------------------

def recorded(path):
    """What the runtime of a recorded conversation sent."""
    lines = path.read_text().splitlines()
    return b"".join(bytes.fromhex(line.split()[2]) for line in lines if line.startswith("<"))


def varint(n):
    out = b""
    while n > 0x7f:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def ttrpc(stream, method, payload):
    """A request of the runtime's, in one frame."""
    envelope = field(1, "nri.pkg.api.v1alpha1.Plugin") + field(2, method) + field(3, payload) + field(4, 2 * 10**9)
    message = struct.pack(">IIBB", len(envelope), stream, 1, 0) + envelope
    return struct.pack(">II", 1, len(message)) + message


def nri():
    for number, path in enumerate(sorted(GOLDEN.glob("*.frames"))):
        write("nri", path.stem, bytes([number * 7, number]) + recorded(path))
    namespace = field(1, "network") + field(2, "/run/netns/x")
    pod = (field(1, "0d1bc9a6") + field(2, "app") + field(3, POD_UID) + field(4, "default") +
           field(8, field(5, namespace)) + field(9, 108))
    write("nri", "sync-in-parts", b"\0\0" + ttrpc(1, "Synchronize", field(1, pod) * 2 + field(3, 1)) +
          ttrpc(3, "Synchronize", field(1, pod)) + ttrpc(5, "Shutdown", b""))
    write("nri", "events", b"\x03\x02" + b"".join(
        ttrpc(2 * i + 1, name, field(1, pod))
        for i, name in enumerate(("RunPodSandbox", "CreateContainer", "StopPodSandbox", "RemovePodSandbox"))))
    files = "/var/lib/kubelet/plugins/fuzz.example/dra-device-metadata"
    mounts = b"".join(field(9, field(1, "/m") + field(3, source)) for source in (
        "tmpfs", f"{files}/default_c1/req/metadata.json", f"{files}/{POD_UID}/req/metadata.json",
        f"{files}/default_c1/other/metadata.json", f"{files}/../req/metadata.json", f"{files}/default_c1/metadata.json"))
    write("nri", "container-with-claims", b"\x05\x01" + b"".join(
        ttrpc(2 * i + 1, "CreateContainer", request)
        for i, request in enumerate((field(1, pod) + field(2, mounts), field(2, field(1, "c") + mounts) + field(1, pod),
                                     field(1, pod) + field(2, field(9, "\x0a"))))))
    write("nri", "unknown-method", b"\0\0" + ttrpc(1, "UpdateContainer", pod))
    write("nri", "stream-twice", b"\0\0" + ttrpc(1, "Shutdown", b"") * 2)
    write("nri", "long-frame", b"\0\0" + struct.pack(">II", 1, 1 << 25))
    write("nri", "long-message", b"\0\0" + struct.pack(">IIIIBB", 1, 10, 1 << 24, 1, 1, 0))


# --- gRPC -----------------------------------------------------------------------------------------

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
DRA = "/k8s.io.kubelet.pkg.apis.dra."
REGISTRATION = "/pluginregistration.Registration/"


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header_block(path, **more):
    """Literals without Huffman coding or index, which a mutation can reach."""
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
               "content-type": "application/grpc", "te": "trailers", **more}
    return b"".join(b"\0" + bytes([len(name)]) + name.encode() + varint_of_hpack(len(value)) + value.encode()
                    for name, value in headers.items())


def varint_of_hpack(n):
    return bytes([n]) if n < 127 else b"\x7f" + varint(n - 127)


def framed(message):
    return b"\0" + struct.pack(">I", len(message)) + message


def call(stream, path, message, **more):
    return (frame(HEADERS, END_HEADERS, stream, header_block(path, **more)) +
            frame(DATA, END_STREAM, stream, framed(message)))


def grpc():
    claim = field(1, "default") + field(2, UID) + field(3, "c1")
    claims = field(1, claim) + field(1, field(1, "default") + field(2, UID + "0") + field(3, "c2"))
    prepare, unprepare = DRA + "v1.DRAPlugin/NodePrepareResources", DRA + "v1.DRAPlugin/NodeUnprepareResources"
    timeout = {"grpc-timeout": "45S"}
    write("grpc", "prepare", b"\0\0" + call(1, prepare, claims, **timeout))
    write("grpc", "prepare-v1beta1", b"\0\0" + call(1, prepare.replace("v1.", "v1beta1."), claims))
    write("grpc", "unprepare", b"\x01\0" + call(1, unprepare, claims))
    write("grpc", "one-claim-twice", b"\0\x01" + call(1, prepare, field(1, claim) * 2) + call(3, unprepare, claims))
    write("grpc", "late-answers", b"\0\x01" + call(1, prepare, claims) + frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
    write("grpc", "bad-names", b"\0\0" + call(1, prepare, field(1, field(1, "..") + field(2, UID) + field(3, "/"))) +
          call(3, prepare, field(1, field(2, "../x"))))
    write("grpc", "get-info", b"\0\0" + call(1, REGISTRATION + "GetInfo", b""))
    write("grpc", "notify", b"\0\0" + call(1, REGISTRATION + "NotifyRegistrationStatus", field(1, 1)) +
          call(3, REGISTRATION + "NotifyRegistrationStatus", field(2, "no \u00e4 %\n")))
    write("grpc", "no-such-method", b"\0\0" + call(1, "/grpc.health.v1.Health/Check", b""))
    write("grpc", "bad-timeout", b"\0\0" + call(1, prepare, claims, **{"grpc-timeout": "soon"}))
    write("grpc", "in-pieces", b"\x09\0" + frame(HEADERS, 0, 1, header_block(prepare)[:40]) +
          frame(CONTINUATION, END_HEADERS, 1, header_block(prepare)[40:]) +
          frame(DATA, 0, 1, framed(claims)[:3]) + frame(DATA, 0, 1, framed(claims)[3:]) +
          frame(DATA, END_STREAM, 1))
    write("grpc", "compressed", b"\0\0" + frame(HEADERS, END_HEADERS, 1, header_block(prepare)) +
          frame(DATA, END_STREAM, 1, b"\1\0\0\0\0"))
    write("grpc", "too-long", b"\0\0" + frame(HEADERS, END_HEADERS, 1, header_block(prepare)) +
          frame(DATA, 0, 1, b"\0\0\x40\0\1"))
    write("grpc", "control", b"\0\0" + frame(PING, 0, 0, b"12345678") + frame(WINDOW_UPDATE, 0, 0, b"\0\0\xff\xff") +
          frame(SETTINGS, 0, 0, struct.pack(">HIHI", 4, 100, 5, 16384)) + call(1, REGISTRATION + "GetInfo", b"") +
          frame(GOAWAY, 0, 0, bytes(8)))


# --- rtnetlink: linux/netlink.h, linux/if_link.h; numbers are the machine's, little-endian here ------

NEWLINK, ERROR, DONE = 16, 2, 3
MULTI, DUMP_INTR, CAPPED, ACK_TLVS = 0x2, 0x10, 0x100, 0x200
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINKINFO, IFLA_IFALIAS = 1, 3, 4, 18, 20
IFLA_PROP_LIST, IFLA_ALT_IFNAME, IFLA_PARENT_DEV_NAME = 52 | 0x8000, 53, 56


def attribute(kind, payload):
    payload = payload.encode() + b"\0" if isinstance(payload, str) else payload
    return struct.pack("<HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def message(kind, flags, body):
    return struct.pack("<IHHII", 16 + len(body), kind, flags, 0, 0) + body


def link(index, flags, *attributes, multi=0):
    return message(NEWLINK, multi, struct.pack("<BxHiII", 0, 1, index, flags, 0) + b"".join(attributes))


def netlink():
    ack = message(ERROR, CAPPED, struct.pack("<i", 0) + bytes(16))
    eth = [attribute(IFLA_IFNAME, "eth7"), attribute(IFLA_MTU, struct.pack("<I", 1500)),
           attribute(IFLA_ADDRESS, bytes.fromhex("02000a0b0c0f")), attribute(IFLA_IFALIAS, "netclaim:" + UID),
           attribute(IFLA_LINKINFO, attribute(1, "dummy") + attribute(2, b"")),
           attribute(IFLA_PROP_LIST, attribute(IFLA_ALT_IFNAME, "alt7") + attribute(IFLA_ALT_IFNAME, "x" * 120)),
           attribute(IFLA_PARENT_DEV_NAME, "0000:01:10.0")]
    write("netlink", "link", link(7, 1, *eth) + ack)
    write("netlink", "bare-link", link(1, 0) + ack)
    write("netlink", "dump", link(1, 0x49, attribute(IFLA_IFNAME, "lo"), multi=MULTI) +
          link(7, 0, *eth, multi=MULTI) + message(DONE, MULTI, bytes(4)))
    write("netlink", "dump-interrupted", link(7, 0, *eth, multi=MULTI | DUMP_INTR) + message(DONE, MULTI, bytes(4)))
    write("netlink", "refused", message(ERROR, CAPPED, struct.pack("<i", -19) + bytes(16)))
    write("netlink", "refused-with-reason", message(
        ERROR, CAPPED | ACK_TLVS, struct.pack("<i", -22) + bytes(16) + attribute(1, "Invalid \u00e4 name\n")))
    write("netlink", "late-answer", struct.pack("<IHHII", 36, ERROR, CAPPED, 1, 0) + bytes(20) + ack)
    write("netlink", "long-address", link(7, 0, attribute(IFLA_ADDRESS, bytes(range(64)))) + ack)


def links():
    eth = [attribute(IFLA_MTU, struct.pack("<I", 1500)),
           attribute(IFLA_PROP_LIST, attribute(IFLA_ALT_IFNAME, "alt7") + attribute(IFLA_ALT_IFNAME, "x" * 127))]
    write("links", "link", link(7, 1, *eth))
    write("links", "bare-link", link(1, 0))
    write("links", "short-mtu", link(7, 1, attribute(IFLA_MTU, b"")))
    write("links", "long-name", link(7, 1, attribute(IFLA_PROP_LIST, attribute(IFLA_ALT_IFNAME, "x" * 200))))
    write("links", "no-link", message(17, 0, bytes(16)))
    write("links", "short", link(7, 1, *eth)[:20])
    write("links", "no-body", message(NEWLINK, 0, bytes(8)))


# --- sysfs ----------------------------------------------------------------------------------------

def pci():
    def pieces(addr="0000:01:10.0", **changed):
        content = {"class": "0x020000\n", "physfn": "../0000:01:00.0", "driver": "../../drivers/igbvf",
                   "vendor": "0x8086\n", "device": "0x10ca\n", "numa_node": "-1\n", "vf_net": "eth2", "pf_net": "",
                   "phys_port_name": "p0\n", "dev_port": "0\n", "speed": "1000\n", "virtfn0": "../0000:01:10.0",
                   "sriov_totalvfs": "7\n", "sriov_numvfs": "3\n", "vf_virtio": "", **changed}
        return b"".join(bytes([len(text)]) + text.encode("latin-1") for text in content.values()) + addr.encode()
    write("pci", "igb", pieces())
    write("pci", "virtio", pieces(vf_net="", vf_virtio="eth2", driver="../../drivers/virtio-pci"))
    write("pci", "in-a-pod", pieces(vf_net="", driver="vfio-pci"))
    write("pci", "representor", pieces(phys_port_name="c1pf0vf1\n", pf_net="aaa"))
    write("pci", "only-a-representor", pieces(phys_port_name="pf0sf12\n"))
    write("pci", "two-links", pieces(dev_port="1\n", pf_net="aaa"))
    write("pci", "long-name", pieces(vf_net="v" * 16, pf_net="p" * 16))
    write("pci", "no-driver", pieces(driver=""))
    write("pci", "no-index", pieces(virtfn0="../0000:01:10.2"))
    write("pci", "another-class", pieces(**{"class": "0x000200\n"}))
    write("pci", "its-own-parent", pieces(physfn=".."))
    write("pci", "binary", pieces(vendor="\x7f\0\xff\n1", device="x" * 255, numa_node="0x1"))
    write("pci", "speed-unknown", pieces(speed="4294967295\n", sriov_totalvfs="0x10", sriov_numvfs="-1"))
    write("pci", "vmd", pieces(addr="10000:e1:00.0"))


for make in (messagepack, rpc, nri, grpc, netlink, links, pci):
    make()
