# SPDX-License-Identifier: Apache-2.0
"""The crash walk with virtual functions of real adapters, each in a VLAN of its claim: a sample.
`make crashwalk CRASHWALK_ARGS="--manager sriov"` goes all of it. See crash_walk.py."""
import os

import pytest

import crash_walk
import managers

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_igb]

# Where the whole walk has found something once. Twice: the runtime's habits take turns.
FOUND = ("statd killed after detach: device.detach request, dmgr-sriov from statd",) * 2
WALKS = int(os.environ.get("NETCLAIM_CRASH_SRIOV", "6"))


@pytest.fixture(scope="module")
def walker():
    walker = crash_walk.Walker(managers.Sriov())
    walker.open()
    yield walker
    walker.close(failed=True)


def test_nothing_is_lost(walker):
    boundaries, _ = walker.boundaries()
    assert len(boundaries) > 100, "the trace is too short to be true"
    daemons = crash_walk.daemons_of(walker.manager)
    every = crash_walk.cases_of(boundaries, daemons, ["kill"])
    found = [next(case for case in every if str(case) == text) for text in FOUND]
    cases = crash_walk.evenly(every, WALKS) + found
    failures, missed = crash_walk.walk_all(walker, cases)
    print(crash_walk.summary(len(boundaries), len(cases), len(failures), missed, 0))
    assert not failures, "\n".join(f"{case}: {lost}" for case, lost in failures)
    assert missed <= 1 + len(cases) // 10, "boundaries do not come"
