"""One admission request to its verdict, by the object's kind; an object of netdra that cannot be read is refused.

Pure. Called by `netdra.admission.server` for claims and classes, and by `netdra.admission.worker` for the kinds whose
expressions are compiled, and for the searches that claims may cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from netdra.admission import claims, custom_devices, policies, schemas, topologies
from netdra.admission.cluster import Cluster
from netdra.admission.messages import ALLOWED, NOTHING, AdmissionRequest, Verdict
from netdra.model import documents
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.custom_device import CustomDevice
from netdra.model.depth import MOST
from netdra.model.errors import UNREADABLE, InvalidInputError
from netdra.model.findings import Finding
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules import network_mtus, pod_networks, taken_ranges
from netdra.rules.classes import check_class
from netdra.rules.limits import is_class_within
from netdra.topology import graph
from netdra.topology.classes import owner

T = TypeVar("T")
CLAIMS = frozenset({ResourceClaim.__name__, ResourceClaimTemplate.__name__})
CLASS = DeviceClass.__name__
POLICY = DeviceExposurePolicy.__name__
_STORED = "admitted, because the stored object has the same error"
_GROUPS = {"networking.dra.io", "cni.networking.k8s.io", "resource.k8s.io"}


def review(request: AdmissionRequest, cluster: Cluster, in_time: Callable[[], bool] = lambda: True) -> Verdict:
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
            return (
                claims.foreseen(request, cluster, in_time) if cluster.offers.nodes else claims.review(request, cluster)
            )
        except InvalidInputError as problem:
            return Verdict((str(problem),))
    if kind == CLASS:
        return _class(request)
    of_kind = partial(_LONG[kind], in_time=in_time) if kind in _LONG else _KINDS.get(kind)
    if of_kind is None:
        return ALLOWED
    if request.too_deep:
        return Verdict((f'{kind} "{request.name}": nested more than {MOST} levels deep',))
    verdict = _judged(of_kind, request, cluster)
    if verdict.allowed or request.operation != "UPDATE":
        return verdict
    # As the API server does with its own rules (KEP-4008): what was stored before a rule came can be changed elsewhere.
    stored = replace(request, operation="CREATE", object=request.old_object, old_object=NOTHING)
    before = {*_judged(of_kind, stored, cluster).errors}
    new = tuple(error for error in verdict.errors if error not in before)
    return Verdict(new) if new else Verdict(warnings=tuple(f"{_STORED}: {error}" for error in verdict.errors))


def _judged(of_kind: Callable[..., Verdict], request: AdmissionRequest, cluster: Cluster) -> Verdict:
    try:
        return of_kind(request, cluster)
    except msgspec.ValidationError:
        return Verdict(tuple(_findings(request)))
    except (*UNREADABLE, InvalidInputError) as problem:
        return Verdict((f'{request.kind.kind} "{request.name}": {problem}',))


def _class(request: AdmissionRequest) -> Verdict:
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
    return Verdict(tuple(finding.text for finding in check_class(device_class)))


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
    old = _read_old(request, NetworkTopology)
    return stored is not None and (old is None or old.metadata.uid != stored.metadata.uid)


def is_reshaped(request: AdmissionRequest) -> bool:
    """Whether a topology is about to get other steps; only then its users matter."""
    if request.operation != "UPDATE" or request.too_deep:
        return False
    try:
        new = _read(request.object, NetworkTopology)
    except UNREADABLE:
        return False
    old = _read_old(request, NetworkTopology)
    return old is not None and topologies.shape(new) != topologies.shape(old)


def policies_of(request: AdmissionRequest) -> tuple[DeviceExposurePolicy | None, DeviceExposurePolicy | None]:
    """The policy as it is and as it will be; None if none exists, or if it cannot be read."""
    if request.too_deep:
        return None, None
    return _read_old(request, DeviceExposurePolicy), _read_any(request.object, DeviceExposurePolicy)


def _topology(request: AdmissionRequest, cluster: Cluster, *, in_time: Callable[[], bool]) -> Verdict:
    new, old = _read(request.object, NetworkTopology), _read_old(request, NetworkTopology)
    return topologies.review(new, old, cluster, in_time)


def _deletion(request: AdmissionRequest, cluster: Cluster, in_time: Callable[[], bool]) -> Verdict:
    """The effect of a policy's deletion; other kinds and operations have no verdict of their own."""
    old = policies_of(request)[0] if request.operation == "DELETE" and request.kind.kind == POLICY else None
    return ALLOWED if old is None else policies.review_deletion(old, cluster, in_time)


def _policy(request: AdmissionRequest, cluster: Cluster, *, in_time: Callable[[], bool]) -> Verdict:
    new, old = _read(request.object, DeviceExposurePolicy), _read_old(request, DeviceExposurePolicy)
    return policies.review(new, old, cluster, in_time)


def _schema(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    return schemas.review(_read(request.object, CNIPluginSchema), cluster)


def _custom_device(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    return custom_devices.review(_read(request.object, CustomDevice), cluster.custom_devices, cluster.nowhere)


def _pod_network(request: AdmissionRequest, cluster: Cluster) -> Verdict:
    new = _read(request.object, PodNetwork)
    if wrong := pod_networks.check(new):
        return Verdict(tuple(finding.text for finding in wrong))
    others = [network for name, network in sorted(cluster.pod_networks.items()) if name != new.name]
    near = [finding for name, finding in pod_networks.overlaps([*others, new]) if name == new.name]
    near += taken_ranges.overlaps(new, cluster.taken)
    unfit = [*_unfit(new, cluster.topologies.values())]
    near += unfit[: topologies.SHOWN]
    if len(unfit) > topologies.SHOWN:
        near.append(Finding(f"{len(unfit) - topologies.SHOWN} more warnings like these are not shown"))
    return Verdict(warnings=tuple(finding.text for finding in near))


def _unfit(network: PodNetwork, users: Iterable[NetworkTopology]) -> Iterator[Finding]:
    """Warnings for steps of topologies that no longer have the VLAN or the MTU of their network."""
    for topology in users:
        yield from pod_networks.check_steps(topology, {network.name: network})
        yield from network_mtus.check(topology, {network.name: network})


_LONG: Mapping[str, Callable[..., Verdict]] = {POLICY: _policy, NetworkTopology.__name__: _topology}
"""Those whose warnings take time: they are also told whether there is some left."""
_KINDS: Mapping[str, Callable[[AdmissionRequest, Cluster], Verdict]] = {
    CNIPluginSchema.__name__: _schema,
    CustomDevice.__name__: _custom_device,
    PodNetwork.__name__: _pod_network,
}


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


def _read_old(request: AdmissionRequest, kind: type[T]) -> T | None:
    """The present object; None if none exists, or if it cannot be read, because then nothing uses it."""
    return _read_any(request.old_object, kind)


def _read_any(raw: msgspec.Raw, kind: type[T]) -> T | None:
    try:
        decoded: Any = msgspec.json.decode(raw, type=kind | None)
    except UNREADABLE:
        return None
    return decoded  # type: ignore[no-any-return]
