# SPDX-License-Identifier: Apache-2.0
"""tests/run: whatever a suite's program does, what it says and how it ends are both counted."""
import importlib.machinery
import importlib.util
import sys

import pytest

import procs


def load(path):
    loader = importlib.machinery.SourceFileLoader("runner", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
    sys.modules["runner"] = module  # its dataclass looks itself up
    loader.exec_module(module)
    return module


runner = load(procs.ROOT / "tests/run")

ONE = "ok 1 - test_x.c:case:name: Passed\n"
BAD = "not ok 1 - test_x.c:case:name: Assertion '1 == 2' failed\n"


def counts(results):
    return tuple(sum(result.outcome == outcome for result in results)
                 for outcome in (runner.PASSED, runner.FAILED, runner.SKIPPED))


@pytest.mark.parametrize("tap, script, expected", (
    (ONE + "1..1\n", "exit 0", (1, 0, 0)),
    (BAD + "1..1\n", "exit 1", (0, 1, 0)),
    (ONE + "1..1\n", "exit 1", (1, 1, 0)),
    (BAD + "1..1\n", "exit 0", (0, 2, 0)),
    (ONE + "1..2\n", "exit 0", (1, 1, 0)),
    (ONE, "kill -SEGV $$", (1, 1, 0)),
    (None, "exit 0", (0, 1, 0)),
    ("1..0\n", "exit 0", (0, 1, 0)),
), ids=("good", "bad", "status", "no status", "too few", "crash", "mute", "empty"))
def test_check_program(rundir, tap, script, expected):
    log = rundir / "tap"
    if tap is not None:
        log.write_text(tap)
    status = runner.run(["sh", "-c", script], rundir / "output", 10, show=False)
    assert counts(runner.read_tap("unit", "test_x", log, status)) == expected


def test_program_that_hangs_is_killed_with_its_children(rundir):
    status = runner.run(["sh", "-c", "echo $$; sleep 60 & wait"], rundir / "output", 0.5, show=False)
    assert status is None
    session = int((rundir / "output").read_text())
    procs.wait_for(lambda: not procs.session_members({session}), what="the end of the session")


CASES = ('<testcase classname="f" name="a"/>'
         '<testcase classname="f" name="b"><skipped message="why"/></testcase>')
TORN_DOWN = '<testcase classname="f" name="a"><error message="left behind"/></testcase>'


@pytest.mark.parametrize("xml, status, expected", (
    (f"<testsuite>{CASES}</testsuite>", 0, (1, 0, 1)),
    (f"<testsuite>{CASES}{TORN_DOWN}</testsuite>", 1, (0, 1, 1)),
    (f"<testsuite>{CASES}</testsuite>", -9, (1, 1, 1)),
    (f"<testsuite>{CASES}</testsuite>", None, (1, 1, 1)),
    (f"<testsuite>{CASES}", 0, (0, 1, 0)),
    (None, 5, (0, 1, 0)),
), ids=("good", "teardown", "killed", "late", "cut", "none"))
def test_pytest_run(rundir, xml, status, expected):
    junit = rundir / "junit.xml"
    if xml is not None:
        junit.write_text(xml)
    assert counts(runner.pytest_results("integration", junit, status)) == expected


def test_what_ran_in_the_vm_was_not_skipped():
    skipped = runner.Result("integration", "f.a", runner.SKIPPED, "no dummy links")
    kept = runner.Result("integration", "f.b", runner.SKIPPED, "no dummy links")
    ran = runner.Result("vm", "f.a", runner.PASSED)
    assert runner.without_made_up_for([skipped, kept, ran]) == [kept, ran]
