# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of a test's own, known by a descriptor and by nothing else: they end with it."""
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess

CLONE_NEWNET = 0x40000000
CLONE_NEWUSER = 0x10000000
SIOCGSKNS = 0x894C
NETLINK_KOBJECT_UEVENT = 15
NLMSG_MIN_TYPE = 0x10
NLM_F_REQUEST, NLM_F_ACK = 1, 4

_libc = ctypes.CDLL(None, use_errno=True)


def _unshare(flags):
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Netns:
    """A new network namespace; of_user: owned by a new user namespace, as a user-namespaced pod's."""

    def __init__(self, of_user=False):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                _unshare(CLONE_NEWNET | (CLONE_NEWUSER if of_user else 0))
                fd = os.open("/proc/self/ns/net", os.O_RDONLY)
                socket.send_fds(theirs, [b"x"], [fd])
            finally:
                os._exit(0)
        theirs.close()
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(pid, 0)
        ours.close()
        assert fds, "no namespace could be made"
        self.fd = fds[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self.fd)

    @property
    def path(self):
        """Good for every process, as long as this one lives."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def inside(self, *argv):
        """The command that runs argv inside."""
        return ["/usr/bin/nsenter", f"--net={self.path}", "--", *map(str, argv)]

    def run(self, *argv):
        """Runs a command inside; its output."""
        return subprocess.run(self.inside(*argv), check=True, capture_output=True, text=True).stdout

    def ip(self, text):
        return self.run("ip", *text.split())

    def links(self):
        """name -> link, as iproute2 tells it."""
        return {link["ifname"]: link for link in json.loads(self.ip("-json -details link show"))}

    def sysctl(self, path):
        """The value at a path below /proc/sys/net."""
        return self.run("cat", f"/proc/sys/net/{path}").strip()

    def has_socket(self, fd):
        """Whether this socket was opened inside."""
        inside = fcntl.ioctl(fd, SIOCGSKNS)
        try:
            return os.path.samestat(os.fstat(inside), os.fstat(self.fd))
        finally:
            os.close(inside)

    def open_socket(self, protocol=socket.NETLINK_ROUTE):
        """A netlink socket inside, the caller's to close: what netnsd makes."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                if _libc.setns(self.fd, CLONE_NEWNET) == 0:
                    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as sock:
                        socket.send_fds(theirs, [b"x"], [sock.fileno()])
            finally:
                os._exit(0)
        theirs.close()
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(pid, 0)
        ours.close()
        return fds[0]

    def uevent(self, action, subsystem, devpath):
        """Has the kernel send an event of a device to all who listen inside (lib/kobject_uevent.c, uevent_net_rcv())."""
        text = f"{action}@{devpath}\0ACTION={action}\0DEVPATH={devpath}\0SUBSYSTEM={subsystem}\0".encode()
        header = struct.pack("=IHHII", 16 + len(text), NLMSG_MIN_TYPE, NLM_F_REQUEST | NLM_F_ACK, 1, 0)
        with socket.socket(fileno=self.open_socket(NETLINK_KOBJECT_UEVENT)) as sock:
            sock.sendto(header + text, (0, 0))
            error, = struct.unpack_from("=i", sock.recv(4096), 16)
        assert error == 0, os.strerror(-error)
