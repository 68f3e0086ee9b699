"""DeviceClasses at admission: only what they state to netdra is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from netdra.admission.messages import ALLOWED, AdmissionRequest, Kind, read
from netdra.admission.requests import owned_class, verdict_on
from netdra.controller.classes import changes
from netdra.model import documents
from netdra.model.claim import CELDeviceSelector, DeviceSelector
from netdra.model.device import Features
from netdra.review.world import World
from netdra.rules.classes import check_made
from netdra.topology.classes import device_classes, every_form

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
    (error,) = verdict_on(request_of(device_class(step("../sh"))), World()).errors
    assert error == (
        'DeviceClass "nics": opaque parameters, step: type "../sh" is not a valid CNI plugin name; '
        "write the program's name alone: sh [spec.config[0].opaque.parameters.step.type] (ND1332)"
    )
    changed = request_of(device_class(step("../sh")), old=device_class(step("macvlan")))
    assert verdict_on(changed, World()).errors == (error,)


def test_sound_classes_and_those_of_other_drivers_are_let_through(
    request_of: Request, topology: Callable[..., Any]
) -> None:
    (made,) = device_classes(topology("net", "- {name: vf, type: sriov}"))
    for each in (made, device_class(step("macvlan")), device_class("anything", driver="gpu.example.com")):
        assert verdict_on(request_of(each), World()) == ALLOWED


@pytest.mark.parametrize("body", [b"null", b'{"metadata": {}, "spec": {"config": 7}}'])
def test_a_class_that_cannot_be_read_is_the_api_servers_business(body: bytes) -> None:
    kind = Kind("resource.k8s.io", "v1", "DeviceClass")
    request = AdmissionRequest(uid="u", kind=kind, operation="CREATE", object=msgspec.Raw(body))
    assert verdict_on(request, World()) == ALLOWED


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
    assert verdict_on(read(body.encode()), World()).allowed == allowed


@pytest.mark.parametrize("lists", [False, True])
def test_a_class_that_a_topology_owns_must_follow_from_the_topology_in_either_form(
    topology: Callable[..., Any], lists: bool
) -> None:
    net = topology("net", "- {name: vf, type: sriov, extendedResourceName: example.com/vf}")
    (made,) = changes(net, {}, Features(list_attributes=lists)).create
    assert [*check_made(made, every_form(net))] == []
    unnamed = msgspec.structs.replace(made.spec, extended_resource_name=None)
    assert [*check_made(msgspec.structs.replace(made, spec=unnamed), every_form(net))] == []
    cel = made.spec.selectors[0].cel
    assert cel is not None
    wider = DeviceSelector(cel=CELDeviceSelector(expression=f"{cel.expression} || true"))
    for wrong in (
        msgspec.structs.replace(made.spec, selectors=(wider,)),
        msgspec.structs.replace(made.spec, selectors=(*made.spec.selectors, wider)),
        msgspec.structs.replace(made.spec, selectors=()),
        msgspec.structs.replace(made.spec, config=()),
        msgspec.structs.replace(made.spec, extended_resource_name="nvidia.com/gpu"),
    ):
        (finding,) = check_made(msgspec.structs.replace(made, spec=wrong), every_form(net))
        assert finding.what == (
            'DeviceClass "net-vf": differs from the class that follows from its owner, NetworkTopology "net"'
        )
    assert [*check_made(made, ())] != []


@pytest.mark.parametrize("deep", [False, True])
def test_of_a_class_the_owner_is_read_also_if_it_is_nested_too_deeply(topology: Callable[..., Any], deep: bool) -> None:
    (made,) = changes(topology("net", "- {name: vf, type: sriov}"), {}, Features()).create
    written = documents.plain(made)
    text = json.dumps(written)
    if deep:
        text = text.replace('"step": "vf"', f'"step": "vf", "more": {"[" * 5000}{"]" * 5000}')
    kind = '"kind": {"group": "resource.k8s.io", "version": "v1", "kind": "DeviceClass"}'
    body = f'{{"request": {{"uid": "1", "operation": "CREATE", "name": "net-vf", {kind}, "object": {text}}}}}'
    asked = read(body.encode())
    assert asked.too_deep is deep
    assert owned_class(asked) is not None
