"""This machine's own slices before the real kube-scheduler: a PF against its VFs, and VFs beside an accelerator.

The scheduler runs outside the machine; what it decides on is what netdra makes of the NICs in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from netdra.discovery.scan import scan
from netdra.exposure.expose import expose
from netdra.model import names
from netdra.model.documents import plain
from netdra.model.inventory import InventoryNode
from netdra.slices.pack import layout
from testbed.objects import POD, SLICE, manifest, pod
from testbed.vm.beside import joined_control_plane
from testbed.workspace import Workspace, open_workspace
from tests.builders import OURS, exclusive, shared
from tests.hardware.node import PF, TOTAL_VFS

OF_PF, OF_VF = f'{OURS}.type == "pf"', f'{OURS}.type == "vf"'
POLICIES = (
    shared(
        "macvlan", OF_PF, capacity="macvlans", deviceNameSuffix="-macvlan", supportedCNIPlugins=[{"name": "macvlan"}]
    ),
    exclusive("passthrough", OF_PF, "host-device", deviceNameSuffix="-passthrough"),
    exclusive("vfs", OF_VF, "sriov"),
)
GPU_DRIVER = "gpu.example.com"


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with closing(joined_control_plane().client()) as api, open_workspace(api) as opened:
        yield opened


@dataclass
class Published:
    """This machine as a node of the control plane, with its slices."""

    workspace: Workspace
    node: str
    device_class: str

    def take(self, pf: PF, plugin: str, vf: int = -1) -> str:
        """Have a pod take a device of a PF's: its name, or "" if the scheduler finds none."""
        function = (
            f"{OURS}.pfName == {pf.name!r} && {OURS}.vfIndex == {vf}" if vf >= 0 else f"{OURS}.ifName == {pf.name!r}"
        )
        text = f'{function} && {OURS}.supportedCNIs.contains(",{plugin},")'
        exactly = {"deviceClassName": self.device_class, "selectors": [{"cel": {"expression": text}}]}
        name, reason = self.workspace.place({"name": "it", "exactly": exactly}, node=self.node)
        assert bool(name) != ("cannot allocate all claims" in reason), reason
        return name

    def give_back(self, name: str) -> None:
        self.workspace.release(name, name)


@pytest.fixture
def published(workspace: Workspace, pfs: tuple[PF, ...]) -> Published:
    node = workspace.add_node("sriov")
    packed = layout(expose(scan(InventoryNode(name=node)), POLICIES), node=node, generation=1)
    assert packed.problems == ()
    workspace.publish(node, *(plain(each) for each in packed.slices))
    return Published(workspace, node, workspace.add_class("netdra", f'device.driver == "{names.DRIVER}"'))


def test_an_allocated_vf_prevents_passthrough_of_its_pf(published: Published, pfs: tuple[PF, ...]) -> None:
    vf = published.take(pfs[0], "sriov", vf=3)
    assert vf
    assert not published.take(pfs[0], "host-device")
    assert published.take(pfs[1], "host-device"), "the other PF is another NIC"
    published.give_back(vf)
    assert published.take(pfs[0], "host-device")


def test_a_pf_that_is_passed_through_takes_all_its_vfs_along(published: Published, pfs: tuple[PF, ...]) -> None:
    assert published.take(pfs[0], "host-device")
    assert [published.take(pfs[0], "sriov", vf=index) for index in (0, TOTAL_VFS - 1)] == ["", ""]
    assert published.take(pfs[1], "sriov", vf=0)


def test_shares_of_a_pf_keep_it_from_being_passed_through_and_leave_its_vfs(
    published: Published, pfs: tuple[PF, ...]
) -> None:
    first, second = published.take(pfs[0], "macvlan"), published.take(pfs[0], "macvlan")
    assert first
    assert second
    assert not published.take(pfs[0], "host-device")
    assert published.take(pfs[0], "sriov", vf=1)


def test_a_pod_asks_for_vfs_of_two_physical_networks_by_container_and_count(
    workspace: Workspace, pfs: tuple[PF, ...]
) -> None:
    """One NIC is named to the node as the kernel calls it, the other by its PCI address."""
    api, node = workspace.api, workspace.add_node("wired")
    wired = {"physnet2": (pfs[0].name,), "physnet3": (pfs[1].pci,)}
    packed = layout(expose(scan(InventoryNode(name=node, physnets=wired)), POLICIES), node=node, generation=1)
    assert packed.problems == ()
    workspace.publish(node, *(plain(each) for each in packed.slices))
    resources = {physnet: f"example.com/{workspace.name(physnet)}" for physnet in wired}
    for physnet, resource in resources.items():
        text = f'device.driver == "{names.DRIVER}" && {OF_VF} && {OURS}.physnet == "{physnet}"'
        workspace.add_class(physnet, text, extendedResourceName=resource)
    made = pod(workspace.namespace, "two-containers", node=node)
    asked = ({"physnet2": "1"}, {"physnet2": "1", "physnet3": "1"})
    made["spec"]["containers"] = [
        {
            "name": f"c{at}",
            "image": "none",
            "resources": {"limits": {resources[each]: count for each, count in one.items()}},
        }
        for at, one in enumerate(asked)
    ]
    api.create(made)
    workspace.wait_placed("two-containers", node)
    told = api.get(POD, "two-containers", workspace.namespace)["status"]["extendedResourceClaimStatus"]
    given = Counter(device.rpartition("v")[0] for device in workspace.devices(told["resourceClaimName"]))
    assert given == {pfs[0].name: 2, pfs[1].name: 1}


@pytest.mark.parametrize("attribute", ["resource.kubernetes.io/pcieRoot", "device.k8s.io/pcieRoot"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_vf_comes_from_the_pcie_root_that_the_accelerator_is_on(
    published: Published, pfs: tuple[PF, ...], side: int, attribute: str
) -> None:
    """Another driver's device has only one of the two names; netdra's have both."""
    workspace = published.workspace
    gpu = {"name": "gpu-0", "attributes": {attribute: {"string": pfs[side].pcie_root}}}
    pool = {"name": f"{published.node}-gpus", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU_DRIVER, "nodeName": published.node, "pool": pool, "devices": [gpu]}
    workspace.publish(published.node, manifest(SLICE, workspace.name("gpus"), spec=spec))
    gpus = workspace.add_class("gpu", f'device.driver == "{GPU_DRIVER}"')
    vf = {
        "deviceClassName": published.device_class,
        "count": 2,
        "selectors": [{"cel": {"expression": OF_VF}}],
    }

    name, reason = workspace.place(
        {"name": "gpu", "exactly": {"deviceClassName": gpus}},
        {"name": "vfs", "exactly": vf},
        node=published.node,
        constraints=[{"requests": ["gpu", "vfs"], "matchAttribute": attribute}],
    )

    assert reason == ""
    given = [device for device in workspace.devices(name) if device != "gpu-0"]
    assert len(given) == 2
    assert all(device.startswith(f"{pfs[side].name}v") for device in given)
