# SPDX-License-Identifier: Apache-2.0
"""The device managers that walks go with: how each is started and configured, which devices it has, and
what their links look like.

    manager = Dummy()                 dummy links, in a network namespace made for the node
    manager = Dummy(STAND_IN)         ifb links instead, where the kernel makes no dummy ones
    manager = Sriov()                 functions of real adapters
"""
import json
import subprocess

import house as h
import procs
import sriovlib

STAND_IN = "tests/bench/dmgr-standin"


class Dummy:
    name = "dmgr-dummy"
    arguments = ()
    physical = False  # a device is a link as long as it is prepared, and no longer
    own_host = True  # the node's network namespace is made for it
    kinds = ("dummy", "ifb")

    def __init__(self, program="dmgr-dummy", count=3):
        self.program = program
        self.devices = tuple(f"dummy{n}" for n in range(count))

    def configuration(self):
        return h.config({"dummy": {"enabled": True, "count": len(self.devices)}},
                        [{"name": "fast-net", "filter": {"deviceManagers": ["dummy"]}}])

    @staticmethod
    def parameters(_number):
        """A claim's, for the device of this number, besides its name in the pod."""
        return {}

    def is_device(self, link):
        return link.get("linkinfo", {}).get("info_kind") in self.kinds

    def device_named(self, link, pod_names=()):
        """The device whose link this is, by its name on the host or in a pod; None: it cannot be said."""
        name = link["ifname"]
        if name in self.devices:
            return name
        return self.devices[pod_names.index(name)] if name in pod_names else None

    def clear(self):
        """Before a node is made: the namespace is a new one."""

    def remember(self):
        """The host's links before any claim: there are none."""

    @staticmethod
    def settled(link):
        """Without what may differ from one look to the next."""
        return link

    def unlike_free(self, _device, _link, _links):
        """How a link on the host differs from what it was before any claim; "": not at all."""
        return ", though nothing holds it"

    def unlike_prepared(self, _device, _link, _links):
        """The same for one that is prepared."""
        return ""

    def unlike_attached(self, _device, _links):
        """The same for what of it stays on the host."""
        return ""


class Sriov:
    """Virtual functions of the adapters that there are, each in a VLAN of its own while it is claimed, in this
    network namespace."""
    name = program = "dmgr-sriov"
    arguments = ("--sysfs-root", "/sys")
    physical = True
    own_host = False

    def __init__(self, counts=(2, 1)):
        self.counts = dict(zip(sriovlib.pfs(), counts))
        assert len(self.counts) == len(counts), "there are not enough adapters with SR-IOV"
        self.addresses = {}  # device -> its address on the bus
        self.original = {}  # device -> (link, VLAN of its port)
        self.clear()
        for pf, count in self.counts.items():  # their addresses stay the same
            sriovlib.set_count(pf, count)
            self.addresses.update((sriovlib.device_name(addr), addr) for addr in sriovlib.vfs_of(pf))
        self.devices = tuple(self.addresses)

    def configuration(self):
        ifaces = [{"ifName": sriovlib.link_of(pf), "vfCount": count} for pf, count in self.counts.items()]
        return h.config({"sriov": {"enabled": True, "sysBusPCIDevPath": "/sys", "ifaces": ifaces}},
                        [{"name": "sriov-pool", "filter": {"deviceManagers": ["sr-iov"]}}])

    @staticmethod
    def vlan(number):
        return 100 + number

    def parameters(self, number):
        return {"vlan": self.vlan(number)}

    def is_device(self, link):
        return link.get("parentdev") in self.addresses.values()

    def device_named(self, link, _pod_names=()):
        return sriovlib.device_name(link["parentdev"])

    def clear(self):
        for pf in self.counts:
            sriovlib.set_count(pf, 0)
            sriovlib.ip("link", "set", sriovlib.link_of(pf), "up")

    settled = staticmethod(sriovlib.settled)

    def remember(self):
        procs.wait_for(lambda: all(map(sriovlib.link_of, self.addresses.values())), 20, "links of all functions")
        links = json.loads(sriovlib.ip("-d", "-j", "link"))
        for link in links:
            if self.is_device(link):
                device = self.device_named(link)
                self.original[device] = self.settled(link), self.port_vlan(device, links)

    def port_vlan(self, device, links):
        addr = self.addresses[device]
        pf = next(pf for pf in self.counts if addr in sriovlib.vfs_of(pf))
        link = next(link for link in links if link.get("parentdev") == pf)
        return link["vfinfo_list"][sriovlib.vfs_of(pf).index(addr)].get("vlan_list", [{}])[0].get("vlan", 0)

    def _unlike(self, device, link, links, vlan, but=()):
        before, now = self.original[device][0], self.settled(link)
        found = [f"{key} {now.get(key)}, not {before.get(key)}" for key in sorted({*before, *now} - {*but})
                 if before.get(key) != now.get(key)]
        return "".join(f", with {text}" for text in found) + self._unlike_vlan(device, links, vlan)

    def _unlike_vlan(self, device, links, wanted):
        vlan = self.port_vlan(device, links)
        return "" if vlan == wanted else f", in VLAN {vlan}, not {wanted}"

    def unlike_free(self, device, link, links):
        return self._unlike(device, link, links, self.original[device][1])

    def unlike_prepared(self, device, link, links):
        return self._unlike(device, link, links, self.vlan(self.devices.index(device)), ["ifalias"])

    def unlike_attached(self, device, links):
        return self._unlike_vlan(device, links, self.vlan(self.devices.index(device)))


def dummy():
    """As this kernel can have it."""
    tried = subprocess.run(["unshare", "--net", "ip", "link", "add", "type", "dummy"], capture_output=True, check=False)
    return Dummy() if tried.returncode == 0 else Dummy(STAND_IN)


KINDS = {"dummy": dummy, "sriov": Sriov}  # what commands call them
