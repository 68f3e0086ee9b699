"""Multicast groups of a link's hardware that were configured (`ip maddress`), as netdevice(7) has them.

Groups that programs joined come and go with these programs. Follows net/core/dev_addr_lists.c and dev_ioctl.c.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path

from netdra.kernel.errors import from_os_error
from netdra.kernel.netlink import Socket

_LISTED = "/proc/thread-self/net/dev_mcast"  # index, name, users, whether it is static, MAC
_SIOCADDMULTI = 0x8931  # include/uapi/linux/sockios.h
_ETHERNET = 12  # hexadecimal digits; the request has no room for longer ones
_REQUEST = struct.Struct("16sH14s8x")  # struct ifreq with a struct sockaddr


def static_groups(index: int) -> tuple[str, ...]:
    """The MACs of a link's configured groups, in the calling thread's namespace; none where /proc cannot be read."""
    try:
        lines = Path(_LISTED).read_text().splitlines()
    except OSError:
        return ()
    listed = (line.split() for line in lines)
    own = (mac for number, _, _, static, mac in listed if (number, static) == (str(index), "1"))
    return tuple(bytes.fromhex(mac).hex(":") for mac in own if len(mac) == _ETHERNET)


def add_static_group(sock: Socket, name: str, mac: str) -> None:
    """Give a link a group.

    Raises:
        KernelError: no such link exists, or the kernel refused.
    """
    request = _REQUEST.pack(name.encode(), socket.AF_UNSPEC, bytes.fromhex(mac.replace(":", "")))
    try:
        fcntl.ioctl(sock.handle, _SIOCADDMULTI, request)
    except OSError as problem:
        raise from_os_error(problem, f'cannot add multicast group {mac} to link "{name}"') from None
