# SPDX-License-Identifier: Apache-2.0
"""A sample of the crash walk; `make crashwalk` goes all of it. See crash_walk.py."""
import os

import pytest

import crash_walk

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_dummy]

# walks; how many of them there are in all is for the trace to say. Stops take their time: a few.
KILLS = int(os.environ.get("NETCLAIM_CRASH_KILLS", "24"))
STOPS = int(os.environ.get("NETCLAIM_CRASH_STOPS", "4"))


@pytest.fixture(scope="module")
def walker(request):
    walker = crash_walk.Walker()
    walker.open()
    yield walker
    walker.close(failed=request.session.testsfailed > 0)


@pytest.mark.parametrize("fault, count", [("kill", KILLS), ("stop", STOPS)])
def test_nothing_is_lost(walker, fault, count):
    boundaries, _ = walker.boundaries()
    assert len(boundaries) > 100, "the trace is too short to be true"
    cases = crash_walk.evenly(crash_walk.cases_of(boundaries, crash_walk.DAEMONS, [fault]), count)
    failures, missed = crash_walk.walk_all(walker, cases)
    print(crash_walk.summary(len(boundaries), len(cases), len(failures), missed, 0))
    assert not failures, "\n".join(f"{case}: {lost}" for case, lost in failures)
    assert missed <= len(cases) // 10, "boundaries do not come"
