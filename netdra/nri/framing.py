"""NRI's wire: two byte streams over one socket, and ttrpc's frames on each of them.

The multiplexer's frame is two big-endian 32-bit numbers, the stream's and the payload's length, and the payload;
streams are neither opened nor closed (containerd/nri `pkg/net/multiplex`). A frame of ttrpc is a header of ten bytes,
big-endian, and a message: the message's length, the call's number, the kind and flags (containerd/ttrpc). NRI has
unary calls only: one request, one response. Used by `netdra.nri.connection`; it does no I/O.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

from netdra.model.errors import TemporaryError

PLUGIN_STREAM = 1
"""The runtime calls, the plugin serves."""
RUNTIME_STREAM = 2
"""The plugin calls, the runtime serves."""

MOST_SENT = 4096
"""Bytes of payload that go into one frame.

The runtime hands a frame to a reader with a buffer of this size, and closes the connection when it does not fit.
"""
MOST_RECEIVED = 10 + (4 << 20)
"""Bytes of payload that the runtime puts into one frame: a header and a message of ttrpc."""

_MUX_HEADER = struct.Struct(">II")


class ProtocolError(TemporaryError):
    """The other end sent what its protocol does not allow; the connection is of no more use."""


def frames(stream: int, message: bytes) -> bytes:
    """The frames that carry one message; a frame never holds parts of two."""
    parts = (message[at : at + MOST_SENT] for at in range(0, len(message), MOST_SENT))
    return b"".join(_MUX_HEADER.pack(stream, len(part)) + part for part in parts)


class Demux:
    """Takes the socket's bytes however they are split, and gives their streams. It keeps at most a header."""

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take bytes of the socket.

        Returns:
            Pairs of a stream and bytes of it, in order. A frame's payload may come in several pairs.

        Raises:
            ProtocolError: a frame is longer than any that the runtime sends.
        """
        parts = []
        at = 0
        while at < len(data):
            if self._left:
                payload = data[at : at + self._left]
                parts.append((self._stream, payload))
                self._left -= len(payload)
                at += len(payload)
            else:
                piece = data[at : at + _MUX_HEADER.size - len(self._header)]
                self._header += piece
                at += len(piece)
                self._begin()
        return parts

    def _begin(self) -> None:
        if len(self._header) < _MUX_HEADER.size:
            return
        self._stream, self._left = _MUX_HEADER.unpack(self._header)
        self._header = b""
        if self._left > MOST_RECEIVED:
            raise ProtocolError(
                f"a frame of {self._left} bytes for stream {self._stream}; {MOST_RECEIVED} are the most", code="ND2270"
            )


MOST_DATA = 4 << 20
"""Bytes of one message, which both ends keep to."""

_HEADER = struct.Struct(">IIBB")


class FrameKind(IntEnum):
    """The type byte of a ttrpc header, as far as unary calls need it (containerd/ttrpc, PROTOCOL.md)."""

    REQUEST = 1
    RESPONSE = 2


class Code(IntEnum):
    """gRPC's status codes, as far as they occur here.

    The runtime passes an error of RunPodSandbox on to the kubelet, with its code. DEADLINE_EXCEEDED and UNAVAILABLE are
    not among these: they would read as the runtime's own errors.
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
    """A call that was answered with an error; a server raises it, and a caller gets it.

    Attributes:
        code: a `Code`, or another number from a server that has more codes.
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
        kind: a `FrameKind`.
        data: the message.
    """

    call: int
    kind: int
    data: bytes


def encode(frame: Frame) -> bytes:
    """A frame as it goes onto the stream.

    Raises:
        ProtocolError: the frame is longer than the other end takes.
    """
    if len(frame.data) > MOST_DATA:
        raise ProtocolError(f"a message of {len(frame.data)} bytes; {MOST_DATA} are the most", code="ND2271")
    return _HEADER.pack(len(frame.data), frame.call, frame.kind, 0) + frame.data


class Reader:
    """Takes a stream's bytes however they are split, and gives frames. It keeps at most one frame that is not whole."""

    def __init__(self, kind: FrameKind) -> None:
        """Expect frames of one kind: a server gets requests, a client gets responses."""
        self._kind = kind
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes of the stream; returns the frames that are whole with them.

        Raises:
            ProtocolError: a frame is too long, of another kind, or its call has no client's number.
        """
        self._pending += data
        frames = []
        at = 0
        while len(self._pending) - at >= _HEADER.size:
            size, call, kind, _ = _HEADER.unpack_from(self._pending, at)
            self._check(size, call, kind)
            end = at + _HEADER.size + size
            if len(self._pending) < end:
                break
            frames.append(Frame(call, kind, bytes(self._pending[at + _HEADER.size : end])))
            at = end
        del self._pending[:at]
        return frames

    def _check(self, size: int, call: int, kind: int) -> None:
        if size > MOST_DATA:
            raise ProtocolError(f"a message of {size} bytes in call {call}; {MOST_DATA} are the most", code="ND2272")
        if kind != self._kind:
            raise ProtocolError(
                f"a frame of kind {kind} in call {call}, where only kind {int(self._kind)} belongs", code="ND2273"
            )
        if call % 2 == 0:
            raise ProtocolError(f"call {call} has an even number; a client's are odd", code="ND2274")
