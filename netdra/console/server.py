"""The console's server: who may read, which page, and changes as server-sent events. Nothing is ever written.

Started by `netdra console` with a `ClusterSource`, which reads the cluster. Connections are `netdra.ops.http`'s, which
bounds them; bounded here are reads of the cluster, how long they take, and the streams of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote

from netdra.console import access, rows
from netdra.console.access import ConsoleAccess
from netdra.console.fleet import NodeCounts
from netdra.console.forecast_page import MAX_YAML, Forecast, forecast_page, policies_of
from netdra.console.frame import PageLife, message
from netdra.console.listing import ObjectList, Shown, list_page, shown_of
from netdra.console.markup import Markup, PageAddress, document, element
from netdra.console.object_page import object_page
from netdra.console.routes import KINDS, PageRoute, fields, route
from netdra.console.rows import DeviceLine, DeviceLines, codes_of
from netdra.console.search_page import MAX_HITS, Hit, HitGroup, of_addresses, search_page
from netdra.console.start_page import ClassChoice, start_page
from netdra.console.troubles import Examination
from netdra.model.errors import InvalidInputError, NetdraError
from netdra.model.pod_address import PodAddress
from netdra.model.policy import DeviceExposurePolicy
from netdra.ops.bounded import BoundedServer, ConnectionLimits
from netdra.ops.http import Answer, HTTPRequest, listening, plain
from netdra.story.objects import ClusterState

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
FLEET_SECONDS, OBJECT_SECONDS = 2.0, 5.0
"""The least time between two events of a page."""
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


class ClusterSource(Protocol):
    """Reads a cluster, with the rights of the console's account or user."""

    def fleet(self) -> Sequence[NodeCounts]:
        """All nodes, in the order of their names."""

    @property
    def problem(self) -> str:
        """Why the fleet may be old or incomplete, "" if it is current."""

    @property
    def now(self) -> str:
        """The time by the API server's clock, in RFC 3339."""

    async def examination(self) -> Examination:
        """The result of the last examination; it is repeated while pages ask for it."""

    async def classes(self, chosen: str) -> ClassChoice:
        """The DeviceClasses, and the devices of the chosen one by node."""

    async def objects(self, kind: str, place: str, name: str) -> ClusterState:
        """The objects of the page of an object."""

    async def listed(self, kind: str) -> ClusterState:
        """The objects of a list."""

    async def devices(self, node: str, matches: Callable[[DeviceLine], bool]) -> DeviceLines:
        """The devices of a node, or with "" of all, that match."""

    async def addresses(self, text: str) -> Sequence[PodAddress]:
        """The addresses of PodNetworks that begin with a text."""

    async def forecast(self, policies: Sequence[DeviceExposurePolicy], node: str) -> Forecast:
        """The result of policies on a node, or with "" on all."""

    @property
    def version(self) -> str:
        """Another text when the fleet or the result of the examination has changed."""

    async def wait_fleet(self, since: str) -> None:
        """Wait until the version is another one, or some seconds."""

    async def wait_objects(self, kind: str, place: str, name: str) -> None:
        """Wait until an object of a page has changed, or some seconds."""

    async def wait_list(self, kind: str) -> None:
        """Wait until an object of a list has changed, or some seconds."""


class PagesBusyError(NetdraError):
    """Too many pages are being read."""


class Console:
    """Answers requests."""

    def __init__(self, source: ClusterSource, access: ConsoleAccess) -> None:
        self._source, self._access = source, access
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
        if http.path == ENTER:
            return self._enter(http)
        if not self._access.knows(access.session_of(http.headers)):
            return _page(HTTPStatus.UNAUTHORIZED, message("No session", _NO_SESSION))
        if http.path in (RESULT, LIVE) and not access.is_same_origin(http.headers):
            return _page(HTTPStatus.FORBIDDEN, message("Forbidden", "The request comes from another site."))
        if http.path == LIVE:
            return self._live(http)
        try:
            return await (self._forecast(http) if http.path == RESULT else self._answer(http))
        except PagesBusyError as problem:
            return _page(HTTPStatus.SERVICE_UNAVAILABLE, message("Busy", str(problem)))._replace(
                headers={"Retry-After": "5"}
            )
        except (NetdraError, TimeoutError) as problem:
            text = str(problem) or f"the cluster did not answer within {READ_SECONDS:.0f} seconds"
            return _page(HTTPStatus.BAD_GATEWAY, message("The cluster cannot be read", text))

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

    async def _answer(self, http: HTTPRequest) -> Answer:
        asked = route(http.path, http.query)
        if asked is None:
            return _page(HTTPStatus.NOT_FOUND, message("Not found", "The console has no such page."))
        return _page(HTTPStatus.OK, await self._body(asked))

    async def _body(self, asked: PageRoute) -> bytes:
        if asked.page == "start":
            return await self._start(asked)
        if asked.page == "what-if":
            return forecast_page("", asked.query.get("node", ""))
        if asked.page == "search":
            return await self._read(partial(self._search, asked.query.get("q", "").strip()))
        if asked.page == "list":
            return await self._list(asked)
        return await self._read(partial(self._of_object, asked))

    async def _start(self, asked: PageRoute) -> bytes:
        found = await self._source.examination()
        chosen = asked.query.get("class", "")
        classes = await (self._read(partial(self._source.classes, chosen)) if chosen else self._source.classes(""))
        life = PageLife(True, self._source.version, self._source.now)
        return start_page(self._source.fleet(), found, classes, self._source.problem, life)

    async def _list(self, asked: PageRoute) -> bytes:
        shown = shown_of(asked.query, asked.number)
        codes = codes_of((await self._source.examination()).troubles)
        if asked.kind == "nodes":
            life = PageLife(True, self._source.version, self._source.now)
            return list_page(rows.node_list(self._source.fleet(), codes), shown, self._source.problem, life)
        if asked.kind == "devices":
            found = await self._read(partial(self._source.devices, shown.node, partial(_is_shown, shown)))
            listed = rows.device_list(found, len(found.lines))
        else:
            cluster = await self._read(partial(self._source.listed, asked.kind))
            listed = rows.LISTS[asked.kind](cluster, codes)
        return list_page(listed, shown, life=PageLife(is_live=True, now=self._source.now))

    async def _search(self, text: str) -> bytes:
        """The objects that match a text."""
        if not text:
            return search_page("", ())
        small, groups, unread = text.lower(), list[HitGroup](), list[str]()
        nodes = rows.node_list([node for node in self._source.fleet() if small in node.name.lower()], {})
        groups.append(_hits(nodes, small))
        for kind in ("pods", "claims", "topologies", "policies", "networks", "plugins"):
            found = rows.LISTS[kind](await self._source.listed(kind), {})
            unread += found.unread
            groups.append(_hits(found, small))
        devices = await self._source.devices("", lambda line: small in line.text)
        groups.append(_hits(rows.device_list(devices, 0), small))
        if small[0] in "0123456789abcdef:" and any(sign in small for sign in ".:"):
            groups.append(of_addresses(await self._source.addresses(small)))
        return search_page(text, groups, [*dict.fromkeys(unread)])

    async def _of_object(self, asked: PageRoute) -> bytes:
        """The page of an object."""
        cluster = await self._source.objects(KINDS[asked.kind], asked.place, asked.name)
        # In a thread: the story of a pod that is not scheduled searches all devices.
        return await asyncio.to_thread(object_page, cluster, asked.kind, asked.place, asked.name)

    async def _forecast(self, http: HTTPRequest) -> Answer:
        form = fields((await http.body()).decode(errors="replace"))
        text, node = (form.get(name, [""])[0] for name in ("policies", "node"))
        try:
            policies = policies_of(text, node)
            forecast = await self._read(partial(self._source.forecast, policies, node))
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
            raise PagesBusyError("too many pages are being read", hint="try again in some seconds")
        self._waiting += 1
        try:
            async with asyncio.timeout(READ_SECONDS), self._reads:
                return await read()
        finally:
            self._waiting -= 1

    def _live(self, http: HTTPRequest) -> Answer:
        """The events of a page."""
        path, _, query = unquote(fields(http.query).get("of", [""])[0]).partition("?")
        asked = route(path, query)
        if asked is None or asked.page in ("what-if", "search"):
            return plain(HTTPStatus.NOT_FOUND)
        if http.method != "GET" or self._streams >= MAX_STREAMS:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are followed; reload the page")
        since = fields(http.query).get("since", [""])[0]
        return Answer(HTTPStatus.OK, b"retry: 5000\n\n", _EVENTS, parts=self._events(asked, since))

    async def _events(self, asked: PageRoute, since: str) -> AsyncGenerator[bytes, None]:
        """An event when the page may differ, until the stream's time is over."""
        if self._streams >= MAX_STREAMS:
            return
        self._streams += 1
        end = time.monotonic() + STREAM_SECONDS
        try:
            while time.monotonic() < end:
                wait = asyncio.ensure_future(self._wait(asked, since))
                try:
                    while not (await asyncio.wait([wait], timeout=BEAT_SECONDS))[0]:
                        yield b": waiting\n\n"  # a page that was left is noticed when it is written to
                    wait.result()
                finally:
                    wait.cancel()
                is_same = _is_of_fleet(asked) and self._source.version == since
                since = self._source.version
                yield b": the same\n\n" if is_same else b"event: changed\ndata:\n\n"
        except NetdraError:
            yield b"event: lost\ndata:\n\n"
        finally:
            self._streams -= 1

    async def _wait(self, asked: PageRoute, since: str) -> None:
        if _is_of_fleet(asked):
            await asyncio.sleep(FLEET_SECONDS)
            await self._source.examination()
            await self._source.wait_fleet(since)
            return
        await asyncio.sleep(OBJECT_SECONDS)
        if asked.page == "list":
            await self._source.wait_list(asked.kind)
        else:
            await self._source.wait_objects(KINDS[asked.kind], asked.place, asked.name)


_NO_SESSION = "Open the URL that netdra console printed last. Each URL opens one session."


def _is_of_fleet(asked: PageRoute) -> bool:
    """Whether a page shows all nodes, which are followed anyway."""
    return asked.page == "start" or (asked.page, asked.kind) == ("list", "nodes")


def _is_shown(shown: Shown, line: DeviceLine) -> bool:
    return shown.text.lower() in line.text and shown.state in ("", line.state)


def _hits(found: ObjectList, text: str) -> HitGroup:
    """The objects of a list that match."""
    matching = [row for row in found.rows if text in row.text]
    hits = [Hit(row.segments, row.words, row.why(text)) for row in matching[:MAX_HITS]]
    return HitGroup(found.title, hits, len(matching))


def _page(status: HTTPStatus, body: bytes) -> Answer:
    return Answer(status, body, _HTML)
