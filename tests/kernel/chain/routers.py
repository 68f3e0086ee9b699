"""An IPv6 router on a wire, for tests: it advertises a prefix and a default route (RFC 4861, RFC 4862)."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SECONDS = 3600
_JOIN = struct.Struct("=16sI")
_ROUTERS = ipaddress.IPv6Address("ff02::2")
_SOLICITATION = 133


def advertise(name: str, prefix: str, seconds: int = SECONDS) -> None:
    """Advertise a prefix, valid for some seconds, and a default route by a link of the calling thread's namespace."""
    with _opened(name) as raw:
        _send(raw, name, prefix, seconds)


@contextmanager
def answering(name: str, prefix: str) -> Iterator[list[str]]:
    """A router that only answers those that ask; the addresses of those that asked."""
    asked: list[str] = []
    ended = threading.Event()
    with _opened(name) as raw:
        raw.setsockopt(
            socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _JOIN.pack(_ROUTERS.packed, socket.if_nametoindex(name))
        )
        raw.settimeout(0.05)

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    message, sender = raw.recvfrom(1500)
                    if message[0] == _SOLICITATION:
                        asked.append(sender[0].partition("%")[0])
                        _send(raw, name, prefix, SECONDS)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            ended.set()
            thread.join()


@contextmanager
def _opened(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        yield raw


def _send(raw: socket.socket, name: str, prefix: str, seconds: int) -> None:
    network = ipaddress.ip_network(prefix)
    advertisement = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
    flags = 0xC0  # on the link, and autonomous
    option = (3, 4, network.prefixlen, flags, seconds, seconds // 2, 0, network.network_address.packed)
    raw.sendto(advertisement + struct.pack("!BBBBIII16s", *option), ("ff02::1", 0, 0, socket.if_nametoindex(name)))
