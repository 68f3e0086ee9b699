"""The wire of the SR-IOV machine as another machine on it sees it: which addresses answer there, and how soon.

The questions are ICMP packets of this process: to start a program takes longer there than the answers that are timed.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Self

from netdra.chain import announcements
from netdra.chain.check import check
from netdra.chain.report import CheckReport
from netdra.chain.site import open_pod
from netdra.kernel.netns import Namespace
from netdra.model.plan import Plan
from testbed.waiting import until
from tests.hardware.node import PATIENCE, ip, run, up
from tests.hardware.pods import Pod

NAME = "vnic"
"""The interface of the machine that is on the wire of both PFs."""
ELSEWHERE = "02:00:00:00:00:99"
SOON = 1.0
"""Within how many seconds an address answers, from the moment at which `check` finds nothing."""

_HEADER = struct.Struct("!BBHHH")
_REQUEST, _REPLY = {4: 8, 6: 128}, {4: 0, 6: 129}
_IPV4_HEADER = 20
_EVERY_SECONDS = 0.1


def name(vlan: int) -> str:
    """The interface of another machine for a VLAN; 0 is for untagged packets."""
    return f"{NAME}.{vlan}" if vlan else NAME


def put(netns: str, addresses: dict[int, Sequence[str]]) -> None:
    """Make a namespace another machine on the wire, with addresses by VLAN; it ends with the namespace."""
    ip("link", "set", "dev", NAME, "netns", netns)
    up(NAME, netns)
    for vlan, texts in addresses.items():
        if vlan:
            ip("link", "add", name(vlan), "link", NAME, "type", "vlan", "id", str(vlan), netns=netns)
            ip("link", "set", name(vlan), "up", netns=netns)
        for text in texts:
            ip("address", "add", text, "dev", name(vlan), "nodad", netns=netns)


def outdate(netns: str, hosts: Iterable[str], vlan: int = 0) -> None:
    """Another machine has the MAC address of a machine that had these addresses before."""
    entries = (f"neigh replace {host} lladdr {ELSEWHERE} dev {name(vlan)} nud stale\n" for host in hosts)
    run("ip", "-n", netns, "-batch", "-", text="".join(entries))


def is_ok(report: CheckReport) -> bool:
    """Whether `check` reports neither drift nor an interface without a carrier."""
    return report.is_clean and not any(entry.link for entry in report.steps)


def wait_ok(pod: Pod, made: Plan) -> None:
    """Wait until `check` finds nothing in a pod's network; announce its addresses until then, as the daemon does."""

    def is_ready() -> bool:
        with open_pod(pod.path) as space:
            waits = announcements.announce(announcements.names_of([made]), space)
        return not waits and is_ok(check(pod.netns, pod.settings))

    until(is_ready, "check to find nothing", seconds=PATIENCE, detail=lambda: check(pod.netns, pod.settings))


class Asker:
    """Asks addresses from a network namespace; close it afterwards."""

    def __init__(self, netns: str) -> None:
        """Open the sockets.

        Args:
            netns: the namespace's name.
        """
        with Namespace.open(f"/run/netns/{netns}") as space:
            self._sockets = space.run(
                lambda: {
                    4: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
                    6: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
                }
            )
        self._id = os.getpid() & 0xFFFF
        self._round = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets.values():
            sock.close()

    def ask(self, addresses: Iterable[str], seconds: float) -> dict[str, float]:
        """After how many seconds each address has answered; those that did not in this time are left out."""
        self._round += 1
        wanted, answered = set(addresses), dict[str, float]()
        begun = now = time.monotonic()
        while wanted - answered.keys() and now < begun + seconds:
            for text in wanted - answered.keys():
                self._send(text)
            pause_ends = min(now + _EVERY_SECONDS, begun + seconds)
            while wanted - answered.keys() and now < pause_ends:
                for text in self._receive(pause_ends - now):
                    answered.setdefault(text, time.monotonic() - begun)
                now = time.monotonic()
        return {text: answered[text] for text in wanted & answered.keys()}

    def _send(self, text: str) -> None:
        version = ipaddress.ip_address(text).version
        packet = _HEADER.pack(_REQUEST[version], 0, 0, self._id, self._round & 0xFFFF)
        if version == 4:  # the kernel completes the other one
            packet = _HEADER.pack(_REQUEST[4], 0, _checksum(packet), self._id, self._round & 0xFFFF)
        with suppress(OSError):  # no neighbour answered
            self._sockets[version].sendto(packet, (text, 0))

    def _receive(self, seconds: float) -> list[str]:
        readable, _, _ = select.select(self._sockets.values(), (), (), seconds)
        found = []
        for version, sock in self._sockets.items():
            if sock in readable:
                with suppress(OSError):  # the error of an address that nobody has
                    packet, sender = sock.recvfrom(2048)
                    kind, _, _, *ours = _HEADER.unpack_from(packet, _IPV4_HEADER if version == 4 else 0)
                    if (kind, ours) == (_REPLY[version], [self._id, self._round & 0xFFFF]):
                        found.append(str(sender[0]))
        return found


def _checksum(packet: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF
