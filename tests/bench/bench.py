#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures netclaim: what it costs to start, to prepare, attach, detach and unprepare, to hold
memory and to be idle, each beside what the bare kernel takes for the same. See README.md here."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "integration"))
sys.path.insert(0, str(HERE))

import measures  # noqa: E402
import node as node_module  # noqa: E402
from node import MAX_DEVICES  # noqa: E402
import procs as procs_module  # noqa: E402
from report import Report  # noqa: E402

VM_SECONDS = 3600
IN_NAMESPACE = "NETCLAIM_BENCH"  # set in the network namespace that is the node's


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, prog="bench.py")
    parser.add_argument("--only", metavar="A,B", default=",".join(measures.ALL),
                        help=f"of {','.join(measures.ALL)}; without leak unless --cycles is given")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="cold starts (20)")
    parser.add_argument("--reps", type=int, default=500, metavar="N", help="calls of each kind (500)")
    parser.add_argument("--many", type=int, default=1000, metavar="N",
                        help="devices and allocations of a full node (1000)")
    parser.add_argument("--burst", type=int, default=500, metavar="N",
                        help="claims prepared at once (500)")
    parser.add_argument("--claims", type=int, default=200, metavar="N",
                        help="claims with an API server, one every 0.7 s and back to back (200)")
    parser.add_argument("--starts", type=int, default=30, metavar="N",
                        help="starts with 1100 functions, with and without an API server (30)")
    parser.add_argument("--idle", type=float, default=10, metavar="S", help="seconds of idling (10)")
    parser.add_argument("--restores", type=int, default=5, metavar="N",
                        help="restarts of statd with an API server (5)")
    parser.add_argument("--cycles", type=int, metavar="N", const=1000, nargs="?",
                        help="also look for leaks over so many claims (1000)")
    parser.add_argument("--smoke", action="store_true", help="a few of each: does the bench work?")
    parser.add_argument("--dir", metavar="DIR", help="where claims, metadata and CDI files are")
    parser.add_argument("--json", metavar="FILE", help="write all figures there, too")
    parser.add_argument("--vm", action="store_true", help="in the test VM, whose kernel has dummy links")
    chosen = parser.parse_args()
    if chosen.smoke:
        chosen.runs, chosen.reps, chosen.many, chosen.burst, chosen.idle, chosen.cycles = 2, 5, 20, 10, 0.5, 40
        chosen.restores, chosen.claims, chosen.starts = 1, 3, 2
    chosen.only = chosen.only.split(",")
    for name in chosen.only:
        if name not in measures.ALL:
            parser.error(f"--only: {name} is none of {','.join(measures.ALL)}")
    if not 2 <= chosen.many < MAX_DEVICES or not 1 <= chosen.burst <= chosen.many:
        parser.error(f"--many is 2 to {MAX_DEVICES - 1}, and --burst no more than that")
    return chosen


def in_vm(chosen):
    """Runs the same there; returns the status."""
    passed = [word for word in sys.argv[1:] if word != "--vm"]
    with tempfile.TemporaryDirectory(prefix="netclaim-bench-") as job:
        if chosen.json:
            passed += ["--json", "/mnt/job/bench.json"]
        command = pathlib.Path(job) / "command"
        words = " ".join(f"'{word}'" for word in passed)
        command.write_text(f"cd '{procs_module.ROOT}' || exit\n"
                           f"exec env NETCLAIM_BUILD='{procs_module.BUILD}' tests/bench/bench.py {words}\n")
        status = subprocess.run([HERE.parent / "vm/vmtest.sh", command, "-j", job, "-t", str(VM_SECONDS)],
                                check=False).returncode
        if chosen.json and status == 0:
            shutil.copy(pathlib.Path(job) / "bench.json", chosen.json)
    return status


def main():
    chosen = arguments()
    if chosen.vm:
        return in_vm(chosen)
    if os.geteuid() != 0:
        sys.exit("bench.py: namespaces and links need root")
    if IN_NAMESPACE not in os.environ:
        # links of the node, mounts of namespaces: all of it ends with us
        os.execvpe("unshare", ["unshare", "--net", "--mount", "--", sys.executable, __file__, *sys.argv[1:]],
                   {**os.environ, IN_NAMESPACE: "1"})
    report = Report(node_module.machine(chosen.dir))
    for name in chosen.only:
        if name != "leak" or chosen.cycles:
            measures.ALL[name](report, chosen)
    if chosen.json:
        pathlib.Path(chosen.json).write_text(json.dumps(report.figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
