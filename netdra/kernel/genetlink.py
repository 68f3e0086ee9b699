"""Generic netlink: families by name, requests to them. Follows linux/genetlink.h; used by `ethtool` and `devlink`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import (
    DUMP_ATTEMPTS,
    Socket,
    attribute,
    attribute_list,
    attributes,
    text,
    to_u16,
    to_u32,
)

_HEADER = struct.Struct("=BBxx")
_CONTROL = 0x10
_GET_FAMILY = 3
_FAMILY_ID, _FAMILY_NAME, _OPERATIONS = 1, 2, 6
_OPERATION_ID, _OPERATION_FLAGS = 1, 2
CAN_DO, CAN_DUMP, NEEDS_RIGHTS = 0x02, 0x04, 0x11
"""Flags of a command (GENL_CMD_CAP_DO, GENL_CMD_CAP_DUMP, GENL_ADMIN_PERM and GENL_UNS_ADMIN_PERM)."""
_numbers: dict[str, int] = {}


def family(sock: Socket, name: str) -> int:
    """The message type of a family; the kernel is asked once, for it numbers its families when it starts.

    Raises:
        KernelMissingError: this kernel does not have the family, or has its module not loaded.
        KernelError: the kernel refused.
    """
    if name in sock.families:
        return sock.families[name]
    if name not in _numbers:
        body = _HEADER.pack(_GET_FAMILY, 1) + attribute(_FAMILY_NAME, text(name))
        reply = sock.request(_CONTROL, body, doing=f'cannot find generic netlink family "{name}"')[0]
        _numbers[name] = to_u16(attributes(reply, _HEADER.size)[_FAMILY_ID])
    return _numbers[name]


def commands(sock: Socket, name: str) -> dict[int, int]:
    """The commands of a family that this kernel has, each with its flags.

    Raises:
        KernelMissingError: this kernel does not have the family, or has its module not loaded.
        KernelError: the kernel refused.
    """
    body = _HEADER.pack(_GET_FAMILY, 1) + attribute(_FAMILY_NAME, text(name))
    reply = sock.request(_CONTROL, body, doing=f'cannot find generic netlink family "{name}"')[0]
    listed = attribute_list(attributes(reply, _HEADER.size).get(_OPERATIONS, b""))
    each = (attributes(operation) for _, operation in listed)
    return {to_u32(operation[_OPERATION_ID]): to_u32(operation[_OPERATION_FLAGS]) for operation in each}


def request(sock: Socket, name: str, command: int, payload: bytes, *, doing: str) -> list[dict[int, bytes]]:
    """Send one command to a family and return the attributes of each reply.

    Raises:
        KernelMissingError: the family is not there, or the command's object.
        KernelError: the kernel refused.
    """
    bodies = sock.request(family(sock, name), _HEADER.pack(command, 1) + payload, doing=doing)
    return [attributes(body, _HEADER.size) for body in bodies]


def request_each(
    sock: Socket, name: str, requests: Sequence[tuple[int, bytes]], *, doing: str
) -> list[dict[int, bytes] | KernelError]:
    """Send several commands to a family at once, each with its payload; return each one's reply, or its error.

    Raises:
        KernelError: the family is not there, or the socket failed.
    """
    bodies = [_HEADER.pack(command, 1) + payload for command, payload in requests]
    replies = sock.request_each(family(sock, name), bodies, doing=doing)
    return [reply if isinstance(reply, KernelError) else attributes(reply, _HEADER.size) for reply in replies]


def dump(
    sock: Socket, name: str, command: int, payload: bytes, *, doing: str, attempts: int = DUMP_ATTEMPTS
) -> list[dict[int, bytes]]:
    """Ask a family for all objects of a kind and return the attributes of each; `attempts` as in `Socket.dump`.

    Raises:
        KernelInterruptedError: each attempt was interrupted.
        KernelError: the kernel refused.
    """
    bodies = sock.dump(family(sock, name), _HEADER.pack(command, 1) + payload, doing=doing, attempts=attempts)
    return [attributes(body, _HEADER.size) for body in bodies]
