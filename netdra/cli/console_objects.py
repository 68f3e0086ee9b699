"""The objects of the console's lists, pages and search, read only. Called by `netdra.cli.console_source`.

A list of devices is read page by page, and keeps the devices that match its filter: a cluster may have 100,000.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from netdra.cli.why_objects import PODS, TAINT_RULES, ObjectReader
from netdra.console.rows import DeviceLine, DeviceLines
from netdra.kube import resources
from netdra.kube.client import Client, Selection
from netdra.kube.resources import Resource
from netdra.model.claim import ResourceClaim
from netdra.model.meta import time_text
from netdra.model.names import DRIVER, network_of
from netdra.model.node_network import NodeNetwork, NodeNetworkStatus
from netdra.model.pod_address import PodAddress
from netdra.model.resource import Device, ResourceSlice
from netdra.slices.allocator import claim_key
from netdra.story.objects import ClusterState, TaintRule

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
            client: the API server's.
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

    async def listed(self, kind: str) -> ClusterState:
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

    async def policy(self, name: str) -> ClusterState:
        """The objects of a policy's page: of each node, only its report on the policy.

        Raises:
            ApiError: the API server does not answer.
        """
        found, reports = await self.listed("policies"), list[NodeNetwork]()

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


class DeviceHolder(NamedTuple):
    """A claim that has a device, its pods, and the addresses of the device in them."""

    claim: str
    pods: tuple[str, ...]
    addresses: tuple[str, ...]


DeviceHolders = Mapping[tuple[str, str], Sequence[DeviceHolder]]


def note_holder(held: dict[tuple[str, str], list[DeviceHolder]], claim: ResourceClaim) -> None:
    """Note the devices of netdra that a claim has, by pool and name."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if result.is_attachable and not result.admin_access:
            held.setdefault((result.pool, result.device), []).append(_holder(claim, result.pool, result.device))


def slice_lines(one: ResourceSlice, holders: DeviceHolders, rules: Sequence[TaintRule]) -> Iterator[DeviceLine]:
    """The devices of a slice."""
    return (_line(one, device, holders, rules) for device in one.spec.devices)


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


def _holder(claim: ResourceClaim, pool: str, device: str) -> DeviceHolder:
    statuses = (status for status in claim.status.devices if (status.pool, status.device) == (pool, device))
    networks = [status.network_data for status in statuses if status.network_data is not None]
    pods = tuple(entry.name for entry in claim.status.reserved_for if entry.resource == "pods")
    return DeviceHolder(claim_key(claim), pods, tuple(address for network in networks for address in network.ips))


def _line(
    one: ResourceSlice,
    device: Device,
    holders: DeviceHolders,
    rules: Sequence[TaintRule],
) -> DeviceLine:
    def fact(name: str) -> str:
        found = device.attributes.get(f"{DRIVER}/{name}") or device.attributes.get(name)
        return str(found.value) if found is not None else ""

    held = holders.get((one.spec.pool.name, device.name), ())
    place = (DRIVER, one.spec.pool.name, device.name)
    taints = (*device.blocking_taints, *(rule.spec.taint for rule in rules if rule.applies_to(*place)))
    return DeviceLine(
        node=one.spec.node_name or "",
        name=device.name,
        type=fact("type"),
        pf=fact("pfName") or fact("ifName"),
        state="allocated" if held else "tainted" if taints else "free",
        claims=tuple(holder.claim for holder in held),
        pods=tuple(pod for holder in held for pod in holder.pods),
        addresses=tuple(address for holder in held for address in holder.addresses),
        reason=f"{taints[0].key}:{taints[0].effect}" if taints else "",
        keys=tuple(filter(None, (fact("mac"), fact("pciAddress"), fact("ifName"), fact("altName")))),
    )


def hidden_lines(report: NodeNetwork) -> Iterator[DeviceLine]:
    """The interfaces of a node that are not published."""
    for group in report.status.interfaces if report.status is not None else ():
        for name in () if group.devices or group.pools_vfs else group.names:
            facts, _ = group.facts(name)
            keys = (facts.get(f"{DRIVER}/mac"), facts.get(f"{DRIVER}/pciAddress"))
            found = tuple(str(key) for key in keys if key)
            yield DeviceLine(report.name, name, group.type, state="hidden", reason=group.reason, keys=found)
