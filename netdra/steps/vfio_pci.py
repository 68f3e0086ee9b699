"""The vfio-pci step: a PCI device is bound to a userspace driver for the pod, and to its own driver again afterwards.

Makes no interface: the result names the device's files, which reach the container through CDI. An IOMMU group is
given away whole or not at all, as vfio itself demands (drivers/vfio, vfio_dev_viable), so a device that shares its
group with one that the host uses is refused before anything is touched.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec

from netdra.kernel import host_use, pci
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError
from netdra.model.policy import ResetPolicy
from netdra.model.result import StepDevice, StepResult
from netdra.steps import moving, netdevs, reset
from netdra.steps.contract import Attempts, Builtin, Order, Params, Record, Site
from netdra.steps.devices import USERSPACE_DRIVERS, check_isolated, device_nodes, iommu_group, ports_of
from netdra.steps.netdevs import Moved

_BRIDGE_CLASS = "0x0604"
_HARMLESS = ("", "pci-stub")


class VfioParams(Params, frozen=True, kw_only=True):
    """Which driver, and which device where none was allocated."""

    driver: Literal["vfio-pci", "igb_uio", "uio_pci_generic"] = "vfio-pci"
    pci_bus_id: str = msgspec.field(default="", name="pciBusID")


class Bound(Record, frozen=True, kw_only=True):
    """A PCI device as it is: its driver ("" for none), its netdev if it has one, and those of its other ports.

    After a program had all of it, a VF is reset unless its `reset` is "Never", as in records of an older netdra.
    """

    address: str
    driver: str
    wanted: str
    reset: ResetPolicy = "Never"
    netdev: Moved | None = None
    other_ports: tuple[Moved, ...] = ()

    @property
    def holds(self) -> tuple[str, ...]:
        """The device, with all its ports."""
        return tuple(dict.fromkeys((self.address, *(moved.key for moved in self.netdevs))))

    @property
    def netdevs(self) -> tuple[Moved, ...]:
        """The netdevs of all its ports."""
        return self.other_ports if self.netdev is None else (self.netdev, *self.other_ports)


def _prepare(order: Order, params: VfioParams) -> None:
    named, device = _named(params), order.device
    if device is None and not named:
        raise InvalidInputError(
            f"{order.called}: no device was allocated for it", hint="name one by pciBusID", code="ND2084"
        )
    if device is not None and not device.pci_address:
        raise InvalidInputError(f'{order.called}: device "{device.device}" is not a PCI device', code="ND2085")
    if device is not None and named and named != device.pci_address:
        raise InvalidInputError(
            f'{order.called}: deviceID "{named}" is not that of the allocated device ({device.pci_address})',
            code="ND2086",
        )


def _observe(order: Order, params: VfioParams, site: Site) -> Bound:
    address = _address(order, params)
    driver = pci.driver_of(site.sysfs, address)
    if not site.sysfs.is_folder(f"bus/pci/devices/{address}"):
        raise PermanentError(f"{order.called}: PCI device not found: {address}", code="ND2087")
    if not site.sysfs.is_folder(f"bus/pci/drivers/{params.driver}"):
        raise PermanentError(
            f'{order.called}: the kernel has no driver "{params.driver}"',
            hint=f"load it: modprobe {params.driver}",
            code="ND2088",
        )
    if params.driver == "vfio-pci":
        _check_group(order, address, iommu_group(address, site.sysfs), site.sysfs)
    other = site.port_holder(address)
    if other:
        raise TemporaryError(
            f"{order.called}: device {address} has a port that sandbox {other} has",
            hint="a driver takes the device with all its ports; that pod has the port until it ends",
            code="ND2089",
        )
    ports = ports_of(site.host, site.sysfs, address)
    if not ports and driver not in (*USERSPACE_DRIVERS, *_HARMLESS):
        raise PermanentError(
            f'{order.called}: device {address} has driver "{driver}" but no netdev on the host',
            hint="see whether another pod has it",
            code="ND2090",
        )
    moved: list[Moved] = []
    for netdev in ports:
        has = host_use.configuration(site.host, netdev)
        moving.check_unused(order.called, order.device, netdev, site, has)
        moved.append(netdevs.seen(order.if_name, netdev, site, has))
    return Bound(
        address=address,
        driver=driver,
        wanted=params.driver,
        reset=reset.policy_of(address, reset.wanted(order.device), site),
        netdev=moved[0] if moved else None,
        other_ports=tuple(moved[1:]),
    )


def _apply(order: Order, params: VfioParams, bound: Bound, site: Site) -> StepResult:
    pci.bind(site.sysfs, bound.address, params.driver)
    device = StepDevice(
        pci_address=bound.address,
        iommu_group=iommu_group(bound.address, site.sysfs),
        device_nodes=device_nodes(bound.address, site.sysfs),
    )
    return msgspec.structs.replace(order.previous, devices=(*order.previous.devices, device))


def _undo(bound: Bound, site: Site) -> tuple[str, ...]:
    other = site.holder(bound.address)
    if other:
        return (f"device {bound.address} is sandbox {other}'s by now and left alone",)
    folder = f"bus/pci/devices/{bound.address}"
    if site.sysfs.liveness(folder).is_gone:
        return (f"device {bound.address} is gone from the machine",)
    now = pci.driver_of(site.sysfs, bound.address)
    if now not in (bound.wanted, bound.driver, ""):
        return (f'device {bound.address} has driver "{now}" by now and is left alone',)
    if reset.is_due(bound.reset, (f'a pod had it through driver "{bound.wanted}"',)):
        reset.reset(bound.address, bound.driver, (), site)
    else:
        reset.rebind(bound.address, bound.driver, site)
    attempts = Attempts()
    if bound.driver != bound.wanted:
        attempts.run(lambda: site.sysfs.write(f"{folder}/driver_override", "\n"))
    for moved in bound.netdevs:
        attempts.run(partial(moving.restore_reappeared, moved, site))
    return attempts.result()


def _check(order: Order, params: VfioParams, _: StepResult, site: Site) -> tuple[str, ...]:
    address = _address(order, params)
    now = pci.driver_of(site.sysfs, address)
    return () if now == params.driver else (f'device {address} has driver "{now}", not "{params.driver}"',)


def _check_group(order: Order, address: str, group: str, sysfs: Sysfs) -> None:
    check_isolated(order.called, address, sysfs)
    for other in sysfs.listing(f"kernel/iommu_groups/{group}/devices"):
        is_bridge = sysfs.text(f"bus/pci/devices/{other}/class").startswith(_BRIDGE_CLASS)
        driver = pci.driver_of(sysfs, other)
        if other == address or is_bridge or driver in (*_HARMLESS, "vfio-pci"):
            continue
        raise PermanentError(
            f"{order.called}: IOMMU group {group} of device {address} also has {other} (driver {driver})",
            hint="vfio gives a group away whole: take a device that is alone in its group",
            code="ND2091",
        )


def _address(order: Order, params: VfioParams) -> str:
    return order.device.pci_address if order.device is not None else _named(params)


def _named(params: VfioParams) -> str:
    device_id = params.runtime_config.get("deviceID")
    return params.pci_bus_id or params.device_id or (device_id if isinstance(device_id, str) else "")


VFIO_PCI = Builtin(
    params=VfioParams, record=Bound, prepare=_prepare, observe=_observe, apply=_apply, undo=_undo, check=_check
)
