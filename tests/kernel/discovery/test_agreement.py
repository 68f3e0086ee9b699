"""Discovery reports the same facts of live namespaces as iproute2, pyroute2 and ethtool."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

import pytest
from pyroute2 import NetNS

from netdra.discovery.live import Kernel
from netdra.discovery.scan import scan
from netdra.kernel import address, kinds, link, route
from netdra.kernel.route import Route
from netdra.model.inventory import Interface
from tests.kernel.conftest import Machine

TYPES = {"veth", "bridge", "macvlan", "vxlan", "tun", "loopback"}


@pytest.fixture
def busy(machine: Machine, other: Machine) -> Machine:
    """A namespace with every kind of link that this kernel makes: bridges with ports, macvlans, VXLAN, tun, tap."""
    sock = machine.sock
    link.create(sock, "br0", "bridge", kinds.bridge(stp_state=0, vlan_default_pvid=1), mtu=1400, up=True)
    link.create(sock, "br1", "bridge")
    for number in range(6):
        master = machine.index("br0") if number < 3 else None
        machine.veth(f"v{number}a", f"v{number}b", up=True, master=master, mac=f"02:00:00:00:01:{number:02x}")
        link.change(sock, f"v{number}b", up=number % 2 == 0)
    machine.veth("far", "away", peer_in=other.namespace)
    link.create(sock, "mv0", "macvlan", kinds.macvlan("bridge"), lower=machine.index("v5a"), up=True)
    link.create(sock, "mv1", "macvlan", kinds.macvlan("private"), lower=machine.index("v5a"))
    link.create(sock, "vx0", "vxlan", kinds.vxlan(42, lower=machine.index("v4a")))
    link.change(sock, "vx0", master=machine.index("br1"))
    machine.run("ip", "tuntap", "add", "tun0", "mode", "tun")
    machine.run("ip", "tuntap", "add", "tap0", "mode", "tap")
    link.add_alt_names(sock, machine.index("v3a"), ["uplink-of-the-lab", "second"])
    link.change(sock, "v3a", alias='to "the" spine')
    address.add(sock, machine.index("br0"), "10.1.2.3/24")
    address.add(sock, machine.index("br0"), "fd00::3/64")
    address.add(sock, machine.index("mv0"), "10.5.0.1/16")
    route.add(sock, Route(destination="0.0.0.0/0", gateway="10.1.2.1", index=machine.index("br0")))
    machine.at_rest()
    return machine


def scanned(machine: Machine) -> dict[str, Interface]:
    with machine.namespace.run(Kernel) as kernel:
        return {each.if_name: each for each in scan(kernel=kernel).interfaces}


def test_every_link_agrees_with_iproute2(busy: Machine) -> None:
    found, seen = scanned(busy), {each["ifname"]: each for each in busy.ip("link")}
    assert set(found) == set(seen)
    assert {each.type for each in found.values()} == TYPES
    for name, each in found.items():
        theirs: dict[str, Any] = seen[name]
        info = theirs.get("linkinfo", {})
        ours = (each.ifindex, each.mtu, each.oper_state, each.mac, each.alias, each.master, each.encapsulation)
        assert ours == (
            theirs["ifindex"],
            theirs["mtu"],
            theirs["operstate"].lower(),
            theirs.get("address", "") if theirs["link_type"] != "none" else "",
            theirs.get("ifalias", ""),
            theirs.get("master", ""),
            theirs["link_type"],
        )
        assert each.type == info.get("info_kind", "loopback")
        assert set(each.alt_names) == set(theirs.get("altnames", ()))
        assert each.vlan_filtering == bool(info.get("info_data", {}).get("vlan_filtering", 0))
        assert each.permanent_mac == theirs.get("permaddr", "")


def test_relations_agree_with_iproute2(busy: Machine) -> None:
    found, seen = scanned(busy), busy.ip("link")
    for name, each in found.items():
        ports = {other["ifname"] for other in seen if other.get("master") == name}
        lower = {
            other["link"]
            for other in seen
            if other["ifname"] == name and other.get("link") and other["linkinfo"]["info_kind"] != "veth"
        }
        vxlan = {
            other["linkinfo"]["info_data"].get("link")
            for other in seen
            if other["ifname"] == name and other.get("linkinfo", {}).get("info_kind") == "vxlan"
        }
        assert set(each.lower_devices) == ports | lower | vxlan
    for name, each in found.items():
        assert set(each.upper_devices) == {other for other in found if name in found[other].lower_devices}
    assert found["v5a"].upper_devices == ("mv0", "mv1")
    assert found["br0"].lower_devices == ("v0a", "v1a", "v2a")
    assert found["v0a"].master_bridge == "br0"
    assert found["far"].lower_devices == (), "the peer of a veth is not below it"


def test_addresses_agree_with_iproute2(busy: Machine) -> None:
    found = scanned(busy)
    for theirs in busy.ip("address"):
        listed = [
            (each["family"], f"{each['local']}/{each['prefixlen']}")
            for each in theirs["addr_info"]
            if not (each["family"] == "inet6" and each["scope"] == "link")
        ]
        ours = found[theirs["ifname"]]
        assert set(ours.ipv4) == {text for family, text in listed if family == "inet"}
        assert set(ours.ipv6) == {text for family, text in listed if family == "inet6"}


def test_every_link_agrees_with_pyroute2(busy: Machine) -> None:
    found = scanned(busy)
    with NetNS(busy.name) as theirs:
        links = list(theirs.get_links())
    names = {each["index"]: each.get_attr("IFLA_IFNAME") for each in links}
    assert set(names.values()) == set(found)
    for each in links:
        ours = found[each.get_attr("IFLA_IFNAME")]
        assert ours.ifindex == each["index"]
        assert ours.mtu == each.get_attr("IFLA_MTU")
        assert ours.mac == (each.get_attr("IFLA_ADDRESS") or "")
        assert ours.oper_state == each.get_attr("IFLA_OPERSTATE").lower()
        assert ours.alias == (each.get_attr("IFLA_IFALIAS") or "")
        assert ours.master == names.get(each.get_attr("IFLA_MASTER"), "")
        info = each.get_attr("IFLA_LINKINFO")
        assert ours.type == (info.get_attr("IFLA_INFO_KIND") if info else "loopback")


def test_speeds_agree_with_ethtool(busy: Machine) -> None:
    found = scanned(busy)
    told = {}
    for name in found:
        matched = re.search(r"Speed: (\d+)Mb/s", busy.run("ethtool", name))
        told[name] = int(matched.group(1)) if matched else 0
        if not link.get(busy.sock, name).is_up:  # what a driver says of a link that is down is no fact about it
            told[name] = 0
    assert {name: each.link_speed for name, each in found.items()} == told
    assert told["v0a"] == 10000


def test_the_default_route_and_all_below_and_above_are_uplinks(busy: Machine) -> None:
    link.create(busy.sock, "mv9", "macvlan", kinds.macvlan(), lower=busy.index("br0"))
    found = scanned(busy)
    assert {name for name, each in found.items() if each.host_uplink} == {"br0", "v0a", "v1a", "v2a", "mv9"}


def test_host_use_lists_bridge_ports_addresses_routes_and_parents(busy: Machine) -> None:
    found = {name: each.host_use for name, each in scanned(busy).items() if each.host_use}
    ports = {f"v{number}a": ("bridge-port br0",) for number in range(3)}
    assert found == ports | {
        "br0": ("address", "route"),
        "v5a": ("macvlan-parent",),
        "v4a": ("vxlan-parent",),
        "vx0": ("bridge-port br1",),
        "mv0": ("address",),
    }


def test_default_routes_of_other_tables_and_families_count(busy: Machine) -> None:
    address.add(busy.sock, busy.index("v3a"), "fd01::1/64")
    route.add(busy.sock, Route(destination="::/0", gateway="fd01::2", index=busy.index("v3a")))
    route.add(busy.sock, Route(destination="0.0.0.0/0", index=busy.index("mv0"), table=100))
    uplinks = {name for name, each in scanned(busy).items() if each.host_uplink}
    assert uplinks == {"br0", "v0a", "v1a", "v2a", "v3a", "mv0", "v5a"}


def test_bridges_are_linux_bridges_and_nothing_else_is_one(busy: Machine) -> None:
    found = scanned(busy)
    bridges = {name: (each.bridge_name, each.bridge_type) for name, each in found.items() if each.bridge_type}
    assert bridges == {"br0": ("br0", "linux"), "br1": ("br1", "linux")}


def test_this_machines_own_devices_agree_with_sysfs_and_ethtool() -> None:
    for each in scan().interfaces:
        device = f"/sys/class/net/{each.if_name}/device"
        assert bool(each.driver) == os.path.exists(f"{device}/driver")  # noqa: PTH110
        if each.driver:
            told = subprocess.run(("ethtool", "-i", each.if_name), capture_output=True, text=True, check=True).stdout
            assert f"driver: {each.driver}" in told
            assert f"bus-info: {each.pci_address}" in told or each.driver == "virtio_net"


def test_every_fact_of_an_ordinary_namespace_can_be_read(busy: Machine) -> None:
    assert {name: each.unreadable for name, each in scanned(busy).items() if each.unreadable} == {}
