"""IP addresses over rtnetlink: add, delete, list. Follows rtnetlink(7) and include/uapi/linux/if_addr.h."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Collection

import msgspec

from netdra.kernel import uapi
from netdra.kernel.netlink import (
    DUMP_ATTEMPTS,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    Socket,
    attribute,
    attributes,
    to_u32,
    u32,
)

_HEADER = struct.Struct("=BBBBI")
_LIFETIMES = struct.Struct("=IIII")  # struct ifa_cacheinfo: preferred, valid, when it was made and changed
_FOREVER = 0xFFFFFFFF
_FEW = 8
"""So many IPs are searched in messages; with more, parsing the messages takes less time."""


class Address(msgspec.Struct, frozen=True, gc=False):
    """One address: `text` in CIDR notation, of the link `index`, with its scope (RT_SCOPE_*) and flags (IFA_F_*).

    `preferred` and `valid` are the seconds that it is still used for new connections, and has at all; None for ever.
    `protocol` is its origin (IFAPROT_*, 0 if unknown: kernels before 5.18 do not report it).
    """

    index: int
    text: str
    family: int
    scope: int
    flags: int
    peer: str = ""
    broadcast: str = ""
    preferred: int | None = None
    valid: int | None = None
    protocol: int = 0

    @property
    def is_link_local(self) -> bool:
        """Whether it is of IPv6 and of this link alone; the kernel gives each link one by itself."""
        return self.family == socket.AF_INET6 and self.scope == uapi.RT_SCOPE_LINK

    @property
    def is_temporary(self) -> bool:
        """Whether the kernel made it itself, of an address with a router's prefix (net/ipv6/addrconf.c)."""
        # The same bit is IFA_F_SECONDARY of IPv4.
        return self.family == socket.AF_INET6 and bool(self.flags & uapi.IFA_F_TEMPORARY)


def parse(body: bytes) -> Address:
    """The address in an RTM_NEWADDR or RTM_DELADDR message."""
    family, length, flags, scope, index = _HEADER.unpack_from(body)
    fields = attributes(body, _HEADER.size)
    # On a point-to-point link IFA_ADDRESS is the other end's; without IFA_LOCAL (IPv6) it is ours.
    remote = fields.get(uapi.IFA_ADDRESS, b"")
    local = fields.get(uapi.IFA_LOCAL, remote)
    # The header has room for eight flags only; the attribute has all of them.
    if uapi.IFA_FLAGS in fields:
        flags = to_u32(fields[uapi.IFA_FLAGS])
    peer = socket.inet_ntop(family, remote) if remote != local else ""
    broadcast = socket.inet_ntop(family, fields[uapi.IFA_BROADCAST]) if uapi.IFA_BROADCAST in fields else ""
    text = f"{socket.inet_ntop(family, local)}/{length}"
    preferred, valid = _lifetimes(fields.get(uapi.IFA_CACHEINFO))
    protocol = fields.get(uapi.IFA_PROTO, b"\0")[0]
    return Address(index, text, family, scope, flags, peer, broadcast, preferred, valid, protocol)


def dump(sock: Socket, index: int = 0, family: int = 0, *, attempts: int = DUMP_ATTEMPTS) -> list[Address]:
    """The addresses of the namespace, of one link and of one family if they are named (0: all).

    The addresses of one link are asked for by family: the kernel lists a family's addresses without its lock of all
    networks, but needs the lock for all families at once.

    Args:
        sock: a socket in the namespace.
        index: a link's index.
        family: AF_INET or AF_INET6.
        attempts: how often an interrupted dump is asked for.

    Raises:
        KernelMissingError: no link has that index.
        KernelInterruptedError: links or addresses changed during each attempt.
        KernelError: the kernel refused.
    """
    if index and family == 0:
        return [*dump(sock, index, socket.AF_INET), *dump(sock, index, socket.AF_INET6)]
    bodies = _dump_bodies(sock, index, family, attempts)
    # A kernel without IPv6 answers with the addresses of all families.
    return [parsed for body in bodies if (parsed := parse(body)).family == family or family == 0]


def find(sock: Socket, index: int, wanted: Collection[str]) -> list[Address]:
    """The addresses of a link whose IP is one of these.

    The kernel lists all addresses of the link and of the family. Those with other IPs are not parsed: each step of a
    chain asks for its own addresses, on a link to which all steps before have added theirs.

    Args:
        sock: a socket in the namespace.
        index: the link's index.
        wanted: IPs, each with or without a prefix length, which is not compared.

    Raises:
        KernelMissingError: no link has that index.
        KernelInterruptedError: links or addresses changed during each attempt.
        KernelError: the kernel refused.
    """
    found: list[Address] = []
    hosts = [text.partition("/")[0] for text in wanted]
    for family, has_colons in ((socket.AF_INET, False), (socket.AF_INET6, True)):
        packed = {socket.inet_pton(family, host) for host in hosts if (":" in host) is has_colons}
        bodies = _dump_bodies(sock, index, family, DUMP_ATTEMPTS) if packed else []
        likely = [body for body in bodies if len(packed) > _FEW or any(ip in body for ip in packed)]
        addresses = (parsed for body in likely if (parsed := parse(body)).family == family)
        found += [entry for entry in addresses if socket.inet_pton(family, entry.text.partition("/")[0]) in packed]
    return found


def _dump_bodies(sock: Socket, index: int, family: int, attempts: int) -> list[bytes]:
    doing = f"cannot list addresses of link {index or 'any'}"
    return sock.dump(uapi.RTM_GETADDR, _HEADER.pack(family, 0, 0, 0, index), doing=doing, attempts=attempts)


def add(
    sock: Socket,
    index: int,
    text: str,
    *,
    nodad: bool = True,
    scope: int = 0,
    flags: int = 0,
    broadcast: str | None = None,
    preferred: int | None = None,
    valid: int | None = None,
    replace: bool = False,
) -> None:
    """Give a link an address.

    Args:
        sock: a socket in the link's namespace.
        index: the link's index.
        text: the address in CIDR notation.
        nodad: leave out duplicate address detection, which takes IPv6 one to two seconds; no matter for IPv4.
        scope: RT_SCOPE_*.
        flags: further IFA_F_*.
        broadcast: IPv4's broadcast address; None for the network's, as ip-address(8) does with `brd +`, "" for none.
        preferred: the seconds that it is used for new connections, at most `valid`; None for as long as it is valid.
        valid: the seconds after which the kernel removes it, from 1; None for never.
        replace: change the address's flags where it is there already, instead of failing.

    Raises:
        KernelExistsError: the link has it.
        KernelError: no such link exists, or the kernel refused.
    """
    address = ipaddress.ip_interface(text)
    if nodad and address.version == 6:
        flags |= uapi.IFA_F_NODAD
    body = _body(index, address, scope) + attribute(uapi.IFA_FLAGS, u32(flags))
    # The kernel sets no broadcast address by itself for RTM_NEWADDR (seen with 6.18).
    if broadcast is None and isinstance(address, ipaddress.IPv4Interface) and address.network.prefixlen < 31:
        broadcast = str(address.network.broadcast_address)
    if broadcast:
        body += attribute(uapi.IFA_BROADCAST, ipaddress.ip_address(broadcast).packed)
    if valid is not None:
        body += attribute(uapi.IFA_CACHEINFO, _LIFETIMES.pack(valid if preferred is None else preferred, valid, 0, 0))
    how = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    sock.request(uapi.RTM_NEWADDR, body, flags=how, doing=f"cannot add address {text} to link {index}")


def delete(sock: Socket, index: int, text: str) -> None:
    """Take an address from a link.

    Raises:
        KernelMissingError: the link does not have it.
        KernelError: no such link exists, or the kernel refused.
    """
    body = _body(index, ipaddress.ip_interface(text), 0)
    # The first IPv4 address of a network takes the later ones along, unless promote_secondaries is set (devinet.c,
    # __inet_del_ifa()).
    sock.request(uapi.RTM_DELADDR, body, doing=f"cannot delete address {text} of link {index}")


def _lifetimes(data: bytes | None) -> tuple[int | None, int | None]:
    if data is None:
        return None, None
    preferred, valid, _, _ = _LIFETIMES.unpack_from(data)
    return (None if preferred == _FOREVER else preferred), (None if valid == _FOREVER else valid)


def _body(index: int, address: ipaddress.IPv4Interface | ipaddress.IPv6Interface, scope: int) -> bytes:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = address.ip.packed
    header = _HEADER.pack(family, address.network.prefixlen, 0, scope, index)
    return header + attribute(uapi.IFA_LOCAL, packed) + attribute(uapi.IFA_ADDRESS, packed)
