"""Contents that an object of a kind may have, by the kind's type: valid for the type, and otherwise as bad as can be.

An API server accepts from nodes, tenants and administrators what the schema of a kind allows. `Served` serves such
objects to the reflectors of a process in place of an API server, which would reject most of them today.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from netdra.kube.answers import ListMeta, Page, decoder
from netdra.kube.client import FIELD_MANAGER, Client, Selection
from netdra.kube.errors import NotFoundError, Status
from netdra.kube.resources import KubernetesObject, Resource

T = TypeVar("T", bound=KubernetesObject)

NAMES = ("a", "storage", "node-1", "storage.10.7.0.1", "storage.2001-db8-0-0-0-0-0-1", "podnetwork.storage", "banana")
TEXTS = (
    *("", "a", "banana", "node-1", "db/a", "storage", "dra.networking", "Ready", "True", "network", "0", "-1", "/"),
    *("10.7.0.1", "10.7.0.1/24", "10.7.0.0/255.255.255.0", "::ffff:10.7.0.1", "::/0", "fe80::1%eth0", "10.7.0.300"),
    *("10.7.0.0/30", "10.7.0.9-10.7.0.1", "2001:db8::1", "2001:db8::/64", "not-an-address", "9" * 40, "1e999", "10Gi"),
    *("2026-11-27T10:00:00Z", "9999-12-31T23:59:59-23:59", "2026-11-27", "soon", "\x00", "\u202e", "{{ params.a }}"),
    *("podnetworks.dra.networking/storage", "podnetworks.dra.networking", "podnetwork.storage", "FromClass", "vfs"),
    *("true", "device.attributes", "(", "[" * 40, "Pod", "v1", "NetworkTopology", "In", "a,b", "a=b,", "!", "pods"),
)
NUMBERS = (0, 1, -1, 2, 255, 2**31, 2**63 - 1, -(2**63))


def names_in(path: str) -> bool:
    """Whether a field has a name by which objects find each other, so that it should often be an existing one."""
    return path.endswith(("name", "network", "Name", "claim", "topology", "uid"))


def contents(kind: type[Any]) -> st.SearchStrategy[Any]:
    """JSON values of a type, as msgspec decodes it."""
    return _of(inspect.type_info(kind), "", 0)


def _of(info: inspect.Type, path: str, depth: int) -> st.SearchStrategy[Any]:
    if isinstance(info, inspect.StructType):
        return st.deferred(lambda: _struct(info, path, depth))
    if isinstance(info, inspect.Metadata):
        return _of(info.type, path, depth)
    if isinstance(info, inspect.UnionType):
        return st.one_of([_of(part, path, depth) for part in info.types])
    if isinstance(info, inspect.VarTupleType | inspect.ListType | inspect.SetType | inspect.CollectionType):
        most = min(2 if depth < 4 else 1, info.max_length if info.max_length is not None else 2)
        return st.lists(_of(info.item_type, path, depth + 1), min_size=info.min_length or 0, max_size=max(most, 1))
    if isinstance(info, inspect.DictType):
        keys = st.sampled_from([*TEXTS, *NAMES])
        return st.dictionaries(keys, _of(info.value_type, path, depth + 1), max_size=2)
    if isinstance(info, inspect.LiteralType):
        return st.sampled_from(info.values)
    return _plain(info, path)


def _plain(info: inspect.Type, path: str) -> st.SearchStrategy[Any]:
    if isinstance(info, inspect.StrType):
        most = info.max_length if info.max_length is not None else 10_000
        listed = (*NAMES * 8, *TEXTS) if names_in(path) else TEXTS
        return st.sampled_from([text for text in listed if len(text) <= most])
    if isinstance(info, inspect.IntType):
        low = info.ge if info.ge is not None else -(2**63)
        high = info.le if info.le is not None else 2**63 - 1
        return st.sampled_from([number for number in (*NUMBERS, low, high) if low <= number <= high])
    if isinstance(info, inspect.BoolType):
        return st.booleans()
    if isinstance(info, inspect.NoneType):
        return st.none()
    if isinstance(info, inspect.FloatType):
        return st.sampled_from([0.0, -1.5, 1e308])
    keys = st.sampled_from([*TEXTS, "duplicates", "address"])
    return st.recursive(
        st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(TEXTS)),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
        max_leaves=4,
    )


def _struct(info: inspect.StructType, path: str, depth: int) -> st.SearchStrategy[Any]:
    fields = {field.encode_name: field for field in info.fields if not field.encode_name.startswith("-")}
    required = {name: _of(field.type, f"{path}.{name}", depth + 1) for name, field in fields.items() if field.required}
    optional = {
        name: _of(field.type, f"{path}.{name}", depth + 1) for name, field in fields.items() if not field.required
    }
    tag = {} if info.tag_field is None else {str(info.tag_field): st.just(info.tag)}
    if path.endswith(".metadata") and not path.count(".", 1):
        return _metadata(optional)
    return st.fixed_dictionaries({**tag, **required}, optional=optional)


def _metadata(optional: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Metadata whose names and versions are as the API server makes them."""
    own = {
        "name": st.sampled_from(NAMES),
        "uid": st.sampled_from(NAMES),
        "resourceVersion": st.integers(1, 9).map(str),
    }
    times = dict.fromkeys(("creationTimestamp", "deletionTimestamp"), st.just("2026-11-27T10:00:00Z"))
    rest = {name: value for name, value in optional.items() if name not in own and name not in times}
    rest |= {name: value for name, value in times.items() if name in optional}
    rest |= {"generation": st.integers(0, 9)}
    return st.fixed_dictionaries(own, optional={**rest, "namespace": st.sampled_from(["db", "a"])})


class Served(Client):
    """An API server of these objects: it lists them, takes every write, and reports no change."""

    def __init__(self, objects: Mapping[str, list[Any]]) -> None:
        """Begin.

        Args:
            objects: by plural, as JSON values.
        """
        self.following = []
        self.created: list[Any] = []
        self._objects = {plural: _named(values) for plural, values in objects.items()}

    def _of(self, resource: Resource[Any], name: str, namespace: str) -> Any:
        for value in self._objects.get(resource.plural, ()):
            metadata = value["metadata"]
            if (metadata["name"], metadata.get("namespace", "")) == (name, namespace):
                return value
        raise NotFoundError(f"get {resource.plural}", Status(code=404))

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        await asyncio.sleep(0)
        value: T = decoder(resource.type).decode(msgspec.json.encode(self._of(resource, name, namespace)))
        return value

    async def page(self, resource: Resource[T], selection: Selection, *, limit: int = 0, continue_: str = "") -> Page:
        await asyncio.sleep(0)
        values = self._objects.get(resource.plural, ())
        if not resource.namespaced:
            values = [value for value in values if "namespace" not in value["metadata"]]
        items = tuple(msgspec.Raw(msgspec.json.encode(value)) for value in values)
        return Page(metadata=ListMeta(resource_version="10"), items=items)

    async def create(self, resource: Resource[T], new: T, *, dry_run: bool = False) -> T:
        await asyncio.sleep(0)
        self.created.append(new)
        return new

    async def replace(self, resource: Resource[T], changed: T, *, subresource: str = "") -> T:
        await asyncio.sleep(0)
        return changed

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
        return await self.get(resource, name, namespace)

    async def delete(self, resource: Resource[T], seen: T) -> None:
        await asyncio.sleep(0)

    @asynccontextmanager
    async def stream(
        self, path: str, what: str, parameters: Mapping[str, str], *, idle_seconds: float, shared: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        yield _nothing()


def _named(values: list[Any]) -> list[Any]:
    """One object for each name."""
    return [*{(value["metadata"]["name"], value["metadata"].get("namespace", "")): value for value in values}.values()]


async def _nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def objects_of(*resources: Resource[Any], most: int = 3) -> st.SearchStrategy[dict[str, list[Any]]]:
    """Objects of these kinds, by plural."""

    def of(resource: Resource[Any]) -> st.SearchStrategy[list[Any]]:
        made = contents(resource.type)
        return st.lists(made.map(_placed(resource)), max_size=most)

    return st.fixed_dictionaries({resource.plural: of(resource) for resource in resources})


def _placed(resource: Resource[Any]) -> Callable[[Any], Any]:
    def place(value: Any) -> Any:
        metadata = dict(value["metadata"])
        metadata["namespace"] = metadata.get("namespace", "db")
        if not resource.namespaced:
            del metadata["namespace"]
        return {**value, "metadata": metadata}

    return place
