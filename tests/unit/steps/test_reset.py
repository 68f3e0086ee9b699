"""When a VF is reset, what is never reset, and devices with another driver than they were offered with."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import PermanentError
from netdra.model.plan import PlannedDevice
from netdra.model.policy import ResetPolicy
from netdra.steps import devices, reset
from netdra.steps.contract import NoTimeError

VF, PF = "0000:03:00.2", "0000:03:00.0"


def site_of(root: Path, *, seconds: float = 10.0) -> Any:
    """A site with a VF of driver igbvf."""
    for address in (VF, PF):
        (root / "bus/pci/devices" / address).mkdir(parents=True)
    (root / "bus/pci/devices" / VF / "physfn").symlink_to(f"../{PF}")
    deadline = time.monotonic() + seconds
    return SimpleNamespace(sysfs=Sysfs(str(root)), restored=[], remaining=lambda: max(0.0, deadline - time.monotonic()))


@pytest.mark.parametrize(
    ("policy", "changed", "due"),
    [
        ("Always", (), True),
        ("Always", ("it has a child",), True),
        ("IfChanged", (), False),
        ("IfChanged", ("it has a child",), True),
        ("Never", ("it has a child",), False),
    ],
)
def test_the_policy_and_the_differences_decide(policy: ResetPolicy, changed: tuple[str, ...], due: bool) -> None:
    assert reset.is_due(policy, changed) is due


def test_only_vfs_are_reset(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    assert [reset.policy_of(address, "Always", site) for address in (VF, PF, "")] == ["Always", "Never", "Never"]


def test_a_vf_is_left_as_it_is_if_there_is_too_little_time(tmp_path: Path) -> None:
    site = site_of(tmp_path, seconds=0.1)
    with pytest.raises(NoTimeError):
        reset.reset(VF, "igbvf", (), site)
    assert site.restored == []


def test_the_kernel_is_asked_to_reset_a_vf(tmp_path: Path) -> None:
    site, file = site_of(tmp_path), tmp_path / "bus/pci/devices" / VF / "reset"
    file.touch()
    reset.reset(VF, "", ("it has a child",), site)
    assert (file.read_text(), site.restored) == ("1", [f"VF {VF} was reset: it has a child"])


def with_drivers(folder: Path, *drivers: str) -> Sysfs:
    """A tree with these drivers of PCI functions."""
    for driver in drivers:
        (folder / "bus/pci/drivers" / driver).mkdir(parents=True)
    return Sysfs(str(folder))


@pytest.mark.parametrize(
    ("offered", "driver", "has_netdev", "words"),
    [
        ({"if_name": "eth5"}, "vfio-pci", False, 'offered with interface "eth5", but now has driver vfio-pci'),
        ({"if_name": "eth5", "driver": "igbvf"}, "", False, "offered with driver igbvf, but now has no driver"),
        ({"if_name": "eth5", "driver": "igbvf"}, "other", True, "offered with driver igbvf, but now has driver other"),
        ({"driver": "vfio-pci"}, "igbvf", True, "offered with driver vfio-pci, but now has driver igbvf"),
    ],
)
def test_a_device_that_is_not_as_it_was_offered_is_refused(
    tmp_path: Path, offered: dict[str, Any], driver: str, has_netdev: bool, words: str
) -> None:
    sysfs = with_drivers(tmp_path, "igbvf", "vfio-pci")
    device = PlannedDevice(request="r", pool="p", device="d", pci_address=VF, **offered)
    with pytest.raises(PermanentError, match=words):
        devices.check_driver("the step", device, driver, sysfs, has_netdev=has_netdev)


@pytest.mark.parametrize(
    ("offered", "driver", "has_netdev"),
    [
        ({"driver": "vfio-pci"}, "vfio-pci", False),
        ({}, "vfio-pci", False),
        ({"if_name": "eth5"}, "igbvf", True),
        # Of virtio on PCI, the netdev's driver and that of the function are two.
        ({"if_name": "eth5", "driver": "virtio_net"}, "virtio-pci", True),
    ],
)
def test_a_device_that_is_as_it_was_offered_or_of_which_nothing_is_known_is_accepted(
    tmp_path: Path, offered: dict[str, Any], driver: str, has_netdev: bool
) -> None:
    sysfs = with_drivers(tmp_path, "igbvf", "vfio-pci")
    device = PlannedDevice(request="r", pool="p", device="d", pci_address=VF, **offered)
    devices.check_driver("the step", device, driver, sysfs, has_netdev=has_netdev)
