"""The facts of links read without the kernel's lock equal those of rtnetlink."""

from __future__ import annotations

import pytest

from netdra.kernel import link, unlocked
from tests.kernel.conftest import Machine


def test_a_link_is_found_by_each_of_its_names(machine: Machine) -> None:
    machine.veth("a", "b")
    found = link.get(machine.sock, "a")
    link.add_alt_names(machine.sock, found.index, ["other", "longer-than-a-name-can-be"])
    for name in ("a", "other", "longer-than-a-name-can-be"):
        assert unlocked.index_of(machine.sock, name) == found.index
    assert unlocked.mac_of(machine.sock, "a") == found.address


@pytest.mark.parametrize("name", ["", "absent", "lo2", "a-name-that-is-longer-than-names-are"])
def test_a_missing_link_yields_index_zero_and_an_empty_mac(machine: Machine, name: str) -> None:
    assert unlocked.index_of(machine.sock, name) == 0
    assert unlocked.mac_of(machine.sock, name) == ""


def test_the_socket_is_as_it_was_afterwards(machine: Machine) -> None:
    machine.veth("a", "b")
    before = link.dump(machine.sock)
    assert [unlocked.index_of(machine.sock, each.name) for each in before] == [each.index for each in before]
    assert [each.name for each in link.dump(machine.sock)] == [each.name for each in before]
