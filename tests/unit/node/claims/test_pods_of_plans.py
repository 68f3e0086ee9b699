"""A plan with the name or the ordinal of a pod is attached in no other pod."""

import pytest

from netdra.model.errors import InvalidInputError
from netdra.model.plan import ClaimReference, Plan
from netdra.node.claims.checks import check_pod

CLAIM = ClaimReference(namespace="ns", name="c", uid="u")


@pytest.mark.parametrize("pod", ["", "web-0"])
def test_a_plan_of_this_pod_or_of_none_is_attached(pod: str) -> None:
    check_pod(CLAIM, [Plan(topology="net", claim=CLAIM, steps=(), pod=pod)], "web-0")


def test_a_plan_of_another_pod_is_not() -> None:
    with pytest.raises(
        InvalidInputError, match=r'ResourceClaim "ns/c" was prepared for pod "web-0".*pod "web-1" has it'
    ):
        check_pod(CLAIM, [Plan(topology="net", claim=CLAIM, steps=(), pod="web-0")], "web-1")
