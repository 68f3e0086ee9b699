"""A claim's requests for addresses of PodNetworks fit its steps, or its author learns why not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.topology import NetworkTopology
from netdra.networks import shares
from netdra.rules import network_requests
from netdra.rules.claims import check_claim
from netdra.topology.classes import device_classes
from tests.unit.networks.builders import network

IPAM = {"ipam": {"type": "network"}}
ROOT: dict[str, Any] = {"type": "macvlan", "selector": {"cel": "true"}, "config": IPAM, "network": "storage"}
SINGLE = [{"name": "nic", **ROOT}]
TWO = [{"name": "nic", **ROOT}, {"name": "lan", "type": "vlan", "dependOn": ["nic"], "network": "storage"}]
TWO[1]["config"] = {"id": 5, "name": "lan0", **IPAM}
TOLERATION = {"key": "dra.networking/addresses", "operator": "Exists"}
NIC = {"name": "nic", "exactly": {"deviceClassName": "net-nic"}}
SHARE = {"name": "share", "exactly": {"deviceClassName": "podnetwork.storage", "tolerations": [TOLERATION]}}
TWICE = {"name": "share", "exactly": {**SHARE["exactly"], "capacity": {"requests": {"addresses": "2"}}}}  # type: ignore[dict-item]
OTHER = {"name": "share", "exactly": {**SHARE["exactly"], "deviceClassName": "podnetwork.other"}}  # type: ignore[dict-item]


def topology(steps: list[dict[str, Any]]) -> NetworkTopology:
    value = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "NetworkTopology", "metadata": {"name": "net"}}
    return msgspec.convert({**value, "spec": {"steps": steps}}, NetworkTopology)


def claim(*requests: Any, **devices: Any) -> ResourceClaim:
    spec = {"devices": {"requests": requests, **devices}}
    return msgspec.convert({"metadata": {"name": "c"}, "spec": spec}, ResourceClaim)


def classes(written: NetworkTopology) -> dict[str, DeviceClass]:
    networks = (network("10.0.0.0/24", name=name) for name in ("storage", "other"))
    made = (*device_classes(written), *shares.device_classes(networks))
    return {entry.metadata.name: entry for entry in made}


def warned(steps: list[dict[str, Any]], *requests: Any, **devices: Any) -> list[str]:
    written, given = topology(steps), claim(*requests, **devices)
    assert check_claim(given, {"net": written}, classes(written)) == ()
    wanted = given.spec.devices
    found = network_requests.warnings("c", wanted, ("spec", "devices"), {"net": written}, classes(written))
    return [finding.text for finding in found]


def test_a_claim_with_a_request_for_its_steps_is_sound() -> None:
    assert warned(SINGLE, NIC, SHARE) == []
    assert warned(TWO, NIC, TWICE) == []
    two = {"name": "nic", "exactly": {"deviceClassName": "net-nic", "count": 2}}
    assert warned(SINGLE, two, TWICE) == []


def test_a_request_is_not_suggested_while_its_class_does_not_exist() -> None:
    """With feature gates off, the controller makes none, and a claim with the request would stay Pending."""
    written, wanted = topology(SINGLE), claim(NIC).spec.devices
    made = {entry.metadata.name: entry for entry in device_classes(written)}

    assert [*network_requests.warnings("c", wanted, ("spec", "devices"), {"net": written}, made)] == []


@pytest.mark.parametrize(
    ("steps", "requests", "devices", "text"),
    [
        (SINGLE, [NIC], {}, "does not request the addresses of PodNetwork"),
        (TWO, [NIC, SHARE], {}, "for 1 steps, but it has 2 on this network"),
        (SINGLE, [NIC, TWICE], {}, "for 2 steps, but it has 1 on this network"),
        (
            SINGLE,
            [NIC, {"name": "share", "exactly": {"deviceClassName": "podnetwork.storage"}}],
            {},
            'does not tolerate the taint "dra.networking/addresses", so it is never allocated',
        ),
        (
            SINGLE,
            [NIC, SHARE],
            {"constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]},
            'the constraint on "resource.kubernetes.io/pcieRoot" includes it',
        ),
    ],
)
def test_a_probably_mistaken_network_request_yields_a_warning(
    steps: list[dict[str, Any]], requests: list[Any], devices: dict[str, Any], text: str
) -> None:
    (found,) = warned(steps, *requests, **devices)
    assert text in found


def test_addresses_of_a_network_without_a_step_are_an_error() -> None:
    written = topology(SINGLE)
    (finding,) = check_claim(claim(NIC, SHARE, {**OTHER, "name": "b"}), {"net": written}, classes(written))
    assert 'request "b" requests addresses of PodNetwork "other", but none' in finding.text
    assert finding.path == ("spec", "devices", "requests", 2)
    (alone,) = check_claim(claim(SHARE), {"net": written}, classes(written))
    assert 'addresses of PodNetwork "storage"' in alone.text


NETWORKS = {"storage": network("10.0.0.0/24", namespaces=["db"], limits={"perNamespace": 1})}
REQUIRED = {"storage": network("10.0.0.0/24", requests="Required")}
CHOICE = {"name": "any", "deviceClassName": "podnetwork.storage", "tolerations": [TOLERATION]}
ALTERNATIVE = {"name": "share", "firstAvailable": [CHOICE]}


def judged(
    rule: Any, networks: dict[str, Any], namespace: str, steps: list[dict[str, Any]], *requests: Any
) -> list[str]:
    written, wanted = topology(steps), claim(*requests).spec.devices
    place = ("spec", "devices")
    found = rule("c", wanted, place, namespace, {"net": written}, classes(written), networks)
    return [finding.text for finding in found]


@pytest.mark.parametrize("request_of", [SHARE, ALTERNATIVE])
def test_a_request_of_a_namespace_that_the_network_excludes_is_an_error(request_of: dict[str, Any]) -> None:
    rule = network_requests.refused
    (text,) = judged(rule, NETWORKS, "web", SINGLE, NIC, request_of)
    assert 'requests addresses of PodNetwork "storage", which is not for namespace "web"' in text
    assert '"db"' not in text
    assert "db" not in text.split()
    assert judged(rule, NETWORKS, "db", SINGLE, NIC, request_of) == []
    assert judged(rule, NETWORKS, "", SINGLE, NIC, request_of) == []  # a file without a namespace
    assert judged(rule, {}, "web", SINGLE, NIC, request_of) == []


def test_a_network_that_requires_the_request_rejects_claims_with_too_few_steps() -> None:
    rule = network_requests.refused
    (text,) = judged(rule, REQUIRED, "web", SINGLE, NIC)
    assert 'requests addresses of PodNetwork "storage" for 0 of its 1 steps' in text
    assert "add a request of DeviceClass podnetwork.storage" in text
    assert len(judged(rule, REQUIRED, "web", TWO, NIC, SHARE)) == 1
    assert judged(rule, REQUIRED, "web", TWO, NIC, TWICE) == []
    assert judged(rule, REQUIRED, "web", SINGLE, NIC, SHARE) == []


def test_steps_that_get_no_address_by_the_rules_of_their_network_are_warnings() -> None:
    rule = network_requests.limited
    (text,) = judged(rule, NETWORKS, "web", SINGLE, NIC)
    assert 'has steps on PodNetwork "storage", which is not for namespace "web"' in text
    (text,) = judged(rule, NETWORKS, "db", TWO, NIC)
    assert "has 2 steps on PodNetwork" in text
    assert "addresses for 1 steps at most" in text
    assert judged(rule, NETWORKS, "db", SINGLE, NIC) == []


def test_unknown_device_classes_yield_no_findings() -> None:
    written = topology(SINGLE)
    unknown = {"name": "x", "exactly": {"deviceClassName": "of-somebody"}}
    assert check_claim(claim(NIC, unknown, OTHER), {"net": written}, classes(written)) == ()


def test_the_template_of_a_topology_requests_its_addresses() -> None:
    made = network_requests.template(topology(TWO))
    assert isinstance(made, ResourceClaimTemplate)
    requests = msgspec.to_builtins(made)["spec"]["spec"]["devices"]["requests"]
    assert [entry["exactly"]["deviceClassName"] for entry in requests] == ["net-nic", "podnetwork.storage"]
    assert requests[1]["exactly"]["capacity"]["requests"] == {"dra.networking/addresses": "2"}
    assert warned(TWO, *requests) == []
