# SPDX-License-Identifier: Apache-2.0
"""statd on python3-msgpack, as a device manager sees it."""
import queue

import pytest

import mprpc
from procs import STRETCH, wait_for


class Statd:
    def __init__(self, rundir, config):
        self.rundir = rundir
        self.config = config
        self.hellos, self.inventories, self.appeared = queue.Queue(), queue.Queue(), queue.Queue()
        self.notes = []  # of the inventory that next_inventory() returned last
        self.server = None

    def start(self):
        self.server = mprpc.Server(self.rundir / "manager.sock", {
            "manager.hello": self._hello,
            "manager.devices": lambda peer, params, fds: self.inventories.put(params),
            "manager.appeared": lambda peer, params, fds: self.appeared.put(params["name"]),
        }).start()

    def _hello(self, peer, params, fds):
        self.hellos.put(params)
        return {"config": self.config}

    def stop(self):
        self.server.stop()

    def call(self, method, params, fds=()):
        return self.server.wait_peer().call(method, params, fds)

    def refused(self, code, method, params, fds=()):
        """The message of a call that must fail with this code."""
        with pytest.raises(mprpc.Error) as e:
            self.call(method, params, fds)
        assert e.value.code == code, e.value
        return e.value.message

    def next_hello(self):
        return self.hellos.get(timeout=10 * STRETCH)

    def next_inventory(self):
        inventory = self.inventories.get(timeout=10 * STRETCH)
        self.notes = inventory.get("notes", [])
        return inventory.get("devices", [])

    def next_appeared(self):
        return self.appeared.get(timeout=10 * STRETCH)

    def restore(self, *allocations):
        def ask():
            try:
                return [self.call("device.restore", {"allocations": list(allocations)})]
            except mprpc.Error as e:
                # each call has a thread here: this one was faster than the answer to hello
                if "hello and device.restore come first" not in e.message:
                    raise
                return None
        return wait_for(ask, what="the manager's configuration")[0].get("verdicts", [])
