"""Two byte streams over one socket, as NRI multiplexes them: the frames that go out, the bytes that came in.

A frame is two big-endian 32-bit numbers, the stream's and the payload's length, and the payload. Streams are neither
opened nor closed. Used by `netdra.node.nri.connection`; it does no I/O. The wire is that of containerd/nri
`pkg/net/multiplex`.
"""

from __future__ import annotations

import struct

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

_HEADER = struct.Struct(">II")


class ProtocolError(TemporaryError):
    """The other end sent what its protocol does not allow; the connection is of no more use."""


def frames(stream: int, message: bytes) -> bytes:
    """The frames that carry one message; a frame never holds parts of two."""
    parts = (message[at : at + MOST_SENT] for at in range(0, len(message), MOST_SENT))
    return b"".join(_HEADER.pack(stream, len(part)) + part for part in parts)


class Demux:
    """Takes the socket's bytes however they are split, and says of which stream they are. It keeps at most a header."""

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Take what was read.

        Returns:
            Pairs of a stream and bytes of it, in order. A frame's payload may come in several.

        Raises:
            ProtocolError: a frame is longer than any that the runtime sends.
        """
        found = []
        at = 0
        while at < len(data):
            if self._left:
                payload = data[at : at + self._left]
                found.append((self._stream, payload))
                self._left -= len(payload)
                at += len(payload)
            else:
                piece = data[at : at + _HEADER.size - len(self._header)]
                self._header += piece
                at += len(piece)
                self._begin()
        return found

    def _begin(self) -> None:
        if len(self._header) < _HEADER.size:
            return
        self._stream, self._left = _HEADER.unpack(self._header)
        self._header = b""
        if self._left > MOST_RECEIVED:
            raise ProtocolError(
                f"a frame of {self._left} bytes for stream {self._stream}; {MOST_RECEIVED} are the most"
            )
