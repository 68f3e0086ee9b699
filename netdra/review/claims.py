"""The errors and warnings of a ResourceClaim or a template, as far as it asks for devices of topologies. Pure.

Any driver's users write claims, so of a claim for none of netdra's classes only the names of classes are checked,
unless it is in files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from netdra.exposure.device_selectors import left_out_fact, single_vf
from netdra.model import claim_rules, suggestions
from netdra.model.claim import DeviceClaim, DeviceClass, ResourceClaim, ResourceClaimTemplate, device_claim
from netdra.model.findings import Finding, Path
from netdra.model.names import DRIVER, network_of_class
from netdra.model.topology import NetworkTopology
from netdra.review.world import World, topologies_of_class
from netdra.rules import network_requests
from netdra.rules.asks import check_asks
from netdra.rules.claims import check_addresses, check_claim, check_repeated, same_addresses
from netdra.topology.selectors import Written, check_selectors, expressions

Claim = ResourceClaim | ResourceClaimTemplate
MAX_GUESSES, MAX_COMPARED, MAX_DIFFERENCE = 8, 200, 3
"""How many unknown classes of a claim are named, with how many others each is compared, and by how much longer ones."""
_NEAR = 0.8


def errors(claim: Claim, world: World) -> Iterator[Finding]:
    """The errors of a claim or a template; none of one for other drivers' devices alone."""
    wanted, path = device_claim(claim)
    named = f'{claim.kind} "{claim.metadata.name}"'
    if world.offline:
        if too_many := claim_rules.too_many(claim):
            yield Finding(f"{named}: {too_many.what}", too_many.hint, too_many.path, code=too_many.code)
        yield from check_selectors(claim)
        yield from (finding for finding, wrong in check_asks(claim, world.added) if wrong)
    elif not is_ours(wanted, world):
        return
    yield from check_claim(claim, world.topologies, world.classes)
    objects = world.topologies, world.classes, world.pod_networks
    yield from network_requests.refused(named, wanted, path, claim.metadata.namespace, *objects)


def warnings(claim: Claim, world: World) -> Iterator[Finding]:
    """The warnings for the author of a claim or a template without errors."""
    wanted, path = device_claim(claim)
    if world.offline:
        yield from (finding for finding, wrong in check_asks(claim, world.added) if not wrong)
    if world.offline or is_ours(wanted, world):
        yield from _of_ours(claim, wanted, path, world)
    yield from _guesses(claim, world)


def beside(values: Iterable[object], world: World) -> Iterator[tuple[ResourceClaim, Finding]]:
    """The warnings for claims that are written together, beside those before them."""
    claims = [value for value in values if isinstance(value, ResourceClaim)]
    yield from same_addresses(claims, lambda claim: _asked(device_claim(claim)[0], world))


def _of_ours(claim: Claim, wanted: DeviceClaim, path: Path, world: World) -> Iterator[Finding]:
    named = f'{claim.kind} "{claim.metadata.name}"'
    for at, request in enumerate(wanted.requests):
        exactly = request.exactly
        if exactly is None or not exactly.admin_access:
            continue
        device_class = world.classes.get(exactly.device_class_name)
        if device_class is not None and topologies_of_class(device_class):
            what = f'{named}, request "{request.name}": with adminAccess, netdra does not attach the device to the pod'
            yield Finding(what=what, path=(*path, "requests", at, "exactly", "adminAccess"), code="ND1232")
    yield from check_repeated(claim, _asked(wanted, world))
    yield from check_addresses(claim, _asked(wanted, world))
    yield from network_requests.warnings(named, wanted, path, world.topologies, world.classes)
    objects = world.topologies, world.classes, world.pod_networks
    yield from network_requests.limited(named, wanted, path, claim.metadata.namespace, *objects)
    yield from of_selectors(claim, world)
    yield from network_requests.missing(named, wanted, path, world.pod_networks, world.where)


def decisive(claim: Claim, world: World) -> frozenset[str]:
    """The DeviceClasses of a claim whose content decides why it is refused.

    These are the classes with configuration for netdra, and those of PodNetworks; and other classes whose request is
    named like a root step of the topologies that the claim is for, because only such a class could be the one that the
    claim lacks.
    """
    wanted, _ = device_claim(claim)
    ours = {name for name in _classes(wanted) if name in world.classes and _is_for_us(world.classes[name])}
    meant = {topology for name in ours for topology in topologies_of_class(world.classes[name])}
    chosen = (world.topologies[name].spec.steps for name in meant if name in world.topologies)
    roots = {step.name for steps in chosen for step in steps if step.is_root}
    shared = {name for name in _classes(wanted) if network_of_class(name)}
    return frozenset(ours | shared | {name for wish, name in _named_classes(wanted) if wish in roots})


def is_ours(wanted: DeviceClaim, world: World) -> bool:
    """Whether a claim names a class of a topology or of a PodNetwork, or brings configuration for netdra."""
    if any(config.opaque is not None and config.opaque.driver == DRIVER for config in wanted.config):
        return True
    if any(map(network_of_class, _classes(wanted))):
        return True
    classes = (world.classes.get(name) for name in _classes(wanted))
    return any(device_class is not None and topologies_of_class(device_class) for device_class in classes)


def _is_for_us(device_class: DeviceClass) -> bool:
    return any(config.opaque is not None and config.opaque.driver == DRIVER for config in device_class.spec.config)


def _classes(wanted: DeviceClaim) -> Iterator[str]:
    return iter(dict.fromkeys(name for _, name in _named_classes(wanted)))


def _named_classes(wanted: DeviceClaim) -> Iterator[tuple[str, str]]:
    """Each class that a claim names, with every name by which a step could be bound to its request."""
    for request in wanted.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for choice in request.first_available:
            yield request.name, choice.device_class_name
            yield choice.name, choice.device_class_name


def _guesses(claim: Claim, world: World) -> Iterator[Finding]:
    """Findings on missing classes: of steps that are not devices, and of names that are almost another class's."""
    wanted, path = device_claim(claim)
    for name in [class_name for class_name in _classes(wanted) if class_name not in world.classes][:MAX_GUESSES]:
        place = next(_places(wanted, name, path))
        missing = f'{claim.kind} "{claim.metadata.name}": DeviceClass "{name}" not found'
        named = (name[:at] for at, letter in enumerate(name) if letter == "-")
        topologies = [world.topologies[topology] for topology in named if topology in world.topologies]
        derived = [topology for topology in topologies if name in _names_of(topology, roots=False)]
        made = [_names_of(topology, roots=True) for topology in topologies]
        near = (suggestions.alike(name, names) for names in made)
        for topology in derived:
            what = f'{missing}: this step of NetworkTopology "{topology.name}" is not a device'
            roots = ", ".join(_names_of(topology, roots=True))
            yield Finding(what=what, hint=f"request {roots}", path=place, code="ND1233")
        if derived or any(name in names for names in made):
            continue  # of a topology with such a root step the error is reported
        if name in world.topologies:
            yield _whole_topology(world.topologies[name], missing, place)
        elif meant := _meant(name, world) or next(filter(None, near), ""):
            yield Finding(what=missing, hint=f'did you mean "{meant}"?', path=place, code="ND1234")


def _names_of(topology: NetworkTopology, *, roots: bool) -> list[str]:
    """The names of the classes of a topology's root steps, or those that its other steps would have."""
    return [f"{topology.name}-{step.name}" for step in topology.spec.steps if step.is_root is roots]


def _whole_topology(topology: NetworkTopology, missing: str, place: Path) -> Finding:
    """A claim names a topology in place of one of its classes."""
    roots = ", ".join(_names_of(topology, roots=True))
    what = f"{missing}: this is the name of a NetworkTopology"
    return Finding(what=what, hint=f"request the classes of its root steps: {roots}", path=place, code="ND1235")


def _meant(name: str, world: World) -> str:
    """The class of a topology whose name is closest to an unknown one; a few similar names are compared.

    One of the two names may have a prefix: kustomize puts `namePrefix` before names of objects, not before references.
    """
    end = f"-{name}"
    longer = (entry for entry in world.classes if entry.endswith(end)) if "-" in name else ()
    shorter = (name[at + 1 :] for at, letter in enumerate(name) if letter == "-")
    candidates: tuple[str, ...] = (*longer, *shorter)
    for entry in candidates:
        if entry in world.classes and topologies_of_class(world.classes[entry]):
            return entry
    alike = (
        class_name
        for class_name in world.classes
        if class_name[:2] == name[:2] and abs(len(class_name) - len(name)) <= MAX_DIFFERENCE
    )
    ours = (entry for entry in alike if topologies_of_class(world.classes[entry]))
    few = list(islice(ours, MAX_COMPARED))
    return suggestions.closest(name, few, _NEAR)


def _places(wanted: DeviceClaim, name: str, path: Path) -> Iterator[Path]:
    """The places where a claim names a class."""
    for at, request in enumerate(wanted.requests):
        if request.exactly is not None and request.exactly.device_class_name == name:
            yield (*path, "requests", at, "exactly", "deviceClassName")
        for number, choice in enumerate(request.first_available):
            if choice.device_class_name == name:
                yield (*path, "requests", at, "firstAvailable", number, "deviceClassName")


def _asked(wanted: DeviceClaim, world: World) -> Iterator[NetworkTopology]:
    """The topologies whose classes a claim names."""
    classes = (world.classes[name] for name in _classes(wanted) if name in world.classes)
    for name in dict.fromkeys(topology for each in classes for topology in topologies_of_class(each)):
        if name in world.topologies:
            yield world.topologies[name]


def of_selectors(value: Written, world: World) -> Iterator[Finding]:
    """Warnings for selectors of a claim, a template or a class that never select a device, or leave some out."""
    policies = tuple(world.policies.values())
    named = f'{value.kind} "{value.metadata.name}"'
    for path, selector in expressions(value):
        place = (*path, "cel", "expression")
        if selector.cel is None:
            continue
        if why := single_vf(selector.cel.expression, policies):
            yield Finding(f"{named}: {why}", path=place, code="ND1236")
        if lacking := left_out_fact(selector.cel.expression, policies):
            yield Finding(f"{named}: {lacking[0]}", lacking[1], place, code="ND1237")
