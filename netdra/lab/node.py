"""The lab's machine: NICs, a bridge and an uplink, made in the namespaces that the process was given.

A NIC is one end of a veth pair whose other end is in a namespace of its own, "the wire", so it can be moved into a pod
like a card. Called by `demo`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from netdra.kernel import address, kinds, link, netns, route, uapi
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Socket

NAME = "lab-node"
NICS = ("lan0", "lan1")
UPLINK = "mgmt0"
BRIDGE = "br-lab"
_TRUNK = "trunk0"
LINKS = (*NICS, UPLINK, BRIDGE, _TRUNK)
_PROBE = "nd-probe"


class Kinds(msgspec.Struct, frozen=True):
    """Which kinds of link, of those that scenarios need, the kernel can make; and the word for each it cannot."""

    available: tuple[str, ...]
    missing: tuple[str, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """The content of a network namespace, without values that change by themselves (indexes, link-local addresses)."""

    links: tuple[str, ...]
    addresses: tuple[str, ...]
    routes: tuple[str, ...]


@contextmanager
def built() -> Iterator[Socket]:
    """The machine, in this process's network namespace; yields a socket there, and takes the wire down at the end.

    Raises:
        KernelError: the kernel refused a link.
    """
    with netns.Namespace.anonymous() as wire, Socket() as sock, wire.socket() as far:
        link.change(sock, "lo", up=True)
        for number, name in enumerate((*NICS, UPLINK)):
            _nic(sock, far, name, number, wire.fd)
        _bridge(sock, far, wire.fd)
        uplink = link.get(sock, UPLINK).index
        address.add(sock, uplink, "192.0.2.10/24")
        route.add(sock, route.Route(destination="0.0.0.0/0", index=uplink, gateway="192.0.2.1"))
        yield sock


def probe(sock: Socket, wanted: Sequence[str]) -> Kinds:
    """Try which kinds of link the kernel makes, each on the first NIC if it stands on another link."""
    data = {"vlan": kinds.vlan(1), "macvlan": kinds.macvlan(), "bond": b"", "bridge": b""}
    available = []
    for kind in wanted:
        lower = link.get(sock, NICS[0]).index if kind in {"vlan", "macvlan"} else None
        try:
            link.create(sock, _PROBE, kind, data[kind], lower=lower)
        except KernelError:
            continue
        link.delete(sock, _PROBE)
        available.append(kind)
    return Kinds(tuple(available), tuple(kind for kind in wanted if kind not in available))


def snapshot(sock: Socket) -> Snapshot:
    """The links, addresses and routes of the socket's namespace."""
    links = {netdev.index: netdev for netdev in link.dump(sock)}
    names = {index: netdev.name for index, netdev in links.items()}
    return Snapshot(
        links=tuple(
            sorted(
                f"{netdev.name} {netdev.kind} {netdev.address} mtu {netdev.mtu} "
                f"{'up' if netdev.is_up else 'down'} {names.get(netdev.master, '')}".rstrip()
                for netdev in links.values()
            )
        ),
        addresses=tuple(
            sorted(
                f"{names.get(entry.index, '')} {entry.text}"
                for entry in address.dump(sock)
                if not entry.text.startswith("fe80:")
            )
        ),
        routes=tuple(
            sorted(
                f"{entry.destination} via {entry.gateway or 'link'} dev {names.get(entry.index, '')}"
                for entry in route.dump(sock, table=uapi.RT_TABLE_MAIN)
                if not entry.destination.startswith(("fe80:", "ff00:"))
            )
        ),
    )


def _nic(sock: Socket, far: Socket, name: str, number: int, wire: int) -> None:
    peer = f"far-{name}"
    mac = f"02:00:00:00:{number:02x}:01"
    link.create(sock, name, "veth", kinds.veth(kinds.Peer(peer, netns_fd=wire)), mac=mac)
    link.change(sock, name, up=True)
    link.change(far, peer, up=True)


def _bridge(sock: Socket, far: Socket, wire: int) -> None:
    link.create(sock, BRIDGE, "bridge", mac="02:00:00:00:ff:01")
    _nic(sock, far, _TRUNK, len(NICS) + 1, wire)
    link.change(sock, _TRUNK, master=link.get(sock, BRIDGE).index)
    link.change(sock, BRIDGE, up=True)
