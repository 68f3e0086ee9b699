"""Calls both ways on one socket: serves the runtime's requests, and calls the runtime.

Run by `netdra.node.nri.plugin` for as long as the runtime keeps the connection. Each request has a task of its own, so
that a slow one holds up no other. A breach of the protocol ends the connection with the reason.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable

import msgspec
from google.protobuf.message import DecodeError

from netdra.model.errors import TemporaryError
from netdra.nri import framing, ttrpc_pb2
from netdra.nri.framing import CallError, Code, Demux, Frame, FrameKind, ProtocolError, Reader, encode

MOST_CALLS = 256
"""Requests that may be open at once: as many as the runtime's queue has room for, one frame for each answer."""
MOST_TEXT = 1000
"""Characters of an error's text: they fit into one frame, and an event that shows the text has room for no more."""
MOST_UNSENT = 4 << 20
"""Bytes that may wait because the runtime does not read its answers."""
_READ = 64 << 10


class ConnectionLostError(TemporaryError):
    """The runtime closed the connection, or it broke."""


class RuntimeRequest(msgspec.Struct, frozen=True):
    """A request of the runtime.

    Attributes:
        service: the service's full name.
        method: the method's name.
        payload: the method's message.
        timeout: the seconds that the runtime waits, 0 if it does not report it.
        received: when it came, by the event loop's clock.
    """

    service: str
    method: str
    payload: bytes
    timeout: float
    received: float


Serve = Callable[[RuntimeRequest], Awaitable[bytes]]
"""Answers a request by the method's message; raises CallError."""


class RuntimeConnection:
    """One connection to the runtime; `run` must be running for anything to happen on it."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, serve: Serve) -> None:
        self._reader = reader
        self._writer = writer
        self._serve = serve
        self._requests = Reader(FrameKind.REQUEST)
        self._responses = Reader(FrameKind.RESPONSE)
        self._newest_request = 0
        self._next_call = 1
        self._calls: dict[int, asyncio.Future[ttrpc_pb2.Response]] = {}
        self._open: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until the end. Requests that are being served by then continue, and their answers are dropped.

        Raises:
            ConnectionLostError: the runtime closed the connection; every end is one of these two.
            ProtocolError: the runtime sent bytes that are not ttrpc, or does not read the answers to its requests.
        """
        demux = Demux()
        try:
            while data := await self._reader.read(_READ):
                for stream, payload in demux.feed(data):
                    self._take(stream, payload)
                self._check_unsent()
            raise ConnectionLostError("the runtime closed the connection", code="ND2262")
        except ProtocolError:
            self._writer.transport.abort()
            raise
        except OSError as problem:
            raise ConnectionLostError(f"the connection broke: {problem}", code="ND2263") from problem
        finally:
            self.close()

    async def call(self, service: str, method: str, payload: bytes, seconds: float) -> bytes:
        """Call the runtime, and wait for its answer.

        Raises:
            CallError: it answered with an error.
            ConnectionLostError: the connection ended first.
            TimeoutError: no answer came within `seconds`.
        """
        if self._writer.is_closing():
            raise ConnectionLostError(f"no connection for {method}", code="ND2264")
        number, self._next_call = self._next_call, self._next_call + 2
        answer: asyncio.Future[ttrpc_pb2.Response] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        request = ttrpc_pb2.Request(service=service, method=method, payload=payload, timeout_nano=int(seconds * 1e9))
        self._send(framing.RUNTIME_STREAM, Frame(number, FrameKind.REQUEST, request.SerializeToString()))
        try:
            async with asyncio.timeout(seconds):
                response = await answer
        finally:
            del self._calls[number]
        if response.status.code != Code.OK:
            raise CallError(response.status.code, response.status.message)
        return response.payload

    async def drain(self, seconds: float) -> None:
        """Wait until the open requests are answered, at most `seconds`."""
        if self._open:
            await asyncio.wait(self._open, timeout=seconds)

    def close(self) -> None:
        """End the connection; calls that wait for an answer fail."""
        self._writer.close()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError("the connection ended before the answer", code="ND2265"))

    def _check_unsent(self) -> None:
        unsent = self._writer.transport.get_write_buffer_size()
        if unsent > MOST_UNSENT:
            raise ProtocolError(f"the runtime asks on and leaves {unsent} bytes of answers unread", code="ND2266")

    def _take(self, stream: int, payload: bytes) -> None:
        if stream == framing.PLUGIN_STREAM:
            for frame in self._requests.feed(payload):
                self._begin(frame)
        elif stream == framing.RUNTIME_STREAM:
            for frame in self._responses.feed(payload):
                self._take_response(frame)

    def _begin(self, frame: Frame) -> None:
        if frame.call <= self._newest_request:
            raise ProtocolError(
                f"call {frame.call} came after call {self._newest_request}; a client's numbers rise", code="ND2267"
            )
        self._newest_request = frame.call
        received = asyncio.get_running_loop().time()
        if len(self._open) >= MOST_CALLS:
            problem = CallError(Code.RESOURCE_EXHAUSTED, f"{MOST_CALLS} requests are open already")
            self._respond(frame.call, _refusal(problem))
            return
        task = asyncio.create_task(self._answer(frame, received))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _answer(self, frame: Frame, received: float) -> None:
        try:
            asked = ttrpc_pb2.Request.FromString(frame.data)
            timeout = max(asked.timeout_nano, 0) / 1e9
            request = RuntimeRequest(asked.service, asked.method, asked.payload, timeout, received)
            response = ttrpc_pb2.Response(payload=await self._serve(request))
        except DecodeError as problem:
            response = _refusal(CallError(Code.INVALID_ARGUMENT, f"call {frame.call} is not a request: {problem}"))
        except CallError as problem:
            response = _refusal(problem)
        self._respond(frame.call, response)

    def _respond(self, call: int, response: ttrpc_pb2.Response) -> None:
        self._send(framing.PLUGIN_STREAM, Frame(call, FrameKind.RESPONSE, response.SerializeToString()))

    def _take_response(self, frame: Frame) -> None:
        if frame.call >= self._next_call:
            raise ProtocolError(f"a response to call {frame.call}, which was never made", code="ND2268")
        answer = self._calls.get(frame.call)
        # The peer may still answer a call that was abandoned.
        if answer is None or answer.done():
            return
        try:
            answer.set_result(ttrpc_pb2.Response.FromString(frame.data))
        except DecodeError as problem:
            raise ProtocolError(
                f"the response to call {frame.call} cannot be read: {problem}", code="ND2269"
            ) from problem

    def _send(self, stream: int, frame: Frame) -> None:
        if not self._writer.is_closing():
            self._writer.write(framing.frames(stream, encode(frame)))


def _refusal(problem: CallError) -> ttrpc_pb2.Response:
    # A name from the kernel may contain bytes that are not text, which protobuf refuses.
    text = problem.message[:MOST_TEXT].encode(errors="replace").decode()
    status = ttrpc_pb2.Status(code=problem.code, message=text)
    return ttrpc_pb2.Response(status=status)
