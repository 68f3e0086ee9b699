"""The free addresses of PodNetworks as devices, on the real API server and scheduler (decision D71)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, POD, SLICE, manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller
from tests.cluster.test_address_moves import NODE_NETWORK
from tests.cluster.test_pod_networks import NETWORK, Net

pytestmark = pytest.mark.usefixtures("controller")
CAPACITY = "dra.networking/addresses"


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


def slices(api: Api, network: str) -> dict[str, Object]:
    """The slices of a PodNetwork by their pools, without the part that all have."""
    prefix = f"podnetworks.dra.networking/{network}"
    found = {each["spec"]["pool"]["name"]: each for each in api.list(SLICE)}
    return {pool.removeprefix(prefix): each for pool, each in found.items() if f"{pool}/".startswith(f"{prefix}/")}


def capacities(api: Api, network: str) -> dict[str, str]:
    """The capacities of a PodNetwork's devices, by their pools; "0" without a device."""
    return {
        pool: next((each["capacity"][CAPACITY]["value"] for each in found["spec"].get("devices", [])), "0")
        for pool, found in slices(api, network).items()
    }


def until_capacity(net: Net, *wanted: int) -> None:
    """Wait until the devices of a network have these capacities."""

    def found() -> list[int]:
        return sorted(int(value) for value in capacities(net.api, net.name).values())

    until(lambda: found() == sorted(wanted), f"capacities {wanted}", detail=lambda: str(slices(net.api, net.name)))


def test_the_capacity_follows_claims_without_a_share(workspace: Workspace, api: Api) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.41.0.0/29"}], keepSeconds=0)
    until_capacity(net, 6)
    (found,) = slices(api, net.name).values()
    assert found["spec"]["allNodes"]
    (device,) = found["spec"]["devices"]
    assert [(taint["key"], taint["effect"]) for taint in device["taints"]] == [
        ("dra.networking/addresses", "NoSchedule")
    ]
    made = api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
    assert made is not None
    assert made["metadata"]["ownerReferences"][0]["name"] == net.name
    for number in range(6):
        net.claim(f"claim-{number}")
        until_capacity(net, 5 - number)
    net.release("claim-3")
    until_capacity(net, 1)
    for number in (0, 1, 2, 4, 5):  # the deletion waits for them
        net.release(f"claim-{number}")
    api.delete(NETWORK, net.name)
    until(lambda: not slices(api, net.name), "the slice to be deleted with the network")
    until(lambda: _is_gone(api, f"podnetwork.{net.name}"), "the class to be deleted with the network")


def _is_gone(api: Api, device_class: str) -> bool:
    return all(each["metadata"]["name"] != device_class for each in api.list(CLASS))


TOLERATION = {"key": "dra.networking/addresses", "operator": "Exists"}


class Shared(Net):
    """A PodNetwork, nodes with NICs for the topology that uses it, and pods that request their addresses."""

    def node(self, base: str, **labels: str) -> str:
        """A node with a NIC that many claims can share."""
        name = self.workspace.add_node(base, labels)
        texts = {"type": "nic", "pfName": "", "supportedCNIs": ",macvlan,"}
        attributes: Object = {f"dra.networking/{key}": {"string": text} for key, text in texts.items()}
        device = {
            "name": "nic",
            "attributes": attributes | {"dra.networking/vfIndex": {"int": -1}},
            "allowMultipleAllocations": True,
            "capacity": {"dra.networking/shares": {"value": "5000", "requestPolicy": {"default": "1"}}},
        }
        pool = {"name": f"{name}/nic", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "dra.networking", "nodeName": name, "pool": pool, "devices": [device]}
        self.workspace.publish(name, manifest(SLICE, f"{name}-nic", spec=spec))
        return name

    def pod(self, name: str, *, share: bool = True) -> None:
        """A pod with a claim for a NIC, and with a request for its address."""
        nic = {"name": "lan", "exactly": {"deviceClassName": f"{self.topology}-lan"}}
        address = {"deviceClassName": f"podnetwork.{self.name}", "tolerations": [TOLERATION]}
        requests = [nic, {"name": "address", "exactly": address}] if share else [nic]
        self.workspace.add_pod(name, self.workspace.add_claim(name, *requests))


def test_addresses_of_a_rack_are_for_its_nodes(workspace: Workspace) -> None:
    ranges = [
        {
            "cidr": f"10.42.{number}.0/30",
            "exclude": [f"10.42.{number}.1"],
            "nodeSelector": {"matchLabels": {"rack": rack}},
        }
        for number, rack in enumerate("ab")
    ]
    net = Shared(workspace, ranges=ranges, keepSeconds=0)
    until_capacity(net, 1, 1)
    nodes = {net.node("a", rack="a"): "10.42.0.2/30", net.node("b", rack="b"): "10.42.1.2/30"}
    net.node("c", rack="c")
    net.api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
    placed = {}
    for name in ("one", "two"):
        net.pod(name)
        node, why = workspace.schedule(name)
        assert node in nodes, why
        placed[name] = node
        net.until(name, nodes[node])
    assert {*placed.values()} == {*nodes}
    net.pod("three")
    assert "cannot allocate all claims" in workspace.schedule("three")[1]
    workspace.release("one", "one")
    # No driver runs on this node, which would report that the pod no longer has its address.
    report = workspace.create(manifest(NODE_NETWORK, placed["one"]))
    net.api.update({**report, "status": {"releasedVersion": 2**40}}, subresource="status")
    workspace.wait_placed("three", placed["one"])
    net.until("three", nodes[placed["one"]])


def test_a_named_claim_gets_its_address_again_when_the_network_is_full(workspace: Workspace, api: Api) -> None:
    net = Shared(workspace, ranges=[{"cidr": "10.43.0.0/30", "exclude": ["10.43.0.1"]}], keepSeconds=600)
    until_capacity(net, 1)
    node = net.node("node")
    api.wait_for(CLASS, f"podnetwork.{net.name}", lambda found: found is not None)
    net.pod("named")
    workspace.wait_placed("named", node)
    net.until("named", "10.43.0.2/30")
    api.delete(POD, "named", workspace.namespace)
    until(lambda: not api.get(CLAIM, "named", workspace.namespace)["status"].get("allocation"), "deallocation")
    workspace.add_pod("again", "named")
    workspace.wait_placed("again", node)
    net.until("named", "10.43.0.2/30")
