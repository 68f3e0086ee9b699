"""Whether the scheduler can meet the requests of topologies, claims and pods with the published slices. Pure.

The facts are filled by `scheduling_look`; called by `netdra doctor`. `netdra simulate` foresees the same of slices in
files, and the webhook (`netdra.review.searches`) on nodes' reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import msgspec

from netdra.cluster.objects import PlacedPod
from netdra.doctor.cluster_verdicts import AS_ADMINISTRATOR, NAMED
from netdra.doctor.diagnosis import Diagnosis, Unseen, diagnose
from netdra.model.claim import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from netdra.model.meta import ObjectMeta
from netdra.model.names import IMPLICIT_RESOURCE
from netdra.model.resource import ResourceSlice
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion
from netdra.model.topology import NetworkTopology
from netdra.slices.allocator import Allocator, claim_key
from netdra.topology.classes import known_classes, plain_claim
from netdra.topology.selectors import is_about_driver, is_for

CHECK = "searches of the scheduler"

Claims = tuple[ResourceClaim, ...]
"""The claims of one pod."""
_finding = partial(diagnose, "cluster")


class SchedulingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's inputs, and the requests to it.

    Attributes:
        is_part: whether there are more slices, or more objects of another kind, than were read.
        pods: those that are not scheduled.
        version: that of Kubernetes.
    """

    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    topologies: tuple[NetworkTopology, ...] = ()
    templates: tuple[ResourceClaimTemplate, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
    is_part: bool = False
    version: SchedulerVersion = NEWEST_SCHEDULER


def verdicts(facts: SchedulingFacts | Unseen) -> list[Diagnosis]:
    """One finding for each object that the scheduler may leave Pending although devices are free."""
    if isinstance(facts, Unseen):
        return [_finding(CHECK, "warning", f"could not be read: {facts.why}", AS_ADMINISTRATOR, code="ND3174")]
    classes = known_classes(facts.topologies, facts.classes)
    # Objects that ask for the same have one finding, also if some of them are made of a template.
    asking: dict[tuple[bytes, ...], tuple[Claims, list[str]]] = {}
    for named, claims in _asked(facts, classes.values()):
        specs = tuple(msgspec.json.encode(claim.spec) for claim in claims)
        asking.setdefault(specs, (claims, []))[1].append(named)
    allocator = Allocator(facts.slices, classes.values(), version=facts.version)
    findings = [
        finding
        for claims, objects in asking.values()
        for finding in allocator.foresee(*claims).findings(_named(objects))
    ]
    part = f" on the first {len(facts.slices)} ResourceSlices" if facts.is_part else ""
    if not findings:
        return [_finding(CHECK, "ok", f"{len(asking)} different requests for devices can be searched in time{part}")]
    found = [_finding(CHECK, "warning", finding.coded, finding.hint) for finding in findings[:NAMED]]
    if len(findings) > NAMED:
        found.append(
            _finding(
                CHECK, "warning", f"{len(findings) - NAMED} more warnings of this kind", "see the first", code="ND3175"
            )
        )
    return found


def _named(objects: Sequence[str]) -> str:
    return objects[0] + (f" and {len(objects) - 1} more" if len(objects) > 1 else "")


def _asked(facts: SchedulingFacts, classes: Collection[DeviceClass]) -> Iterator[tuple[str, Claims]]:
    """Each object that requests devices of netdra, with its claims; a topology requests one for each root step."""
    ours = {entry.metadata.name for entry in classes if is_about_driver(entry.spec.selectors)}
    for topology in facts.topologies:
        yield f'NetworkTopology "{topology.name}"', (plain_claim(topology),)
    templates = [ResourceClaim(metadata=entry.metadata, spec=entry.spec.spec) for entry in facts.templates]
    for kind, claims in (("ResourceClaimTemplate", templates), ("ResourceClaim", facts.claims)):
        for claim in claims:
            if claim.status.allocation is None and is_for(claim.spec.devices, ours):
                yield f'{kind} "{claim_key(claim)}"', (claim,)
    yield from _asked_by_pods(facts, classes, ours, templates)


def _asked_by_pods(
    facts: SchedulingFacts, classes: Iterable[DeviceClass], ours: AbstractSet[str], templates: Iterable[ResourceClaim]
) -> Iterator[tuple[str, Claims]]:
    """The pods with several claims, or with extended resources, for devices of netdra."""
    by_resource = _by_resource(classes, ours)
    by_template = {claim_key(claim): claim for claim in templates}
    by_name = {claim_key(claim): claim for claim in facts.claims if claim.status.allocation is None}
    for pod in (pod for pod in facts.pods if pod.metadata.deletion_timestamp is None):
        limits = [*_limits(pod, by_resource)]
        own = [_claim(pod.metadata, limits)] if limits else []
        beside = f"{pod.metadata.namespace or 'default'}/"
        named = (
            by_template.get(f"{beside}{entry.resource_claim_template_name}")
            or by_name.get(f"{beside}{entry.resource_claim_name}")
            for entry in pod.spec.resource_claims or ()
        )
        asked = (*(claim for claim in named if claim is not None), *own)
        if limits or (len(asked) > 1 and any(is_for(claim.spec.devices, ours) for claim in asked)):
            yield f'Pod "{beside}{pod.metadata.name}"', asked


def _by_resource(classes: Iterable[DeviceClass], ours: AbstractSet[str]) -> dict[str, str]:
    """The classes of netdra by the extended resources that request them."""
    own = [entry for entry in classes if entry.metadata.name in ours]
    named = {entry.spec.extended_resource_name or "": entry.metadata.name for entry in own}
    named.pop("", None)
    return {f"{IMPLICIT_RESOURCE}{name}": name for name in ours} | named


def _limits(pod: PlacedPod, by_resource: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """A pod's limits of extended resources: the resource, its class and the amount."""
    for container in pod.spec.containers or ():
        for resource, limit in container.limits.items():
            if resource in by_resource and str(limit).isdecimal() and int(limit):
                yield resource, by_resource[resource], int(limit)


def _claim(metadata: ObjectMeta, wanted: Iterable[tuple[str, str, int]]) -> ResourceClaim:
    """A claim with requests, each with its name, its class and how many devices it wants."""
    requests = tuple(
        DeviceRequest(name=name, exactly=ExactDeviceRequest(device_class_name=of, count=count))
        for name, of, count in wanted
    )
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))
