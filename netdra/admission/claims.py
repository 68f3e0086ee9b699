"""A ResourceClaim or a template that is about to be written, as far as it asks for devices of topologies.

Claims are everybody's, so what none of our classes concerns is let through before it is even read whole, and so is
whatever cannot be read: the API server itself judges that.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from netdra.admission.cluster import Cluster, topologies_of_class
from netdra.admission.messages import ALLOWED, AdmissionRequest, Verdict
from netdra.model.claim import DeviceClaim, DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.names import DRIVER
from netdra.topology.claims import check_claim
from netdra.topology.requested import device_claim

_CLAIM = msgspec.json.Decoder(ResourceClaim)
_TEMPLATE = msgspec.json.Decoder(ResourceClaimTemplate)


def review(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    """What stands against a claim, and what its author should know."""
    try:
        claim: ResourceClaim | ResourceClaimTemplate = _reader(request.kind.kind).decode(request.object)
    except msgspec.DecodeError:
        return ALLOWED
    wanted, _ = device_claim(claim)
    if not _is_ours(wanted, cluster):
        return Verdict((), tuple(_guesses(claim, wanted, cluster)))
    if not claim.metadata.name:
        made = replace(claim.metadata, name=f"{claim.metadata.generate_name}*")
        claim = replace(claim, metadata=made)
    errors = tuple(finding.text for finding in check_claim(claim, cluster.topologies, cluster.classes))
    return Verdict(errors, () if errors else tuple(_warnings(claim, wanted, cluster)))


def decisive(request: AdmissionRequest, cluster: Cluster) -> frozenset[str]:
    """Of the DeviceClasses that a claim names those whose content decides why it is refused.

    These are the classes that carry something for netdra; and of the others those whose request is named like a root
    step of the topologies that the claim is for, since they alone could be what it lacks.

    Raises:
        msgspec.DecodeError: it cannot be read.
    """
    wanted, _ = device_claim(_reader(request.kind.kind).decode(request.object))
    ours = {name for name in _classes(wanted) if name in cluster.classes and _is_for_us(cluster.classes[name])}
    meant = {topology for name in ours for topology in topologies_of_class(cluster.classes[name])}
    found = (cluster.topologies[name].spec.steps for name in meant if name in cluster.topologies)
    roots = {step.name for steps in found for step in steps if step.is_root}
    return frozenset(ours | {name for wish, name in _named_classes(wanted) if wish in roots})


def _reader(kind: str) -> msgspec.json.Decoder[ResourceClaim] | msgspec.json.Decoder[ResourceClaimTemplate]:
    return _TEMPLATE if kind == "ResourceClaimTemplate" else _CLAIM


def _is_ours(wanted: DeviceClaim, cluster: Cluster) -> bool:
    """Whether a claim names a class of a topology, or brings configuration for netdra."""
    if any(config.opaque is not None and config.opaque.driver == DRIVER for config in wanted.config):
        return True
    found = (cluster.classes.get(name) for name in _classes(wanted))
    return any(each is not None and topologies_of_class(each) for each in found)


def _is_for_us(found: DeviceClass) -> bool:
    return any(config.opaque is not None and config.opaque.driver == DRIVER for config in found.spec.config)


def _classes(wanted: DeviceClaim) -> Iterator[str]:
    return iter(dict.fromkeys(name for _, name in _named_classes(wanted)))


def _named_classes(wanted: DeviceClaim) -> Iterator[tuple[str, str]]:
    """Each class that is named, with every name by which a step could be bound to its request."""
    for request in wanted.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for choice in request.first_available:
            yield request.name, choice.device_class_name
            yield choice.name, choice.device_class_name


def _guesses(claim: ResourceClaim | ResourceClaimTemplate, wanted: DeviceClaim, cluster: Cluster) -> Iterator[str]:
    """Classes that are not there, but would be if a step of a topology were a root step."""
    for name in _classes(wanted):
        if name in cluster.classes:
            continue
        for topology, found in cluster.topologies.items():
            if name.startswith(topology) and any(name == f"{topology}-{step.name}" for step in found.spec.steps):
                roots = ", ".join(f"{topology}-{step.name}" for step in found.spec.steps if step.is_root)
                yield (
                    f'{claim.kind} "{claim.metadata.name}": there is no DeviceClass "{name}", because that step of '
                    f'NetworkTopology "{topology}" is no device; request {roots}'
                )


def _warnings(claim: ResourceClaim | ResourceClaimTemplate, wanted: DeviceClaim, cluster: Cluster) -> Iterator[str]:
    named = f'{claim.kind} "{claim.metadata.name}"'
    for request in wanted.requests:
        exactly = request.exactly
        if exactly is None or not exactly.admin_access:
            continue
        found = cluster.classes.get(exactly.device_class_name)
        if found is not None and topologies_of_class(found):
            yield f'{named}, request "{request.name}": with adminAccess the device is looked at, and never attached'
    yield from _guesses(claim, wanted, cluster)
