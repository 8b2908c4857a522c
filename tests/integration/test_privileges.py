# SPDX-License-Identifier: Apache-2.0
"""What each running process holds, read back from /proc and compared with the table on its room's
sign: user, capabilities, no-new-privileges, system call filter, descriptors."""
import os
import re
import resource

import pytest

import house as h
import procs as procs_module
from procs import wait_for
from sysfs_tree import SysfsTree

pytestmark = pytest.mark.needs_root

DAEMONS = ("statd", "netnsd", "dmgr-dummy", "dmgr-sriov", "draplugind", "nrihookd")
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # linux/capability.h
SECCOMP_MODE_FILTER = 2
# where untrusted bytes are parsed: gRPC, ttrpc, JSON and YAML
PARSERS = ("statd", "draplugind", "nrihookd")

# What may be open in any daemon: standard input and the two ends of its log, the loop (libuv: epoll, two
# eventfds or pipes for signals and wake-ups), sockets of the house.
COMMON = {"/dev/null", "log", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "pipe", "unix"}
# and in each besides
MORE = {
    "statd": {"claims", "state", "state/claims", "state/pods"},
    "netnsd": {"/proc/sys/net", "net"},
    "dmgr-dummy": {"netlink", "net"},
    "dmgr-sriov": {"netlink", "net", "sysfs"},
    "draplugind": set(),
    "nrihookd": {"net", "state"},
}


def sign(name):
    """The rows of the privilege table on the room's sign."""
    text = (procs_module.ROOT / name / "README.md").read_text()
    table = text.split("## Privileges")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| ([a-z ]+) \| (.+) \|$", table, re.MULTILINE))


def status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)


def limits(pid, name):
    """Soft and hard."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as lines:
        return next(line for line in lines if line.startswith(name))[len(name):].split()[:2]


def netlink_inodes(pid):
    with open(f"/proc/{pid}/net/netlink", encoding="ascii") as lines:
        return {line.split()[-1] for line in lines}


def descriptors(process, house):
    """Kinds of what the process has open."""
    netlink = netlink_inodes(process.pid)
    kinds = set()
    for number in os.listdir(f"/proc/{process.pid}/fd"):
        target = os.readlink(f"/proc/{process.pid}/fd/{number}")
        inode = re.search(r"\[(\d+)\]$", target)
        if target.startswith("socket:"):
            kinds.add("netlink" if inode.group(1) in netlink else "unix")
        elif target.startswith(("pipe:", "net:")):
            kinds.add(target.split(":")[0])
        elif target == str(process.log_path):
            kinds.add("log")
        elif target == str(house.claims_dir):
            kinds.add("claims")
        elif target.startswith(f"{house.runtime_dir}/state"):
            kinds.add(target.removeprefix(f"{house.runtime_dir}/"))
        elif target == str(house.directory / "sys"):
            kinds.add("sysfs")
        else:
            kinds.add(target)
    return kinds


@pytest.fixture
def running(procs, rundir):
    SysfsTree(rundir / "sys")
    house = h.House(procs, rundir, h.config({"dummy": {"enabled": True, "count": 3}, "sriov": {"enabled": True}},
                                            [{"name": "all", "filter": {}}]))
    processes = {"statd": house.start_statd(), "netnsd": house.start_netnsd(), "dmgr-dummy": house.start_dummy(),
                 "dmgr-sriov": house.start_sriov("--sysfs-root", rundir / "sys"),
                 "draplugind": house.start_draplugind(), "nrihookd": house.start_nrihookd(
                     "--nri-socket", rundir / "nri.sock")}
    house.wait_peer("dmgr-dummy", "published")
    house.wait_peer("dmgr-sriov", "published")
    house.wait_peer("netnsd", "connected")
    with house.kubelet() as kubelet:
        kubelet.register()
        house.wait_peer("nrihookd", "connecting")
        return house, processes


@pytest.mark.parametrize("name", DAEMONS)
def test_holds_what_its_sign_says(running, name):
    house, processes = running
    process, table = processes[name], sign(name)
    now = status(process.pid)

    uid = 0 if table["runs as"].startswith("root") else int(h.STATD_USER.split(":")[0])
    assert {int(u) for u in now["Uid"].split()} == {uid} and {int(g) for g in now["Gid"].split()} == {uid}
    assert now["Groups"].split() == [], "no supplementary groups"

    named = set(re.findall(r"CAP_[A-Z_]+", table["capabilities"]))
    assert named or table["capabilities"].startswith("none")
    mask = sum(1 << CAPABILITIES[c] for c in named)
    for kind in ("CapPrm", "CapEff"):
        assert int(now[kind], 16) == mask, kind
    for kind in ("CapInh", "CapAmb"):
        assert int(now[kind], 16) == 0, kind
    assert int(now["CapBnd"], 16) == mask, "nor can an exec give more"

    assert "no new privileges" in table["capabilities"] and now["NoNewPrivs"] == "1"
    if "asan" in procs_module.BUILD.name:
        assert "no system call filter" in process.log
    else:
        assert int(now["Seccomp"]) == SECCOMP_MODE_FILTER and "system calls" in table
    assert int(now["Threads"]) == 1

    limit = int(re.search(r"at most (\d+)", table["descriptors"]).group(1))
    allowed = min(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    assert limits(process.pid, "Max open files") == [str(allowed)] * 2
    assert limits(process.pid, "Max core file size") == ["0", "0"]
    found = descriptors(process, house)
    assert found <= COMMON | MORE[name] and MORE[name] <= found, found


def test_child_that_makes_functions(procs, rundir):
    """It holds nothing but being root, and is there for as long as something is to be made."""
    tree = SysfsTree(rundir / "sys")
    house = h.House(procs, rundir, h.config({"sriov": {"enabled": True, "ifaces": [{"ifName": "pf0", "vfCount": 1}]}},
                                            [{"name": "all", "filter": {}}]))
    house.start_statd()
    manager = house.start_sriov("--sysfs-root", rundir / "sys")
    manager.wait_log("interface pf0: no PCI device has a link of this name")
    child, = procs_module.children_of(manager.pid)
    now = status(child)
    assert {int(u) for u in now["Uid"].split()} == {0}
    assert [int(now[kind], 16) for kind in ("CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd")] == [0] * 5
    assert now["NoNewPrivs"] == "1"
    if "asan" not in procs_module.BUILD.name:
        assert int(now["Seccomp"]) == SECCOMP_MODE_FILTER
    tree.pf("0000:01:00.0", "pf0", 4)
    wait_for(lambda: tree.num_vfs("0000:01:00.0") == 1, 10, "the next try")
    wait_for(lambda: not procs_module.children_of(manager.pid), 5, "the child's end")


def test_one_process_alone_enters_namespaces(running):
    _, processes = running
    sys_admin = 1 << CAPABILITIES["CAP_SYS_ADMIN"]
    assert [n for n, p in processes.items() if int(status(p.pid)["CapEff"], 16) & sys_admin] == ["netnsd"]


@pytest.mark.parametrize("name", PARSERS)
def test_who_parses_untrusted_bytes_holds_nothing(running, name):
    _, processes = running
    assert int(status(processes[name].pid)["CapEff"], 16) == 0


@pytest.mark.parametrize("name", ("netnsd", "dmgr-dummy", "dmgr-sriov"))
def test_refuses_to_start_without_what_it_needs(procs, rundir, name):
    """As an ordinary user: a daemon that needs a capability says which one and how to give it."""
    named = re.findall(r"CAP_[A-Z_]+", sign(name)["capabilities"])
    os.chmod(rundir, 0o777)
    process = procs.start(name, "--runtime-dir", rundir, via=["setpriv", "--reuid=64999", "--clear-groups"])
    assert process.wait_exit() == 1
    assert named[0] in process.log and "AmbientCapabilities" in process.log
