"""The errors and warnings of a NetworkTopology: by itself, by the objects that it names, and for its users. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from netdra.exposure.device_selectors import single_vf
from netdra.model.findings import Finding, about
from netdra.model.schema import CNIPluginSchema
from netdra.model.suggestions import closest, listed
from netdra.model.topology import BUILTIN_TYPES, NetworkTopology, NetworkTopologySpec
from netdra.review import searches
from netdra.review.world import World, topologies_of_class
from netdra.rules import addresses, contract, network_mtus, pod_networks, shipped
from netdra.rules.topologies import check_names, check_topology, check_unwise
from netdra.topology.classes import class_name

SHOWN = 5


def errors(new: NetworkTopology, world: World, old: NetworkTopology | None = None) -> Iterator[Finding]:
    """The errors of a topology; `old` is it as it is, None if it is new."""
    schemas = sound(world)
    # Rejections by rules that are newer than the topology can be corrected while pods use it: they keep their networks
    # (D52).
    used = _frozen(new, old, world.users)
    if used is not None and (old is None or not check_topology(old, schemas)):
        yield used
        return
    yield from check_topology(new, schemas)
    if not world.is_stored:
        yield from (finding for finding, wrong in check_names(new, world.added) if wrong)
    yield from addresses.default_routes(new)
    yield from pod_networks.check_steps(new, world.pod_networks)
    if old is None or shape(new) != shape(old):
        yield from (f for f, wrong in searches.of_rdma_modes(new, world.policies, world.offers) if wrong)


def warnings(new: NetworkTopology, world: World, in_time: Callable[[], bool]) -> Iterator[Finding]:
    """The warnings for the author of a topology without errors; `in_time` is as for `Allocator.foresee`."""
    schemas = sound(world)
    yield from _waiting(new, world)
    yield from _foreign(new, world)
    yield from _unchecked(new, schemas)
    yield from check_unwise(new)
    yield from addresses.unwise(new)
    exposed = [policy.spec.exposure for policy in world.policies.values() if policy.spec.exposure is not None]
    # Without any policy it is unknown what those of the cluster permit.
    yield from addresses.unreached(new, may_keep=not exposed or any(entry.keep for entry in exposed))
    for at, step in enumerate(new.spec.steps):
        why = single_vf(step.selector.cel, world.policies.values()) if step.selector is not None else ""
        if why:
            yield about(
                new.name, step.name, f"its selector {why}", path=("spec", "steps", at, "selector", "cel"), code="ND1253"
            )
    yield from (finding for finding, wrong in check_names(new, world.added) if not wrong)
    yield from pod_networks.missing(new, world.pod_networks, world.where)
    yield from network_mtus.check(new, world.pod_networks)
    yield from (f for f, wrong in searches.of_rdma_modes(new, world.policies, world.offers) if not wrong)
    yield from searches.of_topology(new, world.policies, world.offers, in_time)
    yield from searches.of_facts(new, schemas, world.policies, world.offers, in_time)


def sound(world: World) -> list[CNIPluginSchema]:
    """The world's own schemas that do not contradict themselves; the others do not count."""
    own = shipped.own_of(world.schemas.values())
    return [schema for schema in own if world.offline or not contract.examine(schema)[1]]


def shape(topology: NetworkTopology) -> NetworkTopologySpec:
    """The part of a topology that running pods depend on: not the choice of devices, nor what its author permits."""
    steps = tuple(
        replace(step, selector=None, extended_resource_name="", default_route=False) for step in topology.spec.steps
    )
    return replace(topology.spec, steps=steps)


def _frozen(new: NetworkTopology, old: NetworkTopology | None, users: Sequence[str]) -> Finding | None:
    if not users or old is None or shape(new) == shape(old):
        return None
    plural = "s" if len(users) > 1 else ""
    named = tuple(filter(None, users))
    which = f" ({listed(named, SHOWN)})" if named else ", including steps that are only in its status"
    return Finding(
        what=f'NetworkTopology "{new.name}" is used by {len(users)} ResourceClaim{plural} of attached '
        f"pods{which}; its steps cannot be changed",
        hint="create a topology with another name, or delete these pods first; selectors can be changed",
        code="ND1254",
    )


def _waiting(new: NetworkTopology, world: World) -> Iterator[Finding]:
    if world.waiting:
        plural, verb = ("s", "are") if world.waiting > 1 else ("", "is")
        yield Finding(
            what=f'NetworkTopology "{new.name}": {world.waiting} ResourceClaim{plural} that {verb} '
            "allocated but not attached will use the new steps if their requests still match",
            code="ND1255",
        )


def _foreign(new: NetworkTopology, world: World) -> Iterator[Finding]:
    for at, step in enumerate(new.spec.steps):
        name = class_name(new.name, step.name)
        device_class = world.classes.get(name) if step.is_root else None
        brought = frozenset() if device_class is None else topologies_of_class(device_class)
        # Two topologies with classes of one name are an error of their own.
        if device_class is not None and not brought & {new.name, *world.topologies}:
            what = f'DeviceClass "{name}" already exists and is not managed by netdra; netdra does not change it'
            hint = "rename the step, or delete the DeviceClass"
            yield about(new.name, step.name, what, hint=hint, path=("spec", "steps", at, "name"), code="ND1256")


def _unchecked(new: NetworkTopology, schemas: Sequence[CNIPluginSchema]) -> Iterator[Finding]:
    plugins = {schema.spec.plugin for schema in schemas} | set(shipped.names()) | BUILTIN_TYPES
    for at, step in enumerate(new.spec.steps):
        if step.plugin not in plugins:
            what = f'no CNIPluginSchema describes plugin "{step.type}"; its config is not validated'
            meant = closest(step.type, sorted(plugins))
            hint = f'did you mean "{meant}"?' if meant else ""
            yield about(new.name, step.name, what, hint=hint, path=("spec", "steps", at, "type"), code="ND1257")
