"""BPF programs of two instructions, attached to links as a pod or an agent of the node does it: raw bpf(2).

A program drops each packet, or lets each pass. Links are those of the calling thread's network namespace. A program
that is attached without a BPF link stays on the link when all of its descriptors are closed, which is done here.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

PLACES = ("tcx ingress", "tcx egress", "xdp", "xdp generic")
MOST = 63
"""How many programs the kernel takes in one place of tcx."""

_NUMBER = {"x86_64": 321, "aarch64": 280}[platform.machine()]
_PROG_LOAD, _PROG_ATTACH, _PROG_QUERY, _LINK_CREATE, _LINK_UPDATE = 5, 8, 16, 28, 29
_CLS, _XDP = 3, 6
_DROP = {_CLS: 2, _XDP: 1}  # TC_ACT_SHOT, XDP_DROP
_PASS = {_CLS: 0, _XDP: 2}  # TC_ACT_OK, XDP_PASS
_TCX = {"tcx ingress": 46, "tcx egress": 47}
_MODES = {"xdp": 4, "xdp generic": 2}
_OF_XDP = 37

T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def loaded(place: str, name: str = "of_a_pod", *, passes: bool = False) -> Iterator[int]:
    """A descriptor of a new program for a place; unless it passes packets on, it drops them."""
    kind = _CLS if place in _TCX else _XDP
    value = (_PASS if passes else _DROP)[kind]
    code = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xB7, 0, 0, value, 0x95, 0, 0, 0))
    license_ = ctypes.create_string_buffer(b"GPL")
    head = struct.pack("=IIQQIIQII", kind, 2, ctypes.addressof(code), ctypes.addressof(license_), 0, 0, 0, 0, 0)
    expected = _TCX.get(place, _OF_XDP)
    descriptor, _ = _bpf(_PROG_LOAD, head + struct.pack("=16sII", name.encode(), 0, expected))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def attach(link: str, place: str, name: str = "of_a_pod", *, passes: bool = False) -> None:
    """Attach a new program without a BPF link."""
    with loaded(place, name, passes=passes) as program:
        if place in _TCX:
            index = socket.if_nametoindex(link)
            _bpf(_PROG_ATTACH, struct.pack("=6I", index, program, _TCX[place], 0, 0, 0) + bytes(8))
        else:
            _set_xdp(link, _MODES[place], program)


def hold(link: str, place: str, name: str = "of_a_pod", *, passes: bool = False) -> int:
    """Attach a new program by a BPF link, and return a descriptor of that: it is detached when that is closed."""
    with loaded(place, name, passes=passes) as program:
        return hold_loaded(link, place, program)


def hold_loaded(link: str, place: str, program: int) -> int:
    """Attach a program that is loaded already, as `hold` does."""
    numbers = (program, socket.if_nametoindex(link), _TCX.get(place, _OF_XDP), _MODES.get(place, 0))
    return _bpf(_LINK_CREATE, struct.pack("=4I", *numbers) + bytes(16))[0]


def update(held: int, place: str, name: str = "of_a_pod") -> None:
    """Give a BPF link another program.

    Raises:
        OSError: the kernel refused: the link is detached (ENOLINK).
    """
    with loaded(place, name) as program:
        _bpf(_LINK_UPDATE, struct.pack("=4I", held, program, 0, 0))


def on(link: str) -> list[tuple[str, int]]:
    """The tcx programs of a link: place and id."""
    found = []
    for place, number in _TCX.items():
        ids = (ctypes.c_uint32 * 64)()
        question = struct.pack("=4IQ2I", socket.if_nametoindex(link), number, 0, 0, ctypes.addressof(ids), 64, 0)
        (count,) = struct.unpack_from("=I", _bpf(_PROG_QUERY, question + bytes(32))[1], 24)
        found += [(place, program) for program in ids[:count]]
    return found


def _set_xdp(link: str, mode: int, program: int) -> None:
    fields = struct.pack("=HHiHHI", 8, 1, program, 8, 3, mode)
    body = struct.pack("=4xi8xHH", socket.if_nametoindex(link), 4 + len(fields), 0x8000 | 43) + fields
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.send(struct.pack("=IHHII", 16 + len(body), 19, 5, 1, 0) + body)
        refused = -struct.unpack_from("=i", sock.recv(4096), 16)[0]
    if refused:
        raise OSError(refused, os.strerror(refused))


def _bpf(command: int, arguments: bytes) -> tuple[int, bytes]:
    """The result of bpf(2), and its arguments afterwards."""
    buffer = ctypes.create_string_buffer(arguments, len(arguments))
    returned = _libc.syscall(_NUMBER, command, buffer, len(arguments))
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned, buffer.raw


def barred(work: Callable[[], T], number: int) -> T:
    """Call `work` in a thread of its own in which bpf(2) fails with an errno, as under a seccomp profile."""

    def confined() -> T:
        # Load the number of the system call; if it is that of bpf(2), fail, else allow.
        rules = ((0x20, 0, 0, 0), (0x15, 0, 1, _NUMBER), (0x06, 0, 0, 0x50000 | number), (0x06, 0, 0, 0x7FFF0000))
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
        program = struct.pack("@HP", len(rules), ctypes.addressof(code))
        if _libc.prctl(22, 2, program, 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
            raise OSError(ctypes.get_errno(), "cannot confine the thread")
        return work()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(confined).result()
