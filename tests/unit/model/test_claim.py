"""Whom a claim is reserved for."""

from __future__ import annotations

import msgspec
import pytest

from netdra.model.claim import ResourceClaim, is_reserved_for

GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": "group-uid"}
POD = {"resource": "pods", "name": "p", "uid": "pod-uid"}


@pytest.mark.parametrize(
    ("user", "pod_group", "expected"),
    [
        (POD, "", True),
        (POD, "workers", True),
        ({**POD, "uid": "other-uid"}, "", False),
        (GROUP, "workers", True),
        (GROUP, "other", False),
        (GROUP, "", False),
        ({**GROUP, "name": ""}, "", False),
        ({**GROUP, "apiGroup": "scheduling.example.com"}, "workers", False),
        ({**GROUP, "apiGroup": ""}, "workers", False),
        ({**GROUP, "resource": "workloads"}, "workers", False),
        # Only the uid is compared first, as IsReservedForPod does: uids are unique among all kinds.
        ({**GROUP, "uid": "pod-uid"}, "", True),
        ({**GROUP, "uid": "pod-uid"}, "other", True),
    ],
)
def test_a_claim_is_reserved_for_a_pod_by_uid_or_for_its_pod_group_by_name(
    user: dict[str, str], pod_group: str, expected: bool
) -> None:
    whole = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "claim-uid"},
        "spec": {},
        "status": {"reservedFor": [{**POD, "name": "unrelated", "uid": "unrelated-uid"}, user]},
    }
    assert is_reserved_for(msgspec.convert(whole, ResourceClaim), "pod-uid", pod_group) is expected
