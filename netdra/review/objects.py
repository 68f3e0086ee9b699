"""The review of an object by all rules of its kind, and of many objects that are written together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from netdra.exposure.check import check
from netdra.exposure.ranks import RankIndex
from netdra.exposure.unwise import hidden
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.custom_device import CustomDevice
from netdra.model.findings import Finding, about_object
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.review import claims, custom_devices, policies, schemas, topologies
from netdra.review.claims import of_selectors
from netdra.review.world import World
from netdra.rules import network_mtus, networks, pod_networks, taken_ranges, variables
from netdra.rules.asks import check_asks
from netdra.rules.classes import check_class, check_config, check_reference
from netdra.rules.cni_plugins import check_plugin
from netdra.rules.topologies import check_together
from netdra.topology.selectors import check_selectors

_NAMING_PLACES = frozenset({"NetworkTopology", "ResourceClaim", "ResourceClaimTemplate"})
"""The kinds of which findings name the steps and requests."""
Clock = Callable[[], bool]
"""Whether there is time to continue with what decides nothing."""
Beside = Iterator[tuple[object, Finding]]
"""Objects, each with a finding of it."""


class ObjectFindings(msgspec.Struct, frozen=True):
    """The errors of an object, or else the warnings for its author."""

    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()


def review(value: object, world: World, old: object = None, in_time: Clock = lambda: True) -> ObjectFindings:
    """Review an object that is about to be written; of kinds without rules nothing is wrong.

    Args:
        value: the object as it will be.
        world: the other objects.
        old: the object as it is; None if it is new.
        in_time: whether there is time for warnings that take long.
    """
    if errors := (*_errors(value, world, old), *_beside(_errors_beside, value, world)):
        return ObjectFindings(errors)
    return ObjectFindings((), (*_warnings(value, world, old, in_time), *_beside(_warnings_beside, value, world)))


def text_of(kind: str, finding: Finding) -> str:
    """A finding about an object, with its place unless the text names the step or the request that it is about."""
    return finding.text if kind in _NAMING_PLACES else finding.text_at_path


def _show_no_progress() -> None:
    pass


def errors(values: Sequence[object], world: World, advance: Callable[[], None] = _show_no_progress) -> Beside:
    """The errors of objects that are written together; `world` has them all. `advance` is called after each object."""
    for value in values:
        yield from ((value, finding) for finding in _errors(value, world, None))
        advance()
    yield from _errors_beside(values)


def warnings(values: Sequence[object], world: World, advance: Callable[[], None] = _show_no_progress) -> Beside:
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
    yield from _warnings_beside(values)
    yield from _hiding(values)
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
    PodNetwork: _Rules(lambda new, *_: pod_networks.check(new), lambda new, world, *_: _network_warnings(new, world)),
    DeviceClass: _Rules(
        lambda new, world, _: _class_errors(new, world), lambda new, world, *_: _class_warnings(new, world)
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


def _beside(find: Callable[[Iterable[object]], Beside], value: object, world: World) -> Iterator[Finding]:
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


def _errors_beside(values: Iterable[object]) -> Beside:
    """The errors of objects beside those before them: of two that clash, the later one has the finding."""
    present = {value.name: value for value in values if isinstance(value, NetworkTopology)}
    yield from ((present[name], finding) for name, finding in check_together(present))


def _warnings_beside(values: Iterable[object]) -> Beside:
    """The warnings for authors of objects without errors, beside those before them."""
    given = tuple(values)
    by_name = {value.name: value for value in given if isinstance(value, PodNetwork)}
    yield from ((by_name[name], finding) for name, finding in pod_networks.overlaps(by_name.values()))
    present = {value.name: value for value in given if isinstance(value, NetworkTopology)}
    yield from ((present[name], finding) for name, finding in networks.overlaps(present.values()))


def _hiding(values: Iterable[object]) -> Beside:
    """The warnings for policies that take devices from others in no certain way."""
    usable = [value for value in values if isinstance(value, DeviceExposurePolicy) and not check(value)]
    for policy, finding in hidden(usable):
        yield policy, about_object("DeviceExposurePolicy", policy.name, finding)


def _class_errors(given: DeviceClass, world: World) -> Iterator[Finding]:
    """The errors of a class, as far as it has configuration for netdra."""
    yield from check_class(given)
    if world.offline:
        yield from check_config(given, topologies.sound(world))
        yield from check_selectors(given)
        yield from (finding for finding, wrong in _class_names(given, world) if wrong)


def _class_warnings(given: DeviceClass, world: World) -> Iterator[Finding]:
    if world.offline:
        yield from (finding for finding, wrong in _class_names(given, world) if not wrong)
    yield from of_selectors(given, world)


def _class_names(given: DeviceClass, world: World) -> Iterator[tuple[Finding, bool]]:
    """The names in a class that nothing has, and whether that is certain."""
    yield from check_reference(given, world.topologies)
    yield from check_asks(given, world.added)


def _network_warnings(new: PodNetwork, world: World) -> Iterator[Finding]:
    """The warnings for a PodNetwork: of itself, of ranges that are already used, and for topologies."""
    yield from taken_ranges.overlaps(new, world.taken)
    yield from pod_networks.unusable(new)
    if not world.offline:
        unfit = [*_unfit(new, world.topologies.values())]
        yield from unfit[: topologies.SHOWN]
        if len(unfit) > topologies.SHOWN:
            yield Finding(f"{len(unfit) - topologies.SHOWN} more warnings like these are not shown", code="ND1245")


def _unfit(network: PodNetwork, users: Iterable[NetworkTopology]) -> Iterator[Finding]:
    """Warnings for steps of topologies that no longer have the VLAN or the MTU of their network."""
    for topology in users:
        yield from pod_networks.check_steps(topology, {network.name: network})
        yield from network_mtus.check(topology, {network.name: network})
