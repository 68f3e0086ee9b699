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


class SliceWrites(NamedTuple):
    """The slices to create, replace and delete, in this order: no address is missing meanwhile."""

    create: tuple[EndpointSlice, ...] = ()
    replace: tuple[EndpointSlice, ...] = ()
    delete: tuple[EndpointSlice, ...] = ()


def writes(
    service: Service,
    wanted: Mapping[EndpointGroup, Sequence[Endpoint]],
    present: Sequence[EndpointSlice],
    taken: AbstractSet[str] = frozenset(),
) -> SliceWrites:
    """The writes after which the slices of a Service have the wanted endpoints.

    Args:
        service: the Service.
        wanted: its endpoints by family and ports; a group may be empty.
        present: netdra's slices of the Service.
        taken: names of slices that are not netdra's.
    """
    by_group: dict[EndpointGroup, list[EndpointSlice]] = {}
    for entry in sorted(present, key=lambda entry: entry.metadata.name):
        by_group.setdefault(_group_of(entry), []).append(entry)
    kept: list[tuple[EndpointSlice, EndpointSlice]] = []
    new: list[EndpointSlice] = []
    names = _free_names(service, {entry.metadata.name for entry in present} | taken)
    for group, endpoints in wanted.items():
        placed, left = _place(endpoints, by_group.get(group, []))
        kept += [(before, _slice(service, group, content, before)) for before, content in placed]
        new += [_slice(service, group, content, next(names)) for content in left]
    kept_names = {before.metadata.name for before, _ in kept}
    return SliceWrites(
        create=tuple(new),
        replace=tuple(after for before, after in kept if not _is_same(before, after)),
        delete=tuple(entry for entry in present if entry.metadata.name not in kept_names),
    )


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


def _is_same(before: EndpointSlice, after: EndpointSlice) -> bool:
    return _content(before) == _content(after)


def _content(entry: EndpointSlice) -> tuple[object, ...]:
    metadata = entry.metadata
    return dict(metadata.labels), metadata.owner_references, entry.endpoints or (), entry.ports or ()


def _free_names(service: Service, used: AbstractSet[str]) -> Iterator[str]:
    names = (f"{service.metadata.name}{_SUFFIX}{number}" for number in itertools.count())
    return (name for name in names if name not in used)
