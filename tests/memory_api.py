"""An API server in memory, for many short stories of a controller, with versions, conflicts and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from netdra.kube.answers import ListMeta, Page, decoder
from netdra.kube.client import FIELD_MANAGER, Client, Selection
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError, Status
from netdra.kube.resources import KubernetesObject, Resource
from netdra.kube.undone import UndoneWrites

T = TypeVar("T", bound=KubernetesObject)
_Key = tuple[str, str]


class MemoryApi(Client):
    """Objects by plural, namespace and name. Selections are not applied: a watch has all objects of its kind."""

    def __init__(self) -> None:
        """Begin without objects."""
        self.following = []
        self.undone = UndoneWrites()
        self.objects: dict[str, dict[_Key, dict[str, Any]]] = {}
        self._version = 100
        self._watches: list[tuple[str, asyncio.Queue[bytes]]] = []

    def put(self, plural: str, value: dict[str, Any]) -> dict[str, Any]:
        """Create an object, or replace the stored one."""
        self._version += 1
        metadata = {**value["metadata"], "resourceVersion": str(self._version)}
        key = metadata.get("namespace", ""), metadata["name"]
        kind = "MODIFIED" if key in self.objects.setdefault(plural, {}) else "ADDED"
        stored = self.objects[plural][key] = {**value, "metadata": metadata}
        self._tell(plural, kind, stored)
        return stored

    def drop(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object."""
        self._version += 1
        gone = self.objects[plural].pop((namespace, name))
        gone["metadata"] = {**gone["metadata"], "resourceVersion": str(self._version)}
        self._tell(plural, "DELETED", gone)

    def _tell(self, plural: str, kind: str, value: dict[str, Any]) -> None:
        line = msgspec.json.encode({"type": kind, "object": value}) + b"\n"
        for watched, lines in self._watches:
            if watched == plural:
                lines.put_nowait(line)

    def _stored(self, plural: str, key: _Key) -> dict[str, Any]:
        found = self.objects.get(plural, {}).get(key)
        if found is None:
            raise NotFoundError(f"{plural} {key}", Status(code=404))
        return found

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        await asyncio.sleep(0)
        return _typed(resource, self._stored(resource.plural, (namespace, name)))

    async def page(self, resource: Resource[T], selection: Selection, *, limit: int = 0, continue_: str = "") -> Page:
        await asyncio.sleep(0)
        values = self.objects.get(resource.plural, {}).values()
        items = tuple(msgspec.Raw(msgspec.json.encode(value)) for value in values)
        return Page(metadata=ListMeta(resource_version=str(self._version)), items=items)

    async def create(self, resource: Resource[T], new: T, *, dry_run: bool = False) -> T:
        await asyncio.sleep(0)
        value = msgspec.to_builtins(new)
        metadata = value["metadata"]
        key = metadata.get("namespace", ""), metadata.get("name") or metadata["generateName"]
        if key in self.objects.get(resource.plural, {}):
            raise AlreadyExistsError(f"create {resource.plural} {key}", Status(code=409))
        if dry_run:
            return new
        return _typed(resource, self.put(resource.plural, value))

    async def replace(self, resource: Resource[T], changed: T, *, subresource: str = "") -> T:
        await asyncio.sleep(0)
        self._check(resource.plural, changed)
        return _typed(resource, self.put(resource.plural, msgspec.to_builtins(changed)))

    async def delete(self, resource: Resource[T], seen: T) -> None:
        await asyncio.sleep(0)
        self._check(resource.plural, seen)
        self.drop(resource.plural, seen.metadata.name, seen.metadata.namespace)

    async def apply(
        self,
        resource: Resource[T],
        wanted: T | Mapping[str, Any],
        *,
        manager: str = FIELD_MANAGER,
        subresource: str = "",
    ) -> T:
        await asyncio.sleep(0)
        raise NotFoundError(f"apply {resource.plural}", Status(code=404))

    async def merge(self, resource: Resource[T], name: str, patch: Mapping[str, Any], namespace: str = "") -> T:
        await asyncio.sleep(0)
        stored = self._stored(resource.plural, (namespace, name))
        metadata = {**stored["metadata"], **patch["metadata"]}
        if metadata["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise ConflictError(f"{resource.plural} {name}", Status(code=409))
        return _typed(resource, self.put(resource.plural, {**stored, "metadata": metadata}))

    def _check(self, plural: str, seen: KubernetesObject) -> None:
        """Compare the version of an object that is written with the stored one."""
        stored = self._stored(plural, (seen.metadata.namespace, seen.metadata.name))
        version = seen.metadata.resource_version
        if version and stored["metadata"]["resourceVersion"] != version:
            raise ConflictError(f"{plural} {seen.metadata.name}", Status(code=409))

    @asynccontextmanager
    async def stream(
        self, path: str, what: str, parameters: Mapping[str, str], *, idle_seconds: float, shared: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        plural, since = path.rpartition("/")[2], int(parameters["resourceVersion"])
        for value in self.objects.get(plural, {}).values():  # written between the list and this watch
            if int(value["metadata"]["resourceVersion"]) > since:
                lines.put_nowait(msgspec.json.encode({"type": "MODIFIED", "object": value}) + b"\n")
        watch = plural, lines
        self._watches.append(watch)
        try:
            yield _each(lines)
        finally:
            self._watches.remove(watch)


def _typed(resource: Resource[T], value: dict[str, Any]) -> T:
    typed: T = decoder(resource.type).decode(msgspec.json.encode(value))
    return typed


async def _each(lines: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await lines.get()
