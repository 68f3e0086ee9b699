"""The HTTP side of operating a process: /metrics, /healthz and /readyz.

Started by `netdra.cli.daemons` for every daemon. It answers GET alone, has no secret to tell, and is not authenticated:
who may reach it is said by the address it listens on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from netdra.model.errors import InvalidInputError
from netdra.ops.health import Health, Report
from netdra.ops.metrics import Catalogue, exposition


def address(text: str) -> tuple[str, int] | None:
    """Where to listen: `:8080`, `127.0.0.1:8080`, `[::1]:8080`; None for "", which is nowhere.

    Raises:
        InvalidInputError: it is none of these.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise InvalidInputError(f'address "{text}": must be HOST:PORT or :PORT', hint='"" for none')
    return host.removeprefix("[").removesuffix("]"), int(port)


def routes(health: Health, catalogues: Sequence[Catalogue] = ()) -> list[web.RouteDef]:
    """What is answered; /metrics only where there are catalogues."""

    async def healthz(request: web.Request) -> web.Response:
        return _answer(request, health.liveness())

    async def readyz(request: web.Request) -> web.Response:
        return _answer(request, health.readiness())

    async def metrics(_: web.Request) -> web.Response:
        # In a thread: a thousand series take some milliseconds, which hooks would wait for.
        body = await asyncio.to_thread(exposition, catalogues)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    made = [web.get("/healthz", healthz), web.get("/readyz", readyz)]
    return [*made, web.get("/metrics", metrics)] if catalogues else made


@asynccontextmanager
async def serving(where: tuple[str, int], health: Health, catalogues: Sequence[Catalogue]) -> AsyncIterator[None]:
    """Serve while entered.

    Args:
        where: host ("" for all addresses) and port.
        health: what is told.
        catalogues: what is measured.

    Raises:
        OSError: the address cannot be listened on.
    """
    app = web.Application(client_max_size=1)
    app.add_routes(routes(health, catalogues))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, where[0] or None, where[1]).start()
        yield
    finally:
        await runner.cleanup()


def _answer(request: web.Request, report: Report) -> web.Response:
    """The report: `ok` or what is not; with `?verbose` every check, as JSON."""
    status = HTTPStatus.OK if report.ok else HTTPStatus.SERVICE_UNAVAILABLE
    if "verbose" in request.query:
        return web.Response(status=status, body=msgspec.json.encode(report), content_type="application/json")
    return web.Response(status=status, text=report.trouble or "ok")
