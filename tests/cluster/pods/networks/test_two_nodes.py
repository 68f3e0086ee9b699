"""Two real nodes, each with its kubelet, containerd and driver, on one wire: addresses are unique, and move with pods.

The wire is a cable between interfaces of both nodes; pods have shares of them (macvlan), so they reach each other.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed import pods
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.driver import Driver
from testbed.node import Node
from testbed.objects import NODE, POD, manifest
from testbed.pods import Pods, is_running
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller
from tests.cluster.pods.conftest import Machine, running_machine
from tests.cluster.pods.driver import Offer, addresses, opened
from tests.cluster.pods.networks.test_addresses import network
from tests.cluster.pods.networks.test_topologies import topology
from tests.cluster.pods.running import account, step
from tests.cluster.test_pod_networks import ADDRESS

WIRE = "wire"
"""What the names of both ends begin with."""
STATEFUL_SET = "apps/v1/StatefulSet"
_STAYS_SECONDS = 12.0
"""Longer than the controller waits before it looks again at an address that a pod may have."""


@pytest.fixture(scope="module")
def second_machine(
    request: pytest.FixtureRequest, control_plane: ControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """Another node of the shared control plane."""
    with running_machine(request.config, control_plane, api, tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture(scope="module")
def second_driver(second_machine: Machine, control_plane: ControlPlane, api: Api, custom_kinds: None) -> Driver:
    """The other node's driver."""
    found = Driver(second_machine.node, account(second_machine.node, control_plane, api))
    found.start()
    return found


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, at work."""
    with running_controller(control_plane, api):
        yield


@pytest.fixture
def both(
    controller: None, offer: Offer, second_machine: Machine, second_driver: Driver, workspace: Workspace
) -> Iterator[tuple[Offer, Offer]]:
    """The offers on each of the nodes: shares of the ends of one wire."""
    second_pods = Pods(workspace.api, workspace.namespace, second_machine.containerd)
    with (
        opened(second_driver, workspace, second_pods) as second,
        plugged(offer.driver.node, second.driver.node) as ends,
    ):
        for each, end in zip((offer, second), ends, strict=True):
            each.shared(end, shares=8)
        yield offer, second
        workspace.api.delete(STATEFUL_SET, "db", workspace.namespace)
        offer.pods.delete_all()


@contextmanager
def plugged(one: Node, other: Node) -> Iterator[tuple[str, str]]:
    """A cable from one node to another; returns the names of its ends."""
    ends = f"{WIRE}1", f"{WIRE}2"
    first, second = ("netns", str(one.pid)), ("netns", str(other.pid))
    subprocess.run(("ip", "link", "add", ends[0], *first, "type", "veth", "peer", "name", ends[1], *second), check=True)
    try:
        for node, end in zip((one, other), ends, strict=True):
            node.run("ip", "link", "set", end, "up")
        yield ends
    finally:
        one.run("ip", "link", "delete", ends[0])


def lan(offer: Offer, cidr: str) -> tuple[str, str]:
    """A PodNetwork on the wire, and the DeviceClass of its shares."""
    made = network(offer, "lan", ranges=[{"cidr": cidr}], keepSeconds=600)
    config = {"mode": "bridge", "ipam": {"type": "network"}}
    name = topology(offer, "lan", step("nic", "macvlan", config, prefix=WIRE) | {"network": made})
    return made, f"{name}-nic"


def stateful_set(offer: Offer, device_class: str, replicas: int) -> None:
    """Replicas with shares of the wire; the scheduler decides on their nodes."""
    template = offer.template("net", nic=device_class)
    pod = pods.manifest(offer.workspace.namespace, "pod", "", {"net": ""})
    spec = pod["spec"] | {"resourceClaims": [{"name": "net", "resourceClaimTemplateName": template}]}
    labels = {"app": "db"}
    wanted = {
        "replicas": replicas,
        "serviceName": "db",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    offer.workspace.api.create(manifest(STATEFUL_SET, "db", offer.workspace.namespace, spec=wanted))


def wait_replaced(offer: Offer, name: str, uid: str = "") -> Object:
    """Wait until a replica runs that is not the pod of that uid."""
    return offer.pods.wait(name, lambda found: is_running(found) and (found or {})["metadata"]["uid"] != uid)


@contextmanager
def cordoned(offer: Offer) -> Iterator[None]:
    """No pod is placed on a node meanwhile."""
    api, name = offer.workspace.api, offer.driver.node.name
    api.patch(NODE, name, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        api.patch(NODE, name, {"spec": {"unschedulable": None}})


def own(offer: Offer, pod: str) -> str:
    """The address of a pod's share, as iproute2 sees it."""
    (found,) = addresses(offer.inside(pod)["net1"])
    return found.partition("/")[0]


def reaches(offer: Offer, pod: str, address: str) -> bool:
    """Whether a pod reaches another one over the wire."""
    ping = ("ping", "-c", "1", "-W", "2", "-I", "net1", address)
    return "1 packets received" in offer.pods.exec(pod, *ping)


def holders(offer: Offer, made: str) -> dict[str, Object]:
    """The PodAddresses of a network, by address without prefix length."""
    found = (each["spec"] for each in offer.workspace.api.list(ADDRESS))
    return {spec["address"].partition("/")[0]: spec for spec in found if spec["network"] == made}


def test_pods_of_two_nodes_have_addresses_of_their_own_and_reach_each_other(both: tuple[Offer, Offer]) -> None:
    made, device_class = lan(both[0], "10.97.0.0/28")
    before = [offer.metric("netdra_duplicate_addresses_total") for offer in both]
    placed = {"a1": both[0], "a2": both[0], "b1": both[1], "b2": both[1]}
    for name, offer in placed.items():
        offer.pods.add(name, offer.claim(name, nic=device_class))
    for name, offer in placed.items():
        offer.pods.wait(name, is_running)
    found = {name: own(offer, name) for name, offer in placed.items()}
    assert len({*found.values()}) == len(placed)
    nodes = {address: spec["nodeName"] for address, spec in holders(both[0], made).items()}
    assert nodes == {found[name]: offer.driver.node.name for name, offer in placed.items()}
    for name, other in (("a1", "b1"), ("b2", "a2"), ("a1", "a2"), ("b1", "b2")):
        assert reaches(placed[name], name, found[other]), f"{name} to {other}: {found}"
    # No machine was found to have the address of another one.
    assert [offer.metric("netdra_duplicate_addresses_total") for offer in both] == before


def test_a_replica_keeps_its_address_on_another_node(both: tuple[Offer, Offer]) -> None:
    one, other = both
    _, device_class = lan(one, "10.98.0.0/28")
    with cordoned(other):
        stateful_set(one, device_class, replicas=1)
        before = wait_replaced(one, "db-0")
    address = own(one, "db-0")
    other.pods.run("peer", other.claim("peer", nic=device_class))
    assert reaches(other, "peer", address)
    with cordoned(one):
        one.workspace.api.delete(POD, "db-0", one.workspace.namespace, grace=5)
        after = wait_replaced(other, "db-0", before["metadata"]["uid"])
    assert [pod["spec"]["nodeName"] for pod in (before, after)] == [one.driver.node.name, other.driver.node.name]
    assert own(other, "db-0") == address
    # A machine that had the replica's former MAC in its memory learns the new one when the replica begins.
    one.pods.run("back", one.claim("back", nic=device_class))
    assert reaches(one, "back", address)
    assert reaches(other, "peer", address)


def test_an_address_stays_with_a_pod_that_was_deleted_by_force_on_a_node_that_is_down(
    both: tuple[Offer, Offer], second_machine: Machine
) -> None:
    one, other = both
    api, namespace = one.workspace.api, one.workspace.namespace
    made, device_class = lan(one, "10.99.0.0/28")
    with cordoned(one):
        stateful_set(one, device_class, replicas=1)
        lost = wait_replaced(other, "db-0")
    address = own(other, "db-0")
    sandbox = other.pods.sandbox("db-0")
    second_machine.kubelet.process.pause()
    try:
        until_down(api, other.driver.node.name)
        api.delete(POD, "db-0", namespace)  # without grace: nobody waits for the node
        one.pods.wait_event("db-0", "AddressHeld", address)
        (present,) = addresses_in(other, sandbox)
        assert present.partition("/")[0] == address
        # Longer than the controller's next look: the address stays, and others get other ones.
        one.pods.run("next", one.claim("next", nic=device_class))
        assert own(one, "next") != address
        time.sleep(_STAYS_SECONDS)
        assert holders(one, made)[address]["owner"]["pod"] == "db-0"
        assert holders(one, made)[address]["nodeName"] == other.driver.node.name
        assert not is_running(api.get(POD, "db-0", namespace))
    finally:
        second_machine.kubelet.process.resume()
        second_machine.kubelet.wait_ready()
    # The kubelet ends the lost pod, and the new one gets its address.
    wait_replaced(one, "db-0", lost["metadata"]["uid"])
    new = api.get(POD, "db-0", namespace)
    assert own(one if new["spec"]["nodeName"] == one.driver.node.name else other, "db-0") == address


def test_a_named_claim_waits_for_its_address_while_its_former_node_is_down(
    both: tuple[Offer, Offer], second_machine: Machine
) -> None:
    one, other = both
    api, namespace = one.workspace.api, one.workspace.namespace
    made, device_class = lan(one, "10.96.0.0/28")
    claim = one.claim("app", nic=device_class)
    with cordoned(one):
        other.pods.run("lost", claim)
    address, sandbox = own(other, "lost"), other.pods.sandbox("lost")
    second_machine.kubelet.process.pause()
    try:
        until_down(api, other.driver.node.name)
        api.delete(POD, "lost", namespace)  # without grace: nobody waits for the node
        with cordoned(other):
            one.pods.add("next", claim)
            one.pods.wait_event("next", "AddressHeld", address)
        time.sleep(_STAYS_SECONDS)
        (present,) = addresses_in(other, sandbox)
        assert present.partition("/")[0] == address
        assert holders(one, made)[address]["nodeName"] == other.driver.node.name
        assert not is_running(api.get(POD, "next", namespace))
    finally:
        second_machine.kubelet.process.resume()
        second_machine.kubelet.wait_ready()
    one.pods.wait("next", is_running)
    assert own(one, "next") == address


def until_down(api: Api, node: str) -> None:
    """Have a node count as down, as the controller of nodes does a while after its kubelet's last word."""

    def set_down() -> bool:
        found = api.get(NODE, node)
        for condition in found["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition |= {"status": "Unknown", "reason": "NodeStatusUnknown"}
        api.update(found, subresource="status")
        ready = (each for each in api.get(NODE, node)["status"]["conditions"] if each["type"] == "Ready")
        return bool(next(ready)["status"] == "Unknown")

    until(set_down, "the node to count as down")


def addresses_in(offer: Offer, sandbox: str) -> set[str]:
    """The addresses that a sandbox's share still has, independent of its pod in the API server."""
    containerd = offer.pods.containerd
    enter = ("nsenter", f"--net={containerd.netns(sandbox)}", "ip", "-4", "-o", "address", "show", "dev", "net1")
    return {line.split()[3] for line in containerd.node.run(*enter).splitlines()}
