"""The objects of a bundle, read as from an API server: what could not be read there cannot be read here either.

So `netdra why` reads a bundle by the same code as a cluster (`netdra.cluster.reading`). With the mapping of an
anonymous bundle, the objects have their names again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from netdra.bundle import archive, mapping
from netdra.bundle.anonymity import Pseudonymity, restore
from netdra.bundle.archive import Bundle, Manifest
from netdra.kube import answers
from netdra.kube.answers import ListMeta, Page
from netdra.kube.client import Client, Selection
from netdra.kube.errors import Status, api_error
from netdra.kube.resources import KubernetesObject, Resource
from netdra.model import depth
from netdra.model.errors import UNREADABLE, InvalidInputError
from netdra.model.meta import time_of

FOLDER = "objects"
VERSIONS = "versions.json"
"""The file with the versions of netdra, Kubernetes and the nodes' software."""
_HINT = "the bundle is damaged; write it again"

T = TypeVar("T", bound=KubernetesObject)


def objects_file(plural: str) -> str:
    """The path within a bundle of the JSON list of a kind, which `plural` names ("pods")."""
    return f"{FOLDER}/{plural}.json"


class _List(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


_lists = msgspec.json.Decoder(_List)
_plain = msgspec.json.Decoder(dict[str, Any])


class RecordedClient(Client):
    """Answers as the API server did when a bundle was written. It has no connection, and writes nothing."""

    def __init__(self, bundle: Bundle, names: Pseudonymity | None = None) -> None:
        """Read nothing yet.

        Args:
            names: of an anonymous bundle, so that the objects have their names again.
        """
        self.following = []
        self._bundle, self._names = bundle, names
        self.manifest = bundle.manifest
        if names is not None:
            self.manifest = msgspec.convert(restore(msgspec.to_builtins(self.manifest), names), Manifest)
        self._refusals = {entry.part: entry for entry in self.manifest.left_out if entry.code}
        self._objects = cache(self._decode)

    @property
    def left_out(self) -> Mapping[str, str]:
        """By the plurals of kinds, why the bundle lacks some of their objects although they could be read."""
        prefix, suffix = objects_file("\0").split("\0")
        return {
            f"{entry.part.removeprefix(prefix).removesuffix(suffix)} beyond the limit": f"{entry.part}: {entry.reason}"
            for entry in self.manifest.left_out
            if not entry.code and entry.part.startswith(prefix)
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        return

    def now(self) -> datetime:
        """When the bundle was written.

        Raises:
            InvalidInputError: the manifest does not state it.
        """
        try:
            return time_of(self.manifest.created)
        except ValueError as problem:
            raise InvalidInputError(f"the bundle's manifest: {problem}", hint=_HINT, code="ND4079") from None

    async def read(self, path: str, what: str, parameters: Mapping[str, str] | None = None) -> bytes:
        """The server's version, the only one of such answers that a bundle contains.

        Raises:
            ApiError: the bundle does not contain the answer.
            InvalidInputError: the file with it cannot be read.
        """
        text = self._bundle.files.get(VERSIONS)
        if path != "/version" or text is None:
            raise api_error(f"get {what}", Status(code=HTTPStatus.NOT_FOUND, message="the bundle does not contain it"))
        try:
            versions = depth.decode(_plain, text)
        except UNREADABLE as problem:
            raise InvalidInputError(f"{VERSIONS} cannot be read: {problem}", hint=_HINT, code="ND4080") from None
        return msgspec.json.encode({"gitVersion": versions.get("kubernetes")})

    async def page(self, resource: Resource[T], selection: Selection, *, limit: int = 0, continue_: str = "") -> Page:
        """All objects of a selection.

        Raises:
            ApiError: the API server refused to list the kind, or the bundle does not contain it.
            InvalidInputError: the objects cannot be read.
        """
        found = [raw for raw, plain in self._of(resource) if _selects(selection, plain)]
        return Page(ListMeta(), tuple(found))

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """One object.

        Raises:
            ApiError: no such object exists, or the kind cannot be read.
            InvalidInputError: the object cannot be read.
        """
        for raw, plain in self._of(resource):
            if (_at(plain, "metadata.name"), _at(plain, "metadata.namespace")) == (name, namespace):
                return answers.one(resource, raw)
        group = resource.group_version.rpartition("/")[0]
        kind = f"{resource.plural}.{group}" if group else resource.plural
        text = f'{kind} "{name}" not found'
        raise api_error(f'get {resource.plural} "{name}"', Status(code=HTTPStatus.NOT_FOUND, message=text))

    def _of(self, resource: Resource[T]) -> tuple[tuple[msgspec.Raw, dict[str, Any]], ...]:
        refusal = self._refusals.get(objects_file(resource.plural))
        if refusal is not None:
            what = f"list {resource.plural}"
            raise api_error(what, Status(code=refusal.code, message=refusal.reason))
        return self._objects(resource.plural)

    def _decode(self, plural: str) -> tuple[tuple[msgspec.Raw, dict[str, Any]], ...]:
        text = self._bundle.files.get(objects_file(plural))
        if text is None:
            status = Status(code=HTTPStatus.NOT_FOUND, message="the bundle does not contain them")
            raise api_error(f"list {plural}", status)
        try:
            items = depth.decode(_lists, text).items
            return tuple(sorted(map(self._read, items), key=_place))
        except UNREADABLE as problem:
            raise InvalidInputError(
                f"{objects_file(plural)} cannot be read: {problem}", hint=_HINT, code="ND4081"
            ) from None

    def _read(self, raw: msgspec.Raw) -> tuple[msgspec.Raw, dict[str, Any]]:
        """An object as text and as plain data, with its names."""
        plain = depth.decode(_plain, raw)
        if self._names is None:
            return raw, plain
        plain = restore(plain, self._names)
        return msgspec.Raw(msgspec.json.encode(plain)), plain


def read_cluster(path: Path, mapping_path: Path | None) -> RecordedClient:
    """The cluster of which a support bundle is.

    Raises:
        InvalidInputError: one of the files cannot be read, or the bundle is a node's.
    """
    bundle = archive.read_file(path)
    if bundle.manifest.of != "cluster":
        what = f"{path}: the bundle of a node does not contain objects of the cluster"
        raise InvalidInputError(what, hint="run netdra support-bundle without --node", code="ND4055")
    return RecordedClient(bundle, mapping.read_file(mapping_path) if mapping_path is not None else None)


def _place(item: tuple[msgspec.Raw, dict[str, Any]]) -> str:
    """The key by which the API server sorts the objects of a kind."""
    return f"{_at(item[1], 'metadata.namespace')}/{_at(item[1], 'metadata.name')}"


def _selects(selection: Selection, plain: Mapping[str, Any]) -> bool:
    """Whether an object is part of a selection; the selectors are netdra's own, which only compare."""
    if selection.namespace and _at(plain, "metadata.namespace") != selection.namespace:
        return False
    labels = _get(_get(plain, "metadata"), "labels")
    return all(_at(plain, path) == value for path, value in _pairs(selection.field_selector)) and all(
        _get(labels, key) == value for key, value in _pairs(selection.label_selector)
    )


def _pairs(selector: str) -> list[tuple[str, str]]:
    split = (part.partition("=") for part in selector.split(",") if part)
    return [(key, value) for key, _, value in split]


def _at(plain: Any, path: str) -> str:
    for part in path.split("."):
        plain = _get(plain, part)
    return plain if isinstance(plain, str) else ""


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
