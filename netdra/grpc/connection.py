"""One connection of a client: HTTP/2's state (RFC 9113), with bounds for the memory that a client can occupy.

Made by `netdra.grpc.server` for each connection. Its memory is bounded by construction: so many calls, and of each its
headers and a window of its requests. A client that does not read the answers is not read either. A breach of the
protocol ends the connection; an error of a call ends the call.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, cast

from hpack import Decoder, HPACKError

from netdra.grpc import frames
from netdra.grpc.calls import GrpcCall, GrpcError, GrpcStatus, Methods
from netdra.grpc.frames import FrameReader, FrameType, Http2Error, Http2Frame, ResetCode, Setting

log = logging.getLogger(__name__)


class GrpcLimits(NamedTuple):
    """The limits of a connection.

    Attributes:
        calls: calls at one time; more are refused, and a client tries those again.
        headers: bytes of a call's headers, as HTTP/2 counts them: with 32 for each.
        window: bytes of a call's requests that may come before they are read. A request that is larger is allowed more.
    """

    calls: int = 100
    headers: int = 64 * 1024
    window: int = frames.WINDOW


MAX_FRAGMENTS = 8
"""Frames that the headers of a call may come in."""
_CREDIT = frames.WINDOW // 2
"""From how many bytes on the connection's window is opened again."""
_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class _Block(NamedTuple):
    """Headers whose last frame has not come."""

    stream: int
    ends: bool
    parts: list[bytes]


class Connection(asyncio.Protocol):
    """The calls of one connection. One event loop's.

    Attributes:
        transport: asyncio's, once the connection is made.
        calls: those that have not ended, by their streams.
        called: whether there was a call at all.
        ended: called when a call has ended.
        set_reading: called with whether the client's bytes may be read; what reads in another way replaces it.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        methods: Methods,
        limits: GrpcLimits | None = None,
        *,
        begun: Callable[[Connection], object] = lambda _: None,
        lost: Callable[[Connection], object] = lambda _: None,
    ) -> None:
        """Begin when the connection is made.

        Args:
            methods: the methods that are served.
            limits: what the connection may use.
            begun, lost: called with the connection when it is opened, and when it is closed.
        """
        self.calls: dict[int, GrpcCall] = {}
        self.called = False
        self._methods, self._limits = methods, limits or GrpcLimits()
        self.ended: Callable[[], object] = lambda: None
        self.set_reading: Callable[[bool], object] = self._set_reading
        self._begun, self._lost = begun, lost
        self._reader = FrameReader()
        self._decoder = Decoder(self._limits.headers)
        self._block: _Block | None = None
        self._last = 0
        self._uncredited = 0
        self._room = frames.WINDOW
        """Bytes that the client takes on the connection."""
        self._window, self._most = frames.WINDOW, frames.MAX_PAYLOAD
        """Of the client's settings: what it takes of a new call, and in one frame."""
        self._unread = False
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def held(self) -> int:
        """Bytes of requests and headers that are not read."""
        parts = sum(map(len, self._block.parts)) if self._block is not None else 0
        return parts + sum(call.held for call in self.calls.values())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """State what this end takes."""
        self.transport = cast(asyncio.Transport, transport)
        self._begun(self)
        limits = self._limits
        self.write(
            frames.settings(
                {
                    Setting.MAX_CONCURRENT_STREAMS: limits.calls,
                    Setting.INITIAL_WINDOW_SIZE: limits.window,
                    Setting.MAX_HEADER_LIST_SIZE: limits.headers,
                }
            )
        )

    @property
    def socket(self) -> Any:
        """The connection's socket; None once it is closed."""
        return self.transport.get_extra_info("socket")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the calls: the client does not wait for their answers."""
        self.cancel()
        self._lost(self)

    def cancel(self) -> None:
        """Cancel the calls."""
        for call in tuple(self.calls.values()):
            if call.task is not None:
                call.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; a breach of HTTP/2 ends the connection."""
        try:
            for read in self._reader.feed(data):
                self._handle(read)
        except Http2Error as problem:
            log.debug("a connection is closed: %s", problem)
            self.close(problem.code)

    def eof_received(self) -> bool | None:
        """The client sends no more, so asyncio closes the connection."""
        return None

    def pause_writing(self) -> None:
        """The client does not read: it is not read either."""
        self._unread = True
        self.set_reading(False)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._unread = False
        self.set_reading(True)
        self._wake()

    def _set_reading(self, reads: bool) -> None:
        if reads:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def leave(self) -> None:
        """Ask the client for no more calls; one without calls then closes the connection."""
        self.write(frames.goaway(frames.LAST_STREAM, ResetCode.NO_ERROR))

    def close(self, code: ResetCode = ResetCode.NO_ERROR) -> None:
        """End the connection with its calls."""
        self.write(frames.goaway(self._last, code))
        self.cancel()
        if self._unread:  # or the goodbye would wait for a client that does not read
            self.transport.abort()
        else:
            self.transport.close()

    def _handle(self, read: Http2Frame) -> None:
        if self._block is not None and read.kind != FrameType.CONTINUATION:
            raise Http2Error(ResetCode.PROTOCOL_ERROR, "headers are interrupted by another frame")
        receive = self._RECEIVERS.get(read.kind)
        if receive is not None:  # PRIORITY, GOAWAY and unknown kinds need nothing
            receive(self, read)

    def _receive_ping(self, read: Http2Frame) -> None:
        frames.number(read.payload, 8)
        if not read.flags & frames.ACK:
            self.write(frames.frame(FrameType.PING, frames.ACK, 0, read.payload))

    def _receive_reset(self, read: Http2Frame) -> None:
        """The client cancels a call."""
        frames.number(read.payload)
        self._check_begun(read.stream)
        if (call := self.calls.pop(read.stream, None)) is not None and call.task is not None:
            call.task.cancel()
            self.ended()

    def _receive_push(self, _: Http2Frame) -> None:
        raise Http2Error(ResetCode.PROTOCOL_ERROR, "a client pushes")

    def _check_begun(self, stream: int) -> None:
        if not 0 < stream <= self._last:
            raise Http2Error(ResetCode.PROTOCOL_ERROR, f"stream {stream} has not begun")

    def _receive_headers(self, read: Http2Frame) -> None:
        self._block = _Block(read.stream, bool(read.flags & frames.END_STREAM), [])
        self._receive_fragment(self._block, frames.content(read), read.flags)

    def _receive_continuation(self, read: Http2Frame) -> None:
        if self._block is None or self._block.stream != read.stream:
            raise Http2Error(ResetCode.PROTOCOL_ERROR, "headers continue that have not begun")
        self._receive_fragment(self._block, read.payload, read.flags)

    def _receive_fragment(self, block: _Block, part: bytes, flags: int) -> None:
        block.parts.append(part)
        if not flags & frames.END_HEADERS:
            if len(block.parts) >= MAX_FRAGMENTS or sum(map(len, block.parts)) > self._limits.headers:
                raise Http2Error(ResetCode.ENHANCE_YOUR_CALM, "headers are too large")
            return
        self._block = None
        try:
            fields = self._decoder.decode(b"".join(block.parts))
        except (HPACKError, IndexError, ValueError) as problem:  # hpack's own, and those of a block that is cut
            raise Http2Error(ResetCode.COMPRESSION_ERROR, str(problem)) from None
        if block.stream <= self._last and block.stream % 2:
            self._receive_trailers(block)
        else:
            self._begin(block, fields)

    def _receive_trailers(self, block: _Block) -> None:
        """Headers after a call's requests; of a call that has ended here, they may still be on their way."""
        if (call := self.calls.get(block.stream)) is not None:
            if not block.ends or call.ended:
                raise Http2Error(ResetCode.PROTOCOL_ERROR, f"stream {block.stream} begins twice")
            call.end()

    def _begin(self, block: _Block, fields: Iterable[Any]) -> None:
        if not block.stream % 2:
            raise Http2Error(ResetCode.PROTOCOL_ERROR, f"stream {block.stream} is not a client's")
        self._last, self.called = block.stream, True
        headers = dict[str, str]()
        for name, value in fields:
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        if (refusal := self._refusal(block, headers)) is not None:
            self.write(refusal)
            return
        call = GrpcCall(self, block.stream, headers, self._limits.window, self._window)
        self.calls[block.stream] = call
        if block.ends:
            call.end()
        call.task = asyncio.get_running_loop().create_task(self._run(call, headers[":path"]))

    def _refusal(self, block: _Block, headers: Mapping[str, str]) -> bytes | None:
        """The frames that reject a stream without a call, or one call too many."""
        if len(self.calls) >= self._limits.calls:
            return frames.reset(block.stream, ResetCode.REFUSED_STREAM)
        if not headers.keys() >= {":method", ":path"}:
            return frames.reset(block.stream, ResetCode.PROTOCOL_ERROR)
        if headers[":method"] != "POST":
            status = b"405"
        elif not headers.get("content-type", "").startswith("application/grpc"):
            status = b"415"
        else:
            return None
        answer = frames.headers(block.stream, frames.literal(b":status", status), frames.END_STREAM)
        return answer + self._stop(block.ends, block.stream)

    async def _run(self, call: GrpcCall, path: str) -> None:
        """Have a call answered; the frames that end it go in one write with its last answer."""
        end = b""
        try:
            end = await self._answer(call, path)
        except GrpcError as problem:
            end = call.trailers(problem.status, problem.message, problem.details)
        except Exception:
            log.exception("%s", path)
            end = call.trailers(GrpcStatus.UNKNOWN, "Internal Server Error")
        finally:
            if self.calls.pop(call.number, None) is not None and end:
                self.write(end + self._stop(call.ended, call.number))
            self.ended()

    async def _answer(self, call: GrpcCall, path: str) -> bytes:
        """Run a call's method in the time that the client gives it; returns the frames that are not sent yet."""
        if (method := self._methods.get(path)) is None:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "Method not found")
        seconds = _seconds(call.headers.get("grpc-timeout", ""))
        try:
            async with asyncio.timeout(seconds) as scope:
                last = await method(call)
                unsent = await call.pace(last) if last is not None else b""
        except TimeoutError:
            if not scope.expired():
                raise
            raise GrpcError(GrpcStatus.DEADLINE_EXCEEDED, f"no answer in {seconds:g} s") from None
        return unsent + call.trailers(GrpcStatus.OK)

    @staticmethod
    def _stop(ended: bool, stream: int) -> bytes:
        """The frame after an answer to a client that has not sent all (8.1)."""
        return b"" if ended else frames.reset(stream, ResetCode.NO_ERROR)

    def _receive_data(self, read: Http2Frame) -> None:
        self._check_begun(read.stream)
        size = len(read.payload)
        self._uncredited += size
        if self._uncredited >= _CREDIT:
            self.write(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        if (call := self.calls.get(read.stream)) is None:  # it has ended here, and this was on its way
            return
        if call.ended:
            raise Http2Error(ResetCode.STREAM_CLOSED, f"stream {read.stream} continues after its end")
        call.room -= size
        if call.room < 0:
            raise Http2Error(ResetCode.FLOW_CONTROL_ERROR, f"stream {read.stream} exceeds its window")
        data = frames.content(read)
        call.feed(data)
        if len(data) < size and not read.flags & frames.END_STREAM:
            self.allow(call, size - len(data))
        if read.flags & frames.END_STREAM:
            call.end()

    def allow(self, call: GrpcCall, more: int) -> None:
        """So many more bytes of a call's requests may come."""
        call.room += more
        self.write(frames.window_update(call.number, more))

    def _receive_room(self, read: Http2Frame) -> None:
        more = frames.number(read.payload) & frames.MAX_WINDOW
        if read.stream:
            self._check_begun(read.stream)
        call = self.calls.get(read.stream)
        room = self._room if not read.stream else call.peer_room if call is not None else 0
        if not more or room + more > frames.MAX_WINDOW:
            raise Http2Error(ResetCode.FLOW_CONTROL_ERROR, f"stream {read.stream}: a window is opened by {more}")
        if not read.stream:
            self._room += more
        elif call is not None:
            call.peer_room += more
        self._wake()

    def _receive_settings(self, read: Http2Frame) -> None:
        if read.stream or (read.flags & frames.ACK and read.payload):
            raise Http2Error(ResetCode.PROTOCOL_ERROR, "settings of a stream, or with an acknowledgement")
        if read.flags & frames.ACK:
            return
        values = frames.read_settings(read.payload)
        self._most = values.get(Setting.MAX_FRAME_SIZE, self._most)
        window = values.get(Setting.INITIAL_WINDOW_SIZE, self._window)
        for call in self.calls.values():
            call.peer_room += window - self._window
        self._window = window
        self.write(frames.SETTINGS_ACK)
        self._wake()

    def write(self, data: bytes) -> None:
        """Send frames, unless the connection is closed: asyncio logs a warning for a write after that."""
        if not self.transport.is_closing():
            self.transport.write(data)

    async def pace(self, call: GrpcCall, head: bytes, data: bytes) -> bytes:
        """Send frames of a call, data as fast as the client takes it; returns the last ones, which are not sent."""
        parts, at = [head], 0
        while at < len(data):
            size = 0 if self._unread else min(len(data) - at, self._most, self._room, call.peer_room)
            if size > 0:
                self._room -= size
                call.peer_room -= size
                parts.append(frames.frame(FrameType.DATA, 0, call.number, data[at : at + size]))
                at += size
            else:
                self.write(b"".join(parts))
                parts.clear()
                await self._wait_for_room()
        return b"".join(parts)

    async def _wait_for_room(self) -> None:
        """Wait until the client may take more."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    _RECEIVERS: ClassVar[Mapping[int, Callable[[Connection, Http2Frame], None]]] = {
        FrameType.DATA: _receive_data,
        FrameType.HEADERS: _receive_headers,
        FrameType.RST_STREAM: _receive_reset,
        FrameType.SETTINGS: _receive_settings,
        FrameType.PUSH_PROMISE: _receive_push,
        FrameType.PING: _receive_ping,
        FrameType.WINDOW_UPDATE: _receive_room,
        FrameType.CONTINUATION: _receive_continuation,
    }


def _seconds(text: str) -> float | None:
    """How long a client waits (`grpc-timeout`); None for any time."""
    found = _TIMEOUT.fullmatch(text)
    return int(found[1]) * _SECONDS[found[2]] if found is not None else None
