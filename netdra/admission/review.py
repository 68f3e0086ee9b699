"""One admission request to its verdict: which kind it is of, and whether it can be read.

Pure. Called by `netdra.admission.server` for claims and classes, and by `netdra.admission.worker` for the kinds whose
authors' expressions are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from netdra.admission import claims, classes, custom_devices, policies, schemas, topologies
from netdra.admission.cluster import Cluster
from netdra.admission.messages import ALLOWED, AdmissionRequest, Verdict
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.custom_device import CustomDevice
from netdra.model.depth import MOST
from netdra.model.errors import InvalidInputError
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.reasons import reason
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology

T = TypeVar("T")
CLAIMS = frozenset({ResourceClaim.__name__, ResourceClaimTemplate.__name__})
CLASS = DeviceClass.__name__
_GROUPS = {"networking.dra.io", "cni.networking.k8s.io", "resource.k8s.io"}


def review(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    """Whether a write may happen. What is none of ours, and every deletion, may."""
    kind = request.kind.kind
    if request.operation not in {"CREATE", "UPDATE"} or request.kind.group not in _GROUPS:
        return ALLOWED
    if kind in CLAIMS:
        try:
            return claims.review(request, cluster)
        except InvalidInputError as problem:
            return Verdict((str(problem),))
    if kind == CLASS:
        return classes.review(request)
    if kind not in _KINDS:
        return ALLOWED
    if request.too_deep:
        return Verdict((f'{kind} "{request.name}": nested more than {MOST} levels deep',))
    try:
        return _KINDS[kind](request, cluster)
    except (msgspec.DecodeError, InvalidInputError) as problem:
        return Verdict((f'{kind} "{request.name}": {problem}',))


def is_reshaped(request: AdmissionRequest) -> bool:
    """Whether a topology is about to get other steps; only then it matters who uses it."""
    if request.operation != "UPDATE" or request.too_deep:
        return False
    try:
        new = _read(request.object, NetworkTopology)
    except msgspec.DecodeError:
        return False
    old = _read_old(request, NetworkTopology)
    return old is not None and topologies.shape(new) != topologies.shape(old)


def _topology(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    new, old = _read(request.object, NetworkTopology), _read_old(request, NetworkTopology)
    return topologies.review(new, old, cluster)


def _policy(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    return policies.review(_read(request.object, DeviceExposurePolicy), cluster.policies, cluster.added)


def _schema(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    return schemas.review(_read(request.object, CNIPluginSchema), cluster)


def _custom_device(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    return custom_devices.review(_read(request.object, CustomDevice), cluster.custom_devices)


_KINDS: Mapping[str, Callable[[AdmissionRequest, Cluster], Verdict]] = {
    NetworkTopology.__name__: _topology,
    DeviceExposurePolicy.__name__: _policy,
    CNIPluginSchema.__name__: _schema,
    CustomDevice.__name__: _custom_device,
}


def _read(raw: msgspec.Raw, kind: type[T]) -> T:
    try:
        found: T = msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as problem:
        raise msgspec.ValidationError(reason(problem, kind)) from None
    return found


def _read_old(request: AdmissionRequest, kind: type[T]) -> T | None:
    """What is there already; None if nothing is, or something that cannot be read and so is in nobody's use."""
    try:
        found: Any = msgspec.json.decode(request.old_object, type=kind | None)
    except msgspec.DecodeError:
        return None
    return found  # type: ignore[no-any-return]
