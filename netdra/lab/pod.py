"""A pod of the lab: a network namespace with a path, and what is seen inside it, by netlink and by `ip`.

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


class Seen(msgspec.Struct, frozen=True, rename="camel"):
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
    """A pod's namespace, deleted with what is left in it at the end."""
    with netns.Namespace.create(name) as pod:
        try:
            with pod.socket() as sock:
                link.change(sock, _LOOPBACK, up=True)
            yield pod
        finally:
            netns.delete(name)


def seen(pod: netns.Namespace) -> tuple[Seen, ...]:
    """The pod's interfaces but for loopback, in the order of their names, read over netlink."""
    with pod.socket() as sock:
        links = {found.index: found for found in link.dump(sock)}
        addresses = [found for found in address.dump(sock) if not found.text.startswith("fe80:")]
        routes = [
            found
            for found in route.dump(sock, table=uapi.RT_TABLE_MAIN)
            if not found.destination.startswith(("fe80:", "ff00:"))
        ]
    return tuple(
        Seen(
            name=found.name,
            kind=found.kind,
            mac=found.address,
            mtu=found.mtu,
            state=found.state,
            master=links[found.master].name if found.master in links else "",
            addresses=tuple(each.text for each in addresses if each.index == index),
            routes=tuple(
                f"{each.destination} via {each.gateway}" if each.gateway else f"{each.destination} on the link"
                for each in routes
                if each.index == index
            ),
        )
        for index, found in sorted(links.items(), key=lambda item: item[1].name)
        if found.name != _LOOPBACK
    )


def agrees_with_ip(pod: netns.Namespace, ours: tuple[Seen, ...]) -> bool:
    """Whether iproute2, an independent reader, sees the same interfaces, MTUs, MACs, masters and addresses.

    Raises:
        PermanentError: there is no `ip` here, or it fails.
    """
    theirs = {
        found["ifname"]: (
            found["address"],
            found["mtu"],
            found.get("master", ""),
            tuple(f"{each['local']}/{each['prefixlen']}" for each in found["addr_info"] if each["scope"] != "link"),
        )
        for found in _ip(pod)
        if found["ifname"] != _LOOPBACK
    }
    return theirs == {found.name: (found.mac, found.mtu, found.master, found.addresses) for found in ours}


def _ip(pod: netns.Namespace) -> list[dict[str, Any]]:
    program = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        raise PermanentError("there is no `ip` here to compare with", hint="install iproute2")
    command = [program, "-json", "-details", "address", "show"]
    done = pod.run(lambda: subprocess.run(command, capture_output=True, text=True, check=False))
    if done.returncode != 0:
        raise PermanentError(f"`ip` failed: {done.stderr.strip()}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
