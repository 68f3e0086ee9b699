"""A proxy between netdra and the real API server that does what networks, load balancers and tired servers do.

It takes plain HTTP and speaks TLS to the server as the administrator, one request a connection, so that a test can
refuse, cut, stall or answer any request and count them all.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from netdra.kube.kubeconfig import ApiServer, Config
from testbed.access import ADMIN, ADMIN_GROUPS
from testbed.control_plane import ControlPlane

LIMIT = 1 << 20
_TURNS_TO_BEGIN = 8  # of the event loop, which a connection that was just taken needs until it is served here (three)


@dataclass(frozen=True)
class Request:
    """A client's request: the method, the path and its parameters, and its time."""

    method: str
    path: str
    parameters: dict[str, str]
    at: float

    @property
    def is_watch(self) -> bool:
        return "watch" in self.parameters


@dataclass(frozen=True)
class Answer:
    """Answer in the server's place."""

    code: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def status(code: int, reason: str = "", *, retry_after: int = 0) -> Answer:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
        headers = (("Retry-After", str(retry_after)),) if retry_after else ()
        return Answer(code, json.dumps(status | {"message": f"injected {code}"}).encode(), headers)


@dataclass(frozen=True)
class Lost:
    """Have the server do it, and answer something else, as a proxy whose wait for the server timed out."""

    instead: Answer


@dataclass(frozen=True)
class Cut:
    """Let so many bytes of the server's answer through, then reset the connection."""

    after: int


@dataclass(frozen=True)
class Stall:
    """Send nothing, and keep the connection."""


Fault = Answer | Cut | Lost | Stall | None


@dataclass
class FaultProxy:
    """The proxy; `fault` is asked for each request what is to become of it, None for the server's own answer."""

    plane: ControlPlane
    fault: Callable[[Request], Fault] = lambda _: None
    requests: list[Request] = field(default_factory=list)
    port: int = 0
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def config(self) -> Config:
        """How a client comes here."""
        return Config(cluster=ApiServer(server=f"http://127.0.0.1:{self.port}"), context="proxy")

    def cut_all(self) -> None:
        """Reset every connection that is open now."""
        for connection in self._connections:
            connection.transport.abort()

    def count(self, since: float = 0.0, until: float = math.inf) -> int:
        """How many requests came after a moment of `time.monotonic`, and before another."""
        return sum(since <= request.at < until for request in self.requests)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FaultProxy]:
        """Take requests as long as this is entered."""
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=LIMIT)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            # A connection that was taken but is not served yet would be lost by asyncio, and its socket with it.
            for listening in server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            for _ in range(_TURNS_TO_BEGIN):
                await asyncio.sleep(0)
            server.close()
            self.cut_all()
            await server.wait_closed()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        task = asyncio.create_task(self._connected(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        request = _parse(head)
        self.requests.append(request)
        fault = self.fault(request)
        if isinstance(fault, Answer):
            writer.write(_answer(fault))
            await writer.drain()
        elif isinstance(fault, Stall):
            await reader.read()
        else:
            await self._forward(head, reader, writer, fault)

    async def _forward(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Cut | Lost | None
    ) -> None:
        user = self.plane.authority.client(ADMIN, ADMIN_GROUPS)
        context = ssl.create_default_context(cafile=self.plane.authority.own.certificate)
        context.load_cert_chain(user.certificate, user.key)
        parts = urlsplit(self.plane.server)
        upstream, sender = await asyncio.open_connection(parts.hostname, parts.port, ssl=context, limit=LIMIT)
        self._connections.add(sender)
        body = asyncio.create_task(_pipe(reader, sender))
        try:
            sender.write(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            if isinstance(fault, Lost):
                await upstream.read()
                writer.write(_answer(fault.instead))
                await writer.drain()
            else:
                await _pipe(upstream, writer, fault.after if fault else None)
        finally:
            body.cancel()
            self._connections.discard(sender)
            sender.transport.abort()
            if isinstance(fault, Cut):
                writer.transport.abort()


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter, most: int | None = None) -> None:
    """Bytes from one side to the other until the end, or until so many went through."""
    left = LIMIT if most is None else most
    while left > 0 and (chunk := await source.read(min(left, LIMIT))):
        target.write(chunk)
        await target.drain()
        left -= 0 if most is None else len(chunk)


def _parse(head: bytes) -> Request:
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    parts = urlsplit(target)
    parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return Request(method, parts.path, parameters, time.monotonic())


def _answer(fault: Answer) -> bytes:
    headers = (
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(fault.body))),
        ("Connection", "close"),
        *fault.headers,
    )
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {fault.code} Injected\r\n{lines}\r\n".encode() + fault.body
