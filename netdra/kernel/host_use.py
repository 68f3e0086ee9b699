"""The host's own uses of a link, in words: `bridge-port br0`, `bond-slave bond0`, `vlan-parent`, `address` ...

Discovery asks for all links at once (`words` on the facts that it has). Steps that take a device away from the host ask
for its one link, right before they do (`read`). Some things are not use: an address that every link has by itself
(link-local IPv6), the routes that come with an address, links on top in another namespace, which cannot be seen here.
The host's end of a veth whose other end is in a pod is a use: it is how that pod is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from netdra.kernel import address, bpf, link, pod_namespaces, route
from netdra.kernel.address import Address
from netdra.kernel.bpf import Program
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.route import Route
from netdra.kernel.sysfs import Sysfs

ADDRESS, ROUTE, XDP, POD = "address", "route", "xdp", "pod-peer"
_PORTS = {"bond": "bond-slave", "openvswitch": "ovs-port"}


def words(
    netdev: Link,
    master: Link | None,
    stacked: Iterable[Link],
    addresses: Iterable[Address],
    *,
    routed: bool,
    reaches_pod: bool = False,
    programs: Iterable[str] = (),
    of: str = "",
) -> tuple[str, ...]:
    """The uses of a link.

    Args:
        master: the bridge, bond ... that it is a port of.
        stacked: the links that stand on it and are not its master.
        routed: whether a route leaves through it that did not come with an address.
        reaches_pod: whether it is the end of a veth or netkit pair whose other end is in a pod's namespace, or may be.
        programs: the words of its BPF programs besides XDP (`netdra.kernel.bpf.uses`).
        of: another name for the master: no user knows the name of Open vSwitch's datapath.
    """
    used = []
    if master is not None:
        kind = netdev.port_kind or master.kind
        used.append(f"{_PORTS.get(kind, f'{kind}-port')} {of or master.name}")
    if reaches_pod:
        used.append(POD)
    used += sorted({f"{interface.kind or 'other'}-parent" for interface in stacked})
    if any(counts(entry) for entry in addresses):
        used.append(ADDRESS)
    if routed:
        used.append(ROUTE)
    if netdev.xdp:
        used.append(XDP)
    used += programs
    return tuple(used)


def counts(candidate: Address) -> bool:
    """Whether an address means that the host uses the link: any but those that the kernel gives every link for IPv6."""
    return not candidate.is_link_local


class Configuration(NamedTuple):
    """The addresses of a link, the routes that leave through it, and its BPF programs; None if they were not read."""

    addresses: Sequence[Address]
    routes: Sequence[Route]
    programs: tuple[Program, ...] | None = None


def configuration(sock: Socket, netdev: Link, *, with_programs: bool = True) -> Configuration:
    """The addresses, routes and BPF programs that a link has just now.

    Args:
        sock: a socket in the link's namespace.
        netdev: the link, as it was read a moment ago.
        with_programs: whether to read its programs: only where the link's namespace is the calling thread's.

    Raises:
        KernelError: the kernel refused.
    """
    programs = bpf.attached(netdev, sock) if with_programs else None
    return Configuration(address.dump(sock, netdev.index), route.dump(sock, through=netdev.index), programs)


def read(sock: Socket, netdev: Link, sysfs: Sysfs, has: Configuration) -> tuple[str, ...]:
    """The uses of a link just now, asked of the kernel.

    Only where sysfs shows something above the link, or does not show the link, are all links listed: that waits for the
    kernel's lock of all networks.

    Args:
        sock: a socket in the link's namespace.
        netdev: the link, as it was read a moment ago.
        sysfs: the namespace's, if it is there.
        has: the link's `configuration`, as it was read a moment ago.

    Raises:
        KernelError: the kernel refused.
    """
    folder = f"class/net/{netdev.name}"
    listed = sysfs.names(folder) if sysfs.number(f"{folder}/ifindex") == netdev.index else None
    stands_alone = isinstance(listed, list) and not any(entry.startswith("upper_") for entry in listed)
    return words(
        netdev,
        link.find(sock, netdev.master) if netdev.master else None,
        [] if stands_alone else link.stacked_on(sock, netdev.index),
        has.addresses,
        routed=any(entry.is_made for entry in has.routes),
        reaches_pod=_reaches_pod(sock, netdev),
        programs=bpf.words(has.programs or ()),
    )


def _reaches_pod(sock: Socket, netdev: Link) -> bool:
    """Whether the other end of a pair is in a pod, or in a namespace that is about to end, which may be a pod's.

    Raises:
        KernelError: the namespaces of pods cannot be read.
    """
    number = netdev.peer_netns
    return number != link.HERE and (number == link.UNASSIGNED or number in pod_namespaces.ids(sock))
