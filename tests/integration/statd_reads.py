# SPDX-License-Identifier: Apache-2.0
"""What statd understands of a configuration, as it tells its peers."""
import json
import subprocess

import mprpc
from house import STATD_USER, House

MANAGERS = ("dummy", "sr-iov", "rxQueue")


def _section(path, manager):
    """The manager's section with its defaults, None if it is not enabled."""
    peer = mprpc.connect(path, {"device.restore": lambda *_: {"verdicts": []},
                                "device.audit": lambda *_: {"leftovers": []}})
    try:
        return peer.call("manager.hello", {"type": manager, "version": "0"})["config"]
    except mprpc.Error as e:
        assert "not enabled" in e.message, e
        return None
    finally:
        peer.close()


def understood(procs, directory, configuration):
    """All that statd makes of a configuration that it accepts. directory is made for it."""
    directory.mkdir()
    directory.parent.chmod(0o755)  # for the user that statd becomes
    house = House(procs, directory, configuration)
    statd = house.start_statd()
    told = {manager: _section(house.runtime_dir / "manager.sock", manager) for manager in MANAGERS}
    front = mprpc.connect(house.runtime_dir / "front.sock")
    told["front"] = front.call("front.hello", {"role": "draplugind", "version": "0"})
    front.close()
    for key in ("ready", "stateDev", "stateIno"):  # of this start, not of the configuration
        del told["front"][key]
    told["pools"] = [{name: pool.get(name) for name in ("name", "filter")} for pool in house.query("pools")["pools"]]
    statd.stop()
    return told


def refusal(builddir, directory, configuration):
    """Its error for a configuration that it refuses."""
    directory.mkdir()
    path = directory / "netclaim.yaml"
    path.write_text(json.dumps(configuration))
    done = subprocess.run([builddir / "statd", "--config", path, "--claims-dir", directory, "--runtime-dir", directory,
                           "--user", STATD_USER], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr
