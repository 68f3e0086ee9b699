"""DeviceClasses at admission: only what they state to netdra is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from netdra.admission.cluster import Cluster
from netdra.admission.messages import ALLOWED, AdmissionRequest, Kind, read
from netdra.admission.review import review
from netdra.topology.classes import device_classes

Request = Callable[..., AdmissionRequest]


def device_class(parameters: Any, driver: str = "dra.networking") -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "nics"},
        "spec": {"config": [{"opaque": {"driver": driver, "parameters": parameters}}]},
    }


def step(kind: str) -> dict[str, Any]:
    return {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", "step": {"type": kind}}


def test_a_class_that_no_claim_could_be_prepared_with_is_refused(request_of: Request) -> None:
    (error,) = review(request_of(device_class(step("../sh"))), Cluster()).errors
    assert error == (
        'DeviceClass "nics": opaque parameters, step: type "../sh" is not a valid CNI plugin name; a '
        "type is the name of a "
        "program in the CNI path: no slash, no path"
    )
    changed = request_of(device_class(step("../sh")), old=device_class(step("macvlan")))
    assert review(changed, Cluster()).errors == (error,)


def test_sound_classes_and_those_of_other_drivers_are_let_through(
    request_of: Request, topology: Callable[..., Any]
) -> None:
    (made,) = device_classes(topology("net", "- {name: vf, type: sriov}"))
    for each in (made, device_class(step("macvlan")), device_class("anything", driver="gpu.example.com")):
        assert review(request_of(each), Cluster()) == ALLOWED


@pytest.mark.parametrize("body", [b"null", b'{"metadata": {}, "spec": {"config": 7}}'])
def test_a_class_that_cannot_be_read_is_the_api_servers_business(body: bytes) -> None:
    kind = Kind("resource.k8s.io", "v1", "DeviceClass")
    request = AdmissionRequest(uid="u", kind=kind, operation="CREATE", object=msgspec.Raw(body))
    assert review(request, Cluster()) == ALLOWED


@pytest.mark.parametrize(("driver", "allowed"), [("gpu.example.com", True), ("dra.networking", False)])
def test_parameters_that_are_nested_too_deeply_are_refused_where_they_are_for_netdra(
    driver: str, allowed: bool
) -> None:
    config = f'{{"opaque": {{"driver": "{driver}", "parameters": {"[" * 5000}{"]" * 5000}}}}}'
    body = (
        '{"request": {"uid": "1", "operation": "CREATE", "name": "deep", '
        '"kind": {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceClass"}, '
        f'"object": {{"metadata": {{"name": "deep"}}, "spec": {{"config": [{config}]}}}}}}}}'
    )
    assert review(read(body.encode()), Cluster()).allowed == allowed
