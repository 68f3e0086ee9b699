"""CustomDevices on a real API server: applied live by the node, counted by the controller, refused by the schema."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import HOSTNAME
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller
from tests.cluster.publishing.scene import VETHS, devices, policy, publishing
from tests.kernel.conftest import Machine

pytestmark = pytest.mark.usefixtures("custom_kinds")

CUSTOM_DEVICE = "networking.dra.io/v1alpha1/CustomDevice"
REGISTERED = 'device.attributes["dra.networking"].registeredBy == "bctl"'


def custom_device(workspace: Workspace, name: str, device: str, **spec: Any) -> Object:
    """A CustomDevice of this test's node."""
    return workspace.create(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "CustomDevice",
            "metadata": {"name": workspace.name(name)},
            "spec": {
                "provider": "bctl",
                "device": device,
                "selector": {"nodeSelector": {"matchLabels": {HOSTNAME: workspace.name("node")}}},
                **spec,
            },
        }
    )


def counted(found: Object | None) -> tuple[int, int]:
    status = (found or {}).get("status", {})
    return status.get("desiredNumber", 0), status.get("appliedNumber", 0)


async def counts(workspace: Workspace, name: str, *wanted: int) -> Object:
    def met(found: Object | None) -> bool:
        return found is not None and counted(found) == wanted

    found = await asyncio.to_thread(workspace.api.wait_for, f"{CUSTOM_DEVICE}Rollout", workspace.name(name), met)
    assert found is not None
    return found


def test_it_is_on_the_device_as_soon_as_it_is_written_and_off_when_it_is_deleted(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        machine.veth("wire1", "far1")
        policy(workspace, VETHS)
        policy(workspace, REGISTERED, "registered")
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices("eth0")
            said = {
                "attributes": {"rdma": {"bool": True}, "fw": {"version": "1.2.3"}},
                "capacity": {"bandwidth": {"value": 4096}},
            }
            custom_device(workspace, "fast", "eth0", **said)
            found = await scene.wait(lambda each: "bctl/rdma" in each["eth0"]["attributes"])
            assert found["eth0"]["attributes"]["bctl/rdma"] == {"bool": True}
            assert found["eth0"]["attributes"]["bctl/fw"] == {"version": "1.2.3"}
            assert found["eth0"]["capacity"]["bctl/bandwidth"] == {"value": "4096"}
            await counts(workspace, "fast", 1, 1)

            # A second one says the same word of the same device: it is counted, and says why it is not applied.
            custom_device(workspace, "slow", "eth0", attributes={"rdma": {"bool": False}})
            second = await counts(workspace, "slow", 1, 0)
            assert f'CustomDevice "{workspace.name("fast")}" sets it with precedence' in second["status"]["refusals"][0]

            # What nobody lists stays hidden until it is registered and a policy asks for what is registered.
            assert "wire1" not in devices(scene.slices())
            custom_device(workspace, "wire", "wire1", addIfNotExist=True, attributes={"tag": {"int": 7}})
            found = await scene.devices("eth0", "wire1")
            assert found["wire1"]["attributes"]["bctl/tag"] == {"int": 7}
            await counts(workspace, "wire", 1, 1)

            # A device that is not there yet is kept, and applied when it comes.
            custom_device(workspace, "later", "eth5", attributes={"a": {"int": 1}})
            await counts(workspace, "later", 0, 0)
            machine.veth("eth5", "far5")
            found = await scene.wait(lambda each: "bctl/a" in each.get("eth5", {}).get("attributes", {}))
            await counts(workspace, "later", 1, 1)
            await scene.quiet()

            workspace.api.delete(CUSTOM_DEVICE, workspace.name("fast"))
            found = await scene.wait(lambda each: each["eth0"]["attributes"].get("bctl/rdma") == {"bool": False})
            assert "bctl/bandwidth" not in found["eth0"].get("capacity", {})
            workspace.api.delete(CUSTOM_DEVICE, workspace.name("wire"))
            await scene.devices("eth0", "eth5")

    with running_controller(control_plane, workspace.api):
        asyncio.run(story())
