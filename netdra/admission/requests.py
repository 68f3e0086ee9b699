"""One admission request to its verdict: the object is read, and reviewed beside the others (`netdra.review`).

Pure. Called by `netdra.admission.server` for claims and classes, and by `netdra.admission.worker` for the kinds whose
expressions are compiled, and for the searches that claims may cause. An object of netdra that cannot be read is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from netdra.admission.messages import ALLOWED, NOTHING, AdmissionRequest, Verdict
from netdra.exposure.check import try_out
from netdra.model import documents
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate, device_claim
from netdra.model.custom_device import CustomDevice
from netdra.model.depth import MOST
from netdra.model.errors import UNREADABLE, InvalidInputError, with_code
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.review import index, objects, policies, searches, topologies, world
from netdra.review.claims import Claim
from netdra.review.index import WorldIndex
from netdra.review.objects import ObjectFindings
from netdra.review.world import World
from netdra.rules.limits import is_claim_within, is_class_within
from netdra.topology import graph
from netdra.topology.classes import owner

T = TypeVar("T")
CLAIMS = frozenset({ResourceClaim.__name__, ResourceClaimTemplate.__name__})
CLASS = DeviceClass.__name__
POLICY = DeviceExposurePolicy.__name__
_KINDS: Mapping[str, Any] = {
    kind.__name__: kind for kind in (NetworkTopology, DeviceExposurePolicy, CNIPluginSchema, CustomDevice, PodNetwork)
}
"""Those that only administrators write."""
_plain_claim = msgspec.json.Decoder(ResourceClaim)
_template = msgspec.json.Decoder(ResourceClaimTemplate)
_STORED = "admitted, because the stored object has the same error"
_GROUPS = {"networking.dra.io", "cni.networking.k8s.io", "resource.k8s.io"}


def verdict_on(request: AdmissionRequest, cluster: World, in_time: Callable[[], bool] = lambda: True) -> Verdict:
    """Whether a write may happen. Writes of other kinds, and every deletion, may.

    Args:
        request: the write.
        cluster: the other objects.
        in_time: whether there is time for warnings, which decide nothing.
    """
    kind = request.kind.kind
    if request.kind.group not in _GROUPS:
        return ALLOWED
    if request.operation not in {"CREATE", "UPDATE"}:
        return _deletion(request, cluster, in_time)
    if kind in CLAIMS:
        try:
            return _claim(request, cluster, in_time)
        except InvalidInputError as problem:
            return Verdict((str(problem),))
    if kind == CLASS:
        return _class(request, cluster)
    if kind not in _KINDS:
        return ALLOWED
    if request.too_deep:
        return Verdict((with_code(f'{kind} "{request.name}": nested more than {MOST} levels deep', "ND3101"),))
    judged = _judged(request, cluster, in_time)
    if judged.allowed or request.operation != "UPDATE":
        return judged
    # As the API server does with its own rules (KEP-4008): an object that is older than a rule can be changed
    # elsewhere.
    stored = replace(request, operation="CREATE", object=request.old_object, old_object=NOTHING)
    before = {*_judged(stored, cluster, in_time).errors}
    new = tuple(error for error in judged.errors if error not in before)
    return Verdict(new) if new else Verdict(warnings=tuple(f"{_STORED}: {error}" for error in judged.errors))


def narrowed(request: AdmissionRequest, cluster: World, of: WorldIndex | None = None) -> World:
    """The part of the cluster that the verdict needs; none if the object cannot be read: it is refused.

    Args:
        request: the write.
        cluster: the other objects.
        of: the index of these objects, or of the same a moment later; made here without one.
    """
    kind = request.kind.kind
    try:
        if request.too_deep or not (kind in _KINDS or kind in CLAIMS):
            return world.NOTHING
        value = read_claim(request) if kind in CLAIMS else msgspec.json.decode(request.object, type=_KINDS[kind] | None)
        return index.narrowed(value, cluster, of)
    except UNREADABLE:
        return world.NOTHING


def read_claim(request: AdmissionRequest) -> Claim:
    """The claim, or the template, that is written, as messages call it: the server makes a name after the review.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it cannot be read, or is larger than the API server takes.
    """
    claim = (_template if request.kind.kind == ResourceClaimTemplate.__name__ else _plain_claim).decode(request.object)
    if not is_claim_within(device_claim(claim)[0]):
        raise msgspec.ValidationError("larger than the limit of the API server")
    name = claim.metadata.name or f"{claim.metadata.generate_name}*"
    namespace = request.namespace or claim.metadata.namespace
    return replace(claim, metadata=replace(claim.metadata, name=name, namespace=namespace))


def _verdict(found: ObjectFindings, kind: str) -> Verdict:
    """The texts of findings."""
    errors, warnings = (
        tuple(objects.text_of(kind, finding) for finding in findings) for findings in (found.errors, found.warnings)
    )
    return Verdict(errors, warnings)


def _judged(request: AdmissionRequest, cluster: World, in_time: Callable[[], bool]) -> Verdict:
    kind = _KINDS[request.kind.kind]
    try:
        new = _read(request.object, kind)
        found = objects.review(new, cluster, _read_any(request.old_object, kind), in_time)
        if isinstance(new, DeviceExposurePolicy) and not found.errors:
            try_out(new.spec.selector.cel)
    except msgspec.ValidationError:
        return Verdict(tuple(_findings(request)))
    except (*UNREADABLE, InvalidInputError) as problem:
        return Verdict((f'{request.kind.kind} "{request.name}": {problem}',))
    return _verdict(found, request.kind.kind)


def _claim(request: AdmissionRequest, cluster: World, in_time: Callable[[], bool]) -> Verdict:
    """The verdict on a claim. One that cannot be read is admitted: the API server itself rejects that.

    In a worker, which has the nodes' offers: the warnings of a claim that the scheduler may leave Pending.

    Raises:
        InvalidInputError: the API server would take it, and netdra cannot.
    """
    if cluster.offers.nodes:
        of = cluster.classes, cluster.policies, cluster.offers, in_time
        return Verdict(warnings=tuple(finding.text for finding in searches.of_claim(read_claim(request), *of)))
    try:
        claim = read_claim(request)
    except UNREADABLE:
        return ALLOWED
    return _verdict(objects.review(claim, cluster), request.kind.kind)


def _class(request: AdmissionRequest, cluster: World) -> Verdict:
    """The errors of a DeviceClass, as far as it has configuration for netdra.

    Classes are every driver's, so a class that cannot be read, or is larger than the API server takes, is admitted:
    the API server itself rejects that.
    """
    try:
        device_class = _read(request.object, DeviceClass)
    except UNREADABLE:
        return ALLOWED
    if not is_class_within(device_class.spec):
        return ALLOWED
    return _verdict(objects.review(device_class, cluster), request.kind.kind)


def owned_class(request: AdmissionRequest) -> DeviceClass | None:
    """The class that is written, if a topology owns it; None for any other object."""
    if request.kind.kind != CLASS or request.operation not in {"CREATE", "UPDATE"}:
        return None
    device_class = _read_any(request.object, DeviceClass)
    if device_class is None or not is_class_within(device_class.spec) or not owner(device_class):
        return None
    return device_class


def is_of_another(request: AdmissionRequest, stored: NetworkTopology | None) -> bool:
    """Whether the topology in a request has another uid than the stored one, so that the client cannot read that.

    Args:
        request: an update.
        stored: the topology of the name; None if none is known.
    """
    old = _read_any(request.old_object, NetworkTopology)
    return stored is not None and (old is None or old.metadata.uid != stored.metadata.uid)


def is_reshaped(request: AdmissionRequest) -> bool:
    """Whether a topology is about to get other steps; only then its users matter."""
    if request.operation != "UPDATE" or request.too_deep:
        return False
    try:
        new = _read(request.object, NetworkTopology)
    except UNREADABLE:
        return False
    old = _read_any(request.old_object, NetworkTopology)
    return old is not None and topologies.shape(new) != topologies.shape(old)


def policies_of(request: AdmissionRequest) -> tuple[DeviceExposurePolicy | None, DeviceExposurePolicy | None]:
    """The policy as it is and as it will be; None if none exists, or if it cannot be read."""
    if request.too_deep:
        return None, None
    return _read_any(request.old_object, DeviceExposurePolicy), _read_any(request.object, DeviceExposurePolicy)


def _deletion(request: AdmissionRequest, cluster: World, in_time: Callable[[], bool]) -> Verdict:
    """The effect of a policy's deletion; other kinds and operations have no verdict of their own."""
    old = policies_of(request)[0] if request.operation == "DELETE" and request.kind.kind == POLICY else None
    if old is None:
        return ALLOWED
    return Verdict(warnings=tuple(finding.text for finding in policies.of_deletion(old, cluster, in_time)))


def _read(raw: msgspec.Raw, kind: type[T]) -> T:
    decoded: T = msgspec.json.decode(raw, type=kind)
    return decoded


def _findings(request: AdmissionRequest) -> Iterator[str]:
    """All errors of an object that does not fit its kind; of a topology also its steps' errors, where they are read."""
    value = msgspec.json.decode(request.object)
    if isinstance(value, dict):
        value.setdefault("kind", request.kind.kind)
    document, findings = documents.examine(value, f'{request.kind.kind} "{request.name}"', strict=False)
    yield from (finding.text_at_path for finding in findings)
    if isinstance(document, NetworkTopology):
        yield from (finding.text for finding in graph.examine(document)[1])


def _read_any(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """An object; None if none exists, or if it cannot be read: nothing uses a present object that cannot be read."""
    try:
        decoded: Any = msgspec.json.decode(raw, type=kind | None)
    except UNREADABLE:
        return None
    return decoded  # type: ignore[no-any-return]
