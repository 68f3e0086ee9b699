"""An address moves to another pod when its device has left the former one, on the real API server.

The nodes are objects alone: the test reports for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, NODE, POD, manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller
from tests.cluster.test_controller import EVENT, TOPOLOGY
from tests.cluster.test_pod_networks import ADDRESS, NETWORK, Net

pytestmark = pytest.mark.usefixtures("controller")

NODE_NETWORK = "networking.dra.io/v1alpha1/NodeNetwork"
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
_STAYS_SECONDS = 8.0
"""Longer than the quarantine, and than the controller waits before it looks again at an address that a pod may have."""


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


class Machine:
    """A node whose reports the test writes."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.api, self.name = workspace.api, workspace.name(name)
        node = workspace.create(manifest(NODE, self.name))
        workspace.create(manifest(NODE_NETWORK, node["metadata"]["name"]))

    def set_down(self, *taints: Object) -> None:
        """Have the node count as down."""
        self.api.patch(NODE, self.name, {"spec": {"taints": [*taints]}})
        conditions = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
        self.api.patch(NODE, self.name, {"status": {"conditions": conditions}}, subresource="status")

    def say(self, version: int, *unassigned: Object) -> None:
        """Report on addresses that were released up to a version."""
        status = {"releasedVersion": version, "unassignedAddresses": [*unassigned]}
        found = self.api.get(NODE_NETWORK, self.name)
        self.api.update({**found, "status": status}, subresource="status")


def reallocate(net: Net, name: str, node: str) -> None:
    """A claim is deallocated, as after its pod was deleted by force, and allocated for another pod."""
    found = net.api.get(CLAIM, name, net.workspace.namespace)
    deallocated = net.api.update({**found, "status": {}}, subresource="status")
    net.allocate(deallocated, node)


def wait_held(net: Net, claim: str, node: str) -> None:
    """Wait until a claim waits for an address, with the node as the reason."""

    def is_told(events: list[Object]) -> bool:
        held = (event for event in events if event["reason"] == "AddressHeld" and event["regarding"]["name"] == claim)
        return any(node in event["note"] for event in held)

    net.api.wait_for_all(EVENT, is_told, namespace=net.workspace.namespace)


def on_node(net: Net, address: str, node: str) -> bool:
    """Whether an address belongs to a claim on a node."""
    found = [entry["spec"] for entry in net.addresses if entry["spec"]["address"] == address]
    return [(spec.get("nodeName"), "claim" in spec) for spec in found] == [(node, True)]


def version(net: Net, address: str) -> int:
    """The resourceVersion of an address."""
    (found,) = (entry for entry in net.addresses if entry["spec"]["address"] == address)
    return int(found["metadata"]["resourceVersion"])


@pytest.fixture
def moving(workspace: Workspace) -> tuple[Net, Machine]:
    """A named claim that waits for its address, because its former node has not reported."""
    net, machine = Net(workspace, ranges=[{"cidr": "10.20.0.0/29"}]), Machine(workspace, "former")
    net.claim("db", machine.name)
    net.until("db", "10.20.0.1/29")
    net.attach("db")
    reallocate(net, "db", "next")
    wait_held(net, "db", machine.name)
    assert not on_node(net, "10.20.0.1/29", "next")
    return net, machine


def test_a_named_claim_gets_its_address_on_another_node_once_the_former_node_has_reported(
    moving: tuple[Net, Machine],
) -> None:
    net, machine = moving
    entry = {"network": net.name, "address": "10.20.0.1", "claim": f"{net.workspace.namespace}/db"}
    machine.set_down()
    machine.say(version(net, "10.20.0.1/29"), entry)
    net.claim("other")
    net.until("other", "10.20.0.2/29")
    time.sleep(_STAYS_SECONDS)
    assert not on_node(net, "10.20.0.1/29", "next")
    assert net.of("db") == []

    machine.say(version(net, "10.20.0.1/29"))
    until(lambda: on_node(net, "10.20.0.1/29", "next"), "the address to move", detail=lambda: str(net.addresses))


@pytest.mark.parametrize("signal", ["deleted", "out of service"])
def test_a_named_claim_gets_its_address_once_its_former_node_is_gone_for_good(
    moving: tuple[Net, Machine], signal: str
) -> None:
    net, machine = moving
    if signal == "deleted":
        net.api.delete(NODE, machine.name)
    else:
        machine.set_down(OUT_OF_SERVICE)
    until(lambda: on_node(net, "10.20.0.1/29", "next"), "the address to move", detail=lambda: str(net.addresses))


def test_the_address_of_a_named_claim_does_not_move_by_the_claims_status_alone(workspace: Workspace) -> None:
    """Its next pod may begin on the same node, and be deleted by force, before the controller reads of it."""
    net, machine = Net(workspace, ranges=[{"cidr": "10.21.0.0/29"}]), Machine(workspace, "former")
    net.claim("db", machine.name)
    net.until("db", "10.21.0.1/29")
    net.attach("db")
    found = net.api.get(CLAIM, "db", workspace.namespace)
    found["status"]["devices"] = []
    net.api.update(found, subresource="status")
    reallocate(net, "db", "next")
    wait_held(net, "db", machine.name)
    time.sleep(_STAYS_SECONDS)
    assert not on_node(net, "10.21.0.1/29", "next")
    machine.say(version(net, "10.21.0.1/29"))
    until(lambda: on_node(net, "10.21.0.1/29", "next"), "the address to move", detail=lambda: str(net.addresses))


def test_the_address_of_a_claim_that_is_gone_is_not_assigned_before_its_node_has_reported(
    workspace: Workspace,
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.22.0.0/30"}], keepSeconds=0, quarantineSeconds=1)
    machine = Machine(workspace, "former")
    for name in ("lost", "other"):
        net.claim(name, machine.name)
        until(lambda name=name: net.of(name), "an address")  # type: ignore[misc]
    net.attach("lost")
    net.claim("next")
    (address,) = net.of("lost")
    net.release("lost")
    time.sleep(_STAYS_SECONDS)
    assert net.of("next") == []

    machine.say(version(net, address))
    net.until("next", address)


def test_a_released_address_is_in_quarantine(workspace: Workspace) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.23.0.0/30", "gateway": "10.23.0.1"}], keepSeconds=0, quarantineSeconds=4)
    net.claim("first")
    net.until("first", "10.23.0.2/30")
    net.claim("second")
    began = time.monotonic()
    net.release("first")
    net.until("second", "10.23.0.2/30")
    assert 4 <= time.monotonic() - began < 12


def test_an_address_that_is_deleted_by_hand_comes_back_though_others_wait(workspace: Workspace) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.24.0.0/30"}], keepSeconds=0)
    for name in ("one", "two"):
        net.claim(name)
        until(lambda name=name: net.of(name), "an address")  # type: ignore[misc]
    (address,) = net.of("one")
    net.claim("thief")
    net.api.wait_for_all(
        EVENT, lambda events: any(event["reason"] == "NoFreeAddress" for event in events), namespace=workspace.namespace
    )
    net.api.delete(ADDRESS, f"{net.name}.{address.partition('/')[0]}")
    net.until("one", address)
    time.sleep(_STAYS_SECONDS)
    assert net.of("thief") == []


CORRECTIONS = {
    "gateway": {"ranges": [{"cidr": "10.25.0.0/29", "gateway": "10.25.0.2"}]},
    "mtu": {"mtu": 1400},
    "physnet": {"physnet": "storage"},
    "dns": {"dns": ["10.25.0.3"]},
    "routes": {"routes": [{"destination": "10.0.0.0/8", "gateway": "10.25.0.4"}]},
    "onDuplicate": {"onDuplicate": "Ignore"},
}


@pytest.mark.parametrize("field", CORRECTIONS)
def test_a_correction_of_a_network_reaches_claims_that_have_addresses_and_are_in_no_pod(
    workspace: Workspace, field: str
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.25.0.0/29", "gateway": "10.25.0.1"}])
    for name in ("running", "waiting"):
        net.claim(name)
        until(lambda name=name: net.of(name), "an address")  # type: ignore[misc]
    net.attach("running")
    before = specs(net)
    net.api.patch(NETWORK, net.name, {"spec": CORRECTIONS[field]})
    until(lambda: specs(net)["waiting"].get(field) != before["waiting"].get(field), "the correction")
    assert specs(net)["running"] == before["running"]


def test_after_a_full_family_is_removed_a_waiting_claim_has_the_other_one(workspace: Workspace) -> None:
    four, six = {"cidr": "10.26.0.0/30", "gateway": "10.26.0.1"}, {"cidr": "2001:db8:26::/64"}
    net = Net(workspace, ranges=[six], keepSeconds=0)
    net.claim("one")
    until(lambda: net.of("one"), "an address")
    net.api.patch(NETWORK, net.name, {"spec": {"ranges": [four, six]}})
    until(lambda: len(net.of("one")) == 2, "an address of the new family")
    net.claim("two")
    net.api.wait_for_all(
        EVENT, lambda events: any(event["reason"] == "NoFreeAddress" for event in events), namespace=workspace.namespace
    )
    assert net.of("two") == []  # all or nothing
    net.api.patch(NETWORK, net.name, {"spec": {"ranges": [six]}})
    until(lambda: len(net.of("one")) == len(net.of("two")) == 1, "the other family", detail=lambda: str(net.addresses))
    assert {tuple(spec["families"]) for spec in specs(net).values()} == {("IPv6",)}


def specs(net: Net) -> dict[str, Any]:
    """The spec of each claim's address."""
    return {entry["spec"]["claim"]["name"]: entry["spec"] for entry in net.addresses if "claim" in entry["spec"]}


class Pair:
    """Two networks with one address each, and topologies whose steps use them in opposite order."""

    def __init__(self, workspace: Workspace, cidr: str) -> None:
        self.workspace, self.api = workspace, workspace.api
        self.networks = [workspace.name("one"), workspace.name("other")]
        self.pods: dict[str, str] = {}
        for at, network in enumerate(self.networks):
            entry = {"cidr": f"{cidr}.{at}.0/30", "gateway": f"{cidr}.{at}.1"}
            workspace.create(manifest(NETWORK, network, spec={"ranges": [entry], "quarantineSeconds": 1}))

    def topology(self, base: str, *networks: str) -> str:
        """A topology with a step for each network."""
        steps = [
            {"name": f"s{at}", "type": "macvlan", "selector": {"cel": "true"}, "network": network}
            | {"config": {"ipam": {"type": "network"}}}
            for at, network in enumerate(networks)
        ]
        return str(
            self.workspace.create(manifest(TOPOLOGY, self.workspace.name(base), spec={"steps": steps}))["metadata"][
                "name"
            ]
        )

    def pod(self, name: str) -> str:
        """The uid of a pod that does not run on any node, so that its claims stay."""
        if name not in self.pods:
            spec = {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]}
            made = self.api.create(manifest(POD, name, self.workspace.namespace, spec=spec))
            self.pods[name] = made["metadata"]["uid"]
        return self.pods[name]

    def claim(self, name: str, topology: str, steps: int, pod: str) -> None:
        """An allocated claim of a pod."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": self.pod(pod), "controller": True}
        requests = [{"name": f"s{at}", "exactly": {"deviceClassName": f"{topology}-s{at}"}} for at in range(steps)]
        wanted = manifest(CLAIM, name, self.workspace.namespace, spec={"devices": {"requests": requests}})
        wanted["metadata"]["ownerReferences"] = [owner]
        made = self.api.create(wanted)
        status = identities.allocated(name, topology, [f"s{at}" for at in range(steps)])
        self.api.update({**made, "status": status}, subresource="status")

    def holders(self) -> list[str]:
        """The claims that have an address, once for each."""
        specs = (entry["spec"] for entry in self.api.list(ADDRESS))
        return sorted(spec["claim"]["name"] for spec in specs if spec["network"] in self.networks and "claim" in spec)

    def end(self, name: str) -> None:
        """A claim ends."""
        found = self.api.get(CLAIM, name, self.workspace.namespace)
        self.api.update({**found, "status": {}}, subresource="status")
        self.api.delete(CLAIM, name, self.workspace.namespace)


def test_claims_with_two_networks_in_opposite_order_do_not_hold_half_each(workspace: Workspace) -> None:
    pair = Pair(workspace, "10.27")
    forth, back = pair.topology("forth", *pair.networks), pair.topology("back", *reversed(pair.networks))
    for at in range(6):
        pair.claim(f"c{at}", forth if at % 2 else back, 2, f"pod{at}")
    ended: set[str] = set()
    for _ in range(6):
        until(lambda: len({*pair.holders()} - ended) == 1 and len(pair.holders()) == 2, "a claim with both addresses")
        first, second = pair.holders()
        assert first == second
        pair.end(first)
        ended.add(first)


def test_pods_with_two_claims_in_opposite_order_do_not_hold_half_each(workspace: Workspace) -> None:
    pair = Pair(workspace, "10.28")
    one, other = (pair.topology(f"t{at}", network) for at, network in enumerate(pair.networks))
    pair.claim("a1", one, 1, "a")
    until(lambda: pair.holders() == ["a1"], "the first claim of the first pod to have an address")
    pair.claim("b2", other, 1, "b")
    until(lambda: pair.holders() == ["a1", "b2"], "the first claim of the second pod to have an address")
    pair.claim("a2", other, 1, "a")
    pair.claim("b1", one, 1, "b")
    until(lambda: len({name[0] for name in pair.holders()}) == 1 and len(pair.holders()) == 2, "one pod to have both")
    pod = pair.holders()[0][0]
    for at in (1, 2):
        pair.end(f"{pod}{at}")
    rest = "b" if pod == "a" else "a"
    until(lambda: pair.holders() == [f"{rest}1", f"{rest}2"], "the other pod", detail=lambda: str(pair.holders()))
