# SPDX-License-Identifier: Apache-2.0
"""The node that is measured: every daemon as it ships, and peers that measure."""
import contextlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

import house as h
import procs as procs_module

MANAGER = "dmgr-dummy"
SRIOV = "dmgr-sriov"
STAND_IN = "tests/bench/dmgr-standin"
TRIES = 5
IMAGE_BYTES = 512 << 20
MAX_DEVICES = 4096  # as the manager of dummy links has it


def daemons_with(manager):
    return ("statd", "netnsd", manager, "draplugind", "nrihookd")


DAEMONS = daemons_with(MANAGER)


def kind_of_link():
    """What this kernel has; the node's network namespace is as good a place to try as any."""
    made = subprocess.run(["ip", "link", "add", "bench-try", "type", "dummy"], capture_output=True, check=False)
    if made.returncode != 0:
        return "ifb"
    subprocess.run(["ip", "link", "del", "bench-try"], check=True)
    return "dummy"


def machine(directory):
    where = directory or tempfile.gettempdir()
    filesystem = subprocess.run(["stat", "-f", "-c", "%T", where], check=True, capture_output=True, text=True)
    return {
        "kernel": platform.release() + (" in the test VM, emulated" if procs_module.IN_VM else ""),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "build": str(procs_module.BUILD),
        "links": kind_of_link(),
        "files": f"{where}, {filesystem.stdout.strip()}",
    }


@contextlib.contextmanager
def journaled(directory):
    """A directory on an ext4 of its own, with a journal, in an image below directory; directory itself where no
    image can be mounted. A file system of this machine may have none, and then looks, for each new file, at
    every one that was deleted in the last minutes: fs/ext4/ialloc.c, recently_deleted()."""
    with tempfile.TemporaryDirectory(prefix="nb-", dir=directory) as root:
        # short: the path of a socket below it has at most 107 bytes
        image, mounted = pathlib.Path(root, "image"), pathlib.Path(root, "f")
        mounted.mkdir()
        with open(image, "wb") as made:
            made.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        loop = subprocess.run(["mount", "-o", "loop", image, mounted], capture_output=True, text=True, check=False)
        if loop.returncode != 0:
            print(f"files are in {directory or tempfile.gettempdir()}: {loop.stderr.strip()}", flush=True)
            yield directory
            return
        try:
            yield mounted
        finally:
            subprocess.run(["umount", mounted], check=True)


class Refused(Exception):
    """Another try may help."""


class Peer:
    """A measuring peer: a command a line, an answer a line, as tests/bench/lines.h has it."""

    def __init__(self, program):
        self.name = program
        self.popen = subprocess.Popen([procs_module.BUILD / "tests/bench" / program], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, *words):
        self.popen.stdin.write(" ".join(map(str, words)) + "\n")
        self.popen.stdin.flush()

    def answer(self):
        word, *rest = (self.popen.stdout.readline() or "error it ended").split()
        if word == "refused":
            raise Refused(" ".join(rest))
        assert word == "ok", f"{self.name}: {' '.join(rest)}"
        return [int(number) for number in rest]

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def time(self, *words):
        """Of a command that answers with one number."""
        number, = self.ask(*words)
        return number

    def close(self):
        self.popen.stdin.close()
        self.popen.wait()


class Node(h.House):
    """A context: the node with its peers, in a directory that goes at the end.

    source      statd's options instead of a file of configuration and a directory of claims
    sysfs_root  the devices are virtual functions that are found there, instead of dummy links
    """

    def __init__(self, devices=0, directory=None, source=(), sysfs_root=None):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="netclaim-bench-", dir=directory))
        section, kind = ("sriov", "sr-iov") if sysfs_root else ("dummy", "dummy")
        self.managers = {section: {"enabled": True, **({} if sysfs_root else {"count": devices})}}
        self.pools = [{"name": "fast-net", "filter": {"deviceManagers": [kind]}}]
        super().__init__(procs_module.Processes(self.root), self.root, h.config(self.managers, self.pools))
        self.memory = tempfile.TemporaryDirectory(prefix="netclaim-bench-", dir=procs_module.MEMORY)
        self.source = source or ("--config", self.config_path, "--claims-dir", self.claims_dir)
        self.sysfs_root = sysfs_root
        self.daemon_names = daemons_with(SRIOV if sysfs_root else MANAGER)
        self.kind = kind_of_link()
        self.moved_path = self.root / "moved"
        self.moved_path.write_bytes(bytes(8))
        self.nri_socket = self.root / "nri.sock"
        self.netns_dir = self.root / "netns"
        self.netns_dir.mkdir()
        self.namespaces = []
        self.bare, self.kubelet_peer, self.runtime = Peer("bare"), Peer("kubelet"), Peer("runtime")
        self.daemons = {}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind:
                for name, log in self.procs.logs():
                    print(f"--- log of {name}, its end\n{log[-2000:]}")
            self.procs.finish()
        finally:
            for path in list(self.namespaces):
                self.end_netns(path)
            for peer in (self.bare, self.kubelet_peer, self.runtime):
                peer.close()
            shutil.rmtree(self.root)

    @property
    def state_dir(self):
        """In memory, as on a node, wherever the other files are."""
        return pathlib.Path(self.memory.name) / "state"

    # --- daemons

    def command(self, name):
        if name == "statd":
            return ("statd", *self.source, "--runtime-dir", self.runtime_dir, "--state-dir", self.state_dir,
                    "--user", h.STATD_USER)
        more = {"draplugind": ("--kubelet-dir", self.kubelet_dir, "--cdi-dir", self.cdi_dir),
                "nrihookd": ("--nri-socket", self.nri_socket),
                SRIOV: ("--sysfs-root", self.sysfs_root)}.get(name, ())
        program = STAND_IN if name == MANAGER and self.kind != "dummy" else name
        return (program, "--runtime-dir", self.runtime_dir, *more)

    def start(self, order=None):
        """Starts all and waits until they work. Nanoseconds from the first exec until all are started,
        the kubelet has its answer, and the runtime has its."""
        self.runtime.ask("listen", self.nri_socket)
        self.runtime.send("accept")
        self.kubelet_peer.send("register", self.kubelet_dir, h.DRIVER)
        begin = time.monotonic_ns()
        for name in order or self.daemon_names:
            self.daemons[name] = self.procs.start(*self.command(name), env={"NETCLAIM_BENCH_MOVED": self.moved_path})
        started = time.monotonic_ns()
        get_info, _ = self.kubelet_peer.answer()
        synchronized, = self.runtime.answer()
        return started - begin, get_info - begin, synchronized - begin

    def stop(self):
        for name in reversed(self.daemon_names):
            self.daemons.pop(name).stop()

    def restart_manager(self):
        """Kills it, so that its successor tells its whole inventory again; waits until statd has it."""
        self.daemons.pop(MANAGER).kill()
        self.daemons[MANAGER] = self.procs.start(*self.command(MANAGER))
        self.daemons[MANAGER].wait_log("serving")

    def list_tables(self):
        subprocess.run([procs_module.BUILD / "statctl", "--runtime-dir", self.runtime_dir, "statedb"], check=True,
                       stdout=subprocess.DEVNULL)

    def pids(self):
        return {name: process.pid for name, process in self.daemons.items()}

    def cpu(self):
        """Nanoseconds that each has computed so far; what its children did is not in it."""
        return {name: cpu_of(pid) for name, pid in self.pids().items()}

    def moved(self):
        """Nanoseconds that the kernel took for the manager's last move into a pod; 0: nobody measures it."""
        return int.from_bytes(self.moved_path.read_bytes(), sys.byteorder)

    # --- pods

    def netns(self, name):
        path = self.netns_dir / name
        self.bare.ask("netns", path)
        self.namespaces.append(path)
        return path

    def tell(self, event, *words):
        """Tells the plugin of a pod's event, again while it is refused, as the kubelet would have it. The
        time of the try that succeeded; the others are shown."""
        for _ in range(TRIES):
            try:
                return self.runtime.time(event, *words)
            except Refused as e:
                print(f"refused, trying again: {event}: {e}", flush=True)
        raise AssertionError(f"{event} was refused {TRIES} times")

    def end_netns(self, path):
        self.bare.ask("netns-end", path)
        self.namespaces.remove(path)

    def claim(self, device, **more):
        """A claim of its own pod's for one device."""
        return PodClaim(self, f"claim-{device}", [h.result(device)], pod_uid=str(uuid.uuid4()), **more)

    def links(self):
        """How many there are in the node's network namespace."""
        return len(pathlib.Path("/proc/net/dev").read_text().splitlines()) - 2


class Life:
    """What the kubelet and the runtime do with a claim and its pod; what is timed is nanoseconds. Of the class
    that it is mixed into it needs node, words (namespace, name, uid) and pod_uid."""

    sandbox = None

    def prepare(self):
        return self.node.kubelet_peer.time("prepare", *self.words)

    def unprepare(self):
        return self.node.kubelet_peer.time("unprepare", *self.words)

    def run(self, netns):
        self.sandbox = uuid.uuid4().hex * 2
        return self.node.tell("run", self.pod_uid, self.sandbox, netns)

    def stop(self, netns):
        time_taken = self.node.tell("stop", self.pod_uid, self.sandbox, netns)
        self.node.runtime.ask("remove", self.pod_uid, self.sandbox, netns)
        return time_taken


class PodClaim(h.Claim, Life):
    """A claim in the directory of claims, and the pod that it is for."""

    def __init__(self, node, name, results, pod_uid, **more):
        super().__init__(node, name, results, pod_uid=pod_uid, **more)
        self.node = node
        self.pod_uid = pod_uid

    @property
    def words(self):
        return (self.namespace, self.name, self.uid)

    def unprepare(self):
        time_taken = super().unprepare()
        self.path.unlink()
        return time_taken


def cpu_of(pid):
    """Nanoseconds of all its threads: proc(5), schedstat."""
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


class Sample:
    """What the kernel tells of one process. Sizes are KiB."""

    def __init__(self, pid):
        proc = pathlib.Path(f"/proc/{pid}")
        rollup = self._fields(proc / "smaps_rollup")
        status = self._fields(proc / "status")
        self.pss = rollup["Pss"]
        self.private = rollup["Private_Clean"] + rollup["Private_Dirty"]
        self.rss = status["VmRSS"]
        self.peak = status["VmHWM"]
        self.descriptors = len(os.listdir(proc / "fd"))
        self.switches = sum(self._fields(task / "status")["voluntary_ctxt_switches"]
                            for task in (proc / "task").iterdir())

    @staticmethod
    def _fields(path):
        fields = {}
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            words = value.split()
            if words and words[0].isdigit():
                fields[name] = int(words[0])
        return fields


def reset_peak(pid):
    """VmHWM begins anew: proc(5), clear_refs."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def kernel_namespaces():
    """How many network namespaces the kernel has, or None where it does not tell."""
    for line in pathlib.Path("/proc/slabinfo").read_text().splitlines():
        if line.startswith("net_namespace "):
            return int(line.split()[1])
    return None
