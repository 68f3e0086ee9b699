"""A NetworkTopology that is about to be written: by itself, beside the others, and with its users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from netdra.admission import searches
from netdra.admission.cluster import Cluster, topologies_of_class
from netdra.admission.messages import Verdict
from netdra.exposure.device_selectors import single_vf
from netdra.model.findings import Finding, about
from netdra.model.schema import CNIPluginSchema
from netdra.model.suggestions import closest, listed
from netdra.model.topology import BUILTIN_TYPES, NetworkTopology, NetworkTopologySpec
from netdra.rules import addresses, contract, network_mtus, pod_networks, shipped
from netdra.rules.networks import overlaps
from netdra.rules.topologies import check_names, check_together, check_topology, check_unwise
from netdra.topology.classes import class_name

SHOWN = 5


def review(
    new: NetworkTopology,
    old: NetworkTopology | None,
    cluster: Cluster,
    in_time: Callable[[], bool],
) -> Verdict:
    """The errors of a topology, or the warnings for its author; `in_time` is as for `Allocator.foresee`."""
    schemas = sound(cluster.schemas)
    # What rules that are newer than it reject can be corrected while pods have it: they keep their networks (D52).
    used = _frozen(new, old, cluster.users)
    if used is not None and (old is None or not check_topology(old, schemas)):
        return Verdict((used.text,))
    findings = [*check_topology(new, schemas)]
    others = {name: cluster.topologies[name] for name in sorted(cluster.topologies) if name != new.name}
    findings += [finding for name, finding in check_together({**others, new.name: new}) if name == new.name]
    findings += [finding for finding, wrong in check_names(new, cluster.added) if wrong]
    findings += addresses.default_routes(new)
    findings += pod_networks.check_steps(new, cluster.pod_networks)
    if findings:
        return Verdict(tuple(finding.text for finding in findings))
    near = [finding for name, finding in overlaps([*others.values(), new]) if name == new.name]
    remarks = [
        *_waiting(new, cluster),
        *warnings(new, cluster),
        *near,
        *pod_networks.missing(new, cluster.pod_networks),
        *network_mtus.check(new, cluster.pod_networks),
        *searches.of_topology(new, cluster.policies, cluster.offers, in_time),
        *searches.of_facts(new, schemas, cluster.policies, cluster.offers, in_time),
    ]
    return Verdict(warnings=tuple(remark.text for remark in remarks))


def warnings(new: NetworkTopology, cluster: Cluster) -> Iterator[Finding]:
    """The warnings for the author of a topology without errors."""
    yield from _foreign(new, cluster)
    yield from _unchecked(new, sound(cluster.schemas))
    yield from check_unwise(new)
    yield from addresses.unwise(new)
    for at, step in enumerate(new.spec.steps):
        why = single_vf(step.selector.cel, cluster.policies.values()) if step.selector is not None else ""
        if why:
            yield about(new.name, step.name, f"its selector {why}", path=("spec", "steps", at, "selector", "cel"))
    yield from (finding for finding, wrong in check_names(new, cluster.added) if not wrong)


def sound(schemas: Mapping[str, CNIPluginSchema]) -> list[CNIPluginSchema]:
    """The cluster's own schemas that do not contradict themselves; the others do not count."""
    return [schema for schema in shipped.own_of(schemas.values()) if not contract.examine(schema)[1]]


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
    )


def _waiting(new: NetworkTopology, cluster: Cluster) -> Iterator[Finding]:
    if cluster.waiting:
        plural, verb = ("s", "are") if cluster.waiting > 1 else ("", "is")
        yield Finding(
            what=f'NetworkTopology "{new.name}": {cluster.waiting} ResourceClaim{plural} that {verb} '
            "allocated but not attached will use the new steps if their requests still match"
        )


def _foreign(new: NetworkTopology, cluster: Cluster) -> Iterator[Finding]:
    for at, step in enumerate(new.spec.steps):
        name = class_name(new.name, step.name)
        device_class = cluster.classes.get(name) if step.is_root else None
        brought = frozenset() if device_class is None else topologies_of_class(device_class)
        # Two topologies with classes of one name are an error of their own.
        if device_class is not None and not brought & {new.name, *cluster.topologies}:
            what = f'DeviceClass "{name}" already exists and is not managed by netdra; netdra does not change it'
            hint = "rename the step, or delete the DeviceClass"
            yield about(new.name, step.name, what, hint=hint, path=("spec", "steps", at, "name"))


def _unchecked(new: NetworkTopology, schemas: Sequence[CNIPluginSchema]) -> Iterator[Finding]:
    plugins = {schema.spec.plugin for schema in schemas} | set(shipped.names()) | BUILTIN_TYPES
    for at, step in enumerate(new.spec.steps):
        if step.plugin not in plugins:
            what = f'no CNIPluginSchema describes plugin "{step.type}"; its config is not validated'
            meant = closest(step.type, sorted(plugins))
            hint = f'did you mean "{meant}"?' if meant else ""
            yield about(new.name, step.name, what, hint=hint, path=("spec", "steps", at, "type"))
