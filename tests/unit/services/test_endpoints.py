"""Which addresses a Service publishes, and in which state."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.model.service import EndpointConditions, EndpointPort, ServedPod, Service
from netdra.services.endpoints import EndpointGroup, endpoints, is_link_local, unpublishable
from tests.unit.services.builders import addressed, pod, ports, service

GONE: dict[str, Any] = {"metadata": {"deletionTimestamp": "2026-11-27T10:00:00Z"}}


def conditions(of: Service, made: ServedPod) -> EndpointConditions:
    ((entry,),) = endpoints(of, [addressed(made, "10.7.0.1/24")]).values()
    return entry.conditions


@pytest.mark.parametrize(
    ("made", "publishes", "expected"),
    [
        (pod(), False, (True, True, False)),
        (pod(ready=False), False, (False, False, False)),
        (pod(ready=False), True, (True, False, False)),
        (pod(**GONE), False, (False, True, True)),
        (pod(**GONE), True, (True, True, True)),
        (pod(ready=False, **GONE), False, (False, False, True)),
    ],
)
def test_an_endpoint_is_ready_as_kubernetes_computes_it(
    made: ServedPod, expected: tuple[bool, bool, bool], *, publishes: bool
) -> None:
    found = conditions(service(publishNotReadyAddresses=publishes), made)
    assert found == EndpointConditions(ready=expected[0], serving=expected[1], terminating=expected[2])


@pytest.mark.parametrize(
    "status", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"podIPs": []}], ids=["ended", "failed", "no network yet"]
)
def test_a_pod_without_a_network_is_not_an_endpoint(status: dict[str, Any]) -> None:
    assert endpoints(service(), [addressed(pod(status=status), "10.7.0.1/24")]) == {EndpointGroup("IPv4", ()): []}


def test_each_family_of_the_service_has_its_own_endpoints_and_other_families_none() -> None:
    both = [addressed(pod(), "10.7.0.1/24", "2001:db8::1/64")]
    four, six = EndpointGroup("IPv4", ()), EndpointGroup("IPv6", ())

    def texts(*families: str) -> dict[EndpointGroup, list[tuple[str, ...]]]:
        found = endpoints(service(ipFamilies=list(families)), both)
        return {group: [entry.addresses for entry in content] for group, content in found.items()}

    assert texts("IPv4") == {four: [("10.7.0.1",)]}
    assert texts("IPv6", "IPv4") == {four: [("10.7.0.1",)], six: [("2001:db8::1",)]}
    assert endpoints(service(ipFamilies=["IPv6"]), [addressed(pod(), "10.7.0.1/24")]) == {six: []}


def test_each_interface_of_a_pod_is_an_endpoint() -> None:
    found = endpoints(service(), [addressed(pod(), "10.7.0.2/24", "10.7.0.1/24")])
    assert [entry.addresses for entry in found[EndpointGroup("IPv4", ())]] == [("10.7.0.1",), ("10.7.0.2",)]


def test_the_hostname_is_published_if_the_pod_names_the_service() -> None:
    named: dict[str, Any] = {"spec": {"hostname": "web-0", "subdomain": "storage"}}

    def hostname(of: str) -> str:
        ((entry,),) = endpoints(service(of), [addressed(pod(**named), "10.7.0.1/24")]).values()
        return entry.hostname

    assert (hostname("storage"), hostname("other")) == ("web-0", "")


def test_an_endpoint_names_its_pod_node_and_zone() -> None:
    labels = {"topology.kubernetes.io/zone": "a", "app": "web"}
    ((entry,),) = endpoints(service(), [addressed(pod(metadata={"labels": labels}), "10.7.0.1/24")]).values()
    assert (entry.node_name, entry.zone) == ("node-1", "a")
    target = entry.target_ref
    assert target is not None
    assert (target.kind, target.namespace, target.name, target.uid) == ("Pod", "db", "web-0", "web-0")


def test_pods_with_other_ports_are_in_other_groups() -> None:
    container = {"ports": [{"name": "target", "containerPort": 3260}, {"name": "udp", "containerPort": 1}]}
    sidecar = {"restartPolicy": "Always", "ports": [{"name": "target", "containerPort": 3261}]}
    ends = {"ports": [{"name": "target", "containerPort": 3262}]}
    pods = [
        addressed(pod("a", spec={"containers": [container]}), "10.7.0.1/24"),
        addressed(pod("b", spec={"initContainers": [ends, sidecar]}), "10.7.0.2/24"),
        addressed(pod("c", spec={"initContainers": [ends]}), "10.7.0.3/24"),
    ]
    asked = [
        {"name": "iscsi", "port": 860, "targetPort": "target"},
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "udp"},
        {"name": "web", "port": 80},
        {"name": "api", "port": 443, "targetPort": 8443, "appProtocol": "https"},
    ]
    found = endpoints(service(ports=asked), pods)
    always = (EndpointPort(name="web", port=80), EndpointPort(name="api", port=8443, app_protocol="https"))
    assert {group.ports: [entry.addresses[0] for entry in content] for group, content in found.items()} == {
        (EndpointPort(name="iscsi", port=3260), *always): ["10.7.0.1"],
        (EndpointPort(name="iscsi", port=3261), *always): ["10.7.0.2"],
        always: ["10.7.0.3"],
    }
    assert ports(80) == (EndpointPort(port=80),)


@pytest.mark.parametrize(
    "part",
    [
        {"spec": {"resourceClaims": [{"name": "net", "resourceClaimName": "mine"}]}},
        {"status": {"resourceClaimStatuses": [{"name": "net", "resourceClaimName": "mine"}]}},
        {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "mine"}}},
    ],
    ids=["named", "of a template", "of extended resources"],
)
def test_pod_claims_include_named_template_and_extended_resource_claims(part: dict[str, Any]) -> None:
    assert [*pod(**part).claims] == ["mine"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("fe80::1", True),
        ("FE80:0:0:1::/64", True),
        ("febf::1", True),
        ("169.254.7.1", True),
        ("fec0::1", False),
        ("fe8::1", False),
        ("fd00::1", False),
        ("169.25.4.1", False),
    ],
)
def test_link_local_addresses_are_those_that_the_api_server_rejects(address: str, *, expected: bool) -> None:
    assert is_link_local(address) is expected


def test_link_local_addresses_are_left_out_and_reported_and_the_others_are_published() -> None:
    pods = [addressed(pod(), "10.7.0.1/24", "fe80:0:0:1::1/64", "2001:db8::1/64")]
    both = service(ipFamilies=["IPv4", "IPv6"])
    found = [entry.addresses[0] for content in endpoints(both, pods).values() for entry in content]
    assert found == ["10.7.0.1", "2001:db8::1"]
    assert unpublishable(both, pods).startswith('Service "storage": address fe80:0:0:1::1 is link-local')
    assert unpublishable(both, [addressed(pod(), "10.7.0.1/24")]) == ""
