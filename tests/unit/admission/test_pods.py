"""Warnings for pods that are about to be written: their texts, their users, and skipped pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.admission import pods
from netdra.admission.messages import AdmissionRequest, Kind
from netdra.model.claim import ResourceClaimTemplate
from netdra.model.errors import InvalidInputError
from netdra.review.world import World
from netdra.topology.classes import known_classes
from tests import builders

LAN = builders.topology(
    "- {name: nic, type: host-device, config: {ipam: {type: static, addresses: [{address: 10.0.0.5/24}]}}}", name="lan"
)
CLUSTER = World(topologies={"lan": LAN}, classes=known_classes([LAN], ()))
TEMPLATE = msgspec.convert(
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "net", "namespace": "app"},
        "spec": {"spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "lan-nic"}}]}}},
    },
    ResourceClaimTemplate,
)


def request(kind: str, spec: Any, operation: Any = "CREATE") -> AdmissionRequest:
    group = "" if kind == "Pod" else "apps"
    value = {"kind": kind, "metadata": {"name": "w"}, "spec": spec}
    return AdmissionRequest(
        uid="u",
        kind=Kind(group, "v1", kind),
        operation=operation,
        name="w",
        namespace="app",
        object=msgspec.Raw(msgspec.json.encode(value)),
    )


def of_pod(**more: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"claims": [{"name": "net"}]}}
    return {
        "containers": [container],
        "resourceClaims": [{"name": "net", "resourceClaimTemplateName": "net"}],
        **more,
    }


def said(asked: AdmissionRequest, *, trusted: bool = True, there: bool = True) -> tuple[str, ...]:
    workload = pods.read(asked)
    assert workload is not None
    assert [*pods.named(workload)] == [(True, "net")]
    return pods.warnings(workload, [TEMPLATE] if there else [], CLUSTER, trusted=trusted)


def test_a_pod_that_is_right_has_no_warnings() -> None:
    assert said(request("Pod", of_pod())) == ()


def test_a_missing_claim_template_is_reported_with_its_namespace() -> None:
    assert said(request("Pod", of_pod()), there=False) == (
        'Pod "w", claim "net": ResourceClaimTemplate "net" not found in namespace "app"; create it (ND1224)',
    )


def test_claim_values_are_reported_only_to_the_api_server() -> None:
    asked = request("Deployment", {"replicas": 2, "template": {"spec": of_pod(hostNetwork=True)}})
    told = said(asked)
    assert any("each of its pods gets address 10.0.0.5/24" in text for text in told)
    (left,) = said(asked, trusted=False)
    assert "uses the host's network" in left


@pytest.mark.parametrize(
    "asked",
    [
        request("Pod", {"containers": []}, "DELETE"),
        request("Deployment", {"replicas": 1}),
        request("Pod", of_pod(resourceClaims=[{"name": f"c{at}", "resourceClaimName": "x"} for at in range(9)])),
        msgspec.structs.replace(request("Pod", of_pod()), too_deep=True),
    ],
)
def test_deletes_missing_templates_many_claims_and_deep_nesting_are_skipped(asked: AdmissionRequest) -> None:
    assert pods.read(asked) is None


def test_an_invalid_pod_cannot_be_read() -> None:
    with pytest.raises(InvalidInputError):
        pods.read(request("Pod", of_pod(resourceClaims="net")))
    with pytest.raises(msgspec.DecodeError):
        pods.read(msgspec.structs.replace(request("Pod", {}), object=msgspec.Raw(b"{")))


def test_a_long_list_of_warnings_is_cut() -> None:
    claims = [{"name": f"c{at}", "resourceClaimTemplateName": f"t{at}"} for at in range(8)]
    workload = pods.read(request("Pod", of_pod(resourceClaims=claims)))
    assert workload is not None
    assert len(pods.warnings(workload, [], CLUSTER, trusted=True)) == pods.MAX_WARNINGS


def test_claims_that_were_not_read_change_no_warning() -> None:
    for spec in (of_pod(), of_pod(hostNetwork=True)):
        workload = pods.read(request("Pod", spec))
        assert workload is not None
        assert pods.warnings(workload, None, CLUSTER, trusted=False) == ()
    unlisted = pods.read(request("Pod", of_pod(containers=[{"name": "main"}])))
    assert unlisted is not None
    (warning,) = pods.warnings(unlisted, None, CLUSTER, trusted=False)
    assert 'no container lists claim "net"' in warning
