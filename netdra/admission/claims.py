"""A ResourceClaim or a template that is about to be written, as far as it asks for devices of topologies.

Any driver's users write claims, so a claim for none of netdra's classes is admitted before its check, and so is a
claim that cannot be read: the API server itself rejects that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from netdra.admission import searches
from netdra.admission.cluster import Cluster, read_claim, topologies_of_class
from netdra.admission.messages import ALLOWED, AdmissionRequest, Verdict
from netdra.exposure.device_selectors import left_out_fact, single_vf
from netdra.model import suggestions
from netdra.model.claim import DeviceClaim, DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.errors import UNREADABLE
from netdra.model.findings import Finding, Path
from netdra.model.names import DRIVER, network_of_class
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.rules import network_requests
from netdra.rules.claims import check_claim, check_repeated
from netdra.topology.selectors import Written, device_claim, expressions

MAX_GUESSES, MAX_COMPARED, MAX_DIFFERENCE = 8, 200, 3
"""How many unknown classes of a claim are named, with how many others each is compared, and by how much longer ones."""
_NEAR = 0.8


def review(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    """The errors of a claim, or the warnings for its author."""
    try:
        claim = read_claim(request)
    except UNREADABLE:
        return ALLOWED
    wanted, _ = device_claim(claim)
    if not _is_ours(wanted, cluster):
        return Verdict((), tuple(finding.text for finding in _guesses(claim, cluster)))
    claim = _named(claim)
    findings = check_claim(claim, cluster.topologies, cluster.classes)
    findings += tuple(refused(claim, cluster, request.namespace))
    if findings:
        return Verdict(tuple(finding.text for finding in findings))
    remarks = [*warnings(claim, cluster, request.namespace), *missing_networks(claim, cluster.pod_networks)]
    return Verdict(warnings=tuple(finding.text for finding in remarks))


def foreseen(request: AdmissionRequest, cluster: Cluster, in_time: Callable[[], bool]) -> Verdict:
    """The warnings of a claim that the scheduler may leave Pending although devices are free.

    A worker's part: selectors of claims are compiled here, and asked of the devices that nodes report.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: the claim cannot be read.
    """
    claim = _named(read_claim(request))
    findings = searches.of_claim(claim, cluster.classes, cluster.policies, cluster.offers, in_time)
    return Verdict(warnings=tuple(finding.text for finding in findings))


def _named(claim: ResourceClaim | ResourceClaimTemplate) -> ResourceClaim | ResourceClaimTemplate:
    """The claim with a name, as messages call it; the server makes one only after the review."""
    if claim.metadata.name:
        return claim
    return replace(claim, metadata=replace(claim.metadata, name=f"{claim.metadata.generate_name}*"))


def decisive(request: AdmissionRequest, cluster: Cluster) -> frozenset[str]:
    """The DeviceClasses of a claim whose content decides why it is refused.

    These are the classes with configuration for netdra, and those of PodNetworks; and other classes whose request is
    named like a root step of the topologies that the claim is for, because only such a class could be the one that the
    claim lacks.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: the claim cannot be read.
    """
    wanted, _ = device_claim(read_claim(request))
    ours = {name for name in _classes(wanted) if name in cluster.classes and _is_for_us(cluster.classes[name])}
    meant = {topology for name in ours for topology in topologies_of_class(cluster.classes[name])}
    chosen = (cluster.topologies[name].spec.steps for name in meant if name in cluster.topologies)
    roots = {step.name for steps in chosen for step in steps if step.is_root}
    shared = {name for name in _classes(wanted) if network_of_class(name)}
    return frozenset(ours | shared | {name for wish, name in _named_classes(wanted) if wish in roots})


def _is_ours(wanted: DeviceClaim, cluster: Cluster) -> bool:
    """Whether a claim names a class of a topology or of a PodNetwork, or brings configuration for netdra."""
    if any(config.opaque is not None and config.opaque.driver == DRIVER for config in wanted.config):
        return True
    if any(map(network_of_class, _classes(wanted))):
        return True
    classes = (cluster.classes.get(name) for name in _classes(wanted))
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


def _guesses(claim: ResourceClaim | ResourceClaimTemplate, cluster: Cluster) -> Iterator[Finding]:
    """Findings on missing classes: of steps that are not devices, and of names that are almost another class's."""
    wanted, path = device_claim(claim)
    for name in [class_name for class_name in _classes(wanted) if class_name not in cluster.classes][:MAX_GUESSES]:
        place = next(_places(wanted, name, path))
        missing = f'{claim.kind} "{claim.metadata.name}": DeviceClass "{name}" not found'
        derived = False
        for topology in (name[:at] for at, letter in enumerate(name) if letter == "-"):
            written = cluster.topologies.get(topology)
            made = [f"{topology}-{step.name}" for step in written.spec.steps if step.is_root] if written else []
            if name in made:
                derived = True  # the topology itself is wrong, and is reported
            elif written is not None and any(name == f"{topology}-{step.name}" for step in written.spec.steps):
                roots = ", ".join(made)
                what = f'{missing}: this step of NetworkTopology "{topology}" is not a device'
                yield Finding(what=what, hint=f"request {roots}", path=place)
                derived = True
        if not derived and name in cluster.topologies:
            steps = cluster.topologies[name].spec.steps
            roots = ", ".join(f"{name}-{step.name}" for step in steps if step.is_root)
            what = f"{missing}: this is the name of a NetworkTopology"
            yield Finding(what=what, hint=f"request the classes of its root steps: {roots}", path=place)
        elif not derived and (meant := _meant(name, cluster)):
            yield Finding(what=missing, hint=f'did you mean "{meant}"?', path=place)


def _meant(name: str, cluster: Cluster) -> str:
    """The class of a topology whose name is closest to an unknown one; a few similar names are compared."""
    alike = (
        class_name
        for class_name in cluster.classes
        if class_name[:2] == name[:2] and abs(len(class_name) - len(name)) <= MAX_DIFFERENCE
    )
    ours = (entry for entry in alike if topologies_of_class(cluster.classes[entry]))
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


def refused(claim: ResourceClaim | ResourceClaimTemplate, cluster: Cluster, namespace: str = "") -> Iterator[Finding]:
    """The errors in a claim's requests for addresses of PodNetworks, as `network_requests.refused`."""
    wanted, path = device_claim(claim)
    named, place = f'{claim.kind} "{claim.metadata.name}"', namespace or claim.metadata.namespace
    objects = cluster.topologies, cluster.classes, cluster.pod_networks
    yield from network_requests.refused(named, wanted, path, place, *objects)


def warnings(claim: ResourceClaim | ResourceClaimTemplate, cluster: Cluster, namespace: str = "") -> Iterator[Finding]:
    """The warnings for the author of a claim without errors; of a namespace, "" for the one in its metadata."""
    wanted, path = device_claim(claim)
    named = f'{claim.kind} "{claim.metadata.name}"'
    for at, request in enumerate(wanted.requests):
        exactly = request.exactly
        if exactly is None or not exactly.admin_access:
            continue
        device_class = cluster.classes.get(exactly.device_class_name)
        if device_class is not None and topologies_of_class(device_class):
            what = f'{named}, request "{request.name}": with adminAccess, netdra does not attach the device to the pod'
            yield Finding(what=what, path=(*path, "requests", at, "exactly", "adminAccess"))
    yield from check_repeated(claim, _asked(wanted, cluster))
    yield from network_requests.warnings(named, wanted, path, cluster.topologies, cluster.classes)
    objects = cluster.topologies, cluster.classes, cluster.pod_networks
    yield from network_requests.limited(named, wanted, path, namespace or claim.metadata.namespace, *objects)
    yield from of_single_vfs(claim, cluster.policies.values())
    yield from of_left_out_facts(claim, cluster.policies.values())
    yield from _guesses(claim, cluster)


def missing_networks(
    claim: ResourceClaim | ResourceClaimTemplate, networks: Collection[str], where: str = ""
) -> Iterator[Finding]:
    """Warnings for requests of addresses of PodNetworks that do not exist; as `network_requests.missing`."""
    wanted, path = device_claim(claim)
    yield from network_requests.missing(f'{claim.kind} "{claim.metadata.name}"', wanted, path, networks, where)


def _asked(wanted: DeviceClaim, cluster: Cluster) -> Iterator[NetworkTopology]:
    """The topologies whose classes a claim names."""
    classes = (cluster.classes[name] for name in _classes(wanted) if name in cluster.classes)
    for name in dict.fromkeys(topology for each in classes for topology in topologies_of_class(each)):
        if name in cluster.topologies:
            yield cluster.topologies[name]


def of_left_out_facts(value: Written, policies: Iterable[DeviceExposurePolicy]) -> Iterator[Finding]:
    """Warnings for selectors of a claim, a template or a class that read facts which some devices do not carry."""
    given = tuple(policies)
    for path, selector in expressions(value):
        if selector.cel is not None and (why := left_out_fact(selector.cel.expression, given)):
            name, hint = why
            what = f'{value.kind} "{value.metadata.name}": {name}'
            yield Finding(what=what, hint=hint, path=(*path, "cel", "expression"))


def of_single_vfs(value: Written, policies: Iterable[DeviceExposurePolicy]) -> Iterator[Finding]:
    """Warnings for selectors of a claim, a template or a class that never select a device of pooled VFs."""
    given = tuple(policies)
    for path, selector in expressions(value):
        if selector.cel is not None and (why := single_vf(selector.cel.expression, given)):
            yield Finding(what=f'{value.kind} "{value.metadata.name}": {why}', path=(*path, "cel", "expression"))
