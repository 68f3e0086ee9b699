"""Pods, and workloads with a pod template, that are about to be written: warnings for their authors.

None is ever rejected: every user may write pods. Called by `netdra.admission.server`, which reads the claims that they
name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from netdra.admission.messages import AdmissionRequest
from netdra.model.claim import ResourceClaim, ResourceClaimTemplate
from netdra.model.workload import Workload
from netdra.model.workload import read as read_workload
from netdra.review.world import World
from netdra.rules.workloads import Objects, check

KINDS = frozenset({"Pod", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"})
MAX_CLAIMS = 8
"""A pod with more claims is not looked at: each is read from the API server while its author waits."""
MAX_WARNINGS = 8


def read(request: AdmissionRequest) -> Workload | None:
    """The written workload; None for a kind that is not checked.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it cannot be read.
        InvalidInputError: a field has another type than Kubernetes states.
    """
    if request.too_deep or request.operation not in {"CREATE", "UPDATE"}:
        return None
    found = read_workload(msgspec.json.decode(request.object), request.kind.kind)
    if found is None or len(found.spec.resource_claims or ()) > MAX_CLAIMS:
        return None
    return replace(found, metadata=replace(found.metadata, namespace=request.namespace))


def named(workload: Workload) -> Iterator[tuple[bool, str]]:
    """The claims and templates that it names, once: whether it is a template, and its name."""
    entries = workload.spec.resource_claims or ()
    yield from dict.fromkeys((False, entry.resource_claim_name) for entry in entries if entry.resource_claim_name)
    templates = (entry.resource_claim_template_name for entry in entries)
    yield from dict.fromkeys((True, name) for name in templates if name)


def warnings(
    workload: Workload,
    claims: Sequence[ResourceClaim | ResourceClaimTemplate] | None,
    cluster: World,
    *,
    trusted: bool,
) -> tuple[str, ...]:
    """The warnings, the first ones if there are many.

    Args:
        claims: those of the claims and templates that it names that are there; None if they were not read.
        trusted: whether the request comes from the API server; other clients get no values of claims.
    """
    objects = Objects(
        claims={(claim.kind, workload.metadata.namespace, claim.metadata.name): claim for claim in claims or ()},
        topologies=cluster.topologies,
        classes=cluster.classes,
        where="",
        has_claims=claims is not None,
    )
    found = (wrong.finding.text for wrong in check(workload, objects) if trusted or not wrong.quotes)
    return tuple(islice(found, MAX_WARNINGS))
