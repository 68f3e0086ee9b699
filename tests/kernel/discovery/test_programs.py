"""BPF programs on a link are a use by the host: XDP, and tcx, for which the kernel has no events."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from netdra.discovery import live
from netdra.discovery.scan import scan
from netdra.discovery.watch import Watcher
from netdra.kernel import link
from netdra.model.inventory import Inventory, InventoryNode
from tests import programs
from tests.kernel.conftest import Machine

NODE = InventoryNode(name="worker-1")


def scanned(machine: Machine) -> Inventory:
    with machine.namespace.run(live.Kernel) as kernel:
        return scan(NODE, kernel)


def used(inventory: Inventory) -> dict[str, tuple[str, ...]]:
    return {each.if_name: each.host_use for each in inventory.interfaces if each.host_use}


@pytest.fixture
def watcher(machine: Machine) -> Iterator[Watcher]:
    machine.veth("a", "b")
    with machine.namespace.run(lambda: Watcher(NODE, settle=0.0)) as opened:
        yield opened


@pytest.mark.parametrize("place", programs.PLACES)
def test_a_program_is_a_use_of_its_link_alone(machine: Machine, place: str) -> None:
    """Also when the calling thread is in another namespace, whose links have the same indexes."""
    machine.veth("a", "b")
    machine.namespace.run(lambda: programs.attach("a", place))
    assert used(scanned(machine)) == {"a": (place.partition(" ")[0],)}


def test_all_kinds_of_programs_are_named(machine: Machine) -> None:
    machine.veth("a", "b")
    for place in ("tcx egress", "tcx ingress", "xdp generic"):
        machine.namespace.run(lambda place=place: programs.attach("a", place))  # type: ignore[misc]
    assert used(scanned(machine)) == {"a": ("xdp", "tcx")}


def test_a_program_is_seen_when_all_is_read_again_and_whenever_its_link_changes(
    machine: Machine, watcher: Watcher
) -> None:
    machine.namespace.run(lambda: programs.attach("a", "tcx ingress"))
    assert used(watcher.inventory) == {}
    assert watcher.rescan()
    assert used(watcher.inventory) == {"a": ("tcx",)}
    machine.namespace.run(lambda: programs.attach("b", "tcx egress"))
    link.change(machine.sock, "b", mtu=1400)
    assert watcher.handle()
    assert used(watcher.inventory) == {"a": ("tcx",), "b": ("tcx",)}
    link.delete(machine.sock, "a")
    machine.veth("a", "b")
    watcher.handle()
    assert used(watcher.inventory) == used(scanned(machine)) == {}


def test_where_programs_cannot_be_read_the_use_by_the_host_is_unknown(machine: Machine) -> None:
    machine.veth("a", "b")
    inventory = programs.barred(lambda: scanned_here(machine), errno.EPERM)
    assert {each.if_name: each.unreadable for each in inventory.interfaces} == dict.fromkeys(
        ("a", "b", "lo"), ("host_use",)
    )
    assert inventory.unreadable == {"hostUse: EPERM": 3}


def test_for_a_user_without_rights_all_other_uses_stay_known(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.veth("a", "b")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    inventory = programs.barred(lambda: scanned_here(machine), errno.EPERM)
    assert inventory.unreadable == {}
    assert used(inventory) == {}


def scanned_here(machine: Machine) -> Inventory:
    with machine.entered(), live.Kernel() as kernel:
        return scan(NODE, kernel)
