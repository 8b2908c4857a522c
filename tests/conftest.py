# SPDX-License-Identifier: Apache-2.0
"""What all tests share: where the build is, a directory and processes of their own, what the machine
can do. See pytest.ini for the markers."""
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

import procs as procs_module


# for a test with its fixtures; the longest take a sixth of it, where nothing else runs
TEST_SECONDS = int(os.environ.get("NETCLAIM_TEST_SECONDS", "600"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A test that waits for ever fails, with the place where it waits, and the next one begins."""
    def late(*_):
        raise TimeoutError(f"the test took more than {TEST_SECONDS} s")
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(TEST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def why_no_dummy():
    """None if this kernel can make dummy links; tried in a network namespace that ends at once."""
    if os.geteuid() != 0:
        return "making links needs root"
    result = subprocess.run(["unshare", "--net", "ip", "link", "add", "type", "dummy"],
                            capture_output=True, text=True, check=False)
    return None if result.returncode == 0 else f"this kernel makes no dummy links: {result.stderr.strip()}"


def pytest_configure(config):
    config.why_no_dummy = why_no_dummy()


def pytest_runtest_setup(item):
    if item.get_closest_marker("in_vm") and not procs_module.IN_VM:
        pytest.skip("runs in the test VM only: make vmtest")
    if item.get_closest_marker("needs_root") and os.geteuid() != 0:
        pytest.skip("needs root")
    if item.get_closest_marker("needs_igb") and not procs_module.IN_VM:
        pytest.skip("needs adapters with SR-IOV of its own, as the test VM has them: make vmtest")
    if item.get_closest_marker("needs_dummy") and item.config.why_no_dummy:
        pytest.skip(item.config.why_no_dummy)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the logs of all processes with a failure."""
    report = (yield).get_result()
    if report.failed and "procs" in item.funcargs:
        for name, log in item.funcargs["procs"].logs():
            report.sections.append((f"log of {name}", log))


@pytest.fixture
def builddir():
    """The directory with the programs under test."""
    assert procs_module.BUILD.is_dir(), f"{procs_module.BUILD} is not built"
    return procs_module.BUILD


@pytest.fixture
def rundir():
    """A directory of the test's own, with a path short enough for Unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="netclaim-", dir=procs_module.MEMORY))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def procs(rundir, builddir):
    """Starts programs; at the end all of them must have ended well, and left no process behind."""
    processes = procs_module.Processes(rundir, builddir)
    yield processes
    processes.finish()


@pytest.fixture(scope="module", params=("17", "21"), ids=("containerd-1.7", "containerd-2.1"))
def containerd(request):
    """A real containerd with NRI, each version in turn. Tests take `lab`."""
    import crilib  # most tests do without grpc
    with tempfile.TemporaryDirectory(prefix="netclaim-lab-") as directory:
        lab = crilib.Lab(request.param, directory)
        lab.up()
        yield lab
        lab.down()


@pytest.fixture
def lab(containerd):
    """That containerd without pods; what the test ran there is removed."""
    yield containerd
    containerd.remove_pods()
