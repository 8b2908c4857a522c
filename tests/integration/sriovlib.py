# SPDX-License-Identifier: Apache-2.0
"""Real adapters with SR-IOV: what sysfs and ip(8) say of them, and traffic between their virtual
functions."""
import json
import os
import pathlib
import subprocess

import procs

PCI = pathlib.Path("/sys/bus/pci/devices")
ETHERNET = 0x0200


def ip(*args, netns=None):
    argv = ["ip"] + (["-n", netns] if netns else []) + [str(a) for a in args]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(argv)}: {result.stderr}"
    return result.stdout


def pfs():
    """Their PCI addresses."""
    if not PCI.exists():
        return []
    return sorted(d.name for d in PCI.iterdir() if (d / "sriov_totalvfs").exists()
                  and int((d / "class").read_text(), 16) >> 8 == ETHERNET)


def link_of(addr):
    """The name of a function's link, None if it is not on the host."""
    try:
        names = os.listdir(PCI / addr / "net")
    except FileNotFoundError:
        return None
    return names[0] if names else None


def vfs_of(pf):
    """Addresses of its virtual functions, by index."""
    found = {}
    for entry in (PCI / pf).glob("virtfn*"):
        found[int(entry.name.removeprefix("virtfn"))] = os.path.basename(os.readlink(entry))
    return [found[index] for index in sorted(found)]


def set_count(pf, count):
    path = PCI / pf / "sriov_numvfs"
    if int(path.read_text()) != count:
        if count:
            path.write_text("0")
        path.write_text(str(count))


def device_name(addr):
    return addr.replace(":", "-").replace(".", "-")


def vlan_of(pf, index):
    link, = json.loads(ip("-d", "-j", "link", "show", link_of(pf)))
    return link["vfinfo_list"][index].get("vlan_list", [{}])[0].get("vlan", 0)


def announce(addresses):
    """A function's driver reports the link's address to its physical function when it is reset. That message can be
    lost while the physical function is reset itself; the address is reported again when the link is opened. Only
    after that are the physical functions compared."""
    def missing():
        links = json.loads(ip("-d", "-j", "link"))
        return [addr for pf in pfs() for link in links if link.get("parentdev") == pf
                for addr, vf in zip(vfs_of(pf), link.get("vfinfo_list", []))
                if addr in addresses and link_of(addr) and not int(vf["address"].replace(":", ""), 16)]
    for addr in missing():
        ip("link", "set", link_of(addr), "up")
        ip("link", "set", link_of(addr), "down")
    procs.wait_for(lambda: not missing(), 20, "the physical functions' knowing their functions' addresses")


def settled(link):
    """Without what the wire decides, and without permaddr: igbvf calls the address permanent that it has
    when it is reset."""
    link = {key: value for key, value in link.items()
            if key not in ("operstate", "stats", "stats64", "qdisc", "permaddr")}
    link["flags"] = sorted(set(link["flags"]) - {"LOWER_UP", "NO-CARRIER"})
    link["altnames"] = sorted(link.get("altnames", []))
    return link


def snapshot():
    """All that `ip -d link` and `ip addr` say of every device, but for what the wire decides."""
    links = {link["ifname"]: settled(link) for link in json.loads(ip("-d", "-j", "link"))
             if not link["ifname"].startswith(("veth", "labbr"))}
    addresses = {}
    for link in json.loads(ip("-d", "-j", "addr")):
        if link["ifname"] in links:
            addresses[link["ifname"]] = [
                {key: value for key, value in a.items() if key not in ("tentative", "protocol")}
                for a in link["addr_info"] if a.get("scope") != "link"]
    return links, addresses


def bind(addr, driver):
    """Gives a function to another driver, or back to its own: driver is None then."""
    device = PCI / addr
    if (device / "driver").exists():
        (device / "driver/unbind").write_text(addr)
    (device / "driver_override").write_text(driver or "\n")
    pathlib.Path("/sys/bus/pci/drivers_probe").write_text(addr)
    bound = procs.wait_for(lambda: (device / "driver").exists() and os.path.basename(os.readlink(device / "driver")),
                           20, f"a driver of {addr}")
    assert driver in (None, bound), bound
    return bound


def reaches(via, address, tries=1):
    """Whether a ping is answered; via: the command that enters the namespace."""
    return subprocess.run([*via, "/bin/busybox", "ping", "-c", str(tries), "-W", "1", address],
                          capture_output=True, check=False).returncode == 0
