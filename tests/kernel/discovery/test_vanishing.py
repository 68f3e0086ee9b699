"""Interfaces that come and go while they are read cost nothing but themselves."""

from __future__ import annotations

import threading

from netdra.discovery import live
from netdra.discovery.scan import inventory
from netdra.kernel import ethtool, link
from netdra.kernel.netns import Namespace
from netdra.model.inventory import InventoryNode
from tests.kernel.conftest import Machine


def test_scanning_while_links_come_and_go(machine: Machine) -> None:
    for number in range(50):
        machine.veth(f"stays{number}", f"also{number}")
    ended = threading.Event()
    churned = 0

    def churn() -> None:
        nonlocal churned
        with machine.namespace.socket() as sock:
            other = Machine("", machine.namespace, sock)
            while not ended.is_set():
                other.veth("comes", "goes")
                link.delete(sock, "comes")
                churned += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        with machine.namespace.run(live.Kernel) as kernel:
            while churned < 30:
                found = {each.if_name for each in inventory(InventoryNode(name="n"), live.read(kernel)).interfaces}
                assert {f"stays{number}" for number in range(50)} <= found
    finally:
        ended.set()
        thread.join()


def test_a_link_that_goes_between_the_dump_and_its_details(machine: Machine) -> None:
    machine.veth("a", "b")
    with machine.namespace.run(live.Kernel) as kernel:
        facts = live.read(kernel)
        gone = facts.links[machine.index("a")]
        link.delete(machine.sock, "a")
        live.read_speed(kernel, facts, gone.index)
        live.read_device(kernel, facts, gone)
        assert gone.index not in facts.speeds
        assert gone.index not in facts.devices


def test_without_ethtool_netlink_only_link_speeds_are_unreadable(machine: Machine) -> None:
    machine.veth("a", "b")
    with machine.namespace.run(live.Kernel) as kernel:
        kernel.generic.families[ethtool.FAMILY] = 0x7FF  # a family that is not there
        result = inventory(InventoryNode(name="n"), live.read(kernel))
    a = next(each for each in result.interfaces if each.if_name == "a")
    assert (a.type, a.unreadable) == ("veth", ("link_speed",))
    assert list(result.unreadable.values()) == [3]
    assert next(iter(result.unreadable)).startswith("linkSpeed: ")


def test_a_namespace_with_nothing_has_a_loopback(machine: Machine) -> None:
    with Namespace.anonymous() as namespace, namespace.run(live.Kernel) as kernel:
        (lo,) = inventory(InventoryNode(name="n"), live.read(kernel)).interfaces
    assert (lo.if_name, lo.type, lo.encapsulation, lo.host_uplink) == ("lo", "loopback", "loopback", False)
