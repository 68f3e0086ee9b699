"""What every process tells over HTTP about how it is: /metrics, /healthz and /readyz.

Started by `netdra.cli.daemons` for every daemon; the webhook gives the same answers on its own port. It answers GET
alone, has no secret to tell, and is not authenticated: who may reach it is said by the address it listens on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from netdra.model.errors import InvalidInputError
from netdra.ops.health import Health, Report
from netdra.ops.http import Answer, listening, plain
from netdra.ops.metrics import Catalogue, exposition

PROBES = ("/healthz", "/readyz")


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


def probed(health: Health, path: str, query: str) -> Answer:
    """The answer to one of `PROBES`: `ok` or what is not; with `?verbose` every check, as JSON."""
    report: Report = health.liveness() if path == "/healthz" else health.readiness()
    status = HTTPStatus.OK if report.ok else HTTPStatus.SERVICE_UNAVAILABLE
    if "verbose" in parse_qs(query, keep_blank_values=True):
        return Answer(status, msgspec.json.encode(report), "application/json")
    return plain(status, report.trouble or "ok")


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

    async def respond(path: str, query: str) -> Answer | None:
        if path in PROBES:
            return probed(health, path, query)
        if path == "/metrics":
            # In a thread: a thousand series take some milliseconds, which hooks would wait for.
            return Answer(HTTPStatus.OK, await asyncio.to_thread(exposition, catalogues), CONTENT_TYPE_LATEST)
        return None

    async with listening(where, respond):
        yield
