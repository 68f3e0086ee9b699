"""Several controllers assign addresses to one claim at the same time: its node and they agree on the one in use."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import msgspec
import pytest

from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.kube.resources import POD_ADDRESSES
from netdra.model.meta import ObjectMeta
from netdra.model.plan import ClaimReference, Plan
from netdra.model.pod_address import AddressClaim, AddressOwner, PodAddress, PodAddressSpec, object_name
from netdra.node.claims.addresses import NodeAddresses
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests import draws
from tests.cluster.daemons import running_controller
from tests.cluster.test_pod_networks import Net
from tests.plans import plan, step

NODE = "node-1"
RIVALS = 2
"""How many addresses others assign to each claim."""
RIVAL_SECONDS = (0.1, 0.5, 2.5)
"""Within how many seconds after a claim was created, by turns: on any machine some are first, and some are late."""
SECONDS = 20.0


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


def test_a_claim_keeps_the_address_that_its_node_used_when_several_are_assigned_at_once(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.8.0.0/22"}], keepSeconds=0)
    drawn = random.Random(draws.seed())
    numbers = drawn.sample(range(512, 1022), RIVALS * draws.count(30, 300))
    claims = [f"claim-{at}" for at in range(len(numbers) // RIVALS)]
    net.claim("before", NODE)
    until(lambda: net.of("before"), "the controller to assign addresses")
    net.release("before")
    until(lambda: not net.addresses, "the address to be released")
    used = asyncio.run(prepared(control_plane, net, claims, numbers, drawn))

    until(
        lambda: len(net.addresses) == len(claims), "each claim to have one address", detail=lambda: str(net.addresses)
    )
    assert {claim: net.of(claim) for claim in claims} == {claim: [f"{used[claim]}/22"] for claim in claims}
    thirds = {address.split(".")[2] for address in used.values()}
    assert "0" in thirds, "no claim used an address of the controller"
    assert thirds & {"2", "3"}, "no claim used an address of a rival"


def test_a_node_that_starts_uses_the_address_that_was_assigned_first(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    net = Net(workspace, ranges=[{"cidr": "10.8.4.0/29", "first": "10.9.0.0"}])  # its error stops the controller
    made = net.make("claim")

    async def used() -> str:
        async with Client(connect(find_config(control_plane.kubeconfig()))) as client:
            for number in (1029, 1026):
                await assign(client, net, made, number, 0.0)
            addresses = NodeAddresses(client, NODE)
            try:
                return await used_address(net, addresses, made)
            finally:
                await addresses.aclose()

    assert asyncio.run(used()) == "10.8.4.5"
    assert net.of("claim") == ["10.8.4.2/22", "10.8.4.5/22"]


async def prepared(
    plane: ControlPlane, net: Net, claims: list[str], numbers: list[int], drawn: random.Random
) -> dict[str, str]:
    """Allocate claims on the node, with rivals of the controller; returns the address that the node uses for each."""
    using: dict[str, asyncio.Task[str]] = {}
    async with Client(connect(find_config(plane.kubeconfig()))) as client, asyncio.TaskGroup() as tasks:
        addresses = NodeAddresses(client, NODE)
        addresses.follow()
        for at, claim in enumerate(claims):
            made, most = await asyncio.to_thread(net.make, claim), RIVAL_SECONDS[at % len(RIVAL_SECONDS)]
            using[claim] = tasks.create_task(used_address(net, addresses, made))
            for number in numbers[at * RIVALS : (at + 1) * RIVALS]:
                tasks.create_task(assign(client, net, made, number, drawn.uniform(0.0, most)))
            await asyncio.to_thread(net.allocate, made, NODE)
        found = await asyncio.gather(*using.values())
        await addresses.aclose()
    return dict(zip(claims, found, strict=True))


async def used_address(net: Net, addresses: NodeAddresses, made: Object) -> str:
    """The address that the node uses for a claim."""
    (completed,) = await addresses.wait_assigned([planned(net, made)], {}, SECONDS)
    (address,) = completed.steps[0].assigned
    return str(address)


def planned(net: Net, made: Object) -> Plan:
    """The plan of a claim whose interface waits for an address."""
    lan = msgspec.structs.replace(step("lan", "macvlan", "net1", {"ipam": {"type": "network"}}), pod_network=net.name)
    metadata = made["metadata"]
    claim = ClaimReference(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])
    return msgspec.structs.replace(plan(lan, topology=net.topology), claim=claim)


async def assign(client: Client, net: Net, made: Object, number: int, seconds: float) -> None:
    """Assign an address to a claim, as a second controller does."""
    await asyncio.sleep(seconds)
    metadata, address = made["metadata"], f"10.8.{number // 256}.{number % 256}"
    spec = PodAddressSpec(
        network=net.name,
        address=f"{address}/22",
        families=("IPv4",),
        owner=AddressOwner(namespace=metadata["namespace"], claim=metadata["name"], topology=net.topology, step="lan"),
        claim=AddressClaim(name=metadata["name"], uid=metadata["uid"]),
        node_name=NODE,
    )
    meta = ObjectMeta(name=object_name(net.name, address))
    await client.create(
        POD_ADDRESSES,
        PodAddress(api_version="networking.dra.io/v1alpha1", kind="PodAddress", metadata=meta, spec=spec),
    )
