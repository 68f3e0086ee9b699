"""A pod's claim is one object, whose name can be an object's."""

from __future__ import annotations

import pytest

from netdra.model.core import PodClaim
from netdra.model.meta import ObjectMeta
from netdra.model.workload import ListedClaim, Workload, WorkloadContainer, WorkloadPodSpec, WorkloadResources
from netdra.rules.workloads import check, known_objects

NOTHING = known_objects([])


def found(*listed: ListedClaim, **named: str) -> list[str]:
    workload = Workload(
        kind="Pod",
        metadata=ObjectMeta(name="web", namespace="app"),
        pods=1,
        first=0,
        spec=WorkloadPodSpec(
            containers=(WorkloadContainer(name="main", resources=WorkloadResources(claims=listed)),) if listed else (),
            resource_claims=(PodClaim(name="net", **named),),
        ),
        place=("spec",),
    )
    return [wrong.finding.text_at_path for wrong in check(workload, NOTHING)]


@pytest.mark.parametrize("field", ["resourceClaimName", "resourceClaimTemplateName"])
def test_a_name_that_no_object_can_have_is_reported_once_and_not_searched(field: str) -> None:
    named = {"resource_claim_name" if field == "resourceClaimName" else "resource_claim_template_name": "Lan"}
    (text,) = found(**named)
    assert text == (
        f'Pod "web", claim "net": {field} "Lan" is not valid; a name is up to 253 of a-z, 0-9, - and ., letters or '
        f"digits at both ends [spec.resourceClaims[0].{field}] (ND1219)"
    )


@pytest.mark.parametrize(
    ("named", "verb"), [({}, "set"), ({"resource_claim_name": "a", "resource_claim_template_name": "b"}, "remove")]
)
def test_an_entry_without_a_single_object_is_reported_once_and_not_searched(named: dict[str, str], verb: str) -> None:
    (text,) = found(**named)
    assert text.endswith(f"{verb} resourceClaimName or resourceClaimTemplateName [spec.resourceClaims[0]] (ND1216)")


def test_an_object_that_does_not_exist_is_reported() -> None:
    (text,) = found(resource_claim_name="lan")
    assert text.startswith('Pod "web", claim "net": ResourceClaim "lan" not found in namespace "app" in these files')


@pytest.mark.parametrize(
    ("requests", "is_twice"),
    [([""], False), (["a"], False), (["a", "b"], False), (["", ""], True), (["a", "a"], True), (["", "a"], True)],
)
def test_a_container_lists_a_claim_once_or_each_of_its_requests_once(requests: list[str], is_twice: bool) -> None:
    listed = [ListedClaim(name="net", request=request) for request in requests]
    twice = [text for text in found(*listed, resource_claim_name="lan") if "twice" in text]
    assert len(twice) == is_twice
