# SPDX-License-Identifier: Apache-2.0
"""The main job, once and in the open: starts the daemons, plays kubelet and container runtime for one
pod with one claim, shows what there is at each step, takes everything back and shows that nothing is
left. demo.py BUILD, as root."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BUILD = sys.argv[1]
os.environ["NETCLAIM_BUILD"] = BUILD
os.environ["PATH"] = "/usr/sbin:/sbin:" + os.environ.get("PATH", "/usr/bin:/bin")
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/integration"))
# pylint: disable=wrong-import-position
import fake_runtime
import house as h
import nri_wire
import procs as procs_module
from netns import Netns

POD_UID = "0d2f6c1e-8a43-4f7e-9a55-3f3c6f0a7b11"
BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")

CONFIG = """\
apiVersion: cilium.io/v2alpha1
kind: CiliumNetworkDriverNodeConfig
metadata:
  name: worker-node-1
spec:
  deviceManagerConfigs:
    dummy:
      enabled: true
      count: 3
  pools:
    - name: fast-net
      filter:
        deviceManagers:
          - dummy
"""


def say(text):
    print(f"\n{BOLD}=== {text}{PLAIN}", flush=True)


def show(*command):
    """Runs a command in the open."""
    print(f"$ {' '.join(map(str, command))}".replace(BUILD + "/", ""), flush=True)
    subprocess.run([str(c) for c in command], check=True)


def links():
    return sorted(link["ifname"] for link in json.loads(subprocess.check_output(["ip", "-j", "link"])))


def demo(procs, directory):
    house = h.House(procs, directory)
    house.config_path.write_text(CONFIG)

    def statctl(*args):
        show(pathlib.Path(BUILD) / "statctl", "--runtime-dir", house.runtime_dir, *args)

    before = links()
    say("1. The node's configuration, and five daemons that each hold only what they need")
    print(CONFIG)
    house.start_statd()
    house.start_netnsd()
    house.start_dummy()
    house.start_draplugind()
    runtime = fake_runtime.Runtime(str(directory / "nri.sock")).listen()
    house.start_nrihookd("--nri-socket", directory / "nri.sock")
    plugin = runtime.accept()
    plugin.synchronize([])
    kubelet = house.kubelet()
    kubelet.register()
    house.wait_peer("draplugind", "registered")
    house.wait_peer("nrihookd", "registered")
    statctl("status")
    statctl("devices")

    say("2. The scheduler gave dummy0 to the claim of a pod; the kubelet has it prepared")
    claim = h.Claim(house, "fast-claim", [h.result("dummy0")], pod_uid=POD_UID, config=[h.opaque(
        {"podIfName": "net1", "interfaceSysctlIPv4": {"arp_filter": "1"}}, ["net"])])
    entry = kubelet.prepare([claim.ref])[claim.uid]
    if "error" in entry:
        raise SystemExit(f"preparing failed: {entry['error']}")
    print(json.dumps(entry, indent=2))
    statctl("allocations")

    say("3. The container runtime starts the pod's sandbox: the interface is in its namespace")
    with Netns() as netns:
        sandbox = fake_runtime.pod("demo", netns=netns.path, uid=POD_UID, name="demo-pod")
        code, text = plugin.event(nri_wire.RUN, sandbox)
        if code:
            raise SystemExit(f"the sandbox was refused: {text}")
        show("ip", "-n", netns.name, "-d", "link", "show", "net1")
        show("ip", "netns", "exec", netns.name, "cat", "/proc/sys/net/ipv4/conf/net1/arp_filter")
        statctl("allocations")

        say("4. What the workload is told about it")
        spec, = house.cdi_dir.glob("*.json")
        mount, = json.loads(spec.read_text())["devices"][0]["containerEdits"]["mounts"]
        print(f"{mount['containerPath']} in the container is")
        show("cat", mount["hostPath"])

        say("5. The pod ends")
        plugin.event(nri_wire.STOP, sandbox)
        plugin.event(nri_wire.REMOVE, sandbox)
    error = kubelet.unprepare([claim.ref])[claim.uid].get("error")
    if error:
        raise SystemExit(f"unpreparing failed: {error}")
    statctl("allocations")
    kubelet.close()
    plugin.close()
    runtime.stop()
    left = {"links": sorted(set(links()) - set(before)), "rows": house.rows(),
            "files": [str(path) for path in house.files_left()]}
    procs.finish()
    print(f"left over: {left['links'] or 'no'} links, {left['rows'] or 'no'} rows, {left['files'] or 'no'} files, "
          "no processes")
    if any(left.values()):
        raise SystemExit("something was left")
    say("That was netclaim's main job. 'statctl --help' and the man pages say more.")


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="netclaim-demo-"))
    procs = procs_module.Processes(directory, pathlib.Path(BUILD))
    try:
        demo(procs, directory)
    except (AssertionError, OSError, subprocess.CalledProcessError, nri_wire.Violation) as e:
        for name, log in procs.logs():
            print(f"--- log of {name}\n{log}", file=sys.stderr)
        raise SystemExit(f"the demo failed: {e}") from e
    finally:
        for process in procs.all:
            if process.running():
                process.kill()
        shutil.rmtree(directory)


main()
