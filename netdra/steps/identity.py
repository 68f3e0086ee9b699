"""Recognise a device, in any namespace and under any name. Used by the steps, to undo and to check.

A device behind a bus is recognised by its bus address, another physical one by its permanent MAC, a virtual one by
name, kind and MAC. Never by its ifindex: the kernel gives those out again.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import msgspec

from netdra.kernel import link
from netdra.kernel.errors import EventsLostError
from netdra.kernel.link import Link
from netdra.kernel.monitor import LINKS, LinkEvent, Monitor
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a device is recognised by. `parent` is its bus address; `kind` is that of a virtual device."""

    parent: str = ""
    permanent_mac: str = ""
    kind: str = ""
    mac: str = ""

    @property
    def is_physical(self) -> bool:
        """Whether the device outlives the namespace that it is in: the kernel gives it back to the host."""
        return bool(self.parent) or (bool(self.permanent_mac) and not self.kind)

    @property
    def key(self) -> str:
        """A text that no other device of the machine has; "" for a virtual device, which has only names."""
        return (self.parent or self.permanent_mac) if self.is_physical else ""


def identity_of(netdev: Link) -> Identity:
    """The identity of a link."""
    return Identity(parent=netdev.parent, permanent_mac=netdev.permanent_address, kind=netdev.kind, mac=netdev.address)


def find(sock: Socket, identity: Identity, *names: str, same_mac: bool = True) -> Link | None:
    """The device in a namespace, or None if it is not there.

    Args:
        sock: a socket in that namespace.
        identity: what the device is recognised by.
        names: what it may be called; a virtual device is looked for under these alone.
        same_mac: whether a virtual device must still have the MAC that it had. A device that was given to a pod need
            not: in a namespace of its own the name is enough.
    """
    for name in names:
        netdev = link.find(sock, name) if name else None
        if netdev is not None and _is(netdev, identity, same_mac=same_mac):
            return netdev
    if not identity.is_physical:
        return None
    candidates = [netdev for netdev in link.dump(sock) if _is(netdev, identity, same_mac=same_mac)]
    # Two ports of one card can share a bus address.
    exact = [netdev for netdev in candidates if netdev.permanent_address == identity.permanent_mac]
    return next(iter(exact or candidates), None)


def await_return(host: Namespace, device: Identity, find: Callable[[], Link | None], deadline: float) -> Link | None:
    """A device that the kernel is about to give back to the host, or None if that does not happen in time.

    The kernel cleans a dead namespace up in the background, so right after its end its devices are nowhere.

    Args:
        host: where it comes back.
        device: what it is recognised by: other links that come meanwhile, perhaps hundreds a second, are no reason to
            look for it.
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
            if _may_be_back(events, device):
                netdev = find()
        return netdev


def _may_be_back(events: Monitor, device: Identity) -> bool:
    try:
        arrived = events.read()
    except EventsLostError:
        return True
    return any(
        isinstance(event, LinkEvent) and not event.gone and _is(event.link, device, same_mac=True) for event in arrived
    )


def _is(netdev: Link, identity: Identity, *, same_mac: bool) -> bool:
    if identity.parent:
        return netdev.parent == identity.parent
    if identity.is_physical:
        return not netdev.kind and netdev.permanent_address == identity.permanent_mac
    return netdev.kind == identity.kind and (netdev.address == identity.mac or not same_mac)
