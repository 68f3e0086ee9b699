"""The rdma step: the pod gets an RDMA device's files, and the device itself where each belongs to one namespace.

A derived step takes the RDMA device of the interface that the step before it brought. A root step takes the allocated
device, and a netdev that this has on the host moves along, since RoCE takes its addresses from the netdev.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from netdra.kernel import link, pci, rdma
from netdra.kernel.errors import KernelBusyError, KernelError, KernelMissingError
from netdra.kernel.link import Link
from netdra.kernel.netlink import NETLINK_RDMA, Socket
from netdra.kernel.rdma import RdmaDevice
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import PermanentError
from netdra.model.identity import DeviceIdentity
from netdra.model.result import StepDevice, StepResult
from netdra.steps import identity, moving
from netdra.steps.contract import Attempts, Builtin, Order, Params, Record, Site, appended
from netdra.steps.devices import iommu_group, netdev_of
from netdra.steps.drift import check_interface
from netdra.steps.moving import Moved
from netdra.steps.settings import StrandedError

_EXCLUSIVE = "exclusive"
_CM = "rdma_cm"
_AGAIN = 0.02  # seconds


class RdmaParams(Params, frozen=True, kw_only=True):
    """Which RDMA device, where it is not the allocated one or that of the interface before."""

    rdma_device: str = ""


class RdmaState(Record, frozen=True, kw_only=True):
    """An RDMA device in what its users can change, and how many objects it has.

    Attributes:
        address: its PCI address, "" for a device in software.
        resources: see `rdma.resources`; not compared if empty.
    """

    device: RdmaDevice
    address: str = ""
    resources: Mapping[str, int] = {}


class RdmaMoved(Record, frozen=True, kw_only=True):
    """An RDMA device as it is.

    `netdev` moves along with it. `own` is true for a root step's device, and false for that of an interface which
    another step brought and holds. `state` is None in records of an older netdra.
    """

    rdma_device: str
    address: str
    exclusive: bool
    own: bool
    netdev: Moved | None = None
    state: RdmaState | None = None

    @property
    def holds(self) -> tuple[str, ...]:
        """The PCI device, if it is this step's."""
        return (self.address,) if self.own else ()


def _prepare(order: Order, params: RdmaParams) -> None:
    """Nothing can be checked before the devices are inspected."""


def _observe(order: Order, params: RdmaParams, site: Site) -> RdmaMoved:
    devices = rdma.devices(site.sysfs)
    name = _name(order, params, devices)
    if name not in devices:
        raise PermanentError(
            f'{order.called}: the host has no RDMA device "{name}"', hint=f"there are: {', '.join(devices) or 'none'}"
        )
    address, netdev_name = devices[name]
    moved = _netdev(order, address, netdev_name, site)
    if moved is not None and not site.sysfs.exists(f"class/infiniband/{name}/device"):
        raise PermanentError(
            f'{order.called}: RDMA device "{name}" is made in software on "{moved.name}", and ends when that moves',
            hint="take an RDMA device of hardware, or move the interface and make the device in the pod",
        )
    return RdmaMoved(
        rdma_device=name,
        address=address,
        exclusive=is_exclusive(),
        own=order.device is not None,
        netdev=None if moved is None else moving.observe(order, moved, site),
        state=seen(name, address, counted=order.device is None or not order.device.is_shared),
    )


def _apply(order: Order, _: RdmaParams, record: RdmaMoved, site: Site) -> StepResult:
    if record.exclusive:
        with rdma.open_socket() as sock:
            rdma.move(sock, record.rdma_device, site.inside.namespace.fd)
    # The kernel makes the files of a device that moves anew, each with the lowest number that is free just then
    # (drivers/infiniband/core/device.c, rdma_dev_change_netns; uverbs_main.c, ib_uverbs_add_one).
    device = StepDevice(
        pci_address=record.address,
        iommu_group=iommu_group(record.address, site.sysfs),
        device_nodes=character_devices(record.rdma_device, site.sysfs),
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
        changed = differences(state, site) if state is not None and record.own else ()
        attempts.run(lambda: moving.give_back(netdev, site, changed))
    if state is not None:
        attempts.run(lambda: restore(state, site))
    return attempts.result()


def seen(name: str, address: str, *, counted: bool = True) -> RdmaState | None:
    """An RDMA device of the host as it is just now; None where the kernel does not list it.

    Args:
        name: its name.
        address: its PCI address, "" for none.
        counted: whether to count its objects, which only a device of one pod has for itself.

    Raises:
        KernelBusyError: it cannot be read just now.
    """
    try:
        with rdma.open_socket() as sock:
            device = next((device for device in rdma.dump(sock) if device.name == name), None)
            if device is None:
                return None
            return RdmaState(device=device, address=address, resources=rdma.resources(sock, device) if counted else {})
    except KernelBusyError:
        raise
    except KernelError:
        return None


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
        inside = name if state is None else _name_in(rdma.dump(sock), state, site.sysfs)
        if inside:
            rdma.move(sock, inside, site.host_namespace.fd)


def differences(state: RdmaState, site: Site) -> tuple[str, ...]:
    """How an RDMA device differs from before, in words; nothing for a device in software that is gone.

    Raises:
        KernelError: the kernel refused.
    """
    name = state.device.name
    with rdma.open_socket() as sock:
        devices = rdma.dump(sock)
        there = _name_in(devices, state, site.sysfs)
        device = next((device for device in devices if device.name == there), None)
        if device is None:
            return (f'RDMA device "{name}" is not on the host',) if state.address else ()
        now = rdma.resources(sock, device) if state.resources else {}
    left = _more(now, state)
    texts = (
        (device.name != name, f'RDMA device "{name}" is called "{device.name}"'),
        (state.device.adaptive not in (None, device.adaptive), f'RDMA device "{name}" has other adaptive moderation'),
        (bool(left), f'RDMA device "{name}" still has {left}'),
    )
    return tuple(text for differs, text in texts if differs)


def restore(state: RdmaState, site: Site) -> tuple[str, ...]:
    """Make an RDMA device that is on the host what it was: its name, its settings, and nobody's objects on it.

    Raises:
        StrandedError: it is not on the host, it still has objects of a process, or the kernel refused.
    """
    with rdma.open_socket() as sock:
        device = _on_host(sock, state, site)
        if device is None:
            return _lost(state, site)
        try:
            if device.name != state.device.name:
                rdma.rename(sock, device, state.device.name)
                site.restored.append(f'RDMA device "{state.device.name}" was called "{device.name}"')
            if state.device.adaptive not in (None, device.adaptive):
                rdma.set_adaptive(sock, device, on=bool(state.device.adaptive))
                site.restored.append(f'RDMA device "{state.device.name}" had other adaptive moderation')
        except KernelError as problem:
            raise StrandedError(problem.what, hint="netdra tries again by itself") from None
        left = _leftover(sock, device, state, site)
    if left:
        raise StrandedError(
            f'RDMA device "{state.device.name}" still has {left}',
            hint=f"to find the processes: rdma resource show qp dev {state.device.name}",
        )
    return ()


def _on_host(sock: Socket, state: RdmaState, site: Site) -> RdmaDevice | None:
    """A device of the host, None if it is not there; its driver may be about to make it anew, after a reset."""
    until = min(site.deadline, moving.give_up_at())
    while True:
        devices = rdma.dump(sock)
        name = _name_in(devices, state, site.sysfs)
        device = next((device for device in devices if device.name == name), None)
        if device is not None or not pci.driver_of(site.sysfs, state.address) or time.monotonic() >= until:
            return device
        time.sleep(_AGAIN)


def _lost(state: RdmaState, site: Site) -> tuple[str, ...]:
    name = state.device.name
    if not state.address:
        return (f'RDMA device "{name}", which was made in software, is gone',)
    if identity.liveness(DeviceIdentity(bus="pci", address=state.address), site.sysfs).is_gone:
        return (f'RDMA device "{name}" ({state.address}) is gone from the machine',)
    raise StrandedError(
        f'RDMA device "{name}" ({state.address}) is neither in the pod nor on the host',
        hint="check other network namespaces: ip netns exec NAME rdma dev",
    )


def _name_in(devices: Iterable[RdmaDevice], state: RdmaState, sysfs: Sysfs) -> str:
    """The name of a device among those of a namespace, "" if it is not there.

    By its index and GUID under any name. If its driver has made it anew, by its PCI address, which only the host's
    sysfs has; else by its name.
    """
    former, named = state.device, {device.name: device for device in devices}
    for device in named.values():
        if (device.index, device.node_guid) == (former.index, former.node_guid):
            return device.name
    if state.address:
        at = (name for name, (address, _) in rdma.devices(sysfs).items() if address == state.address)
        return next((name for name in at if name in named), "")
    return former.name if former.name in named else ""


def _leftover(sock: Socket, device: RdmaDevice, state: RdmaState, site: Site) -> str:
    """The objects that a device has beyond those that it had, in words; the kernel ends those of a dead process soon.

    The kernel reports no event for that, so it is asked again.
    """
    until = min(site.deadline, moving.give_up_at())
    while True:
        left = _more(rdma.resources(sock, device), state) if state.resources else ""
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_AGAIN)


def _more(now: Mapping[str, int], state: RdmaState) -> str:
    """The objects that a device has beyond those that it had, in words."""
    more = {kind: count - state.resources.get(kind, 0) for kind, count in now.items()}
    return ", ".join(f"{count} {kind}" for kind, count in more.items() if count > 0)


def _check(order: Order, _: RdmaParams, final: StepResult, site: Site) -> tuple[str, ...]:
    device = next((device for device in reversed(final.devices) if device.rdma_device), None)
    if device is None:
        return ("the result names no RDMA device",)
    drift = []
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


def character_devices(name: str, sysfs: Sysfs) -> tuple[str, ...]:
    """The files of an RDMA device below /dev/infiniband, and the connection manager's file, which all share."""
    nodes = [
        entry
        for group in ("infiniband_verbs", "infiniband_mad")
        for entry in sysfs.listing(f"class/{group}")
        if sysfs.text(f"class/{group}/{entry}/ibdev") == name
    ]
    shared = [_CM] if sysfs.exists(f"class/misc/{_CM}") else []
    return tuple(f"/dev/infiniband/{entry}" for entry in (*nodes, *shared))


def _name(order: Order, params: RdmaParams, devices: dict[str, tuple[str, str]]) -> str:
    if params.rdma_device:
        return params.rdma_device
    if order.device is not None and order.device.rdma_device:
        return order.device.rdma_device
    address = order.device.pci_address if order.device is not None else _last_address(order.previous)
    netdev = order.device.if_name if order.device is not None else ""
    names = [
        name for name, (at, parent) in devices.items() if (address and at == address) or (netdev and parent == netdev)
    ]
    if not names:
        raise PermanentError(
            f"{order.called}: no RDMA device belongs to {address or netdev or 'what it depends on'}",
            hint="set rdmaDevice, or let the step depend on one that brings an RDMA capable interface",
        )
    return names[0]


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
