"""The facts of a link that the kernel gives without its lock of all networks (RTNL), for hooks of pods.

A device that moves to another namespace holds the lock while the kernel waits for its RCU callbacks, 15 ms and more,
and RTM_GETLINK takes it: where many pods begin at once, each read of a link waits for the moves of all pods.
Follows socket(7) and netdevice(7): SO_BINDTODEVICE looks a name up under RCU alone and, unlike SIOCGIFINDEX, loads no
kernel module for a name that does not exist.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct

from netdra.kernel import link, uapi
from netdra.kernel.netlink import Socket

_SO_BINDTOIFINDEX = 62  # include/uapi/asm-generic/socket.h
_SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCGIFHWADDR = 0x8913, 0x8921, 0x8927  # include/uapi/linux/sockios.h
_REQUEST = struct.Struct("16s24x")
_FLAGS, _MTU, _ADDRESS = struct.Struct("16xH22x"), struct.Struct("16xi20x"), struct.Struct("16xH6s16x")
_IFNAMSIZ = 16
# Each link has a folder there; to list a thousand takes a hundredth of the time that RTM_GETLINK takes.
_CONFIGURED = "/proc/sys/net/ipv4/conf"
_NO_LINKS = frozenset({"all", "default"})
_ETHERNET = 1  # ARPHRD_ETHER: only of these links is it sure that an address has six bytes


def index_of(sock: Socket, name: str) -> int:
    """The index of the link of that name, which may be an alternative one, in the socket's namespace; 0 for none.

    Raises:
        KernelError: the kernel refused.
    """
    encoded = name.encode()
    if not 0 < len(encoded) < _IFNAMSIZ:
        return _asked(sock, name)
    handle = sock.handle
    try:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, encoded)
        index = handle.getsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"")
    except OSError as problem:
        return 0 if problem.errno == errno.ENODEV else _asked(sock, name)
    return index


def names() -> frozenset[str]:
    """The names of the links of the calling thread's namespace, but of those with an MTU below 68, which lack IPv4.

    Empty where /proc/sys cannot be read.
    """
    try:
        return frozenset(os.listdir(_CONFIGURED)) - _NO_LINKS  # noqa: PTH208 (names alone)
    except OSError:
        return frozenset()


def is_listed(name: str) -> bool:
    """Whether `names` has the link of that name."""
    return os.path.lexists(f"{_CONFIGURED}/{name}")


def mac_of(sock: Socket, name: str) -> str:
    """The MAC of an Ethernet link of that name, which is there; "" if it cannot be read."""
    answer = _answer(sock, name, _SIOCGIFHWADDR)
    hardware, address = _ADDRESS.unpack(answer) if answer else (0, b"")
    return bytes(address).hex(":") if hardware == _ETHERNET else ""


def mtu_of(sock: Socket, name: str) -> int:
    """The MTU of the link of that name, which is there, in bytes; 0 if it cannot be read."""
    answer = _answer(sock, name, _SIOCGIFMTU)
    return int(_MTU.unpack(answer)[0]) if answer else 0


def is_up(sock: Socket, name: str) -> bool:
    """Whether the link of that name, which is there, is set up; False if that cannot be read."""
    answer = _answer(sock, name, _SIOCGIFFLAGS)
    return bool(answer) and bool(_FLAGS.unpack(answer)[0] & uapi.IFF_UP)


def _answer(sock: Socket, name: str, question: int) -> bytes:
    encoded = name.encode()
    if not 0 < len(encoded) < _IFNAMSIZ:
        return b""
    try:
        return fcntl.ioctl(sock.handle, question, _REQUEST.pack(encoded))
    except OSError:
        return b""


def _asked(sock: Socket, name: str) -> int:
    netdev = link.find(sock, name) if name else None
    return netdev.index if netdev is not None else 0
