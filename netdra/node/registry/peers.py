"""The process on the other end of a unix socket, by the kernel: which user it is, and whether it is root of the node.

Used by `netdra.node.registry.connections` for each call, and by `service` for a process that serves in its place. The
user 0 of a container is not root of the node: most containers run as it.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import suppress
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")
_SO_PEERPIDFD = 77  # include/uapi/asm-generic/socket.h, since Linux 6.5
_DESCRIPTOR = struct.Struct("i")


def credentials(opened: socket.socket) -> tuple[int, int, int]:
    """The process, user and group on the other end (unix(7), SO_PEERCRED); process 0 is one that we cannot see."""
    pid, uid, gid = _CREDENTIALS.unpack(opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


def is_node_root(opened: socket.socket) -> bool:
    """Whether the other end is user 0 in the namespaces and below the root folder of the node, or of this driver."""
    pid, uid, _ = credentials(opened)
    if uid != 0 or pid <= 0:
        return False
    try:
        process = _process(opened, pid)
    except OSError:
        return False
    try:
        place = _place(pid)
        # When a process has ended, another one gets its number, and its descriptor is readable (pidfd_open(2)).
        return place is not None and place in (_place(os.getpid()), _place(1)) and not _has_ended(process)
    finally:
        os.close(process)


def _has_ended(process: int) -> bool:
    poll = select.poll()  # select(2) has no descriptors from 1024 on
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _process(opened: socket.socket, pid: int) -> int:
    """A descriptor of the process; an older kernel gives it by the number, which may be another's by now."""
    try:
        (process,) = _DESCRIPTOR.unpack(opened.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _DESCRIPTOR.size))
    except OSError:
        return os.pidfd_open(pid)
    return int(process)


def _place(pid: int) -> tuple[str, str, int, int] | None:
    """A process's user and mount namespace, and its root folder's device and inode; None if we may not read them."""
    folder = Path(f"/proc/{pid}")
    with suppress(OSError):
        root = (folder / "root").stat()
        return str((folder / "ns/user").readlink()), str((folder / "ns/mnt").readlink()), root.st_dev, root.st_ino
    return None
