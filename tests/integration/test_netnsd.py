# SPDX-License-Identifier: Apache-2.0
"""The very netnsd, asked by a statd on python3-msgpack, in namespaces of the test's own."""
import os
import pathlib
import queue
import shutil
import signal
import socket
import threading

import pytest

import mprpc
from nsfd import Netns
from procs import STRETCH, children_of, wait_for

pytestmark = pytest.mark.needs_root

NETLINK_GENERIC = 16
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


class Statd:
    """What netnsd sees of statd."""

    def __init__(self, rundir):
        self.rundir = rundir
        self.hellos = queue.Queue()
        self.refusal = None
        self.server = None

    def start(self):
        self.server = mprpc.Server(self.rundir / "manager.sock", {"manager.hello": self._hello}).start()

    def _hello(self, peer, params, fds):
        self.hellos.put(params)
        if self.refusal:
            raise self.refusal
        return {"config": {}}

    def stop(self):
        self.server.stop()

    def next_hello(self):
        return self.hellos.get(timeout=10 * STRETCH)

    def socket(self, fd, protocol="route"):
        _, fds = self.server.wait_peer().call_fds("netns.socket", {"protocol": protocol}, [fd])
        assert len(fds) == 1
        return fds[0]

    def sysctl(self, fd, if_name, *settings):
        settings = [{"family": family, "leaf": leaf, "value": value} for family, leaf, value in settings]
        return self.server.wait_peer().call(
            "netns.sysctl", {"ifName": if_name, "settings": settings}, [fd])


@pytest.fixture
def statd(rundir):
    s = Statd(rundir)
    s.start()
    yield s
    s.stop()


@pytest.fixture
def netnsd(statd, procs, rundir):
    process = procs.start("netnsd", "--runtime-dir", rundir, "--log-level", "debug")
    assert statd.next_hello() == {"type": "netns", "version": process_version()}
    return process


@pytest.fixture
def pod():
    """A pod's namespace with a link net1, and one whose name has a dot."""
    with Netns() as netns:
        netns.ip("link add net1 type veth peer name peer")
        netns.ip("link add net1.100 type bridge")
        yield netns


def process_version():
    return (pathlib.Path(__file__).parents[2] / "VERSION").read_text().strip()


def status(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def open_fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("protocol,number", [("route", socket.NETLINK_ROUTE), ("generic", NETLINK_GENERIC)])
def test_socket_is_inside_the_namespace(statd, netnsd, pod, protocol, number):
    with socket.socket(fileno=statd.socket(pod.fd, protocol)) as sock:
        assert sock.family == socket.AF_NETLINK and sock.type == socket.SOCK_RAW and sock.proto == number
        assert pod.has_socket(sock.fileno())
        assert sock.getsockname()[0] != 0, "it is bound"


def test_sysctls_are_written(statd, netnsd, pod):
    assert pod.sysctl("ipv4/conf/net1/arp_filter") == "0"
    # forwarding is one for which the kernel wants CAP_NET_ADMIN, even of root
    statd.sysctl(pod.fd, "net1", ("ipv4", "arp_filter", "1"), ("ipv6", "accept_ra", "0"), ("ipv4", "forwarding", "1"))
    assert pod.sysctl("ipv4/conf/net1/arp_filter") == "1"
    assert pod.sysctl("ipv6/conf/net1/accept_ra") == "0"
    assert pod.sysctl("ipv4/conf/net1/forwarding") == "1"
    assert pod.sysctl("ipv4/conf/peer/arp_filter") == "0"


def test_dots_of_an_interface_are_part_of_its_name(statd, netnsd, pod):
    statd.sysctl(pod.fd, "net1.100", ("ipv4", "arp_filter", "1"))
    assert pod.sysctl("ipv4/conf/net1.100/arp_filter") == "1"


def test_equal_value_is_not_written(statd, netnsd, pod):
    # nobody can write this one, so success shows that it was only read
    assert pod.sysctl("ipv4/conf/net1/mc_forwarding") == "0"
    statd.sysctl(pod.fd, "net1", ("ipv4", "mc_forwarding", " 0\n"))
    with pytest.raises(mprpc.Error) as e:
        statd.sysctl(pod.fd, "net1", ("ipv4", "mc_forwarding", "1"))
    assert "Permission denied" in e.value.message


@pytest.mark.parametrize("if_name,setting,code,why", [
    ("net1", ("ipv4", "no_such_leaf", "1"), "not_found", "No such file or directory"),
    ("net7", ("ipv4", "arp_filter", "1"), "not_found", "No such file or directory"),
    ("net1", ("ipv4", "arp_filter", "many"), "invalid", "Invalid argument"),
])
def test_failure_names_the_setting_and_stops(statd, netnsd, pod, if_name, setting, code, why):
    first, last = ("ipv4", "rp_filter", "2"), ("ipv4", "arp_ignore", "2")
    with pytest.raises(mprpc.Error) as e:
        statd.sysctl(pod.fd, if_name, *([first] if if_name == "net1" else []), setting, last)
    assert e.value.code == code
    assert f'net.{setting[0]}.conf.{if_name}.{setting[1]} = "{setting[2]}"' in e.value.message
    assert why in e.value.message
    assert pod.sysctl("ipv4/conf/net1/rp_filter") == ("2" if if_name == "net1" else "0")
    assert pod.sysctl("ipv4/conf/net1/arp_ignore") == "0"


@pytest.mark.parametrize("if_name,family,leaf", [
    ("..", "ipv4", "arp_filter"),
    ("all", "ipv4", "arp_filter"),
    ("a/b", "ipv4", "arp_filter"),
    ("net1", "ipv4/..", "arp_filter"),
    ("net1", "ipv4", "../net1/arp_filter"),
    ("net1", "ipv4", "..arp_filter"),
    ("net1", "core", "somaxconn"),
])
def test_names_that_lead_elsewhere_are_refused(statd, netnsd, pod, if_name, family, leaf):
    with pytest.raises(mprpc.Error) as e:
        statd.sysctl(pod.fd, if_name, (family, leaf, "1"))
    assert e.value.code == "invalid"


@pytest.mark.parametrize("path,why", [
    ("/proc/self/ns/net", "host's own"),
    ("/proc/self/ns/mnt", "another kind"),
    ("/dev/null", "not a namespace"),
])
def test_other_descriptors_are_refused(statd, netnsd, path, why):
    fd = os.open(path, os.O_RDONLY)
    try:
        for call in (lambda: statd.socket(fd), lambda: statd.sysctl(fd, "net1", ("ipv4", "arp_filter", "1"))):
            with pytest.raises(mprpc.Error) as e:
                call()
            assert e.value.code == "invalid" and why in e.value.message
    finally:
        os.close(fd)


def test_namespace_of_a_user_namespace_is_served(statd, netnsd):
    with Netns(of_user=True) as pod:
        pod.ip("link add net1 type bridge")
        statd.sysctl(pod.fd, "net1", ("ipv4", "arp_filter", "1"))
        assert pod.sysctl("ipv4/conf/net1/arp_filter") == "1"
        with socket.socket(fileno=statd.socket(pod.fd)) as sock:
            assert pod.has_socket(sock.fileno())


def test_nothing_is_left_of_many_operations(statd, netnsd, pod):
    before = open_fds(netnsd.pid)
    threads = [threading.Thread(target=lambda: os.close(statd.socket(pod.fd))) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # the last answer comes before the last descriptor is closed
    wait_for(lambda: open_fds(netnsd.pid) == before, what="the end of the last request")
    wait_for(lambda: children_of(netnsd.pid) == [], what="the end of the last child")


def test_privileges_are_those_of_the_table(netnsd):
    s = status(netnsd.pid)
    assert int(s["CapEff"], 16) == int(s["CapPrm"], 16) == 1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN
    assert int(s["CapInh"], 16) == int(s["CapAmb"], 16) == 0
    assert s["NoNewPrivs"] == "1"


def test_statd_may_come_back(statd, netnsd, pod):
    statd.stop()
    statd.start()
    statd.next_hello()
    os.close(statd.socket(pod.fd))


def test_refusal_is_told_and_tried_again(statd, procs, rundir):
    statd.refusal = mprpc.Error("conflict", "there is a netnsd already")
    process = procs.start("netnsd", "--runtime-dir", rundir, "--log-level", "debug")
    process.wait_log("statd refuses us.*there is a netnsd already")
    statd.next_hello()
    statd.refusal = None
    statd.next_hello()
    process.wait_log("serving statd")


def test_what_is_not_procfs_is_refused(procs, rundir):
    process = procs.start("netnsd", "--runtime-dir", rundir, "--proc-sys-net-dir", rundir)
    assert process.wait_exit() == 1
    assert f"{rundir}: is not in procfs" in process.log


def start_tampered(procs, rundir, what):
    """A netnsd to which, or to whose children, this happens when they enter a namespace: strace(1), "inject"."""
    strace = shutil.which("strace")
    assert strace, "strace is missing"
    # -D: the process that is started becomes netnsd; the leak sanitizer cannot work under a tracer
    return procs.start(strace, "-D", "-f", "-qq", "-o", rundir / "strace", "-e", "trace=setns",
                       "-e", f"inject=setns:{what}",
                       procs.build / "netnsd", "--runtime-dir", rundir, name="netnsd",
                       env={"ASAN_OPTIONS": "detect_leaks=0"})


def write_a_sysctl(statd, pod):
    statd.sysctl(pod.fd, "lo", ("ipv4", "forwarding", "1"))


def test_namespace_that_cannot_be_entered(statd, procs, rundir, pod):
    start_tampered(procs, rundir, "error=ENOMEM:when=1")
    statd.next_hello()
    with pytest.raises(mprpc.Error, match="entering the namespace"):
        statd.socket(pod.fd)
    os.close(statd.socket(pod.fd))


def test_namespace_that_cannot_be_left(statd, procs, rundir, pod):
    """Nothing more is done there, and the caller does not get the socket."""
    process = start_tampered(procs, rundir, "error=ENOMEM:when=2")
    statd.next_hello()
    with pytest.raises((mprpc.Error, OSError, EOFError)):
        statd.socket(pod.fd)
    assert process.wait_exit() == 1
    assert "cannot leave a pod's namespace" in process.log


def start_hanging(procs, rundir):
    return start_tampered(procs, rundir, "signal=STOP")


def test_child_that_hangs_is_given_up(statd, procs, rundir, pod):
    process = start_hanging(procs, rundir)
    statd.next_hello()
    with pytest.raises(mprpc.Error) as e:
        write_a_sysctl(statd, pod)
    assert e.value.code == "deadline"
    wait_for(lambda: not any(map(is_running, children_of(process.pid))), what="the child's end")


def is_running(pid):
    try:
        return status(pid)["State"][0] != "Z"
    except FileNotFoundError:
        return False


def test_child_dies_with_its_parent(statd, procs, rundir, pod):
    process = start_hanging(procs, rundir)
    statd.next_hello()
    asked = threading.Thread(target=lambda: pytest.raises(mprpc.Error, write_a_sysctl, statd, pod))
    asked.start()
    child = wait_for(lambda: children_of(process.pid), what="a child")[0]
    process.signal(signal.SIGKILL)
    wait_for(lambda: not is_running(child), what="the child's end")
    asked.join()
    process.wait_exit()


def test_stop_that_reaches_the_child_too_is_one_stop(statd, procs, rundir, pod):
    """systemd signals all processes of a unit at once."""
    process = start_tampered(procs, rundir, "delay_enter=500ms")
    statd.next_hello()
    asked = threading.Thread(target=lambda: pytest.raises(mprpc.Error, write_a_sysctl, statd, pod))
    asked.start()
    child = wait_for(lambda: children_of(process.pid), what="a child")[0]
    os.kill(child, signal.SIGTERM)
    process.stop()
    asked.join()
