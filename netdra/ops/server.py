"""The status of every process over HTTP: /metrics, /healthz and /readyz.

Started by `netdra.cli.daemons` for every daemon; the webhook gives the same answers on its own port. It answers GET
alone, has no secrets, and is not authenticated: the address it listens on decides which clients reach it. On a
unix socket it is asked by `netdra.ops.probe`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from netdra.model.errors import InvalidInputError
from netdra.ops.health import ProcessHealth, Report
from netdra.ops.http import Answer, HTTPRequest, listening, plain
from netdra.ops.metrics import Catalogue, exposition

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
PROBES = ("/healthz", "/readyz")


def address(text: str) -> tuple[str, int] | None:
    """Where to listen: `:8080`, `127.0.0.1:8080`, `[::1]:8080`; None for "", which is nowhere.

    Raises:
        InvalidInputError: the text has another form.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise InvalidInputError(f'address "{text}": must be HOST:PORT or :PORT', hint='"" for none', code="ND2282")
    return host.removeprefix("[").removesuffix("]"), int(port)


def probed(health: ProcessHealth, request: HTTPRequest) -> Answer:
    """The answer to one of `PROBES`: `ok` or the failed checks; with `?verbose` every check, as JSON."""
    report: Report = health.liveness() if request.path == "/healthz" else health.readiness()
    status = HTTPStatus.OK if report.ok else HTTPStatus.SERVICE_UNAVAILABLE
    if "verbose" in parse_qs(request.query, keep_blank_values=True):
        return Answer(status, msgspec.json.encode(report), "application/json")
    return plain(status, report.trouble or "ok")


@dataclass(frozen=True)
class Told:
    """The status of a process that the server shows.

    Attributes:
        health: its checks.
        catalogues: its metrics.
        instance: its pod's uid, or "": another process may have the same address later.
    """

    health: ProcessHealth
    catalogues: Sequence[Catalogue]
    instance: str = ""


@asynccontextmanager
async def serving(where: tuple[str, int] | Path, told: Told) -> AsyncIterator[None]:
    """Serve while entered.

    Args:
        where: host ("" for all addresses) and port, or a unix socket.
        told: what of.

    Raises:
        OSError: the address cannot be listened on.
    """

    async def respond(request: HTTPRequest) -> Answer | None:
        meant = parse_qs(request.query).get("instance", [""])[0]
        if meant and told.instance and meant != told.instance:
            # On a host's network two pods have one address, for as long as one takes over from the other.
            return plain(HTTPStatus.MISDIRECTED_REQUEST, f"this is instance {told.instance}")
        if request.path in PROBES:
            return probed(told.health, request)
        if request.path == "/metrics":
            # In a thread: a thousand series take some milliseconds, which hooks would wait for.
            return Answer(HTTPStatus.OK, await asyncio.to_thread(exposition, told.catalogues), CONTENT_TYPE_LATEST)
        return None

    async with listening(where, respond):
        log.info("metrics and health on %s", where if isinstance(where, Path) else f"{where[0]}:{where[1]}")
        yield


@asynccontextmanager
async def serving_when_free(where: tuple[str, int], told: Told) -> AsyncIterator[None]:
    """Serve while entered; an address that another process has is waited for, such as the one that is taken over from.

    Raises:
        OSError: the address cannot be listened on, for another reason.
    """
    waiting: asyncio.Task[None] | None = None
    async with AsyncExitStack() as opened:
        try:
            await opened.enter_async_context(serving(where, told))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
            log.warning("no metrics yet: %s; it is tried again until the address is free", problem.strerror)
            waiting = asyncio.create_task(_serve_when_free(where, told), name="metrics")
        try:
            yield
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)


async def _serve_when_free(where: tuple[str, int], told: Told) -> None:
    """Serve as soon as the address is free, until cancelled."""
    while True:
        await asyncio.sleep(AGAIN_SECONDS)
        try:
            async with serving(where, told):
                await asyncio.Event().wait()
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                log.error("no metrics: %s", problem)
                return
