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


def test_an_open_folder_reads_as_its_tree_does(tmp_path: Path) -> None:
    (tmp_path / "device/net/eth0").mkdir(parents=True)
    (tmp_path / "device/numa_node").write_text("1\n")
    (tmp_path / "device/vendor").symlink_to("vendor")
    (tmp_path / "device/driver").symlink_to("../../bus/pci/drivers/ice")
    with Sysfs(str(tmp_path)).folder("device") as folder:
        assert folder.is_open
        assert (folder.read("numa_node"), folder.number("numa_node"), folder.read("absent")) == ("1", 1, None)
        assert (folder.link_name("driver"), folder.link_name("numa_node")) == ("ice", None)
        assert (folder.exists("numa_node"), folder.exists("driver")) == (True, False)
        unreadable = folder.read("vendor")
        assert isinstance(unreadable, Unreadable)
        assert unreadable.reason == "ELOOP"
    assert folder.is_open is False


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1\n")
    for path in ("absent", "file", "nul\0"):
        with Sysfs(str(tmp_path)).folder(path) as folder:
            assert folder.is_open is False
            assert (folder.read("mtu"), folder.number("mtu"), folder.link_name("driver")) == (None, None, None)
            assert folder.exists("mtu") is False


def test_a_folder_that_cannot_be_opened_has_no_file_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with Sysfs(str(tmp_path)).folder("loop") as folder:
        found = (folder.read("mtu"), folder.number("mtu"), folder.link_name("driver"))
    assert [each.reason for each in found if isinstance(each, Unreadable)] == ["ELOOP"] * 3


def test_a_folder_that_is_replaced_while_it_is_open_is_not_mistaken_for_the_new_one(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.mkdir()
    (device / "vendor").write_text("0x8086\n")
    with Sysfs(str(tmp_path)).folder("device") as folder:
        (device / "vendor").unlink()
        device.rmdir()
        device.mkdir()
        (device / "vendor").write_text("0x15b3\n")
        assert folder.read("vendor") is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("devices/pci0000:40/0000:40:01.0/0000:41:00.0", "pci0000:40"),
        ("devices/pci10000:80/10000:81:00.0", "pci10000:80"),
        ("devices/LNXSYSTM:00/PNP0A08:00/pci0000:00/0000:00:03.0", "pci0000:00"),
        ("devices/xpci0000:00/0000:00:03.0", ""),
        ("devices/pci0000:000/0000:00:03.0", ""),
        ("devices/virtual/net/lo", ""),
        ("pci0000:00", "pci0000:00"),
    ],
)
def test_the_root_is_a_whole_part_of_the_path(path: str, expected: str) -> None:
    assert pci.root_of(path) == expected


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
def test_pci_addresses_are_distinguished_from_other_folder_names(text: str, expected: bool) -> None:
    assert pci.is_address(text) is expected


def test_virtual_functions_are_numbered_by_vf_index_and_not_by_pci_address(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:41:00.0")
    addresses = [f"0000:41:{10 + number // 8:02x}.{number % 8}" for number in range(12)]
    tree.sriov("0000:41:00.0", addresses[::-1], total=12)
    found = pci.virtual_functions(Sysfs(str(tree)), "0000:41:00.0")
    assert found == dict(enumerate(addresses[::-1]))


def test_invalid_virtfn_links_are_skipped(tmp_path: Path) -> None:
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
    with pytest.raises(KernelMissingError, match='driver "vfio-pci" does not accept'):
        pci.bind(Sysfs(str(tree)), "0000:41:10.4", "vfio-pci")
    assert (device / "driver_override").read_text()[0] == "\n"


def test_binding_the_driver_that_has_it_already_touches_nothing(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    pci.bind(Sysfs(str(tree)), "0000:41:10.2", "vfio-pci")
    assert not (tmp_path / "bus/pci/devices/0000:41:10.2/driver_override").exists()
