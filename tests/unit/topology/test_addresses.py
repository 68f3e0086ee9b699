"""Steps with addresses of PodNetworks: which ones a claim has, and the changes to their configs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.model.errors import InvalidInputError
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedStep
from netdra.model.pod_address import AddressRoute, PodAddress
from netdra.topology.addresses import StepKey, addressed, with_addresses
from netdra.topology.bind import addressed_steps
from tests.unit.networks.builders import address, owner
from tests.unit.topology.test_bind import Topology, claim, config, result

IPAM = {"ipam": {"type": "network"}}
CLAIM = ClaimReference(namespace="ns", name="c", uid="u")
DEVICE = PlannedDevice(request="nic", pool="p", device="d")


def step(name: str = "lan", kind: str = "macvlan", **fields: Any) -> PlannedStep:
    fields = {"config": IPAM, "pod_network": "storage", "execution": "Binary"} | fields
    return PlannedStep(name=name, type=kind, if_name="net1", network="netdra_storage", **fields)


def plan(*steps: PlannedStep, topology: str = "lan") -> Plan:
    return Plan(topology=topology, claim=CLAIM, steps=steps)


def assigned(text: str, **spec: Any) -> PodAddress:
    made = address(text, owner())
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, **spec))


def test_each_run_of_a_topology_is_a_step_of_its_own() -> None:
    plans = [plan(step(), step("plain", config={})), plan(step()), plan(step(), topology="other")]

    assert [key for key, _, _ in addressed(plans)] == [
        StepKey("lan", "lan", 0),
        StepKey("lan", "lan", 1),
        StepKey("other", "lan", 0),
    ]


def test_the_controller_and_the_node_count_runs_in_the_same_way(topology: Topology) -> None:
    lan = topology("- {name: nic, type: macvlan, network: storage, config: {ipam: {type: network}}}", name="lan")
    allocated = claim([result("nic", "vf0"), result("nic", "vf1")], [config("lan", "nic", "nic")])

    assert [(name, entry.name, number) for name, entry, number in addressed_steps(allocated, {"lan": lan})] == [
        ("lan", "nic", 0),
        ("lan", "nic", 1),
    ]


def test_static_hands_out_the_addresses_routes_and_name_servers() -> None:
    routes = (AddressRoute(destination="10.0.0.0/8", gateway="10.7.0.1"), AddressRoute(destination="0.0.0.0/0"))
    four = assigned("10.7.0.5/24", gateway="10.7.0.1", routes=routes, dns=("10.7.0.2",), mtu=9000)
    six = assigned("2001:db8::5/64", mtu=9000)
    whole = plan(step(config={"mode": "bridge", **IPAM}), step("other", config={"mtu": 1500}))
    (made,) = with_addresses([whole], {StepKey("lan", "lan", 0): (six, four)}, {})

    assert made.steps[0].config == {
        "mode": "bridge",
        "mtu": 9000,
        "ipam": {
            "type": "static",
            "addresses": [{"address": "10.7.0.5/24", "gateway": "10.7.0.1"}, {"address": "2001:db8::5/64"}],
            "routes": [{"dst": "10.0.0.0/8", "gw": "10.7.0.1"}],
            "dns": {"nameservers": ["10.7.0.2"]},
        },
    }
    assert made.steps[0].pod_network == "storage"
    assert made.steps[1] is whole.steps[1]
    assert not [*addressed([made])]


def test_a_default_route_is_for_steps_that_request_one_and_an_own_mtu_stays() -> None:
    default = AddressRoute(destination="0.0.0.0/0", gateway="10.7.0.1")
    entry = assigned("10.7.0.5/24", routes=(default,), mtu=9000)
    one = step(config={"mtu": 1400, **IPAM}, default_route=True)
    (made,) = with_addresses([plan(one)], {StepKey("lan", "lan", 0): (entry,)}, {})

    assert made.steps[0].config["mtu"] == 1400
    assert made.steps[0].config["ipam"]["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.7.0.1"}]


@pytest.mark.parametrize(
    ("wired", "says"),
    [
        ({("p", "d"): "other"}, 'device "d" of pool "p" is on physical network "other", but PodNetwork "storage"'),
        ({}, 'device "d" of pool "p" has no attribute physnet'),
    ],
)
def test_a_device_on_another_wire_is_refused(wired: dict[tuple[str, str], str], says: str) -> None:
    nic = step("nic", config={}, device=DEVICE, pod_network="")
    whole = plan(nic, step("tag", "vlan", depend_on=("nic",)))
    entry = {StepKey("lan", "tag", 0): (assigned("10.7.0.5/24", physnet="blue"),)}

    with pytest.raises(InvalidInputError, match=says):
        with_addresses([whole], entry, wired)
    assert with_addresses([whole], entry, {("p", "d"): "blue"})
