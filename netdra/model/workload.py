"""Workloads as in their manifests: a Pod, or a kind with a pod template, with the fields that netdra checks.

Pods and CronJobs have their pods at a known place (k8s.io/api: core/v1, batch/v1). In other kinds each `spec` with the
containers of a pod, or with the domain of a virtual machine, is one: those of Deployments, JobSets, RayClusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import suggestions
from netdra.model.core import PodClaim
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.meta import ObjectMeta
from netdra.model.reasons import fitted
from netdra.model.resource import Wire

_OF_TEMPLATE: Path = ("spec", "template", "spec")
_PLACES: Mapping[str, Path] = {"Pod": ("spec",), "CronJob": ("spec", "jobTemplate", *_OF_TEMPLATE)}
_COUNTED: Mapping[str, Path] = {
    "Deployment": ("spec", "replicas"),
    "StatefulSet": ("spec", "replicas"),
    "ReplicaSet": ("spec", "replicas"),
    "Job": ("spec", "parallelism"),
    "CronJob": ("spec", "jobTemplate", "spec", "parallelism"),
}
"""Where a kind says how many pods it has at one time; 1 where nothing is said."""


class ListedClaim(Wire, frozen=True):
    """A claim that a container lists, or one request of it."""

    name: str
    request: str = ""


class WorkloadResources(Wire, frozen=True):
    """The requests of a container."""

    claims: tuple[ListedClaim, ...] | None = ()
    limits: Mapping[str, Any] | None = None
    requests: Mapping[str, Any] | None = None


class WorkloadContainer(Wire, frozen=True):
    """The fields of a container by which it takes part in claims: its listed claims, limits and requests."""

    name: str = ""
    resources: WorkloadResources | None = None

    @property
    def listed(self) -> tuple[ListedClaim, ...]:
        """The claims that it lists."""
        return (self.resources.claims or ()) if self.resources is not None else ()

    @property
    def limits(self) -> Mapping[str, Any]:
        """Its limits by the resource's name."""
        return (self.resources.limits or {}) if self.resources is not None else {}

    @property
    def amounts(self) -> Mapping[str, Any]:
        """Its resources by name: limits, and requests without a limit."""
        resources = self.resources or WorkloadResources()
        return {**(resources.requests or {}), **(resources.limits or {})}


class WorkloadPodSpec(Wire, frozen=True):
    """A pod's containers and claims."""

    containers: tuple[WorkloadContainer, ...] | None = ()
    init_containers: tuple[WorkloadContainer, ...] | None = ()
    resource_claims: tuple[PodClaim, ...] | None = ()
    host_network: bool | None = False


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod, or an object that makes pods.

    Attributes:
        kind: e.g. `StatefulSet`.
        pods: how many it has at one time; None if that follows from the nodes.
        first: the ordinal of its first pod.
        spec: the pods'.
        place: where that is in the object.
    """

    kind: str
    metadata: ObjectMeta
    pods: int | None
    first: int
    spec: WorkloadPodSpec
    place: Path

    @property
    def called(self) -> str:
        """The object, as messages name it."""
        return f'{self.kind} "{self.metadata.name or self.metadata.generate_name}"'

    def containers(self) -> list[tuple[WorkloadContainer, Path]]:
        """All containers, each with its place."""
        lists = (("initContainers", self.spec.init_containers), ("containers", self.spec.containers))
        return [(each, (*self.place, name, at)) for name, listed in lists for at, each in enumerate(listed or ())]


def read(value: object, place: str) -> Workload | None:
    """The workload that a document is; None if it has no pods.

    Args:
        value: plain, as YAML and JSON have it.
        place: where the document is, for errors.

    Raises:
        InvalidInputError: a field has another type than Kubernetes states.
    """
    found, findings = next(examine(value, strict=False), (None, ()))
    if findings:
        raise InvalidInputError("\n".join(f"{place}: {finding.text_at_path}" for finding in findings), code="ND1541")
    return found


def examine(value: object, *, strict: bool = True) -> Iterator[tuple[Workload | None, tuple[Finding, ...]]]:
    """The pods that a document makes, and the errors in how their parts are written that netdra reads.

    Args:
        value: plain, as YAML and JSON have it.
        strict: whether unknown fields are reported, where claims are named; the API server drops or rejects them.

    Returns:
        an entry for each pod spec; no workload if it cannot be read.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        return
    for path in [_PLACES[kind]] if kind in _PLACES else _pod_specs(value):
        written = _at(value, path)
        if _is_pod_spec(written):
            yield _examined(value, kind, path, strict=strict)


def _is_pod_spec(value: object) -> bool:
    """Whether a value has the shape of a pod's spec, or of a virtual machine's, which has a domain for containers."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("containers"), list) or (
        isinstance(value.get("domain"), dict) and isinstance(value.get("resourceClaims"), list)
    )


def _pod_specs(value: object, path: Path = ()) -> Iterator[Path]:
    """The places of pod specs in an object of any kind, without its status; none is inside another."""
    if path and path[-1] == "spec" and _is_pod_spec(value):
        yield path
        return
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from _pod_specs(entry, (*path, key)) if (*path, key) != ("status",) else ()


def _examined(
    value: Mapping[str, Any], kind: str, path: Path, *, strict: bool
) -> tuple[Workload | None, tuple[Finding, ...]]:
    """One pod spec of a document; see `examine`."""
    written = _at(value, path)
    metadata, wrong_metadata = fitted(value.get("metadata") or {"name": ""}, ObjectMeta)
    spec, wrong_spec = fitted(written, WorkloadPodSpec)
    unknown = _unknown(written) if strict else ()
    findings = [
        *(msgspec.structs.replace(finding, path=("metadata", *finding.path)) for finding in wrong_metadata),
        *(msgspec.structs.replace(finding, path=(*path, *finding.path)) for finding in (*wrong_spec, *unknown)),
    ]
    called = f'{kind} "{_name(value)}"'
    named = tuple(msgspec.structs.replace(finding, what=f"{called}: {finding.what}") for finding in findings)
    if metadata is None or spec is None:
        return None, named
    count = _at(value, _COUNTED[kind]) if kind in _COUNTED else None
    pods = None if kind == "DaemonSet" else count if isinstance(count, int) else 1
    first = _at(value, ("spec", "ordinals", "start")) if kind == "StatefulSet" else 0
    found = Workload(
        kind=kind,
        metadata=metadata,
        pods=pods,
        first=first if isinstance(first, int) else 0,
        spec=spec,
        place=path,
    )
    return found, named


_NEAR = 0.85
_OF_PODS = ("resourceClaims", "hostNetwork", "containers", "initContainers")
"""The fields of a pod that netdra reads; the names of others are not checked, because Kubernetes adds some."""


def _unknown(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Fields that no Kubernetes knows: in the claims of a pod, and in the resources of its containers."""
    absent = [name for name in _OF_PODS if name not in spec]
    for key in spec:
        meant = suggestions.closest(str(key), absent, _NEAR) if key not in _OF_PODS else ""
        if meant and key != "ephemeralContainers":
            yield Finding(f'unknown field "{key}"', f'did you mean "{meant}"?', (str(key),), code="ND1542")
    for place, entry in _entries(spec, ("resourceClaims",)):
        yield from _fields(entry, ("name", "resourceClaimName", "resourceClaimTemplateName"), place)
    for name in ("containers", "initContainers"):
        for place, container in _entries(spec, (name,)):
            resources = container.get("resources")
            if not isinstance(resources, dict):
                continue
            yield from _fields(resources, ("claims", "limits", "requests"), (*place, "resources"))
            for inner, entry in _entries(resources, ("claims",)):
                yield from _fields(entry, ("name", "request"), (*place, "resources", *inner))


def _entries(value: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The objects in a list, each with its place."""
    listed = _at(value, path)
    for at, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict):
            yield (*path, at), entry


def _fields(value: Mapping[str, Any], known: Sequence[str], path: Path) -> Iterator[Finding]:
    for key in value:
        if key not in known:
            hint = suggestions.hint(str(key), [name for name in known if name not in value] or known, "fields:")
            yield Finding(f'unknown field "{ascii(str(key)[:80])[1:-1]}"', hint, (*path, str(key)), code="ND1543")


def _name(value: Mapping[str, Any]) -> str:
    metadata = value.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    name = given.get("name") or given.get("generateName")
    return name[:80] if isinstance(name, str) else ""


def _at(value: Any, path: Path) -> Any:
    for part in path:
        if isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value
