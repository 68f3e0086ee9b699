"""The requests of a step to Neutron: refused where they make no sense, and filled with the values of claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.topology import NetworkTopology, NeutronRequest
from netdra.rules.topologies import check_configs, check_topology, check_unwise
from netdra.topology import bind
from netdra.topology.graph import compile_topology

Topology = Callable[..., NetworkTopology]
SELECTOR = 'selector: {cel: \'device.attributes["dra.networking"].physnet == "physnet2"\'}'
GROUP = "0b4a7d8e-2f1c-4f0e-9c0a-8d2f6b1e5a01"
OTHER_GROUP = "0b4a7d8e-2f1c-4f0e-9c0a-8d2f6b1e5a02"
PARAMETERS = f"""
- {{name: address, format: ip, default: 10.20.0.9}}
- {{name: addresses, type: "[]string", format: ip, maxItems: 2, default: [10.20.0.7, 10.20.0.8]}}
- {{name: net, enum: [blue, green], default: green}}
- {{name: group, enum: [{GROUP}], default: {GROUP}}}
- {{name: number, type: integer, minimum: 1, maximum: 4, default: 2}}
"""


def declared(steps: str, parameters: str = "[]") -> NetworkTopology:
    """A topology of steps, with parameters."""
    text = "apiVersion: networking.dra.io/v1alpha1\nkind: NetworkTopology\nmetadata: {name: t}\nspec:\n"
    text += f"  steps: [{steps}]\n  parameters: " + ("[]" if parameters == "[]" else "")
    text += "".join(f"\n    {line}" for line in parameters.strip().splitlines()) if parameters != "[]" else ""
    (made,) = documents.read(text, "t")
    assert isinstance(made, NetworkTopology)
    return made


def vf(neutron: str, config: str = "{}", more: str = "") -> str:
    """A root step of a VF with a port."""
    return f"{{name: vf, type: sriov, {SELECTOR}, neutron: {neutron}, config: {config}{more}}}"


@pytest.mark.parametrize(
    "neutron",
    [
        "{}",
        "{network: blue}",
        "{network: blue, subnet: blue-4, fixedIPs: [10.20.0.5, '2001:db8::5'], assignAddresses: false}",
        f"{{securityGroups: [], qosPolicy: {GROUP}}}",
        f"{{port: {GROUP}, assignAddresses: false}}",
        f"{{port: {GROUP.replace('-', '')}}}",
    ],
)
def test_a_request_of_a_vf_is_taken(neutron: str) -> None:
    topology = declared(vf(neutron, "{pciBusID: '', logLevel: debug}"))
    assert check_topology(topology) == ()
    assert list(check_unwise(topology)) == []


KEYS = {
    "vlan": 5, "vlanQoS": 1, "qos": 1, "vlanProto": "802.1q", "proto": "802.1q", "mac": "02:00:00:00:00:01",
    "ipam": {"type": "dhcp"}, "minTxRate": 1, "min_tx_rate": 1, "maxTxRate": 1, "max_tx_rate": 1, "spoofchk": "off",
    "trust": "on", "linkState": "auto", "link_state": "auto", "mtu": 1500,
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_config_keys_set_by_the_neutron_port_are_rejected(key: str) -> None:
    config = msgspec.json.encode({"vlan": 5} | {key: KEYS[key]}).decode()
    findings = {finding.path: finding for finding in check_topology(declared(vf("{}", config)))}
    finding = findings["spec", "steps", 0, "config", key]
    assert finding.what == f'NetworkTopology "t", step "vf": config.{key} does not go with neutron'
    assert finding.hint


def test_runtime_config_values_set_by_the_neutron_port_are_rejected() -> None:
    findings = check_topology(declared(vf("{}", "{runtimeConfig: {mac: '02:00:00:00:00:01', ips: [10.0.0.1/24]}}")))
    assert [finding.path[3:] for finding in findings] == [
        ("config", "runtimeConfig", "mac"),
        ("config", "runtimeConfig", "ips"),
    ]


CASES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "a derived step": (
        f"{vf('{}')}, {{name: b, type: sriov, dependOn: [vf], neutron: {{}}}}",
        "only a step without dependOn has a VF, and so a port of Neutron; move it to the step of the VF",
        (1, "neutron"),
    ),
    "another type": (
        f"{{name: a, type: host-device, {SELECTOR}, neutron: {{}}}}",
        'neutron goes with type sriov alone, not with "host-device"',
        (0, "neutron"),
    ),
    "the program": (
        f"{{name: a, type: sriov, execution: Binary, {SELECTOR}, neutron: {{}}}}",
        "neutron does not go with execution Binary",
        (0, "neutron"),
    ),
    "a port with more": (
        vf(f"{{port: {GROUP}, network: blue, fixedIPs: [10.0.0.1]}}"),
        "port does not go with network, fixedIPs: a port that is there has them",
        (0, "neutron", "port"),
    ),
    "an address with a prefix": (
        vf("{fixedIPs: [10.0.0.1/24]}"),
        'fixedIPs[0] "10.0.0.1/24" is not an IP address without a prefix length, as 10.0.0.1; write 10.0.0.1',
        (0, "neutron", "fixedIPs", 0),
    ),
    "an address twice": (
        vf("{fixedIPs: [10.0.0.1, 10.0.0.1]}"),
        'fixedIPs has "10.0.0.1" twice; remove one of them',
        (0, "neutron", "fixedIPs", 1),
    ),
    "a group twice": (
        vf(f"{{securityGroups: [{GROUP}, {GROUP}]}}"),
        "twice",
        (0, "neutron", "securityGroups", 1),
    ),
    "a group by name": (
        vf("{securityGroups: [default]}"),
        'securityGroups[0] "default" is not an ID; see it by `openstack security group list`',
        (0, "neutron", "securityGroups", 0),
    ),
    "an empty item": (
        vf("{fixedIPs: ['']}"),
        'fixedIPs[0] "" is neither a name nor an ID',
        (0, "neutron", "fixedIPs", 0),
    ),
    "a long name": (vf(f"{{network: {'x' * 256}}}"), "is neither a name nor an ID", (0, "neutron", "network")),
    "a result": (
        vf("{network: '{{ vf0.mac }}'}"),
        "{{ vf0.mac }} is the result of a step, and Neutron is asked before any runs; write the value, or {{ params.<",
        (0, "neutron", "network"),
    ),
    "no reference": (vf("{network: '{{ x }}'}"), 'neutron.network: "{{ x }}" is not a reference', (0, "neutron")),
    "no such parameter": (
        vf("{network: '{{ params.nett }}'}"),
        'neutron.network: {{ params.nett }} names no parameter of this topology; did you mean "net"?',
        (0, "neutron", "network"),
    ),
    "a number": (
        vf("{network: 'net-{{ params.number }}'}"),
        "neutron.network: {{ params.number }} is of type integer; let it be a text",
        (0, "neutron", "network"),
    ),
    "a list for a text": (
        vf("{network: '{{ params.addresses }}'}"),
        "neutron.network: {{ params.addresses }} is of type []string; let it be a text",
        (0, "neutron", "network"),
    ),
    "a parameter that can be no address": (
        vf("{fixedIPs: ['{{ params.net }}']}"),
        'fixedIPs[0] "blue" is not an IP address',
        (0, "neutron", "fixedIPs", 0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_senseless_neutron_request_is_rejected_with_its_path(case: str) -> None:
    steps, what, path = CASES[case]
    topology = declared(steps, PARAMETERS)
    findings = [finding for finding in check_topology(topology) if finding.path == ("spec", "steps", *path)]
    assert findings, check_topology(topology)
    assert what in findings[0].text
    assert {finding.text for finding in check_configs(topology)} >= {finding.text for finding in findings}


def test_a_parameter_that_may_be_invalid_is_reported_with_an_example_value() -> None:
    (finding, *_) = check_topology(declared(vf("{fixedIPs: ['{{ params.net }}']}"), PARAMETERS))
    assert finding.what.endswith('Parameter net may be "blue".')


def test_claims_fill_a_request() -> None:
    steps = vf(
        "{network: '{{ params.net }}', securityGroups: ['{{ params.group }}', "
        + OTHER_GROUP
        + "], fixedIPs: ['{{ params.address }}', '{{ params.addresses }}'], assignAddresses: false}"
    )
    topology = declared(steps, PARAMETERS)
    assert check_topology(topology) == ()
    graph = compile_topology(topology)
    assert [str(reference) for _, reference in graph.asked["vf"]] == [
        "{{ params.net }}", "{{ params.group }}", "{{ params.address }}", "{{ params.addresses }}"
    ]  # fmt: skip
    given = {
        "net": "blue",
        "group": GROUP,
        "address": "10.20.0.1",
        "addresses": ["10.20.0.2", "10.20.0.3"],
        "number": 1,
    }
    (step,) = bind.unbound(topology, given).steps
    assert step.neutron == NeutronRequest(
        network="blue",
        security_groups=(GROUP, OTHER_GROUP),
        fixed_ips=("10.20.0.1", "10.20.0.2", "10.20.0.3"),
        assign_addresses=False,
    )


def test_a_request_without_parameters_stays_as_it_is() -> None:
    (step,) = bind.unbound(declared(vf("{}"))).steps
    assert step.neutron == NeutronRequest()


def test_an_extended_resource_with_a_parameter_without_default_is_rejected() -> None:
    steps = vf("{fixedIPs: ['{{ params.own }}']}", more=", extendedResourceName: example.com/vf")
    with pytest.raises(InvalidInputError, match="can give no value for own"):
        compile_topology(declared(steps, "- {name: own, format: ip}"))


def test_addresses_of_a_port_can_be_referenced_and_those_of_another_vf_cannot() -> None:
    steps = """{name: a, type: sriov, %s%s},
      {name: b, type: tuning, dependOn: [a], config: {addresses: ['{{ a.ips[1].address }}'], mtu: 1400}}"""
    assert check_topology(declared(steps % (SELECTOR, ", neutron: {assignAddresses: false}"))) == ()
    (finding,) = check_topology(declared(steps % (SELECTOR, "")))
    assert "does not produce ips" in finding.what


def test_a_selector_without_a_physical_network_is_unwise() -> None:
    steps = "{name: vf, type: sriov, selector: {cel: 'true'}, neutron: {}}"
    (warning,) = check_unwise(declared(steps))
    assert warning.path == ("spec", "steps", 0, "selector", "cel")
    assert "the selector does not test physnet" in warning.text
    assert list(check_unwise(declared("{name: vf, type: sriov, selector: {cel: 'true'}}"))) == []


def test_security_groups_of_a_vf_are_unwise() -> None:
    (warning,) = check_unwise(declared(vf(f"{{securityGroups: [{GROUP}]}}")))
    assert warning.path == ("spec", "steps", 0, "neutron", "securityGroups")
    assert "not enforced" in warning.text
    assert list(check_unwise(declared(vf("{securityGroups: []}")))) == []


BOND = """{name: vf0, type: sriov, %(s)s, neutron: {%(a)s}}, {name: vf1, type: sriov, %(s)s, neutron: {}},
  {name: up, type: tuning, dependOn: [vf0], config: {mtu: 1500}},
  {name: bond0, type: bond, dependOn: [up, vf1], config: {mode: active-backup,
   failOverMac: active, links: [{name: '{{ vf0.interfaceName }}'}, {name: '{{ vf1.interfaceName }}'}]}}"""


def test_addresses_on_a_member_of_a_bond_are_unwise() -> None:
    topology = declared(BOND % {"s": SELECTOR, "a": "assignAddresses: false"})
    assert check_topology(topology) == ()
    (warning,) = check_unwise(topology)
    assert warning.path == ("spec", "steps", 1, "neutron")
    assert warning.text.endswith(
        'set assignAddresses: false, and assign the address to "bond0": "{{ vf1.ips[0].address }}" (ND1175)'
    )
    assert len([*check_unwise(declared(BOND % {"s": SELECTOR, "a": ""}))]) == 2
