# SPDX-License-Identifier: Apache-2.0
"""Checks of the sources and of the built programs that run nothing of ours.

CHECKS is the table: a name, and a function that returns what is wrong, a text each.
"""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
JOBS = f"-j{os.cpu_count()}"
RELEASE = ROOT / "build/release"
CODE = {".c", ".h", ".proto", ".py", ".sh"}
WORDS = ("nd", "te")  # that codespell takes for misspelt
# calls that cannot be made safely
FORBIDDEN = {"gets", "strcpy", "strcat", "sprintf", "vsprintf", "strtok", "tmpnam", "mktemp", "system", "popen"}


def output_of_failed(*argv, env=None):
    """Runs a tool; its output as the one problem if it failed."""
    try:
        result = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.STDOUT, check=False, env={**os.environ, **(env or {})})
    except FileNotFoundError:
        return [f"{argv[0]} is missing: make test-deps"]
    return [] if result.returncode == 0 else [result.stdout.strip() or f"{argv[0]}: status {result.returncode}"]


def make(*goals):
    return output_of_failed("make", "-s", "-k", JOBS, *goals)


def sources():
    """All files of the project, as git knows them, new ones included."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def first_line(path):
    with open(path, "rb") as f:
        return f.readline(200).decode(errors="replace")


def rooms():
    return sorted(path.name for path in ROOT.iterdir() if path.name == "common" or (path / "main.c").exists())


def programs():
    return [room for room in rooms() if room != "common"]


def builds_with_gcc():
    return make("BUILD=release", "all", "units")


def builds_with_clang():
    return make("CC=clang", "O=build/clang", "all", "units")


def clang_tidy():
    return make("BUILD=release", "tidy")


def cppcheck():
    headers = [f"--include=/usr/include/{name}" for name in ("uthash.h", "utlist.h", "jansson.h")]
    return output_of_failed(
        "cppcheck", "-q", JOBS, "--std=c11", "--enable=warning,performance,portability", "--error-exitcode=1",
        "--suppressions-list=tests/cppcheck.suppress", "-D_GNU_SOURCE", '-DNETCLAIM_VERSION=""', "-I.",
        *headers, *rooms())


def shellcheck():
    scripts = [path for path in sources() if path.suffix == ".sh" or re.match(r"#!.*\b(ba|da)?sh$", first_line(path))]
    return output_of_failed("shellcheck", *map(str, scripts))


def codespell():
    prose = [str(path) for path in sources() if path.suffix != ".sum"]  # those are hashes of Go modules
    return output_of_failed("codespell", "--ignore-words-list", ",".join(WORDS), *prose)


def licence_lines():
    problems = []
    for path in sources():
        start = first_line(path)
        if path.suffix in CODE or start.startswith("#!") or path.name == "Makefile":
            with open(path, encoding="utf-8") as f:
                if not any("SPDX-License-Identifier: Apache-2.0" in f.readline() for _ in range(2)):
                    problems.append(f"{path.relative_to(ROOT)}: no SPDX line")
    return problems


def man_pages():
    problems = make("mans")
    pages = sorted((RELEASE / "man").glob("*.[1-8]"))
    problems += [f"{program} has no man page" for program in programs()
                 if program not in {page.stem for page in pages}]
    for complaint in output_of_failed("mandoc", "-T", "lint", "-W", "warning", *map(str, pages)):
        # scdoc sets a paragraph where none is needed
        problems += [line for line in complaint.splitlines() if "skipping paragraph macro" not in line]
    return problems


def hardening():
    problems = []
    for program in programs():
        path = RELEASE / program
        if not path.exists():
            problems.append(f"{program}: not built")
            continue
        said = subprocess.run(["readelf", "--wide", "-h", "-l", "-d", "--dyn-syms", path], check=True,
                              capture_output=True, text=True).stdout
        wanted = {
            "is not position independent": r"^ *Type: +DYN",
            "binds lazily (no BIND_NOW)": r"\(FLAGS.*\bNOW\b",
            "has no RELRO segment": r"^ *GNU_RELRO ",
            "has an executable stack": r"^ *GNU_STACK .* RW +0x",
        }
        problems += [f"{program} {what}" for what, pattern in wanted.items()
                     if not re.search(pattern, said, re.MULTILINE)]
        undefined = re.findall(r" UND (?:__)?(\w+?)(?:_chk)?@", said)
        problems += [f"{program} calls {name}" for name in sorted(FORBIDDEN.intersection(undefined))]
    return problems


CHECKS = (
    ("SPDX lines", licence_lines),
    ("codespell", codespell),
    ("shellcheck", shellcheck),
    ("gcc", builds_with_gcc),
    ("clang", builds_with_clang),
    ("hardening", hardening),
    ("man pages", man_pages),
    ("cppcheck", cppcheck),
    ("clang-tidy", clang_tidy),
)
