"""Reading files of sysfs: a value, absence or the reason, never an exception; and PCI devices in a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdra.kernel import pci
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.sysfs import Sysfs, Unreadable
from tests.trees import Tree, sriov_machine


def test_a_read_is_a_value_or_absence_or_a_reason(tmp_path: Path) -> None:
    (tmp_path / "mtu").write_text("1500\n")
    (tmp_path / "odd").write_bytes(b"\xff\n")
    (tmp_path / "folder").mkdir()
    sysfs = Sysfs(str(tmp_path))
    assert sysfs.read("mtu") == "1500"
    assert sysfs.number("mtu") == 1500
    assert sysfs.read("absent") is None
    assert sysfs.read("odd") == "\\xff"
    unreadable = sysfs.read("folder")
    assert isinstance(unreadable, Unreadable)
    assert unreadable.reason == "EISDIR"
    no_number = sysfs.number("odd")
    assert isinstance(no_number, Unreadable)
    assert no_number.reason == "EINVAL"


def test_a_link_that_leads_nowhere_still_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "driver").symlink_to("../../bus/pci/drivers/ice")
    sysfs = Sysfs(str(tmp_path))
    assert sysfs.link_name("driver") == "ice"
    assert sysfs.link_name("absent") is None
    assert sysfs.exists("driver") is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:41:00.0", True),
        ("10000:81:00.7", True),
        ("pci0000:00", False),
        ("0000:41:20.0", False),
        ("0000:41:00.8", False),
        ("virtio0", False),
    ],
)
def test_pci_addresses_are_told_from_other_folders(text: str, expected: bool) -> None:
    assert pci.is_address(text) is expected


def test_vfs_are_in_the_order_of_their_indexes_whatever_their_addresses(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:41:00.0")
    addresses = [f"0000:41:{10 + number // 8:02x}.{number % 8}" for number in range(12)]
    tree.sriov("0000:41:00.0", addresses[::-1], total=12)
    found = pci.virtual_functions(Sysfs(str(tree)), "0000:41:00.0")
    assert found == dict(enumerate(addresses[::-1]))


def test_what_is_no_vf_link_is_passed_over(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    folder = (tmp_path / "bus/pci/devices/0000:41:00.0").resolve()
    (folder / "virtfn9").symlink_to("../not-an-address")
    (folder / "virtfnx").symlink_to("../0000:41:10.0")
    assert list(pci.virtual_functions(Sysfs(str(tree)), "0000:41:00.0")) == [0, 1, 2, 3]  # type: ignore[arg-type]


def test_binding_a_driver_that_does_not_take_the_device_leaves_no_override(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    device = (tmp_path / "bus/pci/devices/0000:41:10.4").resolve()
    (device / "driver").unlink()
    (device / "driver_override").write_text("(null)\n")
    (tmp_path / "bus/pci/drivers_probe").write_text("")
    with pytest.raises(KernelMissingError, match='driver "vfio-pci" does not take'):
        pci.bind(Sysfs(str(tree)), "0000:41:10.4", "vfio-pci")
    assert (device / "driver_override").read_text()[0] == "\n"


def test_binding_the_driver_that_has_it_already_touches_nothing(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    pci.bind(Sysfs(str(tree)), "0000:41:10.2", "vfio-pci")
    assert not (tmp_path / "bus/pci/devices/0000:41:10.2/driver_override").exists()
