"""The DeviceClasses of a NetworkTopology: one for each step that is an allocated device.

Called by the controller, which writes them to the API server, and by the command line and the lab, which allocate with
them. Claims name these classes and nothing else of the topology: the class carries the reference to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdra.cel import CelCompileError, guarded, joined
from netdra.model import documents, names
from netdra.model.claim import (
    CELDeviceSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
)
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import ALWAYS_KNOWN
from netdra.model.meta import ObjectMeta
from netdra.model.topology import NetworkTopology, NetworkTopologyReference, Step, TopologyParameters
from netdra.topology import needed
from netdra.topology.graph import Graph, compile_topology

_MAX_LABEL_VALUE = 63
_OURS = f'device.driver == "{names.DRIVER}"'


def device_classes(topology: NetworkTopology, features: Features | None = None) -> tuple[DeviceClass, ...]:
    """The topology's DeviceClasses, in the order of its root steps.

    Each is true of the driver's own devices alone that the step's selector matches and its plugin can attach, and whose
    node does not lack a program that the topology's other steps run (decision D45). It asks
    for each key that a device can lack before it reads it: a selector that meets a missing key fails the whole
    allocation (decision D19).

    Args:
        topology: as administrators wrote it.
        features: the features that the API server supports; they decide how `supportedCNIs` is published and thus asked
            for.

    Raises:
        InvalidInputError: the topology is unsound, a class's name would be too long, or a selector cannot be used.
    """
    graph = compile_topology(topology)
    return tuple(_device_class(graph, step, features or Features()) for step in graph.roots)


def known_classes(topologies: Iterable[NetworkTopology], given: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """The given classes by name, and those that the controller will make of the topologies."""
    made: dict[str, DeviceClass] = {}
    for topology in topologies:
        try:
            made |= {device_class.metadata.name: device_class for device_class in device_classes(topology)}
        except InvalidInputError:
            continue  # an unsound topology is reported as such
    return made | {device_class.metadata.name: device_class for device_class in given}


def every_form(topology: NetworkTopology) -> tuple[DeviceClass, ...]:
    """The DeviceClasses of a topology in each form in which nodes publish attributes; none of an unsound topology."""
    try:
        return tuple(
            device_class
            for lists in (False, True)
            for device_class in device_classes(topology, Features(list_attributes=lists))
        )
    except InvalidInputError:
        return ()


def plain_claim(topology: NetworkTopology) -> ResourceClaim:
    """A claim for one device of each of the topology's root steps, without constraints."""
    requests = tuple(
        DeviceRequest(
            name=step.name, exactly=ExactDeviceRequest(device_class_name=class_name(topology.name, step.name), count=1)
        )
        for step in topology.spec.steps
        if step.is_root
    )
    return ResourceClaim(metadata=topology.metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))


def class_name(topology: str, step: str) -> str:
    """The name of a root step's DeviceClass."""
    return f"{topology}-{step}"


def check_name(topology: str, step: str) -> None:
    """Refuse a class's name that the API server would not take.

    Raises:
        InvalidInputError: it is too long.
    """
    name = class_name(topology, step)
    if not names.is_subdomain(name):
        raise InvalidInputError(
            f'NetworkTopology "{topology}", step "{step}": '
            f'the DeviceClass\'s name "{name}" has {len(name)} characters of at most {names.MAX_SUBDOMAIN}',
            hint="shorten the topology's or the step's name",
            code="ND1269",
        )


def topology_label(topology: str) -> str:
    """A topology's name as a label's value: itself, or a likeness with a digest where it is too long for one."""
    return topology if len(topology) <= _MAX_LABEL_VALUE else names.label(topology)


def owner(device_class: DeviceClass, kind: str = NetworkTopology.__name__) -> str:
    """The topology, or the object of another kind of netdra's, that owns a class by its metadata, or ""."""
    for reference in device_class.metadata.owner_references:
        if (
            reference.controller
            and reference.kind == kind
            and reference.api_version.partition("/")[0] == names.GROUP_VERSION.partition("/")[0]
        ):
            return reference.name
    return ""


def parameters(opaque: OpaqueDeviceConfiguration | None, origin: str) -> TopologyParameters | None:
    """The topology and step in an opaque configuration, or None if it is another driver's or about something else.

    Args:
        opaque: from a class or an allocation.
        origin: where it comes from, for errors.

    Raises:
        InvalidInputError: it names a topology, but not as a generated class does.
    """
    if opaque is None or opaque.driver != names.DRIVER or not isinstance(opaque.parameters, dict):
        return None
    if "networkTopologyRef" not in opaque.parameters:
        return None
    return documents.fit(opaque.parameters, TopologyParameters, f"{origin}: opaque parameters")


def only_topology(configs: Iterable[OpaqueDeviceConfiguration | None], origin: str) -> TopologyParameters | None:
    """The one topology and step that a class's opaque configurations name; None if they name none.

    Args:
        configs: from a class or an allocation.
        origin: where they come from, for errors.

    Raises:
        InvalidInputError: one is not to be understood, or they name several.
    """
    steps: list[TopologyParameters] = []
    for opaque in configs:
        meant = parameters(opaque, origin)
        steps += [meant] if meant is not None and meant not in steps else []
    if len(steps) > 1:
        places = ", ".join(f'step "{entry.step}" of "{entry.network_topology_ref.name}"' for entry in steps)
        raise InvalidInputError(
            f"{origin}: the DeviceClass names several NetworkTopologies: {places}",
            hint="a device can only be one step; use a DeviceClass for each",
            code="ND1270",
        )
    return steps[0] if steps else None


def guard(cni_type: str, features: Features) -> str:
    """The CEL condition that a device is one of netdra and can be attached by the plugin."""
    return f"{_OURS} && {_attachable(cni_type, features)}"


def _selectors(step: Step, programs: frozenset[str], features: Features) -> tuple[str, ...]:
    """The class's selectors: one, unless it would be more than Kubernetes takes.

    The driver is asked for first, so that no more is read of other drivers' devices. Then comes the step's selector,
    which rejects the devices of one's own that are not meant, and only for the rest is the list of plugins searched.
    """
    assert step.selector is not None
    selector = guarded(step.selector.cel, known=ALWAYS_KNOWN)
    try:
        return (joined(_OURS, selector, _attachable(step.type, features), *_complete(programs, features)),)
    except CelCompileError:
        return (joined(guard(step.type, features), *_complete(programs, features)), selector)


def _attachable(cni_type: str, features: Features) -> str:
    published = f'device.attributes["{names.DRIVER}"].{names.SUPPORTED_CNIS}'
    return f"has({published}) && {_includes(published, cni_type, features)}"


def _includes(published: str, name: str, features: Features) -> str:
    """Whether an attribute, a list or a text with commas around each entry, has a name (decision D6)."""
    return f'{published}.includes("{name}")' if features.list_attributes else f'{published}.contains(",{name},")'


def _complete(programs: frozenset[str], features: Features) -> Iterator[str]:
    """The condition that the device's node has these programs, if there are any."""
    if not programs:
        return
    published = f'device.attributes["{names.DRIVER}"].{names.LACKED_CNIS}'
    tests = [_includes(published, name, features) for name in sorted(programs)]
    yield f"!(has({published}) && ({' || '.join(tests)}))"


def _device_class(graph: Graph, step: Step, features: Features) -> DeviceClass:
    name = class_name(graph.topology, step.name)
    check_name(graph.topology, step.name)
    meant = TopologyParameters(network_topology_ref=NetworkTopologyReference(name=graph.topology), step=step.name)
    opaque = OpaqueDeviceConfiguration(driver=names.DRIVER, parameters=documents.plain(meant))
    return DeviceClass(
        metadata=ObjectMeta(
            name=name, labels={names.TOPOLOGY_LABEL: topology_label(graph.topology), names.STEP_LABEL: step.name}
        ),
        spec=DeviceClassSpec(
            selectors=tuple(
                DeviceSelector(cel=CELDeviceSelector(expression=text))
                for text in _selectors(step, needed.programs(graph.steps), features)
            ),
            config=(DeviceClassConfiguration(opaque=opaque),),
            extended_resource_name=step.extended_resource_name or None,
        ),
    )
