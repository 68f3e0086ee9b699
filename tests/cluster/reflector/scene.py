"""A reflector that follows ConfigMaps through a proxy, and its reports."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from netdra.kube.client import Client, Selection
from netdra.kube.connection import connect
from netdra.kube.reflector import Reflector, Timing
from netdra.kube.resources import Resource
from netdra.kube.store import Change, Store
from netdra.model.meta import ObjectMeta
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import NAMESPACE, manifest
from testbed.pace import within
from testbed.waiting import awaited
from tests.cluster.fault_proxy import FaultProxy

WITHIN = 5.0
KIND = "v1/ConfigMap"


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAPS = Resource("v1", "configmaps", ConfigMap, namespaced=True)


@dataclass
class Scene:
    """One namespace of one server, a reflector of it behind a proxy, and all changes that its store reported."""

    api: Api
    proxy: FaultProxy
    reflector: Reflector[ConfigMap]
    namespace: str
    changes: list[Change[ConfigMap]]

    @property
    def store(self) -> Store[ConfigMap]:
        return self.reflector.store

    def write(self, *names: str, text: str = "") -> None:
        for name in names:
            self.api.apply(manifest(KIND, name, self.namespace, data={"text": text or name}))

    def delete(self, *names: str) -> None:
        for name in names:
            self.api.delete(KIND, name, self.namespace)

    async def equal(self) -> None:
        """Wait until the store is what the server has, which must not change meanwhile; that takes seconds."""
        listed = await asyncio.to_thread(self.api.list, KIND, self.namespace)
        expected = {
            f"{self.namespace}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in listed
        }
        with within(WITHIN, "following the server"):
            await awaited(self.store.until(lambda: self.versions() == expected), "the store to be what the server has")

    def versions(self) -> dict[str, str]:
        return {key: found.metadata.resource_version for key, found in self.store.objects.items()}


_NUMBERS = itertools.count(1)


@asynccontextmanager
async def scene(plane: ControlPlane, api: Api, **timing: Any) -> AsyncIterator[Scene]:
    """A reflector at work on ten objects."""
    namespace = f"reflected-{next(_NUMBERS)}"
    api.create(manifest(NAMESPACE, namespace))
    changes: list[Change[ConfigMap]] = []
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        reflector = Reflector(client, CONFIG_MAPS, Store(), Selection(namespace=namespace), Timing(**timing))
        found = Scene(api, proxy, reflector, namespace, changes)
        found.write(*(f"first-{number}" for number in range(10)))
        with reflector.store.following(changes.append):
            task = asyncio.create_task(reflector.run())
            try:
                await reflector.store.wait_synced()
                # What came after the list can only come through the watch, so that one stands when the story begins.
                found.write("watched")
                await found.equal()
                yield found
            finally:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task


def replayed(changes: list[Change[ConfigMap]]) -> dict[str, str]:
    """The state that a listener has who believes every change, in order; each must fit the one before."""
    state: dict[str, ConfigMap] = {}
    for change in changes:
        assert state.get(change.key) == change.old
        if change.new is None:
            del state[change.key]
        else:
            state[change.key] = change.new
    return {key: found.metadata.resource_version for key, found in state.items()}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)
