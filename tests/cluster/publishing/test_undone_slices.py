"""Another client undoes the writes of a node's driver at once (`tests.cluster.test_undone_writes`)."""

from __future__ import annotations

import asyncio

import pytest

from testbed.control_plane import ControlPlane
from testbed.objects import SLICE as RESOURCE_SLICE
from testbed.workspace import Workspace
from tests.cluster.publishing.scene import policy as expose
from tests.cluster.publishing.scene import publishing
from tests.cluster.test_controller import REPORT
from tests.cluster.test_undone_writes import (
    Attack,
    WatchedClient,
    attacked,
    clear_status,
    delete,
    drop_attributes,
    has_attributes,
    has_problem,
    has_summary,
    until_standing,
)
from tests.kernel.conftest import Machine

pytestmark = pytest.mark.usefixtures("custom_kinds")


@pytest.mark.parametrize("attacked_kind", ["RESOURCE_SLICES", "NODE_NETWORKS"])
def test_slices_and_report_of_a_node_that_are_undone_are_written_seldom_and_reported(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine, attacked_kind: str
) -> None:
    machine.veth("eth0", "far0")
    machine.veth("eth1", "far1")
    expose(workspace, exposure={"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]})

    async def story() -> None:
        async with (
            WatchedClient(control_plane) as client,
            publishing(control_plane, workspace, machine, client=client) as scene,
        ):
            await scene.devices("eth0", "eth1")
            slices = f"{scene.node}-veth-eth"
            possible = [
                Attack("RESOURCE_SLICES", RESOURCE_SLICE, f"{slices}0", delete, reported=f"{scene.node}/veth-eth0"),
                Attack(
                    "RESOURCE_SLICES",
                    RESOURCE_SLICE,
                    f"{slices}1",
                    drop_attributes,
                    "",
                    has_attributes,
                    f"{scene.node}/veth-eth1",
                ),
                Attack("NODE_NETWORKS", REPORT, scene.node, clear_status, stands=has_summary),
            ]
            attacks = [attack for attack in possible if attack.resource == attacked_kind]
            await asyncio.to_thread(until_standing, workspace.api, attacks)
            await attacked(control_plane, workspace.api, client, attacks)
            if attacked_kind == "RESOURCE_SLICES":
                await asyncio.to_thread(workspace.api.wait_for, REPORT, scene.node, has_problem)
            await asyncio.to_thread(workspace.api.wait_for, REPORT, scene.node, lambda found: not has_problem(found))

    asyncio.run(story())
