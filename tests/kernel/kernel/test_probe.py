"""Asking a wire for addresses, with real kernels at both ends of it."""

from __future__ import annotations

import ipaddress
import time
from contextlib import ExitStack

import pytest

from netdra.kernel import address, kinds, link, probe
from netdra.kernel.probe import WiredAddress
from testbed.waiting import until
from tests.kernel.conftest import Machine

TEXTS = ("10.6.0.5", "2001:db8:6::5")


@pytest.fixture
def wired(machine: Machine, other: Machine) -> tuple[Machine, Machine]:
    """Two machines on a wire, `a` and `b`."""
    machine.veth("a", "b", peer_in=other.namespace, up=True)
    link.change(other.sock, "b", up=True)
    machine.at_rest()
    return machine, other


def look(machine: Machine, *texts: str, on: str = "a", seconds: float = 0.3) -> dict[str, str]:
    """The addresses that others have, with their MACs."""
    wanted = [WiredAddress(on, ipaddress.ip_address(text)) for text in texts]
    with ExitStack() as closing:
        wires = machine.namespace.run(lambda: probe.open_wires(machine.sock, [on]))
        for wire in wires.values():
            closing.enter_context(wire)
        return {str(entry.address): mac for entry, mac in probe.probe(wires, wanted, seconds).items()}


def mac(machine: Machine, name: str) -> str:
    return link.get(machine.sock, name).address


@pytest.mark.parametrize("mine", [True, False], ids=["assigned here too", "not assigned here"])
def test_another_machine_that_has_an_address_is_found(wired: tuple[Machine, Machine], *, mine: bool) -> None:
    here, there = wired
    for text, length in zip(TEXTS, (24, 64), strict=True):
        address.add(there.sock, there.index("b"), f"{text}/{length}")
        if mine:
            address.add(here.sock, here.index("a"), f"{text}/{length}")
    assert look(here, *TEXTS, "10.6.0.6", "2001:db8:6::6") == dict.fromkeys(TEXTS, mac(there, "b"))


def test_a_silent_wire_takes_the_time_that_is_given_and_no_more(wired: tuple[Machine, Machine]) -> None:
    here, _ = wired
    for text, length in zip(TEXTS, (24, 64), strict=True):
        address.add(here.sock, here.index("a"), f"{text}/{length}")
    began = time.monotonic()
    assert look(here, *TEXTS, seconds=0.2) == {}
    assert 0.2 <= time.monotonic() - began < 1.0


def test_a_machine_that_asks_for_the_same_address_at_the_same_time_is_found(wired: tuple[Machine, Machine]) -> None:
    here, there = wired
    with ExitStack() as closing:
        mine = here.namespace.run(lambda: probe.open_wires(here.sock, ["a"]))
        others = there.namespace.run(lambda: probe.open_wires(there.sock, ["b"]))
        for wire in (*mine.values(), *others.values()):
            closing.enter_context(wire)
        for text in TEXTS:
            asked = ipaddress.ip_address(text)
            others["b"].send(asked.version, probe.question(others["b"].mac, asked))
        wanted = [WiredAddress("a", ipaddress.ip_address(text)) for text in TEXTS]
        found = probe.probe(mine, wanted, 0.3)
    assert {str(entry.address) for entry in found} == {*TEXTS}


def test_neighbours_learn_where_an_address_is_now(wired: tuple[Machine, Machine]) -> None:
    here, there = wired
    for text, length in (("10.6.0.9", 24), ("2001:db8:6::9", 64)):
        address.add(there.sock, there.index("b"), f"{text}/{length}")
    for text in TEXTS:
        there.run("ip", "neigh", "replace", text, "lladdr", "02:00:00:00:00:99", "dev", "b", "nud", "stale")
    with ExitStack() as closing:
        wires = here.namespace.run(lambda: probe.open_wires(here.sock, ["a"]))
        for wire in wires.values():
            closing.enter_context(wire)
        probe.announce(wires, [WiredAddress("a", ipaddress.ip_address(text)) for text in TEXTS])

    def known() -> dict[str, str]:
        listed = there.ip("neigh", "show", "dev", "b") or []
        return {each["dst"]: each.get("lladdr", "") for each in listed if each["dst"] in TEXTS}

    until(
        lambda: known() == dict.fromkeys(TEXTS, mac(here, "a")), "the neighbour to learn", detail=lambda: str(known())
    )


def test_shares_of_one_interface_find_each_other(machine: Machine, other: Machine) -> None:
    machine.veth("lower", "far", up=True)
    link.change(machine.sock, "far", up=True)
    for space, name in ((machine, "one"), (other, "two")):
        link.create(machine.sock, name, "macvlan", kinds.macvlan("bridge"), lower=machine.index("lower"))
        if space is other:
            link.change(machine.sock, name, netns_fd=other.namespace.fd)
        link.change(space.sock, name, up=True)
    address.add(other.sock, other.index("two"), "10.6.0.5/24")
    assert look(machine, "10.6.0.5", on="one") == {"10.6.0.5": mac(other, "two")}


def test_interfaces_without_neighbours_are_passed_over(machine: Machine) -> None:
    machine.veth("a", "b", up=True)
    link.change(machine.sock, "lo", up=True)
    machine.run("ip", "link", "set", "dev", "a", "arp", "off")
    wires = machine.namespace.run(lambda: probe.open_wires(machine.sock, ["a", "b", "lo", "none"]))
    assert wires == {}  # `b` is not set up
    wanted = [WiredAddress("a", ipaddress.ip_address("10.6.0.5"))]
    began = time.monotonic()
    assert probe.probe(wires, wanted, 5.0) == {}
    assert time.monotonic() - began < 1.0
