"""The rdma step: the pod gets an RDMA device's files, and the device itself where each belongs to one namespace.

A derived step takes the RDMA device of the interface that the step before it brought. If that interface only stands on
an allocated device, which stays on the host, such as a macvlan or an ipvlan, it takes that device's RDMA device: pods
share it, each by the addresses of its own interface, which the kernel enters into the port's GID table. A root step
takes the allocated device, and a netdev that this has on the host moves along, since RoCE takes its addresses from the
netdev.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import msgspec

from netdra.kernel import link, rdma
from netdra.kernel.errors import KernelBusyError, KernelError, KernelMissingError
from netdra.kernel.link import Link
from netdra.kernel.netlink import NETLINK_RDMA
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import PermanentError
from netdra.model.result import StepDevice, StepResult
from netdra.steps import moving, rdma_state
from netdra.steps.contract import Attempts, Builtin, Order, Params, Record, Site, appended
from netdra.steps.devices import iommu_group, netdev_of
from netdra.steps.drift import check_interface
from netdra.steps.netdevs import Moved
from netdra.steps.rdma_state import RdmaState

_EXCLUSIVE = "exclusive"
_CM = "rdma_cm"
_MANAGEMENT = ("umad", "issm")
_SHARED_MODE = "set the node's mode before any pod runs: rdma system set netns shared"


class RdmaParams(Params, frozen=True, kw_only=True):
    """Which RDMA device, where it is not the allocated one or that of the interface before, and which files of it.

    `management` are the files besides those for data: of a device that stays on the host none by default, of another
    one all. With `umad` a process sends management packets of the port, as any other user of the port could.
    """

    rdma_device: str = ""
    management: tuple[Literal["umad", "issm"], ...] | None = None


class RdmaMoved(Record, frozen=True, kw_only=True):
    """An RDMA device as it is.

    `netdev` moves along with it. `own` is true for a root step's device, and false for that of an interface which
    another step brought and holds. `stays` is true for one that stays on the host, for others, too. `state` is None
    then, and in records of an older netdra.
    """

    rdma_device: str
    address: str
    exclusive: bool
    own: bool
    stays: bool = False
    netdev: Moved | None = None
    state: RdmaState | None = None

    @property
    def holds(self) -> tuple[str, ...]:
        """The PCI device, if it is this step's; else its RDMA device, if another step of the pod has the PCI device."""
        if self.own:
            return (self.address,)
        is_of_pod = self.state is not None and bool(self.state.resources)
        return (rdma_state.key(self.address),) if is_of_pod else ()


def _prepare(order: Order, params: RdmaParams) -> None:
    """Nothing can be checked before the devices are inspected."""


def _observe(order: Order, params: RdmaParams, site: Site) -> RdmaMoved:
    devices = rdma.devices(site.sysfs)
    name, stays = _name(order, params, devices)
    if name not in devices:
        raise PermanentError(
            f'{order.called}: the host has no RDMA device "{name}"',
            hint=f"there are: {', '.join(devices) or 'none'}",
            code="ND2049",
        )
    address, netdev_name = devices[name]
    exclusive = is_exclusive()
    if stays:
        if exclusive:
            raise PermanentError(
                f'{order.called}: RDMA device "{name}" is shared, but the RDMA namespace mode of the node is '
                "exclusive: a device is in one network namespace",
                hint=_SHARED_MODE,
                code="ND2050",
            )
        return RdmaMoved(rdma_device=name, address=address, exclusive=False, own=False, stays=True)
    moved = _netdev(order, address, netdev_name, site)
    if moved is not None and not site.sysfs.exists(f"class/infiniband/{name}/device"):
        raise PermanentError(
            f'{order.called}: RDMA device "{name}" is made in software on "{moved.name}", and ends when that moves',
            hint="take an RDMA device of hardware, or move the interface and make the device in the pod",
            code="ND2051",
        )
    return RdmaMoved(
        rdma_device=name,
        address=address,
        exclusive=exclusive,
        own=order.device is not None,
        netdev=None if moved is None else msgspec.structs.replace(moving.observe(order, moved, site), rdma=None),
        state=rdma_state.seen(name, address, counted=_is_of_pod(order, address)),
    )


def _is_of_pod(order: Order, address: str) -> bool:
    """Whether the pod has the RDMA device for itself: it was allocated, or an earlier step brought its PCI function."""
    if order.device is not None:
        return not order.device.is_shared
    previous = order.previous
    at = (*(one.pci_id for one in previous.interfaces), *(one.pci_address for one in previous.devices))
    return bool(address) and address in at


def _apply(order: Order, params: RdmaParams, record: RdmaMoved, site: Site) -> StepResult:
    if record.exclusive:
        with rdma.open_socket() as sock:
            rdma.move(sock, record.rdma_device, site.inside.namespace.fd)
    # The kernel creates the files of a moved device again, each with the lowest number that is free just then
    # (drivers/infiniband/core/device.c, rdma_dev_change_netns; uverbs_main.c, ib_uverbs_add_one).
    device = StepDevice(
        pci_address=record.address,
        iommu_group=iommu_group(record.address, site.sysfs),
        device_nodes=character_devices(record.rdma_device, site.sysfs, _management(params, stays=record.stays)),
        rdma_device=record.rdma_device,
    )
    result = order.previous
    if record.netdev is not None:
        result = appended(order, moving.move_in(record.netdev, site, record.address))
    return msgspec.structs.replace(result, devices=(*result.devices, device))


def _undo(record: RdmaMoved, site: Site) -> tuple[str, ...]:
    """The RDMA device goes first: it does not find its way when its netdev is gone."""
    attempts, netdev, state = Attempts(), record.netdev, record.state
    other = site.holder(record.address) if record.own and record.address else ""
    if other:
        return (f"device {record.address} is sandbox {other}'s by now and left alone",)
    if record.exclusive:
        attempts.run(lambda: bring_back(record.rdma_device, state, site))
    if netdev is not None:
        # The reset of a VF also brings its RDMA device back from anywhere, and ends what processes have on it.
        changed = rdma_state.differences(state, site) if state is not None and record.own else ()
        attempts.run(lambda: moving.give_back(netdev, site, changed))
    if state is not None:
        attempts.run(lambda: rdma_state.restore(state, site))
    return attempts.result()


def bring_back(name: str, state: RdmaState | None, site: Site) -> None:
    """Move an RDMA device from the pod to the host; one that never moved, or is back already, is not an error.

    Args:
        name: the name that it had.
        state: the device as it was, by which it is recognised under another name; None in records of an older netdra.
        site: where.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None:
        return
    with suppress(KernelMissingError), site.pod.namespace.socket(NETLINK_RDMA) as sock:
        inside = name if state is None else rdma_state.name_in(rdma.dump(sock), state, site.sysfs)
        if inside:
            rdma.move(sock, inside, site.host_namespace.fd)


def _check(order: Order, _: RdmaParams, final: StepResult, site: Site) -> tuple[str, ...]:
    device = next((device for device in reversed(final.devices) if device.rdma_device), None)
    if device is None:
        return ("the result names no RDMA device",)
    drift = []
    if device.rdma_device not in rdma.devices(site.sysfs) and not is_exclusive():
        drift.append(f'RDMA device "{device.rdma_device}" is not on the host')
    if is_exclusive():
        with site.inside.namespace.socket(NETLINK_RDMA) as sock:
            try:
                rdma.index_of(sock, device.rdma_device)
            except KernelMissingError:
                drift.append(f'RDMA device "{device.rdma_device}" is not in the pod')
    own_interface = any(
        interface.name == order.if_name and interface.sandbox == site.inside.path for interface in final.interfaces
    )
    return (*drift, *check_interface(order.if_name, final, site)) if own_interface else tuple(drift)


def _management(params: RdmaParams, *, stays: bool) -> tuple[str, ...]:
    """The kinds of files for management that a pod gets."""
    if params.management is not None:
        return params.management
    return () if stays else _MANAGEMENT


def character_devices(name: str, sysfs: Sysfs, management: tuple[str, ...] = _MANAGEMENT) -> tuple[str, ...]:
    """The files of an RDMA device below /dev/infiniband, and the connection manager's file, which all share."""
    nodes = [
        entry
        for group in ("infiniband_verbs", "infiniband_mad")
        for entry in sysfs.listing(f"class/{group}")
        if group == "infiniband_verbs" or entry.startswith(management)
        if sysfs.text(f"class/{group}/{entry}/ibdev") == name
    ]
    shared = [_CM] if sysfs.exists(f"class/misc/{_CM}") else []
    return tuple(f"/dev/infiniband/{entry}" for entry in (*nodes, *shared))


def _name(order: Order, params: RdmaParams, devices: dict[str, tuple[str, str]]) -> tuple[str, bool]:
    """The step's RDMA device, and whether it is that of a device which stays on the host."""
    if params.rdma_device:
        return params.rdma_device, False
    if order.device is not None:
        device = order.device
        found = device.rdma_device or _of(device.pci_address, device.if_name, devices)
        of = device.pci_address or device.if_name
    else:
        of = _last_address(order.previous)
        found = _of(of, "", devices)
    if found:
        return found, False
    for device in reversed(order.below):
        found = _of(device.pci_address, device.if_name, devices)
        if found or device.rdma_device:
            return found or device.rdma_device, True
    names = ", ".join(f'"{device.if_name or device.device}"' for device in order.below)
    raise PermanentError(
        f"{order.called}: no RDMA device belongs to {of or names or 'its dependencies'}",
        hint='select an RDMA capable device: device.attributes["dra.networking"].rdma',
        code="ND2052",
    )


def _of(address: str, netdev: str, devices: dict[str, tuple[str, str]]) -> str:
    """The RDMA device at a PCI address, or that of a netdev; "" without one.

    That of an active LACP bond is bound to the bond's netdev: the driver has made one device of both ports.
    """
    for name, (at, parent) in devices.items():
        if (netdev and parent == netdev) or (address and at == address):
            return name
    return ""


def _last_address(previous: StepResult) -> str:
    interfaces = (interface.pci_id for interface in reversed(previous.interfaces) if interface.pci_id)
    devices = (device.pci_address for device in reversed(previous.devices) if device.pci_address)
    return next(interfaces, "") or next(devices, "")


def _netdev(order: Order, address: str, name: str, site: Site) -> Link | None:
    """The netdev that moves along with a root step's device; None for a derived step, whose netdev is in the pod."""
    if order.device is None:
        return None
    by_address = netdev_of(site.host, site.sysfs, address) if address else None
    return by_address or (link.find(site.host, name) if name else None)


def is_exclusive() -> bool:
    """Whether RDMA devices are each in one namespace; a kernel that knows no such mode has them shared.

    Raises:
        KernelBusyError: it cannot be read just now.
    """
    try:
        with rdma.open_socket() as sock:
            return rdma.netns_mode(sock) == _EXCLUSIVE
    except KernelBusyError:
        raise
    except KernelError:
        return False


RDMA = Builtin(
    params=RdmaParams, record=RdmaMoved, prepare=_prepare, observe=_observe, apply=_apply, undo=_undo, check=_check
)
