# SPDX-License-Identifier: Apache-2.0
"""What nrihookd sees of statd: its front socket, and methods that a test may replace."""
import os
import threading

import mprpc
from procs import STRETCH, wait_for

DRIVER = "networkdriver.cilium.io"


def sandbox_id(ident):
    return ident.ljust(64, "0")


class Statd:
    """What nrihookd sees of statd. attach and detach may be replaced by a test; wanted are the pods
    (by UID) that have devices. It keeps no record unless a test has it do so: keep_record()."""

    def __init__(self, rundir):
        self.rundir = rundir
        self.state_dir = None
        self.settings = {"driverName": DRIVER, "nodeName": "n", "retryIntervalMs": 100,
                         "registrationTimeoutMs": 5000, "maxAttempts": 3, "ready": True}
        self.wanted = set()
        self.attached = set()  # sandbox ids
        self.attach = lambda params: {"devices": 1}
        self.detach = lambda params: {}
        self.calls = []  # (method, sandbox id), in the order of arrival
        self.attaches = []  # parameters, with the inode of the namespace that came along
        self.syncs = []  # lists of (pod UID, sandbox id)
        self.checks = []  # sandbox ids
        self.claims = []  # what pod.attach and pod.check named, each
        self.sync_goes = threading.Event()  # cleared: the answer to pod.sync is kept back
        self.sync_goes.set()
        self.states = []
        self.hellos = []
        self.busy = self.busiest = 0
        self._lock = threading.Lock()
        self.server = mprpc.Server(rundir / "front.sock", {
            "front.hello": self._hello,
            "front.state": lambda peer, params, fds: self.states.append(params),
            "pod.attach": self._attach,
            "pod.detach": self._detach,
            "pod.sync": self._sync,
            "pod.check": self._check,
        })

    def keep_record(self, directory=None):
        """Makes its state directory, and reports it from the next hello on."""
        self.state_dir = directory or self.rundir / "state"
        (self.state_dir / "pods").mkdir(parents=True)
        found = self.state_dir.stat()
        self.settings |= {"stateDev": found.st_dev, "stateIno": found.st_ino}

    def name(self, uid):
        """Records that the pod has a prepared claim."""
        (self.state_dir / "pods" / uid).touch()

    def forget(self, uid):
        (self.state_dir / "pods" / uid).unlink()

    def _hello(self, peer, params, fds):
        self.hellos.append(params)
        return self.settings

    def _attach(self, peer, params, fds):
        inode = os.fstat(fds[0]).st_ino
        os.close(fds[0])
        with self._lock:
            self.calls.append(("attach", params["sandboxID"]))
            self.claims.append(params.pop("claims", []))
            self.attaches.append({**params, "inode": inode})
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
        try:
            result = self.attach(params)
        finally:
            with self._lock:
                self.busy -= 1
        self.attached.add(params["sandboxID"])
        return result

    def _detach(self, peer, params, fds):
        self.calls.append(("detach", params["sandboxID"]))
        self.attached.discard(params["sandboxID"])
        return self.detach(params)

    def _sync(self, peer, params, fds):
        listed = [(ref["podUID"], ref["sandboxID"]) for ref in params.get("pods", [])]
        missing = [ident for uid, ident in listed if uid in self.wanted and ident not in self.attached]
        self.syncs.append(listed)
        self.sync_goes.wait(30 * STRETCH)
        return {"sandboxIDs": missing}

    def _check(self, peer, params, fds):
        self.checks.append(params["sandboxID"])
        self.claims.append(params.get("claims", []))
        wanted = params["podUID"] in self.wanted
        return {"wanted": int(wanted), "there": int(wanted and params["sandboxID"] in self.attached)}

    def start(self):
        self.server.start()
        return self

    def stop(self):
        """As its end: what it knew of attached sandboxes is gone with it."""
        self.server.stop()
        self.attached.clear()

    def ready(self):
        self.server.wait_peer().notify("front.ready")

    def wait_calls(self, *calls):
        """Waits until these, in this order, are all calls so far."""
        expected = [(method, sandbox_id(ident)) for method, ident in calls]
        wait_for(lambda: len(self.calls) >= len(expected), what=f"{calls} at statd")
        assert self.calls == expected

    def wait_syncs(self, count):
        wait_for(lambda: len(self.syncs) >= count, what=f"{count} pod.sync")
        return {ident.rstrip("0") for _, ident in self.syncs[-1]}

    def wait_state(self, state):
        return wait_for(lambda: [s for s in self.states[-1:] if s["state"] == state],
                        what=f"state {state}")[0]


class Held:
    """A handler that answers when it is told to."""

    def __init__(self, result):
        self.result = result
        self.go = threading.Event()

    def __call__(self, params):
        self.go.wait(30 * STRETCH)
        return self.result


class Refusing:
    """A handler that fails, the first few times or always."""

    def __init__(self, code, message="it will not go", times=None):
        self.error = mprpc.Error(code, message)
        self.times = times

    def __call__(self, params):
        if self.times == 0:
            return {"devices": 1}
        if self.times:
            self.times -= 1
        raise self.error
