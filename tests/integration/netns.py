# SPDX-License-Identifier: Apache-2.0
"""A network namespace for one test, as a runtime makes it for a pod."""
import os
import subprocess
import uuid


class Netns:
    def __init__(self):
        self.name = f"netclaim-test-{uuid.uuid4().hex[:12]}"
        self.path = f"/run/netns/{self.name}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=True)

    def open(self):
        return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)

    def ip(self, *args):
        """Output of ip(8) inside."""
        return subprocess.run(["ip", "-n", self.name, *args], check=True, capture_output=True, text=True).stdout

    def sysctl(self, leaf):
        return subprocess.run(["ip", "netns", "exec", self.name, "cat", f"/proc/sys/net/{leaf}"],
                              check=True, capture_output=True, text=True).stdout.strip()
