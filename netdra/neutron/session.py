"""Logs in to Keystone and sends requests to Neutron: the only module that speaks HTTP to a cloud.

A token is renewed when four fifths of its time are over, by the clock of this machine since it was asked for, and once
where Neutron rejects it. `netdra.neutron.client` decides on the requests.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec

from netdra import __version__
from netdra.model.errors import UNREADABLE
from netdra.neutron import clouds
from netdra.neutron.answers import refusal
from netdra.neutron.cached import InFlight, RequestBudget
from netdra.neutron.errors import CloudsError, NeutronError, NoNetworkError, UnauthorizedError, UnreachableError

SECONDS = 10.0
"""How long a request may take, its connection included."""
FAILED_SECONDS = 10.0
"""How long a login that failed is not tried again."""
AT_ONCE = 8
BEGINNINGS = 5
"""How often a list is begun whose pages change while they are read."""
_RENEWED_AFTER = 0.8
_MAX_ANSWER = 16 * 1024 * 1024
_METHODS = {"credential": "application_credential", "password": "password"}

T = TypeVar("T")


class _Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    interface: str = ""
    region_id: str | None = ""
    url: str = ""


class _Service(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""
    endpoints: tuple[_Endpoint, ...] = ()


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""
    name: str = ""


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    """Keystone's answer with a token; the token itself is in a header."""

    expires_at: datetime
    issued_at: datetime
    user: _Named = _Named()
    project: _Named = _Named()
    roles: tuple[_Named, ...] = ()
    catalog: tuple[_Service, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    token: _Token


class _Link(msgspec.Struct, frozen=True):
    rel: str = ""
    href: str = ""


class _Pages(msgspec.Struct, frozen=True):
    """Where the rest of a list is (Neutron's `pagination_max_limit`)."""

    networks_links: tuple[_Link, ...] = ()
    subnets_links: tuple[_Link, ...] = ()
    ports_links: tuple[_Link, ...] = ()
    agents_links: tuple[_Link, ...] = ()
    policies_links: tuple[_Link, ...] = ()
    security_groups_links: tuple[_Link, ...] = ()

    def links(self, path: str) -> tuple[_Link, ...]:
        """The links of one list."""
        links: tuple[_Link, ...] = getattr(self, f"{path}_links")
        return links


def _nobody(server: str, method: str, status: int, seconds: float) -> None:
    """The observer of requests without an observer."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a login.

    Attributes:
        user, project: their names.
        project_id: the project's id; "" where _nobody logs in.
        roles: the user's there; empty where _nobody logs in.
        network: Neutron's URL.
        renew_at: when another token is wanted, by the monotonic clock.
    """

    user: str
    project: str
    project_id: str = ""
    roles: tuple[str, ...]
    network: str
    renew_at: float
    _secret: str = ""

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, project={self.project!r})"

    @property
    def who(self) -> str:
        """The user in words."""
        return f'user "{self.user}" of project "{self.project}"' if self.user else "the caller"

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that authenticate a request."""
        return {"X-Auth-Token": self._secret} if self._secret else {}


class _Failure(msgspec.Struct, frozen=True):
    """A login that failed: why, the state of clouds.yaml then, and until when it counts by the monotonic clock."""

    problem: NeutronError
    file: tuple[int, ...]
    until: float

    def holds(self, file: tuple[int, ...]) -> bool:
        """Whether another login would fail again, as far as is known."""
        return file == self.file and time.monotonic() < self.until

    def again(self) -> NeutronError:
        """The same problem, as a new exception."""
        return type(self.problem)(self.problem.what, hint=self.problem.hint, code="ND3062")


class Session:
    """One cloud's Neutron, by its API; it logs in when it is first asked, and must be closed."""

    def __init__(
        self,
        path: Path,
        name: str = "",
        *,
        seconds: float = SECONDS,
        on_answer: Callable[[str, str, int, float], None] = _nobody,
        budget: RequestBudget | None = None,
    ) -> None:
        """Prepare.

        Args:
            path: clouds.yaml, which is read at each login.
            name: which of its clouds; the only one without it.
            seconds: how long a request may take.
            budget: how many requests to Neutron may begin; any number without it.
            on_answer: gets each request's server, method, status (0 for no answer) and duration in seconds.
        """
        self._on_answer = on_answer
        self._budget = budget
        self._in_flight = InFlight(AT_ONCE, seconds)
        self._path, self._name = path, name
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._http: aiohttp.ClientSession | None = None
        self._login: Login | None = None
        self._failure: _Failure | None = None
        self._tls: ssl.SSLContext | bool = True
        self._turn = asyncio.Lock()

    async def aclose(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def login(self) -> Login:
        """The user, after a new login if none exists or its time is nearly over.

        A login that failed is answered alike for `FAILED_SECONDS`, unless clouds.yaml is another by then: a
        Keystone that locks users out after some wrong passwords, or is overloaded, is not asked for each port.

        Raises:
            CloudsError: clouds.yaml cannot be used.
            UnauthorizedError, ForbiddenError, UnreachableError: Keystone's answer.
        """
        async with self._turn:
            if self._login is None or time.monotonic() >= self._login.renew_at:
                file = _state_of(self._path)
                if (failure := self._failure) is not None and failure.holds(file):
                    raise failure.again()
                try:
                    self._login = await self._log_in()
                except NeutronError as problem:
                    self._failure = _Failure(problem, file, time.monotonic() + FAILED_SECONDS)
                    raise
            return self._login

    async def one(self, method: str, path: str, field: str, kind: type[T], body: Any = None) -> T:
        """The object that one request is answered with.

        Args:
            method: HTTP's.
            path: below the API's version.
            field: the answer's field with the object.
            body: what is sent.

        Raises:
            NeutronError: why none exists.
        """
        return read(await self.ask(method, path, body), field, kind)

    async def list_all(self, path: str, kind: type[T], **query: str | Sequence[str]) -> Sequence[T]:
        """All objects of a kind, of all pages.

        The next page is found by the last object of the one before. If that was deleted meanwhile (404), the list is
        begun again.

        Args:
            path: the kind's path below the API's version, which ends in the answer's field, `-` for `_`.
            **query: what they must have; of several values, one.

        Raises:
            NeutronError: Neutron does not answer.
        """
        objects: list[T] = []
        query_text = first = urlencode(query, doseq=True)
        field = path.rpartition("/")[2].replace("-", "_")
        beginnings = 1
        while True:
            try:
                answer = await self.ask("GET", f"{path}?{query_text}" if query_text else path)
            except NoNetworkError as problem:
                if query_text == first:
                    raise
                if beginnings == BEGINNINGS:
                    raise UnreachableError(
                        f"Neutron: GET {path}: the list changed {beginnings} times while it was read", code="ND3063"
                    ) from problem
                objects, query_text, beginnings = [], first, beginnings + 1
                continue
            objects += read(answer, field, list[kind])  # type: ignore[valid-type]
            query_text = _next_page(answer, field)
            if not query_text:
                return objects

    async def ask(
        self, method: str, target: str, body: Any = None, *, missing_ok: bool = False, revision: int | None = None
    ) -> bytes:
        """One request to Neutron, sent again where the token is rejected and another one is available.

        Args:
            method: HTTP's.
            target: path and query below the API's version.
            body: what is sent.
            missing_ok: whether an absent object is not an error.
            revision: Neutron does it only if the object has that revision (its extension `revision-if-match`).

        Raises:
            NeutronError: it is not done.
        """
        what = f"{method} {target.partition('?')[0]}"
        condition = {} if revision is None else {"If-Match": f"revision_number={revision}"}
        for attempt in (1, 2):
            login = await self.login()
            sent = None if body is None else msgspec.json.encode(body)
            if self._budget is not None:
                await self._budget.take()
            async with self._in_flight.turn():
                status, _, answer = await self._send(
                    "Neutron", what, method, f"{login.network}/v2.0/{target}", sent, {**login.headers, **condition}
                )
            if status == HTTPStatus.UNAUTHORIZED:
                if self._login is login:
                    self._login = None
                if attempt == 1:
                    continue
                if not login.headers:
                    raise UnauthorizedError(
                        f'Neutron: {what}: 401: a login is required, but auth_type is "none"', code="ND3064"
                    )
                raise UnauthorizedError(
                    f"Neutron: {what}: 401: it does not take the token of {login.who}", hint=_CHECKED, code="ND3065"
                )
            if status < HTTPStatus.MULTIPLE_CHOICES or (missing_ok and status == HTTPStatus.NOT_FOUND):
                return answer
            raise refusal(what, status, answer, login.who)
        raise AssertionError("two attempts end in an answer")

    async def _log_in(self) -> Login:
        cloud = clouds.read(self._path, self._name)
        self._tls = _tls(cloud, self._path)
        if cloud.way == "none":
            url = cloud.network_endpoint_override or cloud.auth.endpoint
            return Login(user="", project="", roles=(), network=_root(url), renew_at=float("inf"))
        began = time.monotonic()
        body = msgspec.json.encode({"auth": _auth_request(cloud)})
        url = _versioned(cloud.auth.auth_url)
        status, headers, answer = await self._send("Keystone", "log in", "POST", f"{url}/auth/tokens", body, {})
        who = cloud.auth.username or cloud.auth.user_id or f"credential {cloud.auth.application_credential_id}"
        if status == HTTPStatus.UNAUTHORIZED:
            raise UnauthorizedError(
                f"Keystone: log in as {who}: 401: it does not take the credentials",
                hint=f"{self._path}: the user or credential is unknown, disabled or expired, or its secret is another",
                code="ND3066",
            )
        if status != HTTPStatus.CREATED:
            raise UnreachableError(
                f"Keystone: log in as {who}: {status}", hint=f"{url}: is it the URL of Keystone v3?", code="ND3067"
            )
        token = read(answer, "", _Answer).token
        return Login(
            user=token.user.name,
            project=token.project.name,
            project_id=token.project.id,
            roles=tuple(sorted(role.name for role in token.roles)),
            network=_root(cloud.network_endpoint_override or _endpoint(token, cloud, self._path)),
            renew_at=began + _RENEWED_AFTER * (token.expires_at - token.issued_at).total_seconds(),
            _secret=headers.get("X-Subject-Token", ""),
        )

    async def _send(
        self, server: str, what: str, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One request: the status, headers and body of its answer."""
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=AT_ONCE),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "User-Agent": f"netdra/{__version__}"},
                timeout=self._timeout,
            )
        sent = {**headers, **({"Content-Type": "application/json"} if body is not None else {})}
        began, status, hint = time.monotonic(), 0, f"{_root(url).partition('/v')[0]} must answer from here"
        try:
            async with self._http.request(
                method, url, data=body, headers=sent, ssl=self._tls, allow_redirects=False
            ) as answer:
                status = answer.status
                content = await answer.content.read(_MAX_ANSWER + 1)
                while len(content) <= _MAX_ANSWER and (more := await answer.content.read(_MAX_ANSWER)):
                    content += more
                return answer.status, answer.headers, content
        except TimeoutError:
            why = f"no answer within {self._timeout.total:g} s"
        except aiohttp.ClientConnectorCertificateError as problem:
            said = problem.certificate_error
            why = f"its certificate is not accepted: {getattr(said, 'verify_message', '') or said}"
            hint = f"{self._path}: cacert must name the authorities that signed it, and the certificate the URL's host"
        except aiohttp.ClientConnectorSSLError as problem:
            why = f"the TLS handshake failed: {problem.os_error.strerror or problem.os_error}"
            hint = f"{self._path}: check that the server uses https://, and that no proxy closes the connection"
        except aiohttp.ClientConnectorError as problem:
            why = problem.os_error.strerror or "cannot be reached"
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            why = "the connection ended without an answer"
            hint = f"{self._path}: check that the server uses http://, and that no proxy closes the connection"
        except aiohttp.ClientError as problem:
            why = type(problem).__name__
        finally:
            self._on_answer(server, method, status, time.monotonic() - began)
        raise UnreachableError(f"{server}: {what}: {why}", hint=hint, code="ND3068")


def _state_of(path: Path) -> tuple[int, ...]:
    """The identity of a file's version; a changed Secret has another file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


_CHECKED = "Neutron checks tokens with Keystone: its [keystone_authtoken] must be of the same one"


def _auth_request(cloud: clouds.Cloud) -> dict[str, Any]:
    """The request for a token of Keystone (Identity API v3)."""
    auth = cloud.auth
    method = _METHODS[cloud.way]
    if cloud.way == "credential":
        credential = {"id": auth.application_credential_id, "secret": auth.application_credential_secret}
        return {"identity": {"methods": [method], method: credential}}
    user: dict[str, Any] = {"password": auth.password}
    if auth.user_id:
        user["id"] = auth.user_id
    else:
        user |= {"name": auth.username, "domain": _domain(auth.user_domain_id, auth.user_domain_name)}
    project: dict[str, Any] = {"id": auth.project_id}
    if not auth.project_id:
        domain = _domain(auth.project_domain_id, auth.project_domain_name)
        project = {"name": auth.project_name, "domain": domain}
    return {"identity": {"methods": [method], method: {"user": user}}, "scope": {"project": project}}


def _domain(identity: str, name: str) -> dict[str, str]:
    return {"id": identity} if identity else {"name": name}


def _tls(cloud: clouds.Cloud, path: Path) -> ssl.SSLContext | bool:
    if not cloud.verify:
        return False
    if not cloud.cacert:
        return True
    try:
        return ssl.create_default_context(cafile=cloud.cacert)
    except (OSError, ssl.SSLError):
        raise CloudsError(
            f"{path}: cacert {cloud.cacert} cannot be read, or holds no certificates", code="ND3069"
        ) from None


def _endpoint(token: _Token, cloud: clouds.Cloud, path: Path) -> str:
    """Neutron's URL in the catalog."""
    offered = [endpoint for service in token.catalog if service.type == "network" for endpoint in service.endpoints]
    for endpoint in offered:
        if endpoint.interface == cloud.interface and cloud.region_name in {"", endpoint.region_id}:
            return endpoint.url
    there = (
        ", ".join(sorted({f"{endpoint.interface} in {endpoint.region_id}" for endpoint in offered})) or "none at all"
    )
    where = f"{cloud.interface}{f' in region {cloud.region_name}' if cloud.region_name else ''}"
    raise CloudsError(
        f"{path}: Keystone's catalog has no endpoint of a network service that is {where}",
        hint=f"it has {there}: set interface and region_name, or network_endpoint_override",
        code="ND3070",
    )


def _versioned(url: str) -> str:
    """Keystone's URL with the version, which many write without it."""
    plain = url.rstrip("/")
    return plain if plain.endswith("/v3") else f"{plain}/v3"


def _root(url: str) -> str:
    """Neutron's URL without the version, which some catalogs have."""
    return url.rstrip("/").removesuffix("/v2.0")


def _next_page(answer: bytes, path: str) -> str:
    """The query of the next page of a list; "" after the last. Its host may be one that is not known here."""
    links = read(answer, "", _Pages).links(path)
    return next((urlsplit(link.href).query for link in links if link.rel == "next"), "")


def read(answer: bytes, field: str, kind: type[T]) -> T:
    """An answer's object; "" for the whole."""
    try:
        plain = msgspec.json.decode(answer)
        return msgspec.convert(plain[field] if field else plain, kind)
    except (msgspec.MsgspecError, *UNREADABLE, KeyError, TypeError):
        raise UnreachableError(
            "Neutron: what it answers is not of its API",
            hint="is it the URL of Neutron, or of something before it?",
            code="ND3071",
        ) from None
