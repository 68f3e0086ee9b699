"""The console's server: who may read, which page, and changes as server-sent events. Nothing is ever written.

Started by `netdra console` with a `ClusterSource`, which reads the cluster. Connections are `netdra.ops.http`'s, which
bounds them; bounded here are reads of the cluster, how long they take, and the streams of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from netdra.console import access
from netdra.console.access import ConsoleAccess, SignedOnUser, SignOn
from netdra.console.forecast_page import MAX_YAML, forecast_page, policies_of
from netdra.console.frame import message
from netdra.console.markup import Markup, PageAddress, document, element
from netdra.console.pages import ClusterSource, Pages, is_of_fleet
from netdra.console.routes import PageRoute, fields, route
from netdra.model.errors import InvalidInputError, NetdraError
from netdra.ops.bounded import BoundedServer, ConnectionLimits
from netdra.ops.http import Answer, HTTPRequest, listening, plain

T = TypeVar("T")

LIMITS = ConnectionLimits(connections=64, idle=75.0, request=10.0, write=10.0, held=1024 * 1024)
MAX_BODY = 3 * MAX_YAML
"""Bytes of a form: a sign may be sent as three."""
MAX_READS, MAX_WAITING = 2, 16
"""Pages for which the cluster is read at one time, and pages that wait for that."""
READ_SECONDS = 30.0
MAX_STREAMS = 16
STREAM_SECONDS = 600.0
"""After this time a stream ends, and the browser opens it again."""
BEAT_SECONDS = 2.0
ENTER, RESULT, LIVE = "/enter", "/what-if/result", "/live"
_HTML, _EVENTS = "text/html; charset=utf-8", "text/event-stream"
_FILES = {"/console.css": "text/css; charset=utf-8", "/console.js": "text/javascript; charset=utf-8"}
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "netdra",
}


class PagesBusyError(NetdraError):
    """Too many pages are being read."""


class Console:
    """Answers requests."""

    def __init__(self, source: ClusterSource, access: ConsoleAccess, sign_on: SignOn | None = None) -> None:
        """Keep the source.

        Args:
            source: reads the cluster.
            access: the sessions.
            sign_on: the proxy that signs users on, in place of sessions; pages are read with their rights.
        """
        self._access, self._sign_on = access, sign_on
        self._pages = Pages(source, self._read)
        self._reads = asyncio.Semaphore(MAX_READS)
        self._waiting = self._streams = 0

    @contextlib.asynccontextmanager
    async def serving(self, address: str, port: int) -> AsyncIterator[BoundedServer]:
        """Answer requests while entered.

        Raises:
            OSError: the address cannot be listened on.
        """
        where = (address, port)
        async with listening(where, self.respond, LIMITS, posts=(RESULT,), max_body=MAX_BODY) as server:
            yield server

    async def respond(self, http: HTTPRequest) -> Answer | None:
        """The answer to a request, with the headers of all answers."""
        answer = await self._respond(http)
        return answer._replace(headers={**HEADERS, **answer.headers})

    async def _respond(self, http: HTTPRequest) -> Answer:
        if not access.is_own_host(http.headers.get("Host", "")):
            return plain(HTTPStatus.MISDIRECTED_REQUEST, "this console is opened as localhost or 127.0.0.1 only")
        if http.path in _FILES:
            body = (Path(__file__).parent / http.path[1:]).read_bytes()
            return Answer(HTTPStatus.OK, body, _FILES[http.path], {"Cache-Control": "no-cache"})
        if http.path == ENTER and self._sign_on is None:
            return self._enter(http)
        user = self._sign_on.user(http.headers) if self._sign_on is not None else None
        refusal = self._refuse(http, user)
        if refusal is not None:
            return refusal
        try:
            pages = self._pages
            if user is not None:
                pages = Pages(await self._read(partial(self._pages.source.of_user, user)), self._read)
            if http.path == LIVE:
                return self._live(http, pages)
            return await (self._forecast(http, pages) if http.path == RESULT else self._answer(http, pages))
        except PagesBusyError as problem:
            return _page(HTTPStatus.SERVICE_UNAVAILABLE, message("Busy", str(problem)))._replace(
                headers={"Retry-After": "5"}
            )
        except (NetdraError, TimeoutError) as problem:
            text = str(problem) or f"the cluster did not answer within {READ_SECONDS:.0f} seconds"
            return _page(HTTPStatus.BAD_GATEWAY, message("The cluster cannot be read", text))

    def _refuse(self, http: HTTPRequest, user: SignedOnUser | None) -> Answer | None:
        """The answer to a request without the right to read; None if it is answered."""
        if self._sign_on is not None and user is None:
            return _page(HTTPStatus.UNAUTHORIZED, message("Not signed on", _NO_USER))
        if self._sign_on is None and not self._access.knows(access.session_of(http.headers)):
            return _page(HTTPStatus.UNAUTHORIZED, message("No session", _NO_SESSION))
        origin = self._sign_on.origin if self._sign_on is not None else ""
        if http.path in (RESULT, LIVE) and not access.is_same_origin(http.headers, origin):
            return _page(HTTPStatus.FORBIDDEN, message("Forbidden", "The request comes from another site."))
        return None

    def _enter(self, http: HTTPRequest) -> Answer:
        """Exchange the token for a session. A redirect would be the other site's where a link led here."""
        token = fields(http.query).get("token", [""])[0]
        session = self._access.exchange(token) if http.method == "GET" else None
        if session is None:
            return _page(HTTPStatus.UNAUTHORIZED, message("No session", _NO_SESSION))
        onward = Markup('<meta http-equiv="refresh" content="0; url=/">')
        link = element("p", element("a", "Continue", href=PageAddress()))
        cookie = access.set_cookie(http.headers.get("Host", ""), session)
        return _page(HTTPStatus.OK, document("netdra", onward, link))._replace(headers={"Set-Cookie": cookie})

    async def _answer(self, http: HTTPRequest, pages: Pages) -> Answer:
        asked = route(http.path, http.query)
        if asked is None:
            return _page(HTTPStatus.NOT_FOUND, message("Not found", "The console has no such page."))
        return _page(HTTPStatus.OK, await pages.body(asked))

    async def _forecast(self, http: HTTPRequest, pages: Pages) -> Answer:
        form = fields((await http.body()).decode(errors="replace"))
        text, node = (form.get(name, [""])[0] for name in ("policies", "node"))
        try:
            policies = policies_of(text, node)
            forecast = await self._read(partial(pages.source.forecast, policies, node))
        except InvalidInputError as problem:
            return _page(HTTPStatus.BAD_REQUEST, forecast_page(text, node, problem=str(problem)))
        return _page(HTTPStatus.OK, forecast_page(text, node, forecast))

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read the cluster when it is the page's turn.

        Raises:
            PagesBusyError: too many pages wait.
            NetdraError: the cluster cannot be read.
            TimeoutError: it does not answer in time.
        """
        if self._waiting >= MAX_WAITING:
            raise PagesBusyError("too many pages are being read", hint="try again in some seconds", code="ND4093")
        self._waiting += 1
        try:
            async with asyncio.timeout(READ_SECONDS), self._reads:
                return await read()
        finally:
            self._waiting -= 1

    def _live(self, http: HTTPRequest, pages: Pages) -> Answer:
        """The events of a page."""
        path, _, query = unquote(fields(http.query).get("of", [""])[0]).partition("?")
        asked = route(path, query)
        if asked is None or asked.page in ("what-if", "search"):
            return plain(HTTPStatus.NOT_FOUND)
        if http.method != "GET" or self._streams >= MAX_STREAMS:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are followed; reload the page")
        since = fields(http.query).get("since", [""])[0]
        return Answer(HTTPStatus.OK, b"retry: 5000\n\n", _EVENTS, parts=self._events(asked, since, pages))

    async def _events(self, asked: PageRoute, since: str, pages: Pages) -> AsyncGenerator[bytes, None]:
        """An event when the page may differ, until the stream's time is over."""
        if self._streams >= MAX_STREAMS:
            return
        self._streams += 1
        end = time.monotonic() + STREAM_SECONDS
        try:
            while time.monotonic() < end:
                wait = asyncio.ensure_future(pages.wait(asked, since))
                try:
                    while not (await asyncio.wait([wait], timeout=BEAT_SECONDS))[0]:
                        yield b": waiting\n\n"  # a page that was left is noticed when it is written to
                    wait.result()
                finally:
                    wait.cancel()
                is_same = is_of_fleet(asked) and pages.source.version == since
                since = pages.source.version
                yield b": the same\n\n" if is_same else b"event: changed\ndata:\n\n"
        except NetdraError:
            yield b"event: lost\ndata:\n\n"
        finally:
            self._streams -= 1


_NO_USER = "The proxy that signs users on did not name a user that this console accepts."
_NO_SESSION = "Open the URL that netdra console printed last. Each URL opens one session."


def _page(status: HTTPStatus, body: bytes) -> Answer:
    return Answer(status, body, _HTML)
