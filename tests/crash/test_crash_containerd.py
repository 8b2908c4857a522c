# SPDX-License-Identifier: Apache-2.0
"""The crash walk with real containerds: a sample of the faults at the boundaries of attach and detach.
`make crashwalk CRASHWALK_ARGS="--containerd 17"` goes all of them. See crash_walk.py."""
import os

import pytest

import crash_cri
import crash_walk

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_dummy, pytest.mark.in_vm]

# walks with each containerd
WALKS = int(os.environ.get("NETCLAIM_CRASH_CRI", "5"))


@pytest.fixture(scope="module")
def walker(containerd):
    walker = crash_walk.Walker(pods_of=lambda node: crash_cri.CriPods(containerd, node))
    walker.open()
    yield walker
    walker.close(failed=True)


def test_nothing_is_lost(walker):
    boundaries, _ = walker.boundaries()
    boundaries = [boundary for boundary in boundaries if boundary.point.phase in crash_cri.PHASES]
    assert len(boundaries) > 30, "the trace is too short to be true"
    cases = crash_walk.evenly(crash_walk.cases_of(boundaries, crash_walk.DAEMONS, crash_walk.FAULTS), WALKS)
    failures, missed = crash_walk.walk_all(walker, cases)
    print(crash_walk.summary(len(boundaries), len(cases), len(failures), missed, 0))
    assert not failures, "\n".join(f"{case}: {lost}" for case, lost in failures)
    assert missed <= len(cases) // 10, "boundaries do not come"
