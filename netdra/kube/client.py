"""Requests to the API server: typed objects in, typed objects out, every refusal an error of `netdra.kube.errors`.

Used by every process that talks to the cluster. One request is one attempt: the caller decides whether to ask again
(`netdra.kube.backoff`). Follows the API conventions of Kubernetes 1.37 (server-side apply, preconditions, paging).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from netdra.kube import answers, undone
from netdra.kube.answers import Page, RequestMetrics
from netdra.kube.connection import ApiConnection, reason
from netdra.kube.errors import GoneError, no_answer
from netdra.kube.http import aiohttp
from netdra.kube.resources import KubernetesObject, Resource
from netdra.kube.undone import PACE, Pace, UndoneWrites, WrittenObject

FIELD_MANAGER = "netdra"
PAGE = 500
"""How many objects are asked for at a time."""
LISTS = 3
"""How often a list is begun if the server no longer has its next page."""
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON = "application/json"
_NOT_DONE = 300
"""HTTP statuses from here on are refusals: no answer of an API server redirects."""

T = TypeVar("T", bound=KubernetesObject)
U = TypeVar("U", bound=KubernetesObject)
R = TypeVar("R")


@dataclass(frozen=True)
class Selection:
    """A selection of a kind's objects; all given conditions must hold."""

    namespace: str = ""
    field_selector: str = ""
    label_selector: str = ""

    def parameters(self) -> dict[str, str]:
        """The selection as parameters of a request."""
        selectors = {"fieldSelector": self.field_selector, "labelSelector": self.label_selector}
        return {name: value for name, value in selectors.items() if value}


class Following(Protocol):
    """A reflector, which keeps a copy of a kind's objects by this client."""

    @property
    def plural(self) -> str:
        """The kind's name in URLs."""

    @property
    def synced(self) -> bool:
        """Whether the copy has been equal to the server once."""

    @property
    def problem(self) -> str:
        """Why the copy is not current just now, "" if it is."""


@dataclass(frozen=True)
class WriteRequest:
    """A request that writes an object.

    Attributes:
        method: its HTTP method.
        verb: its name in errors and metrics.
        name, namespace, subresource: the object.
        parameters: of the URL.
        content_type: of the body.
        dry_run: whether nothing is stored.
    """

    method: str
    verb: str
    name: str
    namespace: str = ""
    subresource: str = ""
    parameters: Mapping[str, str] = field(default_factory=lambda: {"fieldManager": FIELD_MANAGER})
    content_type: str = _JSON
    dry_run: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether another client may undo it. Reviews are not stored and have no name."""
        return bool(self.name) and not self.dry_run

    def path(self, resource: Resource[Any]) -> str:
        """The URL's path; objects are created in their collection."""
        name = "" if self.method == "POST" else self.name
        return resource.path(self.namespace, name, self.subresource)


class Client:
    """Requests over one connection to a server, which it closes at its end.

    Attributes:
        following: the reflectors that run on it, for the process's health.
        undone: the writes that other clients undo; a write of these methods waits for it.
    """

    def __init__(self, connection: ApiConnection, pace: Pace = PACE) -> None:
        self._connection = connection
        self.following: list[Following] = []
        self.undone = UndoneWrites(pace)
        self._dated: tuple[datetime, float] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        await self._connection.close()

    def acting_as(self, user: str, groups: Sequence[str] = ()) -> Client:
        """A client over the same connection whose requests are another user's (impersonation); it closes nothing.

        The server must allow this client's own user to impersonate.
        """
        return Client(self._connection.acting_as(user, groups), self.undone.pace)

    def now(self) -> datetime:
        """The time by the API server's clock, as of its last answer to a request; ours before the first one.

        Certificates are judged by that clock, and the one of this machine may be wrong.
        """
        if self._dated is None:
            return datetime.now(UTC)
        date, at = self._dated
        return date + timedelta(seconds=time.monotonic() - at)

    async def read(self, path: str, what: str, parameters: Mapping[str, str] | None = None) -> bytes:
        """The server's answer on a path that is not an object's, such as `/version`.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        return await self._send("GET", path, f"get {what}", parameters=parameters)

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """One object.

        Raises:
            ApiError: no such object exists, or the server does not answer.
        """
        return answers.one(resource, await self._get(resource, name, namespace))

    async def get_as_both(
        self, resource: Resource[T], other: Resource[U], name: str, namespace: str = ""
    ) -> tuple[T, U]:
        """One object, read by one request, as each of two types of its kind.

        Raises:
            ApiError: as of `get`.
        """
        body = await self._get(resource, name, namespace)
        return answers.one(resource, body), answers.one(other, body)

    async def _get(self, resource: Resource[Any], name: str, namespace: str) -> bytes:
        return await self._send("GET", resource.path(namespace, name), f'get {resource.plural} "{name}"')

    async def page(self, resource: Resource[T], selection: Selection, *, limit: int = 0, continue_: str = "") -> Page:
        """A part of a list, as it is now (or, for a following part, as it was when the first was read).

        Args:
            selection: the objects of the kind.
            limit: how many at most; 0 for all.
            continue_: the mark of the page before.

        Raises:
            ApiError: the server refuses, or does not answer; GoneError if the list must be begun again.
        """
        parameters = selection.parameters() | ({"limit": str(limit)} if limit else {})
        if continue_:
            parameters["continue"] = continue_
        what = f"list {resource.plural}"
        body = await self._send("GET", resource.path(selection.namespace), what, parameters=parameters)
        return answers.page(what, body)

    async def list(self, resource: Resource[T], selection: Selection = Selection()) -> list[T]:
        """All objects of a selection, as they were at one moment from now on; other tasks have turns between pages.

        If the server has forgotten the list's moment before the last page (410), the list is begun again.

        Raises:
            ApiError: the server refuses, or does not answer; GoneError if the list was begun `LISTS` times.
        """
        return [*await self.gather(resource, lambda item: item, selection)]

    async def count(self, resource: Resource[T]) -> int:
        """How many objects of a kind there are; one of them is read.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        first = await self.page(resource, Selection(), limit=1)
        return len(first.items or ()) + first.metadata.remaining_item_count

    async def gather(
        self, resource: Resource[T], pick: Callable[[T], R], selection: Selection = Selection(), *, limit: int = PAGE
    ) -> Sequence[R]:
        """A part of each object of a selection; no more than a page of the objects is in memory at one time.

        Args:
            pick: the part of an object.
            selection: the objects of the kind.
            limit: how many objects are a page.

        Raises:
            ApiError: as of `list`.
        """
        for _ in range(LISTS - 1):
            with suppress(GoneError):
                return await _whole(self, resource, selection, pick, limit)
        return await _whole(self, resource, selection, pick, limit)

    async def create(self, resource: Resource[T], new: T, *, dry_run: bool = False) -> T:
        """Create an object, and return it as the server stores it.

        Raises:
            ApiError: AlreadyExistsError, RefusedError, UndoneError …
        """
        request = WriteRequest("POST", "create", *_identity(new), dry_run=dry_run)
        return answers.one(resource, await self._write(resource, request, new))

    async def replace(self, resource: Resource[T], changed: T, *, subresource: str = "") -> T:
        """Put an object in the place of that of its name; with a resourceVersion, only if that is still current.

        Raises:
            ApiError: ConflictError, NotFoundError, RefusedError, UndoneError …
        """
        request = WriteRequest("PUT", "update", *_identity(changed), subresource)
        return answers.one(resource, await self._write(resource, request, changed))

    async def apply(
        self,
        resource: Resource[T],
        wanted: T | Mapping[str, Any],
        *,
        manager: str = FIELD_MANAGER,
        subresource: str = "",
    ) -> T:
        """Set the given fields (server-side apply), also those of other managers.

        Args:
            wanted: the object, or a part of it as plain data with apiVersion, kind and metadata.name.
            manager: the field manager: fields that it no longer gives, and no other manager has, are removed.
            subresource: `status` to apply that instead.

        Raises:
            ApiError: RefusedError, UndoneError …
        """
        request = WriteRequest(
            "PATCH", "apply", *_identity(wanted), subresource, {"fieldManager": manager, "force": "true"}, _APPLY
        )
        return answers.one(resource, await self._write(resource, request, wanted))

    async def merge(self, resource: Resource[T], name: str, patch: Mapping[str, Any], namespace: str = "") -> T:
        """Change the given fields, and remove those that are given as None (merge patch).

        Raises:
            ApiError: NotFoundError, RefusedError, UndoneError …
        """
        request = WriteRequest("PATCH", "patch", name, namespace, content_type=_MERGE)
        return answers.one(resource, await self._write(resource, request, patch))

    async def delete(self, resource: Resource[T], seen: T) -> None:
        """Delete an object if it is still the one that was seen, in the same state.

        Raises:
            ApiError: NotFoundError, ConflictError, UndoneError …
        """
        metadata = seen.metadata
        identity = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        preconditions = {name: value for name, value in identity.items() if value}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        request = WriteRequest("DELETE", "delete", *_identity(seen), parameters={})
        await self._write(resource, request, options)

    async def _write(self, resource: Resource[Any], request: WriteRequest, body: Any) -> bytes:
        """Send a write, unless it waits because other clients undo it.

        Raises:
            ApiError: UndoneError, or the server's refusal.
        """
        content = msgspec.json.encode(body)
        counted = None if resource.renewed or not request.is_counted else self._counted(resource, request, content)
        if counted is not None:
            self.undone.check(*counted)
        received = await self._send(
            request.method,
            request.path(resource),
            f'{request.verb} {resource.plural} "{request.name}"',
            parameters={**request.parameters} | ({"dryRun": "All"} if request.dry_run else {}),
            content=content,
            content_type=request.content_type,
        )
        if counted is not None:
            version = "" if request.method == "DELETE" else undone.head(received).metadata.resource_version
            self.undone.note(*counted, version)
        return received

    def _counted(self, resource: Resource[Any], request: WriteRequest, content: bytes) -> tuple[WrittenObject, bytes]:
        """The object of a write, and a digest of the content."""
        is_delete, sent = request.method == "DELETE", undone.head(content)
        written = WrittenObject(
            method=request.method,
            key=resource.path(request.namespace, request.name, request.subresource),
            path=resource.path(request.namespace, request.name),
            plural=resource.plural,
            api_version=resource.group_version,
            kind=resource.type.__name__ if is_delete or not sent.kind else sent.kind,
            name=request.name,
            namespace=request.namespace,
            owners=sent.metadata.owner_references,
        )
        return written, b"" if is_delete else undone.digest(content, resource.drawn)

    @asynccontextmanager
    async def stream(
        self, path: str, what: str, parameters: Mapping[str, str], *, idle_seconds: float, shared: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer that is read while it comes, as chunks of bytes.

        Args:
            path: the URL's path.
            what: the request's name, for errors.
            parameters: the URL's parameters.
            idle_seconds: how long no byte may come before the connection counts as broken.
            shared: whether it is one of many streams, whose number depends on the cluster's objects: these leave some
                to the others.

        Raises:
            ApiError: the server refuses, or the connection breaks.
        """
        metrics, answered = RequestMetrics(what), False
        try:
            target = _target(path, parameters)
            async with self._connection.stream(target, idle_seconds=idle_seconds, shared=shared) as response:
                answered = True
                metrics.count(response.status)
                if response.status >= _NOT_DONE:
                    raise _refusal(what, response, await response.read())
                yield response.content.iter_any()
        except aiohttp.ClientError as problem:
            if not answered:
                metrics.count_failure()
            raise no_answer(what, reason(problem)) from None

    async def _send(
        self,
        method: str,
        path: str,
        what: str,
        *,
        parameters: Mapping[str, str] | None = None,
        content: bytes | None = None,
        content_type: str = _JSON,
    ) -> bytes:
        headers = {"Content-Type": content_type} if content is not None else None
        metrics = RequestMetrics(what)
        try:
            async with self._connection.ask(method, _target(path, parameters or {}), content, headers) as response:
                received = await response.read()
        except aiohttp.ClientError as problem:
            metrics.count_failure()
            raise no_answer(what, reason(problem)) from None
        with suppress(ValueError):  # no Date, or none that HTTP knows (RFC 9110, 6.6.1)
            self._dated = _time(response.headers.get("Date", "")), time.monotonic()
        metrics.count(response.status)
        if response.status >= _NOT_DONE:
            raise _refusal(what, response, received)
        return received


@lru_cache(maxsize=1)
def _time(date: str) -> datetime:
    """The time of a Date header; hundreds of answers may be of one second."""
    return parsedate_to_datetime(date)


def _target(path: str, parameters: Mapping[str, str]) -> str:
    return quote(path) + (f"?{urlencode(parameters)}" if parameters else "")


async def _whole(
    client: Client, resource: Resource[T], selection: Selection, pick: Callable[[T], R], limit: int
) -> list[R]:
    """A part of each object of a list, page by page."""
    picked: list[R] = []
    continue_ = ""
    while True:
        page = await client.page(resource, selection, limit=limit, continue_=continue_)
        picked += [pick(answers.one(resource, item)) for item in page.items or ()]
        continue_ = page.metadata.continue_
        if not continue_:
            return picked


def _refusal(what: str, response: aiohttp.ClientResponse, body: bytes) -> Exception:
    return answers.refusal(what, response.status, body, response.headers.get("Retry-After", ""))


def _identity(wanted: KubernetesObject | Mapping[str, Any]) -> tuple[str, str]:
    if isinstance(wanted, Mapping):
        metadata = wanted["metadata"]
        return metadata["name"], metadata.get("namespace", "")
    return wanted.metadata.name, wanted.metadata.namespace
