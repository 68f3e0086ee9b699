"""Steps with addresses of PodNetworks on the machine's kernel: bond, VLAN, VF, bridge and Open vSwitch.

The PodAddresses are those that the controller assigns; the driver puts them into the plan, and the chain runs it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from netdra.chain.check import check
from netdra.cni.plugins import PluginPath
from netdra.model.plan import Plan
from netdra.model.pod_address import AddressRoute, PodAddress
from netdra.topology.addresses import addressed, with_addresses
from testbed.recorder import Recorder
from tests.hardware.node import PF, ip, run
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step
from tests.unit.networks.builders import address, owner

NETWORK = {"ipam": {"type": "network"}}


def assigned(text: str, gateway: str = "", mtu: int | None = None, **routes: str) -> PodAddress:
    """An address with the settings of its network; each route by its router's name and destination."""
    made = address(text, owner())
    listed = tuple(AddressRoute(destination=destination, gateway=gateway) for destination in routes.values())
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, gateway=gateway, mtu=mtu, routes=listed)
    )


def prepared(written: Plan, **addresses: tuple[PodAddress, ...]) -> Plan:
    """A plan with the addresses of its steps."""
    (found,) = with_addresses([written], {key: addresses[key.step] for key, _, _ in addressed([written])}, {})
    return found


def routes(pod: Pod, family: str = "-4") -> dict[str, str]:
    """The routers of a pod's routes by destination."""
    found = json.loads(ip("-j", family, "route", "show", netns=pod.netns))
    return {entry["dst"]: entry["gateway"] for entry in found if "gateway" in entry}


def answer(pod: Pod, to: str) -> str:
    """The answer to a pod that connects to a closed port."""
    script = f"import os, socket; print(os.strerror(socket.socket({_FAMILY[':' in to]}).connect_ex(('{to}', 9))))"
    return run("ip", "netns", "exec", pod.netns, sys.executable, "-c", script).strip()


_FAMILY = {False: "socket.AF_INET", True: "socket.AF_INET6"}


def test_a_bond_and_a_vlan_on_it_have_addresses_of_two_networks(pfs: tuple[PF, ...], pod: Pod) -> None:
    before = node_state()
    links = [{"name": "{{ vf0.interfaceName }}"}, {"name": "{{ vf1.interfaceName }}"}]
    mode = {"mode": "active-backup", "miimon": 100}
    written = plan(
        step("vf0", "sriov", "net1", {}, device=allocated(pfs[0].vf(1), mtu=1500)),
        step("vf1", "sriov", "net2", {}, device=allocated(pfs[1].vf(1), mtu=1500)),
        step("bond", "bond", "bond0", {"name": "bond0", "links": links, **mode, **NETWORK}, after=["vf0", "vf1"]),
        step(
            "lan",
            "vlan",
            "lan100",
            {"id": 100, "name": "lan100", "master": "{{ bond.interfaceName }}", **NETWORK},
            after=["bond"],
        ),
    )
    pod.attach(
        prepared(
            written,
            bond=(assigned("10.77.0.5/24", gateway="10.77.0.1", far="10.99.0.0/16"),),
            lan=(assigned("10.78.0.5/24", mtu=1400), assigned("2001:db8:78::5/64", mtu=1400)),
        )
    )
    assert pod.addresses("bond0") == {"10.77.0.5/24"}
    assert pod.addresses("lan100") == {"10.78.0.5/24", "2001:db8:78::5/64"}
    assert (pod.link("lan100")["mtu"], pod.link("lan100")["linkinfo"]["info_data"]["id"]) == (1400, 100)
    assert routes(pod) == {"10.99.0.0/16": "10.77.0.1"}
    assert check(pod.netns, pod.settings).is_clean

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_vf_has_addresses_of_a_network(pfs: tuple[PF, ...], pod: Pod) -> None:
    before = node_state()
    written = plan(step("vf", "sriov", "net1", {"vlan": 7, **NETWORK}, device=allocated(pfs[0].vf(2), mtu=1500)))
    pod.attach(prepared(written, vf=(assigned("10.77.0.6/24"), assigned("2001:db8:77::6/64"))))
    assert pod.addresses("net1") == {"10.77.0.6/24", "2001:db8:77::6/64"}
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


_PLUG = r"""
host=o$(printf %s "$CNI_CONTAINERID-$CNI_IFNAME" | cksum | cut -d' ' -f1)
pod=$(basename "$CNI_NETNS")
ip link add "$host" type veth peer name "$CNI_IFNAME" netns "$pod"
ip link set "$host" up
ip -n "$pod" link set "$CNI_IFNAME" up
ovs-vsctl --timeout=5 add-port br-ovs "$host"
ips=
for address in $("$(dirname "$0")/static" <"$call/stdin" | grep -o '"address": *"[^"]*"' | cut -d'"' -f4); do
  ip -n "$pod" address add "$address" dev "$CNI_IFNAME" nodad
  ips="$ips${ips:+,}"'{"address": "'"$address"'", "interface": 1}'
done
echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'"$host"'"},
  {"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}], "ips": ['"$ips"']}'
"""
_UNPLUG = r"""
host=o$(printf %s "$CNI_CONTAINERID-$CNI_IFNAME" | cksum | cut -d' ' -f1)
ovs-vsctl --timeout=5 --if-exists del-port br-ovs "$host"
ip link delete "$host" 2>/dev/null
exit 0
"""


@pytest.fixture
def ovs(plugins: PluginPath, open_vswitch: None) -> Iterator[Recorder]:
    """A program of the type `ovs` that plugs pods into a real Open vSwitch, with addresses of its IPAM program."""
    run("ovs-vsctl", "add-br", "br-ovs")
    program = Recorder(Path(plugins.directories[0]), "ovs", versions=("0.3.1", "0.4.0", "1.0.0"))
    program.does("ADD", _PLUG)
    program.does("DEL", _UNPLUG)
    yield program
    program.path.unlink()
    shutil.rmtree(program.path.with_name(".ovs.recorded"))
    run("ovs-vsctl", "del-br", "br-ovs")


def test_pods_on_open_vswitch_reach_each_other_at_addresses_of_a_network(
    ovs: Recorder, new_pod: Callable[[], Pod]
) -> None:
    before, pods = node_state(), [new_pod(), new_pod()]
    for number, pod in enumerate(pods, 5):
        written = plan(step("lan", "ovs", "net1", {"bridge": "br-ovs", **NETWORK}))
        own = assigned(f"10.77.0.{number}/24"), assigned(f"2001:db8:77::{number}/64")
        pod.attach(prepared(written, lan=own))
        assert pod.addresses("net1") == {f"10.77.0.{number}/24", f"2001:db8:77::{number}/64"}
    assert ovs.calls("ADD")[-1].config["ipam"]["type"] == "static"
    assert len(run("ovs-vsctl", "list-ports", "br-ovs").split()) == 2
    assert answer(pods[0], "10.77.0.6") == answer(pods[1], "2001:db8:77::5") == os.strerror(errno.ECONNREFUSED)
    for pod in pods:
        assert pod.detach().is_clean
    assert run("ovs-vsctl", "list-ports", "br-ovs").split() == []
    assert_as_before(before, pods[0].settings)


@pytest.fixture
def bridge() -> Iterator[str]:
    """A bridge of the node with a MAC address of its own: otherwise each port may change it."""
    ip("link", "add", "br-pods", "address", "02:00:00:00:77:01", "type", "bridge")
    ip("link", "set", "br-pods", "up")
    yield "br-pods"
    ip("link", "delete", "br-pods")


def test_pods_on_a_bridge_reach_each_other_at_addresses_of_a_network(bridge: str, new_pod: Callable[[], Pod]) -> None:
    before, pods = node_state(), [new_pod(), new_pod()]
    for number, pod in enumerate(pods, 5):
        written = plan(step("lan", "bridge", "net1", {"bridge": bridge, **NETWORK}))
        own = assigned(f"10.77.0.{number}/24", mtu=1400), assigned(f"2001:db8:77::{number}/64", mtu=1400)
        pod.attach(prepared(written, lan=own))
        assert pod.addresses("net1") == {f"10.77.0.{number}/24", f"2001:db8:77::{number}/64"}
        assert pod.link("net1")["mtu"] == 1400
    assert answer(pods[0], "10.77.0.6") == answer(pods[1], "2001:db8:77::5") == os.strerror(errno.ECONNREFUSED)
    for pod in pods:
        assert check(pod.netns, pod.settings).is_clean
        assert pod.detach().is_clean
    assert_as_before(before, pods[0].settings)
