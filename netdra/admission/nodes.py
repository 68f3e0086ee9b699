"""What nodes report of their interfaces, ready to be asked what a policy would change.

Kept by `netdra.admission.copy`, asked by `netdra.admission.server`, which sends the answer to a worker with the policy.
Most interfaces of a cluster are alike in all that one selector asks for, so they are counted together: 50 nodes of 400
interfaces come to a few dozen entries. What was made of a node is kept until the node reports anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from netdra.exposure.foresight import Reported, Seen
from netdra.kube.resources import ClusterNode
from netdra.kube.store import Change, Store
from netdra.model.inventory import AttributeValue
from netdra.model.node_network import InterfaceGroup, NodeInterfaces
from netdra.model.policy import DeviceExposurePolicy

SLICE_SECONDS = 0.002
"""How long one look may keep other requests waiting before it lets them go first."""
MOST_SECONDS = 0.1
"""How long a look may take altogether; nodes that are not reached by then are not counted."""
MOST_SEEN = 1500
KEPT = 32
"""For how many selections of attributes the work is kept."""

Key = tuple[Any, ...]


class _Kind:
    """Interfaces that are alike, wherever they are: one object for each key, which is compared by identity."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def seen(self, count: int, nodes: int, holds: bool) -> Seen:
        """So many of them, on these nodes."""
        facts, unknown, unreadable, standings, devices = self.key
        return Seen(dict(facts), unknown, unreadable, dict(standings), devices, count, f"{nodes:x}", holds)


Part = tuple[_Kind, int]
"""Interfaces of one node that are alike, and how many they are."""


class Nodes:
    """The reports of all nodes, and their labels."""

    def __init__(self) -> None:
        self.reports: Store[NodeInterfaces] = Store()
        self.nodes: Store[ClusterNode] = Store()
        self._kinds: dict[Key, _Kind] = {}
        self._parts: dict[frozenset[str], dict[str, tuple[Part, ...]]] = {}
        self._merged: dict[frozenset[str], Reported] = {}

    def following(self) -> AbstractContextManager[None]:
        """Drop what is made of a node when it reports anew, while this is entered."""
        return self.reports.following(self._outdate)

    async def reported(self, asked: frozenset[str], policy: DeviceExposurePolicy | None) -> Reported:
        """What nodes report, as far as these attributes go.

        Args:
            asked: attributes by qualified name.
            policy: the policy that will be in force, on the nodes that it selects; None if it is deleted.
        """
        selector = policy.spec.node_selector if policy is not None else None
        if selector is None and asked in self._merged:
            return self._merged[asked]
        labels = {} if selector is None else {name: each.metadata.labels for name, each in self.nodes.objects.items()}
        holds: Callable[[str], bool] = (
            (lambda _: True) if selector is None else (lambda node: selector.matches(labels.get(node, {})))
        )
        merged = self._merged
        found = await self._merge(asked, holds)
        if selector is None and not found.left and len(merged) < KEPT:
            merged[asked] = found
        return found

    async def _merge(self, asked: frozenset[str], holds: Callable[[str], bool]) -> Reported:
        begun = turn = time.monotonic()
        counts: dict[tuple[_Kind, bool], list[int]] = {}
        nodes = tuple(self.reports.objects)
        looked = 0
        for bit, node in enumerate(nodes):
            held = holds(node)
            for kind, count in self._of_node(asked, node):
                entry = counts.setdefault((kind, held), [0, 0])
                entry[0] += count
                entry[1] |= 1 << bit
            looked += 1
            now = time.monotonic()
            if now - begun > MOST_SECONDS or len(counts) > MOST_SEEN:
                break
            if now - turn > SLICE_SECONDS:
                await asyncio.sleep(0)
                turn = time.monotonic()
        seen = tuple(kind.seen(count, mask, held) for (kind, held), (count, mask) in counts.items())
        return Reported(seen, looked, len(nodes) - looked)

    def _of_node(self, asked: frozenset[str], node: str) -> tuple[Part, ...]:
        of_nodes = self._parts.get(asked)
        if of_nodes is None:
            while len(self._parts) >= KEPT:
                del self._parts[next(iter(self._parts))]
            of_nodes = self._parts[asked] = {}
        found = of_nodes.get(node)
        if found is None:
            report = self.reports.objects.get(node)
            groups = report.status.interfaces if report is not None and report.status is not None else ()
            counts: dict[_Kind, int] = {}
            for key, count in (part for group in groups for part in _parts(group, asked)):
                kind = self._kinds.get(key)
                if kind is None:
                    kind = self._kinds[key] = _Kind(key)
                counts[kind] = counts.get(kind, 0) + count
            found = of_nodes[node] = tuple(counts.items())
        return found

    def _outdate(self, change: Change[NodeInterfaces]) -> None:
        self._merged = {}
        for of_nodes in self._parts.values():
            of_nodes.pop(change.key, None)
        if len(self._kinds) > 16 * MOST_SEEN:
            # Kinds that no node has any more are not told apart from others; all are made anew.
            self._kinds, self._parts = {}, {}


def _parts(group: InterfaceGroup, asked: frozenset[str]) -> Iterator[tuple[Key, int]]:
    """A group's interfaces by what is asked for of them, and how many they are."""
    known, unknown = group.facts()
    facts = {name: known[name] for name in asked if name in known}
    missing = asked & unknown
    unreadable = tuple(sorted(asked - unknown - known.keys()))
    rest = unreadable, tuple(sorted(group.policies.items())), group.devices
    named = group.names if missing else ()
    for name in named:
        own = {key: value for key, value in group.told_by(name, known, unknown).items() if key in asked}
        yield _key({**facts, **own}, missing - own.keys(), rest), 1
    if group.count > len(named):
        yield _key(facts, missing, rest), group.count - len(named)


def _key(facts: Mapping[str, AttributeValue], missing: Iterable[str], rest: Key) -> Key:
    return tuple(sorted(facts.items())), tuple(sorted(missing)), *rest
