"""Workloads as their manifests have them: a Pod, or what makes pods of a template, with the fields that netdra checks.

Every kind with a pod template in `spec.template.spec` is one, known or not, and CronJobs (k8s.io/api: core/v1, apps/v1,
batch/v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.model import documents
from netdra.model.core import PodClaim
from netdra.model.findings import Path
from netdra.model.meta import ObjectMeta
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
    """A claim that a container lists."""

    name: str


class WorkloadResources(Wire, frozen=True):
    """What a container asks for."""

    claims: tuple[ListedClaim, ...] | None = ()
    limits: Mapping[str, Any] | None = None
    requests: Mapping[str, Any] | None = None


class WorkloadContainer(Wire, frozen=True):
    """A container."""

    name: str = ""
    resources: WorkloadResources | None = None

    @property
    def listed(self) -> tuple[ListedClaim, ...]:
        """The claims that it lists."""
        return (self.resources.claims or ()) if self.resources is not None else ()

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
        InvalidInputError: a field has another type than Kubernetes says.
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        return None
    path = _PLACES.get(kind, _OF_TEMPLATE)
    spec = _at(value, path)
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        return None
    where = f"{place}: {kind}"
    metadata = documents.convert(value.get("metadata") or {"name": ""}, ObjectMeta, where)
    count = _at(value, _COUNTED[kind]) if kind in _COUNTED else None
    pods = None if kind == "DaemonSet" else count if isinstance(count, int) else 1
    first = _at(value, ("spec", "ordinals", "start")) if kind == "StatefulSet" else 0
    return Workload(
        kind=kind,
        metadata=metadata,
        pods=pods,
        first=first if isinstance(first, int) else 0,
        spec=documents.convert(spec, WorkloadPodSpec, f"{where}: {'.'.join(map(str, path))}"),
        place=path,
    )


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value
