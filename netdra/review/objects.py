"""The review of an object by all rules of its kind, and of many objects that are written together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from netdra.exposure.ranks import RankIndex
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.custom_device import CustomDevice
from netdra.model.findings import Finding, about_object
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.review import (
    beside,
    claims,
    custom_devices,
    device_classes,
    pod_networks,
    policies,
    schemas,
    topologies,
)
from netdra.review.world import World
from netdra.rules import variables
from netdra.rules.cni_plugins import check_plugin

Clock = Callable[[], bool]
"""Whether there is time to continue with what decides nothing."""


class ObjectFindings(msgspec.Struct, frozen=True):
    """The errors of an object, or else the warnings for its author."""

    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()


def review(value: object, world: World, old: object = None, in_time: Clock = lambda: True) -> ObjectFindings:
    """ObjectFindings an object that is about to be written; of kinds without rules nothing is wrong.

    Args:
        value: the object as it will be.
        world: the other objects.
        old: the object as it is; None if it is new.
        in_time: whether there is time for warnings that take long.
    """
    if errors := (*_errors(value, world, old), *_beside(beside.errors, value, world)):
        return ObjectFindings(errors)
    return ObjectFindings((), (*_warnings(value, world, old, in_time), *_beside(beside.warnings, value, world)))


def _show_no_progress() -> None:
    pass


def errors(values: Sequence[object], world: World, advance: Callable[[], None] = _show_no_progress) -> beside.Beside:
    """The errors of objects that are written together; `world` has them all. `advance` is called after each object."""
    for value in values:
        yield from ((value, finding) for finding in _errors(value, world, None))
        advance()
    yield from beside.errors(values)


def warnings(values: Sequence[object], world: World, advance: Callable[[], None] = _show_no_progress) -> beside.Beside:
    """The warnings for authors of objects that are written together, of those without errors.

    Args:
        values: the objects without errors.
        world: all of them.
        advance: called after each object.
    """
    ranks = RankIndex(world.policies.values())
    for value in values:
        its = replace(world, rivals=ranks.of(value)) if isinstance(value, DeviceExposurePolicy) else world
        yield from ((value, finding) for finding in _warnings(value, its, None, lambda: True))
        advance()
    yield from beside.warnings(values)
    yield from beside.hiding(values)
    yield from claims.beside(values, world)


class _Rules(NamedTuple):
    """The rules of a kind."""

    errors: Callable[[Any, World, Any], Iterable[Finding]]
    warnings: Callable[[Any, World, Any, Clock], Iterable[Finding]]


_CLAIMS = _Rules(lambda new, world, _: claims.errors(new, world), lambda new, world, *_: claims.warnings(new, world))
_KINDS: Mapping[type, _Rules] = {
    NetworkTopology: _Rules(topologies.errors, lambda new, world, _, in_time: topologies.warnings(new, world, in_time)),
    DeviceExposurePolicy: _Rules(lambda new, world, _: policies.errors(new, world), policies.warnings),
    CNIPluginSchema: _Rules(lambda new, *_: schemas.errors(new), lambda new, world, *_: schemas.warnings(new, world)),
    CNIPlugin: _Rules(lambda new, *_: check_plugin(new), lambda *_: ()),
    CustomDevice: _Rules(
        lambda new, *_: custom_devices.errors(new), lambda new, world, *_: custom_devices.warnings(new, world)
    ),
    PodNetwork: _Rules(
        lambda new, *_: pod_networks.errors(new), lambda new, world, *_: pod_networks.warnings(new, world)
    ),
    DeviceClass: _Rules(
        lambda new, world, _: device_classes.errors(new, world),
        lambda new, world, *_: device_classes.warnings(new, world),
    ),
    ResourceClaim: _CLAIMS,
    ResourceClaimTemplate: _CLAIMS,
}


def _errors(value: object, world: World, old: object) -> Iterable[Finding]:
    rules = _KINDS.get(type(value))
    return rules.errors(value, world, old) if rules is not None else ()


def _warnings(value: object, world: World, old: object, in_time: Clock) -> Iterator[Finding]:
    rules = _KINDS.get(type(value))
    yield from rules.warnings(value, world, old, in_time) if rules is not None else ()
    if isinstance(value, NetworkTopology | DeviceExposurePolicy | CustomDevice | PodNetwork):
        found = variables.unreplaced(value.spec)
        yield from (about_object(type(value).__name__, value.metadata.name, finding) for finding in found)


def _beside(find: Callable[[Iterable[object]], beside.Beside], value: object, world: World) -> Iterator[Finding]:
    """The findings of an object beside the others of its kind."""
    others: Mapping[str, NetworkTopology | PodNetwork] = {}
    if isinstance(value, NetworkTopology):
        others = world.topologies
    elif isinstance(value, PodNetwork):
        others = world.pod_networks
    else:
        return
    before = (other for name, other in sorted(others.items()) if name != value.name)
    yield from (finding for found, finding in find([*before, value]) if found is value)
