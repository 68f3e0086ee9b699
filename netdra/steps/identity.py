"""Recognise a device, in any namespace and under any name. Used by the steps, to undo and to check.

A device on a bus is recognised by its place, of several netdevs at one place by its port or its permanent MAC; another
physical one by its permanent MAC, a virtual one by name, kind and MAC. Never by its ifindex: the kernel reuses those.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from netdra.kernel import bus, link, pci
from netdra.kernel.errors import EventsLostError
from netdra.kernel.link import Link
from netdra.kernel.liveness import Liveness
from netdra.kernel.monitor import LINKS, LinkEvent, Monitor
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model.identity import DeviceIdentity


def identity_of(netdev: Link, sysfs: Sysfs) -> DeviceIdentity:
    """The identity of a link; the number of its port only if it is in the host's namespace."""
    place, address = bus.place_of(sysfs, netdev.parent_bus, netdev.parent)
    return DeviceIdentity(
        bus=place,
        address=address,
        port=_port(netdev, sysfs),
        permanent_mac=netdev.permanent_address,
        kind=netdev.kind,
        mac=netdev.address,
    )


def liveness(device: DeviceIdentity, sysfs: Sysfs) -> Liveness:
    """Whether the machine still has a device, by its own bus; a device on no bus counts as present."""
    return bus.liveness(sysfs, device.bus, device.address) if device.address else Liveness("present")


def find(sock: Socket, sysfs: Sysfs, device: DeviceIdentity, *names: str, same_mac: bool = True) -> Link | None:
    """The device in a namespace, or None if it is not there.

    Args:
        sock: a socket in that namespace.
        sysfs: the host's.
        device: what the device is recognised by.
        names: what it may be called; a virtual device is searched for under these alone.
        same_mac: whether a virtual device must still have the MAC that it had. A device that was given to a pod need
            not: in a namespace of its own the name is enough.
    """
    named: list[Link] = []
    for name in names:
        netdev = link.find(sock, name) if name else None
        if netdev is not None and _is_at(netdev, device, sysfs, same_mac=same_mac):
            if not device.is_physical or is_port(netdev, device, sysfs):
                return netdev
            named.append(netdev)
    if not device.is_physical:
        return None
    fitting = [netdev for netdev in link.dump(sock) if _is_at(netdev, device, sysfs, same_mac=same_mac)]
    exact = next((netdev for netdev in fitting if is_port(netdev, device, sysfs)), None)
    if exact is not None:
        return exact
    possible = [netdev for netdev in (*named, *fitting) if is_port(netdev, device, sysfs) is None]
    return possible[0] if possible else None


def is_port(netdev: Link, device: DeviceIdentity, sysfs: Sysfs) -> bool | None:
    """Whether a netdev at a device's place is the device and not another port of it; None if that is not known.

    The number of a port cannot be read in a pod, and some drivers have none: then the permanent MAC decides. A VF takes
    the MAC that its PF has for it as its permanent one (drivers/net/ethernet/intel/igbvf); other devices keep theirs.
    """
    port = _port(netdev, sysfs)
    is_known = port is not None and device.port is not None
    if is_known and port != device.port:
        return False
    if netdev.permanent_address and device.permanent_mac:
        if netdev.permanent_address == device.permanent_mac:
            return True
        if not pci.pf_of(sysfs, device.pci_address):
            return False
    return True if is_known else None


def await_return(
    host: Namespace, sysfs: Sysfs, device: DeviceIdentity, find: Callable[[], Link | None], deadline: float
) -> Link | None:
    """A device that the kernel is about to return to the host, or None if that does not happen in time.

    The kernel cleans a dead namespace up in the background, so right after its end its devices are nowhere.

    Args:
        host: where it comes back.
        sysfs: the host's.
        device: its identity: other links that come meanwhile, perhaps hundreds a second, cause no
            search for it.
        find: finds the device there.
        deadline: until when to wait, on the monotonic clock.
    """
    with host.run(lambda: Monitor(LINKS)) as events:
        poller = select.poll()
        poller.register(events.fileno(), select.POLLIN)
        netdev = find()
        while netdev is None:
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                return None
            if _may_be_back(events, device, sysfs):
                netdev = find()
        return netdev


def _may_be_back(events: Monitor, device: DeviceIdentity, sysfs: Sysfs) -> bool:
    try:
        arrived = events.read()
    except EventsLostError:
        return True
    return any(
        isinstance(event, LinkEvent) and not event.gone and _is_at(event.link, device, sysfs, same_mac=True)
        for event in arrived
    )


def _is_at(netdev: Link, device: DeviceIdentity, sysfs: Sysfs, *, same_mac: bool) -> bool:
    """Whether a netdev is at a device's place on its bus; without one, whether it is the device itself."""
    if device.address and not device.bus:  # a record of an older netdra
        return netdev.parent == device.address
    if device.address:
        return bus.place_of(sysfs, netdev.parent_bus, netdev.parent) == (device.bus, device.address)
    if device.is_physical:
        return not netdev.kind and netdev.permanent_address == device.permanent_mac
    return netdev.kind == device.kind and (netdev.address == device.mac or not same_mac)


def _port(netdev: Link, sysfs: Sysfs) -> str | None:
    """Which of several netdevs of one device a netdev is; None if that cannot be read where it is."""
    if netdev.port is not None:
        return netdev.port_name
    if not netdev.parent:
        return None
    number = bus.port_of(sysfs, netdev.parent_bus, netdev.parent, netdev.name, netdev.index)
    return None if number is None else str(number or "")
