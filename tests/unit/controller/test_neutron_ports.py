"""The NeutronPorts that a claim should have, and the status of one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from netdra.controller.neutron import desired, inspection
from netdra.controller.neutron.desired import AllocatedNode
from netdra.controller.writing import notices
from netdra.kube.events import ObjectReference
from netdra.model.claim import AllocatedDeviceStatus, ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.neutron_port import FINALIZER, NeutronPort, name_of
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.neutron.answers import FixedIP, HostRoute, NeutronNetwork, Port, VfSettings
from netdra.neutron.errors import CloudsError, LostError, NoAgentError, UnreachableError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
NEVER, BOUND = "never bound", "bound"
REFERENCE = ObjectReference(api_version="resource.k8s.io/v1", kind="ResourceClaim", name="data")
NETWORK = NeutronNetwork(id="n1", name="blue", mtu=9000, physnet="physnet2")
GIVEN = VfSettings(
    mac="fa:16:3e:00:00:01",
    vlan=214,
    mtu=9000,
    addresses=("10.20.0.5/24",),
    gateways=("10.20.0.1",),
    routes=(HostRoute("10.99.0.0/16", "10.20.0.9"),),
    dns=(),
    spoofchk=True,
    trust=False,
    link_state="auto",
)
ANSWER = Port(
    id="p1",
    network_id="n1",
    mac_address=GIVEN.mac,
    host="host-7",
    device_id="uid-1",
    profile={"pci_slot": "0000:05:00.0"},
    fixed_ips=(FixedIP("10.20.0.5", "s1"),),
    vif_details={"vlan": "214"},
)


def claim(*devices: str, node: str = "node-7") -> ResourceClaim:
    config = {
        "source": "FromClass",
        "requests": ["vf"],
        "opaque": {
            "driver": "dra.networking",
            "parameters": {"networkTopologyRef": {"name": "data"}, "step": "vf"},
        },
    }
    results = [{"request": "vf", "driver": "dra.networking", "pool": "pool", "device": device} for device in devices]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": results, "config": [config]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    request = {"name": "vf", "exactly": {"deviceClassName": "data-vf", "count": len(devices)}}
    plain = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "data", "namespace": "apps", "uid": "uid-1"},
        "spec": {"devices": {"requests": [request]}},
        "status": {"allocation": allocation},
    }
    return msgspec.convert(plain, ResourceClaim)


def topology(**neutron: Any) -> dict[str, NetworkTopology]:
    step = {"name": "vf", "type": "sriov", "selector": {"cel": "true"}, "neutron": neutron}
    plain = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "data"},
        "spec": {"steps": [step]},
    }
    return {"data": msgspec.convert(plain, NetworkTopology)}


def node(count: int = 2, **attributes: Any) -> AllocatedNode:
    devices = [
        {"name": f"vf{number}", "attributes": attributes or vf(f"0000:05:{number // 8:02x}.{number % 8}")}
        for number in range(count)
    ]
    spec = {
        "driver": "dra.networking",
        "nodeName": "node-7",
        "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    plain = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "slice"},
        "spec": spec,
    }
    return AllocatedNode("node-7", "host-7", (msgspec.convert(plain, ResourceSlice),))


def vf(address: str) -> dict[str, Any]:
    return {"physnet": {"string": "physnet2"}, "pciAddress": {"string": address}}


def made(**neutron: Any) -> NeutronPort:
    (port,) = desired.wanted(claim("vf0"), topology(**neutron), node())
    return port


def test_a_port_is_wanted_for_each_device_and_belongs_to_the_claim() -> None:
    first, second = desired.wanted(claim("vf0", "vf1"), topology(network="blue", subnet="v4"), node())
    assert [first.name, second.name] == [name_of("uid-1", "pool", "vf0"), name_of("uid-1", "pool", "vf1")]
    assert first.metadata.finalizers == (FINALIZER,)
    (owner,) = first.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("ResourceClaim", "data", "uid-1")
    spec = first.spec
    assert (spec.physnet, spec.pci_address, spec.host, spec.node_name) == (
        "physnet2",
        "0000:05:00.0",
        "host-7",
        "node-7",
    )
    assert (spec.network, spec.subnet, spec.topology, spec.step) == ("blue", "v4", "data", "vf")


def test_a_claim_whose_topology_asks_for_none_has_none() -> None:
    plain = {
        name: msgspec.structs.replace(
            one,
            spec=msgspec.structs.replace(
                one.spec, steps=tuple(msgspec.structs.replace(step, neutron=None) for step in one.spec.steps)
            ),
        )
        for name, one in topology().items()
    }
    assert desired.wanted(claim("vf0"), plain, node()) == ()
    assert not plain["data"].asks_neutron
    assert topology()["data"].asks_neutron


@pytest.mark.parametrize(
    ("attributes", "lacks"),
    [
        ({"pciAddress": {"string": "0000:05:00.0"}}, "does not have physnet"),
        ({"physnet": {"string": "physnet2"}}, "does not have pciAddress"),
        ({"physnet": {"int": 2}, "pciAddress": {"string": "0000:05:00.0"}}, "does not have physnet"),
    ],
)
def test_a_device_without_a_physical_network_or_an_address_gets_no_port(attributes: Any, lacks: str) -> None:
    with pytest.raises(InvalidInputError, match=lacks):
        desired.wanted(claim("vf0"), topology(), node(**attributes))


@pytest.mark.parametrize("selector", [None, {}, {"nodeSelectorTerms": None}, {"nodeSelectorTerms": [{}]}])
def test_a_claim_that_is_on_no_single_node_has_none(selector: Any) -> None:
    there = claim("vf0")
    assert desired.node_of(there) == "node-7"
    assert there.status.allocation is not None
    allocation = msgspec.structs.replace(there.status.allocation, node_selector=selector)
    status = msgspec.structs.replace(there.status, allocation=allocation)
    assert desired.node_of(msgspec.structs.replace(there, status=status)) == ""


def test_a_failed_port_keeps_its_known_settings_and_the_time_of_the_change() -> None:
    port = made()
    status = desired.bound(port, ANSWER, NETWORK, GIVEN, NOW)
    assert (status.port_id, status.network_name) == ("p1", "blue")
    assert status.settings is not None
    assert status.settings.routes[0].gateway == "10.20.0.9"
    known = msgspec.structs.replace(port, status=status)
    assert desired.is_bound(known)
    lost = desired.failed(known, LostError("port p1 is gone"), LATER)
    assert lost.settings == status.settings
    (condition,) = lost.conditions
    assert (condition.status, condition.reason, condition.last_transition_time) == (
        "False",
        "Lost",
        "2026-01-02T00:00:00Z",
    )
    again = desired.failed(msgspec.structs.replace(known, status=lost), NoAgentError("none"), NOW)
    assert again.conditions[0].last_transition_time == "2026-01-02T00:00:00Z"
    assert desired.reason_of(msgspec.structs.replace(known, status=lost)) == "Lost"
    assert desired.reason_of(port) == "Pending"


def test_a_network_with_an_unreadable_physnet_is_reported_as_not_compared() -> None:
    hidden = msgspec.structs.replace(NETWORK, physnet=None)
    (condition,) = desired.bound(made(), ANSWER, hidden, GIVEN, NOW).conditions
    assert "not allowed to read whether network blue belongs to physnet2" in condition.message
    (condition,) = desired.bound(made(), ANSWER, NETWORK, GIVEN, NOW).conditions
    assert "not allowed to read" not in condition.message


@pytest.mark.parametrize("problem", [UnreachableError("away"), CloudsError("clouds.yaml: no such file")])
def test_users_are_notified_of_a_problem_once_and_of_its_end(problem: Any) -> None:
    port = made()
    failed = desired.failed(port, problem, NOW)
    (told,) = notices(REFERENCE, (), failed.conditions)
    assert (told.type, told.reason, told.note) == ("Warning", problem.reason, problem.what)
    assert list(notices(REFERENCE, failed.conditions, failed.conditions)) == []
    known = msgspec.structs.replace(port, status=failed)
    (over,) = notices(REFERENCE, failed.conditions, desired.bound(known, ANSWER, NETWORK, GIVEN, NOW).conditions)
    assert (over.type, over.reason) == ("Normal", "Bound")
    assert list(notices(REFERENCE, (), desired.bound(port, ANSWER, NETWORK, GIVEN, NOW).conditions)) == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, ""),
        ({"mac_address": "fa:16:3e:00:00:02"}, "MAC fa:16:3e:00:00:01 changed to fa:16:3e:00:00:02"),
        ({"vif_details": {"vlan": "7"}}, "VLAN 214 changed to 7"),
        ({"fixed_ips": ()}, "addresses 10.20.0.5 changed to none"),
        ({"host": "host-8"}, "host host-7 changed to host-8"),
        ({"host": "", "profile": {}}, "host host-7 changed to none"),
        ({"profile": {"pci_slot": "0000:05:00.1"}}, "PCI address 0000:05:00.0 changed to 0000:05:00.1"),
        ({"device_id": "uid-2"}, "device_id uid-1 changed to uid-2"),
        ({"device_id": ""}, "device_id uid-1 changed to none"),
        ({"admin_state_up": False}, "admin state up changed to down"),
        ({"port_security_enabled": False}, "port security on changed to off"),
        ({"host": "host-8", "admin_state_up": False}, "host host-7 changed to host-8; admin state up changed to down"),
    ],
)
def test_a_port_changed_in_neutron_is_reported_until_it_is_restored(fields: Any, what: str) -> None:
    port = made()
    status = desired.bound(port, ANSWER, NETWORK, GIVEN, NOW)
    known = msgspec.structs.replace(port, status=status)
    changed = inspection.difference(known, msgspec.structs.replace(ANSWER, **fields))
    assert changed == what
    told = desired.changed(known, changed, NOW)
    assert [condition.type for condition in told.conditions] == (["Bound", "Current"] if what else ["Bound"])
    assert desired.changed(msgspec.structs.replace(known, status=told), "", NOW) == status


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, ""),
        ({"mtu": 1400}, "MTU 9000 changed to 1400"),
        ({"gateways": ()}, "gateways 10.20.0.1 changed to none"),
        ({"routes": ()}, "routes 10.99.0.0/16 by 10.20.0.9 changed to none"),
        ({"dns": ("10.20.0.2", "10.20.0.3")}, "name servers none changed to 10.20.0.2, 10.20.0.3"),
        ({"trust": True}, "trust off changed to on"),
        ({"min_tx_rate": 5}, "minimum rate none changed to 5 Mbit/s"),
        ({"max_tx_rate": 7, "mtu": 1}, "MTU 9000 changed to 1; maximum rate none changed to 7 Mbit/s"),
        ({"unenforced": ("security groups",)}, ""),
    ],
)
def test_changes_of_the_network_its_subnets_and_the_qos_policy_are_reported(fields: Any, what: str) -> None:
    port = made()
    known = msgspec.structs.replace(port, status=desired.bound(port, ANSWER, NETWORK, GIVEN, NOW))
    now = msgspec.structs.replace(GIVEN, **fields)
    assert inspection.difference(known, ANSWER, now) == what
    unbound = msgspec.structs.replace(ANSWER, host="", profile={})
    assert "trust" not in inspection.difference(known, unbound, now), "the profile goes with the host"


def test_settings_that_no_vf_can_enforce_are_a_condition_until_they_are_removed() -> None:
    port = made(securityGroups=["g1"])
    limited = msgspec.structs.replace(GIVEN, unenforced=("rule dscp_marking of QoS policy gold",))
    bound = desired.bound(port, ANSWER, NETWORK, limited, NOW)
    known = msgspec.structs.replace(port, status=bound)
    assert known.enforced is not None
    assert known.enforced.message.startswith("security groups; rule dscp_marking of QoS policy gold are not enforced")
    (told,) = notices(REFERENCE, (), bound.conditions)
    assert (told.type, told.reason) == ("Warning", "NotEnforced")
    unread = desired.changed(known, "", NOW)
    assert unread == bound, "what could not be read says nothing new"
    now = msgspec.structs.replace(known, status=desired.changed(known, "", LATER, vf_settings=GIVEN))
    assert now.enforced is not None
    assert now.enforced.message.startswith("security groups are not enforced")
    assert made().enforced is None


@pytest.mark.parametrize(
    ("fields", "outdated"),
    [
        ({}, ()),
        ({"network": "green"}, (NEVER,)),
        ({"fixed_ips": ("10.20.0.9",)}, (NEVER,)),
        ({"security_groups": ()}, (NEVER,)),
        ({"port": "p9"}, (NEVER,)),
        ({"host": "host-8"}, (NEVER,)),
        ({"step": "vf1"}, (NEVER, BOUND)),
        ({"topology": "another"}, (NEVER, BOUND)),
        ({"request": "another"}, (NEVER, BOUND)),
        ({"node_name": "node-8", "host": "host-8"}, (NEVER, BOUND)),
        ({"step": "vf1", "network": "green"}, (NEVER, BOUND)),
    ],
)
def test_a_port_is_made_anew_where_no_node_can_have_its_settings(fields: Any, outdated: tuple[str, ...]) -> None:
    wished = made(network="blue")
    port = msgspec.structs.replace(wished, spec=msgspec.structs.replace(wished.spec, **fields))
    bound = msgspec.structs.replace(port, status=desired.bound(port, ANSWER, NETWORK, GIVEN, NOW))
    failed = msgspec.structs.replace(port, status=desired.failed(port, NoAgentError("none"), NOW))
    lost = msgspec.structs.replace(bound, status=desired.failed(bound, LostError("gone"), NOW))
    there = claim("vf0")
    entry = AllocatedDeviceStatus(driver="dra.networking", pool="pool", device="vf0")
    in_a_pod = msgspec.structs.replace(there, status=msgspec.structs.replace(there.status, devices=(entry,)))
    for each, state in ((port, NEVER), (failed, NEVER), (bound, BOUND), (lost, BOUND)):
        assert desired.is_outdated(each, wished, there) == (state in outdated)
        assert not desired.is_outdated(each, wished, in_a_pod)
