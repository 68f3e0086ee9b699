"""Generic netlink: families by name, requests to them. Follows linux/genetlink.h; used by `ethtool` and `devlink`."""

from __future__ import annotations

import struct

from netdra.kernel.netlink import DUMP_ATTEMPTS, Socket, attribute, attributes, text, to_u16

_HEADER = struct.Struct("=BBxx")
_CONTROL = 0x10
_GET_FAMILY = 3
_FAMILY_ID, _FAMILY_NAME = 1, 2


def family(sock: Socket, name: str) -> int:
    """The message type of a family, asked for once a socket.

    Raises:
        KernelMissingError: this kernel does not have the family, or has its module not loaded.
        KernelError: the kernel refused.
    """
    if name not in sock.families:
        body = _HEADER.pack(_GET_FAMILY, 1) + attribute(_FAMILY_NAME, text(name))
        reply = sock.request(_CONTROL, body, doing=f'cannot find generic netlink family "{name}"')[0]
        sock.families[name] = to_u16(attributes(reply, _HEADER.size)[_FAMILY_ID])
    return sock.families[name]


def request(sock: Socket, name: str, command: int, payload: bytes, *, doing: str) -> list[dict[int, bytes]]:
    """Send one command to a family and return the attributes of each reply.

    Raises:
        KernelMissingError: the family is not there, or the command's object.
        KernelError: the kernel refused.
    """
    bodies = sock.request(family(sock, name), _HEADER.pack(command, 1) + payload, doing=doing)
    return [attributes(body, _HEADER.size) for body in bodies]


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
