"""The reset of a VF that comes back from a pod, and the driver that a device had.

Taking a VF from its driver ends everything that hangs on its netdev, in every namespace: links on top of it, BPF
programs, filters, queue settings. The reset (FLR) ends what the hardware keeps: DMA, interrupts, receive filters. The
driver then makes the netdev again, on the host. No comparison can miss anything of that; only settings of the PF stay.

Only VFs are reset. The reset of a PF ends the traffic of all its VFs, most of which other pods have, and that of other
devices may end what shares their function with them, such as a second port.
"""

from __future__ import annotations

from collections.abc import Iterable

from netdra.kernel import pci
from netdra.kernel.errors import KernelError
from netdra.model.errors import TemporaryError
from netdra.model.plan import PlannedDevice
from netdra.model.policy import ResetPolicy
from netdra.steps.contract import NoTimeError, Site
from netdra.steps.devices import USERSPACE_DRIVERS, iommu_group, is_open
from netdra.steps.settings import StrandedError

_LASTS = 0.5
"""Seconds that must be left: a reset takes 0.1 (PCI Express Base Specification, 6.6.2), the driver as long or longer.

Nothing can interrupt any of it, so a step that has less time is left for the next try.
"""


def policy_of(address: str, policy: ResetPolicy, site: Site) -> ResetPolicy:
    """The policy for a device: "Never" for any that is not a VF.

    Args:
        address: its PCI address, "" for a device that is not on PCI.
        policy: that of the policy which offers the device.
        site: where.
    """
    return policy if address and pci.pf_of(site.sysfs, address) else "Never"


def wanted(device: PlannedDevice | None) -> ResetPolicy:
    """The policy of an allocated device; of a device that a step names itself "IfChanged"."""
    return device.reset if device is not None else "IfChanged"


def is_due(policy: ResetPolicy, changed: Iterable[str]) -> bool:
    """Whether a VF that comes back must be reset.

    Args:
        policy: "Always", "IfChanged" or "Never".
        changed: the differences of the device from before, in state that netdra's own steps do not change, in words.
    """
    return policy == "Always" or (policy == "IfChanged" and any(changed))


def reset(address: str, driver: str, changed: Iterable[str], site: Site) -> None:
    """Take a VF from its driver, reset it if the kernel can, and give it to the driver that it had.

    Its netdev is on the host afterwards, at once or soon, with a name that the kernel chose. A report of the reset is
    added to `site.restored`.

    Args:
        address: the VF's.
        driver: the driver that it had, "" for none.
        changed: how the VF differed, in words, for the report.
        site: where; nothing is done if too little of its time is left.

    Raises:
        NoTimeError: too little time is left.
        TemporaryError: a program has the VF open through vfio.
        StrandedError: the kernel or the driver refused; the text has the reason.
    """
    if site.remaining() < _LASTS:
        raise NoTimeError(f"VF {address} is to be reset, and too little time is left for that", code="ND2056")
    _check_closed(address, site)
    try:
        if driver not in USERSPACE_DRIVERS or pci.driver_of(site.sysfs, address) != driver:
            pci.unbind(site.sysfs, address)
        pci.reset(site.sysfs, address)
        if driver:
            bind(address, driver, site)
    except KernelError as refused:
        what = f"VF {address} cannot be reset: {refused.what}"
        problem = StrandedError(
            what, hint="see dmesg for the driver's reason; netdra tries again by itself", code="ND2057"
        )
        problem.reasons = (refused.what,)
        raise problem from None
    why = "; ".join(dict.fromkeys(changed))
    site.restored.append(f"VF {address} was reset{f': {why}' if why else ''}")


def rebind(address: str, driver: str, site: Site) -> None:
    """Give a device back to the driver that it had, "" for none.

    Raises:
        TemporaryError: a program still has it open through vfio.
        KernelError: the kernel or the driver refused.
    """
    now = pci.driver_of(site.sysfs, address)
    if now == driver:
        return
    _check_closed(address, site)
    if driver:
        bind(address, driver, site)
    else:
        pci.unbind(site.sysfs, address)


def bind(address: str, driver: str, site: Site) -> None:
    """Bind a device to a driver; from then on the kernel chooses one again, but for a userspace driver.

    Raises:
        KernelError: the kernel or the driver refused.
    """
    pci.bind(site.sysfs, address, driver)
    if driver not in USERSPACE_DRIVERS:
        site.sysfs.write(f"bus/pci/devices/{address}/driver_override", "\n")


def _check_closed(address: str, site: Site) -> None:
    """Refuse to take a device from vfio while it is open: that would wait for the program without an end."""
    if pci.driver_of(site.sysfs, address) == "vfio-pci" and is_open(address, site.sysfs):
        raise TemporaryError(
            f"device {address} cannot be taken from vfio-pci: a program still has it open",
            hint="the device is released when the program ends; to find the program: "
            f"fuser -v /dev/vfio/{iommu_group(address, site.sysfs)}",
            code="ND2058",
        )
