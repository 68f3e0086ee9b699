"""Ask a wire whether another machine has an address, and announce one's own: by ARP and neighbour discovery.

Used by `netdra.chain.duplicates` and `announcements` when a pod's interfaces are complete. Follows RFC 5227 (ARP probe
and announcement), RFC 4862, 5.4 (neighbour solicitation from the unspecified address), RFC 4861, 7.2.6 (unsolicited
advertisement), and packet(7). The kernel's own detection takes IPv6 one to two seconds, and IPv4 has none.
"""

from __future__ import annotations

import ctypes
import ipaddress
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import NamedTuple

from netdra.kernel import link, uapi
from netdra.kernel.closing import Closing
from netdra.kernel.errors import from_os_error
from netdra.kernel.netlink import Socket

PROBES = 3
"""How often each address is asked for, in equal intervals."""

_ETH_P_ARP, _ETH_P_IPV6 = 0x0806, 0x86DD
_BROADCAST, _NO_MAC = b"\xff" * 6, b"\0" * 6
_ETHERNET = struct.Struct("!6s6sH")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ARP_HEADER = (uapi.ARPHRD_ETHER, 0x0800, 6, 4)
_REQUEST = 1
_IPV6 = struct.Struct("!IHBB16s16s")
_ICMPV6, _HOPS = 58, 255
_ROUTER_SOLICITATION, _SOLICITATION, _ADVERTISEMENT = 133, 135, 136
_OVERRIDE = 0x20000000
_MESSAGE, _ROUTER_MESSAGE = struct.Struct("!BBHI16s"), struct.Struct("!BBHI")
_LINK_ADDRESS = 2  # the option of an advertisement that has the link-layer address
_NOWHERE, _ALL_NODES, _ALL_ROUTERS = map(ipaddress.IPv6Address, ("::", "ff02::1", "ff02::2"))
_SOLICITED_NODES = int(ipaddress.IPv6Address("ff02::1:ff00:0"))
_LOW_BITS = 0xFFFFFF
_FRAME_BYTES = 256
_SO_ATTACH_FILTER = 26  # include/uapi/asm-generic/socket.h
_FILTER = struct.Struct("=HBBI")  # struct sock_filter
_PROGRAM = struct.Struct("@HP")  # struct sock_fprog
# A busy wire has many IPv6 packets: those of neighbour discovery alone come here (offsets are those of the frame).
_NEIGHBOURS_ALONE = (
    (0x30, 0, 0, 20),  # load the next header
    (0x15, 0, 4, _ICMPV6),
    (0x30, 0, 0, 54),  # load the type of the message
    (0x15, 1, 0, _SOLICITATION),
    (0x15, 0, 1, _ADVERTISEMENT),
    (0x06, 0, 0, _FRAME_BYTES),
    (0x06, 0, 0, 0),
)

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class WiredAddress(NamedTuple):
    """An address on an interface."""

    if_name: str
    address: IPAddress


class ProbedLink(Closing):
    """An Ethernet interface of a network namespace, and the sockets by which it is asked; close it when it was.

    Attributes:
        name: the interface's.
        mac: its link-layer address.
    """

    def __init__(self, found: link.Link) -> None:
        """Open the sockets; the calling thread is in the interface's namespace.

        Raises:
            KernelError: the kernel refused.
        """
        self.name, self.mac = found.name, _octets(found)
        self.sockets: dict[int, socket.socket] = {}
        try:
            for protocol, family in ((_ETH_P_ARP, 4), (_ETH_P_IPV6, 6)):
                self.sockets[family] = handle = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                handle.setblocking(False)
                if family == 6:
                    _let_neighbours_alone_in(handle)
                handle.bind((found.name, protocol))
        except OSError as problem:
            self.close()
            raise from_os_error(problem, f'cannot send packets on interface "{found.name}"') from None

    def close(self) -> None:
        """Let go of the sockets."""
        for handle in self.sockets.values():
            handle.close()

    def send(self, version: int, frame: bytes) -> None:
        """Send a frame; one that the interface does not take just now is lost, as on any wire."""
        with suppress(OSError):
            self.sockets[version].send(frame)

    def frames(self, version: int) -> Iterator[bytes]:
        """The frames that have come."""
        with suppress(OSError):
            while True:
                yield self.sockets[version].recv(_FRAME_BYTES)


def can_probe(found: link.Link) -> bool:
    """Whether an interface has neighbours to ask: it is Ethernet, set up, and resolves addresses.

    An interface in layer 3 mode (ipvlan) or without ARP has IFF_NOARP.
    """
    return found.hardware == uapi.ARPHRD_ETHER and found.is_up and not found.flags & uapi.IFF_NOARP


def open_wires(sock: Socket, names: Sequence[str]) -> dict[str, ProbedLink]:
    """The interfaces of these names that have neighbours to ask; the calling thread is in the socket's namespace.

    Raises:
        KernelError: the kernel refused.
    """
    wires: dict[str, ProbedLink] = {}
    try:
        for name in dict.fromkeys(names):
            found = link.find(sock, name)
            if found is not None and can_probe(found):
                wires[name] = ProbedLink(found)
    except BaseException:
        for wire in wires.values():
            wire.close()
        raise
    return wires


def probe(wires: Mapping[str, ProbedLink], wanted: Sequence[WiredAddress], seconds: float) -> dict[WiredAddress, str]:
    """The addresses that other machines on the wires have, each with the other's MAC; all are probed at once.

    Args:
        wires: the interfaces by name; addresses on others are skipped.
        wanted: the addresses.
        seconds: how long to listen, altogether; it ends sooner only if all addresses are others'.
    """
    asked = [entry for entry in wanted if entry.if_name in wires]
    found: dict[WiredAddress, str] = {}
    begun = time.monotonic()
    for turn in range(PROBES if asked else 0):
        for entry in asked:
            wire = wires[entry.if_name]
            wire.send(entry.address.version, question(wire.mac, entry.address))
        until = begun + seconds * (turn + 1) / PROBES
        while len(found) < len(asked) and (left := until - time.monotonic()) > 0:
            _listen(wires, asked, found, left)
    return found


def announce(wires: Mapping[str, ProbedLink], addresses: Sequence[WiredAddress]) -> None:
    """Have neighbours learn where addresses are now; those that had them elsewhere forget that."""
    for entry in addresses:
        if (wire := wires.get(entry.if_name)) is not None:
            wire.send(entry.address.version, announcement(wire.mac, entry.address))


def broadcast(announced: Iterable[tuple[link.Link, IPAddress]]) -> None:
    """As `announce`, for Ethernet interfaces that are not listened to; the calling thread is in their namespace.

    Raises:
        KernelError: the kernel refused.
    """
    _send(
        (found.name, _ETH_P_ARP if address.version == 4 else _ETH_P_IPV6, announcement(_octets(found), address))
        for found, address in announced
    )


def solicit_routers(found: link.Link) -> None:
    """Ask the routers of an Ethernet interface's wire to advertise themselves; the calling thread is in its namespace.

    From the unspecified address (RFC 4861, 4.1), so that no address of the interface is needed.

    Raises:
        KernelError: the kernel refused.
    """
    message = _ROUTER_MESSAGE.pack(_ROUTER_SOLICITATION, 0, 0, 0)
    _send([(found.name, _ETH_P_IPV6, _icmp(_octets(found), _NOWHERE, _ALL_ROUTERS, message))])


def _send(frames: Iterable[tuple[str, int, bytes]]) -> None:
    """Send frames, each by an interface and as a protocol (ETH_P_*)."""
    try:
        handle = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except OSError as problem:
        raise from_os_error(problem, "cannot send packets") from None
    handle.setblocking(False)
    for name, protocol, frame in frames:
        with suppress(OSError):  # lost, as on any wire
            handle.sendto(frame, (name, protocol))
    # net/packet/af_packet.c, packet_release: the kernel takes 16 ms to close the socket.
    Thread(target=handle.close, name="announced").start()


def question(mac: bytes, address: IPAddress) -> bytes:
    """The frame that asks for an address without claiming it."""
    if isinstance(address, ipaddress.IPv4Address):
        return _arp(mac, b"\0" * 4, address.packed)
    group = ipaddress.IPv6Address(_SOLICITED_NODES | int(address) & _LOW_BITS)
    message = _MESSAGE.pack(_SOLICITATION, 0, 0, 0, address.packed)
    return _icmp(mac, _NOWHERE, group, message)


def announcement(mac: bytes, address: IPAddress) -> bytes:
    """The frame by which neighbours learn whose an address is."""
    if isinstance(address, ipaddress.IPv4Address):
        return _arp(mac, address.packed, address.packed)
    message = _MESSAGE.pack(_ADVERTISEMENT, 0, 0, _OVERRIDE, address.packed)
    return _icmp(mac, address, _ALL_NODES, message + bytes((_LINK_ADDRESS, 1)) + mac)


def claimed(frame: bytes, mac: bytes) -> tuple[IPAddress, str] | None:
    """The address that a frame of another machine claims or asks for as this one does, and the machine's MAC."""
    with suppress(struct.error):
        _, source, protocol = _ETHERNET.unpack_from(frame)
        if source == mac:
            return None
        return _by_arp(frame, mac) if protocol == _ETH_P_ARP else _by_neighbour(frame, source)
    return None


def _by_arp(frame: bytes, mac: bytes) -> tuple[IPAddress, str] | None:
    *header, operation, sender, address, _, target = _ARP.unpack_from(frame, _ETHERNET.size)
    if tuple(header) != _ARP_HEADER or sender == mac:
        return None
    if any(address):
        return ipaddress.IPv4Address(address), sender.hex(":")
    return (ipaddress.IPv4Address(target), sender.hex(":")) if operation == _REQUEST else None


def _by_neighbour(frame: bytes, source: bytes) -> tuple[IPAddress, str] | None:
    _, _, following, hops, sender, _ = _IPV6.unpack_from(frame, _ETHERNET.size)
    kind, code, _, _, target = _MESSAGE.unpack_from(frame, _ETHERNET.size + _IPV6.size)
    is_probe = kind == _SOLICITATION and not any(sender)
    if (following, hops, code) != (_ICMPV6, _HOPS, 0) or not (is_probe or kind == _ADVERTISEMENT):
        return None
    return ipaddress.IPv6Address(target), source.hex(":")


def _listen(
    wires: Mapping[str, ProbedLink], asked: Sequence[WiredAddress], found: dict[WiredAddress, str], seconds: float
) -> None:
    """Take what has come within a time at most."""
    waiting = select.poll()  # select(2) takes no descriptor above 1,023
    listening: dict[int, tuple[ProbedLink, int]] = {}
    for wire in wires.values():
        for version, handle in wire.sockets.items():
            listening[handle.fileno()] = wire, version
            waiting.register(handle, select.POLLIN)
    for descriptor, _ in waiting.poll(1000 * seconds):
        wire, version = listening[descriptor]
        for frame in wire.frames(version):
            if (other := claimed(frame, wire.mac)) is None:
                continue
            entry = WiredAddress(wire.name, other[0])
            if entry in asked:
                found.setdefault(entry, other[1])


def _octets(found: link.Link) -> bytes:
    """An interface's link-layer address."""
    return bytes.fromhex(found.address.replace(":", ""))


def _arp(mac: bytes, sender: bytes, target: bytes) -> bytes:
    body = _ARP.pack(*_ARP_HEADER, _REQUEST, mac, sender, _NO_MAC, target)
    return _ETHERNET.pack(_BROADCAST, mac, _ETH_P_ARP) + body


def _icmp(mac: bytes, source: ipaddress.IPv6Address, group: ipaddress.IPv6Address, message: bytes) -> bytes:
    """A frame with an ICMPv6 message to a group, with its checksum (RFC 4443, 2.3)."""
    pseudo = source.packed + group.packed + struct.pack("!II", len(message), _ICMPV6)
    summed = message[:2] + _checksum(pseudo + message) + message[4:]
    header = _IPV6.pack(6 << 28, len(message), _ICMPV6, _HOPS, source.packed, group.packed)
    return _ETHERNET.pack(b"\x33\x33" + group.packed[-4:], mac, _ETH_P_IPV6) + header + summed


def _checksum(data: bytes) -> bytes:
    total = sum(word for (word,) in struct.iter_unpack("!H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def _let_neighbours_alone_in(handle: socket.socket) -> None:
    code = ctypes.create_string_buffer(b"".join(_FILTER.pack(*entry) for entry in _NEIGHBOURS_ALONE))
    program = _PROGRAM.pack(len(_NEIGHBOURS_ALONE), ctypes.addressof(code))
    handle.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
