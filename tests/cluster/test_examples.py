"""The documents' examples from kubectl to the scheduler's choice, with the controller and the webhook at work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.exposure import expose
from netdra.model import documents
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import layout
from testbed import objects, yaml
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.kubectl import KubectlError
from testbed.objects import CLAIM, CLASS, POD, SLICE, manifest
from testbed.workspace import Workspace
from tests.builders import read_inventory
from tests.cluster.daemons import running_controller, running_webhook
from tests.documents import CLAIMS, GRAPH, REFERENCE_NODE, TOPOLOGIES
from tests.documents import HERE as DOCUMENTS

pytestmark = pytest.mark.usefixtures("daemons")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "netdra"
EXAMPLE = ROOT / "examples" / "worker-1"
TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
USAGE = "networking.dra.io/v1alpha1/NetworkTopologyUsage"
ROLLOUT = "networking.dra.io/v1alpha1/DeviceExposurePolicyRollout"
GPU = "nvidia-gpu-h100"
GPU_DRIVER = "gpu.nvidia.com"
PCIE_ROOTS = ("device.k8s.io/pcieRoot", "resource.kubernetes.io/pcieRoot")
HERE, THERE, ELSEWHERE = "pci0000:00", "pci0000:80", "pci0000:c0"
CLASSES = {
    "ai-bonded-rdma-vf0",
    "ai-bonded-rdma-vf1",
    "bonded-vlan-topology-vf0",
    "bonded-vlan-topology-vf1",
    "ovnk-localnet-localnet-port",
    "ovnk-localnet-tuned-localnet-port",
    "ovnk-udn-accelerated-ovn-vf",
}


@pytest.fixture(scope="module")
def daemons(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller and the webhook, the examples' topologies, and a class of GPUs."""
    with running_controller(control_plane, api), running_webhook(control_plane, api):
        try:
            control_plane.kubectl("apply", "--server-side", "-f", str(TOPOLOGIES))
            for name in CLASSES:
                api.wait_for(CLASS, name, lambda found: found is not None)
            api.create(yaml.safe_load((GRAPH / "classes" / f"{GPU}.yaml").read_text()))
            yield
        finally:
            api.delete(CLASS, GPU)
            for folder in (TOPOLOGIES, REFERENCE_NODE):
                control_plane.kubectl("delete", "--ignore-not-found", "-f", str(folder))


def slices_of(node: str, second: str = THERE) -> list[Object]:
    """The slices that netdra makes of worker-1's interfaces on another node, its second NIC beside a PCIe root."""
    found = read_inventory((EXAMPLE / "inventory.json").read_text())
    interfaces = tuple(
        msgspec.structs.replace(each, pcie_root=second) if "enp3s0f1" in (each.if_name, each.pf_name) else each
        for each in found.interfaces
    )
    here = msgspec.structs.replace(found, node=msgspec.structs.replace(found.node, name=node), interfaces=interfaces)
    written = [
        each
        for path in sorted((EXAMPLE / "policies").iterdir())
        for each in documents.read(path.read_text(), path.name)
    ]
    packed = layout(expose(here, [each for each in written if isinstance(each, DeviceExposurePolicy)]), node=node)
    assert packed.problems == ()
    return [documents.plain(each) for each in packed.slices]


def gpus(node: str, *roots: str) -> Object:
    """A GPU driver's slice: a GPU beside each of the roots, which it publishes by both names."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"productName": {"string": "H100"}, **{name: {"string": root} for name in PCIE_ROOTS}},
        }
        for number, root in enumerate(roots)
    ]
    pool = {"name": f"{node}-gpus", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU_DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return manifest(SLICE, f"{node}-gpus", spec=spec)


def template() -> Any:
    return yaml.safe_load((CLAIMS / "ai-gpu-bonded-rdma.yaml").read_text())


def run_pod(workspace: Workspace, name: str, made: Object, node: str) -> str:
    """A pod with a claim that is made from a template, once it is scheduled: the claim's name."""
    pod = objects.pod(workspace.namespace, name, {"net": "unused"}, node=node)
    pod["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimTemplateName": made["metadata"]["name"]}]
    workspace.api.create(pod)
    return claim_of(workspace, name, node)


def claim_of(workspace: Workspace, name: str, node: str) -> str:
    """The claim of a pod that was made from a template, once the pod is scheduled to a node."""
    # The scheduler's first word may be that the claim is not made yet.
    placed = workspace.api.wait_for(
        POD, name, lambda found: objects.scheduling(found)[0] == node, namespace=workspace.namespace
    )
    assert placed is not None
    claim: str = placed["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    return claim


def test_the_template_with_a_gpu_and_both_vfs_is_allocated_on_one_pcie_root(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    node = workspace.add_node()
    workspace.publish(node, *slices_of(node, HERE), gpus(node, ELSEWHERE, HERE))
    made = template()
    control_plane.kubectl("apply", "-n", workspace.namespace, "-f", "-", text=yaml.safe_dump(made))
    pod = yaml.safe_load((GRAPH / "pods" / "ai-training.yaml").read_text())
    name = pod["metadata"]["name"]
    control_plane.kubectl("apply", "-n", workspace.namespace, "-f", "-", text=yaml.safe_dump(pod))
    claim = claim_of(workspace, name, node)
    gpu, vf0, vf1 = workspace.devices(claim)
    assert gpu == "gpu-1"
    assert (vf0[:9], vf1[:9]) == ("enp3s0f0v", "enp3s0f1v")
    held = workspace.api.wait_for(USAGE, "ai-bonded-rdma", lambda found: bool(found and found["status"]["users"]))
    assert held is not None
    assert held["status"]["usedBy"] == [f"{workspace.namespace}/{claim}"]
    workspace.release(name, claim)
    workspace.api.wait_for(USAGE, "ai-bonded-rdma", lambda found: bool(found and found["status"]["users"] == 0))


def test_a_template_without_vf1_is_rejected_with_the_missing_request(
    workspace: Workspace, control_plane: ControlPlane
) -> None:
    made = template()
    devices = made["spec"]["spec"]["devices"]
    devices["requests"] = [each for each in devices["requests"] if each["name"] != "vf1"]
    devices["constraints"][0]["requests"] = ["gpu", "vf0"]
    with pytest.raises(KubectlError) as refused:
        control_plane.kubectl("apply", "-n", workspace.namespace, "-f", "-", text=yaml.safe_dump(made))
    assert (
        'admission webhook "validate.networking.dra.io" denied the request: NetworkTopology "ai-bonded-rdma" requires '
        'root step requests [vf0, vf1], but ResourceClaimTemplate "ai-gpu-bonded-rdma" only provides requests [vf0]. '
        "Missing: [vf1]"
    ) in refused.value.stderr


@pytest.mark.parametrize("attribute", PCIE_ROOTS)
def test_the_scheduler_selects_the_vf_next_to_the_gpu_and_none_without_a_match(
    workspace: Workspace, attribute: str
) -> None:
    api, node, name = workspace.api, workspace.add_node(), workspace.name("near")
    workspace.publish(node, *slices_of(node))
    vf = 'device.attributes["dra.networking"].type == "vf"'
    workspace.create(manifest(TOPOLOGY, name, spec={"steps": [_root("vf", vf)]}))
    api.wait_for(CLASS, f"{name}-vf", lambda found: found is not None)
    requests = [_request("gpu", GPU), _request("vf", f"{name}-vf")]
    together = [{"matchAttribute": attribute, "requests": ["gpu", "vf"]}]
    for root, expected in ((THERE, "enp3s0f1v"), (HERE, "enp3s0f0v"), (ELSEWHERE, "")):
        published = api.create(gpus(node, root))
        workspace.settle(node)
        claim, reason = workspace.place(*requests, node=node, constraints=together)
        if expected:
            assert workspace.devices(claim)[1][: len(expected)] == expected
            workspace.release(claim, claim)
        else:
            assert "cannot allocate all claims" in reason
            alone, _ = workspace.place(*requests, node=node)
            assert alone, "without the constraint it fits"
            workspace.release(alone, alone)
        api.delete(SLICE, published["metadata"]["name"])


def test_a_vf_is_not_taken_from_another_root_when_those_beside_the_gpu_are_used_up(workspace: Workspace) -> None:
    api, node, name = workspace.api, workspace.add_node(), workspace.name("near")
    workspace.publish(node, *slices_of(node), gpus(node, *[THERE] * 5))
    workspace.create(manifest(TOPOLOGY, name, spec={"steps": [_root("vf", "true")]}))
    api.wait_for(CLASS, f"{name}-vf", lambda found: found is not None)
    workspace.settle(node)
    requests = [_request("gpu", GPU), _request("vf", f"{name}-vf")]
    together = [{"matchAttribute": PCIE_ROOTS[0], "requests": ["gpu", "vf"]}]
    placed = [workspace.place(*requests, node=node, constraints=together) for _ in range(5)]
    assert [bool(claim) for claim, _ in placed] == [True] * 4 + [False]
    assert {workspace.devices(claim)[1] for claim, _ in placed[:4]} == {f"enp3s0f1v{at}" for at in range(4)}
    assert "cannot allocate all claims" in placed[4][1]
    assert api.get(CLAIM, placed[0][0], workspace.namespace)["status"]["allocation"]


def test_the_examples_and_the_chart_are_taken_by_kubectl_and_a_second_time_change_nothing(
    control_plane: ControlPlane,
) -> None:
    control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(EXAMPLE / "slices.yaml")
    )
    for folder in (CHART / "files" / "crds", REFERENCE_NODE, TOPOLOGIES):
        control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
        control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
        assert control_plane.kubectl("diff", "--server-side", "--force-conflicts", "-f", str(folder)) == ""


def test_every_policy_of_the_example_is_accepted_and_none_conflicts(api: Api, control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REFERENCE_NODE))
    written = list(yaml.safe_load_all(REFERENCE_NODE.read_text()))
    assert len(written) == 8
    for each in written:
        found = api.wait_for(POLICY, each["metadata"]["name"], _has_conditions)
        assert found is not None
        rollout = api.wait_for(ROLLOUT, each["metadata"]["name"], _has_conditions)
        assert rollout is not None
        conditions = [*found["status"]["conditions"], *rollout["status"]["conditions"]]
        said = {one["type"]: one["status"] for one in conditions}
        untroubled = {"Conflicting": "False", "Degraded": "False", "Overlapping": "False"}
        assert said == {"Accepted": "True", **untroubled}, json.dumps((found, rollout))


NOT_ACCEPTED = {
    "graph/plugins/cni-plugin-bond-daemonset.yaml": "`selector` does not match template `labels`",
    "attributes/slice.yaml": ".spec.resourceSliceCount: field not declared in schema",
    "attributes/custom-device.yaml": "apiVersion not set",
    "devices/6.3.yaml": ".spec.devices[0].basic: field not declared in schema",
    "devices/2.1.yaml": 'metadata.name: Invalid value: "<policy-name>"',
    **{
        f"graph/classes/{name}.yaml": "differs from the class that follows from its owner"
        for name in ("ai-bonded-rdma-vf0", "ai-bonded-rdma-vf1", "bonded-vlan-topology-vf0")
    },
}
"""The files with an object that is not accepted as it is, and the reason that an author is given.

One is a form to be filled in (tests/unit/test_documents.py), and the controller writes the classes; for the
others docs/mission.md says what takes their place.
"""


@pytest.mark.parametrize("path", sorted(DOCUMENTS.rglob("*.yaml")), ids=lambda path: str(path.relative_to(DOCUMENTS)))
def test_the_documents_objects_are_accepted_and_no_field_is_dropped(
    path: Path, control_plane: ControlPlane, workspace: Workspace
) -> None:
    """By the real API server with the webhook, as `kubectl apply` sends them."""
    refused = NOT_ACCEPTED.get(str(path.relative_to(DOCUMENTS)))
    applied = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-o", "json")
    command = (*applied, "-n", workspace.namespace, "-f", str(path))
    if refused:
        with pytest.raises(KubectlError) as error:
            control_plane.kubectl(*command)
        assert refused in error.value.stderr
        return
    returned = json.loads(control_plane.kubectl(*command))
    for written, found in zip(yaml.safe_load_all(path.read_text()), returned.get("items", [returned]), strict=True):
        assert lost(written["spec"], found["spec"]) == []


def lost(written: Any, found: Any, path: str = "spec") -> list[str]:
    """The fields of an object that the API server would not store."""
    if isinstance(written, dict) and isinstance(found, dict):
        return [each for key in written for each in lost(written[key], found.get(key), f"{path}.{key}")]
    if isinstance(written, list) and isinstance(found, list) and len(written) == len(found):
        return [each for at, one in enumerate(written) for each in lost(one, found[at], f"{path}[{at}]")]
    return [] if written == found else [f"{path}: {written!r}, not {found!r}"]


def _has_conditions(found: Object | None) -> bool:
    return bool((found or {}).get("status", {}).get("conditions"))


def _root(name: str, expression: str) -> Object:
    return {"name": name, "type": "sriov", "selector": {"cel": expression}}


def _request(name: str, device_class: str) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class}}
