# SPDX-License-Identifier: Apache-2.0
"""The very dmgr-dummy, in a network namespace that is the host to it, led by a statd on
python3-msgpack."""
import os
import pathlib
import socket

import pytest

import managed
import mprpc
from nsfd import Netns

pytestmark = pytest.mark.needs_root

UID, UID2 = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
SANDBOX = "5a5a5a"
CAP_NET_ADMIN = 12


def state(name):
    return {"Name": name, "HWAddr": "", "MTU": 0, "Flags": 0}


def device(name="dummy0", **changes):
    return {"name": name, "ifName": name, "kernelIfName": name, "state": state(name),
            "attributes": {"ifName": {"string": name}, "kernelIfName": {"string": name}}, **changes}


def alloc(name="dummy0", uid=UID, **changes):
    return {"device": device(name), "claimUID": uid, **changes}


def without_number(prepared):
    """The inventory's device; a prepared one has the number of its link besides."""
    assert prepared["state"].pop("IfIndex") > 0
    return prepared


def attachment(name="dummy0", uid=UID, if_name="net1", **more):
    return {"allocation": alloc(name, uid), "ifName": if_name, "sandboxID": SANDBOX, **more}


class Statd(managed.Statd):
    def attach(self, pod, **kw):
        with socket.socket(fileno=pod.open_socket()) as sock:
            return self.call("device.attach", attachment(**kw), [pod.fd, sock.fileno()])

    def detach(self, pod, **kw):
        with socket.socket(fileno=pod.open_socket()) as sock:
            return self.call("device.detach", attachment(**kw), [pod.fd, sock.fileno()])


@pytest.fixture
def statd(rundir):
    s = Statd(rundir, {"enabled": True, "count": 3})
    s.start()
    yield s
    s.stop()


@pytest.fixture
def host():
    with Netns() as netns:
        yield netns


@pytest.fixture
def pod():
    with Netns() as netns:
        netns.ip("link add eth0 type veth peer name peer")
        yield netns


@pytest.fixture
def start(procs, rundir, host):
    def start_manager():
        return procs.start(*host.inside(procs.build / "dmgr-dummy", "--runtime-dir", rundir, "--log-level", "debug"),
                           name="dmgr-dummy")
    return start_manager


@pytest.fixture
def manager(statd, start):
    """One that serves."""
    process = start()
    statd.next_hello()
    assert statd.restore() == []
    statd.next_inventory()
    return process


# --- what every manager does

def test_it_greets_restores_and_publishes(statd, start):
    process = start()
    version = (pathlib.Path(__file__).parents[2] / "VERSION").read_text().strip()
    assert statd.next_hello() == {"type": "dummy", "version": version}
    gone = alloc("dummy7")  # no longer in the inventory, and yet somebody has it
    wrong = alloc("dummy1", device=device("dummy1", state=state("dummy2")))
    assert statd.inventories.empty()
    verdicts = statd.restore(alloc(), gone, wrong)
    assert verdicts[0]["device"] == device() and not verdicts[0].get("error")
    assert verdicts[1]["device"] == device("dummy7")
    assert not verdicts[2].get("device") and "state.Name is not 'dummy1'" in verdicts[2]["error"]
    assert statd.next_inventory() == [device("dummy0"), device("dummy1"), device("dummy2")]
    process.wait_log("serving 3 devices")


def test_no_devices_are_published_too(statd, start):
    statd.config = {"enabled": True}
    start()
    statd.next_hello()
    statd.restore()
    assert statd.next_inventory() == []


def test_a_request_that_nobody_waits_for_any_more_is_not_carried_out(statd, manager):
    peer = statd.server.wait_peer()
    with pytest.raises(mprpc.Error) as e:
        peer.call("device.audit", {"claimUIDs": []}, about=({"deadlineMs": 1},))
    assert e.value.code == "deadline" and "waited" in e.value.message
    for later in ({"deadlineMs": 1 << 60}, {"deadlineMs": -1}, {"deadlineMs": "soon"}, {"more": {}}):
        assert peer.call("device.audit", {"claimUIDs": []}, about=(later,)) == {}


@pytest.mark.parametrize("count,why", [
    (-1, "dummy device count must not be negative: -1"),
    (4097, "dummy device count must be at most 4096: 4097"),
    ("3", "count"),
])
def test_wrong_configuration_is_told_to_statd(statd, start, count, why):
    statd.config = {"count": count}
    start().wait_log("cannot serve")
    assert why in statd.refused("unavailable", "device.restore", {"allocations": []})
    assert why in statd.refused("unavailable", "device.setup", alloc())


def test_after_a_wrong_configuration_it_tries_again(statd, start):
    statd.config = {"count": -1}
    start()
    statd.next_hello()
    statd.config = {"count": 1}
    statd.next_hello()
    statd.restore()
    assert statd.next_inventory() == [device()]


def test_nothing_is_served_before_the_restore(statd, start):
    start()
    statd.next_hello()
    assert "device.restore come first" in statd.refused("unavailable", "device.free", alloc())


def test_statd_may_come_back(statd, manager):
    statd.stop()
    manager.wait_log("statd is gone")
    statd.config = {"count": 1}
    statd.start()
    statd.next_hello()
    statd.restore(alloc())
    assert statd.next_inventory() == [device()]


def test_privileges_are_those_of_the_table(manager):
    lines = pathlib.Path(f"/proc/{manager.pid}/status").read_text().splitlines()
    s = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert int(s["CapEff"], 16) == int(s["CapPrm"], 16) == 1 << CAP_NET_ADMIN
    assert int(s["CapInh"], 16) == int(s["CapAmb"], 16) == 0
    assert s["NoNewPrivs"] == "1"


def test_descriptors_are_checked(statd, manager, host, pod):
    with Netns() as other:
        sockets = {name: socket.socket(fileno=netns.open_socket())
                   for name, netns in (("pod", pod), ("other", other), ("host", host))}
        null = os.open("/dev/null", os.O_RDONLY)
        rtnl = {name: sock.fileno() for name, sock in sockets.items()}
        for fds, why in (
                ([null, rtnl["pod"]], "not a namespace"),
                ([host.fd, rtnl["host"]], "host's own"),
                ([pod.fd, null], "not a raw netlink socket"),
                ([pod.fd, rtnl["other"]], "another namespace"),
                ([pod.fd, rtnl["host"]], "another namespace")):
            for method in ("device.attach", "device.detach"):
                assert why in statd.refused("invalid", method, attachment(), fds)
        assert "host's own" in statd.refused("invalid", "device.check", {"names": ["net1"]}, [rtnl["host"]])
        os.close(null)
        for sock in sockets.values():
            sock.close()


# --- the dummy manager's own

def test_taken_names_are_a_collision(statd, manager, pod):
    pod.ip("link property add dev eth0 altname alt0")
    with socket.socket(fileno=pod.open_socket()) as sock:
        statd.call("device.check", {"names": ["net1", "net2"]}, [sock.fileno()])
        for name in ("eth0", "alt0"):
            assert statd.refused("conflict", "device.check", {"names": ["net1", name]}, [sock.fileno()]) == (
                f'interface name collision: "{name}" already exists in pod namespace (possibly from CNI)')


def test_only_its_own_devices_are_set_up(statd, manager, host):
    assert "not in the inventory" in statd.refused("not_found", "device.setup", alloc("dummy3"))
    assert "'eth0' is not a dummy device" in statd.refused("invalid", "device.recover", alloc("eth0"))
    assert "'eth0' is not a dummy device" in statd.refused("invalid", "device.free", alloc("eth0"))
    assert "'dummy01' is not a dummy device" in statd.refused("invalid", "device.free", alloc("dummy01"))


def test_vlan_is_refused_before_anything_is_touched(statd, manager, host):
    for vlan in (0, 7):
        assert statd.refused("invalid", "device.setup", alloc(config={"vlan": vlan})).startswith("vlan: ")
    assert "dummy0" not in host.links()


def test_missing_link_is_not_found(statd, manager, pod):
    with socket.socket(fileno=pod.open_socket()) as sock:
        statd.refused("not_found", "device.attach", attachment(), [pod.fd, sock.fileno()])
    assert statd.detach(pod) == {}
    assert statd.call("device.free", alloc()) == {}


@pytest.mark.parametrize("kind", ["bridge", "veth"])
def test_link_of_another_kind_is_never_touched(statd, manager, host, kind):
    host.ip(f"link add dummy0 type {kind}")
    host.run("ip", "link", "set", "dummy0", "alias", f"netclaim:{UID}:dummy0")
    before = host.links()["dummy0"]
    for method in ("device.setup", "device.recover"):
        assert f"the name 'dummy0' is taken by a link of kind '{kind}'" in statd.refused("conflict", method, alloc())
    assert statd.call("device.free", alloc()) == {}
    assert statd.call("device.reclaim", alloc()) == {"notFound": True}, "it says nothing of the claim's"
    assert statd.call("device.audit", {"claimUIDs": []}) == {}
    assert host.links()["dummy0"] == before


def test_alternative_name_of_another_link_is_a_conflict(statd, manager, host):
    host.ip("link add eth7 type veth peer name peer")
    host.ip("link property add dev eth7 altname dummy0")
    assert "alternative name of link 'eth7'" in statd.refused("conflict", "device.setup", alloc())
    assert statd.call("device.free", alloc()) == {}
    assert "eth7" in host.links()


@pytest.mark.needs_dummy
def test_a_claims_life(statd, manager, host, pod):
    assert without_number(statd.call("device.setup", alloc())["device"]) == device()
    link = host.links()["dummy0"]
    assert link["linkinfo"]["info_kind"] == "dummy" and link["ifalias"] == f"netclaim:{UID}:dummy0"
    assert statd.call("device.setup", alloc())["device"]["state"]["IfIndex"] == link["ifindex"], "a second time"
    assert host.links()["dummy0"]["ifindex"] == link["ifindex"]
    assert statd.attach(pod) == {"ifName": "net1", "wasThere": False}
    assert "UP" in pod.links()["net1"]["flags"] and "dummy0" not in host.links()
    assert statd.attach(pod) == {"ifName": "net1", "wasThere": True}
    statd.detach(pod)
    assert "net1" not in pod.links() and "dummy0" not in host.links()
    statd.detach(pod)
    statd.call("device.free", alloc())


@pytest.mark.needs_dummy
def test_it_dies_with_the_pod_and_is_recovered(statd, manager, host):
    statd.call("device.setup", alloc())
    with Netns() as pod:
        statd.attach(pod)
    with Netns() as pod:
        with socket.socket(fileno=pod.open_socket()) as sock:
            statd.refused("not_found", "device.attach", attachment(), [pod.fd, sock.fileno()])
        assert without_number(statd.call("device.recover", alloc())["device"]) == device()
        statd.attach(pod)
        assert "net1" in pod.links()


@pytest.mark.needs_dummy
def test_free_deletes_only_the_claims_own_link(statd, manager, host):
    statd.call("device.setup", alloc())
    statd.call("device.free", alloc(uid=UID2))
    assert "dummy0" in host.links()
    message = statd.refused("conflict", "device.setup", alloc(uid=UID2))
    assert UID in message and "belongs to another claim" in message
    statd.call("device.free", alloc())
    assert "dummy0" not in host.links()
    statd.call("device.setup", alloc(uid=UID2))


@pytest.mark.needs_dummy
def test_dummy_link_that_is_in_the_way_is_adopted(statd, manager, host):
    host.ip("link add dummy0 type dummy")
    before = host.links()
    statd.call("device.setup", alloc())
    assert host.links()["dummy0"]["ifindex"] == before["dummy0"]["ifindex"]


@pytest.mark.needs_dummy
@pytest.mark.parametrize("rename", [False, True])
@pytest.mark.parametrize("alias", ["mine", "netclaim:", ""])
def test_link_whose_mark_the_pod_has_overwritten_is_detached(statd, manager, host, pod, alias, rename):
    for _ in range(8):  # as on a host with more links than a pod: the number is free in the pod
        host.ip("link add other type dummy")
        host.ip("link del other")
    prepared = alloc(device=statd.call("device.setup", alloc())["device"])
    pod.ip("link add pods type dummy")
    with socket.socket(fileno=pod.open_socket()) as sock:
        params = {**attachment(), "allocation": prepared}
        statd.call("device.attach", params, [pod.fd, sock.fileno()])
        pod.run("ip", "link", "set", "net1", "alias", alias)
        if rename:
            pod.ip("link set net1 down name its")
        assert statd.call("device.detach", params, [pod.fd, sock.fileno()]) == {}
        assert set(pod.links()) == {"lo", "eth0", "peer", "pods"}
        assert statd.call("device.detach", params, [pod.fd, sock.fileno()]) == {}
    manager.wait_log("device is not in the sandbox any more")


@pytest.mark.needs_dummy
@pytest.mark.parametrize("rename", [False, True])
@pytest.mark.parametrize("alias", ["mine", "netclaim:", ""])
def test_link_whose_mark_the_pod_has_overwritten_is_still_there(statd, manager, host, pod, alias, rename):
    """After a restart of statd the pod's device is attached once more, and it has it already."""
    for _ in range(8):
        host.ip("link add other type dummy")
        host.ip("link del other")
    prepared = alloc(device=statd.call("device.setup", alloc())["device"])
    with socket.socket(fileno=pod.open_socket()) as sock:
        fds, params = [pod.fd, sock.fileno()], {**attachment(), "allocation": prepared}
        statd.call("device.attach", params, fds)
        pod.run("ip", "link", "set", "net1", "alias", alias)
        if rename:
            pod.ip("link set net1 down name its")
            pod.ip("link set its up")
        before = pod.links()
        statd.refused("not_found", "device.attach", params, fds)
        again = statd.call("device.attach", {**params, "mayBeThere": True}, fds)
        assert again == {"ifName": "its" if rename else "net1", "wasThere": True}
        after = pod.links()
        assert after.keys() == before.keys() and "dummy0" not in host.links()
        assert UID in after["its" if rename else "net1"]["ifalias"], "it has its mark again"


@pytest.mark.needs_dummy
def test_link_that_took_another_number_in_the_pod_is_known_by_its_name(statd, manager, host, pod):
    prepared = alloc(device=statd.call("device.setup", alloc())["device"])
    number = prepared["device"]["state"]["IfIndex"]
    assert number in [link["ifindex"] for link in pod.links().values()]
    with socket.socket(fileno=pod.open_socket()) as sock:
        params = {**attachment(), "allocation": prepared}
        statd.call("device.attach", params, [pod.fd, sock.fileno()])
        pod.run("ip", "link", "set", "net1", "alias", "mine")
        assert statd.call("device.detach", params, [pod.fd, sock.fileno()]) == {}
    assert set(pod.links()) == {"lo", "eth0", "peer"}


@pytest.mark.needs_dummy
def test_reclaim_of_a_link_that_ended_with_its_namespace(statd, manager, host):
    statd.call("device.setup", alloc())
    assert statd.call("device.reclaim", alloc()) == {} and "dummy0" in host.links()
    with Netns() as pod:
        statd.attach(pod)
    assert statd.call("device.reclaim", alloc()) == {"notFound": True}
    assert statd.call("device.free", alloc()) == {}


@pytest.mark.needs_dummy
def test_taken_name_in_the_pod_leaves_the_link_on_the_host(statd, manager, host, pod):
    statd.call("device.setup", alloc())
    with socket.socket(fileno=pod.open_socket()) as sock:
        statd.refused("conflict", "device.attach", attachment(if_name="eth0"), [pod.fd, sock.fileno()])
    assert "dummy0" in host.links() and set(pod.links()) == {"lo", "eth0", "peer"}
    statd.attach(pod)


@pytest.mark.needs_dummy
def test_link_is_kept_down_until_the_next_call(statd, manager, host, pod):
    statd.call("device.setup", alloc())
    for _ in range(2):
        assert statd.attach(pod, keepDown=True) == {"ifName": "net1", "wasThere": False}
        assert "UP" not in pod.links()["net1"]["flags"]
    assert statd.attach(pod) == {"ifName": "net1", "wasThere": False}
    assert "UP" in pod.links()["net1"]["flags"]
    assert statd.attach(pod, keepDown=True) == {"ifName": "net1", "wasThere": True}
    assert "UP" in pod.links()["net1"]["flags"]


def test_there_is_nothing_to_audit(statd, manager, host):
    host.ip("link add dummy0 type veth peer name peer")
    host.ip(f"link set dummy0 alias netclaim:{UID}:dummy0")
    assert statd.call("device.audit", {"claimUIDs": []}) == {}, "another kind of link is not its own"


@pytest.mark.needs_dummy
def test_audit_finds_what_no_claim_knows(statd, manager, host):
    statd.call("device.setup", alloc())
    statd.call("device.setup", alloc("dummy1", UID2))
    leftover, = statd.call("device.audit", {"claimUIDs": [UID]})["leftovers"]
    assert leftover == {"device": device("dummy1"), "claimUID": UID2}
    statd.call("device.free", leftover)
    assert "dummy1" not in host.links() and "dummy0" in host.links()
    assert statd.call("device.audit", {"claimUIDs": [UID]}) == {}


@pytest.mark.needs_dummy
def test_audit_deletes_what_a_crash_kept_from_being_marked(statd, manager, host):
    """It has the group that a link is made in; the mark takes it out."""
    statd.call("device.setup", alloc())
    made = host.links()["dummy0"]
    assert made.get("group", "default") == "default"
    host.ip("link add dummy1 group 1852009581 type dummy")
    host.ip("link add dummy2 type dummy")
    assert statd.call("device.audit", {"claimUIDs": [UID]}) == {}
    assert set(host.links()) == {"lo", "dummy0", "dummy2"}


@pytest.mark.needs_dummy
def test_killed_manager_goes_on_where_it_was(statd, manager, start, host, pod):
    statd.call("device.setup", alloc())
    statd.attach(pod)
    manager.kill()
    start()
    statd.next_hello()
    statd.hellos.queue.clear()
    assert statd.restore(alloc())[0]["device"] == device()
    statd.next_inventory()
    assert statd.attach(pod) == {"ifName": "net1", "wasThere": True}
    statd.detach(pod)
    assert "net1" not in pod.links()
