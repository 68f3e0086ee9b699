"""Children of a device in other namespaces: macvlan, macvtap, ipvlan, VLAN, MACsec ... that stand on it (IFLA_LINK).

A child stays a child when its lower device moves to another namespace: the drivers let a device that is unregistered
for a move keep them (`NETDEV_UNREGISTER` in drivers/net/macvlan.c, net/8021q/vlan.c, drivers/net/ipvlan/ipvlan_main.c).
So a child that a pod put on its device and moved to another namespace, or made right there, stays on the device.

A child has the index of its lower device, and the id that the namespace which is asked has for the lower one's
(IFLA_LINK, IFLA_LINK_NETNSID): the same index in any other namespace is another device. Links on a child go with it.
Called by `netdra.chain.returned`, when a device is back on the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from netdra.kernel import link, pod_namespaces, uapi
from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket, attribute
from netdra.kernel.netns import Namespace

_BY_ROUTE = frozenset(
    {"gre", "gretap", "ip6gre", "ip6gretap", "erspan", "ip6erspan", "ipip", "sit", "ip6tnl", "vti", "vti6", "xfrm"}
)
"""Tunnels: their IFLA_LINK is an index by which they route in the namespace that they were made in, and not a device
that they stand on. What a device receives does not reach them but by the IP of the namespace that it is in."""
_WITHOUT_ID = frozenset({"ipvtap"})
"""Kinds whose driver does not report the namespace of the lower device (it has no get_link_net()). These have the lower
device's address, and follow it."""
_KINDS_WITHOUT_ID = re.compile(b"|".join(kind.encode() for kind in sorted(_WITHOUT_ID)))
_SIGN = attribute(uapi.IFLA_LINK_NETNSID, b"\0\0\0\0")[:4]  # the attribute's header


class StackedLink(msgspec.Struct, frozen=True):
    """A link in another namespace that stands on a device of the host.

    Attributes:
        name: its name there, and `index` its index, `kind` its kind ("macvlan").
        lower: the index of the device on the host.
        netns_id: the id of its namespace in the socket's that was asked, -1 for the socket's own.
        address: the address that the device must have too, where the kernel does not report its namespace; else "".
    """

    name: str
    index: int
    kind: str
    lower: int
    netns_id: int = -1
    address: str = ""


def find(sock: Socket, host: Namespace, netns_id: int = -1) -> list[StackedLink]:
    """The children in a namespace of all devices of the host.

    Args:
        sock: a socket in that namespace, or in one in which that namespace has the id.
        host: the namespace of the devices.
        netns_id: the id, -1 for the socket's own namespace.

    Raises:
        KernelMissingError: the namespace with that id is gone.
        KernelError: the kernel refused.
    """
    bodies = link.dump_raw(sock, netns_id)[0]
    candidates = [candidate for body in bodies if _SIGN in body and _stands_elsewhere(candidate := link.parse(body))]
    without_id = list(_without_id(bodies, netns_id))
    if not candidates:
        return without_id
    # Read after the dump, which assigns an id to a namespace without one (rtnl_fill_link_netnsid() in rtnetlink.c).
    home = pod_namespaces.id_of(sock, host.fd)
    return without_id + [
        StackedLink(entry.name, entry.index, entry.kind or "other", entry.lower, netns_id)
        for entry in candidates
        if entry.lower_netns == home
    ]


def find_known(sock: Socket, own: Namespace, host: Namespace) -> Iterator[StackedLink]:
    """The children of devices of the host that are in a namespace which has an id in a socket's namespace.

    A namespace has an id where a link was moved to it from, or leads to it from. So a child that a pod has moved away
    is found also if nothing that can be seen refers to its namespace.

    Args:
        sock: a socket in a pod's namespace.
        own: that namespace, which is left out itself.
        host: the namespace of the devices; what is in it is left out, too.

    Raises:
        KernelError: the kernel refused.
    """
    further = set(pod_namespaces.known_ids(sock)) - {pod_namespaces.id_of(sock, host.fd)}
    if further:
        further.discard(pod_namespaces.id_of(sock, own.fd))
    for number in further:
        with suppress(KernelMissingError):  # it is gone
            yield from find(sock, host, number)


def delete(sock: Socket, child: StackedLink) -> str:
    """Delete a child; return why it could not be, "" if it is gone.

    Args:
        sock: the socket that it was found by.
    """
    try:
        link.delete(sock, child.index, child.netns_id)
    except KernelMissingError:
        pass
    except KernelError as problem:
        return problem.what
    return ""


def _stands_elsewhere(candidate: Link) -> bool:
    return candidate.lower_netns >= 0 and candidate.lower > 0 and candidate.kind not in link.PAIRED | _BY_ROUTE


def _without_id(bodies: Sequence[bytes], netns_id: int) -> Iterator[StackedLink]:
    """The links of a namespace that stand on a device of it or of an unknown other one; not on one that is here."""
    if not any(_KINDS_WITHOUT_ID.search(body) for body in bodies):
        return
    links = {entry.index: entry for entry in map(link.parse, bodies)}
    for entry in links.values():
        lower = links.get(entry.lower)
        is_here = lower is not None and lower.address == entry.address
        if entry.kind in _WITHOUT_ID and entry.lower and not is_here:
            yield StackedLink(entry.name, entry.index, entry.kind, entry.lower, netns_id, entry.address)
