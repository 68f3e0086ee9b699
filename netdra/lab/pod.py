"""A pod of the lab: a network namespace with a path, and its content as read by netlink and by `ip`.

Called by `demo`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from netdra.kernel import address, link, netns, route, uapi
from netdra.model.errors import PermanentError

_LOOPBACK = "lo"


class PodInterface(msgspec.Struct, frozen=True, rename="camel"):
    """One interface as the pod sees it; routes are those that leave through it."""

    name: str
    kind: str
    mac: str
    mtu: int
    state: str
    master: str = ""
    addresses: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


@contextmanager
def created(name: str) -> Iterator[netns.Namespace]:
    """A pod's namespace, deleted with its remaining content at the end."""
    with netns.Namespace.create(name) as pod:
        try:
            with pod.socket() as sock:
                link.change(sock, _LOOPBACK, up=True)
            yield pod
        finally:
            netns.delete(name)


def seen(pod: netns.Namespace) -> tuple[PodInterface, ...]:
    """The pod's interfaces but for loopback, in the order of their names, read over netlink."""
    with pod.socket() as sock:
        links = {netdev.index: netdev for netdev in link.dump(sock)}
        addresses = [ip_address for ip_address in address.dump(sock) if not ip_address.text.startswith("fe80:")]
        routes = [
            entry
            for entry in route.dump(sock, table=uapi.RT_TABLE_MAIN)
            if not entry.destination.startswith(("fe80:", "ff00:"))
        ]
    return tuple(
        PodInterface(
            name=netdev.name,
            kind=netdev.kind,
            mac=netdev.address,
            mtu=netdev.mtu,
            state=netdev.state,
            master=links[netdev.master].name if netdev.master in links else "",
            addresses=tuple(ip_address.text for ip_address in addresses if ip_address.index == index),
            routes=tuple(
                f"{entry.destination} via {entry.gateway}" if entry.gateway else f"{entry.destination} on the link"
                for entry in routes
                if entry.index == index
            ),
        )
        for index, netdev in sorted(links.items(), key=lambda item: item[1].name)
        if netdev.name != _LOOPBACK
    )


def agrees_with_ip(pod: netns.Namespace, own: tuple[PodInterface, ...]) -> bool:
    """Whether iproute2, an independent reader, sees the same interfaces, MTUs, MACs, masters and addresses.

    Raises:
        PermanentError: `ip` is not installed, or it fails.
    """
    theirs = {
        netdev["ifname"]: (
            netdev["address"],
            netdev["mtu"],
            netdev.get("master", ""),
            tuple(
                f"{entry['local']}/{entry['prefixlen']}" for entry in netdev["addr_info"] if entry["scope"] != "link"
            ),
        )
        for netdev in _ip(pod)
        if netdev["ifname"] != _LOOPBACK
    }
    return theirs == {entry.name: (entry.mac, entry.mtu, entry.master, entry.addresses) for entry in own}


def _ip(pod: netns.Namespace) -> list[dict[str, Any]]:
    program = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise PermanentError(
            "the program `ip` is not installed, so the result cannot be compared",
            hint="install iproute2",
            code="ND4087",
        )
    command = [program, "-json", "-details", "address", "show"]
    done = pod.run(lambda: subprocess.run(command, capture_output=True, text=True, check=False))
    if done.returncode != 0:
        raise PermanentError(f"`ip` failed: {done.stderr.strip()}", code="ND4088")
    netdevs: list[dict[str, Any]] = json.loads(done.stdout)
    return netdevs
