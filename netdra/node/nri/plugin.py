"""Keeps netdra registered with the container runtime: connects, registers, and begins anew whenever the runtime goes.

Run by the node daemon for as long as it lives. While there is no connection, pods begin without netdra's hooks: the
daemon is not ready then, and Synchronize brings what was missed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from netdra.kube.backoff import Backoff
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.node.metrics import NRI_CONNECTED, NRI_CONNECTIONS
from netdra.node.nri.connection import Connection
from netdra.node.nri.hooks import SandboxHooks
from netdra.node.nri.messages import RUNTIME_SERVICE, Runtime
from netdra.node.nri.runner import DEFAULT_TIMEOUT, Runner, one_line
from netdra.node.nri.service import PluginService
from netdra.node.nri.ttrpc import CallError
from netdra.node.wire import nri_pb2

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 60.0
"""From the connection to Synchronize: the runtime may be busy with other plugins and with pods that start."""
HEALTHY_SECONDS = 5.0
"""After a connection that lasted this long the next attempt comes soon."""

_NAME = re.compile(r"[a-zA-Z0-9_.+-]+")
_INDEX = re.compile(r"[0-9]{2}")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How netdra presents itself, and where the runtime is.

    Attributes:
        name: the plugin's name.
        index: two digits; the runtime calls its plugins in this order.
        socket: the path of the runtime's socket.
        descriptor: the open socket that a runtime left to a plugin which it started itself; None otherwise.
    """

    name: str = "netdra"
    index: str = "10"
    socket: Path = Path("/var/run/nri/nri.sock")
    descriptor: int | None = None

    def __post_init__(self) -> None:
        """Hold the name and the index to the runtime's rules."""
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(
                f'NRI plugin name "{self.name}" is refused by runtimes', hint="use letters, digits and _ . + -"
            )
        if not _INDEX.fullmatch(self.index):
            raise InvalidInputError(f'NRI plugin index "{self.index}" is not two digits', hint='write it as "10"')


def inherited(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The settings of a plugin that the runtime may have started itself, with a socket, a name and an index.

    Raises:
        InvalidInputError: NRI_PLUGIN_SOCKET is no number, or the name or the index breaks a rule.
    """
    descriptor = environ.get("NRI_PLUGIN_SOCKET", "")
    if not descriptor:
        return settings
    if not (descriptor.isascii() and descriptor.isdecimal()):
        raise InvalidInputError(f'NRI_PLUGIN_SOCKET "{descriptor}" is no file descriptor', hint="unset it")
    return Settings(
        name=environ.get("NRI_PLUGIN_NAME", settings.name),
        index=environ.get("NRI_PLUGIN_IDX", settings.index),
        socket=settings.socket,
        descriptor=int(descriptor),
    )


class Plugin:
    """netdra's registration with the runtime.

    Attributes:
        connected: set while netdra is registered and knows all sandboxes: pods do not begin without its hooks.
        problem: why it is not, "" while it is.
        runtime: who was at the other end last; None before the first time.
    """

    def __init__(
        self,
        hooks: SandboxHooks,
        settings: Settings | None = None,
        *,
        backoff: Backoff | None = None,
        changed: Callable[[bool], None] = lambda _connected: None,
    ) -> None:
        """Prepare; `run` does it.

        Args:
            hooks: who acts on a sandbox's events.
            settings: how to register, and where.
            backoff: how long to wait between attempts.
            changed: told each time that `connected` changes.
        """
        self.connected = asyncio.Event()
        self.problem = "not connected to the container runtime yet"
        self.runtime: Runtime | None = None
        self._hooks = hooks
        self._settings = settings or Settings()
        self._backoff = backoff or Backoff()
        self._changed = changed
        self._runner = Runner()
        self._adopted = False

    async def run(self) -> None:
        """Stay registered until cancelled; requests that are being served by then are answered first.

        Raises:
            PermanentError: the runtime that started this process has closed its socket; there is no other way back.
        """
        clock = asyncio.get_running_loop().time
        try:
            while True:
                began = clock()
                try:
                    await self._session()
                except (TemporaryError, CallError, TimeoutError) as problem:
                    self._failed(problem)
                if clock() - began > HEALTHY_SECONDS:
                    self._backoff.reset()
                await asyncio.sleep(self._backoff.next())
        finally:
            await self._runner.finish(self._patience)

    async def _session(self) -> None:
        """One connection, from its beginning to its end, which is always one of these.

        Raises:
            TemporaryError: there is no runtime, it went, or it broke the protocol.
            CallError: it refused the registration.
            TimeoutError: it did not finish the handshake.
            PermanentError: see `run`.
        """
        reader, writer = await self._open()
        service = PluginService(self._hooks, self._runner)
        connection = Connection(reader, writer, service.serve)
        # Serving begins first: Configure may come before the answer to the registration.
        reading = asyncio.create_task(connection.run())
        registering = asyncio.create_task(self._register(connection, service))
        try:
            await asyncio.wait({reading, registering}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (reading, registering):
                if task.done():
                    task.result()
        except asyncio.CancelledError:
            await connection.drain(self._patience)
            raise
        finally:
            connection.close()
            reading.cancel()
            registering.cancel()
            await asyncio.gather(reading, registering, return_exceptions=True)
            self._set_connected(connected=False)

    async def _open(self) -> tuple[StreamReader, StreamWriter]:
        if self._settings.descriptor is None:
            return await self._dial(self._settings.socket)
        if self._adopted:
            raise PermanentError("the container runtime closed the socket that it started this NRI plugin with")
        self._adopted = True
        return await asyncio.open_unix_connection(sock=socket.socket(fileno=self._settings.descriptor))

    async def _dial(self, path: Path) -> tuple[StreamReader, StreamWriter]:
        try:
            return await asyncio.open_unix_connection(path)
        except OSError as problem:
            raise TemporaryError(
                f"NRI socket {path}: {problem}",
                hint="is the runtime up, is NRI on in it (containerd 1.7 has it off), is the directory mounted?",
            ) from problem

    async def _register(self, connection: Connection, service: PluginService) -> None:
        """Register, and wait until the runtime has told of all its sandboxes."""
        request = nri_pb2.RegisterPluginRequest(plugin_name=self._settings.name, plugin_idx=self._settings.index)
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await connection.call(RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), HANDSHAKE_SECONDS)
            await service.synchronized.wait()
        self.runtime = service.runtime
        log.info("registered with the container runtime: %s", self.runtime)
        self._set_connected(connected=True)

    def _failed(self, problem: Exception) -> None:
        text = str(problem) or f"no answer within {HANDSHAKE_SECONDS:g} s"
        if isinstance(problem, NetdraError):
            text = one_line(problem)
        log.log(logging.DEBUG if text == self.problem else logging.WARNING, "not registered: %s", text)
        self.problem = text

    def _set_connected(self, *, connected: bool) -> None:
        if connected == self.connected.is_set():
            return
        if connected:
            self.connected.set()
            self.problem = ""
            NRI_CONNECTIONS.inc()
        else:
            self.connected.clear()
            self.problem = "the connection to the container runtime ended"
        NRI_CONNECTED.set(connected)
        self._changed(connected)

    @property
    def _patience(self) -> float:
        """How long a runtime waits for an answer; nobody waits for a hook longer."""
        return (self.runtime.request_timeout if self.runtime else 0.0) or DEFAULT_TIMEOUT
