# SPDX-License-Identifier: Apache-2.0
"""The helper that all other tests stand on: what it must notice, it notices."""
import pathlib

import pytest

import procs as procs_module


@pytest.fixture
def processes(rundir):
    return procs_module.Processes(rundir)


def shell(processes, script, **options):
    return processes.start("/bin/sh", "-c", script, **options)


def test_log_is_waited_for(processes):
    process = shell(processes, "echo first >&2; echo 'second 42' >&2; trap 'exit 0' TERM; while :; do sleep 1; done")
    assert process.wait_log(r"^second (\d+)$")[1] == "42"
    processes.finish()
    assert process.status == 0


def test_log_of_an_ended_process_is_not_waited_for(processes):
    process = shell(processes, "exit 3")
    with pytest.raises(AssertionError, match="ended with status 3 before it logged 'never'"):
        process.wait_log("never", timeout=60)
    assert process.wait_exit() == 3
    processes.finish()


def test_status_on_sigterm_counts(processes):
    shell(processes, "exec sleep 60")
    with pytest.raises(AssertionError, match="sh ended with status -15 on SIGTERM"):
        processes.finish()


def test_end_that_nobody_asked_for_counts(processes):
    process = shell(processes, "exit 0")
    process.popen.wait()
    with pytest.raises(AssertionError, match="sh ended by itself with status 0"):
        processes.finish()


def test_child_left_behind_counts(processes):
    process = shell(processes, "sleep 60 & exit 0")
    assert process.wait_exit() == 0
    with pytest.raises(AssertionError, match="left behind: .*sleep"):
        processes.finish()
    procs_module.wait_for(lambda: not procs_module.session_members({process.session}), what="its end")


def test_crash_is_no_failure(processes):
    process = shell(processes, "exec sleep 60")
    process.kill()
    assert process.status == -9
    processes.finish()


@pytest.mark.needs_root
def test_wrapper_is_not_taken_for_its_program(processes, monkeypatch):
    """Its command line may still be that of who started it."""
    lines = iter([pathlib.Path("/proc/self/cmdline").read_bytes()])
    read = pathlib.Path.read_bytes
    monkeypatch.setattr(pathlib.Path, "read_bytes", lambda path: next(lines, None) or read(path))
    process = shell(processes, "exec sleep 60", via=["unshare", "--pid", "--fork"])
    assert [process.pid] == procs_module.children_of(process.popen.pid)
    process.kill()
    processes.finish()


@pytest.mark.needs_root
@pytest.mark.parametrize("via", ([], ["nsenter", "--pid=/proc/self/ns/pid", "--"]), ids=("alone", "nsenter"))
def test_program_that_was_stopped_is_seen_to_end(processes, via):
    """nsenter stops along with its program and must be made to go on as well."""
    process = shell(processes, "echo up >&2; exec sleep 60", via=via)
    process.wait_log("^up$")
    process.suspend()
    procs_module.wait_for(lambda: ") T " in pathlib.Path(f"/proc/{process.popen.pid}/stat").read_text(),
                          what="the stop of what was started")
    process.resume()
    process.kill()
    assert process.status == -9
    processes.finish()


@pytest.mark.needs_root
@pytest.mark.parametrize("via", (["unshare", "--net"], ["unshare", "--pid", "--fork"]), ids=("exec", "fork"))
def test_program_behind_a_wrapper_gets_the_signal(processes, via):
    process = shell(processes, "trap 'echo bye >&2; exit 0' TERM; echo up >&2; while :; do sleep 0.1; done", via=via)
    process.wait_log("^up$")
    processes.finish()
    assert "bye" in process.log
