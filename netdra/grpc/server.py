"""gRPC on a unix socket: calls that have begun are let end when it stops, and its connections are closed with it.

Used by `netdra.node.kubelet.plugin` and, with limits for callers that are not trusted, by `netdra.node.registry`.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

from google.protobuf.message import Message

from netdra.grpc.calls import GrpcCall, GrpcError, GrpcStatus, Method, Methods
from netdra.grpc.connection import Connection, GrpcLimits

_CLOSE_SECONDS = 1.0
_LEAVE_SECONDS = 1.0


class Server:
    """Services on one socket. One event loop's."""

    def __init__(self, methods: Methods, limits: GrpcLimits | None = None) -> None:
        """Listen on nothing yet.

        Args:
            methods: the methods to serve.
            limits: what each connection may use.
        """
        self._methods = {path: self._counted(method) for path, method in methods.items()}
        self._limits = limits
        self._connections = dict[Connection, None]()
        self._listener: asyncio.Server | None = None
        self._calls = 0
        self._ending = self._closing = False
        self._idle, self._left = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._left.set()

    async def start(self, where: Path | socket.socket) -> None:
        """Make the socket and serve on it, or serve on a socket that listens already.

        Raises:
            OSError: the socket cannot be made.
        """
        loop = asyncio.get_running_loop()
        if isinstance(where, Path):
            self._listener = await loop.create_unix_server(self.connect, str(where))
        else:
            self._listener = await loop.create_unix_server(self.connect, sock=where)

    def connect(self) -> Connection:
        """The handler of a new connection."""
        return Connection(self._methods, self._limits, begun=self._note, lost=self._forget)

    async def stop(self, grace: float) -> None:
        """Take no more calls, and let the calls end that have begun.

        Args:
            grace: seconds that these calls have; then they are cancelled, and their connections are closed.
        """
        self._ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._idle.wait()
        await self.stop_accepting()
        if not self._calls:
            await self._leave()
        self._closing = True
        for connection in tuple(self._connections):
            connection.close()
        await self._wait_left(_CLOSE_SECONDS)
        if self._listener is not None:
            self._listener.close()

    async def stop_accepting(self) -> None:
        """Accept no more connections, and wait until those that were just accepted are among the others.

        asyncio loses a connection that it has accepted when its server is closed at once.
        """
        for opened in self._listener.sockets if self._listener is not None else ():
            asyncio.get_running_loop().remove_reader(opened)
        await asyncio.sleep(0)

    async def _leave(self) -> None:
        """Let the clients close the connections, for a bounded time.

        A client whose write fails, because the server has closed, does not read an answer that is there already.
        """
        for connection in self._connections:
            connection.leave()
        await self._wait_left(_LEAVE_SECONDS)

    async def _wait_left(self, most: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self._left.wait()

    def _note(self, connection: Connection) -> None:
        if self._closing:  # it was accepted just before
            connection.close()
        self._connections[connection] = None
        self._left.clear()

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._left.set()

    def _counted(self, method: Method) -> Method:
        async def answer(call: GrpcCall) -> Message | None:
            if self._ending:
                raise GrpcError(GrpcStatus.UNAVAILABLE, "the driver is ending")
            self._calls += 1
            self._idle.clear()
            try:
                return await method(call)
            finally:
                self._calls -= 1
                if not self._calls:
                    self._idle.set()

        return answer
