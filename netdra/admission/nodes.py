"""The nodes' reports of their interfaces, counted so that the effect of a policy can be worked out fast.

Part of `netdra.admission.copy`; `netdra.admission.server` sends the counts to a worker with the policy. Most interfaces
of a cluster have the same values of all attributes that one selector asks for, so they are counted together: 50 nodes
of 400 interfaces become a few dozen entries. A node's counts are used until the node reports again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from netdra.admission.reports import LabelledNode, NodeReport
from netdra.exposure.foresight import InterfaceReports, SimilarInterfaces
from netdra.kube.store import Change, Store
from netdra.model.custom_device import CustomDevice, CustomDeviceSelector
from netdra.model.inventory import AttributeValue
from netdra.model.node_network import InterfaceGroup
from netdra.model.policy import DeviceExposurePolicy
from netdra.review.offers import MOST_DEVICES, NodeOffer, Offers, offered, offering
from netdra.slices.allocator.worst_case import MOST_NODES

SLICE_SECONDS = 0.002
"""How long one look may keep other requests waiting before it lets them go first."""
MOST_SECONDS = 0.1
"""How long a look may take altogether; nodes that are left then are not counted."""
MOST_SEEN = 1500
KEPT = 32
"""How many selections of attributes are remembered."""
FORMER = 64
"""How many counts of former reports are remembered, for later ones that are equal."""
MOST_PARTS, MOST_BYTES = 64, 16 * 1024
"""The size of the counts, and of the report, above which that is not done: a node's driver may write any."""

Key = tuple[Any, ...]


class _Kind:
    """Interfaces that are alike, on any node: one object for each key, which is compared by identity."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def seen(self, count: int, nodes: int, *, holds: bool) -> SimilarInterfaces:
        """A number of such interfaces, on these nodes."""
        facts, unknown, unreadable, standings, devices = self.key
        return SimilarInterfaces(dict(facts), unknown, unreadable, dict(standings), devices, count, f"{nodes:x}", holds)


Part = tuple[_Kind, int]
"""Interfaces of one node that are alike, and how many they are."""


class _Selection:
    """All nodes' interfaces, by some attributes.

    Attributes:
        of_nodes: the counts of each node.
        counts: by kind, how many interfaces all nodes have together.
        nodes: by kind, the nodes that have it, a bit for each.
        stale: the nodes that have reported since they were counted.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self.of_nodes: dict[str, tuple[Part, ...]] = {}
        self.counts: dict[_Kind, int] = {}
        self.nodes: dict[_Kind, int] = {}
        self.stale = dict.fromkeys(nodes)
        self._kinds: dict[Key, _Kind] = {}
        self._alike: dict[tuple[Part, ...], tuple[Part, ...]] = {}
        self._seen: tuple[SimilarInterfaces, ...] | None = None

    @property
    def seen(self) -> tuple[SimilarInterfaces, ...]:
        """The interfaces of all nodes."""
        if self._seen is None:
            self._seen = tuple(kind.seen(count, self.nodes[kind], holds=True) for kind, count in self.counts.items())
        return self._seen

    def count(self, node: str, bit: int, report: NodeReport | None, asked: frozenset[str]) -> None:
        """Count a node's interfaces, in the place of its former ones."""
        groups = report.interfaces if report is not None else ()
        self._seen = None
        for kind, count in self.of_nodes.pop(node, ()):
            self.counts[kind] -= count
            self.nodes[kind] &= ~bit
            if not self.counts[kind]:
                del self.counts[kind], self.nodes[kind], self._kinds[kind.key]
        counts: dict[_Kind, int] = {}
        for key, count in (part for group in groups if not group.pools_vfs for part in _parts(group, asked)):
            made = self._kinds.get(key) or self._kinds.setdefault(key, _Kind(key))
            counts[made] = counts.get(made, 0) + count
        for kind, count in counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
            self.nodes[kind] = self.nodes.get(kind, 0) | bit
        if counts:
            self.of_nodes[node] = parts = tuple(counts.items())
            if report is not None and report.size <= MOST_BYTES and len(parts) <= MOST_PARTS:
                self.of_nodes[node] = self._alike.setdefault(parts, parts)
        if len(self._alike) > len(self.of_nodes) + FORMER:
            self._alike = {parts: parts for parts in self.of_nodes.values()}


class Nodes:
    """The reports of all nodes, and their labels."""

    def __init__(self) -> None:
        self.reports: Store[NodeReport] = Store()
        self.nodes: Store[LabelledNode] = Store()
        self._bits: dict[str, int] = {}
        self._selections: dict[frozenset[str], _Selection] = {}
        self._kinds: dict[str, tuple[NodeReport, tuple[str, ...]]] = {}

    def following(self) -> AbstractContextManager[None]:
        """Note the nodes that report again, while this is entered."""
        return self.reports.following(self._outdate)

    async def read_reports(self, asked: frozenset[str], policy: DeviceExposurePolicy | None) -> InterfaceReports:
        """The nodes' reports, by these attributes.

        Args:
            asked: attributes by qualified name.
            policy: the policy that will be in force, on the nodes that it selects; None if it is deleted.
        """
        selection = self._selections.get(asked)
        if selection is None:
            while len(self._selections) >= KEPT:
                del self._selections[next(iter(self._selections))]
            selection = self._selections[asked] = _Selection(self.reports.objects)
        await self._refresh(selection, asked)
        left, nodes = len(selection.stale), len(self.reports.objects)
        if len(selection.counts) > MOST_SEEN:
            return InterfaceReports((), nodes, nodes)
        selector = policy.spec.node_selector if policy is not None else None
        if selector is None:
            return InterfaceReports(selection.seen, nodes - left, left)
        chosen = {
            name
            for name in selection.of_nodes
            if name in self.nodes.objects and selector.matches(self.nodes.objects[name].metadata.labels)
        }
        return InterfaceReports(tuple(self._apart(selection, chosen)), nodes - left, left)

    async def most_devices(self) -> int:
        """How many devices a node has at most."""
        return max(map(len, await self._by_kind()), default=0)

    async def offers(self, asked: frozenset[str], *, named: bool) -> Offers:
        """The devices of one node of each kind, those with the most devices first.

        Args:
            asked: the attributes that matter, by qualified name.
            named: whether the nodes' names may be shown.
        """
        kinds = await self._by_kind()
        nodes: list[NodeOffer] = []
        left = MOST_DEVICES
        for names in sorted(kinds, key=len, reverse=True)[:MOST_NODES]:
            left -= len(names)
            if nodes and left < 0:
                break
            report = kinds[names]
            nodes.append(NodeOffer(report.metadata.name if named else "", tuple(offered(report.interfaces, asked))))
            await asyncio.sleep(0)
        return Offers(tuple(nodes), are_all=len(nodes) == len(kinds))

    async def _by_kind(self) -> dict[tuple[str, ...], NodeReport]:
        """The report of a node of each kind that has devices; other requests go first now and then."""
        before, now = self._kinds, {}
        alike = {names: names for _, names in before.values()}
        turn = time.monotonic()
        for node, report in tuple(self.reports.objects.items()):
            known = before.get(node)
            if known is None or known[0] is not report:
                names = offering(report.interfaces)
                known = report, alike.setdefault(names, names)
            now[node] = known
            if time.monotonic() - turn > SLICE_SECONDS:
                await asyncio.sleep(0)
                turn = time.monotonic()
        self._kinds = now
        kinds: dict[tuple[str, ...], NodeReport] = {}
        for report, names in now.values():
            if names:
                kinds.setdefault(names, report)
        return kinds

    def nowhere(self, device: CustomDevice) -> str:
        """Why a CustomDevice is applied on no present node; "" if it is applied on some, or that is unknown.

        It is unknown for an interface that the CustomDevice itself registers, and where a report has interfaces that
        are only counted.
        """
        selector = device.spec.selector or CustomDeviceSelector()
        nodes = self.nodes.objects
        if not nodes or not self.reports.synced:
            return ""
        picked = [name for name, node in nodes.items() if selector.matches(name, node.metadata.labels)]
        if not picked and selector.node_name not in ("", *nodes):
            return f'spec.selector.nodeName: "{selector.node_name}" does not match any of the {len(nodes)} nodes'
        if not picked:
            return f"spec.selector.nodeSelector: the labels do not match any of the {len(nodes)} nodes"
        reports = [self.reports.objects[name] for name in picked if name in self.reports.objects]
        reports = [report for report in reports if report.status is not None]
        wanted = device.spec.device
        if (
            device.spec.add_if_not_exist
            or not reports
            or any(_may_have(report.interfaces, wanted) for report in reports)
        ):
            return ""
        return (
            f'spec.device: device or interface "{wanted}" is not reported by any of the {len(reports)} selected nodes'
        )

    async def _refresh(self, selection: _Selection, asked: frozenset[str]) -> None:
        """Count the nodes that have reported since; other requests go first now and then."""
        begun = turn = time.monotonic()
        while selection.stale:
            node, _ = selection.stale.popitem()
            selection.count(node, self._bit(node), self.reports.objects.get(node), asked)
            now = time.monotonic()
            if now - begun > MOST_SECONDS or len(selection.counts) > MOST_SEEN:
                return
            if now - turn > SLICE_SECONDS:
                await asyncio.sleep(0)
                turn = time.monotonic()
        selection.stale = {}  # a dict keeps its size when its entries are taken

    def _apart(self, selection: _Selection, chosen: Container[str]) -> Iterator[SimilarInterfaces]:
        """The interfaces of chosen nodes, and those of the others."""
        counts: dict[tuple[_Kind, bool], list[int]] = {}
        for node, parts in selection.of_nodes.items():
            for kind, count in parts:
                entry = counts.setdefault((kind, node in chosen), [0, 0])
                entry[0] += count
                entry[1] |= self._bit(node)
        return (kind.seen(count, mask, holds=holds) for (kind, holds), (count, mask) in counts.items())

    def _bit(self, node: str) -> int:
        return 1 << self._bits.setdefault(node, len(self._bits))

    def _outdate(self, change: Change[NodeReport]) -> None:
        if len(self._bits) > 2 * len(self.reports.objects) + KEPT:
            # Many bits are of nodes that are gone.
            self._bits, self._selections = {}, {}
        for selection in self._selections.values():
            selection.stale[change.key] = None


def _may_have(groups: Iterable[InterfaceGroup], wanted: str) -> bool:
    """Whether a node reports an interface or a device of that name, or interfaces without their names."""
    return any(
        group.is_untold
        or group.has(wanted)
        or any(
            wanted == device.name or (device.suffix and group.has(wanted.removesuffix(device.suffix)))
            for device in group.devices
        )
        for group in groups
    )


def _parts(group: InterfaceGroup, asked: frozenset[str]) -> Iterator[tuple[Key, int]]:
    """A group's interfaces by the attributes that are asked for, and their numbers."""
    common, unknown = group.facts()
    facts = {name: common[name] for name in asked if name in common}
    missing = asked & unknown
    unreadable = tuple(sorted(asked - unknown - common.keys()))
    rest = unreadable, tuple(sorted(group.policies.items())), group.devices
    if not missing:
        yield _key(facts, missing, rest), group.count
        return
    # Pods' own interfaces are only counted, and no policy has matched them: they are left out.
    if group.is_untold:
        yield _key(facts, missing, rest), group.count
    for name in group.names:
        own = {key: value for key, value in group.derived_from(name, common, unknown).items() if key in asked}
        yield _key({**facts, **own}, missing - own.keys(), rest), 1


def _key(facts: Mapping[str, AttributeValue], missing: Iterable[str], rest: Key) -> Key:
    return tuple(sorted(facts.items())), tuple(sorted(missing)), *rest
