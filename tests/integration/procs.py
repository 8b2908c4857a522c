# SPDX-License-Identifier: Apache-2.0
"""Programs under test: started, watched and ended, each by its pid.

What a test waits for is an event with a deadline, never a span of time. Deadlines are given for a
release build on an idle machine and stretched where the same work takes longer.
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("NETCLAIM_BUILD", "build/release")
IN_VM = os.environ.get("NETCLAIM_VM") == "1"

# where /run would be: statd's records are replaced on each step, and on a disk each waits for it
MEMORY = "/dev/shm" if os.path.ismount("/dev/shm") and os.access("/dev/shm", os.W_OK) else None

# emulation and sanitizers both slow a program down several times
STRETCH = (4 if IN_VM else 1) * (3 if "asan" in BUILD.name else 1)
POLL_SECONDS = 0.02


def wait_for(condition, timeout=5, what="the condition"):
    """Calls condition until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout * STRETCH
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come within {timeout * STRETCH} s")
        time.sleep(POLL_SECONDS)


def paths_held_by(pid):
    """What its open descriptors are, sorted."""
    held = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it was open a moment ago
            held.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return sorted(held)


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def session_members(sessions):
    """Pids of the live processes in any of these sessions."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # the command's name, in parentheses, may hold anything
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) in sessions and state not in "ZX":
            found.append(int(entry.name))
    return found


class Process:
    """A running program. Its standard error goes to a file, of which log is what it wrote."""

    def __init__(self, name, argv, log_path, env=None, via=()):
        self.name = name
        self.log_path = log_path
        self.status = None  # what it ended with: an exit status, or a signal's number, negative
        self.expected = False  # the test knows that it ended
        self.resumed = False  # after a suspend
        self.kept_log = None
        with open(log_path, "ab") as log:
            self.log_start = log.tell()
            self.popen = subprocess.Popen(
                [*via, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **(env or {})}, start_new_session=True)
        self.session = self.popen.pid
        self.pid = self._behind(via, argv) if via else self.popen.pid

    def _behind(self, via, argv):
        """The program's pid. A wrapper that does not turn into it, such as nsenter into a pid
        namespace, stays its parent, and ends as it does."""
        program = "".join(f"{word}\0" for word in argv).encode()
        as_started = "".join(f"{word}\0" for word in via).encode() + program

        def look():
            if not self.running():
                return self.popen.pid
            line = pathlib.Path(f"/proc/{self.popen.pid}/cmdline").read_bytes()
            # until exec is through it is empty, or still this process's own
            if line != as_started and line.endswith(program):
                return self.popen.pid
            return next(iter(children_of(self.popen.pid)), None)
        return wait_for(look, what=f"{self.name} behind {via[0]}")

    @property
    def log(self):
        if self.kept_log is not None:
            return self.kept_log
        try:
            with open(self.log_path, "rb") as log:
                log.seek(self.log_start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""  # the test's directory is gone already

    def keep_log(self):
        """Its file may go now."""
        self.kept_log = self.log

    def running(self):
        self.status = self.popen.poll()
        if self.status is None and self.resumed:
            # nsenter stops itself when it sees that its program is stopped, late perhaps, and does not
            # see that it goes on: it would never wait for its end
            self.popen.send_signal(signal.SIGCONT)
        return self.status is None

    def wait_log(self, pattern, timeout=5):
        """Waits for a line that this regular expression matches; returns the match."""
        def look():
            running = self.running()  # before the look: what it wrote last counts
            match = re.search(pattern, self.log, re.MULTILINE)
            assert match or running, f"{self.name} ended with status {self.status} before it logged {pattern!r}"
            return match
        return wait_for(look, timeout, f"{pattern!r} in the log of {self.name}")

    def wait_exit(self, timeout=10):
        """Waits for its end; returns its status."""
        self.expected = True
        wait_for(lambda: not self.running(), timeout, f"the end of {self.name}")
        return self.status

    def signal(self, number):
        os.kill(self.pid, number)

    def suspend(self):
        """Stops it, until resume."""
        self.resumed = False
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)
        self.resumed = True

    def kill(self):
        """As a crash would end it."""
        self.expected = True  # for whoever looks in between
        self.signal(signal.SIGKILL)
        self.wait_exit()

    def stop(self, timeout=10):
        """Ends it as an operator would. It must exit with 0."""
        self.signal(signal.SIGTERM)
        status = self.wait_exit(timeout)
        assert status == 0, f"{self.name} ended with status {status} on SIGTERM"


class Processes:
    """The processes of one test."""

    def __init__(self, directory, build=BUILD):
        self.directory = pathlib.Path(directory)
        self.build = build
        self.all = []

    def start(self, program, *args, name=None, env=None, via=()):
        """Starts a program of the build (or any, by its absolute path), through the command via if
        there is one. name is what its log is called, else the program's."""
        name = name or pathlib.Path(program).name
        process = Process(name, [str(self.build / program), *map(str, args)],
                          self.directory / f"{name}.log", env, via)
        self.all.append(process)
        return process

    def logs(self):
        """(name, log) of each, in the order of their starts."""
        return [(f"{process.name}[{process.pid}]", process.log) for process in self.all]

    def finish(self):
        """Ends what still runs, last started first. Fails if one had ended unasked, did not exit with
        0, or left a process behind."""
        problems = []
        for process in reversed(self.all):
            if process.expected:
                continue
            try:
                assert process.running(), f"{process.name} ended by itself with status {process.status}"
                process.stop()
            except AssertionError as e:
                problems.append(str(e))
        sessions = {process.session for process in self.all}
        try:
            wait_for(lambda: not session_members(sessions), 2, "the end of the last child")
        except AssertionError:
            for pid in session_members(sessions):
                problems.append(f"left behind: {pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()}")
                os.kill(pid, signal.SIGKILL)
        for process in self.all:
            process.popen.wait()
            process.keep_log()
        assert not problems, "; ".join(problems)
