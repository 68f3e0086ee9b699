"""A PodNetwork has the finalizer while claims have addresses of it, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
import pytest

from netdra.controller.addresses.finalizers import NetworkFinalizers
from netdra.controller.writing import FINALIZER
from netdra.kube.errors import ConflictError, RefusedError, Status
from netdra.kube.resources import POD_NETWORKS, KubernetesObject, Resource
from netdra.kube.store import Change, Store
from netdra.model.pod_network import PodNetwork
from netdra.networks.errors import NoPodNetworkError
from tests.memory_api import MemoryApi
from tests.unit.networks.builders import network

T = TypeVar("T", bound=KubernetesObject)
OTHER = "example.com/other"
DELETED = "2026-11-28T10:00:00Z"


class Scene:
    """A PodNetwork in the API server, the controller's copy of it, and whether it is used."""

    def __init__(self, api: MemoryApi | None = None, **metadata: Any) -> None:
        self.api, self.store = api or MemoryApi(), Store[PodNetwork]()
        value = msgspec.to_builtins(network("10.0.0.0/24"))
        self.api.put("podnetworks", {**value, "metadata": {**value["metadata"], "uid": "uid-1", **metadata}})
        self.is_used = False
        self.finalizers = NetworkFinalizers(self.api, self.store, lambda _: self.is_used)
        self.copy()

    def copy(self) -> None:
        """Bring the copy up to date."""
        asyncio.run(self._copy())

    async def _copy(self) -> None:
        old = self.store.objects.get("storage")
        new = await self.api.get(POD_NETWORKS, "storage")
        self.store.put("storage", new)
        self.finalizers.note(Change("storage", old, new))

    @property
    def present(self) -> list[str]:
        """The finalizers that the API server has."""
        return list(self.api.objects["podnetworks"]["", "storage"]["metadata"].get("finalizers", ()))


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(work())


def test_the_finalizer_is_set_before_the_first_address_and_removed_after_the_last_one() -> None:
    scene = Scene(finalizers=[OTHER])

    async def live() -> None:
        await scene.finalizers.protect("storage")
        assert scene.present == [OTHER, FINALIZER]
        scene.is_used = True
        version = scene.api.objects["podnetworks"]["", "storage"]["metadata"]["resourceVersion"]
        await scene.finalizers.protect("storage")  # the copy is behind
        assert not await scene.finalizers.update("storage")
        assert scene.api.objects["podnetworks"]["", "storage"]["metadata"]["resourceVersion"] == version
        scene.is_used = False
        assert not await scene.finalizers.update("storage")
        assert scene.present == [OTHER]
        await scene.finalizers.protect("storage")
        assert scene.present == [OTHER, FINALIZER]

    run(live)


def test_a_finalizer_that_was_removed_by_hand_comes_back_while_the_network_is_used() -> None:
    scene = Scene()
    scene.is_used = True
    run(lambda: scene.finalizers.update("storage"))
    scene.copy()
    stored = scene.api.objects["podnetworks"]["", "storage"]
    scene.api.put("podnetworks", {**stored, "metadata": {**stored["metadata"], "finalizers": []}})
    scene.copy()
    run(lambda: scene.finalizers.update("storage"))
    assert scene.present == [FINALIZER]


def test_a_network_that_is_being_deleted_gets_no_first_user() -> None:
    scene = Scene()
    stored = scene.api.objects["podnetworks"]["", "storage"]
    scene.api.put("podnetworks", {**stored, "metadata": {**stored["metadata"], "deletionTimestamp": DELETED}})
    with pytest.raises(NoPodNetworkError, match="is being deleted"):
        run(lambda: scene.finalizers.protect("storage"))


def test_the_deletion_of_a_network_goes_on_after_its_last_user() -> None:
    scene = Scene(finalizers=[FINALIZER], deletionTimestamp=DELETED)
    scene.is_used = True
    assert not run(lambda: scene.finalizers.update("storage"))
    assert scene.present == [FINALIZER]
    scene.is_used = False
    assert run(lambda: scene.finalizers.update("storage"))
    assert scene.present == []


class Refusing(MemoryApi):
    """An API server on which the controller's account may not write PodNetworks."""

    async def merge(self, resource: Resource[T], name: str, patch: Mapping[str, Any], namespace: str = "") -> T:
        raise RefusedError(f"patch {resource.plural} {name}", Status(code=403))


class Busy(MemoryApi):
    """An API server on which an object changes after so many reads."""

    changes = 100

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        found = await super().get(resource, name, namespace)
        if self.changes:
            self.changes -= 1
            self.put(resource.plural, self.objects[resource.plural][namespace, name])
        return found


def test_without_the_right_to_write_finalizers_addresses_are_assigned_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    api = Refusing()
    api.objects = scene.api.objects
    finalizers = NetworkFinalizers(api, scene.store, lambda _: True)

    async def live() -> None:
        for _ in range(3):
            await finalizers.protect("storage")
            await finalizers.update("storage")

    run(live)
    assert caplog.text.count('the finalizer of PodNetwork "storage" cannot be written') == 1


def test_a_status_that_is_written_meanwhile_does_not_stop_the_assignment() -> None:
    busy = Busy()
    scene = Scene(busy)
    busy.changes = 3
    run(lambda: scene.finalizers.protect("storage"))
    assert scene.present == [FINALIZER]


def test_a_network_that_changes_all_the_time_is_a_conflict_and_nothing_is_written() -> None:
    scene = Scene(Busy())
    with pytest.raises(ConflictError):
        run(lambda: scene.finalizers.protect("storage"))
    assert scene.present == []
