"""The copy of a kind's objects that a reflector keeps, and the callbacks for its changes.

Filled by `netdra.kube.reflector`, read by the daemons. Readers and writer are on one event loop, so a reader that does
not await sees one state. A callback is called after the change is in the store; it should record the work and
return.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from netdra.kube.resources import KubernetesObject
from netdra.model.meta import order

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubernetesObject)


@dataclass(frozen=True)
class Change(Generic[T]):
    """A change of one object: it was added (`old` is None), changed, or deleted (`new` is None)."""

    key: str
    old: T | None
    new: T | None


def key_of(namespace: str, name: str) -> str:
    """An object's key in its store."""
    return f"{namespace}/{name}" if namespace else name


class Store(Generic[T]):
    """Objects by key, and the objects that cannot be read.

    Attributes:
        version: the store's resourceVersion, "" before the first list.
    """

    def __init__(self) -> None:
        self.version = ""
        self._objects: dict[str, T] = {}
        self._unreadable: dict[str, str] = {}
        self._callbacks: list[Callable[[Change[T]], None]] = []
        self._turn: asyncio.Event = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects by key; a view that follows the store."""
        return MappingProxyType(self._objects)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Objects of the server that do not fit the model's types, with the reason; a view that follows the store."""
        return MappingProxyType(self._unreadable)

    @property
    def synced(self) -> bool:
        """Whether the store has been equal to the server once."""
        return bool(self.version)

    def reached(self, version: str) -> bool:
        """Whether the store is of that resourceVersion or a later one."""
        return self.synced and order(self.version) >= order(version)

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until a condition is met; it is tried again after each change of the store."""
        while not met():
            await self._turn.wait()

    async def wait_synced(self) -> None:
        """Wait until the store has been equal to the server once."""
        await self.until(lambda: self.synced)

    @contextmanager
    def following(self, callback: Callable[[Change[T]], None]) -> Iterator[None]:
        """Call a function with every change, as long as this is entered."""
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def put(self, key: str, new: T) -> None:
        """An object came or changed."""
        self._unreadable.pop(key, None)
        old = self._objects.get(key)
        self._objects[key] = new
        self._tell(Change(key, old, new))

    def put_unreadable(self, key: str, reason: str) -> None:
        """An object came or changed that cannot be read: its former state holds no longer."""
        self._unreadable[key] = reason
        self._forget(key)

    def remove(self, key: str) -> None:
        """An object went; nothing happens if it was not there."""
        self._unreadable.pop(key, None)
        self._forget(key)

    def advance(self, version: str) -> None:
        """The store is now of this resourceVersion."""
        if version != self.version:
            self.version = version
            self._wake()

    def _forget(self, key: str) -> None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._tell(Change(key, old, None))

    def _tell(self, change: Change[T]) -> None:
        for callback in tuple(self._callbacks):
            try:
                callback(change)
            except Exception:
                # A defect at one object must not end the process, or keep the other objects from being read.
                log.exception("%s: internal error of netdra", change.key)
        self._wake()

    def _wake(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
