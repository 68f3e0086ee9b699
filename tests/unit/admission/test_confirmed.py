"""A claim is refused by the API server's present objects, and only the decisive ones are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from netdra.admission.copy import Copy
from netdra.admission.messages import AdmissionRequest, Verdict
from netdra.admission.server import Webhook
from netdra.admission.serving import ANYBODY
from netdra.admission.workers import Workers
from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError, Status, UnavailableError
from netdra.kube.resources import Resource
from netdra.model import documents
from netdra.model.claim import DeviceClass
from netdra.model.topology import NetworkTopology
from netdra.ops.process import Process
from netdra.review import claims
from netdra.topology.classes import device_classes
from testbed import yaml

Request = Callable[..., AdmissionRequest]
Topology = Callable[..., NetworkTopology]
ONE = "- {name: vf0, type: sriov}"
TWO = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}"
LACKING = "{vf0: net-vf0, gpu: gpu}"


class ApiServer(Client):
    """Has objects that the copy has not heard of yet: the moment between a write and its event, held still."""

    def __init__(self, objects: Iterable[Any] = (), *, away: bool = False) -> None:
        self.objects = {(each.kind, each.metadata.name): each for each in objects}
        self.away = away
        self.asked: list[str] = []

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        self.asked.append(name)
        if self.away:
            raise UnavailableError("away", Status())
        found = self.objects.get((resource.type.__name__, name))
        if found is None:
            raise NotFoundError("none", Status())
        return found


def device_class(name: str, topology: str, step: str) -> DeviceClass:
    parameters = {"networkTopologyRef": {"name": topology}, "step": step}
    spec = {"config": [{"opaque": {"driver": "dra.networking", "parameters": parameters}}]}
    return documents.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass, "test")


def judged(api: ApiServer, known: Iterable[Any], request: AdmissionRequest) -> Verdict:
    """The verdict with a copy that knows these objects."""
    copy = Copy(api)
    for each in known:
        store: Any = copy.topologies if isinstance(each, NetworkTopology) else copy.classes
        store.put(each.metadata.name, each)
    return asyncio.run(Webhook(copy, Workers(), Process("webhook"), ANYBODY).verdict(request, "", trusted=True))


@pytest.fixture
def lacking(request_of: Request) -> Callable[..., AdmissionRequest]:
    """A claim for classes by request, with configuration of its own if wanted."""

    def made(classes: str = LACKING, **more: Any) -> AdmissionRequest:
        asked = yaml.safe_load(classes)
        requests = [{"name": name, "exactly": {"deviceClassName": each}} for name, each in asked.items()]
        claim = {
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": requests, **more}},
        }
        return request_of({"apiVersion": "resource.k8s.io/v1", **claim})

    return made


def test_where_the_copy_is_right_only_the_class_and_its_topology_are_asked_for(
    lacking: Request, topology: Topology
) -> None:
    net = topology("net", TWO)
    present = [net, *device_classes(net)]
    api = ApiServer(present)
    (error,) = judged(api, present, lacking()).errors
    assert "Missing: [vf1]" in error
    assert sorted(api.asked) == ["net", "net-vf0"]


def test_a_topology_that_was_just_changed_counts(lacking: Request, topology: Topology) -> None:
    before, now = topology("net", TWO), topology("net", ONE)
    api = ApiServer([now, *device_classes(now)])
    assert judged(api, [before, *device_classes(before)], lacking()).allowed


def test_a_deleted_topology_does_not_reject_a_claim(lacking: Request, topology: Topology) -> None:
    assert judged(ApiServer(), [topology("net", TWO)], lacking()).allowed


def test_a_newly_created_class_and_its_topology_reference_are_considered(lacking: Request, topology: Topology) -> None:
    net = topology("net", TWO)
    present = [net, *device_classes(net)]
    whole = lacking("{vf0: net-vf0, vf1: own}")
    assert judged(ApiServer([*present, device_class("own", "net", "vf1")]), present, whole).allowed
    errors = judged(ApiServer([*present, device_class("own", "other", "vf1")]), present, whole).errors
    assert ["Missing: [vf1]" in each for each in errors] == [True, False]
    assert 'NetworkTopology "other", which does not exist' in errors[1]


def test_a_step_that_was_just_renamed_is_found_in_the_class_that_is_asked_for_then(
    lacking: Request, topology: Topology
) -> None:
    before, now = topology("net", TWO), topology("net", "- {name: vf0, type: sriov}\n- {name: new, type: sriov}")
    api = ApiServer([now, *device_classes(now), device_class("own", "net", "new")])
    assert judged(api, [before, *device_classes(before)], lacking("{vf0: net-vf0, new: own}")).allowed
    assert "own" in api.asked


def test_a_claim_with_an_invalid_config_of_its_own_is_rejected_without_api_requests(
    lacking: Request, topology: Topology
) -> None:
    api = ApiServer()
    own = {"opaque": {"driver": "dra.networking", "parameters": {"networkTopologyRef": {"name": "net"}}}}
    assert not judged(api, [topology("net", TWO)], lacking(config=[own])).allowed
    assert not api.asked


def test_a_claim_is_let_through_while_the_api_server_is_away(lacking: Request, topology: Topology) -> None:
    api = ApiServer(away=True)
    assert judged(api, [topology("net", TWO)], lacking()).allowed
    assert api.asked


def test_a_rule_with_a_defect_admits_a_claim_with_a_warning_that_names_the_rule(
    lacking: Callable[..., AdmissionRequest], topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims and classes are reviewed in the webhook's own process."""
    monkeypatch.setattr(claims, "check_claim", lambda *_: {"a": 1}["b"])
    net = topology("net", TWO)
    verdict = judged(ApiServer(), (net, *device_classes(net)), lacking())
    assert verdict.allowed
    assert "internal error (KeyError in netdra.review.claims." in verdict.warnings[0]
