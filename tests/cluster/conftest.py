# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that need a cluster.

All tests of one version of Kubernetes run together, on one control plane; what a test makes is removed
after it. NETCLAIM_CLUSTER_VERSIONS says which versions, newest first those that are built if it is
not set.
"""
import os

import pytest

import controlplane
import faults
import servers

# off by default in the oldest version that we support, and needed for what the tests are about
FEATURE_GATES = {"DRAConsumableCapacity": True, "DRAExtendedResource": True}


# found once: pytest takes an equal text that is another object for another version
ALL_VERSIONS = servers.built_versions() or [None]
WANTED = os.environ.get("NETCLAIM_CLUSTER_VERSIONS", "").split()
VERSIONS = [version for version in ALL_VERSIONS if not WANTED or version in WANTED]

# Long tests that are about us, for which any server would do, run with the newest: their modules say
# ONE_VERSION.
collect_ignore = ["test_server_faults.py"] if VERSIONS and ALL_VERSIONS[0] not in VERSIONS else []


def pytest_generate_tests(metafunc):
    if "control_plane" in metafunc.fixturenames:
        versions = ALL_VERSIONS[:1] if getattr(metafunc.module, "ONE_VERSION", False) else ALL_VERSIONS
        versions = [version for version in VERSIONS if version in versions]
        metafunc.parametrize("control_plane", versions, indirect=True, scope="session",
                             ids=lambda version: version or "no version")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows what the servers logged last with a failure."""
    report = (yield).get_result()
    running = item.funcargs.get("control_plane")
    if report.failed and running:
        for name in running.processes:
            report.sections.append((f"end of the log of {name}", running.log_of(name)))


@pytest.fixture(scope="session")
def control_plane(request):
    """The control plane of one version, with what tests left there; see cluster."""
    if request.param is None:
        pytest.skip("no servers of Kubernetes are built: make clustertest")
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def progress(text):
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", flush=True)
    with controlplane.Cluster(request.param, FEATURE_GATES, progress=progress) as running:
        yield running


@pytest.fixture
def cluster(control_plane):
    """A cluster without nodes, pods and claims: a controlplane.Cluster that runs. It is cleaned, and
    runs as it did, when the test is over."""
    yield control_plane
    processes = control_plane.processes
    if control_plane.feature_gates != FEATURE_GATES or not all(p.running() for p in processes.values()):
        control_plane.restart(FEATURE_GATES)
    control_plane.wait_apiserver()
    control_plane.clean()


@pytest.fixture
def namespace(cluster):
    """The name of a new namespace."""
    return cluster.make_namespace()


@pytest.fixture
def proxy(cluster):
    """A faults.Proxy in front of the API server; it listens from the start and does nothing."""
    with faults.Proxy.of(cluster) as running:
        yield running


@pytest.fixture
def tunnel(cluster):
    """A faults.Tunnel in front of the API server."""
    with faults.Tunnel.of(cluster) as running:
        yield running
