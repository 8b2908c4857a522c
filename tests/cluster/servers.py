#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The servers of Kubernetes that the tests of the cluster run: built from the Go modules that their
projects publish, one program a version, kept outside the source tree.

  servers.py list              the versions, newest first, and which of them are built
  servers.py build [VERSION]   build these, or all; those that are built already take no time
  servers.py path VERSION      where its program is
  servers.py add VERSION       make server/VERSION.mod and .sum

What was built is found again by the version and a hash of all that it was built from. Ends with 77
where the servers cannot be had: without a Go toolchain, or its modules.
"""
import argparse
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

SOURCES = pathlib.Path(__file__).resolve().parent / "server"
STATUS_SKIP = 77
SAY_SECONDS = 60
COLD_MINUTES = 5  # on two cores
KUBERNETES = "k8s.io/kubernetes"


class Unavailable(Exception):
    """The servers cannot be had here; why."""


def say(text):
    print(text, flush=True)


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("NETCLAIM_CACHE") or pathlib.Path(home) / "netclaim") / "cluster"


def number_of(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def versions():
    """All that can be built, newest first."""
    return sorted((path.stem for path in SOURCES.glob("v*.mod")), key=number_of, reverse=True)


def built_versions():
    return [version for version in versions() if binary(version).exists()]


def linker_flags(version):
    """Stripped, and with the version that the server tells to who asks it."""
    major, minor = number_of(version)[:2]
    told = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in told.items())])


def go_flags(version):
    return [f"-modfile={version}.mod", "-mod=readonly", "-trimpath", "-buildvcs=false", "-p=2"]


def directory_of(version):
    digest = hashlib.sha256("\n".join([*go_flags(version), linker_flags(version)]).encode())
    for path in (SOURCES / "main.go", SOURCES / f"{version}.mod", SOURCES / f"{version}.sum"):
        digest.update(path.read_bytes())
    return cache() / f"{version}-{digest.hexdigest()[:12]}"


def binary(version):
    return directory_of(version) / "servers"


# --- building -------------------------------------------------------------------------------------


def go_command():
    found = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if not found:
        raise Unavailable("there is no Go toolchain here: the servers of Kubernetes cannot be built")
    return found


def environment(**more):
    # without cgo no compiler of C is needed
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", **more}


def go(*arguments, **options):
    return subprocess.run([go_command(), *arguments], cwd=SOURCES, env=environment(), stdin=subprocess.DEVNULL,
                          text=True, check=False, **options)


def packages_of(version):
    """How many packages the program is made of; their modules are fetched for that."""
    listed = go("list", "-deps", *go_flags(version)[:2], ".", capture_output=True)
    if listed.returncode == 0:
        return listed.stdout.count("\n")
    why = listed.stderr.strip().splitlines() or [f"status {listed.returncode}"]
    # what is not what it was is never taken for what cannot be had
    if any(sign in listed.stderr for sign in ("checksum", "go.sum", "updates to go.mod")):
        of_it = "\n".join(why[:6])
        raise RuntimeError(f"the modules of Kubernetes {version} are not those in {version}.sum: {of_it}")
    raise Unavailable(f"the modules of Kubernetes {version} cannot be had: {why[-1]}")


def compile_to(version, path, total):
    """Runs the build and tells every minute how far it is. What it keeps on its way, several GB, is of
    use only if it is interrupted and started again."""
    started = time.monotonic()
    objects = path.parent / "go-build"
    # a compiler with memory to spare collects less garbage
    env = environment(GOCACHE=str(objects), GOGC="400")
    argv = [go_command(), "build", "-v", *go_flags(version), "-ldflags", linker_flags(version), "-o", str(path), "."]
    with subprocess.Popen(argv, cwd=SOURCES, env=env, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as process:
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reader.start()
        while True:
            reader.join(SAY_SECONDS)
            if not reader.is_alive():
                break
            say(f"  {version}: {len(lines)} of {total} packages, {(time.monotonic() - started) / 60:.0f} min")
    if process.returncode != 0:
        raise RuntimeError(f"Kubernetes {version} does not build:\n{''.join(lines[-40:])}")
    shutil.rmtree(objects)


def build(version):
    """Builds the program of this version if it is not there; returns its path."""
    path = binary(version)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # somebody else may be at it
        if path.exists():
            return path
        started = time.monotonic()
        go_command()
        say(f"building the servers of Kubernetes {version}, about {COLD_MINUTES} minutes the first time")
        total = packages_of(version)
        fresh = path.with_suffix(".new")
        compile_to(version, fresh, total)
        fresh.rename(path)
        say(f"built the servers of Kubernetes {version} in {time.monotonic() - started:.0f} s")
    return path


# --- a new version --------------------------------------------------------------------------------


def add(version):
    """Kubernetes' own go.mod takes the modules that it is made of from folders of its tree; who
    builds it as a module must say where else they are."""
    if go("mod", "download", f"{KUBERNETES}@{version}").returncode != 0:
        raise Unavailable(f"Kubernetes {version} cannot be had")
    modules = pathlib.Path(go("env", "GOMODCACHE", capture_output=True).stdout.strip())
    theirs = (modules / "cache/download" / KUBERNETES / f"@v/{version}.mod").read_text(encoding="utf-8")
    of_staging = re.findall(r"^\t(\S+) => \./staging/", theirs, re.MULTILINE)
    staged = "v0." + version.split(".", 1)[1]
    ours = [re.search(r"^module .*", (SOURCES / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)[0],
            re.search(r"^go .*", theirs, re.MULTILINE)[0],
            re.search(r"^godebug .*", theirs, re.MULTILINE)[0],
            f"require {KUBERNETES} {version}",
            "\n".join(["replace (", *(f"\t{name} => {name} {staged}" for name in of_staging), ")"])]
    (SOURCES / f"{version}.mod").write_text("\n\n".join(ours) + "\n", encoding="utf-8")
    if go("mod", "tidy", f"-modfile={version}.mod").returncode != 0:
        raise RuntimeError(f"{version}.mod cannot be completed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    commands.add_parser("build").add_argument("versions", nargs="*", metavar="VERSION")
    commands.add_parser("path").add_argument("version", choices=versions())
    commands.add_parser("add").add_argument("version")
    arguments = parser.parse_args()
    for version in getattr(arguments, "versions", ()):
        if version not in versions():
            parser.error(f"there is no Kubernetes {version} here, but {', '.join(versions())}")
    try:
        if arguments.command == "list":
            for version in versions():
                say(f"{version} {'built' if binary(version).exists() else 'not built'}")
        elif arguments.command == "path":
            say(binary(arguments.version))
        elif arguments.command == "add":
            add(arguments.version)
        else:
            for version in arguments.versions or versions():
                build(version)
    except Unavailable as e:
        say(str(e))
        sys.exit(STATUS_SKIP)
    except RuntimeError as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
