"""The registry's socket at its path, with its permissions.

Used by `netdra.node.registry.service`. Providers' containers mount the folder, and one that may write to it can put
anything there: links, and sockets of its own. Nothing is done to a path that may lead elsewhere.
"""

from __future__ import annotations

import grp
import logging
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.node.kubelet.presence import Identity
from netdra.node.registry.peers import credentials, is_node_root

log = logging.getLogger(__name__)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the socket is, and its permissions.

    Attributes:
        path: the socket.
        mode: its permissions.
        group: the group that it belongs to, by name or number; "" for the driver's own.
    """

    path: Path
    mode: int = 0o660
    group: str = ""


def listen(place: Place) -> tuple[socket.socket, Identity]:
    """Listen on a socket, in the place of one that no process serves, or that no driver serves; with its file.

    Raises:
        PermanentError: something else is in its place, or the group is unknown.
        TemporaryError: another driver serves it, or it cannot be made.
    """
    path = place.path
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise PermanentError(
                f"{path} exists but is not a socket", hint="choose another --registry-socket", code="ND2209"
            )
        _check_server(path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        fresh.unlink(missing_ok=True)
        opened.bind(str(fresh))
        # No program can connect before the socket listens, and then its mode is set.
        made = _permit(fresh, place)
        opened.listen(64)
        fresh.rename(path)
    except OSError as problem:
        opened.close()
        fresh.unlink(missing_ok=True)
        raise TemporaryError(f"{path} cannot be made: {problem.strerror or problem}", code="ND2210") from None
    except NetdraError:
        opened.close()
        fresh.unlink(missing_ok=True)
        raise
    return opened, made


def _check_server(path: Path) -> None:
    """Check that no other driver serves a socket.

    Raises:
        TemporaryError: one does.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:  # more connections wait than it accepts
            raise TemporaryError(
                f"{path} is served by another process", hint="run one daemon on a node", code="ND2211"
            ) from None
        except OSError:
            return
        pid, uid, _ = credentials(probe)
        if is_node_root(probe) or uid == os.geteuid() != 0:
            raise TemporaryError(f"{path} is served by another process", hint="run one daemon on a node", code="ND2212")
        log.warning("%s is served by process %d of user %d, which is not a driver: it is replaced", path, pid, uid)


def _permit(fresh: Path, place: Place) -> Identity:
    """Give a socket its group and permissions, and return which file it is.

    Raises:
        OSError: something else is in its place.
        PermanentError: the group is unknown.
    """
    # Not by its path, which a program may have made a link meanwhile; a descriptor stays what it is (proc(5)).
    file = os.open(fresh, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISSOCK(status.st_mode):
            raise OSError(f"{fresh} was replaced")
        if place.group:
            os.chown(f"/proc/self/fd/{file}", -1, _group(place.group))
        Path(f"/proc/self/fd/{file}").chmod(place.mode)
    finally:
        os.close(file)
    return status.st_dev, status.st_ino


def _group(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise PermanentError(
            f'group "{name}" not found', hint="use a group of this machine, or its number", code="ND2213"
        ) from None
