"""HTTP/2's frames (RFC 9113, sections 4 and 6), and gRPC's header blocks. It does no I/O.

Used by `netdra.grpc.connection`. A frame is a header of nine bytes (length, kind, flags, stream) and a payload. Header
blocks are written as literals that no table keeps (RFC 7541, 6.2.2), so this end keeps no state for them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client."""
MAX_PAYLOAD = 16_384
"""Bytes: of a frame, unless its receiver's settings allow more (SETTINGS_MAX_FRAME_SIZE)."""
WINDOW = 65_535
"""Bytes that may come on a connection or a stream before anything is said about it (6.9.2)."""
MAX_WINDOW = 2**31 - 1
LAST_STREAM = 2**31 - 1

_HEADER = struct.Struct(">BHBBI")
_NUMBER = struct.Struct(">I")
_SETTING = struct.Struct(">HI")


class FrameType(IntEnum):
    """Kinds of frames; others are ignored (4.1)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
"""Flags."""


class ResetCode(IntEnum):
    """Why a stream or a connection ends (7), as far as this end states it."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """Settings (6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2Error(Exception):
    """The peer breaks the protocol, so the connection ends.

    Attributes:
        code: the reason that the peer is given.
    """

    def __init__(self, code: ResetCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Http2Frame(NamedTuple):
    """A frame without its length. `kind` may be one that is not known."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class FrameReader:
    """Takes a client's bytes however they are split, and gives frames. It keeps at most one that is not whole."""

    def __init__(self) -> None:
        self._pending = b""
        self._begun = False

    def feed(self, data: bytes) -> Iterator[Http2Frame]:
        """Take bytes; yields the frames that are whole with them.

        Raises:
            Http2Error: the bytes do not begin as HTTP/2 does, or a frame is too long.
        """
        data, at = self._pending + data, 0
        self._pending = data
        if not self._begun:
            if data[: len(PREFACE)] != PREFACE[: len(data)]:
                raise Http2Error(ResetCode.PROTOCOL_ERROR, "the bytes are not HTTP/2")
            if len(data) < len(PREFACE):
                return
            self._begun, at = True, len(PREFACE)
        while len(data) - at >= _HEADER.size:
            high, low, kind, flags, stream = _HEADER.unpack_from(data, at)
            size = high << 16 | low
            if size > MAX_PAYLOAD:
                raise Http2Error(ResetCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            end = at + _HEADER.size + size
            if len(data) < end:
                break
            payload = data[at + _HEADER.size : end]
            at = end
            yield Http2Frame(kind, flags, stream & LAST_STREAM, payload)
        self._pending = data[at:]


def frame(kind: FrameType, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame as it goes onto the wire."""
    return _HEADER.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def settings(values: Mapping[Setting, int]) -> bytes:
    """This end's settings."""
    return frame(FrameType.SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in values.items()))


SETTINGS_ACK = frame(FrameType.SETTINGS, ACK, 0, b"")


def read_settings(payload: bytes) -> dict[int, int]:
    """The peer's settings, those too that are not known.

    Raises:
        Http2Error: the payload is not whole, or a value is not allowed.
    """
    if len(payload) % _SETTING.size:
        raise Http2Error(ResetCode.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
    values = dict(_SETTING.iter_unpack(payload))
    if values.get(Setting.INITIAL_WINDOW_SIZE, 0) > MAX_WINDOW:
        raise Http2Error(ResetCode.FLOW_CONTROL_ERROR, "a window of more than 2^31 - 1 bytes")
    if not MAX_PAYLOAD <= values.get(Setting.MAX_FRAME_SIZE, MAX_PAYLOAD) < 2**24:
        raise Http2Error(ResetCode.PROTOCOL_ERROR, f"frames of {values[Setting.MAX_FRAME_SIZE]} bytes")
    return values


def window_update(stream: int, more: int) -> bytes:
    """So many more bytes may come on a stream; 0 is the connection."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, _NUMBER.pack(more))


def reset(stream: int, code: ResetCode) -> bytes:
    """The end of a stream."""
    return frame(FrameType.RST_STREAM, 0, stream, _NUMBER.pack(code))


def goaway(last: int, code: ResetCode) -> bytes:
    """No streams after the last one are served (6.8)."""
    return frame(FrameType.GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code))


def number(payload: bytes, size: int = 4) -> int:
    """The number that a payload is.

    Raises:
        Http2Error: the payload is of another length.
    """
    if len(payload) != size:
        raise Http2Error(ResetCode.FRAME_SIZE_ERROR, f"a payload of {len(payload)} bytes, not {size}")
    return int.from_bytes(payload, "big")


def content(read: Http2Frame) -> bytes:
    """The payload of DATA or HEADERS without padding and priority (6.1, 6.2).

    Raises:
        Http2Error: it is shorter than these.
    """
    payload = read.payload
    if not read.flags & (PADDED | HAS_PRIORITY):
        return payload
    begin = end = 0
    if read.flags & PADDED and payload:
        begin, end = 1, payload[0]
    if read.kind == FrameType.HEADERS and read.flags & HAS_PRIORITY:
        begin += 5
    if begin + end > len(payload) or (read.flags & PADDED and not payload):
        raise Http2Error(ResetCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[begin : len(payload) - end]


def literal(name: bytes, value: bytes) -> bytes:
    """A field of a header block that no table keeps, without Huffman's code."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    """A text with its length before it, in seven bits or more (RFC 7541, 5.1 and 5.2)."""
    length = len(text)
    if length < 0x7F:
        return bytes((length,)) + text
    coded, length = bytearray((0x7F,)), length - 0x7F
    while length >= 0x80:
        coded.append(length & 0x7F | 0x80)
        length >>= 7
    coded.append(length)
    return bytes(coded) + text


def headers(stream: int, block: bytes, flags: int = 0) -> bytes:
    """A header block as HEADERS, and as many CONTINUATIONs as it needs."""
    if len(block) <= MAX_PAYLOAD:
        return frame(FrameType.HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + MAX_PAYLOAD] for at in range(0, len(block), MAX_PAYLOAD)]
    between = (frame(FrameType.CONTINUATION, 0, stream, part) for part in parts[1:-1])
    first = frame(FrameType.HEADERS, flags, stream, parts[0])
    return b"".join((first, *between, frame(FrameType.CONTINUATION, END_HEADERS, stream, parts[-1])))
