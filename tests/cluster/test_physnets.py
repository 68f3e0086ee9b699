"""Pods ask for VFs by physical network and count, and the scheduler adds it up: the files of examples/physnets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from netdra.discovery.overrides import with_physnets
from netdra.exposure import expose, physnets
from netdra.model import documents
from netdra.model.claim import ResourceClaim
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.slices.pack import layout
from netdra.topology.bind import bind
from netdra.topology.classes import device_classes
from netdra.topology.devices import from_slices
from testbed import objects, yaml
from testbed.api import Object
from testbed.objects import CLAIM, HOSTNAME, POD, SLICE
from testbed.workspace import Workspace
from tests.builders import read_inventory

EXAMPLE = Path(__file__).parents[2] / "examples" / "physnets"
TOLD = ("physnet2=enp1s0f0", "physnet3=enp1s0f1")
SECOND, THIRD = "enp1s0f0", "enp1s0f1"


def read(file: str) -> list[Object]:
    return list(yaml.safe_load_all((EXAMPLE / file).read_text()))


PODS = {each["metadata"]["name"]: each for each in read("pods.yaml")}
TOPOLOGIES = {
    each.name: each
    for each in documents.read((EXAMPLE / "topologies.yaml").read_text(), "topologies.yaml")
    if isinstance(each, NetworkTopology)
}


@pytest.fixture
def node(workspace: Workspace) -> str:
    """A node with the example's NICs, and the example's classes."""
    name = workspace.add_node()
    inventory = read_inventory((EXAMPLE / "inventory.yaml").read_text())
    here = with_physnets(inventory, physnets.read(TOLD))
    policies = documents.read((EXAMPLE / "policy.yaml").read_text(), "policy.yaml")
    result = expose(here, [each for each in policies if isinstance(each, DeviceExposurePolicy)])
    for topology in TOPOLOGIES.values():
        for each in device_classes(topology):
            workspace.create(documents.plain(each))
    slices = [documents.plain(each) for each in layout(result, node=inventory.node.name).slices]
    for one in slices:
        one["metadata"]["name"] = workspace.name(one["metadata"]["name"])
        one["spec"]["nodeName"] = name
        one["spec"]["pool"]["name"] = one["spec"]["pool"]["name"].replace(inventory.node.name, name)
    workspace.publish(name, *slices)
    return name


def run(workspace: Workspace, node: str, pod: str) -> None:
    spec = {"nodeSelector": {HOSTNAME: node}, "terminationGracePeriodSeconds": 0, **PODS[pod]["spec"]}
    workspace.api.create(objects.manifest(POD, pod, workspace.namespace, spec=spec))


def given(workspace: Workspace, node: str, pod: str) -> tuple[dict[str, int], Counter[str]]:
    """The containers' amounts of each resource, and how many devices of each PF its node is to attach."""
    workspace.wait_placed(pod, node)
    found = workspace.api.wait_for(
        POD,
        pod,
        lambda one: bool(one and one["status"].get("extendedResourceClaimStatus")),
        namespace=workspace.namespace,
    )
    assert found is not None
    status = found["status"]["extendedResourceClaimStatus"]
    claim = workspace.api.get(CLAIM, status["resourceClaimName"], workspace.namespace)
    results = Counter(one["request"] for one in claim["status"]["allocation"]["devices"]["results"])
    told = {
        f"{one['containerName']} {one['resourceName'].rpartition('/')[2]}": results[one["requestName"]]
        for one in status["requestMappings"]
    }
    return told, Counter(device.rpartition("v")[0] for device in attached(workspace, node, claim))


def attached(workspace: Workspace, node: str, claim: Object) -> list[str]:
    """The devices of the plans that the node makes of a claim; they are all that were allocated."""
    slices = msgspec.convert(workspace.api.list(SLICE, fields=f"spec.nodeName={node}"), list[ResourceSlice])
    plans = bind([msgspec.convert(claim, ResourceClaim)], TOPOLOGIES, from_slices(slices)).plans
    devices = [step.device.device for plan in plans for step in plan.steps if step.device is not None]
    assert sorted(devices) == sorted(workspace.devices(claim["metadata"]["name"]))
    return devices


def test_each_container_is_given_its_vfs_of_each_physical_network(workspace: Workspace, node: str) -> None:
    run(workspace, node, "two-containers")
    told, devices = given(workspace, node, "two-containers")
    assert told == {"vf-container physnet2": 1, "vf-other-container physnet2": 1, "vf-other-container physnet3": 1}
    assert devices == {SECOND: 2, THIRD: 1}


@pytest.mark.parametrize("pod", ["init-containers", "sidecar"])
def test_of_init_containers_the_largest_counts_and_a_sidecar_is_added(
    workspace: Workspace, node: str, pod: str
) -> None:
    run(workspace, node, pod)
    assert given(workspace, node, pod)[1] == {SECOND: 3}


def test_pods_stay_pending_with_the_reason_until_enough_vfs_are_free(workspace: Workspace, node: str) -> None:
    run(workspace, node, "too-many")
    placed, reason = workspace.schedule("too-many")
    assert (placed, "cannot allocate all claims" in reason) == ("", True), reason
    run(workspace, node, "two-containers")
    assert given(workspace, node, "two-containers")[1] == {SECOND: 2, THIRD: 1}
    run(workspace, node, "sidecar")
    assert "cannot allocate all claims" in workspace.schedule("sidecar")[1], "two of four VFs are left"
    workspace.api.delete(POD, "two-containers", workspace.namespace)
    workspace.wait_placed("sidecar", node)
