"""The effects of Neutron's answers on a VF, and the names of its refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.neutron import answers
from netdra.neutron.answers import Agent, HostRoute, NeutronNetwork, Port, PortRequest, QosPolicy, QosRule, Subnet
from netdra.neutron.errors import (
    ForbiddenError,
    NeutronError,
    NeutronRefusedError,
    NoAddressError,
    NoAgentError,
    NoNetworkError,
    QuotaError,
    UnreachableError,
    WrongPhysnetError,
)

# As Neutron 29 answers, without the fields that nobody reads.
BOUND: dict[str, Any] = {
    "id": "44c40b1f",
    "network_id": "4c6757a8",
    "mac_address": "fa:16:3e:0c:69:51",
    "admin_state_up": True,
    "status": "DOWN",
    "fixed_ips": [
        {"subnet_id": "v4", "ip_address": "10.20.0.123"},
        {"subnet_id": "v6", "ip_address": "fd00:20::186"},
    ],
    "description": None,
    "binding:vnic_type": "direct",
    "binding:profile": {"trusted": "true"},
    "binding:host_id": "node-1",
    "binding:vif_type": "hw_veb",
    "binding:vif_details": {"port_filter": False, "connectivity": "l2", "vlan": "214"},
    "port_security_enabled": True,
    "qos_policy_id": None,
}
NETWORK = NeutronNetwork(id="4c6757a8", name="data", mtu=9000, physnet="physnet2")
SUBNETS = (
    Subnet(
        id="v4",
        network_id="4c6757a8",
        cidr="10.20.0.0/16",
        gateway_ip="10.20.0.1",
        dns_nameservers=("10.20.0.2",),
        host_routes=(HostRoute("10.99.0.0/16", "10.20.0.9"),),
    ),
    Subnet(id="v6", network_id="4c6757a8", cidr="fd00:20::/64"),
    Subnet(id="other", network_id="4c6757a8", cidr="10.77.0.0/16", gateway_ip="10.77.0.1"),
)
WANTED = PortRequest(
    name="c-0",
    claim="c",
    cluster="k",
    host="node-1",
    network="4c6757a8",
    physnet="physnet2",
    pci_slot="0000:05:10.1",
)


def port(**changes: Any) -> Port:
    return msgspec.convert(BOUND | {name.replace("__", ":"): value for name, value in changes.items()}, Port)


def test_a_vf_gets_the_settings_of_its_port_network_and_subnets() -> None:
    found = answers.settings(port(), NETWORK, SUBNETS, None)
    assert (found.mac, found.vlan, found.mtu) == ("fa:16:3e:0c:69:51", 214, 9000)
    assert found.addresses == ("10.20.0.123/16", "fd00:20::186/64")
    assert (found.gateways, found.dns) == (("10.20.0.1",), ("10.20.0.2",)), "not those of a subnet that it is not in"
    assert found.routes == (HostRoute("10.99.0.0/16", "10.20.0.9"),)
    assert (found.spoofchk, found.trust, found.link_state) == (True, True, "auto")


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"binding__vif_details": {"vlan": "0"}}, "vlan", 0),
        ({"binding__vif_details": {}}, "vlan", 0),
        ({"binding__vif_details": {"vlan": 7}}, "vlan", 7),
        ({"port_security_enabled": False}, "spoofchk", False),
        ({"admin_state_up": False}, "link_state", "disable"),
        ({"binding__profile": {}}, "trust", False),
        ({"binding__profile": {"trusted": True}}, "trust", True),
        ({"fixed_ips": []}, "addresses", ()),
    ],
)
def test_each_field_of_a_port_counts(changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(answers.settings(port(**changes), NETWORK, SUBNETS, None), field) == value


@pytest.mark.parametrize(
    ("rules", "rates"),
    [
        ((), (0, 0)),
        ((QosRule(type="bandwidth_limit", max_kbps=10_000),), (0, 10)),
        ((QosRule(type="bandwidth_limit", max_kbps=10_001),), (0, 11)),
        ((QosRule(type="bandwidth_limit", direction="ingress", max_kbps=10_000),), (0, 0)),
        ((QosRule(type="minimum_bandwidth", min_kbps=1),), (1, 0)),
        ((QosRule(type="dscp_marking"), QosRule(type="bandwidth_limit", max_kbps=5000)), (0, 5)),
    ],
)
def test_qos_rates_are_rounded_up_to_mbit_and_apply_only_to_egress(
    rules: tuple[QosRule, ...], rates: tuple[int, int]
) -> None:
    found = answers.settings(port(), NETWORK, SUBNETS, QosPolicy(id="q", rules=rules))
    assert (found.min_tx_rate, found.max_tx_rate) == rates


MAC, OTHER_MAC = "fa:16:3e:0c:69:51", "fa:16:3e:00:00:99"


@pytest.mark.parametrize(
    ("changes", "rules", "said"),
    [
        ({}, (), ()),
        ({}, (QosRule(type="bandwidth_limit", max_kbps=1), QosRule(type="minimum_bandwidth", min_kbps=1)), ()),
        (
            {},
            (QosRule(type="bandwidth_limit", direction="ingress", max_kbps=1),),
            ("rule bandwidth_limit of direction ingress of QoS policy gold",),
        ),
        (
            {},
            (QosRule(type="minimum_bandwidth", direction="ingress"), QosRule(type="dscp_marking")),
            ("rule minimum_bandwidth of direction ingress of QoS policy gold", "rule dscp_marking of QoS policy gold"),
        ),
        ({"allowed_address_pairs": [{"ip_address": "10.20.0.0/24", "mac_address": MAC.upper()}]}, (), ()),
        ({"allowed_address_pairs": [{"ip_address": "10.20.0.0/24"}]}, (), ()),
        (
            {"allowed_address_pairs": [{"ip_address": "10.20.0.9", "mac_address": OTHER_MAC}]},
            (),
            (f"allowed address pair {OTHER_MAC}: the VF can send from MAC address {MAC} alone",),
        ),
        (
            {"allowed_address_pairs": [{"mac_address": OTHER_MAC}], "port_security_enabled": False},
            (),
            (),
        ),
    ],
)
def test_port_settings_that_a_vf_cannot_enforce_are_listed(
    changes: dict[str, Any], rules: tuple[QosRule, ...], said: tuple[str, ...]
) -> None:
    policy = QosPolicy(id="q", name="gold", rules=rules)
    assert answers.settings(port(**changes), NETWORK, SUBNETS, policy).unenforced == said


def test_a_port_is_made_and_bound_by_one_request() -> None:
    sent = WANTED.sent["port"]
    assert "fixed_ips" not in sent
    assert "security_groups" not in sent
    assert sent["binding:profile"] == {
        "pci_slot": "0000:05:10.1",
        "physical_network": "physnet2",
    }
    more = msgspec.structs.replace(
        WANTED, subnet="v4", addresses=("10.20.0.7", "10.20.0.8"), security_groups=(), qos_policy="q"
    )
    sent = more.sent["port"]
    assert sent["fixed_ips"] == [{"ip_address": each, "subnet_id": "v4"} for each in ("10.20.0.7", "10.20.0.8")]
    assert (sent["security_groups"], sent["qos_policy_id"]) == ([], "q")
    assert msgspec.structs.replace(WANTED, subnet="v4").sent["port"]["fixed_ips"] == [{"subnet_id": "v4"}]


@pytest.mark.parametrize(
    ("changes", "network", "error", "said"),
    [
        ({"binding__vif_type": "binding_failed"}, NETWORK, NoAgentError, "no NIC switch agent is alive on host node-1"),
        ({"binding__vif_type": "unbound"}, NETWORK, NoAgentError, "no NIC switch agent"),
        ({"binding__host_id": "node-2"}, NETWORK, NoAgentError, "no NIC switch agent is alive on host node-1"),
        ({"binding__vif_type": "ovs"}, NETWORK, NeutronRefusedError, 'is bound as "ovs", and a VF needs "hw_veb"'),
        (
            {},
            msgspec.structs.replace(NETWORK, physnet="physnet3"),
            WrongPhysnetError,
            'belongs to physical network "physnet3"',
        ),
        ({}, msgspec.structs.replace(NETWORK, physnet=""), WrongPhysnetError, 'belongs to physical network "none"'),
    ],
)
def test_a_port_with_a_wrong_binding_or_physical_network_is_rejected(
    changes: dict[str, Any], network: NeutronNetwork, error: type[NeutronError], said: str
) -> None:
    with pytest.raises(error, match="^.*" + said.replace("(", r"\(")):
        answers.check_bound(port(**changes), WANTED, network)


def test_a_network_with_a_hidden_physical_network_is_accepted() -> None:
    answers.check_bound(port(), WANTED, msgspec.structs.replace(NETWORK, physnet=None))


def refused(status: int, kind: str, message: str = "why") -> NeutronError:
    body = msgspec.json.encode({"NeutronError": {"type": kind, "message": message, "detail": ""}})
    return answers.refusal("POST ports", status, body, 'user "netdra" of project "kubernetes"')


@pytest.mark.parametrize(
    ("status", "kind", "error", "reason"),
    [
        (403, "PolicyNotAuthorized", ForbiddenError, "Forbidden"),
        (404, "NetworkNotFound", NoNetworkError, "NoNetwork"),
        (409, "OverQuota", QuotaError, "Quota"),
        (409, "IpAddressGenerationFailure", NoAddressError, "NoAddress"),
        (409, "IpAddressAlreadyAllocated", NoAddressError, "NoAddress"),
        (400, "InvalidIpForSubnet", NoAddressError, "NoAddress"),
        (409, "MacAddressInUse", NeutronRefusedError, "Refused"),
        (400, "HTTPBadRequest", NeutronRefusedError, "Refused"),
        (429, "OverLimit", UnreachableError, "Unreachable"),
        (503, "ServiceUnavailable", UnreachableError, "Unreachable"),
    ],
)
def test_a_refusal_has_one_word_and_neutrons_own(
    status: int, kind: str, error: type[NeutronError], reason: str
) -> None:
    found = refused(status, kind)
    assert (type(found), found.reason) == (error, reason)
    assert found.what == f"Neutron: POST ports: {status} {kind}: why"


@pytest.mark.parametrize("body", [b"", b"<html>\n  502 Bad  Gateway</html>", b"[]", b'{"NeutronError": "x"}', b"\xff"])
def test_an_error_answer_from_a_proxy_is_reported_as_unreachable_on_one_line(body: bytes) -> None:
    found = answers.refusal("GET ports", 502, body, "somebody")
    assert isinstance(found, UnreachableError)
    assert found.what.startswith("Neutron: GET ports: 502")
    assert "\n" not in found.what


def test_a_text_without_end_is_cut() -> None:
    assert len(refused(500, "x", "y" * 100_000).what) < 1000


@pytest.mark.parametrize(
    ("configurations", "devices"),
    [
        ({"device_mappings": {"physnet2": ["eth2", "eth3"]}}, {"physnet2": ("eth2", "eth3")}),
        ({"device_mappings": {"physnet2": "eth2", "physnet3": None, "physnet4": [7, "eth4"]}}, {"physnet4": ("eth4",)}),
        ({"device_mappings": ["eth2"]}, {}),
        ({}, {}),
    ],
)
def test_malformed_device_mappings_of_an_agent_are_ignored(
    configurations: dict[str, Any], devices: dict[str, Any]
) -> None:
    assert Agent(host="h", agent_type="NIC Switch agent", configurations=configurations).devices == devices
