"""A DeviceClass's parameters for netdra, checked before any claim names it: the errors of Prepare, in its words.

Called at admission and by `netdra validate`. Pure. Classes without parameters for netdra are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from netdra.model import suggestions
from netdra.model.claim import DeviceClass
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.meta import ObjectMeta
from netdra.model.policy import PolicySelector
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology, NetworkTopologySpec, Step
from netdra.rules.topologies import check_topology
from netdra.topology import plain
from netdra.topology.classes import only_topology, owner, parameters


def check_class(device_class: DeviceClass) -> tuple[Finding, ...]:
    """Why no claim for the class could be prepared, with any device."""
    configs = [config.opaque for config in device_class.spec.config]
    origin = f'DeviceClass "{device_class.metadata.name}"'
    try:
        if only_topology(configs, origin) is None:
            plain.only(configs, origin)
    except InvalidInputError as problem:
        return (
            Finding(
                what=problem.what,
                hint=problem.hint,
                path=next(_wrong(device_class), ("spec", "config")),
                code=problem.code,
            ),
        )
    return ()


def check_made(device_class: DeviceClass, made: Iterable[DeviceClass]) -> Iterator[Finding]:
    """The error of a class that names a topology as its owner, and is not what the controller makes of the topology.

    Args:
        made: the classes that follow from the topology, in each form that nodes may publish attributes in.
    """
    named = [entry.spec for entry in made if entry.metadata.name == device_class.metadata.name]
    # An API server with the feature gate DRAExtendedResource off drops the extended resource's name.
    dropped = [msgspec.structs.replace(spec, extended_resource_name=None) for spec in named]
    if device_class.spec not in (*named, *dropped):
        topology = owner(device_class)
        yield Finding(
            f'DeviceClass "{device_class.metadata.name}": differs from the class that follows from its owner, '
            f'NetworkTopology "{topology}"',
            hint="change the topology; netdra's controller writes its DeviceClasses",
            path=("spec",),
            code="ND1025",
        )


def check_config(device_class: DeviceClass, schemas: Sequence[CNIPluginSchema]) -> Iterator[Finding]:
    """The errors that the step of a class's DeviceParameters would cause in a pod: its config by the plugin's schema.

    Args:
        device_class: as administrators wrote it.
        schemas: the plugin schemas of the files, which stand above those that netdra ships.
    """
    for at, config in enumerate(device_class.spec.config):
        try:
            given = plain.parameters(config.opaque, "")
        except InvalidInputError:
            continue  # `check_class` reports it
        if given is None:
            continue
        alone = NetworkTopology(
            metadata=ObjectMeta(name="class"),
            spec=NetworkTopologySpec(
                steps=(Step(name="step", selector=PolicySelector(cel="true"), **msgspec.structs.asdict(given.step)),)
            ),
            api_version="networking.dra.io/v1alpha1",
            kind="NetworkTopology",
        )
        place: Path = ("spec", "config", at, "opaque", "parameters", "step")
        for finding in check_topology(alone, schemas):
            _, _, what = finding.what.partition('step "step": ')
            yield Finding(
                what=f'DeviceClass "{device_class.metadata.name}": {what or finding.what}',
                hint=finding.hint,
                path=(*place, *finding.path[3:]),
                code=finding.code,
            )


def check_reference(
    device_class: DeviceClass, topologies: Mapping[str, NetworkTopology]
) -> Iterator[tuple[Finding, bool]]:
    """The errors in the topology and step that a class is of, and whether that is certain.

    Args:
        device_class: as administrators wrote it.
        topologies: those of the files, by name; the cluster may have more.
    """
    named = f'DeviceClass "{device_class.metadata.name}"'
    for at, config in enumerate(device_class.spec.config):
        try:
            meant = parameters(config.opaque, named)
        except InvalidInputError:
            continue  # `check_class` reports it
        if meant is None:
            continue
        place: Path = ("spec", "config", at, "opaque", "parameters")
        name = meant.network_topology_ref.name
        if name not in topologies:
            near = suggestions.closest(name, topologies)
            hint = f'did you mean "{near}"?' if near else "add its file, unless it already exists in the cluster"
            what = f'{named}: NetworkTopology "{name}" is not in these files'
            yield Finding(what, hint, (*place, "networkTopologyRef", "name"), code="ND1026"), False
            continue
        roots = [step.name for step in topologies[name].spec.steps if step.is_root]
        if meant.step not in roots:
            what = f'{named}: NetworkTopology "{name}" does not have a root step "{meant.step}"'
            yield (
                Finding(
                    what, suggestions.hint(meant.step, roots, "its root steps are"), (*place, "step"), code="ND1027"
                ),
                True,
            )


def _wrong(device_class: DeviceClass) -> Iterator[Path]:
    """The places of configurations that cannot be understood, each by itself."""
    for at, config in enumerate(device_class.spec.config):
        try:
            plain.parameters(config.opaque, "")
        except InvalidInputError as problem:
            yield ("spec", "config", at, "opaque", "parameters", *problem.path)
