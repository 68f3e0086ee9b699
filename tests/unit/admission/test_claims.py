"""Claims are checked against the topologies of their classes; claims for other drivers are admitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from netdra.admission.messages import ALLOWED, AdmissionRequest, Kind, read
from netdra.admission.requests import read_claim, verdict_on
from netdra.model import documents
from netdra.model.claim import DeviceClass
from netdra.model.errors import without_code
from netdra.model.topology import NetworkTopology
from netdra.review.claims import decisive
from netdra.review.world import World
from netdra.topology.classes import known_classes
from testbed import yaml

Request = Callable[..., AdmissionRequest]
Topology = Callable[..., NetworkTopology]
TWO = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}\n- {name: bond0, type: bond, dependOn: [vf0, vf1]}"
GPU = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"networkTopologyRef": "x"}}}]},
}
TOO_DEEP = [(kind, "networking.dra.io", False) for kind in ("NetworkTopology", "DeviceExposurePolicy")]


def cluster(*topologies: NetworkTopology) -> World:
    gpu = documents.convert(GPU, DeviceClass, "test")
    return World(topologies={each.name: each for each in topologies}, classes=known_classes(topologies, [gpu]))


def claim(requests: str, kind: str = "ResourceClaim", **metadata: Any) -> dict[str, Any]:
    spec = {"devices": {"requests": yaml.safe_load(requests)}}
    inside = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": metadata or {"name": "c"},
        "spec": inside,
    }


def test_a_claim_without_all_root_steps_is_refused_in_the_known_words(
    request_of: Request, recorded: Callable[[str], Any]
) -> None:
    written = documents.convert(recorded("topologies/ai-bonded-rdma.yaml"), NetworkTopology, "test")
    template = recorded("claims/ai-gpu-bonded-rdma.yaml")
    devices = template["spec"]["spec"]["devices"]
    devices["requests"] = [each for each in devices["requests"] if each["name"] != "vf1"]
    verdict = verdict_on(request_of(template), cluster(written))
    (error,) = verdict.errors
    assert without_code(error) == (
        'NetworkTopology "ai-bonded-rdma" requires root step requests [vf0, vf1], '
        'but ResourceClaimTemplate "ai-gpu-bonded-rdma" only provides requests [vf0]. Missing: [vf1]'
    )


def test_a_claim_with_all_root_steps_and_a_gpu_is_let_through(
    request_of: Request, recorded: Callable[[str], Any]
) -> None:
    written = documents.convert(recorded("topologies/ai-bonded-rdma.yaml"), NetworkTopology, "test")
    assert verdict_on(request_of(recorded("claims/ai-gpu-bonded-rdma.yaml")), cluster(written)) == ALLOWED


@pytest.mark.parametrize(
    "requests",
    [
        "[{name: a, exactly: {deviceClassName: gpu}}]",
        "[{name: a, exactly: {deviceClassName: not-there}}]",
        "[{name: a, firstAvailable: [{name: x, deviceClassName: gpu}, {name: y, deviceClassName: other}]}]",
    ],
)
def test_claims_of_other_drivers_are_let_through(request_of: Request, topology: Topology, requests: str) -> None:
    assert verdict_on(request_of(claim(requests)), cluster(topology("net", TWO))) == ALLOWED


def test_an_alternative_of_ours_counts(request_of: Request, topology: Topology) -> None:
    requests = "[{name: a, firstAvailable: [{name: x, deviceClassName: gpu}, {name: vf0, deviceClassName: net-vf0}]}]"
    (error,) = verdict_on(request_of(claim(requests)), cluster(topology("net", TWO))).errors
    assert "Missing: [vf1]" in error


def test_a_topology_of_the_authors_own_is_refused(request_of: Request) -> None:
    written = claim("[{name: a, exactly: {deviceClassName: gpu}}]")
    opaque = {"driver": "dra.networking", "parameters": {"networkTopologyRef": {"name": "x"}, "step": "a"}}
    written["spec"]["devices"]["config"] = [{"opaque": opaque}]
    (error,) = verdict_on(request_of(written), cluster()).errors
    assert "contains configuration for dra.networking" in error


def test_a_topology_that_is_being_deleted_takes_no_new_claims(request_of: Request, topology: Topology) -> None:
    going = topology("net", "- {name: vf0, type: sriov}", deletionTimestamp="2026-01-01T00:00:00Z")
    (error,) = verdict_on(
        request_of(claim("[{name: vf0, exactly: {deviceClassName: net-vf0}}]")), cluster(going)
    ).errors
    assert "which is being deleted" in error


def test_a_request_for_a_derived_step_is_let_through_with_the_right_class_named(
    request_of: Request, topology: Topology
) -> None:
    verdict = verdict_on(
        request_of(claim("[{name: b, exactly: {deviceClassName: net-bond0}}]")), cluster(topology("net", TWO))
    )
    assert verdict.allowed
    (warning,) = verdict.warnings
    assert 'DeviceClass "net-bond0" not found' in warning
    assert "request net-vf0, net-vf1" in warning


def test_a_claim_whose_name_the_server_makes_is_called_by_its_beginning(
    request_of: Request, topology: Topology
) -> None:
    written = claim("[{name: vf0, exactly: {deviceClassName: net-vf0}}]", generateName="pod-")
    (error,) = verdict_on(request_of(written), cluster(topology("net", TWO))).errors
    assert 'ResourceClaim "pod-*"' in error


def test_admin_access_is_warned_of(request_of: Request, topology: Topology) -> None:
    one = topology("net", "- {name: vf0, type: sriov}")
    verdict = verdict_on(
        request_of(claim("[{name: vf0, exactly: {deviceClassName: net-vf0, adminAccess: true}}]")), cluster(one)
    )
    assert verdict.allowed
    assert "does not attach the device" in verdict.warnings[0]


@pytest.mark.parametrize("body", [b"null", b"{}", b'{"metadata": {}, "spec": {"devices": 7}}'])
def test_a_claim_that_cannot_be_read_is_the_api_servers_business(body: bytes) -> None:
    request = AdmissionRequest(
        uid="u", kind=Kind("resource.k8s.io", "v1", "ResourceClaim"), operation="CREATE", object=msgspec.Raw(body)
    )
    assert verdict_on(request, World()) == ALLOWED


def test_deletions_and_foreign_kinds_are_let_through(request_of: Request) -> None:
    gone = msgspec.structs.replace(request_of(claim("[]")), operation="DELETE")
    assert verdict_on(gone, World()) == ALLOWED
    pod = request_of({"apiVersion": "v1", "kind": "NetworkTopology", "metadata": {"name": "x"}})
    assert verdict_on(pod, World()) == ALLOWED


@pytest.mark.parametrize(("kind", "group", "allowed"), [("ResourceClaim", "resource.k8s.io", True), *TOO_DEEP])
def test_a_too_deeply_nested_claim_is_allowed_and_netdras_own_kinds_are_rejected(
    kind: str, group: str, allowed: bool
) -> None:
    deep = "[" * 5000 + "]" * 5000
    body = (
        f'{{"request": {{"uid": "1", "kind": {{"group": "{group}", "version": "v1", "kind": "{kind}"}}, '
        f'"operation": "CREATE", "name": "deep", "object": {{"kind": "{kind}", "metadata": {{"name": "deep"}}, '
        f'"spec": {{"devices": {{"config": [{{"opaque": {{"driver": "x.y", "parameters": {deep}}}}}]}}}}}}}}}}'
    )
    verdict = verdict_on(read(body.encode()), World())
    assert verdict.allowed == allowed
    assert allowed or "nested more than" in verdict.errors[0]


def request(name: str, *classes: str) -> str:
    """A request by name: for exactly one class, or for the first of several."""
    if len(classes) == 1:
        return f"- {{name: {name}, exactly: {{deviceClassName: {classes[0]}}}}}\n"
    each = ", ".join(f"{{name: {one}, deviceClassName: {one}}}" for one in classes)
    return f"- {{name: {name}, firstAvailable: [{each}]}}\n"


@pytest.mark.parametrize(
    ("requests", "asked"),
    [
        (request("gpu", "gpu"), set()),
        (request("gpu", "gpu") + request("vf0", "net-vf0"), {"net-vf0"}),
        (request("gpu", "gpu") + request("vf0", "net-vf0") + request("vf1", "gpu"), {"net-vf0", "gpu"}),
        (request("vf0", "net-vf0") + request("other", "vf1", "any"), {"net-vf0", "vf1"}),
        (request("vf1", "gpu"), set()),
    ],
    ids=["of others", "lacking", "lacking a step by another's class", "among alternatives", "of nothing of ours"],
)
def test_only_classes_that_decide_on_a_refusal_are_asked_for(
    request_of: Request, topology: Topology, requests: str, asked: set[str]
) -> None:
    assert decisive(read_claim(request_of(claim(requests))), cluster(topology("net", TWO))) == asked
