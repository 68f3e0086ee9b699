"""Watches the pods that Services of PodNetworks select, and no others.

Used by `netdra.controller.endpoints`. Each selector of a namespace has one watch, which ends with the last Service that
has the selector, so the API server sends only these pods and the controller keeps only these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from netdra.kube.client import Client, Selection
from netdra.kube.reflector import Reflector
from netdra.kube.resources import SERVED_PODS
from netdra.kube.store import Change, Store
from netdra.model.service import ServedPod


@dataclass
class _Watched:
    """The pods of one selector, and the Services that have it."""

    store: Store[ServedPod]
    services: set[str] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class ServicePods:
    """The pods of Services, by the Service's key."""

    def __init__(self, client: Client, changed: Callable[[str], None]) -> None:
        """Watch nothing yet.

        Args:
            client: the API server.
            changed: called with the key of each Service whose endpoints may be others now.
        """
        self._client, self._changed = client, changed
        self._watched: dict[Selection, _Watched] = {}
        self._selections: dict[str, Selection] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for selection, watched in self._watched.items():
                watched.task = tasks.create_task(self._watch(selection, watched))
            await asyncio.get_running_loop().create_future()

    def select(self, key: str, selection: Selection | None) -> None:
        """Watch the pods of a Service from now on; without a selection, none."""
        if self._selections.get(key) == selection:
            return
        self._leave(key)
        if selection is None:
            return
        self._selections[key] = selection
        watched = self._watched.setdefault(selection, _Watched(Store()))
        watched.services.add(key)
        if watched.task is None and self._tasks is not None:
            watched.task = self._tasks.create_task(self._watch(selection, watched))

    def of(self, key: str) -> Iterable[ServedPod] | None:
        """The pods of a Service; None if they are not known yet, and then `changed` is called once they are."""
        selection = self._selections.get(key)
        watched = self._watched[selection] if selection is not None else None
        return watched.store.objects.values() if watched is not None and watched.store.synced else None

    def count(self, key: str) -> int:
        """The number of pods of a Service that are known now."""
        selection = self._selections.get(key)
        return len(self._watched[selection].store.objects) if selection is not None else 0

    def _leave(self, key: str) -> None:
        selection = self._selections.pop(key, None)
        if selection is None:
            return
        watched = self._watched[selection]
        watched.services.discard(key)
        if not watched.services:
            del self._watched[selection]
            if watched.task is not None:
                watched.task.cancel()

    async def _watch(self, selection: Selection, watched: _Watched) -> None:
        def on_change(change: Change[ServedPod]) -> None:
            if watched.store.synced and _is_news(change):
                notify()

        def notify() -> None:
            for key in watched.services:
                self._changed(key)

        with watched.store.following(on_change):
            async with asyncio.TaskGroup() as tasks:
                reflector = Reflector(self._client, SERVED_PODS, watched.store, selection, vital=False)
                tasks.create_task(reflector.run())
                await watched.store.wait_synced()
                notify()


def _is_news(change: Change[ServedPod]) -> bool:
    """Whether endpoints may depend on a change: kubelets report much that they do not."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (old.metadata.uid, old.metadata.deletion_timestamp, old.metadata.labels, old.spec, old.status) != (
        new.metadata.uid,
        new.metadata.deletion_timestamp,
        new.metadata.labels,
        new.spec,
        new.status,
    )
