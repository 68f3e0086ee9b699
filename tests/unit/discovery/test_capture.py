"""A capture states all that the inventory states, and an anonymous one no private data."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec
import pytest

from netdra.discovery.capture import anonymize, to_text
from netdra.discovery.scan import scan_recorded
from netdra.model.inventory import Interface, Inventory, InventoryNode
from tests.builders import read_inventory
from tests.trees import sriov_machine


@pytest.fixture
def inventory() -> Inventory:
    return Inventory(
        node=InventoryNode(name="db7.corp.example", labels={"kubernetes.io/hostname": "db7.corp.example", "zone": "b"}),
        interfaces=(
            Interface(
                if_name="enx3cecef112233",
                mac="3c:ec:ef:11:22:33",
                permanent_mac="3c:ec:ef:11:22:33",
                pci_address="0000:03:00.0",
                alias="rack 12, port 7",
                ipv4=("172.20.5.9/22", "172.20.5.10/22"),
                ipv6=("2a02:db8:5::9/64",),
                upper_devices=("br0",),
                master="br0",
                master_bridge="br0",
            ),
            Interface(
                if_name="br0",
                type="bridge",
                mac="3c:ec:ef:11:22:33",
                lower_devices=("enx3cecef112233",),
                alt_names=("lan-3cecef112233",),
                alias="rack 12, port 7",
                ipv4=("172.20.5.9/22",),
            ),
            Interface(if_name="ib0", mac="80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:f9:bf:a1"),
            Interface(if_name="lo", type="loopback", mac="00:00:00:00:00:00", ipv4=("127.0.0.1/8",), ipv6=("::1/128",)),
        ),
    )


def test_a_capture_is_read_back_as_it_was(tmp_path: Path) -> None:
    inventory = scan_recorded(str(sriov_machine(tmp_path)), InventoryNode(name="worker-1", labels={"a": "b"}))
    assert read_inventory(to_text(inventory)) == inventory


def test_nothing_of_ones_own_is_left(inventory: Inventory) -> None:
    text = to_text(anonymize(inventory))
    for secret in ("3c:ec:ef", "3cecef", "c9:03:00:f9", "172.20", "2a02:db8:5", "rack", "corp", "db7"):
        assert secret in to_text(inventory)
        assert secret not in text


def test_anonymizing_keeps_equal_values_equal_and_different_values_different(inventory: Inventory) -> None:
    nic, bridge, infiniband, loopback = anonymize(inventory).interfaces
    assert nic.mac == nic.permanent_mac == bridge.mac
    assert nic.alias == bridge.alias
    assert nic.ipv4[0] == bridge.ipv4[0]
    assert nic.ipv4[0] != nic.ipv4[1]
    assert len(infiniband.mac) == 59
    assert loopback == inventory.interfaces[3]


def test_names_relations_and_pci_addresses_are_kept(inventory: Inventory) -> None:
    nic, bridge, *_ = anonymize(inventory).interfaces
    assert (bridge.if_name, nic.pci_address) == ("br0", "0000:03:00.0")
    assert (nic.master, nic.master_bridge, nic.upper_devices) == ("br0", "br0", ("br0",))
    assert bridge.lower_devices == (nic.if_name,)
    assert nic.if_name == f"enx{nic.mac.replace(':', '')}"


def test_pseudonyms_are_addresses_with_the_same_prefix(inventory: Inventory) -> None:
    nic = anonymize(inventory).interfaces[0]
    assert [ipaddress.ip_interface(each).network.prefixlen for each in (*nic.ipv4, *nic.ipv6)] == [22, 22, 64]


def test_all_other_facts_survive_anonymity(tmp_path: Path) -> None:
    before = scan_recorded(str(sriov_machine(tmp_path)))
    after = anonymize(before)
    blank = {"mac": "", "permanent_mac": "", "alias": ""}
    facts, made_up = ([msgspec.structs.replace(each, **blank) for each in them.interfaces] for them in (before, after))
    assert [each for each in made_up if each.if_name != "vf-1"] == [
        each for each in facts if each.if_name != "renamed0"
    ]
    assert after.unreadable == before.unreadable
