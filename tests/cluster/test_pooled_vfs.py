"""Pooled VFs in a cluster: netdra's own slices and generated classes, the real scheduler, the node that chooses VFs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pytest

from netdra.model import documents
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.slices.allocator import Allocation
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS
from testbed.workspace import Workspace, open_workspace
from tests.builders import OURS, topology
from tests.cluster.agreement import canonical
from tests.cluster.daemons import running_controller
from tests.cluster.sriov_nodes import SRIOVNode, open_nodes
from tests.cluster.test_controller import TOPOLOGY as TOPOLOGIES, is_ready
from tests.drawn import pooled
from tests.drawn.pooled import ROWS

LANES = (1, 2, 4)
MODE = "pooled.example.com/mode"
"""The label of a node that says by which policies it offers VFs."""
PENDING = "cannot allocate all claims"


@dataclass(frozen=True)
class Site:
    """Nodes with two PFs, by how many lanes each has, and a namespace."""

    workspace: Workspace
    nodes: Mapping[int, SRIOVNode]

    def classes(self) -> list[DeviceClass]:
        return [msgspec.convert(each, DeviceClass) for each in self.workspace.api.list(CLASS)]

    def claim(self, name: str) -> ResourceClaim:
        return msgspec.convert(self.workspace.api.get(CLAIM, name, self.workspace.namespace), ResourceClaim)


class Place(Protocol):
    """Has a new pod with a claim scheduled, and tells the claim's name, or ("", why the pod is Pending)."""

    def __call__(
        self, *requests: Object, node: SRIOVNode, constraints: list[Object] | None = None
    ) -> tuple[str, str]: ...


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, installed and at work."""
    with running_controller(control_plane, api):
        yield


@pytest.fixture(scope="module")
def site(
    control_plane: ControlPlane, api: Api, controller: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Nodes with VFs, and the topology of the rows."""
    with open_workspace(api) as workspace:
        machines = {}
        for lanes in LANES:
            mode = workspace.name(f"lanes-{lanes}")
            machines[workspace.add_node(f"lanes-{lanes}", {MODE: mode})] = pooled.interfaces()
            for each in pooled.policies(lanes):
                offer(workspace, each, mode)
        add_topology(workspace, pooled.TOPOLOGY)
        with open_nodes(control_plane, api, machines, tmp_path_factory.mktemp("nodes")) as nodes:
            workspace.settle(next(iter(nodes)))
            yield Site(workspace, dict(zip(LANES, nodes.values(), strict=True)))


@pytest.fixture
def place(site: Site) -> Iterator[Place]:
    """Pods of the test; what they have is free again afterwards."""
    with ExitStack() as undo:

        def placed(*requests: Object, node: SRIOVNode, constraints: list[Object] | None = None) -> tuple[str, str]:
            name, why = site.workspace.place(*requests, node=node.name, constraints=constraints)
            if name:
                undo.callback(site.workspace.release, name, name)
            return name, why

        yield placed


def offer(workspace: Workspace, policy: DeviceExposurePolicy, mode: str) -> str:
    """Make a policy of the nodes of a mode, and return its name."""
    written = documents.plain(policy)
    name = written["metadata"]["name"] = workspace.name(f"{policy.name}-{mode}")
    written["spec"]["selector"]["nodeSelector"] = {"matchLabels": {MODE: mode}}
    workspace.create(written)
    return name


def add_topology(workspace: Workspace, made: NetworkTopology) -> None:
    """Make a topology, and wait until the controller has made its classes."""
    workspace.create(documents.plain(made))
    workspace.api.wait_for(TOPOLOGIES, made.name, is_ready)


@pytest.mark.parametrize("row", ROWS)
def test_the_scheduler_gives_pooled_vfs_as_the_allocator_does(site: Site, place: Place, row: str) -> None:
    lanes, pods = ROWS[row]
    node = site.nodes[lanes]
    outcomes = pooled.allocate(row, node.slices(), site.classes(), node.name)
    for pod, outcome in zip(pods, outcomes, strict=True):
        assert list(pooled.given(outcome)) == list(pod.given)
        name, why = place(*pod.requests, node=node, constraints=list(pod.constraints))
        if isinstance(outcome, Allocation):
            assert why == ""
            assert canonical(site.claim(name)) == canonical(outcome.claims[0])
        else:
            assert PENDING in why
