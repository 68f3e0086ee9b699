"""Netlink itself: messages and attributes as bytes, a socket for requests and their replies.

Follows the kernel's Documentation/userspace-api/netlink and include/uapi/linux/netlink.h. Called by the modules that
know the meaning of messages (`link`, `address`, `route`, `genetlink`, `rdma`), which get the bodies of the replies.
Numbers are in the machine's byte order except where a name states otherwise.
"""

from __future__ import annotations

import errno
import mmap
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from netdra.kernel.closing import Closing
from netdra.kernel.errors import KernelError, KernelInterruptedError, kernel_error

NETLINK_ROUTE = 0
NETLINK_KOBJECT_UEVENT = 15
NETLINK_GENERIC = 16
NETLINK_RDMA = 20

NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_DUMP = 0x300
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800
NLA_F_NESTED = 0x8000

DUMP_ATTEMPTS = 20
"""How often a dump is asked for that changes interrupt."""

_NLM_F_DUMP_INTR = 0x10
_NLM_F_CAPPED = 0x100
_NLM_F_ACK_TLVS = 0x200
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_NLMSGERR_ATTR_MSG = 1
_NLA_TYPE_MASK = 0x3FFF
_SOL_NETLINK = 270
_NETLINK_CAP_ACK = 10
_NETLINK_EXT_ACK = 11
_NETLINK_GET_STRICT_CHK = 12

# One netlink message can hold attributes of 64 KiB each; the kernel fills at most 32 KiB of a dump at once otherwise.
_BUFFER = 256 * 1024

_HEADER = struct.Struct("=IHHI4x")
_ATTRIBUTE = struct.Struct("=HH")
_read_attribute = _ATTRIBUTE.unpack_from
_U8, _U16, _U32, _U64, _I32 = (struct.Struct(f"={code}") for code in "BHIQi")
_BE16 = struct.Struct(">H")

u8, u16, u32, u64, i32, be16 = _U8.pack, _U16.pack, _U32.pack, _U64.pack, _I32.pack, _BE16.pack


def to_u8(data: bytes) -> int:
    """The first byte of an attribute, as a number from 0 to 255."""
    return data[0]


def to_u16(data: bytes) -> int:
    """An unsigned 16 bit number."""
    return int(_U16.unpack_from(data)[0])


def to_u32(data: bytes) -> int:
    """An unsigned 32 bit number."""
    return int(_U32.unpack_from(data)[0])


def to_i32(data: bytes) -> int:
    """A signed 32 bit number."""
    return int(_I32.unpack_from(data)[0])


def to_be16(data: bytes) -> int:
    """An unsigned 16 bit number in network byte order."""
    return int(_BE16.unpack_from(data)[0])


def text(value: str) -> bytes:
    """A string as the kernel takes it: its bytes and a NUL."""
    return value.encode() + b"\0"


def to_text(data: bytes) -> str:
    """A string up to its NUL; bytes that are not UTF-8 (names may hold any) are written as escapes."""
    return data.split(b"\0", 1)[0].decode(errors="backslashreplace")


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    size = len(payload) + 4
    return _ATTRIBUTE.pack(size, kind) + payload + b"\0" * (-size % 4)


def nested(kind: int, *attributes_: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(attributes_))


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    """The attributes from `start` to the end, by number; of a repeated one the last. A cut-off tail is left out."""
    values: dict[int, bytes] = {}
    end = len(data)
    words = memoryview(data)[: end & ~1].cast("H")  # a link has some 40 attributes: a struct takes longer
    while start + 4 <= end:
        size = words[start >> 1]
        if size < 4 or start + size > end:
            break
        values[words[(start >> 1) + 1] & _NLA_TYPE_MASK] = data[start + 4 : start + size]
        start += (size + 3) & ~3
    return values


def attribute_list(data: bytes, start: int = 0) -> list[tuple[int, bytes]]:
    """The attributes in their order, for lists in which one number is repeated."""
    return [(kind, data[place + 4 : end]) for kind, place, end in _places(data, start)]


def whole_attributes(data: bytes, start: int = 0) -> list[tuple[int, bytes]]:
    """The attributes in their order by number, each as it is: with header, flags (NLA_F_NESTED) and padding."""
    return [(kind, data[place:end] + b"\0" * (-(end - place) % 4)) for kind, place, end in _places(data, start)]


def _places(data: bytes, start: int) -> Iterator[tuple[int, int, int]]:
    """The number of each attribute, and where it begins and ends."""
    while start + 4 <= len(data):
        size, kind = _read_attribute(data, start)
        if size < 4 or start + size > len(data):
            return
        yield kind & _NLA_TYPE_MASK, start, start + size
        start += (size + 3) & ~3


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """The messages in the bytes of one read: type, flags, sequence number, body."""
    offset, end = 0, len(data)
    while offset + 16 <= end:
        size, kind, flags, sequence = _HEADER.unpack_from(data, offset)
        if size < 16 or offset + size > end:
            break
        yield kind, flags, sequence, data[offset + 16 : offset + size]
        offset += (size + 3) & ~3


class Message(dict[int, bytes]):
    """The attributes of a message, in addition to the parsed fields. Comparisons ignore them: all are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message)

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


class Request(NamedTuple):
    """One of several requests that are sent at once (`Socket.request_all`).

    Attributes:
        kind: the message type.
        body: the family's header and the attributes.
        doing: the request and its object, the beginning of the error's text; called only if there is an error.
        flags: NLM_F_CREATE and the like; REQUEST and ACK are added.
    """

    kind: int
    body: bytes
    doing: str | Callable[[], str]
    flags: int = 0

    @property
    def text(self) -> str:
        """The request and its object."""
        return self.doing if isinstance(self.doing, str) else self.doing()


class _Received(threading.local):
    """A thread's buffer for replies. Clearing a buffer for each socket takes longer than most requests.

    Mapped, not allocated: only pages that a reply has reached are in memory, and most threads read little.
    """

    def __init__(self) -> None:
        self.view = memoryview(mmap.mmap(-1, _BUFFER, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


_received = _Received()


class Socket(Closing):
    """A netlink socket of one family, in the network namespace of the thread that made it, for one thread at a time.

    Attributes:
        families: numbers of generic netlink families that count for this socket alone (`netdra.kernel.genetlink`).
    """

    def __init__(self, family: int = NETLINK_ROUTE) -> None:
        """Open the socket.

        Raises:
            KernelError: the kernel does not have the family (EPROTONOSUPPORT) or denies it.
        """
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        except OSError as problem:
            raise kernel_error(problem.errno or errno.EIO, f"cannot open a netlink socket of family {family}") from None
        # An error comes without the request and with words (CAP_ACK, EXT_ACK). Only with strict checks does
        # the kernel filter a dump by its header, such as an index (Documentation/userspace-api/netlink/intro.rst).
        try:
            for option in (_NETLINK_CAP_ACK, _NETLINK_EXT_ACK, _NETLINK_GET_STRICT_CHK):
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
            self._socket.bind((0, 0))
        except OSError as problem:
            self._socket.close()
            raise kernel_error(problem.errno or errno.EIO, f"cannot bind a netlink socket of family {family}") from None
        self._sequence = 0
        self.families: dict[str, int] = {}

    @property
    def handle(self) -> socket.socket:
        """The socket itself, for calls that are not messages."""
        return self._socket

    def close(self) -> None:
        """Close the socket; closing twice is not an error."""
        self._socket.close()

    def request(self, kind: int, body: bytes, *, flags: int = 0, doing: str) -> list[bytes]:
        """Send one request, wait for its acknowledgement and return the bodies of the replies (none for most changes).

        Args:
            kind: the message type.
            body: the family's header and the attributes.
            flags: NLM_F_CREATE and the like; REQUEST and ACK are added.
            doing: the request and its object, the beginning of the error's text.

        Raises:
            KernelError: the kernel refused.
        """
        sequence = self._send(kind, NLM_F_REQUEST | NLM_F_ACK | flags, body, doing)
        return self._collect(sequence, doing)[0]

    def request_each(self, kind: int, bodies: Sequence[bytes], *, doing: str) -> list[bytes | KernelError]:
        """Send several requests of one type at once; return the body of each one's reply (b"" for none), or its error.

        The kernel takes its lock for each (RTNL), but nothing happens between them: other threads that wait for the
        lock are skipped as a rule.

        Raises:
            KernelError: the socket failed.
        """
        return self._exchange([Request(kind, body, doing) for body in bodies], doing)

    def request_all(self, requests: Sequence[Request]) -> list[KernelError | None]:
        """Send changes at once, which the kernel makes in this order; return each one's error, None for none.

        The kernel carries all of them out within the one system call: a process that is killed meanwhile has made all
        of the changes or none. A change that is refused does not keep those after it from being made.

        Raises:
            KernelError: the socket failed.
        """
        replies = self._exchange(requests, requests[0].text) if requests else []
        return [reply if isinstance(reply, KernelError) else None for reply in replies]

    def _exchange(self, requests: Sequence[Request], doing: str) -> list[bytes | KernelError]:
        """Send requests in one message to the kernel; return the body of each one's reply, or its error."""
        replies: dict[int, bytes | KernelError] = {}
        waiting: dict[int, Request] = {}
        data = b""
        for request in requests:
            kind, body, _, flags = request
            self._sequence = self._sequence % 0xFFFFFFFF + 1
            replies[self._sequence], waiting[self._sequence] = b"", request
            data += _HEADER.pack(len(body) + 16, kind, NLM_F_REQUEST | NLM_F_ACK | flags, self._sequence) + body
            data += b"\0" * (-len(body) % 4)
        try:
            self._socket.send(data)
        except OSError as problem:
            raise kernel_error(problem.errno or errno.EIO, doing) from None
        while waiting:
            for kind, flags, number, body in messages(self._receive(doing)):
                if number not in waiting:
                    continue
                if kind != _NLMSG_ERROR:
                    replies[number] = body
                    continue
                request = waiting.pop(number)
                if to_i32(body):
                    replies[number] = _failure(kind, flags, body, request.text) or replies[number]
        return list(replies.values())

    def dump(self, kind: int, body: bytes, *, doing: str, attempts: int = DUMP_ATTEMPTS) -> list[bytes]:
        """Ask for all objects of a kind and return the bodies of the replies, all of one moment.

        A dump that a change interrupted is asked for again, so often at most.

        Raises:
            KernelInterruptedError: each attempt was interrupted. With thousands of objects and a hundred changes a
                second this is to be expected: read them one by one.
            KernelError: the kernel refused.
        """
        for _ in range(attempts):
            bodies, complete = self.try_dump(kind, body, doing=doing)
            if complete:
                return bodies
        raise kernel_error(errno.EINTR, doing, f"changed during each of {attempts} dumps")

    def try_dump(self, kind: int, body: bytes, *, doing: str) -> tuple[list[bytes], bool]:
        """Ask once for all objects of a kind.

        The kernel sends a dump in messages of at most 32 KiB. If an object comes or goes between two of them, it marks
        the dump as interrupted (NLM_F_DUMP_INTR, or EINTR at its end): objects may be missing or listed twice.

        Returns:
            The bodies of the replies, and whether they are all objects of one moment.

        Raises:
            KernelError: the kernel refused.
        """
        sequence = self._send(kind, NLM_F_REQUEST | NLM_F_DUMP, body, doing)
        try:
            bodies, interrupted = self._collect(sequence, doing)
        except KernelInterruptedError:
            return [], False
        return bodies, not interrupted

    def _send(self, kind: int, flags: int, body: bytes, doing: str) -> int:
        # 0 is left out: events, which answer no request, have it.
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        try:
            self._socket.send(_HEADER.pack(len(body) + 16, kind, flags, self._sequence) + body)
        except OSError as problem:
            raise kernel_error(problem.errno or errno.EIO, doing) from None
        return self._sequence

    def _collect(self, sequence: int, doing: str) -> tuple[list[bytes], bool]:
        """The replies up to the message that ends them, and whether a dump was interrupted."""
        bodies: list[bytes] = []
        interrupted = False
        while True:
            for kind, flags, number, body in messages(self._receive(doing)):
                if number != sequence:  # the rest of a reply that was abandoned
                    continue
                interrupted = interrupted or bool(flags & _NLM_F_DUMP_INTR)
                if kind not in (_NLMSG_ERROR, _NLMSG_DONE):
                    bodies.append(body)
                    continue
                problem = _failure(kind, flags, body, doing)
                if problem is not None:
                    raise problem
                return bodies, interrupted

    def _receive(self, doing: str) -> bytes:
        try:
            # With MSG_TRUNC the size is the whole message's, also where it was cut to the buffer (netlink(7), recv(2)).
            size = self._socket.recv_into(_received.view, 0, socket.MSG_TRUNC)
        except OSError as problem:
            raise kernel_error(problem.errno or errno.EIO, doing) from None
        if size > _BUFFER:
            raise kernel_error(errno.EMSGSIZE, doing, f"a reply of {size} bytes")
        return bytes(_received.view[:size])


def _failure(kind: int, flags: int, body: bytes, doing: str) -> KernelError | None:
    """The error that an NLMSG_ERROR or NLMSG_DONE carries; number 0 is the acknowledgement."""
    number = -to_i32(body) if len(body) >= 4 else 0
    if number == 0:
        return None
    message = ""
    if flags & _NLM_F_ACK_TLVS:
        start = 4
        if kind == _NLMSG_ERROR:
            # The header of the request follows, with its body unless the kernel was asked to cap it.
            size = to_u32(body[4:8])
            start = 20 if flags & _NLM_F_CAPPED else 4 + ((size + 3) & ~3)
        message = to_text(attributes(body, start).get(_NLMSGERR_ATTR_MSG, b""))
    return kernel_error(number, doing, message)
