"""A pod as its manifest describes it: the claims that it names, with their objects in files.

Used by `netdra render --pod`. Of Deployments, StatefulSets, DaemonSets and Jobs the template is the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from netdra.cli import inputs
from netdra.cli.objects import InputObjects
from netdra.model import documents, suggestions
from netdra.model.claim import ResourceClaim, ResourceClaimTemplate
from netdra.model.core import BareObject, ClusterPod, PodClaim, PodSpec
from netdra.model.documents import Document
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.resource import Wire
from netdra.model.workload import Workload
from netdra.model.workload import read as read_workload

_RANDOM = "xxxxx"
"""In the place of the characters that Kubernetes adds to a name."""


class _Template(Wire, frozen=True):
    spec: PodSpec


class _Ordinals(Wire, frozen=True):
    start: int = 0


class _WorkloadSpec(Wire, frozen=True):
    template: _Template
    ordinals: _Ordinals | None = None


class _Workload(BareObject, frozen=True):
    spec: _WorkloadSpec


class ShownPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is, or will be.

    Attributes:
        called: the object of the file, as messages call it.
        name: of the pod; of a StatefulSet's pods the first one's; an impossible name if the name ends at random.
        claims: the entries of its claims, in its order.
        made: by the pod's name for a claim, the ResourceClaim that was made for it.
        workload: the object, as it is checked; None without containers.
    """

    called: str
    name: str
    namespace: str
    claims: tuple[PodClaim, ...]
    made: dict[str, str] = {}
    workload: Workload | None = None

    @property
    def certain_name(self) -> str:
        """The pod's name, "" if it ends at random."""
        return "" if self.name.endswith(_RANDOM) else self.name


class ShownClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One of a pod's claims: the pod's name for it, its object in the files, and the claim that is made of that.

    Entries that name one object have one claim.
    """

    name: str
    origin: str
    claim: ResourceClaim


_KINDS: dict[tuple[str, str], type[ClusterPod | _Workload]] = {
    ("v1", "Pod"): ClusterPod,
    ("apps/v1", "Deployment"): _Workload,
    ("apps/v1", "StatefulSet"): _Workload,
    ("apps/v1", "DaemonSet"): _Workload,
    ("batch/v1", "Job"): _Workload,
}
_EXPECTED = "Pod, Deployment, StatefulSet, DaemonSet or Job"


def read(given: InputObjects, path: str) -> ShownPod:
    """The pod of a file of the input. Pods of other files are ignored.

    Raises:
        InvalidInputError: the input does not contain exactly one pod, or the pod breaks its schema.
    """
    own = inputs.identities([path])
    pods = [
        _pod(entry.value, kind, entry.place)
        for entry in given.foreign
        if entry.file in own and (kind := _KINDS.get((entry.value["apiVersion"], entry.value["kind"])))
    ]
    if not pods:
        raise given.missing(_EXPECTED, path)
    if len(pods) > 1:
        what = f"{inputs.name(path)}: only one {_EXPECTED} is supported, but the file contains {len(pods)}"
        raise InvalidInputError(what, hint="use one file per object", code="ND4039")
    return pods[0]


def _pod(value: dict[str, Any], kind: type[ClusterPod | _Workload], place: str) -> ShownPod:
    object_ = documents.convert(value, kind, f"{place}: {value['kind']}")
    name = object_.metadata.name or f"{object_.metadata.generate_name}{_RANDOM}"
    called = f'{value["kind"]} "{name}"'
    made: dict[str, str] = {}
    if isinstance(object_, ClusterPod):
        spec = object_.spec
        statuses = object_.status.resource_claim_statuses or ()
        made = {status.name: status.resource_claim_name for status in statuses if status.resource_claim_name}
    else:
        spec = object_.spec.template.spec
        ordinals = object_.spec.ordinals or _Ordinals()
        name += f"-{ordinals.start}" if value["kind"] == "StatefulSet" else f"-{_RANDOM}"
    if not spec.resource_claims:
        raise InvalidInputError(
            f"{called} does not refer to any claims", hint="list them in the pod's spec.resourceClaims", code="ND4040"
        )
    return ShownPod(
        called=called,
        name=name,
        namespace=object_.metadata.namespace,
        claims=spec.resource_claims,
        made=made,
        workload=read_workload(value, place),
    )


def claims(pod: ShownPod, objects: Sequence[Document]) -> list[ShownClaim]:
    """The claims of a pod, in its order.

    Raises:
        InvalidInputError: the pod names an object that is not there.
    """
    written: dict[tuple[str, str], ResourceClaim] = {}
    listed: list[ShownClaim] = []
    for at, entry in enumerate(pod.claims):
        kind, name = _meant(pod, at, entry, objects)
        object_ = _object(pod, at, entry, kind, name, objects)
        if isinstance(object_, ResourceClaimTemplate):
            # Kubernetes adds five letters and digits to this name.
            claim = of_template(object_, pod.name, f"{pod.name}-{entry.name}", pod.namespace)
        else:
            claim = written.setdefault((object_.metadata.namespace, name), object_)
        listed.append(ShownClaim(name=entry.name, origin=f"{kind} {name}", claim=claim))
    return listed


def of_template(template: ResourceClaimTemplate, pod: str, name: str, namespace: str = "") -> ResourceClaim:
    """The claim that is made of a template for a pod."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod, uid="", controller=True)
    metadata = ObjectMeta(name=name, namespace=namespace or template.metadata.namespace, owner_references=(owner,))
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _meant(pod: ShownPod, at: int, entry: PodClaim, objects: Sequence[Document]) -> tuple[str, str]:
    """The kind and the name of an entry's object; that of the claim that was made, if the files have it."""
    if entry.resource_claim_name:
        return ResourceClaim.__name__, entry.resource_claim_name
    made = pod.made.get(entry.name, "")
    if made and any(_candidates(ResourceClaim.__name__, made, pod.namespace, objects)):
        return ResourceClaim.__name__, made
    if entry.resource_claim_template_name:
        return ResourceClaimTemplate.__name__, entry.resource_claim_template_name
    raise InvalidInputError(
        f"{_entry(pod, at, entry)} refers to neither a claim nor a template",
        hint="set resourceClaimName or resourceClaimTemplateName",
        code="ND4041",
    )


def _object(
    pod: ShownPod, at: int, entry: PodClaim, kind: str, name: str, objects: Sequence[Document]
) -> ResourceClaim | ResourceClaimTemplate:
    candidates = list(_candidates(kind, name, pod.namespace, objects))
    if not candidates:
        named = f"{pod.namespace}/{name}" if pod.namespace else name
        there = [f"{item.metadata.namespace}/{item.metadata.name}".lstrip("/") for item in objects if item.kind == kind]
        raise InvalidInputError(
            f'{_entry(pod, at, entry)}: {kind} "{named}" not found in the files',
            hint=suggestions.hint(name, there, f"{kind}s in the files:")
            or "add a PATH that contains it, or use --cluster",
            code="ND4042",
        )
    return candidates[0]


def _candidates(
    kind: str, name: str, namespace: str, objects: Sequence[Document]
) -> Iterator[ResourceClaim | ResourceClaimTemplate]:
    """The objects that a pod can mean. An object without a namespace in a file is created where the pod is."""
    for item in objects:
        if (
            isinstance(item, ResourceClaim | ResourceClaimTemplate)
            and (item.kind, item.metadata.name) == (kind, name)
            and (item.metadata.namespace == namespace or "" in (item.metadata.namespace, namespace))
        ):
            yield item


def _entry(pod: ShownPod, at: int, entry: PodClaim) -> str:
    return f'{pod.called}, spec.resourceClaims[{at}] "{entry.name}"'
