"""The files of devices that a pod gets without an interface. Used by sriov and vfio-pci."""

from __future__ import annotations

from netdra.kernel import pci
from netdra.kernel.sysfs import Sysfs

USERSPACE_DRIVERS = ("vfio-pci", "igb_uio", "uio_pci_generic")
_VFIO_CONTAINER = "/dev/vfio/vfio"


def iommu_group(address: str, sysfs: Sysfs) -> str:
    """The IOMMU group of a PCI device, "" for none."""
    found = sysfs.link_name(f"bus/pci/devices/{address}/iommu_group")
    return found if isinstance(found, str) else ""


def device_nodes(address: str, sysfs: Sysfs) -> tuple[str, ...]:
    """The character devices through which a program uses a PCI device that a userspace driver has; none otherwise."""
    group = iommu_group(address, sysfs)
    if pci.driver_of(sysfs, address) == "vfio-pci" and group:
        return (f"/dev/vfio/{group}", _VFIO_CONTAINER)
    return tuple(f"/dev/{name}" for name in sysfs.listing(f"bus/pci/devices/{address}/uio"))
