"""Watches the pods of a cluster that can have addresses of PodNetworks, while a Service needs them (decision D75).

Used by `netdra.controller.services.endpoints`. One watch serves all Services, however many a tenant creates. The API
server cannot select pods by their addresses, so it sends all that run, and those without claims are dropped on reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from netdra.kube.client import Client, Selection
from netdra.kube.reflector import Reflector
from netdra.kube.resources import SERVED_PODS
from netdra.kube.store import Change, Store
from netdra.model.meta import LabelSelector
from netdra.model.service import ServedPod

log = logging.getLogger(__name__)

RUNNING = Selection(
    field_selector="spec.nodeName!=,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"
)
"""The pods that can have a network of their own: a pod that ends leaves the selection, as if it were deleted."""
PODS_PER_SECOND, COMPARED_PER_SECOND = 20_000, 100_000
"""How many pods of a Service are checked in a second, and how many are compared with its selector."""
UNUSED_SECONDS = 600.0
"""How long pods are watched without a Service: a Service that is created again and again costs no list each time."""


class PodSelection(NamedTuple):
    """The namespace and the label selector of a Service's pods."""

    namespace: str
    selector: LabelSelector

    def selects(self, pod: ServedPod) -> bool:
        """Whether a pod of the namespace is selected."""
        return self.selector.matches(pod.metadata.labels)


class ServicePods:
    """The pods of Services, by the Service's key."""

    def __init__(self, client: Client, changed: Callable[[str], None]) -> None:
        """Watch nothing yet.

        Args:
            changed: called with the key of each Service whose endpoints may be others now.
        """
        self._client, self._changed = client, changed
        self._selections: dict[str, PodSelection] = {}
        self._services: dict[str, dict[str, PodSelection]] = {}
        self._sizes: dict[str, int] = {}
        self._store: Store[ServedPod] = Store()
        self._pods: dict[str, dict[str, ServedPod]] = {}
        self._needed, self._unneeded = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Watch whenever a Service needs it, until cancelled."""
        while True:
            await self._needed.wait()
            log.info("watching pods for Services of PodNetworks")
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch())
                await self._wait_unused()
                watching.cancel()
            self._store, self._pods = Store(), {}

    def select(self, key: str, selection: PodSelection | None) -> None:
        """Note the pods of a Service from now on; without a selection, none."""
        former = self._selections.pop(key, None)
        self._sizes.pop(key, None)
        if former is not None:
            services = self._services[former.namespace]
            del services[key]
            if not services:
                del self._services[former.namespace]
        if selection is not None:
            self._selections[key] = selection
            self._services.setdefault(selection.namespace, {})[key] = selection
        on, off = (self._needed, self._unneeded) if self._selections else (self._unneeded, self._needed)
        on.set()
        off.clear()

    def of(self, key: str) -> list[ServedPod] | None:
        """The pods of a Service; None if they are not known yet, and then `changed` is called once they are."""
        selection = self._selections.get(key)
        if selection is None or not self._store.synced:
            return None
        pods = [*filter(selection.selects, self._pods.get(selection.namespace, {}).values())]
        self._sizes[key] = len(pods)
        return pods

    def pause(self, key: str) -> float:
        """The seconds for which further changes of a Service's pods are collected before its slices are written.

        The pass compares all pods of the namespace with the selector, and checks all selected pods.
        """
        selection = self._selections.get(key)
        compared = len(self._pods.get(selection.namespace, ())) if selection is not None else 0
        return self._sizes.get(key, 0) / PODS_PER_SECOND + compared / COMPARED_PER_SECOND

    async def _wait_unused(self) -> None:
        """Wait until no Service has needed the pods for some time."""
        while True:
            await self._unneeded.wait()
            try:
                async with asyncio.timeout(UNUSED_SECONDS):
                    await self._needed.wait()
            except TimeoutError:
                return

    async def _watch(self) -> None:
        store = self._store
        with store.following(self._on_change):
            async with asyncio.TaskGroup() as tasks:
                reflector = Reflector(
                    self._client, SERVED_PODS, store, RUNNING, keeps=lambda pod: pod.has_claims, vital=False
                )
                tasks.create_task(reflector.run())
                await store.wait_synced()
                for key in self._selections:
                    self._changed(key)

    def _on_change(self, change: Change[ServedPod]) -> None:
        old, new = change.old, change.new
        latest = new or old
        assert latest is not None
        namespace = latest.metadata.namespace
        pods = self._pods.setdefault(namespace, {})
        if new is not None:
            pods[change.key] = new
        else:
            pods.pop(change.key, None)
            if not pods:
                del self._pods[namespace]
        if self._store.synced and _is_news(change):
            for key, selection in self._services.get(namespace, {}).items():
                if any(pod is not None and selection.selects(pod) for pod in (old, new)):
                    self._changed(key)


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
