# SPDX-License-Identifier: Apache-2.0
"""What is written about the programs, held against the programs: manual pages against --help and the
tables of fields, the rooms' signs against the sources."""
import re
import subprocess

import pytest

from procs import ROOT

PAGES = {"statctl": 1, "statd": 8, "draplugind": 8, "nrihookd": 8, "netnsd": 8, "dmgr-dummy": 8, "dmgr-sriov": 8}
ROOMS = sorted(path.parent for path in ROOT.glob("*/main.c"))


def page(name):
    """A manual page's source without the escapes."""
    return (ROOT / f"man/{name}.scd").read_text().replace("\\", "")


def section(text, heading):
    return re.search(rf"^# {heading}\n(.*?)(?=^# |\Z)", text, re.MULTILINE | re.DOTALL)[1]


def help_of(builddir, program):
    return subprocess.run([builddir / program, "--help"], capture_output=True, text=True, check=True).stdout


def options_of(text):
    """--help's options: name -> (letter, placeholder, description)."""
    found = {}
    pattern = r"^  (?:-(\w), |    )--([\w-]+)(?:=(\S+))?((?:.*\n)(?: {8,}\S.*\n)*)"
    for letter, name, arg, doc in re.findall(pattern, text, re.MULTILINE):
        found[name] = (letter, arg, " ".join(doc.split()))
    return found


def test_every_program_has_a_page():
    assert {room.name for room in ROOMS} == set(PAGES)


@pytest.mark.parametrize("program", PAGES)
def test_options(builddir, program):
    text = section(page(f"{program}.{PAGES[program]}"), "OPTIONS")
    options = options_of(help_of(builddir, program))
    assert {"help", "version"} < set(options)
    assert set(re.findall(r"\*--([\w-]+)\*", "\n".join(re.findall(r"^\*.*", text, re.MULTILINE)))) == set(options)
    for name, (letter, arg, doc) in options.items():
        head = re.search(rf"^\*.*--{name}\*.*\n((?:\t.*\n|\n(?=\t))*)", text, re.MULTILINE)
        placeholder = head[0].split("\n")[0].split(f"*--{name}*")[1].split(",")[0].replace("_", "")
        assert placeholder == (f"={arg}" if arg else ""), name
        if letter:
            assert head[0].startswith(f"*-{letter}*, "), name
        default = re.search(r"\(default: (.*)\)$", doc)
        if default:
            body = " ".join(head[1].split())
            assert re.search(rf"default is [_*]?{re.escape(default[1])}[_*]?\.|{re.escape(default[1])}\* \(the default\)",
                             body), f"--{name}: {default[1]}"


def test_commands(builddir):
    text = help_of(builddir, "statctl").split("Commands:\n")[1]
    commands = re.findall(r"^  (\w+(?: \[\w+\])?)  +", text, re.MULTILINE)
    documented = re.findall(r"^\*(\w+)\*( \[_\w+_\])?$", section(page("statctl.1"), "COMMANDS"), re.MULTILINE)
    assert [name + operand.replace("_", "") for name, operand in documented] == commands


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "man").glob("*.scd"))])
def test_references(name):
    """Pages of ours that a page refers to are there, and it refers to none that are not."""
    ours = {f"{program}({number})" for program, number in PAGES.items()} | {"netclaim(5)", "netclaim(7)"}
    for program, number in re.findall(r"\*([\w-]+)\*\((\d)\)", page(name)):
        if program in PAGES or program == "netclaim":
            assert f"{program}({number})" in ours
    written = page(name).split("\n")[0]
    assert written == re.sub(r"\.(\d)$", r"(\1)", name)


def fields_in(path, *arrays):
    source = (ROOT / path).read_text()
    for array in arrays:
        start = source.index(f"{array}")
        yield from re.findall(r'"(\w+)", REC_|\w+, "(\w+)", check_', source[start:source.index("\n};", start)])


def test_fields():
    text = page("netclaim.5").replace("_", " ")
    fields = list(fields_in("statd/config.c", "dummy_config_fields[]", "sriov_iface_fields[]", "sriov_config_fields[]",
                            "rxqueue_iface_fields[]", "rxqueue_config_fields[]", "manager_configs_fields[]",
                            "spec_fields[]", "metadata_fields[]"))
    fields += fields_in("statd/pool.c", "pool_filter_fields[N_FIELDS]", "pool_fields[]")
    fields += fields_in("common/api.c", "device_config_fields)")
    fields += fields_in("statd/claim.c", "metadata_fields[]", "result_fields[]", "opaque_fields[]", "config_fields[]",
                        "device_status_fields[]", "data_fields[]")
    names = {first or second for first, second in fields}
    assert len(names) > 40
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


def test_example_configuration(builddir, rundir):
    """The page's example is one that statd takes: it ends only because the claims' directory is missing."""
    example = re.findall(r"```\n(.*?)```", section(page("netclaim.5"), "CONFIGURATION"), re.DOTALL)[0]
    readme = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    for text in example, readme:
        (rundir / "node.yaml").write_text(text)
        done = subprocess.run([builddir / "statd", "--config", rundir / "node.yaml", "--claims-dir", rundir / "none",
                               "--runtime-dir", rundir, "--user", "64700:64700"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"cannot start: claims directory {rundir}/none: No such file or directory" in done.stderr


# --- signs


def sign(room):
    return (room / "README.md").read_text()


@pytest.mark.parametrize("room", [*ROOMS, ROOT / "common"], ids=lambda room: room.name)
def test_sign_names_every_file(room):
    text = sign(room)
    files = {path for path in room.glob("*.c") if path.name != "main.c"}
    assert files
    form = "{0.stem}" if room.name == "common" else "{0.name}"
    named = {path for path in files if f"`{form.format(path)}`" in text}
    assert {path.name for path in files - named} == set()


@pytest.mark.parametrize("room", [room for room in ROOMS if (room / "sandbox.c").exists()], ids=lambda room: room.name)
def test_sign_tells_privileges(room):
    source = (room / "sandbox.c").read_text()
    row = dict(re.findall(r"^\| ([\w ]+) \| (.*) \|$", sign(room), re.MULTILINE))
    caps = re.search(r"int caps\[\] = \{(.*?)\}", source)
    told = set(re.findall(r"CAP_\w+", row["capabilities"].split(";")[0]))
    assert told == set(re.findall(r"CAP_\w+", caps[1]) if caps else ())
    assert caps or row["capabilities"].startswith("none")
    assert ("own_user = true" in source) == ("own" in row["runs as"])
    max_fds = re.search(r"(?:\.max_fds =|define MAX_FDS) (\d+)", source)[1]
    assert re.search(rf"\b{max_fds}\b", row["descriptors"])


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_sign_tells_methods(room):
    names = dict(re.findall(r'\[(API_\w+)\] = \{"([a-z.]+)"', (ROOT / "common/api.c").read_text()))
    used = {name for path in room.glob("*.c") for name in re.findall(r"\bAPI_\w+\b", path.read_text())}
    methods = {names[name] for name in used if name in names}
    assert {method for method in methods if f"`{method}`" not in sign(room)} == set()


def test_links():
    for readme in ROOT.glob("**/README.md"):
        if "build" in readme.relative_to(ROOT).parts:
            continue
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", readme.read_text()):
            assert (readme.parent / target).exists(), f"{readme}: {target}"


def test_top_lists_every_room():
    text = (ROOT / "README.md").read_text()
    for room in [*ROOMS, ROOT / "common", ROOT / "tests"]:
        assert f"[{room.name}/]({room.name}/README.md)" in text


def test_news_is_of_this_version():
    """What is not released yet may stand above it."""
    version = (ROOT / "VERSION").read_text().strip()
    headings = re.findall(r"^## (.*)$", (ROOT / "NEWS.md").read_text(), re.MULTILINE)
    if headings[0].endswith(" (not released)"):
        assert headings.pop(0) != f"{version} (not released)"
    assert headings[0] == version
