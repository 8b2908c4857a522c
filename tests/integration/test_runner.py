# SPDX-License-Identifier: Apache-2.0
"""tests/run: whatever a suite's program does, what it says and how it ends are both counted."""
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import threading

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
    status = runner.run(["sh", "-c", script], rundir / "output", 10, shown=False)
    assert counts(runner.read_tap("unit", "test_x", log, status)) == expected


def test_program_that_hangs_is_killed_with_its_children(rundir):
    status = runner.run(["sh", "-c", "echo $$; sleep 60 & wait"], rundir / "output", 0.5, shown=False)
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


def test_suites_beside_others_are_shown_in_one_piece(monkeypatch, capfd):
    """They all count, and one that breaks off is a failure and not the end of the others."""
    halfway = threading.Event()

    def beside(suite, _build):
        runner.say("first word")
        halfway.set()
        assert main_runs.wait(30)
        runner.say("last word")
        return [runner.Result(suite, "b", runner.PASSED)]

    def broken(_suite, _build):
        raise OSError("no such thing")

    def main(suite, _build):
        assert halfway.wait(30)
        runner.say("in between")
        main_runs.set()
        return [runner.Result(suite, "a", runner.PASSED)]
    main_runs = threading.Event()
    monkeypatch.setattr(runner, "SUITES", {name: [(name, function, runner.BUILD)] for name, function in
                                           (("main", main), ("vm", beside), ("cluster", broken))})
    results = runner.run_all()
    assert [(r.suite, r.outcome) for r in results] == [
        ("main", runner.PASSED), ("vm", runner.PASSED), ("cluster", runner.FAILED)]
    said = capfd.readouterr().out
    assert said.index("in between") < said.index("first word\nlast word\n") < said.index("OSError: no such thing")


def test_that_waits_for_ever_fails_alone(rundir):
    (rundir / "test_it.py").write_text("import threading\n"
                                       "def test_waits(): threading.Event().wait()\n"
                                       "def test_next(): pass\n")
    tests = procs.ROOT / "tests"
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "pytest", "-c", "/dev/null", "-p", "no:cacheprovider", "-p", "conftest", rundir],
        env={"PYTHONPATH": f"{tests}:{tests}/integration", "NETCLAIM_TEST_SECONDS": "1", "PATH": "/usr/bin:/usr/sbin",
             "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False, timeout=60)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "the test took more than 1 s" in done.stdout and "threading.Event().wait()" in done.stdout


def test_what_ran_in_the_vm_was_not_skipped():
    skipped = runner.Result("integration", "f.a", runner.SKIPPED, "no dummy links")
    kept = runner.Result("integration", "f.b", runner.SKIPPED, "no dummy links")
    ran = runner.Result("vm", "f.a", runner.PASSED)
    assert runner.without_made_up_for([skipped, kept, ran]) == [kept, ran]


# --- the VM's arguments, with another QEMU

QEMU = """#!/bin/sh
for arg in "$@"; do
	case $arg in path=*|*,path=*) job=${arg#*path=}; job=${job%%,*} ;; esac
	case $arg in *NETCLAIM_VM=1*) kernel=$arg ;; esac
done
echo "$kernel"
echo 0 >"$job/rc"
"""


def shown(directory, project, **environment):
    """What the VM is asked to show of the host's hidden directories, for a project that is there."""
    for name in ("vm/vmrun.sh", "debian.sh"):
        copy = project / "tests" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((procs.ROOT / "tests" / name).read_bytes())
    qemu = directory / "bin/qemu-system-x86_64"
    qemu.parent.mkdir()
    qemu.write_text(QEMU)
    qemu.chmod(0o755)
    done = subprocess.run(
        ["bash", project / "tests/vm/vmrun.sh", "-k", "kernel", "-i", "initrd-1.cpio", "/dev/null"],
        capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": f"{qemu.parent}:/usr/bin:/bin:/usr/sbin:/sbin", "NETCLAIM_CACHE": "/var/cache/netclaim", **environment})
    return done.returncode, re.findall(r"NETCLAIM_SHOWN=(\S*)", done.stdout), done.stderr


def test_vm_shows_what_it_would_hide(rundir):
    project = rundir / "x"
    status, found, text = shown(rundir, project, NETCLAIM_CACHE="/run/cache", NETCLAIM_BUILD="/tmp/of-another")
    assert (status, found) == (0, [f"{project}:/run/cache:/tmp/of-another"]), text


def test_vm_shows_a_directory_once(rundir):
    project = rundir / "x"
    status, found, text = shown(rundir, project, NETCLAIM_CACHE=f"{project}/cache", NETCLAIM_BUILD="build/asan")
    assert (status, found) == (0, [str(project)]), text


def test_vm_cannot_show_every_name(rundir):
    status, _, text = shown(rundir, rundir / "a b")
    assert status == 125 and f"{rundir}/a b" in text
