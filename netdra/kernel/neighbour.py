"""Permanent neighbour entries over rtnetlink: list, add, delete.

Follows ip-neighbour(8) and include/uapi/linux/neighbour.h.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

import msgspec

from netdra.kernel import uapi
from netdra.kernel.netlink import NLM_F_CREATE, NLM_F_REPLACE, Socket, attribute, attributes, u32

_HEADER = struct.Struct("=BBHiHBB")  # struct ndmsg: family, padding, link, state, flags, type
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


class Neighbour(msgspec.Struct, frozen=True):
    """A permanent entry, written by an administrator or a program: an IP address, and its link-layer address."""

    address: str
    mac: str


def dump(sock: Socket, index: int) -> list[Neighbour]:
    """The permanent entries of a link, of both families, without proxied addresses.

    Raises:
        KernelError: the kernel refused.
    """
    entries: list[Neighbour] = []
    for family in _FAMILIES:
        body = _HEADER.pack(family, 0, 0, 0, 0, 0, 0) + attribute(uapi.NDA_IFINDEX, u32(index))
        listed = sock.dump(uapi.RTM_GETNEIGH, body, doing=f"cannot list neighbours of link {index}")
        entries += (entry for answer in listed if (entry := permanent(answer, index)) is not None)
    return entries


def add(sock: Socket, index: int, entry: Neighbour) -> None:
    """Give a link a permanent entry; one of the same address is replaced.

    Raises:
        KernelError: no such link exists, or the kernel refused.
    """
    address = ipaddress.ip_address(entry.address)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    body = _HEADER.pack(family, 0, 0, index, uapi.NUD_PERMANENT, 0, 0)
    body += attribute(uapi.NDA_DST, address.packed)
    body += attribute(uapi.NDA_LLADDR, bytes.fromhex(entry.mac.replace(":", "")))
    doing = f"cannot add neighbour {entry.address} to link {index}"
    sock.request(uapi.RTM_NEWNEIGH, body, flags=NLM_F_CREATE | NLM_F_REPLACE, doing=doing)


def delete(sock: Socket, index: int, address: str) -> None:
    """Delete a link's entry of an address.

    Raises:
        KernelMissingError: none exists.
        KernelError: no such link exists, or the kernel refused.
    """
    parsed = ipaddress.ip_address(address)
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    body = _HEADER.pack(family, 0, 0, index, 0, 0, 0) + attribute(uapi.NDA_DST, parsed.packed)
    sock.request(uapi.RTM_DELNEIGH, body, doing=f"cannot delete neighbour {address} of link {index}")


def permanent(body: bytes, index: int) -> Neighbour | None:
    """The entry of a message, if it is permanent, of this link, and of an IP family; else None."""
    family, _, _, link, state, flags, _ = _HEADER.unpack_from(body)
    fields = attributes(body, _HEADER.size)
    written = link == index and state & uapi.NUD_PERMANENT and not flags & uapi.NTF_PROXY and family in _FAMILIES
    if not written or uapi.NDA_DST not in fields or uapi.NDA_LLADDR not in fields:
        return None
    return Neighbour(socket.inet_ntop(family, fields[uapi.NDA_DST]), bytes(fields[uapi.NDA_LLADDR]).hex(":"))
