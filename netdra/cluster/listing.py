"""Reads lists and the objects of stories, in all namespaces or in some. Called by the console and its examination.

A list of devices is read page by page, and keeps the devices that match its filter: a cluster may have 100,000.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from netdra.cluster import watching
from netdra.cluster.devices import (
    DeviceHolder,
    DeviceHolders,
    DeviceLine,
    DeviceLines,
    hidden_lines,
    note_holder,
    slice_lines,
)
from netdra.cluster.objects import ClusterState
from netdra.cluster.reading import PODS, TAINT_RULES, ObjectReader, read, read_node, scope_of
from netdra.kube import resources
from netdra.kube.client import Client, Selection
from netdra.kube.resources import Resource
from netdra.model.meta import time_text
from netdra.model.names import DRIVER, network_of
from netdra.model.node_network import NodeNetwork, NodeNetworkStatus
from netdra.model.pod_address import PodAddress
from netdra.model.resource import ResourceSlice

MAX_LINES = 2000
"""Devices of a list that are kept in memory."""
_CLAIMS = ("claims", resources.RESOURCE_CLAIMS)
_TOPOLOGIES = ("topologies", resources.TOPOLOGIES)
_CLASSES = ("classes", resources.DEVICE_CLASSES)
KINDS: Mapping[str, Sequence[tuple[str, Resource[Any]]]] = {
    "pods": (("pods", PODS),),
    "claims": (_CLAIMS, _TOPOLOGIES, _CLASSES),
    "topologies": (_TOPOLOGIES, ("usages", resources.TOPOLOGY_USAGES)),
    "policies": (("policies", resources.POLICIES), ("rollouts", resources.POLICY_ROLLOUTS)),
    "networks": (("networks", resources.POD_NETWORKS),),
    "plugins": (("plugins", resources.CNI_PLUGINS),),
}
"""By the list, the fields of `ClusterState` that it needs, and their kinds; the first kind is followed."""


def merged(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The objects of several namespaces."""
    return [entry for part in parts for entry in part]


class ListReader:
    """Reads lists, in all namespaces or in some."""

    def __init__(self, client: Client, namespaces: Sequence[str] = ()) -> None:
        """Read nothing yet.

        Args:
            namespaces: the only namespaces whose objects are read; all if none is named.
        """
        self._client, self.namespaces = client, tuple(namespaces)
        self.reader = ObjectReader(client)

    async def of(
        self, resource: Resource[Any], keep: Callable[[Any], bool] = lambda _: True, **selection: str
    ) -> list[Any]:
        """The objects of a kind."""
        places = self.namespaces if resource.namespaced and self.namespaces else ("",)
        return merged(
            [await self.reader.list(resource, Selection(namespace=place, **selection), keep=keep) for place in places]
        )

    async def read_list(self, kind: str) -> ClusterState:
        """The objects of a list of one of `KINDS`.

        Raises:
            ApiError: the API server does not answer.
        """
        fields, kinds = zip(*KINDS[kind], strict=True)
        found = await asyncio.gather(*(self.of(resource) for resource in kinds))
        return ClusterState(
            **dict(zip(fields, found, strict=True)),
            unread=self.reader.unread,
            server_time=time_text(self._client.now()),
        )

    async def read_object(self, kind: str, place: str, name: str) -> ClusterState:
        """The objects of an object's story; `place` is its namespace, or its node.

        Raises:
            ApiError: the API server does not answer.
        """
        if kind == "node":
            return await read_node(self._client, name)
        if kind == "plugin":
            return await self.read_list("plugins")
        if kind == "policy":
            return await self._policy(name)
        return await read(self._client, scope_of(kind, place, name))

    async def wait_object(self, kind: str, place: str, name: str) -> None:
        """Wait until an object of a story has changed, or some seconds."""
        if kind in ("policy", "plugin"):
            await self.wait_list({"policy": "policies", "plugin": "plugins"}[kind])
            return
        scope = scope_of(kind, place, name)
        await watching.wait_change(self._client, await watching.versions(self._client, scope))

    async def wait_list(self, kind: str) -> None:
        """Wait until an object of a list has changed, or some seconds."""
        resource = resources.RESOURCE_SLICES if kind == "devices" else KINDS[kind][0][1]
        places = self.namespaces if resource.namespaced and self.namespaces else ("",)
        watched = [watching.WatchedKind(resource, Selection(namespace=place)) for place in places]
        await watching.wait_change(self._client, await watching.begin_watch(self._client, watched))

    async def _policy(self, name: str) -> ClusterState:
        """The objects of a policy's page: of each node, only its report on the policy.

        Raises:
            ApiError: the API server does not answer.
        """
        found, reports = await self.read_list("policies"), list[NodeNetwork]()

        def take(report: NodeNetwork) -> None:
            status = report.status
            own = tuple(entry for entry in status.policies if entry.name == name) if status is not None else ()
            if own:
                reports.append(replace(report, status=NodeNetworkStatus(policies=own)))

        await self._take(resources.NODE_NETWORKS, take, Selection())
        return replace(found, node_networks=reports)

    async def addresses(self, text: str) -> list[PodAddress]:
        """The PodAddresses whose address begins with a text; `MAX_LINES` of them at most."""
        found = await self.of(resources.POD_ADDRESSES, keep=lambda entry: entry.spec.address.startswith(text))
        if self.namespaces:
            found = [entry for entry in found if entry.spec.owner.namespace in self.namespaces]
        return found[:MAX_LINES]

    async def devices(self, node: str, matches: Callable[[DeviceLine], bool]) -> DeviceLines:
        """The devices of the cluster or of a node that match, then interfaces that are not published.

        Raises:
            ApiError: the API server does not answer.
        """
        holders = await self._holders()
        rules = await self.reader.list(TAINT_RULES)
        kept = _Kept(matches)
        only = Selection(field_selector=f"spec.nodeName={node}" if node else f"spec.driver={DRIVER}")
        generations: dict[str, int] = {}

        def take(one: ResourceSlice) -> None:
            if one.spec.driver != DRIVER or network_of(one.spec.pool.name):
                return
            pool = one.spec.pool
            generations[pool.name] = max(generations.get(pool.name, 0), pool.generation)
            if pool.generation == generations[pool.name]:
                for line in slice_lines(one, holders, rules):
                    kept.add(line)

        def hide(report: NodeNetwork) -> None:
            for line in hidden_lines(report):
                kept.add(line)

        await self._take(resources.RESOURCE_SLICES, take, only)
        named = Selection(field_selector=f"metadata.name={node}" if node else "")
        await self._take(resources.NODE_NETWORKS, hide, named)
        lines = sorted(
            kept.lines, key=lambda line: (line.node, line.state == "hidden", line.pf, len(line.name), line.name)
        )
        return DeviceLines(lines, kept.total, kept.left, [*self.reader.unread.values()])

    async def _take(self, resource: Resource[Any], take: Callable[[Any], None], selection: Selection) -> None:
        """Hand on each object, of which none is kept."""

        def keep(entry: Any) -> bool:
            take(entry)
            return False

        await self.reader.list(resource, selection, keep=keep)

    async def _holders(self) -> DeviceHolders:
        """The claims that have devices of netdra, by pool and device."""
        held: dict[tuple[str, str], list[DeviceHolder]] = {}
        for place in self.namespaces or ("",):
            await self._take(resources.RESOURCE_CLAIMS, partial(note_holder, held), Selection(namespace=place))
        return held


class _Kept:
    """The first devices that match."""

    def __init__(self, matches: Callable[[DeviceLine], bool]) -> None:
        self._matches = matches
        self.lines: list[DeviceLine] = []
        self.total = self.left = 0

    def add(self, line: DeviceLine) -> None:
        self.total += 1
        if self._matches(line):
            if len(self.lines) < MAX_LINES:
                self.lines.append(line)
            else:
                self.left += 1
