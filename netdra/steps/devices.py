"""The files of devices that a pod gets without an interface. Used by sriov and vfio-pci."""

from __future__ import annotations

import errno
import os

from netdra.kernel import pci
from netdra.kernel.sysfs import Sysfs

USERSPACE_DRIVERS = ("vfio-pci", "igb_uio", "uio_pci_generic")
_VFIO_CONTAINER = "/dev/vfio/vfio"


def iommu_group(address: str, sysfs: Sysfs) -> str:
    """The IOMMU group of a PCI device, "" for none."""
    group = sysfs.link_name(f"bus/pci/devices/{address}/iommu_group")
    return group if isinstance(group, str) else ""


def device_nodes(address: str, sysfs: Sysfs) -> tuple[str, ...]:
    """The character devices through which a program uses a PCI device that a userspace driver has; none otherwise."""
    group = iommu_group(address, sysfs)
    if pci.driver_of(sysfs, address) == "vfio-pci" and group:
        return (f"/dev/vfio/{group}", _VFIO_CONTAINER)
    return tuple(f"/dev/{name}" for name in sysfs.listing(f"bus/pci/devices/{address}/uio"))


def is_open(address: str, sysfs: Sysfs) -> bool:
    """Whether a program has the IOMMU group of a PCI device open just now.

    vfio lets a group be opened once (drivers/vfio/group.c), so opening it tells. Taking a device from vfio-pci while it
    is open would wait for that program without an end, and nothing could interrupt it.
    """
    try:
        os.close(os.open(f"/dev/vfio/{iommu_group(address, sysfs)}", os.O_RDWR | os.O_CLOEXEC))
    except OSError as problem:
        return problem.errno == errno.EBUSY
    return False
