"""PCI devices in sysfs: their ids, place, VFs and driver.

Follows the kernel's Documentation/ABI/testing/sysfs-bus-pci. Discovery reads; the sriov, vfio-pci and host-device steps
bind drivers. An address is `domain:bus:device.function`; the domain has four to eight hexadecimal digits.
"""

from __future__ import annotations

import errno
import re
from typing import TypeVar

import msgspec

from netdra.kernel.errors import KernelMissingError
from netdra.kernel.sysfs import Folder, Sysfs, Unreadable

T = TypeVar("T", bound=str | int)

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")
_ROOT = re.compile(r"(?:^|/)(pci[0-9a-f]{4,8}:[0-9a-f]{2})(?![^/])")
_IDS = re.compile(r"^PCI_ID=([0-9A-F]{4,}):([0-9A-F]{4,})$", re.MULTILINE)
_DRIVER = re.compile(r"^DRIVER=(.+)$", re.MULTILINE)
_VIRTUAL_FUNCTION = re.compile(r"virtfn(\d{1,5})\Z", re.ASCII)


class PciDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One PCI device. An `Unreadable` stands where a file is there but cannot be read; "" or 0 where none exists.

    Attributes:
        address: its address, lower case.
        vendor: four hexadecimal digits with "0x", as sysfs has them; likewise `product`.
        driver: the bound driver's name.
        numa_node: -1 where the machine does not report it.
        root: the PCIe root that it hangs below, "pci0000:00".
        iommu_group: the group's number as text.
        total_vfs: how many VFs it could have; 0 for a device that is not a PF.
        vfs: how many it has.
        pf: the PF's address, for a VF.
    """

    address: str
    vendor: str | Unreadable = ""
    product: str | Unreadable = ""
    driver: str | Unreadable = ""
    numa_node: int | Unreadable = -1
    root: str | Unreadable = ""
    iommu_group: str | Unreadable = ""
    total_vfs: int | Unreadable = 0
    vfs: int | Unreadable = 0
    pf: str | Unreadable = ""


def is_address(text: str) -> bool:
    """Whether a text is a PCI address."""
    return _ADDRESS.match(text) is not None


def read(folder: Folder, path: str) -> PciDevice:
    """A device by its files in sysfs; never an exception, also when it vanishes meanwhile.

    Args:
        folder: the device's folder.
        path: the folder's path behind all links.
    """
    vendor, product, driver = _identity(folder)
    numa_node = folder.number("numa_node")
    pf = _or(folder.link_name("physfn"))
    total_vfs = 0 if pf else _count(folder.number("sriov_totalvfs"))  # a VF has none of its own
    return PciDevice(
        address=path.rpartition("/")[2],
        vendor=vendor,
        product=product,
        driver=driver,
        numa_node=-1 if numa_node is None else numa_node,
        root=root_of(path),
        iommu_group=_or(folder.link_name("iommu_group")),
        total_vfs=total_vfs,
        vfs=0 if total_vfs == 0 else _required(folder.number("sriov_numvfs")),
        pf=pf,
    )


def _identity(folder: Folder) -> tuple[str | Unreadable, str | Unreadable, str | Unreadable]:
    """Vendor, product and driver: by one read of `uevent`, or one by one where a recorded tree lacks that file."""
    text = folder.read("uevent")
    ids = _IDS.search(text) if isinstance(text, str) else None
    if ids is None or not isinstance(text, str):
        vendor, product = _required(folder.read("vendor")), _required(folder.read("device"))
        return vendor, product, _or(folder.link_name("driver"))
    driver = _DRIVER.search(text)
    return f"0x{ids[1].lower()}", f"0x{ids[2].lower()}", driver[1] if driver else ""


def pf_of(sysfs: Sysfs, address: str) -> str:
    """The address of a VF's PF, "" if it is not a VF."""
    name = sysfs.link_name(f"bus/pci/devices/{address}/physfn")
    return name if isinstance(name, str) else ""


def root_of(path: str) -> str:
    """The PCIe root in a device's path ("pci0000:00"), also behind switches; "" without one."""
    root = _ROOT.search(path)
    return root[1] if root else ""


def virtual_functions(sysfs: Sysfs, address: str, path: str = "") -> dict[int, str] | Unreadable:
    """The addresses of a PF's VFs by index, from its `virtfnN` links: strides make arithmetic on addresses wrong."""
    at = path or f"bus/pci/devices/{address}"
    listed = sysfs.names(at)
    if listed is None or isinstance(listed, Unreadable):
        return {} if listed is None else listed
    matches = filter(None, map(_VIRTUAL_FUNCTION.match, listed))
    with sysfs.folder(at) as folder:
        targets = {int(matched[1]): folder.link_name(matched[0]) for matched in matches}
    unreadable = next((vf for vf in targets.values() if isinstance(vf, Unreadable)), None)
    if unreadable is not None:
        return unreadable  # the link itself is the only proof of a VF
    return {number: vf for number, vf in sorted(targets.items()) if isinstance(vf, str) and is_address(vf)}


def driver_of(sysfs: Sysfs, address: str) -> str:
    """The name of the driver that is bound to a device, "" for none."""
    name = sysfs.link_name(f"bus/pci/devices/{address}/driver")
    return name if isinstance(name, str) else ""


def bind(sysfs: Sysfs, address: str, driver: str) -> None:
    """Bind a device to a driver through `driver_override`, from any other driver; repeating it is not an error.

    Raises:
        KernelMissingError: no such device or driver exists, or the driver did not take the device.
        KernelError: the kernel refused.
    """
    if driver_of(sysfs, address) == driver:
        return
    device = f"bus/pci/devices/{address}"
    sysfs.write(f"{device}/driver_override", f"{driver}\n")
    unbind(sysfs, address)
    sysfs.write("bus/pci/drivers_probe", address)
    # The probe succeeds too where no driver took the device. An empty line takes the override back
    # (Documentation/ABI/testing/sysfs-bus-pci).
    if driver_of(sysfs, address) != driver:
        sysfs.write(f"{device}/driver_override", "\n")
        raise KernelMissingError(19, f'driver "{driver}" does not accept PCI device {address}')


def unbind(sysfs: Sysfs, address: str) -> None:
    """Take a device from its driver; a device without one is not an error.

    Raises:
        KernelError: the kernel refused.
    """
    if driver_of(sysfs, address):
        sysfs.write(f"bus/pci/devices/{address}/driver/unbind", address)


def reset(sysfs: Sysfs, address: str) -> bool:
    """Reset a function (FLR), which must have no driver that works with it; false if the kernel cannot reset it.

    The write returns when the function answers again (drivers/pci/pci.c, pci_reset_function), 0.1 s or more later.

    Raises:
        KernelMissingError: the device is gone.
        KernelError: the device did not answer in time, or is in use.
    """
    path = f"bus/pci/devices/{address}/reset"
    if not sysfs.exists(path):
        return False
    sysfs.write(path, "1")
    return True


def _or(value: str | Unreadable | None) -> str | Unreadable:
    return "" if value is None else value


def _required(value: T | Unreadable | None) -> T | Unreadable:
    """The value of a file that the kernel always has; a recorded tree may lack it."""
    return Unreadable(errno.ENOENT) if value is None else value


def _count(value: int | Unreadable | None) -> int | Unreadable:
    return 0 if value is None else value
