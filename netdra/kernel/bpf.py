"""BPF programs on a link: read them, name them, detach them.

Follows bpf(2) and include/uapi/linux/bpf.h. Programs of tcx, netkit and XDP belong to the link: they stay on it when it
moves to another namespace, and its messages show XDP alone. Filters of clsact are not read here: they go with the
link's queue disciplines when it moves (dev_shutdown() in net/sched/sch_generic.c).

The kernel finds a link by its index in the calling thread's namespace, and sends no event for tcx and netkit.
Discovery asks whether a link has programs (`uses`), steps which ones (`attached`). Each such question waits for the
kernel's lock of all networks (RTNL). It is not asked while no program is loaded that a link can have (`are_loaded`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec

from netdra.kernel import link, uapi
from netdra.kernel.errors import KernelBusyError, KernelError, KernelMissingError, kernel_error
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket, attribute, attributes, nested, to_u32, u32

TCX, NETKIT = "tcx", "netkit"

_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}.get(platform.machine(), -1)
_PROG_DETACH, _PROG_GET_NEXT_ID, _PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _PROG_QUERY = 9, 11, 13, 15, 16
_LINK_GET_FD_BY_ID, _LINK_GET_NEXT_ID, _LINK_DETACH = 30, 31, 34
_LINK_TYPE_XDP = 6
_OF_LINKS = (3, 6)  # BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP
_FEW_IDS = 2**30  # the kernel starts again after 2^31 - 1
_MOST = 64  # programs on one place (BPF_MPROG_MAX in include/linux/bpf_mprog.h)

_IFINFO = struct.Struct("=4xi8x")  # struct ifinfomsg with an index alone
_QUERY = struct.Struct("=IIIIQI4xQQQQ")
_DETACH = struct.Struct("=IIIIIIQ")
_BY_ID = struct.Struct("=III")
_INFO = struct.Struct("=IIQ")
_PROG_TYPE = struct.Struct("=I")
_PROG_INFO = struct.Struct("=64x16s")  # struct bpf_prog_info up to the name
_LINK_INFO = struct.Struct("=IIIII")  # struct bpf_link_info up to the index of an XDP link's device

_OF_EVERY_LINK = {"tcx ingress": 46, "tcx egress": 47}
_OF_NETKIT = {"netkit primary": 54, "netkit peer": 55}
_ATTACH_TYPES = _OF_EVERY_LINK | _OF_NETKIT
"""Place -> its number (enum bpf_attach_type)."""
_XDP = {
    "xdp": (uapi.IFLA_XDP_DRV_PROG_ID, uapi.XDP_FLAGS_DRV_MODE),
    "xdp generic": (uapi.IFLA_XDP_SKB_PROG_ID, uapi.XDP_FLAGS_SKB_MODE),
    "xdp offloaded": (uapi.IFLA_XDP_HW_PROG_ID, uapi.XDP_FLAGS_HW_MODE),
}
"""Place -> the attribute with its program's id, and the flag that means it."""

_HAS_BPF = Path("/proc/sys/kernel/unprivileged_bpf_disabled")
_RIGHTS = "bpf(2) requires CAP_SYS_ADMIN and CAP_NET_ADMIN, and a seccomp profile that permits it"
_ALL_IDS = 2**32 - 1  # user_namespaces(7): only the initial namespace maps all user ids

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_unsupported: set[str] = set()  # the places that this kernel does not have


class _Loaded:
    """Whether programs of tcx, netkit or XDP are loaded, in any namespace. Each program is checked once.

    The kernel numbers programs upwards, and a program does not change its type.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._witness = 0  # the id of one
        self._last = 0  # the highest id that was checked

    def read(self) -> bool:
        """Check those that were loaded since the last time; True if that cannot be read."""
        with self._lock:
            try:
                if self._last >= _FEW_IDS:
                    return True
                if self._witness and self._is_there(self._witness):
                    return True
                self._witness = 0
                while not self._witness and (number := _next(_PROG_GET_NEXT_ID, self._last)):
                    self._witness = number if self._is_there(number, _OF_LINKS) else 0
                    self._last = number
            except KernelError:
                return True
            return bool(self._witness)

    def _is_there(self, number: int, kinds: Collection[int] = ()) -> bool:
        """Whether a program is still loaded, and has one of these types if any are given."""
        with suppress(KernelMissingError), _opened(_PROG_GET_FD_BY_ID, number) as descriptor:
            return not kinds or _PROG_TYPE.unpack(_info(descriptor, _PROG_TYPE.size))[0] in kinds
        return False


_loaded = _Loaded()


class Program(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A program on a link.

    Attributes:
        place: "tcx ingress", "netkit peer", "xdp generic" ...
        id: the program's, which no other one has until the next boot.
        link: the id of the BPF link that holds it there, 0 for none. It is not read for XDP.
    """

    place: str
    id: int
    link: int = 0


def are_loaded() -> bool:
    """Whether any program is loaded that a link can have, in any namespace; True if that cannot be read."""
    return _loaded.read()


def uses(index: int, kind: str) -> tuple[str, ...]:
    """`tcx` and `netkit` if a link of the calling thread's namespace has programs there.

    Args:
        index: the link's.
        kind: the link's.

    Raises:
        KernelMissingError: no such link exists.
        KernelError: that cannot be read.
    """
    used = (TCX,) if any(_count(index, place) for place in _OF_EVERY_LINK) else ()
    return (*used, NETKIT) if kind == NETKIT and any(_count(index, place) for place in _OF_NETKIT) else used


def attached(netdev: Link, sock: Socket) -> tuple[Program, ...]:
    """All programs on a link, in the order in which they run.

    Args:
        netdev: as it was read a moment ago.
        sock: a socket in its namespace, which must be the calling thread's.

    Raises:
        KernelMissingError: the link is gone.
        KernelError: they cannot be read.
    """
    programs: list[Program] = []
    if netdev.xdp:
        message = netdev.message or link.get(sock, netdev.index).message
        fields = attributes(message.get(uapi.IFLA_XDP, b""))
        programs += (Program(place, to_u32(fields[kind])) for place, (kind, _) in _XDP.items() if kind in fields)
    places = _ATTACH_TYPES if netdev.kind == NETKIT else _OF_EVERY_LINK
    for place in places if are_loaded() else ():
        if _count(netdev.index, place):
            programs += _listed(netdev.index, place)
    return tuple(programs)


def words(programs: Iterable[Program]) -> tuple[str, ...]:
    """The words of `uses` for programs that were read."""
    used = {program.place.partition(" ")[0] for program in programs}
    return tuple(word for word in (TCX, NETKIT) if word in used)


def name_of(program: Program) -> str:
    """A program's name, "" if it is unnamed, is gone, or cannot be read."""
    with suppress(KernelError), _opened(_PROG_GET_FD_BY_ID, program.id) as descriptor:
        (name,) = _PROG_INFO.unpack(_info(descriptor, _PROG_INFO.size))
        return bytes(name).partition(b"\0")[0].decode(errors="replace")
    return ""


def detach(sock: Socket, index: int, program: Program) -> None:
    """Take a program off a link; a program that is gone by now is ignored.

    A process that still has the BPF link open can do nothing with it any more.

    Args:
        sock: a socket in the link's namespace, which must be the calling thread's.
        index: the link's.
        program: as it was read from the link.

    Raises:
        KernelError: the kernel refused.
    """
    with suppress(KernelMissingError):
        if program.place in _XDP:
            _detach_xdp(sock, index, program)
        elif program.link:
            _detach_link(program.link)
        else:
            with _opened(_PROG_GET_FD_BY_ID, program.id) as descriptor:
                kind = _ATTACH_TYPES[program.place]
                doing = f"cannot detach BPF program {program.id}"
                _call(_PROG_DETACH, _DETACH.pack(index, descriptor, kind, 0, 0, 0, 0), doing)


def _detach_xdp(sock: Socket, index: int, program: Program) -> None:
    try:
        none = attribute(uapi.IFLA_XDP_FD, struct.pack("=i", -1))
        mode = attribute(uapi.IFLA_XDP_FLAGS, u32(_XDP[program.place][1]))
        body = _IFINFO.pack(index) + nested(uapi.IFLA_XDP, none, mode)
        sock.request(uapi.RTM_NEWLINK, body, doing=f"cannot detach BPF program {program.id} ({program.place})")
    except KernelBusyError:
        # A BPF link holds it; the device's message does not name that.
        held = list(_xdp_links(index, program.id))
        if len(held) != 1:
            raise  # one of them is another namespace's device with the same index
        _detach_link(held[0])


def _detach_link(number: int) -> None:
    with _opened(_LINK_GET_FD_BY_ID, number) as descriptor:
        _call(_LINK_DETACH, struct.pack("=I", descriptor), f"cannot detach BPF link {number}")


def _xdp_links(index: int, program: int) -> Iterator[int]:
    """The XDP links of the machine that hold a program on a device of that index, in any namespace."""
    number = 0
    while number := _next(_LINK_GET_NEXT_ID, number):
        with suppress(KernelMissingError), _opened(_LINK_GET_FD_BY_ID, number) as descriptor:
            kind, _, holds, _, device = _LINK_INFO.unpack(_info(descriptor, _LINK_INFO.size))
            if (kind, holds, device) == (_LINK_TYPE_XDP, program, index):
                yield number


def _count(index: int, place: str) -> int:
    """How many programs a link has in a place."""
    if place in _unsupported:
        return 0
    query = ctypes.create_string_buffer(_QUERY.pack(index, _ATTACH_TYPES[place], 0, 0, 0, 0, 0, 0, 0, 0), _QUERY.size)
    if _libc.syscall(_SYSTEM_CALL, _PROG_QUERY, query, _QUERY.size) == 0:
        return int(_QUERY.unpack(query)[5])
    number = ctypes.get_errno()
    if number == errno.EINVAL:
        _unsupported.add(place)
    elif not _means_none(number, place):
        raise _error(number, f"cannot read the BPF programs ({place}) of link {index}")
    return 0


def _listed(index: int, place: str) -> list[Program]:
    ids, links = (ctypes.c_uint32 * _MOST)(), (ctypes.c_uint32 * _MOST)()
    at = ctypes.addressof
    query = _QUERY.pack(index, _ATTACH_TYPES[place], 0, 0, at(ids), _MOST, 0, at(links), 0, 0)
    answer = _call(_PROG_QUERY, query, f"cannot list the BPF programs ({place}) of link {index}")
    count = _QUERY.unpack(answer)[5]
    return [Program(place, ids[number], links[number]) for number in range(count)]


def _means_none(number: int, place: str) -> bool:
    """Whether an error means that the link has no program there."""
    match number:
        case errno.ENOENT:
            return True
        case errno.EACCES:
            return place in _OF_NETKIT  # the pair's second end: its programs belong to the first one
        case errno.ENOSYS:
            return not _HAS_BPF.exists()  # else it is a seccomp profile that hides the call
        case errno.EPERM:
            # No process in a user namespace may attach one: the kernel requires the rights in the initial one.
            return not _is_initial_user_namespace()
        case _:
            return False


@cache
def _is_initial_user_namespace() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(_ALL_IDS)]
    except OSError:
        return True


def _next(command: int, number: int) -> int:
    """The id of the program or BPF link that comes after one, 0 after the last one."""
    answer = ctypes.create_string_buffer(_BY_ID.pack(number, 0, 0), _BY_ID.size)
    if _libc.syscall(_SYSTEM_CALL, command, answer, _BY_ID.size) == 0:
        return int(_BY_ID.unpack(answer)[1])
    if ctypes.get_errno() != errno.ENOENT:
        raise _error(ctypes.get_errno(), "cannot list BPF objects")
    return 0


@contextmanager
def _opened(command: int, number: int) -> Iterator[int]:
    """A descriptor of the program or BPF link of an id."""
    answer = ctypes.create_string_buffer(_BY_ID.pack(number, 0, 0), _BY_ID.size)
    descriptor = _libc.syscall(_SYSTEM_CALL, command, answer, _BY_ID.size)
    if descriptor < 0:
        called = "program" if command == _PROG_GET_FD_BY_ID else "link"
        raise _error(ctypes.get_errno(), f"cannot open BPF {called} {number}")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _info(descriptor: int, size: int) -> bytes:
    """The first bytes of the kernel's description of a program or a BPF link."""
    info = ctypes.create_string_buffer(size)
    _call(_OBJ_GET_INFO_BY_FD, _INFO.pack(descriptor, size, ctypes.addressof(info)), "cannot describe a BPF object")
    return info.raw


def _call(command: int, arguments: bytes, doing: str) -> bytes:
    """A call of bpf(2): its arguments as the kernel has left them."""
    buffer = ctypes.create_string_buffer(arguments, len(arguments))
    if _libc.syscall(_SYSTEM_CALL, command, buffer, len(arguments)) < 0:
        raise _error(ctypes.get_errno(), doing)
    return buffer.raw


def _error(number: int, doing: str) -> KernelError:
    return kernel_error(number, doing, _RIGHTS if number in (errno.EPERM, errno.ENOSYS) else "")
