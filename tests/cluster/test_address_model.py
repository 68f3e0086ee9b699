"""The model of the exhaustive check agrees with the real controller on the real API server, on random ways through it.

Each act of the environment happens in the model and in the cluster; then both settle, and must have the same
owners of addresses, on the same nodes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests import draws
from tests.cluster.daemons import running_controller
from tests.cluster.test_address_moves import Machine
from tests.cluster.test_pod_networks import Net
from tests.unit.controller.address_model import ADDRESSES, CLAIMS, NAMES, NODES, NONE, Claim, Model, Worker, World
from tests.unit.controller.address_model import Pod as ModelPod

pytestmark = pytest.mark.usefixtures("controller")
ACTS = 14
"""How many acts of the environment a way has."""


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work, with the rights of its account and no others."""
    with running_controller(control_plane, api) as process:
        yield process


class Twin:
    """A cluster that is to be as a state of the model."""

    def __init__(self, workspace: Workspace) -> None:
        ranges = [{"cidr": "10.29.0.0/29", "last": f"10.29.0.{ADDRESSES}"}]
        self.net = Net(workspace, ranges=ranges, keepSeconds=0, quarantineSeconds=1)
        self.machines = [Machine(workspace, f"machine-{node}") for node in range(NODES)]
        self.pods: dict[ModelPod, str] = {}
        for name in NAMES:
            self.net.make(name)

    def follow(self, before: World, after: World, label: str) -> None:
        """Do what has led from one state to another."""
        for pod in {*before.pods} - {*after.pods}:
            del self.pods[pod]
        for pod in {*after.pods} - {*before.pods}:
            (address,) = (
                entry["spec"]["address"]
                for entry in self.net.addresses
                if entry["spec"]["owner"]["claim"] == NAMES[pod.owner]
                and entry["spec"].get("nodeName") == self.machines[pod.node].name
            )
            self.pods[pod] = address
        for owner in range(CLAIMS):
            self._follow_claim(owner, before.claims[owner], after.claims[owner])
        if "reports" in label:
            for node, machine in enumerate(self.machines):
                if f"node {node} " in label:
                    self._report(node, machine)
        assert len({*self.pods.values()}) == len(self.pods), f"{label}: {self.pods}"

    def _follow_claim(self, owner: int, before: Claim, after: Claim) -> None:
        name, api, namespace = NAMES[owner], self.net.api, self.net.workspace.namespace
        if not after.exists and before.exists:
            self.net.release(name)
        elif after.exists and not before.exists:
            self.net.make(name)
        elif before.node != after.node:
            found = {**api.get(CLAIM, name, namespace), "status": {}}
            if after.node != NONE:
                self.net.allocate(found, self.machines[after.node].name)
            else:
                api.update(found, subresource="status")
        elif before.told != after.told:
            found = api.get(CLAIM, name, namespace)
            (result,) = found["status"]["allocation"]["devices"]["results"]
            device = {key: result[key] for key in ("driver", "pool", "device")}
            ips = [address for pod, address in self.pods.items() if pod.owner == owner and pod.node == after.node]
            found["status"]["devices"] = [{**device, "networkData": {"ips": ips}}] if after.told != NONE else []
            api.update(found, subresource="status")

    def _report(self, node: int, machine: Machine) -> None:
        own = [entry for entry in self.net.addresses if entry["spec"].get("nodeName") == machine.name]
        claims = {entry["metadata"]["name"]: entry for entry in self.net.api.list(CLAIM, self.net.workspace.namespace)}
        assigned = {
            (entry["spec"]["owner"]["claim"], entry["spec"]["address"])
            for entry in own
            if entry["spec"].get("claim", {}).get("uid")
            == claims.get(entry["spec"]["owner"]["claim"], {}).get("metadata", {}).get("uid", "")
        }
        unassigned: list[Object] = [
            {
                "network": self.net.name,
                "address": address.partition("/")[0],
                "claim": f"{self.net.workspace.namespace}/{NAMES[pod.owner]}",
            }
            for pod, address in self.pods.items()
            if pod.node == node and (NAMES[pod.owner], address) not in assigned
        ]
        released = [int(entry["metadata"]["resourceVersion"]) for entry in own if "claim" not in entry["spec"]]
        machine.say(max(released, default=0), *unassigned)

    @property
    def owners(self) -> list[tuple[str, bool, str]]:
        """The owner of each address, whether it has a claim, and its node."""
        specs = (entry["spec"] for entry in self.net.addresses)
        return sorted((spec["owner"]["claim"], "claim" in spec, spec.get("nodeName", "")) for spec in specs)

    def expected(self, world: World) -> list[tuple[str, bool, str]]:
        """The same of a state of the model."""
        return sorted(
            (NAMES[entry.owner], entry.uid != NONE, "" if entry.node == NONE else self.machines[entry.node].name)
            for entry in world.entries
        )


def at_rest(model: Model, world: World) -> World:
    """The state once the controller has nothing left to do, and each quarantine is over."""
    while True:
        step = next(
            (step for step in model.plain_steps(world) if step.label.startswith(("controller", "the quar"))), None
        )
        if step is None:
            return world
        world = step.state


@pytest.mark.parametrize("seed", range(draws.count(3, 20)))
def test_the_model_and_the_cluster_come_to_the_same_rest(workspace: Workspace, seed: int) -> None:
    chance, model, twin = random.Random(seed), Model(disturbances=("force", "delete", "finish")), Twin(workspace)
    world = World(workers=(Worker(),), left=ACTS)
    story: list[str] = []
    for _ in range(ACTS):
        step = chance.choice([*model.plain_steps(world)])
        twin.follow(world, step.state, step.label)
        story.append(step.label)
        world = at_rest(model, step.state)
        until(
            lambda world=world: twin.owners == twin.expected(world),  # type: ignore[misc]
            "the cluster to be as the model",
            detail=lambda world=world: f"{story}\n{twin.expected(world)}\n{twin.owners}",  # type: ignore[misc]
        )
