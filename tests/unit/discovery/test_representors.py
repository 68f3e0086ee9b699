"""Representors: netdevs that stand for VFs, SFs and other hosts' functions on the switch of a NIC, and are not PFs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from netdra.discovery import assemble
from netdra.discovery.facts import MachineFacts, SysfsDevice
from netdra.discovery.overrides import with_host_use, with_uplinks
from netdra.discovery.recorded import _BLANK
from netdra.discovery.scan import interfaces, scan_recorded
from netdra.exposure import expose
from netdra.kernel.link import switch_port
from netdra.model import documents
from netdra.model.device import Decision, ExposureResult
from netdra.model.inventory import Interface, Inventory
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import OURS, exclusive, shared
from tests.documents import DEVICES
from tests.trees import ETHERNET, Tree, switchdev_machine


def recorded(tree: Tree) -> Inventory:
    """A tree with the options for a host that uses nothing."""
    return with_host_use(with_uplinks(scan_recorded(str(tree)), ["none"]), ["none"])


@pytest.fixture
def machine(tmp_path: Path) -> Inventory:
    return recorded(switchdev_machine(tmp_path))


def named(inventory: Inventory, name: str) -> Interface:
    return next(each for each in inventory.interfaces if each.device_name == name)


def names(result: ExposureResult) -> set[str]:
    return {device.name for device in result.devices}


def decision(result: ExposureResult, name: str) -> Decision:
    return next(each for each in result.decisions if each.device_name == name)


def test_representors_are_distinguished_from_the_pf_of_their_pci_function(machine: Inventory) -> None:
    types = {each.device_name: each.type for each in machine.interfaces if each.device_name.startswith(("e", "c"))}
    assert types == {
        "ens1": "pf",
        "ens1v0": "vf",
        "ens1v1": "vf",
        "eth0": "representor",
        "eth1": "representor",
        "eth2": "representor",
        "eth3": "representor",
        "eth4": "representor",
        "enp4s0f0": "pf",
        "enp4s0f0v0": "vf",
        "enp6s0f0": "pf",
    }


def test_a_vf_names_its_pf_and_its_representor_independent_of_interface_indexes(machine: Inventory) -> None:
    vfs = [named(machine, f"ens1v{index}") for index in range(2)]
    assert [(vf.pf_name, vf.representor) for vf in vfs] == [("ens1", "eth0"), ("ens1", "eth1")]
    assert named(machine, "enp4s0f0v0").representor == ""


def test_a_representor_has_nothing_that_is_its_pfs_and_an_identity_of_its_own(machine: Inventory) -> None:
    vf = named(machine, "eth1")
    assert (vf.pci_address, vf.num_vfs, vf.total_vfs, vf.sriov_capable, vf.rdma) == ("", 0, 0, False, False)
    assert (vf.pf_name, vf.pf_pci_address, vf.vf_index, vf.pcie_root) == ("ens1", "0000:41:00.0", 1, "pci0000:40")
    assert named(machine, "eth3").vf_index == -1, "a VF of another host is none of this PF's here"
    identities = [each.identity for each in machine.interfaces]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p0", None),
        ("p0s1", None),
        ("", None),
        ("pf0", (0, 0, -1)),
        ("pf1vf3", (0, 1, 3)),
        ("pf0sf88", (0, 0, -1)),
        ("c2pf0vf12", (2, 0, 12)),
        ("7", (0, -1, 7)),
        ("pf0vf", None),
        ("pf0vf3\n", None),
        ("xpf0vf3", None),
    ],
)
def test_names_of_ports_on_a_switch(name: str, expected: tuple[int, int, int] | None) -> None:
    found = switch_port(name)
    assert (None if found is None else (found.controller, found.pf, found.vf)) == expected


def test_a_bare_port_number_without_a_switch_is_not_a_representor() -> None:
    assert switch_port("7", False) is None


def test_representors_of_older_kernels_which_hang_on_no_function_are_found_by_the_switch() -> None:
    facts = MachineFacts()
    for index, name, port in ((5, "ens1f0", "p0"), (6, "ens1f1", "p1")):
        facts.put(msgspec.structs.replace(_BLANK, index=index, name=name, port_name=port, switch_id="ab"))
        address = f"0000:03:00.{index - 5}"
        functions = {0: f"0000:03:0{index}.0"}
        facts.put_device(index, SysfsDevice(address=address, total_vfs=8, vfs=1, functions=functions))
        facts.functions |= {each: SysfsDevice(address=each, pf=address) for each in functions.values()}
    for index, name, port in ((2, "rep1", "pf1vf0"), (3, "rep0", "pf0vf0")):
        facts.put(msgspec.structs.replace(_BLANK, index=index, name=name, port_name=port, switch_id="ab"))
    facts.eswitch = {"0000:03:00.0": "switchdev", "0000:03:00.1": "legacy"}
    found = interfaces(facts)
    vfs = [found["0000:03:05.0"], found["0000:03:06.0"]]
    assert [(vf.pf_name, vf.representor, vf.eswitch_mode) for vf in vfs] == [
        ("ens1f0", "rep0", "switchdev"),
        ("ens1f1", "rep1", "legacy"),
    ]
    assert {found[index].type for index in (2, 3)} == {assemble.REPRESENTOR}


@pytest.mark.parametrize("selector", ["true", f'{OURS}.type != "vf"', f'{OURS}.ifName == "eth0"', f"{OURS}.mtu > 0"])
def test_a_representor_is_never_offered_by_a_policy_that_does_not_ask_for_the_type(
    machine: Inventory, selector: str
) -> None:
    result = expose(machine, [exclusive("p", selector), shared("s", selector, deviceNameSuffix="-s")])
    assert not {name for name in names(result) if name.startswith("eth")}
    assert decision(result, "eth0").hidden == "representor"
    assert 'selects by type == "representor"' in decision(result, "eth0").reason


@pytest.mark.parametrize("selector", [f'{OURS}.type == "representor"', f'{OURS}.type in ["vf", "representor"]'])
def test_a_representor_is_offered_by_a_policy_that_asks_for_the_type(machine: Inventory, selector: str) -> None:
    result = expose(machine, [exclusive("p", f"{selector} && {OURS}.pfName == 'ens1'")])
    assert {"eth0", "eth1"} <= names(result)
    (pool,) = {device.pool for device in result.devices}
    assert pool.endswith("/sriov-ens1")


def test_the_policies_for_ovn_kubernetes_publish_their_devices_on_a_switchdev_nic(tmp_path: Path) -> None:
    """A VF of enp4s0f0 for accelerated networks, enp6s0f0 shared: with any indexes of the representors."""
    tree = switchdev_machine(tmp_path)
    tree.netdev("rep4", "0000:04:00.0", phys_port_name="pf0vf0", phys_switch_id="cd", ifindex=1)
    policies = [
        each
        for each in documents.read((DEVICES / "5.9.yaml").read_text(), "5.9.yaml")
        if isinstance(each, DeviceExposurePolicy)
    ]
    result = expose(recorded(tree), policies)
    assert names(result) == {"enp4s0f0v0", "enp6s0f0-localnet"}


def test_policies_for_vfio_and_sriov_on_a_switchdev_nic(machine: Inventory) -> None:
    policies = [
        exclusive("sriov", f'{OURS}.type == "vf" && {OURS}.pfName == "ens1"', "sriov"),
        exclusive("vfio", f'{OURS}.representor == "eth1"', "vfio-pci", deviceNameSuffix="-vfio"),
    ]
    result = expose(machine, policies)
    assert names(result) == {"ens1v0", "ens1v1", "ens1v1-vfio"}


def test_a_vf_of_an_infiniband_function_is_found_though_its_pf_has_no_netdev(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for bus, pci_class in (("41", "0x020700"), ("42", "0x0c0600"), ("43", "0x010802")):
        tree.pci(f"0000:{bus}:00.0", pci_class=pci_class, driver="mlx5_core")
        tree.sriov(f"0000:{bus}:00.0", [f"0000:{bus}:00.1"], driver="mlx5_core", pci_class=pci_class)
    tree.pci("0000:44:00.0", pci_class=ETHERNET)
    found = {each.pci_address: each.pf_pci_address for each in scan_recorded(str(tree)).interfaces}
    assert found == {"0000:41:00.1": "0000:41:00.0", "0000:42:00.1": "0000:42:00.0"}
