"""A client by h2, the reference, of a server in the same event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from hyperframe.frame import ExtensionFrame

from netdra.grpc.calls import GrpcCall, Method, unary
from netdra.grpc.connection import Connection, GrpcLimits

ECHO = "/test.Echo/Say"
SECONDS = 30.0


async def echo(request: BytesValue) -> Message:
    """The request itself."""
    return request


METHODS: Mapping[str, Method] = {ECHO: unary(BytesValue, echo)}


def headers(path: str = ECHO) -> list[tuple[str, str]]:
    """The headers of a call."""
    names = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
    return [*names, ("te", "trailers"), ("content-type", "application/grpc")]


def unknown_frame(stream: int, body: bytes) -> ExtensionFrame:
    """A frame of an unknown kind."""
    frame = ExtensionFrame(type=0xEE, stream_id=stream)
    frame.parse_body(memoryview(body))  # which also sets the length that is written
    return frame


def framed(data: bytes) -> bytes:
    """A message with this content, as gRPC frames it."""
    text = BytesValue(value=data).SerializeToString()
    return struct.pack(">?I", False, len(text)) + text


@dataclass
class Answer:
    """The answer on a stream."""

    headers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    reset: int | None = None
    ended: bool = False

    @property
    def status(self) -> str:
        return self.headers.get("grpc-status", "")


class Client:
    """One connection to the server: what has come is in `answers`, by stream."""

    def __init__(self, opened: socket.socket, http2: H2Connection) -> None:
        self.socket, self.http2 = opened, http2
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.closed = False

    async def flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self.http2.data_to_send())

    async def send(self, data: bytes) -> None:
        """Send bytes of no library."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def call(self, data: bytes, *, path: str = ECHO, ends: bool = True, seconds: str = "") -> int:
        """Begin a call with a request that fits into the windows; returns its stream."""
        stream = self.http2.get_next_available_stream_id()
        self.http2.send_headers(stream, [*headers(path), *([("grpc-timeout", seconds)] if seconds else [])])
        self.http2.send_data(stream, framed(data), end_stream=ends)
        await self.flush()
        return stream

    async def read(self) -> None:
        """Take what comes next; the windows are opened only by the test."""
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 1 << 16), SECONDS)
        self.closed = self.closed or not data
        for event in self.http2.receive_data(data) if data else ():
            self._note(event)
        with suppress(ConnectionError):  # the server may have closed it
            await self.flush()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert not self.closed, "the connection is closed"
            await self.read()

    async def answer(self, stream: int) -> Answer:
        """The whole answer of a call."""
        await self.until(lambda: stream in self.answers and self.answers[stream].ended)
        return self.answers[stream]

    def _note(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.goaway = int(event.error_code or 0)
            return
        answer = self.answers.setdefault(getattr(event, "stream_id", None) or 0, Answer())
        if isinstance(event, ResponseReceived | TrailersReceived):
            answer.headers |= {_text(name): _text(value) for name, value in event.headers or ()}
        elif isinstance(event, DataReceived):
            answer.data += event.data
        elif isinstance(event, StreamReset):
            answer.reset, answer.ended = int(event.error_code or 0), True
        elif isinstance(event, StreamEnded):
            answer.ended = True


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@asynccontextmanager
async def talking(
    methods: Mapping[str, Method] = METHODS, limits: GrpcLimits | None = None, http2: H2Connection | None = None
) -> AsyncIterator[tuple[Client, Connection]]:
    """A client, and the server's end of its connection, which has made no exception when the context ends."""
    loop = asyncio.get_running_loop()
    problems: list[Any] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    near, far = socket.socketpair()
    far.setblocking(False)
    connection = Connection(methods, limits)
    transport, _ = await loop.create_unix_connection(lambda: connection, sock=near)
    client = Client(far, http2 or H2Connection())
    client.http2.initiate_connection()
    await client.flush()
    try:
        yield client, connection
    finally:
        transport.abort()
        far.close()
        await asyncio.sleep(0)
        assert problems == []


def waiting(begun: list[GrpcCall], until: Callable[[], Awaitable[object]]) -> Method:
    """A method that notes its calls, and answers when it is let."""

    async def answer(call: GrpcCall) -> Message:
        begun.append(call)
        await until()
        return BytesValue(value=b"done")

    return answer
