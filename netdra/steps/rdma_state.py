"""An RDMA device as its next user must find it: its name, its settings, and no objects of a process on it.

Recorded before the device leaves the host, by the rdma step and with the netdev of its PCI function
(`netdra.steps.moving`), and compared and restored when it is back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from netdra.kernel import pci, rdma
from netdra.kernel.errors import KernelBusyError, KernelError
from netdra.kernel.netlink import Socket
from netdra.kernel.rdma import RdmaDevice
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import TemporaryError
from netdra.model.identity import DeviceIdentity
from netdra.steps import identity
from netdra.steps.contract import Record, Site
from netdra.steps.settings import StrandedError

_AGAIN = 0.02  # seconds
_CLEANUP = 2.0  # seconds for the kernel to end a dead process's objects, or for a driver to create a device again


class RdmaState(Record, frozen=True, kw_only=True):
    """The state of an RDMA device that its users can change, and how many objects it has.

    Attributes:
        address: its PCI address, "" for a device in software.
        resources: see `rdma.resources`; not compared if empty.
    """

    device: RdmaDevice
    address: str = ""
    resources: Mapping[str, int] = {}


def key(address: str) -> str:
    """The key of the RDMA device of a PCI function, which a sandbox holds beside the function's own."""
    return f"{address}/rdma"


def check_released(called: str, address: str, site: Site) -> None:
    """Refuse a PCI function while another sandbox still has objects on its RDMA device.

    Raises:
        TemporaryError: it has.
    """
    other = site.holder(key(address)) if address else ""
    if other:
        raise TemporaryError(
            f"{called}: the RDMA device of {address} is still used by sandbox {other}",
            hint="netdra releases it when the processes of that pod have ended",
            code="ND2053",
        )


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


def at(address: str, site: Site) -> RdmaState | None:
    """The RDMA device of a PCI function as it is on the host just now; None without one.

    Its objects are not counted: without an rdma step they are of processes of the node.

    Raises:
        KernelBusyError: it cannot be read just now.
    """
    if not address or not site.sysfs.exists(f"bus/pci/devices/{address}/infiniband"):
        return None
    name = next((name for name, (parent, _) in rdma.devices(site.sysfs).items() if parent == address), "")
    return seen(name, address, counted=False) if name else None


def differences(state: RdmaState, site: Site) -> tuple[str, ...]:
    """How an RDMA device differs from before, in words; nothing for a device in software that is gone.

    Raises:
        KernelError: the kernel refused.
    """
    name = state.device.name
    with rdma.open_socket() as sock:
        devices = rdma.dump(sock)
        there = name_in(devices, state, site.sysfs)
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
    """Make an RDMA device that is on the host what it was: its name, its settings, and no process's objects on it.

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
            raise StrandedError(problem.what, hint="netdra tries again by itself", code=problem.code) from None
        left = _leftover(sock, device, state, site)
    if left:
        raise StrandedError(
            f'RDMA device "{state.device.name}" still has {left}',
            hint=f"to find the processes: rdma resource show qp dev {state.device.name}",
            code="ND2054",
        )
    return ()


def _on_host(sock: Socket, state: RdmaState, site: Site) -> RdmaDevice | None:
    """A device of the host, None if it is not there; its driver may be about to make it again, after a reset."""
    until = min(site.deadline, time.monotonic() + _CLEANUP)
    while True:
        devices = rdma.dump(sock)
        name = name_in(devices, state, site.sysfs)
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
        code="ND2055",
    )


def name_in(devices: Iterable[RdmaDevice], state: RdmaState, sysfs: Sysfs) -> str:
    """The name of a device among those of a namespace, "" if it is not there.

    By its index and GUID under any name. If its driver has made it again, by its PCI address, which only the host's
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
    until = min(site.deadline, time.monotonic() + _CLEANUP)
    while True:
        left = _more(rdma.resources(sock, device), state) if state.resources else ""
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_AGAIN)


def _more(now: Mapping[str, int], state: RdmaState) -> str:
    """The objects that a device has beyond those that it had, in words."""
    more = {kind: count - state.resources.get(kind, 0) for kind, count in now.items()}
    return ", ".join(f"{count} {kind}" for kind, count in more.items() if count > 0)
