# SPDX-License-Identifier: Apache-2.0
"""The client of the API server, as its test program kubetool drives it: commands to it, what it tells."""
import itertools
import json
import os
import queue
import re
import subprocess
import threading
import time

from procs import BUILD, STRETCH, wait_for

PROGRAM = BUILD / "tests/cluster/kubetool"
SILENT = 20 * STRETCH


def write_kubeconfig(path, server, user=None, cluster=None):
    """A kubeconfig with one context."""
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "its", "user": "me"}}],
        "clusters": [{"name": "its", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}]}), encoding="utf-8")
    return path


class Failed(Exception):
    """What the client said of a call that failed."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.kind, self.message, self.status = error["kind"], error["message"], error["status"]
        self.reason, self.retry_after_ms = error["reason"], error["retryAfterMs"]


class Told:
    """What is told of one command, in its order."""

    def __init__(self, tool, number):
        self.tool, self.number, self.lines, self.seen = tool, number, queue.Queue(), []

    def next(self, timeout=SILENT):
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"nothing was told within {timeout} s after {self.seen[-3:]}\n{self.tool.log}") from None
        if line is None:
            raise AssertionError(f"kubetool ended\n{self.tool.log}")
        self.seen.append(line)
        return line

    def answer(self, timeout=SILENT):
        line = self.next(timeout)
        if "error" in line:
            raise Failed(line["error"])
        return line["object"]

    def listed(self):
        """The objects of a list, and its version."""
        objects = []
        while True:
            line = self.next()
            if "error" in line:
                raise Failed(line["error"])
            if "listed" in line:
                return objects, line["listed"]
            objects.append(line["object"])

    def event(self, kind, name=None, timeout=SILENT):
        """The next thing told, which must be of this kind ("begin", "added", ..., "failed") and about
        the object of this name."""
        line = self.next(timeout)
        assert line["told"] == kind, line
        if name is not None:
            assert line["object"]["metadata"]["name"] == name, line
        return line

    def until(self, kind, timeout=SILENT):
        """What is told until one of this kind comes, with it."""
        deadline, lines = time.monotonic() + timeout, []
        while not lines or lines[-1]["told"] != kind:
            lines.append(self.next(max(0, deadline - time.monotonic())))
        return lines

    def nothing_yet(self):
        return self.lines.empty()

    def stop(self):
        self.tool.send({"id": self.number, "do": "stop"})


class KubeTool:
    """As a context manager it ends, and must end well."""

    def __init__(self, *arguments, env=None, via=()):
        self.numbers, self.told, self.lock = itertools.count(1), {}, threading.Lock()
        self.log = ""
        self.popen = subprocess.Popen(
            [*via, PROGRAM, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})}, text=True)
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_log)]
        for reader in self.readers:
            reader.start()

    @property
    def pid(self):
        return self.popen.pid

    def _read(self):
        for text in self.popen.stdout:
            line = json.loads(text)
            with self.lock:
                told = self.told[line.pop("id")]
            told.lines.put(line)
        for told in list(self.told.values()):
            told.lines.put(None)

    def _read_log(self):
        for text in self.popen.stderr:
            self.log += text

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.popen.stdin.close()
        try:
            status = self.popen.wait(30 * STRETCH)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise
        finally:
            for reader in self.readers:
                reader.join()
            self.popen.stdout.close()
            self.popen.stderr.close()
        assert kind or status == 0, f"kubetool ended with status {status}:\n{self.log}"

    def send(self, *commands):
        self.popen.stdin.write("".join(json.dumps(command) + "\n" for command in commands))
        self.popen.stdin.flush()

    def start(self, do, path, **more):
        told = Told(self, next(self.numbers))
        with self.lock:
            self.told[told.number] = told
        self.send({"id": told.number, "do": do, "path": path, **more})
        return told

    def start_many(self, number, do, path, **more):
        """All in one write: they are under way at once."""
        told = [Told(self, next(self.numbers)) for _ in range(number)]
        with self.lock:
            self.told.update({one.number: one for one in told})
        self.send(*({"id": one.number, "do": do, "path": path, **more} for one in told))
        return told

    def get(self, path):
        return self.start("get", path).answer()

    def create(self, path, body):
        return self.start("create", path, body=body).answer()

    def replace(self, path, body):
        return self.start("replace", path, body=body).answer()

    def delete(self, path, uid=None, resource_version=None):
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        return self.start("delete", path, **{k: v for k, v in preconditions.items() if v}).answer()

    def apply(self, path, body, manager="kubetool"):
        return self.start("apply", path, body=body, manager=manager).answer()

    def request(self, method, path, **more):
        return self.start("request", path, method=method, **more).answer()

    def list(self, path, page_size, **more):
        return self.start("list", path, pageSize=page_size, **more).listed()

    def watch(self, path, page_size=100, **more):
        return self.start("watch", path, pageSize=page_size, **more)

    def wait_log(self, pattern, timeout=10):
        return wait_for(lambda: re.search(pattern, self.log, re.MULTILINE), timeout, f"{pattern!r} in the log")

    def memory(self):
        """KiB by the kernel's names: Rss, Pss, Private_Clean, Private_Dirty, ..."""
        with open(f"/proc/{self.pid}/smaps_rollup", encoding="ascii") as f:
            return {key: int(value.split()[0]) for key, _, value in (line.partition(":") for line in f) if "kB" in value}

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))
