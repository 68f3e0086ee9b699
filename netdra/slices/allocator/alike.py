"""Nodes and devices that are alike for some claims: what holds of one of them holds of the others.

Asked by `allocator` before it searches a node, and by `netdra top`, which counts the devices of each class. In a
cluster most nodes are of a few kinds, and devices of a kind differ in attributes that no selector asks for, such as
their MAC addresses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from netdra.cel import CelEvaluationError
from netdra.model import names
from netdra.model.resource import Device, ResourceSlice
from netdra.slices.allocator.ledger import Ledger
from netdra.slices.allocator.pools import Candidate, PoolKey, SliceIndex
from netdra.slices.allocator.wishes import ClaimTask, Selectors, asked
from netdra.slices.nodes import SchedulerNode

_TYPE = (names.DRIVER, "type")
"""Explanations name it with a device."""
_encoder = msgspec.json.Encoder()


class AlikeNodes:
    """Groups nodes that are equal for a pod's claims, so that one search answers for all of a group."""

    def __init__(self, index: SliceIndex, ledger: Ledger) -> None:
        self._index = index
        self._ledger = ledger
        self._plain: dict[str, _Plain | None] = {}
        self._asked: dict[bytes, frozenset[tuple[str, str]] | None] = {}
        self._digests: dict[tuple[str, frozenset[tuple[str, str]] | None], bytes] = {}

    def kind(self, node: SchedulerNode, tasks: Sequence[ClaimTask]) -> bytes | None:
        """The kind of a node: on nodes of one kind claims fit or do not fit alike, and for the same reasons.

        Nodes whose own devices claims have, and nodes with parts of pools of others, have no kind.
        """
        if node.name not in self._plain:
            self._plain[node.name] = self._plain_of(node)
        plain = self._plain[node.name]
        if plain is None or any(map(self._ledger.version, plain.pools)):
            return None
        shape = b"\n".join(entry.shape for entry in tasks)
        if shape not in self._asked:
            self._asked[shape] = asked(tasks)
        attributes = self._asked[shape]
        digest = self._digests.get((node.name, attributes))
        if digest is None:
            digest = self._digests[node.name, attributes] = self._digest(node, attributes)
        common = [(number, self._ledger.version(pool)) for number, pool in plain.common]
        return b"\n".join((digest, _encoder.encode(common), shape))

    def _plain_of(self, node: SchedulerNode) -> _Plain | None:
        pools, common = self._index.own_pools(node), self._index.common_slices(node)
        if pools is None or common is None:
            return None
        places = ((id(published), (published.spec.driver, published.spec.pool.name)) for published in common)
        return _Plain(tuple(pools), tuple(places))

    def _digest(self, node: SchedulerNode, attributes: frozenset[tuple[str, str]] | None) -> bytes:
        keys = None if attributes is None else _keys(attributes | {_TYPE})
        hashed = hashlib.blake2b(digest_size=16, usedforsecurity=False)
        for (driver, _), slices in (self._index.own_pools(node) or {}).items():
            hashed.update(_encoder.encode((driver, len(slices))))
            for published in slices:
                hashed.update(_content(published, keys))
        return hashed.digest()


def grouped(asked_for: Iterable[Selectors], candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Devices with the same values of all that any of these expressions asks for, together."""
    known = (selectors.attributes for selectors in asked_for)
    keys = _keys(frozenset[tuple[str, str]]().union(*(attributes for attributes in known if attributes is not None)))
    groups: dict[bytes, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(_values(candidate, keys), []).append(candidate)
    return list(groups.values())


def matching(selectors: Selectors, groups: Iterable[Sequence[Candidate]]) -> Iterator[Candidate]:
    """The devices for which all expressions hold; devices with the same read attributes are evaluated once.

    Args:
        selectors: the expressions.
        groups: devices, from `grouped` with these expressions among others.
    """
    if selectors.attributes is None:
        yield from (candidate for group in groups for candidate in group if _holds(selectors, candidate))
        return
    keys = _keys(selectors.attributes)
    answers: dict[bytes, bool] = {}
    for group in groups:
        values = _values(group[0], keys)
        if values not in answers:
            answers[values] = _holds(selectors, group[0])
        if answers[values]:
            yield from group


def _values(candidate: Candidate, keys: Sequence[str]) -> bytes:
    """All of a device that may decide about an answer; see `_content`."""
    device = candidate.device
    attributes = [device.attributes.get(key) for key in keys]
    return _encoder.encode((candidate.key[0], candidate.shared, attributes, device.capacity))


def _holds(selectors: Selectors, candidate: Candidate) -> bool:
    try:
        return selectors.first_false(candidate) < 0
    except CelEvaluationError:
        return False


class _Plain(NamedTuple):
    """A node's own pools, and the slices for several nodes that are for this one, each with its pool."""

    pools: tuple[PoolKey, ...]
    common: tuple[tuple[int, PoolKey], ...]


def _keys(attributes: frozenset[tuple[str, str]]) -> tuple[str, ...]:
    """The names under which devices may publish attributes: without a domain, they are of the driver's."""
    return tuple(sorted({name for pair in attributes for name in ("/".join(pair), pair[1])}))


def _content(published: ResourceSlice, keys: Sequence[str] | None) -> bytes:
    """All that may decide about a slice's devices.

    Attributes that no selector reads decide nothing: no published value is so long that an expression is bounded by it.
    """
    devices = published.spec.devices
    if keys is not None:
        devices = tuple(_bare(device, keys) for device in devices)
    return _encoder.encode((published.spec.shared_counters, devices))


def _bare(device: Device, keys: Sequence[str]) -> Device:
    attributes = device.attributes
    return replace(device, attributes={key: attributes[key] for key in keys if key in attributes})
