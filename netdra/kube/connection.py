"""The connections to the API server: aiohttp sessions, with all that a cluster's network and kubectl's files ask for.

Made at the start of daemons and commands, used by `netdra.kube.client`. HTTP, TLS and proxies are aiohttp's (D34); this
module has the server, the credentials, and how a peer that vanished is noticed: by TCP itself, because a watch waits
for minutes without a byte in either direction.
"""

from __future__ import annotations

import asyncio
import copy
import io
import ipaddress
import os
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from multidict import CIMultiDict
from yarl import URL

from netdra import __version__
from netdra.kube.auth import CredentialSource, auth_of
from netdra.kube.http import aiohttp
from netdra.kube.kubeconfig import Config, find_config, is_url
from netdra.kube.metrics import STREAM_REFUSALS, STREAMS
from netdra.model.errors import InvalidInputError

__all__ = ["ANSWER_SECONDS", "ApiConnection", "connect", "find_config", "reason"]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
"""How long an answer may bring no byte."""
PROXY_SECONDS = 30.0
"""How long it may take until a proxy has opened the way, with the wait for a free connection before."""
MAX_REQUESTS = 16
"""Connections for requests: a burst of fifty writes takes turns on them."""
MAX_STREAMS = 84
"""Connections for answers that are read for minutes."""
MAX_SHARED_STREAMS = 60
"""How many of them may be streams whose number depends on the cluster's objects; the rest is for the others."""
STREAM_SECONDS = 10.0
"""How long a stream may wait for another one to end."""
TLS_BUFFER = 32 * 1024
"""Bytes that are read of a TLS connection at a time, and so the size of its buffer."""
KEEP_IDLE_SECONDS = 30.0
"""After once to twice this time an unused connection is closed; the API server closes it after 90 s."""
_TURNS_TO_END = 20
"""The most turns of the event loop that a connection needs to end after its socket was shut down (four with TLS)."""
_UNAUTHORIZED = 401
_AT_ONCE = 1024 * 1024
_LATE = "the server did not answer in time"

# A peer that does not acknowledge within 15 s and three probes is gone; a peer that is merely stopped still does.
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


# asyncio sets 256 KiB aside for each TLS connection that is open, and a watch has one: 5 MiB of a node's daemon.
# A TLS record has 16 KiB at most (RFC 8446, 5.1): two of them are read at a time.
sslproto.SSLProtocol.max_size = TLS_BUFFER


class _BrokenError(aiohttp.ClientConnectionError):
    """A connection broke; aiohttp does not ask again then by itself, as it would after an error of its own."""


class _NoStreamError(aiohttp.ClientConnectionError):
    """As many streams are open as may be."""


class _Streams:
    """The streams of a process: how many are open, and who waits."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MAX_STREAMS)
        self._shared = asyncio.Semaphore(MAX_SHARED_STREAMS)

    @asynccontextmanager
    async def one(self, *, shared: bool) -> AsyncIterator[None]:
        """Have a stream; entered once one is free.

        Raises:
            aiohttp.ClientError: none is free in time.
        """
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(STREAM_SECONDS):
                    if shared:
                        await held.enter_async_context(self._shared)
                    await held.enter_async_context(self._all)
            except TimeoutError:
                STREAM_REFUSALS.inc()
                limit = MAX_SHARED_STREAMS if shared else MAX_STREAMS
                raise _NoStreamError(
                    f"{limit} watches are open, and none ended within {STREAM_SECONDS:g} s; "
                    "this one is tried again later"
                ) from None
            STREAMS.inc()
            held.callback(STREAMS.dec)
            yield


class ApiConnection:
    """Requests to one API server; it connects when it is used, and must be closed.

    Attributes:
        headers: of every request.
    """

    def __init__(self, config: Config, auth: CredentialSource, proxy: str, user_agent: str) -> None:
        self._server = config.cluster.server.rstrip("/")
        self._tls_name = config.cluster.tls_server_name or None
        self._auth = auth
        self._proxy = URL(proxy) if proxy else None
        self.headers: tuple[tuple[str, str], ...] = (
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity" if config.cluster.disable_compression else "gzip"),
            ("User-Agent", user_agent),
        )
        self._requests = _Session(MAX_REQUESTS)
        self._streams = _Session(MAX_STREAMS)
        self._open = _Streams()

    def acting_as(self, user: str, groups: Sequence[str]) -> ApiConnection:
        """The same connection with requests of another user (User impersonation, Kubernetes 1.37)."""
        other = copy.copy(self)
        names = (("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups))
        other.headers = (*self.headers, *names)
        return other

    async def close(self) -> None:
        """Close the connections of requests and streams, and end the credentials' source; running requests fail."""
        await self._requests.close()
        await self._streams.close()
        await self._auth.close()

    @asynccontextmanager
    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        idle_seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and have its answer when its head is there.

        It is sent once; a second time only if the server does not know us (401) and there are other credentials.

        Args:
            method: GET …
            target: path and query, quoted.
            body: the request's body.
            headers: beside those of every request.
            idle_seconds: for a stream: how long it may bring no byte.

        Raises:
            aiohttp.ClientError: no answer came; `reason` states why.
            InvalidInputError, UnavailableError: no credentials are available.
        """
        session = (self._requests if idle_seconds is None else self._streams).opened()
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=PROXY_SECONDS if self._proxy is not None else None,
            sock_connect=CONNECT_SECONDS,
            sock_read=ANSWER_SECONDS if idle_seconds is None else idle_seconds,
        )
        url = URL(self._server + target, encoded=True)
        for attempt in (1, 2):
            credentials = await self._auth.current()
            sent = CIMultiDict((*self.headers, *credentials.headers))
            sent.update(headers or {})
            async with session.request(
                method,
                url,
                data=io.BytesIO(body) if body is not None and len(body) > _AT_ONCE else body,
                headers=sent,
                ssl=credentials.tls if credentials.tls is not None else True,
                server_hostname=self._tls_name,
                proxy=self._proxy,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status == _UNAUTHORIZED and attempt == 1:
                    await answer.read()
                    if await self._auth.renew(credentials):
                        continue
                yield answer
                return

    @asynccontextmanager
    async def stream(
        self, target: str, *, idle_seconds: float, shared: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request for an answer that is read for minutes, and have it when its head is there.

        Args:
            target: path and query, quoted.
            idle_seconds: how long it may bring no byte.
            shared: whether it is one of many streams, whose number depends on the cluster's objects.

        Raises:
            aiohttp.ClientError, InvalidInputError, UnavailableError: as of `ask`; or no stream is free.
        """
        async with self._open.one(shared=shared), self.ask("GET", target, idle_seconds=idle_seconds) as answer:
            yield answer


class _Resolver(aiohttp.ThreadedResolver):
    """Asks for addresses, for which aiohttp has no limit of time."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await super().resolve(host, port, family)


class _Session:
    """An aiohttp session that begins when it is first used, in the event loop of that time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def opened(self) -> aiohttp.ClientSession:
        """The session."""
        if self._session is None:
            if self._closed:
                raise RuntimeError("the connection is closed")
            connector = aiohttp.TCPConnector(
                limit=self._limit,
                keepalive_timeout=KEEP_IDLE_SECONDS,
                happy_eyeballs_delay=None,  # one address after the other: of two at once, the later may be lost
                resolver=_Resolver(),
                socket_factory=self._socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(_once,),
                skip_auto_headers=("Content-Type",),
            )
        return self._session

    async def close(self) -> None:
        """Close its connections; none is left when this returns.

        aiohttp waits for the connections that it still has. A connection whose request was left within its answer, as
        every watch is, ends by itself, after TLS has stated goodbye: here the event loop may end before.
        """
        self._closed = True
        if self._session is None:
            return
        await self._session.close()
        self._session = None
        for left in self._open():
            with suppress(OSError):
                left.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS_TO_END):
            if not self._open():
                break
            await asyncio.sleep(0)

    def _socket(self, address: Any) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    def _open(self) -> list[socket.socket]:
        return [made for made in self._sockets if made.fileno() >= 0]


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request once: the caller decides whether to ask again."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as problem:
        raise _BrokenError(reason(problem)) from problem


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    try:
        for option in _SOCKET_OPTIONS:
            made.setsockopt(*option)
    except BaseException:
        made.close()
        raise
    return made


def reason(problem: Exception) -> str:
    """The reason for a missing answer, as a text without credentials and addresses of memory."""
    if isinstance(problem, TimeoutError):
        return _LATE
    if isinstance(problem, aiohttp.ClientConnectorCertificateError):
        return f"the server's certificate is not valid: {problem.certificate_error}"
    if isinstance(problem, aiohttp.ClientProxyConnectionError):
        return f"the proxy cannot be reached: {_words(problem.os_error)}"
    if isinstance(problem, aiohttp.ClientHttpProxyError):
        return f"the proxy rejected the request: {problem.status} {problem.message}"
    if isinstance(problem, aiohttp.ClientConnectorDNSError):
        return f'host "{problem.host}": {_words(problem.os_error)}'
    if isinstance(problem, aiohttp.ClientConnectorError):
        return _words(problem.os_error)
    if isinstance(problem, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without sending a response"
    if isinstance(problem, aiohttp.ClientPayloadError):
        return "the connection closed before the response was complete"
    if isinstance(problem, aiohttp.ClientResponseError):
        return f"the response is not HTTP: {problem.message}"
    return _words(problem)


def _words(problem: BaseException) -> str:
    if isinstance(problem, ssl.SSLError):
        return f"TLS: {problem.reason or problem.strerror or 'broken'}"
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def connect(config: Config, *, user_agent: str = f"netdra/{__version__}") -> ApiConnection:
    """The connections to a server; nothing is connected yet.

    Raises:
        InvalidInputError: the certificates or the proxy of the configuration cannot be used.
    """
    return ApiConnection(config, auth_of(config), proxy_of(config), user_agent)


def proxy_of(config: Config) -> str:
    """The proxy of the configuration, or that of the environment, as a URL; "" for none.

    Raises:
        InvalidInputError: the proxy cannot be used.
    """
    cluster = config.cluster
    proxy = cluster.proxy_url
    if not proxy:
        parts = urlsplit(cluster.server)
        names = ("HTTPS_PROXY", "https_proxy") if parts.scheme == "https" else ("HTTP_PROXY", "http_proxy")
        proxy = next((os.environ[name] for name in names if os.environ.get(name)), "")
        without = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if not proxy or is_direct(parts.hostname or "", port, without):
            return ""
        proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not is_url(proxy, ("http", "https")):
        raise InvalidInputError(
            f"{config.where}: the proxy must be an http:// or https:// URL",
            hint="set proxy-url, or HTTPS_PROXY",
            code="ND3083",
        )
    return proxy


def is_direct(host: str, port: int, without: str) -> bool:
    """Whether a host is reached without a proxy, by Go's rules for NO_PROXY.

    Args:
        host: a name or an address.
        port: likewise.
        without: names with all names below them, addresses, networks, each with a port or without, or `*`.
    """
    address = None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if host == "localhost":
            return True
    if address is not None and address.is_loopback:
        return True
    return any(_covers(entry.strip().lower(), host.lower(), address, port) for entry in without.split(","))


def _covers(entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> bool:
    if entry == "*":
        return True
    if address is not None:
        with suppress(ValueError):
            return address in ipaddress.ip_network(entry, strict=False)
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal():
        return int(number) == port and _covers(name.removeprefix("[").removesuffix("]"), host, address, port)
    entry = entry.removeprefix("*")
    if not entry or address is not None:
        return False
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")
