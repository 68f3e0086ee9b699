"""Which EndpointSlices a Service should have, and the fewest writes that lead there.

An endpoint stays in the slice that has it, so a change of one pod writes one slice. Names are numbered, so two
controllers that work at the same time create one slice and not two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.pod_address import Family
from netdra.model.service import (
    HEADLESS,
    MANAGED_BY,
    MANAGER,
    RESERVED_LABELS,
    SERVICE_NAME,
    Endpoint,
    EndpointSlice,
    Service,
)
from netdra.services.endpoints import EndpointGroup

MAX_ENDPOINTS = 100
"""How many endpoints a slice has at most: Kubernetes' own default."""
_SUFFIX = "-netdra-"


EndpointKey = tuple[str, ...]


class SliceWrite(NamedTuple):
    """The write of one slice.

    Attributes:
        before: the slice as it is stored; None to create it.
        after: the slice as it should be; None to delete it.
        remaining: the stored slice without the endpoints that are gone, the others as they are now: for the time until
            `after` is possible. None if that is the stored slice.
        gained: the endpoints that only `after` has.
        moved: the endpoints that other slices have from now on. It must not be written before those.
        loses: whether an endpoint of the stored slice is gone.
    """

    before: EndpointSlice | None
    after: EndpointSlice | None
    remaining: EndpointSlice | None = None
    gained: frozenset[EndpointKey] = frozenset()
    moved: frozenset[EndpointKey] = frozenset()
    loses: bool = False


class SliceWrites(NamedTuple):
    """The writes of slices, in this order: endpoints that are gone go first, and no other address is missing meanwhile.

    Each write is by itself: where the API server refuses one, only those wait whose `moved` it has gained.
    """

    steps: tuple[SliceWrite, ...] = ()

    @property
    def create(self) -> tuple[EndpointSlice, ...]:
        """The new slices."""
        return tuple(step.after for step in self.steps if step.before is None and step.after is not None)

    @property
    def replace(self) -> tuple[EndpointSlice, ...]:
        """The changed slices, as they should be."""
        return tuple(step.after for step in self.steps if step.before is not None and step.after is not None)

    @property
    def delete(self) -> tuple[EndpointSlice, ...]:
        """The unwanted slices."""
        return tuple(step.before for step in self.steps if step.after is None and step.before is not None)


def deletes(present: Sequence[EndpointSlice]) -> SliceWrites:
    """The writes after which none of the slices is left."""
    return SliceWrites(tuple(SliceWrite(entry, None, loses=True) for entry in present))


def writes(
    service: Service,
    wanted: Mapping[EndpointGroup, Sequence[Endpoint]],
    present: Sequence[EndpointSlice],
    taken: AbstractSet[str] = frozenset(),
) -> SliceWrites:
    """The writes after which the slices of a Service have the wanted endpoints.

    Args:
        wanted: its endpoints by family and ports; a group may be empty.
        present: netdra's slices of the Service.
        taken: names of slices that are not netdra's.
    """
    by_group: dict[EndpointGroup, list[EndpointSlice]] = {}
    for entry in sorted(present, key=lambda entry: entry.metadata.name):
        by_group.setdefault(_group_of(entry), []).append(entry)
    kept: list[tuple[EndpointSlice, EndpointSlice]] = []
    new: list[tuple[EndpointGroup, list[Endpoint]]] = []
    for group, endpoints in wanted.items():
        placed, left = _place(endpoints, by_group.get(group, []))
        kept += [(before, _slice(service, group, content, before)) for before, content in placed]
        new += [(group, content) for content in left]
    names = {before.metadata.name for before, _ in kept}
    unused = [entry for entry in present if entry.metadata.name not in names]
    reused, new = _reuse(service, new, unused)
    names |= {before.metadata.name for before, _ in reused}
    free = _free_names(service, {entry.metadata.name for entry in present} | taken)
    created = (_slice(service, group, content, next(free)) for group, content in new)
    by_key = {endpoint.key: endpoint for endpoints in wanted.values() for endpoint in endpoints}
    steps = [
        *(_write(entry, None, by_key) for entry in unused if entry.metadata.name not in names),
        *(_write(before, after, by_key) for before, after in (*kept, *reused) if _content(before) != _content(after)),
        *(_write(None, entry, by_key) for entry in created),
    ]
    return SliceWrites(tuple(sorted(steps, key=_turn)))


def _turn(step: SliceWrite) -> tuple[bool, bool, bool]:
    """The order of writes: those whose endpoints have another slice afterwards are last, and deletes of them very last.

    Otherwise new slices come after those that exist, whose former addresses may be another tenant's by now.
    """
    return bool(step.moved), step.before is None, bool(step.moved) and step.after is None


def _write(
    before: EndpointSlice | None, after: EndpointSlice | None, by_key: Mapping[EndpointKey, Endpoint]
) -> SliceWrite:
    stored, desired = _keys(before), _keys(after)
    living = stored & by_key.keys()
    remaining = None
    if before is not None:
        endpoints = tuple(by_key[entry.key] for entry in before.endpoints or () if entry.key in by_key)
        if endpoints != (before.endpoints or ()):
            remaining = replace(before, endpoints=endpoints)
    return SliceWrite(before, after, remaining, desired - stored, living - desired, loses=living != stored)


def _keys(entry: EndpointSlice | None) -> frozenset[EndpointKey]:
    return frozenset(endpoint.key for endpoint in entry.endpoints or ()) if entry is not None else frozenset()


def _reuse(
    service: Service, new: Sequence[tuple[EndpointGroup, list[Endpoint]]], unused: Sequence[EndpointSlice]
) -> tuple[list[tuple[EndpointSlice, EndpointSlice]], list[tuple[EndpointGroup, list[Endpoint]]]]:
    """Put new slices in the place of unused ones of their family, as Kubernetes does, and return those that are left.

    So a quota of slices that is used up does not keep a Service from getting other ports.
    """
    spare, reused, left = [*unused], [], []
    for group, content in new:
        place = next((entry for entry in spare if entry.address_type == group.family), None)
        if place is None:
            left.append((group, content))
        else:
            spare.remove(place)
            reused.append((place, _slice(service, group, content, place)))
    return reused, left


def _place(
    endpoints: Sequence[Endpoint], present: Sequence[EndpointSlice]
) -> tuple[list[tuple[EndpointSlice, list[Endpoint]]], list[list[Endpoint]]]:
    """The endpoints that each present slice has from now on, and those of new slices.

    Slices that are left half empty by many changes are packed again, in fewer writes than they are slices.
    """
    by_key = {endpoint.key: endpoint for endpoint in endpoints}
    count = max(1, -(-len(by_key) // MAX_ENDPOINTS))
    slots = [(before, _keep(before, by_key)) for before in present]
    slots = [slot for slot in slots if slot[1]] or slots[:1]
    if len(slots) > 2 * count:
        for _, content in slots[count:]:
            by_key |= {endpoint.key: endpoint for endpoint in content}
        slots = slots[:count]
    rest = iter(by_key.values())
    for _, content in sorted(slots, key=lambda slot: -len(slot[1])):
        content += itertools.islice(rest, MAX_ENDPOINTS - len(content))
    new = [*iter(lambda: [*itertools.islice(rest, MAX_ENDPOINTS)], [])]
    return slots, new if new or slots else [[]]


def _keep(before: EndpointSlice, by_key: dict[tuple[str, ...], Endpoint]) -> list[Endpoint]:
    """Take the endpoints that a slice has already, as they are now."""
    keys = [endpoint.key for endpoint in before.endpoints or ()][:MAX_ENDPOINTS]
    return [by_key.pop(key) for key in keys if key in by_key]


def _slice(
    service: Service, group: EndpointGroup, content: Sequence[Endpoint], place: EndpointSlice | str
) -> EndpointSlice:
    metadata = service.metadata
    owner = OwnerReference(api_version="v1", kind="Service", name=metadata.name, uid=metadata.uid, controller=True)
    present = ObjectMeta(name=place) if isinstance(place, str) else place.metadata
    return EndpointSlice(
        metadata=replace(
            present, namespace=metadata.namespace, labels=_labels(service), owner_references=(owner,), annotations={}
        ),
        address_type=group.family,
        endpoints=tuple(content),
        ports=group.ports,
    )


def _labels(service: Service) -> dict[str, str]:
    """Those of the Service, as Kubernetes' own slices have them: consumers select by them."""
    labels = {key: value for key, value in service.metadata.labels.items() if key not in RESERVED_LABELS}
    headless = {HEADLESS: ""} if service.is_headless else {}
    return labels | headless | {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}


def _group_of(entry: EndpointSlice) -> EndpointGroup:
    family: Family = "IPv6" if entry.address_type == "IPv6" else "IPv4"
    return EndpointGroup(family, entry.ports or ())


def _content(entry: EndpointSlice) -> tuple[object, ...]:
    metadata = entry.metadata
    return dict(metadata.labels), metadata.owner_references, entry.endpoints or (), entry.ports or ()


def _free_names(service: Service, used: AbstractSet[str]) -> Iterator[str]:
    names = (f"{service.metadata.name}{_SUFFIX}{number}" for number in itertools.count())
    return (name for name in names if name not in used)
