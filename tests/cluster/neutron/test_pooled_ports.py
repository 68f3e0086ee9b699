"""Pooled VFs with ports in the real Neutron: the node chooses, by its driver's own rights, the controller binds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.discovery.overrides import with_physnets
from netdra.exposure import expose, physnets
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.kube.errors import RefusedError
from netdra.kube.resources import NEUTRON_PORTS
from netdra.model import documents
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.handler import Claims
from netdra.node.claims.store import ClaimStore, PreparedDevice
from netdra.slices.pack import layout
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, CLASS, NODE, manifest
from testbed.openstack.cloud import Cloud
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace
from tests.builders import inventory, policy, sriov
from tests.cluster import identities
from tests.cluster.claims.alone import handler
from tests.cluster.claims.scene import VF, Holders, View, pooled_vfs, request
from tests.cluster.daemons import start_controller
from tests.cluster.identities import NETDRA
from tests.cluster.neutron.conftest import HOST, PORT

TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
LEASE = "coordination.k8s.io/v1/Lease"
POOLED = (policy("pooled", VF, supportedCNIPlugins=[{"name": "sriov"}], pooledVFs={"lanes": 1}),)
PATIENCE = 180.0
STEPS = ("vf0", "vf1")


class PooledNode:
    """A node with a PF of six pooled VFs on physnet2, whose claims are prepared as its driver does it."""

    def __init__(self, plane: ControlPlane, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.folder = workspace, folder
        self.name = workspace.add_node()
        annotations = {"metadata": {"annotations": {"networking.dra.io/neutron-host": HOST}}}
        workspace.api.patch(NODE, self.name, annotations)
        interfaces = sriov("eth0", 6)
        wired = with_physnets(inventory(*interfaces, node=self.name), physnets.read(("physnet2=eth0",)))
        found = expose(wired, POOLED)
        slices = layout(found, node=self.name).slices
        workspace.publish(self.name, *(documents.plain(each) for each in slices))
        self.view = View(slices, vfs=dict(pooled_vfs(found, wired.interfaces)))
        self.account = identities.kubeconfig(plane, workspace.api, "netdra-node", self.name)
        self.store = ClaimStore.of_state(folder / "state")

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[Claims]:
        """The node's driver, until it is restarted."""
        files = ClaimFiles(plugin=self.folder / "plugin", cdi=self.folder / "cdi")
        async with Client(connect(find_config(self.account))) as client:
            yield handler(client, self.name, self.view, Holders(), self.store, files)

    def claim(self, name: str) -> ClaimReference:
        """A claim of two VFs of the PF, each with a port, that the scheduler has allocated here."""
        workspace, api = self.workspace, self.workspace.api
        steps = [{"name": step, "type": "sriov", "selector": {"cel": VF}, "neutron": {}} for step in STEPS]
        topology = workspace.name(f"topology-{name}")
        made = workspace.create(manifest(TOPOLOGY, topology, spec={"steps": steps}))
        for step in STEPS:
            api.wait_for(CLASS, f"{topology}-{step}", lambda found: found is not None)
        self.view.topologies = {**self.view.topologies, topology: msgspec.convert(made, NetworkTopology)}
        asked = workspace.add_claim(name, *(request(step, f"{topology}-{step}") for step in STEPS))
        workspace.add_pod(name, asked, node=self.name)
        workspace.wait_placed(name, self.name)
        uid = api.get(CLAIM, name, workspace.namespace)["metadata"]["uid"]
        return ClaimReference(namespace=workspace.namespace, name=name, uid=uid)

    def recorded(self, wanted: ClaimReference) -> dict[str, str]:
        """The Neutron port of each VF, as the claim's record has it; "" for none yet."""
        record = self.store.get(wanted.uid)
        assert record is not None
        return {kept.facts.pci_address: kept.port.port_id if kept.port else "" for kept in record.devices}

    def without(self, vf: str) -> None:
        """A VF is removed from the PF."""
        self.view.vfs = {key: [left for left in vfs if left.pci_address != vf] for key, vfs in self.view.vfs.items()}


@pytest.fixture
def node(control_plane: ControlPlane, workspace: Workspace, controller: Process, tmp_path: Path) -> PooledNode:
    return PooledNode(control_plane, workspace, tmp_path)


def in_neutron(cloud: Cloud, wanted: ClaimReference) -> dict[str, str]:
    """By PCI address, the claim's ports."""
    own = [port for port in cloud.ports() if port["device_id"] == wanted.uid]
    assert {(port["binding:host_id"], port["binding:vif_type"]) for port in own} <= {(HOST, "hw_veb")}
    assert {port["binding:profile"]["physical_network"] for port in own} <= {"physnet2"}
    return {port["binding:profile"]["pci_slot"]: port["id"] for port in own}


def neutron_ports(workspace: Workspace) -> list[Object]:
    found: list[Object] = workspace.api.list(PORT, workspace.namespace)
    return found


def chosen(workspace: Workspace) -> set[str]:
    return {port["chosenVF"]["pciAddress"] for port in neutron_ports(workspace) if "chosenVF" in port}


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 (objects of the API server)
            await asyncio.sleep(0.1)


async def prepared(driver: Claims, wanted: ClaimReference) -> tuple[PreparedDevice, ...]:
    """As the kubelet has a claim prepared: it asks again, for a Neutron that has just begun is slow."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(TemporaryError):
                return await driver.prepare(wanted)


def tell(story: Callable[[], Awaitable[None]]) -> None:
    async def told() -> None:
        await story()

    asyncio.run(told())


def test_two_vfs_of_one_claim_from_one_pool_have_their_ports_which_go_with_the_claim(
    workspace: Workspace, cloud: Cloud, network: Any, node: PooledNode
) -> None:
    wanted = node.claim("two")

    async def story() -> None:
        async with node.driver() as driver:
            told = await prepared(driver, wanted)
            assert len({device.device for device in told}) == 1
            assert len({device.share_id for device in told}) == 2
            assert in_neutron(cloud, wanted) == node.recorded(wanted)
            record = node.store.get(wanted.uid)
            assert record is not None
            stored = {port["id"]: port["mac_address"] for port in cloud.ports()}
            for kept in record.devices:
                assert kept.port is not None
                assert kept.port.settings.mac == stored[kept.port.port_id]
                assert kept.port.settings.vlan == network["provider:segmentation_id"]
            await driver.unprepare(wanted)

    tell(story)
    workspace.release("two", "two")
    until(lambda: not neutron_ports(workspace) and not in_neutron(cloud, wanted), "the ports to go", seconds=PATIENCE)


def test_driver_and_controller_restart_during_a_neutron_outage_and_keep_the_same_vfs(
    workspace: Workspace,
    cloud: Cloud,
    node: PooledNode,
    control_plane: ControlPlane,
    api: Api,
    arguments: tuple[str, ...],
) -> None:
    wanted = node.claim("anew")

    async def story() -> None:
        cloud.neutron.pause()
        try:
            async with node.driver() as driver:
                preparing = asyncio.create_task(driver.prepare(wanted))
                await eventually(lambda: len(chosen(workspace)) == 2)
                preparing.cancel()
                with suppress(asyncio.CancelledError):
                    await preparing
            vfs = chosen(workspace)
            assert set(node.recorded(wanted)) == vfs
            control_plane.processes["netdra-controller"].kill()
        finally:
            cloud.neutron.resume()
        # The next one leads at once, and not after the dead one's lease has run out.
        api.delete(LEASE, "netdra-controller", NETDRA)
        start_controller(control_plane, api, *arguments)
        async with node.driver() as driver:
            await prepared(driver, wanted)
        assert set(node.recorded(wanted)) == vfs
        assert in_neutron(cloud, wanted) == node.recorded(wanted)

    tell(story)


def test_another_choice_has_the_same_port_bound_to_the_other_vf(
    workspace: Workspace, cloud: Cloud, node: PooledNode
) -> None:
    wanted = node.claim("other")

    async def story() -> None:
        async with node.driver() as driver:
            await prepared(driver, wanted)
            before = node.recorded(wanted)
            gone = min(before)
            node.store.remove(wanted.uid)  # the disk was lost, and so is a VF
            node.without(gone)
        async with node.driver() as driver:
            await prepared(driver, wanted)
        after = node.recorded(wanted)
        assert gone not in after
        assert set(after.values()) == set(before.values()), "its MAC and IP addresses stay"
        assert in_neutron(cloud, wanted) == after

    tell(story)


def test_a_choice_that_is_not_a_vf_of_the_pf_is_refused(
    workspace: Workspace, cloud: Cloud, node: PooledNode, control_plane: ControlPlane
) -> None:
    """A driver that was taken over writes what it likes of its own node's ports, and of no other's."""
    wanted = node.claim("strange")
    until(lambda: len(neutron_ports(workspace)) == 2, "the objects", seconds=PATIENCE)
    other = workspace.add_node("another")
    name = workspace.name("foreign")
    single = {
        "name": "eth1v0",
        "attributes": {"type": {"string": "vf"}, "pciAddress": {"string": "0000:06:02.0"}},
    }
    pool = {"name": f"{node.name}/sriov-eth1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.networking", "nodeName": node.name, "pool": pool, "devices": [single]}
    workspace.create(manifest("resource.k8s.io/v1/ResourceSlice", name, spec=spec))
    (first, _) = neutron_ports(workspace)

    async def choose(account: Path) -> None:
        async with Client(connect(find_config(account))) as client:
            change = {"chosenVF": {"pciAddress": "0000:06:02.0"}}
            await client.merge(NEUTRON_PORTS, first["metadata"]["name"], change, workspace.namespace)

    with pytest.raises(RefusedError, match="may not write NeutronPorts"):
        asyncio.run(choose(identities.kubeconfig(control_plane, workspace.api, "netdra-node", other)))
    asyncio.run(choose(node.account))

    def refused() -> bool:
        conditions = workspace.api.get(PORT, first["metadata"]["name"], workspace.namespace).get("status", {})
        return any(
            (condition["reason"], "not one of the VFs" in condition["message"]) == ("Refused", True)
            for condition in conditions.get("conditions", ())
        )

    until(refused, "the port to be refused", seconds=PATIENCE)
    assert in_neutron(cloud, wanted) == {}
