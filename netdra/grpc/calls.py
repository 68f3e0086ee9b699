"""One call as its method sees it: requests come, answers go, and a status ends it.

Made by `netdra.grpc.connection`, which has the frames. A method is a function of a call; `unary` and `streaming` make
one of a function of messages. Follows gRPC over HTTP/2 (grpc.io, PROTOCOL-HTTP2.md): a message has
a flag (compressed or not) in one byte, its length in four bytes, and its content.
"""

from __future__ import annotations

import asyncio
import struct
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from enum import IntEnum
from typing import Any, Protocol
from urllib.parse import quote

from google.protobuf.message import DecodeError, Message

from netdra.grpc import frames

MAX_REQUEST = 4 * 1024 * 1024
"""Bytes: the limit of gRPC servers in Go unless they are configured otherwise, as DRA drivers in Go are not."""
_READING_SECONDS = 10.0
_HEAD = struct.Struct(">?I")
_UNCODED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_BEGIN = b"\x88" + frames.literal(b"content-type", b"application/grpc+proto")  # 8 is `:status 200` (RFC 7541, A)


class GrpcStatus(IntEnum):
    """gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """A call that is answered with an error.

    Attributes:
        status: its code.
        message: the text for people.
        details: a serialized `google.rpc.Status`, for programs; b"" without one.
    """

    def __init__(self, status: GrpcStatus, message: str, details: bytes = b"") -> None:
        super().__init__(message)
        self.status, self.message, self.details = status, message, details


class Writer(Protocol):
    """Sends the answers of a call; `netdra.grpc.connection` is one."""

    @property
    def socket(self) -> Any:
        """The connection's socket; None once it is closed."""

    def allow(self, call: GrpcCall, more: int) -> None:
        """So many more bytes of requests may come."""

    async def pace(self, call: GrpcCall, head: bytes, data: bytes) -> bytes:
        """Send frames and then data, as fast as the other end takes it; returns the last frames, which are not sent."""

    def write(self, data: bytes) -> None:
        """Send frames."""


class GrpcCall:
    """One call of one connection.

    Attributes:
        number: its stream.
        headers: its headers, without those of HTTP/2; a name that comes twice has its values joined by commas.
        ended: whether the client has sent all requests.
        room: bytes that may still come before more are allowed.
        peer_room: bytes that the client takes; less than 0 after it has lowered its window.
        begun: whether the answer's headers are sent.
        task: runs the method.
    """

    __slots__ = (
        "_buffer",
        "_size",
        "_waiting",
        "_writer",
        "begun",
        "ended",
        "headers",
        "number",
        "peer_room",
        "room",
        "task",
    )

    def __init__(self, writer: Writer, number: int, headers: Mapping[str, str], room: int, peer_room: int) -> None:
        self._writer = writer
        self.number, self.headers, self.room, self.peer_room = number, headers, room, peer_room
        self.ended = self.begun = False
        self.task: asyncio.Task[None] | None = None
        self._size = sum(map(len, (*headers, *headers.values())))
        self._buffer = bytearray()
        self._waiting: asyncio.Future[None] | None = None

    @property
    def held(self) -> int:
        """Bytes of the headers, and of requests that are not read."""
        return self._size + len(self._buffer)

    @property
    def socket(self) -> Any:
        """The socket of its connection; None once that is closed."""
        return self._writer.socket

    def feed(self, data: bytes) -> None:
        """Take bytes of requests."""
        self._buffer += data
        self._wake()

    def end(self) -> None:
        """The client sends no more."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self, takes: type[Message], most: int = MAX_REQUEST, *, may_end: bool = False) -> Any:
        """The next request, of at most so many bytes. None is the end of the requests, if it `may_end`.

        Raises:
            GrpcError: the request is missing, too large, or not such a message.
        """
        while (size := self._whole(most)) is None:
            if self.ended and may_end and not self._buffer:
                return None
            if self.ended:
                problem = "the call ends within its request" if self._buffer else "the call has no request"
                raise GrpcError(GrpcStatus.INTERNAL, problem)
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        text = bytes(memoryview(self._buffer)[_HEAD.size : _HEAD.size + size])
        del self._buffer[: _HEAD.size + size]
        if not self.ended:
            self._writer.allow(self, _HEAD.size + size)
        try:
            return takes.FromString(text)
        except DecodeError:
            name = takes.DESCRIPTOR.full_name
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"the request is not a valid {name}") from None

    def _whole(self, most: int) -> int | None:
        """The length of the next request; None before it is whole."""
        if len(self._buffer) < _HEAD.size:
            return None
        compressed, length = _HEAD.unpack_from(self._buffer)
        if compressed:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "the request is compressed")
        if length > most:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED, f"the request has {length} bytes, more than the {most} that are taken"
            )
        missing = _HEAD.size + int(length) - len(self._buffer)
        if missing > self.room and not self.ended:
            self._writer.allow(self, missing - self.room)
        return None if missing > 0 else int(length)

    async def send(self, message: Message) -> None:
        """Send an answer, as fast as the client takes it."""
        self._writer.write(await self.pace(message))

    async def pace(self, message: Message) -> bytes:
        """Send an answer but its last frames, which are returned: the end of the call can go with them."""
        text = message.SerializeToString()
        head = b"" if self.begun else frames.headers(self.number, _BEGIN)
        self.begun = True
        return await self._writer.pace(self, head, _HEAD.pack(False, len(text)) + text)

    def trailers(self, status: GrpcStatus, message: str = "", details: bytes = b"") -> bytes:
        """The frames that end the call; without an answer before them, they are its headers as well."""
        block = b"" if self.begun else _BEGIN
        block += frames.literal(b"grpc-status", b"%d" % status)
        if message:
            block += frames.literal(b"grpc-message", quote(message, safe=_UNCODED).encode())
        if details:
            block += frames.literal(b"grpc-status-details-bin", b64encode(details).rstrip(b"="))
        return frames.headers(self.number, block, frames.END_STREAM)


Method = Callable[[GrpcCall], Awaitable[Message | None]]
"""Its result is the last answer, which goes with the end of the call."""
Methods = Mapping[str, Method]
"""By their paths: `/package.Service/Method`."""


def unary(takes: type[Message], call: Callable[[Any], Awaitable[Message]]) -> Method:
    """A method with one answer to one request."""

    async def answer(made: GrpcCall) -> Message:
        return await call(await made.receive(takes))

    return answer


def streaming(takes: type[Message], call: Callable[[Any], AsyncGenerator[Message, None]]) -> Method:
    """A method with a stream of answers to one request."""

    async def answer(made: GrpcCall) -> None:
        async with asyncio.timeout(_READING_SECONDS):
            request = await made.receive(takes)
        async with aclosing(call(request)) as answers:
            async for message in answers:
                await made.send(message)

    return answer
