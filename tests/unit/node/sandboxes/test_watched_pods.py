"""What is kept of a pod, and which claims it names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.node.sandboxes.tracker import WatchedPod, claim_names


def pod(spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> WatchedPod:
    whole = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **metadata}, "spec": spec, "status": status}
    return msgspec.json.decode(msgspec.json.encode(whole), type=WatchedPod)


BY_NAME = {"name": "a", "resourceClaimName": "shared"}
BY_TEMPLATE = {"name": "b", "resourceClaimTemplateName": "t"}


@pytest.mark.parametrize(
    ("claims", "status", "names"),
    [
        ([], {}, ()),
        (None, {"resourceClaimStatuses": None}, ()),
        ([BY_NAME], {}, ("shared",)),
        ([BY_TEMPLATE], {}, None),
        ([BY_TEMPLATE], {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-1"}]}, ("p-b-1",)),
        ([BY_TEMPLATE], {"resourceClaimStatuses": [{"name": "b"}]}, ()),
        ([BY_NAME, {"name": "again", "resourceClaimName": "shared"}], {}, ("shared",)),
        ([BY_NAME], {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}, ("shared", "x")),
        ([], {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}, ("x",)),
    ],
)
def test_the_claims_are_named_in_the_pods_order_or_not_yet_known(
    claims: list[Any] | None, status: dict[str, Any], names: tuple[str, ...] | None
) -> None:
    assert claim_names(pod({"resourceClaims": claims}, status)) == names


def test_a_static_pod_is_known_by_its_mirrors_mark() -> None:
    mirror = pod({}, {}, annotations={"kubernetes.io/config.mirror": "static-uid"})
    assert mirror.is_of("static-uid")
    assert mirror.is_of("u")
    assert not mirror.is_of("other")
    assert not pod({}, {}).is_of("")


def test_labels_and_annotations_are_not_kept() -> None:
    found = pod({}, {}, labels={"a": "b"}, annotations={"c": "d"}, finalizers=["f"])
    assert (found.metadata.labels, found.metadata.annotations, found.metadata.finalizers) == ({}, {}, ())
