"""ttrpc's frames on one byte stream, as containerd speaks it: a header of ten bytes, and a message.

The header is big-endian: the message's length, the call's number, the kind and flags. NRI has unary calls only: one
request, one response. Used by `netdra.node.nri.connection`; it does no I/O. The wire is that of containerd/ttrpc.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

from netdra.node.nri.mux import ProtocolError

MOST_DATA = 4 << 20
"""Bytes of one message, which both ends keep to."""

_HEADER = struct.Struct(">IIBB")


class Kind(IntEnum):
    """What a frame is."""

    REQUEST = 1
    RESPONSE = 2


class Code(IntEnum):
    """Those of gRPC's status codes that occur here.

    The runtime passes an error of RunPodSandbox on to the kubelet, code and all. DEADLINE_EXCEEDED and UNAVAILABLE are
    not among these: they would read as the runtime's own.
    """

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13


class CallError(Exception):
    """A call that was answered by an error; both what a server raises and what a caller gets.

    Attributes:
        code: a `Code`, or another number from a server that has more of them.
        message: the text.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Frame(msgspec.Struct, frozen=True):
    """One request or response.

    Attributes:
        call: the call's number: odd, and rising with each call of one client.
        kind: a `Kind`.
        data: the message.
    """

    call: int
    kind: int
    data: bytes


def encode(frame: Frame) -> bytes:
    """A frame as it goes onto the stream.

    Raises:
        ProtocolError: it is longer than the other end takes.
    """
    if len(frame.data) > MOST_DATA:
        raise ProtocolError(f"a message of {len(frame.data)} bytes; {MOST_DATA} are the most")
    return _HEADER.pack(len(frame.data), frame.call, frame.kind, 0) + frame.data


class Reader:
    """Takes a stream's bytes however they are split, and gives frames. It keeps at most one frame that is not whole."""

    def __init__(self, kind: Kind) -> None:
        """Expect frames of one kind: a server gets requests, a client gets responses."""
        self._kind = kind
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take what came; returns the frames that are whole with it.

        Raises:
            ProtocolError: a frame is too long, of another kind, or its call has no client's number.
        """
        self._pending += data
        found = []
        at = 0
        while len(self._pending) - at >= _HEADER.size:
            size, call, kind, _ = _HEADER.unpack_from(self._pending, at)
            self._check(size, call, kind)
            end = at + _HEADER.size + size
            if len(self._pending) < end:
                break
            found.append(Frame(call, kind, bytes(self._pending[at + _HEADER.size : end])))
            at = end
        del self._pending[:at]
        return found

    def _check(self, size: int, call: int, kind: int) -> None:
        if size > MOST_DATA:
            raise ProtocolError(f"a message of {size} bytes in call {call}; {MOST_DATA} are the most")
        if kind != self._kind:
            raise ProtocolError(f"a frame of kind {kind} in call {call}, where only kind {int(self._kind)} belongs")
        if call % 2 == 0:
            raise ProtocolError(f"call {call} has an even number; a client's are odd")
